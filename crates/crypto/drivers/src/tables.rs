//! Finds the calibrated table of this machine.

use sealane_crypto::choice::{Table, TableError};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Tables for machines that were never calibrated. The first one that fits the CPU is used; where none fits, priorities
/// decide. `tables/README.md` says how each was measured.
const SHIPPED: &[Shipped] = &[
    Shipped {
        fits: has_avx512_vaes_sha_of_intel,
        name: "avx512-vaes-sha-intel",
        text: include_str!("../tables/avx512-vaes-sha-intel.txt"),
    },
    Shipped { fits: has_avx512_vaes_sha, name: "avx512-vaes-sha", text: include_str!("../tables/avx512-vaes-sha.txt") },
    Shipped { fits: has_avx512, name: "avx512", text: include_str!("../tables/avx512.txt") },
    Shipped { fits: has_avx2, name: "avx2", text: include_str!("../tables/avx2.txt") },
];

struct Shipped {
    fits: fn() -> bool,
    name: &'static str,
    text: &'static str,
}

/// Ice Lake and later.
fn has_avx512_vaes_sha_of_intel() -> bool {
    has_avx512_vaes_sha() && is_intel()
}

#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    let vendor = core::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel() -> bool {
    false
}

/// Zen 4 and later.
fn has_avx512_vaes_sha() -> bool {
    #[cfg(target_arch = "x86_64")]
    return has_avx512() && is_x86_feature_detected!("vaes") && is_x86_feature_detected!("sha");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Skylake-SP, Cascade Lake.
fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return has_avx2() && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Haswell to Coffee Lake, Zen 1 to 3, and clients without AVX-512.
fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("aes");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The origin of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file: measured on this CPU model, or named by `SEALANE_CALIBRATION`.
    File(PathBuf),
    /// Shipped, for a family of CPUs: its name.
    Shipped(&'static str),
    /// No table: priorities decide.
    Nothing,
}

/// A table file that exists but cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// It cannot be read.
    Io(PathBuf, io::Error),
    /// It is malformed.
    Malformed(PathBuf, TableError),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Io(path, e) => write!(f, "{}: {e}", path.display()),
            LoadError::Malformed(path, e) => write!(f, "{}: {e}", path.display()),
        }
    }
}

impl std::error::Error for LoadError {}

/// The CPU's model name, from `/proc/cpuinfo`.
#[must_use]
pub fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        info.lines().find_map(|l| l.split_once(':').filter(|(k, _)| k.trim() == name)).map(|(_, v)| v.trim().to_owned())
    };
    // Virtual machines may hide the model name, so family, model and stepping are part of the identity.
    let [name, family, model, stepping] =
        ["model name", "cpu family", "model", "stepping"].map(|f| field(f).unwrap_or_else(|| "unknown".to_owned()));
    format!("{name} family {family} model {model} stepping {stepping}")
}

/// A file name for a CPU model.
#[must_use]
pub fn slug(cpu: &str) -> String {
    let mut slug = String::new();
    for c in cpu.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_matches('-').to_owned()
}

/// A variable of the environment; none in a program with rights that its caller lacks (set-user-ID, file capabilities),
/// whose environment is the caller's. Programs that load the OpenSSL provider may be such ones.
fn variable(name: &str) -> Option<OsString> {
    // SAFETY: getauxval reads what the kernel has left for the process, and needs nothing.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if is_privileged { None } else { std::env::var_os(name) }
}

/// The name of the file that has this CPU model's table.
fn file_name() -> String {
    format!("{}.txt", slug(&cpu_model()))
}

/// The folder of this user's tables.
fn user_folder() -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute())
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(config.join("sealane/calibration"))
}

/// The path of this user's table for this CPU model, which `sealane crypto calibrate` writes.
#[must_use]
pub fn user_path() -> Option<PathBuf> {
    Some(user_folder()?.join(file_name()))
}

/// Finds the table: `SEALANE_CALIBRATION`, this user's, `/etc/sealane/calibration`, a shipped one.
///
/// # Errors
/// When a file exists but cannot be read, or is malformed.
pub fn load() -> Result<(Table, Origin), LoadError> {
    if let Some(path) = variable("SEALANE_CALIBRATION") {
        let path = PathBuf::from(path);
        let text = std::fs::read_to_string(&path).map_err(|e| LoadError::Io(path.clone(), e))?;
        return parse(&text, path);
    }
    // Once for both folders: it reads `/proc/cpuinfo`, and every program that loads the provider waits for that.
    let name = file_name();
    for folder in user_folder().into_iter().chain([PathBuf::from("/etc/sealane/calibration")]) {
        let path = folder.join(&name);
        match std::fs::read_to_string(&path) {
            Ok(text) => return parse(&text, path),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(e) => return Err(LoadError::Io(path, e)),
        }
    }
    Ok(shipped())
}

/// The shipped table for this CPU's family.
#[must_use]
pub fn shipped() -> (Table, Origin) {
    for shipped in SHIPPED.iter().filter(|s| (s.fits)()) {
        // A test reads them all, so that a malformed one cannot ship; if it did, priorities would decide.
        if let Ok(table) = Table::parse(shipped.text) {
            return (table, Origin::Shipped(shipped.name));
        }
    }
    (Table::default(), Origin::Nothing)
}

fn parse(text: &str, path: PathBuf) -> Result<(Table, Origin), LoadError> {
    match Table::parse(text) {
        Ok(table) => Ok((table, Origin::File(path))),
        Err(e) => Err(LoadError::Malformed(path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_file_names() {
        assert_eq!(slug("AMD EPYC (TM) 9965, 192-Core"), "amd-epyc-tm-9965-192-core");
        assert!(!slug(&cpu_model()).is_empty());
    }

    #[test]
    fn shipped_tables_are_well_formed() {
        for s in SHIPPED {
            let table = Table::parse(s.text).unwrap_or_else(|e| panic!("{}: {e}", s.name));
            assert!(!table.is_empty(), "{}", s.name);
        }
    }
}
