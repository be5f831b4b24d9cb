use super::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;

const EXAMPLE: &str = include_str!("../../../../etc/sealane.toml");

fn no_files(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no {}", path.display())))
}

fn parse(text: &str) -> Result<Config, Vec<Mistake>> {
    Config::parse(text, &mut no_files)
}

/// The mistakes in a text, as `line: what`.
fn mistakes(text: &str) -> Vec<String> {
    let Err(list) = parse(text) else { panic!("no mistake found in:\n{text}") };
    list.iter().map(|m| format!("{}: {}", m.line, m.what)).collect()
}

/// A configuration with `peer`, which has one key with the settings `key`.
fn with_key(peer: &str, key: &str) -> String {
    format!("[[peer]]\n{peer}\n[[peer.key]]\n{key}\n")
}

const KEY: &str = "send-id = 1\nrecv-id = 2\nalgorithm = \"hmac(sha1)\"\nsecret = \"s\"";

fn bytes(secret: &Secret) -> &[u8] {
    match secret {
        Secret::Bytes(bytes) => bytes,
        Secret::Kept { name, .. } => panic!("key '{name}' of the keeper's"),
    }
}

#[test]
fn a_key_of_the_keeper_s_has_a_name_and_no_secret() {
    let kept = |secret: &str| KEY.replace("\"s\"", secret);
    let config = parse(&with_key("prefix = \"::1\"", &kept("{ keeper = \"bgp.1\" }")))
        .unwrap_or_else(|list| panic!("{list:#?}"));
    let key = &config.peers()[0].chain.keys[0];
    assert!(matches!(&key.secret, Secret::Kept { name, version: None } if name == "bgp.1"));
    assert_eq!(key.secret.known_len(), None);
    let second = parse(&with_key("prefix = \"::1\"", &kept("{ keeper = \"bgp\", version = 2 }"))).unwrap();
    assert!(matches!(&second.peers()[0].chain.keys[0].secret, Secret::Kept { version: Some(2), .. }));
    let (longest, too_long) = ("k".repeat(64), format!("{{ keeper = \"{}\" }}", "k".repeat(65)));
    assert!(parse(&with_key("prefix = \"::1\"", &kept(&format!("{{ keeper = \"{longest}\" }}")))).is_ok());
    for (wrong, what) in [
        ("{ keeper = \"\" }", "'' is no name of a key"),
        ("{ keeper = \"no name\" }", "'no name' is no name of a key"),
        ("{ keeper = \".k\" }", "'.k' is no name of a key"),
        ("{ keeper = \"../k\" }", "'../k' is no name of a key"),
        (&*too_long, "is no name of a key"),
        ("{ keeper = \"k\", file = \"f\" }", "exactly one of"),
        ("{ keeper = \"k\", encoding = \"hex\" }", "'encoding' goes with 'file'"),
        ("{ keeper = \"k\", version = 0 }", "'version' has to be a whole number from 1"),
        ("{ text = \"k\", version = 1 }", "'version' goes with 'keeper'"),
    ] {
        let list = parse(&with_key("prefix = \"::1\"", &kept(wrong))).err().expect("a mistake");
        assert!(list.iter().any(|mistake| mistake.what.contains(what)), "{wrong}: {list:?}");
    }
    for algorithm in ["hmac-sha256-128", "kmac256-128"] {
        let text = kept("{ keeper = \"k\" }").replace("hmac(sha1)", algorithm);
        let list = parse(&with_key("prefix = \"::1\"", &text)).err().expect("a mistake");
        assert!(list[0].what.contains("hashes the secret"), "{list:?}");
    }
    let keeper = |path: &str| parse(&format!("[daemon]\nkeeper = '{path}'\n"));
    assert_eq!(keeper("/run/k").unwrap().daemon.keeper, Some("/run/k".into()));
    assert!(keeper("k").is_err());
}

