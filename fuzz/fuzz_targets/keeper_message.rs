//! Messages of the keeper. The first byte of an input says what the rest is: 0, a reply, as a client reads it; otherwise requests
//! of several clients to one keeper, each with a length of two bytes before it. No panic, a reply to each that can be read, and
//! whatever can be read can be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_keeper::private::NotMade;
use sealane_keeper::service::{Now, Served, Service};
use sealane_keeper::store::Store;
use sealane_keeper_client::key::{Listed, Peer};
use sealane_keeper_client::message::{MAX_MESSAGE_LEN, Reply, Request};
use sealane_pkey::Algorithm;

/// A key that protects nothing.
const RSA_2048: &[u8] = include_bytes!("../../crates/crypto/awslc/tests/pkey/rsa-2048.der");

fn requests(mut rest: &[u8]) {
    let admins = Listed { users: vec![0], groups: vec![] };
    let mut service = Service::new(sealane_fuzz::registry(), Store::in_memory(), admins);
    let mut now = Now { wall_s: 1_800_000_000, mono_ns: 0 };
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let (bytes, tail) = tail.split_at(usize::from(u16::from_le_bytes(*len)).min(tail.len()));
        rest = tail;
        let user = u32::from(bytes.last().is_some_and(|byte| byte % 4 == 3));
        let (reply, ends) = match service.message(&Peer { process: 1, user, groups: vec![user] }, bytes, now) {
            Served::Reply(reply, ends) => (reply, ends),
            // To make an RSA key takes long: it is one that is there, or is refused as if too many waited.
            Served::Later(making) => {
                let key = match making.algorithm() {
                    Algorithm::Rsa2048 => Ok(RSA_2048.to_vec().into()),
                    _ => Err(NotMade::Full),
                };
                (service.made(making, key, now), false)
            }
        };
        let decoded = Request::decode(bytes);
        assert_eq!(ends, decoded.is_err());
        let reply = Reply::decode(&reply).expect("a reply can be read");
        assert_eq!(reply.id, Request::id_of(bytes));
        if let Ok(request) = decoded {
            assert_eq!(&request.encode()[..], bytes);
        }
        now.mono_ns += 1_000_000;
    }
    service.end();
}

fuzz_target!(|input: &[u8]| match input {
    [0, bytes @ ..] => {
        if let Ok(reply) = Reply::decode(bytes) {
            let again = reply.encode();
            assert!(again.len() <= MAX_MESSAGE_LEN && Reply::decode(&again).is_ok());
        }
    }
    [_, bytes @ ..] => requests(bytes),
    [] => {}
});
