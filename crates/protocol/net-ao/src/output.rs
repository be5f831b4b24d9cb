//! Outbound segments: the choice of the key and of the option's fields.

use crate::drop::DropReason;
use crate::endpoint::{Endpoint, EndpointState};
use crate::info::{AoInfo, Conn};
use crate::input::context;
use crate::kdf::Context;
use crate::mac::Coverage;
use crate::mkt::{Mkt, OPTION_HEADER_LEN, option_len};
use crate::sne::extend;
use crate::table::{Ids, Key, KeyRef};
use crate::traffic::{Origin, Traffic};
use sealane_wire::tcp::{AoOption, Segment};
use std::sync::Arc;

/// The decision about an outbound segment.
pub enum Choice {
    /// The connection does not use TCP-AO.
    Unsigned,
    /// It is signed.
    Sign(Signature),
    /// It must not leave.
    Drop(DropReason),
}

/// A key and the numbers to sign a segment with. It borrows nothing, so that the MAC may be computed while the socket
/// changes.
pub struct Signature {
    /// The MAC under the traffic key: that of the connection, or one derived for this segment.
    pub traffic: Traffic,
    /// The key.
    pub key: KeyRef,
    /// The option.
    pub option: OptionFields,
    /// Whether the MAC leaves other TCP options out.
    pub exclude_options: bool,
    seq: u32,
    sne: u32,
}

/// The fields of the option, except for the MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionFields {
    /// KeyID, which is our SendID.
    pub key_id: u8,
    /// RNextKeyID, which is the RecvID of the key that the peer should use.
    pub rnext_key_id: u8,
    /// Length of the MAC in bytes.
    pub mac_len: usize,
}

impl OptionFields {
    /// Length of the option in the TCP header in bytes, padding included.
    #[must_use]
    pub fn padded_len(&self) -> usize {
        option_len(self.mac_len)
    }
}

impl Signature {
    /// Whether both sign with the same traffic key and numbers, and write the same option.
    #[must_use]
    pub fn is_same(&self, other: &Signature) -> bool {
        let Signature { traffic, key, option, exclude_options, seq, sne } = self;
        traffic.is_same(&other.traffic)
            && (key, option) == (&other.key, &other.option)
            && (exclude_options, seq, sne) == (&other.exclude_options, &other.seq, &other.sne)
    }

    /// The MAC's coverage in a segment that starts at `seq` and has the option first in its header. Each of the
    /// segments that a superframe is cut into has its own.
    #[must_use]
    pub fn coverage(&self, seq: u32) -> Coverage {
        let first = AoOption { at: 0, key_id: 0, rnext_key_id: 0, mac_len: self.option.mac_len };
        Coverage {
            mac_at: first.mac_at(),
            mac_len: self.option.mac_len,
            sne: extend(self.sne, self.seq, seq),
            exclude_options: self.exclude_options,
        }
    }
}

/// The longest option that [`choose`] asks for, in bytes: 4 and the longest MAC, padded.
pub const MAX_PADDED_LEN: usize = (OPTION_HEADER_LEN + crate::mkt::MAX_MAC_LEN).next_multiple_of(4);

/// Chooses the key for an outbound segment. Nothing changes; call [`sent`] when the segment leaves.
#[must_use]
pub fn choose(segment: &Segment<'_>, from: &Endpoint<'_>) -> Choice {
    let Some(info) = from.info else { return Choice::Unsigned };
    let chosen = match (from.state, from.request) {
        (EndpointState::Listen, Some(request)) if !request.used_ao => return Choice::Unsigned,
        // It is signed already, or malformed. The peer would drop a segment with two options.
        _ if segment.auth() != Ok(None) => Err(DropReason::BadHeader),
        (EndpointState::Listen, _) => handshake(segment, from, info),
        (EndpointState::Closed, _) => Err(DropReason::NoSendKey),
        _ => connection(segment, info),
    };
    chosen.map_or_else(Choice::Drop, Choice::Sign)
}

fn signature(segment: &Segment<'_>, traffic: Traffic, key: (KeyRef, &Mkt), rnext_key_id: u8, sne: u32) -> Signature {
    let (key, mkt) = key;
    Signature {
        traffic,
        key,
        option: OptionFields { key_id: mkt.send_id, rnext_key_id, mac_len: mkt.mac_len },
        exclude_options: mkt.exclude_options,
        seq: segment.seq(),
        sne,
    }
}

