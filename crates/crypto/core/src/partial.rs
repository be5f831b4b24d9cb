//! Partial MACs: `partial(gmac(aes),1/4)` authenticates a secret quarter of a packet's body, another quarter in each packet.
//!
//! They are weaker than any MAC, by design: a change of m blocks passes with probability (1 - f)^m, at 1/4 three times in four
//! for one block. `docs/partial-mac.md` has the construction, the argument and the probabilities.
//!
//! A partial MAC is a type of its own and no row of the [`Registry`]: no look-up of a MAC, a nonce MAC or an AEAD leads to one,
//! no template takes one as a part, and whoever wants one has to say so.

pub mod detection;

use crate::error::{KeyError, LookupError, OpError, Status};
use crate::info::Kind;
use crate::mac::{self, MAX_TAG_LEN, MacOp, MacTfm, NonceMacOp, NonceMacTfm, same};
use crate::registry::{Alg, Registry};
use crate::selftest::vectors;
use crate::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use crate::template::Name;
use crate::wipe::wipe;
use arrayvec::ArrayVec;
use core::ops::RangeInclusive;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The word of the names.
const HEAD: &str = "partial";
/// The length of a block of the body, which is covered or not, in bytes.
pub const BLOCK_LEN: usize = 16;
/// The longest body in bytes: no IP packet is longer.
pub const MAX_BODY_LEN: usize = 65_535;
/// Lengths of keys in bytes. The strength is that of AES-128, whatever the length.
pub const KEY_LENS: RangeInclusive<usize> = 16..=64;

/// The blocks that one word of the selection decides about.
const GROUP: usize = 128;
/// The words of the longest selection.
const MAX_GROUPS: usize = MAX_BODY_LEN.div_ceil(BLOCK_LEN).div_ceil(GROUP);
/// The most halvings: 1/8.
const MAX_HALVINGS: usize = 3;
/// The messages of a burst that are computed together.
const CHUNK: usize = 16;
/// The bytes of cipher blocks from which the selections of a chunk are made: those of the longest message, or of 16 usual ones.
const SELECT_ROOM: usize = MAX_GROUPS * MAX_HALVINGS * BLOCK_LEN;
/// The bytes of covered text that are gathered on the stack at a time. Longer messages go to the heap.
const GATHER_ROOM: usize = 16 << 10;
/// The length of the header that each message starts with.
const HEADER_LEN: usize = 32;
const SELECT_KEY_LEN: usize = 16;
const SALT_LEN: usize = 4;
const MAX_MAC_KEY_LEN: usize = 32;
const PRF_LEN: usize = 32;
const LABEL: &[u8] = b"sealane partial MAC";

/// The MAC over the covered part.
#[derive(Debug)]
struct MacRow {
    name: &'static str,
    kind: Kind,
    /// Its number in the header of messages.
    id: u8,
    key_len: usize,
    /// The shortest tag, the usual one and the whole one in bytes. None is shorter than what is usual for the MAC in full.
    tag_lens: [usize; 3],
}

const MACS: [MacRow; 4] = [
    MacRow { name: "gmac(aes)", kind: Kind::NonceMac, id: 1, key_len: 16, tag_lens: [16, 16, 16] },
    MacRow { name: "cmac(aes)", kind: Kind::Hash, id: 2, key_len: 16, tag_lens: [12, 12, 16] },
    MacRow { name: "hmac(sha1)", kind: Kind::Hash, id: 3, key_len: 20, tag_lens: [12, 12, 20] },
    MacRow { name: "hmac(sha256)", kind: Kind::Hash, id: 4, key_len: 32, tag_lens: [16, 16, 32] },
];

/// The fraction of a body that is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fraction {
    /// All of it.
    Whole,
    /// A half.
    Half,
    /// A quarter.
    Quarter,
    /// An eighth.
    Eighth,
}

impl Fraction {
    /// All of them, the largest first.
    pub const ALL: [Fraction; 4] = [Fraction::Whole, Fraction::Half, Fraction::Quarter, Fraction::Eighth];

    /// The word in the name of a partial MAC.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fraction::Whole => "1",
            Fraction::Half => "1/2",
            Fraction::Quarter => "1/4",
            Fraction::Eighth => "1/8",
        }
    }

    /// The number of times that all is halved.
    fn halvings(self) -> usize {
        self as usize
    }

    /// The probability with which a block is covered.
    #[must_use]
    pub fn share(self) -> f64 {
        1.0 / f64::from(1u8 << self.halvings())
    }
}

