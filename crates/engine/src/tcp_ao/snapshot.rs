//! What `sealane tcp-ao show` tells: keys without their secrets, counters, the segments that were dropped.

use super::flows::{Ends, Target};
use super::{Namespace, SocketId};
use sealane_abi::admin;
use sealane_net::ao::diagnose::{Hint, Reading, diagnose};
use sealane_net::ao::drop::{Counter, DropReason, Netstat};
use sealane_net::ao::info::{AoInfo, Counters};
use sealane_net::ao::kdf::Context;
use sealane_net::ao::table::KeyRef;
use sealane_net::wire::tcp::{Auth, Segment};

/// Time between two looks at why a MAC does not match, in milliseconds: each costs some hundred MACs, and whoever sends
/// wrong ones decides how many there are.
const LOOK_MS: u64 = 1000;

/// The segment that a socket had dropped last.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastDrop {
    at_ms: u64,
    ends: Ends,
    key_id: Option<u8>,
    reason: DropReason,
    hint: Option<Hint>,
}

/// Segments dropped, by reason, and when one was looked at closer.
#[derive(Debug, Default)]
pub(super) struct Drops {
    counts: Vec<(DropReason, u64)>,
    looked_ms: Option<u64>,
}

impl Drops {
    fn count(&mut self, reason: DropReason) {
        match self.counts.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, n)) => *n += 1,
            None => self.counts.push((reason, 1)),
        }
    }
}

impl Namespace {
    /// Notes that an inbound segment was dropped.
    pub(super) fn note_drop(
        &mut self,
        segment: Option<&Segment<'_>>,
        to: Option<&Target>,
        key: Option<KeyRef>,
        reason: DropReason,
        now_ms: u64,
    ) {
        self.drops.count(reason);
        let (Some(segment), Some(to)) = (segment, to) else { return };
        let look = matches!(reason, DropReason::Mac | DropReason::MacLen)
            && self.drops.looked_ms.is_none_or(|before| now_ms >= before + LOOK_MS);
        let hint = match key {
            Some(key) if look => {
                self.drops.looked_ms = Some(now_ms);
                self.look_closer(segment, to, key)
            }
            _ => None,
        };
        let key_id = match segment.auth() {
            Ok(Some(Auth::Ao(option))) => Some(option.key_id),
            _ => None,
        };
        if let Some(socket) = self.sockets.get_mut(&to.id()) {
            // A hint is worth more than the next drop of the same kind.
            let hint =
                hint.or(socket.last_drop.filter(|d| d.reason == reason && d.key_id == key_id).and_then(|d| d.hint));
            socket.last_drop = Some(LastDrop { at_ms: now_ms, ends: to.ends(), key_id, reason, hint });
        }
    }

    fn look_closer(&self, segment: &Segment<'_>, to: &Target, key: KeyRef) -> Option<Hint> {
        let info = self.info(to.id())?;
        let Ok(Some(Auth::Ao(option))) = segment.auth() else { return None };
        let first_syn = segment.flags().syn() && !segment.flags().ack();
        let (context, sne) = match info.conn() {
            Some(conn) if !first_syn => (conn.receive_context(), conn.rcv.of(segment.seq())),
            _ if first_syn => {
                let (source, destination) = (to.ends().remote, to.ends().local);
                (Context { source, destination, source_isn: segment.seq(), destination_isn: 0 }, 0)
            }
            _ => return None,
        };
        let expected = Reading { mkt: &info.key(key)?.mkt, context, sne };
        let others = info.keys().iter().take(super::MAX_TRIED).map(|(_, k)| &*k.mkt);
        diagnose(segment, &option, &expected, others, &self.algorithms)
    }

