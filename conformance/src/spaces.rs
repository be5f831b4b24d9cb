//! A daemon that serves network namespaces by patterns of their names.

use crate::ipsec::LIMIT;
use crate::lab::{Lab, Running};
use crate::skip::skip_without;
use crate::target::{Target, sealane};
use std::process::Command;
use std::time::{Duration, Instant};

/// A daemon in a namespace of its own.
#[derive(Debug)]
pub struct Host {
    /// The namespaces.
    pub lab: Lab,
    /// The daemon's own.
    pub own: String,
    /// The daemon, while it runs.
    pub daemon: Option<Running>,
    section: &'static str,
    config: String,
}

impl Host {
    /// Starts one with a section of its configuration that serves `netns`, a list in which `%` stands for the beginning of the
    /// names of the lab.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn new(test: &str, section: &'static str, netns: &str) -> Option<Host> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let own = lab.space("own");
        let mut host = Host { lab, own, section, config: String::new(), daemon: None };
        host.configure(netns);
        host.start();
        Some(host)
    }

    fn configure(&mut self, netns: &str) {
        let name = self.lab.folder().file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let text = format!("[{}]\nnetns = {}\n", self.section, netns.replace('%', &name));
        self.config = self.lab.file("sealane.toml", &text);
        self.lab.make_private(&self.config);
    }

    /// Starts the daemon.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&mut self) {
        let exe = sealane();
        let argv = ["env", &self.runtime(), &*exe.to_string_lossy(), "daemon", "--config", &self.config];
        let mut daemon = self.lab.start(&self.own, &argv);
        daemon.expect("network namespaces and in those of", 1);
        self.daemon = Some(daemon);
    }

    /// Ends the daemon by a signal, and starts the next one.
    ///
    /// # Panics
    /// When it does not end or start.
    pub fn restart(&mut self, signal: i32) {
        let daemon = self.daemon.take().expect("it runs");
        daemon.signal(signal);
        daemon.finish(LIMIT);
        self.start();
    }

    /// Has the daemon read another configuration, for the `times`th time.
    ///
    /// # Panics
    /// When it does not.
    pub fn reload(&mut self, netns: &str, times: usize) {
        self.configure(netns);
        self.daemon().signal(libc::SIGHUP);
        self.daemon().expect("read again", times);
    }

    /// The daemon.
    ///
    /// # Panics
    /// When it does not run.
    pub fn daemon(&mut self) -> &mut Running {
        self.daemon.as_mut().expect("it runs")
    }

    fn runtime(&self) -> String {
        format!("SEALANE_RUNTIME_DIR={}", self.lab.folder().join("run").display())
    }

    /// Starts the executable with these words in a namespace.
    #[must_use]
    pub fn sealane(&self, space: &str, words: &[&str]) -> Running {
        let (exe, runtime) = (sealane().to_string_lossy().into_owned(), self.runtime());
        self.lab.start(space, &[&["env", &runtime, &exe], words].concat())
    }

    /// Runs a script under `sealane run` in a namespace.
    #[must_use]
    pub fn run(&self, space: &str, script: &str) -> (Option<i32>, String) {
        self.sealane(space, &["run", "--", "sh", "-ec", script]).finish(LIMIT)
    }

    /// Deletes the name of a namespace, the first that the daemon lets go of, and waits until the namespace itself has gone, too: a
    /// device of another namespace, whose twin was in it, tells.
    ///
    /// # Panics
    /// When it stays, or the daemon leaves all of its files.
    pub fn lets_go(&mut self, space: &str, [other, device]: [&str; 2]) {
        let before = self.files().len();
        ip_netns(&["del", space]);
        self.daemon().expect("it has gone", 1);
        let started = Instant::now();
        while self.lab.start(other, &["ip", "link", "show", device]).finish(LIMIT).0 == Some(0) {
            assert!(started.elapsed() < LIMIT, "somebody keeps the namespace");
            std::thread::sleep(Duration::from_millis(20));
        }
        let after = self.files();
        assert!(after.len() < before, "{after:?}");
    }

    /// The names of the files in the runtime folder.
    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.lab.folder().join("run")).expect("the runtime folder").flatten();
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

/// Runs `ip netns` where names are everybody's.
///
/// # Panics
/// When it fails.
pub fn ip_netns(words: &[&str]) {
    let done = Command::new("ip").arg("netns").args(words).output().expect("ip runs");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}
