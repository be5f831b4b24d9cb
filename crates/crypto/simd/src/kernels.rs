//! The compression functions, written once for all instruction sets, as macros over vector operations of the same
//! names.
//!
//! They are macros and not generic functions, because intrinsics are not inlined into a function that lacks their
//! `target_feature`; for the same reason `map` and `from_fn` are not used here. Each macro expects in scope `V`, `add`,
//! `xor3`, `ch`, `maj`, `rotr`, `shr`, `set1`, and `settle`. `settle` returns its argument, but keeps the compiler from
//! regrouping a sum across it: rounds are one long chain of sums, and the compiler does not know which term arrives
//! last.

/// RFC 1321 section 3.4: `abs(sin(i + 1)) * 2^32`.
pub(super) const K_MD5: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// FIPS 180-4 section 4.2.2: of the cube roots of the first 64 primes.
pub(super) const K_SHA256: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// FIPS 180-4 section 4.2.3: of the cube roots of the first 80 primes.
pub(super) const K_SHA512: [u64; 80] = [
    0x428a_2f98_d728_ae22,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242,
    0x1283_5b01_4570_6fbe,
    0x2431_85be_4ee4_b28c,
    0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f,
    0x80de_b1fe_3b16_96b1,
    0x9bdc_06a7_25c7_1235,
    0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2,
    0xefbe_4786_384f_25e3,
    0x0fc1_9dc6_8b8c_d5b5,
    0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275,
    0x4a74_84aa_6ea6_e483,
    0x5cb0_a9dc_bd41_fbd4,
    0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab,
    0xa831_c66d_2db4_3210,
    0xb003_27c8_98fb_213f,
    0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2,
    0xd5a7_9147_930a_a725,
    0x06ca_6351_e003_826f,
    0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc,
    0x2e1b_2138_5c26_c926,
    0x4d2c_6dfc_5ac4_2aed,
    0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de,
    0x766a_0abb_3c77_b2a8,
    0x81c2_c92e_47ed_aee6,
    0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364,
    0xa81a_664b_bc42_3001,
    0xc24b_8b70_d0f8_9791,
    0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218,
    0xd699_0624_5565_a910,
    0xf40e_3585_5771_202a,
    0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8,
    0x1e37_6c08_5141_ab53,
    0x2748_774c_df8e_eb99,
    0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63,
    0x4ed8_aa4a_e341_8acb,
    0x5b9c_ca4f_7763_e373,
    0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc,
    0x78a5_636f_4317_2f60,
    0x84c8_7814_a1f0_ab72,
    0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28,
    0xa450_6ceb_de82_bde9,
    0xbef9_a3f7_b2c6_7915,
    0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c,
    0xd186_b8c7_21c0_c207,
    0xeada_7dd6_cde0_eb1e,
    0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba,
    0x0a63_7dc5_a2c8_98a6,
    0x113f_9804_bef9_0dae,
    0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84,
    0x32ca_ab7b_40c7_2493,
    0x3c9e_be0a_15c9_bebc,
    0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6,
    0x597f_299c_fc65_7e2a,
    0x5fcb_6fab_3ad6_faec,
    0x6c44_198c_4a47_5817,
];

