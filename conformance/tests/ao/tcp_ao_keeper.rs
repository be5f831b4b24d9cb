//! Keys of `sealane daemon` that are a keeper's: traffic keys are derived there, and the secret is in no daemon.

use crate::hosts::{A, B, Hosts, LIMIT, V4, config_by, nothing_in_clear};
use sealane_conformance::keeper::{Place, in_memory};
use sealane_conformance::lab::Running;
use sealane_conformance::skip::is_root;
use sealane_conformance::target::sealane;
use std::fs;

/// The secret of a test, of this length.
fn secret(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 37 + 11) as u8).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A keeper with the secret under this name.
fn keeper(test: &str, name: &str, algorithm: &str, secret: &[u8]) -> Place {
    let mut place = Place::new(test);
    place.start();
    import(&place, name, algorithm, secret);
    place
}

fn import(place: &Place, name: &str, algorithm: &str, secret: &[u8]) {
    fs::write(place.file("secret"), secret).unwrap();
    let made = place.key(&["import", name, "--algorithm", algorithm, "--uses", "mac", "--file", &place.file("secret")]);
    assert_eq!(made.status, Some(0), "{made:?}");
}

/// The configuration of an end whose key is the keeper's.
fn of_keeper(place: &Place, peer: &str, ids: [u8; 2], algorithm: &str, name: &str) -> String {
    let peer = config_by(peer, ids, algorithm, &format!("{{ keeper = \"{name}\" }}"));
    format!("[daemon]\nkeeper = \"{}\"\n{peer}", place.file("socket"))
}

/// Two ends, of which the first has the key from the keeper.
fn hosts(test: &str, place: &Place, algorithm: &str, secret: &[u8]) -> Option<Hosts> {
    let with = of_keeper(place, B, [1, 2], algorithm, "bgp");
    let without = config_by(A, [2, 1], algorithm, &format!("{{ hex = \"{}\" }}", hex(secret)));
    Hosts::with(&format!("tcp_ao_keeper::{test}"), V4, [with, without])
}

/// A client that sends as long as the test lasts.
fn session(hosts: &Hosts) -> Running {
    let client = hosts.client(&["--bytes", "4000000000000", "--seconds", "600"]);
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    client
}

#[test]
fn the_secret_is_not_in_the_daemon_and_both_ends_agree() {
    for (algorithm, of_key, len) in
        [("hmac(sha1)", "hmac(sha1)", 20), ("hmac(sha256)", "hmac(sha256)", 80), ("cmac(aes128)", "cmac(aes)", 16)]
    {
        let secret = secret(len);
        let place = keeper("ao-secret", "bgp", of_key, &secret);
        let Some(mut hosts) = hosts("secret", &place, algorithm, &secret) else { return };
        let watch = hosts.watch();
        let server = hosts.server();
        hosts.assert_answers(true);
        if is_root() {
            let [with, without] = [0, 1].map(|which| in_memory(hosts.daemon(which).id(), &secret));
            assert_eq!(with, 0, "{algorithm}");
            assert!(without > 0, "{algorithm}: the search finds what is there");
        }
        drop(server);
        nothing_in_clear(watch);
    }
}

/// The status of the first end's daemon.
fn status(hosts: &Hosts) -> String {
    let runtime = format!("SEALANE_RUNTIME_DIR={}", hosts.lab.folder().join("run0").display());
    let exe = sealane();
    let argv = ["env", &runtime, &*exe.to_string_lossy(), "tcp-ao", "show"];
    hosts.lab.start(&hosts.spaces[0], &argv).finish(LIMIT).1
}

/// The segments that the first end's daemon has dropped because the keeper had not derived their traffic key.
fn without_traffic_key(hosts: &Hosts) -> u64 {
    let told = status(hosts);
    let mut counts =
        told.lines().filter_map(|line| line.trim().strip_prefix("dropped: ")).flat_map(|all| all.split(", "));
    let count = counts.find_map(|one| one.strip_prefix("no-traffic-key "));
    count.map_or(0, |count| count.parse().unwrap_or_else(|e| panic!("{e}: {told}")))
}

/// No connection begins, for want of a traffic key.
fn begins_nothing(hosts: &Hosts) {
    let before = without_traffic_key(hosts);
    hosts.assert_answers(false);
    assert!(without_traffic_key(hosts) > before, "{}", status(hosts));
}

/// Has the first end's daemon read this configuration, its `nth` one after the first.
fn reload(hosts: &mut Hosts, text: &str, nth: usize) {
    fs::write(&hosts.configs[0], text).unwrap();
    hosts.daemon(0).signal(libc::SIGHUP);
    hosts.daemon(0).expect("read again", nth);
}

/// An absence of the keeper, and the way back from it.
struct Absence {
    name: &'static str,
    begin: fn(&mut Place),
    end: fn(&mut Place),
}

