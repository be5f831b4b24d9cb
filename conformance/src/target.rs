//! Targets run a program: a real kernel, `sealane run`, or this machine as it is.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A place to run programs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A user-mode kernel of SEALANE_KERNELS; with `restricted`, the allowlist of Linux 7.3 stays in force.
    Kernel {
        /// Its name, such as `linux-7.3`.
        name: String,
        /// Whether `/proc/sys/crypto/af_alg_restrict` stays at its default.
        restricted: bool,
    },
    /// `sealane run --profile PROFILE`.
    Sealane {
        /// The executable.
        exe: PathBuf,
        /// The profile.
        profile: String,
        /// The place of keys, if it is not the usual one.
        keys: Option<&'static str>,
    },
    /// This machine's own kernel.
    Plain,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Standard output (in a kernel: with standard error).
    pub text: String,
    /// Standard error.
    pub errors: String,
    /// Exit status; `None` when it was killed.
    pub status: Option<i32>,
    /// Whether it ran past its time limit.
    pub timed_out: bool,
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The folder of shared files outside the repository: SEALANE_SHARED, or `shared/` beside the repository.
#[must_use]
pub fn shared() -> PathBuf {
    env::var_os("SEALANE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from)
}

/// The folder of real kernels: SEALANE_KERNELS, or `kernel/` of [`shared`].
#[must_use]
pub fn kernels() -> PathBuf {
    env::var_os("SEALANE_KERNELS").map_or_else(|| shared().join("kernel"), PathBuf::from)
}

/// The script that boots them.
#[must_use]
pub fn boot() -> PathBuf {
    root().join("conformance/boot")
}

/// The executable `sealane`: SEALANE, or the one that was built with this program.
#[must_use]
pub fn sealane() -> PathBuf {
    env::var_os("SEALANE").map_or_else(|| built_beside("sealane"), PathBuf::from)
}

/// A program of the profile of this one, which is in `target/PROFILE/` or, as a test, in `target/PROFILE/deps/`.
fn built_beside(name: &str) -> PathBuf {
    let this = env::current_exe().unwrap_or_default();
    let folder = this.parent().unwrap_or(Path::new("."));
    let profile = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    profile.join(name)
}

/// The folder with the programs that `programs/build.sh` builds, which this does.
///
/// # Panics
/// When one of them cannot be built.
#[must_use]
pub fn built_programs(tmp: &str) -> PathBuf {
    let folder = Path::new(tmp).join("programs");
    let mut build = Command::new(root().join("conformance/programs/build.sh"));
    build.arg(&folder);
    let done = run_limited(build, Duration::from_secs(300)).expect("bash");
    assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
    folder
}

impl Target {
    /// Returns the kernel called `name`; `linux-7.3-restricted` is `linux-7.3` with its allowlist in force.
    #[must_use]
    pub fn kernel(name: &str) -> Target {
        match name.strip_suffix("-restricted") {
            Some(base) => Target::Kernel { name: base.to_owned(), restricted: true },
            None => Target::Kernel { name: name.to_owned(), restricted: false },
        }
    }

    /// Returns [`sealane`] with a profile.
    #[must_use]
    pub fn sealane(profile: &str) -> Target {
        Target::Sealane { exe: sealane(), profile: profile.to_owned(), keys: None }
    }

    /// Returns [`sealane`] with a profile, and keys in guarded memory.
    #[must_use]
    pub fn guarded(profile: &str) -> Target {
        Target::Sealane { exe: sealane(), profile: profile.to_owned(), keys: Some("guarded") }
    }

    /// Its name in reports.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Target::Kernel { name, restricted: false } => format!("kernel {name}"),
            Target::Kernel { name, restricted: true } => format!("kernel {name} (restricted)"),
            Target::Sealane { profile, keys: None, .. } => format!("sealane {profile}"),
            Target::Sealane { profile, keys: Some(keys), .. } => format!("sealane {profile} (keys {keys})"),
            Target::Plain => "this machine".to_owned(),
        }
    }

    /// Returns the reason when nothing can be run here.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let need = |path: PathBuf, hint: &str| (!path.exists()).then(|| format!("no {} ({hint})", path.display()));
        match self {
            Target::Kernel { name, .. } => need(kernels().join("boot"), "set SEALANE_KERNELS")
                .or_else(|| need(kernels().join(name), "set SEALANE_KERNELS")),
            Target::Sealane { exe, .. } => need(exe.clone(), "make build, or set SEALANE"),
            Target::Plain => None,
        }
    }

    /// Runs `argv` and waits for its end, at most for `limit`.
    ///
    /// # Errors
    /// When it cannot be started.
    ///
    /// # Panics
    /// When `argv` is empty.
    pub fn run(&self, argv: &[&str], limit: Duration) -> io::Result<Outcome> {
        let mut command;
        match self {
            Target::Kernel { name, restricted } => {
                command = Command::new(boot());
                // Kernels before 6.8 take shorter keys.
                let mut settings =
                    "f=/proc/sys/net/core/optmem_max; [ $(cat $f) -ge 131072 ] || echo 131072 >$f; ".to_owned();
                if !restricted {
                    settings += "f=/proc/sys/crypto/af_alg_restrict; [ ! -e $f ] || echo 0 >$f; ";
                }
                command.arg(name).args(["--", "sh", "-c", &(settings + "exec \"$@\""), "sh"]).args(argv);
            }
            Target::Sealane { exe, profile, keys } => {
                command = Command::new(exe);
                command.args(["run", "--profile", profile]);
                if let Some(keys) = keys {
                    command.args(["--keys", keys]);
                }
                command.arg("--").args(argv);
            }
            Target::Plain => {
                command = Command::new(argv[0]);
                command.args(&argv[1..]);
            }
        }
        run_limited(command, limit)
    }
}

