//! Partial MACs between two daemons, by states that `ip` adds: their packets pass, nobody else's do, and no number of theirs comes
//! twice (`docs/partial-mac.md`).

use sealane_conformance::ipsec::{INNER, LIMIT, OUTER, Pair, ping_all, ping_too_long, pings, program, protected};
use std::path::PathBuf;

const PLAIN: &str = "[ipsec]\n";
const ALLOWED: &str = "[ipsec]\nallow-partial-macs = \"parts of packets can be altered unnoticed\"\n";

const NULL: &str = "enc 'ecb(cipher_null)' ''";
const CBC: &str = "enc 'cbc(aes)' 0x000102030405060708090a0b0c0d0e0f";
const CTR: &str = "enc 'rfc3686(ctr(aes))' 0x000102030405060708090a0b0c0d0e0f10111213";

/// Answers with the bytes of one connection.
const ECHO: &str = "
import socket
s = socket.create_server(('0.0.0.0', 9))
s.settimeout(60)
print('listening', flush=True)
c = s.accept()[0]
c.settimeout(60)
while piece := c.recv(65536):
    c.sendall(piece)
";
/// Sends bytes over a connection, and compares the answer.
const TALK: &str = "
import os, socket, sys, threading
said = os.urandom(300_000)
s = socket.create_connection((sys.argv[1], 9), 60)
def say():
    s.sendall(said)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=say).start()
heard = b''
while piece := s.recv(65536):
    heard += piece
sys.exit(heard != said)
";

/// The folder of an end in which numbers are kept for good.
fn state_folder(pair: &Pair, end: usize) -> PathBuf {
    pair.lab.folder().join(format!("state-{end}"))
}

/// Starts the daemon of an end, which has a folder for numbers.
fn start(pair: &mut Pair, end: usize) {
    let folder = state_folder(pair, end);
    std::fs::create_dir_all(&folder).expect("a folder");
    pair.hosts[end].start_with(&pair.lab, &[&format!("STATE_DIRECTORY={}", folder.display())]);
}

/// Two daemons that allow partial MACs; `None` when something is missing.
fn allowing(test: &str) -> Option<Pair> {
    let mut pair = Pair::new(test, ALLOWED)?;
    for end in 0..2 {
        pair.hosts[end].end(libc::SIGTERM);
        start(&mut pair, end);
    }
    Some(pair)
}

/// The states and policies of an end. `algorithm` has `KEY` in place of a key, which each direction has for itself.
fn commands(end: usize, mode: &str, algorithm: &str) -> String {
    let mut script = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
    let outer = OUTER[0];
    let inner = if mode == "tunnel" { INNER[0] } else { outer };
    for (from, spi) in [(0, 0x1001), (1, 0x2001)] {
        let (to, dir) = (1 - from, if from == end { "out" } else { "in" });
        let algorithm = algorithm.replace("KEY", &format!("0x{spi:032x}"));
        let (src, dst) = (outer[from], outer[to]);
        let ends = if mode == "tunnel" { format!("src {src} dst {dst}") } else { String::new() };
        script += &format!(
            "ip xfrm state add src {src} dst {dst} proto esp spi {spi:#x} reqid 1 mode {mode} flag esn replay-window 128 {algorithm}\n\
             ip xfrm policy add dir {dir} src {} dst {} tmpl {ends} proto esp reqid 1 mode {mode}\n",
            inner[from], inner[to]
        );
    }
    script
}

/// Adds states with these algorithms at the ends.
fn set(pair: &Pair, mode: &str, algorithms: [&str; 2]) {
    for (end, algorithm) in algorithms.iter().enumerate() {
        pair.hosts[end].ip(&pair.lab, &commands(end, mode, algorithm));
    }
}

/// The answers to the pings of a command from an end.
fn answers(pair: &Pair, from: usize, ping: &str) -> u32 {
    let (_, text) = pair.lab.start(&pair.hosts[from].space, &["sh", "-c", ping]).finish(LIMIT);
    let received = text.split_once(" received").and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    received.unwrap_or_else(|| panic!("no pings: {text}"))
}

/// The answers to 20 pings from the first end through the tunnel, all of which are waited for.
fn answered(pair: &Pair) -> u32 {
    answers(pair, 0, &format!("{} {}", ping_all(20), INNER[0][1]))
}

/// Runs commands at the first end, which are refused with this text, and leave no state.
fn refused(pair: &Pair, commands: &str, text: &str) {
    let (status, said) = pair.hosts[0].run(&pair.lab, &["sh", "-ec", commands]);
    assert!(status == Some(2) && said.contains(&format!("Error: {text}")), "{commands}: {status:?}: {said}");
    assert_eq!(pair.hosts[0].ip(&pair.lab, "ip xfrm state"), "", "{commands}");
}

