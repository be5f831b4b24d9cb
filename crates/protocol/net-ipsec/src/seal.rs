//! Outbound processing: seals bursts of packets with their associations.

use crate::burst::{self, BURST, Direction, Item, Job, Jobs, SpiSeq, Task};
use crate::comp;
use crate::drop::DropReason;
use crate::encap::{ESP_LEN, Wrapped, wrap};
use crate::event::Event;
use crate::mtu::{V6_MIN_MTU, inner_mtu};
use crate::packet::Packet;
use crate::partial;
use crate::sa::{Hot, Proto, Sa, SaDir, SaId, SaState};
use crate::sad::Sad;
use crate::seq::{chained_iv, counter_iv};
use crate::transform::{Crypt, IvKind};
use arrayvec::ArrayVec;
use core::num::NonZeroU32;
use sealane_crypto::{OpError, Status};
use sealane_wire::ip::{self, Family, UDP_HEADER_LEN};
use sealane_wire::outer::OuterHeader;
use sealane_wire::walk::set_total_len;

/// An outbound packet.
pub struct Outbound<'b> {
    /// The association to seal it with; [`SaId::NONE`] leaves it unchanged.
    pub sa: SaId,
    /// The packet, with [`HEADROOM`](crate::packet::HEADROOM) and [`TAILROOM`](crate::packet::TAILROOM)
    /// around it, and additional tailroom if the association pads. Its own checksums must be correct.
    pub packet: Packet<'b>,
    /// The MTU of the outer path; 0 to check nothing.
    pub mtu: u32,
    /// Whether ESP in UDP or TCP is sent by a socket, which writes the outer headers itself: they are then described in
    /// [`Self::outer`] instead of written. Set it for the last layer only, as a packet without headers cannot be sealed
    /// again. It has no effect on other packets. ESP in TCP is dropped without it ([`DropReason::OutMode`]).
    pub by_socket: bool,
    /// Set by [`seal`] if [`Self::by_socket`] took effect: the packet is now a payload, to be sent with these
    /// headers.
    pub outer: Option<OuterHeader>,
    /// Set by [`seal`]: whether the packet is sealed, or why it is dropped. Either way it has not been sent
    /// unencrypted.
    pub status: Result<(), DropReason>,
    /// Set with [`DropReason::TooBig`] and [`DropReason::IptfsTooBig`]: the MTU to report to the sender.
    pub inner_mtu: u32,
    /// Whether an association of IP-TFS has taken it, so that it leaves later and in another packet
    /// ([`Sad::next_leaving`]). Its status is a failure then, and it is not dropped.
    pub gathered: bool,
}

impl<'b> Outbound<'b> {
    /// A packet whose MTU is not checked.
    #[must_use]
    pub fn new(sa: SaId, packet: Packet<'b>) -> Self {
        Outbound { sa, packet, mtu: 0, by_socket: false, outer: None, status: Ok(()), inner_mtu: 0, gathered: false }
    }
}

