//! The cost of IPsec to a CPU for each packet, and the rates of several CPUs.
//!
//! A row is an algorithm and a length, or a number of CPUs, with two rivals, outbound and inbound: 18 figures of one CPU, and at most 12 by
//! CPUs: 6 s with `Effort::FULL` and 0.6 s with `Effort::QUICK`.

use super::frame::{Context, Entry, Measured, Reasons, Sheet, figures, numbers};
use crate::data::{Better, Chart, Figure, Point, Scale, Series, Shape, Source, X};
use crate::published::{CRYPTO_2022, NO_IPSEC_2022, OFFLOAD, PACKET_2022, SOFTWARE_2022, over_numbers};
use arrayvec::ArrayVec;
use sealane_drivers::turns::{CpuOf, in_turns};
use sealane_engine_xfrm::Now;
use sealane_engine_xfrm::data::{Databases, Owner, Paths, Run};
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Mode, Proto, SaDir, SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{Outbound, seal};
use sealane_net_ipsec::selector::Selector;
use sealane_net_ipsec::spd::{Dir, Policy, Template};
use sealane_net_ipsec::transform::{Keyed, TransformSpec, Transforms};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

pub(super) const ENTRY: Entry = Entry {
    id: "ipsec",
    title: "IPsec by packets and CPUs, from memory to memory",
    about: "The whole work of IPsec on a packet from memory to memory: policy, state, headers, numbers, lifetimes and encryption, without \
            the network. By CPUs it is measured on as many as this machine has, and computed beyond, beside the rates of Linux with and \
            without offload to a card.",
    measure,
};

/// Lengths of the inner packets, in bytes.
const LENGTHS: [usize; 3] = [64, 512, 1420];

/// CPUs, measured as far as there are so many, and beyond that computed.
const CPUS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Bursts between two moments at which threads wait for each other: so many that the waiting does not count.
const BURSTS_A_CALL: usize = 100;

/// Packets in a burst.
const BURST: usize = 64;

const KEY: [u8; 64] = [7; 64];

/// The algorithms: the name of their series, and what a key manager asks for.
const ALGORITHMS: [(&str, TransformSpec<'static>); 3] = [
    (
        "AES-128-GCM",
        TransformSpec::Aead { aead: Keyed { name: "rfc4106(gcm(aes))", key: KEY.split_at(20).0 }, icv_bits: 128 },
    ),
    (
        "ChaCha20-Poly1305",
        TransformSpec::Aead {
            aead: Keyed { name: "rfc7539esp(chacha20,poly1305)", key: KEY.split_at(36).0 },
            icv_bits: 128,
        },
    ),
    (
        "AES-128-CBC, HMAC-SHA1",
        TransformSpec::EncAuth {
            enc: Keyed { name: "cbc(aes)", key: KEY.split_at(16).0 },
            auth: Keyed { name: "hmac(sha1)", key: KEY.split_at(20).0 },
            icv_bits: 96,
        },
    ),
];

/// The length of inner packets by CPUs, with the first algorithm.
const MODELLED_LEN: usize = 1420;

/// Series by CPUs.
const DIRECTIONS: [&str; 2] = ["AES-128-GCM out", "AES-128-GCM in"];
const BOUND: &str = "bound by the slower direction";

fn measure(context: &Context<'_>) -> Measured {
    let mut reasons = Reasons::default();
    let [mut rates, mut times] = [const { Sheet(Vec::new()) }; 2];
    // Transforms look names up; the registry is the caller's, so they have one of their own with the same table.
    let registry = sealane_drivers::registry(context.registry.table().clone(), context.registry.entropy().clone());
    let mut transforms = Transforms::new(std::sync::Arc::new(registry));
    'rows: for (name, spec) in &ALGORITHMS {
        for len in LENGTHS {
            if reasons.stopped(context) {
                break 'rows;
            }
            (context.progress)(&format!("IPsec, {name}, {len} bytes"));
            match row(context, &mut transforms, spec, len) {
                Ok(row) => {
                    for Way { name: way, time, ticks } in row {
                        let series = format!("{name} {way}");
                        let remark = ticks
                            .map_or(String::new(), |f| format!("{:.0} cycles of the time-stamp counter", f.median));
                        let rate = rate(&time, len);
                        rates.add(&series, X::Number(len as f64), rate, remark.clone());
                        times.add(&series, X::Number(len as f64), time, remark);
                    }
                }
                Err(why) => reasons.add(format!("{name}: {why}")),
            }
        }
    }
    let several = measured_by_cpus(context, &mut transforms, &mut reasons);
    let rates = rates.computed(&[], "computed from the times for a packet in this report");
    let frame = |id: &str, title: &str, y| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        shape: Shape::Lines,
        x: numbers("length of the inner packet", "bytes"),
        y,
        series: Vec::new(),
    };
    let charts = [
        rates.onto(frame(
            "rate",
            "Inner packets that one CPU protects or opens, from memory to memory",
            figures("rate of one CPU", "Gb/s", Scale::Log, Better::Higher),
        )),
        times.onto(frame("time", "The same as time", figures("time for a packet", "ns", Scale::Log, Better::Lower))),
        by_cpus(several),
    ];
    Measured {
        method: format!(
            "ESP in tunnel mode, IPv4 in IPv4, one policy and one state, bursts of {BURST} packets, one thread, through the engine that \
             the daemon uses. Outbound: policy, state, number, headers, seal. Inbound: state, open, headers, policy; without a replay \
             window, because the same packets come again, and each is copied to its place first, which is counted. Nothing is sent. By CPUs: \
             as many threads, bound to no CPU, each with a policy, a state and packets of its own; a call is {BURSTS_A_CALL} bursts of \
             each, and lasts as long as the slowest."
        ),
        outcome: reasons.outcome(),
        charts: charts.into_iter().flatten().collect(),
        tables: Vec::new(),
        notes: vec![
            "The line beyond the CPUs of this machine is a bound, not a forecast: packets in and out, memory and cards cost extra, and one flow stays on \
             one CPU."
                .to_owned(),
            "The published figures are of TCP through the whole stack and a card of 100 Gb/s, at which they end.".to_owned(),
        ],
    }
}

