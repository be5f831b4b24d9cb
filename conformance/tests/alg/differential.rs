//! The bounded form of `diff-alg`: random sequences of AF_ALG calls, answered by a real kernel and under `sealane run`.

use sealane_conformance::differ::{Comparison, not_compared};
use sealane_conformance::generate::{NameSet, generate};
use sealane_conformance::recorded::Sequence;
use sealane_conformance::skip::{is_root, skip, skip_without};
use sealane_conformance::target::Target;
use sealane_conformance::transcript::{Block, parse, text, with_known, without_known};
use std::path::PathBuf;
use std::time::Duration;

/// The seed of the sequences, unless SEALANE_SEED says otherwise.
const SEED: u64 = 1;
/// Number of sequences of a comparison, unless SEALANE_SEQUENCES says otherwise.
const SEQUENCES: u64 = 300;

/// Number of calls of a sequence.
const CALLS: usize = 40;

/// The sources of `alg-sequence` that make calls and show their results.
const SOURCES: [&str; 7] = [
    "conformance/src/bin/alg-sequence.rs",
    "conformance/src/perform.rs",
    "conformance/src/plan.rs",
    "conformance/src/rng.rs",
    "conformance/src/sys.rs",
    "conformance/src/sys/odd.rs",
    "conformance/src/sys/packet.rs",
];

fn comparison(kernel: &str, targets: [Target; 2]) -> Comparison {
    Comparison {
        program: PathBuf::from(env!("CARGO_BIN_EXE_alg-sequence")),
        targets,
        seed: number("SEALANE_SEED").unwrap_or(SEED),
        from: 0,
        sequences: number("SEALANE_SEQUENCES").unwrap_or(SEQUENCES),
        calls: CALLS,
        names: "all".to_owned(),
        limit: Duration::from_secs(10),
        reports: 3,
        not_compared: not_compared(kernel),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

fn judge(comparison: &Comparison, reference: &[Block]) {
    let (verdict, sequences) = (comparison.verdict_against(reference).unwrap(), comparison.sequences);
    assert!(verdict.compared * 10 >= sequences * 9, "only {} of {sequences} were compared", verdict.compared);
    assert_eq!(verdict.differing, 0, "\n{}\n{:#?}", verdict.reports.join("\n"), verdict.kinds);
}

/// The generator that Linux has only where it finds enough jitter in the machine's clock at boot: on some machines, and not on others.
const OF_MACHINE: &str = "jitterentropy_rng";

/// An answer without the sequences that name [`OF_MACHINE`]: another machine may have recorded them.
fn without_machine(answer: &str) -> String {
    let mut blocks = parse(answer);
    let names = |sequence| calls_of(SEED, sequence, CALLS).iter().any(|call| call.contains(OF_MACHINE));
    blocks.iter_mut().filter(|block| names(block.number)).for_each(|block| block.lines.clear());
    text(&blocks)
}

/// The calls of a sequence, each as its line begins.
fn calls_of(seed: u64, sequence: u64, calls: usize) -> Vec<String> {
    let calls = generate(seed, sequence, calls, NameSet::All);
    calls.iter().enumerate().map(|(i, call)| format!("{i} {call} = ")).collect()
}

/// Compares the profile of a kernel with the kernel's answers.
fn compare(test: &str, kernel: &str) {
    let ours = Target::sealane(kernel);
    if skip_without(test, &[&ours]) {
        return;
    }
    let comparison = comparison(kernel, [Target::kernel(kernel), ours]);
    let calls = |sequence| calls_of(comparison.seed, sequence, comparison.calls);
    let sequence = Sequence::new(kernel, "alg-calls")
        .text(&(0..comparison.sequences).flat_map(calls).collect::<String>())
        .files(&SOURCES)
        .masked(without_machine)
        .fixed(number("SEALANE_SEED").or(number("SEALANE_SEQUENCES")).is_none());
    let answer = sequence.answer(test, || Some(text(&without_known(comparison.reference().unwrap(), calls))));
    if let Some(answer) = answer {
        let mut reference = with_known(parse(&answer), calls);
        let is_absent = |line: &String| line.contains(OF_MACHINE) && line.ends_with(" = -ENOENT");
        for block in reference.iter_mut().filter(|block| block.lines.iter().any(is_absent)) {
            println!("sequence {} is not compared: {kernel} finds no {OF_MACHINE} on this machine", block.number);
            block.complete = false;
        }
        judge(&comparison, &reference);
    }
}

/// A kernel equals itself, so differences elsewhere come neither from timing nor from numbering.
#[test]
#[ignore = "make accept: boots linux-7.3"]
fn a_kernel_equals_itself() {
    let kernel = Target::kernel("linux-7.3");
    if !skip_without("differential::a_kernel_equals_itself", &[&kernel]) {
        let comparison = comparison("linux-7.3", [kernel.clone(), kernel]);
        judge(&comparison, &comparison.reference().unwrap());
    }
}

#[test]
fn linux_7_3() {
    compare("differential::linux_7_3", "linux-7.3");
}

#[test]
fn linux_7_3_restricted() {
    // The kernel gives root more names than others, and its answers are root's.
    if !is_root() {
        return skip("differential::linux_7_3_restricted", "needs root");
    }
    compare("differential::linux_7_3_restricted", "linux-7.3-restricted");
}

#[test]
fn linux_6_12() {
    compare("differential::linux_6_12", "linux-6.12");
}

#[test]
fn linux_6_1() {
    compare("differential::linux_6_1", "linux-6.1");
}
