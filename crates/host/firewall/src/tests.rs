use super::*;
use Why::{AlwaysIn, AlwaysOut, NeverIn, NeverOut, ReversePath};

fn findings(text: &str) -> Vec<Finding> {
    examine(text, &["ipsec0".to_owned()]).unwrap_or_else(|e| panic!("{e}\n{text}")).findings
}

/// Examines one rule of a base chain of nftables.
fn nft_rule(family: &str, base: &str, rule: &str) -> Vec<Finding> {
    findings(&format!(
        "table {family} filter {{\n\tchain c {{\n\t\ttype filter hook {base}; policy drop;\n\t\t{rule}\n\t}}\n}}\n"
    ))
}

/// A rule, and the reasons and rules of its finding; no reasons if it is none.
type Case<'a> = (&'a str, &'a [Why], &'a [&'a str]);

fn check(list: &[Finding], (rule, whys, instead): &Case<'_>) {
    match list {
        [] => assert!(whys.is_empty(), "{rule}: not found"),
        [one] => {
            assert_eq!(one.whys, *whys, "{rule}");
            assert_eq!(one.instead, *instead, "{rule}");
        }
        more => panic!("{rule}: {more:?}"),
    }
}

fn check_nft(family: &str, base: &str, cases: &[Case<'_>]) {
    cases.iter().for_each(|case| check(&nft_rule(family, base, case.0), case));
}

#[test]
fn nft_what_came_in() {
    check_nft(
        "inet",
        "input priority 0",
        &[
            ("meta ipsec exists accept", &[NeverIn], &["iifname \"sealane-ipsec\" accept"]),
            ("meta secpath exists counter accept", &[NeverIn], &["iifname \"sealane-ipsec\" counter accept"]),
            ("meta ipsec 1 accept", &[NeverIn], &["iifname \"sealane-ipsec\" accept"]),
            ("meta ipsec != missing accept", &[NeverIn], &["iifname \"sealane-ipsec\" accept"]),
            ("iifname eth0 meta ipsec exists accept", &[NeverIn], &["iifname \"sealane-ipsec\" accept"]),
            (
                "iif != lo tcp dport { 22, 80 } meta ipsec exists accept",
                &[NeverIn],
                &["tcp dport { 22, 80 } iifname \"sealane-ipsec\" accept"],
            ),
            ("iifname \"ipsec0\" meta ipsec exists accept", &[NeverIn], &["iifname \"ipsec0\" accept"]),
            ("iifname \"ipsec*\" meta ipsec exists accept", &[NeverIn], &["iifname \"ipsec*\" accept"]),
            (
                "ip saddr 10.2.0.0/24 meta ipsec missing drop",
                &[AlwaysIn],
                &["ip saddr 10.2.0.0/24 iifname != \"sealane-ipsec\" drop"],
            ),
            ("meta ipsec != exists drop", &[AlwaysIn], &["iifname != \"sealane-ipsec\" drop"]),
            // The interface tells already.
            ("iifname \"eth0\" meta ipsec missing drop", &[], &[]),
            ("iifname != \"sealane-ipsec\" meta ipsec missing drop", &[], &[]),
            // Another rule has to except both of Sealane's.
            ("iifname { \"eth0\", \"ipsec0\" } meta ipsec missing drop", &[AlwaysIn], &[]),
            ("meta ipsec vmap { exists : accept, missing : drop }", &[NeverIn], &[]),
            ("meta ipsec . iifname { exists . \"eth0\" } accept", &[NeverIn], &[]),
            ("iifname . meta ipsec { \"eth0\" . exists } accept", &[NeverIn], &[]),
            ("ipsec in reqid 1 accept", &[NeverIn], &["iifname \"sealane-ipsec\" ip saddr NETWORKS accept"]),
            (
                "ipsec in spnum 0 ip saddr { 192.0.2.2, 192.0.2.3 } ip saddr 10.2.0.0/24 accept",
                &[NeverIn],
                &["iifname \"sealane-ipsec\" ip saddr 10.2.0.0/24 accept"],
            ),
            (
                "meta ipsec exists ipsec in spi 0x1000 ip saddr 10.2.0.0/24 accept",
                &[NeverIn],
                &["iifname \"sealane-ipsec\" ip saddr 10.2.0.0/24 accept"],
            ),
            ("comment \"meta ipsec exists\" accept", &[], &[]),
            ("ip saddr 10.2.0.0/24 accept # meta ipsec exists", &[], &[]),
        ],
    );
    check_nft(
        "ip6",
        "forward priority 0",
        &[("ipsec in reqid 1 accept", &[NeverIn], &["iifname \"sealane-ipsec\" ip6 saddr NETWORKS accept"])],
    );
}

#[test]
fn nft_what_goes_out() {
    check_nft(
        "ip",
        "postrouting priority srcnat",
        &[
            ("rt ipsec exists accept", &[NeverOut], &["oifname \"sealane-ipsec\" accept"]),
            ("oifname \"eth0\" rt ipsec missing masquerade", &[], &[]),
            (
                "ip saddr 10.1.0.0/24 rt ipsec missing masquerade",
                &[AlwaysOut],
                &["ip saddr 10.1.0.0/24 oifname != \"sealane-ipsec\" masquerade"],
            ),
            (
                "ipsec out ip daddr 192.0.2.2 accept",
                &[NeverOut],
                &["oifname \"sealane-ipsec\" ip daddr NETWORKS accept"],
            ),
        ],
    );
    // The chain sees the interface of the route before Sealane's.
    let marked: [Case<'_>; 3] = [
        (
            "oifname \"eth0\" rt ipsec exists accept",
            &[NeverOut],
            &["oifname \"eth0\" meta mark & 0x20000000 != 0 accept"],
        ),
        (
            "oifname \"eth0\" rt ipsec missing drop",
            &[AlwaysOut],
            &["oifname \"eth0\" meta mark & 0x20000000 == 0 drop"],
        ),
        ("oifname \"ipsec0\" rt ipsec exists accept", &[NeverOut], &["oifname \"ipsec0\" accept"]),
    ];
    for base in
        ["output priority 0", "output priority filter", "output priority mangle + 51", "output priority dstnat+10"]
    {
        check_nft("inet", base, &marked);
    }
    for base in ["output priority -150", "output priority - 150", "output priority mangle + 50", "output priority raw"]
    {
        check_nft("inet", base, &[("rt ipsec exists accept", &[NeverOut], &[])]);
    }
    check_nft(
        "inet",
        "forward priority 0",
        &[(
            "iifname \"eth0\" meta ipsec exists oifname \"eth0\" rt ipsec exists accept",
            &[NeverIn, NeverOut],
            &["iifname \"sealane-ipsec\" oifname \"sealane-ipsec\" accept"],
        )],
    );
}

#[test]
fn nft_the_route_back() {
    check_nft(
        "inet",
        "prerouting priority raw",
        &[
            (
                "meta nfproto ipv6 fib saddr . mark . iif oif missing drop",
                &[ReversePath],
                &["meta nfproto ipv6 iifname != \"sealane-ipsec\" fib saddr . mark . iif oif missing drop"],
            ),
            (
                "fib saddr . iif oif eq 0 drop",
                &[ReversePath],
                &["iifname != \"sealane-ipsec\" fib saddr . iif oif eq 0 drop"],
            ),
            (
                "fib saddr . iif oif exists accept",
                &[ReversePath],
                &["iifname \"sealane-ipsec\" accept", "fib saddr . iif oif exists accept"],
            ),
            ("iifname \"eth0\" fib saddr . iif oif missing drop", &[], &[]),
            ("iifname != \"sealane-ipsec\" fib saddr . iif oif missing drop", &[], &[]),
            ("fib saddr oif missing drop", &[], &[]),
            ("fib daddr . iif type != { local, broadcast } drop", &[], &[]),
        ],
    );
}

#[test]
fn nft_places() {
    let text = "#!/usr/sbin/nft -f\nflush ruleset\ndefine net = {\n  10.2.0.0/24,\n}\ninclude \"/etc/nftables.d/*.nft\"\n\
                table inet filter {\n  set s { type ipv4_addr; elements = { 10.0.0.1,\n 10.0.0.2 } }\n  chain input {\n    \
                type filter hook input priority 0; policy drop;\n    meta ipsec \\\n      exists accept\n    tcp dport 22 jump {\n      \
                meta ipsec exists accept\n    }\n  }\n}\nadd table t\nadd chain t c { type filter hook input priority 0; }\n\
                add rule t c meta ipsec exists accept; insert rule ip6 x y position 5 rt ipsec exists drop\n\
                delete rule t c handle 5\n";
    let report = examine(text, &[]).unwrap();
    assert_eq!(report.includes, [(6, "/etc/nftables.d/*.nft".to_owned())]);
    let places: Vec<_> = report.findings.iter().map(|f| (f.line, &*f.table, &*f.chain, &*f.rule)).collect();
    assert_eq!(
        places,
        [
            (12, "inet filter", "input", "meta ipsec exists accept"),
            (14, "inet filter", "input", "tcp dport 22 jump { meta ipsec exists accept }"),
            (21, "ip t", "c", "meta ipsec exists accept"),
            (21, "ip6 x", "y", "rt ipsec exists drop"),
        ]
    );
}

#[test]
fn nft_listings_have_handles() {
    let text = "table inet filter { # handle 23\n\tchain \"i\" { # handle 1\n\t\ttype filter hook input priority filter; policy \
                accept;\n\t\tmeta ipsec exists accept comment \"a } b # handle 7\" # handle 2\n\t\tmeta ipsec missing jump {\n\t\t\tip \
                saddr 1.1.1.1 accept\n\t\t} # handle 9\n\t}\n}\n";
    let found: Vec<_> = findings(text).into_iter().map(|f| (f.chain, f.handle, f.line)).collect();
    assert_eq!(found, [("i".to_owned(), Some(2), 4), ("i".to_owned(), Some(9), 5)]);
}

#[test]
fn iptables_rules() {
    let cases: [Case<'_>; 18] = [
        ("-A INPUT -m policy --dir in --pol ipsec -j ACCEPT", &[NeverIn], &["-A INPUT -i sealane-ipsec -j ACCEPT"]),
        (
            "-A FORWARD -i eth0 -p tcp -m policy --pol ipsec --dir in --proto esp -m tcp --dport 22 -j ACCEPT",
            &[NeverIn],
            &["-A FORWARD -p tcp -i sealane-ipsec -m tcp --dport 22 -j ACCEPT"],
        ),
        (
            "-A FORWARD -s 10.2.0.0/24 -d 10.1.0.0/24 -i eth0 -m policy --dir in --pol ipsec --reqid 1 --proto esp -j ACCEPT",
            &[NeverIn],
            &["-A FORWARD -s 10.2.0.0/24 -d 10.1.0.0/24 -i sealane-ipsec -j ACCEPT"],
        ),
        (
            "-A INPUT --match policy --dir in --pol ipsec ! --tunnel-src 192.0.2.2 -j ACCEPT",
            &[NeverIn],
            &["-A INPUT -i sealane-ipsec -s NETWORKS -j ACCEPT"],
        ),
        (
            "-A INPUT ! -i lo -m policy --dir in --pol ipsec -j ACCEPT",
            &[NeverIn],
            &["-A INPUT -i sealane-ipsec -j ACCEPT"],
        ),
        ("-A INPUT -i ipsec+ -m policy --dir in --pol ipsec -j ACCEPT", &[NeverIn], &["-A INPUT -i ipsec+ -j ACCEPT"]),
        (
            "-A FORWARD -o eth0 -m policy --dir out --pol ipsec -j ACCEPT",
            &[NeverOut],
            &["-A FORWARD -o sealane-ipsec -j ACCEPT"],
        ),
        (
            "-A OUTPUT -o eth0 -m policy --dir out --pol ipsec -j ACCEPT",
            &[NeverOut],
            &["-A OUTPUT -o eth0 -m mark --mark 0x20000000/0x20000000 -j ACCEPT"],
        ),
        (
            "-A ufw-before-output -m policy --dir out --pol none -d 10.2.0.0/24 -j DROP",
            &[AlwaysOut],
            &["-A ufw-before-output -m mark ! --mark 0x20000000/0x20000000 -d 10.2.0.0/24 -j DROP"],
        ),
        (
            "-A INPUT -s 10.2.0.0/24 -m policy --dir in --pol none -j DROP",
            &[AlwaysIn],
            &["-A INPUT -s 10.2.0.0/24 ! -i sealane-ipsec -j DROP"],
        ),
        ("-A INPUT -i eth0 -m policy --dir in --pol none -j DROP", &[], &[]),
        // A rule has one interface of a way.
        ("-A INPUT ! -i lo -m policy --dir in --pol none -j DROP", &[AlwaysIn], &[]),
        ("-A INPUT -m comment --comment \"-m policy --dir in\" -j DROP", &[], &[]),
        (
            "-A INPUT -m rpfilter --invert -j DROP",
            &[ReversePath],
            &["-A INPUT ! -i sealane-ipsec -m rpfilter --invert -j DROP"],
        ),
        (
            "-A c -m rpfilter --validmark -j RETURN",
            &[ReversePath],
            &["-A c -i sealane-ipsec -j RETURN", "-A c -m rpfilter --validmark -j RETURN"],
        ),
        ("-A INPUT -m rpfilter --loose --invert -j DROP", &[], &[]),
        ("-A INPUT -i eth0 -m rpfilter --invert -j DROP", &[], &[]),
        ("-A INPUT -p esp -j ACCEPT", &[], &[]),
    ];
    cases.iter().for_each(|case| check(&findings(&format!("*filter\n{}\nCOMMIT\n", case.0)), case));
    let nat: [Case<'_>; 4] = [
        ("-A POSTROUTING ! -o lo -m policy --dir out --pol none -j MASQUERADE", &[AlwaysOut], &[]),
        (
            "-A POSTROUTING -s 10.1.0.0/24 -m policy --dir out --pol none -j MASQUERADE",
            &[AlwaysOut],
            &["-A POSTROUTING -s 10.1.0.0/24 ! -o sealane-ipsec -j MASQUERADE"],
        ),
        ("-A POSTROUTING -o eth0 -m policy --dir out --pol none -j MASQUERADE", &[], &[]),
        ("-A OUTPUT -m policy --dir out --pol ipsec -j ACCEPT", &[NeverOut], &[]),
    ];
    nat.iter().for_each(|case| check(&findings(&format!("*nat\n{}\nCOMMIT\n", case.0)), case));
}

#[test]
fn iptables_places() {
    let text = "# Generated by iptables-save v1.8.9\n*nat\n:POSTROUTING ACCEPT [0:0]\n[12:34] -A POSTROUTING -m policy --dir out --pol \
                none -j MASQUERADE\nCOMMIT\n*filter\n# -A INPUT -m policy --dir in --pol ipsec -j ACCEPT\n-A INPUT -m policy --dir in \
                --pol ipsec -j ACCEPT\nCOMMIT\n";
    let places: Vec<_> = findings(text).into_iter().map(|f| (f.line, f.table, f.chain)).collect();
    assert_eq!(places, [(4, "nat".to_owned(), "POSTROUTING".to_owned()), (8, "filter".to_owned(), "INPUT".to_owned())]);
    let script = "#!/bin/sh\nset -e\niptables -F\niptables -t mangle -I FORWARD 1 \\\n  -m policy --dir in --pol ipsec \\\n  -j ACCEPT\n\
                  iptables -D INPUT -m policy --dir in --pol ipsec -j ACCEPT\n";
    let found = findings(script);
    assert_eq!((found.len(), found[0].line, &*found[0].table), (1, 4, "mangle"));
    assert_eq!(found[0].instead, ["iptables -t mangle -I FORWARD 1 -i sealane-ipsec -j ACCEPT"]);
}

#[test]
fn firewalld_direct_rules() {
    let text = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<direct>\n  <!-- <rule>-m policy --dir in --pol ipsec</rule> -->\n  <rule \
                ipv=\"ipv4\" table=\"filter\" chain=\"INPUT_direct\" priority=\"0\">-m policy --dir in --pol ipsec -m comment \
                --comment &quot;a b&quot; -j ACCEPT</rule>\n  <passthrough ipv=\"ipv4\">-t nat -I POSTROUTING -m policy --dir out \
                --pol none -j MASQUERADE</passthrough>\n</direct>\n";
    let found = findings(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].line, &*found[0].table, &*found[0].chain), (4, "filter", "INPUT_direct"));
    assert_eq!(found[0].instead, ["-i sealane-ipsec -m comment --comment \"a b\" -j ACCEPT"]);
    assert_eq!((found[1].line, &*found[1].table, &*found[1].chain), (5, "nat", "POSTROUTING"));
    let zone = "<zone>\n<rule family=\"ipv4\">\n<source address=\"10.2.0.0/24\"/>\n<accept/>\n</rule>\n</zone>\n";
    assert_eq!(findings(zone), []);
}