#[test]
fn two_ends_take_each_others_packets() {
    let Some(pair) = allowing("xfrm_partial::two_ends_take_each_others_packets") else { return };
    for (mode, cipher, mac) in [
        ("tunnel", NULL, "auth-trunc 'partial(gmac(aes),1/4)' KEY 128"),
        ("tunnel", CTR, "auth-trunc 'partial(cmac(aes),1/4)' KEY 96"),
        ("tunnel", CBC, "auth-trunc 'partial(hmac(sha1),1/2)' KEY 96"),
        ("tunnel", CTR, "auth-trunc 'partial(gmac(aes),1)' KEY 128"),
        ("transport", NULL, "auth-trunc 'partial(hmac(sha256),1/8)' KEY 128"),
        ("transport", CBC, "auth-trunc 'partial(gmac(aes),1/8)' KEY 128"),
    ] {
        let what = format!("{mode}, {cipher}, {mac}");
        set(&pair, mode, [&format!("{cipher} {mac}"); 2]);
        let watch = pair.watch(1, &["outside"]);
        for from in 0..2 {
            let inner = if mode == "tunnel" { INNER[0] } else { OUTER[0] };
            let (space, there) = (&pair.hosts[from].space, &pair.hosts[1 - from].space);
            let to = inner[1 - from];
            let script = pings(to, &[0, 1, 2, 3, 56, 100, 180, 1000, 1300], 3) + &ping_too_long(to, 2500);
            let (status, text) = pair.lab.start(space, &["sh", "-c", &script]).finish(LIMIT);
            assert_eq!(status, Some(0), "{what}: from {from}: {text}");
            let mut echo = pair.lab.start(there, &["python3", "-c", ECHO]);
            echo.expect("listening", 1);
            let (status, text) = pair.lab.start(space, &["python3", "-c", TALK, to]).finish(LIMIT);
            assert_eq!(status, Some(0), "{what}: from {from}: {text}");
            assert_eq!(echo.finish(LIMIT).0, Some(0), "{what}");
        }
        let (_, seen) = watch.finish(LIMIT);
        // 600,000 bytes in packets of 1,500.
        assert!(protected(&seen) > 400, "{what}: {seen}");
        for host in &pair.hosts {
            let states = host.ip(&pair.lab, "ip -s xfrm state");
            assert_eq!(states.matches("replay-window 0 replay 0 failed 0").count(), 2, "{what}: {states}");
            assert_eq!(states.matches(mac.split('\'').nth(1).expect("a name")).count(), 2, "{what}: {states}");
        }
    }
    // A packet that comes again is dropped as ever.
    set(&pair, "tunnel", [&format!("{CTR} auth-trunc 'partial(cmac(aes),1/4)' KEY 96"); 2]);
    pair.replays();
}

/// Packets of one end are not taken by the other one, in either direction, unless both have the same partial MAC.
#[test]
fn another_mac_at_the_other_end_drops() {
    let Some(pair) = allowing("xfrm_partial::another_mac_at_the_other_end_drops") else { return };
    // The states have the same keys at both ends, and lengths of ICVs that both have.
    for ends in [
        ["auth-trunc 'cmac(aes)' KEY 96", "auth-trunc 'partial(cmac(aes),1/4)' KEY 96"],
        ["auth-trunc 'cmac(aes)' KEY 96", "auth-trunc 'partial(cmac(aes),1)' KEY 96"],
        ["auth-trunc 'hmac(sha1)' KEY 96", "auth-trunc 'partial(hmac(sha1),1/2)' KEY 96"],
        ["auth-trunc 'hmac(sha256)' KEY 128", "auth-trunc 'partial(hmac(sha256),1/8)' KEY 128"],
        ["auth-trunc 'partial(cmac(aes),1/2)' KEY 96", "auth-trunc 'partial(cmac(aes),1/4)' KEY 96"],
        ["auth-trunc 'partial(cmac(aes),1/4)' KEY 128", "auth-trunc 'partial(gmac(aes),1/4)' KEY 128"],
        ["auth-trunc 'partial(hmac(sha1),1/4)' KEY 128", "auth-trunc 'partial(hmac(sha1),1/4)' KEY 96"],
    ] {
        let algorithms = ends.map(|mac| format!("{CTR} {mac}"));
        set(&pair, "tunnel", [&algorithms[0], &algorithms[1]]);
        for from in 0..2 {
            // The short ones are covered from their first byte to the last.
            let ping = |len| format!("ping -q -c 5 -i 0.01 -W 1 -s {len} {}", INNER[0][1 - from]);
            assert_eq!([0, 1300].map(|len| answers(&pair, from, &ping(len))), [0, 0], "{ends:?}: from {from}");
            let host = &pair.hosts[1 - from];
            host.ip_until(&pair.lab, "ip -s xfrm state", |states| {
                states.contains("replay-window 0 replay 0 failed 10")
            });
        }
    }
    // With one of them at both ends all is well.
    set(&pair, "tunnel", [&format!("{CTR} auth-trunc 'partial(hmac(sha1),1/4)' KEY 96"); 2]);
    assert_eq!(answered(&pair), 20);
}

