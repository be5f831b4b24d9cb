//! MD4, MD5, RIPEMD-160, SHA-1 and SHA-2 over the block functions of AWS-LC.
//!
//! Only whole blocks are passed to the library, so a running hash is only its chaining words (20 bytes for SHA-1), and
//! a prepared HMAC key is two sets of them. Buffering and padding (Merkle-Damgard: 0x80, zeros, length) are done here,
//! by the same code for all hashes.

use crate::wipe::{Plain, wipe};
use aws_lc_sys as c;
use sealane_crypto::hash::{HashDriver, HashOp, HashState};
use sealane_crypto::registry::Driver;
use sealane_crypto::{AlgInfo, Row, Status};
use std::marker::PhantomData;
use std::sync::Arc;

/// The longest block of any of them (SHA-512), in bytes.
pub(crate) const MAX_BLOCK_LEN: usize = 128;

/// A Merkle-Damgard hash.
pub(crate) trait Md: Send + Sync + 'static {
    /// Chaining words.
    type Words: Plain + Send + Sync + 'static;
    /// Room for two blocks.
    type Tail: Plain + AsMut<[u8]>;
    /// Kernel name.
    const NAME: &'static str;
    /// Name as a part of driver names.
    const FLAT: &'static str;
    /// Block length in bytes.
    const BLOCK_LEN: usize;
    /// Digest length in bytes.
    const DIGEST_LEN: usize;
    /// Whether words and length are big-endian.
    const BIG_ENDIAN: bool;
    /// The words before the first block.
    fn init() -> Self::Words;
    /// Absorbs whole blocks.
    fn compress(words: &mut Self::Words, blocks: &[u8]);
    /// Writes the first `out.len()` bytes of the digest.
    fn output(words: &Self::Words, out: &mut [u8]);
}

/// Writes words in their byte order, as many bytes as `out` takes.
macro_rules! write_words {
    ($words:expr, $out:expr, $to_bytes:ident) => {{
        for (word, chunk) in $words.iter().zip($out.chunks_mut(size_of_val(&$words[0]))) {
            chunk.copy_from_slice(&word.$to_bytes()[..chunk.len()]);
        }
    }};
}

/// Defines a hash whose context is updated through `$update`. Without a partial block in the context, the library
/// passes all blocks to its assembly code at once.
macro_rules! through_update {
    ($type:ident, $name:literal, $flat:literal, $word:ty, $words:literal, $block:literal, $digest:literal,
     $ctx:ident { $buf:ident $(, $extra:ident)? }, $init:ident, $update:ident, $big:literal, $to_bytes:ident) => {
        pub(crate) struct $type;

        impl Md for $type {
            type Words = [$word; $words];
            type Tail = [u8; 2 * $block];
            const NAME: &'static str = $name;
            const FLAT: &'static str = $flat;
            const BLOCK_LEN: usize = $block;
            const DIGEST_LEN: usize = $digest;
            const BIG_ENDIAN: bool = $big;

            fn init() -> Self::Words {
                let mut ctx = c::$ctx { h: [0; $words], Nl: 0, Nh: 0, $buf: [0; $block], num: 0 $(, $extra: 0)? };
                // SAFETY: the context is valid for writing, which is all that the function needs.
                unsafe { c::$init(&mut ctx) };
                ctx.h
            }

            #[inline]
            fn compress(words: &mut Self::Words, blocks: &[u8]) {
                debug_assert_eq!(blocks.len() % $block, 0);
                let mut ctx = c::$ctx { h: *words, Nl: 0, Nh: 0, $buf: [0; $block], num: 0 $(, $extra: $digest)? };
                // SAFETY: the context is valid and holds no partial block; `blocks` is readable for its length.
                unsafe { c::$update(&mut ctx, blocks.as_ptr().cast(), blocks.len()) };
                *words = ctx.h;
                // The rest of the context was never written, because whole blocks are not buffered.
                wipe(&mut ctx.h);
            }

            #[inline]
            fn output(words: &Self::Words, out: &mut [u8]) {
                write_words!(words, out, $to_bytes);
            }
        }
    };
}

