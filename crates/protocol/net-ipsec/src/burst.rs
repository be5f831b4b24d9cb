//! The crypto of a burst: one call for all packets with an AEAD, one for those with a MAC, one for AH, and two for those with a
//! partial MAC, whatever their keys. Everything is done in place.
//!
//! [`run`] needs no database: [`begin`](crate::seal::begin) puts everything it found out about a packet into a
//! [`Job`], which borrows nothing. So packets in buffers of their own, with their jobs and keys, can be moved to
//! another thread or to a device, and come back for [`end`](crate::seal::end).

use crate::ah::{self, Headers};
use crate::encap::ESP_LEN;
use crate::packet::Packet;
use crate::partial::{Covered, PartialKey};
use crate::sa::SaId;
pub use crate::transform::SaKey;
use crate::transform::{Crypt, MAX_ICV_LEN, MAX_IV_LEN};
use arrayvec::ArrayVec;
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::mac::{self, MacOp, MacTfm, VerifyOp};
use sealane_crypto::partial::{self, PartialOp, PartialVerifyOp};
pub use sealane_crypto::skcipher::Direction;
use sealane_crypto::skcipher::{self, SkcipherOp};
use sealane_crypto::{OpError, Status};
use sealane_wire::ip::{Family, Layout, UDP_HEADER_LEN, set_udp_checksum};

/// The maximum number of packets that go to the drivers together.
pub const BURST: usize = 64;

/// The same for AH packets, whose headers are copied.
const AH_BURST: usize = 16;

/// The computation for a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// An AEAD over text and tag.
    Aead,
    /// A MAC over ESP header and payload.
    Mac,
    /// A MAC over IP headers, AH and payload.
    Ah,
    /// A cipher, or none, and a partial MAC over ESP header and payload.
    Partial,
}

impl Task {
    /// The computation for a packet of ESP under this key.
    pub(crate) fn of_esp(key: &Crypt) -> Self {
        match key {
            Crypt::Mac(_) => Task::Mac,
            Crypt::Partial(_) => Task::Partial,
            Crypt::None | Crypt::Keyless | Crypt::Aead(_) => Task::Aead,
        }
    }
}

/// The crypto of one packet: offsets of its parts in the buffer, and the inputs that are not in the packet. It borrows
/// nothing.
#[derive(Clone, Copy)]
pub struct Job {
    pub(crate) task: Task,
    /// The index of its packet in the burst.
    pub(crate) at: u8,
    pub(crate) icv_len: u8,
    pub(crate) iv_len: u8,
    /// Whether sequence numbers are extended: their high half is authenticated too.
    pub(crate) esn: bool,
    /// Whether the IV is `iv` instead of the bytes behind the ESP header.
    pub(crate) chained: bool,
    /// Inbound: whether the outer headers are described and not in the buffer.
    pub(crate) described: bool,
    /// Length of the IP headers in front of AH or ESP, from the packet's start.
    pub(crate) ip_len: u32,
    /// Inbound: the offset in these headers of the next protocol's number.
    pub(crate) next_at: u32,
    /// Inbound: the source port, if the packet came in UDP or TCP.
    pub(crate) port: Option<u16>,
    pub(crate) sa: SaId,
    /// The ESP or AH header.
    pub(crate) head_at: u32,
    /// The text that an AEAD encrypts. The bytes between the header and the text are authenticated with it.
    pub(crate) text_at: u32,
    pub(crate) icv_at: u32,
    /// A UDP header whose checksum is computed at the end; 0 for none.
    pub(crate) udp6_at: u32,
    /// SPI and whole sequence number, which are authenticated if numbers are extended.
    pub(crate) spi_seq: SpiSeq,
    pub(crate) iv: [u8; 16],
}

/// SPI and 64-bit sequence number in network byte order.
#[derive(Clone, Copy)]
pub(crate) struct SpiSeq([u8; 12]);

impl SpiSeq {
    pub(crate) fn new(spi: u32, number: u64) -> Self {
        let mut spi_seq = [0; 12];
        spi_seq[..4].copy_from_slice(&spi.to_be_bytes());
        spi_seq[4..].copy_from_slice(&number.to_be_bytes());
        SpiSeq(spi_seq)
    }