/// Defines `$name(state, w)`: SHA-1 (FIPS 180-4 section 6.1.2).
macro_rules! sha1 {
    ($name:ident, $features:literal) => {
        #[target_feature(enable = $features)]
        #[inline(never)]
        fn $name(state: &mut [V; 8], w: &mut [V; 16]) {
            // Keeps the last three words in registers, word i at i % 3: a store and a load take longer than the three
            // rounds until a word is used again.
            let mut recent = [w[15], w[13], w[14]];
            macro_rules! round {
                ($i:expr, $f:ident, $k:ident, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident) => {
                    let word = if $i >= 16 {
                        let early = settle(xor3(w[($i + 8) & 15], w[($i + 2) & 15], w[$i & 15]));
                        recent[$i % 3] = rotr::<31, 1>(xor(early, recent[$i % 3]));
                        w[$i & 15] = recent[$i % 3];
                        recent[$i % 3]
                    } else {
                        w[$i & 15]
                    };
                    // The result of the previous round is added last.
                    let early = settle(add(add(settle(add($e, $k)), word), $f($b, $c, $d)));
                    $e = add(early, rotr::<27, 5>($a));
                    $b = rotr::<2, 30>($b);
                    pin(w);
                };
            }
            let [mut a, mut b, mut c, mut d, mut e, ..] = *state;
            macro_rules! five {
                ($i:expr, $f:ident, $k:ident) => {
                    round!($i, $f, $k, a, b, c, d, e);
                    round!($i + 1, $f, $k, e, a, b, c, d);
                    round!($i + 2, $f, $k, d, e, a, b, c);
                    round!($i + 3, $f, $k, c, d, e, a, b);
                    round!($i + 4, $f, $k, b, c, d, e, a);
                };
            }
            macro_rules! twenty {
                ($i:expr, $f:ident, $k:literal) => {
                    let k = set1($k);
                    five!($i, $f, k);
                    five!($i + 5, $f, k);
                    five!($i + 10, $f, k);
                    five!($i + 15, $f, k);
                };
            }
            twenty!(0usize, ch, 0x5a82_7999);
            twenty!(20usize, xor3, 0x6ed9_eba1);
            twenty!(40usize, maj, 0x8f1b_bcdc);
            twenty!(60usize, xor3, 0xca62_c1d6);
            for (s, x) in state.iter_mut().zip([a, b, c, d, e]) {
                *s = add(*s, x);
            }
        }
    };
}
pub(super) use sha1;

/// Defines `$name(state, w)`: SHA-256 or SHA-512 (FIPS 180-4 sections 6.2.2 and 6.4.2). Rotations are given as right
/// and left amounts: big sigma 0 and 1, small sigma 0 and 1 with the shift that ends them.
macro_rules! sha2 {
    ($name:ident, $features:literal, $table:ident,
     $s0:tt $s1:tt $t0:tt $t1:tt) => {
        #[target_feature(enable = $features)]
        #[inline(never)]
        fn $name(state: &mut [V; 8], w: &mut [V; 16]) {
            macro_rules! rotations {
                ($x:expr, [$a:literal $b:literal, $c:literal $d:literal, $e:literal $f:literal]) => {
                    xor3(rotr::<$a, $b>($x), rotr::<$c, $d>($x), rotr::<$e, $f>($x))
                };
                ($x:expr, [$a:literal $b:literal, $c:literal $d:literal, $e:literal]) => {
                    xor3(rotr::<$a, $b>($x), rotr::<$c, $d>($x), shr::<$e>($x))
                };
            }
            // Round i, and with `$next` the word of round i + 16, which replaces word i. It is needed much later, so
            // its instructions fill the gaps in the chain of the rounds.
            macro_rules! round {
                ($next:literal, $i:expr, $k:expr, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident, $f:ident, $g:ident, $h:ident) => {
                    let word = w[$i];
                    let early = settle(add(add($h, set1($k)), word));
                    let early = settle(add(early, ch($e, $f, $g)));
                    let t = settle(add(early, rotations!($e, $s1)));
                    $d = add($d, t);
                    $h = add(settle(add(t, maj($a, $b, $c))), rotations!($a, $s0));
                    if $next {
                        let early = settle(add(add(word, w[($i + 9) & 15]), rotations!(w[($i + 1) & 15], $t0)));
                        w[$i] = add(early, rotations!(w[($i + 14) & 15], $t1));
                    }
                    pin(w);
                };
            }
            let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
            macro_rules! eight {
                ($next:literal, $k:ident, $i:expr) => {
                    round!($next, $i, $k[$i], a, b, c, d, e, f, g, h);
                    round!($next, $i + 1, $k[$i + 1], h, a, b, c, d, e, f, g);
                    round!($next, $i + 2, $k[$i + 2], g, h, a, b, c, d, e, f);
                    round!($next, $i + 3, $k[$i + 3], f, g, h, a, b, c, d, e);
                    round!($next, $i + 4, $k[$i + 4], e, f, g, h, a, b, c, d);
                    round!($next, $i + 5, $k[$i + 5], d, e, f, g, h, a, b, c);
                    round!($next, $i + 6, $k[$i + 6], c, d, e, f, g, h, a, b);
                    round!($next, $i + 7, $k[$i + 7], b, c, d, e, f, g, h, a);
                };
            }
            // A loop over sixteen rounds keeps the code of several hashes within the instruction cache.
            let [first @ .., last] = $table.as_chunks::<16>().0 else { unreachable!("the table has many rows of sixteen") };
            for k in first {
                eight!(true, k, 0usize);
                eight!(true, k, 8usize);
            }
            eight!(false, last, 0usize);
            eight!(false, last, 8usize);
            for (s, x) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                *s = add(*s, x);
            }
        }
    };
}
pub(super) use sha2;

