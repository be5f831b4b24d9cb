//! One TCP segment of 128 bytes, signed and verified by each algorithm of TCP-AO.
//!
//! A row is an algorithm: ten of them, each with two rivals that keep the key, and for signing at most five that set it for each segment:
//! the driver that Sealane picks, and four libraries. So signing has at most 70 rivals and verifying has 20: 18 s with `Effort::FULL`, and
//! 2 s with `Effort::QUICK`.

use super::frame::{Context, Entry, Measured, Reasons, Sheet, figures, word, words};
use crate::data::{Better, Chart, Figure, Scale, Shape, X};
use crate::published::{TCP_AO, TCP_AO_AFTER, TCP_AO_BEFORE, over_words};
use arrayvec::ArrayVec;
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::mac::MacTfm;
use sealane_crypto::{Alg, Row};
use sealane_drivers::turns::{CpuOf, Figures, in_turns};
use sealane_net_ao::alg::{Algorithm, Algorithms};
use sealane_net_ao::kdf::{self, TrafficKey};
use sealane_net_ao::mac::{BURST, Checksum, Coverage, Sign, Verify, sign, verify};
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::output::OptionFields;
use sealane_net_ao::segment::insert;
use sealane_wire::ip::Layout;
use sealane_wire::tcp::Segment;
use std::fmt::Display;
use std::sync::Arc;

pub(super) const ENTRY: Entry = Entry {
    id: "tcp-ao",
    title: "One TCP-AO segment, by algorithm",
    about: "The cost to sign one TCP segment of 128 bytes: with the traffic key of its connection kept ready, alone and in a burst of 64 \
            segments of 64 connections, and with the key set again for each segment, as Linux does.",
    measure,
};

/// The algorithms that somebody configures: BIRD's seven, among which are those of RFC 5926 and the three of Linux 7.3; those of the drafts;
/// and one of SHA-3. The library has more.
const CONFIGURED: [&str; 10] = [
    "hmac(md5)",
    "hmac(sha1)",
    "hmac(sha224)",
    "hmac(sha256)",
    "hmac(sha384)",
    "hmac(sha512)",
    "hmac(sha3-256)",
    "cmac(aes128)",
    "hmac-sha256-128",
    "kmac256-128",
];

/// Length of the TCP header with options, and payload. The input of the MAC is 16 bytes longer: SNE and pseudo-header.
const TCP_LEN: usize = 128;
const MAC_INPUT_LEN: usize = TCP_LEN + 16;

/// The modules whose drivers are libraries: our own kernels do not count as rivals.
const LIBRARIES: [&str; 4] = ["portable", "awslc", "ipsecmb", "openssl"];

/// A burst that takes more of the time of single segments gains little.
const LITTLE: f64 = 0.8;

/// Series of charts.
const ONE: &str = "key kept, one segment";
const MANY: &str = "key kept, burst of 64";
const REKEYED: &str = "key set each time, the same driver";
const LIBRARY: &str = "key set each time, the fastest library";

