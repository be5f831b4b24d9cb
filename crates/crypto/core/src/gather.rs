//! Joins pieces, for drivers whose functions take a single one.

use arrayvec::ArrayVec;

/// The most bytes that are joined on the stack; more go to the heap. AADs of IPsec have 8 to 20 bytes, of TLS 13.
const STACK_LEN: usize = 4096;

/// Passes `pieces` to `f` as one slice. A single piece is passed as it is. Several are joined on the stack, or on the
/// heap if they have more than 4096 bytes, which is rare for data that is only authenticated. There is no buffer for
/// each thread, because it would be shared after `fork`.
#[inline]
pub fn gather<R>(pieces: &[&[u8]], f: impl FnOnce(&[u8]) -> R) -> R {
    match pieces {
        [] => f(&[]),
        [only] => f(only),
        many => join(many, f),
    }
}

#[inline(never)]
fn join<R>(pieces: &[&[u8]], f: impl FnOnce(&[u8]) -> R) -> R {
    let len: usize = pieces.iter().map(|p| p.len()).sum();
    if len <= STACK_LEN {
        let mut joined = ArrayVec::<u8, STACK_LEN>::new();
        for piece in pieces {
            joined.try_extend_from_slice(piece).expect("the sum of the lengths fits");
        }
        f(&joined)
    } else {
        f(&pieces.concat())
    }
}
