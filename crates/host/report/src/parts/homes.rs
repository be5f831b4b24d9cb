//! The cost of a key's home: AES-128 by OpenSSL, and with the key in this process, in guarded memory and in a keeper.
//!
//! A row is an algorithm and a length, or a batch of texts, with four rivals: 48 figures, 10 s with `Effort::FULL` and 1 s with
//! `Effort::QUICK`.

mod keeper;

use super::frame::{Context, Entry, Measured, Reasons, Sheet, figures, numbers, word, words};
use crate::data::{Better, Chart, Figure, Scale, Series, Shape, X};
use crate::number::about;
use crate::published::{AF_ALG_2023, CLOUDFLARE, PROTOTYPE_CPU, PROTOTYPE_RATES, PROTOTYPES, over_numbers, over_words};
use arrayvec::ArrayVec;
use keeper::Keeper;
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::home::KeyHome;
use sealane_crypto::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use sealane_crypto::{Alg, Kind};
use sealane_drivers::turns::{CpuOf, Figures, in_turns};
use sealane_guarded::Lack;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) const ENTRY: Entry = Entry {
    id: "homes",
    title: "AES-128 by the home of its key",
    about: "The same texts encrypted by OpenSSL, and with the key in this process, in guarded memory that is closed between operations, and \
            in a keeper, which is another process: throughput, and CPU time of all processes. The kernel's AF_ALG is the home that programs \
            had before.",
    measure,
};

/// Lengths of texts, in bytes. The last one is as much as AF_ALG takes at once.
const LENGTHS: [usize; 5] = [16, 256, 1 << 10, 16 << 10, LONGEST];
const LONGEST: usize = 63 << 10;

/// The texts that a program has at once, and the bytes of each.
const BATCH: usize = 8;
const BATCH_LEN: usize = 1 << 10;

/// The algorithms: their names in charts' ids, and in words.
const ALGORITHMS: [(&str, Kind, &str, &str); 2] =
    [("ctr", Kind::Skcipher, "ctr(aes)", "AES-128-CTR"), ("gcm", Kind::Aead, "gcm(aes)", "AES-128-GCM")];

const KEY: [u8; 16] = [3; 16];

/// Series of charts.
const EVP: &str = "OpenSSL's EVP";
const PROCESS: &str = "this process";
const GUARDED: &str = "guarded memory";
const KEEPER: &str = "keeper";

/// The sheets of one algorithm.
#[derive(Default)]
struct Sheets {
    rates: Sheet,
    cpu: Sheet,
    batches: Sheet,
}

fn measure(context: &Context<'_>) -> Measured {
    let mut reasons = Reasons::default();
    let mut sheets: [Sheets; 2] = Default::default();
    all(context, keeper::program(), &mut sheets, &mut reasons);
    let mut notes = vec![
        "A keeper costs a round trip between two processes for each text: short texts are its losing rows.".to_owned(),
        "Cloudflare's figure is for the kernel's AF_ALG of 2023 without copies, which later kernels do not have any more.".to_owned(),
    ];
    notes.extend(ALGORITHMS.iter().zip(&sheets).filter_map(|(algorithm, sheets)| losing(algorithm.3, &sheets.rates.0)));
    let share = share(&sheets[0].rates.0);
    let mut charts: Vec<Chart> = share.onto(of_openssl()).into_iter().collect();
    let mut batches = Sheet::default();
    for sheets in &mut sheets {
        batches.0.append(&mut sheets.batches.0);
    }
    charts.extend(batches.onto(of_batches()));
    for ((id, _, _, name), sheets) in ALGORITHMS.into_iter().zip(sheets) {
        let published = |rows: &[(&str, &[(f64, f64)])]| -> Vec<Series> {
            rows.iter().filter(|_| id == "ctr").map(|(name, row)| over_numbers(name, PROTOTYPES, row)).collect()
        };
        let chart = |what: &str, title: &str, y, series| Chart {
            id: format!("{id}-{what}"),
            title: format!("{name}: {title}"),
            shape: Shape::Lines,
            x: numbers("length of a text", "bytes"),
            y,
            series,
        };
        let rate = figures("throughput", "MB/s", Scale::Log, Better::Higher);
        let cpu = figures("CPU time of all processes", "s/GB", Scale::Log, Better::Lower);
        charts.extend(sheets.rates.onto(chart("rate", "throughput", rate, published(PROTOTYPE_RATES))));
        charts.extend(sheets.cpu.onto(chart("cpu", "CPU time", cpu, published(PROTOTYPE_CPU))));
    }
    Measured {
        method: "One thread encrypts one text after the other, in place, and for one chart eight at a time. OpenSSL and this process take \
                 turns; the keeper comes after them, because its waking and sleeping disturbs others, and guarded memory last, because a \
                 process that has it opens it for each operation, whichever key that uses. OpenSSL's context is fetched once and keeps \
                 its key. CPU time is user and system time of this process, with that of the keeper in its rows: the better comparison of \
                 the three passes. MB and GB are powers of ten."
            .to_owned(),
        outcome: reasons.outcome(),
        charts,
        tables: Vec::new(),
        notes,
    }
}

