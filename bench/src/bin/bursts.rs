//! Bursts of small messages: the best driver for a burst of 64 against every library called one by one, with HMAC-SHA1,
//! HMAC-SHA256 and AES-128-CMAC.

use sealane_bench::report::{Csv, seconds};
use sealane_crypto::choice::{MeasuredDirection, Table};
use sealane_crypto::{Alg, Kind, Row};
use sealane_drivers::SystemEntropy;
use sealane_drivers::measure::{Shape, Workload, in_turns};
use std::sync::Arc;

const ALGS: [(&str, f64); 3] = [("hmac(sha1)", 5.0), ("hmac(sha256)", 5.0), ("cmac(aes)", 3.0)];
const BYTES: [usize; 4] = [64, 144, 576, 1420];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let entropy: Arc<dyn sealane_crypto::rng::Entropy> = Arc::new(SystemEntropy);
    let registry = sealane_drivers::registry(Table::default(), entropy.clone());
    let openssl: Vec<Arc<Row>> = sealane_crypto_openssl::rows().into_iter().map(Arc::new).collect();
    let mut csv = Csv::new("algorithm,bytes,driver,burst,median_ns,min_ns,cpu_ns");
    for (name, wanted) in ALGS {
        let rows: Vec<Arc<Row>> = registry
            .rows()
            .iter()
            .chain(&openssl)
            .filter(|r| r.info.kind == Kind::Hash && r.info.name == name)
            .filter(|r| r.module != "null" && r.module != "kernel")
            .cloned()
            .collect();
        let algs: Vec<Alg> = rows.iter().map(|r| Alg::of_row(r, &entropy)).collect();
        for bytes in BYTES {
            let shape = |burst| Shape { way: MeasuredDirection::Forward, bytes, burst };
            let mut loads = Vec::new();
            for burst in [1, 64] {
                for alg in &algs {
                    loads.push(Workload::new(alg, shape(burst))?);
                }
            }
            let figures = in_turns(&mut loads, seconds(0.5), 15);
            let (single, burst) = figures.split_at(rows.len());
            println!("\n{name}, {bytes} bytes, ns a message: one by one, and in bursts of 64");
            for ((row, s), b) in rows.iter().zip(single).zip(burst) {
                println!("  {:<26} {:>9.1} {:>9.1}", row.driver, s.median_ns, b.median_ns);
                for (n, m) in [(1, s), (64, b)] {
                    csv.line(&format!(
                        "{name},{bytes},{},{n},{:.2},{:.2},{:.2}",
                        row.driver, m.median_ns, m.min_ns, m.cpu_ns
                    ));
                }
            }
            // Our own kernels are no library and do not count as rivals.
            let libraries = ["portable", "awslc", "ipsecmb", "openssl"];
            let rival = rows
                .iter()
                .zip(single)
                .filter(|(r, _)| libraries.contains(&r.module))
                .min_by(|a, b| a.1.median_ns.total_cmp(&b.1.median_ns));
            let ours = rows.iter().zip(burst).min_by(|a, b| a.1.median_ns.total_cmp(&b.1.median_ns));
            if let (Some((r, s)), Some((o, b))) = (rival, ours) {
                let ratio = s.median_ns / b.median_ns;
                let verdict = if bytes != 144 {
                    String::new()
                } else {
                    format!(" (wanted {wanted}: {})", if ratio >= wanted { "met" } else { "missed" })
                };
                println!(
                    "  {} one by one / {} in bursts: {:.1} / {:.1} = {ratio:.2}{verdict}",
                    r.driver, o.driver, s.median_ns, b.median_ns
                );
            }
        }
    }
    csv.write()?;
    Ok(())
}
