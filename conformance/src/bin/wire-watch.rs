//! Watches a device for outbound TCP segments of one port, and counts those with and without TCP-AO's option 29.
//! Inbound segments are for a watch at the other end: a capture here also shows segments that were verified and given
//! back to the device without the option, which were never on a wire.
//!
//! ```text
//! wire-watch DEVICE PORT
//! ```
//! It prints `watching` once it does, ends when its standard input ends, and then prints a line of JSON. Exit status: 0
//! every segment was signed, 1 one was not, 2 unknown (it could not watch, or missed frames).

use sealane_conformance::sys::packet::{Frames, segment, wait};
use std::io::Read;
use std::os::fd::AsFd;
use std::process::ExitCode;

fn run() -> Result<ExitCode, String> {
    let mut args = std::env::args().skip(1);
    let device = args.next().ok_or("a device is wanted")?;
    let port: u16 = args.next().and_then(|p| p.parse().ok()).ok_or("a port is wanted")?;
    let frames = Frames::open(&device, false).map_err(|e| format!("{device}: {e}"))?;
    frames.only_outbound().map_err(|e| e.to_string())?;
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
                // It continues when the device is up again.
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
