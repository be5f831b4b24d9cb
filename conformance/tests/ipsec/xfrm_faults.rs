//! Threads of the daemon that panic, hang or get errors, and a daemon without descriptors: traffic goes on by itself, with
//! the states of before, and nothing is in clear meanwhile.
//!
//! The faults are real: `inject.py` traces one thread of the daemon, and lets its system calls fail or the thread stop.

use sealane_conformance::ipsec::{INNER, LIMIT, Pair, ping_all, program, protected};
use sealane_conformance::lab::Running;
use sealane_conformance::target::sealane;
use std::time::{Duration, Instant};

const PLAIN: &str = "[ipsec]\n";
const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";

/// The commands for a tunnel between the inner addresses at an end.
fn tunnel(end: usize) -> String {
    let mut script = String::new();
    for (from, spi) in [(0, 0x1001), (1, 0x2001)] {
        let (to, dir) = (1 - from, if from == end { "out" } else { "in" });
        let [src, dst] = [format!("10.81.0.{}", from + 1), format!("10.81.0.{}", to + 1)];
        script += &format!(
            "ip xfrm state add src {src} dst {dst} proto esp spi {spi:#x} reqid 1 mode tunnel replay-window 64 {GCM}\n\
             ip xfrm policy add dir {dir} src {} dst {} tmpl src {src} dst {dst} proto esp reqid 1 mode tunnel\n",
            INNER[0][from], INNER[0][to]
        );
    }
    script
}

/// Two daemons with a tunnel, whose wire is watched, while one end sends all the time.
struct Scene {
    watches: [Running; 2],
    senders: [Running; 2],
    pair: Pair,
}

impl Scene {
    fn new(test: &str) -> Option<Scene> {
        Scene::configured(test, PLAIN)
    }

    fn configured(test: &str, config: &str) -> Option<Scene> {
        let pair = Pair::new(test, config)?;
        for end in 0..2 {
            pair.hosts[end].ip(&pair.lab, &tunnel(end));
        }
        let start = |end: usize, argv: &[&str]| pair.lab.start(&pair.hosts[end].space, argv);
        let watches = [0, 1].map(|end| {
            let mut watch = start(end, &["python3", &program("esp_numbers.py"), "veth"]);
            watch.expect("watching", 1);
            watch
        });
        let send = program("clear_send.py");
        let senders = [0, 1].map(|end| start(end, &["python3", &send, INNER[0][1 - end]]));
        let scene = Scene { watches, senders, pair };
        assert!(scene.answered(5));
        Some(scene)
    }

    /// Injects a fault into a thread of the first end's daemon.
    fn inject(&self, how: &str) -> Running {
        let host = &self.pair.hosts[0];
        let (inject, id) = (program("inject.py"), host.id().to_string());
        let argv: Vec<&str> = ["python3", &inject, &id].into_iter().chain(how.split(' ')).collect();
        let mut injection = self.pair.lab.start(&host.space, &argv);
        injection.expect("injects", 1);
        injection
    }

    fn sh(&self, script: &str) -> (Option<i32>, String) {
        self.pair.lab.start(&self.pair.hosts[0].space, &["sh", "-c", script]).finish(LIMIT)
    }

    /// Whether so many pings from the first end are answered.
    fn answered(&self, count: u32) -> bool {
        // Until so many answers have come: the senders fill the queues of a daemon that a busy machine does not let run.
        let limit = LIMIT.as_secs() / 2;
        self.sh(&format!("ping -q -c {count} -i 0.01 -w {limit} {}", INNER[0][1])).0 == Some(0)
    }

    /// Pings until one is answered; returns how long that took.
    fn until_answered(&self, from: Instant) -> Duration {
        loop {
            let (status, _) = self.sh(&format!("ping -q -c 1 -W 0.1 {}", INNER[0][1]));
            if status == Some(0) {
                return from.elapsed();
            }
            assert!(from.elapsed() < LIMIT, "{}", self.pair.hosts[0].output());
        }
    }

