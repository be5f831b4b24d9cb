//! Verifying and signing captured segments of other hosts, for `sealane tcp-ao verify` and `sign`.
//!
//! An observer sees segments of both directions, perhaps from the middle of a connection, and belongs to neither end. A
//! key therefore fits in both directions: segments that its owner sends carry the SendID and go to the key's peer,
//! segments that the owner receives carry the RecvID and come from there.

use crate::alg::Algorithms;
use crate::diagnose::{Hint, Reading, diagnose};
use crate::drop::DropReason;
use crate::kdf::Context;
use crate::mac::{self, Checksum, Coverage, Sign, Verify};
use crate::mkt::{Mkt, unmapped};
use crate::output::OptionFields;
use crate::segment::{self, ChecksumState};
use crate::sne::Sne;
use core::net::SocketAddr;
use core::ops::{Range, RangeInclusive};
use sealane_crypto::mac::MacTfm;
use sealane_wire::ip::Layout;
use sealane_wire::tcp::{AoOption, Auth, Segment};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The most connections that are remembered; the oldest is forgotten for a new one.
const MAX_CONVERSATIONS: usize = 1 << 16;

/// The most prepared traffic keys of one connection.
const MAX_TRAFFIC: usize = 8;

/// The most wraps of the sequence number that are tried for a connection seen from the middle only.
const SNE_TRIES: u32 = 16;

/// A key, with the connections and times that it is for.
pub struct WatchKey {
    /// The key.
    pub mkt: Arc<Mkt>,
    /// Ports of its connections: the owner's and the peer's. Empty means all.
    pub ports: Vec<(RangeInclusive<u16>, RangeInclusive<u16>)>,
    /// The time in which its owner may send with it, in seconds since 1970.
    pub send: Range<i64>,
    /// The time in which its owner accepts it.
    pub accept: Range<i64>,
}

/// The sender of a segment, seen from the owner of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Owner,
    Peer,
}

impl WatchKey {
    /// Whether a segment between these ends belongs to this key if `sender` sent it.
    fn is_for(&self, source: SocketAddr, destination: SocketAddr, sender: Sender) -> bool {
        let (owner, peer) = match sender {
            Sender::Owner => (source, destination),
            Sender::Peer => (destination, source),
        };
        let port =
            |(o, p): &(RangeInclusive<u16>, RangeInclusive<u16>)| o.contains(&owner.port()) && p.contains(&peer.port());
        self.mkt.peer.contains(peer.ip()) && (self.ports.is_empty() || self.ports.iter().any(port))
    }

    /// KeyID and RNextKeyID of segments that `sender` sends with this key.
    fn ids(&self, sender: Sender) -> (u8, u8) {
        match sender {
            Sender::Owner => (self.mkt.send_id, self.mkt.recv_id),
            Sender::Peer => (self.mkt.recv_id, self.mkt.send_id),
        }
    }

    fn within(&self, sender: Sender, now_s: i64) -> bool {
        let window = match sender {
            Sender::Owner => &self.send,
            Sender::Peer => &self.accept,
        };
        window.contains(&now_s) || (window.end == i64::MAX && now_s >= window.start)
    }
}

/// An observer's verdict about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It verifies with the key of this index.
    Good(usize),
    /// The receiver has to drop it.
    Bad(DropReason),
    /// It cannot be verified: its numbers are not known, or there is no key for its ends ([`DropReason::KeyNotFound`]).
    Unchecked(DropReason),
    /// It is not signed, and there is no key for its ends.
    NotOurs,
}

/// A remark about a segment that verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The handshake was not seen; the numbers just before this segment's are the initial ones.
    IsnFound,
    /// The connection was not seen from its start; the sequence number has wrapped this often.
    SneFound(u32),
    /// The key's lifetime has not begun or is over.
    OutsideLifetime,
}

/// A verdict with its circumstances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The verdict.
    pub verdict: Verdict,
    /// The option, if there is one.
    pub option: Option<AoOption>,
    /// For a bad MAC: the change that would make it right.
    pub hint: Option<Hint>,
    /// For a good MAC: remarks.
    pub note: Option<Note>,
}

