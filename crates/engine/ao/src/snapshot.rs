//! Status for `sealane tcp-ao show`: sockets, keys without secrets, counters, and the last dropped segment with a hint.
//!
//! A snapshot is taken in two steps. [`Namespace::snapshot`] copies the state and needs the namespace;
//! [`Snapshot::finish`] diagnoses dropped segments, which takes longer, without it.

use crate::drops::LastDrop;
use crate::facts::SocketId;
use crate::flows::Target;
use crate::namespace::Namespace;
use sealane_abi::admin;
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::diagnose::{Hint, Reading, diagnose};
use sealane_net_ao::drop::{Counter, DropReason};
use sealane_net_ao::info::AoInfo;
use sealane_net_ao::kdf::Context;
use sealane_net_ao::mkt::Mkt;
use sealane_net_ao::table::Ids;
use sealane_wire::tcp::{AoOption, Auth, Segment};
use std::sync::Arc;

/// The time in milliseconds for which a socket's last drop is not replaced, so that a flood of bad segments costs
/// little more than their MACs.
const PAUSE_MS: u64 = 100;

/// The longest segment that is kept for a diagnosis in bytes: that of a jumbo frame.
const MAX_KEPT_LEN: usize = 9216;

/// The most keys that are tried to find out why a MAC does not match.
const MAX_TRIED: usize = 64;

/// Whether a diagnosis can explain a segment that was dropped for this reason.
fn is_explained(reason: DropReason) -> bool {
    matches!(reason, DropReason::Mac | DropReason::MacLen | DropReason::KeyNotFound)
}

impl Namespace {
    /// Counts and remembers a dropped segment from or to `to`.
    pub(super) fn note_drop(&mut self, segment: &Segment<'_>, to: Option<&Target>, reason: DropReason, now_ms: u64) {
        self.drops.by_reason[reason as usize] += 1;
        let known = to.is_some_and(|to| self.sockets.contains_key(&to.id()));
        let last = match to.filter(|_| known) {
            Some(to) => self.sockets.get(&to.id()).and_then(|s| s.last_drop.as_deref()),
            None => self.drops.stray.as_deref(),
        };
        if last.is_some_and(|l| now_ms.saturating_sub(l.at_ms) < PAUSE_MS) {
            return;
        }
        let option = match segment.auth() {
            Ok(Some(Auth::Ao(option))) => Some(option),
            _ => None,
        };
        let numbers = to.filter(|_| is_explained(reason) && option.is_some()).and_then(|to| self.numbers(segment, to));
        let slot = match to.filter(|_| known) {
            Some(to) => self.sockets.data_mut(to.id()).map(|s| &mut s.last_drop),
            None => Some(&mut self.drops.stray),
        };
        let Some(slot) = slot else { return };
        let mut kept = slot.take().map_or_else(Vec::new, |before| before.packet);
        kept.clear();
        if numbers.is_some() && segment.packet().len() <= MAX_KEPT_LEN {
            kept.extend_from_slice(segment.packet());
        }
        let (source, destination) = (segment.source(), segment.destination());
        let drop = LastDrop { at_ms: now_ms, reason, source, destination, option, numbers, packet: kept };
        *slot = Some(Box::new(drop));
    }

    /// The numbers under which an inbound segment should verify.
    fn numbers(&self, segment: &Segment<'_>, to: &Target) -> Option<(Context, u32)> {
        let (flags, seq, ack) = (segment.flags(), segment.seq(), segment.ack_seq());
        let (source, destination) = (segment.source(), segment.destination());
        let context = |source_isn, destination_isn| Context { source, destination, source_isn, destination_isn };
        if flags.syn() {
            let other = if flags.ack() { ack.wrapping_sub(1) } else { 0 };
            return Some((context(seq, other), 0));
        }
        match self.info(to.id()).and_then(AoInfo::conn) {
            Some(conn) if !to.is_listener() => Some((conn.receive_context(), conn.rcv.of(seq))),
            // The segment that completes a handshake.
            _ if to.is_listener() => Some((context(seq.wrapping_sub(1), ack.wrapping_sub(1)), 0)),
            _ => None,
        }
    }