/// A name of a partial MAC, read: the MAC, the fraction, and lengths of tags.
#[derive(Debug, Clone, Copy)]
pub struct PartialInfo {
    mac: &'static MacRow,
    /// The fraction.
    pub fraction: Fraction,
}

impl PartialInfo {
    /// Reads a name: `partial(gmac(aes),1/4)`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let parsed = Name::parse(name).ok().filter(|parsed| parsed.head == HEAD)?;
        let [mac, fraction] = &parsed.args[..] else { return None };
        let mac = MACS.iter().find(|row| row.name == mac.text)?;
        let fraction = Fraction::ALL.into_iter().find(|of| of.name() == fraction.text)?;
        Some(PartialInfo { mac, fraction })
    }

    /// The MAC's name.
    #[must_use]
    pub fn mac(&self) -> &'static str {
        self.mac.name
    }

    /// The shortest tag in bytes.
    #[must_use]
    pub fn min_tag_len(&self) -> usize {
        self.mac.tag_lens[0]
    }

    /// The usual tag in bytes.
    #[must_use]
    pub fn usual_tag_len(&self) -> usize {
        self.mac.tag_lens[1]
    }

    /// The whole tag in bytes.
    #[must_use]
    pub fn full_tag_len(&self) -> usize {
        self.mac.tag_lens[2]
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{HEAD}({},{})", self.mac.name, self.fraction.name())
    }
}

/// All names.
pub fn names() -> impl Iterator<Item = String> {
    MACS.iter().flat_map(|mac| Fraction::ALL.map(|fraction| PartialInfo { mac, fraction }.name()))
}

struct AlgInner {
    info: PartialInfo,
    /// The PRF that makes the subkeys.
    prf: Alg,
    /// The block cipher that makes selections.
    select: Alg,
    mac: Alg,
}

/// A partial MAC over the drivers of a registry. Cheap to clone.
#[derive(Clone)]
pub struct PartialAlg(Arc<AlgInner>);

impl PartialAlg {
    /// Resolves a name. The parts are the measured choice of the registry's drivers; together they pass a self-test here.
    ///
    /// # Errors
    /// [`LookupError::NotFound`] for another name or where a part is missing; [`LookupError::SelfTest`].
    pub fn lookup(registry: &Registry, name: &str) -> Result<Self, LookupError> {
        let info = PartialInfo::of(name).ok_or(LookupError::NotFound)?;
        let prf = registry.lookup(Kind::Hash, "hmac(sha256)")?;
        let select = registry.lookup(Kind::Skcipher, "ecb(aes)")?;
        let mac = registry.lookup(info.mac.kind, info.mac.name)?;
        let alg = PartialAlg(Arc::new(AlgInner { info, prf, select, mac }));
        // The keys are known to everybody.
        sealane_guarded::unguarded(|| alg.self_test()).map_err(|_| LookupError::SelfTest(info.name()))?;
        Ok(alg)
    }

    /// Its properties.
    #[must_use]
    pub fn info(&self) -> PartialInfo {
        self.0.info
    }

    /// A key. `context` is of its user, such as the SPI: subkeys under different contexts are independent.
    ///
    /// # Errors
    /// [`KeyError::Length`] for a key of another length than [`KEY_LENS`]; [`KeyError::Driver`].
    pub fn key(&self, key: &[u8], context: &[u8]) -> Result<PartialTfm, KeyError> {
        let AlgInner { info, prf, select, mac } = &*self.0;
        if !KEY_LENS.contains(&key.len()) {
            return Err(KeyError::Length);
        }
        let made = Subkeys::derive(&prf.mac(key)?, key.len(), info, context)?;
        let (select_key, mac_key, salt) = made.split(info.mac.key_len);
        let mac = match info.mac.kind {
            Kind::NonceMac => Inner::Nonce(mac.nonce_mac(mac_key)?, salt),
            _ => Inner::Plain(mac.mac(mac_key)?),
        };
        let select = select.skcipher(select_key)?;
        Ok(PartialTfm(Arc::new(TfmInner { info: *info, select, mac })))
    }

