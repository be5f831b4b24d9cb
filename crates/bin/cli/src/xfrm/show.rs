//! `sealane xfrm show`: shows what `ip xfrm` does not: rates, offload devices, and the reasons of dropped packets.

use super::names::{self, MODES};
use super::parse::proto_name;
use super::words::{Words, unexpected};
use super::{Session, said};
use crate::Answer;
use anyhow::Result;
use sealane_abi::xfrm::{Attribute, Body, Message, UsersaInfo, XFRM_OFFLOAD_PACKET};
use sealane_net::ipsec::drop::Counter;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// A state.
#[derive(Serialize)]
struct State {
    src: String,
    dst: String,
    proto: String,
    spi: u32,
    reqid: u32,
    mode: String,
    /// `software`, `crypto` or `packet`.
    offload: &'static str,
    device: Option<String>,
    bytes: u64,
    packets: u64,
    bits_per_second: u64,
    packets_per_second: u64,
    /// Packets dropped because they were behind the replay window.
    outside_window: u32,
    /// Packets dropped because they were received before.
    replayed: u32,
    /// Packets dropped because their ICV was wrong.
    not_authentic: u32,
}

/// An offload device, an xfrm interface, or an interface of a gateway.
#[derive(Serialize)]
struct Device {
    name: String,
    /// `inline`, `crypto`, `packet` or `kernel`; `interface`; `gateway-` with `native` or `generic` XDP, `zero-copy` or
    /// `copied`, and `gateway` for one that is not served.
    kind: String,
    up: bool,
    /// The number of states that are offloaded to it.
    states: usize,
    /// Its counters by name.
    counters: BTreeMap<String, u64>,
}

/// Packets dropped for one reason.
#[derive(Serialize)]
struct Drop {
    counter: String,
    packets: u64,
    reason: &'static str,
}

#[derive(Serialize)]
struct Shown {
    states: Vec<State>,
    devices: Vec<Device>,
    /// The counters of packets between the daemon and the kernel, by name.
    path: BTreeMap<String, u64>,
    drops: Vec<Drop>,
}

/// The identity of a state.
fn name(info: &UsersaInfo) -> (u32, [u8; 16], [u8; 16], u8) {
    (info.id.spi.get(), info.id.daddr.bytes, info.saddr.bytes, info.id.proto)
}

pub(super) fn run(session: &mut Session<'_>, words: &mut Words, json: bool) -> Result<Answer> {
    let mut interval = 1;
    while let Some(word) = words.next() {
        match word.as_str() {
            "interval" => interval = words.number::<u16>("interval")?,
            _ => return Err(unexpected(&word)),
        }
    }
    let request = Message::new(Body::DumpSa);
    let start = Instant::now();
    let before = match session.all(&request)? {
        Ok(list) => list,
        Err(refusal) => return Ok(said(Err(refusal))),
    };
    let used: HashMap<_, _> = (before.iter())
        .filter_map(|m| if let Body::NewSa(info) = &m.body { Some((name(info), info.curlft)) } else { None })
        .collect();
    if interval > 0 && !used.is_empty() {
        std::thread::sleep(Duration::from_secs(interval.into()));
    }
    let after = match session.all(&request)? {
        Ok(list) => list,
        Err(refusal) => return Ok(said(Err(refusal))),
    };
    let seconds = start.elapsed().as_secs_f64();
    let states = after.iter().filter_map(|message| {
        let Body::NewSa(info) = &message.body else { return None };
        let old = used.get(&name(info)).copied().unwrap_or_default();
        // Without an interval there are no rates.
        let rate = |now: u64, then: u64| {
            if interval > 0 { (now.saturating_sub(then) as f64 / seconds).round() as u64 } else { 0 }
        };
        let ip = |a: &sealane_abi::xfrm::Address| a.ip(info.family).map_or_else(String::new, |ip| ip.to_string());
        let offload = message.attrs.iter().find_map(|a| if let Attribute::OffloadDev(o) = a { Some(*o) } else { None });
        Some(State {
            src: ip(&info.saddr),
            dst: ip(&info.id.daddr),
            proto: proto_name(info.id.proto),
            spi: info.id.spi.get(),
            reqid: info.reqid,
            mode: names::of(MODES, info.mode),
            offload: match offload {
                None => "software",
                Some(o) if o.flags & XFRM_OFFLOAD_PACKET != 0 => "packet",
                Some(_) => "crypto",
            },
            device: offload.map(|o| session.printer.device(o.ifindex)),
            bytes: info.curlft.bytes,
            packets: info.curlft.packets,
            bits_per_second: rate(info.curlft.bytes * 8, old.bytes * 8),
            packets_per_second: rate(info.curlft.packets, old.packets),
            outside_window: info.stats.replay_window,
            replayed: info.stats.replay,
            not_authentic: info.stats.integrity_failed,
        })
    });
    let states: Vec<State> = states.collect();
    let devices = session.client.devices()?.into_iter().map(|d| Device {
        states: states.iter().filter(|s| s.device.as_ref() == Some(&d.name)).count(),
        name: d.name,
        kind: d.kind,
        up: d.up,
        counters: d.counters.into_iter().collect(),
    });
    let devices = devices.collect();
    let path = session.client.path()?.into_iter().collect();
    let shown = Shown { devices, states, path, drops: drops(&session.client.stat()?) };
    if json {
        serde_json::to_writer_pretty(&mut *session.out, &shown)?;
        writeln!(session.out)?;
    } else {
        print(session, &shown)?;
    }
    Ok(Answer::Yes)
}

