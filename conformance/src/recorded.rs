//! Answers of real kernels to sequences that never change: asked for once, kept in the repository, compared from then on.
//!
//! A [`Sequence`] names a kernel and everything that determines its answer. The answer is in `recorded/KERNEL/NAME.txt`,
//! below a line with the test, the kernel's release, the versions of tools, and a digest of the sequence: a record of
//! another sequence is stale and never compared with. Tools print an answer and do not change it. Where they have other
//! versions, a record says nothing.
//!
//! | | there is a record | it is stale, or there is none | other tools made it |
//! |---|---|---|---|
//! | | it is the answer | a boot | a boot |
//! | `CI=true` | it is the answer | failure | a boot |
//! | `SEALANE_BOOT_AGAIN=1` | a boot, and failure when the kernel answers otherwise | failure | a boot |
//! | `SEALANE_RECORD=1` | it is the answer | a boot, which is recorded | a boot, which is recorded |
//! | both of these | a boot, which is recorded | a boot, which is recorded | a boot, which is recorded |
//!
//! `make accept SUITE=recorded` (`suites/recorded.sh`) sets `SEALANE_BOOT_AGAIN` for all tests that have records.

use crate::skip::{skip, skip_without};
use crate::target::{Target, root};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Time limit of asking a kernel for its release.
const LIMIT: Duration = Duration::from_secs(60);

/// The questions to a kernel.
#[derive(Debug)]
pub struct Sequence {
    kernel: String,
    name: String,
    digest: Sha256,
    tools: Vec<String>,
    is_fixed: bool,
    masked: fn(&str) -> String,
}

/// The record of an answer, as it was found.
enum Known {
    Answer {
        /// The kernel's release.
        release: String,
        text: String,
    },
    Missing,
    Stale,
    /// These have made it.
    OtherTools(String),
}

/// The way to an answer.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Use,
    Boot,
    BootAndCompare,
    BootAndRecord,
    Fail,
}

impl Known {
    /// The table above.
    fn step(&self, in_ci: bool, again: bool, record: bool) -> Step {
        match self {
            Known::Answer { .. } if !again => Step::Use,
            _ if record => Step::BootAndRecord,
            Known::Answer { .. } => Step::BootAndCompare,
            Known::Missing | Known::Stale if in_ci || again => Step::Fail,
            Known::Missing | Known::Stale | Known::OtherTools(_) => Step::Boot,
        }
    }
}

impl Sequence {
    /// Names a sequence whose answer is `recorded/KERNEL/NAME.txt`. The kernel is one for [`Target::kernel`].
    #[must_use]
    pub fn new(kernel: &str, name: &str) -> Sequence {
        let [kernel, name] = [kernel, name].map(str::to_owned);
        let (digest, tools, masked) = (Sha256::new(), Vec::new(), str::to_owned as fn(&str) -> String);
        Sequence { kernel, name, digest, tools, is_fixed: true, masked }
    }

    /// Adds a part of the sequence: commands, arguments, numbers.
    #[must_use]
    pub fn text(mut self, text: &str) -> Sequence {
        self.digest.update((text.len() as u64).to_le_bytes());
        self.digest.update(text);
        self
    }

    /// Adds files by their paths in the repository: scripts, and the sources of programs that run in the kernel.
    ///
    /// # Panics
    /// When one cannot be read.
    #[must_use]
    pub fn files(self, paths: &[&str]) -> Sequence {
        let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        paths.iter().fold(self, |sequence, path| sequence.text(path).text(&read(path)))
    }

