//! Finds out why a MAC does not match, by trying common configuration mistakes one after another.
//!
//! The result is a hint for people and decides nothing: a segment that verifies under another reading stays dropped. It
//! costs a few hundred MACs, so it runs when somebody asks for it, not when a segment is dropped.

use crate::alg::Algorithms;
use crate::kdf::Context;
use crate::mac::{self, Coverage, Verify};
use crate::mkt::{MAX_KEY_LEN, Mkt, MktSpec};
use core::fmt;
use sealane_wire::ip::{Family, TCP_HEADER_LEN};
use sealane_wire::tcp::{AoOption, Options, Segment, kind};
use zeroize::Zeroizing;

/// A change of configuration or reading that would make a segment verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// One end covers the TCP options by the MAC and the other does not.
    Options {
        /// Whether the sender leaves them out.
        sender_excludes: bool,
    },
    /// The MAC is right, but the other end truncates it to another length.
    MacLen {
        /// Length in the segment, in bytes.
        theirs: usize,
        /// Length that our key asks for, in bytes.
        ours: usize,
    },
    /// The two ends disagree on how often the sequence number has wrapped.
    Sne {
        /// The SNE with which the segment verifies.
        theirs: u32,
        /// The SNE that was expected.
        ours: u32,
    },
    /// It verifies with another key of ours: the key ids of the two ends do not mirror each other.
    OtherKey {
        /// SendID of that key.
        send_id: u8,
        /// RecvID of that key.
        recv_id: u8,
    },
    /// The secret is right, but the sender uses this algorithm.
    Algorithm(&'static str),
    /// The two ends spell the same secret differently.
    Secret(Spelling),
    /// A middlebox lowered the MSS option, which the MAC covers.
    Mss {
        /// The MSS that the sender signed.
        signed: u16,
        /// The MSS that arrived.
        arrived: u16,
    },
    /// The traffic key was derived as for a SYN, without the receiver's initial sequence number.
    SynKey,
    /// The traffic key was derived with source and destination swapped.
    SwappedEnds,
}

/// The difference between two spellings of one secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Their secret ends with a new line.
    NewLine,
    /// Our secret ends with a new line, theirs does not.
    NoNewLine,
    /// They decode hexadecimal digits that we take as text.
    HexDecoded,
    /// They take hexadecimal digits as text that we decode.
    HexText,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::Options { sender_excludes: true } => {
                f.write_str("it verifies without the TCP options: the sender leaves them out of the MAC, we do not")
            }
            Hint::Options { sender_excludes: false } => {
                f.write_str("it verifies with the TCP options: the sender has the MAC cover them, we do not")
            }
            Hint::MacLen { theirs, ours } => {
                write!(f, "the MAC is right but has {theirs} bytes where our key has {ours}")
            }
            Hint::Sne { theirs, ours } => {
                write!(f, "it verifies with sequence number extension {theirs}, not {ours}: an end lost count of wraps")
            }
            Hint::OtherKey { send_id, recv_id } => write!(
                f,
                "it verifies with our key of SendID {send_id} and RecvID {recv_id}: the ids of the two ends do not \
                 mirror each other"
            ),
            Hint::Algorithm(name) => write!(f, "it verifies with {name}: the algorithms of the two ends differ"),
            Hint::Secret(Spelling::NewLine) => f.write_str("the sender's secret ends with a new line, ours does not"),
            Hint::Secret(Spelling::NoNewLine) => f.write_str("our secret ends with a new line, the sender's does not"),
            Hint::Secret(Spelling::HexDecoded) => {
                f.write_str("our secret is text, and the sender decodes the same text as hexadecimal digits")
            }
            Hint::Secret(Spelling::HexText) => {
                f.write_str("our secret is decoded from hexadecimal digits, which the sender takes as text")
            }
            Hint::Mss { signed, arrived } => write!(
                f,
                "it verifies with MSS {signed}, and {arrived} arrived: something on the way lowers the MSS; leave the \
                 TCP options out of the MAC, or stop it"
            ),
            Hint::SynKey => {
                f.write_str("it is signed with the traffic key of a SYN: the sender has lost our sequence number")
            }
            Hint::SwappedEnds => f.write_str("it is signed with the traffic key of the other direction"),
        }
    }
}

/// A key and the numbers under which a segment was expected to verify.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The key.
    pub mkt: &'a Mkt,
    /// Both ends and their initial sequence numbers, the sender first.
    pub context: Context,
    /// The sequence number extension.
    pub sne: u32,
}

impl Reading<'_> {
    fn coverage(&self, option: &AoOption) -> Coverage {
        let exclude_options = self.mkt.exclude_options;
        Coverage { mac_at: option.mac_at(), mac_len: option.mac_len, sne: self.sne, exclude_options }
    }

    /// Whether the MAC of `segment` matches under this reading, at the length that the segment has.
    #[must_use]
    pub fn verifies(&self, segment: &Segment<'_>, option: &AoOption) -> bool {
        verifies(self.mkt, &self.context, segment, self.coverage(option))
    }
}

fn verifies(mkt: &Mkt, context: &Context, segment: &Segment<'_>, cover: Coverage) -> bool {
    let Ok(tfm) = mkt.traffic_mac(context) else { return false };
    let mut ops = [Verify { tfm: &tfm, packet: segment.packet(), at: *segment.layout(), cover, status: Ok(()) }];
    mac::verify(&mut ops);
    ops[0].status.is_ok()
}

