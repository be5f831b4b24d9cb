//! Units of systemd, read from their files as systemd does: the file of the unit in the first folder that has it, and then
//! drop-ins by name. Enough for what `sealane adopt` and `sealane doctor` have to know; specifiers are left as they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of units below the root, the first one first (`systemd.unit(5)`).
const FOLDERS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// The name of the drop-in that `sealane adopt` writes.
pub const DROP_IN: &str = "10-sealane.conf";

/// A unit of systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its name, such as `strongswan.service`.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// The settings of its section `[Service]` in the order of the files; an empty value takes back those before it.
    settings: Vec<(String, String)>,
}

impl Unit {
    /// Reads a unit below `root`, without our own drop-in if `ours` is false. `None` if there is no such unit, or it is masked.
    #[must_use]
    pub fn load(root: &Path, name: &str, ours: bool) -> Option<Unit> {
        let path = FOLDERS
            .iter()
            .map(|folder| root.join(folder).join(name))
            .find(|path| fs::symlink_metadata(path).is_ok())?;
        let text = fs::read_to_string(&path).ok().filter(|text| !text.is_empty())?;
        let mut settings = service_section(&text);
        // A drop-in of an earlier folder hides one of the same name in a later one.
        let mut drop_ins = BTreeMap::new();
        for folder in FOLDERS {
            let list = fs::read_dir(root.join(folder).join(format!("{name}.d"))).into_iter().flatten().flatten();
            for entry in list.filter(|entry| entry.path().extension().is_some_and(|e| e == "conf")) {
                drop_ins.entry(entry.file_name()).or_insert(entry.path());
            }
        }
        for (_, path) in drop_ins.into_iter().filter(|(file, _)| ours || file != DROP_IN) {
            settings.extend(service_section(&fs::read_to_string(path).unwrap_or_default()));
        }
        Some(Unit { name: name.to_owned(), path, settings })
    }

    /// All values of a setting that is a list, such as `ExecStart`.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for (_, value) in self.settings.iter().filter(|(k, _)| k == key) {
            if value.is_empty() {
                values.clear();
            } else {
                values.push(value.as_str());
            }
        }
        values
    }

    /// The last value of a setting.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.list(key).pop()
    }

    /// Whether its program is started by `sealane run`.
    #[must_use]
    pub fn is_wrapped(&self) -> bool {
        let starts = self.list("ExecStart");
        !starts.is_empty() && starts.iter().all(|line| is_ours(line))
    }
}

/// Whether a command starts a launcher of Sealane's.
pub(crate) fn is_ours(line: &str) -> bool {
    let mut words = line.trim_start_matches(['@', '-', ':', '+', '!', '|']).split_whitespace();
    words.next().is_some_and(|program| program.rsplit('/').next() == Some("sealane")) && words.next() == Some("run")
}

/// The settings of `[Service]` in a file, with lines that go on joined.
fn service_section(text: &str) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut in_service = false;
    let mut joined = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(before) = line.strip_suffix('\\') {
            joined.push_str(before);
            joined.push(' ');
            continue;
        }
        joined.push_str(line);
        let line = std::mem::take(&mut joined);
        if line.starts_with('[') {
            in_service = line == "[Service]";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_service) {
            settings.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    settings
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder with files, removed at the end.
    pub(crate) struct Tree(pub(crate) PathBuf);

    impl Tree {
        pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Tree {
            let root = std::env::temp_dir().join(format!("sealane-doctor-{name}-{}", std::process::id()));
            let tree = Tree(root);
            files.iter().for_each(|(path, text)| tree.write(path, text));
            tree
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_are_read_as_systemd_reads_them() {
        let tree = Tree::new(
            "unit",
            &[
                (
                    "usr/lib/systemd/system/a.service",
                    "[Unit]\nExecStart=/no\n[Service]\n# ExecStart=/no\nExecStart=/usr/bin/a \\\n  -x\nType=notify\n",
                ),
                ("usr/lib/systemd/system/a.service.d/20.conf", "[Service]\nExecStartPre=/b\nType=simple\n"),
                ("usr/lib/systemd/system/a.service.d/30.conf", "[Service]\nExecStart=/hidden\n"),
                ("etc/systemd/system/a.service.d/30.conf", "[Service]\nExecStart=\nExecStart=/c\n"),
                ("etc/systemd/system/a.service.d/10-sealane.conf", "[Service]\nExecStartPre=/ours\n"),
                ("etc/systemd/system/masked.service", ""),
                ("usr/lib/systemd/system/masked.service", "[Service]\nExecStart=/d\n"),
            ],
        );
        let unit = Unit::load(&tree.0, "a.service", false).unwrap();
        assert_eq!(unit.list("ExecStart"), ["/c"]);
        assert_eq!(unit.list("ExecStartPre"), ["/b"]);
        assert_eq!(unit.value("Type"), Some("simple"));
        assert_eq!(Unit::load(&tree.0, "a.service", true).unwrap().list("ExecStartPre"), ["/ours", "/b"]);
        assert_eq!(Unit::load(&tree.0, "masked.service", true), None);
        assert_eq!(Unit::load(&tree.0, "none.service", true), None);
        assert_eq!(service_section("[Service]\nA=/x \\\n# in between\n  -y\n"), [("A".into(), "/x  -y".into())]);
    }

    #[test]
    fn a_launcher_is_recognized() {
        assert!(is_ours("/usr/bin/sealane run -- /usr/sbin/bird"));
        assert!(is_ours("-!sealane run --tcp-ao -- bird"));
        assert!(!is_ours("/usr/bin/sealane daemon"));
        assert!(!is_ours("/usr/sbin/bird sealane run"));
    }
}
