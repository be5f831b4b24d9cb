//! The two kinds of IPsec ends: a namespace with a daemon, and a real kernel.

use crate::lab::{Lab, Running};
use crate::skip::skip_without;
use crate::target::{Target, root, sealane};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time limit of a script.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Returns a configuration with as many workers as `SEALANE_TEST_WORKERS` says and with the lines of `SEALANE_TEST_IPSEC`, such as
/// `late = true`, unless it sets the same itself.
fn as_wanted(config: &str) -> String {
    let workers = std::env::var("SEALANE_TEST_WORKERS").map(|workers| format!("workers = {workers}"));
    let lines = [workers.unwrap_or_default(), std::env::var("SEALANE_TEST_IPSEC").unwrap_or_default()].join("\n");
    let is_new = |line: &&str| line.split_once(" =").is_some_and(|(name, _)| !config.contains(&format!("{name} =")));
    let new: String = lines.lines().filter(is_new).flat_map(|line| [line, "\n"]).collect();
    config.replacen("[ipsec]\n", &format!("[ipsec]\n{new}"), 1)
}

/// The kernel at the other end.
pub const KERNEL: &str = "linux-7.3";

/// Outer addresses of the two ends, of either family.
pub const OUTER: [[&str; 2]; 2] = [["10.81.0.1", "10.81.0.2"], ["fd81::1", "fd81::2"]];
/// Inner addresses, on `lo`.
pub const INNER: [[&str; 2]; 2] = [["10.82.1.1", "10.82.2.1"], ["fd82:1::1", "fd82:2::1"]];

/// Two daemons over a wire, with [`OUTER`] and [`INNER`] of IPv4.
#[derive(Debug)]
pub struct Pair {
    /// The ends.
    pub hosts: [Host; 2],
    /// Their namespaces.
    pub lab: Lab,
}

impl Pair {
    /// Starts both with a configuration; returns `None` and reports a skip when something is missing.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn new(test: &str, config: &str) -> Option<Pair> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let spaces = [lab.space("a"), lab.space("b")];
        lab.veth([&spaces[0], &spaces[1]], ["veth", "veth"]);
        for (i, space) in spaces.iter().enumerate() {
            lab.address(space, "veth", &format!("{}/24", OUTER[0][i]), &format!("{}/64", OUTER[1][i]));
            let [inner, _] = INNER;
            lab.ip(space, &format!("addr add {}/32 dev lo", inner[i]));
            lab.ip(space, &format!("route add {}/32 dev veth src {}", inner[1 - i], inner[i]));
        }
        let hosts = [0, 1].map(|i: usize| Host::configured(&lab, &spaces[i], config));
        Some(Pair { hosts, lab })
    }

    /// Watches the wire at an end (`clear_watch.py`).
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn watch(&self, end: usize, how: &[&str]) -> Running {
        let program = program("clear_watch.py");
        let argv = [&["python3", &*program, "veth"], how].concat();
        let mut watch = self.lab.start(&self.hosts[end].space, &argv);
        watch.expect("watching", 1);
        watch
    }

    /// Pings from the second end through a tunnel between the inner addresses, while half of the packets are sent
    /// twice: each is accepted once.
    ///
    /// # Panics
    /// When one is lost, or accepted twice.
    pub fn replays(&self) {
        let watch = self.watch(1, &["again"]);
        let ping = format!("{} {}", ping_all(100), INNER[0][0]);
        let ping: Vec<&str> = ping.split(' ').collect();
        let (status, text) = self.lab.start(&self.hosts[1].space, &ping).finish(LIMIT);
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains(" 100 received") && !text.contains("duplicates"), "{text}");
        let (_, seen) = watch.finish(LIMIT);
        assert!(seen.contains("replayed 50"), "{seen}");
        self.hosts[0].ip_until(&self.lab, "ip -s xfrm state", |states| states.contains("replay 50 failed 0"));
    }
}

/// Returns a `ping` command that sends `count` requests at once and waits for every answer, 30 seconds at most. With a
/// short interval `ping` would take the last answer for lost after two round trips. When no answer is expected, `-W 1`
/// ends it after a second.
///
/// The send buffer holds all requests. The one that `ping` sets itself holds a dozen: while these wait in a device's queue,
/// the next one gets ENOBUFS, and from then on one is sent in each interval.
#[must_use]
pub fn ping_all(count: u32) -> String {
    format!("ping -q -c {count} -l {count} -i 30 -W 30 -S 131072")
}

