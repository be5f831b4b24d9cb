//! NAT, marks of others, flowtables, bridges, tunnels, sockets of one device and protocols without ports beside
//! policies: what is sealed, arrives, is answered, and leaves in clear, as in a real kernel.

use sealane_conformance::ipsec::{LIMIT, program};
use sealane_conformance::lab::Lab;
use sealane_conformance::recorded::Sequence;
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::{Target, sealane};
use std::process::Command;

const KERNEL: &str = "linux-7.3-net";

/// Runs a program with three namespaces inside a kernel, whose own IPsec serves it, or that of an executable.
fn in_kernel(name: &str, sealane: &str) -> String {
    // Up to 140 cases, which take a minute and a half on an idle machine. scripts/run_tests.py ends a test after 15 minutes.
    let script = format!("for n in c g r; do ip netns add $n; done; {sealane} python3 -B {} c g r", program(name));
    let done = Target::kernel(KERNEL).run(&["sh", "-ec", &script], LIMIT * 4).expect("it starts");
    assert_eq!(done.status, Some(0), "{}", done.text);
    done.text
}

/// The answer of a real kernel to a program.
fn of_linux(test: &str, record: &str, name: &str) -> Option<String> {
    let files = ["conformance/programs/three_spaces.py", &format!("conformance/programs/{name}")];
    Sequence::new(KERNEL, record).files(&files).answer(test, || Some(in_kernel(name, "")))
}

/// Compares what a program prints with Sealane with what it prints in a real kernel, but for lines that are `different`. The
/// program may wait for what is wanted.
fn compare(test: &str, record: &str, name: &str, different: &[(&str, &str)]) {
    compare_with(test, record, name, &[], different);
}

/// The same with variables of the environment that count with Sealane alone.
pub(super) fn compare_with(test: &str, record: &str, name: &str, variables: &[&str], different: &[(&str, &str)]) {
    let (Some(of_linux), Some(mut lab)) = (of_linux(test, record, name), Lab::new(test)) else { return };
    let wanted = as_here(&of_linux, different);
    let (file, sealane) = (lab.file("wanted", &wanted), format!("SEALANE={}", sealane().display()));
    let [c, g, r] = ["c", "g", "r"].map(|which| lab.space(which));
    let program = program(name);
    let argv = [&["env", &sealane], variables, &["python3", "-B", &program, &c, &g, &r, &file]].concat();
    let (status, text) = lab.start(&c, &argv).finish(LIMIT * 2);
    assert_eq!(status, Some(0), "{text}");
    assert_lines(&text, &wanted);
}

/// Compares what a program prints with Sealane inside a kernel, which has what this machine's may lack, with what it
/// prints there without, but for lines that are `different`.
fn compare_in_kernel(test: &str, name: &str, different: &[(&str, &str)]) {
    if !skip_without(test, &[&Target::kernel(KERNEL), &Target::sealane("open")]) {
        let wanted = as_here(&in_kernel(name, ""), different);
        assert_lines(&in_kernel(name, &format!("SEALANE={}", sealane().display())), &wanted);
    }
}

fn assert_lines(found: &str, wanted: &str) {
    let differs = |(found, wanted): (&str, &str)| (found != wanted).then(|| format!("{found}, not {wanted}\n"));
    let differences: String = found.lines().zip(wanted.lines()).filter_map(differs).collect();
    assert!(differences.is_empty() && found.lines().count() == wanted.lines().count(), "{differences}");
}

/// The answer of Linux with what is different here: the end of a title, and what follows it.
fn as_here(of_linux: &str, different: &[(&str, &str)]) -> String {
    let mut used = vec![false; different.len()];
    let lines = of_linux.lines().map(|line| {
        // Titles have colons, too.
        let end = line.find(": answered").or_else(|| line.rfind(": ")).unwrap_or(line.len());
        match different.iter().position(|(what, _)| line[..end].ends_with(what)) {
            Some(at) => {
                used[at] = true;
                format!("{}: {}\n", &line[..end], different[at].1)
            }
            None => format!("{line}\n"),
        }
    });
    let text = lines.collect();
    assert!(used.iter().all(|used| *used), "each of them is tried: {used:?}");
    text
}

