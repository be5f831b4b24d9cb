//! Watches one device for TCP segments of one port, and counts those that carry TCP-AO's option 29 and those that do not.
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
    // [in, out]
    let (mut signed, mut clear, mut shown) = ([0u64; 2], [0u64; 2], Vec::new());
    loop {
        let ready = wait([frames.as_fd(), stdin.as_fd()], 1000);
        while let Some((n, out)) = frames.receive(&mut buf).map_err(|e| format!("{device}: {e}"))? {
            let Some(s) = segment(&buf[..n]).filter(|s| s.ports.contains(&port)) else { continue };
            let counts = if s.signed { &mut signed } else { &mut clear };
            counts[usize::from(out)] += 1;
            if !s.signed && shown.len() < 8 {
                let way = ["in", "out"][usize::from(out)];
                shown.push(format!(
                    r#""{way} {}->{} flags {:#04x} payload {}""#,
                    s.ports[0], s.ports[1], s.flags, s.payload
                ));
            }
        }
        if ready[1] && !matches!(stdin.lock().read(&mut [0]), Ok(1..)) {
            break;
        }
    }
    let missed = frames.missed().map_err(|e| e.to_string())?;
    println!(
        r#"{{"signed_in":{},"signed_out":{},"clear_in":{},"clear_out":{},"missed":{missed},"clear":[{}]}}"#,
        signed[0],
        signed[1],
        clear[0],
        clear[1],
        shown.join(",")
    );
    Ok(if clear != [0; 2] {
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
