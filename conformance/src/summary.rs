//! The summary at the end of a test run: tests that passed, failed and were skipped, with reasons.
//!
//! It is read from the output of `cargo test` and of scripts. A test that skips itself writes `SKIPPED name: reason`
//! (in `tests/file.rs` its name is `file::test`); scripts write `PASS name`, `FAIL name: reason`, `SKIP name: reason`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The results of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Passed tests by group.
    passed: BTreeMap<String, Vec<String>>,
    /// Failures, by name and reason.
    failed: Vec<(String, String)>,
    /// Skips, by name and reason.
    skipped: Vec<(String, String)>,
}

/// A line of `allowed_skips.txt`: a name and the reason. There are no patterns: whoever adds a test that may be skipped
/// says so.
#[derive(Debug, PartialEq, Eq)]
pub struct AllowedSkip {
    name: String,
    reason: String,
}

/// Reads `name: reason` lines; `#` starts a comment.
///
/// # Errors
/// A sentence naming the line that has no reason.
pub fn allowed_skips(text: &str) -> Result<Vec<AllowedSkip>, String> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| match line.split_once(": ") {
            Some((name, reason)) if !reason.trim().is_empty() => {
                Ok(AllowedSkip { name: name.to_owned(), reason: reason.trim().to_owned() })
            }
            _ => Err(format!("allowed skip without a reason: {line:?}")),
        })
        .collect()
}

impl Summary {
    /// Adds the results in a log. `step` names those that do not name themselves.
    pub fn read(&mut self, step: &str, log: &str) {
        let mut group = step.to_owned();
        // A test whose verdict is on a later line, because something was written in between.
        let mut open: Option<String> = None;
        let mut results: Vec<(String, String, bool)> = Vec::new();
        for line in log.lines() {
            let line = line.trim_end();
            if let Some(rest) = line.trim_start().strip_prefix("Running ") {
                if rest.contains("(target/") || rest.contains("/deps/") {
                    group = group_of(rest);
                }
            } else if let Some(name) = line.trim_start().strip_prefix("Doc-tests ") {
                group = format!("{name} (documentation)");
            } else if let Some(rest) = line.strip_prefix("SKIPPED ").or_else(|| line.strip_prefix("SKIP ")) {
                let (name, reason) = rest.split_once(": ").unwrap_or((rest, "no reason given"));
                self.skipped.push((name.to_owned(), reason.to_owned()));
            } else if let Some(rest) = line.strip_prefix("PASS ") {
                self.passed.entry(group.clone()).or_default().push(rest.to_owned());
            } else if let Some(rest) = line.strip_prefix("FAIL ") {
                let (name, reason) = rest.split_once(": ").unwrap_or((rest, ""));
                self.failed.push((name.to_owned(), reason.to_owned()));
            } else if let Some((name, verdict)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ")) {
                if !self.verdict(&group, name, verdict, &mut results) {
                    open = Some(name.to_owned());
                }
            } else if let Some(name) = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ...")) {
                open = Some(name.to_owned());
            } else if let Some(name) = open.take()
                && !self.verdict(&group, &name, line, &mut results)
            {
                open = Some(name);
            }
        }
        if let Some(name) = open {
            self.failed.push((format!("{group}: {name}"), "it never ended".to_owned()));
        }
        for (group, name, passed) in results {
            // A test that skipped itself is reported as "ok". It may leave out its module, or name its file.
            let stem = group.strip_prefix("tests/").and_then(|f| f.strip_suffix(".rs")).unwrap_or_default();
            let full = format!("{stem}::{name}");
            let is_it =
                |skipped: &str| full.strip_suffix(skipped).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"));
            if passed && self.skipped.iter().any(|(skipped, _)| is_it(skipped)) {
                continue;
            }
            if passed {
                self.passed.entry(group).or_default().push(name);
            } else {
                self.failed.push((format!("{group}: {name}"), String::new()));
            }
        }
    }

    /// Notes the verdict of `cargo test` on a test; returns false when `verdict` is not a verdict.
    fn verdict(&mut self, group: &str, name: &str, verdict: &str, results: &mut Vec<(String, String, bool)>) -> bool {
        match verdict {
            "ok" => results.push((group.to_owned(), name.to_owned(), true)),
            "FAILED" => results.push((group.to_owned(), name.to_owned(), false)),
            _ if verdict == "ignored" || verdict.starts_with("ignored, ") => {
                let reason = verdict.strip_prefix("ignored, ").unwrap_or("ignored, no reason given");
                self.skipped.push((name.to_owned(), reason.to_owned()));
            }
            _ => return false,
        }
        true
    }

    /// Notes the exit status of a step, which may die without reporting a failed test.
    pub fn step(&mut self, step: &str, status: i32, log: &str) {
        let before = (self.ran(), self.failed.len());
        self.read(step, log);
        if status != 0 && self.failed.len() == before.1 {
            self.failed.push((step.to_owned(), format!("ended with status {status}")));
        } else if self.ran() == before.0 {
            self.failed.push((step.to_owned(), "no test ran".to_owned()));
        }
    }

    fn ran(&self) -> usize {
        self.passed.values().map(Vec::len).sum::<usize>() + self.failed.len() + self.skipped.len()
    }

    /// Returns the summary, and whether the run passed. With `strict`, a skip that is not allowed fails it.
    #[must_use]
    pub fn render(&self, allowed: &[AllowedSkip], strict: bool) -> (String, bool) {
        let mut out = String::from("\n==== what ran ====\n");
        for (group, names) in &self.passed {
            let _ = writeln!(out, "{:6} passed  {group}", names.len());
        }
        for (name, reason) in &self.failed {
            let colon = if reason.is_empty() { "" } else { ": " };
            let _ = writeln!(out, "FAILED  {name}{colon}{reason}");
        }
        let mut good = self.failed.is_empty();
        for (name, reason) in &self.skipped {
            match allowed.iter().find(|a| a.name == *name) {
                Some(a) => {
                    let _ = writeln!(out, "skipped {name}: {reason} (allowed: {})", a.reason);
                }
                None => {
                    let _ = writeln!(out, "skipped {name}: {reason}");
                    if strict {
                        good = false;
                        let _ =
                            writeln!(out, "        not listed in conformance/allowed_skips.txt: this fails the run");
                    }
                }
            }
        }
        let passed: usize = self.passed.values().map(Vec::len).sum();
        if passed + self.failed.len() == 0 {
            good = false;
            out += "nothing ran\n";
        }
        let _ = writeln!(out, "{passed} passed, {} failed, {} skipped", self.failed.len(), self.skipped.len());
        (out, good)
    }
}

