//! `sealane daemon` for unmodified programs, with daemons that are killed in the middle of a session.

use crate::hosts::*;
use sealane_conformance::ipsec::program;
use sealane_conformance::lab::{RELOADS, filling};
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, sealane};
use std::time::Duration;

#[test]
fn sessions_survive_their_daemons_and_nothing_is_in_clear() {
    let Some(mut hosts) = Hosts::new("tcp_ao_daemon::survive") else { return };
    let watch = hosts.watch();
    let server = hosts.server();
    let client = hosts.client(&["--bytes", "400000000", "--seconds", "60"]);
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    for which in [1, 0] {
        hosts.end(which, 9);
        std::thread::sleep(Duration::from_millis(300));
        hosts.start(which);
        let told = hosts.daemon(which).output();
        assert!(told.contains("1 connections go on"), "{told}");
        hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    }
    let (status, told) = client.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    let (status, told) = server.finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");

    // Rules stay after an orderly end: without its daemon a peer is unreachable, not unprotected.
    hosts.end(0, libc::SIGTERM);
    let server = hosts.server();
    hosts.assert_answers(false);
    drop(server);
    nothing_in_clear(watch);
}

/// The path's MTU becomes smaller than the device's, as a router or a forged ICMP error may make it: segments with the
/// option still fit, those of connections that exist and of new ones.
#[test]
fn a_narrower_path() {
    let Some(hosts) = Hosts::new("tcp_ao_daemon::a_narrower_path") else { return };
    let watch = hosts.watch();
    let (none, at) = (hosts.lab.file("none", ""), hosts.at());
    let serve = [PEER, "serve", &at, "--keys", &none, "--count", "2", "--seconds", "600"];
    let mut server = hosts.lab.start(&hosts.spaces[1], &serve);
    server.expect("listening", 1);
    let client = hosts.client(&["--bytes", "1000000000000", "--seconds", "600"]);
    hosts.lab.sends(&hosts.spaces[0], "wire", 1000);
    let narrow = ["ip", "route", "replace", &format!("{B}/32"), "dev", "wire", "mtu", "1300"];
    assert_eq!(hosts.lab.start(&hosts.spaces[0], &narrow).finish(LIMIT).0, Some(0));
    hosts.lab.sends(&hosts.spaces[0], "wire", 3000);
    let (status, told) = hosts.client(&["--bytes", "3000000", "--seconds", "60"]).finish(LIMIT);
    assert_eq!(status, Some(0), "{told}");
    drop((client, server));
    nothing_in_clear(watch);
}

