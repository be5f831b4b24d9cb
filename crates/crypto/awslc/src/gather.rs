//! Pieces joined into one, for functions that take one.

use arrayvec::ArrayVec;

/// What is joined on the stack; more goes to the heap. AADs of IPsec have 8 to 20 bytes, of TLS 13.
const STACK_LEN: usize = 4096;

/// Hands `pieces` to `f` as one slice. One piece is passed as it is. Several are joined on the stack, or on the heap
/// when there are more than 4096 bytes: a buffer kept for each thread would be shared after `fork`, and text that is
/// only authenticated, in many pieces and of such length, is rare.
#[inline]
pub(crate) fn gather<R>(pieces: &[&[u8]], f: impl FnOnce(&[u8]) -> R) -> R {
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