/// The translations that come out otherwise here than in Linux whatever the settings are: LIMITATIONS.md, IPSEC-140 and IPSEC-141.
const TRANSLATED: [(&str, &str); 14] = [
    // What is translated does not leave by that device.
    ("TCP: IPv4, masquerade, forwarded", "answered by remote.1; arrived lan.2 > remote.1"),
    ("TCP: IPv6, masquerade, forwarded", "answered by remote.1; arrived lan.2 > remote.1"),
    ("TCP: IPv4, masquerade, own", "answered by remote.1; arrived lan.1 > remote.1"),
    ("TCP: IPv6, masquerade, own", "answered by remote.1; arrived lan.1 > remote.1"),
    ("TCP: IPv4, SNAT out of a policy, forwarded", "nothing"),
    ("TCP: IPv6, SNAT out of a policy, forwarded", "nothing"),
    ("TCP: IPv4, SNAT out of a policy, own", "nothing"),
    ("TCP: IPv6, SNAT out of a policy, own", "nothing"),
    ("IPv4, masquerade, forwarded", "answered by remote.1 2; arrived lan.2 > remote.1 2"),
    ("IPv6, masquerade, forwarded", "answered by remote.1 2; arrived lan.2 > remote.1 2"),
    ("IPv4, masquerade, own", "answered by remote.1 2; arrived lan.1 > remote.1 2"),
    ("IPv6, masquerade, own", "answered by remote.1 2; arrived lan.1 > remote.1 2"),
    // As in Linux in clear; answers are what a policy forbids, or find no connection.
    ("SNAT out of a policy, forwarded", "answers in clear 4; arrived wire.1 > remote.1 2; in clear 2"),
    ("SNAT out of a policy, own", "answers in clear 4; arrived wire.1 > remote.1 2; in clear 2"),
];

fn has_iptables(test: &str) -> bool {
    let has = |name: &&str| Command::new(name).arg("-V").output().is_ok();
    let both = ["iptables-nft-restore", "ip6tables-nft-restore"].iter().all(has);
    if !both {
        skip(test, "iptables is not installed");
    }
    both
}

#[test]
fn nat_and_marks() {
    // LIMITATIONS.md, IPSEC-139.
    const DIFFERENT: [(&str, &str); 15] = [
        // Segments of TCP are lost where datagrams are refused, and its first one is where only the answer is.
        ("TCP: IPv4, SNAT into a policy, own", "nothing"),
        ("TCP: IPv6, SNAT into a policy, own", "nothing"),
        ("TCP: IPv4, NETMAP of sources, own", "nothing"),
        ("TCP: IPv6, NETMAP of sources, own", "nothing"),
        ("TCP: IPv4, redirect, incoming", "nothing"),
        // Source NAT comes after the policies.
        ("IPv4, SNAT into a policy, forwarded", "nothing"),
        ("IPv6, SNAT into a policy, forwarded", "nothing"),
        ("IPv4, SNAT into a policy, own", "not sent: Operation not permitted 2"),
        ("IPv6, SNAT into a policy, own", "not sent: Operation not permitted 2"),
        ("IPv4, NETMAP of sources, forwarded", "nothing"),
        ("IPv6, NETMAP of sources, forwarded", "nothing"),
        ("IPv4, NETMAP of sources, own", "not sent: Operation not permitted 2"),
        ("IPv6, NETMAP of sources, own", "not sent: Operation not permitted 2"),
        // The answer has the address of our device until then.
        ("IPv4, redirect, incoming", "arrived remote.1 > 192.0.0.8 2; no answer: Operation not permitted 2"),
        ("IPv6, redirect, incoming", "nothing"),
    ];
    const TEST: &str = "xfrm_beside::nat_and_marks";
    if has_iptables(TEST) {
        compare(TEST, "xfrm-nat", "nat_matrix.py", &[&DIFFERENT[..], &TRANSLATED].concat());
    }
}

/// The settings of the daemon with which packets come in by the interface that they came by sealed, and are sealed as they leave by
/// theirs.
const BOTH: &str = "IPSEC=incoming = \"device\"\nlate = true";

#[test]
fn nat_and_marks_of_what_is_sealed_as_it_leaves() {
    const TEST: &str = "xfrm_beside::nat_and_marks_of_what_is_sealed_as_it_leaves";
    if has_iptables(TEST) {
        compare_with(TEST, "xfrm-nat", "nat_matrix.py", &[BOTH], &TRANSLATED);
    }
}

#[test]
fn flows_of_a_device_that_are_sealed_as_they_leave() {
    const TEST: &str = "xfrm_beside::flows_of_a_device_that_are_sealed_as_they_leave";
    compare_with(TEST, "xfrm-devices", "devices.py", &[BOTH], &[]);
}

#[test]
fn a_bound_socket_hears_of_the_length_that_fits() {
    const TEST: &str = "xfrm_beside::a_bound_socket_hears_of_the_length_that_fits";
    compare_with(TEST, "xfrm-bound-stream", "bound_stream.py", &[BOTH], &[]);
}