    pub(crate) fn number(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl Job {
    /// The high half of the sequence number if it is authenticated, else nothing.
    fn high(&self) -> &[u8] {
        if self.esn { &self.spi_seq.0[4..8] } else { &[] }
    }

    /// The index of its packet in the burst.
    #[must_use]
    pub fn packet(&self) -> usize {
        self.at.into()
    }

    /// Its association.
    #[must_use]
    pub fn sa(&self) -> SaId {
        self.sa
    }
}

/// The jobs of a burst, in the order of its packets.
pub type Jobs = ArrayVec<Job, BURST>;

/// The keys of a burst's jobs, one for each run of jobs with the same association.
#[derive(Default)]
pub struct Keys(ArrayVec<(SaId, Option<SaKey>), BURST>);

impl Keys {
    /// Gathers the keys of these jobs.
    pub(crate) fn gather(&mut self, jobs: &[Job], key: impl Fn(SaId) -> Option<SaKey>) {
        self.0.clear();
        for job in jobs {
            if self.0.last().is_none_or(|(sa, _)| *sa != job.sa) {
                self.0.push((job.sa, key(job.sa)));
            }
        }
    }

    /// Drops the keys.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A cursor for the jobs that they were gathered for.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { keys: &self.0 }
    }
}

/// Iterates over keys in the order of their jobs.
pub struct Cursor<'k> {
    keys: &'k [(SaId, Option<SaKey>)],
}

impl<'k> Cursor<'k> {
    /// The key of a job, which must not precede the job of the last call; `None` if its association no longer existed.
    pub fn of(&mut self, job: &Job) -> Option<&'k SaKey> {
        while let [(sa, key), rest @ ..] = self.keys {
            if *sa == job.sa {
                return key.as_ref();
            }
            self.keys = rest;
        }
        None
    }
}

/// A packet with its job and key.
pub struct Item<'p, 'b> {
    pub(crate) job: &'p Job,
    key: &'p Crypt,
    packet: &'p mut Packet<'b>,
    /// Set by [`run`].
    pub done: Status,
}

impl<'p, 'b> Item<'p, 'b> {
    /// Joins a packet, its job, and the key of the job's association.
    #[must_use]
    pub fn new(job: &'p Job, key: &'p SaKey, packet: &'p mut Packet<'b>) -> Self {
        // A key of another kind than the job's cannot be used.
        let fits = matches!(
            (job.task, &key.0),
            (Task::Aead, Crypt::Aead(_)) | (Task::Mac | Task::Ah, Crypt::Mac(_)) | (Task::Partial, Crypt::Partial(_))
        );
        Item { done: if fits { Ok(()) } else { Err(OpError::Driver) }, ..Item::of(job, &key.0, packet) }
    }

    /// The same with the key that the job was made for.
    pub(crate) fn of(job: &'p Job, key: &'p Crypt, packet: &'p mut Packet<'b>) -> Self {
        Item { job, key, packet, done: Ok(()) }
    }

    fn is(&self, task: Task) -> bool {
        self.job.task == task && self.done.is_ok()
    }
}

/// The status of a job that was not run.
pub const NOT_RUN: Status = Err(OpError::Driver);

/// Seals or opens all items independently of each other, in any thread.
pub fn run(dir: Direction, items: &mut [Item<'_, '_>]) {
    for items in items.chunks_mut(BURST) {
        aeads(dir, items);
        if items.iter().any(|item| item.job.task == Task::Mac) {
            macs(dir, items);
        }
        if items.iter().any(|item| item.job.task == Task::Partial) {
            partials(dir, items);
        }
        if items.iter().any(|item| item.job.task == Task::Ah) {
            for chunk in items.chunks_mut(AH_BURST) {
                ahs(dir, chunk);
            }
        }
        if dir == Direction::Encrypt {
            let udp6 = items.iter_mut().filter(|item| item.job.udp6_at != 0 && item.done.is_ok());
            udp6.for_each(|item| udp6_checksum(item.packet, item.job.udp6_at as usize));
        }
    }
}

/// Runs the jobs of packets with keys gathered for them, and returns the status of each job. A job whose association no
/// longer exists is not run.
pub fn run_with<'p, 'b: 'p>(
    dir: Direction,
    packets: impl Iterator<Item = &'p mut Packet<'b>>,
    jobs: &'p [Job],
    keys: &'p Keys,
) -> ArrayVec<Status, BURST> {
    let mut items: ArrayVec<Item<'_, '_>, BURST> = ArrayVec::new();
    let mut done: ArrayVec<Status, BURST> = jobs.iter().map(|_| NOT_RUN).collect();
    let mut runs: ArrayVec<u8, BURST> = ArrayVec::new();
    let (mut keys, mut rest) = (keys.cursor(), (0u8..).zip(jobs).peekable());
    for (at, packet) in packets.enumerate() {
        let Some((nth, job)) = rest.next_if(|(_, job)| job.packet() == at) else { continue };
        if let Some(key) = keys.of(job) {
            items.push(Item::new(job, key, packet));
            runs.push(nth);
        }
    }
    run(dir, &mut items);
    runs.iter().zip(&items).for_each(|(nth, item)| done[usize::from(*nth)] = item.done);
    done
}