/// Seals each packet whose status is good, in place, by one layer: for an outer association the packet is passed here
/// again. Status *i* belongs to packet *i*; the order is kept, and sequence numbers follow it.
///
/// A sequence number is taken before the crypto runs, and never given back.
pub fn seal(sad: &mut Sad, packets: &mut [Outbound<'_>], now_s: u64, events: &mut Vec<Event>) {
    for chunk in packets.chunks_mut(BURST) {
        let mut jobs = Jobs::new();
        begin(sad, chunk, now_s, events, &mut jobs);
        finish(sad, chunk, &jobs);
    }
}

/// Runs the remaining phases of [`seal`] with the database's own keys.
pub fn finish(sad: &Sad, packets: &mut [Outbound<'_>], jobs: &[Job]) {
    let hot = sad.hot();
    let mut items: ArrayVec<Item<'_, '_>, BURST> = ArrayVec::new();
    let mut statuses: ArrayVec<&mut Result<(), DropReason>, BURST> = ArrayVec::new();
    let mut rest = jobs.iter();
    let mut next = rest.next();
    for (at, Outbound { packet, status, .. }) in packets.iter_mut().enumerate() {
        if let Some(job) = next.filter(|job| job.packet() == at) {
            items.push(Item::of(job, &hot[job.sa.index as usize].crypt, packet));
            statuses.push(status);
            next = rest.next();
        }
    }
    burst::run(Direction::Encrypt, &mut items);
    items.iter().zip(statuses).for_each(|(item, status)| *status = verdict(item.job, item.done));
}

/// The first phase of [`seal`], for at most [`BURST`] packets: everything but the crypto. Every packet with a job must
/// be [`run`] next, in this thread or another one. Its status is a failure until [`end`], so that a forgotten packet is
/// not sent.
///
/// [`run`]: burst::run
///
/// # Panics
/// When there are more packets.
pub fn begin(sad: &mut Sad, packets: &mut [Outbound<'_>], now_s: u64, events: &mut Vec<Event>, jobs: &mut Jobs) {
    assert!(packets.len() <= BURST, "a burst");
    jobs.clear();
    sad.warm(packets.iter().map(|out| out.sa));
    let mut bytes = 0;
    for (at, Outbound { sa, packet, mtu, by_socket, outer, status, inner_mtu, .. }) in (0..).zip(packets) {
        if status.is_err() || *sa == SaId::NONE {
            continue;
        }
        if outer.is_some() {
            // A payload without headers is the caller's error, see `by_socket`.
            *status = Err(DropReason::OutMode);
            continue;
        }
        let prepared = if *by_socket {
            prepare::<true>(sad, *sa, packet, *mtu, Some(&mut *outer), now_s, events, jobs)
        } else {
            prepare::<false>(sad, *sa, packet, *mtu, None, now_s, events, jobs)
        };
        match prepared {
            Ok(Prepared { payload_len, has_job: true }) => {
                bytes += payload_len as u64;
                jobs.last_mut().expect("it was put there").at = at;
                // It stays a failure until the crypto succeeds.
                *status = Err(DropReason::Driver);
            }
            // IPComp protects nothing.
            Ok(Prepared { has_job: false, .. }) => {}
            Err((reason, mtu)) => (*status, *inner_mtu, *outer) = (Err(reason), mtu, None),
        }
    }
    sad.traffic.sealed_packets += jobs.len() as u64;
    sad.traffic.sealed_bytes += bytes;
}

/// The last phase of [`seal`]: sets the status of packets with jobs. A sealed packet may be sent even if its
/// association was deleted in the meantime, as on Linux (`xfrm_output_resume`): its number was taken while the
/// association existed.
pub fn end(packets: &mut [Outbound<'_>], jobs: &[Job], done: &[Status]) {
    for (job, done) in jobs.iter().zip(done) {
        packets[job.packet()].status = verdict(job, *done);
    }
}

fn verdict(job: &Job, done: Status) -> Result<(), DropReason> {
    match done {
        Ok(()) => Ok(()),
        // The headers cannot be covered by AH.
        Err(OpError::AssocLen) if job.task == Task::Ah => Err(DropReason::OutMode),
        Err(_) => Err(DropReason::Driver),
    }
}

type SealError = (DropReason, u32);

/// A packet that is ready for its crypto.
struct Prepared {
    payload_len: usize,
    /// Whether there is any crypto.
    has_job: bool,
}

/// Prepares one packet. `DESCRIBE` is whether `describe` may be given: packets
/// whose headers are written pay nothing for the others.
fn prepare<const DESCRIBE: bool>(
    sad: &mut Sad,
    id: SaId,
    packet: &mut Packet<'_>,
    mtu: u32,
    describe: Option<&mut Option<OuterHeader>>,
    now_s: u64,
    events: &mut Vec<Event>,
    jobs: &mut Jobs,
) -> Result<Prepared, SealError> {
    let plain = |reason| (reason, 0);
    let (hot, sa) = sad.pair_mut(id).ok_or((DropReason::OutInvalid, 0))?;
    if sa.dir == Some(SaDir::In) {
        return Err(plain(DropReason::OutDirection));
    }
    let fit = check_mtu(sa, hot, packet, mtu)?;
    if hot.state != SaState::Valid {
        return Err(plain(DropReason::OutInvalid));
    }
    if hot.bytes_left == 0 || hot.packets_left == 0 {
        sad.at_limit(id, SaDir::Out, events).map_err(plain)?;
    }
    let (hot, sa) = sad.pair_mut(id).ok_or((DropReason::OutInvalid, 0))?;
    if sa.proto.is_keyless() {
        let payload_len = compress(sad, id, packet, fit, now_s).map_err(plain)?;
        return Ok(Prepared { payload_len, has_job: false });
    }
    if matches!(hot.crypt, Crypt::Partial(_)) {
        partial::check(packet.bytes()).map_err(plain)?;
    }
    let number = hot.number + 1;
    let describe = describe.filter(|_| DESCRIBE && sa.encap.is_some());
    let wrapped = wrap(sa, hot, packet, number, fit, describe).map_err(plain)?;
    if sa.is_in_tcp() && !wrapped.described {
        // Only the owner of the connection can write the headers.
        return Err(plain(DropReason::OutMode));
    }
    let payload_len = packet.end() - wrapped.payload_at;
    let job = match sa.proto {
        Proto::Esp => esp::<DESCRIBE>(sa, hot, packet, &wrapped, number, id, fit, jobs),
        Proto::Ah => ah(sa, hot, packet, &wrapped, number, id, jobs),
        Proto::Comp | Proto::Ipip => Err(DropReason::OutMode),
    };
    job.map_err(plain)?;
    hot.number = number;
    if number >= sa.notify_from[0] {
        sa.notify_from = [u64::MAX; 2];
        events.push(Event::Numbers(id));
    }
    sa.count(hot, payload_len, now_s);
    Ok(Prepared { payload_len, has_job: true })
}

/// Compresses a packet's payload if that makes it shorter (RFC 3173 section 2.2; `ipcomp_output`), and returns its length
/// before. Otherwise the packet has no header of IPComp: in tunnel mode it is IP in IP.
#[inline(never)]
fn compress(sad: &mut Sad, id: SaId, packet: &mut Packet<'_>, fit: u32, now_s: u64) -> Result<usize, DropReason> {
    let mut codec = sad.codec.take().unwrap_or_default();
    let done = compress_by(&mut codec, sad, id, packet, fit, now_s);
    sad.codec = Some(codec);
    done
}

fn compress_by(
    codec: &mut comp::Codec,
    sad: &mut Sad,
    id: SaId,
    packet: &mut Packet<'_>,
    fit: u32,
    now_s: u64,
) -> Result<usize, DropReason> {
    let (hot, sa) = sad.pair_mut(id).ok_or(DropReason::OutInvalid)?;
    if sa.proto != Proto::Comp {
        // It is for what comes in.
        return Err(DropReason::OutMode);
    }
    // There are no sequence numbers. Outer headers whose packets may be cut need identifications that differ.
    let number = sa.usage(hot).packets + 1;
    let Wrapped { at, family, payload_at, next, next_at, .. } = wrap(sa, hot, packet, number, fit, None)?;
    let mut end = packet.end();
    let payload_len = end - payload_at;
    match codec.compress(&packet.buf()[payload_at..end]) {
        Some(compressed) => {
            let (header, body) = packet.buf()[payload_at..].split_at_mut(comp::HEADER_LEN);
            header.copy_from_slice(&comp::header(next, sa.spi));
            body[..compressed.len()].copy_from_slice(compressed);
            end = payload_at + comp::HEADER_LEN + compressed.len();
        }
        None => packet.buf()[next_at] = next,
    }
    packet.set(at, end);
    write_outer_len(packet.bytes_mut(), family, None)?;
    sa.count(hot, payload_len, now_s);
    Ok(payload_len)
}

/// Checks that the sealed packet fits the path's MTU, or may be cut. Returns the length that fits, up to which it may
/// be padded.
fn check_mtu(sa: &mut Sa, hot: &Hot, packet: &Packet<'_>, mtu: u32) -> Result<u32, SealError> {
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

fn esp<const DESCRIBE: bool>(
    sa: &Sa,
    hot: &Hot,
    packet: &mut Packet<'_>,
    wrapped: &Wrapped,
    number: u64,
    id: SaId,
    pad_max: u32,
    jobs: &mut Jobs,
) -> Result<(), DropReason> {
    let Wrapped { at, family, upper_at, payload_at, next, sum, described, .. } = *wrapped;
    let described = DESCRIBE && described;
    let (iv_len, icv_len) = (usize::from(hot.iv_len), usize::from(hot.icv_len));
    let payload_end = packet.end();
    let len = payload_end - payload_at;
    let tfc = (sa.tfc_pad.min(pad_max) as usize).saturating_sub(len);
    let sealed_len = (len + tfc + 2).next_multiple_of(hot.align.into());
    let icv_at = payload_at + sealed_len;
    let end = icv_at + icv_len;
    if end > packet.room() {
        return Err(DropReason::NoRoom);
    }
    packet.set(at, end);
    let buf = packet.buf();
    // Trailer: zeros that hide the length, padding 1, 2, 3 ..., pad length, next header.
    let pad_at = payload_end + tfc;
    buf[payload_end..pad_at].fill(0);
    let pad_len = icv_at - 2 - pad_at;
    for (byte, n) in buf[pad_at..icv_at - 2].iter_mut().zip(1u8..) {
        *byte = n;
    }
    (buf[icv_at - 2], buf[icv_at - 1]) = (pad_len as u8, next);

    let head_at = if described { upper_at } else { upper_at + usize::from(sa.outer.encap_len) };
    let head = &mut buf[head_at..payload_at];
    head[..4].copy_from_slice(&sa.spi.to_be_bytes());
    head[4..8].copy_from_slice(&(number as u32).to_be_bytes());
    let mut chained = None;
    match sa.iv {
        IvKind::None => {}
        IvKind::Counter => head[ESP_LEN..].copy_from_slice(&counter_iv(number, &sa.iv_salt)),
        IvKind::Encrypted => {
            // The IV is the first block of the text: zeros, encrypted with an IV made from the number.
            head[ESP_LEN..].fill(0);
            let mut iv = chained_iv(number, &sa.iv_salt);
            if iv_len == 8 {
                iv.copy_within(8.., 0);
            }
            chained = Some(iv);
        }
    }
    let mut udp6_at = 0;
    match &sa.encap {
        Some(_) if described => {
            // IPv6's payload length does not count its header; that of a message in TCP counts none.
            let ip_len = if family == Family::V4 && !sa.is_in_tcp() { ip::V4_HEADER_LEN } else { 0 };
            u16::try_from(ip_len + usize::from(sa.outer.encap_len) + end - at).map_err(|_| DropReason::TooLong)?;
        }
        Some(encap) => {
            let len = u16::try_from(end - upper_at).map_err(|_| DropReason::TooLong)?;
            let udp = &mut buf[upper_at..upper_at + UDP_HEADER_LEN];
            udp[..2].copy_from_slice(&encap.sport.to_be_bytes());
            udp[2..4].copy_from_slice(&encap.dport.to_be_bytes());
            udp[4..6].copy_from_slice(&len.to_be_bytes());
            udp[6..].fill(0);
            if family == Family::V6 {
                udp6_at = upper_at;
            }
            write_outer_len(&mut buf[at..end], family, sum)?;
        }
        None => write_outer_len(&mut buf[at..end], family, sum)?,
    }
    let task = Task::of_esp(&hot.crypt);
    let text_at = if chained.is_some() { head_at + ESP_LEN } else { payload_at };
    jobs.push(Job {
        task,
        at: 0,
        icv_len: hot.icv_len,
        iv_len: hot.iv_len,
        esn: sa.flags.esn,
        chained: chained.is_some(),
        described: false,
        ip_len: 0,
        next_at: 0,
        port: None,
        sa: id,
        head_at: head_at as u32,
        text_at: text_at as u32,
        icv_at: icv_at as u32,
        udp6_at: udp6_at as u32,
        spi_seq: SpiSeq::new(sa.spi, number),
        iv: chained.unwrap_or_default(),
    });
    Ok(())
}

/// Writes the length of the outer header, and IPv4's checksum from `sum`, which covers everything but the length.
fn write_outer_len(packet: &mut [u8], family: Family, sum: Option<NonZeroU32>) -> Result<(), DropReason> {
    match sum {
        Some(sum) => {
            let len = u16::try_from(packet.len()).map_err(|_| DropReason::TooLong)?;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            packet[10..12].copy_from_slice(&ip::finish(u64::from(sum.get()) + u64::from(len)).to_be_bytes());
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
    id: SaId,
    jobs: &mut Jobs,
) -> Result<(), DropReason> {
    let Wrapped { at, family, upper_at, payload_at, next, sum, .. } = *wrapped;
    let end = packet.end();
    packet.set(at, end);
    let buf = packet.buf();
    let header = &mut buf[upper_at..payload_at];
    header.fill(0);
    (header[0], header[1]) = (next, (header.len() / 4 - 2) as u8);
    header[4..8].copy_from_slice(&sa.spi.to_be_bytes());
    header[8..12].copy_from_slice(&(number as u32).to_be_bytes());
    write_outer_len(&mut buf[at..end], family, sum)?;
    jobs.push(Job {
        task: Task::Ah,
        at: 0,
        icv_len: hot.icv_len,
        iv_len: 0,
        esn: sa.flags.esn,
        chained: false,
        described: false,
        ip_len: (upper_at - at) as u32,
        next_at: 0,
        port: None,
        sa: id,
        head_at: upper_at as u32,
        text_at: payload_at as u32,
        icv_at: (upper_at + crate::ah::FIXED_LEN) as u32,
        udp6_at: 0,
        spi_seq: SpiSeq::new(sa.spi, number),
        iv: [0; 16],
    });
    Ok(())
}
