//! The cost of MACs, their strength, and the cost to move the same bytes by TCP.
//!
//! A row is a length and a group of at most seven MACs, single and in bursts: 41 MACs make 574 figures, 115 s with
//! `Effort::FULL` and 11 s with `Effort::QUICK`, and half as much again at most where one burst takes longer than a round. The usual
//! MACs are drawn, the others are in tables. TCP and the MACs beside it have 15 figures, datagrams 9: 5 s and 0.5 s. All parts of this
//! process: some 160 s and 20 s.

pub(crate) mod moving;
pub(crate) mod strength;

use super::frame::{Context, Entry, Measured, Reasons, Sheet, figures, numbers, word, words};
use crate::data::{Better, Chart, Figure, Scale, Shape, X};
use crate::published::{ACSA, HMAC_SHA1_96_1999, MOVING_1999, TCP_1999, over_numbers, over_words};
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::{Alg, AlgInfo, KeyUse, Kind};
use sealane_drivers::measure::{self, Workload};
use sealane_drivers::turns::{CpuOf, in_turns};
use strength::strength;

pub(super) const ENTRY: Entry = Entry {
    id: "mac",
    title: "The cost of MACs, and where that matters",
    about: "Cycles for each byte of every MAC, alone and in bursts of 64, by the length of messages, and how hard each is to forge; beside \
            what it costs to move the same bytes by TCP. The choice of the MAC does not show where moving a byte costs much more than \
            its MAC.",
    measure,
};

/// Bytes of messages: a SYN's worth, blocks, packets of networks, a page or two.
const LENGTHS: [usize; 7] = [16, 64, 144, 576, 1420, 4096, 8192];

/// Messages in a burst.
pub(super) const BURST: usize = measure::MAX_BURST;

/// Algorithms with a key that are no MACs: checksums with a seed, and a function to derive keys.
const NO_MACS: [&str; 4] = ["crc32", "crc32c", "xxhash64", "kmac256-kdf"];

/// Bytes of a write.
const WRITES: [usize; 3] = [10, 100, 1000];

/// The series of TCP.
const TCP: &str = "TCP over loopback";

/// The MACs that are drawn beside TCP.
const BESIDE_TCP: [(Kind, &str); 4] = [
    (Kind::Hash, "hmac(sha1)"),
    (Kind::Hash, "hmac(sha256)"),
    (Kind::Hash, "cmac(aes)"),
    (Kind::NonceMac, "gmac(aes)"),
];

/// The MACs that are drawn: those of IPsec and TCP-AO that somebody chooses today, and the two whose designs are fast without
/// instructions for AES.
const USUAL: [&str; 7] = ["hmac(sha1)", "hmac(sha256)", "hmac(sha512)", "cmac(aes)", "gmac(aes)", "poly1305", "blake3"];

/// MACs that one chart compares.
struct Group {
    id: &'static str,
    title: &'static str,
    has: fn(&AlgInfo) -> bool,
}

/// The groups, of which the first is drawn. A MAC belongs to the first one that has it, and none has more than a chart has lines, seven:
/// so a chart keeps its name from run to run.
static GROUPS: [Group; 10] = [
    Group { id: "usual", title: "The usual MACs", has: |info| USUAL.contains(&&*info.name) },
    Group { id: "old", title: "MACs kept for old protocols", has: |info| info.legacy },
    Group {
        id: "nonce",
        title: "Other MACs of a universal hash with a nonce, or with a key for each message",
        has: |info| info.kind == Kind::NonceMac,
    },
    Group {
        id: "block",
        title: "Other MACs of block ciphers",
        has: |info| begins(info, &["cmac(", "xcbc(", "cbcmac("]),
    },
    Group {
        id: "hmac-sha3",
        title: "MACs of Keccak: HMAC of SHA-3, KMAC",
        has: |info| begins(info, &["hmac(sha3", "kmac"]),
    },
    Group { id: "hmac-sha2", title: "Other HMACs of SHA-1 and SHA-2", has: |info| begins(info, &["hmac(sha"]) },
    Group { id: "hmac-blake2b", title: "HMAC of BLAKE2b", has: |info| begins(info, &["hmac(blake2b"]) },
    Group { id: "blake2b", title: "BLAKE2b with a key", has: |info| begins(info, &["blake2b"]) },
    Group { id: "hmac-other", title: "HMAC of other hashes", has: |info| begins(info, &["hmac("]) },
    Group { id: "hash", title: "Other hashes with a key", has: |_| true },
];

