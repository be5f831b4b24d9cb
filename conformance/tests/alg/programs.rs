//! Unmodified programs, among them some that LD_PRELOAD does not reach: static ones, and Go.

use sealane_conformance::recorded::Sequence;
use sealane_conformance::skip::{is_root, skip, skip_without};
use sealane_conformance::target::{Target, built_programs, root, run_limited, sealane};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The folder with the programs of `programs/`.
fn built() -> PathBuf {
    built_programs(env!("CARGO_TARGET_TMPDIR"))
}

/// Runs the known-answer tests, and the digest of a file, in `target`; returns what it printed, with paths in the repository.
fn ask(test: &str, program: &str, target: &Target) -> Option<String> {
    if skip_without(test, &[target]) {
        return None;
    }
    let path = built().join(program);
    if !path.exists() {
        skip(test, "no Go toolchain to build it with");
        return None;
    }
    let path = path.to_string_lossy();
    let known = target.run(&[&path], LIMIT).unwrap();
    let digest = target.run(&[&path, "sha256", &root().join(FILE).to_string_lossy()], LIMIT).unwrap();
    let text = format!("{}{}status {:?}\n{}", known.text, known.errors, known.status, digest.text);
    Some(text.replace(&format!("{}/", root().display()), ""))
}

/// The file whose digest is asked for.
const FILE: &str = "LICENSE-APACHE";

fn is_right(answer: &str) {
    let path = root().join(FILE);
    let coreutils = Target::Plain.run(&["sha256sum", &path.to_string_lossy()], LIMIT).unwrap();
    let digest = coreutils.text.split(' ').next().expect("a digest");
    assert!(answer.ends_with(&format!("status Some(0)\n{digest}  {FILE}\n")), "{answer}");
    assert!(answer.lines().filter(|l| l.ends_with(" ok")).count() >= 3, "{answer}");
}

fn check(test: &str, program: &str, target: &Target) {
    if let Some(answer) = ask(test, program, target) {
        is_right(&answer);
    }
}

#[test]
fn known_answers_are_linuxs_own() {
    const TEST: &str = "programs::known_answers_are_linuxs_own";
    const KERNEL: &str = "linux-7.3";
    for (program, source) in [("afalg", "afalg.c"), ("afalg-static", "afalg.c"), ("afalg-go", "afalg.go")] {
        let source = format!("conformance/programs/{source}");
        let sequence = Sequence::new(KERNEL, program).files(&[&source, "conformance/programs/build.sh", FILE]);
        if let Some(answer) = sequence.answer(TEST, || ask(TEST, program, &Target::kernel(KERNEL))) {
            is_right(&answer);
        }
    }
}

#[test]
fn dynamic() {
    check("programs::dynamic", "afalg", &Target::sealane("open"));
}

#[test]
fn static_() {
    check("programs::static_", "afalg-static", &Target::sealane("open"));
}

#[test]
fn go() {
    check("programs::go", "afalg-go", &Target::sealane("open"));
}

/// Runs one part of `afalg_fork` under the preloaded library.
fn family(test: &str, arguments: &[&str]) {
    let target = Target::sealane("open");
    if skip_without(test, &[&target]) {
        return;
    }
    let path = built().join("afalg_fork");
    let path = path.to_string_lossy();
    let outcome = target.run(&[&[&*path], arguments].concat(), LIMIT).unwrap();
    assert_eq!((outcome.status, &*outcome.text), (Some(0), "all right\n"), "{arguments:?}: {}", outcome.errors);
}

/// The ways in which `afalg_fork` changes its credentials here: without root only its capabilities.
fn changes() -> &'static [&'static str] {
    if is_root() { &["setuid", "setresuid", "setgroups", "capset", "syscall"] } else { &["capset"] }
}

#[test]
fn parent_and_child_share_operations() {
    family("programs::parent_and_child_share_operations", &["shared"]);
}

#[test]
fn a_childs_key_outlives_the_transform() {
    family("programs::a_childs_key_outlives_the_transform", &["late-key"]);
}

