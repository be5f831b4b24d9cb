//! Watches one device for TCP segments of one port that leave by it, and counts those that carry TCP-AO's option 29 and
//! those that do not. What comes in is the business of a watch at the other end: here, a capture also shows what has been
//! verified and given back to the device without its option, which was never on a wire.
//!
//! ```text
//! wire-watch DEVICE PORT
//! ```
//! It writes `watching` when it does, and ends when its standard input does, with one line of JSON. Exit status: 0 every
//! segment was signed, 1 not, 2 it cannot tell (it could not watch, or frames got lost before it saw them).

use sealane_conformance::sys::packet::{Frames, segment, wait};
use std::io::Read;
use std::os::fd::AsFd;
use std::process::ExitCode;

fn run() -> Result<ExitCode, String> {
    let mut args = std::env::args().skip(1);
    let device = args.next().ok_or("a device is wanted")?;
    let port: u16 = args.next().and_then(|p| p.parse().ok()).ok_or("a port is wanted")?;
    let frames = Frames::open(&device, false).map_err(|e| format!("{device}: {e}"))?;
    println!("watching");
    let mut buf = vec![0u8; 1 << 17];
    let stdin = std::io::stdin();
    let (mut signed, mut clear, mut shown) = (0u64, 0u64, Vec::new());
    loop {
        let ready = wait([frames.as_fd(), stdin.as_fd()], 1000);
        loop {
            let (n, out) = match frames.receive(&mut buf) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                // It goes on when the device is up again.
                Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => continue,
                Err(e) => return Err(format!("{device}: {e}")),
            };
            let Some(s) = segment(&buf[..n]).filter(|s| out && s.ports.contains(&port)) else { continue };
            let count = if s.signed { &mut signed } else { &mut clear };
            *count += 1;
            if !s.signed && shown.len() < 8 {
                shown.push(format!(r#""{}->{} flags {:#04x} payload {}""#, s.ports[0], s.ports[1], s.flags, s.payload));
            }
        }
        if ready[1] && !matches!(stdin.lock().read(&mut [0]), Ok(1..)) {
            break;
        }
    }
    let missed = frames.missed().map_err(|e| e.to_string())?;
    println!(r#"{{"signed":{signed},"clear":{clear},"missed":{missed},"segments":[{}]}}"#, shown.join(","));
    Ok(if clear > 0 {
        ExitCode::from(1)
    } else if missed > 0 {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    })
}

fn main() -> ExitCode {
    run().unwrap_or_else(|e| {
        eprintln!("wire-watch: {e}");
        ExitCode::from(2)
    })
}
