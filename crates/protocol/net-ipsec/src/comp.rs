//! IPComp (RFC 3173) with DEFLATE (RFC 2394): the payload of one packet, as Linux has it (`net/xfrm/xfrm_ipcomp.c`).
//!
//! ```text
//!  0               8               16                              32
//!  +---------------+---------------+-------------------------------+
//!  |  next header  |     flags     | compression parameter index   |
//!  +---------------+---------------+-------------------------------+
//!  |  raw DEFLATE stream of the payload ...                         |
//! ```

use crate::drop::DropReason;
use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 4;

/// Payloads that are shorter, in bytes, are not compressed (RFC 2394 section 3.2 recommends a threshold of 90).
pub const THRESHOLD: usize = 90;

/// The longest payload that a packet is decompressed to, in bytes (`IPCOMP_SCRATCH_SIZE`): what inflates to more is dropped.
pub const MAX_PAYLOAD_LEN: usize = 65_400;

/// Linux decompresses page by page with a window of so many bits (`DEFLATE_DEF_WINBITS`): no match may lie further back.
const WINDOW_BITS: u8 = 11;
/// Other peers may look further back.
const MAX_WINDOW_BITS: u8 = 15;
/// `Z_DEFAULT_COMPRESSION`.
const LEVEL: i32 = 6;

/// Compresses and decompresses one payload at a time; none depends on another. Its memory is bounded.
pub struct Codec {
    deflate: Deflate,
    inflate: Inflate,
    output: Box<[u8]>,
}

impl Default for Codec {
    fn default() -> Self {
        Codec { deflate: deflate(), inflate: Inflate::new(false, MAX_WINDOW_BITS), output: vec![0; ROOM].into() }
    }
}

fn deflate() -> Deflate {
    Deflate::new(LEVEL, false, WINDOW_BITS)
}

/// Room for the stream of any payload. Bytes of a block whose window has moved on are not stored as they are, and take up to nine
/// bits each by the fixed codes (RFC 1951 section 3.2.6).
const ROOM: usize = u16::MAX as usize + u16::MAX as usize / 8 + 64;

impl Codec {
    /// Compresses a payload; `None` if it is short, or does not become shorter with its header.
    pub fn compress(&mut self, payload: &[u8]) -> Option<&[u8]> {
        if payload.len() < THRESHOLD {
            return None;
        }
        self.deflate.reset();
        // The stream always goes on to its end: in zlib-rs 0.6.8 a stream that ends for want of room takes away room of the next
        // ones, until there is none (`Pending::reset_keep`), and compressing panics.
        let Ok(Status::StreamEnd) = self.deflate.compress(payload, &mut self.output, DeflateFlush::Finish) else {
            self.deflate = deflate();
            return None;
        };
        let len = usize::try_from(self.deflate.total_out()).ok()?;
        self.output.get(..len).filter(|_| len + HEADER_LEN <= payload.len())
    }

    /// Decompresses what follows a header. As in Linux, bytes behind the end of the stream are ignored.
    ///
    /// # Errors
    /// [`DropReason::Inflate`]: it is no whole stream of DEFLATE, is longer than [`MAX_PAYLOAD_LEN`] when decompressed, or
    /// shorter than it was with its header.
    pub fn decompress(&mut self, compressed: &[u8]) -> Result<&[u8], DropReason> {
        self.inflate.reset(false);
        let done = self.inflate.decompress(compressed, &mut self.output[..MAX_PAYLOAD_LEN], InflateFlush::Finish);
        let len = usize::try_from(self.inflate.total_out()).map_err(|_| DropReason::Inflate)?;
        match done {
            Ok(Status::StreamEnd) if len >= compressed.len() + HEADER_LEN => Ok(&self.output[..len]),
            _ => Err(DropReason::Inflate),
        }
    }
}

