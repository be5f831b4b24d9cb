//! A wire between two devices that loses, duplicates and reorders TCP segments, or packets of ESP, from a seed.
//!
//! ```text
//! lossy-link DEVICE DEVICE [--of tcp|esp] [--loss PERCENT] [--duplicate PERCENT] [--reorder PERCENT] [--seed S]
//! ```
//! All other frames pass. ESP is recognised over IPv4, by itself and in UDP. A reordered packet is delayed by 0.5 to 4
//! ms. The program ends when its standard input ends, and then prints its counters as a line of JSON. Superframes and
//! checksums left to the device pass unchanged, so that segmentation is left to the two ends.

use sealane_conformance::rng::Rng;
use sealane_conformance::sys::packet::{Frames, VNET, segment, wait};
use std::io::Read;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Counts {
    frames: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
}

struct Link {
    /// Whether a frame is of the kind that is impaired.
    concerns: fn(&[u8]) -> bool,
    loss: u32,
    duplicate: u32,
    reorder: u32,
    rng: Rng,
    /// Delayed frames: the time they leave, the direction, the bytes.
    held: Vec<(Instant, usize, Vec<u8>)>,
    counts: Counts,
}

impl Link {
    /// Sends a frame by `to`, or impairs it.
    fn pass(&mut self, ends: &[Frames; 2], to: usize, frame: &mut [u8]) {
        // Flags of an inbound header (checksum valid) have no meaning on an outbound frame.
        frame[0] &= 1;
        self.counts.frames += 1;
        if !(self.concerns)(&frame[VNET..]) {
            return ends[to].send(frame);
        }
        if self.rng.chance(self.loss) {
            self.counts.lost += 1;
        } else if self.rng.chance(self.reorder) {
            self.counts.reordered += 1;
            let late = Duration::from_micros(500 + self.rng.below(3500) as u64);
            self.held.push((Instant::now() + late, to, frame.to_vec()));
        } else {
            ends[to].send(frame);
            if self.rng.chance(self.duplicate) {
                self.counts.duplicated += 1;
                ends[to].send(frame);
            }
        }
    }

    /// Sends delayed frames that are due.
    fn release(&mut self, ends: &[Frames; 2]) {
        let now = Instant::now();
        self.held.retain(|(at, to, frame)| {
            if *at <= now {
                ends[*to].send(frame);
            }
            *at > now
        });
    }
}

/// Whether a frame carries ESP over IPv4, by itself or in UDP.
fn esp(frame: &[u8]) -> bool {
    let Some((head, ip)) = frame.split_at_checked(14) else { return false };
    let ports_at = usize::from(ip.first().copied().unwrap_or(0) & 15) * 4;
    let port = |at: usize| ip.get(ports_at + at..).and_then(|b| b.first_chunk()).map(|b| u16::from_be_bytes(*b));
    head[12..] == [8, 0]
        && match ip.get(9) {
            Some(50) => true,
            Some(17) => port(0) == Some(4500) || port(2) == Some(4500),
            _ => false,
        }
}

fn run() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let mut open = || -> Result<Frames, String> {
        let device = args.next().ok_or("two devices are wanted")?;
        Frames::open(&device, true).map_err(|e| format!("{device}: {e}"))
    };
    let ends = [open()?, open()?];
    let mut link = Link {
        concerns: |frame| segment(frame).is_some(),
        loss: 0,
        duplicate: 0,
        reorder: 0,
        rng: Rng::new(1),
        held: Vec::new(),
        counts: Counts::default(),
    };
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(format!("{flag} wants a value"))?;
        if flag == "--of" {
            link.concerns = match value.as_str() {
                "tcp" => |frame| segment(frame).is_some(),
                "esp" => esp,
                _ => return Err(format!("{flag} {value}: tcp or esp is wanted")),
            };
            continue;
        }
        let number: u64 = value.parse().map_err(|e| format!("{flag} {value}: {e}"))?;
        match flag.as_str() {
            "--loss" => link.loss = number as u32,
            "--duplicate" => link.duplicate = number as u32,
            "--reorder" => link.reorder = number as u32,
            "--seed" => link.rng = Rng::new(number),
            _ => return Err(format!("{flag}: unknown")),
        }
    }
    let mut buf = vec![0u8; VNET + (1 << 17)];
    let stdin = std::io::stdin();
    loop {
        let ready =
            wait([ends[0].as_fd(), ends[1].as_fd(), stdin.as_fd()], if link.held.is_empty() { 1000 } else { 1 });
        for from in [0, 1] {
            // A bounded number, so that delayed frames leave in time.
            for _ in 0..64 {
                let frame = if ready[from] { ends[from].receive(&mut buf) } else { Ok(None) };
                match frame.map_err(|e| format!("receive: {e}"))? {
                    Some((n, _)) if n > VNET => link.pass(&ends, 1 - from, &mut buf[..n]),
                    Some(_) => {}
                    None => break,
                }
            }
        }
        link.release(&ends);
        if ready[2] && !matches!(stdin.lock().read(&mut [0]), Ok(1..)) {
            break;
        }
    }
    let Counts { frames, lost, duplicated, reordered } = link.counts;
    println!(r#"{{"frames":{frames},"lost":{lost},"duplicated":{duplicated},"reordered":{reordered}}}"#);
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("lossy-link: {e}");
            ExitCode::from(2)
        }
    }
}
