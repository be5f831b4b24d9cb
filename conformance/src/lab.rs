//! Network namespaces of this machine, real kernels behind taps, and programs that run in either.

use crate::skip::skip;
use crate::sys::heed_terminal;
use crate::target::{boot, doings, end};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Namespaces and a folder for files, all of which are removed on drop. The test fails then if a program panicked: a daemon that
/// started again by itself would hide that.
#[derive(Debug)]
pub struct Lab {
    name: String,
    spaces: Vec<String>,
    folder: PathBuf,
    makes_panics: bool,
}

impl Lab {
    /// Makes an empty lab; returns none and reports a skip when `test` may not make namespaces or devices.
    ///
    /// # Panics
    /// When the folder cannot be made.
    #[must_use]
    pub fn new(test: &str) -> Option<Lab> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // A folder of an earlier run with the same process id is not used.
        let (name, folder) = loop {
            let name = format!("lab{}n{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let folder = std::env::temp_dir().join(&name);
            match std::fs::create_dir(&folder) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => break made.map(|()| (name, folder)).expect("a folder"),
            }
        };
        let mut lab = Lab { name, spaces: Vec::new(), folder, makes_panics: false };
        let refused = lab.try_space("probe").err().or_else(|| {
            let probe = lab.spaces[0].clone();
            ip(&["-n", &probe, "tuntap", "add", "tap0", "mode", "tap"]).err()
        });
        if let Some(reason) = refused {
            skip(test, &format!("no network namespace with a tap can be made: {reason}"));
            return None;
        }
        Some(lab)
    }

    /// Tells that the test has programs panic.
    pub fn makes_panics(&mut self) {
        self.makes_panics = true;
    }

    /// The panics of all programs so far: what each wrote, from there on.
    fn panics(&self) -> Vec<String> {
        self.outputs().iter().filter_map(|(_, text)| panic_in(text)).collect()
    }

    /// The output of programs, in the order of their starts.
    fn outputs(&self) -> Vec<(u32, String)> {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let mut outputs: Vec<(u32, String)> = files
            .filter_map(|file| {
                let number = file.file_name().to_str()?.strip_prefix(OUTPUT)?.parse().ok()?;
                Some((number, String::from_utf8_lossy(&std::fs::read(file.path()).ok()?).into_owned()))
            })
            .collect();
        outputs.sort_unstable();
        outputs
    }

    fn try_space(&mut self, which: &str) -> Result<String, String> {
        let name = format!("{}-{which}", self.name);
        ip(&["netns", "add", &name])?;
        self.spaces.push(name.clone());
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        Ok(name)
    }

    /// Makes a namespace with `lo` up, and returns its name.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn space(&mut self, which: &str) -> String {
        self.try_space(which).expect("a network namespace")
    }

    /// Runs `ip -n SPACE WORDS`.
    ///
    /// # Panics
    /// When it fails.
    pub fn ip(&self, space: &str, words: &str) {
        let mut args = vec!["-n", space];
        args.extend(words.split(' '));
        if let Err(e) = ip(&args) {
            panic!("{words}: {e}");
        }
    }

    /// Gives `device` of `space` these addresses, without duplicate address detection, and sets it up.
    ///
    /// # Panics
    /// When it cannot.
    pub fn address(&self, space: &str, device: &str, v4: &str, v6: &str) {
        self.ip(space, &format!("addr add {v4} dev {device}"));
        self.ip(space, &format!("addr add {v6} dev {device} nodad"));
        self.ip(space, &format!("link set {device} up"));
    }

    /// Makes a veth pair between two namespaces.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn veth(&self, [a, b]: [&str; 2], [device_a, device_b]: [&str; 2]) {
        self.ip(a, &format!("link add {device_a} type veth peer name {device_b} netns {b}"));
    }

    /// Writes a file in the lab's folder, and returns its path.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_string_lossy().into_owned()
    }

    /// Has only its owner read a file, as a configuration with keys needs.
    ///
    /// # Panics
    /// When that cannot be.
    pub fn make_private(&self, path: &str) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("our file");
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a command in a namespace.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(&self, space: &str, argv: &[&str]) -> Running {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let output = self.folder.join(format!("{OUTPUT}{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&output).expect("a file");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space]).args(argv).process_group(0).stdin(Stdio::piped());
        command.stdout(file.try_clone().expect("a descriptor")).stderr(file);
        heed_terminal(&mut command);
        let mut child = command.spawn().expect("ip");
        Running { stdin: child.stdin.take(), child: Some(child), output, what: argv.join(" ") }
    }

    /// Returns the number of packets that a device of a namespace has sent.
    ///
    /// # Panics
    /// When there is no such device.
    #[must_use]
    pub fn sent(&self, space: &str, device: &str) -> u64 {
        let file = format!("/sys/class/net/{device}/statistics/tx_packets");
        let (_, text) = self.start(space, &["cat", &file]).finish(Duration::from_secs(60));
        text.trim().parse().unwrap_or_else(|_| panic!("{file}: {text}"))
    }

    /// Waits until a device of a namespace has sent `more` packets.
    ///
    /// # Panics
    /// When it does not.
    pub fn sends(&self, space: &str, device: &str, more: u64) {
        let (start, before) = (Instant::now(), self.sent(space, device));
        while self.sent(space, device) < before + more {
            assert!(start.elapsed() < Duration::from_secs(60), "{device} of {space} does not send");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a shell script as root of a real kernel whose interface `vec0` is the tap of a namespace.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn boot(&self, space: &str, tap: &str, kernel: &str, script: &str) -> Running {
        self.start(space, &[&boot().to_string_lossy(), kernel, "--tap", tap, "--", "sh", "-c", script])
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for space in &self.spaces {
            let _ = ip(&["netns", "del", space]);
        }
        if std::thread::panicking() {
            // Those of long standing began first; what a failure came of is among the last.
            let outputs: Vec<_> = self.outputs().into_iter().filter(|(_, text)| !text.is_empty()).collect();
            for (at, (number, text)) in outputs.iter().enumerate() {
                if at < SHOWN || at + SHOWN >= outputs.len() {
                    eprintln!("-- {OUTPUT}{number}:\n{}", end_of(text));
                }
            }
            eprintln!("outputs are left in {}", self.folder.display());
            return;
        }
        let panics = if self.makes_panics { Vec::new() } else { self.panics() };
        let _ = std::fs::remove_dir_all(&self.folder);
        assert!(panics.is_empty(), "a program panicked:\n{}", panics.join("\n"));
    }
}

/// The beginning of the names of files with what programs write.
const OUTPUT: &str = "output";

/// The most programs whose outputs a test that fails shows: of those that began first, and of the last ones.
const SHOWN: usize = 8;

/// The last lines of a program's output, as much as one reads of it.
fn end_of(output: &str) -> String {
    const LINES: usize = 30;
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// What a program wrote from its first panic on.
fn panic_in(output: &str) -> Option<String> {
    let at = output.find(" panicked at ")?;
    let line = output[..at].rfind('\n').map_or(0, |end| end + 1);
    Some(output[line..].to_owned())
}

/// A script of an administrator who reloads rules all the time, until the file `$0` exists: `/etc/nftables.conf` begins with
/// a flush.
pub const RELOADS: &str = "while [ ! -e \"$0\" ]; do nft 'flush ruleset; add table inet filter; \
                           add chain inet filter input { type filter hook input priority 0; }'; done";

/// A script that fills the file system of a file, and checks that it is full.
#[must_use]
pub fn filling(filler: &Path) -> String {
    let filler = filler.display();
    format!("cat /dev/zero >{filler} 2>/dev/null || :\n! cat /dev/zero 2>/dev/null >>{filler}")
}

/// A folder that is a file system of its own, with room for 256 KiB.
#[derive(Debug)]
pub struct Small(PathBuf);

impl Small {
    /// Makes the folder.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(folder: PathBuf) -> Small {
        std::fs::create_dir(&folder).expect("a folder");
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k,mode=700", "none"]).arg(&folder).status();
        assert!(done.expect("mount").success(), "a file system");
        Small(folder)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Runs `ip`.
fn ip(args: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(args).stdin(Stdio::null()).output().map_err(|e| format!("ip: {e}"))?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}

/// A running command, ended with all its descendants on drop.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    output: PathBuf,
    what: String,
}

impl Running {
    /// Its process id.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// The launcher of a program under `sealane run`, the last process of Sealane's from the guard down, as soon as the
    /// program runs.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn launcher(&self) -> u32 {
        let exe = |id: u32| std::fs::read_link(format!("/proc/{id}/exe")).ok();
        let start = Instant::now();
        loop {
            let mut id = self.id();
            while let [child] = children(id)[..] {
                if exe(child) != exe(id) {
                    return id;
                }
                id = child;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{}: no program runs", self.what);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its output so far, of standard output and standard error.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Waits until its output contains `text` `count` times.
    ///
    /// # Panics
    /// When that takes too long, or the command ends before.
    pub fn expect(&mut self, text: &str, count: usize) {
        let start = Instant::now();
        loop {
            // First whether it has ended, because then its output is complete.
            let ended = self.child.as_mut().expect("it runs").try_wait().expect("a status");
            let output = self.output();
            if output.matches(text).count() >= count {
                return;
            }
            assert!(ended.is_none(), "{}: ended ({ended:?}) before {text:?}:\n{output}", self.what);
            let late = start.elapsed() > Duration::from_secs(60);
            assert!(!late, "{}: no {text:?}:\n{output}\n{}", self.what, doings(self.id()));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Closes its standard input and waits for its end, at most for `limit`; returns its exit status and output.
    ///
    /// # Panics
    /// When it takes longer.
    pub fn finish(mut self, limit: Duration) -> (Option<i32>, String) {
        self.stdin = None;
        let start = Instant::now();
        let mut child = self.child.take().expect("it runs");
        loop {
            if let Some(status) = child.try_wait().expect("a status") {
                return (status.code(), self.output());
            }
            if start.elapsed() > limit {
                let doings = doings(child.id());
                let _ = end(&mut child);
                panic!("{}: not done in {limit:?}:\n{}\n{doings}", self.what, self.output());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    /// When it has closed its standard input.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is told nothing after its end");
        writeln!(stdin, "{line}").expect("it reads");
    }

    /// Sends a signal to it, and not to its descendants.
    pub fn signal(&self, signal: i32) {
        crate::sys::signal(self.id(), signal);
    }
}

/// The only child of a process, as soon as it has one.
///
/// # Panics
/// When it gets none, or has several.
#[must_use]
pub fn child(id: u32) -> u32 {
    let start = Instant::now();
    loop {
        match children(id)[..] {
            [] => assert!(start.elapsed() < Duration::from_secs(60), "process {id} has no child"),
            [child] => return child,
            ref several => panic!("process {id} has the children {several:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The children of a process, if its first thread has started them.
fn children(id: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_whitespace().map(|id| id.parse().expect("a number")).collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = end(&mut child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_found_in_what_a_program_writes() {
        let told = "1 peers protected\nthread 'sealane-ao' (7) panicked at src/a.rs:1:1:\nits reason\nstarting again\n";
        assert_eq!(panic_in(told).as_deref(), told.split_once('\n').map(|(_, rest)| rest));
        assert_eq!(panic_in("1 peers protected\n"), None);
    }
}