/// Defines `$name(state, w)`: MD5 (RFC 1321 section 3.4). Expects `md5_i` in scope too.
macro_rules! md5 {
    ($name:ident, $features:literal) => {
        #[target_feature(enable = $features)]
        #[inline(never)]
        fn $name(state: &mut [V; 8], w: &mut [V; 16]) {
            let [mut a, mut b, mut c, mut d, ..] = *state;
            macro_rules! step {
                ($i:expr, $g:expr, $f:expr, $a:ident, $b:ident, [$r:literal $l:literal]) => {
                    let x = add(settle(add($a, add(w[$g & 15], set1(K_MD5[$i])))), $f);
                    $a = add($b, rotr::<$r, $l>(x));
                    pin(w);
                };
            }
            macro_rules! four {
                ($i:expr, $m:literal, $n:literal, $f:ident, [$s0:tt $s1:tt $s2:tt $s3:tt]) => {
                    step!($i, $m * $i + $n, $f(b, c, d), a, b, $s0);
                    step!($i + 1, $m * ($i + 1) + $n, $f(a, b, c), d, a, $s1);
                    step!($i + 2, $m * ($i + 2) + $n, $f(d, a, b), c, d, $s2);
                    step!($i + 3, $m * ($i + 3) + $n, $f(c, d, a), b, c, $s3);
                };
            }
            macro_rules! sixteen {
                ($i:expr, $m:literal, $n:literal, $f:ident, $s:tt) => {
                    four!($i, $m, $n, $f, $s);
                    four!($i + 4, $m, $n, $f, $s);
                    four!($i + 8, $m, $n, $f, $s);
                    four!($i + 12, $m, $n, $f, $s);
                };
            }
            sixteen!(0usize, 1, 0, ch, [[25 7] [20 12] [15 17] [10 22]]);
            sixteen!(16usize, 5, 1, md5_g, [[27 5] [23 9] [18 14] [12 20]]);
            sixteen!(32usize, 3, 5, xor3, [[28 4] [21 11] [16 16] [9 23]]);
            sixteen!(48usize, 7, 0, md5_i, [[26 6] [22 10] [17 15] [11 21]]);
            for (s, x) in state.iter_mut().zip([a, b, c, d]) {
                *s = add(*s, x);
            }
        }
    };
}
pub(super) use md5;

