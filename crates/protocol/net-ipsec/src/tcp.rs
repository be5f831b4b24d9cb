//! IKE and ESP in the stream of a TCP connection (RFC 9329 section 3; RFC 8229): messages behind one another, each behind its
//! length.

use core::fmt;

/// Length of the length field in bytes. The length counts it, too.
pub const LENGTH_LEN: usize = 2;
/// The longest message that a stream can carry, in bytes.
pub const MAX_LEN: usize = u16::MAX as usize - LENGTH_LEN;
/// Length of the marker that an IKE message begins with, where ESP has its SPI.
const MARKER_LEN: usize = 4;

/// A message of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'s> {
    /// Nothing but the byte that keeps the mapping of a NAT (RFC 9329 section 3.3), to be ignored.
    Keepalive,
    /// Neither: too short for either.
    Short,
    /// An IKE message with the non-ESP marker before it.
    Ike(&'s [u8]),
    /// A packet of ESP.
    Esp(&'s [u8]),
}

/// A length that does not even count its own field: where the next message begins is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLength(pub u16);

impl fmt::Display for BadLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message of ESP in TCP says that it has {} bytes, of which its length takes {LENGTH_LEN}", self.0)
    }
}

impl core::error::Error for BadLength {}

/// The first message of a stream, and the bytes that it takes there; `None` until it is complete.
///
/// # Errors
/// [`BadLength`]: the stream cannot be read any further.
pub fn first(stream: &[u8]) -> Result<Option<(Message<'_>, usize)>, BadLength> {
    let Some(length) = stream.first_chunk() else { return Ok(None) };
    let length = u16::from_be_bytes(*length);
    let end = usize::from(length);
    if end < LENGTH_LEN {
        return Err(BadLength(length));
    }
    let Some(message) = stream.get(LENGTH_LEN..end) else { return Ok(None) };
    let message = match message {
        [0xff] => Message::Keepalive,
        // Like Linux (`espintcp_rcv`): a marker with nothing behind it is no IKE message.
        _ if message.len() <= MARKER_LEN => Message::Short,
        [0, 0, 0, 0, ..] => Message::Ike(message),
        _ => Message::Esp(message),
    };
    Ok(Some((message, end)))
}

/// The length field of a message of `len` bytes; `None` where it is longer than [`MAX_LEN`].
#[must_use]
pub fn length_field(len: usize) -> Option<[u8; LENGTH_LEN]> {
    u16::try_from(len + LENGTH_LEN).ok().map(u16::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> Vec<u8> {
        [&length_field(bytes.len()).expect("it fits")[..], bytes].concat()
    }

    #[test]
    fn messages_by_their_first_bytes() {
        let cases: [(&[u8], Message<'_>); 8] = [
            (&[], Message::Short),
            (&[0xff], Message::Keepalive),
            (&[0xfe], Message::Short),
            (&[0xff, 0xff], Message::Short),
            (&[0; 4], Message::Short),
            (&[0, 0, 0, 0, 9], Message::Ike(&[0, 0, 0, 0, 9])),
            (&[0, 0, 0, 1, 9], Message::Esp(&[0, 0, 0, 1, 9])),
            (&[0xff; 5], Message::Esp(&[0xff; 5])),
        ];
        for (bytes, kind) in cases {
            assert_eq!(first(&message(bytes)), Ok(Some((kind, bytes.len() + 2))), "{bytes:?}");
        }
        let longest = vec![1; MAX_LEN];
        assert_eq!(first(&message(&longest)), Ok(Some((Message::Esp(&longest), 65_535))));
        assert_eq!(length_field(MAX_LEN + 1), None);
    }

    #[test]
    fn a_length_that_is_none() {
        assert_eq!(first(&[0, 0, 7, 7, 7, 7]), Err(BadLength(0)));
        assert_eq!(first(&[0, 1]), Err(BadLength(1)));
        assert_eq!(first(&[0]), Ok(None));
    }

    /// However a stream is cut, the same messages come out of it.
    #[test]
    fn a_stream_in_pieces() {
        let all: [&[u8]; 5] = [&[0, 0, 0, 0, 1, 2, 3], &[0xff], &[1; 300], &[], &[0, 0, 1, 0, 5]];
        let stream: Vec<u8> = all.iter().flat_map(|bytes| message(bytes)).collect();
        for piece in 1..=stream.len() {
            let (mut waiting, mut read) = (Vec::new(), Vec::new());
            for bytes in stream.chunks(piece) {
                waiting.extend_from_slice(bytes);
                while let Some((_, end)) = first(&waiting).expect("good lengths") {
                    read.push(waiting.drain(..end).skip(LENGTH_LEN).collect::<Vec<u8>>());
                }
            }
            assert_eq!((read, waiting.len()), (all.map(<[u8]>::to_vec).to_vec(), 0), "in pieces of {piece}");
        }
    }
}
