//! TCP-AO over a wire between programs under `sealane run --tcp-ao` in a network namespace and the same programs in a
//! real kernel with TCP-AO, behind a tap.
//!
//! Every byte that arrives is compared (`ao-peer`). SEALANE_AO_BYTES is the length of each transfer, for example
//! 1000000000.

use crate::tcp_ao_programs::AT_ONCE;
use sealane_conformance::ipsec::program;
use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, sealane};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const PEER: &str = env!("CARGO_BIN_EXE_ao-peer");
const LINK: &str = env!("CARGO_BIN_EXE_lossy-link");
const LIMIT: Duration = Duration::from_secs(300);
/// Time limit for connections that have to be refused, in seconds: enough for two SYNs.
const REFUSED_S: u32 = 2;

/// Addresses of the namespace and of the kernel, of both families.
const OURS: [&str; 2] = ["10.78.0.1", "fd78::1"];
const THEIRS: [&str; 2] = ["10.78.0.2", "fd78::2"];

/// Algorithms of Linux 7.3, with MAC lengths.
const LINUX_7: [(&str, u8); 3] = [("hmac(sha1)", 12), ("hmac(sha256)", 16), ("cmac(aes128)", 12)];
/// Algorithms that Linux 6.12 takes: those of BIRD, and of what else its crypto API has.
const LINUX_6_12: [(&str, u8); 12] = [
    ("hmac(md5)", 16),
    ("hmac(sha1)", 12),
    ("hmac(sha224)", 4),
    ("hmac(sha256)", 12),
    ("hmac(sha384)", 12),
    ("hmac(sha512)", 16),
    ("cmac(aes128)", 8),
    ("hmac(sha3-224)", 12),
    ("hmac(sha3-256)", 16),
    ("hmac(sha3-384)", 12),
    ("hmac(sha3-512)", 16),
    ("hmac(rmd160)", 12),
];

/// The wire between the two ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wire {
    /// The kernel's tap in the namespace.
    Tap,
    /// Two wires with a link in between that loses 3 %, and reorders and duplicates 2 % each.
    Lossy,
}

/// The two ends of the wire.
struct Ends {
    lab: Lab,
    ours: String,
    /// The namespace with the kernel's tap.
    theirs: String,
    kernel: &'static str,
    link: Option<Running>,
}