/// Returns the lines of a script that sends `count` pings of each of these lengths, and fails unless some of each are
/// answered.
#[must_use]
pub fn pings(to: &str, lens: &[u32], count: u32) -> String {
    let one = |len| {
        format!("ping -q -c {count} -i 0.01 -W 30 -s {len} {to} > /dev/null || {{ echo length {len}; exit 1; }}\n")
    };
    lens.iter().map(one).collect()
}

/// Returns the lines of a script that pings with packets too long for the path, until the sender knows the path's MTU
/// and one is answered.
#[must_use]
pub fn ping_too_long(to: &str, len: u32) -> String {
    format!(
        "n=0; until ping -q -c 1 -W 1 -s {len} {to} > /dev/null; do\n\
         n=$((n+1)); [ $n -lt 60 ] || {{ echo length {len}; exit 1; }}\ndone\n"
    )
}

/// Returns the path of a program of the tests.
#[must_use]
pub fn program(name: &str) -> String {
    root().join("conformance/programs").join(name).to_string_lossy().into_owned()
}

/// Returns the number of protected packets that a watch saw.
///
/// # Panics
/// When it saw unprotected ones, or did not watch to the end.
#[must_use]
pub fn protected(seen: &str) -> u32 {
    let esp = seen.split_once("clear 0 esp ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    esp.unwrap_or_else(|| panic!("in clear, or not watched to the end: {seen}"))
}

/// A daemon, and a kernel behind a tap of its namespace, with the addresses [`OUTER`] and [`INNER`], the daemon's
/// first. The kernel accepts ESP in UDP on port 4500.
#[derive(Debug)]
pub struct Tapped {
    /// The kernel.
    pub guest: Guest,
    /// The daemon.
    pub host: Host,
    /// Their namespaces.
    pub lab: Lab,
}

impl Tapped {
    /// Starts both, the daemon with a configuration; returns `None` and reports a skip when something is missing.
    ///
    /// # Panics
    /// When they do not start, or do not reach each other.
    #[must_use]
    pub fn new(test: &str, config: &str) -> Option<Tapped> {
        let Wired { peer, host, lab } = Wired::new(test, config, true)?;
        let Peer::Kernel(guest) = peer else { unreachable!("it was asked for") };
        Some(Tapped { guest, host, lab })
    }
}

/// The same with a kernel or with a second daemon in its place: then `kernel` and `vec0` are the ends of a veth pair.
#[derive(Debug)]
pub struct Wired {
    /// The kernel, or the second daemon.
    pub peer: Peer,
    /// The daemon.
    pub host: Host,
    /// Their namespaces.
    pub lab: Lab,
}

impl Wired {
    /// Starts both, the daemon with a configuration; returns `None` and reports a skip when something is missing.
    ///
    /// # Panics
    /// When they do not start, or do not reach each other.
    #[must_use]
    pub fn new(test: &str, config: &str, with_kernel: bool) -> Option<Wired> {
        Wired::with(test, config, with_kernel.then_some(KERNEL))
    }

    /// The same with this kernel.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn with(test: &str, config: &str, kernel: Option<&str>) -> Option<Wired> {
        let needed: Vec<Target> = core::iter::once(Target::sealane("open")).chain(kernel.map(Target::kernel)).collect();
        if skip_without(test, &needed.iter().collect::<Vec<_>>()) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let (space, other) = (lab.space("a"), lab.space("b"));
        let [[inner4, to4], [inner6, to6]] = INNER;
        let [there4, there6] = [format!("{}/24", OUTER[0][1]), format!("{}/64", OUTER[1][1])];
        if kernel.is_some() {
            lab.ip(&space, "tuntap add kernel mode tap");
        } else {
            lab.veth([&space, &other], ["kernel", "vec0"]);
            lab.address(&other, "vec0", &there4, &there6);
        }
        lab.address(&space, "kernel", &format!("{}/24", OUTER[0][0]), &format!("{}/64", OUTER[1][0]));
        lab.ip(&space, &format!("addr add {inner4}/32 dev lo"));
        lab.ip(&space, &format!("addr add {inner6}/128 dev lo nodad"));
        lab.ip(&space, &format!("route add {to4}/32 dev kernel src {inner4}"));
        lab.ip(&space, &format!("route add {to6}/128 via {} dev kernel src {inner6}", OUTER[1][1]));
        let host = Host::configured(&lab, &space, config);
        let mut peer = if let Some(kernel) = kernel {
            Peer::Kernel(Guest::boot(&lab, &space, "kernel", kernel, &[&there4, &there6]))
        } else {
            Peer::Daemon(Host::new(&lab, &other))
        };
        peer.must(
            &lab,
            &format!(
                "ip addr add {to4}/32 dev lo; ip addr add {to6}/128 dev lo nodad\n\
                 ip route add {inner4}/32 dev vec0 src {to4}\n\
                 ip route add {inner6}/128 via {} dev vec0 src {to6}",
                OUTER[1][0]
            ),
        );
        if let Peer::Kernel(guest) = &mut peer {
            OUTER.iter().for_each(|of| guest.reaches(of[0]));
            guest.takes_esp_in_udp();
        }
        Some(Wired { peer, host, lab })
    }
}

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
        let config = lab.file(&format!("{space}.toml"), &as_wanted(config));
        let mut host = Host { space: space.to_owned(), runtime, config, daemon: None };
        host.start(lab);
        host
    }

    /// Starts the daemon again.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&mut self, lab: &Lab) {
        self.start_with(lab, &[]);
    }

    /// Starts the daemon again with further variables of its environment.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_with(&mut self, lab: &Lab, variables: &[&str]) {
        let exe = sealane().to_string_lossy().into_owned();
        let begin = [&["env", &*self.runtime], variables].concat();
        let argv = [&begin[..], &[&exe, "daemon", "--config", &self.config]].concat();
        let mut daemon = lab.start(&self.space, &argv);
        daemon.expect("IPsec in 1 network namespaces", 1);
        self.daemon = Some(daemon);
    }

    /// Waits until the daemon has started so many times, when it starts again by itself.
    ///
    /// # Panics
    /// When it does not.
    pub fn expect_start(&mut self, count: usize) {
        self.expect("IPsec in 1 network namespaces", count);
    }

    /// Waits until the daemon has said `text` so often.
    ///
    /// # Panics
    /// When it does not.
    pub fn expect(&mut self, text: &str, count: usize) {
        self.daemon.as_mut().expect("it runs").expect(text, count);
    }

    /// The id of the daemon's process.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").id()
    }

    /// The daemon's messages so far.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn output(&self) -> String {
        self.daemon.as_ref().expect("it runs").output()
    }

    /// Its runtime folder.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.runtime.split_once('=').map_or("", |(_, folder)| folder)
    }

    /// Gives the daemon another configuration, and returns its messages about it.
    ///
    /// # Panics
    /// When it does not read it.
    pub fn reload(&mut self, lab: &Lab, config: &str) -> String {
        let _ = lab.file(&format!("{}.toml", self.space), &as_wanted(config));
        let daemon = self.daemon.as_mut().expect("it runs");
        let before = daemon.output();
        let ends = ["read again", "stays as it was", "a part of it is in force"];
        let said = |text: &str| ends.map(|end| text.matches(end).count()).iter().sum::<usize>();
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

    /// Waits until the daemon has ended by itself.
    ///
    /// # Panics
    /// When it does not.
    pub fn has_ended(&mut self) {
        self.daemon.take().expect("it runs").finish(LIMIT);
    }

    /// Has the daemon read a large configuration, for which it has no memory, and waits until it has ended. The next one has the
    /// configuration of before.
    ///
    /// # Panics
    /// When it goes on.
    pub fn reads_too_much(&mut self) {
        let config = std::fs::read_to_string(&self.config).expect("it has one");
        std::fs::write(&self.config, format!("{config}# {}\n", "x".repeat(64 << 20))).expect("a file");
        self.signal(libc::SIGHUP);
        self.has_ended();
        std::fs::write(&self.config, config).expect("a file");
    }

    /// Sends a signal to the daemon.
    ///
    /// # Panics
    /// When it has ended.
    pub fn signal(&self, signal: i32) {
        self.daemon.as_ref().expect("it runs").signal(signal);
    }

    /// Runs a script whose `ip xfrm` reaches the daemon, and returns its output.
    ///
    /// # Panics
    /// When it fails.
    pub fn ip(&self, lab: &Lab, script: &str) -> String {
        let (status, text) = self.run(lab, &["sh", "-ec", script]);
        assert_eq!(status, Some(0), "{script}\n{text}");
        text
    }

    /// Runs a script until its output is as wanted, and returns the output: counters follow their packets a moment
    /// later.
    ///
    /// # Panics
    /// When it fails, or the output does not become as wanted.
    pub fn ip_until(&self, lab: &Lab, script: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.ip(lab, script);
            if is_wanted(&text) {
                return text;
            }
            assert!(start.elapsed() < LIMIT, "{script}\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a program under `sealane run`; returns its exit status and output.
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

    /// Runs `sealane`; returns its exit status and output.
    pub fn sealane(&self, lab: &Lab, words: &str) -> (Option<i32>, String) {
        let exe = sealane();
        let exe = exe.to_string_lossy();
        let argv: Vec<&str> = ["env", &self.runtime, &*exe].into_iter().chain(words.split(' ')).collect();
        lab.start(&self.space, &argv).finish(LIMIT)
    }
}

/// The end at the other side of a daemon's wire.
#[derive(Debug)]
pub enum Peer {
    /// A real kernel.
    Kernel(Guest),
    /// A daemon, where it is known how a kernel answers.
    Daemon(Host),
}

impl Peer {
    /// Runs a script of which no command may fail, and returns its output.
    ///
    /// # Panics
    /// When one fails.
    pub fn must(&mut self, lab: &Lab, script: &str) -> String {
        match self {
            Peer::Kernel(guest) => guest.must(script),
            Peer::Daemon(host) => host.ip(lab, script),
        }
    }
}

/// A kernel that runs scripts one after another.
#[derive(Debug)]
pub struct Guest {
    running: Running,
    folder: PathBuf,
    count: usize,
}

impl Guest {
    /// Boots a kernel whose `vec0` is a tap of a namespace and has these addresses.
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
        // IPv6 routes appear once the device has found its carrier.
        let wait = if addresses.iter().any(|a| a.contains(':')) {
            "until ip -6 route show dev vec0 | grep -v fe80 | grep -q 'proto kernel'; do sleep 0.02; done\n"
        } else {
            ""
        };
        let script = format!(
            "{add}ip link set vec0 up; ip link set lo up\n{wait}n=1\nwhile :; do\n\
             if [ -f {at}/do.$n ]; then sh {at}/do.$n > {at}/text.$n 2>&1; echo $? > {at}/new.$n; \
             mv {at}/new.$n {at}/done.$n; n=$((n+1)); else sleep 0.02; fi; done"
        );
        Guest { running: lab.boot(space, tap, kernel, &script), folder, count: 0 }
    }

    /// Runs a script; returns its exit status and output.
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

    /// Runs a script of which no command may fail, and returns its output.
    ///
    /// # Panics
    /// When one fails.
    pub fn must(&mut self, script: &str) -> String {
        let (status, text) = self.run(&format!("set -e\n{script}"));
        assert_eq!(status, "0", "{script}\n{text}");
        text
    }

    /// Waits for the first answer from an address.
    ///
    /// # Panics
    /// When no answer comes.
    pub fn reaches(&mut self, address: &str) {
        self.must(&format!("n=0; until ping -q -c 1 -W 1 {address}; do n=$((n+1)); [ $n -lt 60 ]; done"));
    }

    /// Opens port 4500 of all addresses for ESP in UDP and keeps it open.
    ///
    /// # Panics
    /// When it cannot.
    pub fn takes_esp_in_udp(&mut self) {
        let said = self.folder.join("ports");
        let (ports, said) = (program("ike_port.py"), said.display());
        self.must(&format!(
            "python3 {ports} 0.0.0.0 :: > {said} 2>&1 &\nuntil grep -q bound {said}; do sleep 0.02; done"
        ));
    }
}
