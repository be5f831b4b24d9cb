//! `sealane crypto explain`: shows the driver that serves an algorithm, and the measurements behind that choice.

use crate::answer::Answer;
use crate::args::Explain;
use crate::render::{self, Align, Table};
use anyhow::{Context, Result};
use sealane_crypto::choice::{BURST_POINTS, LEN_POINTS, MeasuredDirection, burst_class, len_class};
use sealane_crypto::{Alg, Kind, LookupError, Registry};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Explanation {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    bytes: usize,
    burst: usize,
    direction: &'static str,
    driver: String,
    reason: String,
    /// The measured length that is used for this one, in bytes.
    measured_bytes: usize,
    /// The measured burst size that is used for this one.
    measured_burst: usize,
    table: String,
    candidates: Vec<Candidate>,
}

#[derive(Serialize)]
struct Candidate {
    driver: String,
    priority: u32,
    ns: Option<f32>,
    chosen: bool,
}

const KINDS: [Kind; 5] = [Kind::Hash, Kind::Skcipher, Kind::Aead, Kind::NonceMac, Kind::Rng];

/// Looks up an algorithm or driver by name in all types. `None` if there is none of this name.
pub(crate) fn find(registry: &Registry, name: &str) -> Result<Option<Alg>> {
    for kind in KINDS {
        match registry.lookup(kind, name) {
            Ok(alg) => return Ok(Some(alg)),
            Err(LookupError::NotFound) => {}
            Err(e) => return Err(e).with_context(|| format!("'{name}'")),
        }
    }
    Ok(None)
}

pub(crate) fn explain(args: &Explain, out: &mut impl Write) -> Result<Answer> {
    let registry = super::registry()?;
    let Some(alg) = find(&registry, &args.name)? else {
        eprintln!("sealane: there is no algorithm or driver '{}'; see 'sealane crypto list'", args.name);
        return Ok(Answer::No);
    };
    let e = reason(&registry, &alg, args);
    if args.json {
        render::json(out, &e)?;
        return Ok(Answer::Yes);
    }
    writeln!(out, "{} ({}), {} bytes, burst of {}, {}: {}", e.name, e.kind, e.bytes, e.burst, e.direction, e.driver)?;
    writeln!(out, "because {}\n", e.reason)?;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("driver", Align::Left),
        ("priority", Align::Right),
        ("ns/op", Align::Right),
        ("against best", Align::Right),
    ]);
    let best = e.candidates.iter().filter_map(|c| c.ns).fold(f32::INFINITY, f32::min);
    for c in &e.candidates {
        table.row(vec![
            if c.chosen { "*" } else { "" }.to_owned(),
            c.driver.clone(),
            c.priority.to_string(),
            c.ns.map_or("not measured".to_owned(), |ns| format!("{ns:.1}")),
            c.ns.map_or(String::new(), |ns| format!("{:.2}", ns / best)),
        ]);
    }
    table.print(out)?;
    writeln!(out, "\nmeasured at {} bytes, burst of {}; table: {}", e.measured_bytes, e.measured_burst, e.table)?;
    Ok(Answer::Yes)
}

fn reason(registry: &Registry, alg: &Alg, args: &Explain) -> Explanation {
    let way = if args.decrypt { MeasuredDirection::Backward } else { MeasuredDirection::Forward };
    let info = alg.info();
    // Hashes and MACs have only one direction.
    let way = if matches!(info.kind, Kind::Skcipher | Kind::Aead) { way } else { MeasuredDirection::Forward };
    let row = alg.row_for(way, args.bytes, args.burst);
    let (len, burst) = (len_class(args.bytes), burst_class(args.burst));
    let table = registry.table();
    let ns_of = |driver: &str| {
        table
            .drivers(&info.name, way)
            .find(|(d, _)| *d == driver)
            .map(|(_, g)| g.0[len][burst])
            .filter(|ns| !ns.is_nan())
    };
    let mut candidates: Vec<Candidate> = registry
        .rows()
        .iter()
        .filter(|r| r.info.kind == info.kind && r.info.name == info.name)
        .map(|r| Candidate {
            driver: r.driver.clone(),
            priority: r.priority,
            ns: ns_of(&r.driver),
            chosen: r.driver == row.driver,
        })
        .collect();
    candidates.sort_by(|a, b| {
        let key = |c: &Candidate| c.ns.unwrap_or(f32::INFINITY);
        key(a).total_cmp(&key(b)).then(b.priority.cmp(&a.priority))
    });
    let reason = if args.name == row.driver && info.name != row.driver {
        "it was selected by its driver name".to_owned()
    } else if candidates.is_empty() {
        format!("it is built by a template, whose parts are chosen by their own measurements: {}", row.driver)
    } else if ns_of(&row.driver).is_some() {
        "it is the fastest one measured for this length and burst".to_owned()
    } else {
        format!("there are no measurements of this algorithm, and its priority {} is the highest", row.priority)
    };
    Explanation {
        name: info.name.clone(),
        kind: info.kind.name(),
        bytes: args.bytes,
        burst: args.burst,
        direction: way.name(),
        driver: row.driver.clone(),
        reason,
        measured_bytes: LEN_POINTS[len],
        measured_burst: BURST_POINTS[burst],
        table: if table.is_empty() { "none".to_owned() } else { table.cpu.clone() },
        candidates,
    }
}