#[test]
fn what_senders_hear_of_policies() {
    // LIMITATIONS.md, IPSEC-144, IPSEC-99 and IPSEC-145.
    const DIFFERENT: [(&str, &str); 18] = [
        ("IPv4, all, own, TCP", "EHOSTUNREACH"),
        ("IPv6, all, own, TCP", "EACCES"),
        ("IPv4, a mark, marked, TCP", "EHOSTUNREACH"),
        ("IPv6, a mark, marked, TCP", "EACCES"),
        ("IPv4, without one, own, TCP", "EHOSTUNREACH"),
        ("IPv6, without one, own, TCP", "EACCES"),
        ("packets wait: counters", "XfrmOutNoStates"),
        ("a tunnel, unreachable, own, UDP", "sent"),
        ("a tunnel, unreachable, own, ping", "sent"),
        ("a tunnel, unreachable, own, connected", "sent"),
        ("a tunnel, blackhole, own, UDP", "sent"),
        ("a tunnel, blackhole, own, ping", "sent"),
        ("a tunnel, blackhole, own, connected", "sent"),
        ("a tunnel, blackhole, own, TCP", "EHOSTUNREACH"),
        ("a tunnel, prohibit, own, UDP", "sent"),
        ("a tunnel, prohibit, own, ping", "sent"),
        ("a tunnel, prohibit, own, connected", "sent"),
        ("a tunnel, prohibit, own, TCP", "EHOSTUNREACH"),
    ];
    compare("xfrm_beside::what_senders_hear_of_policies", "xfrm-refused", "refused.py", &DIFFERENT);
}

#[test]
fn upper_protocols() {
    // That kernel was built without mobility.
    const DIFFERENT: [(&str, &str); 1] = [("IPv6, mobility, a protected message", "sealed")];
    compare("xfrm_beside::upper_protocols", "xfrm-upper-protocols", "upper_protocols.py", &DIFFERENT);
}

#[test]
fn errors_about_protected_flows() {
    // LIMITATIONS.md, IPSEC-151.
    const HEARD: &str = "in clear, its sender hears EHOSTUNREACH, counters none";
    const DIFFERENT: [(&str, &str); 4] = [
        ("IPv4, no flag, at the remote gateway", HEARD),
        ("IPv4, that of states, at the remote gateway", HEARD),
        ("IPv6, no flag, at the remote gateway", HEARD),
        ("IPv6, that of states, at the remote gateway", HEARD),
    ];
    compare("xfrm_beside::errors_about_protected_flows", "xfrm-icmp", "icmp_errors.py", &DIFFERENT);
}

#[test]
fn marks_of_what_comes_in() {
    compare("xfrm_beside::marks_of_what_comes_in", "xfrm-inbound-marks", "inbound_marks.py", &[]);
}

#[test]
fn flows_of_a_device() {
    compare("xfrm_beside::flows_of_a_device", "xfrm-devices", "devices.py", &DEVICES);
}

/// The differences of flows of a device, those first that are about what comes in.
const DEVICES: [(&str, &str); 11] = {
    // LIMITATIONS.md, IPSEC-186 and IPSEC-187.
    const REFUSED: &str = "EPERM, leaves nothing, does not arrive";
    [
        ("an address, from a free socket to a bound one, protected", "sent, leaves ESP, does not arrive"),
        ("an address, from a bound socket to a free one, protected", REFUSED),
        ("an address, from a bound socket to a bound one, protected", REFUSED),
        ("a group, from a free socket to a free one, protected", REFUSED),
        ("a group, from a free socket to a bound one, protected", REFUSED),
        ("a group, from a bound socket to a free one, protected", REFUSED),
        ("a group, from a bound socket to a bound one, protected", REFUSED),
        ("an address of the link, from a free socket to a free one, protected", REFUSED),
        ("an address of the link, from a free socket to a bound one, protected", REFUSED),
        ("an address of the link, from a bound socket to a free one, protected", REFUSED),
        ("an address of the link, from a bound socket to a bound one, protected", REFUSED),
    ]
};

/// The setting of the daemon with which opened packets come in by the interface that they came by sealed.
const BY_DEVICE: &str = "IPSEC=incoming = \"device\"";