/// The header of a payload of protocol `next`, compressed by the association with this SPI, whose low half is the CPI.
#[must_use]
pub(crate) fn header(next: u8, spi: u32) -> [u8; HEADER_LEN] {
    let [high, low] = (spi as u16).to_be_bytes();
    [next, 0, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that anybody can repeat.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// Bytes that repeat themselves now and then, near and far.
    fn payload(state: &mut u64, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(len);
        while bytes.len() < len {
            let part = 1 + random(state) as usize % 60;
            if random(state).is_multiple_of(3) || bytes.is_empty() {
                bytes.extend((0..part).map(|_| random(state) as u8));
            } else {
                let from = random(state) as usize % bytes.len();
                let to = bytes.len().min(from + part);
                bytes.extend_from_within(from..to);
            }
        }
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn what_shrinks_comes_back() {
        let (mut codec, mut state) = (Codec::default(), 0x1234_5678_9abc_def1);
        let mut shrunk = 0;
        for len in (0..400).chain((400..9000).step_by(97)).chain([65_400, 65_515]) {
            let plain = payload(&mut state, len);
            let Some(compressed) = codec.compress(&plain).map(<[u8]>::to_vec) else { continue };
            assert!(len >= THRESHOLD && compressed.len() + HEADER_LEN <= len);
            if len <= MAX_PAYLOAD_LEN {
                shrunk += 1;
                assert_eq!(codec.decompress(&compressed), Ok(&plain[..]), "{len} bytes");
            }
        }
        assert!(shrunk > 100, "{shrunk} payloads were compressed");
    }

    /// A peer that keeps no more than Linux of what it has decompressed understands it.
    #[test]
    fn no_match_is_further_back_than_linux_keeps() {
        let (mut codec, mut state) = (Codec::default(), 0x9e37_79b9_7f4a_7c15);
        let block = payload(&mut state, 3000);
        let plain = [&block[..], &block, &block, &block].concat();
        let compressed = codec.compress(&plain).expect("it repeats itself").to_vec();
        let mut narrow = Inflate::new(false, WINDOW_BITS);
        let (mut got, mut rest, mut page) = (Vec::new(), &compressed[..], [0; 512]);
        loop {
            let before = (narrow.total_in(), narrow.total_out());
            let status = narrow.decompress(rest, &mut page, InflateFlush::NoFlush).expect("within the window");
            rest = &rest[(narrow.total_in() - before.0) as usize..];
            got.extend_from_slice(&page[..(narrow.total_out() - before.1) as usize]);
            if status == Status::StreamEnd {
                break;
            }
        }
        assert_eq!(got, plain);
    }

    #[test]
    fn short_and_random_payloads_stay_as_they_are() {
        let (mut codec, mut state) = (Codec::default(), 7);
        assert_eq!(codec.compress(&[0; THRESHOLD - 1]), None);
        assert!(codec.compress(&[0; THRESHOLD]).is_some());
        let noise: Vec<u8> = (0..1400).map(|_| random(&mut state) as u8).collect();
        assert_eq!(codec.compress(&noise), None);
    }

    /// Whatever the lengths: the next payload finds all as it was.
    #[test]
    fn payloads_that_do_not_shrink_leave_nothing_behind() {
        let (mut codec, mut state) = (Codec::default(), 0x0123_4567_89ab_cdef);
        let repeating = payload(&mut state, 1400);
        let expected = codec.compress(&repeating).expect("it repeats itself").to_vec();
        for len in (90..1500).step_by(7).chain((1500..65_536).step_by(997)).chain([65_535; 3]) {
            let noise: Vec<u8> = (0..len).map(|_| random(&mut state) as u8).collect();
            assert_eq!(codec.compress(&noise), None, "{len} bytes");
        }
        // Of codes as long as they get: no byte below 144, and none twice near another.
        let long: Vec<u8> = (0..65_535u32).map(|i| 144 + (i * 7919 % 112) as u8).collect();
        codec.compress(&long);
        assert_eq!(codec.compress(&repeating), Some(&expected[..]));
    }

    #[test]
    fn cut_streams_and_bombs_are_refused() {
        let mut codec = Codec::default();
        let plain = payload(&mut 99, 1400);
        let compressed = codec.compress(&plain).expect("it repeats itself").to_vec();
        for len in 0..compressed.len() {
            assert_eq!(codec.decompress(&compressed[..len]), Err(DropReason::Inflate), "{len} bytes");
        }
        let mut bomb = vec![0; 4096];
        for (len, fits) in [(MAX_PAYLOAD_LEN, true), (MAX_PAYLOAD_LEN + 1, false), (1 << 20, false)] {
            let mut deflate = Deflate::new(9, false, MAX_WINDOW_BITS);
            assert_eq!(deflate.compress(&vec![0; len], &mut bomb, DeflateFlush::Finish), Ok(Status::StreamEnd));
            let compressed = &bomb[..deflate.total_out() as usize];
            assert_eq!(codec.decompress(compressed).map(<[u8]>::len).ok(), fits.then_some(len), "{len} bytes");
        }
        // One that is longer than what it holds: a stored block.
        assert_eq!(codec.decompress(&[1, 2, 0, 0xfd, 0xff, b'h', b'i']), Err(DropReason::Inflate));
        // It works as before.
        assert_eq!(codec.decompress(&compressed), Ok(&plain[..]));
    }

    #[test]
    fn the_header_has_the_low_half_of_the_spi() {
        assert_eq!(header(6, 0x1234), [6, 0, 0x12, 0x34]);
    }
}
