//! The drop-in that puts the program of a unit under `sealane run`.

use crate::facts::UNIT;
use crate::files::Files;
use crate::programs::{self, Means, PREFIXES, Program, Service, Unit};
use std::fmt;
use std::path::Path;

/// A drop-in of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropIn {
    /// Its path.
    pub path: String,
    /// Its lines.
    pub text: String,
}

/// The reason why a unit gets no drop-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDropIn {
    /// There is no such unit, or it starts none of the programs that are known here.
    Unknown,
    /// Its program runs under Sealane already.
    Launched,
    /// The daemon signs the sessions of its program.
    Peers,
    /// Its command tells the program another name for itself (`@`), and no launcher passes that on.
    Renamed,
}

impl fmt::Display for NoDropIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoDropIn::Unknown => {
                "there is no such unit, or it starts no program that Sealane knows: 'systemctl edit' changes its \
                 ExecStart="
            }
            NoDropIn::Launched => "its program runs under Sealane already",
            NoDropIn::Peers => "the daemon signs the sessions of its program, by [[peer]] in its configuration",
            NoDropIn::Renamed => "its ExecStart= begins with @: 'systemctl edit' changes it",
        })
    }
}

impl std::error::Error for NoDropIn {}

/// The path of the drop-in of a unit.
#[must_use]
pub fn path(unit: &str) -> String {
    format!("/etc/systemd/system/{unit}.d/sealane.conf")
}

/// The drop-in of a unit such as `strongswan.service`, whose files are below `root`. `exe` is the executable `sealane`.
///
/// # Errors
/// The reason why there is none.
pub fn drop_in(root: &Path, exe: &str, unit: &str) -> Result<DropIn, NoDropIn> {
    let files = Files::new(root);
    let installed = programs::installed(&files, &files.services());
    let mut pairs = installed.iter().flat_map(|one| one.units.iter().map(move |unit| (one.program, unit)));
    let (program, unit) = pairs.find(|(_, other)| other.name == unit).ok_or(NoDropIn::Unknown)?;
    if unit.is_launched() {
        return Err(NoDropIn::Launched);
    }
    if program.means == Means::Peers {
        return Err(NoDropIn::Peers);
    }
    Ok(DropIn { path: path(&unit.name), text: text(exe, program, unit).ok_or(NoDropIn::Renamed)? })
}

/// The commands by which units, whose files are below `root`, run as their drop-ins say.
#[must_use]
pub fn restart(root: &Path, units: &[String]) -> Vec<String> {
    let files = Files::new(root);
    let installed = programs::installed(&files, &files.services());
    let ours = installed.iter().filter(|one| one.units.iter().any(|unit| units.contains(&unit.name)));
    ours.filter_map(|one| one.program.end()).chain([format!("systemctl restart {}", units.join(" "))]).collect()
}

/// `None` if a command tells the program another name.
fn text(exe: &str, program: &Program, unit: &Unit) -> Option<String> {
    let mut lines = Vec::new();
    if program.service == Service::Ipsec {
        lines.extend(["[Unit]".to_owned(), format!("Wants={UNIT}"), format!("After={UNIT}")]);
    }
    lines.extend(["[Service]".to_owned(), "ExecStart=".to_owned()]);
    for command in unit.commands() {
        let at = command.find(|c: char| !PREFIXES.contains(&c)).unwrap_or(command.len());
        let (prefixes, command) = command.split_at(at);
        if prefixes.contains('@') {
            return None;
        }
        lines.push(format!("ExecStart={prefixes}{} {command}", program.service.launcher(exe)));
    }
    if unit.is_notifying() {
        lines.push("NotifyAccess=all".to_owned());
    }
    if let Some(family) = unit.refused_family(program.service) {
        lines.push(format!("RestrictAddressFamilies={family}"));
    }
    Some(lines.join("\n") + "\n")
}