/// Connections without their state cannot be signed: they are reset at once where the kernel can end sockets, and programs
/// connect again.
#[test]
fn connections_that_nobody_can_sign_end() {
    let Some(mut hosts) = Hosts::new("tcp_ao_daemon::lost_state") else { return };
    let watch = hosts.watch();
    let server = hosts.server();
    let client = hosts.client(&["--bytes", "4000000000000", "--seconds", "60"]);
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    assert_eq!(client.output(), "", "it sends");
    hosts.end(0, 9);
    for file in std::fs::read_dir(hosts.lab.folder().join("run0")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    // The rules of the killed daemon stay: the client's remaining data is not sent.
    std::thread::sleep(Duration::from_millis(300));
    hosts.start(0);
    let told = hosts.daemon(0).output();
    assert!(!told.contains("go on"), "{told}");
    // Without CONFIG_INET_DIAG_DESTROY the connection stays until its program's timeout, and sends nothing (AO-66).
    let stays = told.contains("cannot be signed: Operation not supported");
    assert!(stays || told.contains("ended 1 connections"), "{told}");
    if stays {
        std::thread::sleep(Duration::from_secs(2));
        drop(client);
    } else {
        // The connection is reset. A timeout of the client would be another error.
        let (status, told) = client.finish(LIMIT);
        assert!(status == Some(1) && !told.contains("(os error 11)"), "its connection was aborted: {told}");
    }
    drop(server);
    let server = hosts.server();
    hosts.assert_answers(true);
    drop(server);
    nothing_in_clear(watch);
}

#[test]
fn keys_follow_the_configuration() {
    let Some(mut hosts) = Hosts::new("tcp_ao_daemon::reload") else { return };
    let watch = hosts.watch();
    // With another secret on one side nothing passes; with the same one on both, everything does.
    hosts.reconfigure(0, &config(B, [7, 8], "another"), "read again");
    let server = hosts.server();
    hosts.assert_answers(false);
    hosts.reconfigure(1, &config(A, [8, 7], "another"), "read again");
    hosts.assert_answers(true);
    // A wrong configuration changes nothing.
    hosts.reconfigure(0, "[[peer]]\nname = 5\n", "everything stays as it was");
    // Nor does one with a mistake that only the machine knows of, in one of its parts.
    let changed = config(B, [7, 8], "a third one");
    let nowhere = config("10.99.0.1", [7, 8], "x").replace("[[peer]]", "[[peer]]\nnetns = \"no-such-namespace\"");
    for mistake in [nowhere, "[ipsec]\nnetns = [\"no-such-namespace\"]\n".to_owned()] {
        let told = hosts.daemon(0).output().matches("everything stays as it was").count();
        std::fs::write(&hosts.configs[0], format!("{changed}{mistake}")).unwrap();
        hosts.daemon(0).signal(libc::SIGHUP);
        hosts.daemon(0).expect("everything stays as it was", told + 1);
    }
    drop(server);
    let server = hosts.server();
    hosts.assert_answers(true);
    drop(server);
    nothing_in_clear(watch);
}

/// The rules let the daemon's own segments pass by their mark. Others who know it, or guess, may not use it, whether a
/// daemon runs or not.
#[test]
fn marks_of_others() {
    let Some(mut hosts) = Hosts::new("tcp_ao_daemon::marks_of_others") else { return };
    let watch = hosts.watch();
    let list = hosts.lab.start(&hosts.spaces[0], &["nft", "list", "chain", "inet", "sealane", "output"]);
    let (status, text) = list.finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    let rule = text.lines().find(|line| line.contains("mark")).unwrap_or_else(|| panic!("{text}"));
    let word = rule.split([' ', '/']).find(|word| word.starts_with("0x") && !word.starts_with("0xffff"));
    let mark = u32::from_str_radix(word.expect("a mark").trim_start_matches("0x"), 16).expect("a number");
    // The last one is that which every Sealane had until marks were drawn.
    let marks = [mark, mark | 1, mark | 2, 0x5ea1_1a40].map(|mark| mark.to_string());
    let program = program("never.py");
    let words = ["python3", &program, "connect", B, PORT];
    let argv: Vec<&str> = words.into_iter().chain(marks.iter().map(String::as_str)).collect();
    for _ in 0..2 {
        let (status, text) = hosts.lab.start(&hosts.spaces[0], &argv).finish(LIMIT);
        assert_eq!(status, Some(0), "{text}");
        if hosts.daemons[0].is_some() {
            hosts.end(0, libc::SIGKILL);
        }
    }
    nothing_in_clear(watch);
}

/// Events of the machine while a session goes on: nothing leaves unsigned, and the session goes on.
fn nothing_unsigned_leaves(test: &str, ends: [&'static str; 2]) {
    let Some(mut hosts) = Hosts::of(test, ends) else { return };
    let watch = hosts.watch();
    events_of_the_machine(&mut hosts);
    nothing_in_clear(watch);
}

#[test]
fn whatever_happens_to_the_machine() {
    nothing_unsigned_leaves("tcp_ao_daemon::whatever_happens_to_the_machine", V4);
}

#[test]
fn whatever_happens_to_the_machine_over_ipv6() {
    nothing_unsigned_leaves("tcp_ao_daemon::whatever_happens_to_the_machine_over_ipv6", V6);
}

/// The same events while both ends get unsigned segments with the right numbers: none is heeded, so the session goes on, and
/// no SYN is answered.
fn nothing_unsigned_comes_in(test: &str, ends: [&'static str; 2]) {
    let Some(mut hosts) = Hosts::of(test, ends) else { return };
    let forge = program("ao_forge.py");
    let mut forgers = hosts.spaces.each_ref().map(|space| hosts.lab.start(space, &["python3", &forge, "wire", PORT]));
    events_of_the_machine(&mut hosts);
    for forger in &mut forgers {
        forger.expect("forges", 1);
    }
    for forger in forgers {
        let (_, told) = forger.finish(LIMIT);
        println!("{told}");
        let sent = told.split("forged ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        assert!(sent.is_some_and(|sent| sent > 1000) && told.contains("answered 0"), "{told}");
    }
}

#[test]
fn nothing_unsigned_comes_in_whatever_happens() {
    nothing_unsigned_comes_in("tcp_ao_daemon::nothing_unsigned_comes_in_whatever_happens", V4);
}

#[test]
fn nothing_unsigned_comes_in_whatever_happens_over_ipv6() {
    nothing_unsigned_comes_in("tcp_ao_daemon::nothing_unsigned_comes_in_whatever_happens_over_ipv6", V6);
}

/// Runs them, one after another, and after each of them the session of a client has to go on.
fn events_of_the_machine(hosts: &mut Hosts) {
    let server = hosts.server();
    let client = hosts.client(&["--ping", "10000000", "--seconds", "100"]);
    let sh = |hosts: &Hosts, script: &str| {
        let (status, text) = hosts.lab.start(&hosts.spaces[0], &["sh", "-ec", script]).finish(LIMIT);
        assert_eq!(status, Some(0), "{script}\n{text}");
    };
    let a_while = || std::thread::sleep(Duration::from_millis(500));
    let goes_on = |hosts: &Hosts, what: &str| {
        println!("{what}");
        hosts.lab.sends(&hosts.spaces[0], "wire", 300);
        assert_eq!(client.output(), "", "{what}: it sends");
    };
    goes_on(hosts, "at the beginning");
    hosts.daemon(0).signal(libc::SIGSTOP);
    a_while();
    hosts.daemon(0).signal(libc::SIGCONT);
    goes_on(hosts, "stopped");
    let id = hosts.daemon(0).id();
    sh(hosts, &format!("prlimit --pid {id} --nofile=4:; sleep 0.5; prlimit --pid {id} --nofile=1024:"));
    goes_on(hosts, "no descriptors");
    let forget = format!("python3 {} forget || :", program("never.py"));
    sh(
        hosts,
        &format!(
            "nft 'add table inet t; add chain inet t c {{ type filter hook output priority 0; }}; \
             add rule inet t c ct state established accept'\n{forget}\n{forget}\nnft delete table inet t"
        ),
    );
    goes_on(hosts, "connections are forgotten");
    // Otherwise an IPv6 address goes with its interface, and the session with its address.
    sh(hosts, "echo 1 >/proc/sys/net/ipv6/conf/wire/keep_addr_on_down");
    sh(hosts, "ip link set wire down; sleep 0.3; ip link set wire up");
    goes_on(hosts, "the interface is down and up");
    let exe = sealane().to_string_lossy().into_owned();
    for folder in ["run0", "second"] {
        let runtime = format!("SEALANE_RUNTIME_DIR={}", hosts.lab.folder().join(folder).display());
        let argv = ["env", &runtime, &exe, "daemon", "--config", &hosts.configs[0]];
        let (status, text) = hosts.lab.start(&hosts.spaces[0], &argv).finish(LIMIT);
        assert_eq!(status, Some(2), "{folder}: another daemon is refused: {text}");
        goes_on(hosts, "two daemons");
    }
    let filler = hosts.lab.folder().join("run0/filler");
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        sh(hosts, &filling(&filler));
        hosts.end(0, signal);
        a_while();
        hosts.start(0);
        goes_on(hosts, "a full runtime folder");
    }
    std::fs::remove_file(filler).unwrap();
    let id = hosts.daemon(0).id();
    sh(hosts, &format!("prlimit --pid {id} --as=1048576:"));
    // It reads a large configuration, and aborts.
    let config = std::fs::read_to_string(&hosts.configs[0]).unwrap();
    std::fs::write(&hosts.configs[0], format!("{config}# {}\n", "x".repeat(64 << 20))).unwrap();
    hosts.daemon(0).signal(libc::SIGHUP);
    hosts.daemons[0].take().expect("it runs").finish(LIMIT);
    std::fs::write(&hosts.configs[0], config).unwrap();
    hosts.start(0);
    goes_on(hosts, "no memory");
    drop((client, server));
}

/// An administrator reloads rules all the time, while a session goes on, its daemon is killed, and another one starts.
#[test]
fn rules_are_reloaded_all_the_time() {
    let Some(mut hosts) = Hosts::new("tcp_ao_daemon::rules_are_reloaded_all_the_time") else { return };
    let watch = hosts.watch();
    let server = hosts.server();
    let client = hosts.client(&["--ping", "10000000", "--seconds", "100"]);
    let enough = hosts.lab.folder().join("enough").to_string_lossy().into_owned();
    let reloads = hosts.spaces.each_ref().map(|space| hosts.lab.start(space, &["sh", "-c", RELOADS, &enough]));
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        hosts.lab.sends(&hosts.spaces[0], "wire", 300);
        hosts.end(0, signal);
        std::thread::sleep(Duration::from_secs(1));
        // Without its state another connection would not be signed either.
        hosts.assert_answers(false);
        hosts.start(0);
    }
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    assert_eq!(client.output(), "", "the session goes on");
    std::fs::write(&enough, "").expect("a file");
    reloads.into_iter().for_each(|reload| assert_eq!(reload.finish(LIMIT).0, Some(0)));
    drop((client, server));
    nothing_in_clear(watch);
}

/// The same on Debian 12's kernel, where rules go with their owner.
#[test]
#[ignore = "make accept: boots linux-6.1"]
fn rules_are_reloaded_on_linux_6_1() {
    let kernel = Target::kernel("linux-6.1");
    if skip_without("tcp_ao_daemon::rules_are_reloaded_on_linux_6_1", &[&kernel, &Target::sealane("open")]) {
        return;
    }
    let this = std::env::current_exe().expect("a path");
    let exe = format!("SEALANE={}", sealane().display());
    let name = "tcp_ao_daemon::rules_are_reloaded_all_the_time";
    let argv = ["env", &*exe, &*this.to_string_lossy(), "--exact", name, "--nocapture"];
    let done = kernel.run(&argv, LIMIT * 2).expect("it starts");
    let passed = done.text.contains(&format!("test {name} ... ok")) || done.text.contains("1 passed");
    assert!(passed && !done.text.contains("SKIPPED"), "{}{}", done.text, done.errors);
}

/// The rules of a daemon that was killed have an owner that lives: others cannot remove them. The next daemon goes on with
/// them, and an explicit command removes them.
#[test]
fn rules_of_a_killed_daemon_stay() {
    let Some(mut hosts) = Hosts::new("tcp_ao_daemon::rules_of_a_killed_daemon_stay") else { return };
    let watch = hosts.watch();
    hosts.end(0, libc::SIGKILL);
    let flush = ["sh", "-c", "nft flush ruleset; nft delete table inet sealane"];
    let _ = hosts.lab.start(&hosts.spaces[0], &flush).finish(LIMIT);
    let server = hosts.server();
    hosts.assert_answers(false);
    hosts.start(0);
    hosts.assert_answers(true);
    drop(server);
    let runtime = format!("SEALANE_RUNTIME_DIR={}", hosts.lab.folder().join("run0").display());
    let exe = sealane();
    let clear = ["env", &runtime, &*exe.to_string_lossy(), "tcp-ao", "clear"];
    let (status, text) = hosts.lab.start(&hosts.spaces[0], &clear).finish(LIMIT);
    assert!(status == Some(2) && text.contains("another sealane serves TCP-AO"), "{status:?} {text}");
    hosts.end(0, libc::SIGTERM);
    let (status, text) = hosts.lab.start(&hosts.spaces[0], &clear).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    let (_, text) = hosts.lab.start(&hosts.spaces[0], &["nft", "list", "tables"]).finish(LIMIT);
    assert!(!text.contains("sealane"), "{text}");
    let run = std::fs::read_dir(hosts.lab.folder().join("run0")).expect("a folder");
    let left: Vec<_> = run
        .flatten()
        .map(|file| file.file_name())
        .filter(|name| name.as_encoded_bytes().starts_with(b"tcp-ao."))
        .collect();
    assert!(left.is_empty(), "nothing says any more that peers are protected: {left:?}");
    nothing_in_clear(watch);
}
