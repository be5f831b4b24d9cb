//! Makes random calls on TCP sockets with TCP-AO's options and writes a line for each. See `--help`.

use sealane_conformance::ao::generate::generate;
use sealane_conformance::ao::perform::Performer;
use sealane_conformance::ao::plan::Call;
use sealane_conformance::sequences::{self, Options};
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

/// Sets up addresses of this machine, and a network behind them that drops everything.
fn set_up() {
    let commands = [
        "ip link set lo up",
        // The second one is for kernels without dummy devices: its other end drops packets for other hosts.
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
        // Devices may exist already, and failures show in the facts.
        let _ = Command::new(words[0]).args(&words[1..]).output();
    }
}

fn sequence(
    out: &mut dyn Write,
    number: u64,
    calls: &[(usize, &Call)],
    settle_ms: u32,
    dry_run: bool,
) -> std::io::Result<()> {
    writeln!(out, "{}", head(number))?;
    let mut performer = Performer::new(settle_ms);
    for (index, call) in calls {
        if dry_run {
            writeln!(out, "{index} {call}")?;
        } else {
            writeln!(out, "{index} {call} {}", performer.perform(call))?;
        }
    }
    drop(performer);
    writeln!(out, "{END}")
}

fn run() -> Result<(), String> {
    let mut settle_ms = 0;
    let o = Options::read(HELP, 60, |arg, value| {
        if arg != "--settle" {
            return Ok(false);
        }
        settle_ms = sequences::number(arg, &value()?)? as u32;
        Ok(true)
    })?;
    let mut out: Box<dyn Write> = match &o.output {
        None => Box::new(std::io::stdout()),
        Some(path) => Box::new(BufWriter::new(File::create(path).map_err(|e| format!("{path}: {e}"))?)),
    };
    if !o.dry_run {
        set_up();
    }
    let failed = |e: std::io::Error| e.to_string();
    o.each(
        |number| generate(o.seed, number, o.calls),
        |number, calls| sequence(&mut out, number, calls, settle_ms, o.dry_run).map_err(failed),
    )?;
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