through_update!(Md4, "md4", "md4", u32, 4, 64, 16, MD4_CTX { data }, MD4_Init, MD4_Update, false, to_le_bytes);
through_update!(Md5, "md5", "md5", u32, 4, 64, 16, MD5_CTX { data }, MD5_Init, MD5_Update, false, to_le_bytes);
through_update!(
    Rmd160,
    "rmd160",
    "rmd160",
    u32,
    5,
    64,
    20,
    RIPEMD160_CTX { data },
    RIPEMD160_Init,
    RIPEMD160_Update,
    false,
    to_le_bytes
);
through_update!(Sha1, "sha1", "sha1", u32, 5, 64, 20, SHA_CTX { data }, SHA1_Init, SHA1_Update, true, to_be_bytes);
through_update!(
    Sha384,
    "sha384",
    "sha384",
    u64,
    8,
    128,
    48,
    SHA512_CTX { p, md_len },
    SHA384_Init,
    SHA512_Update,
    true,
    to_be_bytes
);
through_update!(
    Sha512,
    "sha512",
    "sha512",
    u64,
    8,
    128,
    64,
    SHA512_CTX { p, md_len },
    SHA512_Init,
    SHA512_Update,
    true,
    to_be_bytes
);

/// SHA-224 and SHA-256, whose block function is public.
macro_rules! sha256_family {
    ($type:ident, $name:literal, $digest:literal, $init:ident) => {
        pub(crate) struct $type;

        impl Md for $type {
            type Words = [u32; 8];
            type Tail = [u8; 128];
            const NAME: &'static str = $name;
            const FLAT: &'static str = $name;
            const BLOCK_LEN: usize = 64;
            const DIGEST_LEN: usize = $digest;
            const BIG_ENDIAN: bool = true;

            fn init() -> Self::Words {
                let mut ctx = c::SHA256_CTX { h: [0; 8], Nl: 0, Nh: 0, data: [0; 64], num: 0, md_len: 0 };
                // SAFETY: the context is valid for writing, which is all that the function needs.
                unsafe { c::$init(&mut ctx) };
                ctx.h
            }

            #[inline]
            fn compress(words: &mut Self::Words, blocks: &[u8]) {
                debug_assert_eq!(blocks.len() % 64, 0);
                // SAFETY: eight words, and as many whole blocks as `blocks` holds.
                unsafe { c::SHA256_TransformBlocks(words.as_mut_ptr(), blocks.as_ptr(), blocks.len() / 64) };
            }

            #[inline]
            fn output(words: &Self::Words, out: &mut [u8]) {
                write_words!(words, out, to_be_bytes);
            }
        }
    };
}

sha256_family!(Sha224, "sha224", 28, SHA224_Init);
sha256_family!(Sha256, "sha256", 32, SHA256_Init);

/// The length field has an eighth of a block: 8 bytes, for SHA-384 and SHA-512 16 of which the first 8 stay zero.
const fn len_field<H: Md>() -> usize {
    H::BLOCK_LEN / 8
}

/// Writes the length of a message of `total` bytes at the end of its last block, in bits.
#[inline]
fn write_len<H: Md>(block: &mut [u8], total: u64) {
    let bits = total.wrapping_mul(8);
    let at = block.len() - 8;
    block[at..].copy_from_slice(&if H::BIG_ENDIAN { bits.to_be_bytes() } else { bits.to_le_bytes() });
}

/// Absorbs the last bytes of a message (less than a block), the padding and the length. `total` counts all bytes of the
/// message, including the last ones and those absorbed before.
#[inline]
pub(crate) fn pad<H: Md>(words: &mut H::Words, last: &[u8], total: u64) {
    // SAFETY: zeros are a value of a `Plain` type.
    let mut tail: H::Tail = unsafe { core::mem::zeroed() };
    let bytes = tail.as_mut();
    let len = if last.len() + 1 + len_field::<H>() <= H::BLOCK_LEN { H::BLOCK_LEN } else { 2 * H::BLOCK_LEN };
    bytes[..last.len()].copy_from_slice(last);
    bytes[last.len()] = 0x80;
    write_len::<H>(&mut bytes[..len], total);
    H::compress(words, &bytes[..len]);
    wipe(&mut tail);
}

/// Absorbs a whole message after `before` bytes that the words have absorbed already (a multiple of the block).
#[inline]
pub(crate) fn absorb<H: Md>(words: &mut H::Words, before: usize, data: &[&[u8]]) {
    match data {
        [] => pad::<H>(words, &[], before as u64),
        [only] => {
            let (blocks, last) = only.split_at(only.len() - only.len() % H::BLOCK_LEN);
            if !blocks.is_empty() {
                H::compress(words, blocks);
            }
            pad::<H>(words, last, (before + only.len()) as u64);
        }
        many => absorb_pieces::<H>(words, before, many),
    }
}

