//! Makes random AF_ALG calls from a seed and writes one line for each. See `--help`.

use sealane_conformance::generate::{NameSet, generate};
use sealane_conformance::perform::Performer;
use sealane_conformance::plan::Call;
use sealane_conformance::sequences::Options;
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

/// Makes the calls of one sequence; all its descriptors are closed at the end.
fn sequence(out: &mut dyn Write, number: u64, calls: &[(usize, &Call)], dry_run: bool) {
    let mut line = |text: String| {
        // One write a line, so that no line is lost however the program ends.
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
    let (mut names, mut sync) = (NameSet::All, false);
    let o = Options::read(HELP, 40, |arg, value| {
        match arg {
            "--profile" => names = value()?.parse()?,
            "--sync" => sync = true,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let mut out: Box<dyn Write> = match &o.output {
        None => Box::new(std::io::stdout()),
        Some(path) => {
            let mut new = File::options();
            new.write(true).create(true).truncate(true).custom_flags(if sync { libc::O_SYNC } else { 0 });
            Box::new(new.open(path).map_err(|e| format!("{path}: {e}"))?)
        }
    };
    o.each(
        |number| generate(o.seed, number, o.calls, names),
        |number, calls| {
            sequence(&mut out, number, calls, o.dry_run);
            Ok(())
        },
    )
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
