//! Two network namespaces with a daemon each, and unmodified programs at both ends.

use sealane_conformance::lab::{Lab, Running, Small};
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, sealane};
use std::time::Duration;

pub(crate) const PEER: &str = env!("CARGO_BIN_EXE_ao-peer");
pub(crate) const WATCH: &str = env!("CARGO_BIN_EXE_wire-watch");
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const PORT: &str = "5179";
/// The addresses of both ends.
pub(crate) const V4: [&str; 2] = [A, B];
pub(crate) const V6: [&str; 2] = ["fd81::1", "fd81::2"];
pub(crate) const A: &str = "10.81.0.1";
pub(crate) const B: &str = "10.81.0.2";

/// Two namespaces with a daemon each.
pub(crate) struct Hosts {
    pub(crate) daemons: [Option<Running>; 2],
    /// The first daemon's runtime folder. It is dropped before the lab's folder.
    _small: Small,
    pub(crate) lab: Lab,
    pub(crate) spaces: [String; 2],
    pub(crate) configs: [String; 2],
    pub(crate) ends: [&'static str; 2],
}

/// A configuration with one peer and one key.
pub(crate) fn config(peer: &str, ids: [u8; 2], secret: &str) -> String {
    config_by(peer, ids, "hmac(sha512)", &format!("\"{secret}\""))
}

/// The same with another algorithm, and a secret as the file has it.
pub(crate) fn config_by(peer: &str, ids: [u8; 2], algorithm: &str, secret: &str) -> String {
    let [send, recv] = ids;
    format!(
        "[[peer]]\nname = \"{peer}\"\nprefix = \"{peer}\"\nport = {PORT}\n\
         [[peer.key]]\nsend-id = {send}\nrecv-id = {recv}\nalgorithm = \"{algorithm}\"\nsecret = {secret}\n"
    )
}

impl Hosts {
    pub(crate) fn new(test: &str) -> Option<Self> {
        Hosts::of(test, V4)
    }

    /// With sessions between these addresses.
    pub(crate) fn of(test: &str, ends: [&'static str; 2]) -> Option<Self> {
        Hosts::with(test, ends, [config(ends[1], [1, 2], "secret"), config(ends[0], [2, 1], "secret")])
    }

    /// With these configurations, of one peer each.
    pub(crate) fn with(test: &str, ends: [&'static str; 2], configs: [String; 2]) -> Option<Self> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let spaces = [lab.space("a"), lab.space("b")];
        lab.veth([&spaces[0], &spaces[1]], ["wire", "wire"]);
        lab.address(&spaces[0], "wire", &format!("{A}/24"), &format!("{}/64", V6[0]));
        lab.address(&spaces[1], "wire", &format!("{B}/24"), &format!("{}/64", V6[1]));
        let [a, b] = configs;
        let configs = [("a.toml", a), ("b.toml", b)].map(|(name, text)| {
            let path = lab.file(name, &text);
            lab.make_private(&path);
            path
        });
        let small = Small::new(lab.folder().join("run0"));
        let mut hosts = Hosts { daemons: [None, None], _small: small, lab, spaces, configs, ends };
        hosts.start(0);
        hosts.start(1);
        Some(hosts)
    }

    pub(crate) fn start(&mut self, which: usize) {
        let mut daemon = self.try_to_start(which);
        daemon.expect("1 peers protected", 1);
        self.daemons[which] = Some(daemon);
    }

    /// A daemon that may or may not start.
    pub(crate) fn try_to_start(&self, which: usize) -> Running {
        let exe = sealane();
        let runtime = format!("SEALANE_RUNTIME_DIR={}", self.lab.folder().join(format!("run{which}")).display());
        let argv = ["env", &runtime, &*exe.to_string_lossy(), "daemon", "--config", &self.configs[which]];
        self.lab.start(&self.spaces[which], &argv)
    }

    pub(crate) fn daemon(&mut self, which: usize) -> &mut Running {
        self.daemons[which].as_mut().expect("it runs")
    }

    /// Gives a daemon another configuration, and waits for its message about it.
    pub(crate) fn reconfigure(&mut self, which: usize, text: &str, told: &str) {
        std::fs::write(&self.configs[which], text).unwrap();
        let daemon = self.daemon(which);
        daemon.signal(libc::SIGHUP);
        daemon.expect(told, 1);
    }

    /// Ends a daemon. `ip netns exec` and `env` have been replaced by it, so the signal reaches it.
    pub(crate) fn end(&mut self, which: usize, signal: i32) {
        let daemon = self.daemons[which].take().expect("it runs");
        daemon.signal(signal);
        daemon.finish(LIMIT);
    }

    /// Watches the outbound segments of each end.
    pub(crate) fn watch(&self) -> [Running; 2] {
        self.spaces.each_ref().map(|space| {
            let mut watch = self.lab.start(space, &[WATCH, "wire", PORT]);
            watch.expect("watching", 1);
            watch
        })
    }

    /// The address and port of the server.
    pub(crate) fn at(&self) -> String {
        let [_, server] = self.ends;
        if server.contains(':') { format!("[{server}]:{PORT}") } else { format!("{server}:{PORT}") }
    }

    pub(crate) fn server(&self) -> Running {
        self.server_for("1")
    }

    /// One that serves so many clients.
    pub(crate) fn server_for(&self, clients: &str) -> Running {
        let none = self.lab.file("none", "");
        let at = self.at();
        let serve = [PEER, "serve", &at, "--keys", &none, "--count", clients, "--seconds", "600"];
        let mut server = self.lab.start(&self.spaces[1], &serve);
        server.expect("listening", 1);
        server
    }

    /// Connects a client, which gets answers or none.
    pub(crate) fn assert_answers(&self, answers: bool) {
        let seconds = if answers { "60" } else { "2" };
        let (status, told) = self.client(&["--ping", "3", "--seconds", seconds]).finish(LIMIT);
        assert_eq!(status, Some(i32::from(!answers)), "{told}");
    }

    pub(crate) fn client(&self, more: &[&str]) -> Running {
        let none = self.lab.file("none", "");
        let at = self.at();
        let argv = [&[PEER, "connect", &at, "--keys", &none], more].concat();
        self.lab.start(&self.spaces[0], &argv)
    }
}

/// No segment on the wire was unsigned, as these saw them.
pub(crate) fn nothing_in_clear(watches: [Running; 2]) {
    for watch in watches {
        let (status, told) = watch.finish(LIMIT);
        assert_eq!(status, Some(0), "not all segments on the wire were signed: {told}");
    }
}
