//! Two kinds of ends that IPsec's packets go between: a namespace with a daemon, and a real kernel with its own ESP.

use crate::lab::{Lab, Running};
use crate::target::sealane;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a script may take.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A namespace with a daemon.
#[derive(Debug)]
pub struct Host {
    /// Its name.
    pub space: String,
    runtime: String,
    config: String,
    daemon: Option<Running>,
}

impl Host {
    /// Starts the daemon.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn new(lab: &Lab, space: &str) -> Host {
        Host::configured(lab, space, "[ipsec]\n")
    }

    /// Starts the daemon with a configuration.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn configured(lab: &Lab, space: &str, config: &str) -> Host {
        let runtime = format!("SEALANE_RUNTIME_DIR={}", lab.folder().join(format!("run-{space}")).display());
        let config = lab.file(&format!("{space}.toml"), config);
        let mut host = Host { space: space.to_owned(), runtime, config, daemon: None };
        host.start(lab);
        host
    }

    /// Starts the daemon again.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&mut self, lab: &Lab) {
        let exe = sealane();
        let argv = ["env", &self.runtime, &*exe.to_string_lossy(), "daemon", "--config", &self.config];
        let mut daemon = lab.start(&self.space, &argv);
        daemon.expect("IPsec in 1 network namespaces", 1);
        self.daemon = Some(daemon);
    }

    /// Gives the daemon another configuration, and returns what it said of it.
    ///
    /// # Panics
    /// When it does not read it.
    pub fn reload(&mut self, lab: &Lab, config: &str) -> String {
        let _ = lab.file(&format!("{}.toml", self.space), config);
        let daemon = self.daemon.as_mut().expect("it runs");
        let before = daemon.output();
        let said = |text: &str| text.matches("read again").count() + text.matches("stays as it was").count();
        daemon.signal(libc::SIGHUP);
        let start = Instant::now();
        while said(&daemon.output()) == said(&before) {
            assert!(start.elapsed() < LIMIT, "{}", daemon.output());
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon.output()[before.len()..].to_owned()
    }

    /// Ends the daemon by a signal.
    ///
    /// # Panics
    /// When it does not end, or has ended.
    pub fn end(&mut self, signal: i32) {
        let daemon = self.daemon.take().expect("it runs");
        daemon.signal(signal);
        daemon.finish(LIMIT);
    }

    /// Runs a script of which `ip xfrm` reaches the daemon, and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn ip(&self, lab: &Lab, script: &str) -> String {
        let (status, text) = self.run(lab, &["sh", "-ec", script]);
        assert_eq!(status, Some(0), "{script}\n{text}");
        text
    }

    /// Runs a program under `sealane run`: its exit status, and what it printed.
    pub fn run(&self, lab: &Lab, argv: &[&str]) -> (Option<i32>, String) {
        self.begin(lab, argv).finish(LIMIT)
    }

    /// Starts a program under `sealane run`.
    #[must_use]
    pub fn begin(&self, lab: &Lab, argv: &[&str]) -> Running {
        let exe = sealane();
        let launch = ["env", &self.runtime, &*exe.to_string_lossy(), "run", "--"];
        lab.start(&self.space, &[&launch[..], argv].concat())
    }

    /// Runs `sealane`: its exit status, and what it printed.
    pub fn sealane(&self, lab: &Lab, words: &str) -> (Option<i32>, String) {
        let exe = sealane();
        let exe = exe.to_string_lossy();
        let argv: Vec<&str> = ["env", &self.runtime, &*exe].into_iter().chain(words.split(' ')).collect();
        lab.start(&self.space, &argv).finish(LIMIT)
    }
}

/// A kernel that runs one script after another.
#[derive(Debug)]
pub struct Guest {
    running: Running,
    folder: PathBuf,
    count: usize,
}

impl Guest {
    /// Boots one whose `vec0` is a tap of a namespace and has these addresses.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn boot(lab: &Lab, space: &str, tap: &str, kernel: &str, addresses: &[&str]) -> Guest {
        let folder = lab.folder().join("guest");
        std::fs::create_dir_all(&folder).expect("a folder");
        let each = |a: &&str| format!("ip addr add {a} dev vec0 nodad\n");
        let add: String = addresses.iter().map(each).collect();
        let at = folder.display();
        let script = format!(
            "{add}ip link set vec0 up; ip link set lo up\nn=1\nwhile :; do\n\
             if [ -f {at}/do.$n ]; then sh {at}/do.$n > {at}/text.$n 2>&1; echo $? > {at}/new.$n; \
             mv {at}/new.$n {at}/done.$n; n=$((n+1)); else sleep 0.02; fi; done"
        );
        Guest { running: lab.boot(space, tap, kernel, &script), folder, count: 0 }
    }

    /// Runs a script: its exit status, and what it printed.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn run(&mut self, script: &str) -> (String, String) {
        self.count += 1;
        let name = |what: &str| self.folder.join(format!("{what}.{}", self.count));
        std::fs::write(name("new"), script).expect("a file");
        std::fs::rename(name("new"), name("do")).expect("a file");
        let start = Instant::now();
        while !name("done").exists() {
            assert!(start.elapsed() < LIMIT, "{script}\n{}", self.running.output());
            std::thread::sleep(Duration::from_millis(10));
        }
        let read = |what: &str| std::fs::read_to_string(name(what)).unwrap_or_default();
        (read("done").trim().to_owned(), read("text"))
    }

    /// Runs a script that must not fail, and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn must(&mut self, script: &str) -> String {
        let (status, text) = self.run(script);
        assert_eq!(status, "0", "{script}\n{text}");
        text
    }
}
