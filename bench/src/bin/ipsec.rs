//! IPsec: bursts of 64 packets of ESP in tunnel mode sealed and opened, beside the bare call of the crypto core for the same
//! texts, so that the engine's own share is seen: headers, padding, sequence numbers, lifetimes. Then all of a gateway's work,
//! policies and windows included; and what it costs to find one of up to a million associations or 100,000 policies, and to
//! keep it.
//!
//! Packets of IPv4 over IPv4, the size is the inner packet's. `--only packets|gateway|states` runs a part.

use arrayvec::ArrayVec;
use sealane_bench::report::{Csv, option, seconds};
use sealane_crypto::choice::Way;
use sealane_crypto::{Kind, Registry};
use sealane_drivers::measure::{Shape, Workload};
use sealane_drivers::turns::{CpuOf, Figures, in_turns};
use sealane_drivers::{SystemEntropy, tables};
use sealane_net::ipsec::open::{Inbound, Opened, open};
use sealane_net::ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net::ipsec::sa::{Mode, Proto, SaId, SaSpec};
use sealane_net::ipsec::sad::Sad;
use sealane_net::ipsec::seal::{Outbound, seal};
use sealane_net::ipsec::selector::{Flow, Selector};
use sealane_net::ipsec::spd::cache::FlowCache;
use sealane_net::ipsec::spd::check::{Arrived, check};
use sealane_net::ipsec::spd::resolve::{Leaving, Way as WayOut};
use sealane_net::ipsec::spd::{Dir, Policy, Spd, Template};
use sealane_net::ipsec::transform::{Keyed, TransformSpec, Transforms};
use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const BURST: usize = 64;
const SIZES: [usize; 3] = [64, 256, 1400];

/// Name in the table, the AEAD behind it, the transform.
struct Algorithm {
    name: &'static str,
    bare: &'static str,
    spec: TransformSpec<'static>,
}

const KEY: [u8; 64] = [7; 64];

fn algorithms() -> Vec<Algorithm> {
    let aead = |name: &'static str, len: usize| Algorithm {
        name,
        bare: name,
        spec: TransformSpec::Aead { aead: Keyed { name, key: &KEY[..len] }, icv_bits: 128 },
    };
    let pair = |name, bare, enc: (&'static str, usize), auth: (&'static str, usize), icv_bits| Algorithm {
        name,
        bare,
        spec: TransformSpec::EncAuth {
            enc: Keyed { name: enc.0, key: &KEY[..enc.1] },
            auth: Keyed { name: auth.0, key: &KEY[..auth.1] },
            icv_bits,
        },
    };
    vec![
        aead("rfc4106(gcm(aes))", 20),
        aead("rfc7539esp(chacha20,poly1305)", 36),
        aead("rfc4309(ccm(aes))", 19),
        pair("cbc(aes), hmac(sha1)", "authenc(hmac(sha1),cbc(aes))", ("cbc(aes)", 16), ("hmac(sha1)", 20), 96),
        pair("cbc(aes), hmac(sha256)", "authenc(hmac(sha256),cbc(aes))", ("cbc(aes)", 16), ("hmac(sha256)", 32), 128),
    ]
}

fn v4(a: u8, b: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, a, b).into()
}

/// Packets of one direction.
enum Load {
    Seal { sad: Sad, ids: Vec<SaId>, bufs: Vec<Vec<u8>>, plain: Vec<u8>, bounds: (usize, usize) },
    Open { sad: Sad, sealed: Vec<Vec<u8>>, bufs: Vec<Vec<u8>> },
    Bare(Box<Workload>),
}

fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; len];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet
}

impl Load {
    /// A burst over `states` associations; without a replay window, because the same packets are opened over and over.
    fn new(
        transforms: &mut Transforms,
        spec: &TransformSpec<'_>,
        len: usize,
        way: Way,
    ) -> Result<Self, Box<dyn Error>> {
        let mut sad = Sad::new(1);
        let transform = transforms.prepare(spec, false)?;
        let id = sad.add(SaSpec::tunnel(77, v4(2, 1), v4(2, 2), transform))?;
        let plain = packet(len);
        let bufs = vec![[&[0; HEADROOM][..], &plain, &[0; TAILROOM]].concat(); BURST];
        let mut load = Load::Seal { sad, ids: vec![id; BURST], bufs, plain, bounds: (0, 0) };
        if way == Way::Forward {
            return Ok(load);
        }
        load.run();
        let Load::Seal { sad, bufs, bounds: (start, end), .. } = load else { unreachable!("it was made so") };
        let sealed: Vec<Vec<u8>> = bufs.iter().map(|buf| [&[0; HEADROOM][..], &buf[start..end]].concat()).collect();
        let mut load = Load::Open { sad, bufs: sealed.clone(), sealed };
        load.run();
        Ok(load)
    }

