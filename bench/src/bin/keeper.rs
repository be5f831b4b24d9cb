//! A key in the keeper against the same key in this process: one text after the other, by one thread.
//!
//! It starts the `sealane keeper` beside it, with keys in memory.

use sealane_bench::report::{Csv, seconds};
use sealane_crypto::data::Data;
use sealane_crypto::home::KeyHome;
use sealane_crypto::skcipher::{Direction, SkcipherTfm};
use sealane_crypto::{Alg, Kind};
use sealane_drivers::system_registry;
use sealane_keeper_client::client::Client;
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::pool::Manner;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const LENS: [usize; 4] = [16, 1024, 16 * 1024, 63 * 1024];
const ALGORITHM: &str = "ctr(aes)";

/// A keeper with a folder for its socket, both gone with it.
struct Keeper {
    folder: PathBuf,
    process: Child,
}

impl Keeper {
    fn start() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = std::env::temp_dir().join(format!("sealane-bench-keeper-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let config = folder.join("keeper.toml");
        std::fs::write(&config, format!("socket = '{}'\n", folder.join("socket").display()))?;
        let sealane = std::env::current_exe()?.with_file_name("sealane");
        let process = Command::new(sealane).arg("keeper").arg("--config").arg(config).spawn()?;
        let keeper = Keeper { folder, process };
        let since = Instant::now();
        while Client::connect(&keeper.socket()).is_err() {
            if since.elapsed() > Duration::from_secs(10) {
                return Err("the keeper does not serve".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(keeper)
    }

    fn socket(&self) -> PathBuf {
        Path::join(&self.folder, "socket")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The nanoseconds of each text, in order.
fn measured(tfm: &SkcipherTfm, len: usize, time: Duration) -> Result<Vec<u128>, sealane_crypto::OpError> {
    let (mut iv, mut text, mut all) = ([1; 16], vec![2; len], Vec::new());
    let since = Instant::now();
    while all.len() < 100 || since.elapsed() < time {
        let begun = Instant::now();
        tfm.one(Direction::Encrypt, &mut iv, Data::from(&mut text[..]))?;
        all.push(begun.elapsed().as_nanos());
    }
    all.sort_unstable();
    Ok(all)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keeper = Keeper::start()?;
    let home = KeeperHome::new(keeper.socket(), Manner::default());
    let local: Alg = system_registry().0.lookup(Kind::Skcipher, ALGORITHM)?;
    let key = [3; 16];
    let kept = home.adopt(&local).ok_or("the algorithm has no key")?.skcipher(&home.keep(local.info(), &key)?)?;
    let here = local.skcipher(&key)?;
    let mut csv = Csv::new("algorithm,bytes,where,median_ns,p99_ns");
    for len in LENS {
        for (place, tfm) in [("process", &here), ("keeper", &kept)] {
            let all = measured(tfm, len, seconds(1.0))?;
            let (median, late) = (all[all.len() / 2], all[all.len() * 99 / 100]);
            println!(
                "{ALGORITHM} {len:>6} bytes, key in the {place:<8} median {median:>8} ns, 99 % within {late:>8} ns"
            );
            csv.line(&format!("{ALGORITHM},{len},{place},{median},{late}"));
        }
    }
    Ok(csv.write()?)
}
