//! Measures the parts of a report one after another, and keeps what is done.

use super::frame::{Context, Entry};
use crate::data::{FORMAT, Machine, Report, Run};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Why the rest of a run that was ended is missing.
const ENDED: &str = "the run was ended before this part was measured";

/// A part of a run.
pub struct Wanted<'a> {
    /// The part.
    pub entry: &'a Entry,
    /// The reason for leaving it out, unless it is to be measured.
    pub left_out: Option<String>,
}

/// The circumstances of a run.
pub struct Asked {
    /// The command line.
    pub command: String,
    /// The version of Sealane.
    pub version: String,
    /// Whether it is quick.
    pub quick: bool,
    /// The machine.
    pub machine: Machine,
}

/// Measures the parts in their order; `begin` is told of each. After each of them `keep` gets the report as it would be if the run ended
/// there; the parts to come are left out in it, and it says that it was interrupted. Ends early when the context says so, or `keep` fails.
///
/// # Errors
/// The error of `keep`.
pub fn run<E>(
    asked: Asked,
    wanted: &[Wanted<'_>],
    context: &Context<'_>,
    begin: &mut dyn FnMut(&Entry),
    keep: &mut dyn FnMut(&Report) -> Result<(), E>,
) -> Result<Report, E> {
    let Asked { command, version, quick, machine } = asked;
    let began = Instant::now();
    let began_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let left_out = |wanted: &Wanted<'_>| wanted.entry.left_out(wanted.left_out.as_deref().unwrap_or(ENDED));
    let mut report = Report {
        format: FORMAT,
        run: Run { command, version, began_s, took_s: 0.0, quick, interrupted: true },
        machine,
        parts: wanted.iter().map(left_out).collect(),
    };
    for (part, wanted) in to_measure(wanted) {
        if (context.stop)() {
            break;
        }
        begin(wanted.entry);
        report.parts[part] = wanted.entry.measure(context);
        report.run.took_s = began.elapsed().as_secs_f64();
        keep(&report)?;
    }
    report.run.interrupted = (context.stop)();
    Ok(report)
}

/// The parts that are to be measured, with their places.
fn to_measure<'a, 'b>(wanted: &'a [Wanted<'b>]) -> impl Iterator<Item = (usize, &'a Wanted<'b>)> {
    wanted.iter().enumerate().filter(|(_, wanted)| wanted.left_out.is_none())
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Effort, Measured};
    use super::*;
    use crate::data::Outcome;
    use sealane_crypto::choice::Table;
    use sealane_drivers::SystemEntropy;
    use sealane_drivers::tables::Origin;
    use std::cell::Cell;
    use std::sync::Arc;

    fn measured(_: &Context<'_>) -> Measured {
        let (method, outcome) = ("by nothing".to_owned(), Outcome::Measured);
        Measured { method, outcome, charts: Vec::new(), tables: Vec::new(), notes: Vec::new() }
    }

    fn entry(id: &'static str) -> Entry {
        Entry { id, title: "A part", about: "Nothing.", measure: measured }
    }

    /// Runs three parts, the second of them left out, and asks to end at the question `end`.
    fn run_three(end: usize) -> (Report, Vec<Report>) {
        let entries = ["a", "b", "c"].map(entry);
        let reason = |entry: &Entry| (entry.id == "b").then(|| "left out by --skip".to_owned());
        let wanted: Vec<_> = entries.iter().map(|entry| Wanted { entry, left_out: reason(entry) }).collect();
        let registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
        let questions = Cell::new(0);
        let stop = || {
            questions.set(questions.get() + 1);
            questions.get() >= end
        };
        let context = Context { registry: &registry, effort: Effort::QUICK, stop: &stop, progress: &|_| {} };
        let asked = Asked {
            command: "sealane bench".to_owned(),
            version: "1".to_owned(),
            quick: true,
            machine: crate::machine::machine(&Origin::Nothing),
        };
        let mut kept = Vec::new();
        let report = run(asked, &wanted, &context, &mut |_| {}, &mut |report| {
            kept.push(report.clone());
            Ok::<(), ()>(())
        });
        (report.unwrap(), kept)
    }

    fn outcomes(report: &Report) -> Vec<(&str, Option<&str>)> {
        let reason = |outcome| match outcome {
            &Outcome::Measured => None,
            Outcome::LeftOut(why) => Some(why.as_str()),
            Outcome::Partly(_) => panic!("no part is like that"),
        };
        report.parts.iter().map(|part| (part.id.as_str(), reason(&part.outcome))).collect()
    }

    #[test]
    fn all_parts_are_there_in_their_order() {
        let (report, kept) = run_three(usize::MAX);
        assert_eq!(outcomes(&report), [("a", None), ("b", Some("left out by --skip")), ("c", None)]);
        assert!(!report.run.interrupted);
        assert_eq!(outcomes(&kept[0]), [("a", None), ("b", Some("left out by --skip")), ("c", Some(ENDED))]);
        assert!(kept[0].run.interrupted);
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn a_run_that_is_ended_keeps_what_it_has() {
        let (report, kept) = run_three(2);
        assert_eq!(outcomes(&report), [("a", None), ("b", Some("left out by --skip")), ("c", Some(ENDED))]);
        assert!(report.run.interrupted);
        assert_eq!(kept, [report]);
        let (report, kept) = run_three(1);
        assert!(report.run.interrupted && kept.is_empty());
    }

    #[test]
    fn a_report_that_cannot_be_kept_ends_the_run() {
        let entries = ["a", "c"].map(entry);
        let wanted: Vec<_> = entries.iter().map(|entry| Wanted { entry, left_out: None }).collect();
        let registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
        let context = Context { registry: &registry, effort: Effort::QUICK, stop: &|| false, progress: &|_| {} };
        let machine = crate::machine::machine(&Origin::Nothing);
        let asked = Asked { command: String::new(), version: String::new(), quick: true, machine };
        let mut calls = 0;
        let done = run(asked, &wanted, &context, &mut |_| {}, &mut |_| {
            calls += 1;
            Err("full")
        });
        assert_eq!((done, calls), (Err("full"), 1));
    }
}
