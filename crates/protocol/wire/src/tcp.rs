//! TCP segments: header fields, flags, options.
//!
//! ```text
//!   0 source port      2 destination port       RFC 9293 section 3.1
//!   4 sequence number
//!   8 acknowledgment number
//!  12 data offset|reserved   13 flags   14 window
//!  16 checksum        18 urgent pointer
//!  20 options, then data
//! ```

use crate::ip::{Layout, NotTcp, be16, be32, sockets};
use core::net::SocketAddr;

/// Kinds of options.
pub mod kind {
    /// End of the list.
    pub const EOL: u8 = 0;
    /// Padding.
    pub const NOP: u8 = 1;
    /// Maximum segment size.
    pub const MSS: u8 = 2;
    /// Window scale.
    pub const WINDOW_SCALE: u8 = 3;
    /// SACK permitted.
    pub const SACK_PERMITTED: u8 = 4;
    /// SACK blocks.
    pub const SACK: u8 = 5;
    /// Timestamps.
    pub const TIMESTAMPS: u8 = 8;
    /// TCP-MD5 (RFC 2385).
    pub const MD5: u8 = 19;
    /// TCP-AO (RFC 5925).
    pub const AO: u8 = 29;
    /// Accurate ECN (RFC 9768), the counter of ECT(0) first.
    pub const ACCECN0: u8 = 172;
    /// The same with that of ECT(1) first.
    pub const ACCECN1: u8 = 174;
}

/// Flags of a segment, byte 13 of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;

    /// Whether all of `bits` are set.
    #[must_use]
    #[inline]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }

    /// SYN.
    #[must_use]
    #[inline]
    pub const fn syn(self) -> bool {
        self.has(Self::SYN)
    }

    /// ACK.
    #[must_use]
    #[inline]
    pub const fn ack(self) -> bool {
        self.has(Self::ACK)
    }

    /// RST.
    #[must_use]
    #[inline]
    pub const fn rst(self) -> bool {
        self.has(Self::RST)
    }

    /// FIN.
    #[must_use]
    #[inline]
    pub const fn fin(self) -> bool {
        self.has(Self::FIN)
    }
}

/// A TCP segment in its IP packet.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    packet: &'a [u8],
    at: Layout,
}

impl<'a> Segment<'a> {
    /// Finds the segment in an IP packet.
    ///
    /// # Errors
    /// [`NotTcp`].
    pub fn parse(packet: &'a [u8]) -> Result<Self, NotTcp> {
        Layout::find(packet).map(|at| Segment::with_layout(packet, at))
    }

    /// The segment of an IP packet that was parsed before.
    ///
    /// # Panics
    /// When the packet is shorter than its layout says.
    #[must_use]
    #[inline]
    pub fn with_layout(packet: &'a [u8], at: Layout) -> Self {
        Segment { packet: &packet[..at.end], at }
    }

    /// The offsets of its parts.
    #[must_use]
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.at
    }

    /// The whole IP packet, without padding behind it in its buffer.
    #[must_use]
    #[inline]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// The TCP header with its options.
    #[must_use]
    #[inline]
    pub fn header(&self) -> &'a [u8] {
        &self.packet[self.at.tcp_at..self.at.payload_at]
    }

    /// The bytes of all options.
    #[must_use]
    #[inline]
    pub fn option_bytes(&self) -> &'a [u8] {
        &self.header()[20..]
    }

    /// The payload.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.packet[self.at.payload_at..]
    }

    /// Sender.
    #[must_use]
    pub fn source(&self) -> SocketAddr {
        sockets(self.packet, &self.at).0
    }

    /// Receiver.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        sockets(self.packet, &self.at).1
    }

    /// Sequence number.
    #[must_use]
    #[inline]
    pub fn seq(&self) -> u32 {
        be32(self.packet, self.at.tcp_at + 4)
    }

    /// Acknowledgment number, valid or not (see [`Flags::ACK`]).
    #[must_use]
    #[inline]
    pub fn ack_seq(&self) -> u32 {
        be32(self.packet, self.at.tcp_at + 8)
    }

    /// Flags.
    #[must_use]
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(self.packet[self.at.tcp_at + 13])
    }

    /// Whether the first flag of accurate ECN's counter is set (AE, RFC 9768), which nothing else uses any more.
    #[must_use]
    #[inline]
    pub fn accurate_ecn(&self) -> bool {
        self.packet[self.at.tcp_at + 12] & 1 != 0
    }

    /// Window, unscaled.
    #[must_use]
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.packet, self.at.tcp_at + 14)
    }

    /// The sequence numbers that the segment takes up: payload, SYN and FIN.
    #[must_use]
    #[inline]
    pub fn seq_len(&self) -> u32 {
        let flags = self.flags();
        (self.at.payload_len() as u32).wrapping_add(u32::from(flags.syn())).wrapping_add(u32::from(flags.fin()))
    }

    /// The authentication option.
    ///
    /// # Errors
    /// [`BadOptions`], see [`Auth::find`].
    pub fn auth(&self) -> Result<Option<Auth>, BadOptions> {
        Auth::find(self.option_bytes())
    }
}