/// The counters in the text of /proc/net/xfrm_stat that are not zero.
fn drops(text: &str) -> Vec<Drop> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, packets) = (words.next()?, words.next()?.parse().ok()?);
        let counter = Counter::ALL.iter().find(|c| name.strip_prefix("Xfrm") == Some(c.name_suffix()));
        (packets > 0).then(|| Drop {
            counter: name.to_owned(),
            packets,
            reason: counter.map_or("This version of Sealane does not know this counter.", |c| c.help()),
        })
    };
    text.lines().filter_map(row).collect()
}

fn print(session: &mut Session<'_>, shown: &Shown) -> Result<()> {
    let out = &mut session.out;
    for s in &shown.states {
        let device = s.device.as_ref().map_or_else(String::new, |d| format!(" on {d}"));
        writeln!(
            out,
            "{} -> {} {} spi 0x{:08x} reqid {} {}, {}{device}",
            s.src, s.dst, s.proto, s.spi, s.reqid, s.mode, s.offload
        )?;
        let (bits, packets) = (s.bits_per_second, s.packets_per_second);
        writeln!(out, "  {} bytes, {} packets; now {bits} bit/s, {packets} packets/s", s.bytes, s.packets)?;
        if s.outside_window + s.replayed + s.not_authentic > 0 {
            let refused = (s.outside_window, s.replayed, s.not_authentic);
            writeln!(
                out,
                "  refused: {} behind the window, {} seen before, {} not authentic",
                refused.0, refused.1, refused.2
            )?;
        }
    }
    if shown.states.is_empty() {
        writeln!(out, "no states")?;
    }
    for d in &shown.devices {
        let up = if d.up { "up" } else { "down" };
        write!(out, "device {}: {}, {up}, {} states", d.name, d.kind, d.states)?;
        for (counter, value) in &d.counters {
            write!(out, "; {} {value}", counter.replace('_', " "))?;
        }
        writeln!(out)?;
    }
    let path: Vec<String> = (shown.path.iter().filter(|(_, packets)| **packets > 0))
        .map(|(name, packets)| format!("{} {packets}", name.replace('_', " ")))
        .collect();
    if !path.is_empty() {
        writeln!(out, "packets: {}", path.join("; "))?;
    }
    if !shown.drops.is_empty() {
        writeln!(out, "dropped:")?;
    }
    for d in &shown.drops {
        writeln!(out, "  {:>12}  {:<24}  {}", d.packets, d.counter, d.reason)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_dropped_is_shown() {
        let found = drops("XfrmInNoStates          \t5\nXfrmInError             \t0\nXfrmInNew \t1\nx\n");
        let rows: Vec<_> = found.iter().map(|d| (d.counter.as_str(), d.packets, d.reason)).collect();
        let known = Counter::InNoStates.help();
        assert_eq!(
            rows,
            [("XfrmInNoStates", 5, known), ("XfrmInNew", 1, "This version of Sealane does not know this counter.")]
        );
    }
}
