//! Partial MACs: the cost of a packet by the fraction that is covered, beside whole MACs, and how often altered blocks escape.
//!
//! A row is a MAC and a length: six rivals, the whole MAC, its four fractions, and the fastest whole MAC of this machine, each for one
//! packet and for a burst. 20 rows take 48 s with `Effort::FULL`, and 12 rows 3 s with `Effort::QUICK`; to look for the fastest MAC takes
//! 4 s and 1 s, to count what escapes 5 s and 0.5 s.

use super::frame::{Context, Entry, Measured, Reasons, Sheet, figures, numbers, word, words};
use super::mac::{BURST, cycles_a_byte, macs};
use crate::data::{Axis, Better, Chart, Figure, Point, Scale, Series, Shape, Source, Table, X};
use crate::number::{about, exact};
use arrayvec::ArrayVec;
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::mac::MAX_TAG_LEN;
use sealane_crypto::partial::detection::{self, BLOCKS, Level, PARTS};
use sealane_crypto::partial::{self, Fraction, PartialAlg, PartialOp, PartialTfm};
use sealane_crypto::{Alg, Kind, OpError, Status};
use sealane_drivers::measure::{self, Workload};
use sealane_drivers::turns::{CpuOf, Figures, in_turns};
use sealane_net_ipsec::partial::Covered;

pub(super) const ENTRY: Entry = Entry {
    id: "partial-mac",
    title: "Partial MACs, and what they let pass",
    about: "The cost of a packet of ESP whose MAC covers all of it, a half, a quarter or an eighth, alone and in bursts of 64, beside the \
            whole MAC and the fastest whole MAC of this machine; and how often altered blocks go unnoticed. A partial MAC protects less \
            than any whole one: docs/partial-mac.md says what is given up.",
    measure,
};

/// The MACs that have a partial form, with the names of their charts.
const MACS: [(&str, Kind, &str); 4] = [
    ("gmac", Kind::NonceMac, "gmac(aes)"),
    ("cmac", Kind::Hash, "cmac(aes)"),
    ("hmac-sha1", Kind::Hash, "hmac(sha1)"),
    ("hmac-sha256", Kind::Hash, "hmac(sha256)"),
];

/// Bytes of inner packets, up to those of a network with jumbo frames.
const LENGTHS: [usize; 5] = [64, 256, 576, COMPARED, 8900];
/// The same for a first look.
const FEW_LENGTHS: [usize; 3] = [64, COMPARED, 8900];
/// The length at which fractions are compared.
const COMPARED: usize = 1420;

/// The bytes of SPI and sequence number.
const ESP_HEADER_LEN: usize = 8;
/// The pad length and the next header, behind which the text has a multiple of four bytes.
const TRAILER_LEN: usize = 2;
/// The upper half of the sequence number, which whole MACs cover too.
const HIGH_LEN: usize = 4;

/// The least tag of a whole MAC beside partial ones, whose keys are worth 128 bits.
const TAG_LEN: usize = 16;

/// The share of a figure's time that each MAC gets in the search for the fastest one.
const SEARCH: u32 = 20;
const SEARCH_ROUNDS: u32 = 3;

/// Altered blocks that are drawn, if this many packets at least are expected to escape.
const ALTERED: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const ENOUGH: f64 = 50.0;
/// The seed of the series that docs/partial-mac.md has.
const SEED: u64 = 0;
/// Packets for each microsecond that a figure gets: a million of a full run.
const PACKETS_PER_US: u64 = 5;

const FASTEST: &str = "fastest whole MAC";

/// The bytes of a packet, with an inner packet of so many bytes and without encryption, that its ICV is over.
fn covered_len(bytes: usize) -> usize {
    ESP_HEADER_LEN + (bytes + TRAILER_LEN).next_multiple_of(4)
}

/// Keys and packets of a partial MAC.
struct Partial {
    tfms: Vec<PartialTfm>,
    packets: Vec<Vec<u8>>,
    tags: Vec<[u8; MAX_TAG_LEN]>,
    tag_len: usize,
    /// The number of the last packet: each one has another selection.
    number: u64,
}