    fn run(&mut self) {
        match self {
            Load::Seal { sad, ids, bufs, plain, bounds } => {
                let mut burst: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
                for (buf, id) in bufs.iter_mut().zip(ids) {
                    // The header alone is written anew: what is sealed again is the last ciphertext.
                    buf[HEADROOM..HEADROOM + 20].copy_from_slice(&plain[..20]);
                    burst.push(Outbound {
                        mtu: 1500,
                        ..Outbound::new(*id, Packet::new(buf, HEADROOM, HEADROOM + plain.len()))
                    });
                }
                seal(sad, &mut burst, 1, &mut Vec::new());
                assert!(burst.iter().all(|out| out.status.is_ok()));
                *bounds = (burst[0].packet.start(), burst[0].packet.end());
            }
            Load::Open { sad, sealed, bufs } => {
                let mut burst: ArrayVec<Inbound<'_>, BURST> = ArrayVec::new();
                for (buf, sealed) in bufs.iter_mut().zip(sealed) {
                    buf.copy_from_slice(sealed);
                    let end = buf.len();
                    burst.push(Inbound::new(Packet::new(buf, HEADROOM, end)));
                }
                open(sad, &mut burst, 1, &mut Vec::new());
                assert!(burst.iter().all(|inn| matches!(inn.status, Ok(Opened::Packet { .. }))));
            }
            Load::Bare(load) => load.run(),
        }
    }
}

/// A gateway's whole work for a burst: flow, policy and states from the cache, seal; or that and the way back: open with a
/// window of 4096, flow, policy.
struct Gateway {
    spd: Spd,
    cache: FlowCache,
    sad: Sad,
    bufs: Vec<Vec<u8>>,
    plain: Vec<u8>,
    back: bool,
}

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl Gateway {
    fn new(
        transforms: &mut Transforms,
        spec: &TransformSpec<'_>,
        len: usize,
        back: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let mut sad = Sad::new(1);
        let transform = transforms.prepare(spec, false)?;
        let state = SaSpec { reqid: 1, window_pkts: 4096, ..SaSpec::tunnel(77, v4(2, 1), v4(2, 2), transform) };
        sad.add(state)?;
        let mut spd = Spd::new(1);
        for dir in [Dir::Out, Dir::Fwd] {
            let mut policy = Policy::allow(dir, Selector::between((ANY, 0), (ANY, 0)));
            let (src, dst) = (v4(2, 1), v4(2, 2));
            policy.templates.push(Template {
                src,
                dst,
                proto: Proto::Esp,
                mode: Mode::Tunnel,
                reqid: 1,
                spi: 0,
                optional: false,
            });
            spd.add(policy, false)?;
        }
        let plain = packet(len);
        let bufs = vec![[&[0; HEADROOM][..], &plain, &[0; TAILROOM]].concat(); BURST];
        Ok(Gateway { spd, cache: FlowCache::new(4096, 2), sad, bufs, plain, back })
    }

    fn run(&mut self) {
        let mut events = Vec::new();
        let mut bounds = [(0, 0); BURST];
        let mut burst: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        for buf in &mut self.bufs {
            buf[HEADROOM..HEADROOM + 20].copy_from_slice(&self.plain[..20]);
            let packet = Packet::new(buf, HEADROOM, HEADROOM + self.plain.len());
            let flow = Flow::of(packet.bytes(), 0, 0).expect("a good packet");
            let leaving = Leaving { flow: &flow, if_id: 0, cpu: 0, local: ANY, now_s: 1 };
            let way =
                self.cache.resolve(&self.spd, &mut self.sad, &leaving, &mut events).expect("a policy with a state");
            let WayOut::Through(_, bundle) = way else { unreachable!("the policy has a template") };
            burst.push(Outbound { mtu: 1500, ..Outbound::new(bundle[0], packet) });
        }
        seal(&mut self.sad, &mut burst, 1, &mut events);
        for (bounds, out) in bounds.iter_mut().zip(&burst) {
            assert!(out.status.is_ok());
            *bounds = (out.packet.start(), out.packet.end());
        }
        drop(burst);
        if !self.back {
            return;
        }
        let packets =
            self.bufs.iter_mut().zip(bounds).map(|(buf, (start, end))| Inbound::new(Packet::new(buf, start, end)));
        let mut burst: ArrayVec<Inbound<'_>, BURST> = packets.collect();
        open(&mut self.sad, &mut burst, 1, &mut events);
        for inn in &burst {
            assert!(matches!(inn.status, Ok(Opened::Packet { .. })));
            let flow = Flow::of(inn.packet.bytes(), 0, 0).expect("a good packet");
            let arrived = Arrived { dir: Dir::Fwd, flow: &flow, if_id: 0, path: &inn.path, verified: 0 };
            assert!(check(&self.spd, &self.sad, &arrived).is_ok());
        }
    }
}

