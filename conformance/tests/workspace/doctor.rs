//! `sealane doctor` on this machine: it only looks.

use sealane_conformance::skip::skip_without;
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
