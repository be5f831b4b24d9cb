//! Drop-ins that put a unit of systemd under `sealane run`, written from what the unit says.

use super::programs::{self, Need};
use super::unit::{DROP_IN, Unit};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The first line of our drop-ins, by which they are known.
const MARK: &str = "# Written by `sealane adopt`; `sealane adopt --undo` removes it.";
const FOLDER: &str = "etc/systemd/system";

/// Commands of a unit that may ask the kernel about IPsec.
const COMMANDS: [&str; 5] = ["ExecStartPre", "ExecStart", "ExecStartPost", "ExecStop", "ExecStopPost"];
/// Programs in them that certainly do not.
const HARMLESS: [&str; 9] = ["kill", "sleep", "mkdir", "rm", "true", "test", "systemctl", "logger", "swanctl"];

/// Why a unit cannot be adopted.
#[derive(Debug)]
pub enum Error {
    /// There is no such unit, or it is masked.
    NoUnit(String),
    /// Its command cannot be put under a launcher.
    Cannot(String, String),
    /// The service that its program needs is not known.
    Unknown(String),
    /// A file cannot be read or written.
    Io(PathBuf, io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::NoUnit(unit) => write!(f, "there is no unit {unit}, or it is masked"),
            Error::Cannot(unit, why) => write!(f, "{unit} cannot run under sealane: {why}"),
            Error::Unknown(unit) => write!(f, "{unit} is not known: say with --service what its program needs"),
            Error::Io(path, e) => write!(f, "{}: {e}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

/// The name of a unit with its suffix.
#[must_use]
pub fn full_name(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!("{name}.service") }
}

/// The interface that the program of a unit needs, by the table of known programs.
#[must_use]
pub fn need(unit: &str) -> Option<Need> {
    programs::of_unit(unit)
}

/// The text of the drop-in for a unit as it is below `root`, with the launcher at `sealane`.
///
/// # Errors
/// [`Error`]: the unit cannot be adopted.
pub fn drop_in(root: &Path, name: &str, need: Option<Need>, sealane: &str) -> Result<String, Error> {
    let unit = Unit::load(root, name, false).ok_or_else(|| Error::NoUnit(name.to_owned()))?;
    let need = need.or_else(|| programs::of_unit(name)).ok_or_else(|| Error::Unknown(name.to_owned()))?;
    let cannot = |why: &str| Error::Cannot(name.to_owned(), why.to_owned());
    let mut text = format!("{MARK}\n");
    if need != Need::AfAlg {
        text.push_str("[Unit]\nAfter=sealane.service\nWants=sealane.service\n");
    }
    let (flags, commands) = match need {
        // The daemon signs for it; it only has to be there first.
        Need::Peers => return Ok(text),
        Need::Ipsec => ("", &COMMANDS[..]),
        Need::TcpAo => ("--tcp-ao ", &["ExecStart"][..]),
        Need::AfAlg => ("", &["ExecStart"][..]),
    };
    let kind = unit.value("Type").unwrap_or("simple");
    if kind == "forking" {
        return Err(cannot("Type=forking: a launcher stays with its program; let the program stay in the foreground"));
    }
    if unit.list("ExecStart").is_empty() {
        return Err(cannot("it has no ExecStart="));
    }
    text.push_str("[Service]\n");
    for key in commands {
        let lines = unit.list(key);
        let wrapped: Vec<String> = lines
            .iter()
            .map(|line| if is_harmless(line) { Some((*line).to_owned()) } else { wrap(line, sealane, flags) })
            .collect::<Option<_>>()
            .ok_or_else(|| cannot(&format!("{key}= gives its program another name (@)")))?;
        if wrapped.iter().zip(&lines).any(|(new, old)| new != old) {
            let _ = writeln!(text, "{key}=");
            wrapped.iter().for_each(|line| {
                let _ = writeln!(text, "{key}={line}");
            });
        }
    }
    // The program is a child of the launcher, and tells systemd by itself that it is ready.
    if kind.starts_with("notify") {
        text.push_str("NotifyAccess=all\n");
    }
    Ok(text)
}

/// Splits the prefixes of a command off (`systemd.service(5)`).
fn split(line: &str) -> (&str, &str) {
    let rest = line.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    (&line[..line.len() - rest.len()], rest)
}

fn is_harmless(line: &str) -> bool {
    let program = split(line).1.split_whitespace().next().unwrap_or_default();
    super::unit::is_ours(line) || program.rsplit('/').next().is_some_and(|name| HARMLESS.contains(&name))
}

fn wrap(line: &str, sealane: &str, flags: &str) -> Option<String> {
    let (prefix, command) = split(line);
    (!prefix.contains('@')).then(|| format!("{prefix}{sealane} run {flags}-- {command}"))
}

/// The folder of the drop-ins of a unit.
fn folder(root: &Path, name: &str) -> PathBuf {
    root.join(FOLDER).join(format!("{name}.d"))
}

fn path(root: &Path, name: &str) -> PathBuf {
    folder(root, name).join(DROP_IN)
}

/// The drop-in of a unit as it is now, if we have written it.
#[must_use]
pub fn written(root: &Path, name: &str) -> Option<String> {
    fs::read_to_string(path(root, name)).ok().filter(|text| text.starts_with(MARK))
}

/// Whether the drop-in of a unit says something else than one that was written now would. A launcher in another place is no
/// difference.
#[must_use]
pub fn is_stale(root: &Path, name: &str) -> bool {
    let Some(text) = written(root, name) else { return false };
    let launcher = text.lines().find_map(|line| {
        let (_, command) = split(line.strip_prefix("ExecStart=").filter(|c| !c.is_empty())?);
        Some(command.split_whitespace().next()?.to_owned())
    });
    let need = programs::of_unit(name).or_else(|| {
        Some(match (text.contains("run --tcp-ao --"), text.contains("[Unit]"), text.contains("[Service]")) {
            (true, ..) => Need::TcpAo,
            (_, true, true) => Need::Ipsec,
            (_, true, false) => Need::Peers,
            _ => Need::AfAlg,
        })
    });
    drop_in(root, name, need, launcher.as_deref().unwrap_or("/usr/bin/sealane")).ok() != Some(text)
}

/// Writes the drop-in of a unit, and returns its path.
///
/// # Errors
/// [`Error::Cannot`] if somebody else has written a file of this name; [`Error::Io`].
pub fn write(root: &Path, name: &str, text: &str) -> Result<PathBuf, Error> {
    let path = path(root, name);
    let failed = |e| Error::Io(path.clone(), e);
    if path.exists() && written(root, name).is_none() {
        return Err(Error::Cannot(name.to_owned(), format!("{} is not ours", path.display())));
    }
    fs::create_dir_all(folder(root, name)).map_err(failed)?;
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(failed)?;
    Ok(path)
}

/// Removes the drop-in of a unit. Returns whether there was one.
///
/// # Errors
/// [`Error::Io`].
pub fn undo(root: &Path, name: &str) -> Result<bool, Error> {
    if written(root, name).is_none() {
        return Ok(false);
    }
    let path = path(root, name);
    fs::remove_file(&path).map_err(|e| Error::Io(path.clone(), e))?;
    // Others may have drop-ins there.
    let _ = fs::remove_dir(folder(root, name));
    Ok(true)
}

/// The units that have a drop-in of ours.
#[must_use]
pub fn adopted(root: &Path) -> Vec<String> {
    let list = fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten();
    let names = list.filter_map(|e| e.file_name().into_string().ok()?.strip_suffix(".d").map(str::to_owned));
    let mut units: Vec<String> = names.filter(|name| written(root, name).is_some()).collect();
    units.sort();
    units
}

#[cfg(test)]
mod tests {
    use super::super::unit::tests::Tree;
    use super::*;

    const LIBRESWAN: &str = "[Service]\nType=notify\nExecStartPre=/usr/libexec/ipsec/_stackmanager start\nExecStart=/usr/libexec/ipsec/pluto \
                             --config /etc/ipsec.conf --nofork\nExecReload=/usr/libexec/ipsec/whack --listen\nExecStopPost=-/bin/bash -c 'ip xfrm state \
                             flush'\nExecStopPost=/bin/rm -f /run/pluto/pluto.pid\n";

    #[test]
    fn a_key_manager_runs_under_sealane_with_all_that_asks_the_kernel() {
        let tree = Tree::new("pluto", &[("lib/systemd/system/ipsec.service", LIBRESWAN)]);
        let text = drop_in(&tree.0, "ipsec.service", None, "/usr/bin/sealane").unwrap();
        let expected = "[Unit]\nAfter=sealane.service\nWants=sealane.service\n[Service]\nExecStartPre=\nExecStartPre=/usr/bin/sealane run -- \
                        /usr/libexec/ipsec/_stackmanager start\nExecStart=\nExecStart=/usr/bin/sealane run -- /usr/libexec/ipsec/pluto --config \
                        /etc/ipsec.conf --nofork\nExecStopPost=\nExecStopPost=-/usr/bin/sealane run -- /bin/bash -c 'ip xfrm state \
                        flush'\nExecStopPost=/bin/rm -f /run/pluto/pluto.pid\nNotifyAccess=all\n";
        assert_eq!(text, format!("{MARK}\n{expected}"));

        write(&tree.0, "ipsec.service", &text).unwrap();
        assert!(Unit::load(&tree.0, "ipsec.service", true).unwrap().is_wrapped());
        assert_eq!(drop_in(&tree.0, "ipsec.service", None, "/usr/bin/sealane").unwrap(), text, "again");
        assert_eq!(adopted(&tree.0), ["ipsec.service"]);
        assert!(!is_stale(&tree.0, "ipsec.service"));
        tree.write("lib/systemd/system/ipsec.service", &LIBRESWAN.replace("--nofork", "--nofork --new"));
        assert!(is_stale(&tree.0, "ipsec.service"), "the unit has changed");

        assert!(undo(&tree.0, "ipsec.service").unwrap());
        assert!(!undo(&tree.0, "ipsec.service").unwrap());
        assert!(!tree.0.join("etc/systemd/system/ipsec.service.d").exists());
    }

    #[test]
    fn each_service_has_its_own_launcher() {
        let tree = Tree::new(
            "needs",
            &[
                (
                    "lib/systemd/system/bird.service",
                    "[Service]\nExecStartPre=/usr/sbin/bird -p\nExecStart=/usr/sbin/bird -f\n",
                ),
                ("lib/systemd/system/iwd.service", "[Service]\nType=dbus\nExecStart=/usr/libexec/iwd\n"),
                (
                    "lib/systemd/system/frr.service",
                    "[Service]\nType=forking\nExecStart=/usr/lib/frr/frrinit.sh start\n",
                ),
                ("lib/systemd/system/own.service", "[Service]\nExecStart=@/usr/bin/own other\n"),
                ("lib/systemd/system/old.service", "[Service]\nType=forking\nExecStart=/usr/bin/old\n"),
            ],
        );
        let text = |unit: &str, need| drop_in(&tree.0, unit, need, "/s/sealane");
        let bird = text("bird.service", None).unwrap();
        assert!(
            bird.ends_with("[Service]\nExecStart=\nExecStart=/s/sealane run --tcp-ao -- /usr/sbin/bird -f\n"),
            "{bird}"
        );
        let iwd = text("iwd.service", None).unwrap();
        assert!(!iwd.contains("[Unit]") && iwd.ends_with("ExecStart=/s/sealane run -- /usr/libexec/iwd\n"), "{iwd}");
        assert!(text("frr.service", None).unwrap().ends_with("[Unit]\nAfter=sealane.service\nWants=sealane.service\n"));
        assert!(matches!(text("own.service", None), Err(Error::Unknown(_))));
        assert!(matches!(text("own.service", Some(Need::Ipsec)), Err(Error::Cannot(..))));
        assert!(matches!(text("old.service", Some(Need::Ipsec)), Err(Error::Cannot(..))));
        assert!(matches!(text("none.service", None), Err(Error::NoUnit(_))));
    }

    #[test]
    fn a_drop_in_of_somebody_else_stays() {
        let tree = Tree::new("foreign", &[("etc/systemd/system/a.service.d/10-sealane.conf", "[Service]\n")]);
        assert!(matches!(write(&tree.0, "a.service", "x"), Err(Error::Cannot(..))));
        assert!(!undo(&tree.0, "a.service").unwrap());
        assert_eq!(adopted(&tree.0), [""; 0]);
    }
}