    /// Adds programs of this machine that print the answer, by the commands that print their versions.
    #[must_use]
    pub fn tools(mut self, commands: &[&str]) -> Sequence {
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            let done = Command::new(words[0]).args(&words[1..]).output().map(|done| done.stdout).unwrap_or_default();
            self.tools.push(String::from_utf8_lossy(&done).trim().to_owned());
        }
        self
    }

    /// Says whether the sequence is the same in every run. The answer to another one is neither looked up nor recorded.
    #[must_use]
    pub fn fixed(mut self, is_fixed: bool) -> Sequence {
        self.is_fixed = is_fixed;
        self
    }

    /// Says that a kernel chooses a part of the answer at random: answers that are equal once `masked` are the same.
    #[must_use]
    pub fn masked(mut self, masked: fn(&str) -> String) -> Sequence {
        self.masked = masked;
        self
    }

    /// Returns the answer: the recorded one, or that of `ask`, which boots the kernel. Returns none and reports a skip of
    /// `test` when the kernel is missing; `ask` returns none when it has reported one itself.
    ///
    /// # Panics
    /// When the table above says failure, and when an answer cannot be recorded.
    pub fn answer(&self, test: &str, ask: impl FnOnce() -> Option<String>) -> Option<String> {
        let kernel = Target::kernel(&self.kernel);
        if !self.is_fixed {
            return if skip_without(test, &[&kernel]) { None } else { ask() };
        }
        let is_set = |name: &str, value: &str| std::env::var(name).is_ok_and(|v| v == value);
        let known = self.known();
        let again = is_set("SEALANE_BOOT_AGAIN", "1");
        let step = known.step(is_set("CI", "true"), again, is_set("SEALANE_RECORD", "1"));
        let path = self.path();
        let path = path.display();
        match (&step, &known) {
            (Step::Use, Known::Answer { text, .. }) => return Some(text.clone()),
            (Step::Fail, Known::Missing) => panic!("no {path}: `SEALANE_RECORD=1 scripts/test.sh {test}` makes it"),
            (Step::Fail, _) => {
                panic!(
                    "{path} answers an earlier form of the sequence: `SEALANE_RECORD=1 make accept SUITE=recorded` refreshes it"
                )
            }
            _ => {}
        }
        if let (Some(missing), Known::OtherTools(tools)) = (kernel.missing(), &known) {
            skip(test, &format!("{missing}, and the recorded answer was printed by {tools}"));
            return None;
        }
        if skip_without(test, &[&kernel]) {
            return None;
        }
        let now = ask()?;
        assert!(now.ends_with('\n'), "a text ends with a line");
        match (step, known) {
            (Step::BootAndRecord, _) => self.record(test, &kernel, &now),
            (Step::BootAndCompare, Known::Answer { release, text }) => {
                assert_eq!(release, release_of(&kernel), "{path} is of another kernel");
                if let Some(difference) = difference(&(self.masked)(&text), &(self.masked)(&now)) {
                    panic!(
                        "{path}, {difference}\n`SEALANE_RECORD=1 make accept SUITE=recorded` records the new answer"
                    );
                }
            }
            (_, Known::OtherTools(tools)) if again => {
                skip(test, &format!("not compared: the record was printed by {tools}"))
            }
            _ => {}
        }
        Some(now)
    }

    fn path(&self) -> PathBuf {
        root().join("conformance/recorded").join(&self.kernel).join(format!("{}.txt", self.name))
    }

    /// The end of a record's first line.
    fn key(&self) -> String {
        let bytes = self.digest.clone().finalize();
        format!("sha256 {}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    fn known(&self) -> Known {
        let Ok(text) = std::fs::read_to_string(self.path()) else { return Known::Missing };
        let Some((head, text)) = text.split_once('\n') else { return Known::Stale };
        let head: Vec<&str> = head.split("; ").collect();
        let [_, release, tools @ .., key] = &head[..] else { return Known::Stale };
        if *key != self.key() {
            return Known::Stale;
        }
        if *tools != self.tools {
            return Known::OtherTools(tools.join(", "));
        }
        Known::Answer { release: (*release).to_owned(), text: text.to_owned() }
    }

    /// Writes a record. An answer that is the same as before once masked is not replaced.
    fn record(&self, test: &str, kernel: &Target, now: &str) {
        let path = self.path();
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let before = before.split_once('\n').map_or("", |(_, text)| text);
        let text = if (self.masked)(before) == (self.masked)(now) { before } else { now };
        let head = [&[format!("# {test}"), release_of(kernel)][..], &self.tools, &[self.key()]].concat().join("; ");
        let done = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        done.and_then(|()| std::fs::write(&path, format!("{head}\n{text}"))).expect("the answer can be recorded");
    }
}

