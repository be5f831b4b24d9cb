//! The crypto of a burst: one call for all packets whose algorithm is an AEAD, one for those of a MAC, one for AH, over
//! whatever keys. Everything is done in place.

use crate::ipsec::ah::{self, Headers};
use crate::ipsec::packet::Packet;
use crate::ipsec::sa::Hot;
use crate::ipsec::transform::{Crypt, MAX_ICV_LEN};
use arrayvec::ArrayVec;
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::mac::{self, MacOp, MacTfm, VerifyOp};
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{OpError, Status};

/// How many packets go to the drivers together.
pub(crate) const BURST: usize = 64;

/// How many AH packets do: their headers are copied.
const AH_BURST: usize = 16;

/// What is to be computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// An AEAD over text and tag.
    Aead,
    /// A MAC over ESP header and payload.
    Mac,
    /// A MAC over IP headers, AH and payload.
    Ah,
}

/// Where a packet's parts lie in its buffer, and what belongs to its crypto beside them.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) task: Task,
    /// Slot of the association.
    pub(crate) sa: u32,
    /// ESP or AH header.
    pub(crate) head_at: u32,
    /// What an AEAD encrypts. What lies between the header and this is authenticated with it.
    pub(crate) text_at: u32,
    pub(crate) icv_at: u32,
    /// Length of the IP headers in front of AH, from the packet's start on.
    pub(crate) ip_len: u32,
    /// A UDP header whose checksum is to be computed at the end; 0 for none.
    pub(crate) udp6_at: u32,
    pub(crate) icv_len: u8,
    pub(crate) iv_len: u8,
    /// The IV, where it is not what lies behind the ESP header.
    pub(crate) iv: Option<[u8; 16]>,
    /// The high half of an extended sequence number.
    pub(crate) high: Option<[u8; 4]>,
    /// SPI, high half, low half.
    pub(crate) esn_head: [u8; 12],
}

/// A packet on its way through the crypto.
pub(crate) struct Item<'p, 'b> {
    pub(crate) job: Job,
    pub(crate) packet: &'p mut Packet<'b>,
    pub(crate) done: Status,
}

/// Runs all items.
pub(crate) fn run(dir: Direction, hot: &[Hot], items: &mut [Item<'_, '_>]) {
    aeads(dir, hot, items);
    if items.iter().any(|item| item.job.task == Task::Mac) {
        macs(dir, hot, items);
    }
    if items.iter().any(|item| item.job.task == Task::Ah) {
        for chunk in items.chunks_mut(AH_BURST) {
            ahs(dir, hot, chunk);
        }
    }
}

struct Parts<'a> {
    aad: [&'a [u8]; 2],
    iv: &'a [u8],
    text: &'a mut [u8],
    tag: &'a mut [u8],
}

fn parts<'a>(job: &'a Job, packet: &'a mut Packet<'_>) -> Parts<'a> {
    let (head, rest) = packet.buf().split_at_mut(job.text_at as usize);
    let (text, rest) = rest.split_at_mut((job.icv_at - job.text_at) as usize);
    let tag = &mut rest[..job.icv_len.into()];
    let head = &head[job.head_at as usize..];
    let (esp, behind) = head.split_at(8);
    let iv_len = usize::from(job.iv_len);
    let iv = match &job.iv {
        Some(iv) => &iv[..iv_len],
        None => &behind[..iv_len],
    };
    let aad = match job.high {
        Some(_) => [&job.esn_head[..], behind],
        None if behind.is_empty() => [esp, behind],
        None => [head, &[]],
    };
    Parts { aad, iv, text, tag }
}

fn aeads(dir: Direction, hot: &[Hot], items: &mut [Item<'_, '_>]) {
    let mut all: ArrayVec<(Parts<'_>, &AeadTfm), BURST> = ArrayVec::new();
    for Item { job, packet, .. } in items.iter_mut().filter(|item| item.job.task == Task::Aead) {
        let Crypt::Aead(tfm) = &hot[job.sa as usize].crypt else { unreachable!("the task is the state's") };
        all.push((parts(job, packet), tfm));
    }
    let mut ops: ArrayVec<AeadOp<'_>, BURST> = all
        .iter_mut()
        .map(|(parts, tfm)| AeadOp {
            tfm,
            dir,
            nonce: parts.iv,
            aad: if parts.aad[1].is_empty() { &parts.aad[..1] } else { &parts.aad },
            data: (&mut *parts.text).into(),
            tag: parts.tag,
            status: Ok(()),
        })
        .collect();
    aead::crypt(&mut ops);
    let statuses: ArrayVec<Status, BURST> = ops.iter().map(|op| op.status).collect();
    drop(ops);
    drop(all);
    let ran = items.iter_mut().filter(|item| item.job.task == Task::Aead);
    ran.zip(statuses).for_each(|(item, status)| item.done = status);
}

/// A message of `N` pieces, of which the last may be empty, and its tag.
struct Tagged<'a, const N: usize> {
    data: [&'a [u8]; N],
    tag: &'a mut [u8],
    tfm: &'a MacTfm,
}

impl<const N: usize> Tagged<'_, N> {
    /// Drivers are fastest with few pieces.
    fn pieces(&self) -> &[&[u8]] {
        if self.data[N - 1].is_empty() { &self.data[..N - 1] } else { &self.data }
    }
}

