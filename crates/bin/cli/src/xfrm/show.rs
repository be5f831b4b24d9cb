//! `sealane xfrm show`: shows what `ip xfrm` does not: rates, offload devices, the reasons of dropped packets, and
//! whether the rules of nftables are those that policies and states ask for.

use super::names::{self, MODES};
use super::session::{Session, report};
use super::words::{Words, unexpected};
use crate::answer::Answer;
use anyhow::Result;
use sealane_abi::admin::ipsec::{self, Status};
use sealane_abi::sealane::Question;
use sealane_abi::xfrm::{Attribute, Body, UsersaInfo, XFRM_OFFLOAD_PACKET, XfrmMessage};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// A state.
#[derive(Serialize)]
struct StateRow {
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
struct DeviceRow {
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
struct DropRow {
    counter: String,
    packets: u64,
    reason: String,
}

#[derive(Serialize)]
struct Shown {
    states: Vec<StateRow>,
    devices: Vec<DeviceRow>,
    /// The counters of packets between the daemon and the kernel, by name.
    path: BTreeMap<String, u64>,
    drops: Vec<DropRow>,
    /// The rates of IP-TFS that follow congestion.
    rates: Vec<ipsec::ControlledRate>,
    /// The tables of the configuration about states of IP-TFS that decide about none now.
    unused_rates: Vec<ipsec::RateTable>,
    /// The chains of nftables whose rules are not those that policies, states, devices and interfaces ask for.
    stale_chains: Vec<String>,
}

/// The identity of a state.
fn name(info: &UsersaInfo) -> (u32, [u8; 16], [u8; 16], u8) {
    (info.id.spi.get(), info.id.daddr.bytes, info.saddr.bytes, info.id.proto)
}

pub(super) fn run(session: &mut Session<'_>, words: &mut Words, mut json: bool) -> Result<Answer> {
    let mut interval = 1;
    while let Some(word) = words.next() {
        match word.as_str() {
            "interval" => interval = words.number::<u16>("interval")?,
            "--json" => json = true,
            _ => return Err(unexpected(&word)),
        }
    }
    let request = XfrmMessage::new(Body::DumpSa);
    let start = Instant::now();
    let before = match session.dump(&request)? {
        Ok(list) => list,
        Err(refusal) => return Ok(report(Err(refusal))),
    };
    let used: HashMap<_, _> = (before.iter())
        .filter_map(|m| if let Body::NewSa(info) = &m.body { Some((name(info), info.curlft)) } else { None })
        .collect();
    if interval > 0 && !used.is_empty() {
        std::thread::sleep(Duration::from_secs(interval.into()));
    }
    let after = match session.dump(&request)? {
        Ok(list) => list,
        Err(refusal) => return Ok(report(Err(refusal))),
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
        Some(StateRow {
            src: ip(&info.saddr),
            dst: ip(&info.id.daddr),
            proto: names::proto_name(info.id.proto),
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
    let states: Vec<StateRow> = states.collect();
    let status = session.client.status()?;
    let chains = session.client.text(Question::Rules)?;
    let shown = Shown {
        devices: devices(&status, &states),
        states,
        path: path(&status),
        rates: status.rates,
        unused_rates: status.unused_rates,
        drops: drops(status.counters),
        stale_chains: chains.split_terminator(", ").map(str::to_owned).collect(),
    };
    if json {
        serde_json::to_writer_pretty(&mut *session.out, &shown)?;
        writeln!(session.out)?;
    } else {
        print(session, &shown)?;
    }
    Ok(Answer::Yes)
}

/// The offload devices, xfrm interfaces and interfaces of a gateway, in this order.
fn devices(status: &Status, states: &[StateRow]) -> Vec<DeviceRow> {
    let device = |name: &str, kind: &str, up, rows: Vec<(&'static str, u64)>| DeviceRow {
        name: name.to_owned(),
        kind: kind.to_owned(),
        up,
        states: states.iter().filter(|s| s.device.as_deref() == Some(name)).count(),
        counters: rows.into_iter().map(|(counter, value)| (counter.to_owned(), value)).collect(),
    };
    let offload = status.devices.iter().map(|d| device(&d.name, d.kind.name(), d.up, d.kind.rows()));
    let interfaces =
        status.interfaces.iter().map(|i| device(&i.name, "interface", i.up, vec![("if_id", i.if_id.into())]));
    let gateway = status.gateway.iter().flat_map(|gateway| {
        gateway.interfaces.iter().enumerate().map(|(at, interface)| {
            let mut rows = interface.xdp.as_ref().map_or_else(Vec::new, xdp_rows);
            // The counters of the whole gateway are shown with its first interface.
            if at == 0 {
                rows.extend(gateway.counters.rows());
            }
            device(&interface.name, &interface.kind(), interface.xdp.is_some(), rows)
        })
    });
    offload.chain(interfaces).chain(gateway).collect()
}

fn xdp_rows(xdp: &ipsec::Xdp) -> Vec<(&'static str, u64)> {
    vec![
        ("queues", xdp.queues),
        ("threads", xdp.threads),
        ("received_full", xdp.received_full),
        ("received_dropped", xdp.received_dropped),
    ]
}

/// The counters of packets between the daemon and the kernel, with those of each worker if there are several.
fn path(status: &Status) -> BTreeMap<String, u64> {
    let workers = if status.workers.len() > 1 { &status.workers[..] } else { &[] };
    let workers = (workers.iter().enumerate())
        .flat_map(|(i, worker)| worker.rows().map(move |(name, value)| (format!("worker{i}_{name}"), value)));
    status.path.rows().map(|(name, value)| (name.to_owned(), value)).chain(workers).collect()
}

/// The counters of /proc/net/xfrm_stat that are not zero.
fn drops(counters: Vec<ipsec::Counter>) -> Vec<DropRow> {
    let drop = |c: ipsec::Counter| DropRow { counter: c.name, packets: c.packets, reason: c.help };
    counters.into_iter().filter(|c| c.packets > 0).map(drop).collect()
}

/// A number of states with its name, if there is one.
fn id(name: &str, number: Option<u32>) -> String {
    number.map_or_else(String::new, |number| format!(" {name} {number}"))
}

/// A rate that follows congestion, in packets a second.
fn rate_line(rate: &ipsec::ControlledRate) -> String {
    let per_second = |interval_us: u64| 1e6 / interval_us.max(1) as f64;
    let (now, most) = (per_second(rate.interval_us), per_second(rate.least_interval_us));
    let more = id("if_id", Some(rate.if_id).filter(|id| *id != 0)) + &id("cpu", rate.cpu);
    let of = format!("{} -> {} reqid {}{more}", rate.local, rate.remote, rate.reqid);
    let known = match (rate.has_feedback, rate.rtt_us, rate.loss_interval) {
        (false, ..) => "the peer sends no feedback".to_owned(),
        (true, 0, _) => "no feedback so far".to_owned(),
        (true, rtt_us, 0) => format!("RTT {rtt_us} us, no loss"),
        (true, rtt_us, interval) => format!("RTT {rtt_us} us, {interval} packets from one loss to the next"),
    };
    format!("rate {of}: {now:.1} of at most {most:.1} packets/s; {known}")
}

/// A table of the configuration about states that are not there. They may come later.
fn unused_line(table: &ipsec::RateTable) -> String {
    let ipsec::RateTable { remote, reqid, if_id } = table;
    let remote = remote.as_ref().map_or_else(String::new, |remote| format!(" remote {remote}"));
    let more = id("reqid", *reqid) + &id("if_id", *if_id);
    format!("[[ipsec.iptfs]]{remote}{more}: no state now that it decides about")
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
    for rate in &shown.rates {
        writeln!(out, "{}", rate_line(rate))?;
    }
    for table in &shown.unused_rates {
        writeln!(out, "{}", unused_line(table))?;
    }
    let path: Vec<String> = (shown.path.iter().filter(|(_, packets)| **packets > 0))
        .map(|(name, packets)| format!("{} {packets}", name.replace('_', " ")))
        .collect();
    if !path.is_empty() {
        writeln!(out, "packets: {}", path.join("; "))?;
    }
    if shown.stale_chains.is_empty() {
        writeln!(out, "rules: as policies and states ask for")?;
    } else {
        writeln!(out, "rules: not as policies and states ask for: {}", shown.stale_chains.join(", "))?;
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
    use ipsec::{
        Counter, CryptoOffload, DeviceKind, Gateway, GatewayCounters, GatewayInterface, Interface, Worker, Xdp,
        XdpMemory, XdpMode,
    };

    fn status() -> Status {
        let counter = |name: &str, packets| Counter { name: name.into(), packets, help: "Why.".into() };
        let xdp = Xdp {
            mode: XdpMode::Native,
            memory: XdpMemory::ZeroCopy,
            queues: 2,
            threads: 1,
            received_full: 3,
            received_dropped: 0,
        };
        let core = CryptoOffload { bursts: 7, busy_ns: 5, ..CryptoOffload::default() };
        Status {
            path: ipsec::Path { sent: 9, tables_waited_for: 1, ..ipsec::Path::default() },
            workers: vec![Worker { read: 4, full: 2, ..Worker::default() }; 2],
            counters: vec![counter("XfrmInError", 0), counter("XfrmInNoStates", 5)],
            devices: vec![ipsec::Device { name: "sealane0".into(), up: true, kind: DeviceKind::Crypto(core) }],
            interfaces: vec![Interface { name: "ipsec0".into(), up: false, if_id: 42 }],
            gateway: Some(Gateway {
                counters: GatewayCounters { to_stack: 6, ..GatewayCounters::default() },
                interfaces: vec![
                    GatewayInterface { name: "lan".into(), xdp: Some(xdp) },
                    GatewayInterface { name: "wan".into(), xdp: None },
                ],
            }),
            ..Status::default()
        }
    }

    fn rate(has_feedback: bool) -> ipsec::ControlledRate {
        ipsec::ControlledRate {
            local: "192.0.2.1".into(),
            remote: "192.0.2.2".into(),
            reqid: 7,
            if_id: 0,
            cpu: None,
            interval_us: 25_000,
            least_interval_us: 2500,
            rtt_us: 1000,
            loss_interval: 99,
            has_feedback,
        }
    }

    #[test]
    fn rates_are_lines() {
        let begin = "rate 192.0.2.1 -> 192.0.2.2 reqid 7: 40.0 of at most 400.0 packets/s; ";
        assert_eq!(rate_line(&rate(true)), format!("{begin}RTT 1000 us, 99 packets from one loss to the next"));
        assert_eq!(rate_line(&rate(false)), format!("{begin}the peer sends no feedback"));
        let early = ipsec::ControlledRate { rtt_us: 0, ..rate(true) };
        assert_eq!(rate_line(&early), format!("{begin}no feedback so far"));
        let of_a_cpu = ipsec::ControlledRate { if_id: 5, cpu: Some(1), ..rate(false) };
        assert!(rate_line(&of_a_cpu).contains(" reqid 7 if_id 5 cpu 1: "), "{}", rate_line(&of_a_cpu));
        let end = ": no state now that it decides about";
        assert_eq!(unused_line(&ipsec::RateTable::default()), format!("[[ipsec.iptfs]]{end}"));
        let table = ipsec::RateTable { remote: Some("192.0.2.2".into()), reqid: Some(7), if_id: Some(0) };
        assert_eq!(unused_line(&table), format!("[[ipsec.iptfs]] remote 192.0.2.2 reqid 7 if_id 0{end}"));
    }

    #[test]
    fn only_counters_of_dropped_packets_are_shown() {
        let rows: Vec<_> = drops(status().counters).into_iter().map(|d| (d.counter, d.packets, d.reason)).collect();
        assert_eq!(rows, [("XfrmInNoStates".to_owned(), 5, "Why.".to_owned())]);
    }

    #[test]
    fn devices_have_their_kind_and_counters() {
        let devices = devices(&status(), &[]);
        let heads: Vec<_> = devices.iter().map(|d| (&*d.name, &*d.kind, d.up)).collect();
        assert_eq!(
            heads,
            [
                ("sealane0", "crypto", true),
                ("ipsec0", "interface", false),
                ("lan", "gateway-native-zero-copy", true),
                ("wan", "gateway", false)
            ]
        );
        assert_eq!((devices[0].counters["bursts"], devices[0].counters["busy_ns"]), (7, 5));
        assert_eq!(devices[1].counters["if_id"], 42);
        let lan = &devices[2].counters;
        assert_eq!((lan["queues"], lan["received_full"], lan["to_stack"]), (2, 3, 6));
        assert!(devices[3].counters.is_empty());
    }

    #[test]
    fn workers_are_shown_if_there_are_several() {
        let mut status = status();
        let several = path(&status);
        assert_eq!((several["sent"], several["tables_waited_for"], several["worker1_full"]), (9, 1, 2));
        status.workers.truncate(1);
        assert_eq!(path(&status).len(), status.path.rows().count());
    }

    #[test]
    fn json_keeps_its_keys() {
        let status = status();
        let (devices, path) = (devices(&status, &[]), path(&status));
        let drops = drops(status.counters);
        let rates = vec![rate(true)];
        let unused_rates = vec![ipsec::RateTable::default()];
        let shown = Shown { states: Vec::new(), devices, path, rates, unused_rates, drops, stale_chains: Vec::new() };
        let json = serde_json::to_value(&shown).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&json), ["devices", "drops", "path", "rates", "stale_chains", "states", "unused_rates"]);
        assert_eq!(
            (&json["rates"][0]["interval_us"], &json["rates"][0]["has_feedback"]),
            (&25_000.into(), &true.into())
        );
        assert_eq!(keys(&json["devices"][0]), ["counters", "kind", "name", "states", "up"]);
        assert_eq!(keys(&json["drops"][0]), ["counter", "packets", "reason"]);
        assert_eq!((&json["path"]["not_given_to_stack"], &json["path"]["worker0_read"]), (&0.into(), &4.into()));
    }
}