/// A connection; index 0 and 1 are its two ends.
#[derive(Default)]
struct Conversation {
    isns: [Option<u32>; 2],
    /// A recent sequence number of each end's segments. `None` means that none of them has verified yet.
    sne: [Option<Sne>; 2],
    /// Whether the initial sequence numbers come from a handshake that was seen, so that extensions start at 0.
    from_start: bool,
    traffic: Vec<TrafficMac>,
}

struct TrafficMac {
    key: usize,
    context: Context,
    tfm: MacTfm,
}

impl Conversation {
    /// The traffic MAC of a key, prepared once.
    fn mac(&mut self, index: usize, mkt: &Mkt, context: Context) -> Option<&MacTfm> {
        let found = self.traffic.iter().position(|t| t.key == index && t.context == context);
        let at = match found {
            Some(at) => at,
            None => {
                let tfm = mkt.traffic_mac(&context).ok()?;
                if self.traffic.len() == MAX_TRAFFIC {
                    self.traffic.remove(0);
                }
                self.traffic.push(TrafficMac { key: index, context, tfm });
                self.traffic.len() - 1
            }
        };
        Some(&self.traffic[at].tfm)
    }

    /// Starts a new connection between the same ends.
    fn restart(&mut self, end: usize, isn: u32) {
        *self = Conversation { from_start: true, ..Conversation::default() };
        self.learn(end, isn);
    }

    fn learn(&mut self, end: usize, isn: u32) {
        self.isns[end] = Some(isn);
        self.sne[end] = Some(Sne::new(isn));
    }
}

/// A connection's ends in an order that does not depend on the direction, and the index of the source.
fn ends(source: SocketAddr, destination: SocketAddr) -> ([SocketAddr; 2], usize) {
    if source <= destination { ([source, destination], 0) } else { ([destination, source], 1) }
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(unmapped(addr.ip()), addr.port())
}

/// A third party with keys.
pub struct Observer {
    keys: Vec<WatchKey>,
    algorithms: Arc<Algorithms>,
    conversations: HashMap<[SocketAddr; 2], Conversation>,
    /// The ends in the order in which they were first seen.
    order: VecDeque<[SocketAddr; 2]>,
}