/// The rate at a time for a packet, in Gb/s.
fn rate(time: &Figure, len: usize) -> Figure {
    let of = |ns: f64| (8 * len) as f64 / ns;
    Figure { median: of(time.median), low: of(time.high), high: of(time.low), rounds: time.rounds, cpu: None }
}

/// The rates of as many CPUs as this process may use, each with a thread and databases of its own, by direction.
fn measured_by_cpus(context: &Context<'_>, transforms: &mut Transforms, reasons: &mut Reasons) -> Sheet {
    let mut sheet = Sheet::default();
    for cpus in CPUS.into_iter().filter(|cpus| *cpus <= allowed()) {
        if reasons.stopped(context) {
            break;
        }
        (context.progress)(&format!("IPsec, {cpus} CPUs"));
        match teams(context, transforms, cpus) {
            Ok(rates) => {
                for (series, rate) in DIRECTIONS.into_iter().zip(rates) {
                    sheet.add(series, X::Number(cpus as f64), rate, "");
                }
            }
            Err(why) => reasons.add(format!("{cpus} CPUs: {why}")),
        }
    }
    sheet
}

/// CPUs that this process may use.
fn allowed() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Measures both directions by this many threads, in Gb/s of all of them.
fn teams(context: &Context<'_>, transforms: &mut Transforms, threads: usize) -> Result<[Figure; 2], String> {
    let (spec, len) = (&ALGORITHMS[0].1, MODELLED_LEN);
    let mut out = (0..threads).map(|_| Load::out(transforms, spec, len)).collect::<Result<Vec<_>, _>>()?;
    let mut inbound = (0..threads).map(|_| Load::inbound(transforms, spec, len)).collect::<Result<Vec<_>, _>>()?;
    for load in out.iter_mut().chain(&mut inbound) {
        load.run()?;
    }
    let rounds = context.effort.rounds;
    std::thread::scope(|scope| {
        let mut teams = [Team::new(scope, out)?, Team::new(scope, inbound)?];
        let measured = in_turns(&mut teams, Team::call, CpuOf::Process, context.effort.each, rounds);
        let packets = (threads * BURSTS_A_CALL * BURST) as f64;
        Ok([0, 1].map(|way| rate(&Figure::ns(&measured[way], packets, rounds), len)))
    })
}

