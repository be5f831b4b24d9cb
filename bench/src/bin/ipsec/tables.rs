//! The cost of finding and keeping up to a million associations and policies.

use crate::common::{ANY, BURST, v4};
use sealane_bench::report::{Csv, option};
use sealane_crypto::Registry;
use sealane_drivers::turns::{CpuOf, in_turns};
use sealane_net_ipsec::sa::{Proto, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::selector::{Flow, Selector};
use sealane_net_ipsec::spd::cache::FlowCache;
use sealane_net_ipsec::spd::resolve::OutboundQuery;
use sealane_net_ipsec::spd::{Dir, Policy, Spd};
use sealane_net_ipsec::transform::{Keyed, TransformSpec, Transforms};
use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Look-ups in a round.
const LOOKUPS: usize = 65_536;
const ROUNDS: u32 = 7;

/// Nanoseconds of each look-up in the fastest round of a way that makes [`LOOKUPS`] in a call, which is a round.
fn fastest(way: &mut dyn FnMut()) -> f64 {
    in_turns(&mut [way], |way| way(), CpuOf::Thread, Duration::ZERO, ROUNDS)[0].min_ns / LOOKUPS as f64
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0) * 4096
}

pub(crate) fn associations(registry: &Arc<Registry>, csv: &mut Csv) -> Result<(), Box<dyn Error>> {
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
        let names: Vec<(u32, IpAddr, Proto, u32)> = (0..LOOKUPS)
            .map(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (0x100 + ((random >> 33) % count as u64) as u32, v4(2, 2), Proto::Esp, 0)
            })
            .collect();
        let single = fastest(&mut || {
            for (spi, dst, proto, mark) in &names {
                assert!(black_box(sad.find_in(*spi, *dst, *proto, *mark)).is_some());
            }
        });
        let mut found = Vec::new();
        let burst = fastest(&mut || {
            for names in names.chunks(BURST) {
                sad.find_burst(names, &mut found);
                assert!(found.iter().all(Option::is_some));
            }
        });
        println!("  {count:>8}  {bytes:>6} B  add {add_ns:>7.0}  find {single:>6.1}  burst {burst:>6.1}");
        csv.line(&format!("states,{count},{bytes},{add_ns:.1},{single:.2},{burst:.2},,,,,"));
        count *= 10;
    }
    Ok(())
}

/// Measures look-ups of policies: up to a million pairs of hosts, and 16 kinds of prefixes.
pub(crate) fn policies(csv: &mut Csv) -> Result<(), Box<dyn Error>> {
    let most = option("states").and_then(|n| n.parse().ok()).unwrap_or(1_000_000u32);
    println!(
        "\npolicies: bytes each; ns to add, ns to find at random, one by one and in bursts, ns from the flow cache, one by one and warmed in bursts"
    );
    let sizes =
        [("hosts", 1000u32), ("hosts", 100_000), ("hosts", 1_000_000), ("prefixes", 100_000), ("prefixes", 1_000_000)];
    for (name, count) in sizes.into_iter().filter(|(_, count)| *count <= most) {
        let before = resident();
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
        let bytes = resident().saturating_sub(before) / count as usize;
        let mut random = 1u64;
        let flows: Vec<Flow> = (0..LOOKUPS)
            .map(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let n = ((random >> 33) % u64::from(count)) as u32 * if name == "hosts" { 1 } else { 16 };
                Flow { source: host(n), destination: host(n + 1), proto: 17, sport: 1, dport: 2, mark: 0, ifindex: 0 }
            })
            .collect();
        let find = fastest(&mut || {
            for flow in &flows {
                assert!(black_box(spd.lookup(Dir::Out, flow, 0)).is_some());
            }
        });
        let mut found = [None; BURST];
        let burst = fastest(&mut || {
            for flows in flows.chunks(BURST) {
                spd.lookup_burst(Dir::Out, flows, 0, &mut found);
                assert!(found.iter().all(Option::is_some));
            }
        });
        let (mut cache, mut sad) = (FlowCache::new(1 << 18, 1), Sad::new(1));
        let cached = fastest(&mut || {
            for flow in &flows {
                let leaving = OutboundQuery { flow, if_id: 0, cpu: 0, local: ANY, now_s: 1 };
                assert!(black_box(cache.resolve(&spd, &mut sad, &leaving, &mut Vec::new())).is_ok());
            }
        });
        let warmed = fastest(&mut || {
            for flows in flows.chunks(BURST) {
                flows.iter().for_each(|flow| cache.warm(flow, 0));
                for flow in flows {
                    let leaving = OutboundQuery { flow, if_id: 0, cpu: 0, local: ANY, now_s: 1 };
                    assert!(black_box(cache.resolve(&spd, &mut sad, &leaving, &mut Vec::new())).is_ok());
                }
            }
        });
        println!(
            "  {count:>8} {name:<10} {bytes:>5} B  add {add_ns:>6.0}  find {find:>6.1}  burst {burst:>6.1}  cached {cached:>6.1}  warmed {warmed:>6.1}"
        );
        csv.line(&format!(
            "policies {name},{count},{bytes},{add_ns:.1},{find:.2},{burst:.2},{cached:.2},{warmed:.2},,,"
        ));
    }
    Ok(())
}
