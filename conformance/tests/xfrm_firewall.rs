//! Rules of firewalls about IPsec: what `sealane check --firewall` says about them is so, and what it says to write in their
//! place lets packets of a tunnel pass, and no others.

use sealane_conformance::ipsec::{INNER, LIMIT, OUTER, Pair};
use std::time::Instant;

/// Lets packets of tunnels pass, and ESP, and translates the addresses of all others.
const RULES: &str = r#"
table inet fw {
    chain input {
        type filter hook input priority filter; policy drop;
        iifname "lo" accept
        meta l4proto { esp, icmpv6 } accept
        iifname "veth" meta ipsec exists icmp type { echo-request, echo-reply } counter accept
    }
    chain output {
        type filter hook output priority filter; policy drop;
        meta l4proto { esp, icmpv6 } accept
        jump out
    }
    chain out {
        oifname "veth" ipsec out reqid 1 accept
    }
    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        rt ipsec missing ip saddr 10.82.1.1 masquerade
    }
}
"#;

#[test]
fn rules_that_it_names_work_when_replaced() {
    let Some(pair) = Pair::new("xfrm_firewall::rules_that_it_names_work_when_replaced", "[ipsec]\n") else { return };
    for (end, host) in pair.hosts.iter().enumerate() {
        host.ip(&pair.lab, &commands(end));
    }
    let [[a, b], _] = INNER;
    let pings = |end: usize, to: &str| {
        let argv = ["ping", "-q", "-c", "3", "-i", "0.1", "-W", "1", "-I", INNER[0][end], to];
        pair.lab.start(&pair.hosts[end].space, &argv).finish(LIMIT).0 == Some(0)
    };
    let until_answered = |end: usize, to: &str| {
        let start = Instant::now();
        while !pings(end, to) {
            assert!(start.elapsed() < LIMIT, "{to} does not answer");
        }
    };
    until_answered(0, b);
    until_answered(1, a);
    let nft = |script: &str| {
        let file = pair.lab.file("rules.nft", script);
        let (status, text) = pair.lab.start(&pair.hosts[0].space, &["nft", "-f", &file]).finish(LIMIT);
        assert_eq!(status, Some(0), "{script}\n{text}");
    };
    let found = |wanted: Option<i32>| {
        let (status, text) = pair.hosts[0].sealane(&pair.lab, "check --firewall --json");
        assert_eq!(status, wanted, "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        json["findings"].as_array().expect("a list").clone()
    };
    assert!(found(Some(0)).is_empty(), "our own rules are none of these");
    nft(RULES);
    assert!(!pings(0, b) && !pings(1, a), "the rules never match");
    let findings = found(Some(1));
    assert_eq!(findings.len(), 3, "{findings:?}");
    for finding in findings {
        let words = |key: &str| finding[key].as_str().expect("a text").to_owned();
        let place = words("place");
        let parts: Vec<&str> = place.split(", ").filter_map(|part| part.rsplit(' ').next()).collect();
        let [_, _, chain, handle] = parts[..] else { panic!("{place}") };
        nft(&format!("replace rule inet fw {chain} handle {handle} {}\n", words("instead")));
    }
    assert!(found(Some(0)).is_empty());
    assert!(pings(0, b) && pings(1, a), "packets of the tunnel");
    assert!(!pings(0, OUTER[0][1]) && !pings(1, OUTER[0][0]), "packets of no tunnel");
}

/// The commands of an end: a tunnel between the inner addresses.
fn commands(end: usize) -> String {
    let (outer, inner) = (OUTER[0], INNER[0]);
    let one = |from: usize| {
        let (to, spi, dir) = (1 - from, 0x1001 + from, if from == end { "out" } else { "in" });
        let ends = format!("src {} dst {}", outer[from], outer[to]);
        format!(
            "ip xfrm state add {ends} proto esp spi {spi:#x} reqid 1 mode tunnel replay-window 32 \
             aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128\n\
             ip xfrm policy add dir {dir} src {} dst {} tmpl {ends} proto esp reqid 1 mode tunnel\n",
            inner[from], inner[to]
        )
    };
    one(0) + &one(1)
}
