//! The walls of the workspace: the crates each crate may use, where unsafe code is allowed, no circles of modules, and no
//! crate that is too large.
//!
//! The tables are `arrows.toml` and `circles.toml` in this folder. Cargo enforces what a manifest says; this test holds
//! the manifests themselves. It needs nothing but the sources, so it never skips.

use std::path::{Path, PathBuf};
use std::process::Command;

use sealane_conformance::target::root;
use serde_json::Value;

mod arrows;
mod circles;
mod modules;
mod sizes;

/// A crate of the workspace as its manifest describes it.
struct Package {
    name: String,
    folder: PathBuf,
    /// The root files of its library and its programs.
    roots: Vec<PathBuf>,
    /// Crates of the workspace that it is built with, build scripts included.
    uses: Vec<String>,
    /// Crates of the workspace that its tests are built with.
    tests_use: Vec<String>,
    /// The root files of its library and its programs that are not built as tests of themselves.
    untested: Vec<PathBuf>,
}

/// The crates of the workspace, by name.
fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(words).current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |value: &Value| value.as_array().expect("an array").clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut packages: Vec<Package> = list(&metadata["packages"])
        .iter()
        .map(|package| {
            // Crates of the workspace are those with a path.
            let uses = |tests: bool| {
                let dependencies = list(&package["dependencies"]);
                let ours = dependencies.iter().filter(|d| d["path"].is_string() && (d["kind"] == "dev") == tests);
                ours.map(|d| text(&d["name"])).collect()
            };
            let is_built = |target: &&Value| {
                list(&target["kind"]).iter().any(|kind| ["lib", "rlib", "cdylib", "bin"].contains(&&*text(kind)))
            };
            let roots = |which: &dyn Fn(&Value) -> bool| {
                let targets = list(&package["targets"]);
                let targets = targets.iter().filter(is_built).filter(|target| which(target));
                targets.map(|target| text(&target["src_path"]).into()).collect()
            };
            Package {
                name: text(&package["name"]),
                folder: Path::new(&text(&package["manifest_path"])).parent().expect("a folder").to_owned(),
                roots: roots(&|_| true),
                untested: roots(&|target| target["test"] == false),
                uses: uses(false),
                tests_use: uses(true),
            }
        })
        .collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    packages
}

/// A table beside this file.
fn table<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = root().join("conformance/tests/workspace/walls").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A manifest that says `test = false` saves an empty executable, and would silence tests that somebody adds.
#[test]
fn no_tests_are_where_none_are_built() {
    for package in packages() {
        for root in &package.untested {
            for file in sources(root) {
                let text = std::fs::read_to_string(&file).expect("a source file");
                let is_silent = text.contains("#[test]");
                assert!(
                    !is_silent,
                    "{}: {} has tests, and its manifest says test = false",
                    package.name,
                    file.display()
                );
            }
        }
    }
}

/// The files of a library or a program: those of its folder, but for the programs beside it, or the file alone.
fn sources(root: &Path) -> Vec<PathBuf> {
    if !["lib.rs", "main.rs"].iter().any(|name| root.ends_with(name)) {
        return vec![root.to_owned()];
    }
    rust_files(root.parent().expect("a folder"), |folder| !folder.ends_with("bin"))
}

/// The Rust files below a folder, but for those in folders that `enter` refuses.
fn rust_files(folder: &Path, enter: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if enter(&path) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
