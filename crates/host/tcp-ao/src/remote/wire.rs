//! Requests of launchers and answers of the daemon, as bytes on a stream.
//!
//! ```text
//! request   head (24 bytes): version, kind, privileged, 0, option, optlen, port, length of the body; the body
//! answer    head (24 bytes): version, outcome, flags, 0, errno, optlen, number of writes, length of the body; the body
//! ```
//! Numbers are little-endian. The socket that a call is about, or the network namespace that is asked about, comes with
//! the first byte of a request.

use crate::calls::{Asked, Outcome};
use sealane_engine_ao::{Answer, Write};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use zeroize::Zeroizing;

/// The version of the frames. A daemon that does not know it refuses the request.
const VERSION: u8 = 1;

/// The length of a head in bytes.
pub const HEAD_LEN: usize = 24;
/// The longest body of a request: more than any option takes, and than /proc/net/netstat has.
pub const MAX_REQUEST: usize = 1 << 17;
/// The longest body of an answer: the keys of a listener with a hundred thousand of them.
pub const MAX_ANSWER: usize = 1 << 25;

/// A request.
pub enum Request {
    /// Whether programs of this network namespace are served.
    Serves,
    /// A call on a socket.
    Call {
        /// Whether the program is privileged.
        privileged: bool,
        /// The call.
        asked: Asked,
    },
    /// The text of /proc/net/netstat, with our counters.
    Netstat(String),
    /// The wish to wait until no segment is under way.
    Settle,
}

const SERVES: u8 = 1;
const SET: u8 = 2;
const GET: u8 = 3;
const CONNECT: u8 = 4;
const NETSTAT: u8 = 5;
const SETTLE: u8 = 6;

const PASS: u8 = 0;
const DONE: u8 = 1;
const FAIL: u8 = 2;

const HAS_OPTLEN: u8 = 1;
const LAST: u8 = 2;

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn head(kind: u8, flags: u8, words: [u32; 3], body: usize) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..3].copy_from_slice(&[VERSION, kind, flags]);
    for (to, word) in head[4..].chunks_exact_mut(4).zip(words.into_iter().chain([body as u32])) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    head
}

/// The parts of a head: kind, flags, words, length of the body.
fn parts(head: &[u8; HEAD_LEN], max: usize) -> io::Result<(u8, u8, [u32; 3], usize)> {
    if head[0] != VERSION {
        return Err(invalid("a version that is not known"));
    }
    let at = |at| word(head, at).ok_or_else(|| invalid("cut short"));
    let len = at(16)? as usize;
    if len > max {
        return Err(invalid("too long"));
    }
    Ok((head[1], head[2], [at(4)?, at(8)?, at(12)?], len))
}

/// The length of the body of a request.
///
/// # Errors
/// `InvalidData`.
pub fn request_len(head: &[u8; HEAD_LEN]) -> io::Result<usize> {
    parts(head, MAX_REQUEST).map(|(_, _, _, len)| len)
}

/// The length of the body of an answer.
///
/// # Errors
/// `InvalidData`.
pub fn answer_len(head: &[u8; HEAD_LEN]) -> io::Result<usize> {
    parts(head, MAX_ANSWER).map(|(_, _, _, len)| len)
}