impl Ends {
    /// Makes the ends; returns `None` and reports a skip when something is missing.
    fn new(test: &str, kernel: &'static str, wire: Wire) -> Option<Self> {
        if skip_without(test, &[&Target::sealane(kernel), &Target::kernel(kernel)]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let ours = lab.space("a");
        let [v4, v6] = OURS.map(|a| format!("{a}/{}", if a.contains(':') { 64 } else { 24 }));
        let (theirs, mut link) = (if wire == Wire::Tap { ours.clone() } else { lab.space("wire") }, None);
        lab.ip(&theirs, "tuntap add kernel mode tap");
        if wire == Wire::Tap {
            lab.address(&ours, "kernel", &v4, &v6);
        } else {
            lab.veth([&ours, &theirs], ["veth", "veth"]);
            lab.address(&ours, "veth", &v4, &v6);
            lab.ip(&theirs, "link set veth up");
            lab.ip(&theirs, "link set kernel up");
            let spoilt = ["--loss", "3", "--duplicate", "2", "--reorder", "2", "--seed", "29"];
            link = Some(lab.start(&theirs, &[&[LINK, "veth", "kernel"], &spoilt[..]].concat()));
        }
        Some(Ends { lab, ours, theirs, kernel, link })
    }

    /// Starts a script under sealane.
    fn here(&self, script: &str) -> Running {
        let exe = sealane();
        let exe = exe.to_string_lossy();
        self.lab.start(&self.ours, &[&exe, "run", "--profile", self.kernel, "--tcp-ao", "--", "sh", "-c", script])
    }

    /// Starts a script in the kernel.
    fn there(&self, script: &str) -> Running {
        let mut lines = "ip link set vec0 up\n".to_owned();
        let _ = writeln!(lines, "ip addr add {}/24 dev vec0; ip addr add {}/64 dev vec0 nodad", THEIRS[0], THEIRS[1]);
        self.lab.boot(&self.theirs, "kernel", self.kernel, &(lines + script))
    }

    /// Starts a script with servers at one end, and waits until all of them listen. The output of a kernel comes when that
    /// ends, so that they say it in a file.
    fn serve(&self, there: bool, script: &str, count: usize) -> Running {
        let told = self.lab.folder().join("servers");
        let script = format!("exec 2>>{}\n{script}", told.display());
        let serving = if there { self.there(&script) } else { self.here(&script) };
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(&told).unwrap_or_default();
            if text.matches("listening on").count() == count {
                return serving;
            }
            assert!(start.elapsed() < LIMIT, "{count} servers do not listen: {text}{}", serving.output());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A server and its clients.
struct Case {
    number: usize,
    alg: &'static str,
    mac_len: u8,
    /// Index of the address family.
    family: usize,
    /// Whether the server is in the kernel.
    server_there: bool,
    bytes: u64,
    /// Whether clients with wrong keys connect too.
    wrong: bool,
    /// Whether a connection is reset; not where an RST could be lost, which is not repeated.
    reset: bool,
}

impl Case {
    fn addresses(&self) -> [&'static str; 2] {
        let (ours, theirs) = (OURS[self.family], THEIRS[self.family]);
        if self.server_there { [theirs, ours] } else { [ours, theirs] }
    }

    fn prefix(&self, address: &str) -> String {
        format!("{address}/{}", [32, 128][self.family])
    }

    fn target(&self) -> String {
        let [server, _] = self.addresses();
        let port = 7000 + self.number;
        if self.family == 0 { format!("{server}:{port}") } else { format!("[{server}]:{port}") }
    }

    /// Writes a key file with two keys, for the server or the client.
    fn keys(&self, lab: &Lab, name: &str, client: bool, secret: &str, send: u8) -> String {
        let mut text = String::new();
        // An id that the server does not know is alone in the file, because otherwise the last key would be used.
        let pairs = [(1, send), (101, 102)];
        for &(server_sends, client_sends) in if send == 2 { &pairs[..] } else { &pairs[..1] } {
            let (send, recv) = if client { (client_sends, server_sends) } else { (server_sends, client_sends) };
            let _ = writeln!(text, "{} {send} {recv} {} 0 {secret}{server_sends}", self.alg, self.mac_len);
        }
        lab.file(&format!("{name}{}{}", self.number, self.server_there), &text)
    }

    /// Returns the command of the server.
    fn server(&self, lab: &Lab) -> String {
        let keys = self.keys(lab, "server", false, "the-one-that-fits", 2);
        let count = 2 + usize::from(self.reset);
        let peer = self.prefix(self.addresses()[1]);
        format!("{PEER} serve {} --peer {peer} --keys {keys} --count {count}", self.target())
    }

    /// Returns the lines of a script that runs the clients one after another.
    fn clients(&self, lab: &Lab) -> String {
        let mut lines = String::new();
        let mut line = |want: &str, what: &str, keys: &str, how: &str| {
            let (name, target) = (format!("{}/{} v{}", self.alg, what, [4, 6][self.family]), self.target());
            let _ = writeln!(lines, "t {want} '{name}' {PEER} connect {target} --keys {keys} {how}");
        };
        let good = self.keys(lab, "client", true, "the-one-that-fits", 2);
        line("ok", "bulk", &good, &format!("--seconds 120 --bytes {} --rotate 15", self.bytes));
        if self.wrong {
            let refused = format!("--seconds {REFUSED_S} --bytes 1");
            let secret = self.keys(lab, "secret", true, "another-secret", 2);
            line("refused", "a wrong key", &secret, &refused);
            line("refused", "an unknown KeyID", &self.keys(lab, "id", true, "the-one-that-fits", 7), &refused);
            line("refused", "no key", &lab.file("none", ""), &refused);
        }
        line("ok", "pings", &good, "--ping 40");
        if self.reset {
            line("ok", "reset", &good, "--bytes 200000 --abort");
        }
        lines
    }
}

fn bytes(small: u64) -> u64 {
    std::env::var("SEALANE_AO_BYTES").ok().and_then(|n| n.parse().ok()).unwrap_or(small)
}

const SERVE: &str = "pids= rc=0\n";
const SERVED: &str = "for pid in $pids; do wait $pid || rc=1; done\n";
const TRY: &str = r#"rc=0
t() {
  want=$1 name=$2; shift 2
  out=$("$@" 2>&1)
  case $? in 0) is=ok ;; 1) is=refused ;; *) is=impossible ;; esac
  if [ $is = $want ]; then echo "PASS $name: $out"; else echo "FAIL $name ($is): $out"; rc=1; fi
}
"#;