#[test]
fn parent_and_child_share_messages_keys_and_waits() {
    family("programs::parent_and_child_share_messages_keys_and_waits", &["streams"]);
}

/// Relatives that change nothing about their credentials: what they share is what was open at the fork, and holds no
/// address, of data or of code.
#[test]
fn what_parent_and_child_share_has_no_addresses() {
    family("programs::what_parent_and_child_share_has_no_addresses", &["apart"]);
}

/// A child that has changed its credentials does not find the keys of sockets that it has closed, nor of those that its
/// parent opened after the fork, in any memory that it can read.
#[test]
fn no_keys_of_the_parents_after_a_change_of_credentials() {
    for how in changes() {
        family("programs::no_keys_of_the_parents_after_a_change_of_credentials", &["scan", how]);
    }
}

/// Whatever such a child writes into memory that it shares, its parent's sockets go on.
#[test]
fn no_writing_to_the_parent_after_a_change_of_credentials() {
    for how in changes() {
        family("programs::no_writing_to_the_parent_after_a_change_of_credentials", &["scribble", how]);
    }
}

/// The same when the parent changes its credentials and the child does not.
#[test]
fn no_writing_to_a_parent_that_has_changed_its_credentials() {
    for how in changes() {
        family("programs::no_writing_to_a_parent_that_has_changed_its_credentials", &["parent", how]);
    }
}

#[test]
fn sockets_survive_a_change_of_credentials() {
    family("programs::sockets_survive_a_change_of_credentials", &["continue"]);
}

/// Children that are killed at any instruction, with locks in their hands, do not harm their parent's sockets.
#[test]
fn killed_children_do_no_harm() {
    for seed in ["1", "2", "3"] {
        family("programs::killed_children_do_no_harm", &["killed", seed, "300"]);
    }
}

/// A static Go program sets the socket options of TCP-AO in its own network namespace.
#[test]
fn go_sets_keys_of_tcp_ao() {
    let test = "programs::go_sets_keys_of_tcp_ao";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let path = built().join("ao-go");
    if !path.exists() {
        return skip(test, "no Go toolchain to build it with");
    }
    let in_namespace = |under: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]).args(under).arg(&path);
        run_limited(unshare, LIMIT).unwrap()
    };
    let without = in_namespace(&["env"]);
    if !without.errors.starts_with("ao-go: ") && without.status != Some(0) {
        return skip(test, "no network namespace can be made");
    }
    let ours = in_namespace(&[&sealane().to_string_lossy(), "run", "--tcp-ao", "--"]);
    assert_eq!((ours.status, &*ours.text), (Some(0), "all right\n"), "{}", ours.errors);
    if without.status != Some(0) {
        assert_eq!(without.status, Some(2), "{}", without.errors);
    }
}

/// Without Sealane, on a kernel without AF_ALG, the programs fail: the tests above do test Sealane.
#[test]
fn fails_without() {
    let test = "programs::fails_without";
    let path = built().join("afalg");
    let outcome = Target::Plain.run(&[&path.to_string_lossy()], LIMIT).unwrap();
    if outcome.status == Some(0) {
        return skip(test, "this machine's kernel has AF_ALG itself");
    }
    assert_eq!(outcome.status, Some(2), "{}", outcome.errors);
    assert!(outcome.errors.starts_with("afalg: "), "{}", outcome.errors);
}

/// `sealane audit` fails for a program that does not start, instead of reporting that it used nothing.
#[test]
fn no_report_on_what_did_not_start() {
    let test = "programs::no_report_on_what_did_not_start";
    let ours = Target::sealane("open");
    if skip_without(test, &[&ours]) {
        return;
    }
    let mut command = Command::new(sealane());
    command.args(["audit", "--", "no-such-program"]);
    let outcome = run_limited(command, LIMIT).unwrap();
    assert_eq!(outcome.status, Some(127), "{}", outcome.errors);
    assert_eq!(outcome.errors, "sealane: no-such-program: not found\n");
}
