//! Finds intel-ipsec-mb and compiles the flat interface to it. Without the library the crate builds and has no rows.
//!
//! `IPSEC_MB_DIR` names a directory that contains `intel-ipsec-mb.h` and `libIPSec_MB.a`, if the C compiler does not
//! find them itself.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const ARCHIVE: &str = "libIPSec_MB.a";
const HEADER: &str = "intel-ipsec-mb.h";

fn main() {
    println!("cargo:rustc-check-cfg=cfg(ipsec_mb)");
    println!("cargo:rerun-if-changed=csrc/shim.c");
    println!("cargo:rerun-if-env-changed=IPSEC_MB_DIR");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("ARCH") != "x86_64" || target("OS") != "linux" {
        return;
    }
    if let Err(missing) = build() {
        println!(
            "cargo:warning=intel-ipsec-mb drivers are left out: {missing}. Install libipsec-mb-dev (Debian, Ubuntu) or set IPSEC_MB_DIR."
        );
    }
}

fn build() -> Result<(), String> {
    let dir = env::var_os("IPSEC_MB_DIR").map(PathBuf::from);
    let mut cc = cc::Build::new();
    // Warnings come from the header, which has anonymous unions and compares enums of different types.
    cc.file("csrc/shim.c").cargo_warnings(false).flag_if_supported("-fvisibility=hidden");
    if let Some(dir) = &dir {
        cc.include(dir);
    }
    let archive = find_archive(&cc, dir.as_deref())?;
    cc.try_compile("sealane_ipsecmb").map_err(|_| format!("the C compiler does not accept {HEADER}"))?;
    println!("cargo:rerun-if-changed={}", archive.display());
    println!("cargo:rustc-link-search=native={}", archive.parent().unwrap_or(Path::new(".")).display());
    println!("cargo:rustc-link-lib=static=IPSec_MB");
    println!("cargo:rustc-cfg=ipsec_mb");
    Ok(())
}

/// Finds the static archive. Every program under the shim would have to find a shared library.
fn find_archive(cc: &cc::Build, dir: Option<&Path>) -> Result<PathBuf, String> {
    let archive = match dir {
        Some(dir) => dir.join(ARCHIVE),
        None => {
            let compiler = cc.try_get_compiler().map_err(|_| "no C compiler".to_owned())?;
            let out = Command::new(compiler.path())
                .arg(format!("-print-file-name={ARCHIVE}"))
                .output()
                .map_err(|e| format!("the C compiler does not run: {e}"))?;
            PathBuf::from(String::from_utf8_lossy(&out.stdout).trim())
        }
    };
    // A compiler that does not find the file prints only its name.
    if archive.is_absolute() && archive.is_file() { Ok(archive) } else { Err(format!("{ARCHIVE} not found")) }
}
