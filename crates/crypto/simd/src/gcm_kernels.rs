//! AES-GCM, written once for all vector widths, as macros over vector operations of the same names, as in `aes_kernels`.
//!
//! It expects in scope what `aes_kernels` does, and `product_00` and `product_11` (without carries, of the lower or the upper halves of
//! blocks), `xor3`, `swap_halves`, `shift_out` (all blocks one place down), `keep` (the first bytes), `widen` (a block before zeros),
//! `lowest` (the first block) and `fold` (the sum of all blocks).
//!
//! GHASH (SP 800-38D section 6.4) multiplies by powers of H in a field whose bits are in reverse order. With the bytes of each block
//! reversed, and H times x, products of whole blocks are right but for a factor that `reduce` takes away, as in Gueron and Kounavis,
//! "Intel Carry-Less Multiplication Instruction and its Usage for Computing the GCM Mode", 2014. Up to 32 blocks and what is beside
//! them are multiplied by their powers of H before their sum is reduced once.
//!
//! Texts of a packet's length take less time to compute than to wait for results. So the key stream of what is behind the last whole
//! group is made at the beginning, together with the block that hides the tag. And of a text that is encrypted the last group and what
//! follows are hashed later, by `end`: within a burst the next text has begun by then.

/// Adds a group of ciphertext to a sum, and reduces it to `$carry`, to which the next block is added.
macro_rules! group {
    ($from:expr, $powers:ident, $sum:ident, $carry:ident) => {{
        let power = from_power($powers, GROUP);
        for i in 0..VECTORS {
            $sum = add($sum, xor(big_endian(load($from.add(i * W))), $carry), power.add(i * W));
            $carry = zero();
        }
        $carry = widen(fold(reduce($sum)));
        $sum = none();
    }};
}
pub(super) use group;

/// Encrypts an array of counters, and writes the key stream from a place on.
macro_rules! stream {
    ($to:expr, $keys:ident, $counters:expr) => {{
        let mut x = $counters;
        for v in x.iter_mut() {
            *v = big_endian(*v);
        }
        super::aes_kernels::rounds!(x, $keys, false);
        x.as_ptr().copy_to_nonoverlapping($to, x.len());
    }};
}
pub(super) use stream;

