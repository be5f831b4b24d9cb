//! Decisions about inbound segments as in Linux (`tcp_inbound_hash`, `tcp_inbound_ao_hash`), in three steps so that
//! MACs are verified in bursts: [`classify`], [`mac::verify`](crate::mac::verify), [`settle`].

use crate::drop::{Counter, DropReason, Netstat};
use crate::endpoint::{Endpoint, EndpointState};
use crate::info::AoInfo;
use crate::kdf::Context;
use crate::mac::{Coverage, Verify};
use crate::mkt::unmapped;
use crate::sne::extend;
use crate::table::{Ids, KeyRef};
use crate::traffic::{Origin, Traffic};
use core::net::SocketAddr;
use sealane_crypto::mac::MacTfm;
use sealane_wire::tcp::{AoOption, Auth, Segment};

/// The decision about an inbound segment before its MAC is verified.
pub enum Class {
    /// It is unsigned, and TCP-AO requires no signature. TCP-MD5 may still require one.
    Unsigned,
    /// It is signed with TCP-MD5, which the kernel decides about.
    Md5,
    /// Its MAC decides.
    Verify(Check),
    /// It is dropped. [`refuse`] counts it.
    Drop(Refusal),
}

/// A segment that is dropped without verifying its MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: DropReason,
    /// The key on which it counts.
    pub key: Option<KeyRef>,
}

/// A segment whose MAC is to be verified. It borrows nothing, so that this may happen while the socket changes.
pub struct Check {
    /// The MAC under the traffic key: that of the connection, or one derived for this segment.
    pub traffic: Traffic,
    /// The MAC's coverage.
    pub cover: Coverage,
    /// The option.
    pub option: AoOption,
    /// The input of [`settle`].
    pub ticket: Ticket,
}

/// The part of a [`Check`] that [`settle`] needs once the MAC has been verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The key.
    pub key: KeyRef,
    state: EndpointState,
    rnext_key_id: u8,
    seq: u32,
    /// The SNE under which the MAC was verified. It is kept, because earlier segments of the burst may move the base.
    sne: u32,
    ack: Option<u32>,
    syn: bool,
}

impl Ticket {
    fn long_seq(&self) -> u64 {
        u64::from(self.sne) << 32 | u64::from(self.seq)
    }
}

impl Check {
    /// The operation for [`mac::verify`](crate::mac::verify), by the MAC of [`Check::traffic`].
    #[must_use]
    pub fn op<'o>(&'o self, tfm: &'o MacTfm, segment: &Segment<'o>) -> Verify<'o> {
        Verify { tfm, packet: segment.packet(), at: *segment.layout(), cover: self.cover, status: Ok(()) }
    }
}

fn drop(reason: DropReason) -> Class {
    Class::Drop(Refusal { reason, key: None })
}

/// Decides about an inbound segment up to its MAC. Nothing is counted and nothing changes.
#[must_use]
pub fn classify(segment: &Segment<'_>, to: &Endpoint<'_>) -> Class {
    let Ok(auth) = segment.auth() else { return drop(DropReason::BadHeader) };
    if to.request.is_some_and(|r| r.used_ao != matches!(auth, Some(Auth::Ao(_)))) {
        return drop(DropReason::Handshake);
    }
    match (auth, to.info) {
        (Some(Auth::Ao(option)), Some(info)) => match check(segment, to, info, option) {
            Ok(check) => Class::Verify(check),
            Err(refusal) => Class::Drop(refusal),
        },
        (Some(Auth::Ao(_)), None) => drop(DropReason::Unexpected),
        (auth, Some(info)) if wants_ao(info, segment, to) => drop(match auth {
            None => DropReason::Required,
            // The kernel's own TCP-MD5 code drops these; a kernel built without it would let them pass.
            Some(_) if !to.md5 => DropReason::Md5Unexpected,
            Some(_) => return Class::Md5,
        }),
        (None, _) => Class::Unsigned,
        (Some(Auth::Md5 { .. }), _) => Class::Md5,
    }
}

/// Whether the socket takes no unsigned segment from this peer (`tcp_ao_required`).
fn wants_ao(info: &AoInfo, segment: &Segment<'_>, to: &Endpoint<'_>) -> bool {
    info.ao_required || info.keys().lookup(segment.source().ip(), Ids::any(to.ifindex)).is_some()
}

/// ISNs of sender and receiver, and the SNE.
struct Numbers {
    source_isn: u32,
    destination_isn: u32,
    sne: u32,
    /// The origin of the ISNs: this segment, or an authentic one before it.
    origin: Origin,
}

