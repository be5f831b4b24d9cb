//! The Merkle-Damgard hashes, their HMACs, and the drivers that run them over lanes.

use super::lanes::{self, Job, Kernel, State};
use super::{PRIORITY, wipe};
use core::any::Any;
use core::marker::PhantomData;
use sealane_crypto::error::KeyError;
use sealane_crypto::hash::{HashDriver, HashOp, HashState};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::{AlgInfo, Lens};
use std::sync::Arc;
use zeroize::DefaultIsZeroes;

/// The longest block, SHA-512's, in bytes.
pub(super) const MAX_BLOCK: usize = 128;

/// The longest digest, in bytes.
pub(super) const MAX_DIGEST: usize = 64;

/// A word of a state.
pub(super) trait Word: DefaultIsZeroes + Send + Sync + 'static {
    const BYTES: usize;
    fn write(self, little: bool, out: &mut [u8]);
}

macro_rules! word {
    ($w:ty) => {
        impl Word for $w {
            const BYTES: usize = size_of::<$w>();
            fn write(self, little: bool, out: &mut [u8]) {
                out.copy_from_slice(&if little { self.to_le_bytes() } else { self.to_be_bytes() });
            }
        }
    };
}
word!(u32);
word!(u64);

/// A hash of the MD4 family. States have eight words; the shorter ones leave the last of them alone.
pub(super) trait Md: Send + Sync + 'static {
    type Word: Word;
    const NAME: &'static str;
    /// Bytes of a block.
    const BLOCK: usize;
    /// Bytes of the digest.
    const DIGEST: usize;
    /// Byte order of words and length: little for MD5.
    const LITTLE: bool;
    const IV: [Self::Word; 8];
    /// Up to how many messages one by one are faster than 16 lanes where the CPU has instructions for one (SHA-NI), which
    /// [`Md::compress`] uses; `None`: there are none. Measured with HMAC of 144 bytes on Zen 5.
    const FEW: Option<usize>;
    /// Takes whole blocks into the state.
    fn compress(state: &mut [Self::Word; 8], blocks: &[u8]);
}

macro_rules! md {
    ($t:ident, $w:ty, $name:literal, $block:literal, $digest:literal, $little:literal, $words:literal, $f:path, $iv:expr) => {
        pub(super) struct $t;
        impl Md for $t {
            type Word = $w;
            const NAME: &'static str = $name;
            const BLOCK: usize = $block;
            const DIGEST: usize = $digest;
            const LITTLE: bool = $little;
            const IV: [$w; 8] = $iv;
            const FEW: Option<usize> = match (size_of::<$w>(), $words) {
                (4, 5) => Some(3),
                (4, 8) => Some(5),
                _ => None,
            };
            fn compress(state: &mut [$w; 8], blocks: &[u8]) {
                let state: &mut [$w; $words] = state.first_chunk_mut().expect("a state has eight words");
                $f(state, blocks.as_chunks().0);
            }
        }
    };
}

// The initial values: RFC 1321 section 3.3, FIPS 180-4 section 5.3.
const SHA1_IV: [u32; 8] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0, 0, 0, 0];
md!(Md5, u32, "md5", 64, 16, true, 4, md5::block_api::compress, {
    let mut iv = SHA1_IV;
    iv[4] = 0;
    iv
});
md!(Sha1, u32, "sha1", 64, 20, false, 5, sha1::block_api::compress, SHA1_IV);
md!(
    Sha224,
    u32,
    "sha224",
    64,
    28,
    false,
    8,
    sha2::block_api::compress256,
    [0xc105_9ed8, 0x367c_d507, 0x3070_dd17, 0xf70e_5939, 0xffc0_0b31, 0x6858_1511, 0x64f9_8fa7, 0xbefa_4fa4,]
);
md!(
    Sha256,
    u32,
    "sha256",
    64,
    32,
    false,
    8,
    sha2::block_api::compress256,
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,]
);
md!(
    Sha384,
    u64,
    "sha384",
    128,
    48,
    false,
    8,
    sha2::block_api::compress512,
    [
        0xcbbb_9d5d_c105_9ed8,
        0x629a_292a_367c_d507,
        0x9159_015a_3070_dd17,
        0x152f_ecd8_f70e_5939,
        0x6733_2667_ffc0_0b31,
        0x8eb4_4a87_6858_1511,
        0xdb0c_2e0d_64f9_8fa7,
        0x47b5_481d_befa_4fa4,
    ]
);
md!(
    Sha512,
    u64,
    "sha512",
    128,
    64,
    false,
    8,
    sha2::block_api::compress512,
    [
        0x6a09_e667_f3bc_c908,
        0xbb67_ae85_84ca_a73b,
        0x3c6e_f372_fe94_f82b,
        0xa54f_f53a_5f1d_36f1,
        0x510e_527f_ade6_82d1,
        0x9b05_688c_2b3e_6c1f,
        0x1f83_d9ab_fb41_bd6b,
        0x5be0_cd19_137e_2179,
    ]
);

