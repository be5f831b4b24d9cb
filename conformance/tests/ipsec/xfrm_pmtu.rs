//! A path that is narrower than its ends: errors of the router in between reach the daemon, and TCP through a tunnel goes
//! on with smaller packets.
//!
//! ```text
//! a 10.94.1.2, fd94:1::2 ── 1500 ── r ── 1300 ── s ── 1500 ── b 10.94.2.2, fd94:2::2
//! ```

use sealane_conformance::ipsec::{Host, LIMIT};
use sealane_conformance::lab::Lab;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::Target;

/// Outer addresses of the two ends, of either family.
const OUTER: [[&str; 2]; 2] = [["10.94.1.2", "10.94.2.2"], ["fd94:1::2", "fd94:2::2"]];

/// Tunnels of each family, raw ones first, as a path that is known to be narrow is known for all: the family, and `encap`
/// for ip-xfrm.
const TUNNELS: [(usize, &str); 4] =
    [(0, ""), (1, ""), (0, "encap espinudp 4500 4500 0.0.0.0"), (1, "encap espinudp 4500 4500 0.0.0.0")];

/// Bytes that have to arrive, and the time for them.
const BYTES: u32 = 1_000_000;
const RECEIVE: &str = "
import socket, sys
s = socket.create_server((sys.argv[1], 9))
print('listening', flush=True)
c, got = s.accept()[0], 0
c.settimeout(20)
while piece := c.recv(65536):
    got += len(piece)
print(got, 'bytes')
";
const SEND: &str = "
import socket, sys
s = socket.create_connection((sys.argv[1], 9), 20, (sys.argv[2], 0))
s.settimeout(20)
s.sendall(bytes(int(sys.argv[3])))
s.close()
print('sent')
";

fn commands(side: usize) -> String {
    let mut commands = String::new();
    for (n, (family, encap)) in (1u32..).zip(TUNNELS) {
        let inner = [format!("10.95.1.{n}"), format!("10.95.2.{n}")];
        let [near, far] = [&inner[side], &inner[1 - side]];
        let outer = OUTER[family];
        for (spi, from, to) in [(n, 0, 1), (n + 16, 1, 0)] {
            commands += &format!(
                "ip xfrm state add src {} dst {} proto esp spi {spi} reqid {n} mode tunnel flag af-unspec \
                 aead 'rfc4106(gcm(aes))' 0x{spi:040x} 128 {encap}\n",
                outer[from], outer[to]
            );
        }
        for (direction, from, to, from_outer, to_outer) in
            [("out", near, far, outer[side], outer[1 - side]), ("in", far, near, outer[1 - side], outer[side])]
        {
            commands += &format!(
                "ip xfrm policy add src {from} dst {to} dir {direction} \
                 tmpl src {from_outer} dst {to_outer} proto esp reqid {n} mode tunnel\n"
            );
        }
    }
    commands
}

#[test]
fn a_narrow_path_is_found() {
    let test = "a_narrow_path_is_found";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let Some(mut lab) = Lab::new(test) else { return };
    let [a, r, s, b] = ["a", "r", "s", "b"].map(|which| lab.space(which));
    lab.veth([&a, &r], ["wire", "near"]);
    lab.veth([&r, &s], ["narrow", "narrow"]);
    lab.veth([&s, &b], ["near", "wire"]);
    let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
    for (n, other, host, router) in [(1, 2, &a, &r), (2, 1, &b, &s)] {
        lab.address(host, "wire", &format!("10.94.{n}.2/24"), &format!("fd94:{n}::2/64"));
        lab.address(router, "near", &format!("10.94.{n}.1/24"), &format!("fd94:{n}::1/64"));
        lab.address(router, "narrow", &format!("10.94.3.{n}/24"), &format!("fd94:3::{n}/64"));
        lab.ip(router, "link set narrow mtu 1300");
        assert_eq!(lab.start(router, &["sh", "-ec", forward]).finish(LIMIT).0, Some(0));
        for (net, via) in [("10.94", "10.94.3."), ("fd94", "fd94:3::")] {
            let (to, gateway) = match net {
                "10.94" => (format!("10.94.{other}.0/24"), format!("10.94.{n}.1")),
                _ => (format!("fd94:{other}::/64"), format!("fd94:{n}::1")),
            };
            lab.ip(router, &format!("route add {to} via {via}{other}"));
            lab.ip(host, &format!("route add default via {gateway}"));
        }
        for (t, _) in (1..).zip(TUNNELS) {
            lab.ip(host, &format!("addr add 10.95.{n}.{t}/32 dev lo"));
        }
    }
    let hosts = [&a, &b].map(|space| Host::new(&lab, space));
    for (side, host) in hosts.iter().enumerate() {
        host.ip(&lab, &commands(side));
    }
    for (t, (family, encap)) in (1..).zip(TUNNELS) {
        let what = format!("ESP over IPv{}, {encap:?}", [4, 6][family]);
        let (near, far) = (format!("10.95.1.{t}"), format!("10.95.2.{t}"));
        let mut server = lab.start(&b, &["python3", "-c", RECEIVE, &far]);
        server.expect("listening", 1);
        let (sent, text) = lab.start(&a, &["python3", "-c", SEND, &far, &near, &BYTES.to_string()]).finish(LIMIT);
        assert_eq!(sent, Some(0), "{what}: {text}");
        let (_, text) = server.finish(LIMIT);
        assert!(text.contains(&format!("{BYTES} bytes")), "{what}: {text}");
    }
}
