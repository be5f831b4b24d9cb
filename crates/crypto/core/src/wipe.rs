//! Fast wiping of secrets.

use zeroize::DefaultIsZeroes;

/// Overwrites `secret` with zeros by whole cache lines. The barrier keeps the compiler from removing the stores;
/// `zeroize` itself stores element by element, which takes longer than the hash of a short message.
#[inline]
pub fn wipe<T: DefaultIsZeroes>(secret: &mut [T]) {
    secret.fill(T::default());
    zeroize::optimization_barrier(secret);
}