/// Threads that work at the same time.
struct Team {
    begin: Vec<Sender<()>>,
    done: Receiver<()>,
}

impl Team {
    /// A thread for each load. They end when this is dropped.
    fn new<'scope>(scope: &'scope Scope<'scope, '_>, loads: Vec<Load>) -> Result<Self, String> {
        let (tell, done) = channel();
        let mut begin = Vec::new();
        for mut load in loads {
            let (sender, receiver) = channel();
            let tell = tell.clone();
            let work = move || {
                while receiver.recv().is_ok() {
                    // A load that has run once runs again.
                    (0..BURSTS_A_CALL).for_each(|_| load.run().expect("what has run before"));
                    // Nobody waits any more when the team is dropped.
                    let _ = tell.send(());
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, work).map_err(|e| e.to_string())?;
            begin.push(sender);
        }
        Ok(Team { begin, done })
    }

    /// Has each thread do its bursts, and waits for all.
    fn call(&mut self) {
        for begin in &self.begin {
            begin.send(()).expect("a thread that waits");
        }
        for _ in &self.begin {
            self.done.recv().expect("a thread that works");
        }
    }
}

/// The rates of more CPUs than were measured, if each of them does as much as those, in the slower direction.
fn bound(measured: &Sheet) -> Option<Series> {
    let last = |series: &Series| series.points.last().map(|point| (point.x.clone(), point.figure.median));
    let slower = measured.0.iter().filter_map(last).min_by(|a, b| a.1.total_cmp(&b.1));
    let (X::Number(cpus), rate) = slower? else { return None };
    let point = |n: usize| Point {
        x: X::Number(n as f64),
        figure: Figure::stated(rate / cpus * n as f64),
        remark: String::new(),
    };
    let points: Vec<Point> = CPUS.into_iter().filter(|n| *n as f64 > cpus).map(point).collect();
    let from = format!(
        "computed from the slower direction by {cpus} CPUs in this chart, times CPUs: the engine alone, from memory to memory, as an \
         upper bound"
    );
    (!points.is_empty()).then(|| Series { name: BOUND.to_owned(), source: Source::Model(from), points })
}

/// The chart of rates by CPUs.
fn by_cpus(measured: Sheet) -> Option<Chart> {
    let linux = [
        over_numbers("Linux, software (2022)", OFFLOAD, SOFTWARE_2022),
        over_numbers("Linux, crypto offload (2022)", OFFLOAD, CRYPTO_2022),
        over_numbers("Linux, packet offload (2022)", OFFLOAD, PACKET_2022),
        over_numbers("Linux, no IPsec (2022)", OFFLOAD, NO_IPSEC_2022),
    ];
    let series = bound(&measured).into_iter().chain(linux).collect();
    measured.onto(Chart {
        id: "by-cpus".to_owned(),
        title: format!("By CPUs: the engine at {MODELLED_LEN} bytes, and what Linux moved in 2022"),
        shape: Shape::Lines,
        x: numbers("CPUs", ""),
        y: figures("rate", "Gb/s", Scale::Log, Better::Higher),
        series,
    })
}

/// The figures of a packet in one direction.
struct Way {
    name: &'static str,
    time: Figure,
    ticks: Option<Figure>,
}

/// Measures both directions.
fn row(
    context: &Context<'_>,
    transforms: &mut Transforms,
    spec: &TransformSpec<'_>,
    len: usize,
) -> Result<[Way; 2], String> {
    let mut loads = [Load::out(transforms, spec, len)?, Load::inbound(transforms, spec, len)?];
    for load in &mut loads {
        load.run()?;
    }
    // A load that has run once runs again.
    let run = |load: &mut Load| load.run().expect("what has run before");
    let rounds = context.effort.rounds;
    let measured = in_turns(&mut loads, run, CpuOf::Thread, context.effort.each, rounds);
    let units = BURST as f64;
    let of = |name, f| Way { name, time: Figure::ns(f, units, rounds), ticks: Figure::ticks(f, units, rounds) };
    Ok([of("out", &measured[0]), of("in", &measured[1])])
}

