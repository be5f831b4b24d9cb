//! A keeper of the report's own.

use sealane_keeper_client::client::Client;
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a keeper may take until it serves.
const PATIENCE: Duration = Duration::from_secs(10);

/// A keeper with a folder for its socket, both gone with it. Its keys are in memory.
pub(super) struct Keeper {
    folder: Folder,
    process: Child,
}

/// A folder that nobody else can enter.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is a socket without a process, and a log.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Keeper {
    /// Starts the keeper of this executable.
    pub(super) fn start() -> Result<Self, String> {
        let failed = |e: std::io::Error| e.to_string();
        let sealane = std::env::current_exe().map_err(failed)?;
        if sealane.file_name().is_none_or(|name| name != "sealane") {
            return Err(format!("{} is not `sealane`, which has one", sealane.display()));
        }
        let folder = std::env::temp_dir().join(format!("sealane-bench-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let folder = Folder(folder);
        let config = folder.0.join("keeper.toml");
        std::fs::write(&config, format!("socket = '{}'\n", folder.0.join("socket").display())).map_err(failed)?;
        let log = File::create(folder.0.join("log")).map_err(failed)?;
        let process = Command::new(sealane)
            .arg("keeper")
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let mut keeper = Keeper { folder, process };
        keeper.wait()?;
        Ok(keeper)
    }

    /// Waits until it serves.
    fn wait(&mut self) -> Result<(), String> {
        let since = Instant::now();
        while Client::connect(&self.socket()).is_err() {
            let ended = self.process.try_wait().map_err(|e| e.to_string())?;
            if let Some(status) = ended {
                let log = std::fs::read_to_string(self.folder.0.join("log")).unwrap_or_default();
                return Err(format!("it ended with {status}: {}", log.trim()));
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("it did not serve within {} seconds", PATIENCE.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Its socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.0.join("socket")
    }

    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It has nothing to lose, and may have ended already.
        match self.process.kill() {
            Err(e) if e.kind() != ErrorKind::InvalidInput => {}
            _ => {
                let _ = self.process.wait();
            }
        }
    }
}
