//! The AES modes, written once for all vector widths, as macros over vector operations of the same names, as in
//! `kernels`.
//!
//! It expects in scope a vector `V` of `B` blocks, and `zero`, `xor`, `enc`, `enc_last`, `dec`, `dec_last`, `spread`
//! (one block to all places), `load`, `store`, `load_part`, `store_part` (less than a vector), `counters`, `count_on`,
//! `big_endian`, `shift_in` (the last block of one vector before those of the next) and `times_x` (a power of x).

/// Encrypts or decrypts the array of vectors `$x`. A macro and no function: a call would take all vectors through memory, which costs
/// as much as the rounds themselves.
macro_rules! rounds {
    ($x:ident, $keys:ident, $decrypt:expr) => {{
        let keys = super::aes::afresh($keys);
        let first = spread(&keys.keys[0]);
        for v in $x.iter_mut() {
            *v = xor(*v, first);
        }
        // Keys of 128 bits have ten rounds, and longer ones two or four more. Loops of known lengths are unrolled.
        let mut middle = |from: usize, to: usize| {
            for key in &keys.keys[from..to] {
                let key = spread(key);
                for v in $x.iter_mut() {
                    *v = if $decrypt { dec(*v, key) } else { enc(*v, key) };
                }
            }
        };
        middle(1, 10);
        if keys.count > 10 {
            middle(10, 12);
        }
        if keys.count > 12 {
            middle(12, 14);
        }
        let last = spread(&keys.keys[keys.count]);
        for v in $x.iter_mut() {
            *v = if $decrypt { dec_last(*v, last) } else { enc_last(*v, last) };
        }
    }};
}
pub(super) use rounds;