fn gateway(registry: &Arc<Registry>, csv: &mut Csv) -> Result<(), Box<dyn Error>> {
    let mut transforms = Transforms::new(registry.clone());
    println!(
        "\nticks of the TSC a packet for all of a gateway's work (flow, cache or policy, states, window of 4096, crypto)"
    );
    let all = algorithms();
    for (name, sizes) in [("rfc4106(gcm(aes))", &[64, 512, 1420][..]), ("cbc(aes), hmac(sha1)", &[1420])] {
        let algorithm = all.iter().find(|a| a.name == name).expect("one of them");
        for len in sizes {
            let mut loads = [
                Gateway::new(&mut transforms, &algorithm.spec, *len, false)?,
                Gateway::new(&mut transforms, &algorithm.spec, *len, true)?,
            ];
            let figures = in_turns(&mut loads, Gateway::run, CpuOf::Thread, seconds(0.4), 25);
            let [out, both] = [&figures[0], &figures[1]].map(|f| f.median_ticks / BURST as f64);
            println!("  {name:<30} {len:>5} B  out {out:>6.0}  in {:>6.0}", both - out);
            csv.line(&format!("{name},gateway,{len},,,{out:.1},,,{:.1}", both - out));
        }
    }
    Ok(())
}

/// How long a policy takes to find: 100,000 pairs of hosts, and 16 kinds of prefixes.
fn policies(csv: &mut Csv) -> Result<(), Box<dyn Error>> {
    println!("\npolicies: ns to add, ns to find at random, ns from the flow cache");
    for (name, count) in [("hosts", 1000u32), ("hosts", 100_000), ("prefixes", 100_000)] {
        let mut spd = Spd::new(3);
        let host = |n: u32| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + n));
        let started = std::time::Instant::now();
        for n in 0..count {
            let len = if name == "hosts" { 32 } else { 32 - (n % 16) as u8 };
            let step = if name == "hosts" { n } else { n << 4 };
            spd.add(
                Policy {
                    priority: n % 7,
                    ..Policy::allow(Dir::Out, Selector::between((host(step), len), (host(step + 1), 32)))
                },
                true,
            )?;
        }
        let add_ns = started.elapsed().as_nanos() as f64 / f64::from(count);
        let mut random = 1u64;
        let flows: Vec<Flow> = (0..65536)
            .map(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let n = ((random >> 33) % u64::from(count)) as u32 * if name == "hosts" { 1 } else { 16 };
                Flow { source: host(n), destination: host(n + 1), proto: 17, sport: 1, dport: 2, mark: 0, ifindex: 0 }
            })
            .collect();
        let best = |work: &mut dyn FnMut()| {
            let runs = (0..7).map(|_| {
                let started = std::time::Instant::now();
                work();
                started.elapsed().as_nanos() as f64 / flows.len() as f64
            });
            runs.fold(f64::MAX, f64::min)
        };
        let find = best(&mut || {
            for flow in &flows {
                assert!(black_box(spd.lookup(Dir::Out, flow, 0)).is_some());
            }
        });
        let (mut cache, mut sad) = (FlowCache::new(1 << 18, 1), Sad::new(1));
        let cached = best(&mut || {
            for flow in &flows {
                let leaving = Leaving { flow, if_id: 0, cpu: 0, local: ANY, now_s: 1 };
                assert!(black_box(cache.resolve(&spd, &mut sad, &leaving, &mut Vec::new())).is_ok());
            }
        });
        println!("  {count:>8} {name:<10} add {add_ns:>6.0}  find {find:>6.1}  cached {cached:>6.1}");
        csv.line(&format!("policies {name},{count},,{add_ns:.1},{find:.2},{cached:.2},,,"));
    }
    Ok(())
}

/// The text of a packet of `len` bytes: padded, with pad length and next header.
fn text_len(bare: &str, len: usize) -> usize {
    let block = if bare.contains("cbc") { 16 } else { 4 };
    // An encrypted IV is part of the text.
    (len + 2).next_multiple_of(block) + if bare.contains("cbc") { 16 } else { 0 }
}