fn begins(info: &AlgInfo, parts: &[&str]) -> bool {
    parts.iter().any(|part| info.name.starts_with(part))
}

/// Every MAC of the registry.
pub(super) fn macs(context: &Context<'_>, reasons: &mut Reasons) -> Vec<Alg> {
    let mut names: Vec<(Kind, &str)> = Vec::new();
    for info in context.registry.rows().iter().map(|row| &row.info) {
        let is_mac = matches!(info.kind, Kind::Hash | Kind::NonceMac) && info.key_use != KeyUse::None;
        if is_mac && !NO_MACS.contains(&&*info.name) && !names.contains(&(info.kind, &info.name)) {
            names.push((info.kind, &info.name));
        }
    }
    let look_up = |(kind, name)| match context.registry.lookup(kind, name) {
        Ok(alg) => Some(alg),
        Err(why) => {
            reasons.add(format!("{name}: {why}"));
            None
        }
    };
    names.into_iter().filter_map(look_up).collect()
}

/// The groups of these MACs that are not empty, with their members.
fn groups(macs: &[Alg]) -> Vec<(&'static Group, Vec<Alg>)> {
    let of = |alg: &Alg| GROUPS.iter().position(|group| (group.has)(alg.info()));
    let members = |at| macs.iter().filter(|alg| of(alg) == Some(at)).cloned().collect::<Vec<_>>();
    let groups = GROUPS.iter().enumerate().map(|(at, group)| (group, members(at)));
    groups.filter(|(_, members)| !members.is_empty()).collect()
}

/// Measures `algs` in turns at one length, and returns a figure for each and burst in `bursts`: cycles a byte, and the remark.
fn row(context: &Context<'_>, algs: &[Alg], bytes: usize, bursts: &[usize], reasons: &mut Reasons) -> Vec<Row> {
    let (mut loads, mut of) = (Vec::new(), Vec::new());
    for alg in algs {
        for &burst in bursts {
            let shape = measure::Shape { way: MeasuredDirection::Forward, bytes, burst };
            match Workload::new(alg, shape) {
                Ok(load) => {
                    loads.push(load);
                    of.push((alg, burst));
                }
                Err(why) => reasons.add(why),
            }
        }
    }
    let rounds = context.effort.rounds;
    let measured = in_turns(&mut loads, Workload::run, CpuOf::Thread, context.effort.each, rounds);
    let mut rows = Vec::new();
    for ((alg, burst), f) in of.into_iter().zip(&measured) {
        let Some(figure) = Figure::ticks(f, (burst * bytes) as f64, rounds) else {
            reasons.add("this CPU has no time-stamp counter that programs can read: there are no cycles");
            continue;
        };
        let driver = &alg.row_for(MeasuredDirection::Forward, bytes, burst).driver;
        let remark = format!("{driver}, {:.1} ns a message", f.median_ns / burst as f64);
        rows.push(Row { name: alg.info().name.clone(), burst, figure, remark });
    }
    rows
}

/// Cycles a byte of one MAC.
struct Row {
    name: String,
    burst: usize,
    figure: Figure,
    remark: String,
}