/// Finds what would make `segment` verify, which does not verify under `expected`. `others` are further keys of ours.
/// `None` means that no known mistake explains it: the secrets differ, or the segment was changed on the way.
#[must_use]
pub fn diagnose<'a>(
    segment: &Segment<'_>,
    option: &AoOption,
    expected: &Reading<'_>,
    others: impl IntoIterator<Item = &'a Mkt>,
    algorithms: &Algorithms,
) -> Option<Hint> {
    let mkt = expected.mkt;
    let cover = expected.coverage(option);
    if mkt.mac_len != option.mac_len && expected.verifies(segment, option) {
        return Some(Hint::MacLen { theirs: option.mac_len, ours: mkt.mac_len });
    }
    let tried = |context: &Context, cover| verifies(mkt, context, segment, cover);
    let flipped = Coverage { exclude_options: !cover.exclude_options, ..cover };
    if tried(&expected.context, flipped) {
        return Some(Hint::Options { sender_excludes: flipped.exclude_options });
    }
    for theirs in [expected.sne.wrapping_sub(1), expected.sne.wrapping_add(1), 0] {
        if tried(&expected.context, Coverage { sne: theirs, ..cover }) {
            return Some(Hint::Sne { theirs, ours: expected.sne });
        }
    }
    if let Some(hint) = other_context(&expected.context, |context| tried(context, cover)) {
        return Some(hint);
    }
    for other in others.into_iter().filter(|other| !core::ptr::eq(*other, mkt)) {
        if (Reading { mkt: other, ..*expected }).verifies(segment, option) {
            return Some(Hint::OtherKey { send_id: other.send_id, recv_id: other.recv_id });
        }
    }
    // Nobody asks for keys that are elsewhere to give a hint.
    if mkt.reference().is_some() {
        return None;
    }
    let rekeyed = |algorithm, key: &[u8]| {
        let spec = MktSpec {
            algorithm,
            key,
            send_id: mkt.send_id,
            recv_id: mkt.recv_id,
            mac_len: mkt.mac_len,
            exclude_options: mkt.exclude_options,
            peer: mkt.peer,
            ifindex: mkt.ifindex,
        };
        Mkt::new(&spec).is_ok_and(|other| verifies(&other, &expected.context, segment, cover))
    };
    if let Some(other) = algorithms.iter().find(|a| a.name != mkt.algorithm.name && rekeyed(a, mkt.key())) {
        return Some(Hint::Algorithm(other.name));
    }
    let spelling = spellings(mkt.key()).find(|(_, key)| rekeyed(&mkt.algorithm, key)).map(|(how, _)| how);
    spelling.map(Hint::Secret).or_else(|| lowered_mss(segment, expected, cover))
}

/// Traffic keys that an end may have derived by mistake.
fn other_context(context: &Context, verifies: impl Fn(&Context) -> bool) -> Option<Hint> {
    let swapped = Context {
        source: context.destination,
        destination: context.source,
        source_isn: context.destination_isn,
        destination_isn: context.source_isn,
    };
    if context.destination_isn != 0 && verifies(&Context { destination_isn: 0, ..*context }) {
        return Some(Hint::SynKey);
    }
    verifies(&swapped).then_some(Hint::SwappedEnds)
}

/// Other spellings of a secret that could be meant.
fn spellings(key: &[u8]) -> impl Iterator<Item = (Spelling, Zeroizing<Vec<u8>>)> {
    let owned = |bytes: &[u8]| Zeroizing::new(bytes.to_vec());
    let with_new_line = Zeroizing::new([key, b"\n"].concat());
    let without = key.strip_suffix(b"\r\n").or_else(|| key.strip_suffix(b"\n")).map(owned);
    let text = Zeroizing::new(key.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect::<Vec<u8>>());
    let list = [
        Some((Spelling::NewLine, with_new_line)),
        without.map(|k| (Spelling::NoNewLine, k)),
        unhex(key).map(|k| (Spelling::HexDecoded, k)),
        Some((Spelling::HexText, text)),
    ];
    list.into_iter().flatten().filter(|(_, key)| key.len() <= MAX_KEY_LEN)
}

fn digit(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble)]
}

fn unhex(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (pairs, rest) = text.as_chunks::<2>();
    let value = |digit: u8| (digit as char).to_digit(16).map(|v| v as u8);
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[a, b]| Some(value(*a)? << 4 | value(*b)?)).collect();
    bytes.filter(|_| rest.is_empty()).map(Zeroizing::new)
}

/// Common MTUs of links and tunnels, from which senders derive the MSS that they sign.
const MTUS: [u16; 22] = [
    65535, 16384, 9216, 9198, 9180, 9100, 9001, 9000, 8950, 4352, 1500, 1496, 1492, 1488, 1480, 1476, 1472, 1460, 1450,
    1440, 1420, 1400,
];

/// Tries the MSS values that senders announce, above the one that arrived.
fn lowered_mss(segment: &Segment<'_>, expected: &Reading<'_>, cover: Coverage) -> Option<Hint> {
    if !segment.flags().syn() || cover.exclude_options {
        return None;
    }
    let mss = Options::new(segment.option_bytes()).map_while(Result::ok).find(|o| o.kind() == kind::MSS)?;
    let at = segment.layout().tcp_at + TCP_HEADER_LEN + mss.at + 2;
    let arrived = u16::from_be_bytes(mss.bytes.get(2..4)?.try_into().ok()?);
    let headers = if segment.layout().family == Family::V4 { 40 } else { 60 };
    let mut packet = segment.packet().to_vec();
    for signed in MTUS.iter().map(|mtu| mtu - headers).filter(|&mss| mss > arrived) {
        packet[at..at + 2].copy_from_slice(&signed.to_be_bytes());
        let changed = Segment::parse(&packet).ok()?;
        if verifies(expected.mkt, &expected.context, &changed, cover) {
            return Some(Hint::Mss { signed, arrived });
        }
    }
    None
}