#[test]
fn opened_packets_come_in_by_the_interface_that_they_came_by_sealed() {
    // LIMITATIONS.md, IPSEC-221.
    const OURS: &str = "arrives by sealane-ipsec, rules for the wire see 0";
    const OURS_TOO: &str = "arrives, rules for the wire see 0";
    const DIFFERENT: [(&str, &str); 6] = [
        ("IPv4, own, a strict source filter, and another way back", OURS),
        ("IPv4, forwarded, a strict source filter, and another way back", OURS_TOO),
        ("IPv4, own, without our device", OURS),
        ("IPv4, forwarded, without our device", OURS_TOO),
        ("IPv6, own, without our device", OURS),
        ("IPv6, forwarded, without our device", OURS_TOO),
    ];
    const TEST: &str = "xfrm_beside::opened_packets_come_in_by_the_interface_that_they_came_by_sealed";
    compare_with(TEST, "xfrm-incoming", "incoming.py", &[BY_DEVICE], &DIFFERENT);
}

#[test]
fn marks_of_what_comes_in_by_its_interface() {
    const TEST: &str = "xfrm_beside::marks_of_what_comes_in_by_its_interface";
    compare_with(TEST, "xfrm-inbound-marks", "inbound_marks.py", &[BY_DEVICE], &[]);
}

#[test]
fn flows_of_a_device_that_packets_come_in_by() {
    const TEST: &str = "xfrm_beside::flows_of_a_device_that_packets_come_in_by";
    compare_with(TEST, "xfrm-devices", "devices.py", &[BY_DEVICE], &DEVICES[1..]);
}

#[test]
#[ignore = "make accept: boots linux-7.3-net"]
fn tunnels() {
    compare_in_kernel("xfrm_beside::tunnels", "tunnels.py", &[]);
}

#[test]
#[ignore = "make accept: boots linux-7.3-net"]
fn bridges() {
    // LIMITATIONS.md, IPSEC-188.
    const DIFFERENT: [(&str, &str); 2] = [
        ("past policies that protect, with br_netfilter", "0 come back, leaves nothing"),
        ("past policies that block, with br_netfilter", "0 come back, leaves nothing"),
    ];
    compare_in_kernel("xfrm_beside::bridges", "bridges.py", &DIFFERENT);
}

/// This machine's kernel may have no flowtables, so that Sealane runs inside the same kernel.
#[test]
fn flows_that_a_flowtable_has_taken_over() {
    const TEST: &str = "xfrm_beside::flows_that_a_flowtable_has_taken_over";
    const PROGRAM: &str = "flowtable.py";
    let Some(of_linux) = of_linux(TEST, "xfrm-flowtable", PROGRAM) else { return };
    assert_eq!(of_linux.matches("in clear before: True, after: 0, answers: True").count(), 2, "{of_linux}");
    if !skip_without(TEST, &[&Target::kernel(KERNEL), &Target::sealane("open")]) {
        let sealane = format!("SEALANE={}", sealane().display());
        // By the mark of ours that is replaced packets would be sealed: they are dropped.
        let marks = "rules replace marks: in clear: 0, answers: ";
        assert_eq!(of_linux.matches(&format!("{marks}True")).count(), 2, "{of_linux}");
        let wanted = of_linux.replace(&format!("{marks}True"), &format!("{marks}False"));
        assert_eq!(in_kernel(PROGRAM, &sealane), wanted);
        assert_eq!(in_kernel(PROGRAM, &format!("env '{BY_DEVICE}' {sealane}")), wanted);
    }
}

/// The kernel's own devices would look for policies in the kernel, and drop what is routed to them.
#[test]
fn policies_of_vti_devices_are_refused_with_a_sentence() {
    const TEST: &str = "xfrm_beside::policies_of_vti_devices_are_refused_with_a_sentence";
    if skip_without(TEST, &[&Target::kernel(KERNEL), &Target::sealane("open")]) {
        return;
    }
    let script = format!("SEALANE={} sh {}", sealane().display(), program("vti.sh"));
    let done = Target::kernel(KERNEL).run(&["sh", "-ec", &script], LIMIT).expect("it starts");
    let refused = "Error: The mark is the key of a VTI device, which is not served: use an xfrm interface of Sealane's \
                   configuration.";
    let wanted = format!(
        "out by the key of what comes in: added\nout: {refused}\nin: {refused}\nIPv6, out: {refused}\nIPv6, fwd: {refused}\n\
         before its device: added\n\
         a policy for the packets of vti4 is refused\na policy for the packets of vti4 is refused\n\
         a policy for the packets of vti6 is refused\na policy for the packets of vti6 is refused\n\
         policies for the packets of the VTI device late, which the kernel drops\n"
    );
    assert_eq!((done.status, done.text), (Some(0), wanted));
}