    fn self_test(&self) -> Result<(), String> {
        let name = self.0.info.name();
        let tests = vectors::parse(VECTORS, |alg| alg == name);
        if tests.is_empty() {
            return Err("no vectors".to_owned());
        }
        for vector in tests {
            let [key, context, always, body, tail, out] =
                ["key", "context", "always", "body", "tail", "out"].map(|field| vector.bytes(field));
            let number = vector.bytes("number")?.try_into().map_err(|_| "a number has 8 bytes")?;
            let (always, body, tail, out) = (always?, body?, tail?, out?);
            let tfm = self.key(&key?, &context?).map_err(|e| e.to_string())?;
            let mut tag = vec![0; out.len()];
            let message = Message { number: u64::from_be_bytes(number), always: &[&always], body: &body, tail: &tail };
            tfm.sign(&message, &mut tag).map_err(|e| e.to_string())?;
            let refused = tfm.verify(&message, &[&out[..out.len() - 1], &[!out[out.len() - 1]]].concat());
            if tag != out || tfm.verify(&message, &out).is_err() || refused != Err(OpError::Auth) {
                return Err(format!("the vector at line {} differs", vector.line));
            }
        }
        Ok(())
    }
}

const VECTORS: &str = include_str!("../vectors/partial.txt");

/// The bytes of the three subkeys: of the selection, of the MAC, and the salt of GMAC's nonces.
struct Subkeys(Zeroizing<[u8; SUBKEYS_LEN]>);

const SUBKEYS_LEN: usize = (SELECT_KEY_LEN + MAX_MAC_KEY_LEN + SALT_LEN).next_multiple_of(PRF_LEN);

impl Subkeys {
    /// SP 800-108 (revision 1, section 4.1), counter mode, with a counter of 32 bits: `PRF(K, i | label | 0 | context | L)`.
    ///
    /// HMAC fills a key up with zeros. The key's length is a part of the context, so that a key is not the same as one with zeros
    /// behind it.
    fn derive(prf: &MacTfm, key_len: usize, info: &PartialInfo, context: &[u8]) -> Result<Self, KeyError> {
        let len = SELECT_KEY_LEN + info.mac.key_len + SALT_LEN;
        let (name, key_len, bits) = (info.name(), [key_len as u8], (8 * len as u32).to_be_bytes());
        let mut made = Subkeys(Zeroizing::new([0; SUBKEYS_LEN]));
        for (i, out) in (1u32..).zip(made.0[..len].chunks_mut(PRF_LEN)) {
            let data: [&[u8]; 8] = [&i.to_be_bytes(), LABEL, &[0], name.as_bytes(), &[0], &key_len, context, &bits];
            prf.sign(&data, out).map_err(|_| KeyError::Driver)?;
        }
        Ok(made)
    }

    fn split(&self, mac_key_len: usize) -> (&[u8], &[u8], [u8; SALT_LEN]) {
        let (select, rest) = self.0.split_at(SELECT_KEY_LEN);
        let (mac, rest) = rest.split_at(mac_key_len);
        (select, mac, *rest.first_chunk().expect("there is room for the longest keys"))
    }
}

#[derive(Clone)]
enum Inner {
    Plain(MacTfm),
    /// With the salt of its nonces, which is no secret but differs between keys.
    Nonce(NonceMacTfm, [u8; SALT_LEN]),
}

struct TfmInner {
    info: PartialInfo,
    select: SkcipherTfm,
    mac: Inner,
}

/// A partial MAC under a key. Clones share it. It has no `Debug`.
#[derive(Clone)]
pub struct PartialTfm(Arc<TfmInner>);

/// A message: what is covered always, the body of which blocks are selected, and what is behind it and covered always.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// The packet's number, unique for each message under one key: it selects, and for GMAC it is the nonce.
    pub number: u64,
    /// The bytes before the body, in pieces.
    pub always: &'a [&'a [u8]],
    /// The body, at most [`MAX_BODY_LEN`] bytes.
    pub body: &'a [u8],
    /// The bytes behind the body.
    pub tail: &'a [u8],
}

/// A message to sign.
pub struct PartialOp<'a> {
    /// The key.
    pub tfm: &'a PartialTfm,
    /// The message.
    pub message: Message<'a>,
    /// Receives the tag. Its length is a part of what is authenticated: a shorter tag is no prefix of a longer one.
    pub tag: &'a mut [u8],
    /// Set by [`sign`].
    pub status: Status,
}

