//! The Merkle-Damgard hashes: their constants, the words of their states, HMAC keys.

use sealane_crypto::wipe::wipe;
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

/// A hash of the MD4 family. States have eight words; shorter hashes do not use the last ones.
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
    /// The number of messages up to which one by one is faster than 16 lanes on a CPU with SHA-NI, which
    /// [`Md::compress`] uses; `None` where SHA-NI does not help. Measured with HMAC of 144 bytes on Zen 5.
    const FEW: Option<usize>;
    /// Absorbs whole blocks.
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
pub(super) struct MdKey<W: Word> {
    /// State after the block of key and `ipad`.
    pub(super) inner: [W; 8],
    /// State after the block of key and `opad`; unused in a plain hash.
    pub(super) outer: [W; 8],
}

impl<W: Word> Drop for MdKey<W> {
    fn drop(&mut self) {
        wipe(&mut self.inner);
        wipe(&mut self.outer);
    }
}

const _: () = assert!(size_of::<MdKey<u32>>() == 64 && size_of::<MdKey<u64>>() == 128);
