//! `sealane bench`: measures the parts of a report, and writes it.

use crate::answer::Answer;
use crate::args::{Bench, BenchCommand, Compare};
use crate::render;
use anyhow::{Context as _, Result, bail, ensure};
use sealane_drivers::tables;
use sealane_report::compare::{self, Verdict};
use sealane_report::data::{FORMAT, Outcome, Report};
use sealane_report::machine::machine;
use sealane_report::parts::run::{self, Asked, Wanted};
use sealane_report::parts::{ALL, Context, Effort, Entry, child};
use sealane_report::{interrupt, page, summary};
use serde::Deserialize;
use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::{fs, io};

const DATA: &str = "data.json";
const PAGE: &str = "index.html";

pub(crate) fn bench(args: &Bench, out: &mut impl Write) -> Result<Answer> {
    let effort = if args.quick { Effort::QUICK } else { Effort::FULL };
    if let Some(BenchCommand::Compare(args)) = &args.command {
        return compare(args, out);
    }
    if let Some(what) = args.inner {
        child::measure(what, effort, out)?;
        return Ok(Answer::Yes);
    }
    if args.list {
        let mut table = render::Table::new(&[("id", render::Align::Left), ("part", render::Align::Left)]);
        for entry in ALL {
            table.row(vec![entry.id.to_owned(), entry.title.to_owned()]);
        }
        table.print(out)?;
        return Ok(Answer::Yes);
    }
    let wanted = wanted(ALL, &args.only, &args.skip)?;
    fs::create_dir_all(&args.out)
        .and_then(|()| try_to_write(&args.out))
        .with_context(|| format!("cannot write into the folder {}", args.out.display()))?;
    interrupt::defer();
    let (table, origin) = tables::load()?;
    let asked = Asked {
        command: command_line(std::env::args()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        quick: args.quick,
        machine: machine(&origin),
    };
    let registry = super::registry_with(table);
    let progress = Progress::new(wanted.iter().filter(|part| part.left_out.is_none()).count());
    let context = Context {
        registry: &registry,
        effort,
        stop: &|| interrupt::noted().is_some(),
        progress: &|row| progress.row(row),
    };
    let report =
        run::run(asked, &wanted, &context, &mut |part| progress.part(part), &mut |report| keep(&args.out, report))?;
    progress.end();
    keep(&args.out, &report)?;
    replace(&args.out.join(PAGE), page::page(&report).as_bytes())?;
    // What is kept is said before the answer, whose reader may have gone.
    eprintln!("sealane: {} and {} are in {}", PAGE, DATA, args.out.display());
    let signal = interrupt::noted();
    if signal.is_some() {
        eprintln!("sealane: ended early: {}", measured(&report));
    }
    write!(out, "{}", summary::summary(&report))?;
    Ok(signal.map_or(Answer::Yes, |signal| Answer::Status(u8::try_from(128 + signal).unwrap_or(u8::MAX))))
}

/// The parts that were measured, for a sentence.
fn measured(report: &Report) -> String {
    let parts = report.parts.iter().filter(|part| !matches!(part.outcome, Outcome::LeftOut(_)));
    let ids: Vec<&str> = parts.map(|part| part.id.as_str()).collect();
    if ids.is_empty() { "nothing was measured".to_owned() } else { format!("only {} was measured", ids.join(", ")) }
}

/// The parts of a run by --only and --skip.
fn wanted<'a>(all: &'a [Entry], only: &[String], skip: &[String]) -> Result<Vec<Wanted<'a>>> {
    for id in only.iter().chain(skip) {
        if !all.iter().any(|entry| entry.id == id) {
            let ids: Vec<&str> = all.iter().map(|entry| entry.id).collect();
            bail!("there is no part '{}'; the parts are {}", id.escape_default(), ids.join(", "));
        }
    }
    let left_out = |entry: &Entry| {
        let is_named = |ids: &[String]| ids.iter().any(|id| id == entry.id);
        match () {
            () if is_named(skip) => Some("left out by --skip".to_owned()),
            () if !only.is_empty() && !is_named(only) => Some("not named by --only".to_owned()),
            () => None,
        }
    };
    Ok(all.iter().map(|entry| Wanted { entry, left_out: left_out(entry) }).collect())
}

/// Fails before anything is measured if the folder takes no files.
fn try_to_write(folder: &Path) -> io::Result<()> {
    let trial = folder.join(format!(".trial-{}", std::process::id()));
    fs::write(&trial, b"")?;
    fs::remove_file(&trial)
}

fn keep(folder: &Path, report: &Report) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    replace(&folder.join(DATA), &text)
}

/// Writes a file as a whole: whoever opens it finds the old one or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, bytes).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, path).with_context(|| format!("cannot write {}", path.display()))
}

/// The command line as a shell would take it.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let quoted = |word: String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,=:@%".contains(c);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// Says on standard error what is being measured: a line that is written over on a terminal, a line for each part elsewhere.
struct Progress {
    is_terminal: bool,
    of: usize,
    part: RefCell<(usize, &'static str)>,
}

impl Progress {
    fn new(of: usize) -> Self {
        Progress { is_terminal: io::stderr().is_terminal(), of, part: RefCell::new((0, "")) }
    }

    /// A part begins.
    fn part(&self, entry: &Entry) {
        let mut part = self.part.borrow_mut();
        *part = (part.0 + 1, entry.id);
        if !self.is_terminal {
            eprintln!("sealane: part {} of {}: {}", part.0, self.of, entry.title);
        }
    }

