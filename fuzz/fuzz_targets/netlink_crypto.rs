//! Datagrams of NETLINK_CRYPTO: no panic, well-formed answers, and at most as many as the receive buffer holds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_abi::netlink::{Attrs, Messages, NETLINK_CRYPTO};
use sealane_abi::socket::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, SOCK_RAW};
use sealane_engine_alg::{Caller, CryptoUser, Errno};
use sealane_fuzz::{Alone, Input, Lock, system};

/// Limit of answers to a sequence: a dump has a datagram for every few algorithms.
const MAX_REPLIES: usize = 10_000;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let sys = system(input.byte());
    let socket = CryptoUser::<Lock>::create(sys, SOCK_RAW, NETLINK_CRYPTO).expect("a socket can always be made");
    socket.set_port(1000);
    let mut replies = 0;
    while !input.is_empty() {
        let how = input.byte();
        let len = input.len();
        let datagram = input.take(len);
        if let Ok(n) = socket.send(datagram, Caller { privileged: how & 1 != 0 }) {
            assert_eq!(n, datagram.len());
        }
        let mut buf = vec![0; if how & 2 != 0 { 65536 } else { usize::from(how) * 16 }];
        while how & 4 == 0 {
            let flags = MSG_DONTWAIT | if how & 8 != 0 { MSG_TRUNC } else { 0 };
            if how & 16 != 0 {
                let _ = socket.recv(&Alone, &mut buf, flags | MSG_PEEK);
            }
            match socket.recv(&Alone, &mut buf, flags) {
                Ok(got) => {
                    replies += 1;
                    assert!(replies < MAX_REPLIES, "no end of answers");
                    assert!(flags & MSG_TRUNC != 0 || got.len <= buf.len());
                    if got.flags & MSG_TRUNC == 0 {
                        let whole = &buf[..got.len];
                        let messages: Vec<_> = Messages::new(whole).collect();
                        assert!(!messages.is_empty(), "an answer that nobody can read");
                        for m in messages {
                            Attrs::new(m.payload).for_each(drop);
                        }
                    }
                }
                Err(Errno::ENOBUFS) => {}
                Err(e) => {
                    assert_eq!(e, Errno::EAGAIN);
                    break;
                }
            }
        }
        socket.poll();
    }
});
