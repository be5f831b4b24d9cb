//! Every driver of some algorithms at one length, as kcapi-speed compares the kernel's.

use super::child;
use super::frame::{Context, Entry, INTERRUPTED, Measured};
use crate::data::{Axis, Better, Chart, Figure, Outcome, Point, Scale, Series, Shape as Drawn, Source, X};
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::{Alg, Kind, Registry, Row};
use sealane_drivers::measure::{Shape, Workload, in_turns};
use std::sync::Arc;

pub(super) const ENTRY: Entry = Entry {
    id: "drivers",
    title: "Drivers, as kcapi-speed compares them",
    about: "The speed of each driver of an algorithm at messages of 1,024 bytes, and the one that Sealane chooses there. kcapi-speed of \
            libkcapi asks the same of the kernel's drivers.",
    measure,
};

const BYTES: usize = 1024;

const ALGS: [(Kind, &str); 8] = [
    (Kind::Skcipher, "cbc(aes)"),
    (Kind::Skcipher, "ctr(aes)"),
    (Kind::Aead, "gcm(aes)"),
    (Kind::Skcipher, "xts(aes)"),
    (Kind::Hash, "sha256"),
    (Kind::Hash, "hmac(sha256)"),
    (Kind::Hash, "sha512"),
    (Kind::Hash, "cmac(aes)"),
];

const METHOD: &str = "Each message is a call of its own, with a key that was set before: 128 bits, two of them for XTS, 256 bits for HMAC; \
                      GCM also authenticates 16 bytes that it does not encrypt. Ciphers encrypt from one buffer into another. All drivers \
                      of an algorithm take turns, after their self-tests. MB are 1,000,000 bytes.";

/// A driver's figure for an algorithm.
struct Row1024 {
    module: String,
    alg: &'static str,
    driver: String,
    is_chosen: bool,
    mb_per_s: Figure,
}

fn measure(context: &Context<'_>) -> Measured {
    let kernel: Vec<Arc<Row>> = sealane_drivers::kernel_rows().into_iter().map(Arc::new).collect();
    let mut why = Vec::new();
    if kernel.is_empty() {
        why.push("the kernel's own drivers: it offers no AF_ALG to this process".to_owned());
    }
    let mut rows = Vec::new();
    for (kind, name) in ALGS {
        if (context.stop)() {
            why.push(INTERRUPTED.to_owned());
            break;
        }
        (context.progress)(&format!("{name}, {BYTES} bytes"));
        match all_drivers(context, &kernel, kind, name) {
            Ok(of_this) => rows.extend(of_this),
            Err(e) => why.push(e),
        }
    }
    Measured {
        method: METHOD.to_owned(),
        outcome: if why.is_empty() { Outcome::Measured } else { Outcome::Partly(why) },
        notes: notes(&rows),
        charts: if rows.is_empty() { Vec::new() } else { vec![chart(rows)] },
        tables: Vec::new(),
    }
}

/// Measures an algorithm with each of its drivers in turns.
fn all_drivers(
    context: &Context<'_>,
    kernel: &[Arc<Row>],
    kind: Kind,
    name: &'static str,
) -> Result<Vec<Row1024>, String> {
    let registry: &Registry = context.registry;
    let shape = Shape { way: MeasuredDirection::Forward, bytes: BYTES, burst: 1 };
    let chosen = registry.lookup(kind, name).map_err(|e| format!("{name}: {e}"))?;
    let chosen = &chosen.row_for(shape.way, shape.bytes, shape.burst).driver;
    let mut loads = Vec::new();
    let mut drivers = Vec::new();
    for row in registry.rows().iter().chain(kernel).filter(|row| row.info.kind == kind && row.info.name == name) {
        registry.self_test(row).map_err(|e| format!("{}: {e}", row.driver))?;
        loads.push(Workload::new(&Alg::of_row(row, registry.entropy()), shape)?);
        drivers.push(row);
    }
    let measured = in_turns(&mut loads, context.effort.each, context.effort.rounds);
    let figure = |(row, measured): (&&Arc<Row>, _)| Row1024 {
        module: family(row.module).to_owned(),
        alg: name,
        driver: row.driver.clone(),
        is_chosen: row.driver == *chosen,
        mb_per_s: child::mb_per_s(BYTES, &child::ns(measured, context.effort.rounds)),
    };
    Ok(drivers.iter().zip(&measured).map(figure).collect())
}