/// A prepared HMAC key, or the initial value of a plain hash: one line of cache for 32-bit words, two for 64-bit ones.
#[repr(C, align(64))]
pub(super) struct Key<W: Word> {
    /// State after the block of key and `ipad`.
    pub(super) inner: [W; 8],
    /// State after the block of key and `opad`; unused in a plain hash.
    pub(super) outer: [W; 8],
}

impl<W: Word> Drop for Key<W> {
    fn drop(&mut self) {
        wipe(&mut self.inner);
        wipe(&mut self.outer);
    }
}

/// RFC 2104 section 2: `K` is hashed when it is longer than a block, then padded with zeros.
fn prepare<H: Md>(key: &[u8]) -> Key<H::Word> {
    let mut block = [0u8; MAX_BLOCK];
    if key.len() > H::BLOCK {
        let mut hash = Stream::<H>::new(H::IV, None);
        hash.update(key);
        hash.finish(&mut block[..H::DIGEST]);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut prepared = Key { inner: H::IV, outer: H::IV };
    block.iter_mut().for_each(|b| *b ^= 0x36);
    H::compress(&mut prepared.inner, &block[..H::BLOCK]);
    block.iter_mut().for_each(|b| *b ^= 0x36 ^ 0x5c);
    H::compress(&mut prepared.outer, &block[..H::BLOCK]);
    wipe(&mut block);
    prepared
}

/// One message at a time: incremental states, and bursts too short for lanes.
struct Stream<H: Md> {
    start: [H::Word; 8],
    /// The outer midstate, with a key.
    outer: Option<[H::Word; 8]>,
    state: [H::Word; 8],
    block: [u8; MAX_BLOCK],
    /// Bytes of the message so far, without the key's block.
    len: u64,
}

impl<H: Md> Stream<H> {
    fn new(start: [H::Word; 8], outer: Option<[H::Word; 8]>) -> Self {
        Stream { start, outer, state: start, block: [0; MAX_BLOCK], len: 0 }
    }

    /// Bytes of the message that wait in `block`.
    fn filled(&self) -> usize {
        (self.len % H::BLOCK as u64) as usize
    }

    fn update(&mut self, mut data: &[u8]) {
        let filled = self.filled();
        self.len += data.len() as u64;
        if filled > 0 {
            let n = data.len().min(H::BLOCK - filled);
            self.block[filled..filled + n].copy_from_slice(&data[..n]);
            if filled + n < H::BLOCK {
                return;
            }
            H::compress(&mut self.state, &self.block[..H::BLOCK]);
            data = &data[n..];
        }
        let whole = data.len() / H::BLOCK * H::BLOCK;
        if whole > 0 {
            H::compress(&mut self.state, &data[..whole]);
        }
        self.block[..data.len() - whole].copy_from_slice(&data[whole..]);
    }

    /// Pads what waits in `block` and takes it in; `len` counts the key's block too.
    fn pad(&mut self, filled: usize, len: u64) {
        let length_at = H::BLOCK - 2 * H::Word::BYTES;
        self.block[filled] = 0x80;
        self.block[filled + 1..H::BLOCK].fill(0);
        if filled >= length_at {
            H::compress(&mut self.state, &self.block[..H::BLOCK]);
            self.block[..H::BLOCK].fill(0);
        }
        let at = if H::LITTLE { length_at } else { H::BLOCK - 8 };
        (len * 8).write(H::LITTLE, &mut self.block[at..at + 8]);
        H::compress(&mut self.state, &self.block[..H::BLOCK]);
    }

    fn write(&self, out: &mut [u8]) {
        let mut digest = [0u8; MAX_DIGEST];
        for (word, bytes) in self.state.iter().zip(digest.chunks_exact_mut(H::Word::BYTES)) {
            word.write(H::LITTLE, bytes);
        }
        out.copy_from_slice(&digest[..out.len()]);
    }

    fn finish(&mut self, out: &mut [u8]) {
        let key_block = if self.outer.is_some() { H::BLOCK as u64 } else { 0 };
        self.pad(self.filled(), self.len + key_block);
        if let Some(outer) = self.outer {
            let mut digest = [0u8; MAX_DIGEST];
            self.write(&mut digest[..H::DIGEST]);
            self.block[..H::DIGEST].copy_from_slice(&digest[..H::DIGEST]);
            self.state = outer;
            self.pad(H::DIGEST, (H::BLOCK + H::DIGEST) as u64);
            wipe(&mut digest);
        }
        self.write(out);
        self.reset();
    }

    fn reset(&mut self) {
        self.state = self.start;
        self.len = 0;
    }
}

impl<H: Md> HashState for Stream<H> {
    fn update(&mut self, data: &[u8]) {
        Stream::update(self, data);
    }

    fn finish(&mut self, out: &mut [u8]) {
        Stream::finish(self, out);
    }

    fn reset(&mut self) {
        Stream::reset(self);
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(Stream::<H> {
            block: self.block,
            state: self.state,
            len: self.len,
            ..Stream::new(self.start, self.outer)
        })
    }
}

impl<H: Md> Drop for Stream<H> {
    fn drop(&mut self) {
        wipe(&mut self.start);
        wipe(self.outer.as_mut_slice().as_flattened_mut());
        wipe(&mut self.state);
        wipe(&mut self.block);
    }
}

fn one<H: Md>(start: &Key<H::Word>, keyed: bool, data: &[&[u8]], out: &mut [u8]) {
    let mut stream = Stream::<H>::new(start.inner, keyed.then_some(start.outer));
    for piece in data {
        stream.update(piece);
    }
    stream.finish(out);
}

impl<W: Word> Job<W> for HashOp<'_> {
    fn data(&self) -> &[&[u8]] {
        self.data
    }

    fn key(&self, _: usize) -> Option<&Key<W>> {
        None
    }

    fn key_as(&self, _: &Self, _: usize) -> *const Key<W> {
        core::ptr::null()
    }

    fn out(&mut self) -> &mut [u8] {
        self.digest
    }

    fn succeed(&mut self) {
        self.status = Ok(());
    }
}

