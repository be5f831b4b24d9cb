//! Bytes of other processes that a daemon of TCP-AO reads. The first byte of an input says what the rest is: 0, the record of
//! a socket that the daemon before kept, which is judged without a panic, and whose socket can be kept again; 1, a request of
//! a launcher; 2, an answer to a launcher.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_abi::Profile;
use sealane_engine_ao::Namespace;
use sealane_fuzz::registry;
use sealane_net_ao::alg::Algorithms;
use sealane_tcp_ao::kept;
use sealane_tcp_ao::remote::wire::{HEAD_LEN, Request, answer_len, decode_answer, encode_answer, request_len};
use std::sync::LazyLock;
use zeroize::Zeroizing;

static ALGORITHMS: LazyLock<Algorithms> = LazyLock::new(|| Algorithms::new(&registry()));

fn record(bytes: &[u8]) {
    let Some(socket) = kept::decode(bytes, &ALGORITHMS) else { return };
    let again = kept::decode(&kept::encode(&socket), &ALGORITHMS).expect("a record of ours");
    assert_eq!((again.keys.len(), again.conn, again.remembered), (socket.keys.len(), socket.conn, socket.remembered));
    let mut engine = Namespace::new(Profile::Open, ALGORITHMS.clone());
    let (id, _) = engine.restore_kept(&socket);
    engine.note_changes();
    let changes = engine.take_changes();
    assert!(changes.len() == 1 && changes[0].number == id.0 && changes[0].socket.is_some());
    engine.forget_programs();
    engine.expire(u64::MAX);
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    if *kind == 0 {
        return record(rest);
    }
    let Some((head, body)) = rest.split_first_chunk::<HEAD_LEN>() else { return };
    if *kind == 1 {
        let len = request_len(head);
        if let Ok(request) = Request::decode(head, Zeroizing::new(body.to_vec())) {
            assert_eq!(len.expect("a length"), body.len());
            let bytes = request.encode();
            let (head, body) = bytes.split_first_chunk().expect("a head");
            Request::decode(head, Zeroizing::new(body.to_vec())).expect("a request of ours");
        }
    } else if let Ok(outcome) = decode_answer(head, body) {
        assert_eq!(answer_len(head).expect("a length"), body.len());
        let bytes = encode_answer(&outcome);
        let (head, body) = bytes.split_first_chunk().expect("a head");
        decode_answer(head, body).expect("an answer of ours");
    }
});
