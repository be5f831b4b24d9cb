//! Programs that set TCP-AO keys themselves at the two ends of a wire, and watches of it.

use sealane_conformance::lab::{Lab, Running};
use std::time::Duration;

pub(super) const PEER: &str = env!("CARGO_BIN_EXE_ao-peer");
pub(super) const PORT: &str = "6179";
pub(super) const A: &str = "10.83.0.1";
pub(super) const B: &str = "10.83.0.2";
const WATCH: &str = env!("CARGO_BIN_EXE_wire-watch");
const LIMIT: Duration = Duration::from_secs(120);

/// Connects two namespaces by a wire, and returns the file with the key of each end.
pub(super) fn connect(lab: &Lab, spaces: &[String; 2]) -> [String; 2] {
    lab.veth([&spaces[0], &spaces[1]], ["wire", "wire"]);
    lab.address(&spaces[0], "wire", &format!("{A}/24"), "fd83::1/64");
    lab.address(&spaces[1], "wire", &format!("{B}/24"), "fd83::2/64");
    [lab.file("a", "hmac(sha256) 1 2 12 0 the-key"), lab.file("b", "hmac(sha256) 2 1 12 0 the-key")]
}

/// Two namespaces that are connected, whose programs a daemon serves: clients in the first one, a server in the second.
pub(super) trait Ends {
    fn lab(&self) -> &Lab;

    fn spaces(&self) -> &[String; 2];

    /// The files with the key of each end.
    fn keys(&self) -> &[String; 2];

    /// Starts a program under a launcher of its own.
    fn launch(&self, end: usize, argv: &[&str]) -> Running;

    /// Watches the outbound segments of each end.
    fn watch(&self) -> [Running; 2] {
        self.spaces().each_ref().map(|space| watch(self.lab(), space, "wire"))
    }

    fn server(&self) -> Running {
        let (at, peer) = (format!("{B}:{PORT}"), format!("{A}/32"));
        let argv =
            [PEER, "serve", &at, "--peer", &peer, "--keys", &self.keys()[1], "--count", "1000", "--seconds", "600"];
        let mut server = self.launch(1, &argv);
        server.expect("listening on", 1);
        server
    }

    fn client(&self, how: &[&str]) -> Running {
        let at = format!("{B}:{PORT}");
        self.launch(0, &[&[PEER, "connect", &at, "--keys", &self.keys()[0]], how].concat())
    }

    /// Connects a new client, which gets answers.
    fn assert_answers(&self) {
        let (status, told) = self.client(&["--ping", "3"]).finish(LIMIT);
        assert_eq!(status, Some(0), "{told}");
    }

    /// Waits until both ends have sent more.
    fn goes_on(&self) {
        self.lab().sends(&self.spaces()[0], "wire", 300);
        self.lab().sends(&self.spaces()[1], "wire", 30);
    }
}

/// Watches the outbound segments of a device.
pub(super) fn watch(lab: &Lab, space: &str, device: &str) -> Running {
    let mut watch = lab.start(space, &[WATCH, device, PORT]);
    watch.expect("watching", 1);
    watch
}

/// Ends the watches, each of which saw more segments than `least`, all of them signed.
pub(super) fn all_signed(watches: impl IntoIterator<Item = Running>, least: u64) {
    let ended: Vec<_> = watches.into_iter().map(|watch| watch.finish(LIMIT)).collect();
    for (status, told) in ended {
        println!("{told}");
        let signed = told.split(r#""signed":"#).nth(1).and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        assert!(status == Some(0) && signed.is_some_and(|n| n > least), "{told}");
    }
}

/// Ends the watches of at least one connection, whose segments were all signed.
pub(super) fn nothing_in_clear(watches: impl IntoIterator<Item = Running>) {
    all_signed(watches, 5);
}