#[test]
fn the_example_is_read_as_it_says() {
    let config = parse(EXAMPLE).unwrap_or_else(|list| panic!("{list:#?}"));
    assert_eq!(config.daemon.metrics, Some("127.0.0.1:9187".parse().unwrap()));
    let [servers, collector] = config.peers() else { panic!("two peers") };
    assert_eq!(servers.name, "route servers");
    assert_eq!(
        servers.prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>(),
        ["192.0.2.0/28", "2001:db8:100::/64"]
    );
    assert!(servers.ports.contains(40000, 179) && servers.ports.contains(179, 40000) && !servers.ports.contains(1, 2));
    let [first, second] = &servers.chain.keys[..] else { panic!("two keys") };
    assert_eq!((first.id, first.send_id, first.recv_id, first.mac_len), (1, 1, 1, 16));
    assert_eq!(&bytes(&first.secret)[..4], [0x5e, 0xa1, 0xa4, 0xe0]);
    assert_eq!(first.send.to_string(), "2026-01-01T00:00:00Z to 2026-07-01T00:00:00Z");
    assert_eq!(first.accept, first.send.widened(300));
    assert_eq!((second.id, second.send.end_s), (2, i64::MAX));
    assert_eq!(servers.chain.when_expired, WhenExpired::KeepLast);
    assert_eq!(collector.chain.name, "metrics collector");
    assert_eq!(collector.chain.keys[0].algorithm, "cmac(aes128)");
    assert_eq!(bytes(&collector.chain.keys[0].secret), (0..16).collect::<Vec<u8>>());
    assert!(collector.ports.contains(9188, 1) && !collector.ports.contains(9191, 1));
    let june = parse_time("2026-06-25T00:00:00Z").unwrap();
    assert_eq!(config.warnings(june), [""; 0]);
    assert_eq!(servers.chain.preferred(june), Some(1));
    assert_eq!(servers.chain.accepted(june), [0, 1]);
}

#[test]
fn an_empty_configuration_protects_nobody() {
    let config = parse("# nothing\n").unwrap();
    assert!(config.peers().is_empty() && config.chains.is_empty() && config.daemon.metrics.is_none());
}

#[test]
fn every_mistake_has_its_line() {
    let found = mistakes(
        "[[peer]]\nprefix = \"192.0.2.1/24\"\nprot = 179\nkey-chain = \"x\"\n\n[daemon]\nmetrics = \"here\"\ncolour = 1\ndata-path = \"fast\"\n",
    );
    assert_eq!(
        found,
        [
            "2: '192.0.2.1/24' has bits beyond its length: the prefix is 192.0.2.0/24",
            "3: there is no setting 'prot'; did you mean 'port'?",
            "4: there is no key chain 'x'",
            "7: 'metrics' is an address and a port, as \"127.0.0.1:9187\" or \"[::1]:9187\"",
            "8: there is no setting 'colour'; known here: metrics, data-path, workers, keeper",
            "9: 'data-path' is \"auto\" or \"queue\"",
        ]
    );
    let found = mistakes("[[peer]\nprefix = \"::1\"\n");
    assert!(found[0].starts_with("1: "), "{found:?}");
}