#[test]
fn refused_without_the_sentence_and_without_a_folder() {
    const NOT_ALLOWED: &str =
        "Partial MACs let parts of packets be altered unnoticed: set allow-partial-macs in [ipsec]";
    let test = "xfrm_partial::refused_without_the_sentence_and_without_a_folder";
    let Some(mut pair) = Pair::new(test, PLAIN) else { return };
    let of = |mac: &str, bits: u32| commands(0, "tunnel", &format!("{CTR} auth-trunc 'partial({mac},1/4)' KEY {bits}"));
    for (mac, bits) in [("gmac(aes)", 128), ("cmac(aes)", 96), ("hmac(sha1)", 96), ("hmac(sha256)", 128)] {
        refused(&pair, &of(mac, bits), NOT_ALLOWED);
    }
    for host in &mut pair.hosts {
        host.reload(&pair.lab, ALLOWED);
    }
    let volatile = "Numbers of a partial MAC must outlive a boot: the daemon needs a STATE_DIRECTORY";
    refused(&pair, &of("cmac(aes)", 96), volatile);
    for end in 0..2 {
        pair.hosts[end].end(libc::SIGTERM);
        start(&mut pair, end);
        let said = pair.hosts[end].output();
        assert!(said.contains("'allow-partial-macs' is set: parts of packets can be altered unnoticed"), "{said}");
    }
    let without_esn = of("cmac(aes)", 96).replace("flag esn replay-window 128", "replay-window 32");
    refused(
        &pair,
        &without_esn,
        "A partial MAC is for ESP with ESN, in tunnel mode, or in transport mode without encapsulation",
    );
    let ours = format!("{CTR} auth-trunc 'partial(cmac(aes),1/4)' KEY 96");
    set(&pair, "tunnel", [&ours; 2]);
    assert_eq!(answered(&pair), 20);
    // Without the sentence states end at once, and a next daemon takes over none of those that the one before had.
    let said = pair.hosts[0].reload(&pair.lab, PLAIN);
    assert!(said.contains("2 states with partial MACs have ended: they are not allowed any more"), "{said}");
    let _config = pair.lab.file(&format!("{}.toml", pair.hosts[1].space), PLAIN);
    pair.hosts[1].end(libc::SIGKILL);
    start(&mut pair, 1);
    for end in 0..2 {
        assert_eq!(pair.hosts[end].ip(&pair.lab, "ip xfrm state"), "", "end {end}");
        let ping = format!("ping -q -c 3 -i 0.01 -W 1 {}", INNER[0][1 - end]);
        assert_eq!(answers(&pair, end, &ping), 0, "end {end}");
    }
    refused(&pair, &of("cmac(aes)", 96), NOT_ALLOWED);
}

/// A key that comes back goes on with its numbers: after it was deleted, after a crash, and where nothing is left but the folder for
/// numbers, as after a boot.
#[test]
fn no_number_twice_under_a_key() {
    let Some(mut pair) = allowing("xfrm_partial::no_number_twice_under_a_key") else { return };
    let ours = format!("{CTR} auth-trunc 'partial(gmac(aes),1/4)' KEY 128");
    let mut watch = pair.lab.start(&pair.hosts[1].space, &["python3", &program("esp_numbers.py"), "veth"]);
    watch.expect("watching", 1);
    set(&pair, "tunnel", [&ours; 2]);
    assert_eq!(answered(&pair), 20);
    set(&pair, "tunnel", [&ours; 2]);
    assert_eq!(answered(&pair), 20, "deleted and added again");
    for end in 0..2 {
        pair.hosts[end].end(libc::SIGKILL);
        start(&mut pair, end);
    }
    assert_eq!(answered(&pair), 20, "taken over");
    for end in 0..2 {
        pair.hosts[end].end(libc::SIGTERM);
        assert_eq!(pair.hosts[end].sealane(&pair.lab, "xfrm clear"), (Some(0), String::new()));
        start(&mut pair, end);
    }
    set(&pair, "tunnel", [&ours; 2]);
    assert_eq!(answered(&pair), 20, "after a boot");
    let (_, seen) = watch.finish(LIMIT);
    assert!(seen.contains("clear 0 esp 160 twice 0 "), "{seen}");
}