    /// Everything that may be shown. `wall_ms` is the time of day, in milliseconds since 1970, at which the clock of
    /// [`Namespace::expire`] began.
    #[must_use]
    pub fn describe(&self, wall_ms: i64) -> admin::Namespace {
        let mut sockets: Vec<admin::Socket> =
            self.sockets().map(|(id, info)| self.describe_socket(id, info, wall_ms)).collect();
        sockets.sort_by_key(|s| (s.state, s.remote, s.cookie));
        let value = |c| self.netstat.value(c);
        admin::Namespace {
            inode: 0,
            name: None,
            counters: netstat_counters(&self.netstat),
            drops: (self.drops.counts.iter())
                .map(|(reason, count)| admin::DropCount { reason: reason.name().to_owned(), count: *count })
                .chain((value(Counter::DroppedIcmps) > 0).then(|| admin::DropCount {
                    reason: DropReason::Icmp.name().to_owned(),
                    count: value(Counter::DroppedIcmps),
                }))
                .collect(),
            sockets,
        }
    }

    fn describe_socket(&self, id: SocketId, info: &AoInfo, wall_ms: i64) -> admin::Socket {
        let flow = self.flow_of(id);
        let socket = self.sockets.get(&id);
        let send_id = |k: Option<KeyRef>| k.and_then(|k| info.key(k)).map(|k| k.mkt.send_id);
        let recv_id = |k: Option<KeyRef>| k.and_then(|k| info.key(k)).map(|k| k.mkt.recv_id);
        let ends = flow.map(|(ends, _)| ends);
        admin::Socket {
            cookie: id.0,
            state: match flow {
                Some((_, state)) => state,
                None if socket.is_some_and(|s| s.listening) => admin::SocketState::Listen,
                None => admin::SocketState::Closed,
            },
            pid: None,
            local: ends.map(|e| e.local),
            remote: ends.map(|e| e.remote),
            configured: socket.and_then(|s| s.configured.as_ref()).map(|(_, name)| name.to_string()),
            ao_required: info.ao_required,
            accept_icmps: info.accept_icmps,
            counters: socket_counters(&info.counters),
            current: send_id(info.current()),
            rnext: recv_id(info.rnext()),
            keys: info.keys().iter().map(|(r, key)| describe_key(r, key, info)).collect(),
            last_drop: socket.and_then(|s| s.last_drop.as_ref()).map(|d| admin::Drop {
                at_ms: wall_ms.saturating_add(i64::try_from(d.at_ms).unwrap_or(i64::MAX)),
                source: d.ends.remote,
                destination: d.ends.local,
                key_id: d.key_id,
                reason: d.reason.name().to_owned(),
                help: d.reason.help().to_owned(),
                hint: d.hint.map(|h| h.to_string()),
            }),
        }
    }
}

fn describe_key(at: KeyRef, key: &sealane_net::ao::table::Key, info: &AoInfo) -> admin::Key {
    admin::Key {
        peer: format!("{}/{}", key.mkt.peer.addr, key.mkt.peer.len),
        ifindex: key.mkt.ifindex,
        send_id: key.mkt.send_id,
        recv_id: key.mkt.recv_id,
        algorithm: key.mkt.algorithm.name.to_owned(),
        mac_len: key.mkt.mac_len as u8,
        exclude_options: key.mkt.exclude_options,
        current: info.current() == Some(at),
        rnext: info.rnext() == Some(at),
        good: key.pkt_good,
        bad: key.pkt_bad,
    }
}

fn netstat_counters(netstat: &Netstat) -> admin::Counters {
    let value = |c| netstat.value(c);
    admin::Counters {
        good: value(Counter::Good),
        bad: value(Counter::Bad),
        key_not_found: value(Counter::KeyNotFound),
        required: value(Counter::Required),
        dropped_icmps: value(Counter::DroppedIcmps),
    }
}

fn socket_counters(c: &Counters) -> admin::Counters {
    admin::Counters {
        good: c.good,
        bad: c.bad,
        key_not_found: c.key_not_found,
        required: c.required,
        dropped_icmps: c.dropped_icmp,
    }
}
