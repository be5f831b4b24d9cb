//! IPsec with many states: the whole work of a gateway beside bare calls of the crypto core for the same texts, which shows the
//! engine's own share; and the cost of finding and keeping one of up to a million associations and policies. The part `ipsec` of
//! `sealane bench` has the work of one state, by lengths and CPUs.
//!
//! Packets are IPv4 over IPv4, and sizes are of the inner packet. `--only gateway|states|policies` runs a part,
//! `--states N` sets the largest number of states, `--from N` the least, `--burst N` the size of bursts.

mod common;
mod gateway;
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