fn check(segment: &Segment<'_>, to: &Endpoint<'_>, info: &AoInfo, option: AoOption) -> Result<Check, Refusal> {
    let refuse = |reason, key| Err(Refusal { reason, key });
    let flags = segment.flags();
    let (seq, ack) = (segment.seq(), flags.ack().then(|| segment.ack_seq()));
    let first_syn = flags.syn() && ack.is_none();
    let synchronized = matches!(to.state, EndpointState::Established | EndpointState::TimeWait);

    let by_key_id = Ids::default().recv(option.key_id);
    let found = match to.state {
        EndpointState::Closed => return refuse(DropReason::Closed, None),
        // All keys of a connection match its peer; the peer most likely uses the one that we asked for.
        EndpointState::Established | EndpointState::TimeWait => info
            .rnext()
            .filter(|k| info.key(*k).is_some_and(|k| k.mkt.recv_id == option.key_id))
            .or_else(|| info.keys().by_ids(by_key_id)),
        _ => info.keys().lookup(segment.source().ip(), Ids { ifindex: Some(to.ifindex), ..by_key_id }),
    };
    let Some((key_ref, key)) = found.and_then(|k| Some((k, info.key(k)?))) else {
        return refuse(DropReason::KeyNotFound, None);
    };

    let cached = key.traffic.as_ref().filter(|_| synchronized && !first_syn);
    let known = cached.zip(info.conn()).map(|(traffic, conn)| (&traffic.receive, conn.rcv.of(seq)));
    let numbers = if known.is_none() { numbers(segment, to, info) } else { None };
    if known.is_none() && numbers.is_none() {
        return refuse(DropReason::IsnUnknown, None);
    }
    // A key is derived for what may be authentic, and for nothing else.
    if option.mac_len != key.mkt.mac_len {
        return refuse(DropReason::MacLen, Some(key_ref));
    }
    let (traffic, sne) = match (known, numbers) {
        (Some((traffic, sne)), _) => (Ok(traffic.clone()), sne),
        (None, Some(n)) => {
            let traffic = Traffic::of(&key.mkt, &context(segment, n.source_isn, n.destination_isn));
            (traffic.map(|traffic| traffic.wanted_by(n.origin)), n.sne)
        }
        (None, None) => return refuse(DropReason::IsnUnknown, None),
    };
    let Ok(traffic) = traffic else { return refuse(DropReason::Driver, Some(key_ref)) };
    if traffic.wanted().is_some() && answers_nothing(segment, to, info) {
        return refuse(DropReason::Mac, Some(key_ref));
    }
    Ok(Check {
        traffic,
        cover: Coverage {
            mac_at: option.mac_at(),
            mac_len: option.mac_len,
            sne,
            exclude_options: key.mkt.exclude_options,
        },
        option,
        ticket: Ticket {
            key: key_ref,
            state: to.state,
            rnext_key_id: option.rnext_key_id,
            seq,
            sne,
            ack,
            syn: flags.syn(),
        },
    })
}

/// Whether an answer to our SYN is none. The MAC of one that acknowledges another SYN cannot be right, because the traffic key of the
/// peer is of the ISN that it acknowledges, and an RST that acknowledges nothing ends no connection that has only begun.
fn answers_nothing(segment: &Segment<'_>, to: &Endpoint<'_>, info: &AoInfo) -> bool {
    let flags = segment.flags();
    let is_none =
        if flags.ack() { info.conn().is_some_and(|conn| !acknowledges(segment, conn.lisn)) } else { flags.rst() };
    to.state == EndpointState::SynSent && is_none
}

/// Whether a segment acknowledges the SYN with this ISN, and nothing else.
fn acknowledges(segment: &Segment<'_>, isn: u32) -> bool {
    segment.flags().ack() && segment.ack_seq() == isn.wrapping_add(1)
}

/// The numbers of a segment; `None` where they cannot be known.
fn numbers(segment: &Segment<'_>, to: &Endpoint<'_>, info: &AoInfo) -> Option<Numbers> {
    let flags = segment.flags();
    let (seq, ack) = (segment.seq(), segment.ack_seq());
    let of = |origin| move |source_isn, destination_isn, sne| Numbers { source_isn, destination_isn, sne, origin };
    let (known, told, answer) = (of(Origin::Known), of(Origin::Forged), of(Origin::Answer));
    if flags.syn() && !flags.ack() {
        return Some(told(seq, 0, 0));
    }
    match (to.state, to.request) {
        (EndpointState::Listen, Some(r)) => Some(known(r.rcv_isn, r.snt_isn, extend(0, r.rcv_isn, seq))),
        // After a SYN cookie, the ACK itself tells both ISNs.
        (EndpointState::Listen, None) if flags.ack() && !flags.syn() => {
            let isn = seq.wrapping_sub(1);
            Some(told(isn, ack.wrapping_sub(1), extend(0, isn, seq)))
        }
        (EndpointState::Listen, None) if flags.syn() => Some(told(seq, 0, 0)),
        (EndpointState::SynSent | EndpointState::SynReceived, _) => {
            let conn = info.conn()?;
            Some(match flags.syn() || flags.rst() {
                true if acknowledges(segment, conn.lisn) => answer(seq, conn.lisn, 0),
                true => told(seq, conn.lisn, 0),
                false => known(conn.risn, conn.lisn, 0),
            })
        }
        (EndpointState::Established | EndpointState::TimeWait, _) => {
            let conn = info.conn()?;
            Some(known(conn.risn, conn.lisn, conn.rcv.of(seq)))
        }
        _ => None,
    }
}