fn measure(context: &Context<'_>) -> Measured {
    let mut reasons = Reasons::default();
    let macs = macs(context, &mut reasons);
    let mut charts = Vec::new();
    let tcp = beside_tcp(context, &mut reasons);
    let share = tcp.as_ref().and_then(share_of_tcp);
    charts.extend(tcp);
    charts.extend(packets(context, &mut reasons));
    for (Group { id, title, .. }, members) in groups(&macs) {
        let [mut single, mut burst] = [const { Sheet(Vec::new()) }; 2];
        for bytes in LENGTHS {
            if reasons.stopped(context) {
                break;
            }
            (context.progress)(&format!("{title}, {bytes} bytes"));
            for row in row(context, &members, bytes, &[1, BURST], &mut reasons) {
                let sheet = if row.burst == 1 { &mut single } else { &mut burst };
                sheet.add(&row.name, X::Number(bytes as f64), row.figure, row.remark);
            }
        }
        for (sheet, word, how) in [(single, "single", "one message"), (burst, "burst", "a burst of 64 messages")] {
            charts.extend(sheet.onto(Chart {
                id: format!("{id}-{word}"),
                title: format!("{title}: {how}"),
                shape: if *id == GROUPS[0].id { Shape::Lines } else { Shape::Table },
                x: numbers("length of a message", "bytes"),
                y: cycles_a_byte(),
                series: Vec::new(),
            }));
        }
    }
    Measured {
        method: "One thread computes MACs over texts in memory, by the driver that the table picks for the length and burst (the remark of \
                 each figure), with prepared keys; in a burst each message has a key of its own. The MACs of a chart take turns at each \
                 length. Cycles are of the time-stamp counter. TCP: one thread writes 32 times and then reads as often, over loopback, \
                 TCP_NODELAY. Its time by the clock is that of both ends, also of interrupts, which CPU clocks leave out on some kernels; \
                 neither end sleeps or waits. A connection with MACs computes each twice, to sign and to verify: beside TCP a MAC's \
                 figure is that of one computation, doubled. \
                 Datagrams: one thread sends each through UDP over loopback and receives it, and computes the MAC at both ends; it never \
                 waits, and the ratios are of the time that takes."
            .to_owned(),
        outcome: reasons.outcome(),
        charts,
        tables: vec![strength(&macs)],
        notes: share.into_iter().chain([
            format!("No MACs, although they take a key: {}.", NO_MACS.join(", ")),
            "poly1305 takes a key for each message. To make it (a block of ChaCha20 or AES) is not in its figures.".to_owned(),
            "A reader that sleeps between two short writes makes TCP cost more than these figures.".to_owned(),
            "The figures of 1999 are of packets that cross a network card, ours of writes that stay in the machine, and count both ends; \
             the source does not say whether its figures do."
                .to_owned(),
        ]).collect(),
    }
}

pub(super) fn cycles_a_byte() -> crate::data::Axis {
    figures("cost of a byte", "cycles/byte", Scale::Log, Better::Lower)
}

/// The cost of TCP beside that of MACs of the same bytes, which both ends compute.
fn beside_tcp(context: &Context<'_>, reasons: &mut Reasons) -> Option<Chart> {
    let mut sheet = Sheet::default();
    let mut algs = Vec::new();
    for (kind, name) in BESIDE_TCP {
        match context.registry.lookup(kind, name) {
            Ok(alg) => algs.push(alg),
            Err(why) => reasons.add(format!("{name}: {why}")),
        }
    }
    for bytes in WRITES {
        if reasons.stopped(context) {
            break;
        }
        (context.progress)(&format!("TCP, writes of {bytes} bytes"));
        let x = X::Number(bytes as f64);
        match moving::tcp(context, bytes) {
            Ok((figure, ns)) => sheet.add(TCP, x.clone(), figure, format!("{ns:.2} ns a byte")),
            Err(why) => reasons.add(format!("{TCP}: {why}")),
        }
        for row in row(context, &algs, bytes, &[1], reasons) {
            sheet.add(&row.name, x.clone(), at_both_ends(row.figure), format!("{}, twice", row.remark));
        }
    }
    sheet.onto(Chart {
        id: "tcp".to_owned(),
        title: "The cost of TCP and of a MAC for each byte, both ends together".to_owned(),
        shape: Shape::Lines,
        x: numbers("length of a write", "bytes"),
        y: cycles_a_byte(),
        series: vec![
            over_numbers("TCP (1999)", ACSA, TCP_1999),
            over_numbers("HMAC-SHA1-96 (1999)", ACSA, HMAC_SHA1_96_1999),
        ],
    })
}

