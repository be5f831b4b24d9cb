//! Makes random calls on TCP sockets with TCP-AO's options and writes a line for each. See `--help`.

use sealane_conformance::ao::generate::generate;
use sealane_conformance::ao::perform::Performer;
use sealane_conformance::ao::plan::Call;
use sealane_conformance::transcript::{END, head};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::{Command, ExitCode};

const HELP: &str = "\
usage: ao-calls [--seed S] [--from I] [--sequences K] [--calls N] [--plan FILE] [--output FILE] [--settle MS] [--dry-run]

Makes K sequences (default 1) of N calls (default 60), from number I (default 0) on, each determined by S (default 1), its
number and N. For a machine of its own: it gives addresses to the interface dummy0 and needs root.
One line a call: its index, the call, `@` facts about the socket, `=` the answer.

--plan FILE makes other sequences instead. A line `CANDIDATE NUMBER INDEX,INDEX,...` makes those calls of sequence
NUMBER that are listed, headed by CANDIDATE.
--settle MS waits that long at most for a connect() to this machine to get on, where handshakes take time.
--dry-run writes the calls and makes none.

Exit status: 0 done, 2 wrong usage.
";

struct Options {
    seed: u64,
    from: u64,
    sequences: u64,
    calls: usize,
    plan: Option<String>,
    output: Option<String>,
    settle_ms: u32,
    dry_run: bool,
}

fn options() -> Result<Options, String> {
    let mut o =
        Options { seed: 1, from: 0, sequences: 1, calls: 60, plan: None, output: None, settle_ms: 0, dry_run: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--dry-run" => {
                o.dry_run = true;
                continue;
            }
            "--help" | "-h" => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => {}
        }
        let value = args.next().ok_or_else(|| format!("{arg} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{arg}: {value:?} is not a number"));
        match arg.as_str() {
            "--seed" => o.seed = number()?,
            "--from" => o.from = number()?,
            "--sequences" => o.sequences = number()?,
            "--calls" => o.calls = number()? as usize,
            "--plan" => o.plan = Some(value),
            "--output" => o.output = Some(value),
            "--settle" => o.settle_ms = number()? as u32,
            _ => return Err(format!("unknown option {arg}")),
        }
    }
    Ok(o)
}

/// Addresses that are this machine's own, and a network behind them that swallows everything.
fn set_up() {
    let commands = [
        "ip link set lo up",
        // The second for kernels without dummy devices: its other end takes no packet that is not for it.
        "ip link add dummy0 type dummy",
        "ip link add dummy0 type veth peer name dummy1",
        "ip link set dummy0 arp off",
        "ip link set dummy1 up",
        "ip addr add 10.9.0.1/24 dev dummy0",
        "ip addr add 2001:db8:9::1/64 dev dummy0 nodad",
        "ip link set dummy0 up",
        "ip route add default dev dummy0",
        "ip -6 route add default dev dummy0",
    ];
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        // What is there already is fine; what fails shows in the facts.
        let _ = Command::new(words[0]).args(&words[1..]).output();
    }
}

fn sequence(out: &mut dyn Write, number: u64, calls: &[(usize, &Call)], o: &Options) -> std::io::Result<()> {
    writeln!(out, "{}", head(number))?;
    let mut performer = Performer::new(o.settle_ms);
    for (index, call) in calls {
        if o.dry_run {
            writeln!(out, "{index} {call}")?;
        } else {
            writeln!(out, "{index} {call} {}", performer.perform(call))?;
        }
    }
    drop(performer);
    writeln!(out, "{END}")
}

fn run() -> Result<(), String> {
    let o = options()?;
    let mut out: Box<dyn Write> = match &o.output {
        None => Box::new(std::io::stdout()),
        Some(path) => Box::new(BufWriter::new(File::create(path).map_err(|e| format!("{path}: {e}"))?)),
    };
    if !o.dry_run {
        set_up();
    }
    let failed = |e: std::io::Error| e.to_string();
    let Some(path) = &o.plan else {
        for number in o.from..o.from + o.sequences {
            let calls = generate(o.seed, number, o.calls);
            sequence(&mut out, number, &calls.iter().enumerate().collect::<Vec<_>>(), &o).map_err(failed)?;
        }
        return out.flush().map_err(failed);
    };
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    for row in text.lines() {
        let fields: Vec<&str> = row.split(' ').collect();
        let [candidate, number, keep] = fields[..] else { return Err(format!("{path}: {row:?}")) };
        let wrong = |_| format!("{path}: {row:?}");
        let calls = generate(o.seed, number.parse().map_err(wrong)?, o.calls);
        let mut kept = Vec::new();
        for index in keep.split(',').filter(|k| !k.is_empty()) {
            let index: usize = index.parse().map_err(wrong)?;
            kept.push((index, calls.get(index).ok_or_else(|| format!("{path}: no call {index}"))?));
        }
        sequence(&mut out, candidate.parse().map_err(wrong)?, &kept, &o).map_err(failed)?;
    }
    out.flush().map_err(failed)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("ao-calls: {message}\n{HELP}");
            ExitCode::from(2)
        }
    }
}
