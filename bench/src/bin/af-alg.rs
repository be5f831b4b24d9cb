//! AF_ALG by pages, as libkcapi gives them, against OpenSSL's EVP, by turns in one process: AES-128-CTR over sizes, by vmsplice,
//! splice and read. `sealane bench` has AF_ALG by sendmsg and readv. Run it under `sealane run`, or on a kernel with AF_ALG.
//!
//! `--seconds S` for each rival and size; `--csv FILE`; `--many N` opens N transforms instead and reports their cost.

use sealane_bench::af_alg::{ENCRYPT, Op, Pipe, Tfm};
use sealane_bench::report::{Csv, option, seconds};
use sealane_crypto_openssl::Stream;
use sealane_drivers::turns::{CpuOf, in_turns};

/// One page, several, Cloudflare's piece of 63 KiB, and as much as a pipe has.
const SIZES: [usize; 4] = [4096, 16384, 64512, 65536];
const KEY: [u8; 16] = [7; 16];
const IV: [u8; 16] = [9; 16];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(n) = option("many") {
        return many(n.parse()?);
    }
    let tfm = Tfm::new("skcipher", "ctr(aes)", &KEY)?;
    let fresh = || -> std::io::Result<Op> {
        let op = tfm.accept()?;
        op.start(ENCRYPT, &IV)?;
        Ok(op)
    };
    let mut csv = Csv::new("bytes,way,median_ns,min_ns,max_ns,cpu_ns,mb_per_s,against_openssl");
    println!("AES-128-CTR, median of 15 rounds in turns; ratio: throughput against OpenSSL's EVP in this run");
    println!(
        "{:>7}  {:<22} {:>10} {:>10} {:>10} {:>7} {:>12}",
        "bytes", "way", "ns/op", "CPU ns/op", "MB/s", "ratio", "CPU s per GB"
    );
    for bytes in SIZES {
        let src = vec![0x5a; bytes];
        let (mut a, mut b) = (vec![0; bytes], vec![0; bytes]);
        // Both have to give the same bytes before anything is measured.
        let (op, pipe) = (fresh()?, Pipe::new(bytes)?);
        let mut evp = Stream::encrypt("AES-128-CTR", &KEY, &IV)?;
        for _ in 0..3 {
            evp.update(&src, &mut a);
            pipe.give(&op, &src)?;
            op.read(&mut b)?;
            if a != b {
                return Err(format!("{bytes} bytes: AF_ALG and OpenSSL differ").into());
            }
        }
        let mut by_evp = || evp.update(&src, &mut a);
        let mut by_pages = || {
            pipe.give(&op, &src).expect("vmsplice and splice");
            op.read(&mut b).expect("read");
        };
        let mut rivals: [&mut dyn FnMut(); 2] = [&mut by_evp, &mut by_pages];
        let figures = in_turns(&mut rivals, |rival| rival(), CpuOf::Process, seconds(1.0), 15);
        for (way, f) in ["OpenSSL EVP", "AF_ALG vmsplice, read"].iter().zip(&figures) {
            let rate = bytes as f64 * 1e3 / f.median_ns;
            let ratio = figures[0].median_ns / f.median_ns;
            println!(
                "{bytes:>7}  {way:<22} {:>10.1} {:>10.1} {rate:>10.0} {ratio:>7.3} {:>12.3}",
                f.median_ns,
                f.cpu_ns,
                f.cpu_ns / bytes as f64
            );
            csv.line(&format!(
                "{bytes},{way},{:.1},{:.1},{:.1},{:.1},{rate:.1},{ratio:.4}",
                f.median_ns, f.min_ns, f.max_ns, f.cpu_ns
            ));
        }
    }
    csv.write()?;
    Ok(())
}

/// Opens `n` transforms with a key each, and an operation on one in a hundred, and then runs a million operations.
fn many(n: usize) -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: plain resource limits.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min((2 * n + 1000) as u64);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    let before = resident();
    let tfms = (0..n)
        .map(|i| Tfm::new("skcipher", "ctr(aes)", &[i as u8; 16]))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("opening {n} transforms: {e}"))?;
    let opened = resident();
    println!(
        "{n} transforms: {} KiB resident more, {:.1} KiB each",
        opened - before,
        (opened - before) as f64 / n as f64
    );
    let fds = descriptors();
    let (start, mut buf) = (resident(), [0u8; 64]);
    const MILLION: usize = 1_000_000;
    for i in 0..MILLION {
        let op = tfms[i % n].accept()?;
        op.start(ENCRYPT, &IV)?;
        op.send(&[1; 64], 0)?;
        op.recv(&mut buf)?;
    }
    println!(
        "{MILLION} operations (accept, set, send, recv, close): {} KiB more, {} descriptors more",
        resident() as i64 - start as i64,
        descriptors() as i64 - fds as i64
    );
    Ok(())
}

/// Returns the resident memory in KiB, shared pages included.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
