//! A `sealane keeper` for a bench.

use sealane_drivers::turns::process_time;
use sealane_keeper_client::client::Client;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A keeper with a folder for its socket and its keys, all gone with it.
pub struct Keeper {
    folder: PathBuf,
    process: Child,
}

impl Keeper {
    /// Starts the `sealane` beside this program with these lines of configuration, beside the one that names the socket. In them,
    /// `FOLDER` is the keeper's folder.
    ///
    /// # Errors
    /// The file system's, or that it does not serve within a minute.
    pub fn start(config: &str) -> Result<Self, Box<dyn Error>> {
        let folder = std::env::temp_dir().join(format!("sealane-bench-keeper-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let config = config.replace("FOLDER", &folder.display().to_string());
        let file = folder.join("keeper.toml");
        std::fs::write(&file, format!("socket = '{}'\n{config}", folder.join("socket").display()))?;
        let process = Self::spawn(&folder)?;
        let keeper = Keeper { folder, process };
        keeper.wait()?;
        Ok(keeper)
    }

    fn spawn(folder: &Path) -> Result<Child, Box<dyn Error>> {
        let sealane = std::env::current_exe()?.with_file_name("sealane");
        Ok(Command::new(sealane).arg("keeper").arg("--config").arg(folder.join("keeper.toml")).spawn()?)
    }

    fn wait(&self) -> Result<(), Box<dyn Error>> {
        let since = Instant::now();
        while Client::connect(&self.socket()).is_err() {
            if since.elapsed() > Duration::from_secs(60) {
                return Err("the keeper does not serve".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends it as a service manager does, starts it again, and returns how long it takes from then until it serves.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn restart(&mut self) -> Result<Duration, Box<dyn Error>> {
        // SAFETY: a plain call; the process is our child, and not waited for yet.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        self.process.wait()?;
        let since = Instant::now();
        self.process = Self::spawn(&self.folder)?;
        self.wait()?;
        Ok(since.elapsed())
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// The CPU time that it has used.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        process_time(self.process.id())
    }

    /// Its memory, in bytes.
    ///
    /// # Errors
    /// The file system's.
    pub fn memory(&self) -> Result<u64, Box<dyn Error>> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("a process without memory")?;
        Ok(resident.trim().trim_end_matches("kB").trim().parse::<u64>()? << 10)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