fn us() -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 1).into()
}

fn peer() -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 2).into()
}

const HERE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const SPI: u32 = 0x1000;

/// An inner packet.
fn packet(len: usize, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x5a; len];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet
}

/// The packets of one direction.
enum Load {
    Out { data: Box<Databases>, plain: Vec<u8>, bufs: Vec<Vec<u8>> },
    In { data: Box<Databases>, sealed: Vec<Vec<u8>>, bufs: Vec<Vec<u8>> },
}

impl Load {
    fn out(transforms: &mut Transforms, spec: &TransformSpec<'_>, len: usize) -> Result<Self, String> {
        let mut data = Box::new(Databases::of(Owner::Alone, || 1));
        let transform = transforms.prepare(spec, false).map_err(|e| format!("{e:?}"))?;
        let state = SaSpec { reqid: SPI, dir: Some(SaDir::Out), ..SaSpec::tunnel(SPI, us(), peer(), transform) };
        data.sad.add(state).map_err(|e| format!("{e:?}"))?;
        policy(&mut data, Dir::Out, (HERE, THERE), (us(), peer()))?;
        let plain = packet(len, HERE, THERE);
        let bufs = vec![[&[0; HEADROOM][..], &plain, &[0; TAILROOM]].concat(); BURST];
        Ok(Load::Out { data, plain, bufs })
    }

    fn inbound(transforms: &mut Transforms, spec: &TransformSpec<'_>, len: usize) -> Result<Self, String> {
        let (mut data, mut theirs) = (Box::new(Databases::of(Owner::Alone, || 1)), Sad::new(2));
        let transform = transforms.prepare(spec, false).map_err(|e| format!("{e:?}"))?;
        let state = |transform| SaSpec { reqid: SPI, ..SaSpec::tunnel(SPI, peer(), us(), transform) };
        let id = theirs.add(state(transform.clone())).map_err(|e| format!("{e:?}"))?;
        data.sad.add(SaSpec { dir: Some(SaDir::In), ..state(transform) }).map_err(|e| format!("{e:?}"))?;
        policy(&mut data, Dir::Fwd, (THERE, HERE), (peer(), us()))?;
        let plain = packet(len, THERE, HERE);
        let mut bufs = vec![[&[0; HEADROOM][..], &plain, &[0; TAILROOM]].concat(); BURST];
        let mut burst: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        for buf in &mut bufs {
            burst.push(Outbound { mtu: 1500, ..Outbound::new(id, Packet::new(buf, HEADROOM, HEADROOM + len)) });
        }
        seal(&mut theirs, &mut burst, 1, &mut Vec::new());
        if let Some(why) = burst.iter().find_map(|out| out.status.err()) {
            return Err(format!("{why:?}"));
        }
        let bounds = (burst[0].packet.start(), burst[0].packet.end());
        drop(burst);
        let sealed: Vec<Vec<u8>> =
            bufs.iter().map(|buf| [&[0; HEADROOM][..], &buf[bounds.0..bounds.1]].concat()).collect();
        Ok(Load::In { data, bufs: sealed.clone(), sealed })
    }

    fn run(&mut self) -> Result<(), String> {
        match self {
            Load::Out { data, plain, bufs } => {
                let mut burst: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
                for buf in bufs.iter_mut() {
                    // Only the headers are written again; the text is the last ciphertext.
                    buf[HEADROOM..HEADROOM + 28].copy_from_slice(&plain[..28]);
                    burst.push(Outbound::new(SaId::NONE, Packet::new(buf, HEADROOM, HEADROOM + plain.len())));
                }
                data.tables(0, NOW).outbound(&[Run::new(1); BURST], &mut burst, &mut Network);
                match burst.iter().find(|out| out.status.is_err() || out.sa == SaId::NONE) {
                    Some(out) => Err(format!("a packet was not sealed: {:?}", out.status)),
                    None => Ok(()),
                }
            }
            Load::In { data, sealed, bufs } => {
                let mut burst: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
                for (buf, sealed) in bufs.iter_mut().zip(sealed) {
                    buf.copy_from_slice(sealed);
                    let end = buf.len();
                    burst.push(Inbound::new(Packet::new(buf, HEADROOM, end)));
                }
                data.tables(0, NOW).inbound(&mut burst, &mut Network);
                match burst.iter().find(|inn| !matches!(inn.status, Ok(Opened::Packet))) {
                    Some(inn) => Err(format!("a packet was not opened: {:?}", inn.status)),
                    None => Ok(()),
                }
            }
        }
    }
}