/// The name of a family of drivers, as it is drawn: AES and hashes by registers of one width are one family.
fn family(module: &'static str) -> &'static str {
    match module {
        "portable" => "RustCrypto",
        "aesni" => "SIMD, 128 bits",
        "avx2" | "vaes-avx2" => "SIMD, 256 bits",
        "avx512" | "vaes" => "SIMD, 512 bits",
        "awslc" => "AWS-LC",
        "ipsecmb" => "intel-ipsec-mb",
        "kernel" => "this kernel",
        other => other,
    }
}

/// A group of bars for each algorithm, and a series for each family of drivers.
fn chart(rows: Vec<Row1024>) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let Row1024 { module, alg, driver, is_chosen, mb_per_s } = row;
        let x = X::Word(alg.to_owned());
        // A family that has two drivers of one algorithm has a series for the second.
        let is_free = |series: &&mut Series| {
            (series.name == module || series.name.strip_prefix(&*module).is_some_and(|rest| rest.starts_with(" (")))
                && series.points.iter().all(|point| point.x != x)
        };
        let remark = if is_chosen { format!("{driver}, chosen") } else { driver };
        let point = Point { x: x.clone(), figure: mb_per_s, remark };
        match series.iter_mut().find(is_free) {
            Some(series) => series.points.push(point),
            None => {
                let others =
                    series.iter().filter(|s| s.name == module || s.name.starts_with(&format!("{module} ("))).count();
                let name = if others == 0 { module } else { format!("{module} ({})", others + 1) };
                series.push(Series { name, source: Source::Here, points: vec![point] });
            }
        }
    }
    Chart {
        id: "mb-per-s".to_owned(),
        title: "Messages of 1,024 bytes, one by one".to_owned(),
        shape: Drawn::Bars,
        x: Axis { name: "Algorithm".to_owned(), unit: String::new(), scale: Scale::Linear, better: None },
        y: Axis {
            name: "Throughput".to_owned(),
            unit: "MB/s".to_owned(),
            scale: Scale::Linear,
            better: Some(Better::Higher),
        },
        series,
    }
}

/// Names the algorithms for which another driver is faster than the chosen one in every round.
fn notes(rows: &[Row1024]) -> Vec<String> {
    let mut notes = Vec::new();
    for chosen in rows.iter().filter(|row| row.is_chosen) {
        let of_this = rows.iter().filter(|row| row.alg == chosen.alg);
        let fastest = of_this.max_by(|a, b| a.mb_per_s.median.total_cmp(&b.mb_per_s.median));
        if let Some(fastest) = fastest.filter(|fastest| chosen.mb_per_s.loses_to(&fastest.mb_per_s, Better::Higher)) {
            notes.push(format!(
                "{}: {} is {:.2} times as fast as {}, which Sealane chooses; 'sealane crypto calibrate' measures the choice anew.",
                chosen.alg,
                fastest.driver,
                fastest.mb_per_s.median / chosen.mb_per_s.median,
                chosen.driver
            ));
        }
    }
    notes.push(
        "No table of kcapi-speed stands beside: libkcapi's documentation has none, and none of 1,024 bytes was found that names its \
         machine."
            .to_owned(),
    );
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(alg: &'static str, module: &str, driver: &str, is_chosen: bool, low: f64, median: f64) -> Row1024 {
        let mb_per_s = Figure { median, low, high: median + 1.0, rounds: 5, cpu: None };
        Row1024 { module: module.to_owned(), alg, driver: driver.to_owned(), is_chosen, mb_per_s }
    }

    #[test]
    fn families_are_series_and_no_driver_is_lost() {
        let chart = chart(vec![
            row("sha256", "simd", "a", true, 9.0, 10.0),
            row("sha256", "simd", "b", false, 7.0, 8.0),
            row("sha256", "awslc", "c", false, 7.0, 8.0),
            row("sha512", "simd", "d", true, 9.0, 10.0),
            row("sha512", "simd", "e", false, 9.0, 10.0),
        ]);
        let drawn: Vec<(&str, Vec<&str>)> = chart
            .series
            .iter()
            .map(|series| (series.name.as_str(), series.points.iter().map(|point| point.remark.as_str()).collect()))
            .collect();
        assert_eq!(
            drawn,
            [("simd", vec!["a, chosen", "d, chosen"]), ("simd (2)", vec!["b", "e"]), ("awslc", vec!["c"])]
        );
    }

    #[test]
    fn a_choice_that_loses_in_every_round_is_named() {
        let rows = [
            row("sha256", "simd", "a", true, 9.0, 10.0),
            row("sha256", "awslc", "b", false, 11.5, 20.0),
            row("sha512", "simd", "c", true, 9.0, 10.0),
            row("sha512", "awslc", "d", false, 10.5, 12.0),
        ];
        let notes = notes(&rows);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("sha256: b is 2.00 times as fast as a, "), "{notes:?}");
    }
}