/// The chart of shares, with what is published.
fn of_openssl() -> Chart {
    Chart {
        id: "of-openssl".to_owned(),
        title: "AES-128-CTR of 63 KiB, as a share of OpenSSL's throughput".to_owned(),
        shape: Shape::Bars,
        x: words("home of the key"),
        y: figures("throughput, as a share of OpenSSL's", "", Scale::Linear, Better::Higher),
        series: vec![over_words("kernel's AF_ALG (2023)", CLOUDFLARE, &[("kernel", AF_ALG_2023)])],
    }
}

/// The chart of batches.
fn of_batches() -> Chart {
    Chart {
        id: "batches".to_owned(),
        title: format!("{BATCH} texts of {} KiB at a time", BATCH_LEN >> 10),
        shape: Shape::Bars,
        x: words("home of the key"),
        y: figures("throughput", "MB/s", Scale::Linear, Better::Higher),
        series: Vec::new(),
    }
}

/// Names the lengths at which a key in this process loses to OpenSSL.
fn losing(algorithm: &str, rates: &[Series]) -> Option<String> {
    let of = |name: &str| rates.iter().find(|series| series.name == name);
    let (evp, process) = (of(EVP)?, of(PROCESS)?);
    let mut lost = Vec::new();
    for point in &process.points {
        let rival = evp.points.iter().find(|rival| rival.x == point.x);
        if let (X::Number(len), Some(rival)) = (&point.x, rival)
            && point.figure.loses_to(&rival.figure, Better::Higher)
        {
            lost.push(format!(
                "{len} bytes ({:.2} of OpenSSL, by {})",
                point.figure.median / rival.figure.median,
                point.remark
            ));
        }
    }
    (!lost.is_empty()).then(|| format!("{algorithm} in this process loses at {}.", lost.join(", ")))
}

/// The homes' shares of OpenSSL's throughput, at the greatest length.
fn share(rates: &[Series]) -> Sheet {
    let longest = |series: &&Series| {
        series.points.iter().find(|point| point.x == X::Number(LONGEST as f64)).map(|point| point.figure)
    };
    let mut sheet = Sheet::default();
    let of = |name: &str| rates.iter().find(|series| series.name == name).as_ref().and_then(longest);
    if let Some(evp) = of(EVP) {
        for home in [PROCESS, GUARDED, KEEPER] {
            if let Some(f) = of(home) {
                let [median, low, high] = [f.median, f.low, f.high].map(|rate| rate / evp.median);
                sheet.add("this machine", word(home), Figure { median, low, high, ..f }, "");
            }
        }
    }
    sheet.computed(&[], "computed from the throughputs in this report")
}