impl Partial {
    fn new(alg: &PartialAlg, bytes: usize, burst: usize) -> Result<Self, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", alg.info().name());
        let key = |lane: usize| alg.key(&[lane as u8; 16], b"spi.").map_err(|e| wrong(&e));
        let mut made = Partial {
            tfms: (0..burst).map(key).collect::<Result<_, _>>()?,
            packets: (0..burst).map(|lane| vec![lane as u8; covered_len(bytes)]).collect(),
            tags: vec![[0; MAX_TAG_LEN]; burst],
            tag_len: alg.info().usual_tag_len(),
            number: 0,
        };
        made.attempt().map_err(|e| wrong(&e))?;
        Ok(made)
    }

    fn attempt(&mut self) -> Status {
        self.number += 1;
        let (number, tag_len) = (self.number, self.tag_len);
        if let ([tfm], [packet]) = (&self.tfms[..], &self.packets[..]) {
            let covered = Covered::new(packet, ESP_HEADER_LEN);
            return tfm.sign(&covered.message(number), &mut self.tags[0][..tag_len]);
        }
        let covered: ArrayVec<Covered<'_>, BURST> =
            self.packets.iter().map(|packet| Covered::new(packet, ESP_HEADER_LEN)).collect();
        let mut ops: ArrayVec<PartialOp<'_>, BURST> = (self.tfms.iter().zip(&covered).zip(&mut self.tags))
            .map(|((tfm, covered), tag)| PartialOp {
                tfm,
                message: covered.message(number),
                tag: &mut tag[..tag_len],
                status: Ok(()),
            })
            .collect();
        partial::sign(&mut ops);
        ops.iter().try_for_each(|op| op.status)
    }
}

/// A way to authenticate packets.
enum Rival {
    Whole(Workload),
    Partial(Partial),
}

impl Rival {
    fn whole(alg: &Alg, bytes: usize, burst: usize) -> Result<Self, String> {
        let shape = measure::Shape { way: MeasuredDirection::Forward, bytes: covered_len(bytes) + HIGH_LEN, burst };
        Workload::new(alg, shape).map(Rival::Whole)
    }

    fn run(&mut self) {
        match self {
            Rival::Whole(load) => load.run(),
            Rival::Partial(load) => load.attempt().expect("it succeeded when this was made"),
        }
    }
}

/// A MAC of [`MACS`] with its forms.
struct Family {
    id: &'static str,
    name: &'static str,
    whole: Alg,
    partial: Vec<PartialAlg>,
}

impl Family {
    fn new(context: &Context<'_>, (id, kind, name): (&'static str, Kind, &'static str)) -> Result<Self, String> {
        let whole = context.registry.lookup(kind, name).map_err(|e| format!("{name}: {e}"))?;
        let partial = |fraction: Fraction| {
            let name = format!("partial({name},{})", fraction.name());
            PartialAlg::lookup(context.registry, &name).map_err(|e| format!("{name}: {e}"))
        };
        let partial = Fraction::ALL.into_iter().map(partial).collect::<Result<_, _>>()?;
        Ok(Family { id, name, whole, partial })
    }
}

/// The MACs that may stand beside partial ones as the fastest: as strong as their keys, and of use for a packet as they are.
fn candidates(context: &Context<'_>, reasons: &mut Reasons) -> Vec<Alg> {
    let is_one = |alg: &Alg| {
        let info = alg.info();
        let has_nonce = info.kind != Kind::NonceMac || info.iv_len > 0;
        // CBC-MAC by itself is forged where lengths differ.
        !info.legacy && info.digest_len >= TAG_LEN && has_nonce && !info.name.starts_with("cbcmac(")
    };
    macs(context, reasons).into_iter().filter(is_one).collect()
}