/// Defines the functions and `$name`, the [`Modes`](super::aes::Modes) over them.
macro_rules! modes {
    ($name:ident, $module:literal, $features:literal) => {
        /// Vectors in flight: enough to hide the latency of a round.
        const N: usize = 8;
        const W: usize = B * BLOCK;

        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn load_all(src: *const u8) -> [V; N] {
            let mut x = [zero(); N];
            for (i, v) in x.iter_mut().enumerate() {
                // SAFETY: the caller has N vectors there.
                *v = unsafe { load(src.add(i * W)) };
            }
            x
        }

        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn store_all(dst: *mut u8, x: &[V; N]) {
            for (i, v) in x.iter().enumerate() {
                // SAFETY: the caller has N vectors there.
                unsafe { store(dst.add(i * W), *v) };
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn ecb<const DECRYPT: bool>(keys: &Rounds, src: *const u8, dst: *mut u8, len: usize) {
            let mut at = 0;
            // SAFETY: `at` never passes `len`, and the caller guarantees `len` bytes.
            unsafe {
                while len - at >= N * W {
                    let mut x = load_all(src.add(at));
                    super::aes_kernels::rounds!(x, keys, DECRYPT);
                    store_all(dst.add(at), &x);
                    at += N * W;
                }
                while at < len {
                    let n = (len - at).min(W);
                    let mut x = [load_part(src.add(at), n)];
                    super::aes_kernels::rounds!(x, keys, DECRYPT);
                    store_part(dst.add(at), n, x[0]);
                    at += n;
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn cbc_decrypt(keys: &Rounds, iv: &[u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
            let mut before = spread(iv);
            let mut at = 0;
            // SAFETY: `at` never passes `len`, and the caller guarantees `len` bytes.
            unsafe {
                while len - at >= N * W {
                    let sealed = load_all(src.add(at));
                    let mut x = sealed;
                    super::aes_kernels::rounds!(x, keys, true);
                    for (v, sealed) in x.iter_mut().zip(sealed) {
                        *v = xor(*v, shift_in(before, sealed));
                        before = sealed;
                    }
                    store_all(dst.add(at), &x);
                    at += N * W;
                }
                while at < len {
                    let n = (len - at).min(W);
                    let sealed = load_part(src.add(at), n);
                    let mut x = [sealed];
                    super::aes_kernels::rounds!(x, keys, true);
                    store_part(dst.add(at), n, xor(x[0], shift_in(before, sealed)));
                    before = sealed;
                    at += n;
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn ctr(keys: &Rounds, counter: u128, src: *const u8, dst: *mut u8, len: usize) {
            let mut count = counters(counter);
            let mut at = 0;
            // SAFETY: `at` never passes `len`, and the caller guarantees `len` bytes.
            unsafe {
                while len - at >= N * W {
                    let mut x = [zero(); N];
                    for v in x.iter_mut() {
                        *v = big_endian(count);
                        count = count_on(count);
                    }
                    super::aes_kernels::rounds!(x, keys, false);
                    for (i, v) in x.iter_mut().enumerate() {
                        *v = xor(*v, load(src.add(at + i * W)));
                    }
                    store_all(dst.add(at), &x);
                    at += N * W;
                }
                while at < len {
                    let n = (len - at).min(W);
                    let mut x = [big_endian(count)];
                    count = count_on(count);
                    super::aes_kernels::rounds!(x, keys, false);
                    store_part(dst.add(at), n, xor(x[0], load_part(src.add(at), n)));
                    at += n;
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn xts<const DECRYPT: bool>(
            keys: &Rounds,
            tweak: &mut [u8; BLOCK],
            src: *const u8,
            dst: *mut u8,
            len: usize,
        ) {
            const ONE: i32 = B as i32;
            let mut first = [0u8; W];
            let mut next = *tweak;
            for place in first.chunks_exact_mut(BLOCK) {
                place.copy_from_slice(&next);
                next = double(next);
            }
            // SAFETY: `first` is a vector.
            let mut t = [unsafe { load(first.as_ptr()) }; N];
            t[1] = times_x::<ONE, { 64 - ONE }>(t[0]);
            for i in 0..2 {
                t[2 + i] = times_x::<{ 2 * ONE }, { 64 - 2 * ONE }>(t[i]);
            }
            for i in 0..4 {
                t[4 + i] = times_x::<{ 4 * ONE }, { 64 - 4 * ONE }>(t[i]);
            }
            let mut at = 0;
            // SAFETY: `at` never passes `len`, and the caller guarantees `len` bytes.
            unsafe {
                while len - at >= N * W {
                    let mut x = load_all(src.add(at));
                    for (v, t) in x.iter_mut().zip(&t) {
                        *v = xor(*v, *t);
                    }
                    super::aes_kernels::rounds!(x, keys, DECRYPT);
                    for (v, t) in x.iter_mut().zip(t.iter_mut()) {
                        *v = xor(*v, *t);
                        *t = times_x::<{ 8 * ONE }, { 64 - 8 * ONE }>(*t);
                    }
                    store_all(dst.add(at), &x);
                    at += N * W;
                }
                let mut tweaks = [0u8; N * W];
                store_all(tweaks.as_mut_ptr(), &t);
                let left = len - at;
                let mut done = 0;
                while done < left {
                    let n = (left - done).min(W);
                    let t = load(tweaks.as_ptr().add(done));
                    let mut x = [xor(load_part(src.add(at + done), n), t)];
                    super::aes_kernels::rounds!(x, keys, DECRYPT);
                    store_part(dst.add(at + done), n, xor(x[0], t));
                    done += n;
                }
                tweak.copy_from_slice(&tweaks[left..left + BLOCK]);
            }
        }

        pub(super) struct $name;

        impl Modes for $name {
            const MODULE: &'static str = $module;

            #[target_feature(enable = $features)]
            unsafe fn ecb_encrypt(keys: &Rounds, src: *const u8, dst: *mut u8, len: usize) {
                // SAFETY: the caller's promise, here and below.
                unsafe { ecb::<false>(keys, src, dst, len) }
            }

            #[target_feature(enable = $features)]
            unsafe fn ecb_decrypt(keys: &Rounds, src: *const u8, dst: *mut u8, len: usize) {
                // SAFETY: as above.
                unsafe { ecb::<true>(keys, src, dst, len) }
            }

            #[target_feature(enable = $features)]
            unsafe fn cbc_encrypt(keys: &Rounds, iv: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
                // SAFETY: as above. The blocks depend on each other, so wider vectors gain nothing.
                unsafe { super::cmac::cbc_encrypt(keys, iv, src, dst, len) }
            }

            #[target_feature(enable = $features)]
            unsafe fn cbc_decrypt(keys: &Rounds, iv: &[u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
                // SAFETY: as above.
                unsafe { cbc_decrypt(keys, iv, src, dst, len) }
            }

            #[target_feature(enable = $features)]
            unsafe fn ctr(keys: &Rounds, counter: u128, src: *const u8, dst: *mut u8, len: usize) {
                // SAFETY: as above.
                unsafe { ctr(keys, counter, src, dst, len) }
            }

            #[target_feature(enable = $features)]
            unsafe fn xts_encrypt(keys: &Rounds, tweak: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
                // SAFETY: as above.
                unsafe { xts::<false>(keys, tweak, src, dst, len) }
            }

            #[target_feature(enable = $features)]
            unsafe fn xts_decrypt(keys: &Rounds, tweak: &mut [u8; BLOCK], src: *const u8, dst: *mut u8, len: usize) {
                // SAFETY: as above.
                unsafe { xts::<true>(keys, tweak, src, dst, len) }
            }
        }
    };
}
pub(super) use modes;

/// Defines `$name`, the [`Chains`](super::cmac::Chains) of `$vectors` vectors over the same operations.
macro_rules! chains {
    ($name:ident, $module:literal, $features:literal, $vectors:literal, $wide:literal) => {
        pub(super) struct $name;

        #[target_feature(enable = $features)]
        unsafe fn alike<const VECTORS: usize>(
            keys: &mut LaneKeys,
            rounds: usize,
            lanes: &[*const u8],
            added: usize,
            (from, count, last): (&[*const u8], usize, &[*const u8]),
            states: &mut LaneBlocks,
        ) {
            let (lanes, from, last) = (&lanes[..VECTORS * B], &from[..VECTORS * B], &last[..VECTORS * B]);
            for (r, round) in keys.0[..=rounds].iter_mut().enumerate() {
                for i in 0..VECTORS {
                    // SAFETY: a prepared key begins with its round keys; each round has room for MAX_LANES of them.
                    unsafe { store(round.as_mut_ptr().add(i * B).cast(), gather(&lanes[i * B..], r * BLOCK)) };
                }
            }
            let mut x = [zero(); VECTORS];
            for block in 0..=count {
                for (i, v) in x.iter_mut().enumerate() {
                    // SAFETY: the caller has `count` blocks at each pointer, then the last one, and a block to add.
                    unsafe {
                        let text = if block < count {
                            gather(&from[i * B..], block * BLOCK)
                        } else {
                            xor(gather(&last[i * B..], 0), gather(&lanes[i * B..], added))
                        };
                        *v = xor(*v, xor(text, load(keys.0[0].as_ptr().add(i * B).cast())));
                    }
                }
                for round in &keys.0[1..rounds] {
                    for (i, v) in x.iter_mut().enumerate() {
                        // SAFETY: each round has MAX_LANES keys.
                        *v = enc(*v, unsafe { load(round.as_ptr().add(i * B).cast()) });
                    }
                }
                for (i, v) in x.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *v = enc_last(*v, unsafe { load(keys.0[rounds].as_ptr().add(i * B).cast()) });
                }
            }
            for (i, v) in x.iter().enumerate() {
                // SAFETY: the states are MAX_LANES blocks.
                unsafe { store(states.0.as_mut_ptr().add(i * B).cast(), *v) };
            }
        }

        impl Chains for $name {
            const MODULE: &'static str = $module;
            const LANES: usize = $vectors * B;
            const ALIKE: [usize; 2] = [$vectors * B, $wide * B];

            #[target_feature(enable = $features)]
            unsafe fn alike(
                wide: bool,
                keys: &mut LaneKeys,
                rounds: usize,
                lanes: &[*const u8],
                added: usize,
                text: (&[*const u8], usize, &[*const u8]),
                states: &mut LaneBlocks,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    if wide {
                        alike::<$wide>(keys, rounds, lanes, added, text, states);
                    } else {
                        alike::<$vectors>(keys, rounds, lanes, added, text, states);
                    }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn absorb(
                keys: &LaneKeys,
                rounds: usize,
                states: &mut LaneBlocks,
                from: &[*const u8; MAX_LANES],
                count: usize,
            ) {
                let mut x = [zero(); $vectors];
                for (i, v) in x.iter_mut().enumerate() {
                    // SAFETY: the states are MAX_LANES blocks.
                    *v = unsafe { load(states.0.as_ptr().add(i * B).cast()) };
                }
                for block in 0..count {
                    for (i, v) in x.iter_mut().enumerate() {
                        // SAFETY: the caller has `count` blocks at each pointer.
                        let text = unsafe { gather(&from[i * B..(i + 1) * B], block * BLOCK) };
                        // SAFETY: each round has MAX_LANES keys.
                        let key = unsafe { load(keys.0[0].as_ptr().add(i * B).cast()) };
                        *v = xor(xor(*v, text), key);
                    }
                    for round in &keys.0[1..rounds] {
                        for (i, v) in x.iter_mut().enumerate() {
                            // SAFETY: as above.
                            *v = enc(*v, unsafe { load(round.as_ptr().add(i * B).cast()) });
                        }
                    }
                    for (i, v) in x.iter_mut().enumerate() {
                        // SAFETY: as above.
                        *v = enc_last(*v, unsafe { load(keys.0[rounds].as_ptr().add(i * B).cast()) });
                    }
                }
                for (i, v) in x.iter().enumerate() {
                    // SAFETY: the states are MAX_LANES blocks.
                    unsafe { store(states.0.as_mut_ptr().add(i * B).cast(), *v) };
                }
            }
        }
    };
}
pub(super) use chains;
