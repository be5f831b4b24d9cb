//! Each algorithm with one association, beside bare calls of the crypto core for the same texts.

use crate::common::{BURST, algorithms, packet, text_len, v4};
use arrayvec::ArrayVec;
use sealane_bench::report::{Csv, seconds};
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::{Kind, Registry};
use sealane_drivers::measure::{Shape, Workload};
use sealane_drivers::turns::{CpuOf, Figures, in_turns};
use sealane_net::ipsec::open::{Inbound, Opened, open};
use sealane_net::ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net::ipsec::sa::{SaId, SaSpec};
use sealane_net::ipsec::sad::Sad;
use sealane_net::ipsec::seal::{Outbound, seal};
use sealane_net::ipsec::transform::{TransformSpec, Transforms};
use std::error::Error;
use std::sync::Arc;

const SIZES: [usize; 3] = [64, 256, 1400];

/// The packets of one direction.
enum Load {
    Seal { sad: Sad, ids: Vec<SaId>, bufs: Vec<Vec<u8>>, plain: Vec<u8>, bounds: (usize, usize) },
    Open { sad: Sad, sealed: Vec<Vec<u8>>, bufs: Vec<Vec<u8>> },
    Bare(Box<Workload>),
}

impl Load {
    /// Makes a burst over `states` associations, without a replay window, because the same packets are opened
    /// repeatedly.
    fn new(
        transforms: &mut Transforms,
        spec: &TransformSpec<'_>,
        len: usize,
        way: MeasuredDirection,
    ) -> Result<Self, Box<dyn Error>> {
        let mut sad = Sad::new(1);
        let transform = transforms.prepare(spec, false)?;
        let id = sad.add(SaSpec::tunnel(77, v4(2, 1), v4(2, 2), transform))?;
        let plain = packet(len);
        let bufs = vec![[&[0; HEADROOM][..], &plain, &[0; TAILROOM]].concat(); BURST];
        let mut load = Load::Seal { sad, ids: vec![id; BURST], bufs, plain, bounds: (0, 0) };
        if way == MeasuredDirection::Forward {
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
                    // Only the header is written again; the text is the last ciphertext.
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
                assert!(burst.iter().all(|inn| matches!(inn.status, Ok(Opened::Packet))));
            }
            Load::Bare(load) => load.run(),
        }
    }
}

pub(crate) fn packets(registry: &Arc<Registry>, csv: &mut Csv) -> Result<(), Box<dyn Error>> {
    let mut transforms = Transforms::new(registry.clone());
    println!(
        "ns a packet, bursts of {BURST}: engine with crypto, crypto alone, the engine's share (ticks of the TSC in brackets)"
    );
    for algorithm in algorithms() {
        for len in SIZES {
            for way in [MeasuredDirection::Forward, MeasuredDirection::Backward] {
                let alg = registry.lookup(Kind::Aead, algorithm.bare)?;
                let shape = Shape { way, bytes: text_len(algorithm.bare, len), burst: BURST };
                let bare = Load::Bare(Box::new(Workload::new(&alg, shape)?));
                let mut loads = [Load::new(&mut transforms, &algorithm.spec, len, way)?, bare];
                let figures = in_turns(&mut loads, Load::run, CpuOf::Thread, seconds(0.4), 25);
                let per =
                    |f: &Figures| (f.median_ns / BURST as f64, f.min_ns / BURST as f64, f.median_ticks / BURST as f64);
                let (all, bare) = (per(&figures[0]), per(&figures[1]));
                let word = if way == MeasuredDirection::Forward { "seal" } else { "open" };
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
                    "{},{word},{len},{:.2},{:.2},{:.1},{:.2},{:.2},{:.1},,",
                    algorithm.name, all.0, all.1, all.2, bare.0, bare.1, bare.2
                ));
            }
        }
    }
    Ok(())
}
