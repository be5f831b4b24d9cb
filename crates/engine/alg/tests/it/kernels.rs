//! Calls that the kernels answer each in its own way.

use crate::common::{MORE, TASK, bound, control, keyed, recv, send, sendmsg, system};
use sealane_abi::if_alg::ALG_OP_ENCRYPT;
use sealane_engine_alg::{Errno, Profile, SendMsg};

#[test]
fn a_refused_text_moves_the_iv_of_cbc() {
    let text: Vec<u8> = (0..48).collect();
    let iv = [7; 16];
    // The first block of a text with the IV that the text before, of two blocks and a part, has left. 7.3 is not like the
    // others: its CBC looks at the length before anything else.
    for (profile, moves) in [(Profile::Linux6_1, true), (Profile::Linux6_12, true), (Profile::Linux7_3, false)] {
        let transform = keyed(&system(profile), "skcipher", "cbc(aes)", &text[..16]);
        let encrypted = |len: usize| {
            let op = transform.accept(TASK).unwrap();
            sendmsg(&op, &text[..len], &control(Some(ALG_OP_ENCRYPT), Some(&iv), None), 0).unwrap();
            let first = recv(&op, len, 0);
            send(&op, &text[..16], 0).unwrap();
            (first, recv(&op, 16, 0).unwrap())
        };
        let (refused, after) = encrypted(40);
        assert_eq!(refused, Err(Errno::EINVAL), "{profile}");
        let expected = if moves { encrypted(32).1 } else { encrypted(16).0.unwrap() };
        assert_eq!(after, expected, "{profile}");
    }
}

#[test]
fn a_hash_that_meets_unreadable_memory() {
    let hash = |profile| bound(&system(profile), "hash", "sha256").unwrap().accept(TASK).unwrap();
    let fault = |op: &crate::common::Socket, data: &[u8], flags| {
        op.sendmsg(TASK, &SendMsg { data: &[data], unreadable: 16, flags, ..SendMsg::default() })
    };
    for (profile, old) in [(Profile::Linux6_1, true), (Profile::Linux6_12, false), (Profile::Linux7_3, false)] {
        let empty = recv(&hash(profile), 32, 0).unwrap();
        let op = hash(profile);
        let taken = if old { Ok(3) } else { Err(Errno::EFAULT) };
        assert_eq!((fault(&op, b"abc", 0), recv(&op, 32, 0)), (taken, Ok(empty.clone())), "{profile}");
        // An unread result.
        send(&op, b"abc", 0).unwrap();
        let result = recv(&op, 32, 0).unwrap();
        for (flags, stays) in [(0, old), (MORE, false)] {
            send(&op, b"abc", 0).unwrap();
            assert_eq!(fault(&op, b"", flags), Err(Errno::EFAULT));
            assert_eq!(
                recv(&op, 32, 0).unwrap(),
                if stays { result.clone() } else { empty.clone() },
                "{profile}, {flags}"
            );
        }
        // A message that was running is lost.
        send(&op, b"a", MORE).unwrap();
        assert_eq!((fault(&op, b"b", 0).is_ok(), recv(&op, 32, 0)), (old, Ok(empty)), "{profile}");
    }
}
