//! TCP-AO on the wire: the program that captured a real kernel's signatures runs under `sealane run`, and its captures
//! are the same. `sealane tcp-ao show` describes a running program.

use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::{Outcome, Target, root, run_limited, sealane};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Reports a skip and returns true when `test` cannot run here.
fn cannot(test: &str) -> bool {
    if skip_without(test, &[&Target::sealane("open")]) {
        return true;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "true"]);
    if run_limited(unshare, LIMIT).ok().and_then(|o| o.status) != Some(0) {
        skip(test, "no network namespace can be made");
        return true;
    }
    false
}

/// A private folder for a test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sealane-wire-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program under `sealane run --tcp-ao`, in a network namespace of its own.
fn under_sealane(folder: &Folder, program: &[&str]) -> Outcome {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command.arg(sealane()).args(["run", "--tcp-ao", "--"]).args(program);
    command.env("SEALANE_RUNTIME_DIR", folder.0.join("run")).env("SEALANE", sealane());
    run_limited(command, LIMIT).unwrap()
}

/// The fields of a segment that are compared.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    from_server: bool,
    flags: String,
    key_id: Option<u64>,
    rnext_key_id: Option<u64>,
    verdict: String,
    reason: String,
}

/// The connections to one port in a capture.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    kinds: BTreeSet<Kind>,
    /// Bytes from the client and from the server, however they were segmented.
    bytes: [u64; 2],
}

fn verified(capture: &Path) -> BTreeMap<u64, Said> {
    let keys = capture.with_extension("toml");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut verify = Command::new(sealane());
    verify.args(["tcp-ao", "verify", "--json", "--keys"]).arg(keys).arg(capture);
    let outcome = run_limited(verify, LIMIT).unwrap();
    let said: Value = serde_json::from_str(&outcome.text).unwrap_or_else(|e| panic!("{e}: {outcome:?}"));
    let mut ports: BTreeMap<u64, Said> = BTreeMap::new();
    for s in said["segments"].as_array().unwrap() {
        let port = |end: &str| s[end].as_str().unwrap().rsplit_once(':').unwrap().1.parse::<u64>().unwrap();
        let (from, to) = (port("source"), port("destination"));
        let from_server = from < to;
        let text = |field: &str| s[field].as_str().unwrap_or_default().to_owned();
        // PSH, and a FIN together with data, depend on timing.
        let flags = text("flags").replace(['P', 'F'], "");
        let entry = ports.entry(from.min(to)).or_default();
        entry.bytes[usize::from(from_server)] += s["length"].as_u64().unwrap();
        entry.kinds.insert(Kind {
            from_server,
            flags,
            key_id: s["key_id"].as_u64(),
            rnext_key_id: s["rnext_key_id"].as_u64(),
            verdict: text("verdict"),
            reason: text("reason"),
        });
    }
    ports
}