const NOW: Now = Now { monotonic_ns: 0, wall_s: 1 };

/// Adds the policy of a direction: from the first host to the second one, through the tunnel between these ends.
fn policy(data: &mut Databases, dir: Dir, hosts: (Ipv4Addr, Ipv4Addr), ends: (IpAddr, IpAddr)) -> Result<(), String> {
    let mut policy = Policy::allow(dir, Selector::between((hosts.0.into(), 32), (hosts.1.into(), 32)));
    policy.templates.push(Template {
        src: ends.0,
        dst: ends.1,
        proto: Proto::Esp,
        mode: Mode::Tunnel,
        reqid: SPI,
        spi: 0,
        optional: false,
    });
    data.spd.add(policy, false).map(|_| ()).map_err(|e| format!("{e:?}"))
}

/// A network with one MTU, which forwards every packet.
struct Network;

impl Paths for Network {
    fn mtu(&mut self, _: IpAddr) -> u32 {
        1500
    }

    fn is_unreachable(&mut self, _: IpAddr, _: IpAddr) -> bool {
        false
    }

    fn source(&mut self, _: IpAddr) -> IpAddr {
        Ipv4Addr::UNSPECIFIED.into()
    }

    fn is_local(&mut self, _: IpAddr) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chart, check, measure, series};
    use super::*;

    #[test]
    fn both_ways_have_figures_and_the_bound_is_a_line() {
        let part = measure(&ENTRY, &|| false);
        check(&part);
        let rates = chart(&part, "rate");
        assert_eq!(rates.series.len(), 2 * ALGORITHMS.len());
        assert!(rates.series.iter().all(|series| series.points.len() == LENGTHS.len()));
        let cpus = chart(&part, "by-cpus");
        for way in DIRECTIONS {
            let at: Vec<X> = series(cpus, way).points.iter().map(|p| p.x.clone()).collect();
            let here: Vec<X> = CPUS.into_iter().filter(|n| *n <= allowed()).map(|n| X::Number(n as f64)).collect();
            assert_eq!((at, &series(cpus, way).source), (here, &Source::Here), "{way}");
        }
        assert_eq!(cpus.series.iter().filter(|s| matches!(s.source, Source::Published(_))).count(), 4);
    }

    #[test]
    fn the_bound_goes_on_from_the_slower_direction() {
        let figure = |rate| Figure { median: rate, low: rate, high: rate, rounds: 3, cpu: None };
        let mut sheet = Sheet::default();
        for (cpus, out, inbound) in [(1.0, 10.0, 9.0), (2.0, 19.0, 16.0)] {
            sheet.add(DIRECTIONS[0], X::Number(cpus), figure(out), "");
            sheet.add(DIRECTIONS[1], X::Number(cpus), figure(inbound), "");
        }
        let series = bound(&sheet).expect("more CPUs");
        let points: Vec<(X, f64)> = series.points.iter().map(|p| (p.x.clone(), p.figure.median)).collect();
        let expected = [(4.0, 32.0), (8.0, 64.0), (16.0, 128.0), (32.0, 256.0)];
        assert_eq!(points, expected.map(|(n, rate)| (X::Number(n), rate)));
        assert!(matches!(series.source, Source::Model(_)));
        assert!(bound(&Sheet::default()).is_none());
    }

    #[test]
    fn a_rate_is_lowest_where_the_time_is_highest() {
        let time = Figure { median: 100.0, low: 50.0, high: 200.0, rounds: 3, cpu: Some(100.0) };
        assert_eq!(rate(&time, 1000), Figure { median: 80.0, low: 40.0, high: 160.0, rounds: 3, cpu: None });
    }
}