#[test]
fn keys_are_held_to_their_rules() {
    let one = |key: &str| {
        let list = mistakes(&with_key("prefix = \"::1\"", key));
        assert_eq!(list.len(), 1, "{list:?}");
        list[0].clone()
    };
    let rest = "recv-id = 2\nalgorithm = \"hmac(sha1)\"\nsecret = \"s\"";
    assert_eq!(one(rest), "3: 'send-id' is missing");
    assert_eq!(one(&format!("send-id = 256\n{rest}")), "4: 'send-id' has to be a whole number from 0 to 255");
    assert_eq!(one(&format!("send-id = \"1\"\n{rest}")), "4: 'send-id' has to be a whole number from 0 to 255");
    assert!(one(&KEY.replace("sha1", "sha3")).starts_with("6: no such algorithm for TCP-AO; there are hmac(md5), "));
    assert_eq!(one(&format!("{KEY}\nmac-len = 3")), "8: 'mac-len' has to be a whole number from 4 to 16");
    assert_eq!(one(&format!("{KEY}\nmac-len = 17")), "8: 'mac-len' has to be a whole number from 4 to 16");
    assert_eq!(one(&KEY.replace("\"s\"", "\"\"")), "7: the secret is empty");
    assert_eq!(
        one(&KEY.replace("\"s\"", &format!("\"{}\"", "s".repeat(81)))),
        "7: the secret has 81 bytes; 80 are the most"
    );
    assert_eq!(one(&KEY.replace("\"s\"", "{ hex = \"0x\" }")), "7: this is not hex");
    assert_eq!(
        one(&KEY.replace("\"s\"", "{ hex = \"00\", text = \"a\" }")),
        "7: a secret has exactly one of text, hex, base64, file and keeper"
    );
    assert_eq!(one(&KEY.replace("\"s\"", "{ file = \"k\" }")), "7: key file k: no k");
    assert_eq!(
        one(&format!("{KEY}\nid = 5\n[[peer.key]]\n{}\nid = 5", KEY.replace("= 1", "= 7").replace("= 2", "= 8"))),
        "9: there is another key with id 5 in this chain"
    );
    assert_eq!(
        one(&format!("{KEY}\n[[peer.key]]\n{}", KEY.replace("= 1", "= 7"))),
        "8: recv-id 2 is also that of key 1, which is accepted at the same time"
    );
}

#[test]
fn ids_may_come_back_when_their_key_is_gone() {
    let later = "lifetime = { start = 2027-01-01T00:00:00Z }";
    let sooner = "lifetime = { end = 2027-01-01T00:00:00Z }";
    let text = with_key("prefix = \"::1\"", &format!("{KEY}\n{sooner}\n[[peer.key]]\n{KEY}\n{later}"));
    assert!(parse(&text).is_ok());
    let kept = text.replacen("[[peer.key]]", "when-expired = \"keep-last\"\n[[peer.key]]", 1);
    assert_eq!(mistakes(&kept), ["10: send-id 1 is also that of key 1; with \"keep-last\" no id comes back"]);
}

#[test]
fn lifetimes_are_held_to_their_rules() {
    let one = |lifetime: &str| {
        let list = mistakes(&with_key("prefix = \"::1\"", &format!("{KEY}\n{lifetime}")));
        assert_eq!(list.len(), 1, "{list:?}");
        list[0].clone()
    };
    let from = "start = 2026-01-01T00:00:00Z";
    assert_eq!(
        one("lifetime = { start = 2026-01-01 }"),
        "8: a time has to have date and time of day, as in 2026-01-31T00:00:00Z"
    );
    assert!(one("lifetime = { start = 2026-01-01T00:00:00 }").contains("offset"));
    assert!(one("lifetime = { start = \"2026-01-01T00:00:00Z\" }").contains("without quotes"));
    assert!(one(&format!("lifetime = {{ {from}, duration = \"3 fortnights\" }}")).contains("a duration is"));
    assert_eq!(
        one(&format!("lifetime = {{ {from}, end = 2025-01-01T00:00:00Z }}")),
        "8: 'lifetime' ends before it begins"
    );
    assert_eq!(one("lifetime = { duration = \"30d\" }"), "8: 'lifetime' has a duration without a start");
    assert!(one(&format!("lifetime = {{ {from}, duration = 5, end = 2027-01-01T00:00:00Z }}")).contains("one of them"));
    assert!(one(&format!("lifetime = {{ {from} }}\nsend-lifetime = {{ {from} }}")).contains("both directions"));
    assert!(one(&format!("accept-lifetime = {{ {from} }}")).contains("has to be accepted whenever it is sent with"));
    let text = with_key("prefix = \"::1\"", &format!("{KEY}\nsend-lifetime = {{ {from}, duration = \"30d\" }}"));
    let config = parse(&text).unwrap();
    let key = &config.peers()[0].chain.keys[0];
    assert_eq!(key.send.end_s - key.send.start_s, 30 * 86_400);
    assert_eq!(key.accept, key.send, "accepted as it is sent, when nothing else is said");
}