#[test]
fn what_leaves_is_what_a_kernel_would_send() {
    let test = "tcp_ao_wire::what_leaves_is_what_a_kernel_would_send";
    let kernel = Target::kernel("linux-7.3");
    if cannot(test) || skip_without(test, &[&kernel]) {
        return;
    }
    let folder = Folder::new("kernel");
    let script = root().join("conformance/vectors/tcp_ao_capture.py").display().to_string();
    let (theirs, ours) = (folder.0.join("theirs"), folder.0.join("ours"));
    let done = kernel.run(&["python3", &script, &theirs.display().to_string()], LIMIT).unwrap();
    assert_eq!(done.status, Some(0), "{done:?}");
    let done = under_sealane(&folder, &["python3", &script, &ours.display().to_string()]);
    assert_eq!(done.status, Some(0), "{done:?}");
    let (theirs, ours) = (verified(&theirs.with_extension("pcap")), verified(&ours.with_extension("pcap")));
    assert_eq!(theirs.keys().collect::<Vec<_>>(), (1701..=1709).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    for (port, theirs) in &theirs {
        assert_eq!(ours.get(port), Some(theirs), "port {port}");
        let bad = theirs.kinds.iter().filter(|k| k.verdict != "good").count();
        assert_eq!(bad, usize::from(*port >= 1706), "port {port}");
    }
}

#[test]
fn show_knows_sockets_keys_and_why_segments_were_dropped() {
    let test = "tcp_ao_wire::show_knows_sockets_keys_and_why_segments_were_dropped";
    if cannot(test) {
        return;
    }
    let folder = Folder::new("show");
    let script = root().join("conformance/programs/ao_session.py").display().to_string();
    let exe = sealane().display().to_string();
    let done = under_sealane(&folder, &["python3", &script, &exe, "tcp-ao", "show", "--json"]);
    assert_eq!(done.status, Some(0), "{done:?}");
    let said: Value = serde_json::from_str(&done.text).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    assert_eq!((&said[0]["role"], &said[0]["program"]), (&"run".into(), &"python3".into()));
    let namespace = &said[0]["namespaces"][0];
    assert_eq!((&namespace["counters"]["bad"], &namespace["counters"]["required"]), (&1.into(), &1.into()));
    let sockets = namespace["sockets"].as_array().unwrap();
    let listener = sockets.iter().find(|s| s["state"] == "listen").expect("the listener");
    assert_eq!(listener["local"], "127.0.0.2:1790");
    assert_eq!(listener["program"], "python3");
    let comm = |pid: &Value| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    assert!(listener["pid"].is_u64() && comm(&listener["pid"]) != "sealane\n", "{listener}");
    let key = &listener["keys"][0];
    assert_eq!((&key["send_id"], &key["recv_id"], &key["algorithm"]), (&1.into(), &2.into(), &"hmac(sha256)".into()));
    let drop = &listener["last_drop"];
    assert_eq!((&drop["reason"], &drop["key_id"]), (&"mac".into(), &2.into()));
    assert!(drop["hint"].as_str().unwrap().contains("without the TCP options"), "{drop}");
    let established: Vec<&Value> = sockets.iter().filter(|s| s["state"] == "established").collect();
    assert_eq!(established.len(), 2, "both ends of the connection");
    for socket in established {
        let (current, rnext) = (socket["current"].as_u64().unwrap(), socket["rnext"].as_u64().unwrap());
        assert_eq!(current + rnext, 3);
        assert!(socket["counters"]["good"].as_u64().unwrap() >= 4, "{socket}");
        assert_eq!(socket["counters"]["bad"], 0);
    }
    assert!(!done.text.contains("a secret of both") && !done.text.contains("6120736563726574"));
    assert!(std::fs::read_dir(folder.0.join("run")).unwrap().next().is_none(), "the socket goes with the launcher");
}

/// Each mistake has its own reason and hint.
#[test]
fn show_says_what_is_wrong() {
    let test = "tcp_ao_wire::show_says_what_is_wrong";
    if cannot(test) {
        return;
    }
    let folder = Folder::new("mistakes");
    let script = root().join("conformance/programs/ao_mistakes.py").display().to_string();
    let exe = sealane().display().to_string();
    let done = under_sealane(&folder, &["python3", &script, &exe, "tcp-ao", "show", "--json"]);
    assert_eq!(done.status, Some(0), "{done:?}");
    let expected = [
        ("no key", "required", None),
        ("wrong key", "mac", None),
        ("options left out", "mac", Some("it verifies without the TCP options")),
        ("unknown KeyID", "key-not-found", Some("it verifies with our key of SendID 1 and RecvID 2")),
        ("MAC length", "mac-length", Some("the MAC is right but has 12 bytes where our key has 16")),
        ("algorithm", "mac", Some("it verifies with hmac(sha1)")),
        ("new line", "mac", Some("the sender's secret ends with a new line, ours does not")),
        ("SNE", "mac", Some("it verifies with sequence number extension 1, not 0")),
    ];
    let answers: Vec<(&str, Value)> = (done.text.split("== ").skip(1))
        .map(|part| part.split_once('\n').expect("an answer"))
        .map(|(name, text)| (name, serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))))
        .collect();
    assert_eq!(answers.len(), expected.len());
    for ((name, said), (mistake, reason, hint)) in answers.iter().zip(expected) {
        assert_eq!(*name, mistake);
        let sockets = said[0]["namespaces"][0]["sockets"].as_array().expect("sockets");
        let last = |s: &Value| s["last_drop"]["at_ms"].as_i64();
        let drop = &sockets.iter().max_by_key(|s| last(s)).expect("one")["last_drop"];
        assert_eq!(drop["reason"], reason, "{mistake}: {drop}");
        assert!(drop["help"].as_str().is_some_and(|h| h.len() > 10), "{mistake}: {drop}");
        match hint {
            Some(hint) => assert!(drop["hint"].as_str().is_some_and(|h| h.starts_with(hint)), "{mistake}: {drop}"),
            None => assert!(drop["hint"].is_null(), "{mistake}: {drop}"),
        }
    }
}

/// Others are shown beside an instance that hangs and one of another version, which are named.
#[test]
fn show_goes_on_past_instances_that_do_not_answer() {
    let test = "tcp_ao_wire::show_goes_on_past_instances_that_do_not_answer";
    if cannot(test) {
        return;
    }
    let folder = Folder::new("silent");
    let run = folder.0.join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o700)).unwrap();
    let _hangs = UnixListener::bind(run.join("1.sock")).unwrap();
    let old = UnixListener::bind(run.join("2.sock")).unwrap();
    std::thread::spawn(move || {
        for mut stream in old.incoming().flatten() {
            // It is asked before it answers.
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(br#"{"version":0}"#);
        }
    });
    let script = root().join("conformance/programs/ao_session.py").display().to_string();
    let exe = sealane().display().to_string();
    let show = |how: &[&str], shown: &str, told: &[&str]| {
        let argv = [&["python3", &script, &exe, "tcp-ao", "show"], how].concat();
        let done = under_sealane(&folder, &argv);
        assert_eq!(done.status, Some(2), "{done:?}");
        for part in told {
            assert!(done.errors.contains(part), "{part}: {done:?}");
        }
        assert!(done.text.contains(shown), "{done:?}");
    };
    show(&[], "127.0.0.2:1790", &["1.sock", "2.sock", "2 of 3 instances gave no answer"]);
    // A page of metrics is one instance's.
    std::fs::remove_file(run.join("2.sock")).unwrap();
    show(&["--metrics"], "sealane_tcp_ao_", &["1.sock", "1 of 2 instances gave no answer"]);
}

