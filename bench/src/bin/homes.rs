//! The cost of a key's home: AES-128-CTR and AES-128-GCM by OpenSSL's EVP, with the key in this process, in guarded memory, and in a
//! keeper, one text after the other by one thread, and in batches.
//!
//! The homes take turns, and each figure is the median of the turns. CPU time is that of this process and of the keeper together. It
//! starts the `sealane keeper` beside it, with keys in memory. `--home HOME`, `--algorithm NAME` and `--bytes N` leave the others out.

use sealane_bench::keeper::{Keeper, cpu_time};
use sealane_bench::report::{Csv, option, seconds};
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::home::KeyHome;
use sealane_crypto::registry::Row;
use sealane_crypto::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use sealane_crypto::{Alg, Kind, Registry};
use sealane_drivers::system_registry;
use sealane_guarded::Plan;
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::pool::Manner;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Texts at a time, and bytes of each.
const SHAPES: [(usize, usize); 8] =
    [(1, 16), (1, 64), (1, 256), (1, 1024), (1, 4096), (1, 16 << 10), (1, 63 << 10), (8, 1024)];
const ALGORITHMS: [(Kind, &str); 2] = [(Kind::Skcipher, "ctr(aes)"), (Kind::Aead, "gcm(aes)")];
/// The turns that each home has in the time of a row.
const TURNS: u32 = 15;
const KEY: [u8; 16] = [3; 16];

/// A key of one of the two kinds.
enum Tfm {
    Skcipher(SkcipherTfm),
    Aead(AeadTfm),
}

impl Tfm {
    fn new(alg: &Alg, key: &[u8]) -> Result<Self, Box<dyn std::error::Error>> {
        Ok(match alg.info().kind {
            Kind::Skcipher => Tfm::Skcipher(alg.skcipher(key)?),
            _ => Tfm::Aead(alg.aead(key)?),
        })
    }

