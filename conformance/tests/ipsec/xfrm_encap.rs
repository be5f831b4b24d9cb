//! ESP in UDP beside the sockets of key managers: bound to all addresses, as charon's are, or to one, as libreswan's.

use sealane_conformance::ipsec::{INNER, LIMIT, OUTER, Pair, ping_all, program};
use std::time::Duration;

/// Tunnels in UDP between the inner addresses of IPv4, over IPv4 and then over IPv6.
fn commands(side: usize, family: usize) -> String {
    let (outer, inner) = (OUTER[family], INNER[0]);
    let mut commands = String::from("ip xfrm policy flush; ip xfrm state flush\n");
    for (spi, from) in [(7 + family, 0), (17 + family, 1)] {
        commands += &format!(
            "ip xfrm state add src {} dst {} proto esp spi {spi} reqid 1 mode tunnel flag af-unspec \
             aead 'rfc4106(gcm(aes))' 0x{spi:040x} 128 encap espinudp 4500 4500 0.0.0.0\n",
            outer[from],
            outer[1 - from]
        );
        let direction = if from == side { "out" } else { "in" };
        commands += &format!(
            "ip xfrm policy add src {} dst {} dir {direction} tmpl src {} dst {} proto esp reqid 1 mode tunnel\n",
            inner[from],
            inner[1 - from],
            outer[from],
            outer[1 - from]
        );
    }
    commands
}

#[test]
fn key_managers_of_each_kind() {
    let Some(pair) = Pair::new("xfrm_encap::key_managers_of_each_kind", "[ipsec]\n") else { return };
    let ports = program("ike_port.py");
    let all: &[&str] = &["0.0.0.0", "::"];
    let one: &[&str] = &[OUTER[0][0], OUTER[1][0]];
    let both: &[&str] = &["0.0.0.0", "::", OUTER[0][0], OUTER[1][0]];
    // One after another: what belongs to one that has ended takes nothing from the next.
    for (n, bound) in [one, all, both, one, one, all, all].into_iter().enumerate() {
        let mut manager = pair.hosts[0].begin(&pair.lab, &[&["python3", &*ports], bound].concat());
        manager.expect("bound", 1);
        for (family, outer) in OUTER.iter().enumerate() {
            for side in 0..2 {
                pair.hosts[side].ip(&pair.lab, &commands(side, family));
            }
            let text = format!("round-{n}-{family}");
            let ping = format!("{} {}", ping_all(20), INNER[0][0]);
            let there = |command: &[&str], when: &str| {
                let (done, told) = pair.lab.start(&pair.hosts[1].space, command).finish(LIMIT);
                assert_eq!(done, Some(0), "{bound:?}, {when}: {told}");
            };
            there(&["sh", "-c", &ping], "ESP");
            // The kernel takes these off the port, too.
            there(&["python3", &ports, "keepalive", outer[0]], "a keep-alive");
            there(&["python3", &ports, "to", outer[0], &text], "IKE");
            manager.expect(&format!("IKE {text}"), 1);
            if n == 0 {
                // So long it might have come before the program that steers.
                std::thread::sleep(Duration::from_millis(1100));
            }
            // Anybody may send this.
            there(&["python3", &ports, "joined", outer[0]], "two joined");
            there(&["sh", "-c", &ping], "ESP after two joined");
        }
        assert!(!manager.output().contains("bytes"), "ESP or a keep-alive went to {bound:?}: {}", manager.output());
        manager.signal(libc::SIGTERM);
        let _ = manager.finish(LIMIT);
    }
}