fn measure(context: &Context<'_>) -> Measured {
    let mut reasons = Reasons::default();
    let [mut ticks, mut ns, mut libraries, mut verified] = [const { Sheet(Vec::new()) }; 4];
    let openssl: Vec<Arc<Row>> = sealane_crypto_openssl::rows().into_iter().map(Arc::new).collect();
    if let Err(why) = sealane_crypto_openssl::version() {
        reasons.add(format!("OpenSSL: {why}"));
    }
    let algorithms = Algorithms::new(context.registry);
    for name in CONFIGURED {
        if reasons.stopped(context) {
            break;
        }
        let Some(algorithm) = algorithms.get(name) else {
            reasons.add(format!("{name}: this build has no such algorithm"));
            continue;
        };
        (context.progress)(&format!("TCP-AO, {}", algorithm.name));
        let rows = rekeyed(context, algorithm, &openssl, &mut reasons);
        match one_way(context, algorithm, MeasuredDirection::Forward, &rows) {
            Ok(measured) => {
                let x = || word(algorithm.name);
                // Of the algorithms without published cycles the picture would be twice as high.
                let is_drawn = TCP_AO_AFTER.iter().any(|(published, _)| *published == algorithm.name);
                for row in &measured.rows {
                    let cycles = row.ticks.map_or(String::new(), |ticks| format!(", {:.0} cycles", ticks.median));
                    ns.add(row.series, x(), row.ns, format!("{}{cycles}", row.driver));
                    if let Some(figure) = row.ticks.filter(|_| is_drawn) {
                        ticks.add(row.series, x(), figure, row.driver.as_str());
                    }
                }
                for (row, figure) in
                    rows.iter().zip(&measured.rekeyed).filter(|(row, _)| LIBRARIES.contains(&row.module))
                {
                    libraries.add(row.module, x(), *figure, row.driver.as_str());
                }
            }
            Err(why) => reasons.add(why),
        }
        match one_way(context, algorithm, MeasuredDirection::Backward, &[]) {
            Ok(measured) => {
                for row in measured.rows {
                    verified.add(row.series, word(algorithm.name), row.ns, row.driver);
                }
            }
            Err(why) => reasons.add(why),
        }
    }
    let mut notes = vec![
        format!(
            "The library has {} algorithms; these {} are those of RFC 5926, of Linux and BIRD, and of the drafts, and one of SHA-3.",
            algorithms.iter().count(),
            CONFIGURED.len()
        ),
        "Cycles are of the time-stamp counter, which counts evenly whatever the CPU's frequency is.".to_owned(),
        "Linux' figures are of another machine, and of its function with its socket buffers around the MAC: compare their ratios, not their \
         height."
            .to_owned(),
    ];
    notes.extend(little_gain(&ns));
    let nanoseconds = || figures("time for a segment", "ns", Scale::Log, Better::Lower);
    let chart = |id: &str, title: &str, y, series| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        shape: Shape::Bars,
        x: words("algorithm"),
        y,
        series,
    };
    let published = vec![
        over_words("Linux before its library (2026)", TCP_AO, TCP_AO_BEFORE),
        over_words("Linux by its library (2026)", TCP_AO, TCP_AO_AFTER),
    ];
    let cycles = figures("time for a segment", "cycles", Scale::Log, Better::Lower);
    let ticks = ticks.computed(&[], "computed from the same rounds as the nanoseconds of the next chart");
    let ns = ns.computed(&[LIBRARY], "computed from the chart of libraries in this report: the least of their medians");
    let charts = [
        ticks.onto(chart(
            "sign-cycles",
            "A segment signed, in cycles of the time-stamp counter: the algorithms with published figures",
            cycles,
            published,
        )),
        ns.onto(chart("sign-ns", "A segment signed, in nanoseconds", nanoseconds(), Vec::new())),
        libraries.onto(chart(
            "libraries-ns",
            "A segment signed by each library, its key set each time",
            nanoseconds(),
            Vec::new(),
        )),
        verified.onto(chart("verify-ns", "A segment verified", nanoseconds(), Vec::new())),
    ];
    Measured {
        method: format!(
            "An IPv4 segment with {TCP_LEN} bytes of TCP (header, time stamps, the option of 16 bytes, 80 bytes of payload), in memory, by \
             one thread. All rivals of an algorithm take turns. \"Set each time\" prepares the key's schedule for each segment; the \
             traffic key itself is derived once by all. It also allocates a transform for each segment and releases the last one, which \
             is in its figures."
        ),
        outcome: reasons.outcome(),
        charts: charts.into_iter().flatten().collect(),
        tables: Vec::new(),
        notes,
    }
}

/// Names the algorithms that gain little from bursts.
fn little_gain(ns: &Sheet) -> Option<String> {
    let of = |name| ns.0.iter().find(|series| series.name == name);
    let (one, many) = (of(ONE)?, of(MANY)?);
    let pairs = one.points.iter().zip(&many.points);
    let lost: Vec<&str> = pairs
        .filter_map(|(one, many)| match &one.x {
            X::Word(name) if many.figure.median > one.figure.median * LITTLE => Some(&**name),
            _ => None,
        })
        .collect();
    (!lost.is_empty()).then(|| format!("Little or no gain from bursts: {}.", lost.join(", ")))
}

/// The rows that set the key each time: the driver that the table picks for one segment, and every library.
fn rekeyed(context: &Context<'_>, algorithm: &Algorithm, openssl: &[Arc<Row>], reasons: &mut Reasons) -> Vec<Arc<Row>> {
    let info = algorithm.mac().info();
    let picked = picked(algorithm, 1);
    let all = context.registry.rows().iter().chain(openssl);
    let ours = all.filter(|row| row.info.kind == info.kind && row.info.name == info.name);
    let wanted = ours.filter(|row| LIBRARIES.contains(&row.module) || row.driver == picked);
    let works = |row: &&Arc<Row>| {
        let tested = context.registry.self_test(row);
        if let Err(why) = &tested {
            reasons.add(format!("{}: {why}", row.driver));
        }
        tested.is_ok()
    };
    wanted.filter(works).cloned().collect()
}

/// The driver that the table picks.
fn picked(algorithm: &Algorithm, burst: usize) -> &str {
    &algorithm.mac().row_for(MeasuredDirection::Forward, MAC_INPUT_LEN, burst).driver
}

/// The figures of an algorithm in one direction.
struct OneWay {
    rows: Vec<OfSeries>,
    /// By the rows that set the key each time.
    rekeyed: Vec<Figure>,
}

/// A figure of a series, and its driver.
struct OfSeries {
    series: &'static str,
    driver: String,
    ns: Figure,
    ticks: Option<Figure>,
}

