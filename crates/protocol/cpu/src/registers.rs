//! The vector registers.

/// Overwrites the vector registers, in which ciphers and copies leave keys. The dynamic linker saves them to the stack
/// whenever it binds a function.
#[inline(never)]
pub fn wipe_registers() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: instructions that this CPU has, and registers that any call may change.
    unsafe {
        if std::is_x86_feature_detected!("avx512f") {
            core::arch::asm!(
                ".irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
                r"vpxord zmm\n, zmm\n, zmm\n",
                ".endr",
                clobber_abi("C"),
                options(nomem, nostack)
            );
        }
        if std::is_x86_feature_detected!("avx") {
            core::arch::asm!("vzeroall", clobber_abi("C"), options(nomem, nostack));
        } else {
            core::arch::asm!(
                ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                r"pxor xmm\n, xmm\n",
                ".endr",
                clobber_abi("C"),
                options(nomem, nostack)
            );
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: registers that any call may change; the lower halves of v8 to v15 are the caller's.
    unsafe {
        core::arch::asm!(
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            r"movi v\n\().2d, #0",
            ".endr",
            clobber_abi("C"),
            options(nomem, nostack)
        );
    }
}
