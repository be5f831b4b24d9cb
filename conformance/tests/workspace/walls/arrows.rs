//! `arrows.toml` against the manifests and the roots of the crates.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::modules::Crate;
use super::{Package, packages, table};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrows {
    #[serde(rename = "crate")]
    crates: BTreeMap<String, Row>,
    /// Crates that do not exist yet: their rows hold from their first day on.
    planned: BTreeMap<String, Row>,
    never: Vec<Never>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    uses: Vec<String>,
    /// Crates that its tests may use beside those.
    #[serde(default)]
    tests_use: Vec<String>,
    /// Of a crate that it uses, the only modules that it may name.
    #[serde(default)]
    only: BTreeMap<String, Vec<String>>,
    /// `forbid`, or the reason why the crate has unsafe code.
    r#unsafe: String,
}

/// No path of arrows leads from any of these crates to any of those.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Never {
    from: Vec<String>,
    to: Vec<String>,
    why: String,
}

impl Arrows {
    fn row(&self, name: &str) -> Option<&Row> {
        self.crates.get(name).or_else(|| self.planned.get(name))
    }

    /// Every crate that `name` can reach by the table.
    fn reach(&self, name: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = self.row(name).into_iter().flat_map(|row| &row.uses).map(String::as_str).collect();
        while let Some(name) = next.pop() {
            if seen.insert(name) {
                next.extend(self.row(name).into_iter().flat_map(|row| &row.uses).map(String::as_str));
            }
        }
        seen
    }
}

/// Everything in which the workspace differs from the table.
fn differences(arrows: &Arrows, packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    let exists = |name: &str| packages.iter().any(|package| package.name == name);
    for name in arrows.crates.keys().filter(|name| !exists(name)) {
        wrong.push(format!("{name} has a row and does not exist"));
    }
    for name in arrows.planned.keys().filter(|name| exists(name)) {
        wrong.push(format!("{name} exists and its row is still among the planned ones"));
    }
    for Package { name, uses, tests_use, .. } in packages {
        let Some(row) = arrows.row(name) else {
            wrong.push(format!("{name} has no row"));
            continue;
        };
        for used in uses.iter().filter(|used| !row.uses.contains(used)) {
            wrong.push(format!("{name} -> {used}"));
        }
        for used in tests_use.iter().filter(|used| !row.uses.contains(used) && !row.tests_use.contains(used)) {
            wrong.push(format!("{name} -> {used}, in its tests"));
        }
    }
    for Never { from, to, why } in &arrows.never {
        for from in from {
            let reached = arrows.reach(from);
            for to in to.iter().filter(|to| reached.contains(to.as_str())) {
                wrong.push(format!("the table leads from {from} to {to}: {why}"));
            }
        }
    }
    wrong
}

#[test]
fn every_arrow_is_in_the_table() {
    let wrong = differences(&table("arrows.toml"), &packages());
    assert!(wrong.is_empty(), "conformance/tests/workspace/walls/arrows.toml does not allow:\n{}", wrong.join("\n"));
}

#[test]
fn only_the_allowed_modules_are_named() {
    let arrows: Arrows = table("arrows.toml");
    let mut wrong = Vec::new();
    for package in packages() {
        let Some(row) = arrows.row(&package.name) else { continue };
        for (used, modules) in &row.only {
            for root in &package.roots {
                for path in Crate::read(root, &package.folder).names_of(&used.replace('-', "_")) {
                    if !path.get(1).is_some_and(|module| modules.contains(module)) {
                        wrong.push(format!("{} -> {}", package.name, path.join("::")));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "not among the modules that arrows.toml allows:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_code_is_where_the_table_says() {
    let arrows: Arrows = table("arrows.toml");
    let mut wrong = Vec::new();
    for package in packages() {
        let Some(row) = arrows.row(&package.name) else { continue };
        for root in &package.roots {
            let text = std::fs::read_to_string(root).expect("a source file");
            let forbids = text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
            let at = root.strip_prefix(&package.folder).unwrap_or(root).display();
            match (row.r#unsafe.as_str(), forbids) {
                ("forbid", false) => wrong.push(format!("{}: {at} does not forbid unsafe code", package.name)),
                ("forbid", true) | (_, false) => {}
                (_, true) => wrong.push(format!("{}: {at} forbids unsafe code, its row says otherwise", package.name)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wrong_arrows_are_told() {
    let arrows: Arrows = toml::from_str(
        "[crate.a]\nuses = ['b']\nunsafe = 'forbid'\n[crate.b]\nuses = ['d']\nunsafe = 'forbid'\n\
         [crate.gone]\nuses = []\nunsafe = 'forbid'\n[planned.d]\nuses = []\nunsafe = 'forbid'\n\
         [[never]]\nfrom = ['a']\nto = ['d']\nwhy = 'no'\n",
    )
    .unwrap();
    let package = |name: &str, uses: &[&str], tests_use: &[&str]| Package {
        name: name.to_owned(),
        folder: "/".into(),
        roots: Vec::new(),
        uses: uses.iter().map(|s| (*s).to_owned()).collect(),
        tests_use: tests_use.iter().map(|s| (*s).to_owned()).collect(),
        untested: Vec::new(),
    };
    let packages = [package("a", &["b"], &["b", "d"]), package("b", &["a"], &[]), package("c", &[], &[])];
    assert_eq!(
        differences(&arrows, &packages),
        [
            "gone has a row and does not exist",
            "a -> d, in its tests",
            "b -> a",
            "c has no row",
            "the table leads from a to d: no",
        ]
    );
    assert!(differences(&arrows, &[package("d", &[], &[])]).iter().any(|text| text.starts_with("d exists")));
}
