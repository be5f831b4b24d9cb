//! Outbound: bursts of packets through their associations.

use crate::ipsec::burst::{self, BURST, Item, Job, Task};
use crate::ipsec::drop::DropReason;
use crate::ipsec::encap::{ESP_LEN, UDP_LEN, Wrapped, wrap};
use crate::ipsec::event::Event;
use crate::ipsec::mtu::{V6_MIN_MTU, inner_mtu};
use crate::ipsec::packet::Packet;
use crate::ipsec::sa::{Hot, Proto, Sa, SaDir, SaId, State};
use crate::ipsec::sad::Sad;
use crate::ipsec::seq::{chained_iv, counter_iv};
use crate::ipsec::transform::{Crypt, IvKind};
use crate::wire::ip::{Family, V6_HEADER_LEN, finish, sum};
use crate::wire::walk::{proto, set_total_len};
use arrayvec::ArrayVec;
use sealane_crypto::skcipher::Direction;

/// A packet to be sealed.
pub struct Outbound<'b> {
    /// By which association; [`SaId::NONE`] for one that is left as it is.
    pub sa: SaId,
    /// The packet, with [`HEADROOM`](crate::ipsec::packet::HEADROOM) and [`TAILROOM`](crate::ipsec::packet::TAILROOM) around
    /// it, and as much more behind it as the association pads. Its own checksums are right.
    pub packet: Packet<'b>,
    /// The MTU of the path beneath; 0 when nothing is to be checked.
    pub mtu: u32,
    /// Set by [`seal`]: whether the packet is sealed, or why it is dropped. It has not left in clear either way.
    pub status: Result<(), DropReason>,
    /// Set with [`DropReason::TooBig`]: the MTU to tell the sender.
    pub inner_mtu: u32,
}

impl<'b> Outbound<'b> {
    /// A packet without an MTU to check.
    #[must_use]
    pub fn new(sa: SaId, packet: Packet<'b>) -> Self {
        Outbound { sa, packet, mtu: 0, status: Ok(()), inner_mtu: 0 }
    }
}

