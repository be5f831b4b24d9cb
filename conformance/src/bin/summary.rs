//! Prints the summary of a test run. See `--help`.

use sealane_conformance::summary::{Summary, allowed_skips};
use sealane_conformance::target::root;
use std::process::ExitCode;

const HELP: &str = "\
usage: summary STEP=STATUS=LOG...

Each step of a test run gives its name, its exit status and the file with its output (of `cargo test`, or lines
PASS name, FAIL name: reason, SKIP name: reason). Prints what passed, failed and was skipped; the last line is
`N passed, N failed, N skipped`. With CI=true in the environment, a skip must be listed in
conformance/allowed_skips.txt.

Exit status: 0 good, 1 not, 2 wrong usage.
";

fn run() -> Result<bool, String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() || args.iter().any(|a| a == "--help" || a == "-h") {
        return Err(HELP.to_owned());
    }
    let list = root().join("conformance/allowed_skips.txt");
    let text = std::fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let allowed = allowed_skips(&text)?;
    let mut summary = Summary::default();
    for arg in &args {
        let fields: Vec<&str> = arg.splitn(3, '=').collect();
        let [step, status, log] = fields[..] else { return Err(format!("{arg:?}: expected STEP=STATUS=LOG")) };
        let status = status.parse().map_err(|_| format!("{arg:?}: {status:?} is no status"))?;
        let bytes = std::fs::read(log).map_err(|e| format!("{log}: {e}"))?;
        summary.step(step, status, &String::from_utf8_lossy(&bytes));
    }
    let strict = std::env::var("CI").is_ok_and(|v| v == "true");
    let (block, good) = summary.render(&allowed, strict);
    print!("{block}");
    Ok(good)
}

fn main() -> ExitCode {
    match run() {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(message) => {
            eprintln!("summary: {message}");
            ExitCode::from(2)
        }
    }
}
