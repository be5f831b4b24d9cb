//! The choice of drivers, cell by cell: for each algorithm, direction, length and burst the driver that the registry's
//! table picks, against the best single driver measured in this run; and the whole table against any one library.

use sealane_bench::report::{Csv, option, seconds};
use sealane_crypto::choice::{BURST_POINTS, LEN_POINTS, MeasuredDirection};
use sealane_crypto::{Alg, Kind, Row};
use sealane_drivers::calibrate::measurable;
use sealane_drivers::measure::{Measured, Shape, Workload, in_turns};
use sealane_drivers::{SystemEntropy, tables};
use std::collections::BTreeMap;
use std::sync::Arc;

const ALGS: [(Kind, &str); 14] = [
    (Kind::Hash, "sha1"),
    (Kind::Hash, "sha256"),
    (Kind::Hash, "sha512"),
    (Kind::Hash, "hmac(sha1)"),
    (Kind::Hash, "hmac(sha256)"),
    (Kind::Hash, "hmac(sha512)"),
    (Kind::Hash, "cmac(aes)"),
    (Kind::NonceMac, "gmac(aes)"),
    (Kind::Skcipher, "ctr(aes)"),
    (Kind::Skcipher, "cbc(aes)"),
    (Kind::Skcipher, "xts(aes)"),
    (Kind::Aead, "gcm(aes)"),
    (Kind::Aead, "ccm(aes)"),
    (Kind::Aead, "rfc7539(chacha20,poly1305)"),
];

/// A cell within this factor of the best counts as the best.
const BOUND: f64 = 1.05;

#[derive(Default)]
struct Tally {
    cells: u32,
    within: u32,
    /// Sum of log(time / best time), for a geometric mean.
    log_sum: f64,
    /// Number of cells that this driver family can serve.
    worst: f64,
}

impl Tally {
    fn add(&mut self, ratio: f64) {
        self.cells += 1;
        self.within += u32::from(ratio <= BOUND);
        self.log_sum += ratio.ln();
        self.worst = self.worst.max(ratio);
    }

    fn print(&self, name: &str) {
        println!(
            "  {name:<12} {:>5} cells, {:>5} within 5 % of the best, {:.3} times the best on (geometric) average, worst {:.2}",
            self.cells,
            self.within,
            (self.log_sum / f64::from(self.cells.max(1))).exp(),
            self.worst
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (table, origin) = tables::load()?;
    println!("table: {origin:?}, measured on {}", table.cpu);
    let entropy: Arc<dyn sealane_crypto::rng::Entropy> = Arc::new(SystemEntropy);
    let registry = sealane_drivers::registry(table, entropy.clone());
    let only = option("only").unwrap_or_default();
    let mut csv = Csv::new("algorithm,way,bytes,burst,chosen,chosen_ns,best,best_ns,ratio");
    let mut chosen_tally = Tally::default();
    let mut libraries: BTreeMap<&'static str, Tally> = BTreeMap::new();
    let mut bad = Vec::new();
    for (kind, name) in ALGS.iter().filter(|(_, n)| n.contains(&only)) {
        let Ok(generic) = registry.lookup(*kind, name) else { continue };
        let rows: Vec<Arc<Row>> = registry
            .rows()
            .iter()
            .filter(|r| r.info.kind == *kind && r.info.name == *name && r.module != "null" && r.module != "kernel")
            .cloned()
            .collect();
        let algs: Vec<Alg> = rows.iter().map(|r| Alg::of_row(r, &entropy)).collect();
        let ways = if matches!(kind, Kind::Skcipher | Kind::Aead) {
            &MeasuredDirection::ALL[..]
        } else {
            &[MeasuredDirection::Forward][..]
        };
        for &way in ways {
            let mut tally = Tally::default();
            for bytes in LEN_POINTS {
                for burst in BURST_POINTS {
                    let shape = measurable(&generic, Shape { way, bytes, burst });
                    let mut loads = Vec::new();
                    for alg in &algs {
                        loads.push(Workload::new(alg, shape)?);
                    }
                    let figures = in_turns(&mut loads, seconds(0.02), 7);
                    let (best, best_ns) = best(&rows, &figures);
                    let chosen = generic.row_for(way, shape.bytes, burst);
                    let at =
                        rows.iter().position(|r| r.driver == chosen.driver).ok_or("the chosen row is not listed")?;
                    let ratio = figures[at].min_ns / best_ns;
                    tally.add(ratio);
                    chosen_tally.add(ratio);
                    for (row, m) in rows.iter().zip(&figures) {
                        libraries.entry(row.module).or_default().add(m.min_ns / best_ns);
                    }
                    if ratio > BOUND {
                        bad.push(format!(
                            "{name} {} {bytes} x {burst}: {} {:.1} ns, {best} {best_ns:.1} ns",
                            way.name(),
                            chosen.driver,
                            figures[at].min_ns
                        ));
                    }
                    csv.line(&format!(
                        "{name},{},{bytes},{burst},{},{:.2},{best},{best_ns:.2},{ratio:.4}",
                        way.name(),
                        chosen.driver,
                        figures[at].min_ns
                    ));
                }
            }
            tally.print(&format!("{name} {}", way.name()));
        }
    }
    println!("\nover the whole table:");
    chosen_tally.print("chosen");
    for (module, tally) in &libraries {
        tally.print(module);
    }
    println!("\ncells not within 5 %: {}", bad.len());
    for line in &bad {
        println!("  {line}");
    }
    csv.write()?;
    Ok(())
}

fn best<'a>(rows: &'a [Arc<Row>], figures: &[Measured]) -> (&'a str, f64) {
    rows.iter()
        .zip(figures)
        .map(|(r, m)| (r.driver.as_str(), m.min_ns))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("every algorithm has a portable driver")
}