fn derived(mkt: &Arc<Mkt>, context: &Context) -> Result<Traffic, DropReason> {
    Traffic::of(mkt, context).map_err(|_| DropReason::Driver)
}

/// Signs a segment of a connection of ours with the current key.
fn connection(segment: &Segment<'_>, info: &AoInfo) -> Result<Signature, DropReason> {
    let key = |k: Option<KeyRef>| k.and_then(|k| Some((k, info.key(k)?))).ok_or(DropReason::NoSendKey);
    let (current, key_in_use): (KeyRef, &Key) = key(info.current())?;
    let rnext = key(info.rnext())?.1.mkt.recv_id;
    let flags = segment.flags();
    let seq = segment.seq();
    let (traffic, sne) = match (&key_in_use.traffic, info.conn()) {
        // The peer's ISN is not known yet when a SYN is sent.
        _ if flags.syn() && !flags.ack() => {
            (derived(&key_in_use.mkt, &context(segment, seq, 0))?.wanted_by(Origin::Begun), 0)
        }
        (Some(traffic), Some(conn)) => (traffic.send.clone(), conn.snd.of(seq)),
        (None, Some(conn)) => (derived(&key_in_use.mkt, &conn.send_context())?, conn.snd.of(seq)),
        (_, None) => return Err(DropReason::IsnUnknown),
    };
    Ok(signature(segment, traffic, (current, &key_in_use.mkt), rnext, sne))
}

/// Signs a listener's segment: SYN-ACK, ACK and RST for a half-open connection, and RST without one.
fn handshake(segment: &Segment<'_>, from: &Endpoint<'_>, info: &AoInfo) -> Result<Signature, DropReason> {
    let peer = segment.destination().ip();
    let any = Ids::any(from.ifindex);
    let flags = segment.flags();
    let (seq, ack) = (segment.seq(), segment.ack_seq());
    let (found, rnext, local_isn, remote_isn, sne) = match from.request {
        Some(r) => {
            let asked = info.keys().lookup(peer, any.send(r.rnext_key_id));
            // A SYN-ACK is signed with the key that the SYN asked for, or not sent; for an ACK any key will do.
            let found = if flags.syn() { asked } else { asked.or_else(|| info.keys().lookup(peer, any)) };
            let local_isn = if flags.syn() { seq } else { r.snt_isn };
            (found, Some(r.key_id), local_isn, r.rcv_isn, extend(0, local_isn, seq))
        }
        // A refused SYN: its sender alone knows both ISNs, and takes this RST's number for ours.
        None if flags.rst() && flags.ack() && seq == 0 => {
            (info.keys().lookup(peer, any), None, 0, ack.wrapping_sub(1), 0)
        }
        None => return Err(DropReason::NoSendKey),
    };
    let (key, mkt) = found.and_then(|k| Some((k, &info.key(k)?.mkt))).ok_or(DropReason::NoSendKey)?;
    let traffic = derived(mkt, &context(segment, local_isn, remote_isn))?;
    Ok(signature(segment, traffic, (key, mkt), rnext.unwrap_or(mkt.recv_id), sne))
}

/// Notes that a segment of a connection of ours (not of a listener's request) leaves: a SYN tells our ISN, every other
/// segment how far we have sent, and its acknowledgment number how far we have received. Every segment has to be noted,
/// otherwise the SNEs are wrong 2 GiB later.
pub fn sent(info: &mut AoInfo, segment: &Segment<'_>) {
    let flags = segment.flags();
    let seq = segment.seq();
    if flags.syn() && !flags.ack() {
        if info.conn().is_none_or(|c| c.lisn != seq) {
            info.set_conn(Conn::new(segment.source(), segment.destination(), seq, 0));
        }
    } else if let Some(conn) = info.conn_mut().filter(|_| !flags.rst()) {
        let end = conn.snd.long(seq).wrapping_add(segment.seq_len().into());
        if end.wrapping_sub(conn.snd_nxt) as i64 > 0 {
            conn.snd_nxt = end;
        }
        if flags.ack() && !flags.syn() {
            conn.rcv.advance(segment.ack_seq());
        }
    }
}
