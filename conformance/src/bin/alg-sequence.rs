//! Makes random calls of AF_ALG from a seed and writes one line for each. See `--help`.

use sealane_conformance::generate::{NameSet, generate};
use sealane_conformance::perform::Performer;
use sealane_conformance::plan::Call;
use sealane_conformance::transcript::{END, head};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;

const HELP: &str = "\
usage: alg-sequence [--seed S] [--from I] [--sequences K] [--calls N] [--profile NAMES] [--plan FILE] [--output FILE] [--sync]
                    [--dry-run]

Makes K sequences (default 1) of N calls (default 40), from number I (default 0) on, each determined by S (default 1),
its number, N and the profile of names: core draws generic names that every kernel has, all (default) also driver names
and wrong names, extra also names that a kernel's configuration may leave out.
One line a call: its index, the call, its result.

--plan FILE makes other sequences instead. A line `CANDIDATE NUMBER INDEX,INDEX,...` makes those calls of sequence
NUMBER that are listed, headed by CANDIDATE.
--output FILE writes there; with --sync each line goes to the disk at once and survives the death of the kernel.
--dry-run writes the calls and makes none.

Exit status: 0 done, 2 wrong usage.
";

struct Options {
    seed: u64,
    from: u64,
    sequences: u64,
    calls: usize,
    names: NameSet,
    plan: Option<String>,
    output: Option<String>,
    sync: bool,
    dry_run: bool,
}

fn options() -> Result<Options, String> {
    let mut o = Options {
        seed: 1,
        from: 0,
        sequences: 1,
        calls: 40,
        names: NameSet::All,
        plan: None,
        output: None,
        sync: false,
        dry_run: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let switch = match arg.as_str() {
            "--dry-run" => Some(&mut o.dry_run),
            "--sync" => Some(&mut o.sync),
            _ => None,
        };
        if let Some(switch) = switch {
            *switch = true;
            continue;
        }
        if matches!(arg.as_str(), "--help" | "-h") {
            print!("{HELP}");
            std::process::exit(0);
        }
        let value = args.next().ok_or_else(|| format!("{arg} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{arg}: {value:?} is not a number"));
        match arg.as_str() {
            "--seed" => o.seed = number()?,
            "--from" => o.from = number()?,
            "--sequences" => o.sequences = number()?,
            "--calls" => o.calls = number()? as usize,
            "--profile" => o.names = value.parse()?,
            "--plan" => o.plan = Some(value),
            "--output" => o.output = Some(value),
            _ => return Err(format!("unknown option {arg}")),
        }
    }
    Ok(o)
}

/// Makes the calls of one sequence; all its descriptors are closed at the end.
fn sequence(out: &mut dyn Write, number: u64, calls: &[(usize, &Call)], dry_run: bool) {
    let mut line = |text: String| {
        // A write for each line: whatever ends the program, the lines before it are there.
        let _ = out.write_all((text + "\n").as_bytes());
    };
    line(head(number));
    let mut performer = Performer::default();
    for (index, call) in calls {
        if dry_run {
            line(format!("{index} {call}"));
        } else {
            line(format!("{index} {call} = {}", performer.perform(call)));
        }
    }
    drop(performer);
    line(END.to_owned());
}

fn run() -> Result<(), String> {
    let o = options()?;
    let mut out: Box<dyn Write> = match &o.output {
        None => Box::new(std::io::stdout()),
        Some(path) => {
            let mut new = File::options();
            new.write(true).create(true).truncate(true).custom_flags(if o.sync { libc::O_SYNC } else { 0 });
            Box::new(new.open(path).map_err(|e| format!("{path}: {e}"))?)
        }
    };
    if let Some(path) = &o.plan {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
        for row in text.lines() {
            let fields: Vec<&str> = row.split(' ').collect();
            let [candidate, number, keep] = fields[..] else { return Err(format!("{path}: {row:?}")) };
            let wrong = |_| format!("{path}: {row:?}");
            let calls = generate(o.seed, number.parse().map_err(wrong)?, o.calls, o.names);
            let mut kept = Vec::new();
            for index in keep.split(',').filter(|k| !k.is_empty()) {
                let index: usize = index.parse().map_err(wrong)?;
                kept.push((index, calls.get(index).ok_or_else(|| format!("{path}: no call {index}"))?));
            }
            sequence(&mut out, candidate.parse().map_err(wrong)?, &kept, o.dry_run);
        }
        return Ok(());
    }
    for number in o.from..o.from + o.sequences {
        let calls = generate(o.seed, number, o.calls, o.names);
        sequence(&mut out, number, &calls.iter().enumerate().collect::<Vec<_>>(), o.dry_run);
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("alg-sequence: {message}\n{HELP}");
            ExitCode::from(2)
        }
    }
}