impl Request {
    /// The bytes of the request.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let frame = |kind, flags: u8, words, body: &[u8]| {
            let mut frame = Zeroizing::new(Vec::with_capacity(HEAD_LEN + body.len()));
            frame.extend_from_slice(&head(kind, flags, words, body.len()));
            frame.extend_from_slice(body);
            frame
        };
        match self {
            Request::Serves => frame(SERVES, 0, [0; 3], &[]),
            Request::Settle => frame(SETTLE, 0, [0; 3], &[]),
            Request::Netstat(text) => frame(NETSTAT, 0, [0; 3], text.as_bytes()),
            Request::Call { privileged, asked } => {
                let privileged = u8::from(*privileged);
                match asked {
                    Asked::Set { name, value, len } => frame(SET, privileged, [*name as u32, *len as u32, 0], value),
                    Asked::Get { name, value, len } => frame(GET, privileged, [*name as u32, *len as u32, 0], value),
                    Asked::Connect(SocketAddr::V4(to)) => {
                        frame(CONNECT, privileged, [0, 0, to.port().into()], &to.ip().octets())
                    }
                    Asked::Connect(SocketAddr::V6(to)) => {
                        frame(CONNECT, privileged, [to.scope_id(), 0, to.port().into()], &to.ip().octets())
                    }
                }
            }
        }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// `InvalidData`.
    pub fn decode(head: &[u8; HEAD_LEN], body: Zeroizing<Vec<u8>>) -> io::Result<Request> {
        let (kind, flags, words, len) = parts(head, MAX_REQUEST)?;
        if len != body.len() {
            return Err(invalid("cut short"));
        }
        let privileged = flags & 1 != 0;
        let (name, optlen) = (words[0] as i32, words[1] as i32);
        let asked = match kind {
            SERVES => return Ok(Request::Serves),
            SETTLE => return Ok(Request::Settle),
            NETSTAT => {
                let text = core::str::from_utf8(&body).map_err(|_| invalid("not a text"))?;
                return Ok(Request::Netstat(text.to_owned()));
            }
            SET => Asked::Set { name, value: body, len: optlen },
            GET => Asked::Get { name, value: body, len: optlen },
            CONNECT => {
                let port = u16::try_from(words[2]).map_err(|_| invalid("a port"))?;
                let v4 = <[u8; 4]>::try_from(&body[..]).map(|ip| SocketAddr::new(ip.into(), port));
                let v6 = || {
                    <[u8; 16]>::try_from(&body[..]).map(|ip| SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, words[0]))
                };
                Asked::Connect(v4.or_else(|_| v6().map(SocketAddr::V6)).map_err(|_| invalid("an address"))?)
            }
            _ => return Err(invalid("a request that is not known")),
        };
        Ok(Request::Call { privileged, asked })
    }
}

/// The bytes of an answer.
#[must_use]
pub fn encode_answer(outcome: &Outcome) -> Zeroizing<Vec<u8>> {
    let Outcome::Done(answer) = outcome else {
        let (kind, errno) = match outcome {
            Outcome::Fail(errno) => (FAIL, *errno),
            _ => (PASS, 0),
        };
        return Zeroizing::new(head(kind, 0, [errno as u32, 0, 0], 0).to_vec());
    };
    let writes = || answer.writes.iter().chain(&answer.last);
    let body: usize = writes().map(|write| 8 + write.bytes.len()).sum();
    let flags = if answer.optlen.is_some() { HAS_OPTLEN } else { 0 } | if answer.last.is_some() { LAST } else { 0 };
    let words = [0, answer.optlen.unwrap_or(0) as u32, writes().count() as u32];
    let mut frame = Zeroizing::new(Vec::with_capacity(HEAD_LEN + body));
    frame.extend_from_slice(&head(DONE, flags, words, body));
    for write in writes() {
        frame.extend_from_slice(&(write.offset as u32).to_le_bytes());
        frame.extend_from_slice(&(write.bytes.len() as u32).to_le_bytes());
        frame.extend_from_slice(&write.bytes);
    }
    frame
}

