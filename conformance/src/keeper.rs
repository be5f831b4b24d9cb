//! A keeper of a test's own, and the memory of processes in which keys are looked for.

use crate::target::{Outcome, run_limited, sealane};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A folder with a configuration and, once it has started, a keeper.
pub struct Place {
    /// The folder, which other users may enter.
    pub folder: PathBuf,
    keeper: Option<Child>,
}

impl Place {
    /// A keeper whose keys outlive it.
    ///
    /// # Panics
    /// When the folder cannot be made.
    #[must_use]
    pub fn new(test: &str) -> Self {
        let place = Self::without_store(test);
        place.passphrase("right\n");
        let (store, passphrase) = (place.file("keys"), place.file("passphrase"));
        place.configure(&format!("store = '{store}'\npassphrase-file = '{passphrase}'\n"));
        place
    }

    /// A keeper that has its keys in memory alone.
    ///
    /// # Panics
    /// When the folder cannot be made.
    #[must_use]
    pub fn without_store(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sealane-home-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        // Other users have to reach the socket.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let place = Place { folder, keeper: None };
        place.configure("");
        place
    }

    /// Writes the configuration: these lines, and those that every one here has.
    fn configure(&self, lines: &str) {
        let admin = fs::metadata(&self.folder).unwrap().uid();
        let text = format!("socket = '{}'\n{lines}admin-users = [{admin}]\n", self.file("socket"));
        fs::write(self.folder.join("keeper.toml"), text).unwrap();
    }

    /// Writes the passphrase of the store.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn passphrase(&self, text: &str) {
        let file = self.file("passphrase");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// The path of a file in its folder: `socket` is the keeper's.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The command that runs the keeper.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(sealane());
        command.arg("keeper").arg("--config").arg(self.folder.join("keeper.toml"));
        command
    }

    /// The keeper's log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Starts the keeper, and waits until it serves.
    ///
    /// # Panics
    /// When it does not.
    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let child = self.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.keeper = Some(child);
        let since = Instant::now();
        // 0 and 1 are answers.
        while self.key(&["list"]).status == Some(2) {
            assert!(since.elapsed() < LIMIT, "it does not serve: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the keeper, and waits for its end.
    ///
    /// # Panics
    /// When there is none.
    pub fn kill(&mut self) {
        let mut keeper = self.keeper.take().expect("it runs");
        keeper.kill().unwrap();
        keeper.wait().unwrap();
    }

    /// Asks the keeper to end, and waits for it: its exit status.
    ///
    /// # Panics
    /// When there is none.
    pub fn end(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.keeper.take().expect("it runs").wait().unwrap().code()
    }

    /// The keeper's process.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.keeper.as_ref().expect("it runs").id()
    }

    /// Sends the keeper a signal.
    ///
    /// # Panics
    /// When there is none.
    pub fn signal(&self, name: &str) {
        let keeper = self.process().to_string();
        assert!(Command::new("kill").args(["-s", name, &keeper]).status().unwrap().success());
    }

    /// Runs `sealane key`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn key(&self, arguments: &[&str]) -> Outcome {
        self.key_as(None, arguments)
    }

    /// Runs `sealane key`, as another user if one is given.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn key_as(&self, user: Option<u32>, arguments: &[&str]) -> Outcome {
        let mut exe = sealane();
        if user.is_some() {
            // It may be in a folder that is closed to others.
            let copy = self.folder.join("sealane");
            if !copy.exists() {
                fs::copy(&exe, &copy).unwrap();
            }
            exe = copy;
        }
        let mut command = Command::new(exe);
        command.arg("key").args(arguments).env("SEALANE_KEEPER", self.file("socket"));
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        run_limited(command, LIMIT).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The number of places of these bytes in a process's memory; none if it has ended.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn in_memory(pid: u32, needle: &[u8]) -> usize {
    const PAGE: u64 = 4096;
    let path = |name: &str| format!("/proc/{pid}/{name}");
    let (memory, pages) = match [File::open(path("mem")), File::open(path("pagemap"))] {
        [Ok(memory), Ok(pages)] => (memory, pages),
        _ if !fs::exists(path("")).unwrap_or(true) => return 0,
        failed => panic!("the memory of {pid}: {failed:?}"),
    };
    let maps = fs::read_to_string(path("maps")).unwrap();
    // A mapping may be much larger than what is in it. Pages beside each other are one piece.
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for line in maps.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|rights| rights.starts_with('r')))
    {
        let (from, to) = line.split_whitespace().next().and_then(|range| range.split_once('-')).unwrap();
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut states = vec![0; usize::try_from((to - from) / PAGE * 8).unwrap()];
        // Pages of the kernel's own have none.
        let len = pages.read_at(&mut states, from / PAGE * 8).unwrap_or(0);
        for (at, state) in (from..to).step_by(PAGE as usize).zip(states[..len].as_chunks().0) {
            // In memory, or in swap.
            if u64::from_ne_bytes(*state) >> 62 != 0 {
                match pieces.last_mut() {
                    Some((_, end)) if *end == at => *end += PAGE,
                    _ => pieces.push((at, at + PAGE)),
                }
            }
        }
    }
    let found = |from: u64, to: u64| {
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        memory.read_exact_at(&mut bytes, from)?;
        Ok::<_, std::io::Error>(bytes.windows(needle.len()).filter(|window| *window == needle).count())
    };
    // One page that cannot be read, such as one that has gone meanwhile, does not hide those beside it.
    let by_page = |from, to| (from..to).step_by(PAGE as usize).filter_map(|at| found(at, at + PAGE).ok()).sum();
    pieces.into_iter().map(|(from, to)| found(from, to).unwrap_or_else(|_| by_page(from, to))).sum()
}
