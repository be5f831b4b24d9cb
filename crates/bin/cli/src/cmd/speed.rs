//! `sealane speed`: measures an algorithm with its drivers and rivals side by side.

use super::explain::find;
use crate::answer::Answer;
use crate::args::Speed;
use crate::render::{self, Align, Table};
use anyhow::{Context, Result, bail};
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::null;
use sealane_crypto::{Alg, Kind, Registry};
use sealane_drivers::calibrate::measurable;
use sealane_drivers::measure::{MAX_BURST, Measured, Shape, Workload, in_turns};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

/// The number of rounds for each length; the median is reported.
const ROUNDS: u32 = 9;

#[derive(Serialize)]
struct SpeedRow {
    driver: String,
    /// The argument that selected it: the name given with -c, or a word of --against.
    asked: String,
    algorithm: String,
    direction: &'static str,
    bytes: usize,
    burst: usize,
    ns_per_op: f64,
    cpu_ns_per_op: f64,
    ops_per_s: f64,
    mb_per_s: f64,
    cycles_per_byte: f64,
    /// The time of this row divided by that of the first row of the same length.
    against_first: f64,
}

pub(crate) fn speed(args: &Speed, out: &mut impl Write) -> Result<Answer> {
    if !(1..=MAX_BURST).contains(&args.burst) {
        bail!("-n must be between 1 and {MAX_BURST}");
    }
    if !(args.seconds > 0.0 && args.seconds.is_finite()) {
        bail!("-t must be a positive number of seconds");
    }
    let registry = super::registry()?;
    let Some(alg) = find(&registry, &args.name)? else {
        eprintln!("sealane: there is no algorithm or driver '{}'; see 'sealane crypto list'", args.name);
        return Ok(Answer::No);
    };
    let (name, kind) = (alg.info().name.clone(), alg.info().kind);
    let mut algs = vec![(args.name.clone(), alg)];
    for word in &args.against {
        if word == "null" && args.decrypt && kind == Kind::Aead {
            bail!("--against null does not work with --decrypt: a null driver rejects every AEAD ciphertext");
        }
        algs.extend(rivals(&registry, kind, &name, word)?.into_iter().map(|a| (word.clone(), a)));
    }
    let way = if args.decrypt { MeasuredDirection::Backward } else { MeasuredDirection::Forward };
    let mut rows = Vec::new();
    for &bytes in &args.bytes {
        let shape = Shape { way, bytes, burst: args.burst };
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[Kmeasuring {name}, {bytes} bytes, burst of {}", args.burst);
        }
        let mut loads = Vec::new();
        for (_, alg) in &algs {
            loads.push(Workload::new(alg, measurable(alg, shape)).map_err(anyhow::Error::msg)?);
        }
        let measured = in_turns(&mut loads, Duration::from_secs_f64(args.seconds), ROUNDS);
        for ((asked, alg), m) in algs.iter().zip(&measured) {
            let shape = measurable(alg, shape);
            rows.push(row(alg, asked, shape, m, &measured[0]));
        }
    }
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    if args.json {
        render::json(out, &rows)?;
    } else {
        print(&rows, out)?;
    }
    Ok(Answer::Yes)
}

fn row(alg: &Alg, asked: &str, shape: Shape, m: &Measured, first: &Measured) -> SpeedRow {
    SpeedRow {
        driver: alg.row_for(shape.way, shape.bytes, shape.burst).driver.clone(),
        asked: asked.to_owned(),
        algorithm: alg.info().name.clone(),
        direction: shape.way.name(),
        bytes: shape.bytes,
        burst: shape.burst,
        ns_per_op: m.median_ns,
        cpu_ns_per_op: m.cpu_ns,
        ops_per_s: 1e9 / m.median_ns,
        mb_per_s: shape.bytes as f64 * 1e3 / m.median_ns,
        cycles_per_byte: if shape.bytes == 0 { 0.0 } else { m.median_ticks / shape.bytes as f64 },
        against_first: m.median_ns / first.median_ns,
    }
}

fn print(rows: &[SpeedRow], out: &mut impl Write) -> Result<()> {
    let mut table = Table::new(&[
        ("bytes", Align::Right),
        ("burst", Align::Right),
        ("driver", Align::Left),
        ("ns/op", Align::Right),
        ("CPU ns/op", Align::Right),
        ("ops/s", Align::Right),
        ("MB/s", Align::Right),
        ("cycles/byte", Align::Right),
        ("time", Align::Right),
    ]);
    for r in rows {
        table.row(vec![
            r.bytes.to_string(),
            r.burst.to_string(),
            r.driver.clone(),
            format!("{:.1}", r.ns_per_op),
            format!("{:.1}", r.cpu_ns_per_op),
            format!("{:.0}", r.ops_per_s),
            format!("{:.0}", r.mb_per_s),
            format!("{:.2}", r.cycles_per_byte),
            format!("{:.2}", r.against_first),
        ]);
    }
    table.print(out)?;
    writeln!(out, "\ncycles are of the time-stamp counter; 'time' is relative to the first row of the same length")?;
    Ok(())
}

/// The algorithms that a word of `--against` selects.
fn rivals(registry: &Registry, kind: Kind, name: &str, word: &str) -> Result<Vec<Alg>> {
    let module = match word {
        "openssl" => {
            let version = sealane_crypto_openssl::version().map_err(anyhow::Error::msg).context("OpenSSL")?;
            eprintln!("sealane: rival: {version}");
            let row = sealane_crypto_openssl::rows().into_iter().find(|r| r.info.kind == kind && r.info.name == name);
            let row = row
                .with_context(|| format!("--against openssl: no measurement of {name} with OpenSSL is implemented"))?;
            return Ok(vec![Alg::of_row(&Arc::new(row), registry.entropy())]);
        }
        "kernel" => {
            let row = sealane_drivers::kernel_rows().into_iter().find(|r| r.info.kind == kind && r.info.name == name);
            let row =
                row.with_context(|| format!("--against kernel: this kernel does not offer {name} over AF_ALG"))?;
            return Ok(vec![Alg::of_row(&Arc::new(row), registry.entropy())]);
        }
        "null" => {
            let row = null::rows().into_iter().find(|r| r.info.kind == kind && r.info.name == name);
            let row = row.with_context(|| format!("--against null: there is no null driver for {name}"))?;
            return Ok(vec![Alg::of_row(&Arc::new(row), registry.entropy())]);
        }
        "aws-lc" => "awslc",
        "ipsec-mb" => "ipsecmb",
        "rustcrypto" => "portable",
        other => other,
    };
    let simd = ["avx512", "avx2", "aesni", "vaes", "vaes-avx2"];
    let rows: Vec<_> = registry
        .rows()
        .iter()
        .filter(|r| r.info.kind == kind && r.info.name == name)
        .filter(|r| r.module == module || module == "simd" && simd.contains(&r.module) || r.driver == module)
        .collect();
    if rows.is_empty() {
        let have: Vec<&str> = registry
            .rows()
            .iter()
            .filter(|r| r.info.kind == kind && r.info.name == name)
            .map(|r| r.driver.as_str())
            .collect();
        bail!("--against {word}: {name} has no such driver, only: {}", have.join(", "));
    }
    for row in &rows {
        registry.self_test(row).map_err(anyhow::Error::msg).with_context(|| format!("driver {}", row.driver))?;
    }
    Ok(rows.into_iter().map(|r| Alg::of_row(r, registry.entropy())).collect())
}
