//! The whole work of a gateway, memory to memory on one core, beside bare calls of the crypto core for the same texts
//! with as many keys.
//!
//! It uses the engine's tables, as the daemon does. Outbound: flow, flow cache (policy, state), path, sequence number,
//! headers, lifetime, seal. Inbound: association by SPI, window, open, headers off, flow, policy and what it asks for.
//! Each packet of a burst is of a flow drawn at random, and each flow has a policy and an association of its own.

use crate::common::{ANY, Algorithm, BURST, algorithms, packet, text_len, v4};
use arrayvec::ArrayVec;
use sealane_bench::report::{Csv, option, seconds};
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{Kind, Registry};
use sealane_drivers::turns::ticks;
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
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

/// The project's aims: algorithm, bytes of the inner packet, ticks a packet at most, and the ticks of DPDK 22.11's
/// gateway on Cascade Lake.
const ROWS: [(&str, usize, u32, u32); 4] = [
    ("rfc4106(gcm(aes))", 64, 500, 611),
    ("rfc4106(gcm(aes))", 512, 800, 947),
    ("rfc4106(gcm(aes))", 1420, 1300, 1654),
    ("cbc(aes), hmac(sha1)", 1420, 2100, 2730),
];

const STATES: [usize; 4] = [1, 1000, 100_000, 1_000_000];

/// Length of the IPv4 and UDP headers.
const HEADERS_LEN: usize = 28;

/// Number of bursts in a round.
const ROUND: usize = 16;

/// Length of the associated data: the ESP header, and in the kernel's AEADs for ESP the IV, too.
const AAD: [u8; 16] = [9; 16];

/// The first outbound SPI, and the first inbound one.
const SPI: u32 = 0x1000;
const SPI_IN: u32 = 0x8000_1000;

fn us() -> IpAddr {
    v4(2, 1)
}

/// Returns the peer of a flow, and the host behind it.
fn peer(flow: usize) -> IpAddr {
    Ipv4Addr::from(0x6440_0000 + flow as u32).into()
}

fn host(flow: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a40_0000 + flow as u32)
}

/// Returns the key of an association.
fn key(flow: usize, way: u8) -> [u8; 64] {
    let mut key = [way; 64];
    key[..8].copy_from_slice(&(flow as u64).to_le_bytes());
    key
}

impl Algorithm {
    fn with<'a>(&'a self, key: &'a [u8; 64]) -> TransformSpec<'a> {
        let keyed = |old: Keyed<'a>| Keyed { name: old.name, key: &key[..old.key.len()] };
        match self.spec {
            TransformSpec::Aead { aead, icv_bits } => TransformSpec::Aead { aead: keyed(aead), icv_bits },
            TransformSpec::EncAuth { enc, auth, icv_bits } => {
                TransformSpec::EncAuth { enc: keyed(enc), auth: keyed(auth), icv_bits }
            }
            TransformSpec::Partial { enc, auth, icv_bits, spi } => {
                TransformSpec::Partial { enc: keyed(enc), auth: keyed(auth), icv_bits, spi }
            }
            TransformSpec::Auth { auth, icv_bits } => TransformSpec::Auth { auth: keyed(auth), icv_bits },
        }
    }
}

/// The gateway, its peers, and the bare keys.
struct Gateway {
    data: Databases,
    peers: Sad,
    peer_ids: Vec<SaId>,
    /// The same keys prepared twice, for sealing and opening, so that one does not warm the cache for the other.
    bare: [Vec<AeadTfm>; 2],
    random: u64,
}

/// A network with one MTU that forwards every packet.
struct Network;

impl Paths for Network {
    fn mtu(&mut self, _: IpAddr) -> u32 {
        1500
    }

    fn is_unreachable(&mut self, _: IpAddr, _: IpAddr) -> bool {
        false
    }

    fn source(&mut self, _: IpAddr) -> IpAddr {
        ANY
    }

    fn is_local(&mut self, _: IpAddr) -> bool {
        false
    }
}

const NOW: Now = Now { monotonic_ns: 0, wall_s: 1 };