/// Defines `$name`, a [`Kernel`](super::lanes::Kernel) that runs `$compress` over the vector operations in scope, with
/// `gather` and `scatter`, which transpose blocks and digests.
/// `$swap`: words and length are big-endian. `$tails`: `gather_tails` and `lengths` exist.
macro_rules! kernel {
    ($name:ident, $word:ty, $features:literal, $compress:ident, swap: $swap:literal, tails: $tails:tt) => {
        pub(crate) struct $name;

        impl Kernel for $name {
            type Word = $word;
            const LANES: usize = LANES;
            const TAILS: bool = $tails;

            #[target_feature(enable = $features)]
            unsafe fn load(keys: &[*const u8; MAX_LANES], inner: &mut State<$word>, outer: &mut State<$word>) {
                let mut words = MaybeUninit::uninit();
                // SAFETY: a key is as long as a block: the inner words, then the outer. `gather` writes all of `words`.
                let words = unsafe {
                    gather::<false>(keys, 0, &mut words);
                    words.assume_init()
                };
                save(inner, words.first_chunk().expect("sixteen words"));
                save(outer, words.last_chunk().expect("sixteen words"));
            }

            #[target_feature(enable = $features)]
            unsafe fn blocks(state: &mut State<$word>, from: &[*const u8; MAX_LANES], count: usize, active: u32) {
                const BLOCK: usize = 16 * size_of::<$word>();
                const ALL: u32 = u32::MAX >> (32 - LANES);
                let mut now = restore(state);
                let mut w = MaybeUninit::uninit();
                for i in 0..count {
                    // SAFETY: the caller has `count` blocks at each pointer, and `gather` writes all of `w`.
                    let w = unsafe {
                        gather::<$swap>(from, i * BLOCK, &mut w);
                        w.assume_init_mut()
                    };
                    if active & ALL == ALL {
                        $compress(&mut now, w);
                    } else {
                        let before = now;
                        $compress(&mut now, w);
                        blend(mask(active), &mut now, &before);
                    }
                }
                save(state, &now);
            }

            #[target_feature(enable = $features)]
            unsafe fn tails(state: &mut State<$word>, tails: &Tails, active: u32) {
                kernel!(@tails $tails, $word, $compress, $swap, state, tails, active);
            }

            #[target_feature(enable = $features)]
            unsafe fn alike(group: &Alike<'_>) {
                kernel!(@alike $tails, $word, $compress, $swap, group);
            }

            #[target_feature(enable = $features)]
            unsafe fn outer(inner: &State<$word>, outer: &mut State<$word>, words: usize) {
                const BLOCK: usize = 16 * size_of::<$word>();
                let zero = set1(0);
                let mut w = [zero; 16];
                w[..8].copy_from_slice(&restore(inner));
                w[words..].fill(zero);
                let bits = ((BLOCK + words * size_of::<$word>()) * 8) as $word;
                if $swap {
                    w[words] = set1(1 << (<$word>::BITS - 1));
                    w[15] = set1(bits);
                } else {
                    w[words] = set1(0x80);
                    w[14] = set1(bits);
                }
                let mut now = restore(outer);
                $compress(&mut now, &mut w);
                save(outer, &now);
            }

            #[target_feature(enable = $features)]
            unsafe fn store(state: &State<$word>, to: &[*mut u8; MAX_LANES]) {
                // SAFETY: the caller has a whole state's room at each pointer.
                unsafe { scatter::<$swap>(&restore(state), &to[..LANES], 8 * size_of::<$word>()) };
            }
        }
    };
    (@alike false, $word:ty, $compress:ident, $swap:literal, $group:ident) => {
        let _ = $group;
        unreachable!("TAILS is false");
    };
    (@alike true, $word:ty, $compress:ident, $swap:literal, $group:ident) => {
        const WORD: usize = size_of::<$word>();
        const BLOCK: usize = 16 * WORD;
        const END: $word = if $swap { 1 << (<$word>::BITS - 1) } else { 0x80 };
        let Alike { keys, from, to, len, words, out_len } = *$group;
        let zero = settle(set1(0));
        // Not filled with zeros first, which would take longer than the code that follows.
        let (mut w, mut states) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: a key is as long as a block: the inner words, then the outer. `gather` writes all of `states`.
        let states = unsafe {
            gather::<false>(keys, 0, &mut states);
            states.assume_init_mut()
        };
        let [inner, outer] = states.as_chunks_mut::<8>().0 else { unreachable!("twice eight words") };
        let whole = len / BLOCK * BLOCK;
        let mut at = 0;
        while at < whole {
            // SAFETY: the caller has `len` bytes at each pointer, and `gather` writes all of `w`.
            let w = unsafe {
                gather::<$swap>(from, at, &mut w);
                w.assume_init_mut()
            };
            $compress(inner, w);
            at += BLOCK;
        }
        let rest = len - whole;
        let w = if rest <= SHORT {
            let [a, b, c, d, e] = if rest == 0 {
                [set1(END), zero, zero, zero, zero]
            } else {
                // SAFETY: the rest of the message is there.
                unsafe { short_ends::<$swap>(from, at, rest) }
            };
            w.write([a, b, c, d, e, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero])
        } else {
            let mut ends = [core::ptr::null(); LANES];
            for (end, from) in ends.iter_mut().zip(from) {
                *end = from.wrapping_add(at);
            }
            // SAFETY: as above, and `gather_tails` writes all of `w`.
            unsafe {
                gather_tails::<$swap>(&ends, &[rest; LANES], &mut w);
                w.assume_init_mut()
            }
        };
        if rest >= BLOCK - 2 * WORD {
            $compress(inner, w);
            w.fill(zero);
        }
        // The length includes the key's block, and fits into one word.
        let before = if words.is_some() { BLOCK } else { 0 };
        w[if $swap { 15 } else { 14 }] = set1(((len + before) * 8) as $word);
        $compress(inner, w);
        let digest = if let Some(words) = words {
            w[..8].copy_from_slice(inner);
            w[words..].fill(zero);
            w[words] = set1(END);
            w[if $swap { 15 } else { 14 }] = set1(((BLOCK + words * WORD) * 8) as $word);
            $compress(outer, w);
            outer
        } else {
            inner
        };
        // SAFETY: the caller has room for `out_len` bytes at each pointer.
        unsafe { scatter::<$swap>(digest, to, out_len) };
        // No midstates of keys stay on the stack: a digest has replaced each of them.
    };
    (@tails false, $word:ty, $compress:ident, $swap:literal, $state:ident, $tails:ident, $active:ident) => {
        let _ = ($state, $tails, $active);
        unreachable!("TAILS is false");
    };
    (@tails true, $word:ty, $compress:ident, $swap:literal, $state:ident, $tails:ident, $active:ident) => {
        const BLOCK: usize = 16 * size_of::<$word>();
        let mut w = MaybeUninit::uninit();
        // SAFETY: the caller has the ends of the messages at these pointers, and `gather_tails` writes all of `w`.
        let w = unsafe {
            gather_tails::<$swap>(&$tails.from, &$tails.len, &mut w);
            w.assume_init_mut()
        };
        let length_at = BLOCK - 2 * size_of::<$word>();
        let mut short = 0u32;
        for (l, len) in $tails.len.iter().take(LANES).enumerate() {
            short |= u32::from(*len < length_at) << l;
        }
        let [first, second] = lengths::<$swap>(&$tails.bits);
        let ending = mask(short);
        w[14] = select(ending, first, w[14]);
        w[15] = select(ending, second, w[15]);
        let mut now = restore($state);
        let mut before = now;
        $compress(&mut now, w);
        blend(mask($active), &mut now, &before);
        let long = $active & !short;
        if long != 0 {
            let mut w = [set1(0); 16];
            w[14] = first;
            w[15] = second;
            before = now;
            $compress(&mut now, &mut w);
            blend(mask(long), &mut now, &before);
        }
        save($state, &now);
    };
}
pub(super) use kernel;