    /// Takes a snapshot. `wall_ms` is the time of day, in milliseconds since 1970, at which the clock of
    /// [`Namespace::input`] began.
    #[must_use]
    pub fn snapshot(&self, wall_ms: i64) -> Snapshot {
        let at_ms = |ms: u64| wall_ms.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX));
        let mut pending = Vec::new();
        let mut sockets = Vec::new();
        let mut ids: Vec<(SocketId, &AoInfo)> = self.sockets().collect();
        ids.sort_by_cached_key(|(id, _)| (self.flow_of(*id).map(|(ends, _)| ends.remote), *id));
        for (id, info) in ids {
            let mut socket = self.socket_of(id, info);
            if let Some(last) = self.sockets.get(&id).and_then(|s| s.last_drop.as_deref()) {
                socket.last_drop = Some(dropped(last, at_ms(last.at_ms)));
                pending.extend(pending_diagnosis(sockets.len(), last, info));
            }
            sockets.push(socket);
        }
        let value = |counter| self.netstat().value(counter);
        let ignored = (DropReason::Icmp, value(Counter::DroppedIcmps));
        let counts = DropReason::ALL.iter().copied().zip(self.drops.by_reason).chain([ignored]);
        let namespace = admin::AoNamespace {
            inode: 0,
            name: None,
            counters: admin::Counters {
                good: value(Counter::Good),
                bad: value(Counter::Bad),
                key_not_found: value(Counter::KeyNotFound),
                required: value(Counter::Required),
                dropped_icmps: value(Counter::DroppedIcmps),
            },
            drops: (counts.filter(|(_, count)| *count > 0))
                .map(|(r, count)| admin::DropCount { reason: r.name().to_owned(), count })
                .collect(),
            last_drop: self.drops.stray.as_deref().map(|last| dropped(last, at_ms(last.at_ms))),
            path: None,
            sockets,
            missing_keys: Vec::new(),
        };
        Snapshot { namespace, pending, algorithms: self.algorithms.clone() }
    }

    fn socket_of(&self, id: SocketId, info: &AoInfo) -> admin::Socket {
        let flow = self.flow_of(id);
        let socket = self.sockets.get(&id);
        let id_of = |key, id: fn(&Mkt) -> u8| info.key(key).map(|k| id(&k.mkt));
        admin::Socket {
            cookie: id.0,
            state: match flow {
                Some((_, state)) => state,
                None if socket.is_some_and(|s| s.listening) => admin::SocketState::Listen,
                None => admin::SocketState::Closed,
            },
            inode: None,
            pid: None,
            program: None,
            local: flow.map(|(ends, _)| ends.local),
            remote: flow.map(|(ends, _)| ends.remote),
            vrf: flow.map(|(ends, _)| ends.vrf).filter(|vrf| *vrf != 0),
            vrf_name: None,
            configured: socket.and_then(|s| s.configured.as_ref()).map(|(_, name)| name.to_string()),
            ao_required: info.ao_required,
            accept_icmps: info.accept_icmps,
            counters: admin::Counters {
                good: info.counters.good,
                bad: info.counters.bad,
                key_not_found: info.counters.key_not_found,
                required: info.counters.required,
                dropped_icmps: info.counters.dropped_icmp,
            },
            current: info.current().and_then(|k| id_of(k, |m| m.send_id)),
            rnext: info.rnext().and_then(|k| id_of(k, |m| m.recv_id)),
            keys: info
                .keys()
                .iter()
                .map(|(key, k)| admin::KeyStatus {
                    peer: k.mkt.peer.to_string(),
                    ifindex: k.mkt.ifindex,
                    send_id: k.mkt.send_id,
                    recv_id: k.mkt.recv_id,
                    algorithm: k.mkt.algorithm.name.to_owned(),
                    mac_len: k.mkt.mac_len as u8,
                    exclude_options: k.mkt.exclude_options,
                    current: info.current() == Some(key),
                    rnext: info.rnext() == Some(key),
                    good: k.pkt_good,
                    bad: k.pkt_bad,
                })
                .collect(),
            last_drop: None,
        }
    }
}

fn dropped(last: &LastDrop, at_ms: i64) -> admin::Drop {
    admin::Drop {
        at_ms,
        source: last.source,
        destination: last.destination,
        key_id: last.option.map(|o| o.key_id),
        reason: last.reason.name().to_owned(),
        help: last.reason.help().to_owned(),
        hint: None,
    }
}

/// A segment that is still to be diagnosed.
struct Pending {
    socket: usize,
    packet: Vec<u8>,
    option: AoOption,
    context: Context,
    sne: u32,
    /// The keys with its KeyID, then others for its sender.
    keys: Vec<Arc<Mkt>>,
    /// The number of keys with its KeyID.
    with_id: usize,
}

fn pending_diagnosis(socket: usize, last: &LastDrop, info: &AoInfo) -> Option<Pending> {
    let ((context, sne), option) = (last.numbers?, last.option?);
    if last.packet.is_empty() {
        return None;
    }
    let mut keys: Vec<Arc<Mkt>> = Vec::new();
    for key in info.keys().matching(last.source.ip(), Ids::default()).into_iter().filter_map(|k| info.key(k)) {
        keys.push(key.mkt.clone());
    }
    keys.sort_by_key(|mkt| mkt.recv_id != option.key_id);
    keys.truncate(MAX_TRIED);
    let with_id = keys.iter().filter(|mkt| mkt.recv_id == option.key_id).count();
    Some(Pending { socket, packet: last.packet.clone(), option, context, sne, keys, with_id })
}

impl Pending {
    fn hint(&self, algorithms: &Algorithms) -> Option<Hint> {
        let segment = Segment::parse(&self.packet).ok()?;
        let expected = if self.with_id > 0 { &self.keys[..self.with_id] } else { &self.keys[..] };
        expected.iter().find_map(|mkt| {
            let reading = Reading { mkt, context: self.context, sne: self.sne };
            if self.with_id == 0 && reading.verifies(&segment, &self.option) {
                return Some(Hint::OtherKey { send_id: mkt.send_id, recv_id: mkt.recv_id });
            }
            diagnose(&segment, &self.option, &reading, self.keys.iter().map(|k| &**k), algorithms)
        })
    }
}

/// A copy of a namespace's status.
pub struct Snapshot {
    namespace: admin::AoNamespace,
    pending: Vec<Pending>,
    algorithms: Algorithms,
}

impl Snapshot {
    /// Diagnoses the dropped segments and returns the status. The host fills in what only it knows: inode and name of
    /// the namespace, ends of listeners, process ids.
    #[must_use]
    pub fn finish(self) -> admin::AoNamespace {
        let Snapshot { mut namespace, pending, algorithms } = self;
        for look in pending {
            let hint = look.hint(&algorithms);
            if let Some(drop) = &mut namespace.sockets[look.socket].last_drop {
                drop.hint = hint.map(|h| h.to_string());
            }
        }
        namespace
    }
}