fn packets(registry: &Arc<Registry>, csv: &mut Csv) -> Result<(), Box<dyn Error>> {
    let mut transforms = Transforms::new(registry.clone());
    println!(
        "ns a packet, bursts of {BURST}: engine with crypto, crypto alone, the engine's share (ticks of the TSC in brackets)"
    );
    for algorithm in algorithms() {
        for len in SIZES {
            for way in [Way::Forward, Way::Backward] {
                let alg = registry.lookup(Kind::Aead, algorithm.bare)?;
                let shape = Shape { way, bytes: text_len(algorithm.bare, len), burst: BURST };
                let bare = Load::Bare(Box::new(Workload::new(&alg, shape)?));
                let mut loads = [Load::new(&mut transforms, &algorithm.spec, len, way)?, bare];
                let figures = in_turns(&mut loads, Load::run, CpuOf::Thread, seconds(0.4), 25);
                let per =
                    |f: &Figures| (f.median_ns / BURST as f64, f.min_ns / BURST as f64, f.median_ticks / BURST as f64);
                let (all, bare) = (per(&figures[0]), per(&figures[1]));
                let word = if way == Way::Forward { "seal" } else { "open" };
                println!(
                    "  {:<30} {word} {len:>5} B  {:>7.1} [{:>6.0}]  {:>7.1} [{:>6.0}]  {:>6.1} [{:>5.0}]",
                    algorithm.name,
                    all.0,
                    all.2,
                    bare.0,
                    bare.2,
                    all.0 - bare.0,
                    all.2 - bare.2
                );
                csv.line(&format!(
                    "{},{word},{len},{:.2},{:.2},{:.1},{:.2},{:.2},{:.1}",
                    algorithm.name, all.0, all.1, all.2, bare.0, bare.1, bare.2
                ));
            }
        }
    }
    Ok(())
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0) * 4096
}

fn associations(registry: &Arc<Registry>, csv: &mut Csv) -> Result<(), Box<dyn Error>> {
    let mut transforms = Transforms::new(registry.clone());
    let most = option("states").and_then(|n| n.parse().ok()).unwrap_or(1_000_000usize);
    let key: Vec<u8> = (0..20).collect();
    println!(
        "\nassociations (rfc4106(gcm(aes)), window of 64): bytes each, of which the slot {}; ns to add, ns to find at random, one by one and in bursts",
        Sad::slot_len()
    );
    let mut count = 1000;
    while count <= most {
        let before = resident();
        let started = std::time::Instant::now();
        let mut sad = Sad::new(99);
        for i in 0..count as u32 {
            let spec = TransformSpec::Aead { aead: Keyed { name: "rfc4106(gcm(aes))", key: &key }, icv_bits: 128 };
            let transform = transforms.prepare(&spec, false)?;
            let state =
                SaSpec { window_pkts: 64, reqid: i, ..SaSpec::tunnel(0x100 + i, v4(2, 1), v4(2, 2), transform) };
            sad.add(state)?;
        }
        let add_ns = started.elapsed().as_nanos() as f64 / count as f64;
        let bytes = resident().saturating_sub(before) / count;
        let mut random = 1u64;
        let names: Vec<(u32, IpAddr, Proto, u32)> = (0..65536)
            .map(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (0x100 + ((random >> 33) % count as u64) as u32, v4(2, 2), Proto::Esp, 0)
            })
            .collect();
        let time = |work: &mut dyn FnMut()| {
            let mut best = f64::MAX;
            for _ in 0..7 {
                let started = std::time::Instant::now();
                work();
                best = best.min(started.elapsed().as_nanos() as f64 / names.len() as f64);
            }
            best
        };
        let single = time(&mut || {
            for (spi, dst, proto, mark) in &names {
                assert!(black_box(sad.find_in(*spi, *dst, *proto, *mark)).is_some());
            }
        });
        let mut found = Vec::new();
        let burst = time(&mut || {
            for names in names.chunks(BURST) {
                sad.find_burst(names, &mut found);
                assert!(found.iter().all(Option::is_some));
            }
        });
        println!("  {count:>8}  {bytes:>6} B  add {add_ns:>7.0}  find {single:>6.1}  burst {burst:>6.1}");
        csv.line(&format!("states,{count},{bytes},{add_ns:.1},{single:.2},{burst:.2},,,"));
        count *= 10;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (table, _) = tables::load()?;
    let registry = Arc::new(sealane_drivers::registry(table, Arc::new(SystemEntropy)));
    let mut csv =
        Csv::new("algorithm,way,bytes,median_ns,min_ns,median_ticks,bare_median_ns,bare_min_ns,bare_median_ticks");
    if option("only").is_none_or(|part| part == "packets") {
        packets(&registry, &mut csv)?;
    }
    if option("only").is_none_or(|part| part == "gateway") {
        gateway(&registry, &mut csv)?;
    }
    if option("only").is_none_or(|part| part == "states") {
        associations(&registry, &mut csv)?;
        policies(&mut csv)?;
    }
    csv.write()?;
    Ok(())
}
