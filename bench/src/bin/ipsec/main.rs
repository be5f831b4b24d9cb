//! IPsec: bursts of 64 packets of ESP in tunnel mode sealed and opened, beside the bare call of the crypto core for the same
//! texts, so that the engine's own share is seen: headers, padding, sequence numbers, lifetimes. Then all of a gateway's work,
//! policies and windows included; and what it costs to find one of up to a million associations and policies, and to keep it.
//!
//! Packets of IPv4 over IPv4, the size is the inner packet's. `--only packets|gateway|states|policies` runs a part, `--states N`
//! does with that many at most, `--from N` with that many at least, `--burst N` with smaller bursts.

mod common;
mod gateway;
mod packets;
mod tables;

use sealane_bench::report::{Csv, option};
use sealane_drivers::SystemEntropy;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let (table, _) = sealane_drivers::tables::load()?;
    let registry = Arc::new(sealane_drivers::registry(table, Arc::new(SystemEntropy)));
    let mut csv = Csv::new(
        "algorithm,way,bytes,median_ns,min_ns,median_ticks,bare_median_ns,bare_min_ns,bare_median_ticks,wanted_ticks,dpdk_ticks",
    );
    let runs = |part: &str| option("only").is_none_or(|only| only == part);
    if runs("packets") {
        packets::packets(&registry, &mut csv)?;
    }
    if runs("gateway") {
        gateway::gateway(&registry, &mut csv)?;
    }
    if runs("states") {
        tables::associations(&registry, &mut csv)?;
    }
    if runs("policies") {
        tables::policies(&mut csv)?;
    }
    csv.write()?;
    Ok(())
}
