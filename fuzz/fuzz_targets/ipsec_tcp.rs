//! The messages of a stream of ESP in TCP: whatever it has, in whatever pieces it comes, the same messages are found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_fuzz::Input;
use sealane_net_ipsec::tcp::{BadLength, LENGTH_LEN, Message, first, length_field};

/// The messages of a stream that comes in pieces of at most these lengths, and how it ends.
fn read(stream: &[u8], pieces: &[u8]) -> (Vec<Vec<u8>>, Result<usize, BadLength>) {
    let (mut waiting, mut all, mut rest) = (Vec::new(), Vec::new(), stream);
    for most in pieces.iter().cycle() {
        let (piece, others) = rest.split_at(rest.len().min(usize::from(*most) + 1));
        rest = others;
        waiting.extend_from_slice(piece);
        loop {
            match first(&waiting) {
                Err(e) => return (all, Err(e)),
                Ok(None) => break,
                Ok(Some((message, end))) => {
                    let bytes = &waiting[LENGTH_LEN..end];
                    assert_eq!(length_field(bytes.len()), waiting.first_chunk().copied());
                    match message {
                        Message::Keepalive => assert_eq!(bytes, [0xff]),
                        Message::Short => assert!(bytes.len() <= 4),
                        Message::Ike(ike) => assert!(ike == bytes && ike.len() > 4 && ike.starts_with(&[0; 4])),
                        Message::Esp(esp) => assert!(esp == bytes && esp.len() > 4 && !esp.starts_with(&[0; 4])),
                    }
                    all.push(bytes.to_vec());
                    waiting.drain(..end);
                }
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    (all, Ok(waiting.len()))
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let count = usize::from(input.byte() % 8) + 1;
    let pieces = [input.take(count), &[7]].concat();
    let stream = input.0;
    assert_eq!(read(stream, &pieces), read(stream, &[255]));
});
