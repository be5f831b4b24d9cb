//! Wiping of secrets.

use zeroize::DefaultIsZeroes;

/// Overwrites `secret` with zeros by whole cache lines. The barrier keeps the compiler from removing the stores;
/// `zeroize` itself stores element by element, which takes longer than the hash of a short message.
#[inline]
pub fn wipe<T: DefaultIsZeroes>(secret: &mut [T]) {
    secret.fill(T::default());
    zeroize::optimization_barrier(secret);
}

/// The depth of the stack to which calls that prepare a key reach, in bytes.
pub const STACK_LEN: usize = 24 << 10;

/// Overwrites what calls of before have left of a key in vector registers, and on the stack for `stack_len` bytes below this call, or up
/// to two kilobytes less, but never more: [`STACK_LEN`], or less where the stack has less.
pub fn wipe_traces(stack_len: usize) {
    sealane_cpu::wipe_registers();
    wipe_stack(stack_len);
}

/// The same where keys are guarded, and elsewhere nothing: for a driver that knows better than [`Row::traces`](crate::Row::traces) where
/// its traces are.
#[inline]
pub fn wipe_guarded_traces(stack_len: usize) {
    if sealane_guarded::is_established() {
        wipe_traces(stack_len);
    }
}

/// Overwrites a part of the stack: round keys may have been spilled there.
#[inline(never)]
fn wipe_stack(len: usize) {
    /// The bytes of a frame, and about as many as it has besides.
    const FRAME: (usize, usize) = (1 << 10, 128);
    let mut stack = [0u8; FRAME.0];
    core::hint::black_box(&mut stack);
    if len > 2 * (FRAME.0 + FRAME.1) {
        wipe_stack(len - FRAME.0 - FRAME.1);
    }
    // The call above is not the last thing that happens, so that its frame is below this one.
    core::hint::black_box(&mut stack);
}