/// The fastest of these for packets of that length.
fn fastest<'a>(context: &Context<'_>, algs: &'a [Alg], bytes: usize, burst: usize) -> Option<&'a Alg> {
    // Drivers that fail are named by the part of all MACs.
    let (algs, mut loads): (Vec<&Alg>, Vec<Rival>) =
        algs.iter().filter_map(|alg| Some((alg, Rival::whole(alg, bytes, burst).ok()?))).unzip();
    let measured = in_turns(&mut loads, Rival::run, CpuOf::Thread, context.effort.each / SEARCH, SEARCH_ROUNDS);
    let best = algs.into_iter().zip(measured).min_by(|(_, a), (_, b)| a.median_ns.total_cmp(&b.median_ns));
    best.map(|(alg, _)| alg)
}

/// The form of a MAC.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Whole,
    Covers(Fraction),
    /// The fastest whole MAC in its place.
    Fastest,
}

impl Form {
    /// The forms that are compared with the whole MAC.
    fn compared() -> impl Iterator<Item = Form> {
        Fraction::ALL.into_iter().map(Form::Covers).chain([Form::Fastest])
    }

    fn name(self) -> String {
        match self {
            Form::Whole => "whole".to_owned(),
            Form::Covers(fraction) => format!("partial, {}", fraction.name()),
            Form::Fastest => FASTEST.to_owned(),
        }
    }
}

/// The time of a packet.
struct Cost {
    mac: &'static str,
    bytes: usize,
    burst: usize,
    form: Form,
    /// The MAC that was computed: another one where it is [`Form::Fastest`].
    by: String,
    ns: Figure,
}

/// The figures of a row.
struct Row {
    cost: Cost,
    /// Empty for partial MACs, of which several drivers make parts.
    driver: String,
    figures: Figures,
}

/// Measures all forms of a MAC in turns at one length. `best` are the fastest whole MACs, for one packet and for a burst.
fn row(
    context: &Context<'_>,
    family: &Family,
    bytes: usize,
    best: &[(usize, Option<&Alg>)],
    reasons: &mut Reasons,
) -> Vec<Row> {
    let (mut rivals, mut of) = (Vec::new(), Vec::new());
    let mut add = |rival: Result<Rival, String>, burst, form, by: &str, driver: &str| match rival {
        Ok(rival) => {
            rivals.push(rival);
            of.push((burst, form, by.to_owned(), driver.to_owned()));
        }
        Err(why) => reasons.add(why),
    };
    for &(burst, best) in best {
        let mut whole = |alg: &Alg, form| {
            let driver = &alg.row_for(MeasuredDirection::Forward, covered_len(bytes) + HIGH_LEN, burst).driver;
            add(Rival::whole(alg, bytes, burst), burst, form, &alg.info().name, driver);
        };
        whole(&family.whole, Form::Whole);
        // The same figure twice tells nothing.
        if let Some(best) = best.filter(|best| best.info().name != family.name) {
            whole(best, Form::Fastest);
        }
        for alg in &family.partial {
            let info = alg.info();
            let rival = Partial::new(alg, bytes, burst).map(Rival::Partial);
            add(rival, burst, Form::Covers(info.fraction), &info.name(), "");
        }
    }
    let measured = in_turns(&mut rivals, Rival::run, CpuOf::Thread, context.effort.each, context.effort.rounds);
    let row = |((burst, form, by, driver), figures): ((usize, Form, String, String), Figures)| {
        let ns = Figure::ns(&figures, burst as f64, context.effort.rounds);
        Row { cost: Cost { mac: family.name, bytes, burst, form, by, ns }, driver, figures }
    };
    of.into_iter().zip(measured).map(row).collect()
}

/// The charts of a MAC, and what they are made of.
struct Costs {
    charts: Vec<Chart>,
    costs: Vec<Cost>,
}

