//! Processes of this network namespace that use what Sealane serves.

use super::super::facts::Process;
use super::super::programs::KNOWN;
use super::below::read;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

struct Entry {
    name: String,
    parent: u32,
    arguments: Vec<String>,
    netns: Option<PathBuf>,
}

/// The processes, by number.
pub(super) struct Table {
    by_pid: BTreeMap<u32, Entry>,
    netns: Option<PathBuf>,
}

impl Table {
    /// Reads /proc below `root`. A process that ends meanwhile is left out.
    pub(super) fn read(root: &Path) -> Self {
        let entry = |pid: u32| {
            let text = read(root, &format!("proc/{pid}/stat"));
            // The name is in brackets, and may have any bytes in it.
            let (before, after) = text.rsplit_once(')')?;
            let parent = after.split_whitespace().nth(1)?.parse().ok()?;
            let arguments = read(root, &format!("proc/{pid}/cmdline"));
            Some(Entry {
                name: before.split_once('(')?.1.to_owned(),
                parent,
                arguments: arguments.split('\0').map(str::to_owned).collect(),
                netns: fs::read_link(root.join(format!("proc/{pid}/ns/net"))).ok(),
            })
        };
        let list = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
        let pids = list.filter_map(|e| e.file_name().to_str()?.parse().ok());
        Table {
            by_pid: pids.filter_map(|pid| Some((pid, entry(pid)?))).collect(),
            netns: fs::read_link(root.join("proc/self/ns/net")).ok(),
        }
    }

    /// Processes of this network namespace.
    fn here(&self) -> impl Iterator<Item = (&u32, &Entry)> {
        self.by_pid.iter().filter(|(_, entry)| self.netns.is_none() || entry.netns == self.netns)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.here().any(|(_, entry)| entry.name == name)
    }

    /// Whether `sealane daemon` runs.
    pub(super) fn has_daemon(&self) -> bool {
        self.here().any(|(_, entry)| entry.is_ours("daemon"))
    }

    /// Those of known programs.
    pub(super) fn known(&self) -> Vec<Process> {
        let known = self.here().filter_map(|(&pid, entry)| {
            let known = KNOWN.iter().find(|known| known.comms.contains(&&*entry.name))?;
            Some(Process { pid, name: entry.name.clone(), need: known.need, served: self.is_served(entry.parent) })
        });
        known.collect()
    }

    /// Whether a process or one of its ancestors is a launcher.
    fn is_served(&self, mut pid: u32) -> bool {
        // Numbers that are used again could make a circle.
        for _ in 0..64 {
            let Some(entry) = self.by_pid.get(&pid) else { return false };
            if entry.is_ours("run") {
                return true;
            }
            pid = entry.parent;
        }
        false
    }
}

impl Entry {
    fn is_ours(&self, command: &str) -> bool {
        let program = self.arguments.first().and_then(|path| path.rsplit('/').next());
        program == Some("sealane") && self.arguments.get(1).is_some_and(|word| word == command)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::unit::tests::Tree;
    use super::*;

    #[test]
    fn a_launcher_serves_its_descendants() {
        let tree = Tree::new(
            "processes",
            &[
                ("proc/10/stat", "10 (sealane) S 1 1 1"),
                ("proc/10/cmdline", "/usr/bin/sealane\0run\0--\0charon-systemd\0"),
                ("proc/11/stat", "11 (sh) S 10 1 1"),
                ("proc/12/stat", "12 (charon-systemd) S 11 1 1"),
                ("proc/20/stat", "20 (pluto) S 1 1 1"),
                ("proc/21/stat", "21 (a) (b) S 20 1 1"),
                ("proc/30/stat", "30 (sealane) S 1 1 1"),
                ("proc/30/cmdline", "sealane\0daemon\0"),
            ],
        );
        let table = Table::read(&tree.0);
        let seen: Vec<_> = table.known().into_iter().map(|p| (p.pid, p.served)).collect();
        assert_eq!(seen, [(12, true), (20, false)]);
        assert!(table.has_daemon() && table.has("pluto") && !table.has("bird"));
    }
}