/// Keeps the kernel running until the other end has received everything, FINs included, because a kernel that is gone
/// repeats nothing and answers nothing. States of `/proc/net/tcp`: all but FIN-WAIT-2, TIME-WAIT, CLOSE and LISTEN.
const SETTLE: &str = r#"tries=600
while [ $((tries -= 1)) -gt 0 ] && grep -qE '^ *[0-9]+: [0-9A-F:]+ [0-9A-F:]+ 0(1|2|3|4|8|9|B) ' /proc/net/tcp /proc/net/tcp6
do sleep 0.1; done
"#;

/// Starts all servers at one end, then runs all clients at the other, one after another.
fn talk(ends: &Ends, cases: &[Case]) {
    let (mut servers, mut clients) = (SERVE.to_owned(), TRY.to_owned());
    for case in cases {
        let _ = writeln!(servers, "{} & pids=\"$pids $!\"", case.server(&ends.lab));
        clients.push_str(&case.clients(&ends.lab));
    }
    servers.push_str(SERVED);
    let there = cases[0].server_there;
    for (script, end_there) in [(&mut servers, there), (&mut clients, !there)] {
        if end_there {
            script.push_str(SETTLE);
        }
        script.push_str("exit $rc\n");
    }
    let serving = ends.serve(there, &servers, cases.len());
    let trying = if there { ends.here(&clients) } else { ends.there(&clients) };
    let limit = LIMIT + Duration::from_secs(cases.iter().map(|c| c.bytes / 1_000_000).sum::<u64>());
    let (status, told) = trying.finish(limit);
    assert!(status == Some(0), "a client failed:\n{told}\nthe servers:\n{}", serving.output());
    let passed = told.lines().filter(|l| l.starts_with("PASS ")).count();
    assert_eq!(passed, clients.matches("\nt ").count(), "{told}");
    let (status, told) = serving.finish(LIMIT);
    assert_eq!(status, Some(0), "a server failed:\n{told}");
    let served: usize = cases.iter().map(|c| 2 + usize::from(c.reset)).sum();
    assert_eq!(told.matches(r#"{"ok":true,"#).count(), served, "{told}");
}

fn interop(test: &str, kernel: &'static str, algs: &[(&'static str, u8)], wire: Wire, server_there: bool) {
    let Some(ends) = Ends::new(test, kernel, wire) else { return };
    let lossy = wire == Wire::Lossy;
    let mut cases = Vec::new();
    for (i, &(alg, mac_len)) in algs.iter().enumerate() {
        for family in [0, 1] {
            let small = if lossy { 1_000_000 } else { [20_000_000, 3_000_000][usize::from(i > 0)] };
            cases.push(Case {
                number: cases.len(),
                alg,
                mac_len,
                family,
                server_there,
                bytes: bytes(small),
                wrong: i == 0,
                reset: !lossy,
            });
        }
    }
    talk(&ends, &cases);
    if let Some(link) = ends.link {
        let (status, told) = link.finish(LIMIT);
        println!("{told}");
        let some = |what: &str| !told.contains(&format!(r#""{what}":0"#));
        assert!(status == Some(0) && some("lost") && some("duplicated") && some("reordered"), "{told}");
    }
}

#[test]
fn linux_7_3_serves() {
    interop("tcp_ao_interop::linux_7_3_serves", "linux-7.3", &LINUX_7, Wire::Tap, true);
}

#[test]
fn linux_7_3_connects() {
    interop("tcp_ao_interop::linux_7_3_connects", "linux-7.3", &LINUX_7, Wire::Tap, false);
}

#[test]
fn linux_6_12_serves() {
    interop("tcp_ao_interop::linux_6_12_serves", "linux-6.12", &LINUX_6_12, Wire::Tap, true);
}

#[test]
fn linux_6_12_connects() {
    interop("tcp_ao_interop::linux_6_12_connects", "linux-6.12", &LINUX_6_12, Wire::Tap, false);
}

#[test]
fn linux_7_3_serves_over_a_lossy_wire() {
    interop("tcp_ao_interop::linux_7_3_serves_over_a_lossy_wire", "linux-7.3", &LINUX_7, Wire::Lossy, true);
}

#[test]
fn linux_7_3_connects_over_a_lossy_wire() {
    interop("tcp_ao_interop::linux_7_3_connects_over_a_lossy_wire", "linux-7.3", &LINUX_7, Wire::Lossy, false);
}

/// `tcp_ao_programs` compares with it. Here, because that runs inside user-mode kernels, too, where no other one boots.
#[test]
fn linux_7_3_does_at_once_what_it_can() {
    let kernel = Target::kernel("linux-7.3");
    if skip_without("tcp_ao_interop::linux_7_3_does_at_once_what_it_can", &[&kernel]) {
        return;
    }
    let done = kernel.run(&["python3", &program("ao_at_once.py"), "20"], LIMIT).expect("it starts");
    assert_eq!((done.status, done.text.as_str()), (Some(0), AT_ONCE), "{}", done.errors);
}

fn one_case(server_there: bool) -> Case {
    Case {
        number: 0,
        alg: "hmac(sha1)",
        mac_len: 12,
        family: 0,
        server_there,
        bytes: 1_000_000,
        wrong: false,
        reset: false,
    }
}

/// A client is killed with its launcher while its data is in flight, and comes back.
#[test]
fn our_end_dies_and_comes_back() {
    let Some(ends) = Ends::new("tcp_ao_interop::our_end_dies_and_comes_back", "linux-7.3", Wire::Tap) else { return };
    let case = one_case(true);
    let nine = case.server(&ends.lab).replace("count 2", "count 9");
    let _server = ends.serve(true, &format!("exec {nine} --seconds 100"), 1);
    let keys = case.keys(&ends.lab, "client", true, "the-one-that-fits", 2);
    let connect = |how: &str| ends.here(&format!("exec {PEER} connect {} --keys {keys} {how}", case.target()));
    for round in 0..2 {
        let (status, told) = connect("--ping 20").finish(LIMIT);
        assert_eq!(status, Some(0), "{round}: pings: {told}");
        let client = connect("--bytes 100000000000");
        ends.lab.sends(&ends.ours, "kernel", 300);
        let told = client.output();
        assert!(!told.contains(r#""ok":"#), "{round}: it does not send any more: {told}");
        drop(client);
    }
    let (status, told) = connect("--bytes 1000000").finish(LIMIT);
    assert_eq!(status, Some(0), "at the end: {told}");
}

/// A kernel vanishes while it sends, and comes back.
#[test]
fn their_end_dies_and_comes_back() {
    let Some(ends) = Ends::new("tcp_ao_interop::their_end_dies_and_comes_back", "linux-7.3", Wire::Tap) else { return };
    let case = one_case(false);
    let server = ends.serve(false, &format!("exec {}", case.server(&ends.lab).replace("count 2", "count 9")), 1);
    let keys = case.keys(&ends.lab, "client", true, "the-one-that-fits", 2);
    let connect = |how: &str| ends.there(&format!("exec {PEER} connect {} --keys {keys} {how}", case.target()));
    for round in 0..2 {
        let (status, told) = connect("--bytes 1000000").finish(LIMIT);
        assert_eq!(status, Some(0), "{round}: {told}");
        let client = connect("--bytes 100000000000");
        ends.lab.sends(&ends.ours, "kernel", 100);
        drop(client);
    }
    let (status, told) = connect("--bytes 1000000").finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(server.output().matches(r#"{"ok":true,"bytes":1000000,"#).count(), 3, "{}", server.output());
}