fn costs(context: &Context<'_>, reasons: &mut Reasons) -> Costs {
    let families: Vec<Family> =
        MACS.into_iter().filter_map(|mac| Family::new(context, mac).map_err(|why| reasons.add(why)).ok()).collect();
    let candidates = candidates(context, reasons);
    let lengths: &[usize] = if context.effort == super::Effort::QUICK { &FEW_LENGTHS } else { &LENGTHS };
    let mut sheets: Vec<[Sheet; 2]> = families.iter().map(|_| [const { Sheet(Vec::new()) }; 2]).collect();
    let mut costs = Vec::new();
    'rows: for &bytes in lengths {
        let best = [1, BURST].map(|burst| (burst, fastest(context, &candidates, bytes, burst)));
        for (family, sheets) in families.iter().zip(&mut sheets) {
            if reasons.stopped(context) {
                break 'rows;
            }
            (context.progress)(&format!("partial {}, packets of {bytes} bytes", family.name));
            for Row { cost, driver, figures } in row(context, family, bytes, &best, reasons) {
                let packets = (cost.burst * bytes) as f64;
                match Figure::ticks(&figures, packets, context.effort.rounds) {
                    Some(figure) => {
                        let by = if driver.is_empty() { driver } else { format!("{driver}, ") };
                        let remark = format!("{by}{:.1} ns a packet", cost.ns.median);
                        let series = if cost.form == Form::Fastest { FASTEST } else { &*cost.by };
                        sheets[usize::from(cost.burst > 1)].add(series, X::Number(bytes as f64), figure, remark);
                    }
                    None => {
                        reasons.add("this CPU has no time-stamp counter that programs can read: there are no cycles");
                    }
                }
                costs.push(cost);
            }
            // A MAC that is the fastest one itself was measured once.
            for (burst, best) in best {
                let own = of(&costs, family.name, bytes, burst, Form::Whole);
                if let Some(ns) =
                    own.filter(|own| best.is_some_and(|best| best.info().name == own.by)).map(|own| own.ns)
                {
                    let (form, by) = (Form::Fastest, family.name.to_owned());
                    costs.push(Cost { mac: family.name, bytes, burst, form, by, ns });
                }
            }
        }
    }
    let mut charts = [Vec::new(), Vec::new()];
    for (family, sheets) in families.iter().zip(sheets) {
        let [single, burst] = sheets;
        let chart = |id: &str, how: &str, shape| Chart {
            id: format!("{}-{id}", family.id),
            title: format!("{} by the part that it covers: {how}", family.name),
            shape,
            x: numbers("length of a packet", "bytes"),
            y: cycles_a_byte(),
            series: Vec::new(),
        };
        charts[0].extend(single.onto(chart("single", "one packet", Shape::Lines)));
        charts[1].extend(burst.onto(chart("burst", "a burst of 64 packets", Shape::Table)));
    }
    Costs { charts: charts.into_iter().flatten().collect(), costs }
}

/// The cost of a form.
fn of<'a>(costs: &'a [Cost], mac: &str, bytes: usize, burst: usize, form: Form) -> Option<&'a Cost> {
    costs.iter().find(|cost| (cost.mac, cost.bytes, cost.burst, cost.form) == (mac, bytes, burst, form))
}

/// Times as multiples of that of the whole MAC.
fn shares(costs: &[Cost], burst: usize) -> Option<Chart> {
    let mut sheet = Sheet::default();
    for form in Form::compared() {
        for (_, _, mac) in MACS {
            let of = |form| of(costs, mac, COMPARED, burst, form);
            if let (Some(whole), Some(cost)) = (of(Form::Whole), of(form)) {
                let remark = if form == Form::Fastest { &*cost.by } else { "" };
                sheet.add(&form.name(), word(mac), Figure::stated(cost.ns.median / whole.ns.median), remark);
            }
        }
    }
    let (id, how) = if burst == 1 { ("share-single", "alone") } else { ("share-burst", "in a burst of 64") };
    sheet.computed(&[], "computed from the times of this part, the medians of each row").onto(Chart {
        id: id.to_owned(),
        title: format!("A packet of {} bytes {how}, as a multiple of the whole MAC's time (1)", exact(COMPARED as f64)),
        shape: Shape::Bars,
        x: words("MAC"),
        y: figures("time, as a multiple of the whole MAC's", "", Scale::Linear, Better::Lower),
        series: Vec::new(),
    })
}

