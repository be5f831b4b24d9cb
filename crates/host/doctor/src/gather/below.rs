//! Files below a root folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The text of a file; empty if it cannot be read.
pub(super) fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

/// Files that end in `.conf` of several folders: one of an earlier folder hides one of the same name in a later one. By name.
pub(super) fn files(root: &Path, folders: &[&str]) -> Vec<(String, String)> {
    let mut found = BTreeMap::new();
    for folder in folders {
        for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".conf") {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                found.entry(name.clone()).or_insert((format!("/{folder}/{name}"), text));
            }
        }
    }
    found.into_values().collect()
}