/// In a kernel with TCP-AO of its own, whose sessions are nobody else's matter.
#[test]
fn sessions_of_the_kernel_go_on() {
    let test = "tcp_ao_wire::sessions_of_the_kernel_go_on";
    let kernel = Target::kernel("linux-7.3-net");
    if skip_without(test, &[&Target::sealane("open"), &kernel]) {
        return;
    }
    let script = root().join("conformance/programs/ao_native.py").display().to_string();
    let exe = sealane().display().to_string();
    let done = kernel.run(&["env", "SEALANE_RUNTIME_DIR=/tmp/ao-native", "python3", &script, &exe], LIMIT).unwrap();
    assert_eq!(done.status, Some(0), "{done:?}");
    for part in ["before", "beside", "anew", "after"] {
        assert!(done.text.lines().any(|line| line == part), "{part}: {done:?}");
    }
}

/// Runs a part of ao_ends.py; returns what it prints.
fn ends(part: &str) -> Option<String> {
    if cannot(&format!("tcp_ao_wire::ends: {part}")) {
        return None;
    }
    let folder = Folder::new(part);
    let script = root().join("conformance/programs/ao_ends.py").display().to_string();
    let exe = sealane().display().to_string();
    let done = under_sealane(&folder, &["python3", &script, part, &exe, "tcp-ao", "show", "--json"]);
    assert_eq!(done.status, Some(0), "{done:?}");
    Some(done.text)
}

/// A listener takes a new connection from the same port while the old one is in TIME_WAIT, as on Linux (TCP_TW_SYN).
#[test]
fn a_port_is_used_again_in_time_wait() {
    let Some(text) = ends("again") else { return };
    assert_eq!(text, "connected at once\n");
}

/// Connections that their own program closes first leave nothing behind.
#[test]
fn half_closed_connections_are_forgotten() {
    let Some(text) = ends("half-closed") else { return };
    assert_eq!(text, "none is left\n");
}

/// The cookie of a handshake, which was in clear, opens nothing without a signature when the connection has ended.
#[test]
fn a_cookie_of_before_opens_nothing() {
    let Some(text) = ends("cookie") else { return };
    assert_eq!(text, "nothing came\n");
}

/// A connection that begins with MSG_FASTOPEN is signed.
#[test]
fn a_fast_open_is_signed() {
    let Some(text) = ends("fastopen") else { return };
    assert_eq!(text, "came b'question'\n");
}

/// A look at the counters of another network namespace begins nothing there. A program's own is served from the look on, also
/// where its PID namespace is not the launcher's.
#[test]
fn a_look_at_another_namespace_changes_nothing_there() {
    if cannot("tcp_ao_wire::a_look_at_another_namespace_changes_nothing_there") {
        return;
    }
    let folder = Folder::new("looks");
    let done = under_sealane(&folder, &[&root().join("conformance/programs/ao_looks.sh").display().to_string()]);
    assert_eq!(done.status, Some(0), "{done:?}");
    assert_eq!(done.text, "another: the kernel, no rules\nown: Sealane, rules\ninside: Sealane, rules\n", "{done:?}");
}

#[test]
fn keys_roll_over_without_a_lost_segment() {
    let test = "tcp_ao_wire::keys_roll_over_without_a_lost_segment";
    if cannot(test) {
        return;
    }
    let folder = Folder::new("rollover");
    let script = root().join("conformance/programs/ao_rollover.sh");
    let mut command = Command::new("unshare");
    command.arg("--net").arg(script).arg(sealane()).arg(&folder.0).env("SEALANE_RUNTIME_DIR", folder.0.join("run"));
    let done = run_limited(command, LIMIT).unwrap();
    let log = std::fs::read_to_string(folder.0.join("daemon.log")).unwrap_or_default();
    assert_eq!(done.status, Some(0), "{done:?}\n{log}");
    let said = verified(&folder.0.join("session.pcap"));
    let kinds = &said[&1790].kinds;
    assert!(kinds.iter().all(|k| k.verdict == "good"), "{kinds:?}");
    for from_server in [false, true] {
        for id in [1, 2] {
            assert!(kinds.iter().any(|k| k.from_server == from_server && k.key_id == Some(id)), "{kinds:?}");
        }
    }
    assert!(kinds.iter().any(|k| k.key_id == Some(1) && k.rnext_key_id == Some(2)), "it is asked for: {kinds:?}");
    assert!(kinds.iter().all(|k| k.flags != "S" || k.key_id == Some(1)), "the session began with the first key");
}