/// Nanoseconds of a packet.
fn table(costs: &[Cost]) -> Table {
    let mut columns = vec!["MAC".to_owned(), "packets".to_owned(), "whole".to_owned()];
    columns.extend(Form::compared().map(Form::name));
    let mut rows = Vec::new();
    for burst in [1, BURST] {
        for (_, _, mac) in MACS {
            let of = |form| of(costs, mac, COMPARED, burst, form);
            let Some(whole) = of(Form::Whole) else { continue };
            let how = if burst == 1 { "one" } else { "64 in a burst" };
            let mut row = vec![mac.to_owned(), how.to_owned(), about(whole.ns.median)];
            row.extend(Form::compared().map(|form| match of(form) {
                Some(cost) if form == Form::Fastest => format!("{} ({})", about(cost.ns.median), cost.by),
                Some(cost) => about(cost.ns.median),
                None => String::new(),
            }));
            rows.push(row);
        }
    }
    Table {
        title: format!("A packet of {} bytes, in nanoseconds", exact(COMPARED as f64)),
        columns,
        rows,
        source: Source::Here,
    }
}

/// Names the rows in which a quarter of a packet loses to all of it by a faster MAC.
fn losing(costs: &[Cost]) -> Option<String> {
    let mut lost = Vec::new();
    for burst in [1, BURST] {
        for (_, _, mac) in MACS {
            let of = |form| of(costs, mac, COMPARED, burst, form);
            let (Some(quarter), Some(best)) = (of(Form::Covers(Fraction::Quarter)), of(Form::Fastest)) else {
                continue;
            };
            if quarter.ns.loses_to(&best.ns, Better::Lower) {
                let how = if burst == 1 { "alone" } else { "in bursts" };
                lost.push(format!("{mac} {how} ({} times {})", about(quarter.ns.median / best.ns.median), best.by));
            }
        }
    }
    (!lost.is_empty()).then(|| {
        let bytes = exact(COMPARED as f64);
        format!(
            "A quarter of a packet of {bytes} bytes costs more than all of it by the fastest whole MAC: {}.",
            lost.join(", ")
        )
    })
}

/// Packets for each point.
fn trials(context: &Context<'_>) -> u64 {
    context.effort.each.as_micros() as u64 * PACKETS_PER_US
}

/// The points of all fractions that are counted, until somebody asks to end.
fn detected(context: &Context<'_>, reasons: &mut Reasons) -> Vec<detection::Point> {
    let mut points = Vec::new();
    for fraction in PARTS {
        if reasons.stopped(context) {
            break;
        }
        (context.progress)(&format!("altered blocks that escape at {}", fraction.name()));
        let name = format!("partial(cmac(aes),{})", fraction.name());
        let counted = PartialAlg::lookup(context.registry, &name)
            .map_err(|e| e.to_string())
            .and_then(|alg| detection::points(&alg, trials(context), SEED).map_err(|e: OpError| e.to_string()));
        match counted {
            Ok(counted) => points.extend(counted),
            Err(why) => reasons.add(format!("{name}: {why}")),
        }
    }
    points
}