/// Defines `restore`, `save` and `blend`: a [`State`](super::lanes::State) from memory to registers and back.
macro_rules! states {
    ($word:ty, $features:literal) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn restore(state: &State<$word>) -> [V; 8] {
            let mut words = [set1(0); 8];
            for (v, row) in words.iter_mut().zip(&state.0) {
                // SAFETY: each row has at least LANES words and is aligned to 64 bytes.
                *v = unsafe { load(row.as_ptr()) };
            }
            words
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn save(state: &mut State<$word>, words: &[V; 8]) {
            for (row, v) in state.0.iter_mut().zip(words) {
                // SAFETY: each row has at least LANES words and is aligned to 64 bytes.
                unsafe { store(row.as_mut_ptr(), *v) };
            }
        }

        /// Resets lanes outside `mask` to `before`.
        #[target_feature(enable = $features)]
        #[inline]
        fn blend(mask: M, now: &mut [V; 8], before: &[V; 8]) {
            for (n, b) in now.iter_mut().zip(before) {
                *n = select(mask, *n, *b);
            }
        }
    };
}
pub(super) use states;

/// Defines `pin(w)` for kernels whose message schedule does not fit the registers. It keeps the schedule in its array;
/// without it the compiler loads all words and spills each of them to a second place.
macro_rules! pin {
    () => {
        #[inline(always)]
        fn pin(w: &mut [V; 16]) {
            // SAFETY: no instruction at all; the compiler must assume that it reads and writes `w`.
            unsafe { core::arch::asm!("/* {0} */", in(reg) w.as_mut_ptr(), options(nostack, preserves_flags)) };
        }
    };
}
pub(super) use pin;

