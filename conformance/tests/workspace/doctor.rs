//! `sealane doctor` on this machine: it only looks.

use sealane_conformance::keeper::Place;
use sealane_conformance::skip::{is_root, skip, skip_without};
use sealane_conformance::target::{Outcome, Target, root, run_limited, sealane};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a command that the kernel kills when it opens a socket that might load a module.
fn only_looking(command: &[&str]) -> Outcome {
    let mut guarded = Command::new("python3");
    guarded.arg(root().join("conformance/programs/only_looks.py")).args(command);
    run_limited(guarded, LIMIT).unwrap()
}

#[test]
fn looking_loads_no_module() {
    if skip_without("doctor::looking_loads_no_module", &[&Target::sealane("open")]) {
        return;
    }
    for family in ["AF_ALG, SOCK_SEQPACKET, 0", "AF_NETLINK, SOCK_RAW, NETLINK_XFRM", "44, SOCK_RAW, 0"] {
        let opens = format!("from socket import *; NETLINK_XFRM = 6; socket({family})");
        assert_eq!(only_looking(&["python3", "-c", &opens]).status, None, "{family} is not watched");
    }
    let exe = sealane();
    let outcome = only_looking(&[&exe.to_string_lossy(), "doctor", "--json"]);
    // Any answer but the end by a signal: it depends on the machine.
    assert!(matches!(outcome.status, Some(0..=2)) && outcome.errors.is_empty(), "{outcome:?}");
    let report: serde_json::Value = serde_json::from_str(&outcome.text).unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["release"], release.trim());
}

/// The findings about the keeper, of a machine whose daemon has this configuration.
fn about_keeper(place: &Place, config: &str) -> Option<Vec<serde_json::Value>> {
    let folder = place.folder.join("etc/sealane");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("sealane.toml"), config).unwrap();
    let mount = format!("lowerdir={}:/etc", place.folder.join("etc").display());
    let mut command = Command::new("unshare");
    let shell = "mount -t overlay overlay -o \"$1\" /etc || exit 77; exec \"$2\" doctor --json";
    command.args(["-m", "sh", "-c", shell, "sh", &mount]).arg(sealane());
    let outcome = run_limited(command, LIMIT).unwrap();
    if outcome.status == Some(77) {
        return None;
    }
    let report: serde_json::Value = serde_json::from_str(&outcome.text).unwrap_or_else(|e| panic!("{e}: {outcome:?}"));
    let findings = report["findings"].as_array().unwrap();
    Some(findings.iter().filter(|finding| finding["id"] == "keeper").cloned().collect())
}

#[test]
fn keys_that_the_daemon_cannot_use_are_told() {
    let test = "doctor::keys_that_the_daemon_cannot_use_are_told";
    if !is_root() {
        return skip(test, "only root is the daemon's user, and mounts a folder over /etc");
    }
    let mut place = Place::without_store("doctor");
    place.start();
    for (name, uses, user) in [("good", "mac", "0"), ("checks", "verify", "0"), ("others", "mac", "1")] {
        let rules = ["--algorithm", "hmac(sha256)", "--uses", uses, "--user", user, "--admin-user", "1"];
        let made = place.key(&[&["generate", name][..], &rules].concat());
        assert_eq!(made.status, Some(0), "{made:?}");
    }
    let key = |(id, name): (usize, &str)| {
        format!(
            "[[peer.key]]\nsend-id = {id}\nrecv-id = {id}\nalgorithm = \"hmac(sha256)\"\nsecret = {{ keeper = \"{name}\" }}\n"
        )
    };
    let names = ["good", "checks", "others", "gone"];
    let keys: String = names.into_iter().enumerate().map(key).collect();
    let socket = place.file("socket");
    let config = format!("[daemon]\nkeeper = \"{socket}\"\n[[peer]]\nname = \"p\"\nprefix = \"192.0.2.1\"\n{keys}");
    let Some(found) = about_keeper(&place, &config) else {
        return skip(test, "no folder can be mounted over /etc");
    };
    let told = |name: &str| {
        found.iter().find(|finding| finding["text"].as_str().unwrap().contains(&format!("'{name}'"))).map(|finding| {
            assert_eq!(finding["level"], "needs-doing");
            finding["commands"][0].as_str().unwrap().to_owned()
        })
    };
    assert_eq!(told("good"), None, "{found:?}");
    for name in ["checks", "others", "gone"] {
        let command = told(name).unwrap_or_else(|| panic!("{name}: {found:?}"));
        assert!(command.ends_with(&format!(" --socket '{socket}'")), "{command}");
        // It is a command of a shell, and answers.
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]);
        assert!(matches!(run_limited(shell, LIMIT).unwrap().status, Some(0..=1)), "{command}");
    }
    assert_eq!(found.len(), 3, "{found:?}");
    // The configuration alone names it; a keeper that is away is told once, whatever it has.
    place.kill();
    let found = about_keeper(&place, &config).unwrap();
    let text = found[0]["text"].as_str().unwrap();
    assert!(found.len() == 1 && text.contains("does not answer") && text.contains(&socket), "{found:?}");
    assert_eq!(about_keeper(&place, "[ipsec]\n"), Some(Vec::new()));
}
