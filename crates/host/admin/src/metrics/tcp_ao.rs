//! The metrics of TCP-AO.
//!
//! Keys of listeners have no series of their own, or 100,000 of them would be as many series at every scrape.
//! Connections have few keys.

use super::family::{Family, Labels};
use sealane_abi::admin::{AoNamespace, Counters, Path, Socket, SocketState};

/// Writes all metrics of these network namespaces.
pub(super) fn render(out: &mut String, namespaces: &[AoNamespace]) {
    let namespaces: Vec<(String, &AoNamespace)> =
        namespaces.iter().map(|n| (n.name.clone().unwrap_or_else(|| n.inode.to_string()), n)).collect();
    per_namespace(out, &namespaces);
    let names: Vec<String> = namespaces.iter().map(|(name, _)| name.clone()).collect();
    per_connection(out, &connections(&namespaces, &names));
}

fn results(c: &Counters) -> [(&'static str, u64); 5] {
    [
        ("good", c.good),
        ("bad", c.bad),
        ("key_not_found", c.key_not_found),
        ("required", c.required),
        ("dropped_icmp", c.dropped_icmps),
    ]
}

/// A connection with the labels that name it.
struct Connection<'s> {
    netns: &'s str,
    local: String,
    remote: String,
    socket: &'s Socket,
}

impl Connection<'_> {
    fn labels<'a>(&'a self, more: Labels<'a>) -> Vec<(&'a str, &'a str)> {
        let mut labels = vec![("netns", self.netns), ("local", &self.local), ("remote", &self.remote)];
        labels.extend_from_slice(more);
        labels
    }
}

/// The connections of all namespaces. Of sockets with the same addresses, of which one is in TIME-WAIT, only the first
/// is listed.
fn connections<'s>(namespaces: &[(String, &'s AoNamespace)], names: &'s [String]) -> Vec<Connection<'s>> {
    let mut seen = std::collections::HashSet::new();
    let mut list = Vec::new();
    for ((_, namespace), name) in namespaces.iter().zip(names) {
        let mut sockets: Vec<&Socket> = namespace.sockets.iter().collect();
        sockets.sort_by_key(|s| s.state == SocketState::TimeWait);
        for socket in sockets {
            if let (Some(local), Some(remote)) = (socket.local, socket.remote)
                && seen.insert((name, local, remote))
            {
                list.push(Connection { netns: name, local: local.to_string(), remote: remote.to_string(), socket });
            }
        }
    }
    list
}

fn per_namespace(out: &mut String, namespaces: &[(String, &AoNamespace)]) {
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_segments_total",
        "counter",
        "Received segments by the result of the TCP-AO check, as in /proc/net/netstat.",
    );
    for (name, namespace) in namespaces {
        for (result, count) in results(&namespace.counters) {
            family.sample(&[("netns", name), ("result", result)], count);
        }
    }
    let mut family = Family::new(out, "sealane_tcp_ao_drops_total", "counter", "Dropped segments by reason.");
    for (name, namespace) in namespaces {
        for drop in &namespace.drops {
            family.sample(&[("netns", name), ("reason", &drop.reason)], drop.count);
        }
    }
    per_path(out, namespaces);
    let mut family = Family::new(out, "sealane_tcp_ao_sockets", "gauge", "Sockets with TCP-AO keys by state.");
    for (name, namespace) in namespaces {
        for state in SocketState::ALL {
            let count = namespace.sockets.iter().filter(|s| s.state == state).count();
            family.sample(&[("netns", name), ("state", state.name())], count);
        }
    }
    let mut family =
        Family::new(out, "sealane_tcp_ao_keys", "gauge", "TCP-AO keys on sockets by the state of the socket.");
    for (name, namespace) in namespaces {
        for state in SocketState::ALL {
            let keys = namespace.sockets.iter().filter(|s| s.state == state).map(|s| s.keys.len());
            family.sample(&[("netns", name), ("state", state.name())], keys.sum::<usize>());
        }
    }
    // Without the names: a keeper that is away may lack as many keys as there are peers, and the reasons tell how long ago.
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_missing_keys",
        "gauge",
        "Keys of configured peers that are to be the keeper's and were not found there, or by which it derived nothing in the last minute.",
    );
    for (name, namespace) in namespaces {
        family.sample(&[("netns", name)], namespace.missing_keys.len());
    }
}