fn one_way(
    context: &Context<'_>,
    algorithm: &Arc<Algorithm>,
    way: MeasuredDirection,
    rekeyed: &[Arc<Row>],
) -> Result<OneWay, String> {
    let wrong = |e: &dyn Display| format!("{}: {e}", algorithm.name);
    let mkt = Mkt::new(&MktSpec {
        algorithm,
        key: b"a master key that is long enough",
        send_id: 1,
        recv_id: 2,
        mac_len: 12,
        exclude_options: false,
        peer: Prefix::ANY_V4,
        ifindex: None,
    })
    .map_err(|e| wrong(&e))?;
    let lane = |i| Lane::new(&mkt, i).map_err(|e| wrong(&e));
    let mut rivals = vec![
        Rival::Single(way, Box::new(lane(0)?)),
        Rival::Burst(way, (0..BURST).map(lane).collect::<Result<_, _>>()?),
    ];
    for row in rekeyed {
        rivals.push(Rival::Rekeyed(way, Alg::of_row(row, context.registry.entropy()), Box::new(lane(0)?)));
    }
    for rival in &mut rivals {
        rival.run().map_err(|e| wrong(&e))?;
    }
    // A rival that has run once runs again: keys, lengths and packets are the same.
    let run = |rival: &mut Rival| rival.run().expect("what has run before");
    let rounds = context.effort.rounds;
    let measured = in_turns(&mut rivals, run, CpuOf::Thread, context.effort.each, rounds);
    let [one, many] = [(&measured[0], 1), (&measured[1], BURST)];
    let of = |series, driver: &str, (f, segments): (&Figures, usize)| {
        let (driver, units) = (driver.to_owned(), segments as f64);
        OfSeries { series, driver, ns: Figure::ns(f, units, rounds), ticks: Figure::ticks(f, units, rounds) }
    };
    let mut rows = vec![of(ONE, picked(algorithm, 1), one), of(MANY, picked(algorithm, BURST), many)];
    let each = || rekeyed.iter().zip(&measured[2..]);
    let own = each().find(|(row, _)| row.driver == picked(algorithm, 1));
    let fastest = each()
        .filter(|(row, _)| LIBRARIES.contains(&row.module))
        .min_by(|a, b| a.1.median_ns.total_cmp(&b.1.median_ns));
    rows.extend(own.map(|(row, f)| of(REKEYED, &row.driver, (f, 1))));
    rows.extend(fastest.map(|(row, f)| of(LIBRARY, &row.driver, (f, 1))));
    Ok(OneWay { rows, rekeyed: each().map(|(_, f)| Figure::ns(f, 1.0, rounds)).collect() })
}

/// A segment of a connection.
struct Lane {
    packet: Vec<u8>,
    at: Layout,
    cover: Coverage,
    key: TrafficKey,
    tfm: MacTfm,
}

impl Lane {
    fn new(mkt: &Mkt, i: usize) -> Result<Self, String> {
        // IPv4 and TCP with time stamps, and 80 bytes of payload: with the option of 16 bytes, 128 bytes of TCP.
        let mut plain = vec![0x45, 0, 0, 132, 0, 1, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        plain.extend([0x10, 0, 0, 179, 1, 2, 3, i as u8, 5, 6, 7, 8, 0x80, 0x10, 1, 0, 0, 0, 0, 0]);
        plain.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        plain.resize(132, i as u8);
        let segment = Segment::parse(&plain).map_err(|e| format!("{e:?}"))?;
        let (source, destination) = (segment.source(), segment.destination());
        let context = kdf::Context { source, destination, source_isn: i as u32, destination_isn: 2 };
        let mut packet = vec![0; 20 + TCP_LEN];
        let fields = OptionFields { key_id: 1, rnext_key_id: 2, mac_len: 12 };
        let at = insert(&segment, &fields, &mut packet).map_err(|e| format!("{e:?}"))?;
        let cover = Coverage { mac_at: 24, mac_len: 12, sne: 0, exclude_options: false };
        let key = mkt.traffic_key(&context).map_err(|e| e.to_string())?;
        let tfm = mkt.traffic_mac(&context).map_err(|e| e.to_string())?;
        let mut lane = Lane { packet, at, cover, key, tfm };
        let mut op = [lane.signing()];
        sign(&mut op);
        op[0].status.map_err(|e| e.to_string())?;
        Ok(lane)
    }

    fn signing(&mut self) -> Sign<'_> {
        let (packet, at, cover) = (&mut self.packet[..], self.at, self.cover);
        Sign { tfm: &self.tfm, packet, at, cover, checksum: Checksum::Partial, status: Ok(()) }
    }

    fn verifying(&self) -> Verify<'_> {
        Verify { tfm: &self.tfm, packet: &self.packet, at: self.at, cover: self.cover, status: Ok(()) }
    }
}