const ABSENCES: [Absence; 3] = [
    Absence { name: "killed", begin: Place::kill, end: Place::start },
    Absence { name: "hung", begin: |place| place.signal("STOP"), end: |place| place.signal("CONT") },
    Absence { name: "ended", begin: |place| assert_eq!(place.end(), Some(0)), end: Place::start },
];

#[test]
fn sessions_go_on_while_the_keeper_is_away_and_new_ones_wait_for_it() {
    let secret = secret(32);
    let mut place = keeper("ao-away", "bgp", "hmac(sha256)", &secret);
    let Some(hosts) = hosts("away", &place, "hmac(sha256)", &secret) else { return };
    let watch = hosts.watch();
    let server = hosts.server_for("100");
    let client = session(&hosts);
    for Absence { name, begin, end } in ABSENCES {
        begin(&mut place);
        // Each SYN needs a traffic key of its own, and none leaves without.
        begins_nothing(&hosts);
        hosts.lab.sends(&hosts.spaces[0], "wire", 300);
        assert_eq!(client.output(), "", "{name}: it sends");
        end(&mut place);
        hosts.assert_answers(true);
    }
    drop((client, server));
    nothing_in_clear(watch);
}

#[test]
fn a_revoked_key_begins_no_session_and_ends_none() {
    let secret = secret(32);
    let place = keeper("ao-revoked", "bgp", "hmac(sha256)", &secret);
    let Some(mut hosts) = hosts("revoked", &place, "hmac(sha256)", &secret) else { return };
    let watch = hosts.watch();
    let server = hosts.server_for("100");
    let client = session(&hosts);
    assert_eq!(place.key(&["revoke", "bgp"]).status, Some(0));
    begins_nothing(&hosts);
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    assert_eq!(client.output(), "", "it sends");
    assert!(status(&hosts).contains("key 'bgp' of the keeper: "), "{}", status(&hosts));
    // A configuration that still has it may change something else, and the sessions by it go on.
    let again = of_keeper(&place, B, [1, 2], "hmac(sha256)", "bgp");
    reload(&mut hosts, &again, 1);
    assert!(hosts.daemon(0).output().contains("key 'bgp' of the keeper: "), "{}", hosts.daemon(0).output());
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    assert_eq!(client.output(), "", "it sends");
    begins_nothing(&hosts);
    // Another key does.
    import(&place, "bgp-2", "hmac(sha256)", &secret);
    reload(&mut hosts, &of_keeper(&place, B, [1, 2], "hmac(sha256)", "bgp-2"), 2);
    hosts.assert_answers(true);
    assert!(!status(&hosts).contains("of the keeper: "), "{}", status(&hosts));
    drop((client, server));
    nothing_in_clear(watch);
}

#[test]
fn what_cannot_be_used_changes_nothing() {
    let secret = secret(32);
    let place = keeper("ao-wrong", "bgp", "hmac(sha256)", &secret);
    let Some(mut hosts) = hosts("wrong", &place, "hmac(sha256)", &secret) else { return };
    import(&place, "long", "cmac(aes)", &secret);
    let mut told = 0;
    for (algorithm, name, why) in [
        ("hmac(sha256)", "none", "key 'none' of the keeper: "),
        ("hmac(sha256)", "no name", "'no name' is no name of a key"),
        ("hmac(sha1)", "bgp", "key 'bgp' of the keeper: "),
        ("cmac(aes128)", "long", "version 1 of key 'long' has 32 bytes, not 16"),
        ("hmac-sha256-128", "bgp", "hashes the secret as a message"),
    ] {
        told += 1;
        fs::write(&hosts.configs[0], of_keeper(&place, B, [1, 2], algorithm, name)).unwrap();
        hosts.daemon(0).signal(libc::SIGHUP);
        hosts.daemon(0).expect("everything stays as it was", told);
        let output = hosts.daemon(0).output();
        assert!(output.contains(why), "{algorithm}, {name}: {output}");
    }
    let server = hosts.server();
    hosts.assert_answers(true);
    drop(server);
}

#[test]
fn a_daemon_starts_without_its_keeper_and_sessions_go_on_when_it_is_back() {
    let secret = secret(32);
    let mut place = keeper("ao-start", "bgp", "hmac(sha256)", &secret);
    let Some(mut hosts) = hosts("start", &place, "hmac(sha256)", &secret) else { return };
    let watch = hosts.watch();
    let server = hosts.server_for("100");
    let client = session(&hosts);
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        place.kill();
        hosts.end(0, signal);
        hosts.start(0);
        // Nothing of the session passes, and no new one begins, as long as nobody has its key.
        hosts.assert_answers(false);
        let told = status(&hosts);
        assert!(told.contains("SendID 1, RecvID 2, key 'bgp' of the keeper: not found: keeper at "), "{told}");
        place.start();
        hosts.daemon(0).expect("key 'bgp' of the keeper is there", 1);
        hosts.lab.sends(&hosts.spaces[0], "wire", 300);
        assert_eq!(client.output(), "", "it sends");
        hosts.assert_answers(true);
    }
    // With the keeper there, a restart is no more than one of a daemon that has its keys.
    hosts.end(0, libc::SIGKILL);
    hosts.start(0);
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    assert_eq!(client.output(), "", "it sends");
    drop((client, server));
    nothing_in_clear(watch);
}

