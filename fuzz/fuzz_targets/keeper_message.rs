//! Messages of the keeper. The first byte of an input says what the rest is: 0, a reply, as a client reads it, also one to steps; 2, a
//! reference to a key; otherwise requests of two clients to one keeper, each with a length of two bytes before it. In them a wrapped key of one byte
//! stands for one that the keeper has wrapped before. No panic, a reply to each that can be read, and whatever can be read can be
//! written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_keeper::private::NotMade;
use sealane_keeper::seal::Sealer;
use sealane_keeper::service::{Now, Served, Service};
use sealane_keeper::store::Store;
use sealane_keeper::streams::Streams;
use sealane_keeper::wrapped::Wrapping;
use sealane_keeper_client::key::{Listed, Peer};
use sealane_keeper_client::limits::{MAX_REF_LEN, MAX_TEXTS_LEN, PART_LEN, TEXTS_AT};
use sealane_keeper_client::codec::Writer;
use sealane_keeper_client::message::{Answer, MAX_MESSAGE_LEN, Operation, Reply, Request};
use sealane_keeper_client::reference::KeyRef;
use sealane_keeper_client::text::{StepsReply, StepsRequest, write_reply, write_request};
use sealane_pkey::Algorithm;

/// A key that protects nothing.
const RSA_2048: &[u8] = include_bytes!("../../crates/crypto/awslc/tests/pkey/rsa-2048.der");

/// Puts a key that the keeper has wrapped in the place of one of a single byte.
fn fill_in(operation: &mut Operation, wrapped: &[Vec<u8>]) {
    let (Operation::Try { key, .. }
    | Operation::CipherBy { key, .. }
    | Operation::SealBy { key, .. }
    | Operation::OpenBy { key, .. }
    | Operation::MacBy { key, .. }
    | Operation::MacBegin { key, .. }
    | Operation::AeadBegin { key, .. }) = operation
    else {
        return;
    };
    fill_in_key(key, wrapped);
}

fn fill_in_key(key: &mut KeyRef, wrapped: &[Vec<u8>]) {
    if let KeyRef::Wrapped(bytes) = key
        && let [number] = bytes[..]
        && let Some(one) = wrapped.get(usize::from(number))
    {
        bytes.clone_from(one);
    }
}

/// Steps, as they come through shared memory, on texts that are the request's own bytes over and over.
fn steps(service: &mut Service, peer: &Peer, bytes: &[u8], wrapped: &[Vec<u8>], now: Now) {
    let Ok(request) = StepsRequest::of(bytes) else { return };
    let mut again = Writer::new();
    write_request(&mut again, request.id, request.key, request.steps.iter().copied());
    assert_eq!(&again.done()[..], bytes);
    assert!(request.texts_len <= MAX_TEXTS_LEN);
    let Ok(mut key) = KeyRef::decode(request.key) else { return };
    fill_in_key(&mut key, wrapped);
    let mut texts: Vec<u8> = bytes.iter().copied().cycle().take(request.texts_len).collect();
    if let Ok(Some(mut parts)) = service.in_parts(peer, &key, &request, now) {
        let done = service.cipher(peer, &parts, now).map(|tfm| {
            texts.chunks_mut(PART_LEN).try_for_each(|part| tfm.flat(parts.direction, &mut parts.iv, part.into()))
        });
        assert!(matches!(done, Ok(Ok(()))), "a text that may be in parts is computed in parts");
        service.ended(peer, &parts, &done, now);
    } else if let Ok((version, done)) = service.steps(peer, &key, &request, &mut texts, now) {
        assert_eq!(done.len(), request.steps.len());
        let mut reply = Writer::new();
        write_reply(&mut reply, request.id, version, done.iter());
        let reply = reply.done();
        assert!(reply.len() <= TEXTS_AT && StepsReply::of(&reply).is_ok_and(|read| read.is_some()));
    }
}

fn requests(mut rest: &[u8]) {
    let admins = Listed { users: vec![0], groups: vec![] };
    let (registry, store) = (sealane_fuzz::registry(), Store::in_memory());
    let sealer = Sealer::new(&registry).expect("the algorithms are there");
    let wrapping = Wrapping::new(sealer, store.wrapping_key().expect("it is random"), None);
    let mut service = Service::new(registry, store, admins).with_wrapping(wrapping);
    let mut streams = [Streams::default(), Streams::default()];
    let mut wrapped = Vec::new();
    let mut now = Now { wall_s: 1_800_000_000, mono_ns: 0 };
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let (bytes, tail) = tail.split_at(usize::from(u16::from_le_bytes(*len)).min(tail.len()));
        rest = tail;
        let user = u32::from(bytes.last().is_some_and(|byte| byte % 4 == 3));
        let decoded = Request::decode(bytes);
        if let Ok(request) = &decoded {
            assert_eq!(&request.encode()[..], bytes);
        }
        let is_read = decoded.is_ok();
        let sent = decoded.map_or(bytes.to_vec(), |mut request| {
            fill_in(&mut request.operation, &wrapped);
            request.encode().to_vec()
        });
        let peer = Peer { process: 1, user, groups: vec![user] };
        steps(&mut service, &peer, bytes, &wrapped, now);
        let (reply, ends) = match service.message(&peer, &mut streams[user as usize], &sent, now) {
            Served::Reply(reply, ends) => (reply, ends),
            // To make an RSA key takes long: it is one that is there, or is refused as if too many waited.
            Served::Later(making) => {
                let key = match making.algorithm() {
                    Algorithm::Rsa2048 => Ok(RSA_2048.to_vec().into()),
                    _ => Err(NotMade::Full),
                };
                (service.made(making, key, now), false)
            }
            Served::Slots(id) => (Reply { id, answer: Answer::Slots { count: 1, room: 4096 } }.encode(), false),
        };
        assert_eq!(ends, !is_read);
        let reply = Reply::decode(&reply).expect("a reply can be read");
        assert_eq!(reply.id, Request::id_of(bytes));
        if let Answer::Wrapped(one) = reply.answer {
            wrapped.push(one);
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
        if let Ok(Some(mut steps)) = StepsReply::of(bytes) {
            while let Ok(Some(_)) = steps.next() {}
        }
    }
    [2, bytes @ ..] => {
        if let Ok(key) = KeyRef::decode(bytes) {
            assert!(bytes.len() <= MAX_REF_LEN && key.encode() == bytes);
        }
    }
    [_, bytes @ ..] => requests(bytes),
    [] => {}
});