/// Reads an answer.
///
/// # Errors
/// `InvalidData`.
pub fn decode_answer(head: &[u8; HEAD_LEN], body: &[u8]) -> io::Result<Outcome> {
    let (kind, flags, [errno, optlen, count], len) = parts(head, MAX_ANSWER)?;
    if len != body.len() {
        return Err(invalid("cut short"));
    }
    match kind {
        PASS => return Ok(Outcome::Pass),
        FAIL => return Ok(Outcome::Fail(errno as i32)),
        DONE => {}
        _ => return Err(invalid("an outcome that is not known")),
    }
    let mut writes = Vec::new();
    let mut rest = body;
    for _ in 0..count {
        let (Some(offset), Some(len)) = (word(rest, 0), word(rest, 4)) else { return Err(invalid("cut short")) };
        let (bytes, tail) = rest[8..].split_at_checked(len as usize).ok_or_else(|| invalid("cut short"))?;
        writes.push(Write { offset: offset as usize, bytes: Zeroizing::new(bytes.to_vec()) });
        rest = tail;
    }
    if !rest.is_empty() {
        return Err(invalid("too long"));
    }
    let last = if flags & LAST != 0 { writes.pop() } else { None };
    Ok(Outcome::Done(Answer { writes, optlen: (flags & HAS_OPTLEN != 0).then_some(optlen as i32), last }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(request: &Request) -> Request {
        let bytes = request.encode();
        let (head, body) = bytes.split_first_chunk().expect("a head");
        assert_eq!(request_len(head).expect("a length"), body.len());
        Request::decode(head, Zeroizing::new(body.to_vec())).expect("a request")
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        assert!(matches!(again(&Request::Serves), Request::Serves));
        assert!(matches!(again(&Request::Netstat("a b".into())), Request::Netstat(text) if text == "a b"));
        let value = || Zeroizing::new(vec![1, 2, 3]);
        let set = Asked::Set { name: 38, value: value(), len: -1 };
        let Request::Call { privileged: true, asked: Asked::Set { name: 38, value: got, len: -1 } } =
            again(&Request::Call { privileged: true, asked: set })
        else {
            panic!("another one")
        };
        assert_eq!(*got, [1, 2, 3]);
        let get = Asked::Get { name: 41, value: value(), len: 3 };
        let got = again(&Request::Call { privileged: false, asked: get });
        assert!(matches!(got, Request::Call { privileged: false, asked: Asked::Get { name: 41, len: 3, .. } }));
        for to in ["192.0.2.1:179", "[2001:db8::1]:65535", "[fe80::1%7]:1", "[::ffff:192.0.2.1]:1"] {
            let to: SocketAddr = to.parse().expect("an address");
            let got = again(&Request::Call { privileged: false, asked: Asked::Connect(to) });
            assert!(matches!(got, Request::Call { asked: Asked::Connect(got), .. } if got == to), "{to}");
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let again = |outcome: &Outcome| {
            let bytes = encode_answer(outcome);
            let (head, body) = bytes.split_first_chunk().expect("a head");
            assert_eq!(answer_len(head).expect("a length"), body.len());
            decode_answer(head, body).expect("an answer")
        };
        assert!(matches!(again(&Outcome::Pass), Outcome::Pass));
        assert!(matches!(again(&Outcome::Fail(22)), Outcome::Fail(22)));
        assert!(
            matches!(again(&Outcome::Done(Answer::default())), Outcome::Done(a) if a.optlen.is_none() && a.last.is_none())
        );
        let write = |offset, bytes: &[u8]| Write { offset, bytes: Zeroizing::new(bytes.to_vec()) };
        let whole =
            Answer { writes: vec![write(0, b"one"), write(300, b"")], optlen: Some(-7), last: Some(write(8, b"x")) };
        let Outcome::Done(got) = again(&Outcome::Done(whole)) else { panic!("another one") };
        let told: Vec<_> = got.optval().map(|w| (w.offset, w.bytes.to_vec())).collect();
        assert_eq!(told, [(0, b"one".to_vec()), (300, Vec::new()), (8, b"x".to_vec())]);
        assert_eq!((got.optlen, got.last.is_some()), (Some(-7), true));
    }

    #[test]
    fn what_is_none_is_refused() {
        let request = Request::Call { privileged: false, asked: Asked::Connect("192.0.2.1:1".parse().expect("one")) };
        let bytes = request.encode();
        let (head, body) = bytes.split_first_chunk().expect("a head");
        let decode = |head: &[u8; HEAD_LEN], body: &[u8]| Request::decode(head, Zeroizing::new(body.to_vec()));
        assert!(decode(head, &body[1..]).is_err());
        for (at, value) in [(0, 9), (1, 77), (16, 5), (19, 255)] {
            let mut head = *head;
            head[at] = value;
            assert!(decode(&head, body).is_err(), "byte {at}");
        }
        let answer = encode_answer(&Outcome::Done(Answer { optlen: Some(1), ..Answer::default() }));
        let (head, _) = answer.split_first_chunk().expect("a head");
        let mut more = *head;
        more[12] = 1;
        assert!(decode_answer(&more, &[]).is_err() && decode_answer(head, &[0]).is_err());
    }
}