/// The operations that the keeper counts for a key.
fn operations(place: &Place, name: &str) -> u64 {
    let shown = place.key(&["show", name, "--json"]);
    let value: serde_json::Value = serde_json::from_str(&shown.text).unwrap_or_else(|e| panic!("{e}: {shown:?}"));
    let counted = value.pointer("/0/versions/0/operations").and_then(serde_json::Value::as_u64);
    counted.unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn a_connection_takes_operations_and_its_status_none() {
    let secret = secret(32);
    let place = keeper("ao-count", "bgp", "hmac(sha256)", &secret);
    let Some(hosts) = hosts("count", &place, "hmac(sha256)", &secret) else { return };
    assert_eq!(operations(&place, "bgp"), 0, "to find a key is no use of it");
    let server = hosts.server_for("100");
    let client = session(&hosts);
    // Its SYN and both directions; the engine's tests count them.
    let taken = operations(&place, "bgp");
    assert!(taken >= 3, "{taken}");
    for _ in 0..5 {
        assert!(status(&hosts).contains("10.81.0.2"), "{}", status(&hosts));
    }
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    assert_eq!(operations(&place, "bgp"), taken);
    drop((client, server));
}

#[test]
fn a_version_is_the_one_that_the_configuration_names() {
    let secret = secret(32);
    let mut place = keeper("ao-version", "bgp", "hmac(sha256)", &secret);
    let Some(mut hosts) = hosts("version", &place, "hmac(sha256)", &secret) else { return };
    let server = hosts.server_for("100");
    fs::write(place.file("secret"), [9; 32]).unwrap();
    let rotated = place.key(&["rotate", "bgp", "--file", &place.file("secret")]);
    assert_eq!(rotated.status, Some(0), "{rotated:?}");
    // The version that was read before is in force, also after a reload that meets no keeper.
    hosts.assert_answers(true);
    place.kill();
    let same = fs::read_to_string(&hosts.configs[0]).unwrap();
    reload(&mut hosts, &same, 1);
    place.start();
    hosts.daemon(0).expect("key 'bgp' of the keeper is there", 1);
    hosts.assert_answers(true);
    let newest = of_keeper(&place, B, [1, 2], "hmac(sha256)", "bgp");
    let named = newest.replace("keeper = \"bgp\" }", "keeper = \"bgp\", version = 1 }");
    assert_ne!(newest, named);
    for (nth, text, answers) in [(2, &newest, false), (3, &named, true)] {
        reload(&mut hosts, text, nth);
        hosts.assert_answers(answers);
    }
    drop(server);
}

#[test]
fn a_chain_with_a_key_that_is_missing_serves_by_the_others() {
    let secret = secret(32);
    let place = keeper("ao-chain", "bgp", "hmac(sha256)", &secret);
    // The last one would be preferred.
    let missing =
        "[[peer.key]]\nsend-id = 3\nrecv-id = 4\nalgorithm = \"hmac(sha256)\"\nsecret = { keeper = \"next\" }\n";
    let with = format!("{}\n{missing}", of_keeper(&place, B, [1, 2], "hmac(sha256)", "bgp"));
    let without = config_by(A, [2, 1], "hmac(sha256)", &format!("{{ hex = \"{}\" }}", hex(&secret)));
    let Some(mut hosts) = Hosts::with("tcp_ao_keeper::chain", V4, [with, without]) else { return };
    let watch = hosts.watch();
    let server = hosts.server_for("100");
    let client = session(&hosts);
    let told = status(&hosts);
    assert!(told.contains("SendID 3, RecvID 4, key 'next' of the keeper: not found: "), "{told}");
    assert!(!told.contains("key 'bgp' of the keeper: "), "{told}");
    // The peer does not have it either: it is asked for it, and the session goes on by the other one.
    import(&place, "next", "hmac(sha256)", &[9; 32]);
    hosts.daemon(0).expect("key 'next' of the keeper is there", 1);
    hosts.lab.sends(&hosts.spaces[0], "wire", 300);
    assert_eq!(client.output(), "", "it sends");
    drop((client, server));
    nothing_in_clear(watch);
}