impl Observer {
    /// An observer with these keys. `algorithms` are tried for segments that do not verify.
    #[must_use]
    pub fn new(keys: Vec<WatchKey>, algorithms: Arc<Algorithms>) -> Self {
        Observer { keys, algorithms, conversations: HashMap::new(), order: VecDeque::new() }
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[WatchKey] {
        &self.keys
    }

    /// Sets the initial sequence numbers of `a` and `b`, for a connection whose handshake will not be seen.
    pub fn know(&mut self, a: SocketAddr, b: SocketAddr, isn_a: u32, isn_b: u32) {
        let (pair, first) = ends(canonical(a), canonical(b));
        let conversation = self.conversation(pair);
        conversation.isns[first] = Some(isn_a);
        conversation.isns[1 - first] = Some(isn_b);
    }

    fn conversation(&mut self, pair: [SocketAddr; 2]) -> &mut Conversation {
        if !self.conversations.contains_key(&pair) {
            if self.order.len() == MAX_CONVERSATIONS
                && let Some(oldest) = self.order.pop_front()
            {
                self.conversations.remove(&oldest);
            }
            self.order.push_back(pair);
        }
        self.conversations.entry(pair).or_default()
    }

    /// Looks at a segment that was captured at `now_s`, seconds since 1970.
    pub fn observe(&mut self, segment: &Segment<'_>, now_s: i64) -> Observation {
        let (source, destination) = (canonical(segment.source()), canonical(segment.destination()));
        let only = |verdict| Observation { verdict, option: None, hint: None, note: None };
        let is_for = |key: &WatchKey, sender| key.is_for(source, destination, sender);
        let protected = self.keys.iter().any(|k| is_for(k, Sender::Owner) || is_for(k, Sender::Peer));
        let option = match Auth::find(segment.option_bytes()) {
            Ok(Some(Auth::Ao(option))) => option,
            Ok(Some(Auth::Md5 { .. })) if protected => return only(Verdict::Bad(DropReason::Md5Unexpected)),
            Ok(None) if protected => {
                self.look_at_handshake(segment, source, destination);
                return only(Verdict::Bad(DropReason::Required));
            }
            Err(_) if protected => return only(Verdict::Bad(DropReason::BadHeader)),
            Ok(_) | Err(_) => return only(Verdict::NotOurs),
        };
        if !protected {
            return Observation { option: Some(option), ..only(Verdict::Unchecked(DropReason::KeyNotFound)) };
        }
        let mut seen = self.judge(segment, &option, source, destination, now_s);
        seen.option = Some(option);
        if !matches!(seen.verdict, Verdict::Good(_)) {
            self.look_at_handshake(segment, source, destination);
        }
        seen
    }

    /// Every key and sender that a segment with this KeyID may have.
    fn candidates(&self, source: SocketAddr, destination: SocketAddr, key_id: Option<u8>) -> Vec<(usize, Sender)> {
        let mut list = Vec::new();
        for (i, key) in self.keys.iter().enumerate() {
            for sender in [Sender::Owner, Sender::Peer] {
                let is_id = key_id.is_none_or(|id| key.ids(sender).0 == id);
                if is_id && key.is_for(source, destination, sender) {
                    list.push((i, sender));
                }
            }
        }
        list
    }

    fn judge(
        &mut self,
        segment: &Segment<'_>,
        option: &AoOption,
        source: SocketAddr,
        destination: SocketAddr,
        now_s: i64,
    ) -> Observation {
        let mut seen = Observation { verdict: Verdict::NotOurs, option: None, hint: None, note: None };
        let candidates = self.candidates(source, destination, Some(option.key_id));
        let (pair, end) = ends(source, destination);
        let readings = self.conversation(pair).readings(segment, source, destination, end);
        if candidates.is_empty() {
            seen.verdict = Verdict::Bad(DropReason::KeyNotFound);
            let others = self.candidates(source, destination, None);
            seen.hint = readings.first().and_then(|r| self.explain(segment, option, r, &others));
            return seen;
        }
        if readings.is_empty() {
            seen.verdict = Verdict::Unchecked(DropReason::IsnUnknown);
            return seen;
        }
        for reading in &readings {
            for &(index, sender) in &candidates {
                let WatchKey { mkt, .. } = &self.keys[index];
                let mkt = mkt.clone();
                if mkt.mac_len != option.mac_len || !self.matches(pair, index, &mkt, segment, option, reading) {
                    continue;
                }
                let conversation = self.conversation(pair);
                conversation.settle(segment, end, reading);
                let late = !self.keys[index].within(sender, now_s);
                seen.verdict = Verdict::Good(index);
                seen.note = reading.note.or(late.then_some(Note::OutsideLifetime));
                return seen;
            }
        }
        let wrong_len = candidates.iter().all(|&(i, _)| self.keys[i].mkt.mac_len != option.mac_len);
        let guessed = readings.iter().all(|r| r.guess);
        seen.verdict = match (wrong_len, guessed) {
            (true, _) => Verdict::Bad(DropReason::MacLen),
            (false, true) => Verdict::Unchecked(DropReason::IsnUnknown),
            (false, false) => Verdict::Bad(DropReason::Mac),
        };
        if !guessed {
            seen.hint = self.explain(segment, option, &readings[0], &candidates);
        }
        seen
    }

    fn matches(
        &mut self,
        pair: [SocketAddr; 2],
        index: usize,
        mkt: &Mkt,
        segment: &Segment<'_>,
        option: &AoOption,
        reading: &SigningNumbers,
    ) -> bool {
        let Some(tfm) = self.conversation(pair).mac(index, mkt, reading.context) else { return false };
        let exclude_options = mkt.exclude_options;
        let cover = Coverage { mac_at: option.mac_at(), mac_len: option.mac_len, sne: reading.sne, exclude_options };
        let mut ops = [Verify { tfm, packet: segment.packet(), at: *segment.layout(), cover, status: Ok(()) }];
        mac::verify(&mut ops);
        ops[0].status.is_ok()
    }

    /// Diagnoses a segment that should have verified with one of `expected`.
    fn explain(
        &self,
        segment: &Segment<'_>,
        option: &AoOption,
        numbers: &SigningNumbers,
        expected: &[(usize, Sender)],
    ) -> Option<Hint> {
        let SigningNumbers { context, sne, .. } = *numbers;
        let key_is_known = expected.iter().any(|&(i, sender)| self.keys[i].ids(sender).0 == option.key_id);
        expected.iter().find_map(|&(index, _)| {
            let mkt = &*self.keys[index].mkt;
            let reading = Reading { mkt, context, sne };
            if !key_is_known && reading.verifies(segment, option) {
                return Some(Hint::OtherKey { send_id: mkt.send_id, recv_id: mkt.recv_id });
            }
            diagnose(segment, option, &reading, self.keys.iter().map(|k| &*k.mkt), &self.algorithms)
        })
    }

    /// Takes the numbers from a handshake that could not be verified, if there are no better ones.
    fn look_at_handshake(&mut self, segment: &Segment<'_>, source: SocketAddr, destination: SocketAddr) {
        if !segment.flags().syn() {
            return;
        }
        let (pair, end) = ends(source, destination);
        let conversation = self.conversation(pair);
        if conversation.isns[end].is_none() {
            conversation.from_start = true;
            conversation.learn(end, segment.seq());
            if segment.flags().ack() && conversation.isns[1 - end].is_none() {
                conversation.learn(1 - end, segment.ack_seq().wrapping_sub(1));
            }
        }
    }

    /// Signs a segment for its sender and writes the packet with the option to `out`. An option that it had is
    /// replaced. Of the keys that its sender may send with at `now_s`, the one listed last is used.
    ///
    /// # Errors
    /// [`DropReason::NoSendKey`]: no key is for these ends. [`DropReason::IsnUnknown`]: the handshake was not seen.
    /// Otherwise the error of editing.
    pub fn sign(&mut self, segment: &Segment<'_>, now_s: i64, out: &mut Vec<u8>) -> Result<usize, DropReason> {
        let (source, destination) = (canonical(segment.source()), canonical(segment.destination()));
        let candidates = self.candidates(source, destination, None);
        let valid = candidates.into_iter().rev().find(|&(i, sender)| self.keys[i].within(sender, now_s));
        let (index, sender) = valid.ok_or(DropReason::NoSendKey)?;
        let mkt = self.keys[index].mkt.clone();
        let (key_id, rnext_key_id) = self.keys[index].ids(sender);
        let (pair, end) = ends(source, destination);
        let readings = self.conversation(pair).readings(segment, source, destination, end);
        let numbers = readings.into_iter().find(|r| !r.guess).ok_or(DropReason::IsnUnknown)?;

        let mut stripped;
        let bare = match Auth::find(segment.option_bytes()) {
            Ok(Some(Auth::Ao(option))) => {
                stripped = segment.packet().to_vec();
                let (from, _) = segment::strip(&mut stripped, segment.layout(), &option, ChecksumState::Complete);
                Segment::parse(&stripped[from..]).map_err(|_| DropReason::Malformed)?
            }
            Ok(_) => *segment,
            Err(_) => return Err(DropReason::BadHeader),
        };
        let fields = OptionFields { key_id, rnext_key_id, mac_len: mkt.mac_len };
        let most = bare.packet().len() + fields.padded_len();
        out.clear();
        out.resize(most, 0);
        let at: Layout = segment::insert(&bare, &fields, out)?;
        out.truncate(at.end);
        let first = AoOption { at: 0, key_id, rnext_key_id, mac_len: mkt.mac_len };
        let cover = Coverage {
            mac_at: first.mac_at(),
            mac_len: mkt.mac_len,
            sne: numbers.sne,
            exclude_options: mkt.exclude_options,
        };
        let conversation = self.conversation(pair);
        let tfm = conversation.mac(index, &mkt, numbers.context).ok_or(DropReason::Driver)?;
        let mut ops = [Sign { tfm, packet: out, at, cover, checksum: Checksum::Full, status: Ok(()) }];
        mac::sign(&mut ops);
        ops[0].status?;
        // A segment that was not signed teaches nothing, because nobody accepts it.
        conversation.settle(segment, end, &numbers);
        Ok(index)
    }
}

/// Numbers under which a segment may have been signed.
#[derive(Debug, Clone, Copy)]
struct SigningNumbers {
    context: Context,
    sne: u32,
    /// Whether the initial sequence numbers are a guess, so that a mismatch proves nothing.
    guess: bool,
    note: Option<Note>,
}

impl Conversation {
    /// The numbers under which a segment may have been signed, the most likely first; none where they cannot be known.
    fn readings(
        &self,
        segment: &Segment<'_>,
        source: SocketAddr,
        destination: SocketAddr,
        end: usize,
    ) -> Vec<SigningNumbers> {
        let (flags, seq, ack) = (segment.flags(), segment.seq(), segment.ack_seq());
        let context = |source_isn, destination_isn| Context { source, destination, source_isn, destination_isn };
        let sure = |context| SigningNumbers { context, sne: 0, guess: false, note: None };
        match (flags.syn(), flags.ack()) {
            (true, false) => return vec![sure(context(seq, 0))],
            (true, true) => return vec![sure(context(seq, ack.wrapping_sub(1)))],
            _ => {}
        }
        let mut list = Vec::new();
        if let (Some(ours), Some(theirs)) = (self.isns[end], self.isns[1 - end]) {
            let context = context(ours, theirs);
            match self.sne[end] {
                Some(sne) => list.push(SigningNumbers { sne: sne.of(seq), ..sure(context) }),
                // The number of wraps is not known; a sequence number below the first one has wrapped at least once.
                None => list.extend((0..SNE_TRIES).map(|sne| SigningNumbers {
                    sne,
                    note: (sne > 0).then_some(Note::SneFound(sne)),
                    ..sure(context)
                })),
            }
        } else {
            // Right after the handshake both ends are one past their ISN, as after a SYN cookie.
            let guess = context(seq.wrapping_sub(1), ack.wrapping_sub(1));
            list.push(SigningNumbers { context: guess, sne: 0, guess: true, note: Some(Note::IsnFound) });
        }
        if flags.rst() && flags.ack() && seq == 0 {
            // The RST that refuses a SYN: its sender has no sequence number of its own.
            list.insert(0, sure(context(0, ack.wrapping_sub(1))));
        }
        list
    }

