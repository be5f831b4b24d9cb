//! `af_alg_probe.py` under `sealane run`, compared line by line with the answers of real kernels.

use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::{Target, root, shared};
use std::time::Duration;

/// Width of the name in a line; the answer follows after a blank.
const NAME_WIDTH: usize = 58;

struct Difference {
    line: String,
    here: String,
}

/// Returns the differences allowed for `profile`; each has a reason, and is in LIMITATIONS.md.
fn known(profile: &str) -> Vec<Difference> {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let limitations = read("LIMITATIONS.md");
    let table: toml::Table = read("conformance/known_differences.toml").parse().unwrap();
    let list = table.get("difference").and_then(|d| d.as_array()).cloned().unwrap_or_default();
    let mut out = Vec::new();
    for entry in &list {
        let field =
            |name: &str| entry.get(name).and_then(|v| v.as_str()).unwrap_or_else(|| panic!("{name} in {entry}"));
        let line = field("line");
        assert!(!field("reason").is_empty(), "{line}: no reason");
        assert!(limitations.contains(line), "LIMITATIONS.md does not tell of {line:?}");
        if field("profile") == profile {
            out.push(Difference { line: line.to_owned(), here: field("here").to_owned() });
        }
    }
    out
}

fn split(line: &str) -> (String, String) {
    let at = line.char_indices().nth(NAME_WIDTH).map_or(line.len(), |(i, _)| i);
    (line[..at].trim_end().to_owned(), line[at..].trim().to_owned())
}

fn probe(test: &str, target: &Target, version: &str) {
    let script = shared().join("probes/af_alg_probe.py");
    let transcript = shared().join(format!("probes/af_alg_{version}.txt"));
    let reference = match (script.exists(), std::fs::read_to_string(&transcript)) {
        (true, Ok(text)) => text,
        _ => return skip(test, &format!("no {} (set SEALANE_SHARED)", transcript.display())),
    };
    if skip_without(test, &[target]) {
        return;
    }
    let python = std::env::var("SEALANE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let outcome = target.run(&[&python, &script.to_string_lossy()], Duration::from_secs(240)).unwrap();
    let here: Vec<&str> = outcome.text.lines().collect();
    let reference: Vec<&str> = reference.lines().collect();
    let mut known = if matches!(target, Target::Sealane { .. }) { known(version) } else { Vec::new() };
    let mut wrong = Vec::new();
    for (i, want) in reference.iter().enumerate() {
        let (name, want) = split(want);
        let Some(got) = here.get(i) else {
            wrong.push(format!("{name}: {want}, here nothing (the probe ended: {})", outcome.errors.trim()));
            break;
        };
        let (got_name, got) = split(got);
        if got_name != name {
            wrong.push(format!("line {}: {name:?} in the reference, here {got_name:?}", i + 1));
        } else if got != want {
            match known.iter().position(|d| d.line == name && d.here == got) {
                Some(at) => drop(known.remove(at)),
                None => wrong.push(format!("{name}: {want}, here {got}")),
            }
        }
    }
    if here.len() > reference.len() {
        wrong.push(format!("{} lines more than the reference", here.len() - reference.len()));
    }
    wrong.extend(known.iter().map(|d| format!("{}: listed as a difference, but it is gone", d.line)));
    assert!(wrong.is_empty(), "{}: {} of {} lines\n{}", target.label(), wrong.len(), reference.len(), wrong.join("\n"));
}

/// The profiles run side by side, because the probe mostly waits for calls that block.
#[test]
fn every_line_is_as_recorded() {
    let runs =
        [("probe::linux_6_1", "linux-6.1"), ("probe::linux_6_12", "linux-6.12"), ("probe::linux_7_3", "linux-7.3")];
    std::thread::scope(|scope| {
        for (test, version) in runs {
            scope.spawn(move || probe(test, &Target::sealane(version), version));
        }
    });
}

/// Nothing depends on the place of keys.
#[test]
fn every_line_is_as_recorded_with_guarded_keys() {
    let runs = [
        ("probe::guarded_linux_6_1", "linux-6.1"),
        ("probe::guarded_linux_6_12", "linux-6.12"),
        ("probe::guarded_linux_7_3", "linux-7.3"),
    ];
    std::thread::scope(|scope| {
        for (test, version) in runs {
            scope.spawn(move || probe(test, &Target::guarded(version), version));
        }
    });
}

/// A transcript equals itself, which tests the comparison.
#[test]
#[ignore = "make accept: boots linux-7.3"]
fn the_kernel_itself() {
    probe("probe::the_kernel_itself", &Target::kernel("linux-7.3"), "linux-7.3");
}