/// The counted shares, and the formula's.
fn escapes(points: &[detection::Point], trials: u64) -> Option<Chart> {
    let mut series = Vec::new();
    for fraction in PARTS {
        let drawn = |point: &&detection::Point| {
            point.fraction == fraction && ALTERED.contains(&point.altered) && point.expected() >= ENOUGH
        };
        let points: Vec<&detection::Point> = points.iter().filter(drawn).collect();
        if points.is_empty() {
            continue;
        }
        let of = |figure: &dyn Fn(&detection::Point) -> Figure| {
            let point = |point: &&detection::Point| Point {
                x: X::Number(point.altered as f64),
                figure: figure(point),
                remark: String::new(),
            };
            points.iter().map(point).collect()
        };
        let counted = |point: &detection::Point| {
            let [low, high] = point.interval(Level::P99);
            Figure { low, high, ..Figure::stated(point.escaped as f64 / point.trials as f64) }
        };
        let from =
            format!("of {} packets for each fraction; strokes are their intervals of 99 %", exact(trials as f64));
        series.push(Series { name: fraction.name().to_owned(), source: Source::Counted(from), points: of(&counted) });
        series.push(Series {
            name: format!("{}, formula", fraction.name()),
            source: Source::Model("(1 - f)^m for m altered blocks and the fraction f".to_owned()),
            points: of(&|point| Figure::stated(point.formula)),
        });
    }
    (!series.is_empty()).then(|| Chart {
        id: "escapes".to_owned(),
        title: "Altered packets that are taken as genuine".to_owned(),
        shape: Shape::Lines,
        x: Axis {
            name: format!("altered blocks of {BLOCKS}"),
            unit: String::new(),
            scale: Scale::Linear,
            better: None,
        },
        y: figures("share of packets that are taken", "", Scale::Log, Better::Lower),
        series,
    })
}

/// The number of points that the formula agrees with.
fn agreement(points: &[detection::Point]) -> Option<String> {
    let within = points.iter().filter(|point| point.is_within(Level::P99)).count();
    (!points.is_empty()).then(|| {
        format!(
            "Altered blocks that escape: of {} points (every m from 1 to {BLOCKS}, each fraction) {within} have the formula within their \
             intervals of 99 %. By chance alone one in a hundred at most would not; the points of a fraction are about the same packets.",
            points.len()
        )
    })
}

