//! The bounded form of `diff-alg`: random sequences of AF_ALG calls in a real kernel and under `sealane run`.

use sealane_conformance::differ::Comparison;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::Target;
use std::path::PathBuf;
use std::time::Duration;

/// Number of sequences of a comparison, unless SEALANE_SEQUENCES says otherwise; their seed is SEALANE_SEED, or 1.
const SEQUENCES: u64 = 300;

fn compare(test: &str, targets: [Target; 2]) {
    // The program under test comes first: its absence is worse than that of a kernel.
    if skip_without(test, &[&targets[1], &targets[0]]) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let sequences = number("SEALANE_SEQUENCES").unwrap_or(SEQUENCES);
    let comparison = Comparison {
        program: PathBuf::from(env!("CARGO_BIN_EXE_alg-sequence")),
        targets,
        seed: number("SEALANE_SEED").unwrap_or(1),
        from: 0,
        sequences,
        calls: 40,
        names: "all".to_owned(),
        limit: Duration::from_secs(10),
        reports: 3,
    };
    let verdict = comparison.verdict().unwrap();
    assert!(verdict.compared * 10 >= sequences * 9, "only {} of {sequences} were compared", verdict.compared);
    assert_eq!(verdict.differing, 0, "\n{}\n{:#?}", verdict.reports.join("\n"), verdict.kinds);
}

/// A kernel equals itself, so differences elsewhere come neither from timing nor from numbering.
#[test]
fn a_kernel_equals_itself() {
    compare("differential::a_kernel_equals_itself", [Target::kernel("linux-7.3"), Target::kernel("linux-7.3")]);
}

#[test]
fn linux_7_3() {
    compare("differential::linux_7_3", [Target::kernel("linux-7.3"), Target::sealane("linux-7.3")]);
}

#[test]
fn linux_7_3_restricted() {
    let name = "linux-7.3-restricted";
    compare("differential::linux_7_3_restricted", [Target::kernel(name), Target::sealane(name)]);
}

#[test]
fn linux_6_12() {
    compare("differential::linux_6_12", [Target::kernel("linux-6.12"), Target::sealane("linux-6.12")]);
}
