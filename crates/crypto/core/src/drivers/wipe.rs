//! Overwriting secrets at the speed of memory.
#![allow(unsafe_code)]

use zeroize::DefaultIsZeroes;

/// Overwrites `secret` with zeros, whatever the compiler thinks of it: by whole lines, where `zeroize` goes element by
/// element.
#[inline]
pub(crate) fn wipe<T: DefaultIsZeroes>(secret: &mut [T]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    {
        secret.fill(T::default());
        // SAFETY: no instruction at all; the compiler must assume that it reads `secret`.
        unsafe { core::arch::asm!("/* {0} */", in(reg) secret.as_mut_ptr(), options(nostack, preserves_flags)) };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    zeroize::Zeroize::zeroize(secret);
}
