//! The parts of a report: facts, and the findings that follow from them.

use serde::Serialize;

/// A thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Its name.
    pub name: String,
    /// Its state, in words.
    pub state: String,
}

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Something needs doing: a program does not work, or a module is open that seems to be blocked.
    NeedsDoing,
    /// Something that decides could not be seen.
    Unseen,
    /// Good to know; nothing has to be done.
    Note,
}

/// The kind of a finding: `docs/doctor.md` has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// A program needs what the kernel does not give, and is not run under Sealane.
    NotServed,
    /// A program's unit keeps from it what Sealane would serve.
    UnitSandbox,
    /// A unit runs its program under Sealane, but its type or its order does not fit.
    UnitStart,
    /// A module is blocked, and loaded all the same.
    StillLoaded,
    /// A line with `blacklist` blocks nothing.
    BlacklistInVain,
    /// A program is served, and the kernel's code, which nobody needs any more, is not blocked.
    KernelOpen,
    /// The daemon is needed, and its configuration does not say so, or is wrong.
    Configuration,
    /// The daemon is needed, and does not run.
    Daemon,
    /// Keys of the configuration are a keeper's, and the daemon cannot use them.
    Keeper,
    /// The kernel lacks or blocks what the daemon itself needs.
    Kernel,
    /// `/dev/net/tun` is missing.
    TunDevice,
    /// nftables tables of this kernel have no owner that outlives the daemon.
    TableOwner,
    /// The kernel does not tell the launcher of calls.
    UserNotification,
    /// A seccomp filter is in force here.
    SeccompFilter,
    /// A gateway of the configuration has no AF_XDP.
    AfXdp,
    /// IPv4 packets are not forwarded.
    Forwarding,
    /// The source check of each new interface becomes strict.
    RpFilter,
    /// systemd-networkd removes routing rules or routes of others.
    Networkd,
    /// The table that chooses drivers is not of this machine, or is wrong.
    Calibration,
    /// A file could not be read.
    UnreadFile,
}

impl Id {
    /// All of them.
    pub const ALL: [Id; 20] = [
        Id::NotServed,
        Id::UnitSandbox,
        Id::UnitStart,
        Id::StillLoaded,
        Id::BlacklistInVain,
        Id::KernelOpen,
        Id::Configuration,
        Id::Daemon,
        Id::Keeper,
        Id::Kernel,
        Id::TunDevice,
        Id::TableOwner,
        Id::UserNotification,
        Id::SeccompFilter,
        Id::AfXdp,
        Id::Forwarding,
        Id::RpFilter,
        Id::Networkd,
        Id::Calibration,
        Id::UnreadFile,
    ];

    /// Its name in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Id::NotServed => "not-served",
            Id::UnitSandbox => "unit-sandbox",
            Id::UnitStart => "unit-start",
            Id::StillLoaded => "still-loaded",
            Id::BlacklistInVain => "blacklist-in-vain",
            Id::KernelOpen => "kernel-open",
            Id::Configuration => "configuration",
            Id::Daemon => "daemon",
            Id::Keeper => "keeper",
            Id::Kernel => "kernel",
            Id::TunDevice => "tun-device",
            Id::TableOwner => "table-owner",
            Id::UserNotification => "user-notification",
            Id::SeccompFilter => "seccomp-filter",
            Id::AfXdp => "af-xdp",
            Id::Forwarding => "forwarding",
            Id::RpFilter => "rp-filter",
            Id::Networkd => "networkd",
            Id::Calibration => "calibration",
            Id::UnreadFile => "unread-file",
        }
    }
}

/// A conclusion, with the commands of a shell that help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub id: Id,
    /// Its weight.
    pub level: Level,
    /// The conclusion, a sentence.
    pub text: String,
    /// Commands, to be run as root in this order.
    pub commands: Vec<String>,
}

impl Finding {
    pub(crate) fn new(level: Level, id: Id, text: impl AsRef<str>, commands: Vec<String>) -> Self {
        let commands = commands.iter().map(|command| printable(command)).collect();
        Finding { id, level, text: printable(text.as_ref()), commands }
    }
}

/// A text for a terminal: names and lines of files may hold control characters.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_lists_every_finding() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/doctor.md");
        let guide = std::fs::read_to_string(path).unwrap();
        let rows: Vec<&str> =
            guide.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(id, _)| id)).collect();
        assert_eq!(rows, Id::ALL.map(Id::name));
    }

    #[test]
    fn nothing_controls_the_terminal() {
        let finding = Finding::new(Level::Note, Id::Kernel, "a\x1b[2Jb", vec!["c\nd".into()]);
        assert_eq!((finding.text.as_str(), finding.commands[0].as_str()), ("a\u{fffd}[2Jb", "c\u{fffd}d"));
    }
}