/// An error: the options of a segment are malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadOptions;

/// One option of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Its offset in the option bytes.
    pub at: usize,
    /// Kind, length (except for EOL and NOP) and content.
    pub bytes: &'a [u8],
}

impl RawOption<'_> {
    /// Its kind.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> u8 {
        self.bytes[0]
    }
}

/// Iterates over the options up to EOL (which is not returned) or the end. After an error it returns nothing more.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    /// Iterates over the bytes behind the fixed header.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Options { bytes, at: 0 }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<RawOption<'a>, BadOptions>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        let len = match rest {
            [] | [kind::EOL, ..] => return None,
            [kind::NOP, ..] => 1,
            [_, len, ..] => usize::from(*len),
            [_] => 0,
        };
        let at = self.at;
        // NOP is the only option of one byte; a length below two would loop.
        let valid = if rest[0] == kind::NOP { len == 1 } else { len >= 2 };
        match rest.get(..len).filter(|_| valid) {
            Some(bytes) => {
                self.at += len;
                Some(Ok(RawOption { at, bytes }))
            }
            None => {
                self.at = self.bytes.len();
                Some(Err(BadOptions))
            }
        }
    }
}

/// The TCP-AO option of a segment (RFC 5925 section 2.2).
///
/// ```text
///  | Kind=29 | Length | KeyID | RNextKeyID | MAC ... |
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AoOption {
    /// Its offset in the option bytes.
    pub at: usize,
    /// SendID of the sender's key.
    pub key_id: u8,
    /// RecvID of the key that the sender asks its peer to use.
    pub rnext_key_id: u8,
    /// Length of the MAC in bytes, 1 to 36.
    pub mac_len: usize,
}

impl AoOption {
    /// The offset of the MAC in the TCP header.
    #[must_use]
    #[inline]
    pub fn mac_at(&self) -> usize {
        20 + self.at + 4
    }
}

/// The authentication option of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// TCP-MD5 (RFC 2385).
    Md5 {
        /// Offset in the option bytes.
        at: usize,
    },
    /// TCP-AO.
    Ao(AoOption),
}

/// Fewer remaining bytes than this cannot hold an authentication option; the kernel stops there.
const MIN_AUTH_LEN: usize = 5;

impl Auth {
    /// Finds the authentication option in the option bytes. Malformed options are those of the kernel
    /// (`tcp_do_parse_auth_options`), which ignores the last four bytes.
    ///
    /// # Errors
    /// [`BadOptions`]: a length that cannot be, a second authentication option, a TCP-AO option without MAC.
    pub fn find(options: &[u8]) -> Result<Option<Auth>, BadOptions> {
        let mut found = None;
        let mut at = 0;
        while let Some(rest) = options.get(at..).filter(|rest| rest.len() >= MIN_AUTH_LEN) {
            let len = usize::from(rest[1]);
            let auth = match rest[0] {
                kind::EOL => break,
                kind::NOP => {
                    at += 1;
                    continue;
                }
                _ if len < 2 || len > rest.len() => return Err(BadOptions),
                kind::MD5 if len == 18 => Some(Auth::Md5 { at }),
                kind::MD5 => return Err(BadOptions),
                kind::AO if len > 4 => {
                    Some(Auth::Ao(AoOption { at, key_id: rest[2], rnext_key_id: rest[3], mac_len: len - 4 }))
                }
                kind::AO => return Err(BadOptions),
                _ => None,
            };
            if auth.is_some() && found.is_some() {
                return Err(BadOptions);
            }
            found = found.or(auth);
            at += len;
        }
        Ok(found)
    }
}