#[test]
fn what_is_no_firewall_is_refused_with_a_line() {
    let deep = format!("table t {{\nchain c {{\nip saddr {}", "{ ".repeat(40));
    for (text, line, what) in [
        ("table t {\nchain c {\n", 2, "not closed"),
        ("table t {\nchain c {\nip saddr { 1.1.1.1\n", 3, "not closed"),
        ("table t {\n}\n}\n", 3, "closes what none has opened"),
        ("table t {\nchain c {\nlog prefix \"x\n", 3, "a string has no end"),
        ("{ \"nftables\": [] }", 1, "JSON"),
        ("flush ruleset\n[ipsec]\n", 2, "no statement of nft"),
        (&*deep, 3, "too many braces"),
        ("*filter\n-A INPUT -m policy --dir in -j ACCEPT\n", 2, "--pol"),
        ("*filter\n-A INPUT -m policy --pol ipsec -j ACCEPT\n", 2, "--dir"),
        ("<html>\n</html>\n", 1, "no file of firewalld"),
        ("<direct>\n<rule\n", 2, "a tag has no end"),
    ] {
        let refused = examine(text, &[]).expect_err(text);
        assert!(refused.line == line && refused.what.contains(what), "{refused}: {text}");
    }
    for empty in ["", "\n# nothing\n", "flush ruleset\n", "*filter\nCOMMIT\n"] {
        assert_eq!(examine(empty, &[]), Ok(Report::default()));
    }
}
