//! Runs random sequences of AF_ALG calls in a real kernel and under `sealane run`, and shows where they differ.

use sealane_conformance::differ::{Comparison, not_compared};
use sealane_conformance::target::Target;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
usage: diff-alg [--kernel NAME] [--profile PROFILE | --other-kernel NAME] [--seed S] [--from I] [--sequences K]
                [--calls N] [--names core|all|extra] [--reports R] [--limit SECONDS] [--program PATH]

Makes K sequences (default 300) of N calls (default 40) in kernel NAME (default linux-7.3) of SEALANE_KERNELS and under
`sealane run --profile PROFILE` (default: the kernel's name), and compares them line by line.
linux-7.3-restricted is linux-7.3 with its allowlist in force. --other-kernel compares two kernels.
For the first R (default 3) kinds of difference, calls are dropped while the difference remains; both transcripts are
printed.

Exit status: 0 equal, 1 different, 2 could not be compared.
Environment: SEALANE_KERNELS (default ../shared/kernel), SEALANE (default target/release/sealane).
";

fn comparison() -> Result<Comparison, String> {
    let (mut kernel, mut profile, mut other) = ("linux-7.3".to_owned(), None, None);
    let mut c = Comparison {
        program: std::env::current_exe().map_err(|e| e.to_string())?.with_file_name("alg-sequence"),
        targets: [Target::Plain, Target::Plain],
        seed: 1,
        from: 0,
        sequences: 300,
        calls: 40,
        names: "all".to_owned(),
        limit: Duration::from_secs(10),
        reports: 3,
        not_compared: &[],
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if matches!(arg.as_str(), "--help" | "-h") {
            print!("{HELP}");
            std::process::exit(0);
        }
        let value = args.next().ok_or_else(|| format!("{arg} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{arg}: {value:?} is not a number"));
        match arg.as_str() {
            "--kernel" => kernel = value,
            "--profile" => profile = Some(value),
            "--other-kernel" => other = Some(value),
            "--seed" => c.seed = number()?,
            "--from" => c.from = number()?,
            "--sequences" => c.sequences = number()?,
            "--calls" => c.calls = number()? as usize,
            "--names" => c.names = value,
            "--reports" => c.reports = number()? as usize,
            "--limit" => c.limit = Duration::from_secs(number()?),
            "--program" => c.program = PathBuf::from(value),
            _ => return Err(format!("unknown option {arg}\n{HELP}")),
        }
    }
    if c.calls == 0 || c.sequences == 0 {
        return Err("nothing to compare".to_owned());
    }
    c.not_compared = not_compared(&kernel);
    let second = match other {
        Some(name) => Target::kernel(&name),
        None => Target::sealane(profile.as_ref().unwrap_or(&kernel)),
    };
    c.targets = [Target::kernel(&kernel), second];
    match c.targets.iter().find_map(Target::missing) {
        Some(reason) => Err(reason),
        None => Ok(c),
    }
}

fn main() -> ExitCode {
    let done = comparison().and_then(|c| c.verdict().map(|v| (c, v)));
    let (comparison, verdict) = match done {
        Ok(done) => done,
        Err(message) => {
            eprintln!("diff-alg: {message}");
            return ExitCode::from(2);
        }
    };
    for report in &verdict.reports {
        println!("{report}");
    }
    for (kind, count) in &verdict.kinds {
        println!("{count:6} x  {kind}");
    }
    let [a, b] = &comparison.targets;
    if !verdict.reference_died.is_empty() {
        println!("{} died or hung in sequences {:?}: not compared", a.label(), verdict.reference_died);
    }
    println!(
        "{} against {}: {} sequences of {} calls, {} differ",
        b.label(),
        a.label(),
        verdict.compared,
        comparison.calls,
        verdict.differing
    );
    ExitCode::from(u8::from(verdict.differing > 0))
}