    /// Encrypts each of `texts` in place.
    fn run(&self, texts: &mut [Vec<u8>]) -> sealane_crypto::Status {
        match self {
            Tfm::Skcipher(tfm) => {
                let mut ivs = [[1; 16]; 8];
                let ops = core::iter::zip(texts, &mut ivs);
                let mut ops: arrayvec::ArrayVec<SkcipherOp<'_>, 8> = ops
                    .map(|(text, iv)| SkcipherOp {
                        tfm,
                        dir: Direction::Encrypt,
                        iv,
                        data: (&mut text[..]).into(),
                        status: Ok(()),
                    })
                    .collect();
                skcipher::crypt(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
            Tfm::Aead(tfm) => {
                let mut tags = [[0; 16]; 8];
                let ops = core::iter::zip(texts, &mut tags);
                let mut ops: arrayvec::ArrayVec<AeadOp<'_>, 8> = ops
                    .map(|(text, tag)| AeadOp {
                        tfm,
                        dir: Direction::Encrypt,
                        nonce: &[1; 12],
                        aad: &[],
                        data: (&mut text[..]).into(),
                        tag,
                        status: Ok(()),
                    })
                    .collect();
                aead::crypt(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
        }
    }
}

/// A home in its turns.
struct Rival {
    home: &'static str,
    tfm: Tfm,
    /// Bytes a second of each turn.
    rates: Vec<f64>,
    bytes: usize,
    cpu: Duration,
}

impl Rival {
    fn new(home: &'static str, tfm: Tfm) -> Self {
        Rival { home, tfm, rates: Vec::new(), bytes: 0, cpu: Duration::ZERO }
    }

    fn turn(&mut self, texts: &mut [Vec<u8>], time: Duration, cpu: impl Fn() -> Duration) -> sealane_crypto::Status {
        let all: usize = texts.iter().map(Vec::len).sum();
        // The clock is read so seldom that it takes no part of the time.
        let rounds = (16_384 / all).max(1);
        self.tfm.run(texts)?;
        let (cpu_before, since, mut bytes) = (cpu(), Instant::now(), 0);
        while since.elapsed() < time {
            for _ in 0..rounds {
                self.tfm.run(texts)?;
            }
            bytes += rounds * all;
        }
        self.rates.push(bytes as f64 / since.elapsed().as_secs_f64());
        self.cpu += cpu() - cpu_before;
        self.bytes += bytes;
        Ok(())
    }

    fn rate(&mut self) -> f64 {
        self.rates.sort_unstable_by(f64::total_cmp);
        self.rates[self.rates.len() / 2]
    }
}

/// The row of OpenSSL for an algorithm, if OpenSSL is there.
fn evp(registry: &Registry, kind: Kind, name: &str) -> Option<Alg> {
    let row: Row =
        sealane_crypto_openssl::rows().into_iter().find(|row| row.info.kind == kind && row.info.name == name)?;
    Some(Alg::of_row(&Arc::new(row), registry.entropy()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keeper = Keeper::start("")?;
    let (kept_home, registry) = (KeeperHome::new(keeper.socket(), Manner::default()), system_registry().0);
    // Keys that are made before guarded memory is there stay where they are.
    let mut rivals = Vec::new();
    for (kind, name) in ALGORITHMS {
        let local = registry.lookup(kind, name)?;
        let kept = kept_home.adopt(&local).ok_or("the algorithm has no key")?;
        let mut of_algorithm = Vec::new();
        match evp(&registry, kind, name) {
            Some(evp) => of_algorithm.push(Rival::new("evp", Tfm::new(&evp, &KEY)?)),
            None => println!("{name}: no libcrypto to compare with"),
        }
        of_algorithm.push(Rival::new("process", Tfm::new(&local, &KEY)?));
        of_algorithm.push(Rival::new("keeper", Tfm::new(&kept, &kept_home.keep(local.info(), &KEY)?)?));
        rivals.push(of_algorithm);
    }
    let memory = sealane_guarded::establish(Plan::default())?;
    for lack in memory.lacks() {
        println!("guarded memory: {lack}");
    }
    let (home, algorithm, bytes) = (option("home"), option("algorithm"), option("bytes"));
    let bytes = bytes.map(|bytes| bytes.parse::<usize>()).transpose()?;
    let mut csv = Csv::new("algorithm,texts,bytes,home,mbytes_per_s,of_evp,of_process,cpu_s_per_gbyte");
    for ((kind, name), of_algorithm) in ALGORITHMS.into_iter().zip(&mut rivals) {
        of_algorithm.push(Rival::new("guarded", Tfm::new(&registry.lookup(kind, name)?, &KEY)?));
        if algorithm.as_ref().is_some_and(|algorithm| algorithm != name) {
            continue;
        }
        of_algorithm.retain(|rival| home.as_ref().is_none_or(|home| home == rival.home));
        for (texts, len) in SHAPES.into_iter().filter(|(_, len)| bytes.is_none_or(|bytes| bytes == *len)) {
            let mut data = vec![vec![2; len]; texts];
            for rival in of_algorithm.iter_mut() {
                (rival.bytes, rival.cpu) = (0, Duration::ZERO);
                rival.rates.clear();
            }
            for _ in 0..TURNS {
                for rival in of_algorithm.iter_mut() {
                    rival.turn(&mut data, seconds(1.0) / TURNS, || keeper.cpu_time() + cpu_time(0))?;
                }
            }
            let rates: Vec<(&str, f64)> = of_algorithm.iter_mut().map(|rival| (rival.home, rival.rate())).collect();
            let of = |home: &str| rates.iter().find(|(name, _)| *name == home).map_or(f64::NAN, |(_, rate)| *rate);
            for (rival, (home, rate)) in of_algorithm.iter().zip(&rates) {
                let (of_evp, of_process) = (rate / of("evp"), rate / of("process"));
                let cpu = rival.cpu.as_secs_f64() * 1e9 / rival.bytes as f64;
                println!(
                    "{name} {texts} x {len:>5} bytes, {home:<8} {:>7.0} MB/s, {of_evp:.2} of EVP, {of_process:.2} of a key in the \
                     process, {cpu:.2} CPU seconds per GB",
                    rate / 1e6
                );
                csv.line(&format!(
                    "{name},{texts},{len},{home},{:.1},{of_evp:.3},{of_process:.3},{cpu:.3}",
                    rate / 1e6
                ));
            }
        }
    }
    if csv.is_empty() {
        return Err("there is no such home, algorithm or length".into());
    }
    Ok(csv.write()?)
}