impl Gateway {
    fn new(registry: &Arc<Registry>, algorithm: &Algorithm, states: usize) -> Result<Self, Box<dyn Error>> {
        let mut transforms = Transforms::new(registry.clone());
        let alg = registry.lookup(Kind::Aead, algorithm.bare)?;
        let mut gateway = Gateway {
            data: Databases::of(Owner::Alone, || 1),
            peers: Sad::new(4),
            peer_ids: Vec::with_capacity(states),
            bare: [const { Vec::new() }; 2],
            random: 1,
        };
        for flow in 0..states {
            let spi = SPI + flow as u32;
            let transform = transforms.prepare(&algorithm.with(&key(flow, 1)), false)?;
            gateway.data.sad.add(SaSpec {
                reqid: spi,
                dir: Some(SaDir::Out),
                ..SaSpec::tunnel(spi, us(), peer(flow), transform)
            })?;
            let transform = transforms.prepare(&algorithm.with(&key(flow, 2)), false)?;
            let spi_in = SPI_IN + flow as u32;
            let spec = |transform| SaSpec { reqid: spi, ..SaSpec::tunnel(spi_in, peer(flow), us(), transform) };
            gateway.peer_ids.push(gateway.peers.add(spec(transform.clone()))?);
            gateway.data.sad.add(SaSpec { window_pkts: 1024, dir: Some(SaDir::In), ..spec(transform) })?;
            let here = (IpAddr::from(Ipv4Addr::new(10, 1, 0, 0)), 16);
            let there = (host(flow).into(), 32);
            for (dir, selector, src, dst) in [
                (Dir::Out, Selector::between(here, there), us(), peer(flow)),
                (Dir::Fwd, Selector::between(there, here), peer(flow), us()),
            ] {
                let mut policy = Policy::allow(dir, selector);
                let mode = Mode::Tunnel;
                let template = Template { src, dst, proto: Proto::Esp, mode, reqid: spi, spi: 0, optional: false };
                policy.templates.push(template);
                gateway.data.spd.add(policy, false)?;
            }
            let mut bare_key = key(flow, 3).to_vec();
            match algorithm.spec {
                TransformSpec::Aead { aead, .. } => bare_key.truncate(aead.key.len()),
                TransformSpec::EncAuth { enc, auth, .. } => {
                    // In the form of `authenc`: `rtattr`, length of the cipher's key, both keys.
                    bare_key.truncate(8 + enc.key.len() + auth.key.len());
                    bare_key[..4].copy_from_slice(&[8, 0, 1, 0]);
                    bare_key[4..8].copy_from_slice(&(enc.key.len() as u32).to_be_bytes());
                    bare_key[8..16].copy_from_slice(&(flow as u64).to_le_bytes());
                }
                TransformSpec::Partial { .. } | TransformSpec::Auth { .. } => return Err("no AEAD".into()),
            }
            for bare in &mut gateway.bare {
                bare.push(alg.aead(&bare_key)?);
            }
        }
        Ok(gateway)
    }

    fn draw(&mut self) -> usize {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.random >> 33) % self.peer_ids.len() as u64) as usize
    }
}

/// Ticks of a round by step: outbound, bare seal, inbound, bare open.
type Ticks = [u64; 4];

/// The buffers of a burst.
struct Bufs {
    plain: Vec<u8>,
    out: Vec<Vec<u8>>,
    back: Vec<Vec<u8>>,
    bare: Vec<(Vec<u8>, Vec<u8>)>,
    nonce_len: usize,
}

fn timed(sum: &mut u64, work: impl FnOnce()) {
    let from = ticks();
    work();
    *sum += ticks().wrapping_sub(from);
}

/// Writes the headers of a flow into a received packet; its payload is the last ciphertext.
fn address(buf: &mut [u8], plain: &[u8], source: Ipv4Addr, destination: Ipv4Addr) {
    let header = &mut buf[HEADROOM..HEADROOM + HEADERS_LEN];
    header.copy_from_slice(&plain[..HEADERS_LEN]);
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
}

impl Gateway {
    fn outbound(&mut self, bufs: &mut [Vec<u8>], len: usize) {
        let packet = |buf| Outbound::new(SaId::NONE, Packet::new(buf, HEADROOM, HEADROOM + len));
        let mut burst: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        burst.extend(bufs.iter_mut().map(|buf| packet(buf)));
        self.data.tables(0, NOW).outbound(&[Run::new(1); BURST][..burst.len()], &mut burst, &mut Network);
        assert!(burst.iter().all(|out| out.status.is_ok() && out.sa != SaId::NONE));
    }

    fn inbound(&mut self, bufs: &mut [Vec<u8>], bounds: &[(usize, usize)]) {
        let packets = bufs.iter_mut().zip(bounds).map(|(buf, (start, end))| Packet::new(buf, *start, *end));
        let mut burst: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
        burst.extend(packets.map(Inbound::new));
        self.data.tables(0, NOW).inbound(&mut burst, &mut Network);
        assert!(burst.iter().all(|inn| matches!(inn.status, Ok(Opened::Packet))));
    }

    fn bare(&self, flows: &[usize], bufs: &mut Bufs, dir: Direction) {
        let keys = &self.bare[usize::from(dir == Direction::Decrypt)];
        let nonce = [3; 16];
        let aad = [if bufs.nonce_len == 8 { &AAD[..] } else { &AAD[..8] }];
        let mut ops: ArrayVec<AeadOp<'_>, BURST> = ArrayVec::new();
        ops.extend(flows.iter().zip(&mut bufs.bare).map(|(flow, (text, tag))| AeadOp {
            tfm: &keys[*flow],
            dir,
            nonce: &nonce[..bufs.nonce_len],
            aad: &aad,
            data: text.as_mut_slice().into(),
            tag,
            status: Ok(()),
        }));
        aead::crypt(&mut ops);
        assert!(ops.iter().all(|op| op.status.is_ok()));
    }