/// A message to check.
pub struct PartialVerifyOp<'a> {
    /// The key.
    pub tfm: &'a PartialTfm,
    /// The message.
    pub message: Message<'a>,
    /// The tag that came with it.
    pub tag: &'a [u8],
    /// Set by [`verify`]: [`OpError::Auth`] when the tag does not match.
    pub status: Status,
}

/// The blocks of one message that are covered. It is wiped when it is dropped.
pub struct Selection {
    words: Zeroizing<Vec<u128>>,
}

impl Selection {
    /// Whether a block is covered.
    #[must_use]
    pub fn covers(&self, block: usize) -> bool {
        self.words.get(block / GROUP).is_some_and(|word| word << (block % GROUP) >> (GROUP - 1) != 0)
    }

    /// The number of covered blocks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }
}

impl PartialTfm {
    /// The algorithm.
    #[must_use]
    pub fn info(&self) -> PartialInfo {
        self.0.info
    }

    /// Computes one tag.
    ///
    /// # Errors
    /// As for a burst ([`sign`]).
    pub fn sign(&self, message: &Message<'_>, tag: &mut [u8]) -> Status {
        let mut op = [PartialOp { tfm: self, message: *message, tag, status: Ok(()) }];
        sign(&mut op);
        op[0].status
    }

    /// Checks one tag. The comparison takes the same time whatever the tag is; the time of the computation tells how many blocks are
    /// covered.
    ///
    /// # Errors
    /// As for a burst ([`verify`]).
    pub fn verify(&self, message: &Message<'_>, tag: &[u8]) -> Status {
        let mut op = [PartialVerifyOp { tfm: self, message: *message, tag, status: Ok(()) }];
        verify(&mut op);
        op[0].status
    }

    /// The blocks that a number selects of a body of this length in bytes. They are secret: this is for measuring.
    ///
    /// # Errors
    /// [`OpError::TooLong`], [`OpError::Driver`].
    pub fn selection(&self, number: u64, body_len: usize) -> Result<Selection, OpError> {
        let job = Job::new(self, Message { number, always: &[], body: &[], tail: &[] }, self.info().full_tag_len());
        let job = Job { body_len, ..job };
        if body_len > MAX_BODY_LEN {
            return Err(OpError::TooLong);
        }
        let (mut pads, mut statuses) = (Pads::new(), [Ok(())]);
        select(&[job], &mut pads, &mut statuses);
        let words = Zeroizing::new((0..job.groups()).map(|group| job.word(&pads, group)).collect());
        wipe(&mut pads[..]);
        statuses[0].map(|()| Selection { words })
    }
}