impl<W: Word> Job<W> for MacOp<'_> {
    fn data(&self) -> &[&[u8]] {
        self.data
    }

    fn key(&self, slot: usize) -> Option<&Key<W>> {
        Some(self.tfm.key(slot))
    }

    #[inline]
    fn key_as(&self, checked: &Self, slot: usize) -> *const Key<W> {
        // A transform has the keys that the drivers of its algorithm prepared, in their order, and each of them has one
        // type of key. So one algorithm and one slot mean one type.
        if self.tfm.same_alg(checked.tfm) { self.tfm.key_address(slot).cast() } else { self.tfm.key(slot) }
    }

    fn out(&mut self) -> &mut [u8] {
        self.tag
    }

    fn succeed(&mut self) {
        self.status = Ok(());
    }
}

/// The drivers of hash `H` over kernels `K` and `Wide`.
struct OverLanes<H, K, Wide>(PhantomData<(H, K, Wide)>);

impl<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>> HashDriver for OverLanes<H, K, Wide> {
    fn start(&self) -> Box<dyn HashState> {
        Box::new(Stream::<H>::new(H::IV, None))
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        let start = Key::<H::Word> { inner: H::IV, outer: H::IV };
        lanes::run::<H, K, Wide, _>(0, ops, |op| {
            one::<H>(&start, false, op.data, op.digest);
            op.status = Ok(());
        });
    }
}

impl<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>> MacDriver for OverLanes<H, K, Wide> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(prepare::<H>(key)))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &dyn Any = key;
        let key: &Key<H::Word> = key.downcast_ref().expect("a key that this driver prepared");
        Box::new(Stream::<H>::new(key.inner, Some(key.outer)))
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        lanes::run::<H, K, Wide, _>(slot, ops, |op| {
            one::<H>(op.tfm.key(slot), true, op.data, op.tag);
            op.status = Ok(());
        });
    }
}

/// The rows of hash `H` over kernels `K` and `Wide`: the hash itself and its HMAC.
pub(super) fn rows<H: Md, K: Kernel<Word = H::Word>, Wide: Kernel<Word = H::Word>>(module: &'static str) -> [Row; 2] {
    let driver = Arc::new(OverLanes::<H, K, Wide>(PhantomData));
    let (hash, hmac) = (H::NAME, format!("hmac({})", H::NAME));
    [
        Row::new(
            AlgInfo::hash(hash, H::BLOCK, H::DIGEST),
            &format!("{hash}-{module}"),
            module,
            PRIORITY,
            Driver::Hash(driver.clone()),
        ),
        Row::new(
            AlgInfo::mac(&hmac, H::BLOCK, H::DIGEST, Lens::Range(0, usize::MAX)),
            &format!("hmac-{hash}-{module}"),
            module,
            PRIORITY,
            Driver::Mac(driver),
        ),
    ]
}

const _: () = assert!(size_of::<Key<u32>>() == 64 && size_of::<Key<u64>>() == 128);
const _: () = assert!(size_of::<State<u32>>() == 1024);
