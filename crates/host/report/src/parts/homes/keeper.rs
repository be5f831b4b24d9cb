//! A keeper of the report's own.

use super::super::temporary::Folder;
use sealane_keeper_client::client::Client;
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::pool::Manner;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time that a keeper may take until it serves.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest path of a socket, in bytes: `sun_path` has 108, with a zero in the end.
const MAX_SOCKET_LEN: usize = 107;

/// A keeper that ends with this process. Its keys are in memory.
pub(super) struct Keeper {
    process: Process,
    home: KeeperHome,
}

/// A process that is ended when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It has nothing to lose, and may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The executable of this process, if it has a keeper.
pub(super) fn program() -> Result<PathBuf, String> {
    let path = std::env::current_exe().map_err(|e| e.to_string())?;
    if !is_sealane(&path) {
        return Err(format!("{} is not `sealane`, which has one", path.display()));
    }
    Ok(sealane_sys::process::this_program())
}

/// Whether an executable is `sealane`. The kernel adds a word to its path when its file is replaced.
fn is_sealane(path: &Path) -> bool {
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    name.strip_suffix(b" (deleted)").unwrap_or(name) == b"sealane"
}

/// The socket in a folder.
fn socket_in(folder: &Path) -> Result<PathBuf, String> {
    let socket = folder.join("socket");
    if socket.as_os_str().len() > MAX_SOCKET_LEN {
        let path = socket.display();
        return Err(format!("TMPDIR is too long: {path} has more than the {MAX_SOCKET_LEN} bytes of a socket's path"));
    }
    Ok(socket)
}

impl Keeper {
    /// Starts the keeper of an executable, and connects to it.
    pub(super) fn start(program: &Path) -> Result<Self, String> {
        let failed = |e: std::io::Error| e.to_string();
        let folder = Folder::new().map_err(failed)?;
        let socket = socket_in(folder.path())?;
        let [config, log] = ["keeper.toml", "log"].map(|name| folder.path().join(name));
        std::fs::write(&config, format!("socket = '{}'\n", socket.display())).map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("keeper").arg("--config").arg(config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).map_err(failed)?);
        // In a process group of its own, so that Ctrl-C is for this process alone, which then ends it.
        command.process_group(0);
        sealane_sys::process::ends_with_us(&mut command);
        let mut process = Process(command.spawn().map_err(failed)?);
        wait(&mut process.0, &socket, &log)?;
        // The connection is made here, and lasts. So the folder goes now: nothing is left if this process is killed. A connection that
        // is made at load would be one without shared memory.
        let home = KeeperHome::new(socket, Manner::default());
        home.reach().map_err(|e| e.to_string())?;
        Ok(Keeper { process, home })
    }

    /// The keys in it.
    pub(super) fn home(&self) -> &KeeperHome {
        &self.home
    }

    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        self.process.0.id()
    }
}

/// Waits until a keeper serves.
fn wait(process: &mut Child, socket: &Path, log: &Path) -> Result<(), String> {
    let since = Instant::now();
    while let Err(why) = Client::connect(socket) {
        if let Some(status) = process.try_wait().map_err(|e| e.to_string())? {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            return Err(format!("it ended with {status}: {}", log.trim()));
        }
        if since.elapsed() > PATIENCE {
            return Err(format!("it did not serve within {} seconds: {why}", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_that_was_replaced_is_still_sealane() {
        for (path, is) in [
            ("/usr/bin/sealane", true),
            ("/usr/bin/sealane (deleted)", true),
            ("/usr/bin/sealane-report", false),
            ("/sealane/other", false),
            ("/", false),
        ] {
            assert_eq!(is_sealane(Path::new(path)), is, "{path}");
        }
    }

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_told() {
        assert!(socket_in(Path::new("/tmp/a")).is_ok());
        let why = socket_in(Path::new(&format!("/{}", "a".repeat(MAX_SOCKET_LEN)))).unwrap_err();
        assert!(why.starts_with("TMPDIR is too long"), "{why}");
    }

    #[test]
    fn a_program_without_a_keeper_tells_its_reason() {
        let why = Keeper::start(Path::new("/bin/false")).err().expect("it serves nothing");
        assert!(why.starts_with("it ended with"), "{why}");
    }
}