/// Computes each tag of `ops`. A status is [`OpError::TagLen`] for a tag of a length that the MAC does not have,
/// [`OpError::TooLong`] for a body that no packet has, and otherwise the driver's.
pub fn sign(ops: &mut [PartialOp<'_>]) {
    for ops in ops.chunks_mut(CHUNK) {
        let jobs: Jobs<'_> = ops.iter().map(|op| Job::new(op.tfm, op.message, op.tag.len())).collect();
        let mut tags = [[0; MAX_TAG_LEN]; CHUNK];
        let statuses = compute(&jobs, &mut tags[..jobs.len()]);
        for ((op, status), tag) in ops.iter_mut().zip(statuses).zip(tags.iter()) {
            op.status = status;
            if status.is_ok() {
                op.tag.copy_from_slice(&tag[..op.tag.len()]);
            }
        }
        wipe(tags[..ops.len()].as_flattened_mut());
    }
}

/// Checks each tag of `ops`; statuses as for [`sign`], and [`OpError::Auth`]. The comparison takes the same time whatever a tag is.
pub fn verify(ops: &mut [PartialVerifyOp<'_>]) {
    for ops in ops.chunks_mut(CHUNK) {
        let jobs: Jobs<'_> = ops.iter().map(|op| Job::new(op.tfm, op.message, op.tag.len())).collect();
        let mut tags = [[0; MAX_TAG_LEN]; CHUNK];
        let statuses = compute(&jobs, &mut tags[..jobs.len()]);
        for ((op, status), tag) in ops.iter_mut().zip(statuses).zip(tags.iter()) {
            let matches = || if same(&tag[..op.tag.len()], op.tag) { Ok(()) } else { Err(OpError::Auth) };
            op.status = status.and_then(|()| matches());
        }
        wipe(tags[..ops.len()].as_flattened_mut());
    }
}

/// A message on its way to its tag.
#[derive(Clone, Copy)]
struct Job<'a> {
    tfm: &'a TfmInner,
    message: Message<'a>,
    tag_len: usize,
    /// The length of the body in bytes.
    body_len: usize,
}

type Jobs<'a> = ArrayVec<Job<'a>, CHUNK>;
type Statuses = ArrayVec<Status, CHUNK>;
/// Cipher blocks from which selections are made, those of one job after those of the other.
type Pads = ArrayVec<u8, SELECT_ROOM>;
type Tags = [[u8; MAX_TAG_LEN]];

impl<'a> Job<'a> {
    fn new(tfm: &'a PartialTfm, message: Message<'a>, tag_len: usize) -> Self {
        Job { tfm: &tfm.0, message, tag_len, body_len: message.body.len() }
    }

    fn check(&self) -> Status {
        let info = &self.tfm.info;
        if !(info.min_tag_len()..=info.full_tag_len()).contains(&self.tag_len) {
            return Err(OpError::TagLen);
        }
        if self.message.body.len() > MAX_BODY_LEN { Err(OpError::TooLong) } else { Ok(()) }
    }

    fn halvings(&self) -> usize {
        self.tfm.info.fraction.halvings()
    }

    /// The blocks of the body, of which the last may be short.
    fn blocks(&self) -> usize {
        self.body_len.div_ceil(BLOCK_LEN)
    }

    fn groups(&self) -> usize {
        self.blocks().div_ceil(GROUP)
    }

    /// The block that the cipher turns into a part of the selection. It has the length of the body in it, so that cut packets tell nothing
    /// of the selection of the whole one, however long the receiver takes to refuse them.
    fn select_input(&self, index: u32) -> [u8; BLOCK_LEN] {
        let low = u128::from(self.body_len as u32) << 32 | u128::from(index);
        (u128::from(self.message.number) << 64 | low).to_be_bytes()
    }

    /// Bytes of its cipher blocks.
    fn pads_len(&self) -> usize {
        self.groups() * self.halvings() * BLOCK_LEN
    }

    /// The bits of a group of blocks, the first block's the highest: the product of as many outputs of the cipher as the fraction has
    /// halvings. `pads` are those of this job.
    fn word(&self, pads: &[u8], group: usize) -> u128 {
        let of = &pads[group * self.halvings() * BLOCK_LEN..][..self.halvings() * BLOCK_LEN];
        let word = of.as_chunks::<BLOCK_LEN>().0.iter().fold(u128::MAX, |word, pad| word & u128::from_be_bytes(*pad));
        match self.blocks() - group * GROUP {
            left @ 0..GROUP => word & !(u128::MAX >> left),
            _ => word,
        }
    }

    /// The most bytes that its MAC covers.
    fn covered_len(&self, pads: &[u8]) -> usize {
        let Message { always, body, tail, .. } = &self.message;
        let fixed = HEADER_LEN + always.iter().map(|piece| piece.len()).sum::<usize>() + tail.len();
        let selected: u32 = (0..self.groups()).map(|group| self.word(pads, group).count_ones()).sum();
        fixed + (selected as usize * BLOCK_LEN).min(body.len())
    }

    /// Number, lengths, fraction, MAC and length of the tag: with them different messages are different texts.
    fn header(&self) -> [u8; HEADER_LEN] {
        let Message { number, always, body, tail } = &self.message;
        let always_len = always.iter().map(|piece| piece.len()).sum::<usize>();
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&number.to_be_bytes());
        for (at, len) in header[8..20].chunks_exact_mut(4).zip([always_len, body.len(), tail.len()]) {
            at.copy_from_slice(&(len as u32).to_be_bytes());
        }
        header[20..23].copy_from_slice(&[self.halvings() as u8, self.tfm.info.mac.id, self.tag_len as u8]);
        header[24..].copy_from_slice(b"partial1");
        header
    }

    /// Gives the text that its MAC covers, piece by piece.
    fn cover(&self, pads: &[u8], mut put: impl FnMut(&[u8])) {
        let Message { always, body, tail, .. } = self.message;
        put(&self.header());
        always.iter().for_each(|piece| put(piece));
        put(tail);
        if self.halvings() == 0 {
            return put(body);
        }
        for group in 0..self.groups() {
            let mut word = self.word(pads, group);
            while word != 0 {
                let bit = word.leading_zeros();
                word &= !(1 << (GROUP as u32 - 1 - bit));
                let at = (group * GROUP + bit as usize) * BLOCK_LEN;
                // All blocks but the last have a length that the compiler knows.
                match body[at..].first_chunk::<BLOCK_LEN>() {
                    Some(block) => put(block),
                    None => put(&body[at..]),
                }
            }
        }
    }
}

