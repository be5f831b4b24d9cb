//! Events of the daemon's machine while traffic goes on all the time: memory, descriptors, interfaces, connection
//! tracking, the runtime folder, another daemon, the network namespace.

use super::scene::{NETS, Scene, sh, wire};
use sealane_conformance::ipsec::{LIMIT, OUTER, program};
use sealane_conformance::lab::{Lab, RELOADS, Small, filling};
use sealane_conformance::target::sealane;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BY_TUN: &str = "[ipsec]\n";
const BY_XDP: &str = "[ipsec]\n[[ipsec.gateway]]\ninterfaces = [\"lan\", \"wire\"]\n";

/// Policies for the traffic that is sent, and for nothing else: later fragments have no ports to tell them by.
const PORTS: &str = "proto udp dport 4444";

/// An event and its name.
type Event = (&'static str, fn(&mut Scene));

const EVENTS: [Event; 10] = [
    ("the daemon is stopped, and goes on", stopped),
    ("the daemon is killed, as when memory has run out", killed),
    ("routing rules and routes are removed, and another rule comes first", other_routes),
    ("rules are reloaded all the time", reloads),
    ("no descriptors", no_descriptors),
    ("connections are forgotten", connections_are_forgotten),
    ("the interface is deleted and made again", another_wire),
    ("two daemons", two_daemons),
    ("a full runtime folder", full_folder),
    ("no memory", no_memory),
];

/// The daemon's runtime folder.
fn runtime_folder(lab: &Lab) -> PathBuf {
    lab.folder().join(format!("run-{}-a", lab.folder().file_name().expect("a name").to_string_lossy()))
}

/// Runs all events, one after another. After each of them packets have to be sealed again.
fn whatever_happens(test: &str, config: &str, selector: &str) {
    let mut small = None;
    let scene = Scene::configured(test, config, selector, |lab| small = Some(Small::new(runtime_folder(lab))));
    let Some(mut scene) = scene else { return };
    // Without memory the daemon's runtime panics where it starts a thread, and the daemon starts again.
    scene.lab.makes_panics();
    // It is dropped before the lab's folder.
    let _small = small;
    for (what, event) in EVENTS {
        println!("{what}");
        let watches = scene.watch();
        let streams = scene.stream();
        event(&mut scene);
        for stream in streams {
            let (status, text) = stream.finish(LIMIT);
            assert_eq!(status, Some(0), "{text}");
        }
        let seen = watches.end();
        assert_eq!((seen.clear, seen.at_a, seen.at_c), (0, 0, 0), "{what}: in clear on the wire, at a, at c");
        scene.until_sealed(what);
    }
}

#[test]
fn whatever_happens_to_the_machine() {
    whatever_happens("xfrm_never::whatever_happens_to_the_machine", BY_TUN, "");
}

#[test]
fn whatever_happens_to_the_machine_with_ports() {
    whatever_happens("xfrm_never::whatever_happens_to_the_machine_with_ports", BY_TUN, PORTS);
}

#[test]
fn whatever_happens_to_the_machine_past_the_stack() {
    whatever_happens("xfrm_never::whatever_happens_to_the_machine_past_the_stack", BY_XDP, "");
}

fn a_while() {
    std::thread::sleep(Duration::from_millis(500));
}

/// Sets a limit of the daemon's process.
fn limit(scene: &Scene, which: &str) {
    sh(&scene.lab, &scene.a.space, &format!("prlimit --pid {} --{which}", scene.a.id()));
}

/// Policies that need memory. The daemon may have room for all of them among what it has freed, and its small runtime folder then has,
/// too: policies for which that has none would not survive the daemon, nor would those of before.
fn policies(scene: &Scene) -> (Option<i32>, String) {
    let script = "for i in $(seq 128); do echo \"xfrm policy add dir out src 10.9.$((i / 256)).$((i % 256)) dst 10.10.0.0/16 \
                  tmpl src 10.9.0.1 dst 10.9.0.2 proto esp mode tunnel\"; done | ip -force -batch -";
    scene.a.begin(&scene.lab, &["sh", "-c", script]).finish(LIMIT)
}

fn stopped(scene: &mut Scene) {
    scene.a.signal(libc::SIGSTOP);
    a_while();
    // Nobody watches now.
    sh(&scene.lab, &scene.a.space, "nft flush ruleset");
    a_while();
    scene.a.signal(libc::SIGCONT);
    a_while();
}

fn killed(scene: &mut Scene) {
    scene.a.end(libc::SIGKILL);
    a_while();
    scene.a.start(&scene.lab);
    a_while();
}

fn other_routes(scene: &mut Scene) {
    let flush = "for f in -4 -6; do ip $f rule flush; ip $f rule add pref 32766 lookup main; \
                 ip $f route flush table 24225; done";
    sh(&scene.lab, &scene.a.space, flush);
    a_while();
    let rules = |what: &str| {
        let of = |f, net| format!("ip {f} rule {what} pref 10 to {net} lookup main\n");
        sh(&scene.lab, &scene.a.space, &(of("-4", "10.82.0.0/16") + &of("-6", "fd82::/16")));
    };
    rules("add");
    a_while();
    rules("del");
    a_while();
}

fn reloads(scene: &mut Scene) {
    let enough = scene.lab.folder().join("enough");
    let _ = std::fs::remove_file(&enough);
    let running = scene.lab.start(&scene.a.space, &["sh", "-c", RELOADS, &enough.to_string_lossy()]);
    a_while();
    killed(scene);
    std::fs::write(&enough, "").expect("a file");
    let (status, text) = running.finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
}

fn no_memory(scene: &mut Scene) {
    limit(scene, "as=1048576:");
    let _ = policies(scene);
    scene.a.reads_too_much();
    a_while();
    scene.a.start(&scene.lab);
    a_while();
}

fn no_descriptors(scene: &mut Scene) {
    limit(scene, "nofile=4:");
    sh(&scene.lab, &scene.a.space, "ip rule flush; ip rule add pref 32766 lookup main; ip route flush table 24225");
    a_while();
    sh(&scene.lab, &scene.a.space, "nft flush ruleset");
    a_while();
    limit(scene, "nofile=1024:");
    a_while();
}

fn connections_are_forgotten(scene: &mut Scene) {
    let track = "nft 'add table inet t; add chain inet t c { type filter hook forward priority 0; }; \
                 add rule inet t c ct state established accept; \
                 add chain inet t o { type filter hook output priority 0; }; add rule inet t o ct state established accept'";
    sh(&scene.lab, &scene.a.space, track);
    for _ in 0..20 {
        let forget = ["python3", &program("never.py"), "forget"];
        let (status, text) = scene.lab.start(&scene.a.space, &forget).finish(LIMIT);
        // Without ctnetlink nobody can make a kernel forget its connections.
        assert!(status == Some(0) || text.contains("this kernel has no ctnetlink"), "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
    sh(&scene.lab, &scene.a.space, "nft delete table inet t");
    a_while();
}

fn another_wire(scene: &mut Scene) {
    sh(&scene.lab, &scene.a.space, "ip link del wire");
    a_while();
    wire(&scene.lab, &scene.a.space, &scene.b);
    a_while();
}

fn two_daemons(scene: &mut Scene) {
    let config = scene.lab.file("second.toml", "[ipsec]\n");
    let exe = sealane().to_string_lossy().into_owned();
    let other = format!("SEALANE_RUNTIME_DIR={}", scene.lab.folder().join("run-second").display());
    let same = format!("SEALANE_RUNTIME_DIR={}", scene.a.folder());
    for runtime in [&same, &other] {
        let argv = ["env", runtime, &exe, "daemon", "--config", &config];
        let (status, text) = scene.lab.start(&scene.a.space, &argv).finish(LIMIT);
        assert!(status != Some(0) && text.contains("another"), "{runtime}: {status:?} {text}");
    }
    // One that is killed while it starts beside the first, at any moment.
    for ms in (0..40).step_by(4) {
        let second = scene.lab.start(&scene.a.space, &["env", &other, &exe, "daemon", "--config", &config]);
        std::thread::sleep(Duration::from_millis(ms));
        second.signal(libc::SIGKILL);
        second.finish(LIMIT);
    }
    // The first one is killed, and another one with a folder of its own, which knows no policies, tries to take its place.
    scene.a.end(libc::SIGKILL);
    let second = scene.lab.start(&scene.a.space, &["env", &other, &exe, "daemon", "--config", &config]);
    a_while();
    second.signal(libc::SIGTERM);
    second.finish(LIMIT);
    a_while();
    scene.a.start(&scene.lab);
    a_while();
}

fn full_folder(scene: &mut Scene) {
    let filler = Path::new(scene.a.folder()).join("filler");
    let fill = filling(&filler);
    let update = |scene: &Scene, priority: u32| {
        let [us, them] = OUTER[0];
        let [ours, theirs] = NETS[0];
        // With the other selector it is another policy: for all traffic.
        let update = format!(
            "ip xfrm policy update dir out src {ours} dst {theirs} priority {priority} tmpl src {us} dst {them} proto esp \
             reqid 1 mode tunnel"
        );
        scene.a.begin(&scene.lab, &["sh", "-c", &update]).finish(LIMIT)
    };
    sh(&scene.lab, &scene.a.space, &fill);
    let (status, text) = update(scene, 5);
    assert_eq!(status, Some(0), "{text}");
    a_while();
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        sh(&scene.lab, &scene.a.space, &fill);
        scene.a.end(signal);
        a_while();
        scene.a.start(&scene.lab);
        a_while();
    }
    let (status, text) = update(scene, 6);
    assert_eq!(status, Some(0), "{text}");
    std::fs::remove_file(filler).expect("the filler");
    let (status, text) = update(scene, 7);
    assert_eq!(status, Some(0), "{text}");
}

/// The last process of the namespace ends, its name goes, and then the daemon that served it from outside.
#[test]
fn the_namespace_has_no_process() {
    let Some(mut scene) = Scene::new("xfrm_never::the_namespace_has_no_process") else { return };
    scene.a.end(libc::SIGTERM);
    let outside = scene.lab.space("outside");
    let config = scene.lab.file("outside.toml", &format!("[ipsec]\nnetns = [\"{}\"]\n", scene.a.space));
    let runtime = format!("SEALANE_RUNTIME_DIR={}", scene.a.folder());
    let exe = sealane().to_string_lossy().into_owned();
    let start = |scene: &Scene| scene.lab.start(&outside, &["env", &runtime, &exe, "daemon", "--config", &config]);
    let mut daemon = start(&scene);
    daemon.expect("IPsec in 1 network namespaces", 1);
    let watches = scene.watch_others();
    let streams = scene.stream_of([false, true, true]);
    a_while();
    let gone = Command::new("ip").args(["netns", "del", &scene.a.space]).status();
    assert!(gone.expect("ip").success());
    a_while();
    daemon.signal(libc::SIGKILL);
    daemon.finish(LIMIT);
    a_while();
    let seen = watches.end();
    assert_eq!((seen.clear, seen.at_c), (0, 0), "in clear on the wire, at c");
    assert!(seen.esp > 100, "it went on without the name: {seen:?}");
    // With the holder the namespace ends. The kernel takes its rules away some milliseconds before its devices (IPSEC-137).
    let watches = scene.watch_others();
    let holder = ["pkill", "-KILL", "-f", &format!("hold {}", scene.a.folder())];
    let (status, _) = scene.lab.start(&outside, &holder).finish(LIMIT);
    assert_eq!(status, Some(0), "there was a holder");
    a_while();
    let (status, text) = start(&scene).finish(LIMIT);
    assert!(status != Some(0) && text.contains(&scene.a.space), "{status:?} {text}");
    streams.into_iter().for_each(|stream| drop(stream.finish(LIMIT)));
    let seen = watches.end();
    println!("while the kernel took the namespace away: {seen:?}");
    assert_eq!(seen.esp, 0, "the namespace is gone");
}