    fn round(&mut self, bufs: &mut Bufs) -> Ticks {
        let mut sums = Ticks::default();
        let len = bufs.plain.len();
        for _ in 0..ROUND {
            let flows: ArrayVec<usize, BURST> = bufs.out.iter().map(|_| self.draw()).collect();
            for (buf, flow) in bufs.out.iter_mut().zip(flows.clone()) {
                address(buf, &bufs.plain, Ipv4Addr::new(10, 1, 0, 2), host(flow));
            }
            timed(&mut sums[0], || self.outbound(&mut bufs.out, len));
            timed(&mut sums[1], || self.bare(&flows, bufs, Direction::Encrypt));

            let mut burst: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
            for (buf, flow) in bufs.back.iter_mut().zip(flows.clone()) {
                address(buf, &bufs.plain, host(flow), Ipv4Addr::new(10, 1, 0, 2));
                burst.push(Outbound::new(self.peer_ids[flow], Packet::new(buf, HEADROOM, HEADROOM + len)));
            }
            seal(&mut self.peers, &mut burst, 1, &mut Vec::new());
            assert!(burst.iter().all(|out| out.status.is_ok()));
            let bounds: ArrayVec<(usize, usize), BURST> =
                burst.iter().map(|out| (out.packet.start(), out.packet.end())).collect();
            drop(burst);
            timed(&mut sums[2], || self.inbound(&mut bufs.back, &bounds));
            timed(&mut sums[3], || self.bare(&flows, bufs, Direction::Decrypt));
        }
        sums
    }
}

/// Returns the median and the least of a list.
fn middle(mut list: Vec<f64>) -> (f64, f64) {
    list.sort_by(f64::total_cmp);
    (list[list.len() / 2], list[0])
}

/// Returns the frequency of the counter that [`ticks`] reads.
fn tick_hz() -> f64 {
    let (from, at) = (ticks(), Instant::now());
    while at.elapsed().as_millis() < 50 {}
    ticks().wrapping_sub(from) as f64 / at.elapsed().as_secs_f64()
}

pub(crate) fn gateway(registry: &Arc<Registry>, csv: &mut Csv) -> Result<(), Box<dyn Error>> {
    let hz = tick_hz();
    println!(
        "\ngateway, one core, memory to memory, ESP tunnel of IPv4 in IPv4, window of 1024: TSC ticks a packet, median (least), at {:.2} GHz; ns; the bare cipher in the same bursts; what is not the cipher's",
        hz / 1e9
    );
    let most = option("states").and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let least = option("from").and_then(|n| n.parse().ok()).unwrap_or(0);
    let burst = option("burst").and_then(|n| n.parse().ok()).unwrap_or(BURST);
    let bytes: Option<usize> = option("bytes").and_then(|n| n.parse().ok());
    let all = algorithms();
    for states in STATES.into_iter().filter(|n| *n >= least && *n <= most) {
        for (name, len, wanted, dpdk) in ROWS.into_iter().filter(|row| bytes.is_none_or(|len| len == row.1)) {
            let algorithm = all.iter().find(|a| a.name == name).expect("one of them");
            let mut gateway = Gateway::new(registry, algorithm, states)?;
            let plain = packet(len);
            let buf = vec![[&[0; HEADROOM][..], &plain, &[0; TAILROOM]].concat(); burst];
            let alg = registry.lookup(Kind::Aead, algorithm.bare)?;
            let (text, tag) = (vec![0; text_len(algorithm.bare, len)], vec![0; algorithm.icv_len()]);
            let bare = vec![(text, tag); burst];
            let nonce_len = alg.info().iv_len;
            let mut bufs = Bufs { plain, out: buf.clone(), back: buf, bare, nonce_len };
            // Fills the flow cache, with one or few flows.
            for _ in 0..states.div_ceil(ROUND * burst) * 6 {
                gateway.round(&mut bufs);
            }
            let (from, mut rounds) = (Instant::now(), Vec::new());
            while from.elapsed() < seconds(0.4) * 2 || rounds.len() < 25 {
                rounds.push(gateway.round(&mut bufs).map(|sum| sum as f64 / (ROUND * burst) as f64));
            }
            let [out, seal, inn, open] = [0, 1, 2, 3].map(|i| middle(rounds.iter().map(|r| r[i]).collect()));
            for (word, engine, bare) in [("out", out, seal), ("in", inn, open)] {
                let ns = engine.0 * 1e9 / hz;
                println!(
                    "  {name:<22} {len:>5} B {states:>7} SAs {word:<3} {:>6.0} ({:>5.0})  {ns:>6.1} ns  bare {:>6.0} ({:>5.0})  engine {:>5.0}  {} {wanted}",
                    engine.0,
                    engine.1,
                    bare.0,
                    bare.1,
                    engine.0 - bare.0,
                    if engine.0 <= f64::from(wanted) { "within" } else { "OVER" },
                );
                csv.line(&format!(
                    "{name} gateway {states},{word},{len},{ns:.2},{:.2},{:.1},{:.2},{:.2},{:.1},{wanted},{dpdk}",
                    engine.1 * 1e9 / hz,
                    engine.0,
                    bare.0 * 1e9 / hz,
                    bare.1 * 1e9 / hz,
                    bare.0,
                ));
            }
        }
    }
    Ok(())
}