/// A way to compute MACs.
enum Rival {
    /// One segment with a key that is kept.
    Single(MeasuredDirection, Box<Lane>),
    /// A burst of segments, each with its own key.
    Burst(MeasuredDirection, Vec<Lane>),
    /// One segment, with its key set again each time.
    Rekeyed(MeasuredDirection, Alg, Box<Lane>),
}

impl Rival {
    fn run(&mut self) -> Result<(), String> {
        match self {
            Rival::Single(way, lane) => run(*way, core::slice::from_mut(&mut **lane)),
            Rival::Burst(way, lanes) => run(*way, lanes),
            Rival::Rekeyed(way, alg, lane) => {
                lane.tfm = alg.mac(lane.key.as_bytes()).map_err(|e| e.to_string())?;
                run(*way, core::slice::from_mut(&mut **lane))
            }
        }
    }
}

/// Signs or verifies a segment of each lane.
fn run(way: MeasuredDirection, lanes: &mut [Lane]) -> Result<(), String> {
    let failed = match (way, lanes) {
        (MeasuredDirection::Forward, [lane]) => {
            let mut op = [lane.signing()];
            sign(&mut op);
            op[0].status.err().map(|e| e.to_string())
        }
        (MeasuredDirection::Forward, lanes) => {
            let mut ops: ArrayVec<Sign<'_>, BURST> = lanes.iter_mut().map(Lane::signing).collect();
            sign(&mut ops);
            ops.iter().find_map(|op| op.status.err()).map(|e| e.to_string())
        }
        (MeasuredDirection::Backward, [lane]) => {
            let mut op = [lane.verifying()];
            verify(&mut op);
            op[0].status.err().map(|e| e.to_string())
        }
        (MeasuredDirection::Backward, lanes) => {
            let mut ops: ArrayVec<Verify<'_>, BURST> = lanes.iter().map(Lane::verifying).collect();
            verify(&mut ops);
            ops.iter().find_map(|op| op.status.err()).map(|e| e.to_string())
        }
    };
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chart, check, measure, series};
    use super::*;
    use crate::data::Source;
    use sealane_net_ao::alg::Source as Standard;

    #[test]
    fn every_algorithm_has_a_figure_of_each_kind() {
        let part = measure(&ENTRY, &|| false);
        check(&part);
        let registry = sealane_drivers::system_registry().0;
        let is_drawn = |a: &Arc<Algorithm>| a.source == Standard::Linux || CONFIGURED.contains(&a.name);
        assert!(Algorithms::new(&registry).iter().all(is_drawn), "RFCs and drafts are whole");
        let names: Vec<X> = CONFIGURED.into_iter().map(word).collect();
        for (id, of) in [
            ("sign-ns", &[ONE, MANY, REKEYED, LIBRARY][..]),
            ("libraries-ns", &["portable"]),
            ("verify-ns", &[ONE, MANY]),
        ] {
            for name in of {
                let at: Vec<X> = series(chart(&part, id), name).points.iter().map(|p| p.x.clone()).collect();
                assert_eq!(at, names, "{id}, {name}");
            }
        }
    }

    #[test]
    fn algorithms_without_a_gain_from_bursts_are_named() {
        let figure = |ns| Figure { median: ns, low: ns, high: ns, rounds: 1, cpu: None };
        let mut ns = Sheet::default();
        for (name, one, many) in [("hmac(sha1)", 200.0, 40.0), ("kmac256-128", 1800.0, 1750.0)] {
            ns.add(ONE, word(name), figure(one), "");
            ns.add(MANY, word(name), figure(many), "");
        }
        assert_eq!(little_gain(&ns).as_deref(), Some("Little or no gain from bursts: kmac256-128."));
        ns.0[1].points[1].figure = figure(100.0);
        assert_eq!(little_gain(&ns), None);
        let ns = ns.computed(&[MANY], "computed from nothing, for this test");
        let here: Vec<&str> = ns.0.iter().filter(|s| s.source == Source::Here).map(|s| &*s.name).collect();
        assert_eq!(here, [ONE]);
    }

    #[test]
    fn published_figures_are_beside_ours() {
        let part = measure(&ENTRY, &|| false);
        if sealane_drivers::turns::ticks() == 0 {
            println!("skipped: no time-stamp counter");
            return;
        }
        let cycles = chart(&part, "sign-cycles");
        let published: Vec<_> = cycles.series.iter().filter(|s| matches!(s.source, Source::Published(_))).collect();
        assert_eq!(published.len(), 2);
        let ours = series(cycles, ONE);
        for point in published.iter().flat_map(|s| &s.points) {
            assert!(ours.points.iter().any(|p| p.x == point.x), "{:?} is no algorithm of ours", point.x);
        }
    }
}