/// Computes the tags of jobs, with a status for each.
fn compute(jobs: &[Job<'_>], tags: &mut Tags) -> Statuses {
    let mut statuses: Statuses = jobs.iter().map(Job::check).collect();
    let mut from = 0;
    while from < jobs.len() {
        let mut room = SELECT_ROOM;
        let fits = |at: &usize| {
            // Those that are refused are not computed.
            let len = if statuses[*at].is_ok() { jobs[*at].pads_len() } else { 0 };
            room.checked_sub(len).map(|left| room = left).is_some()
        };
        // The longest message fits.
        let to = from + (from..jobs.len()).take_while(fits).count();
        compute_with_room(&jobs[from..to], &mut statuses[from..to], &mut tags[from..to]);
        from = to;
    }
    statuses
}

/// The same for jobs whose selections have room.
fn compute_with_room(jobs: &[Job<'_>], statuses: &mut [Status], tags: &mut Tags) {
    let mut pads = Pads::new();
    let spans = select(jobs, &mut pads, statuses);
    let pads_of = |at: usize| &pads[spans[at].0..spans[at].1];
    let ready: ArrayVec<usize, CHUNK> = (0..jobs.len()).filter(|at| statuses[*at].is_ok()).collect();
    let mut rest = &ready[..];
    while let [first, ..] = rest {
        let mut text: ArrayVec<u8, GATHER_ROOM> = ArrayVec::new();
        let mut ends: ArrayVec<usize, CHUNK> = ArrayVec::new();
        for at in rest {
            if jobs[*at].covered_len(pads_of(*at)) > text.remaining_capacity() {
                break;
            }
            let put = |piece: &[u8]| text.try_extend_from_slice(piece).expect("there is room");
            jobs[*at].cover(pads_of(*at), put);
            ends.push(text.len());
        }
        if ends.is_empty() {
            let mut text = Vec::with_capacity(jobs[*first].covered_len(pads_of(*first)));
            jobs[*first].cover(pads_of(*first), |piece| text.extend_from_slice(piece));
            authenticate(jobs, &rest[..1], &text, &[text.len()], statuses, tags);
            wipe(&mut text);
            rest = &rest[1..];
        } else {
            authenticate(jobs, &rest[..ends.len()], &text, &ends, statuses, tags);
            wipe(&mut text);
            rest = &rest[ends.len()..];
        }
    }
    wipe(&mut pads[..]);
}

/// Makes the cipher blocks of the jobs' selections: of packet number, length of the body and index. Returns where those of each job are.
fn select(jobs: &[Job<'_>], pads: &mut Pads, statuses: &mut [Status]) -> ArrayVec<(usize, usize), CHUNK> {
    let mut spans = ArrayVec::new();
    for (job, status) in jobs.iter().zip(statuses.iter()) {
        let from = pads.len();
        let count = if status.is_ok() { job.groups() * job.halvings() } else { 0 };
        for index in 0..count as u32 {
            pads.try_extend_from_slice(&job.select_input(index)).expect("the caller has seen to room");
        }
        spans.push((from, pads.len()));
    }
    let mut ops: ArrayVec<SkcipherOp<'_>, CHUNK> = ArrayVec::new();
    let mut places: ArrayVec<usize, CHUNK> = ArrayVec::new();
    let mut rest = &mut pads[..];
    for (at, (job, (from, to))) in jobs.iter().zip(&spans).enumerate() {
        let (data, behind) = rest.split_at_mut(to - from);
        rest = behind;
        if !data.is_empty() {
            let data = data.into();
            ops.push(SkcipherOp { tfm: &job.tfm.select, dir: Direction::Encrypt, iv: &mut [], data, status: Ok(()) });
            places.push(at);
        }
    }
    skcipher::crypt(&mut ops);
    places.iter().zip(&ops).for_each(|(at, op)| statuses[*at] = op.status);
    spans
}

/// Computes the MACs of texts: that of job `which[i]` ends at `ends[i]`.
fn authenticate(
    jobs: &[Job<'_>],
    which: &[usize],
    texts: &[u8],
    ends: &[usize],
    statuses: &mut [Status],
    tags: &mut Tags,
) {
    let starts = core::iter::once(&0).chain(ends);
    let texts: ArrayVec<[&[u8]; 1], CHUNK> = starts.zip(ends).map(|(from, to)| [&texts[*from..*to]]).collect();
    let nonces: ArrayVec<[u8; 12], CHUNK> = which
        .iter()
        .map(|at| {
            let Job { tfm, message, .. } = &jobs[*at];
            let salt = if let Inner::Nonce(_, salt) = tfm.mac { salt } else { [0; SALT_LEN] };
            let nonce = u128::from(u32::from_be_bytes(salt)) << 64 | u128::from(message.number);
            *nonce.to_be_bytes().last_chunk().expect("12 of 16 bytes")
        })
        .collect();
    let mut plain: ArrayVec<MacOp<'_>, CHUNK> = ArrayVec::new();
    let mut nonced: ArrayVec<NonceMacOp<'_>, CHUNK> = ArrayVec::new();
    let mut next = 0;
    // `which` ascends, so each of its tags is found behind the one before.
    for (at, tag) in tags.iter_mut().enumerate() {
        if which.get(next) != Some(&at) {
            continue;
        }
        let tag = &mut tag[..jobs[at].tag_len];
        match &jobs[at].tfm.mac {
            Inner::Plain(tfm) => plain.push(MacOp::new(tfm, &texts[next], tag)),
            Inner::Nonce(tfm, _) => {
                nonced.push(NonceMacOp { tfm, nonce: &nonces[next], data: &texts[next], tag, status: Ok(()) });
            }
        }
        next += 1;
    }
    mac::sign(&mut plain);
    mac::nonce_sign(&mut nonced);
    let (mut plain, mut nonced) = (plain.iter().map(|op| op.status), nonced.iter().map(|op| op.status));
    for at in which {
        let done = match jobs[*at].tfm.mac {
            Inner::Plain(_) => plain.next(),
            Inner::Nonce(..) => nonced.next(),
        };
        statuses[*at] = done.unwrap_or(Err(OpError::Driver));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        assert_eq!(names().count(), 16);
        for name in names() {
            let info = PartialInfo::of(&name).unwrap();
            assert_eq!(info.name(), name);
            assert!(info.min_tag_len() >= 12 && info.min_tag_len() <= info.usual_tag_len());
            assert!(info.usual_tag_len() <= info.full_tag_len() && info.full_tag_len() <= MAX_TAG_LEN);
        }
        let wrong = [
            "partial(gmac(aes))",
            "partial(gmac(aes),1/3)",
            "partial(gmac(aes),1/16)",
            "partial(gmac(aes),1/1)",
            "partial(gmac(aes),1/4,1)",
            "partial(gmac(aes), 1/4)",
            "partial(hmac(md5),1/4)",
            "partial(poly1305,1/4)",
            "partial(partial(gmac(aes),1/4),1/4)",
            "partia(gmac(aes),1/4)",
            "partial",
            "gmac(aes)",
            "",
        ];
        for name in wrong {
            assert!(PartialInfo::of(name).is_none(), "{name}");
        }
    }

    #[test]
    fn the_vectors_are_read() {
        let all = vectors::parse(VECTORS, |_| true);
        for name in names() {
            assert!(all.iter().any(|vector| vector.alg == name), "{name}");
        }
        for vector in all {
            assert!(PartialInfo::of(vector.alg).is_some(), "{}", vector.alg);
            for field in ["key", "context", "number", "always", "body", "tail", "out"] {
                assert!(vector.has(field) && vector.bytes(field).is_ok(), "line {}: {field}", vector.line);
            }
        }
    }
}