/// Defines the functions and `$name`, the [`Gcm`](super::gcm::Gcm) over them.
macro_rules! gcm {
    ($name:ident, $module:literal, $features:literal) => {
        /// The highest power of H in the table. The powers of a whole group, from its 32nd on, begin at a vector's boundary.
        const HIGHEST: usize = GROUP + B;
        /// Vectors of a group.
        const VECTORS: usize = GROUP / B;
        // Before a group there may be a block of associated data, and behind it are the lengths; a vector may begin at the last power.
        const _: () = assert!(HIGHEST >= GROUP + 2 && size_of::<Powers>() / 2 >= (HIGHEST - 1 + B) * BLOCK);

        /// Sums of products, before their reduction: of lower halves, of the sums of both halves, of upper halves.
        #[derive(Clone, Copy)]
        struct Sum {
            low: V,
            both: V,
            high: V,
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn none() -> Sum {
            Sum { low: zero(), both: zero(), high: zero() }
        }

        /// Adds the products of blocks and the powers of H at a place of the table, by three multiplications each (Karatsuba).
        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn add(sum: Sum, a: V, powers: *const u8) -> Sum {
            // SAFETY: the caller has a vector of powers there, and of the sums of their halves in the second half of the table.
            let (b, both) = unsafe { (load(powers), load(powers.add(size_of::<Powers>() / 2))) };
            Sum {
                low: xor(sum.low, product_00(a, b)),
                both: xor(sum.both, product_00(xor(a, swap_halves(a)), both)),
                high: xor(sum.high, product_11(a, b)),
            }
        }

        /// Reduces each block's sum by the field's polynomial: twice the lowest 64 bits become zero by adding a multiple of it.
        #[target_feature(enable = $features)]
        #[inline]
        fn reduce(sum: Sum) -> V {
            let polynomial = spread(&0xc200_0000_0000_0000u128.to_le_bytes());
            let middle = xor3(sum.both, sum.low, sum.high);
            let middle = xor3(middle, swap_halves(sum.low), product_00(sum.low, polynomial));
            xor3(sum.high, swap_halves(middle), product_00(middle, polynomial))
        }

        /// The place of a power of H in the table; the lower ones follow.
        #[target_feature(enable = $features)]
        #[inline]
        fn from_power(powers: &Powers, power: usize) -> *const u8 {
            debug_assert!((1..=HIGHEST).contains(&power));
            core::ptr::from_ref(powers).cast::<u8>().wrapping_add((HIGHEST - power) * BLOCK)
        }

        /// The product of the blocks of two vectors.
        #[target_feature(enable = $features)]
        #[inline]
        fn times(a: V, b: V) -> V {
            reduce(Sum {
                low: product_00(a, b),
                both: product_00(xor(a, swap_halves(a)), xor(b, swap_halves(b))),
                high: product_11(a, b),
            })
        }

        #[target_feature(enable = $features)]
        fn expand(rounds: &Rounds, powers: &mut Powers) {
            let mut x = [zero()];
            super::aes_kernels::rounds!(x, rounds, false);
            let mut h = [0; BLOCK];
            // SAFETY: a block, here and below.
            unsafe { _mm_storeu_si128(h.as_mut_ptr().cast(), lowest(x[0])) };
            let times_x = u128::from_be_bytes(h) << 1;
            let carry = 0u128.wrapping_sub(u128::from(h[0] >> 7)) & 0xc200_0000_0000_0000_0000_0000_0000_0001;
            h = (times_x ^ carry).to_le_bytes();
            let first = spread(&h);
            wipe(&mut h);
            let mut power = first;
            for n in 1..=B {
                // SAFETY: as above.
                unsafe { _mm_storeu_si128(powers.blocks[HIGHEST - n].as_mut_ptr().cast(), lowest(power)) };
                if n < B {
                    power = times(power, first);
                }
            }
            // The power B, by which the others follow from the first.
            let mut at = HIGHEST - B;
            // SAFETY: the table is whole vectors long, here and below.
            let mut vector = unsafe { load(powers.blocks[at..].as_ptr().cast()) };
            while at > 0 {
                at -= B;
                vector = times(vector, power);
                // SAFETY: as above.
                unsafe { store(powers.blocks[at..].as_mut_ptr().cast(), vector) };
            }
            for at in (0..powers.blocks.len()).step_by(B) {
                // SAFETY: as above.
                unsafe {
                    let v = load(powers.blocks[at..].as_ptr().cast());
                    store(powers.sums[at..].as_mut_ptr().cast(), xor(v, swap_halves(v)));
                }
            }
        }

        /// Goes on with GHASH over data, which is filled up to whole blocks.
        #[target_feature(enable = $features)]
        unsafe fn hash(powers: &Powers, before: __m128i, data: &[u8]) -> __m128i {
            let (mut from, mut left) = (data.as_ptr(), data.len());
            let mut carry = widen(before);
            // SAFETY: `left` bytes are left at `from`; the table has the powers of a group, and a vector behind them.
            unsafe {
                let mut sum = none();
                while left >= GROUP * BLOCK {
                    super::gcm_kernels::group!(from, powers, sum, carry);
                    (from, left) = (from.add(GROUP * BLOCK), left - GROUP * BLOCK);
                }
                if left == 0 {
                    return lowest(carry);
                }
                let mut power = from_power(powers, left.div_ceil(BLOCK));
                while left > 0 {
                    let n = left.min(W);
                    sum = add(sum, xor(big_endian(load_part(from, n)), carry), power);
                    carry = zero();
                    (from, left, power) = (from.add(n), left - n, power.add(W));
                }
                fold(reduce(sum))
            }
        }

        /// Counters from `count` on behind `first`.
        #[target_feature(enable = $features)]
        #[inline]
        fn counted<const M: usize>(first: V, mut count: V) -> [V; M] {
            let mut x = [first; M];
            for v in x[1..].iter_mut() {
                *v = count;
                count = count_on(count);
            }
            x
        }

        /// Encrypts or decrypts whole groups, and hashes all of them that are decrypted, and all but the last that are encrypted.
        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn crypt_groups<const OPEN: bool>(
            rounds: &Rounds,
            powers: &Powers,
            counter: u128,
            (mut src, mut dst): (*const u8, *mut u8),
            groups: usize,
            (mut sum, mut carry): (Sum, V),
        ) -> (Sum, V) {
            let mut count = counters(counter);
            for n in 0..groups {
                // SAFETY: the caller has so many groups at both pointers, and the table has the powers of one.
                unsafe {
                    if OPEN {
                        super::gcm_kernels::group!(src, powers, sum, carry);
                    }
                    for at in (0..GROUP * BLOCK).step_by(N * W) {
                        let mut x = [zero(); N];
                        for v in x.iter_mut() {
                            *v = big_endian(count);
                            count = count_on(count);
                        }
                        super::aes_kernels::rounds!(x, rounds, false);
                        for (i, v) in x.iter().enumerate() {
                            store(dst.add(at + i * W), xor(*v, load(src.add(at + i * W))));
                        }
                    }
                    // The group before: what waits for this one's ciphertext would be in the way of the next one.
                    if !OPEN && n > 0 {
                        super::gcm_kernels::group!(dst.sub(GROUP * BLOCK), powers, sum, carry);
                    }
                    (src, dst) = (src.add(GROUP * BLOCK), dst.add(GROUP * BLOCK));
                }
            }
            (sum, carry)
        }

        /// A text of which all is encrypted or decrypted, and not all is hashed.
        pub(super) struct Begun {
            sum: Sum,
            /// To be added to the next block.
            carry: V,
            /// The place of the ciphertext that is left to hash: whether a group, and vectors behind it.
            from: *const u8,
            group: bool,
            vectors: usize,
            /// Then a part of a vector, if there is one, with zeros behind it.
            part: Option<V>,
            /// The power of H of the first block behind the last group.
            power: usize,
            lengths: V,
            /// Hides the tag, in its first block.
            mask: V,
        }

        #[target_feature(enable = $features)]
        unsafe fn begin<const OPEN: bool>(
            GcmKey { rounds, powers }: &GcmKey,
            nonce: &[u8; NONCE_LEN],
            associated: &[u8],
            (mut src, mut dst): (*const u8, *mut u8),
            len: usize,
            begun: &mut MaybeUninit<Begun>,
        ) {
            let counter = first_counter(nonce);
            let (groups, left) = (len / (GROUP * BLOCK), len % (GROUP * BLOCK));
            let (full, part) = (left / W, left % W);
            // Of the blocks behind the last whole group, with that of the lengths.
            let last = left.div_ceil(BLOCK) + 1;
            let mut sum = none();
            let mut carry = zero();
            // SAFETY: the caller has `len` bytes at both pointers. The table has the powers of a group and of a vector's blocks beside
            // it, and a vector more. The stream is written as far as it is read: a vector, and as many as are behind the last group.
            unsafe {
                if let Some(block) = only_block(associated) {
                    let power = from_power(powers, if groups > 0 { GROUP } else { last } + 1);
                    sum = add(sum, widen(_mm_set_epi64x((block >> 64) as i64, block as i64)), power);
                } else if !associated.is_empty() {
                    carry = widen(hash(powers, lowest(carry), associated));
                }

                // The key stream of what is behind the last whole group, after the block that hides the tag.
                let mut stream = MaybeUninit::<[V; VECTORS + 4]>::uninit();
                let stream = stream.as_mut_ptr().cast::<V>();
                let first = counters(counter);
                if len <= (B - 1) * BLOCK {
                    // The counters of the text follow the first in its vector.
                    super::gcm_kernels::stream!(stream, rounds, [first]);
                    stream.add(1).write(shift_out(stream.read()));
                } else {
                    let count = counters(counter + 1 + (groups * GROUP) as u128);
                    match left.div_ceil(W) {
                        0..=2 => super::gcm_kernels::stream!(stream, rounds, counted::<3>(first, count)),
                        3..=4 => super::gcm_kernels::stream!(stream, rounds, counted::<5>(first, count)),
                        vectors => {
                            super::gcm_kernels::stream!(stream, rounds, counted::<8>(first, count));
                            for at in (8..=vectors).step_by(4) {
                                let count = counters(counter + 1 + (groups * GROUP + (at - 1) * B) as u128);
                                let next = counted::<4>(count, count_on(count));
                                super::gcm_kernels::stream!(stream.add(at), rounds, next);
                            }
                        }
                    }
                }

                (sum, carry) = crypt_groups::<OPEN>(rounds, powers, counter + 1, (src, dst), groups, (sum, carry));
                (src, dst) = (src.add(groups * GROUP * BLOCK), dst.add(groups * GROUP * BLOCK));

                let power = from_power(powers, last);
                for i in 0..full {
                    let text = load(src.add(i * W));
                    store(dst.add(i * W), xor(stream.add(1 + i).read(), text));
                    if OPEN {
                        sum = add(sum, xor(big_endian(text), carry), power.add(i * W));
                        carry = zero();
                    }
                }
                let part = (part > 0).then(|| {
                    let at = full * W;
                    let text = load_part(src.add(at), part);
                    let out = xor(stream.add(1 + full).read(), text);
                    store_part(dst.add(at), part, out);
                    if OPEN { text } else { keep(out, part) }
                });
                begun.write(Begun {
                    sum,
                    carry,
                    from: if groups > 0 { dst.sub(GROUP * BLOCK) } else { dst },
                    group: !OPEN && groups > 0,
                    vectors: if OPEN { 0 } else { full },
                    part,
                    power: if OPEN { last - full * B } else { last },
                    lengths: widen(_mm_set_epi64x((associated.len() as i64) << 3, (len as i64) << 3)),
                    mask: stream.read(),
                });
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn end(GcmKey { powers, .. }: &GcmKey, begun: &Begun, tag: &mut [u8; BLOCK]) {
            let Begun { mut sum, mut carry, mut from, .. } = *begun;
            let mut power = from_power(powers, begun.power);
            // SAFETY: the caller has kept the ciphertext where it was; the table is as above.
            unsafe {
                if begun.group {
                    super::gcm_kernels::group!(from, powers, sum, carry);
                    from = from.add(GROUP * BLOCK);
                }
                for i in 0..begun.vectors {
                    sum = add(sum, xor(big_endian(load(from.add(i * W))), carry), power);
                    carry = zero();
                    power = power.add(W);
                }
                if let Some(part) = begun.part {
                    sum = add(sum, xor(big_endian(part), carry), power);
                    carry = zero();
                }
                sum = add(sum, xor(begun.lengths, carry), from_power(powers, 1));
                let whole = xor(big_endian(widen(fold(reduce(sum)))), begun.mask);
                _mm_storeu_si128(tag.as_mut_ptr().cast(), lowest(whole));
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn piece<const OPEN: bool>(
            GcmKey { rounds, powers }: &GcmKey,
            mut counter: u128,
            State { hashed, part, stream }: &mut State,
            before: usize,
            (mut src, mut dst): (*const u8, *mut u8),
            len: usize,
        ) {
            let (groups, blocks) = (len / (GROUP * BLOCK), len % (GROUP * BLOCK) / BLOCK);
            // SAFETY: the caller has `len` bytes at both pointers; the table has the powers of a group and one more, and a vector more.
            unsafe {
                let mut sum = none();
                let mut carry = widen(_mm_loadu_si128(hashed.as_ptr().cast()));
                if let Some(block) = only_block(&part[..before]) {
                    let block = widen(_mm_set_epi64x((block >> 64) as i64, block as i64));
                    sum = add(sum, xor(block, carry), from_power(powers, if groups > 0 { GROUP } else { blocks } + 1));
                    carry = zero();
                }
                (sum, carry) = crypt_groups::<OPEN>(rounds, powers, counter, (src, dst), groups, (sum, carry));
                (src, dst) = (src.add(groups * GROUP * BLOCK), dst.add(groups * GROUP * BLOCK));
                // Behind the last block the counter may wrap, and is not used.
                counter = counter.wrapping_add((groups * GROUP) as u128);
                if !OPEN && groups > 0 {
                    super::gcm_kernels::group!(dst.sub(GROUP * BLOCK), powers, sum, carry);
                }
                let mut left = len % (GROUP * BLOCK);
                let mut power = from_power(powers, blocks.max(1));
                while left > 0 {
                    let count = counters(counter);
                    let mut x: [V; 4] = counted(count, count_on(count));
                    counter = counter.wrapping_add(4 * B as u128);
                    for v in x.iter_mut() {
                        *v = big_endian(*v);
                    }
                    super::aes_kernels::rounds!(x, rounds, false);
                    for v in x.iter().take(left.div_ceil(W)) {
                        let n = left.min(W);
                        let text = load_part(src, n);
                        let out = xor(*v, text);
                        store_part(dst, n, out);
                        let mut sealed = if OPEN { text } else { out };
                        let rest = n % BLOCK;
                        if n < W {
                            // What is not a whole block is hashed when it is one.
                            let mut vectors = [[[0; BLOCK]; B]; 2];
                            store(vectors[0].as_mut_ptr().cast(), *v);
                            store(vectors[1].as_mut_ptr().cast(), sealed);
                            (*stream, *part) = (vectors[0][n / BLOCK], vectors[1][n / BLOCK]);
                            sealed = if n > rest { keep(sealed, n - rest) } else { zero() };
                        }
                        if n > rest {
                            sum = add(sum, xor(big_endian(sealed), carry), power);
                            carry = zero();
                        }
                        (src, dst, left, power) = (src.add(n), dst.add(n), left - n, power.wrapping_add(W));
                    }
                }
                // Where nothing was hashed since the last reduction, the state is what was carried.
                let sum = fold(reduce(sum));
                _mm_storeu_si128(hashed.as_mut_ptr().cast(), _mm_xor_si128(sum, lowest(carry)));
            }
        }

        pub(super) struct $name;

        impl Gcm for $name {
            const MODULE: &'static str = $module;
            type Begun = Begun;

            #[target_feature(enable = $features)]
            unsafe fn powers(rounds: &Rounds, powers: &mut Powers) {
                expand(rounds, powers);
            }

            #[target_feature(enable = $features)]
            unsafe fn begin(
                key: &GcmKey,
                dir: Direction,
                nonce: &[u8; NONCE_LEN],
                associated: &[u8],
                text: (*const u8, *mut u8),
                len: usize,
                begun: &mut MaybeUninit<Begun>,
            ) {
                // SAFETY: the caller's promise, here and below.
                unsafe {
                    match dir {
                        Direction::Encrypt => begin::<false>(key, nonce, associated, text, len, begun),
                        Direction::Decrypt => begin::<true>(key, nonce, associated, text, len, begun),
                    }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn end(key: &GcmKey, begun: &Begun, tag: &mut [u8; BLOCK]) {
                // SAFETY: as above.
                unsafe { end(key, begun, tag) }
            }

            #[target_feature(enable = $features)]
            unsafe fn hash(key: &GcmKey, hashed: &mut [u8; BLOCK], data: &[u8]) {
                // SAFETY: blocks.
                unsafe {
                    let before = _mm_loadu_si128(hashed.as_ptr().cast());
                    _mm_storeu_si128(hashed.as_mut_ptr().cast(), hash(&key.powers, before, data));
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn block(key: &GcmKey, counter: u128) -> [u8; BLOCK] {
                let (rounds, mut block) = (&key.rounds, [0; BLOCK]);
                let mut x = [big_endian(counters(counter))];
                super::aes_kernels::rounds!(x, rounds, false);
                // SAFETY: a block.
                unsafe { _mm_storeu_si128(block.as_mut_ptr().cast(), lowest(x[0])) };
                block
            }

            #[target_feature(enable = $features)]
            unsafe fn piece(
                key: &GcmKey,
                dir: Direction,
                counter: u128,
                state: &mut State,
                before: usize,
                text: (*const u8, *mut u8),
                len: usize,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    match dir {
                        Direction::Encrypt => piece::<false>(key, counter, state, before, text, len),
                        Direction::Decrypt => piece::<true>(key, counter, state, before, text, len),
                    }
                }
            }
        }
    };
}
pub(super) use gcm;
