//! The metrics of IPsec.

use super::family::Family;
use sealane_abi::admin::ipsec::{DeviceKind, Gateway, Interface, IpsecNamespace, Status, Worker, Xdp};

/// A network namespace with the value of its label.
type Named<'s> = (&'s str, &'s Status);

/// Writes all metrics of these network namespaces. Without namespaces there are none.
pub(super) fn render(out: &mut String, namespaces: &[IpsecNamespace]) {
    if namespaces.is_empty() {
        return;
    }
    let names: Vec<String> = namespaces.iter().map(|n| n.name.clone().unwrap_or_else(|| n.inode.to_string())).collect();
    let list: Vec<Named<'_>> = names.iter().map(String::as_str).zip(namespaces.iter().map(|n| &n.status)).collect();
    tables(out, &list);
    drops(out, &list);
    path(out, &list);
    workers(out, &list);
    devices(out, &list);
    interfaces(out, &list);
    gateways(out, &list);
    rates(out, &list);
}

/// The sizes of the tables, and the traffic of the states.
fn tables(out: &mut String, list: &[Named<'_>]) {
    let mut family = Family::new(out, "sealane_ipsec_states", "gauge", "States (SAs).");
    for (netns, status) in list {
        family.sample(&[("netns", netns)], status.states);
    }
    let mut family = Family::new(out, "sealane_ipsec_policies", "gauge", "Policies by direction.");
    for (netns, status) in list {
        let policies = &status.policies;
        for (direction, count) in [("in", policies.input), ("out", policies.output), ("fwd", policies.forward)] {
            family.sample(&[("netns", netns), ("direction", direction)], count);
        }
    }
    let mut family = Family::new(
        out,
        "sealane_ipsec_packets_total",
        "counter",
        "Packets sealed (out) and opened (in) by all states; a packet that passes two states counts twice.",
    );
    for (netns, status) in list {
        let traffic = &status.traffic;
        for (direction, count) in [("out", traffic.sealed_packets), ("in", traffic.opened_packets)] {
            family.sample(&[("netns", netns), ("direction", direction)], count);
        }
    }
    let mut family = Family::new(out, "sealane_ipsec_bytes_total", "counter", "Bytes of payload in these packets.");
    for (netns, status) in list {
        let traffic = &status.traffic;
        for (direction, count) in [("out", traffic.sealed_bytes), ("in", traffic.opened_bytes)] {
            family.sample(&[("netns", netns), ("direction", direction)], count);
        }
    }
}

fn drops(out: &mut String, list: &[Named<'_>]) {
    let mut family = Family::new(out, "sealane_ipsec_drops_total", "counter", "Dropped packets by reason.");
    for (netns, status) in list {
        for drop in &status.drops {
            family.sample(&[("netns", netns), ("reason", &drop.reason)], drop.count);
        }
    }
    let mut family = Family::new(
        out,
        "sealane_ipsec_xfrm_stat_total",
        "counter",
        "Dropped packets by the kernel's counter, as in /proc/net/xfrm_stat.",
    );
    for (netns, status) in list {
        for counter in &status.counters {
            family.sample(&[("netns", netns), ("counter", &counter.name)], counter.packets);
        }
    }
}

/// Packets between the daemon and the kernel.
fn path(out: &mut String, list: &[Named<'_>]) {
    type Value = fn(&Status) -> u64;
    let one: [(&str, &str, Value); 6] = [
        ("sealane_ipsec_sent_packets_total", "Packets that the kernel accepted for the wire.", |s| s.path.sent),
        ("sealane_ipsec_clear_packets_total", "Packets sent unencrypted because a policy allows it.", |s| s.path.clear),
        (
            "sealane_ipsec_held_packets_total",
            "Packets dropped by the rules of an earlier daemon, because no policy has been set since.",
            |s| s.path.held,
        ),
        ("sealane_ipsec_malformed_frames_total", "Frames of the stack that are not IP packets.", |s| s.path.malformed),
        (
            "sealane_ipsec_lock_waits_total",
            "The number of times that a worker waited for the lock of the tables.",
            |s| s.path.tables_waited_for,
        ),
        (
            "sealane_ipsec_port_swaps_total",
            "The number of times that IKE came to the daemon's socket of a port, and was steered to the key manager's again.",
            |s| s.path.port_swaps,
        ),
    ];
    for (name, help, value) in one {
        let mut family = Family::new(out, name, "counter", help);
        for (netns, status) in list {
            family.sample(&[("netns", netns)], value(status));
        }
    }
    let mut family = Family::new(
        out,
        "sealane_ipsec_fast_path_packets_total",
        "counter",
        "Packets that bypassed the stack, by direction. Those that were sent are among sealane_ipsec_sent_packets_total.",
    );
    for (netns, status) in list {
        for (direction, count) in [("in", status.path.received_past_stack), ("out", status.path.sent_past_stack)] {
            family.sample(&[("netns", netns), ("direction", direction)], count);
        }
    }
    let mut family = Family::new(
        out,
        "sealane_ipsec_path_lost_total",
        "counter",
        "Packets lost between the kernel and Sealane: a full receive ring, refused for the wire, refused by the stack.",
    );
    for (netns, status) in list {
        let path = &status.path;
        for (at, count) in [("ring", path.ring_full), ("wire", path.not_sent), ("stack", path.not_given_to_stack)] {
            family.sample(&[("netns", netns), ("at", at)], count);
        }
    }
}

/// The threads of the stack, and the back-pressure between them.
fn workers(out: &mut String, list: &[Named<'_>]) {
    let mut family = Family::new(out, "sealane_ipsec_workers", "gauge", "Workers: threads that serve the TUN device.");
    for (netns, status) in list {
        family.sample(&[("netns", netns)], status.workers.len());
    }
    let mut each = |name, help, rows: fn(&Worker) -> Vec<(&'static str, u64)>| {
        let mut family = Family::new(out, name, "counter", help);
        for (netns, status) in list {
            for (i, worker) in status.workers.iter().enumerate() {
                for (result, count) in rows(worker) {
                    let index = i.to_string();
                    let labels = [("netns", *netns), ("worker", &*index), ("result", result)];
                    family.sample(if result.is_empty() { &labels[..2] } else { &labels }, count);
                }
            }
        }
    };
    each(
        "sealane_ipsec_worker_frames_total",
        "Frames of a worker: read from its queue, of those handed over to other workers, taken over from others.",
        |w| vec![("read", w.read), ("handed_over", w.handed_over), ("taken_over", w.taken_over)],
    );
    each(
        "sealane_ipsec_worker_waits_total",
        "The number of times that a worker waited because the ring of another worker was full.",
        |w| vec![("", w.full)],
    );
}

/// Offload devices.
fn devices(out: &mut String, list: &[Named<'_>]) {
    let mut family =
        Family::new(out, "sealane_ipsec_device_up", "gauge", "Whether the interface of an offload device is up.");
    for (netns, status) in list {
        for device in &status.devices {
            let labels = [("netns", *netns), ("device", &*device.name), ("kind", device.kind.name())];
            family.sample(&labels, u8::from(device.up));
        }
    }
    type Rows = fn(&DeviceKind) -> Vec<(&'static str, u64)>;
    let families: [(&str, &str, &str, Rows); 6] = [
        (
            "sealane_ipsec_device_packets_total",
            "counter",
            "Packets of an offload device by result: processed by a crypto offload core, of those without a key; sealed, opened and \
             dropped by a packet offload core, or passed to the stack for want of a policy or state (asked).",
            |kind| match kind {
                DeviceKind::Crypto(c) => vec![("processed", c.packets), ("no_key", c.no_key)],
                DeviceKind::Packet(c) => {
                    vec![("sealed", c.sealed), ("opened", c.opened), ("dropped", c.dropped), ("asked", c.asked)]
                }
                DeviceKind::Inline | DeviceKind::Kernel(_) => Vec::new(),
            },
        ),
        (
            "sealane_ipsec_device_bytes_total",
            "counter",
            "Bytes processed by a crypto offload core.",
            |kind| match kind {
                DeviceKind::Crypto(c) => vec![("", c.bytes)],
                _ => Vec::new(),
            },
        ),
        (
            "sealane_ipsec_device_bursts_total",
            "counter",
            "Bursts processed by a crypto offload core.",
            |kind| match kind {
                DeviceKind::Crypto(c) => vec![("", c.bursts)],
                _ => Vec::new(),
            },
        ),
        (
            "sealane_ipsec_device_waits_total",
            "counter",
            "Bursts that waited because the ring of a crypto offload core was full.",
            |kind| match kind {
                DeviceKind::Crypto(c) => vec![("", c.full)],
                _ => Vec::new(),
            },
        ),
        ("sealane_ipsec_device_objects", "gauge", "States and policies that the kernel has for a device.", |kind| {
            match kind {
                DeviceKind::Kernel(c) => vec![("states", c.kernel_states), ("policies", c.kernel_policies)],
                _ => Vec::new(),
            }
        }),
        (
            "sealane_ipsec_device_refused_total",
            "counter",
            "States and policies that the kernel refused for a device.",
            |kind| match kind {
                DeviceKind::Kernel(c) => vec![("", c.refused)],
                _ => Vec::new(),
            },
        ),
    ];
    for (name, type_, help, rows) in families {
        let label = if type_ == "gauge" { "object" } else { "result" };
        let mut family = Family::new(out, name, type_, help);
        for (netns, status) in list {
            for device in &status.devices {
                for (value, count) in rows(&device.kind) {
                    let labels = [("netns", *netns), ("device", &*device.name), (label, value)];
                    family.sample(if value.is_empty() { &labels[..2] } else { &labels }, count);
                }
            }
        }
    }
    let mut family = Family::new(
        out,
        "sealane_ipsec_device_busy_seconds_total",
        "counter",
        "The time that the thread of a crypto offload core has worked, in seconds.",
    );
    for (netns, status) in list {
        for device in &status.devices {
            if let DeviceKind::Crypto(core) = &device.kind {
                let seconds = format!("{}.{:09}", core.busy_ns / 1_000_000_000, core.busy_ns % 1_000_000_000);
                family.sample(&[("netns", netns), ("device", &device.name)], seconds);
            }
        }
    }
}

/// Xfrm interfaces.
fn interfaces(out: &mut String, list: &[Named<'_>]) {
    let mut family =
        Family::new(out, "sealane_ipsec_interface_up", "gauge", "Whether the thread of an xfrm interface runs.");
    for (netns, status) in list {
        for Interface { name, up, if_id } in &status.interfaces {
            let if_id = if_id.to_string();
            family.sample(&[("netns", netns), ("interface", name), ("if_id", &if_id)], u8::from(*up));
        }
    }
}

/// Rates of IP-TFS that follow congestion.
fn rates(out: &mut String, list: &[Named<'_>]) {
    let mut family = Family::new(
        out,
        "sealane_ipsec_controlled_rates",
        "gauge",
        "Pairs of states of IP-TFS whose rate follows congestion, by whether the peer sends feedback.",
    );
    for (netns, status) in list {
        for (feedback, has_it) in [("yes", true), ("no", false)] {
            let count = status.rates.iter().filter(|rate| rate.has_feedback == has_it).count();
            family.sample(&[("netns", netns), ("feedback", feedback)], count);
        }
    }
}

/// Gateways and their interfaces.
fn gateways(out: &mut String, list: &[Named<'_>]) {
    let gateways: Vec<(&str, &Gateway)> =
        list.iter().filter_map(|(netns, status)| Some((*netns, status.gateway.as_ref()?))).collect();
    let mut family = Family::new(
        out,
        "sealane_ipsec_gateway_packets_total",
        "counter",
        "Packets of a gateway: sealed, opened; of those sent past the stack, given to the stack, dropped, lost because an \
         interface was full; handed over to another thread, lost because that had no room.",
    );
    for (netns, gateway) in &gateways {
        for (result, count) in gateway.counters.rows() {
            family.sample(&[("netns", netns), ("result", result)], count);
        }
    }
    let mut family = Family::new(
        out,
        "sealane_ipsec_gateway_interface_up",
        "gauge",
        "Whether a gateway serves an interface, with the place of the XDP program and the memory of frames.",
    );
    for (netns, gateway) in &gateways {
        for interface in &gateway.interfaces {
            let (mode, memory) = interface.xdp.map_or(("none", "none"), |xdp| (xdp.mode.name(), xdp.memory.name()));
            let labels = [("netns", *netns), ("interface", &interface.name), ("xdp", mode), ("memory", memory)];
            family.sample(&labels, u8::from(interface.xdp.is_some()));
        }
    }
    type Value = fn(&Xdp) -> u64;
    let gauges: [(&str, &str, Value); 2] = [
        ("sealane_ipsec_gateway_queues", "Queues of an interface of a gateway.", |xdp| xdp.queues),
        ("sealane_ipsec_gateway_threads", "Threads that serve these queues.", |xdp| xdp.threads),
    ];
    for (name, help, value) in gauges {
        let mut family = Family::new(out, name, "gauge", help);
        for (netns, gateway) in &gateways {
            for interface in &gateway.interfaces {
                if let Some(xdp) = &interface.xdp {
                    family.sample(&[("netns", netns), ("interface", &interface.name)], value(xdp));
                }
            }
        }
    }
    let mut family = Family::new(
        out,
        "sealane_ipsec_gateway_lost_total",
        "counter",
        "Received frames that an interface of a gateway lost: full rings, or dropped by the kernel for another reason.",
    );
    for (netns, gateway) in &gateways {
        for interface in &gateway.interfaces {
            for (at, count) in
                interface.xdp.iter().flat_map(|x| [("ring", x.received_full), ("kernel", x.received_dropped)])
            {
                family.sample(&[("netns", netns), ("interface", &interface.name), ("at", at)], count);
            }
        }
    }
}