/// Computes the UDP checksum, which IPv6 requires.
fn udp6_checksum(packet: &mut Packet<'_>, udp_at: usize) {
    let tcp_at = udp_at - packet.start();
    let bytes = &mut packet.bytes_mut()[..];
    let at = Layout { family: Family::V6, tcp_at, payload_at: tcp_at + UDP_HEADER_LEN, end: bytes.len() };
    set_udp_checksum(bytes, &at);
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
    let iv = if job.chained { &job.iv[..iv_len] } else { &behind[..iv_len] };
    let aad = match job.esn {
        true => [&job.spi_seq.0[..], behind],
        false if behind.is_empty() => [esp, behind],
        false => [head, &[]],
    };
    Parts { aad, iv, text, tag }
}

fn aeads(dir: Direction, items: &mut [Item<'_, '_>]) {
    let mut all: ArrayVec<(Parts<'_>, &AeadTfm), BURST> = ArrayVec::new();
    for Item { job, key, packet, .. } in items.iter_mut().filter(|item| item.is(Task::Aead)) {
        let Crypt::Aead(tfm) = key else { unreachable!("the key is of the job's kind") };
        all.push((parts(job, packet), tfm));
    }
    // `extend` instead of `collect`: collecting would build a whole burst elsewhere and move it here, even for one
    // packet.
    let mut ops: ArrayVec<AeadOp<'_>, BURST> = ArrayVec::new();
    ops.extend(all.iter_mut().map(|(parts, tfm)| AeadOp {
        tfm,
        dir,
        nonce: parts.iv,
        aad: if parts.aad[1].is_empty() { &parts.aad[..1] } else { &parts.aad },
        data: (&mut *parts.text).into(),
        tag: parts.tag,
        status: Ok(()),
    }));
    aead::crypt(&mut ops);
    let statuses: ArrayVec<Status, BURST> = ops.iter().map(|op| op.status).collect();
    drop(ops);
    drop(all);
    let ran = items.iter_mut().filter(|item| item.is(Task::Aead));
    ran.zip(statuses).for_each(|(item, status)| item.done = status);
}

/// A message in `N` pieces, of which the last may be empty, and its tag.
struct Tagged<'a, const N: usize> {
    data: [&'a [u8]; N],
    tag: &'a mut [u8],
    tfm: &'a MacTfm,
}

impl<const N: usize> Tagged<'_, N> {
    /// The pieces without an empty last one: drivers are fastest with few pieces.
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
            let mut ops: ArrayVec<VerifyOp<'_>, B> = ArrayVec::new();
            ops.extend(all.iter().map(|t| VerifyOp { tfm: t.tfm, data: t.pieces(), tag: t.tag, status: Ok(()) }));
            mac::verify(&mut ops);
            ops.iter().map(|op| op.status).collect()
        }
    }
}

fn mac_of(key: &Crypt) -> &MacTfm {
    match key {
        Crypt::Mac(tfm) => tfm,
        _ => unreachable!("the key is of the job's kind"),
    }
}

fn macs(dir: Direction, items: &mut [Item<'_, '_>]) {
    let mut all: ArrayVec<Tagged<'_, 2>, BURST> = ArrayVec::new();
    for Item { job, key, packet, .. } in items.iter_mut().filter(|item| item.is(Task::Mac)) {
        let (covered, rest) = packet.buf().split_at_mut(job.icv_at as usize);
        let data = [&covered[job.head_at as usize..], job.high()];
        all.push(Tagged { data, tag: &mut rest[..job.icv_len.into()], tfm: mac_of(key) });
    }
    let statuses = tag_all(dir, &mut all);
    drop(all);
    let ran = items.iter_mut().filter(|item| item.is(Task::Mac));
    ran.zip(statuses).for_each(|(item, status)| item.done = status);
}

fn partial_of(key: &Crypt) -> &PartialKey {
    match key {
        Crypt::Partial(key) => key,
        _ => unreachable!("the key is of the job's kind"),
    }
}

/// Encrypts, then signs; or verifies, then decrypts what was authentic.
fn partials(dir: Direction, items: &mut [Item<'_, '_>]) {
    match dir {
        Direction::Encrypt => {
            ciphers(dir, items);
            partial_tags(dir, items);
        }
        Direction::Decrypt => {
            partial_tags(dir, items);
            ciphers(dir, items);
        }
    }
}