/// Measures the rivals that `of` makes for each algorithm, at each length. Returns whether nobody has asked to end.
fn pass(
    context: &Context<'_>,
    cpu_of: CpuOf,
    of: impl Fn(Kind, &str) -> Vec<(&'static str, Result<Rival, String>)>,
    sheets: &mut [Sheets; 2],
    reasons: &mut Reasons,
) -> bool {
    for ((_, kind, name, title), sheets) in ALGORITHMS.into_iter().zip(sheets) {
        if reasons.stopped(context) {
            return false;
        }
        let mut rivals = Vec::new();
        for (home, rival) in of(kind, name) {
            match rival {
                Ok(rival) => rivals.push(rival),
                Err(why) => reasons.add(format!("{home}: {why}")),
            }
        }
        let homes = rivals.iter().map(|rival| rival.home).collect::<Vec<_>>().join(", ");
        for len in LENGTHS {
            if reasons.stopped(context) {
                return false;
            }
            (context.progress)(&format!("{title}, {len} bytes: {homes}"));
            for (home, f, remark) in row(context, &mut rivals, (1, len), cpu_of, reasons) {
                sheets.rates.add(home, X::Number(len as f64), rate(&f, len, context.effort.rounds), &*remark);
                sheets.cpu.add(home, X::Number(len as f64), cpu(&f, len, context.effort.rounds), remark);
            }
        }
        if reasons.stopped(context) {
            return false;
        }
        (context.progress)(&format!("{title}, {BATCH} texts of {BATCH_LEN} bytes: {homes}"));
        for (home, f, remark) in row(context, &mut rivals, (BATCH, BATCH_LEN), cpu_of, reasons) {
            let (rounds, bytes) = (context.effort.rounds, BATCH * BATCH_LEN);
            let remark = format!("{remark}, CPU {} s/GB", about(cpu(&f, bytes, rounds).median));
            sheets.batches.add(title, word(home), rate(&f, bytes, rounds), remark);
        }
    }
    true
}

/// Measures each home; that of the keeper by an executable that has one. A home that disturbs others comes after them: the keeper, which
/// wakes and sleeps, and guarded memory.
fn all(context: &Context<'_>, program: Result<PathBuf, String>, sheets: &mut [Sheets; 2], reasons: &mut Reasons) {
    let local = |home, kind, name: &str| {
        let alg = context.registry.lookup(kind, name).map_err(|e| e.to_string());
        (home, alg.and_then(|alg| Rival::new(home, alg, &KEY)))
    };
    let open = |kind, name: &str| vec![(EVP, evp(context, kind, name)), local(PROCESS, kind, name)];
    if !pass(context, CpuOf::Process, open, sheets, reasons) {
        return;
    }
    match program.and_then(|program| Keeper::start(&program)) {
        Ok(keeper) => {
            let kept = |kind, name: &str| vec![(KEEPER, kept(context, &keeper, kind, name))];
            let goes_on = pass(context, CpuOf::ProcessAnd(keeper.id()), kept, sheets, reasons);
            if !keeper.home().shares_memory() {
                reasons.add(format!("{KEEPER}: it shares no memory, so that its figures are those of its socket"));
            }
            if !goes_on {
                return;
            }
        }
        Err(why) => reasons.add(format!("{KEEPER}: {why}")),
    }
    let memory = match sealane_guarded::establish(sealane_guarded::Plan::default()) {
        Ok(memory) => memory,
        Err(why) => return reasons.add(format!("{GUARDED}: {why}")),
    };
    memory.lacks().iter().for_each(|lack| reasons.add(format!("{GUARDED}: {lack}")));
    let guarded = |kind, name: &str| {
        let (home, rival) = local(GUARDED, kind, name);
        vec![(home, rival.map(|rival| Rival { how: bolt(memory.lacks()), ..rival }))]
    };
    pass(context, CpuOf::Process, guarded, sheets, reasons);
}

/// The bolt of guarded memory that lacks these things, for remarks.
fn bolt(lacks: &[Lack]) -> &'static str {
    let has_no_key = lacks.iter().any(|lack| matches!(lack, Lack::ProtectionKey(_)));
    if has_no_key { ", closed by mprotect" } else { ", closed by a protection key" }
}

/// Measures so many texts of one length, at a time, by rivals in turns. Returns the figures of each home, with a remark.
fn row(
    context: &Context<'_>,
    rivals: &mut [Rival],
    (texts, len): (usize, usize),
    cpu_of: CpuOf,
    reasons: &mut Reasons,
) -> Vec<(&'static str, Figures, String)> {
    rivals.iter_mut().for_each(|rival| rival.texts = vec![vec![2; len]; texts]);
    let measured = in_turns(rivals, Rival::run, cpu_of, context.effort.each, context.effort.rounds);
    let mut figures = Vec::new();
    for (rival, f) in rivals.iter_mut().zip(measured) {
        if let Some(why) = rival.failed.take() {
            reasons.add(format!("{}: {texts} times {len} bytes: {why}", rival.home));
            continue;
        }
        let driver = &rival.alg.row_for(MeasuredDirection::Forward, len, texts).driver;
        figures.push((rival.home, f, format!("{driver}{}", rival.how)));
    }
    figures
}

/// Megabytes a second.
fn rate(f: &Figures, len: usize, rounds: u32) -> Figure {
    let [median, low, high] = [f.median_ns, f.max_ns, f.min_ns].map(|ns| len as f64 * 1e3 / ns);
    Figure { median, low, high, rounds, cpu: None }
}