#[test]
fn no_message_repeats_a_secret() {
    for secret in [
        "secret = [\"hunter2\"]",
        "secret = { text = [\"hunter2\"] }",
        "secret = { hex = \"hunter2\" }",
        "secret = { base64 = \"hunter2\" }",
        "secret = { txet = \"hunter2\" }",
        "secrets = \"hunter2\"",
        "secret = \"hunter2",
        "secret = hunter2",
        "secret = { text = \"hunter2\", encoding = \"hunter2\" }",
    ] {
        let key = KEY.replace("secret = \"s\"", secret);
        let list = mistakes(&with_key("prefix = \"::1\"", &key));
        assert!(!list.is_empty() && list.iter().all(|m| !m.contains("hunter2")), "{secret}: {list:?}");
    }
}

#[test]
fn peers_are_held_to_their_rules() {
    let one = |peer: &str| {
        let list = mistakes(&with_key(peer, KEY));
        assert_eq!(list.len(), 1, "{list:?}");
        list[0].clone()
    };
    assert_eq!(one("name = \"x\""), "1: 'prefix' is missing");
    assert_eq!(one("prefix = [\"::1\", \"::1\"]"), "2: ::1 is there twice");
    assert_eq!(one("prefix = 5"), "2: a prefix is text, as \"192.0.2.0/24\"");
    assert!(one("prefix = \"::1\"\nport = 0").starts_with("3: 'port' is a number from 1 to 65535"));
    assert!(one("prefix = \"::1\"\nport = \"90-80\"").starts_with("3: 'port' is a number"));
    assert!(one("prefix = \"::1\"\nport = 1\nlocal-port = 2").starts_with("3: 'port' is that of either end"));
    assert!(one("prefix = \"::1\"\nnetns = \"\"").starts_with("3: 'netns'"));
    assert!(one("prefix = \"::1\"\nkey-chain = \"x\"").contains("not both"));
    let list = mistakes("[[peer]]\nprefix = \"::1\"\n");
    assert_eq!(list, ["1: a peer needs keys: key-chain = \"...\" or [[peer.key]]"]);
    let twice = format!("{}{}", with_key("prefix = \"::1\"\nport = 179", KEY), with_key("prefix = \"::1\"", KEY));
    assert_eq!(mistakes(&twice), ["9: ::1 is also that of peer '::1', for the same ports"]);
    let named = format!(
        "{}{}",
        with_key("name = \"x\"\nprefix = \"::1\"", KEY),
        with_key("name = \"x\"\nprefix = \"::2\"", KEY)
    );
    assert_eq!(mistakes(&named), ["10: there is another peer 'x'"]);
    let apart = format!(
        "{}{}",
        with_key("prefix = \"::1\"\nport = 179", KEY),
        with_key("prefix = \"::1\"\nvrf = \"red\"", KEY)
    );
    let names: Vec<String> = parse(&apart).unwrap().peers().iter().map(|p| p.name.clone()).collect();
    assert_eq!(names, ["::1", "::1 (2)"], "whoever tells peers apart by name has a name for each");
}

#[test]
fn keys_of_a_keys_file_are_no_configuration() {
    let list = mistakes(&format!("[[key]]\n{KEY}\n"));
    assert_eq!(list, ["1: [[key]] belongs in a keys file of 'sealane tcp-ao verify' or 'sign'"]);
}