/// The cost of a MAC that one end computes to sign, and the other one to verify.
fn at_both_ends(one: Figure) -> Figure {
    let [median, low, high] = [one.median, one.low, one.high].map(|end| 2.0 * end);
    Figure { median, low, high, ..one }
}

/// The cost of a MAC as a share of the cost of TCP for the same bytes, both at both ends.
fn share_of_tcp(chart: &Chart) -> Option<String> {
    let of = |name: &str| chart.series.iter().find(|series| series.name == name);
    let (tcp, mac) = (of(TCP)?, of("hmac(sha1)")?);
    let mut shares = Vec::new();
    for point in &mac.points {
        let beside = tcp.points.iter().find(|other| other.x == point.x);
        if let (X::Number(bytes), Some(beside)) = (&point.x, beside) {
            shares.push(format!("{:.2} at {bytes} bytes", point.figure.median / beside.figure.median));
        }
    }
    (!shares.is_empty()).then(|| {
        format!(
            "HMAC-SHA1 at both ends costs, as a share of TCP at both ends for the same bytes: {}.",
            shares.join(", ")
        )
    })
}

/// The time to move packets with a MAC and without, and as a multiple of the latter.
fn packets(context: &Context<'_>, reasons: &mut Reasons) -> Vec<Chart> {
    let [mut times, mut ratios] = [const { Sheet(Vec::new()) }; 2];
    for bytes in moving::PAYLOADS {
        if reasons.stopped(context) {
            break;
        }
        (context.progress)(&format!("datagrams of {bytes} bytes with MACs"));
        match moving::datagrams(context, bytes) {
            Ok(measured) => {
                let series = format!("UDP over loopback, {bytes} bytes");
                let without = measured.iter().find(|(name, _)| *name == moving::NO_MAC).map(|(_, f)| f.median);
                for (name, time) in measured {
                    times.add(&series, word(name), time, "");
                    if let Some(without) = without.filter(|_| name != moving::NO_MAC) {
                        let [median, low, high] = [time.median, time.low, time.high].map(|ns| ns / without);
                        ratios.add(&series, word(name), Figure { median, low, high, cpu: None, ..time }, "");
                    }
                }
            }
            Err(why) => reasons.add(format!("datagrams of {bytes} bytes: {why}")),
        }
    }
    let bars = |id: &str, title: &str, y, series| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        shape: Shape::Bars,
        x: words("MAC"),
        y,
        series,
    };
    let ratios = ratios.computed(&[], "computed from the times of datagrams in this report");
    let multiple = figures("time, as a multiple of that without a MAC", "", Scale::Linear, Better::Lower);
    let published = vec![over_words("IP packets through the kernel (1999)", ACSA, MOVING_1999)];
    let time = figures("time for a packet", "ns", Scale::Linear, Better::Lower);
    let charts = [
        ratios.onto(bars(
            "packets",
            "Moving packets with a MAC at both ends, as a multiple of moving them without (1)",
            multiple,
            published,
        )),
        times.onto(bars("packets-ns", "Moving a packet, with and without a MAC at both ends", time, Vec::new())),
    ];
    charts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::frame::Effort;
    use super::super::tests::{chart, check, measure, series};
    use super::*;
    use crate::data::{Point, Series, Source};
    use sealane_drivers::system_registry;

    /// Lines that can be told apart in one chart.
    const LINES: usize = 7;

    #[test]
    fn every_mac_is_in_one_group_of_few_lines() {
        let registry = system_registry().0;
        let effort = Effort::QUICK;
        let context = Context { registry: &registry, effort, stop: &|| false, progress: &|_| () };
        let mut reasons = Reasons::default();
        let macs = macs(&context, &mut reasons);
        assert_eq!(reasons.0, [""; 0]);
        let groups = groups(&macs);
        let mut in_groups: Vec<&str> = groups.iter().flat_map(|g| &g.1).map(|alg| &*alg.info().name).collect();
        assert_eq!(in_groups.len(), macs.len());
        in_groups.sort_unstable();
        in_groups.dedup();
        assert_eq!(in_groups.len(), macs.len());
        for (group, members) in &groups {
            assert!(members.len() <= LINES, "{} has {}: it needs another group", group.id, members.len());
        }
        for known in [
            "hmac(sha1)",
            "cmac(aes)",
            "gmac(aes)",
            "poly1305",
            "kmac256",
            "blake3",
            "siphash24",
            "blake2s-256",
            "hmac(md5)",
        ] {
            assert!(in_groups.contains(&known), "{known}");
        }
        assert!(NO_MACS.iter().all(|name| !in_groups.contains(name)));
    }

    #[test]
    fn both_ends_compute_a_mac() {
        let one = Figure { median: 2.0, low: 1.0, high: 3.0, rounds: 5, cpu: None };
        assert_eq!(at_both_ends(one), Figure { median: 4.0, low: 2.0, high: 6.0, rounds: 5, cpu: None });
        let series = |name: &str, figure| Series {
            name: name.to_owned(),
            source: Source::Here,
            points: vec![Point { x: X::Number(100.0), figure, remark: String::new() }],
        };
        let chart = Chart {
            id: String::new(),
            title: String::new(),
            shape: Shape::Lines,
            x: numbers("", ""),
            y: cycles_a_byte(),
            series: vec![series(TCP, one), series("hmac(sha1)", at_both_ends(one))],
        };
        let share = share_of_tcp(&chart).expect("a share");
        assert!(share.contains("both ends") && share.ends_with(": 2.00 at 100 bytes."), "{share}");
    }

    #[test]
    fn tcp_and_macs_have_a_figure_at_each_length() {
        let part = measure(&ENTRY, &|| false);
        check(&part);
        if sealane_drivers::turns::ticks() == 0 {
            println!("skipped: no time-stamp counter");
            return;
        }
        let tcp = chart(&part, "tcp");
        assert_eq!(series(tcp, TCP).points.len(), WRITES.len());
        assert_eq!(tcp.series.iter().filter(|s| matches!(s.source, Source::Published(_))).count(), 2);
        assert_eq!(tcp.series.len(), LINES);
        for (id, name) in [("usual-single", "hmac(sha1)"), ("usual-burst", "gmac(aes)"), ("hmac-sha3-burst", "kmac256")]
        {
            assert_eq!(series(chart(&part, id), name).points.len(), LENGTHS.len(), "{id}");
            assert_eq!(chart(&part, id).shape == Shape::Table, !id.starts_with("usual"), "{id}");
        }
        let share = share_of_tcp(tcp).expect("a share");
        assert!(
            share.contains("at 10 bytes") && share.contains("at 1000 bytes") && part.notes.contains(&share),
            "{share}"
        );
        let times = chart(&part, "packets-ns");
        assert_eq!(times.series.len(), moving::PAYLOADS.len());
        assert!(times.series.iter().all(|s| s.source == Source::Here && s.points[0].x == word(moving::NO_MAC)));
        let packets = chart(&part, "packets");
        assert!(packets.series.iter().all(|s| s.source != Source::Here), "what is computed counts once");
        assert_eq!(packets.series.len(), moving::PAYLOADS.len() + 1);
        assert!(packets.series.iter().all(|s| s.points.len() == MOVING_1999.len()));
        assert!(packets.series.iter().all(|s| s.points.iter().zip(MOVING_1999).all(|(p, m)| p.x == word(m.0))));
    }
}