/// CPU seconds for a gigabyte, which are nanoseconds for a byte.
fn cpu(f: &Figures, len: usize, rounds: u32) -> Figure {
    let [median, low, high] = [f.median_cpu_ns, f.min_cpu_ns, f.max_cpu_ns].map(|ns| ns / len as f64);
    Figure { median, low, high, rounds, cpu: None }
}

/// A key of OpenSSL's.
fn evp(context: &Context<'_>, kind: Kind, name: &str) -> Result<Rival, String> {
    sealane_crypto_openssl::version()?;
    let row = sealane_crypto_openssl::rows().into_iter().find(|row| row.info.kind == kind && row.info.name == name);
    let row = row.ok_or_else(|| format!("this OpenSSL has no {name}"))?;
    Rival::new(EVP, Alg::of_row(&Arc::new(row), context.registry.entropy()), &KEY)
}

/// A key of the keeper's.
fn kept(context: &Context<'_>, keeper: &Keeper, kind: Kind, name: &str) -> Result<Rival, String> {
    let local = context.registry.lookup(kind, name).map_err(|e| e.to_string())?;
    let home = keeper.home();
    let remote = home.adopt(&local).ok_or("the keeper does not compute this algorithm")?;
    let reference = home.keep(local.info(), &KEY).map_err(|e| e.to_string())?;
    Rival::new(KEEPER, remote, &reference)
}

/// A home in its turns.
struct Rival {
    home: &'static str,
    /// The end of its remarks.
    how: &'static str,
    alg: Alg,
    tfm: Tfm,
    texts: Vec<Vec<u8>>,
    failed: Option<String>,
}

impl Rival {
    fn new(home: &'static str, alg: Alg, key: &[u8]) -> Result<Self, String> {
        let tfm = match alg.info().kind {
            Kind::Skcipher => alg.skcipher(key).map(Tfm::Skcipher),
            _ => alg.aead(key).map(Tfm::Aead),
        };
        Ok(Rival { home, how: "", tfm: tfm.map_err(|e| e.to_string())?, alg, texts: Vec::new(), failed: None })
    }

    fn run(&mut self) {
        if self.failed.is_none() {
            self.failed = self.tfm.encrypt(&mut self.texts).err().map(|e| e.to_string());
        }
    }
}

/// A key of one of the two kinds.
enum Tfm {
    Skcipher(SkcipherTfm),
    Aead(AeadTfm),
}