/// The ciphers of packets with a partial MAC.
fn ciphers(dir: Direction, items: &mut [Item<'_, '_>]) {
    let has_cipher = |item: &&mut Item<'_, '_>| item.is(Task::Partial) && partial_of(item.key).cipher.is_some();
    let mut ivs = [[0; MAX_IV_LEN]; BURST];
    let mut ops: ArrayVec<SkcipherOp<'_>, BURST> = ArrayVec::new();
    for (Item { job, key, packet, .. }, iv) in items.iter_mut().filter(has_cipher).zip(&mut ivs) {
        let (Some(tfm), parts) = (&partial_of(key).cipher, parts(job, packet)) else { continue };
        let iv = &mut iv[..parts.iv.len()];
        iv.copy_from_slice(parts.iv);
        ops.push(SkcipherOp { tfm, dir, iv, data: parts.text.into(), status: Ok(()) });
    }
    skcipher::crypt(&mut ops);
    let statuses: ArrayVec<Status, BURST> = ops.iter().map(|op| op.status).collect();
    drop(ops);
    items.iter_mut().filter(has_cipher).zip(statuses).for_each(|(item, status)| item.done = status);
}

fn partial_tags(dir: Direction, items: &mut [Item<'_, '_>]) {
    let mut all: ArrayVec<(Covered<'_>, &mut [u8], &Job, &PartialKey), BURST> = ArrayVec::new();
    for Item { job, key, packet, .. } in items.iter_mut().filter(|item| item.is(Task::Partial)) {
        let (sealed, rest) = packet.buf().split_at_mut(job.icv_at as usize);
        let covered = Covered::new(&sealed[job.head_at as usize..], ESP_LEN + usize::from(job.iv_len));
        all.push((covered, &mut rest[..job.icv_len.into()], job, partial_of(key)));
    }
    let statuses: ArrayVec<Status, BURST> = match dir {
        Direction::Encrypt => {
            let mut ops: ArrayVec<PartialOp<'_>, BURST> = ArrayVec::new();
            for (covered, tag, job, key) in &mut all {
                let message = covered.message(job.spi_seq.number());
                ops.push(PartialOp { tfm: &key.mac, message, tag, status: Ok(()) });
            }
            partial::sign(&mut ops);
            ops.iter().map(|op| op.status).collect()
        }
        Direction::Decrypt => {
            let mut ops: ArrayVec<PartialVerifyOp<'_>, BURST> = ArrayVec::new();
            for (covered, tag, job, key) in &all {
                let message = covered.message(job.spi_seq.number());
                ops.push(PartialVerifyOp { tfm: &key.mac, message, tag, status: Ok(()) });
            }
            partial::verify(&mut ops);
            ops.iter().map(|op| op.status).collect()
        }
    };
    drop(all);
    let ran = items.iter_mut().filter(|item| item.is(Task::Partial));
    ran.zip(statuses).for_each(|(item, status)| item.done = status);
}

/// IP headers and AH in the form that the ICV covers, with the ICV set to 0.
type AhHead = ArrayVec<u8, { ah::MAX_HEADERS_LEN + ah::FIXED_LEN + MAX_ICV_LEN }>;

/// Joins IP headers and AH; `None` if the headers cannot be covered.
fn ah_head(job: &Job, packet: &Packet<'_>, leaving: bool) -> Option<AhHead> {
    let bytes = packet.bytes();
    let ip_len = job.ip_len as usize;
    let family = if bytes[0] >> 4 == 4 { Family::V4 } else { Family::V6 };
    let headers: Headers = ah::covered(&bytes[..ip_len], family, leaving)?;
    let mut head = AhHead::new();
    head.try_extend_from_slice(&headers).ok()?;
    head.try_extend_from_slice(&bytes[ip_len..ip_len + ah::FIXED_LEN]).ok()?;
    head.try_extend_from_slice(&[0; MAX_ICV_LEN][..job.icv_len.into()]).ok()?;
    Some(head)
}

fn ahs(dir: Direction, items: &mut [Item<'_, '_>]) {
    let mut heads: ArrayVec<AhHead, AH_BURST> = ArrayVec::new();
    for item in items.iter_mut().filter(|item| item.is(Task::Ah)) {
        match ah_head(item.job, item.packet, dir == Direction::Encrypt) {
            Some(head) => heads.push(head),
            None => item.done = Err(OpError::AssocLen),
        }
    }
    let mut all: ArrayVec<Tagged<'_, 3>, AH_BURST> = ArrayVec::new();
    let ready = |item: &&mut Item<'_, '_>| item.is(Task::Ah);
    for (Item { job, key, packet, .. }, head) in items.iter_mut().filter(ready).zip(&heads) {
        let end = packet.end();
        let (_, rest) = packet.buf()[..end].split_at_mut(job.icv_at as usize);
        let (icv, rest) = rest.split_at_mut(job.icv_len.into());
        all.push(Tagged { data: [&head[..], rest, job.high()], tag: icv, tfm: mac_of(key) });
    }
    let statuses = tag_all(dir, &mut all);
    drop(all);
    items.iter_mut().filter(ready).zip(statuses).for_each(|(item, status)| item.done = status);
}