/// The metrics of the path of segments between the kernel and Sealane.
fn per_path(out: &mut String, namespaces: &[(String, &AoNamespace)]) {
    let paths: Vec<(&str, &Path)> =
        namespaces.iter().filter_map(|(name, n)| Some((name.as_str(), n.path.as_ref()?))).collect();
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_fast_path_segments_total",
        "counter",
        "Segments that bypassed the kernel's packet queues, by direction.",
    );
    for (name, path) in &paths {
        for (direction, count) in [("in", path.fast_in), ("out", path.fast_out)] {
            family.sample(&[("netns", name), ("direction", direction)], count);
        }
    }
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_path_lost_total",
        "counter",
        "Segments lost between the kernel and Sealane: a full queue, that of new connections, a full ring, refused by the kernel.",
    );
    for (name, path) in &paths {
        for (at, count) in [
            ("queue", path.queue_drops),
            ("newcomers", path.newcomer_drops),
            ("ring", path.ring_drops),
            ("refused", path.refused),
        ] {
            family.sample(&[("netns", name), ("at", at)], count);
        }
    }
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_worker_restarts_total",
        "counter",
        "The number of times that a worker took the place of one that had failed.",
    );
    for (name, path) in &paths {
        family.sample(&[("netns", name)], path.restarts);
    }
    let mut family =
        Family::new(out, "sealane_tcp_ao_fast_path_connections", "gauge", "Connections that use the fast path.");
    for (name, path) in &paths {
        family.sample(&[("netns", name)], path.connections);
    }
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_fast_path_unable",
        "gauge",
        "Devices without the fast path, with the reason. The value is 1.",
    );
    for (name, path) in &paths {
        for device in &path.not_fast {
            family.sample(&[("netns", name), ("device", &device.device), ("reason", &device.why)], 1);
        }
    }
}

fn per_connection(out: &mut String, connections: &[Connection<'_>]) {
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_connection_segments_total",
        "counter",
        "Received segments of a connection by the result of the TCP-AO check.",
    );
    for c in connections {
        for (result, count) in results(&c.socket.counters) {
            family.sample(&c.labels(&[("result", result)]), count);
        }
    }
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_connection_key_segments_total",
        "counter",
        "Received segments of a connection by key and by the result of the TCP-AO check.",
    );
    for c in connections {
        for key in &c.socket.keys {
            let (send_id, recv_id) = (key.send_id.to_string(), key.recv_id.to_string());
            for (result, count) in [("good", key.good), ("bad", key.bad)] {
                let labels = [("send_id", &*send_id), ("recv_id", &*recv_id), ("result", result)];
                family.sample(&c.labels(&labels), count);
            }
        }
    }
    type Id = fn(&Socket) -> Option<u8>;
    let ids: [(&str, &str, Id); 2] = [
        ("sealane_tcp_ao_connection_current_send_id", "The SendID of the key that signs sent segments.", |s| s.current),
        ("sealane_tcp_ao_connection_rnext_recv_id", "The RecvID of the key that the peer is asked to use.", |s| {
            s.rnext
        }),
    ];
    for (name, help, id) in ids {
        let mut family = Family::new(out, name, "gauge", help);
        for c in connections {
            if let Some(id) = id(c.socket) {
                family.sample(&c.labels(&[]), id);
            }
        }
    }
    let mut family = Family::new(
        out,
        "sealane_tcp_ao_connection_last_drop_timestamp_seconds",
        "gauge",
        "The time at which the last segment of a connection was dropped, in seconds since 1970, with the reason.",
    );
    for c in connections {
        if let Some(drop) = &c.socket.last_drop {
            let seconds = format!("{}.{:03}", drop.at_ms.div_euclid(1000), drop.at_ms.rem_euclid(1000));
            family.sample(&c.labels(&[("reason", &drop.reason)]), seconds);
        }
    }
}