/// Signs or verifies all of them.
fn tag_all<const N: usize, const B: usize>(
    dir: Direction,
    all: &mut ArrayVec<Tagged<'_, N>, B>,
) -> ArrayVec<Status, B> {
    match dir {
        Direction::Encrypt => {
            let mut ops: ArrayVec<MacOp<'_>, B> = ArrayVec::new();
            for Tagged { data, tag, tfm } in all.iter_mut() {
                let pieces = if data[N - 1].is_empty() { &data[..N - 1] } else { &data[..] };
                ops.push(MacOp::new(tfm, pieces, tag));
            }
            mac::sign(&mut ops);
            ops.iter().map(|op| op.status).collect()
        }
        Direction::Decrypt => {
            let ops = all.iter().map(|t| VerifyOp { tfm: t.tfm, data: t.pieces(), tag: t.tag, status: Ok(()) });
            let mut ops: ArrayVec<VerifyOp<'_>, B> = ops.collect();
            mac::verify(&mut ops);
            ops.iter().map(|op| op.status).collect()
        }
    }
}

fn mac_of<'a>(hot: &'a [Hot], job: &Job) -> &'a MacTfm {
    match &hot[job.sa as usize].crypt {
        Crypt::Mac(tfm) => tfm,
        _ => unreachable!("the task is the state's"),
    }
}

fn macs(dir: Direction, hot: &[Hot], items: &mut [Item<'_, '_>]) {
    let mut all: ArrayVec<Tagged<'_, 2>, BURST> = ArrayVec::new();
    for Item { job, packet, .. } in items.iter_mut().filter(|item| item.job.task == Task::Mac) {
        let (covered, rest) = packet.buf().split_at_mut(job.icv_at as usize);
        let high: &[u8] = job.high.as_ref().map_or(&[], |high| high);
        let data = [&covered[job.head_at as usize..], high];
        all.push(Tagged { data, tag: &mut rest[..job.icv_len.into()], tfm: mac_of(hot, job) });
    }
    let statuses = tag_all(dir, &mut all);
    drop(all);
    let ran = items.iter_mut().filter(|item| item.job.task == Task::Mac);
    ran.zip(statuses).for_each(|(item, status)| item.done = status);
}

/// The covered form of IP headers and AH, its ICV 0.
type AhHead = ArrayVec<u8, { ah::MAX_HEADERS_LEN + ah::FIXED_LEN + MAX_ICV_LEN }>;

/// Joins them; `None` when the headers cannot be covered.
fn ah_head(job: &Job, packet: &Packet<'_>, leaving: bool) -> Option<AhHead> {
    let bytes = packet.bytes();
    let ip_len = job.ip_len as usize;
    let family = if bytes[0] >> 4 == 4 { crate::wire::ip::Family::V4 } else { crate::wire::ip::Family::V6 };
    let headers: Headers = ah::covered(&bytes[..ip_len], family, leaving)?;
    let mut head = AhHead::new();
    head.try_extend_from_slice(&headers).ok()?;
    head.try_extend_from_slice(&bytes[ip_len..ip_len + ah::FIXED_LEN]).ok()?;
    head.try_extend_from_slice(&[0; MAX_ICV_LEN][..job.icv_len.into()]).ok()?;
    Some(head)
}

fn ahs(dir: Direction, hot: &[Hot], items: &mut [Item<'_, '_>]) {
    let mut heads: ArrayVec<AhHead, AH_BURST> = ArrayVec::new();
    for item in items.iter_mut().filter(|item| item.job.task == Task::Ah) {
        match ah_head(&item.job, item.packet, dir == Direction::Encrypt) {
            Some(head) => {
                heads.push(head);
                item.done = Ok(());
            }
            None => item.done = Err(OpError::AssocLen),
        }
    }
    let mut all: ArrayVec<Tagged<'_, 3>, AH_BURST> = ArrayVec::new();
    let ready = |item: &&mut Item<'_, '_>| item.job.task == Task::Ah && item.done.is_ok();
    for (Item { job, packet, .. }, head) in items.iter_mut().filter(ready).zip(&heads) {
        let end = packet.end();
        let (_, rest) = packet.buf()[..end].split_at_mut(job.icv_at as usize);
        let (icv, rest) = rest.split_at_mut(job.icv_len.into());
        let high: &[u8] = job.high.as_ref().map_or(&[], |high| high);
        all.push(Tagged { data: [&head[..], rest, high], tag: icv, tfm: mac_of(hot, job) });
    }
    let statuses = tag_all(dir, &mut all);
    drop(all);
    items.iter_mut().filter(ready).zip(statuses).for_each(|(item, status)| item.done = status);
}
