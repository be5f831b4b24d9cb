//! Packet captures: reading pcap and pcapng files frame by frame, writing pcap, and locating the IP packet in a frame.
#![forbid(unsafe_code)]

mod link;

pub use link::{LinkType, NotIp};

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, PcapBlockOwned, PcapError};
use std::fmt;
use std::io::{self, Read, Write};

/// Initial size of the read buffer, which grows for longer blocks.
const BUFFER: usize = 1 << 16;

/// The longest block: 64 KiB of packet, or pcapng's blocks of names and secrets.
const MAX_BLOCK: usize = 16 << 20;

/// The reason why a capture cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureError {
    /// Reading failed.
    Read,
    /// The file is neither pcap nor pcapng.
    NotACapture,
    /// The file ends in the middle of a frame, for example because the capturing program was killed.
    CutShort,
    /// A frame or block is invalid, this many bytes into the file.
    Malformed(u64),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Read => f.write_str("it cannot be read"),
            CaptureError::NotACapture => {
                f.write_str("neither pcap nor pcapng (if it is compressed, decompress it first)")
            }
            CaptureError::CutShort => f.write_str("it ends in the middle of a frame"),
            CaptureError::Malformed(at) => write!(f, "malformed {at} bytes into it"),
        }
    }
}

impl std::error::Error for CaptureError {}

/// A captured frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Its number in the capture, from 1.
    pub number: u64,
    /// The capture time in nanoseconds since 1970; 0 if unknown.
    pub time_ns: i64,
    /// The type of its link header.
    pub link: LinkType,
    /// The captured bytes.
    pub data: &'a [u8],
    /// The frame's length on the link in bytes.
    pub len: usize,
}

impl<'a> Frame<'a> {
    /// The offset of the IP packet in `data`.
    ///
    /// # Errors
    /// [`NotIp`].
    pub fn ip_at(&self) -> Result<usize, NotIp> {
        self.link.ip_at(self.data)
    }

    /// Whether the frame was captured only partly.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.data.len() < self.len
    }
}

/// An interface of a pcapng section.
struct Interface {
    link: LinkType,
    /// The unit of time stamps: this many per second.
    ticks_per_s: u128,
    /// Seconds to add to time stamps.
    offset_s: i64,
}

/// The state of the current section. A pcap file is a section with one interface.
#[derive(Default)]
struct Section {
    interfaces: Vec<Interface>,
    /// Byte order of a pcapng section; `None` in a pcap file.
    big_endian: Option<bool>,
}

/// The type of a pcapng section header block, the same in both byte orders.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The shortest block of pcapng: type, length and length again.
const MIN_BLOCK_LEN: u32 = 12;

impl Section {
    /// Whether a block that starts with `data` is safe to parse: pcap-parser 0.17 computes with the length of a block
    /// of unknown type before it checks it.
    fn may_start(&self, data: &[u8]) -> bool {
        let (Some(big_endian), Some(head)) = (self.big_endian, data.first_chunk::<8>()) else { return true };
        let len = [head[4], head[5], head[6], head[7]];
        let len = if big_endian { u32::from_be_bytes(len) } else { u32::from_le_bytes(len) };
        head[..4] == SECTION_HEADER || len >= MIN_BLOCK_LEN
    }
}

/// Reads a capture, frame by frame.
pub struct Reader<'r> {
    inner: Box<dyn PcapReaderIterator + Send + 'r>,
    capacity: usize,
    section: Section,
    number: u64,
    frame: Vec<u8>,
}

/// Fills the buffer on each read: a pipe returns data in pieces.
struct Full<R>(R);

impl<R: Read> Read for Full<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.0.read(&mut buf[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }
}

/// The result of parsing a block with a frame.
struct Found {
    time_ns: i64,
    link: LinkType,
    len: usize,
}

impl<'r> Reader<'r> {
    /// Opens a pcap or pcapng file; detects which of them it is.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn new(input: impl Read + Send + 'r) -> Result<Self, CaptureError> {
        let inner = pcap_parser::create_reader(BUFFER, Full(input)).map_err(|e| match e {
            PcapError::ReadError => CaptureError::Read,
            PcapError::Incomplete(_) => CaptureError::CutShort,
            _ => CaptureError::NotACapture,
        })?;
        Ok(Reader { inner, capacity: BUFFER, section: Section::default(), number: 0, frame: Vec::new() })
    }

    /// The next frame; `None` after the last one.
    ///
    /// # Errors
    /// [`CaptureError`]; nothing can be read after it.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        loop {
            let at = self.inner.consumed() as u64;
            if !self.section.may_start(self.inner.data()) {
                return Err(CaptureError::Malformed(at));
            }
            match self.inner.next() {
                Ok((consumed, block)) => {
                    let found = take(block, &mut self.section, &mut self.frame);
                    self.inner.consume(consumed);
                    let Some(Found { time_ns, link, len }) = found.ok_or(CaptureError::Malformed(at))? else {
                        continue;
                    };
                    self.number += 1;
                    return Ok(Some(Frame { number: self.number, time_ns, link, data: &self.frame, len }));
                }
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::UnexpectedEof) => return Err(CaptureError::CutShort),
                Err(PcapError::ReadError) => return Err(CaptureError::Read),
                Err(PcapError::Incomplete(_)) => self.refill(at)?,
                Err(PcapError::BufferTooSmall) => self.grow(at)?,
                Err(_) => return Err(CaptureError::Malformed(at)),
            }
        }
    }

    fn refill(&mut self, at: u64) -> Result<(), CaptureError> {
        let before = self.inner.data().len();
        self.inner.refill().map_err(|_| CaptureError::Read)?;
        // The parser needs more than fits into the buffer, without saying how much.
        if self.inner.data().len() == before && !self.inner.reader_exhausted() { self.grow(at) } else { Ok(()) }
    }

    fn grow(&mut self, at: u64) -> Result<(), CaptureError> {
        self.capacity *= 2;
        if self.capacity > MAX_BLOCK || !self.inner.grow(self.capacity) {
            return Err(CaptureError::Malformed(at));
        }
        self.inner.refill().map_err(|_| CaptureError::Read)
    }
}

