//! A path that is narrower than its ends: errors of the router in between reach the daemon, and TCP goes on with
//! smaller packets, or with packets that are cut.
//!
//! ```text
//! c 10.94.4.1 ── 1500 ── a 10.94.1.1 ── 1500 ── r ── 1300 ── s ── 1500 ── b 10.94.2.2           fd94:… likewise
//! ```

use sealane_conformance::ipsec::{Host, LIMIT};
use sealane_conformance::lab::Lab;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::Target;
use std::fmt::Write as _;

/// Bytes that have to arrive on each connection, and the time for them in seconds.
const RECEIVE: &str = "
import socket, sys, threading
def receive(c):
    got = 0
    c.settimeout(60)
    while piece := c.recv(65536):
        got += len(piece)
    near = c.getsockname()[0].removeprefix('::ffff:')
    # In one piece: several threads write.
    sys.stdout.write(f'at {near} {got} bytes\\n')
    sys.stdout.flush()
s = socket.create_server(('::', 9), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
s.settimeout(60)
print('listening', flush=True)
for _ in range(int(sys.argv[1])):
    threading.Thread(target=receive, args=[s.accept()[0]]).start()
";
const SEND: &str = "
import os, socket, sys, threading
def send(near, far):
    s = socket.create_connection((far, 9), 60, (near, 0))
    # What IPComp makes shorter does not meet the path's limit, and what it does not does.
    s.sendall((bytes(2000) + os.urandom(18000)) * (int(sys.argv[1]) // 20000))
    s.close()
for pair in sys.argv[2:]:
    threading.Thread(target=send, args=pair.split(',')).start()
";
const BYTES: u32 = 1_000_000;

/// One connection with states and addresses of its own: what one of them learns of the path no other one knows.
struct Case {
    number: u32,
    proto: &'static str,
    /// The family of the outer addresses: 0 IPv4, 1 IPv6.
    outer: usize,
    /// For ip-xfrm.
    encap: &'static str,
    mode: &'static str,
    /// The family of the inner addresses.
    inner: usize,
    /// Whether `c` sends, and `a` forwards.
    is_forwarded: bool,
}

impl Case {
    fn all() -> Vec<Case> {
        let mut all = Vec::new();
        for (proto, outer, encap) in [
            ("esp", 0, ""),
            ("esp", 1, ""),
            ("esp", 0, "encap espinudp 4500 4500 0.0.0.0"),
            ("esp", 1, "encap espinudp 4500 4500 0.0.0.0"),
            // The kernel tells nobody of errors about tunnels of AH over IPv6: to it AH is an extension header, and
            // what follows a protocol without a handler (`icmpv6_notify`).
            ("ah", 0, ""),
            // IPComp within ESP.
            ("comp", 0, ""),
            ("comp", 1, ""),
        ] {
            for (mode, inner, is_forwarded) in [
                ("transport", outer, false),
                ("tunnel", 0, false),
                ("tunnel", 1, false),
                ("tunnel", 0, true),
                ("tunnel", 1, true),
            ] {
                // The template of ESP around IPComp has no addresses, and so the family of the policy.
                if proto == "comp" && inner != outer {
                    continue;
                }
                let number = all.len() as u32 + 1;
                all.push(Case { number, proto, outer, encap, mode, inner, is_forwarded });
            }
        }
        all
    }

    fn name(&self) -> String {
        let Case { proto, outer, encap, mode, inner, is_forwarded, .. } = self;
        format!(
            "{proto} over IPv{}, {encap:?}, {mode}, IPv{}, forwarded: {is_forwarded}",
            [4, 6][*outer],
            [4, 6][*inner]
        )
    }

    /// The outer addresses of `a` and `b`.
    fn outer(&self) -> [String; 2] {
        [1, 2].map(|net| address(self.outer, 96, net, self.number))
    }

    /// The addresses of the connection.
    fn ends(&self) -> [String; 2] {
        if self.mode == "transport" {
            return self.outer();
        }
        [if self.is_forwarded { 3 } else { 1 }, 2].map(|net| address(self.inner, 95, net, self.number))
    }

    /// What is set at an end: 0 for `a`, 1 for `b`.
    fn commands(&self, end: usize) -> String {
        let Case { number, proto, encap, mode, .. } = self;
        let gcm = format!("aead 'rfc4106(gcm(aes))' 0x{number:040x} 128");
        let algorithm = match *proto {
            "ah" => format!("auth-trunc 'hmac(sha256)' 0x{number:064x} 128"),
            "comp" => "comp deflate".to_owned(),
            _ => gcm.clone(),
        };
        let (more, selector) = if *mode == "tunnel" { ("flag af-unspec", "") } else { ("", "proto tcp") };
        let (outer, ends, mut commands) = (self.outer(), self.ends(), String::new());
        for way in [0, 1] {
            let states = format!("src {} dst {} proto {proto}", outer[way], outer[1 - way]);
            let spi = 2 * number + way as u32 + 256;
            let _ = writeln!(
                commands,
                "ip xfrm state add {states} spi {spi} reqid {number} mode {mode} {more} {algorithm} {encap}"
            );
            let is_comp = *proto == "comp";
            if is_comp {
                let states = states.replace("comp", "esp");
                let _ = writeln!(commands, "ip xfrm state add {states} spi {spi} reqid {number} mode transport {gcm}");
            }
            let policies = format!("src {} dst {} {selector}", ends[way], ends[1 - way]);
            for direction in if way == end { &["out"][..] } else { &["in", "fwd"] } {
                let (level, around) = match (is_comp, *direction) {
                    (false, _) => ("", String::new()),
                    (true, "out") => ("", format!("tmpl proto esp reqid {number} mode transport")),
                    // As key managers have it: what does not shrink comes without IPComp.
                    (true, _) => ("level use", format!("tmpl proto esp reqid {number} mode transport")),
                };
                let _ = writeln!(
                    commands,
                    "ip xfrm policy add {policies} dir {direction} tmpl {states} reqid {number} mode {mode} {level} {around}"
                );
            }
        }
        commands
    }
}

/// An address of a family.
fn address(family: usize, first: u32, net: u32, host: u32) -> String {
    if family == 0 { format!("10.{first}.{net}.{host}") } else { format!("fd{first}:{net}::{host:x}") }
}

#[test]
fn a_narrow_path_is_found() {
    let test = "a_narrow_path_is_found";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let Some(mut lab) = Lab::new(test) else { return };
    let [c, a, r, s, b] = ["c", "a", "r", "s", "b"].map(|which| lab.space(which));
    let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
    for space in [&a, &r, &s] {
        assert_eq!(lab.start(space, &["sh", "-ec", forward]).finish(LIMIT).0, Some(0));
    }
    for (net, [near, far], devices) in [
        (4, [&c, &a], ["wire", "lan"]),
        (1, [&a, &r], ["wire", "near"]),
        (3, [&r, &s], ["narrow", "narrow"]),
        (2, [&s, &b], ["near", "wire"]),
    ] {
        lab.veth([near, far], devices);
        for (host, space, device) in [(1, near, devices[0]), (2, far, devices[1])] {
            let [v4, v6] = [0, 1].map(|family| address(family, 94, net, host));
            lab.address(space, device, &format!("{v4}/24"), &format!("{v6}/64"));
        }
    }
    for family in [0, 1] {
        let len = [24, 64][family];
        let route = |space: &str, to: &str, net, host| {
            lab.ip(space, &format!("route add {to} via {}", address(family, 94, net, host)));
        };
        route(&c, "default", 4, 2);
        route(&a, "default", 1, 2);
        route(&b, "default", 2, 1);
        route(&a, &format!("{}/{len}", address(family, 95, 3, 0)), 4, 1);
        route(&r, &format!("{}/{len}", address(family, 96, 1, 0)), 1, 1);
        route(&r, &format!("{}/{len}", address(family, 96, 2, 0)), 3, 2);
        route(&s, &format!("{}/{len}", address(family, 96, 1, 0)), 3, 1);
        route(&s, &format!("{}/{len}", address(family, 96, 2, 0)), 2, 2);
    }
    for router in [&r, &s] {
        lab.ip(router, "link set narrow mtu 1300");
    }
    let cases = Case::all();
    let hosts = [&a, &b].map(|space| Host::new(&lab, space));
    for (end, host) in hosts.iter().enumerate() {
        let mut script = String::new();
        for case in &cases {
            let sender = if case.is_forwarded { &c } else { &a };
            lab.ip(&host.space, &format!("addr add {} dev lo", case.outer()[end]));
            if case.mode == "tunnel" {
                lab.ip([sender, &b][end], &format!("addr add {} dev lo", case.ends()[end]));
            }
            script += &case.commands(end);
        }
        host.ip(&lab, &script);
    }
    let mut server = lab.start(&b, &["python3", "-c", RECEIVE, &cases.len().to_string()]);
    server.expect("listening", 1);
    let senders = [(&a, false), (&c, true)].map(|(space, is_forwarded)| {
        let these = cases.iter().filter(|case| case.is_forwarded == is_forwarded);
        let pairs: Vec<String> = these.map(|case| case.ends().join(",")).collect();
        let bytes = BYTES.to_string();
        let argv: Vec<&str> = ["python3", "-c", SEND, &bytes].into_iter().chain(pairs.iter().map(|p| &**p)).collect();
        lab.start(space, &argv)
    });
    let sent = senders.map(|sender| sender.finish(LIMIT).1).concat();
    let (_, text) = server.finish(LIMIT);
    for case in &cases {
        let arrived = format!("at {} {BYTES} bytes\n", case.ends()[1]);
        assert!(text.contains(&arrived), "{}: {text}{sent}", case.name());
    }
}