#[inline(never)]
fn absorb_pieces<H: Md>(words: &mut H::Words, before: usize, data: &[&[u8]]) {
    let mut running = Running::<H>::new(*words, before);
    for piece in data {
        running.update(piece);
    }
    *words = *running.finish();
}

/// The state of a message that arrives in pieces: the chaining words, and the bytes of an incomplete block.
pub(crate) struct Running<H: Md> {
    words: H::Words,
    buf: [u8; MAX_BLOCK_LEN],
    used: usize,
    total: u64,
}

impl<H: Md> Running<H> {
    /// Continues from `words`, which have absorbed `before` bytes (a multiple of the block).
    pub(crate) fn new(words: H::Words, before: usize) -> Self {
        Running { words, buf: [0; MAX_BLOCK_LEN], used: 0, total: before as u64 }
    }

    /// Starts again from `words`, which have absorbed `before` bytes.
    pub(crate) fn restart(&mut self, words: H::Words, before: usize) {
        self.words = words;
        wipe(&mut self.buf);
        self.used = 0;
        self.total = before as u64;
    }

    /// Whether nothing has been absorbed since `before` bytes. After the end of a message this says nothing.
    pub(crate) fn is_fresh(&self, before: usize) -> bool {
        self.total == before as u64
    }

    /// Absorbs `data`, as far as it fills whole blocks, and buffers the rest.
    pub(crate) fn update(&mut self, mut data: &[u8]) {
        self.total = self.total.wrapping_add(data.len() as u64);
        if self.used > 0 {
            let (fill, rest) = data.split_at(data.len().min(H::BLOCK_LEN - self.used));
            self.buf[self.used..self.used + fill.len()].copy_from_slice(fill);
            self.used += fill.len();
            data = rest;
            if self.used < H::BLOCK_LEN {
                return;
            }
            H::compress(&mut self.words, &self.buf[..H::BLOCK_LEN]);
            self.used = 0;
        }
        let (blocks, last) = data.split_at(data.len() - data.len() % H::BLOCK_LEN);
        if !blocks.is_empty() {
            H::compress(&mut self.words, blocks);
        }
        self.buf[..last.len()].copy_from_slice(last);
        self.used = last.len();
    }

    /// Pads the message where it is, and returns its chaining words. [`Self::restart`] or the end of this value wipes what is left.
    pub(crate) fn finish(&mut self) -> &H::Words {
        let block = &mut self.buf[..H::BLOCK_LEN];
        block[self.used] = 0x80;
        block[self.used + 1..].fill(0);
        if self.used + 1 + len_field::<H>() > H::BLOCK_LEN {
            H::compress(&mut self.words, block);
            block.fill(0);
        }
        write_len::<H>(block, self.total);
        H::compress(&mut self.words, block);
        &self.words
    }
}

impl<H: Md> Clone for Running<H> {
    fn clone(&self) -> Self {
        Running { words: self.words, buf: self.buf, used: self.used, total: self.total }
    }
}

impl<H: Md> Drop for Running<H> {
    fn drop(&mut self) {
        wipe(&mut self.words);
        wipe(&mut self.buf);
    }
}

struct MdDriver<H>(PhantomData<H>);

struct MdState<H: Md>(Running<H>);

impl<H: Md> HashDriver for MdDriver<H> {
    fn start(&self) -> Box<dyn HashState> {
        Box::new(MdState::<H>(Running::new(H::init(), 0)))
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        for op in ops {
            let mut words = H::init();
            absorb::<H>(&mut words, 0, op.data);
            H::output(&words, op.digest);
            op.status = Ok(());
        }
    }
}

impl<H: Md> HashState for MdState<H> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        H::output(self.0.finish(), out);
        self.0.restart(H::init(), 0);
        Ok(())
    }

    fn reset(&mut self) {
        if !self.0.is_fresh(0) {
            self.0.restart(H::init(), 0);
        }
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(MdState(self.0.clone()))
    }
}

fn row<H: Md>(legacy: bool) -> Row {
    let info = AlgInfo { legacy, ..AlgInfo::hash(H::NAME, H::BLOCK_LEN, H::DIGEST_LEN) };
    crate::row::row(info, H::FLAT, Driver::Hash(Arc::new(MdDriver::<H>(PhantomData))))
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row::<Md4>(true),
        row::<Md5>(true),
        row::<Sha1>(true),
        row::<Sha224>(false),
        row::<Sha256>(false),
        row::<Sha384>(false),
        row::<Sha512>(false),
        row::<Rmd160>(true),
    ]
}