/// `unittests src/lib.rs (target/debug/deps/sealane_crypto-0123)` -> `sealane-crypto unittests src/lib.rs`.
fn group_of(running: &str) -> String {
    let (what, path) = running.split_once(" (").unwrap_or((running, ""));
    let file = path.trim_end_matches(')').rsplit('/').next().unwrap_or("");
    let package = file.rsplit_once('-').map_or(file, |(name, _)| name).replace('_', "-");
    if what.starts_with("unittests") { format!("{package} {what}") } else { what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
     Running unittests src/lib.rs (target/debug/deps/sealane_crypto-0123abc)

running 4 tests
test a::good ... ok
test a::bad ... FAILED
test a::slow ... ignored, needs an hour
test a::absent ... 
SKIPPED a::absent: no kernel
ok
     Running tests/x.rs (target/debug/deps/x-0123abc)
test whole ... ok
SKIPPED x::part: no root
test part ... ok
   Doc-tests sealane_crypto
test crates/crypto/src/lib.rs - one (line 3) ... ok
";

    fn summary(log: &str) -> Summary {
        let mut s = Summary::default();
        s.step("unit", 0, log);
        s
    }

    #[test]
    fn counts_what_cargo_says() {
        let (text, good) = summary(LOG).render(&[], false);
        assert!(!good);
        assert_eq!(text.lines().last(), Some("3 passed, 1 failed, 3 skipped"));
        assert!(text.contains("FAILED  sealane-crypto unittests src/lib.rs: a::bad"), "{text}");
        assert!(text.contains("skipped a::absent: no kernel"));
        assert!(text.contains("skipped a::slow: needs an hour"));
        assert!(text.contains("1 passed  sealane_crypto (documentation)"));
    }

    #[test]
    fn counts_what_scripts_say() {
        let (text, good) = summary("PASS one\nnoise\nPASS two\nSKIP three: no root\n").render(&[], false);
        assert!(good);
        assert_eq!(text.lines().last(), Some("2 passed, 0 failed, 1 skipped"));
    }

    #[test]
    fn a_skip_must_be_allowed_where_it_is_strict() {
        let log = "PASS one\nSKIP probe::linux_7_3: no kernel\n";
        assert!(!summary(log).render(&[], true).1);
        let allowed = allowed_skips("# comment\nprobe::linux_7_3: no kernels there\n").unwrap();
        assert!(summary(log).render(&allowed, true).1);
        assert!(!summary(&log.replace("7_3", "6_1")).render(&allowed, true).1);
        assert!(allowed_skips("probe::linux_7_3:").is_err());
        let pattern = allowed_skips("probe::*: no kernels there\n").unwrap();
        assert!(!summary(log).render(&pattern, true).1);
    }

    #[test]
    fn silence_is_no_success() {
        let mut s = Summary::default();
        s.step("build", 101, "error: could not compile\n");
        assert!(!s.render(&[], false).1);
        assert!(!summary("nothing of interest\n").render(&[], false).1);
        assert!(!Summary::default().render(&[], false).1);
        let died = summary("test a ... ok\ntest b ... \n");
        assert!(!died.render(&[], false).1);
    }
}