/// Runs a command, and kills it with all its descendants after `limit`.
///
/// # Errors
/// When it cannot be started.
pub fn run_limited(mut command: Command, limit: Duration) -> io::Result<Outcome> {
    // Files instead of pipes: a surviving grandchild would keep a pipe open, and a full pipe would block the program.
    let (out, err) = (temp_file()?, temp_file()?);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?).process_group(0);
    crate::sys::heed_terminal(&mut command);
    let mut child = command.spawn()?;
    let deadline = Instant::now() + limit;
    let mut timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            timed_out = true;
            break end(&mut child)?;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ok(Outcome { text: read_back(out)?, errors: read_back(err)?, status: status.code(), timed_out })
}

/// Ends a child and its descendants. Descendants are looked up and ended first, because a user-mode kernel leaves the
/// process group; `boot` then cleans up after it.
///
/// # Errors
/// When it cannot be waited for.
pub fn end(child: &mut std::process::Child) -> io::Result<std::process::ExitStatus> {
    let descendants = descendants(child.id());
    for &pid in &descendants {
        crate::sys::kill(pid);
    }
    // Without descendants there is nothing to clean up.
    let rounds = if descendants.is_empty() { 0 } else { 200 };
    for _ in 0..rounds {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    crate::sys::kill_group(child.id());
    child.wait()
}

/// Returns all descendants of `root`, by the parents that /proc names.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may contain anything.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids: Vec<u32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let parents: Vec<(u32, u32)> = pids.into_iter().filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Tells what a process and its descendants are doing, for whoever has waited for them in vain.
#[must_use]
pub fn doings(root: u32) -> String {
    let of = |pid: u32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let command = read("cmdline").replace('\0', " ");
        let command: String = command.chars().take(60).collect();
        let status = read("status");
        let lines = status.lines().filter(|line| {
            ["State:", "PPid:", "Threads:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:"]
                .iter()
                .any(|name| line.starts_with(name))
        });
        let lines: Vec<String> = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        format!("{pid} {command}\n    {}; in {}, call {}\n", lines.join(", "), read("wchan"), read("syscall").trim())
    };
    [root].into_iter().chain(descendants(root)).map(of).collect()
}

fn temp_file() -> io::Result<File> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("sealane-conformance.{}.{n}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn read_back(mut file: File) -> io::Result<String> {
    use std::io::Seek;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_in_time() {
        let start = Instant::now();
        // A grandchild in its own session, like a user-mode kernel.
        let script = "echo before; setsid sh -c 'echo $$; exec sleep 60'; exec sleep 60";
        let out = Target::Plain.run(&["sh", "-c", script], Duration::from_millis(500)).unwrap();
        assert!(out.timed_out && start.elapsed() < Duration::from_secs(20));
        let (before, pid) = out.text.trim_end().split_once('\n').unwrap();
        assert_eq!(before, "before");
        let left = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!left.contains("sleep"), "the grandchild is still there");
    }
}
