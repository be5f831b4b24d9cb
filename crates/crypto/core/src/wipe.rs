//! Wiping of secrets.

use zeroize::DefaultIsZeroes;

/// Overwrites `secret` with zeros by whole cache lines. The barrier keeps the compiler from removing the stores;
/// `zeroize` itself stores element by element, which takes longer than the hash of a short message.
#[inline]
pub fn wipe<T: DefaultIsZeroes>(secret: &mut [T]) {
    secret.fill(T::default());
    zeroize::optimization_barrier(secret);
}

/// Overwrites what calls of before have left of a key in vector registers and on the stack.
pub fn wipe_traces() {
    sealane_cpu::wipe_registers();
    wipe_stack();
}

/// Overwrites the part of the stack that calls of before have used: round keys may have been spilled there.
#[inline(never)]
fn wipe_stack() {
    let mut stack = [0u8; 24 << 10];
    core::hint::black_box(&mut stack);
}