/// The KDF context of the direction in which a segment travels.
pub(crate) fn context(segment: &Segment<'_>, source_isn: u32, destination_isn: u32) -> Context {
    let end = |a: SocketAddr| SocketAddr::new(unmapped(a.ip()), a.port());
    Context { source: end(segment.source()), destination: end(segment.destination()), source_isn, destination_isn }
}

/// Counts a segment that [`classify`] refused.
pub fn refuse(refusal: &Refusal, info: Option<&mut AoInfo>, netstat: &mut Netstat) {
    netstat.dropped(refusal.reason);
    if let Some(info) = info {
        info.count_drop(refusal.reason, refusal.key);
    }
}

/// Applies the result of verifying a MAC: counters; after success on a connection, sequence numbers and the key that
/// the peer asks for; after a verified SYN-ACK, the traffic keys.
///
/// Acknowledgments move `snd_una` only up to what [`sent`](crate::output::sent) has noted, as in the kernel, so
/// that a replayed old one does not.
///
/// `info` is the one that [`classify`] saw. Segments of one connection settle in their order. All segments of a burst
/// are classified by the state before the burst; that matters only after a SYN-ACK.
///
/// # Errors
/// The reason for dropping the segment: the verdict itself, or [`DropReason::Driver`] when traffic keys cannot be
/// derived.
pub fn settle(
    info: &mut AoInfo,
    ticket: &Ticket,
    verdict: Result<(), DropReason>,
    netstat: &mut Netstat,
) -> Result<(), DropReason> {
    if let Err(reason) = verdict {
        netstat.dropped(reason);
        info.count_drop(reason, Some(ticket.key));
        return Err(reason);
    }
    netstat.bump(Counter::Good);
    info.count_good(ticket.key);
    let first_syn = ticket.syn && ticket.ack.is_none();
    match ticket.state {
        EndpointState::Established | EndpointState::TimeWait if !first_syn => {
            let current = info.current().and_then(|k| info.key(k));
            // A key that is not there yet would silence a connection that has another one. The peer goes on to ask.
            let waits = |k: KeyRef| info.key(k).is_some_and(|k| k.is_wanted()) && current.is_some();
            if current.is_none_or(|k| k.mkt.send_id != ticket.rnext_key_id)
                && let Some(asked) = info.keys().by_ids(Ids::default().send(ticket.rnext_key_id))
                && !waits(asked)
            {
                info.set_current(asked);
            }
            if let Some(conn) = info.conn_mut() {
                conn.rcv.advance_to(ticket.long_seq());
                if let Some(ack) = ticket.ack {
                    conn.snd.acknowledge(ack, conn.snd_nxt);
                }
            }
        }
        EndpointState::SynSent | EndpointState::SynReceived if ticket.syn => {
            info.learn_peer_isn(ticket.seq);
            info.derive().map_err(|_| DropReason::Driver)?;
        }
        EndpointState::SynReceived => {
            if let Some(conn) = info.conn_mut() {
                conn.rcv.advance_to(ticket.long_seq());
            }
        }
        _ => {}
    }
    Ok(())
}

/// ICMP errors that would tear a connection down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// ICMPv4 type 3 with this code.
    V4(u8),
    /// ICMPv6 type 1 with this code.
    V6(u8),
}

/// Whether an ICMP error about a connection is to be ignored (RFC 5925 section 7.8, `tcp_ao_ignore_icmp`): protocol,
/// port or "fragmentation needed" unreachable over IPv4, prohibited or port unreachable over IPv6, in synchronized
/// states, unless the program accepts them. Counts it if so.
pub fn ignore_icmp(info: &mut AoInfo, state: EndpointState, error: IcmpError, netstat: &mut Netstat) -> bool {
    let hard = match error {
        IcmpError::V4(code) => (2..=4).contains(&code),
        IcmpError::V6(code) => code == 1 || code == 4,
    };
    let ignored = hard && matches!(state, EndpointState::Established | EndpointState::TimeWait) && !info.accept_icmps;
    if ignored {
        netstat.dropped(DropReason::Icmp);
        info.count_drop(DropReason::Icmp, None);
    }
    ignored
}