/// Defines a module whose vectors are pairs of its parent's, because two independent chains of instructions hide each
/// other's latency. `$m` is the macro that makes the kernels.
macro_rules! paired {
    ($word:ty, $features:literal, ops: [$($op:ident($($arg:ident),*)),*], $kernels:ident) => {
        /// Twice the lanes: two independent chains of instructions hide each other's latency.
        pub(super) mod pairs {
            use super::{Alike, Kernel, MAX_LANES, MaybeUninit, State, Tails};
            use $crate::kernels::pin;

            /// Written half by half, so the order of the two is fixed.
            #[repr(C)]
            #[derive(Clone, Copy)]
            struct V(super::V, super::V);
            #[derive(Clone, Copy)]
            struct M(super::M, super::M);
            const HALF: usize = super::LANES;
            const LANES: usize = 2 * HALF;

            $(
                #[target_feature(enable = $features)]
                #[inline]
                fn $op($($arg: V),*) -> V {
                    V(super::$op($($arg.0),*), super::$op($($arg.1),*))
                }
            )*

            #[target_feature(enable = $features)]
            #[inline]
            fn rotr<const R: i32, const L: i32>(a: V) -> V {
                V(super::rotr::<R, L>(a.0), super::rotr::<R, L>(a.1))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn shr<const N: u32>(a: V) -> V {
                V(super::shr::<N>(a.0), super::shr::<N>(a.1))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn set1(a: $word) -> V {
                V(super::set1(a), super::set1(a))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn mask(active: u32) -> M {
                M(super::mask(active), super::mask(active >> HALF))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn select(mask: M, yes: V, no: V) -> V {
                V(super::select(mask.0, yes.0, no.0), super::select(mask.1, yes.1, no.1))
            }

            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn load(from: *const $word) -> V {
                // SAFETY: the caller has LANES words there, aligned.
                unsafe { V(super::load(from), super::load(from.add(HALF))) }
            }

            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn store(to: *mut $word, v: V) {
                // SAFETY: the caller has LANES words there, aligned.
                unsafe {
                    super::store(to, v.0);
                    super::store(to.add(HALF), v.1);
                }
            }

            pin!();

            /// Stores the vectors of one half, 0 or 1.
            #[target_feature(enable = $features)]
            #[inline]
            fn put(w: &mut MaybeUninit<[V; 16]>, half: usize, vectors: [super::V; 16]) {
                assert!(half < 2);
                let to = w.as_mut_ptr().cast::<super::V>();
                for (i, v) in vectors.into_iter().enumerate() {
                    // SAFETY: sixteen pairs are thirty-two vectors.
                    unsafe { to.add(2 * i + half).write(v) };
                }
            }

            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn gather<const SWAP: bool>(from: &[*const u8], at: usize, w: &mut MaybeUninit<[V; 16]>) {
                for half in [0, 1] {
                    let mut vectors = MaybeUninit::uninit();
                    // SAFETY: the caller has a block at each pointer, and `gather` writes all vectors.
                    unsafe {
                        super::gather::<SWAP>(&from[half * HALF..], at, &mut vectors);
                        put(w, half, vectors.assume_init());
                    }
                }
            }

            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn gather_tails<const SWAP: bool>(from: &[*const u8], len: &[usize], w: &mut MaybeUninit<[V; 16]>) {
                for half in [0, 1] {
                    let mut vectors = MaybeUninit::uninit();
                    // SAFETY: the caller has as many bytes at each pointer, and `gather_tails` writes all vectors.
                    unsafe {
                        super::gather_tails::<SWAP>(&from[half * HALF..], &len[half * HALF..], &mut vectors);
                        put(w, half, vectors.assume_init());
                    }
                }
            }

            const SHORT: usize = super::SHORT;

            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn short_ends<const SWAP: bool>(from: &[*const u8], at: usize, len: usize) -> [V; 5] {
                let (a, b) = from.split_at(HALF);
                // SAFETY: the caller has as many bytes at each pointer.
                let ([a, b, c, d, e], [i, j, k, l, m]) = unsafe {
                    (super::short_ends::<SWAP>(a, at, len), super::short_ends::<SWAP>(b, at, len))
                };
                [V(a, i), V(b, j), V(c, k), V(d, l), V(e, m)]
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn lengths<const SWAP: bool>(bits: &[u64]) -> [V; 2] {
                let (a, b) = bits.split_at(HALF);
                let ([a0, a1], [b0, b1]) = (super::lengths::<SWAP>(a), super::lengths::<SWAP>(b));
                [V(a0, b0), V(a1, b1)]
            }

            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn scatter<const SWAP: bool>(state: &[V; 8], to: &[*mut u8], len: usize) {
                let (a, b) = to.split_at(HALF.min(to.len()));
                let [s, t, u, v, w, x, y, z] = *state;
                // SAFETY: the caller has `len` bytes at each pointer.
                unsafe {
                    super::scatter::<SWAP>(&[s.0, t.0, u.0, v.0, w.0, x.0, y.0, z.0], a, len);
                    super::scatter::<SWAP>(&[s.1, t.1, u.1, v.1, w.1, x.1, y.1, z.1], b, len);
                }
            }

            $kernels!();
        }
    };
}
pub(super) use paired;