/// Seals each packet whose status is good, in place, by one layer: the packet of an inner association goes through here
/// again for the outer one. Status *i* belongs to packet *i*; order is kept, and sequence numbers follow it.
///
/// A number is taken before the crypto runs and is never given back.
pub fn seal(sad: &mut Sad, packets: &mut [Outbound<'_>], now_s: u64, events: &mut Vec<Event>) {
    for chunk in packets.chunks_mut(BURST) {
        sad.warm(chunk.iter().map(|out| out.sa));
        let mut items: ArrayVec<Item<'_, '_>, BURST> = ArrayVec::new();
        let mut statuses: ArrayVec<&mut Result<(), DropReason>, BURST> = ArrayVec::new();
        for Outbound { sa, packet, mtu, status, inner_mtu } in
            chunk.iter_mut().filter(|out| out.status.is_ok() && out.sa != SaId::NONE)
        {
            match prepare(sad, *sa, packet, *mtu, now_s, events) {
                Ok(job) => {
                    items.push(Item { job, packet, done: Ok(()) });
                    statuses.push(status);
                }
                Err((reason, mtu)) => (*status, *inner_mtu) = (Err(reason), mtu),
            }
        }
        burst::run(Direction::Encrypt, sad.hot(), &mut items);
        for (item, status) in items.iter_mut().zip(statuses) {
            if item.done.is_err() {
                *status = Err(if item.job.task == Task::Ah { DropReason::OutMode } else { DropReason::Driver });
            } else if item.job.udp6_at != 0 {
                udp6_checksum(item.packet, item.job.udp6_at as usize);
            }
        }
    }
}

/// IPv6 has no UDP without checksum.
fn udp6_checksum(packet: &mut Packet<'_>, udp_at: usize) {
    let start = packet.start();
    let bytes = &mut packet.bytes_mut()[..];
    let len = bytes.len() - (udp_at - start);
    let pseudo = sum(&bytes[8..V6_HEADER_LEN], len as u64 + u64::from(proto::UDP));
    let checksum = match finish(sum(&bytes[udp_at - start..], pseudo)) {
        0 => 0xffff,
        other => other,
    };
    bytes[udp_at - start + 6..udp_at - start + 8].copy_from_slice(&checksum.to_be_bytes());
}

type Refusal = (DropReason, u32);

fn prepare(
    sad: &mut Sad,
    id: SaId,
    packet: &mut Packet<'_>,
    mtu: u32,
    now_s: u64,
    events: &mut Vec<Event>,
) -> Result<Job, Refusal> {
    let plain = |reason| (reason, 0);
    let (hot, sa) = sad.pair_mut(id).ok_or((DropReason::OutInvalid, 0))?;
    if sa.dir == Some(SaDir::In) {
        return Err(plain(DropReason::OutDirection));
    }
    let fit = fits(sa, hot, packet, mtu)?;
    if hot.state != State::Valid {
        return Err(plain(DropReason::OutInvalid));
    }
    if hot.bytes_left == 0 || hot.packets_left == 0 {
        sad.at_limit(id, SaDir::Out, events).map_err(plain)?;
    }
    let (hot, sa) = sad.pair_mut(id).ok_or((DropReason::OutInvalid, 0))?;
    let number = hot.number + 1;
    let wrapped = wrap(sa, hot, packet, number).map_err(plain)?;
    let payload_len = packet.end() - wrapped.payload_at;
    let job = match sa.proto {
        Proto::Esp => esp(sa, hot, packet, &wrapped, number, id.index, fit),
        Proto::Ah => ah(sa, hot, packet, &wrapped, number, id.index),
    };
    let job = job.map_err(plain)?;
    hot.number = number;
    sa.count(hot, payload_len, now_s);
    Ok(job)
}

/// Whether a packet fits the path once it is sealed; how far it may be padded.
fn fits(sa: &mut Sa, hot: &Hot, packet: &Packet<'_>, mtu: u32) -> Result<u32, Refusal> {
    if mtu == 0 {
        return Ok(u32::MAX);
    }
    if sa.mtu.0 != mtu {
        sa.mtu = (mtu, inner_mtu(sa, hot, mtu));
    }
    let inner = sa.mtu.1;
    let too_big = match packet.bytes() {
        [0x60..=0x6f, ..] => packet.len() > inner.max(V6_MIN_MTU) as usize,
        [0x40..=0x4f, _, _, _, _, _, flags, ..] => flags & 0x40 != 0 && packet.len() > inner as usize,
        _ => return Err((DropReason::Malformed, 0)),
    };
    if too_big { Err((DropReason::TooBig, inner)) } else { Ok(inner) }
}

fn esp(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    wrapped: &Wrapped,
    number: u64,
    index: u32,
    pad_max: u32,
) -> Result<Job, DropReason> {
    let Wrapped { at, family, upper_at, payload_at, next, sum } = *wrapped;
    let (iv_len, icv_len) = (usize::from(hot.iv_len), usize::from(hot.icv_len));
    let payload_end = packet.end();
    let len = payload_end - payload_at;
    let tfc = (sa.tfc_pad.min(pad_max) as usize).saturating_sub(len);
    let sealed_len = (len + tfc + 2).next_multiple_of(hot.align.into());
    let icv_at = payload_at + sealed_len;
    let end = icv_at + icv_len;
    if end > packet.capacity() {
        return Err(DropReason::NoRoom);
    }
    packet.set(at, end);
    let buf = packet.buf();
    // Trailer: zeros to hide the length, 1, 2, 3 ... to fill up, how many of these, what it is.
    let pad_at = payload_end + tfc;
    buf[payload_end..pad_at].fill(0);
    let pad_len = icv_at - 2 - pad_at;
    for (byte, n) in buf[pad_at..icv_at - 2].iter_mut().zip(1u8..) {
        *byte = n;
    }
    (buf[icv_at - 2], buf[icv_at - 1]) = (pad_len as u8, next);

    let head_at = upper_at + usize::from(sa.outer.udp_len);
    let head = &mut buf[head_at..payload_at];
    head[..4].copy_from_slice(&sa.spi.to_be_bytes());
    head[4..8].copy_from_slice(&(number as u32).to_be_bytes());
    let mut chained = None;
    match sa.iv {
        IvKind::None => {}
        IvKind::Counter => head[ESP_LEN..].copy_from_slice(&counter_iv(number, &sa.iv_salt)),
        IvKind::Encrypted => {
            // The first block of the text is the IV: zeros, encrypted under what the number gives.
            head[ESP_LEN..].fill(0);
            let mut iv = chained_iv(number, &sa.iv_salt);
            if iv_len == 8 {
                iv.copy_within(8.., 0);
            }
            chained = Some(iv);
        }
    }
    if let Some(encap) = &sa.encap {
        let len = u16::try_from(end - upper_at).map_err(|_| DropReason::TooLong)?;
        let udp = &mut buf[upper_at..upper_at + UDP_LEN];
        udp[..2].copy_from_slice(&encap.sport.to_be_bytes());
        udp[2..4].copy_from_slice(&encap.dport.to_be_bytes());
        udp[4..6].copy_from_slice(&len.to_be_bytes());
        udp[6..].fill(0);
    }
    set_len(&mut buf[at..end], family, sum)?;
    let task = if matches!(hot.crypt, Crypt::Mac(_)) { Task::Mac } else { Task::Aead };
    let text_at = if chained.is_some() { head_at + ESP_LEN } else { payload_at };
    Ok(job(
        sa,
        number,
        Job {
            task,
            sa: index,
            head_at: head_at as u32,
            text_at: text_at as u32,
            icv_at: icv_at as u32,
            ip_len: 0,
            udp6_at: if sa.encap.is_some() && family == Family::V6 { upper_at as u32 } else { 0 },
            icv_len: hot.icv_len,
            iv_len: hot.iv_len,
            iv: chained,
            high: None,
            esn_head: [0; 12],
        },
    ))
}

/// Writes the length of the outer header, and IPv4's checksum of what its `sum` is without that.
fn set_len(packet: &mut [u8], family: Family, sum: Option<u32>) -> Result<(), DropReason> {
    match sum {
        Some(sum) => {
            let len = u16::try_from(packet.len()).map_err(|_| DropReason::TooLong)?;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            packet[10..12].copy_from_slice(&finish(u64::from(sum) + u64::from(len)).to_be_bytes());
            Ok(())
        }
        None => set_total_len(packet, family).map_err(|_| DropReason::TooLong),
    }
}

fn ah(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    wrapped: &Wrapped,
    number: u64,
    index: u32,
) -> Result<Job, DropReason> {
    let Wrapped { at, family, upper_at, payload_at, next, sum } = *wrapped;
    let end = packet.end();
    packet.set(at, end);
    let buf = packet.buf();
    let header = &mut buf[upper_at..payload_at];
    header.fill(0);
    (header[0], header[1]) = (next, (header.len() / 4 - 2) as u8);
    header[4..8].copy_from_slice(&sa.spi.to_be_bytes());
    header[8..12].copy_from_slice(&(number as u32).to_be_bytes());
    set_len(&mut buf[at..end], family, sum)?;
    Ok(job(
        sa,
        number,
        Job {
            task: Task::Ah,
            sa: index,
            head_at: upper_at as u32,
            text_at: payload_at as u32,
            icv_at: (upper_at + crate::ipsec::ah::FIXED_LEN) as u32,
            ip_len: (upper_at - at) as u32,
            udp6_at: 0,
            icv_len: hot.icv_len,
            iv_len: 0,
            iv: None,
            high: None,
            esn_head: [0; 12],
        },
    ))
}

/// Adds what extended sequence numbers ask for.
pub(crate) fn job(sa: &Sa, number: u64, mut job: Job) -> Job {
    if sa.flags.esn {
        job.high = Some(((number >> 32) as u32).to_be_bytes());
        job.esn_head[..4].copy_from_slice(&sa.spi.to_be_bytes());
        job.esn_head[4..].copy_from_slice(&number.to_be_bytes());
    }
    job
}
