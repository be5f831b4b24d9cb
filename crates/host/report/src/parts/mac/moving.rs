//! What it costs to move bytes within this machine: by TCP, and as datagrams with a MAC.

use super::super::frame::Context;
use crate::data::Figure;
use sealane_crypto::Kind;
use sealane_crypto::mac::MacTfm;
use sealane_drivers::turns::{CpuOf, in_turns};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Writes that the reader answers together: so many that their answer does not count.
const WRITES_PER_ANSWER: usize = 200;

/// How long a step of loopback may take before it has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Payloads of datagrams, in bytes.
pub(super) const PAYLOADS: [usize; 3] = [64, 576, 1420];

/// Length of the MAC of a packet: 96 bits.
const TAG_LEN: usize = 12;

/// The cost of a byte that a thread writes and another one reads, `bytes` in each write: in cycles, and in nanoseconds.
pub(super) fn tcp(context: &Context<'_>, bytes: usize) -> Result<(Figure, f64), String> {
    let failed = |e: std::io::Error| e.to_string();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let mut writer = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let (reader, _) = listener.accept().map_err(failed)?;
    for end in [&writer, &reader] {
        end.set_nodelay(true).map_err(failed)?;
        end.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        end.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    }
    let reads = std::thread::spawn(move || answer(reader, bytes * WRITES_PER_ANSWER));
    let text = vec![0x5a; bytes];
    let mut error = None;
    let round = |writer: &mut TcpStream| {
        let mut answered = [0];
        let done = (0..WRITES_PER_ANSWER).try_for_each(|_| writer.write_all(&text));
        if let Err(e) = done.and_then(|()| writer.read_exact(&mut answered)) {
            error.get_or_insert(e);
        }
    };
    let rounds = context.effort.rounds;
    let f = in_turns(core::slice::from_mut(&mut writer), round, CpuOf::Process, context.effort.each, rounds)[0];
    // The reader reads to the end, or has given up.
    let _ = writer.shutdown(Shutdown::Both);
    reads.join().map_err(|_| "the reader has failed".to_owned())?;
    if let Some(error) = error {
        return Err(error.to_string());
    }
    // Where there is no counter there are no cycles.
    let cycles_per_ns = f.median_ticks / f.median_ns;
    if cycles_per_ns <= 0.0 {
        return Err("no time-stamp counter".to_owned());
    }
    let each = (bytes * WRITES_PER_ANSWER) as f64;
    let [median, low, high] = [f.median_cpu_ns, f.min_cpu_ns, f.max_cpu_ns].map(|ns| ns / each * cycles_per_ns);
    Ok((Figure { median, low, high, rounds, cpu: None }, f.median_cpu_ns / each))
}

/// Reads to the end, and answers each `len` bytes by one.
fn answer(mut from: TcpStream, len: usize) {
    let mut buf = vec![0; 1 << 16];
    let mut left = len;
    while let Ok(n @ 1..) = from.read(&mut buf) {
        left = match left.checked_sub(n) {
            Some(0) => {
                if from.write_all(&[1]).is_err() {
                    return;
                }
                len
            }
            Some(left) => left,
            None => return,
        };
    }
}

/// The time that a datagram takes with each MAC, as a multiple of that without one: the MAC, the figure, and the time.
pub(super) fn datagrams(context: &Context<'_>, payload: usize) -> Result<Vec<(&'static str, Figure, String)>, String> {
    let mac = |name: &str| {
        let alg = context.registry.lookup(Kind::Hash, name).map_err(|e| format!("{name}: {e}"))?;
        alg.mac(&[7; 20]).map_err(|e| format!("{name}: {e}"))
    };
    let mut rivals = [
        Rival::new("no MAC", payload, None)?,
        Rival::new("HMAC-MD5-96", payload, Some(mac("hmac(md5)")?))?,
        Rival::new("HMAC-SHA1-96", payload, Some(mac("hmac(sha1)")?))?,
    ];
    for rival in &mut rivals {
        rival.send().map_err(|e| format!("{}: {e}", rival.name))?;
    }
    let (rounds, mut error) = (context.effort.rounds, None);
    let run = |rival: &mut Rival| {
        if let Err(e) = rival.send() {
            error.get_or_insert(e);
        }
    };
    let measured = in_turns(&mut rivals, run, CpuOf::Thread, context.effort.each, rounds);
    if let Some(error) = error {
        return Err(error);
    }
    let without = measured[0].median_ns;
    let rows = rivals.iter().zip(&measured).map(|(rival, f)| {
        let figure = Figure { cpu: None, ..Figure::ns(f, without, rounds) };
        (rival.name, figure, format!("{:.0} ns a datagram, {:.0} ns of CPU time", f.median_ns, f.cpu_ns))
    });
    Ok(rows.collect())
}

/// A sender of datagrams to itself.
struct Rival {
    name: &'static str,
    socket: UdpSocket,
    mac: Option<MacTfm>,
    payload: usize,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Rival {
    fn new(name: &'static str, payload: usize, mac: Option<MacTfm>) -> Result<Self, String> {
        let failed = |e: std::io::Error| e.to_string();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        socket.connect(socket.local_addr().map_err(failed)?).map_err(failed)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let len = payload + if mac.is_some() { TAG_LEN } else { 0 };
        Ok(Rival { name, socket, mac, payload, sent: vec![0x5a; len], received: vec![0; len + 1] })
    }

    /// Sends a datagram and receives it. Loopback has delivered it when it is sent.
    fn send(&mut self) -> Result<(), String> {
        let (text, tag) = self.sent.split_at_mut(self.payload);
        if let Some(mac) = &self.mac {
            mac.sign(&[text], tag).map_err(|e| e.to_string())?;
        }
        self.socket.send(&self.sent).map_err(|e| e.to_string())?;
        let n = self.socket.recv(&mut self.received).map_err(|e| e.to_string())?;
        let Some((text, tag)) = self.received[..n].split_at_checked(self.payload) else {
            return Err("a datagram that was cut short".to_owned());
        };
        match &self.mac {
            Some(mac) => mac.verify(&[text], tag).map_err(|e| e.to_string()),
            None => Ok(()),
        }
    }
}
