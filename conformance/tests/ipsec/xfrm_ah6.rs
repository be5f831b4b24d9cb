//! AH over IPv6 between two daemons, behind extension headers, which it authenticates. The kernel of the other tests
//! has no AH over IPv6.

use sealane_conformance::ipsec::{Host, LIMIT};
use sealane_conformance::lab::Lab;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::Target;

const ENDS: [&str; 2] = ["fd81::1", "fd81::2"];
const INNER: [&str; 2] = ["fd82:1::1", "fd82:2::1"];

fn commands(end: usize, mode: &str) -> String {
    let mut script = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
    // What comes late does not reach the states of the next mode.
    let spi = if mode == "tunnel" { 0x1002 } else { 0x1001 };
    for (from, spi) in [(0, spi), (1, spi + 0x1000)] {
        let to = 1 - from;
        let (source, destination) = (ENDS[from], ENDS[to]);
        let direction = if from == end { "out" } else { "in" };
        let (inner, ends) = match mode {
            "tunnel" => (INNER, format!("src {source} dst {destination}")),
            _ => (ENDS, String::new()),
        };
        script += &format!(
            "ip xfrm state add src {source} dst {destination} proto ah spi {spi:#x} reqid 1 mode {mode} replay-window 64 \
             auth-trunc 'hmac(sha256)' 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128\n\
             ip xfrm policy add dir {direction} src {} dst {} tmpl {ends} proto ah reqid 1 mode {mode}\n",
            inner[from], inner[to]
        );
    }
    script
}

/// Sends datagrams behind a hop-by-hop header, a destination header, and both.
const SEND: &str = r#"
import socket, sys, time
for hop, destination in ((0, 0), (1, 0), (0, 1), (1, 1)):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    for option, wanted in ((54, hop), (59, destination)):
        if wanted:
            s.setsockopt(41, option, bytes([0, 1, 0x1e, 8]) + b"someopts" + bytes([1, 2, 0, 0]))
    for n in range(3):
        s.sendto(b"%d %d" % (hop, destination), (sys.argv[1], 999))
        time.sleep(0.02)
"#;

const RECEIVE: &str = r#"
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(("::", 999))
s.settimeout(60)
print("listening", flush=True)
for n in range(12):
    print(s.recv(100).decode(), flush=True)
"#;

#[test]
fn between_two_daemons() {
    const TEST: &str = "xfrm_ah6::between_two_daemons";
    if skip_without(TEST, &[&Target::sealane("open")]) {
        return;
    }
    let Some(mut lab) = Lab::new(TEST) else { return };
    let spaces = [lab.space("a"), lab.space("b")];
    lab.veth([&spaces[0], &spaces[1]], ["veth", "veth"]);
    for (i, space) in spaces.iter().enumerate() {
        let (n, m) = (i + 1, 2 - i);
        lab.address(space, "veth", &format!("10.81.0.{n}/24"), &format!("{}/64", ENDS[i]));
        lab.ip(space, &format!("addr add {}/128 dev lo nodad", INNER[i]));
        lab.ip(space, &format!("route add fd82:{m}::/64 via {} dev veth src {}", ENDS[1 - i], INNER[i]));
    }
    let hosts = [Host::new(&lab, &spaces[0]), Host::new(&lab, &spaces[1])];
    for mode in ["transport", "tunnel"] {
        for (end, host) in hosts.iter().enumerate() {
            host.ip(&lab, &commands(end, mode));
        }
        let to = if mode == "tunnel" { INNER[1] } else { ENDS[1] };
        for len in ["0", "1", "56", "1300"] {
            let ping = ["ping", "-q", "-c", "3", "-i", "0.02", "-W", "30", "-s", len, to];
            let (status, text) = lab.start(&spaces[0], &ping).finish(LIMIT);
            assert_eq!(status, Some(0), "{mode}, {len}: {text}\n{}", hosts[1].ip(&lab, "cat /proc/net/xfrm_stat"));
        }
        let mut receiver = lab.start(&spaces[1], &["python3", "-c", RECEIVE]);
        receiver.expect("listening", 1);
        let (status, text) = lab.start(&spaces[0], &["python3", "-c", SEND, to]).finish(LIMIT);
        assert_eq!(status, Some(0), "{text}");
        let (status, text) = receiver.finish(LIMIT);
        let stat = hosts[1].ip(&lab, "ip -s xfrm state; cat /proc/net/xfrm_stat");
        assert_eq!(status, Some(0), "{mode}: {text}\n{stat}");
        for sent in ["0 0", "1 0", "0 1", "1 1"] {
            assert_eq!(text.matches(sent).count(), 3, "{mode}: {text}\n{stat}");
        }
        assert_eq!(stat.matches("replay-window 0 replay 0 failed 0").count(), 2, "{stat}");
    }
}
