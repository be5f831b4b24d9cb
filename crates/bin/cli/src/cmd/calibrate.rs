//! `sealane crypto calibrate`.

use crate::answer::Answer;
use crate::args::Calibrate;
use anyhow::{Context, Result, bail};
use sealane_crypto::choice::Table;
use sealane_drivers::{calibrate, tables};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn calibrate(args: &Calibrate, out: &mut impl Write) -> Result<Answer> {
    if args.cell_ms == 0 {
        bail!("--cell-ms must be at least 1");
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => tables::user_path().context("neither XDG_CONFIG_HOME nor HOME is set: name a file with --output")?,
    };
    let to_stdout = path == Path::new("-");
    // With --only the rest of an existing table is kept; otherwise the table is built from scratch.
    let base = match (&args.only, to_stdout) {
        (Some(_), false) if path.exists() => {
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Table::parse(&text).with_context(|| format!("{} is malformed", path.display()))?
        }
        _ => Table::default(),
    };
    let registry = super::registry_with(Table::default());
    let only = args.only.as_deref().unwrap_or("");
    let start = Instant::now();
    let live = std::io::stderr().is_terminal();
    let table = calibrate::calibrate(&registry, base, only, Duration::from_millis(args.cell_ms), |p| {
        if live {
            eprint!("\r\x1b[Kmeasuring {} of {}: {}", p.done + 1, p.total, p.alg);
        }
    });
    if live {
        eprint!("\r\x1b[K");
    }
    if table.is_empty() {
        eprintln!("sealane: nothing to measure: no algorithm whose name contains '{only}' has more than one driver");
        return Ok(Answer::No);
    }
    if to_stdout {
        write!(out, "{table}")?;
    } else {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create the folder {}", dir.display()))?;
        }
        // Writing a temporary file and renaming it keeps readers from seeing an incomplete table.
        let beside = path.with_extension("new");
        std::fs::write(&beside, table.to_string()).with_context(|| format!("cannot write {}", beside.display()))?;
        std::fs::rename(&beside, &path).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!(
            "sealane: measured {} algorithms on {} in {:.0} s: {}",
            table.algs().map(|(a, _)| a).collect::<std::collections::BTreeSet<_>>().len(),
            table.cpu,
            start.elapsed().as_secs_f64(),
            path.display()
        );
    }
    Ok(Answer::Yes)
}