    fn row(&self, row: &str) {
        if self.is_terminal {
            let (number, id) = *self.part.borrow();
            eprint!("\r\x1b[K[{number}/{}] {id}: {row}", self.of);
        }
    }

    fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

fn compare(args: &Compare, out: &mut impl Write) -> Result<Answer> {
    let comparison = compare::compare(&read(&args.before)?, &read(&args.after)?);
    if args.json {
        render::json(out, &comparison)?;
    } else {
        write!(out, "{comparison}")?;
    }
    let is_worse = comparison.changed.iter().any(|change| change.verdict == Verdict::Worse);
    Ok(if is_worse { Answer::No } else { Answer::Yes })
}

/// Reads a data.json.
fn read(path: &Path) -> Result<Report> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Another format may lack fields of this one, or mean something else by them.
    #[derive(Deserialize)]
    struct Only {
        format: u32,
    }
    let wrong = || format!("{} is no report of 'sealane bench'", path.display());
    let Only { format } = serde_json::from_str(&text).with_context(wrong)?;
    ensure!(
        format == FORMAT,
        "{} has format {format}, which another version of Sealane wrote; this one reads format {FORMAT}",
        path.display()
    );
    serde_json::from_str(&text).with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser as _;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("sealane-bench-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn report() -> Report {
        let registry = crate::cmd::registry_with(sealane_crypto::choice::Table::default());
        let context = Context { registry: &registry, effort: Effort::QUICK, stop: &|| true, progress: &|_| {} };
        let asked = Asked {
            command: "sealane bench".to_owned(),
            version: "1".to_owned(),
            quick: true,
            machine: machine(&tables::Origin::Nothing),
        };
        let wanted = wanted(ALL, &[], &[]).unwrap();
        run::run(asked, &wanted, &context, &mut |_| {}, &mut |_| Ok::<(), ()>(())).unwrap()
    }

    #[test]
    fn parts_are_named_or_known() {
        let ids = |only: &[&str], skip: &[&str]| {
            let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
            wanted(ALL, &owned(only), &owned(skip)).map(|wanted| {
                assert_eq!(wanted.len(), ALL.len());
                wanted.into_iter().filter(|part| part.left_out.is_none()).map(|part| part.entry.id).collect::<Vec<_>>()
            })
        };
        let all: Vec<&str> = ALL.iter().map(|entry| entry.id).collect();
        assert_eq!(ids(&[], &[]).unwrap(), all);
        assert_eq!(ids(&["drivers"], &[]).unwrap(), ["drivers"]);
        let rest: Vec<&str> = all.iter().copied().filter(|id| *id != "drivers").collect();
        assert_eq!(ids(&[], &["drivers"]).unwrap(), rest);
        let wrong = ids(&[], &["driver\n"]).unwrap_err().to_string();
        assert!(
            wrong.starts_with("there is no part 'driver\\n'; the parts are ") && wrong.contains("drivers"),
            "{wrong}"
        );
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<&str> = ALL.iter().map(|entry| entry.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ALL.len());
    }

    #[test]
    fn arguments_exclude_each_other() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        for line in [
            "sealane bench",
            "sealane bench --quick --only drivers,af-alg --out /tmp/x",
            "sealane bench --skip drivers",
            "sealane bench --list",
            "sealane bench --inner evp --quick",
            "sealane bench compare a.json b.json --json",
        ] {
            parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
        for line in [
            "sealane bench --only drivers --skip af-alg",
            "sealane bench --list --quick",
            "sealane bench --inner nonesuch",
            "sealane bench compare a.json",
            "sealane bench --quick compare a.json b.json",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let folder = Folder::new("kept");
        let report = report();
        assert!(report.run.interrupted);
        keep(&folder.0, &report).unwrap();
        keep(&folder.0, &report).unwrap();
        assert_eq!(read(&folder.0.join(DATA)).unwrap(), report);
        let names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [DATA], "nothing is left beside it");
    }

    #[test]
    fn a_folder_that_takes_no_file_is_found() {
        let folder = Folder::new("folder");
        try_to_write(&folder.0).unwrap();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
        let file = folder.0.join("file");
        fs::write(&file, "").unwrap();
        assert!(fs::create_dir_all(file.join("report")).and_then(|()| try_to_write(&file.join("report"))).is_err());
    }

    #[test]
    fn files_that_are_no_reports_are_refused() {
        let folder = Folder::new("refused");
        let file = folder.0.join(DATA);
        let refused = |text: &str| {
            fs::write(&file, text).unwrap();
            format!("{:#}", read(&file).unwrap_err())
        };
        let name = file.display().to_string();
        let missing = refused("{\n  \"format\": 1,\n  \"run\": 3\n}\n");
        assert!(missing.contains(&name) && missing.contains("at line 3 column"), "{missing}");
        let torn = refused("{\n  \"format\": 1,\n");
        assert!(torn.contains(&name) && torn.contains("at line 3 column"), "{torn}");
        for format in [0, 7] {
            let mut report = report();
            report.format = format;
            let other = refused(&serde_json::to_string(&report).unwrap());
            assert!(other.contains(&format!("has format {format}, which another version of Sealane wrote")), "{other}");
        }
        fs::remove_file(&file).unwrap();
        assert!(format!("{:#}", read(&file).unwrap_err()).contains(&name));
    }

    #[test]
    fn command_lines_can_be_pasted() {
        let line = |words: &[&str]| command_line(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(line(&["sealane", "bench", "--only", "drivers,af-alg"]), "sealane bench --only drivers,af-alg");
        assert_eq!(line(&["sealane", "it's", "", "$HOME"]), r"sealane 'it'\''s' '' '$HOME'");
    }
}
