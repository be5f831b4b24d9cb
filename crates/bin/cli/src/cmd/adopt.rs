//! `sealane adopt`.

use crate::answer::Answer;
use crate::args::Adopt;
use anyhow::{Context, Result};
use sealane_doctor::{Need, adopt as drop_ins};
use std::io::Write;
use std::path::Path;
use std::process::Command;

pub(crate) fn adopt(args: &Adopt, out: &mut impl Write) -> Result<Answer> {
    let root = Path::new("/");
    let units = match &args.units[..] {
        [] if args.all => drop_ins::adopted(root),
        [] => {
            drop_ins::adopted(root).iter().try_for_each(|unit| writeln!(out, "{unit}"))?;
            return Ok(Answer::Yes);
        }
        units => units.iter().map(|unit| drop_ins::full_name(unit)).collect(),
    };
    if args.undo {
        for unit in &units {
            if drop_ins::undo(root, unit)? {
                writeln!(out, "{unit}: its own commands again, once it is restarted")?;
            }
        }
    } else {
        let sealane = std::env::current_exe().context("the path of this program")?;
        // All or none.
        let texts = units
            .iter()
            .map(|unit| drop_ins::drop_in(root, unit, args.service.map(Need::from), &sealane.display().to_string()));
        let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
        for (unit, text) in units.iter().zip(&texts) {
            if args.dry_run {
                write!(out, "{text}")?;
            } else {
                let path = drop_ins::write(root, unit, text)?;
                writeln!(out, "{}", path.display())?;
            }
        }
    }
    // It fails where systemd does not run, which will read the files when it starts.
    if !args.dry_run && Path::new("/run/systemd/system").exists() {
        let status = Command::new("systemctl").arg("daemon-reload").status().context("systemctl daemon-reload")?;
        anyhow::ensure!(status.success(), "systemctl daemon-reload has failed");
    }
    Ok(Answer::Yes)
}