fn measure(context: &Context<'_>) -> Measured {
    let mut reasons = Reasons::default();
    let Costs { charts, costs } = costs(context, &mut reasons);
    let points = detected(context, &mut reasons);
    let shares = [shares(&costs, 1), shares(&costs, BURST)].into_iter().flatten();
    let tables = Some(table(&costs)).filter(|table| !table.rows.is_empty());
    Measured {
        method: "One thread signs packets of ESP in memory, without encryption and with extended sequence numbers: an inner packet of so \
                 many bytes, by which cycles a byte are counted, between ESP header and trailer. Of a partial MAC each packet has another \
                 selection, which is in its figures; in a burst each packet has a key of its own, too. All forms of a MAC take turns at \
                 each length. The fastest whole MAC is looked for before that, for each length and burst, among all MACs of this build \
                 with a tag of 128 bits or more that are not of old protocols, and need no key for each message. What escapes is counted \
                 by selections alone: in each packet, blocks at random places are altered one after another until one of them is covered."
            .to_owned(),
        outcome: reasons.outcome(),
        charts: shares.chain(escapes(&points, trials(context))).chain(charts).collect(),
        tables: tables.into_iter().collect(),
        notes: losing(&costs)
            .into_iter()
            .chain(agreement(&points))
            .chain([
                "Of packets with 176 bytes or less behind the ESP header everything is covered: there a partial MAC costs more than a \
                 whole one, and protects as much."
                    .to_owned(),
                "One altered block of 16 bytes escapes in a half of all packets or more. An attacker who keeps the genuine packet back \
                 may try again."
                    .to_owned(),
            ])
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chart, check, measure, series};
    use super::*;

    #[test]
    fn every_form_has_a_figure_at_each_length() {
        let part = measure(&ENTRY, &|| false);
        check(&part);
        let names: Vec<X> = MACS.iter().map(|(_, _, mac)| word(mac)).collect();
        for id in ["share-single", "share-burst"] {
            for form in Form::compared().map(Form::name) {
                let at: Vec<X> = series(chart(&part, id), &form).points.iter().map(|p| p.x.clone()).collect();
                assert_eq!(at, names, "{id}, {form}");
            }
        }
        let [table] = &part.tables[..] else { panic!("{} tables", part.tables.len()) };
        assert_eq!(table.rows.len(), 2 * MACS.len());
        assert!(table.rows.iter().flatten().all(|cell| !cell.is_empty()), "{:?}", table.rows);
        if sealane_drivers::turns::ticks() == 0 {
            println!("skipped: no time-stamp counter");
            return;
        }
        for (id, _, mac) in MACS {
            for word in ["single", "burst"] {
                let chart = chart(&part, &format!("{id}-{word}"));
                let partial = Fraction::ALL.map(|fraction| format!("partial({mac},{})", fraction.name()));
                for name in partial.iter().map(String::as_str).chain([mac]) {
                    assert_eq!(series(chart, name).points.len(), LENGTHS.len(), "{id}, {word}, {name}");
                }
            }
        }
    }

    #[test]
    fn what_escapes_is_beside_the_formula() {
        let part = measure(&ENTRY, &|| false);
        let escapes = chart(&part, "escapes");
        assert_eq!(escapes.series.len(), 2 * PARTS.len());
        for pair in escapes.series.as_chunks::<2>().0 {
            let [counted, formula] = pair;
            assert!(matches!(counted.source, Source::Counted(_)) && matches!(formula.source, Source::Model(_)));
            assert!(counted.points.iter().map(|p| &p.x).eq(formula.points.iter().map(|p| &p.x)));
            for (counted, formula) in counted.points.iter().zip(&formula.points) {
                // The numbers are the same in every run.
                let (low, high) = (counted.figure.low, counted.figure.high);
                assert!((low..=high).contains(&formula.figure.median), "{counted:?} {formula:?}");
            }
        }
        assert!(part.notes.iter().any(|note| note.contains("of 264 points")), "{:?}", part.notes);
    }

    fn cost(mac: &'static str, burst: usize, form: Form, median: f64) -> Cost {
        let ns = Figure { median, low: median * 0.9, high: median * 1.1, rounds: 5, cpu: None };
        Cost { mac, bytes: COMPARED, burst, form, by: "gmac(aes)".to_owned(), ns }
    }

    #[test]
    fn rows_that_lose_are_named() {
        let mut costs = vec![
            cost("gmac(aes)", 1, Form::Covers(Fraction::Quarter), 300.0),
            cost("gmac(aes)", 1, Form::Fastest, 100.0),
            // More in the median, and not in every round.
            cost("cmac(aes)", 1, Form::Covers(Fraction::Quarter), 110.0),
            cost("cmac(aes)", 1, Form::Fastest, 100.0),
            cost("cmac(aes)", BURST, Form::Covers(Fraction::Quarter), 150.0),
            cost("cmac(aes)", BURST, Form::Fastest, 100.0),
        ];
        let lost = losing(&costs).expect("two lose");
        assert!(
            lost.ends_with(": gmac(aes) alone (3.00 times gmac(aes)), cmac(aes) in bursts (1.50 times gmac(aes))."),
            "{lost}"
        );
        costs.retain(|cost| cost.mac == "cmac(aes)" && cost.burst == 1);
        assert_eq!(losing(&costs), None);
    }

    #[test]
    fn lengths_are_those_of_esp() {
        // docs/partial-mac.md: an inner packet of 1,420 bytes has 1,432 to cover.
        assert_eq!(covered_len(1420), 1432);
        assert_eq!(covered_len(64), 76);
    }

    #[test]
    fn the_fastest_one_is_strong() {
        let registry = sealane_drivers::system_registry().0;
        let context =
            Context { registry: &registry, effort: super::super::Effort::QUICK, stop: &|| false, progress: &|_| () };
        let candidates = candidates(&context, &mut Reasons::default());
        let names: Vec<&str> = candidates.iter().map(|alg| &*alg.info().name).collect();
        for wanted in ["gmac(aes)", "cmac(aes)", "hmac(sha256)"] {
            assert!(names.contains(&wanted), "{wanted} in {names:?}");
        }
        for weak in ["siphash24", "hmac(md5)", "poly1305", "cbcmac(aes)", "crc32"] {
            assert!(!names.contains(&weak), "{weak}");
        }
    }
}