#[test]
fn the_longest_prefix_wins() {
    let text = [
        with_key("name = \"all\"\nprefix = [\"0.0.0.0/0\", \"::/0\"]\nport = 179", KEY),
        with_key("name = \"one\"\nprefix = \"192.0.2.1\"\nport = 179", KEY),
        with_key("name = \"net\"\nprefix = \"192.0.2.0/24\"", KEY),
        with_key("name = \"blue\"\nprefix = \"192.0.2.1\"\nnetns = \"blue\"", KEY),
    ]
    .concat();
    let config = parse(&text).unwrap();
    let find = |netns, remote: &str| {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 40000));
        let flow = Flow { netns, vrf: None, local, remote: remote.parse().unwrap() };
        config.peer_of(&flow).map(|p| p.name.as_str())
    };
    assert_eq!(find(None, "192.0.2.1:179"), Some("one"));
    assert_eq!(find(None, "192.0.2.1:80"), Some("net"));
    assert_eq!(find(None, "192.0.2.2:179"), Some("net"));
    assert_eq!(find(None, "203.0.113.1:179"), Some("all"));
    assert_eq!(find(None, "203.0.113.1:80"), None);
    assert_eq!(find(None, "[2001:db8::1]:179"), Some("all"));
    assert_eq!(find(None, "[::ffff:192.0.2.1]:179"), Some("one"));
    assert_eq!(find(Some("blue"), "192.0.2.1:5"), Some("blue"));
    assert_eq!(find(Some("red"), "192.0.2.1:179"), None);
}

#[test]
fn what_is_seldom_meant_is_told() {
    let ends = "lifetime = { start = 2026-01-01T00:00:00Z, end = 2026-02-01T00:00:00Z }";
    let text = format!(
        "[[key-chain]]\nname = \"lonely\"\n[[key-chain.key]]\n{KEY}\n{}",
        with_key("name = \"p\"\nprefix = \"::/0\"", &format!("{KEY}\n{ends}"))
    );
    let config = parse(&text).unwrap();
    let warnings = |at| config.warnings(parse_time(at).unwrap());
    let always = ["key chain 'lonely' is used by no peer", "peer 'p' is every connection there is (::/0, all ports)"];
    let now = warnings("2026-01-15T00:00:00Z");
    assert_eq!(now, [always[0], "key chain 'p' ends 2026-02-01T00:00:00Z: then its peers are cut off", always[1]]);
    let late = warnings("2026-03-01T00:00:00Z");
    assert_eq!(late, [always[0], "key chain 'p' has no key to send with now: its peers are cut off", always[1]]);
}

#[test]
fn a_keys_file_takes_single_keys_and_connections() {
    let text = format!(
        "[[key]]\n{KEY}\n[[key]]\n{}\nprefix = \"192.0.2.1\"\n[[connection]]\nclient = \"192.0.2.1:5\"\nserver = \"[::1]:179\"\n\
         client-isn = 0xfbfbab5a\nserver-isn = 7\n",
        KEY.replace("= 1", "= 9")
    );
    let file = KeysFile::parse(&text, &mut no_files).unwrap_or_else(|list| panic!("{list:#?}"));
    assert_eq!(file.peers.len(), 2);
    assert_eq!(file.peers[0].prefixes.len(), 2);
    assert_eq!(file.peers[1].prefixes[0].to_string(), "192.0.2.1");
    let ends = ["192.0.2.1:5".parse().unwrap(), "[::1]:179".parse().unwrap()];
    assert_eq!(file.known, [Known { ends, isns: [0xfbfb_ab5a, 7] }]);
    let file = KeysFile::parse(EXAMPLE, &mut no_files).unwrap_or_else(|list| panic!("{list:#?}"));
    assert_eq!(file.peers.len(), 2);
    let Err(list) = KeysFile::parse("[[connection]]\nclient = \"x\"\nclient-isn = -1\n", &mut no_files) else {
        panic!()
    };
    let lines: Vec<String> = list.iter().map(|m| format!("{}: {}", m.line, m.what)).collect();
    assert_eq!(
        lines,
        [
            "1: 'server' is missing",
            "1: 'server-isn' is missing",
            "2: 'client' is an address and a port, as \"192.0.2.1:179\" or \"[::1]:179\"",
            "3: 'client-isn' has to be a whole number from 0 to 4294967295",
        ]
    );
}