impl Tfm {
    /// Encrypts at most [`BATCH`] texts in place.
    fn encrypt(&self, texts: &mut [Vec<u8>]) -> sealane_crypto::Status {
        let dir = Direction::Encrypt;
        match self {
            Tfm::Skcipher(tfm) => {
                let mut ivs = [[1; 16]; BATCH];
                let op = |(text, iv)| SkcipherOp { tfm, dir, iv, data: text, status: Ok(()) };
                let texts = texts.iter_mut().map(|text| (&mut text[..]).into());
                let mut ops: ArrayVec<SkcipherOp<'_>, BATCH> =
                    texts.zip(ivs.iter_mut().map(|iv| &mut iv[..])).map(op).collect();
                skcipher::crypt(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
            Tfm::Aead(tfm) => {
                let mut tags = [[0; 16]; BATCH];
                let op = |(text, tag)| AeadOp { tfm, dir, nonce: &[1; 12], aad: &[], data: text, tag, status: Ok(()) };
                let texts = texts.iter_mut().map(|text| (&mut text[..]).into());
                let mut ops: ArrayVec<AeadOp<'_>, BATCH> =
                    texts.zip(tags.iter_mut().map(|tag| &mut tag[..])).map(op).collect();
                aead::crypt(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Effort;
    use super::super::tests::{chart, check, measure, series};
    use super::*;
    use crate::data::{Outcome, Source};
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn each_home_that_is_here_has_a_figure_at_each_length() {
        let part = measure(&ENTRY, &|| false);
        check(&part);
        // A machine without a byte of memory that can be locked has no guarded memory.
        let homes = if sealane_guarded::is_established() { &[PROCESS, GUARDED][..] } else { &[PROCESS] };
        for (id, _, _, title) in ALGORITHMS {
            for what in ["rate", "cpu"] {
                let chart = chart(&part, &format!("{id}-{what}"));
                for home in homes {
                    assert_eq!(series(chart, home).points.len(), LENGTHS.len(), "{}, {home}", chart.id);
                }
            }
            let batches = series(chart(&part, "batches"), title);
            for home in homes {
                assert!(batches.points.iter().any(|p| p.x == word(home) && p.remark.contains("CPU")), "{home}");
            }
        }
        // A test's executable has no keeper, and says so.
        let Outcome::Partly(why) = &part.outcome else { panic!("{:?}", part.outcome) };
        assert!(why.iter().any(|why| why.starts_with("keeper: ")), "{why:?}");
        let rates = chart(&part, "ctr-rate");
        if sealane_guarded::is_established() {
            let guarded = series(rates, GUARDED);
            assert!(guarded.points.iter().all(|p| p.remark.contains(", closed by ")), "the bolt");
        }
        assert!(rates.series.iter().all(|series| series.name != KEEPER));
        assert!(rates.series.iter().any(|s| matches!(s.source, Source::Published(_))));
    }

    #[test]
    fn the_bolt_of_guarded_memory_is_told() {
        assert!(bolt(&[Lack::Secret(38)]).contains("protection key"));
        assert!(bolt(&[Lack::Secret(38), Lack::ProtectionKey(28)]).contains("mprotect"));
    }

    #[test]
    fn a_keeper_has_a_figure_at_each_length() {
        let tests = std::env::current_exe().expect("the path of this test");
        let sealane = tests.parent().and_then(Path::parent).expect("a folder of a build").join("sealane");
        if !sealane.is_file() {
            println!("skipped: {} was not built", sealane.display());
            return;
        }
        let registry = sealane_drivers::system_registry().0;
        let effort = Effort { each: Duration::from_micros(20), rounds: 2 };
        let context = Context { registry: &registry, effort, stop: &|| false, progress: &|_| () };
        let (mut sheets, mut reasons) = (<[Sheets; 2]>::default(), Reasons::default());
        let keeper = Keeper::start(&sealane).expect("a keeper");
        let cpu_of = CpuOf::ProcessAnd(keeper.id());
        let of = |kind, name: &str| vec![(KEEPER, kept(&context, &keeper, kind, name))];
        assert!(pass(&context, cpu_of, of, &mut sheets, &mut reasons));
        assert_eq!(reasons.0, [""; 0]);
        assert!(keeper.home().shares_memory(), "its figures are not those of its socket");
        for sheet in sheets.iter().flat_map(|sheets| [&sheets.rates, &sheets.cpu]) {
            let [series] = &sheet.0[..] else { panic!("one home") };
            assert_eq!((&*series.name, series.points.len()), (KEEPER, LENGTHS.len()));
        }
        for ((.., title), sheets) in ALGORITHMS.iter().zip(&sheets) {
            let [series] = &sheets.batches.0[..] else { panic!("one algorithm") };
            assert_eq!((&*series.name, series.points.len(), &series.points[0].x), (*title, 1, &word(KEEPER)));
        }
    }

    #[test]
    fn shares_are_of_openssl_at_the_greatest_length() {
        let figure = |rate| Figure { median: rate, low: rate, high: rate, rounds: 1, cpu: None };
        let mut rates = Sheet::default();
        for (home, short, long) in [(EVP, 1.0, 200.0), (PROCESS, 5.0, 300.0), (KEEPER, 7.0, 50.0)] {
            rates.add(home, X::Number(16.0), figure(short), "");
            rates.add(home, X::Number(LONGEST as f64), figure(long), "");
        }
        let shares = share(&rates.0).0;
        assert!(matches!(shares[0].source, Source::Model(_)), "what is computed counts once");
        let points: Vec<(X, f64)> = shares[0].points.iter().map(|p| (p.x.clone(), p.figure.median)).collect();
        assert_eq!(points, [(word(PROCESS), 1.5), (word(KEEPER), 0.25)]);
        let lost = losing("CTR", &rates.0);
        assert_eq!(lost, None, "a row that is not lost");
        rates.0[1].points[1].figure = Figure { high: 210.0, ..figure(100.0) };
        assert_eq!(losing("CTR", &rates.0), None, "not in every round");
        rates.0[1].points[1].figure = figure(100.0);
        let lost = losing("CTR", &rates.0).expect("a lost row");
        assert!(lost.contains("64512 bytes (0.50 of OpenSSL") && !lost.contains(" 16 bytes"), "{lost}");
        rates.0.remove(0);
        assert!(share(&rates.0).0.is_empty(), "no OpenSSL, no shares");
    }
}