/// Copies a frame out of its block. `Some(None)`: the block is of another kind. `None`: the block is invalid.
#[expect(clippy::option_option, reason = "nothing, a frame, or nonsense")]
fn take(block: PcapBlockOwned<'_>, section: &mut Section, frame: &mut Vec<u8>) -> Option<Option<Found>> {
    frame.clear();
    let interfaces = &mut section.interfaces;
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let ticks_per_s = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            // The upper bits describe frame check sequences.
            let link = LinkType(header.network.0 as u16);
            interfaces.push(Interface { link, ticks_per_s, offset_s: 0 });
            Some(None)
        }
        PcapBlockOwned::Legacy(record) => {
            let interface = interfaces.first()?;
            frame.extend_from_slice(record.data);
            let ticks = u128::from(record.ts_sec) * interface.ticks_per_s + u128::from(record.ts_usec);
            Some(Some(Found { time_ns: interface.time_ns(ticks), link: interface.link, len: record.origlen as usize }))
        }
        PcapBlockOwned::NG(Block::SectionHeader(header)) => {
            interfaces.clear();
            section.big_endian = Some(header.big_endian());
            Some(None)
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            interfaces.push(Interface {
                link: LinkType(interface.linktype.0 as u16),
                ticks_per_s: resolution(interface.if_tsresol)?,
                offset_s: interface.if_tsoffset,
            });
            Some(None)
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = interfaces.get(packet.if_id as usize)?;
            frame.extend_from_slice(packet.packet_data());
            let ticks = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
            Some(Some(Found { time_ns: interface.time_ns(ticks), link: interface.link, len: packet.origlen as usize }))
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            let interface = interfaces.first()?;
            frame.extend_from_slice(packet.packet_data());
            Some(Some(Found { time_ns: 0, link: interface.link, len: packet.origlen as usize }))
        }
        PcapBlockOwned::NG(_) => Some(None),
    }
}

/// The units per second that pcapng's `if_tsresol` means: a power of ten, or of two if the highest bit is set.
fn resolution(code: u8) -> Option<u128> {
    let power = u32::from(code & 0x7f);
    if code & 0x80 == 0 { 10u128.checked_pow(power) } else { 1u128.checked_shl(power) }.filter(|&r| r <= 1 << 64)
}

impl Interface {
    fn time_ns(&self, ticks: u128) -> i64 {
        let seconds = (ticks / self.ticks_per_s) as i128 + i128::from(self.offset_s);
        let ns = (ticks % self.ticks_per_s) * 1_000_000_000 / self.ticks_per_s;
        i64::try_from(seconds * 1_000_000_000 + ns as i128).unwrap_or(0)
    }
}

/// Writes a pcap file with nanosecond time stamps.
pub struct Writer<W>(W);

/// The snapshot length in the header; frames are never truncated.
const SNAP_LEN: u32 = 1 << 18;

impl<W: Write> Writer<W> {
    /// Writes the header of a file whose frames all have the link type `link`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, link: LinkType) -> io::Result<Self> {
        // Magic number, version 2.4, time zone and accuracy (unused), snapshot length, link type.
        let mut head = Vec::with_capacity(24);
        head.extend(0xa1b2_3c4du32.to_le_bytes());
        head.extend([2, 0, 4, 0]);
        head.extend([0; 8]);
        head.extend(SNAP_LEN.to_le_bytes());
        head.extend(u32::from(link.0).to_le_bytes());
        out.write_all(&head)?;
        Ok(Writer(out))
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// Those of the file; `InvalidInput` for a frame longer than 256 KiB.
    pub fn write(&mut self, time_ns: i64, data: &[u8]) -> io::Result<()> {
        let len = u32::try_from(data.len()).ok().filter(|&len| len <= SNAP_LEN);
        let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a frame of over 256 KiB"))?;
        // A time that does not fit into the format's 32 bits is written as 0.
        let seconds = u32::try_from(time_ns.div_euclid(1_000_000_000)).unwrap_or(0);
        let ns = time_ns.rem_euclid(1_000_000_000) as u32;
        for field in [seconds, ns, len, len] {
            self.0.write_all(&field.to_le_bytes())?;
        }
        self.0.write_all(data)
    }

    /// Flushes the writer.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests;
