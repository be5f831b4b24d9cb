//! TCP-AO: an IPv4 segment of 128 bytes is signed and verified, by all algorithms. Cached traffic keys, one segment at
//! a time and in bursts of 64 (of 64 connections), are compared with the same driver and every library rekeyed for each
//! segment, which is what the kernel does.

use sealane_bench::report::{Csv, seconds};
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::mac::MacTfm;
use sealane_crypto::{Alg, Row};
use sealane_drivers::turns::{CpuOf, Figures, in_turns};
use sealane_drivers::{SystemEntropy, tables};
use sealane_net::ao::alg::{Algorithm, Algorithms};
use sealane_net::ao::kdf::{Context, TrafficKey};
use sealane_net::ao::mac::{BURST, Checksum, Coverage, Sign, Verify, sign, verify};
use sealane_net::ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net::ao::output::OptionFields;
use sealane_net::ao::segment::insert;
use sealane_net::wire::ip::Layout;
use sealane_net::wire::tcp::Segment;
use std::error::Error;
use std::sync::Arc;

/// Length of the TCP header with options, and payload. The input of the MAC is 16 bytes longer: SNE and pseudo-header.
const TCP_LEN: usize = 128;
const MAC_INPUT_LEN: usize = TCP_LEN + 16;
/// Whether a driver is a library: our own kernels do not count as rivals.
const LIBRARIES: [&str; 4] = ["portable", "awslc", "ipsecmb", "openssl"];
/// The aim for cached keys in bursts: their share of the rekeyed time.
const WANTED: (f64, f64) = (0.6, 0.2);

/// A segment of a connection.
struct Lane {
    packet: Vec<u8>,
    at: Layout,
    cover: Coverage,
    key: TrafficKey,
    tfm: MacTfm,
}

