//! Firewall rules that ask for IPsec: those that `sealane check --firewall` says to write instead do the same as the first ones
//! in a real kernel, and it finds all that do not, in files and in force.

use super::xfrm_beside::compare_with;
use sealane_conformance::skip::skip;
use std::process::Command;

#[test]
fn rules_of_nftables() {
    compare_with("xfrm_firewall::rules_of_nftables", "xfrm-firewall", "firewall.py", &[], &[]);
}

/// The kernel has asked nftables; the rules of iptables mean the same.
#[test]
fn rules_of_iptables() {
    const TEST: &str = "xfrm_firewall::rules_of_iptables";
    if ["iptables-restore", "ip6tables-restore"].iter().any(|name| Command::new(name).arg("-V").output().is_err()) {
        return skip(TEST, "iptables is not installed");
    }
    compare_with(TEST, "xfrm-firewall", "firewall.py", &["LANGUAGE=iptables"], &[]);
}