    /// Learns from a segment that verified.
    fn settle(&mut self, segment: &Segment<'_>, end: usize, numbers: &SigningNumbers) {
        let (flags, seq) = (segment.flags(), segment.seq());
        let Context { source_isn, destination_isn, .. } = numbers.context;
        if flags.syn() && !flags.ack() {
            if self.isns[end] != Some(seq) {
                // The other end's SYN may have come first: then both open at once.
                let other = self.isns[1 - end].filter(|_| self.isns[end].is_none() && self.from_start);
                self.restart(end, seq);
                if let Some(isn) = other {
                    self.learn(1 - end, isn);
                }
            }
            return;
        }
        if flags.syn() {
            if self.isns != two(end, source_isn, destination_isn) {
                self.restart(end, source_isn);
                self.learn(1 - end, destination_isn);
            }
            return;
        }
        if self.isns[end].is_none() && source_isn != 0 {
            self.learn(end, source_isn);
            self.learn(1 - end, destination_isn);
        }
        match &mut self.sne[end] {
            Some(sne) => sne.advance(seq),
            none => *none = Some(Sne { ext: numbers.sne, base: seq }),
        }
    }
}

/// Both numbers in the order of the ends.
fn two(end: usize, isn: u32, other: u32) -> [Option<u32>; 2] {
    if end == 0 { [Some(isn), Some(other)] } else { [Some(other), Some(isn)] }
}
