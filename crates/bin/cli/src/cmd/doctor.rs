//! `sealane doctor`: what this machine has, blocks or lacks, and what to do about it.

use crate::answer::Answer;
use crate::args::Doctor;
use crate::render::{self, Align, Table};
use anyhow::{Context, Result};
use sealane_doctor::{Facts, Level, Live, Report};
use std::io::Write;
use std::path::Path;

/// The status where nothing needs doing as far as can be seen, and not all could be seen.
const NOT_SEEN: u8 = 2;

pub(crate) fn doctor(args: &Doctor, out: &mut impl Write) -> Result<Answer> {
    let facts = Facts::gather(Path::new("/"), Live::ask()).context("cannot look at this machine")?;
    let report = Report::new(&facts);
    if args.json {
        render::json(out, &report)?;
    } else {
        print(&report, out)?;
    }
    Ok(answer(&report))
}

fn answer(report: &Report) -> Answer {
    if report.has(Level::NeedsDoing) {
        Answer::No
    } else if report.has(Level::Unseen) {
        Answer::Status(NOT_SEEN)
    } else {
        Answer::Yes
    }
}

fn print(report: &Report, out: &mut impl Write) -> Result<()> {
    writeln!(out, "Linux {}", report.release)?;
    let mut table = Table::new(&[("  part", Align::Left), ("state", Align::Left)]);
    for fact in &report.facts {
        table.row(vec![format!("  {}", fact.name), fact.state.clone()]);
    }
    table.print(out)?;
    for (level, title) in [
        (Level::NeedsDoing, "Something needs doing"),
        (Level::Unseen, "Could not be seen by this user"),
        (Level::Note, "Good to know"),
    ] {
        for (i, finding) in report.findings.iter().filter(|finding| finding.level == level).enumerate() {
            if i == 0 {
                writeln!(out, "\n{title}:")?;
            }
            writeln!(out, "  {}: {}", finding.id.name(), finding.text)?;
            for command in &finding.commands {
                writeln!(out, "    # {command}")?;
            }
        }
    }
    if report.findings.is_empty() {
        writeln!(out, "\nAll is well.")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_doctor::{Fact, Finding, Id};

    fn report(levels: &[Level]) -> Report {
        let finding = |level: &Level| Finding {
            id: Id::Kernel,
            level: *level,
            text: "it is so".into(),
            commands: vec!["do it".into()],
        };
        let facts = vec![Fact { name: "esp4".into(), state: "missing".into() }];
        Report { release: "6.1".into(), facts, findings: levels.iter().map(finding).collect() }
    }

    #[test]
    fn the_status_tells_scripts() {
        let answer = |levels: &[Level]| answer(&report(levels));
        assert_eq!(answer(&[]), Answer::Yes);
        assert_eq!(answer(&[Level::Note]), Answer::Yes);
        assert_eq!(answer(&[Level::Unseen, Level::Note]), Answer::Status(2));
        assert_eq!(answer(&[Level::NeedsDoing, Level::Unseen]), Answer::No);
    }

    #[test]
    fn findings_come_with_their_commands() {
        let mut out = Vec::new();
        print(&report(&[Level::NeedsDoing, Level::Note]), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let tail = "\nSomething needs doing:\n  kernel: it is so\n    # do it\n\n\
                    Good to know:\n  kernel: it is so\n    # do it\n";
        assert!(
            text.starts_with("Linux 6.1\n") && text.contains("  esp4  missing\n") && text.ends_with(tail),
            "{text}"
        );
        let mut out = Vec::new();
        render::json(&mut out, &report(&[Level::NeedsDoing])).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&value["findings"][0]["id"], &value["findings"][0]["level"]),
            (&"kernel".into(), &"needs-doing".into())
        );
    }
}