/// Writes a text against the one before it: `=N` stands for N lines that are the same as those at their places before.
#[must_use]
pub fn changes(before: &str, now: &str) -> String {
    let before: Vec<&str> = before.lines().collect();
    let (mut text, mut same) = (String::new(), 0);
    let flush = |same: &mut usize, text: &mut String| {
        if *same > 0 {
            *text += &format!("={same}\n");
        }
        *same = 0;
    };
    for (at, line) in now.lines().enumerate() {
        if before.get(at) == Some(&line) {
            same += 1;
        } else {
            flush(&mut same, &mut text);
            text += &format!("{line}\n");
        }
    }
    flush(&mut same, &mut text);
    text
}

/// Reads what [`changes`] writes.
#[must_use]
pub fn changed(before: &str, changes: &str) -> String {
    let before: Vec<&str> = before.lines().collect();
    let mut now: Vec<&str> = Vec::new();
    for line in changes.lines() {
        match line.strip_prefix('=').and_then(|n| n.parse::<usize>().ok()) {
            Some(same) => now.extend(before.iter().skip(now.len()).take(same)),
            None => now.push(line),
        }
    }
    now.iter().map(|line| format!("{line}\n")).collect()
}

/// Asks a kernel for its release.
fn release_of(kernel: &Target) -> String {
    kernel.run(&["uname", "-sr"], LIMIT).expect("it starts").text.trim().to_owned()
}

/// Shows the first line that differs, and its number in the file.
fn difference(recorded: &str, now: &str) -> Option<String> {
    let (mut recorded, mut now) = (recorded.lines(), now.lines());
    let mut number = 1;
    loop {
        number += 1;
        match (recorded.next(), now.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            (a, b) => {
                let [a, b] = [a, b].map(|line| line.unwrap_or("(nothing)"));
                return Some(format!("line {number}:\n  recorded {a}\n  now      {b}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_says_what_to_do() {
        use Step::{Boot, BootAndCompare, BootAndRecord, Fail, Use};
        let answer = Known::Answer { release: String::new(), text: String::new() };
        let columns = [answer, Known::Missing, Known::Stale, Known::OtherTools(String::new())];
        // CI, SEALANE_BOOT_AGAIN, SEALANE_RECORD
        let rows = [
            ([false, false, false], [Use, Boot, Boot, Boot]),
            ([true, false, false], [Use, Fail, Fail, Boot]),
            ([false, true, false], [BootAndCompare, Fail, Fail, Boot]),
            ([true, true, false], [BootAndCompare, Fail, Fail, Boot]),
            ([false, false, true], [Use, BootAndRecord, BootAndRecord, BootAndRecord]),
            ([true, false, true], [Use, BootAndRecord, BootAndRecord, BootAndRecord]),
            ([false, true, true], [BootAndRecord, BootAndRecord, BootAndRecord, BootAndRecord]),
            ([true, true, true], [BootAndRecord, BootAndRecord, BootAndRecord, BootAndRecord]),
        ];
        for ([ci, again, record], steps) in rows {
            for (known, step) in columns.iter().zip(steps) {
                assert_eq!(known.step(ci, again, record), step, "{ci} {again} {record}");
            }
        }
    }

    #[test]
    fn each_part_of_a_sequence_is_in_its_key() {
        let key = |parts: &[&str]| parts.iter().fold(Sequence::new("k", "n"), |s, part| s.text(part)).key();
        let all = [key(&[]), key(&["ab"]), key(&["ab", ""]), key(&["a", "b"]), key(&["ba"])];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one));
        }
        let files = |path: &str| Sequence::new("k", "n").files(&[path]).key();
        assert_ne!(files("LICENSE-MIT"), files("LICENSE-APACHE"));
    }

    #[test]
    fn changes_are_read_back() {
        let texts = ["a\nb\nc\n", "a\nb\nd\n", "a\nb\nd\n", "a\n", "x\ny\nz\nw\n", ""];
        for (before, now) in texts.iter().flat_map(|before| texts.map(|now| (before, now))) {
            assert_eq!(changed(before, &changes(before, now)), now);
        }
        assert_eq!(changes(texts[0], texts[1]), "=2\nd\n");
    }

    #[test]
    fn the_first_line_that_differs_is_shown() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n").as_deref(), Some("line 3:\n  recorded b\n  now      c"));
        assert_eq!(difference("a\n", "a\nb\n").as_deref(), Some("line 3:\n  recorded (nothing)\n  now      b"));
    }
}
