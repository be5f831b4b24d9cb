//! `flag icmp`: errors of routers behind a tunnel go back through it, whatever their own addresses are, and what they
//! quote is never in clear.
//!
//! ```text
//! a ── s1 ══ r2 ══ s2 ── r3 ── b          s1, s2: daemons with a tunnel between the networks of a and b
//!   1     2     3     4     5             10.97.N.0/24, fd97:N::/64
//! ```

use sealane_conformance::ipsec::{Host, LIMIT};
use sealane_conformance::lab::Lab;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::Target;

/// The networks that the tunnel connects. That between s2 and r3 is not among them.
const NEAR: [&str; 2] = ["10.97.1.0/24", "fd97:1::/64"];
const FAR: [&str; 2] = ["10.97.5.0/24", "fd97:5::/64"];
/// A network of s2 in which nobody is.
const EMPTY: [&str; 2] = ["10.97.6.0/24", "fd97:6::/64"];
/// Outer addresses of s1 and s2.
const OUTER: [[&str; 2]; 2] = [["10.97.2.1", "10.97.3.2"], ["fd97:2::1", "fd97:3::2"]];

/// Lets ESP and neighbours pass, and counts and drops everything else.
const ONLY_ESP: &str = "nft -f - <<'END'
table inet watch {
 counter clear { }
 chain forward {
  type filter hook forward priority 0; policy drop;
  meta l4proto esp accept
  counter name clear
 }
}
END
";

/// The commands of s1 (0) or s2 (1). `flag` is that of s2's outbound policies.
fn commands(side: usize, flag: &str) -> String {
    let mut commands = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
    for family in 0..2 {
        let [s1, s2] = OUTER[family];
        for (to, number) in [(FAR[family], 1), (EMPTY[family], 3)] {
            let near = NEAR[family];
            for (from_net, to_net, from, to, n) in [(near, to, s1, s2, number), (to, near, s2, s1, number + 1)] {
                let inbound = (side == 0) != (from == s1);
                let [state_flag, policy_flag] = match (inbound, from == s2) {
                    (true, _) => ["flag icmp", "flag icmp"],
                    (false, true) => ["", flag],
                    (false, false) => ["", ""],
                };
                let n = n + 16 * family as u32;
                commands += &format!(
                    "ip xfrm state add src {from} dst {to} proto esp spi {n} reqid {n} mode tunnel {state_flag} \
                     aead 'rfc4106(gcm(aes))' 0x{n:040x} 96 sel src {from_net} dst {to_net}\n\
                     ip xfrm policy add src {from_net} dst {to_net} dir {} {policy_flag} \
                     tmpl src {from} dst {to} proto esp reqid {n} mode tunnel\n",
                    if inbound { "fwd" } else { "out" }
                );
            }
        }
    }
    commands
}

/// Returns the number of packets that r2 has seen in clear.
fn in_clear(lab: &Lab, router: &str) -> u32 {
    let list = ["nft", "-j", "list", "counter", "inet", "watch", "clear"];
    let (status, text) = lab.start(router, &list).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    let (_, rest) = text.split_once("\"packets\":").expect("a counter");
    rest.trim().split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).expect("a number")
}

/// Pings until an answer contains `wanted`: the first packets may be lost while neighbours are looked for.
fn hears(lab: &Lab, from: &str, what: &str, ping: &str, wanted: &str) {
    let mut said = String::new();
    for _ in 0..10 {
        let argv: Vec<&str> = ping.split(' ').collect();
        said = lab.start(from, &argv).finish(LIMIT).1;
        if said.contains(wanted) {
            return;
        }
    }
    panic!("{what}: {wanted:?} is not in\n{said}");
}