    /// The value of a metric of the first end's daemon, with its labels.
    fn metric(&self, name: &str) -> u64 {
        let (status, text) = self.pair.hosts[0].sealane(&self.pair.lab, "tcp-ao show --metrics");
        assert_eq!(status, Some(0), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
    }

    /// The first end has the states and policies of before.
    fn has_everything(&self) {
        let script = "ip xfrm state; ip xfrm state count; ip xfrm policy count";
        let states = self.pair.hosts[0].ip(&self.pair.lab, script);
        assert!(states.contains("0x00001001") && states.contains("0x00002001"), "{states}");
        assert!(states.contains("SAD count 2") && states.contains("OUT 1"), "{states}");
    }

    /// Nothing was in clear at either end, no number was used twice, and enough was sealed.
    fn end(self) {
        for sender in self.senders {
            sender.finish(LIMIT);
        }
        for watch in self.watches {
            let (_, seen) = watch.finish(LIMIT);
            assert!(seen.contains("clear 0 ") && seen.contains(" twice 0 "), "{seen}");
            let esp = seen.split_once("esp ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
            assert!(esp > Some(100), "{seen}");
        }
    }
}

/// A local user without rights who asks all the time by a thousand sockets keeps nobody waiting who has rights: states are
/// added and counted meanwhile.
#[test]
fn who_has_no_rights_asks_all_the_time() {
    const STATES: usize = 200;
    let Some(pair) = Pair::new("xfrm_faults::who_has_no_rights_asks_all_the_time", PLAIN) else { return };
    let (host, lab) = (&pair.hosts[0], &pair.lab);
    let mut flood = lab.start(&host.space, &["python3", &program("xfrm_flood.py"), "1000"]);
    flood.expect("floods", 1);
    let add =
        |spi| format!("xfrm state add src 10.81.0.1 dst 10.81.0.2 proto esp spi {spi:#x} reqid 1 mode tunnel {GCM}\n");
    let batch = lab.file("batch", &(0x1000..0x1000 + STATES).map(add).collect::<String>().replace('\'', ""));
    host.ip(lab, &format!("ip -batch {batch}"));
    let count = host.ip(lab, "ip xfrm state count");
    assert!(count.contains(&format!("SAD count {STATES}")), "{count}");
    let (status, text) = host.sealane(lab, "xfrm state count");
    assert!(status == Some(0) && text.contains(&format!("SAD count {STATES}")), "{text}");
    let (_, text) = flood.finish(LIMIT);
    let sent = text.split("sent ").nth(1).and_then(|n| n.trim().parse::<u64>().ok());
    assert!(sent.is_some_and(|n| n > 10_000), "{text}");
}

/// A local user has very many UDP sockets, while a key manager asks for something all the time, after which the list of all sockets
/// is read: not by the thread of packets, which opens no file, and the log says nothing of them.
#[test]
fn another_user_has_very_many_sockets() {
    let Some(mut scene) = Scene::new("xfrm_faults::another_user_has_very_many_sockets") else { return };
    let host = &scene.pair.hosts[0];
    let mut flood = scene.pair.lab.start(&host.space, &["python3", &program("ports_flood.py"), "5000"]);
    flood.expect("bound", 1);
    let opens = scene.inject("sealane-ipsec EMFILE openat 1");
    for _ in 0..20 {
        host.ip(&scene.pair.lab, "ip xfrm state count");
        assert!(scene.answered(20));
    }
    assert!(opens.finish(LIMIT).1.contains("done 0"));
    let output = scene.pair.hosts[0].output();
    assert!(!output.contains("another program") && !output.contains("starting again"), "{output}");
    scene.pair.hosts[0].expect_start(1);
    flood.finish(LIMIT);
    scene.end();
}

/// Another thread writes down what packets do to leases of sequence numbers: no packet waits for a file system that is stuck.
#[test]
fn packets_do_not_write_leases() {
    let Some(scene) = Scene::new("xfrm_faults::packets_do_not_write_leases") else { return };
    let host = &scene.pair.hosts[0];
    // A state that its packets end.
    let [src, dst, far] = ["10.81.0.1", "10.81.0.2", "198.51.100.9"];
    let limited = format!(
        "ip route add {far} via {dst}\n\
         ip xfrm state add src {src} dst {dst} proto esp spi 0x1009 reqid 9 mode tunnel limit packet-hard 3 {GCM}\n\
         ip xfrm policy add dir out src {src} dst {far} tmpl src {src} dst {dst} proto esp reqid 9 mode tunnel\n"
    );
    host.ip(&scene.pair.lab, &limited);
    let writes = scene.inject("sealane-ipsec EIO pwrite64 1");
    scene.sh(&format!("ping -q -c 5 -i 0.01 -W 0.1 -I {src} {far}"));
    host.ip_until(&scene.pair.lab, "ip xfrm state", |text| !text.contains("0x00001009"));
    assert!(scene.answered(20));
    assert!(writes.finish(LIMIT).1.contains("done 0"), "a thread of packets has written");
    scene.end();
}

/// A hardening script sets `rp_filter` of all devices to 1, which would drop what comes out of a tunnel: ours is loose again, and
/// the log says why.
#[test]
fn reverse_path_filters_are_strict_again() {
    let Some(mut scene) = Scene::new("xfrm_faults::reverse_path_filters_are_strict_again") else { return };
    let strict = "for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$each; done";
    for times in 1..=3 {
        assert_eq!(scene.sh(strict).0, Some(0));
        scene.pair.hosts[0].expect("rp_filter of our device, which somebody set to 1, is 2 again", times);
        assert!(scene.answered(5));
    }
    let left = scene.sh("cat /proc/sys/net/ipv4/conf/*/rp_filter").1;
    assert_eq!(left.matches('2').count(), 1, "ours and no other: {left}");
    assert!(scene.answered(100));
    scene.end();
}

/// NetworkManager takes a device for one of its own when networking is turned off and on, as for suspend, and removes its
/// addresses; without one the kernel drops what comes out of it.
#[test]
fn the_device_gets_its_address_back() {
    let Some(mut scene) = Scene::new("xfrm_faults::the_device_gets_its_address_back") else { return };
    let show = "ip -o addr show dev sealane-ipsec";
    let before = scene.sh(show).1;
    assert!(before.contains("192.0.0.8/32"), "{before}");
    for times in 1..=3 {
        // `ip addr flush` would go on until there is none, and remove the one that is back.
        let (status, text) = scene.sh("ip addr del 192.0.0.8/32 dev sealane-ipsec");
        assert_eq!(status, Some(0), "{text}");
        scene.pair.hosts[0].expect("the address of our device, which somebody removed, is back", times);
        assert_eq!(scene.sh(show).1, before);
        assert!(scene.answered(5));
    }
    // Nobody else's address is.
    let (status, text) =
        scene.sh("ip addr add 192.0.2.9/32 dev lo; ip addr del 192.0.2.9/32 dev lo; ip -o addr show dev lo");
    assert!(status == Some(0) && !text.contains("192.0."), "{text}");
    assert!(scene.answered(100));
    scene.end();
}

/// One daemon serves both ends from outside: a network namespace by its name, and one by its path. The next one has the other way
/// for each: the states stay, and their sequence numbers go on.
#[test]
fn namespaces_by_name_and_by_path() {
    let Some(mut pair) = Pair::new("xfrm_faults::namespaces_by_name_and_by_path", PLAIN) else { return };
    for host in &mut pair.hosts {
        host.end(libc::SIGTERM);
        let (status, text) = host.sealane(&pair.lab, "xfrm clear");
        assert_eq!(status, Some(0), "{text}");
    }
    let outside = pair.lab.space("outside");
    let [a, b] = pair.hosts.each_ref().map(|host| &host.space);
    let config = pair.lab.file("outside.toml", &format!("[ipsec]\nnetns = [\"{a}\", \"/run/netns/{b}\"]\n"));
    let runtime = format!("SEALANE_RUNTIME_DIR={}", pair.hosts[0].folder());
    let exe = sealane().to_string_lossy().into_owned();
    let mut daemon = pair.lab.start(&outside, &["env", &runtime, &exe, "daemon", "--config", &config]);
    daemon.expect("IPsec in 2 network namespaces", 1);
    for end in 0..2 {
        pair.hosts[end].ip(&pair.lab, &tunnel(end));
    }
    let mut numbers = pair.lab.start(b, &["python3", &program("esp_numbers.py"), "veth"]);
    numbers.expect("watching", 1);
    let watch = pair.watch(1, &[]);
    let ping = format!("{} {}", ping_all(20), INNER[0][1]);
    let (status, text) = pair.lab.start(&pair.hosts[0].space, &["sh", "-c", &ping]).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    assert!(protected(&watch.finish(LIMIT).1) >= 40);
    daemon.signal(libc::SIGTERM);
    daemon.finish(LIMIT);
    let config = pair.lab.file("renamed.toml", &format!("[ipsec]\nnetns = [\"/run/netns/{a}\", \"{b}\"]\n"));
    let mut daemon = pair.lab.start(&outside, &["env", &runtime, &exe, "daemon", "--config", &config]);
    daemon.expect("IPsec in 2 network namespaces", 1);
    let (status, text) = pair.lab.start(&pair.hosts[0].space, &["sh", "-c", &ping]).finish(LIMIT);
    let seen = numbers.finish(LIMIT).1;
    assert!(status == Some(0) && seen.contains(" twice 0 "), "{text}\n{seen}");
    daemon.signal(libc::SIGTERM);
    daemon.finish(LIMIT);
}

/// The administrator has disabled IPv6: the daemon starts, and IPv4 passes.
#[test]
fn without_ipv6() {
    let Some(mut pair) = Pair::new("xfrm_faults::without_ipv6", PLAIN) else { return };
    let disable = "for at in all default; do echo 1 >/proc/sys/net/ipv6/conf/$at/disable_ipv6; done";
    pair.hosts[0].end(libc::SIGTERM);
    let (status, text) = pair.hosts[0].sealane(&pair.lab, "xfrm clear");
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = pair.lab.start(&pair.hosts[0].space, &["sh", "-ec", disable]).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    pair.hosts[0].start(&pair.lab);
    for end in 0..2 {
        pair.hosts[end].ip(&pair.lab, &tunnel(end));
    }
    let watch = pair.watch(1, &[]);
    let ping = format!("{} {}", ping_all(20), INNER[0][1]);
    let (status, text) = pair.lab.start(&pair.hosts[0].space, &["sh", "-c", &ping]).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    assert!(protected(&watch.finish(LIMIT).1) >= 40);
}

/// A thread of packets or the one that answers requests panics or hangs: the daemon starts again by itself.
#[test]
fn threads_that_fail_are_back() {
    let Some(mut scene) = Scene::new("xfrm_faults::threads_that_fail_are_back") else { return };
    scene.pair.lab.makes_panics();
    let mut starts = 1;
    for (how, asks, reason) in [
        ("sealane-ipsec long read 1", false, "panic"),
        // It writes policies down before it answers.
        ("sealane-xfrm long pwrite64 1", true, "panic"),
        ("sealane-ipsec stop read", false, "hang"),
        ("sealane-ipsec freeze", false, "hang"),
        ("sealane-xfrm freeze", false, "hang"),
        ("sealane-admin freeze", false, "hang"),
        ("sealane-ipsec EBADFD read 1", false, "error"),
    ] {
        let before = scene.metric(&format!("sealane_failures_total{{reason=\"{reason}\"}}"));
        let from = Instant::now();
        let injection = scene.inject(how);
        let asking = asks.then(|| {
            let add = "ip xfrm policy add dir out src 10.1.0.0/16 dst 10.2.0.0/16 action block";
            scene.pair.hosts[0].begin(&scene.pair.lab, &["sh", "-c", add])
        });
        starts += 1;
        scene.pair.hosts[0].expect_start(starts);
        let took = scene.until_answered(from);
        println!("{how}: traffic again after {} ms", took.as_millis());
        let (_, told) = injection.finish(LIMIT);
        assert!(told.contains("done 1"), "{how}: {told}");
        if let Some(asking) = asking {
            // Whether the policy is there or not, the program does not wait for ever.
            let (status, text) = asking.finish(LIMIT);
            assert!(status == Some(0) || text.contains("Connection refused"), "{text}");
            let delete = ["ip", "xfrm", "policy", "delete", "dir", "out", "src", "10.1.0.0/16", "dst", "10.2.0.0/16"];
            scene.pair.hosts[0].run(&scene.pair.lab, &delete);
        }
        assert_eq!(scene.metric(&format!("sealane_failures_total{{reason=\"{reason}\"}}")), before + 1, "{how}");
        assert_eq!(scene.pair.hosts[0].output().matches("starting again").count() + 1, starts, "{how}");
        scene.has_everything();
        assert!(scene.answered(5), "{how}");
    }
    scene.end();
}

/// The same for threads of offload devices, xfrm interfaces and a gateway, which other traffic does not need.
#[test]
fn threads_of_devices_that_fail_are_back() {
    const CONFIG: &str = "[ipsec]\n[[ipsec.device]]\nname = \"crypto0\"\nkind = \"crypto\"\n\
                          [[ipsec.device]]\nname = \"packet0\"\nkind = \"packet\"\n\
                          [[ipsec.interface]]\nname = \"route0\"\nif_id = 7\n\
                          [[ipsec.gateway]]\ninterfaces = [\"none\"]\n";
    let test = "xfrm_faults::threads_of_devices_that_fail_are_back";
    let Some(mut scene) = Scene::configured(test, CONFIG) else { return };
    let mut starts = 1;
    for how in [
        "crypto0 freeze",
        "packet0 freeze",
        "route0 freeze",
        "sealane-gateway freeze",
        "sealane-numbers freeze",
        "sealane-keys freeze",
    ] {
        let injection = scene.inject(how);
        starts += 1;
        scene.pair.hosts[0].expect_start(starts);
        injection.finish(LIMIT);
        let output = scene.pair.hosts[0].output();
        assert_eq!(output.matches("starting again").count() + 1, starts, "{how}: {output}");
        scene.until_answered(Instant::now());
        scene.has_everything();
    }
    scene.end();
}

/// Errors that pass by themselves end nothing.
#[test]
fn errors_that_pass_end_nothing() {
    let Some(mut scene) = Scene::new("xfrm_faults::errors_that_pass_end_nothing") else { return };
    for (errno, calls) in [
        ("ENOBUFS", "sendmmsg,sendmsg"),
        ("ENOMEM", "sendmmsg,sendmsg"),
        ("ENOBUFS", "recvmsg"),
        ("ENOMEM", "recvmsg"),
        ("ENOMEM", "read"),
        ("ENOMEM", "ppoll,poll"),
        ("EMFILE", "socket"),
        ("ENOMEM", "writev"),
    ] {
        let counter = format!("sealane_transient_errors_total{{errno=\"{errno}\"}}");
        let before = scene.metric(&counter);
        let injection = scene.inject(&format!("sealane-ipsec {errno} {calls} 20"));
        if calls == "socket" {
            // Addresses that change are read again.
            assert_eq!(
                scene.sh("ip addr add 192.0.2.1/32 dev lo; sleep 0.5; ip addr del 192.0.2.1/32 dev lo").0,
                Some(0)
            );
        }
        let injected = |text: &str| text.lines().find_map(|line| line.strip_prefix("done ")?.parse::<u64>().ok());
        let start = Instant::now();
        // Paths are looked up once a second.
        while injected(&injection.output()).is_none() && (calls != "socket" || start.elapsed() < Duration::from_secs(3))
        {
            assert!(start.elapsed() < LIMIT, "{errno} {calls}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (_, told) = injection.finish(LIMIT);
        let count = injected(&told).unwrap_or_else(|| panic!("{told}"));
        assert!(count > 0, "{errno} {calls}");
        assert!(scene.metric(&counter) >= before + count, "{errno} {calls}: {count}");
        scene.until_answered(start);
        assert!(scene.answered(20), "{errno} {calls}");
    }
    // It is reported now and then, not once for each.
    for errno in ["ENOBUFS", "ENOMEM", "EMFILE"] {
        scene.pair.hosts[0].expect(&format!("({errno})"), 1);
    }
    let output = scene.pair.hosts[0].output();
    for errno in ["ENOBUFS", "ENOMEM", "EMFILE"] {
        assert!((1..10).contains(&output.matches(&format!("({errno})")).count()), "{errno}: {output}");
    }
    scene.pair.hosts[0].expect_start(1);
    assert!(!output.contains("starting again"), "{output}");
    scene.has_everything();
    scene.end();
}

/// A daemon that gets no descriptor any more protects and serves requests as before.
#[test]
fn without_descriptors() {
    let Some(scene) = Scene::new("xfrm_faults::without_descriptors") else { return };
    let host = &scene.pair.hosts[0];
    let id = host.id();
    let limit = |most: &str| assert_eq!(scene.sh(&format!("prlimit --pid {id} --nofile={most}:")).0, Some(0));
    let usual = scene.sh(&format!("prlimit --pid {id} --nofile --noheadings --output SOFT")).1.trim().to_owned();
    // The lowest number that is free: no descriptor can get a lower one. Some come and go.
    let free = format!("n=0; while [ -e /proc/{id}/fd/$n ]; do n=$((n+1)); done; echo $n");
    let lowest = || scene.sh(&free).1.trim().parse::<u32>().expect("a number");
    let most = (0..10).map(|_| lowest()).min().expect("ten").to_string();
    // With the second limit the kernel does not even wait for as many as a thread has.
    for most in [most.as_str(), "4"] {
        limit(most);
        // Paths that were known are looked up again after a second.
        std::thread::sleep(Duration::from_millis(2500));
        assert!(scene.answered(20), "{most}");
        let add = "ip xfrm policy add dir out src 10.1.0.0/16 dst 10.2.0.0/16 action block";
        host.ip(&scene.pair.lab, add);
        // A client of the admin socket waits until there is a descriptor.
        let asks = host.begin(&scene.pair.lab, &["true"]);
        asks.finish(LIMIT);
        limit(&usual);
        host.ip(&scene.pair.lab, &add.replace(" add ", " delete ").replace(" action block", ""));
        assert!(scene.metric("sealane_transient_errors_total{errno=\"EMFILE\"}") > 0);
        assert!(scene.answered(20), "{most}");
        scene.has_everything();
    }
    let output = host.output();
    assert!(output.contains("(EMFILE)") && !output.contains("starting again"), "{output}");
    scene.end();
}

/// States that nobody could keep for the next daemon at first are kept with the next change.
#[test]
fn states_are_kept_once_there_is_room() {
    let Some(mut pair) = Pair::new("xfrm_faults::states_are_kept_once_there_is_room", PLAIN) else { return };
    let begin_anew = |pair: &mut Pair, meanwhile: &dyn Fn(&Pair)| {
        pair.hosts[0].end(libc::SIGTERM);
        let (status, text) = pair.hosts[0].sealane(&pair.lab, "xfrm clear");
        assert_eq!(status, Some(0), "{text}");
        meanwhile(pair);
        pair.hosts[0].start(&pair.lab);
    };
    let goes_on = |pair: &mut Pair| {
        let add = "ip xfrm policy add dir out src 10.1.0.0/16 dst 10.2.0.0/16 action block";
        pair.hosts[0].ip(&pair.lab, add);
        pair.hosts[0].end(libc::SIGKILL);
        pair.hosts[0].start(&pair.lab);
        let states = pair.hosts[0].ip(&pair.lab, "ip xfrm state; ip xfrm state count");
        assert!(states.contains("0x00001001") && states.contains("SAD count 2"), "{states}");
    };
    // There is no holder, and none can be started.
    let lock = format!("{}/holder.lock", pair.hosts[0].folder());
    begin_anew(&mut pair, &|pair| {
        let kill = ["pkill", "-KILL", "-f", &format!("hold {}", pair.hosts[0].folder())];
        let (status, _) = pair.lab.start(&pair.hosts[0].space, &kill).finish(LIMIT);
        assert_eq!(status, Some(0), "there was a holder");
        std::fs::remove_file(&lock).and_then(|()| std::fs::create_dir(&lock)).expect("a folder in its place");
    });
    pair.hosts[0].ip(&pair.lab, &tunnel(0));
    std::fs::remove_dir(&lock).expect("it was made");
    goes_on(&mut pair);
    // There is no memory. A daemon that cannot read the policies of before waits for new ones.
    begin_anew(&mut pair, &|_| {});
    pair.hosts[0].end(libc::SIGTERM);
    let folder = std::fs::read_dir(pair.hosts[0].folder()).expect("a folder");
    let file = folder.flatten().find(|file| file.file_name().to_string_lossy().starts_with("policies.")).expect("one");
    std::fs::write(file.path(), "no journal").expect("a file");
    pair.hosts[0].start(&pair.lab);
    let (inject, id) = (program("inject.py"), pair.hosts[0].id().to_string());
    let argv = ["python3", &inject, &id, "sealane-xfrm", "ENOMEM", "memfd_create", "1"];
    let mut injection = pair.lab.start(&pair.hosts[0].space, &argv);
    injection.expect("injects", 1);
    pair.hosts[0].ip(&pair.lab, &tunnel(0));
    injection.expect("done 1", 1);
    goes_on(&mut pair);
}

/// A service manager hears from the daemon as long as its threads live, and as long as somebody looks at them.
#[test]
fn a_service_manager_hears_of_life() {
    let Some(mut scene) = Scene::new("xfrm_faults::a_service_manager_hears_of_life") else { return };
    scene.pair.hosts[0].end(libc::SIGKILL);
    let socket = scene.pair.lab.folder().join("notify").display().to_string();
    let space = scene.pair.hosts[0].space.clone();
    let listen = "import socket,sys\ns=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM)\ns.bind(sys.argv[1])\n\
                  print('listens',flush=True)\nwhile 1: print(s.recv(999).decode(),flush=True)";
    let mut manager = scene.pair.lab.start(&space, &["python3", "-c", listen, &socket]);
    manager.expect("listens", 1);
    let heard = |manager: &Running| manager.output().matches("WATCHDOG=1").count();
    scene.pair.hosts[0].start_with(&scene.pair.lab, &[&format!("NOTIFY_SOCKET={socket}"), "WATCHDOG_USEC=2000000"]);
    manager.expect("READY=1", 1);
    manager.expect("WATCHDOG=1", 5);
    // It needs no descriptor for that.
    let (id, before) = (scene.pair.hosts[0].id(), heard(&manager));
    assert_eq!(scene.sh(&format!("prlimit --pid {id} --nofile=4:")).0, Some(0));
    manager.expect("WATCHDOG=1", before + 5);
    assert_eq!(scene.sh(&format!("prlimit --pid {id} --nofile=1024:")).0, Some(0));
    // If nobody looks at the threads, the manager hears nothing.
    let injection = scene.inject("sealane-watch freeze");
    let before = heard(&manager);
    std::thread::sleep(Duration::from_secs(3));
    assert!(heard(&manager) <= before + 1, "{}", manager.output());
    injection.finish(LIMIT);
    manager.expect("WATCHDOG=1", before + 5);
    // The thread that handles signals may hang, too.
    let injection = scene.inject("sealane freeze");
    manager.expect("READY=1", 2);
    injection.finish(LIMIT);
    let before = heard(&manager);
    manager.expect("WATCHDOG=1", before + 5);
    assert!(scene.answered(5));
    scene.has_everything();
    scene.end();
}

/// A daemon that somebody stops as a whole has not failed.
#[test]
fn a_stopped_daemon_goes_on() {
    let Some(mut scene) = Scene::new("xfrm_faults::a_stopped_daemon_goes_on") else { return };
    scene.pair.hosts[0].signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(3));
    scene.pair.hosts[0].signal(libc::SIGCONT);
    scene.until_answered(Instant::now());
    // Time enough to be taken for hanging.
    std::thread::sleep(Duration::from_secs(2));
    scene.pair.hosts[0].expect_start(1);
    assert!(!scene.pair.hosts[0].output().contains("starting again"), "{}", scene.pair.hosts[0].output());
    assert!(scene.answered(5));
    scene.has_everything();
    scene.end();
}