impl Lane {
    fn new(mkt: &Mkt, i: usize) -> Result<Self, Box<dyn Error>> {
        // IPv4 and TCP with timestamps, and 80 bytes of payload: with the option of 16 bytes, 128 bytes of TCP.
        let mut plain = vec![0x45, 0, 0, 132, 0, 1, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        plain.extend([0x10, 0, 0, 179, 1, 2, 3, i as u8, 5, 6, 7, 8, 0x80, 0x10, 1, 0, 0, 0, 0, 0]);
        plain.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        plain.resize(132, i as u8);
        let segment = Segment::parse(&plain).map_err(|e| format!("{e:?}"))?;
        let (source, destination) = (segment.source(), segment.destination());
        let context = Context { source, destination, source_isn: i as u32, destination_isn: 2 };
        let mut packet = vec![0; 20 + TCP_LEN];
        let at = insert(&segment, &OptionFields { key_id: 1, rnext_key_id: 2, mac_len: 12 }, &mut packet)?;
        assert_eq!((at.tcp_len(), at.payload_len()), (TCP_LEN, 80));
        let cover = Coverage { mac_at: 24, mac_len: 12, sne: 0, exclude_options: false };
        let mut lane = Lane { packet, at, cover, key: mkt.traffic_key(&context)?, tfm: mkt.traffic_mac(&context)? };
        let mut op = [lane.signing()];
        sign(&mut op);
        op[0].status?;
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
    /// One segment with a cached key.
    Single(MeasuredDirection, Box<Lane>),
    /// A burst of segments, each with its own key.
    Burst(MeasuredDirection, Vec<Lane>),
    /// One segment, with its key set again each time.
    Rekeyed(MeasuredDirection, Alg, Box<Lane>),
}

impl Rival {
    fn run(&mut self) {
        match self {
            Rival::Single(MeasuredDirection::Forward, lane) => sign(&mut [lane.signing()]),
            Rival::Single(MeasuredDirection::Backward, lane) => verify_all(&mut [lane.verifying()]),
            Rival::Burst(MeasuredDirection::Forward, lanes) => {
                let mut ops: arrayvec::ArrayVec<Sign<'_>, BURST> = lanes.iter_mut().map(Lane::signing).collect();
                sign(&mut ops);
            }
            Rival::Burst(MeasuredDirection::Backward, lanes) => {
                let mut ops: arrayvec::ArrayVec<Verify<'_>, BURST> = lanes.iter().map(Lane::verifying).collect();
                verify_all(&mut ops);
            }
            Rival::Rekeyed(way, alg, lane) => {
                lane.tfm = alg.mac(lane.key.as_bytes()).expect("a key that was taken before");
                match way {
                    MeasuredDirection::Forward => sign(&mut [lane.signing()]),
                    MeasuredDirection::Backward => verify_all(&mut [lane.verifying()]),
                }
            }
        }
    }

    fn segments(&self) -> usize {
        match self {
            Rival::Burst(_, lanes) => lanes.len(),
            _ => 1,
        }
    }
}

fn verify_all(ops: &mut [Verify<'_>]) {
    verify(ops);
    assert!(ops.iter().all(|op| op.status.is_ok()), "what was signed verifies");
}

/// Time for a segment.
struct PerSegment {
    ns: f64,
    min_ns: f64,
    ticks: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let entropy: Arc<dyn sealane_crypto::rng::Entropy> = Arc::new(SystemEntropy);
    let (table, _) = tables::load()?;
    let registry = sealane_drivers::registry(table, entropy.clone());
    let openssl: Vec<Arc<Row>> = sealane_crypto_openssl::rows().into_iter().map(Arc::new).collect();
    let algorithms = Algorithms::new(&registry);
    let mut csv = Csv::new("algorithm,way,how,driver,median_ns,min_ns,median_ticks");
    for algorithm in algorithms.iter() {
        let mac = &algorithm.mac().info().name;
        let single = algorithm.mac().row_for(MeasuredDirection::Forward, MAC_INPUT_LEN, 1).driver.as_str();
        let rekeyed: Vec<&Arc<Row>> = registry
            .rows()
            .iter()
            .chain(&openssl)
            .filter(|r| r.info.kind == algorithm.mac().info().kind && &r.info.name == mac)
            .filter(|r| LIBRARIES.contains(&r.module) || r.driver == single)
            .collect();
        println!("\n{}: ns (and ticks of the time-stamp counter) for one segment of {TCP_LEN} bytes", algorithm.name);
        for way in [MeasuredDirection::Forward, MeasuredDirection::Backward] {
            one_way(algorithm, way, &rekeyed, &entropy, &mut csv)?;
        }
    }
    csv.write()?;
    Ok(())
}

fn one_way(
    algorithm: &Arc<Algorithm>,
    way: MeasuredDirection,
    rekeyed: &[&Arc<Row>],
    entropy: &Arc<dyn sealane_crypto::rng::Entropy>,
    csv: &mut Csv,
) -> Result<(), Box<dyn Error>> {
    let mkt = Mkt::new(&MktSpec {
        algorithm,
        key: b"a master key that is long enough",
        send_id: 1,
        recv_id: 2,
        mac_len: 12,
        exclude_options: false,
        peer: Prefix::ANY_V4,
        ifindex: None,
    })?;
    let mut rivals = vec![
        Rival::Single(way, Box::new(Lane::new(&mkt, 0)?)),
        Rival::Burst(way, (0..BURST).map(|i| Lane::new(&mkt, i)).collect::<Result<_, _>>()?),
    ];
    for row in rekeyed {
        rivals.push(Rival::Rekeyed(way, Alg::of_row(row, entropy), Box::new(Lane::new(&mkt, 0)?)));
    }
    let figures = in_turns(&mut rivals, Rival::run, CpuOf::Thread, seconds(0.5), 25);
    let per_segment = |(r, f): (&Rival, &Figures)| {
        let n = r.segments() as f64;
        PerSegment { ns: f.median_ns / n, min_ns: f.min_ns / n, ticks: f.median_ticks / n }
    };
    let figures: Vec<PerSegment> = rivals.iter().zip(&figures).map(per_segment).collect();
    let word = if way == MeasuredDirection::Forward { "sign" } else { "verify" };
    let picked = |burst| algorithm.mac().row_for(MeasuredDirection::Forward, MAC_INPUT_LEN, burst).driver.as_str();
    let drivers = [("single", picked(1)), ("burst 64", picked(BURST))];
    let names = drivers.into_iter().chain(rekeyed.iter().map(|row| ("rekeyed", row.driver.as_str())));
    for ((how, driver), f) in names.zip(&figures) {
        println!("  {word:<7} {how:<9} {driver:<24} {:>8.1} {:>9.0}", f.ns, f.ticks);
        csv.line(&format!("{},{word},{how},{driver},{:.2},{:.2},{:.1}", algorithm.name, f.ns, f.min_ns, f.ticks));
    }
    let fastest = |rows: &[&str]| {
        let rows = rekeyed.iter().zip(&figures[2..]).filter(|(row, _)| rows.contains(&row.module));
        rows.min_by(|a, b| a.1.ns.total_cmp(&b.1.ns))
    };
    let own = rekeyed.iter().zip(&figures[2..]).find(|(row, _)| row.driver == picked(1));
    for (row, base) in own.into_iter().chain(fastest(&LIBRARIES)) {
        let verdict = |f: &PerSegment, wanted: f64| {
            let ratio = f.ns / base.ns;
            format!("{ratio:.2} (wanted {wanted}: {})", if ratio <= wanted { "met" } else { "missed" })
        };
        let (single, burst) = (verdict(&figures[0], WANTED.0), verdict(&figures[1], WANTED.1));
        println!("  {word:<7} of {} rekeyed: single {single}, burst {burst}", row.driver);
    }
    Ok(())
}