#[test]
fn errors_go_back_through_the_tunnel() {
    let test = "xfrm_icmp::errors_go_back_through_the_tunnel";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let Some(mut lab) = Lab::new(test) else { return };
    let spaces = ["a", "s1", "r2", "s2", "r3", "b"].map(|which| lab.space(which));
    let script = |space: &str, script: &str| {
        let (status, text) = lab.start(space, &["sh", "-ec", script]).finish(LIMIT);
        assert_eq!(status, Some(0), "{script}\n{text}");
    };
    for space in &spaces {
        // Devices that come later forward as well.
        script(space, "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
    }
    for (n, pair) in (1..).zip(spaces.windows(2)) {
        lab.veth([&pair[0], &pair[1]], ["right", "left"]);
        for (end, device) in ["right", "left"].into_iter().enumerate() {
            let host = end + 1;
            lab.address(&pair[end], device, &format!("10.97.{n}.{host}/24"), &format!("fd97:{n}::{host}/64"));
        }
    }
    for (at, space) in spaces.iter().enumerate() {
        for net in 1..=6 {
            // `at` is between the networks of these numbers; s2 has the last one, too.
            if net == at || net == at + 1 || net == 6 && at == 3 {
                continue;
            }
            let (by, host) = if net > at && !(net == 6 && at > 3) { (at + 1, 2) } else { (at, 1) };
            lab.ip(space, &format!("route add 10.97.{net}.0/24 via 10.97.{by}.{host}"));
            lab.ip(space, &format!("route add fd97:{net}::/64 via fd97:{by}::{host}"));
        }
    }
    let [a, s1, r2, s2, r3, _] = &spaces;
    lab.veth([s2, r3], ["empty", "nobody"]);
    lab.address(s2, "empty", "10.97.6.1/24", "fd97:6::1/64");
    script(r2, ONLY_ESP);
    // Nobody has to wait long for a neighbour that is not there.
    for space in [s2, r3] {
        script(space, "for f in /proc/sys/net/ipv*/neigh/*/retrans_time_ms; do echo 100 > $f; done");
    }
    let hosts = [s1, s2].map(|space| Host::new(&lab, space));
    let apply = |flag: &str| (0..2).for_each(|side| drop(hosts[side].ip(&lab, &commands(side, flag))));
    let ping = |family: usize, how: &str, to: &str| {
        let net = ["10.97.", "fd97:"][family];
        let to = to.split_once('.').map_or(String::new(), |(n, host)| match family {
            0 => format!("{net}{n}.{host}"),
            _ => format!("{net}{n}::{host}"),
        });
        format!("ping -n -W 2 -c 1 {how}{to}")
    };
    apply("flag icmp");
    for family in 0..2 {
        let from = |n: u32, host: u32| match family {
            0 => format!("From 10.97.{n}.{host} "),
            _ => format!("From fd97:{n}::{host} "),
        };
        let unreachable = |who: String| format!("{who}icmp_seq=1 Destination");
        hears(&lab, a, "through the tunnel", &ping(family, "", "5.2"), " 1 received");
        hears(&lab, a, "nobody behind the router", &ping(family, "", "5.77"), &unreachable(from(4, 2)));
        hears(&lab, a, "nobody behind the gateway", &ping(family, "", "6.77"), &unreachable(from(3, 2)));
        hears(&lab, a, "a last hop", &ping(family, "-t 2 ", "5.2"), &format!("{}icmp_seq=1 Time", from(3, 2)));
    }
    // A router behind the tunnel, and the gateway, that have a narrow path.
    lab.ip(r3, "link set right mtu 1300");
    lab.ip(s2, "link set empty mtu 1300");
    for (family, too_big) in [(0, "Frag needed and DF set (mtu = 1300)"), (1, "Packet too big: mtu=1300")] {
        for to in ["5.2", "6.77"] {
            hears(&lab, a, "a narrow path", &ping(family, "-M do -s 1350 ", to), too_big);
        }
    }
    assert_eq!(in_clear(&lab, r2), 0);
    // An error whose packets have no state any more waits for one, and does not leave as it is.
    hosts[1].ip(&lab, "ip xfrm state deleteall src 10.97.3.2\nip xfrm state deleteall src fd97:3::2");
    for family in 0..2 {
        let argv = ping(family, "", "5.77");
        let (_, said) = lab.start(a, &argv.split(' ').collect::<Vec<_>>()).finish(LIMIT);
        assert!(!said.contains("Destination"), "{said}");
    }
    assert_eq!(in_clear(&lab, r2), 0);
    // Without the flag an error has the policies of its own addresses, which are none.
    apply("");
    for family in 0..2 {
        let argv = ping(family, "", "5.77");
        let (_, said) = lab.start(a, &argv.split(' ').collect::<Vec<_>>()).finish(LIMIT);
        assert!(!said.contains("Destination"), "{said}");
    }
    assert!(in_clear(&lab, r2) > 0);
}

#[test]
fn a_gateway_speaks_for_itself() {
    let test = "xfrm_icmp::a_gateway_speaks_for_itself";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let Some(mut lab) = Lab::new(test) else { return };
    let spaces = ["a", "s1", "s2"].map(|which| lab.space(which));
    let [a, s1, s2] = &spaces;
    for space in &spaces {
        let on = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
        assert_eq!(lab.start(space, &["sh", "-ec", on]).finish(LIMIT).0, Some(0));
    }
    lab.veth([a, s1], ["right", "left"]);
    lab.veth([s1, s2], ["right", "left"]);
    for (n, near, far) in [(1, a, s1), (2, s1, s2)] {
        lab.address(near, "right", &format!("10.97.{n}.1/24"), &format!("fd97:{n}::1/64"));
        lab.address(far, "left", &format!("10.97.{n}.2/24"), &format!("fd97:{n}::2/64"));
    }
    for (space, net, by, host) in [(a, 5, 1, 2), (s1, 5, 2, 2)] {
        lab.ip(space, &format!("route add 10.97.{net}.0/24 via 10.97.{by}.{host}"));
        lab.ip(space, &format!("route add fd97:{net}::/64 via fd97:{by}::{host}"));
    }
    lab.ip(s1, "link set right mtu 1400");
    let host = Host::new(&lab, s1);
    for (near, far, from, to, n) in [
        ("10.97.1.0/24", "10.97.5.0/24", "10.97.2.1", "10.97.2.2", 1),
        ("fd97:1::/64", "fd97:5::/64", "fd97:2::1", "fd97:2::2", 2),
    ] {
        host.ip(
            &lab,
            &format!(
                "ip xfrm state add src {from} dst {to} proto esp spi {n} reqid {n} mode tunnel \
                 aead 'rfc4106(gcm(aes))' 0x{n:040x} 96\n\
                 ip xfrm policy add src {near} dst {far} dir out tmpl src {from} dst {to} proto esp reqid {n} mode tunnel\n"
            ),
        );
    }
    // As `mtu_ipv4_r2` and `mtu_ipv6_r2` of the kernel's xfrm_state.sh: the error is the gateway's own.
    let too_long = ["ping -n -M do -s 1372 -W 2 -c 1 10.97.5.2", "ping -n -M do -s 1350 -W 2 -c 1 fd97:5::2"];
    hears(&lab, a, "IPv4", too_long[0], "From 10.97.1.2 icmp_seq=1 Frag needed");
    hears(&lab, a, "IPv6", too_long[1], "From fd97:1::2 icmp_seq=1 Packet too big: mtu=1330");
    lab.ip(s1, "link set right mtu 1300");
    let below = "From fd97:1::2 icmp_seq=1 Packet too big: mtu=1230";
    hears(&lab, a, "less than IPv6 asks for", "ping -n -M do -s 1260 -W 2 -c 1 fd97:5::2", below);
    // Where a policy protects what goes back, it comes as if from the destination, which that policy is for.
    lab.ip(s1, "link set right mtu 1400");
    host.ip(
        &lab,
        "ip xfrm policy add src 10.97.5.0/24 dst 10.97.1.0/24 dir out \
         tmpl src 10.97.2.1 dst 10.97.2.2 proto esp reqid 3 mode tunnel\n\
         ip xfrm policy add src fd97:5::/64 dst fd97:1::/64 dir out \
         tmpl src fd97:2::1 dst fd97:2::2 proto esp reqid 4 mode tunnel",
    );
    for ping in too_long.map(|ping| ping.replace("5.2", "5.3").replace("5::2", "5::3")) {
        let (_, said) = lab.start(a, &ping.split(' ').collect::<Vec<_>>()).finish(LIMIT);
        assert!(said.contains(" 0 received") && !said.contains("From") && !said.contains("local"), "{said}");
    }
}