#[test]
fn files_are_loaded_with_their_secrets_guarded() {
    let folder = std::env::temp_dir().join(format!("sealane-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (path, key_path) = (folder.join("sealane.toml"), folder.join("key"));
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let write = |secret: &str| {
        std::fs::write(&path, with_key("prefix = \"::1\"", &KEY.replace("\"s\"", secret))).unwrap();
    };
    std::fs::write(&key_path, "file secret\n").unwrap();
    mode(&key_path, 0o600);
    write("{ file = \"key\" }");
    mode(&path, 0o644);
    let config = Config::load(&path).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(bytes(&config.peers()[0].chain.keys[0].secret), b"file secret");
    mode(&key_path, 0o644);
    let Err(e) = Config::load(&path) else { panic!("a key that others can read") };
    let text = e.to_string();
    assert!(text.starts_with(&format!("{}:7:", path.display())) && text.contains("0644"), "{text}");
    write("\"inline\"");
    let Err(e) = Config::load(&path) else { panic!("a secret in a file that others can read") };
    assert!(e.to_string().contains("toml:7:1: the file has a secret here, and its mode is 0644"), "{e}");
    mode(&path, 0o600);
    assert!(Config::load(&path).is_ok());
    std::fs::write(&path, b"a = 1\n\xff").unwrap();
    let Err(e) = Config::load(&path) else { panic!("not UTF-8") };
    assert!(e.to_string().contains("line 2 is not UTF-8"), "{e}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_algorithms_are_those_of_the_protocol() {
    let known = sealane_net_ao::alg::Algorithms::new(&sealane_crypto_portable::registry());
    for (name, digest_len, mac_len) in keys::ALGORITHMS {
        let algorithm = known.get(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(algorithm.digest_len, digest_len, "{name}");
        assert!(usize::from(mac_len) <= digest_len);
    }
    let listed = |name| keys::ALGORITHMS.iter().any(|(n, ..)| *n == name);
    assert!(known.iter().all(|a| listed(a.name)));
}

#[test]
fn workers_of_tcp_ao() {
    let workers = |text: &str| {
        let text = format!("[daemon]\n{text}");
        parse(&text).map(|c| c.daemon.workers).ok()
    };
    assert_eq!([workers(""), workers("workers = 16")], [Some(1), Some(16)]);
    for text in ["workers = 0", "workers = 17", "workers = \"2\""] {
        assert_eq!(
            mistakes(&format!("[daemon]\n{text}")),
            ["2: 'workers' has to be a whole number from 1 to 16"],
            "{text}"
        );
    }
}

#[test]
fn many_peers_are_no_trouble() {
    let mut text = String::new();
    for i in 0..20_000u32 {
        let addr = Ipv4Addr::from_bits(0x0a00_0000 + i);
        text.push_str(&with_key(&format!("prefix = \"{addr}\"\nport = 179"), KEY));
    }
    let config = parse(&text).unwrap();
    for i in [0u32, 1, 19_999] {
        let remote = SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0000 + i), 179));
        let flow = Flow { netns: None, vrf: None, local: SocketAddr::from((Ipv4Addr::LOCALHOST, 5)), remote };
        assert_eq!(config.peer_of(&flow).unwrap().name, remote.ip().to_string());
    }
    // With a mistake in every line, parsing ends early.
    assert_eq!(mistakes(&"x\n".repeat(100_000)).len(), 1000);
}

#[test]
fn programs_of_network_namespaces() {
    let programs = |text| parse(text).unwrap_or_else(|list| panic!("{list:#?}")).programs.netns;
    assert_eq!(programs(""), []);
    assert_eq!(programs("[tcp-ao]\n"), [None]);
    assert_eq!(programs("[tcp-ao]\nnetns = [\"blue\", \"\"]\n"), [Some("blue".to_owned()), None]);
    assert_eq!(mistakes("[tcp-ao]\nnetns = [\"blue\", \"blue\"]\n"), ["2: this network namespace is there twice"]);
    assert_eq!(mistakes("[tcp-ao]\nnamespace = 1\n").len(), 1);
}
