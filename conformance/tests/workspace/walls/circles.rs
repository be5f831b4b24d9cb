//! No circles of modules inside a crate, but those that `circles.toml` gives a reason for.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Deserialize;

use super::modules::Crate;
use super::{packages, table};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    #[serde(default)]
    circle: Vec<AllowedCircle>,
}

/// Files that may name each other, because they are one thing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedCircle {
    #[serde(rename = "crate")]
    package: String,
    files: BTreeSet<String>,
    why: String,
}

#[test]
fn modules_form_no_circles() {
    let Allowed { circle: allowed } = table("circles.toml");
    assert!(allowed.iter().all(|circle| !circle.why.is_empty()), "an allowed circle has a reason");
    let mut used = vec![false; allowed.len()];
    let mut text = String::new();
    for package in packages() {
        for root in &package.roots {
            let of = Crate::read(root, &package.folder);
            for circle in of.circles() {
                let files: BTreeSet<String> = circle.iter().map(|file| of.files[*file].clone()).collect();
                let is_its = |row: &AllowedCircle| row.package == package.name && files.is_subset(&row.files);
                if let Some(row) = allowed.iter().position(is_its) {
                    used[row] = true;
                    continue;
                }
                let _ = writeln!(text, "\n{}: a circle of {} files", package.name, files.len());
                for ((from, to), names) in
                    of.edges.iter().filter(|((a, b), _)| circle.contains(a) && circle.contains(b))
                {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let _ = writeln!(text, "  {} -> {}: {}", of.files[*from], of.files[*to], names.join(", "));
                }
            }
        }
    }
    for (row, _) in allowed.iter().zip(used).filter(|(_, used)| !used) {
        let _ = writeln!(text, "\n{}: {:?} is allowed and is no circle any more", row.package, row.files);
    }
    assert!(
        text.is_empty(),
        "{text}\nmove what both need into a file that both use, or list the circle in circles.toml"
    );
}

/// A crate whose files name each other in every way that the reader has to see.
#[test]
fn circles_are_found_and_nothing_else() {
    let folder = std::env::temp_dir().join(format!("sealane-walls-{}", std::process::id()));
    let files = [
        // The parent declares and re-exports: neither is a dependency.
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f; mod g;\npub use a::A; pub const LEN: usize = 3;"),
        // A circle by imports, one of them by the parent's re-export; d is beside it.
        ("a.rs", "use crate::b::make; pub struct A; fn f() { make(); crate::d::d() }"),
        ("b.rs", "use crate::A; pub fn make() -> A { A }"),
        // A circle by a macro call and by a method's signature.
        ("c.rs", "pub struct C; pub fn c() { assert!(crate::e::holds(1)) }"),
        ("d.rs", "pub fn d() { let _ = crate::LEN; }"),
        ("e.rs", "impl super::c::C { fn e(&self) {} } pub fn holds(_: u8) -> bool { true }"),
        // No circle: test code, and a field that is called like a function elsewhere.
        ("f.rs", "use super::g::G; pub fn value() {}\n#[cfg(test)] mod tests { use super::*; }"),
        (
            "g.rs",
            "pub struct G { value: u8 } impl G { fn v(&self) { println!(\"{}\", self.value) } }\n\
                  #[cfg(test)] mod tests { use crate::f::value; }",
        ),
    ];
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let read = Crate::read(&folder.join("lib.rs"), &folder);
    let circles: Vec<Vec<&str>> =
        read.circles().iter().map(|circle| circle.iter().map(|file| &*read.files[*file]).collect()).collect();
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(circles, [["a.rs", "b.rs"], ["c.rs", "e.rs"]]);
}
