//! `sealane adopt`: puts units of systemd under Sealane, by drop-ins, and takes these away.

use crate::answer::Answer;
use crate::args::Adopt;
use anyhow::{Context, Result, ensure};
use sealane_doctor::adopt::{self, DropIn};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

pub(crate) fn adopt(args: &Adopt, out: &mut impl Write) -> Result<Answer> {
    let units: Vec<String> = args.units.iter().map(|name| full(name)).collect::<Result<_>>()?;
    if args.undo {
        undo(&units)?;
    } else {
        let exe = std::env::current_exe().context("cannot find our own executable")?.display().to_string();
        let one = |unit: &String| adopt::drop_in(Path::new("/"), &exe, unit).with_context(|| unit.clone());
        units.iter().map(one).collect::<Result<Vec<DropIn>>>()?.iter().try_for_each(write)?;
    }
    reload()?;
    for command in adopt::restart(Path::new("/"), &units) {
        writeln!(out, "{command}")?;
    }
    Ok(Answer::Yes)
}

/// The name of a unit with its suffix, which systemctl(1) adds, too.
fn full(name: &str) -> Result<String> {
    ensure!(!name.contains('/'), "{name}: the name of a unit has no '/'");
    Ok(if name.contains('.') { name.to_owned() } else { format!("{name}.service") })
}

fn write(drop_in: &DropIn) -> Result<()> {
    let path = Path::new(&drop_in.path);
    let folder = path.parent().context("a drop-in has a folder")?;
    fs::create_dir_all(folder).and_then(|()| fs::write(path, &drop_in.text)).with_context(|| drop_in.path.clone())
}

fn undo(units: &[String]) -> Result<()> {
    let paths: Vec<String> = units.iter().map(|unit| adopt::path(unit)).collect();
    for path in &paths {
        ensure!(Path::new(path).exists(), "{path}: there is none to remove");
    }
    for path in &paths {
        fs::remove_file(path).with_context(|| path.clone())?;
        let folder = Path::new(path).parent().context("a drop-in has a folder")?;
        match fs::remove_dir(folder) {
            // Drop-ins of others stay.
            Err(e) if e.kind() != ErrorKind::DirectoryNotEmpty => return Err(e).context(folder.display().to_string()),
            _ => {}
        }
    }
    Ok(())
}

/// Lets systemd read its files again, if it runs here.
fn reload() -> Result<()> {
    if Path::new("/run/systemd/system").exists() {
        let status = Command::new("systemctl").arg("daemon-reload").status().context("systemctl")?;
        ensure!(status.success(), "systemctl daemon-reload: {status}");
    }
    Ok(())
}
