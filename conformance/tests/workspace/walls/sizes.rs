//! No crate is larger than one person can read.

use std::path::Path;

use super::{packages, rust_files};

/// The lines of a crate's `src`, comments and tests included. A crate that outgrows them is split: a part of it that others
/// can use without the rest becomes a crate.
const MAX_LINES: usize = 12_000;

/// The lines of all Rust files below a folder.
fn lines(folder: &Path) -> usize {
    let of = |path| std::fs::read_to_string(path).expect("a source file").lines().count();
    rust_files(folder, |_| true).into_iter().map(of).sum()
}

#[test]
fn no_crate_is_too_large() {
    let sizes = packages().into_iter().map(|package| (lines(&package.folder.join("src")), package.name));
    let wrong: Vec<String> =
        sizes.filter(|(lines, _)| *lines > MAX_LINES).map(|(lines, name)| format!("{name}: {lines} lines")).collect();
    assert!(wrong.is_empty(), "more than {MAX_LINES} lines below src:\n{}", wrong.join("\n"));
}

#[test]
fn all_lines_are_counted() {
    let folder = std::env::temp_dir().join(format!("sealane-walls-lines-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("bin/inner")).unwrap();
    for (name, text) in [
        ("lib.rs", "mod a;\n\n// A comment.\n"),
        ("a.rs", "fn a() {}"),
        ("bin/b.rs", "fn main() {\n}\n"),
        ("bin/inner/c.rs", "\n"),
        ("table.txt", "a\nb\n"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let counted = lines(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(counted, 3 + 1 + 2 + 1);
}
