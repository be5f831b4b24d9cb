//! The cost to move bytes within this machine: by TCP, and as datagrams with a MAC.

use super::super::frame::Context;
use crate::data::Figure;
use sealane_crypto::Kind;
use sealane_crypto::mac::MacTfm;
use sealane_drivers::turns::{CpuOf, Figures, in_turns};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Writes that are read together: few enough that sockets hold all of them, so that neither end waits.
const WRITES_AT_ONCE: usize = 32;

/// The time that a step of loopback may take before it has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Payloads of datagrams, in bytes.
pub(super) const PAYLOADS: [usize; 3] = [64, 576, 1420];

/// Length of the MAC of a packet: 96 bits.
const TAG_LEN: usize = 12;

/// Runs a step until it fails, and never again after that: each failure may take [`PATIENCE`].
#[derive(Default)]
struct UntilFailed(Option<String>);

impl UntilFailed {
    fn run<E: ToString>(&mut self, step: impl FnOnce() -> Result<(), E>) {
        if self.0.is_none() {
            self.0 = step().err().map(|e| e.to_string());
        }
    }

    fn result(self) -> Result<(), String> {
        self.0.map_or(Ok(()), Err)
    }
}

/// The cost of a byte that is written and read by `bytes`, at both ends: in cycles, and in nanoseconds.
///
/// One thread writes and reads, and its time by the clock is taken. CPU clocks leave out the time of interrupts, in which loopback delivers,
/// on kernels with CONFIG_IRQ_TIME_ACCOUNTING; and with a thread for each end it would be chance whether the reader sleeps in between.
pub(crate) fn tcp(context: &Context<'_>, bytes: usize) -> Result<(Figure, f64), String> {
    let (writer, reader) = connection().map_err(|e| e.to_string())?;
    let mut ends = [(writer, reader)];
    let text = vec![0x5a; bytes];
    let mut received = vec![0; bytes];
    let mut outcome = UntilFailed::default();
    let run = |(writer, reader): &mut (TcpStream, TcpStream)| {
        outcome.run(|| {
            (0..WRITES_AT_ONCE).try_for_each(|_| writer.write_all(&text))?;
            (0..WRITES_AT_ONCE).try_for_each(|_| reader.read_exact(&mut received))
        });
    };
    let rounds = context.effort.rounds;
    let f: Figures = in_turns(&mut ends, run, CpuOf::Thread, context.effort.each, rounds)[0];
    outcome.result()?;
    let each = (bytes * WRITES_AT_ONCE) as f64;
    let cycles = Figure::ticks(&f, each, rounds).ok_or("no time-stamp counter")?;
    Ok((cycles, f.median_ns / each))
}

/// Both ends of a connection over loopback, which send each write at once.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    for end in [&writer, &reader] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(PATIENCE))?;
        end.set_write_timeout(Some(PATIENCE))?;
    }
    Ok((writer, reader))
}

/// The name of a datagram without a MAC.
pub(super) const NO_MAC: &str = "no MAC";

/// The time that a datagram takes without a MAC and with each one, both ends, in nanoseconds.
pub(super) fn datagrams(context: &Context<'_>, payload: usize) -> Result<Vec<(&'static str, Figure)>, String> {
    let mac = |name: &str| {
        let alg = context.registry.lookup(Kind::Hash, name).map_err(|e| format!("{name}: {e}"))?;
        alg.mac(&[7; 20]).map_err(|e| format!("{name}: {e}"))
    };
    let mut rivals = [
        Rival::new(NO_MAC, payload, None)?,
        Rival::new("HMAC-MD5-96", payload, Some(mac("hmac(md5)")?))?,
        Rival::new("HMAC-SHA1-96", payload, Some(mac("hmac(sha1)")?))?,
    ];
    for rival in &mut rivals {
        rival.send().map_err(|e| format!("{}: {e}", rival.name))?;
    }
    let (rounds, mut outcome) = (context.effort.rounds, UntilFailed::default());
    let run = |rival: &mut Rival| outcome.run(|| rival.send());
    let measured = in_turns(&mut rivals, run, CpuOf::Thread, context.effort.each, rounds);
    outcome.result()?;
    Ok(rivals.iter().zip(&measured).map(|(rival, f)| (rival.name, Figure::ns(f, 1.0, rounds))).collect())
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
        let failed = |e: io::Error| e.to_string();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_nothing_runs_again() {
        let (mut outcome, mut steps) = (UntilFailed::default(), 0);
        for _ in 0..5 {
            outcome.run(|| {
                steps += 1;
                if steps == 2 { Err("timed out") } else { Ok(()) }
            });
        }
        assert_eq!((steps, outcome.result()), (2, Err("timed out".to_owned())));
    }

    #[test]
    fn a_connection_holds_the_longest_writes() {
        // More than this is never on the way, so a thread that is both ends does not wait for itself.
        let (mut writer, mut reader) = connection().unwrap();
        writer.set_nonblocking(true).unwrap();
        let longest = *super::super::WRITES.iter().max().unwrap();
        let text = vec![1; longest];
        for _ in 0..100 {
            (0..WRITES_AT_ONCE).try_for_each(|_| writer.write_all(&text)).unwrap();
            (0..WRITES_AT_ONCE).try_for_each(|_| reader.read_exact(&mut vec![0; longest])).unwrap();
        }
    }
}
