//! Sends datagrams at a given rate for bench/ipsec_offload.py, many in a superframe (UDP_SEGMENT).
//!
//! `udp-load TO:PORT SIZE SUPERFRAME MBIT_S SECONDS`: payloads of SIZE bytes, SUPERFRAME of them in each call, or 1 for
//! none. Prints the bytes of payload that the kernel took, the seconds, and its own CPU seconds.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Pause between batches; queues of devices hold several batches.
const TURN: Duration = Duration::from_micros(500);
/// Time that it may catch up after it was not scheduled.
const BEHIND: Duration = Duration::from_millis(4);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [to, size, superframe, mbit_s, seconds] = args[..] else {
        return Err("see the top of bench/src/bin/udp-load.rs".into());
    };
    let to: SocketAddr = to.parse()?;
    let (size, superframe): (usize, usize) = (size.parse()?, superframe.parse()?);
    let bytes_s = mbit_s.parse::<f64>()? * 1e6 / 8.0;
    let length = Duration::from_secs_f64(seconds.parse()?);

    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(to)?;
    if superframe > 1 {
        cut(&socket, size)?;
    }
    let payload = vec![0x5a; size * superframe];
    let begun = Instant::now();
    let (mut sent, mut skipped) = (0u64, 0u64);
    loop {
        let passed = begun.elapsed();
        if passed >= length {
            break;
        }
        let due = (passed.as_secs_f64() * bytes_s) as u64;
        let least = due.saturating_sub((BEHIND.as_secs_f64() * bytes_s) as u64);
        skipped = skipped.max(least.saturating_sub(sent));
        while sent + skipped < due {
            // A full queue is loss, which the counters show.
            let _ = socket.send(&payload);
            sent += payload.len() as u64;
        }
        std::thread::sleep(TURN);
    }
    println!("{sent} {:.6} {:.6}", begun.elapsed().as_secs_f64(), cpu_s()?);
    Ok(())
}

/// Has the kernel segment each send into datagrams of this size.
fn cut(socket: &UdpSocket, size: usize) -> io::Result<()> {
    let value = size as libc::c_int;
    // SAFETY: the kernel reads a live integer of the length that is said.
    let r = unsafe {
        let at = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_UDP, libc::UDP_SEGMENT, at, size_of_val(&value) as u32)
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the CPU seconds of this process.
fn cpu_s() -> io::Result<f64> {
    // SAFETY: all-zero is a valid timespec.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the live structure.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}
