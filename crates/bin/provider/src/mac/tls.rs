//! HMAC of a record of TLS that CBC has decrypted and whose padding is not authentic yet.
//!
//! The end of the text follows from the padding, so that neither the time nor the memory that is read may depend on it:
//! whoever can measure that decrypts the record ("Lucky Thirteen", AlFardan and Paterson 2013). All blocks in which the
//! text may end are hashed, each is put together by masks, and masks pick the digest behind the last one.

use crate::ct::{at_least, equal};
use crate::failure::{Done, Failure, Reason};
use crate::instance::is_named;
use core::ffi::CStr;
use core::hint::black_box;
use sealane_crypto::wipe::wipe;
use zeroize::{DefaultIsZeroes, Zeroizing};

/// The length of a record's header: sequence number, type, version, length.
pub(super) const HEADER_LEN: usize = 13;

/// The longest block of a hash, in bytes.
pub(super) const MAX_BLOCK_LEN: usize = 128;

/// The longest padding of TLS, with the byte that says how long it is.
const MAX_PADDING: usize = 256;

/// The largest record that is taken; those of TLS have 16 KiB and a little more.
pub(super) const MAX_RECORD: usize = 1 << 20;

/// A hash by its blocks.
trait Blocks {
    type Words: DefaultIsZeroes;
    const BLOCK_LEN: usize;
    const LEN: usize;
    const BIG_ENDIAN: bool;
    const INIT: [Self::Words; 8];
    /// Absorbs whole blocks.
    fn compress(words: &mut [Self::Words; 8], blocks: &[u8]);
    /// Writes the front of the digest.
    fn write(words: &[Self::Words; 8], out: &mut [u8]);
}

/// Defines a hash of words of type `$word`, of which `$count` are used.
macro_rules! hash {
    ($name:ident, $word:ty, $count:literal, $block:literal, $len:literal, $big:literal, $bytes:ident, $compress:path, $init:expr) => {
        struct $name;

        impl Blocks for $name {
            type Words = $word;
            const BLOCK_LEN: usize = $block;
            const LEN: usize = $len;
            const BIG_ENDIAN: bool = $big;
            const INIT: [$word; 8] = $init;

            fn compress(words: &mut [$word; 8], blocks: &[u8]) {
                let used: &mut [$word; $count] = words.first_chunk_mut().expect("eight words");
                $compress(used, blocks.as_chunks::<$block>().0);
            }

            fn write(words: &[$word; 8], out: &mut [u8]) {
                for (chunk, word) in out.chunks_mut(size_of::<$word>()).zip(words) {
                    chunk.copy_from_slice(&word.$bytes()[..chunk.len()]);
                }
            }
        }
    };
}

const MD5_INIT: [u32; 8] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0, 0, 0, 0];
const SHA1_INIT: [u32; 8] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0, 0, 0, 0];
const SHA224_INIT: [u32; 8] =
    [0xc105_9ed8, 0x367c_d507, 0x3070_dd17, 0xf70e_5939, 0xffc0_0b31, 0x6858_1511, 0x64f9_8fa7, 0xbefa_4fa4];
const SHA256_INIT: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
const SHA384_INIT: [u64; 8] = [
    0xcbbb_9d5d_c105_9ed8,
    0x629a_292a_367c_d507,
    0x9159_015a_3070_dd17,
    0x152f_ecd8_f70e_5939,
    0x6733_2667_ffc0_0b31,
    0x8eb4_4a87_6858_1511,
    0xdb0c_2e0d_64f9_8fa7,
    0x47b5_481d_befa_4fa4,
];
const SHA512_INIT: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

hash!(Md5, u32, 4, 64, 16, false, to_le_bytes, md5::block_api::compress, MD5_INIT);
hash!(Sha1, u32, 5, 64, 20, true, to_be_bytes, sha1::block_api::compress, SHA1_INIT);
hash!(Sha224, u32, 8, 64, 28, true, to_be_bytes, sha2::block_api::compress256, SHA224_INIT);
hash!(Sha256, u32, 8, 64, 32, true, to_be_bytes, sha2::block_api::compress256, SHA256_INIT);
hash!(Sha384, u64, 8, 128, 48, true, to_be_bytes, sha2::block_api::compress512, SHA384_INIT);
hash!(Sha512, u64, 8, 128, 64, true, to_be_bytes, sha2::block_api::compress512, SHA512_INIT);

/// Computes HMAC over `header` and the first `len` bytes of `data`, which has MAC and padding behind them. `len` is secret,
/// all other lengths are known to the network.
///
/// # Errors
/// When the hash is none of TLS's, or lengths are impossible.
pub(super) fn digest_record(
    hash: &CStr,
    tag: &mut [u8],
    header: [u8; HEADER_LEN],
    data: &[u8],
    len: usize,
    key: &[u8],
) -> Done {
    let run = match () {
        () if is_named(hash, "MD5") => record::<Md5>,
        () if is_named(hash, "SHA1") => record::<Sha1>,
        () if is_named(hash, "SHA2-224") => record::<Sha224>,
        () if is_named(hash, "SHA2-256") => record::<Sha256>,
        () if is_named(hash, "SHA2-384") => record::<Sha384>,
        () if is_named(hash, "SHA2-512") => record::<Sha512>,
        () => return Err(Reason::InvalidDigest.into()),
    };
    run(tag, header, data, len, key)
}

fn record<H: Blocks>(tag: &mut [u8], header: [u8; HEADER_LEN], data: &[u8], len: usize, key: &[u8]) -> Done {
    // Public: the lengths of the record and of the key.
    if data.len() <= H::LEN || data.len() >= MAX_RECORD || key.len() > H::BLOCK_LEN || tag.len() != H::LEN {
        return Err(Failure::SILENT);
    }
    let mut words = H::INIT;
    let mut pad = Zeroizing::new([0u8; MAX_BLOCK_LEN]);
    let pad = &mut pad[..H::BLOCK_LEN];
    pad[..key.len()].copy_from_slice(key);
    pad.iter_mut().for_each(|b| *b ^= 0x36);
    H::compress(&mut words, pad);
    let inner = inner::<H>(&mut words, &header, data, len);
    // HMAC's outer hash: a block of the key, and the inner digest with its padding.
    pad.iter_mut().for_each(|b| *b ^= 0x36 ^ 0x5c);
    words = H::INIT;
    H::compress(&mut words, pad);
    let mut last = Zeroizing::new([0u8; MAX_BLOCK_LEN]);
    let last = &mut last[..H::BLOCK_LEN];
    last[..H::LEN].copy_from_slice(&inner[..H::LEN]);
    last[H::LEN] = 0x80;
    last[H::BLOCK_LEN - 8..].copy_from_slice(&length_field::<H>(H::BLOCK_LEN + H::LEN));
    H::compress(&mut words, last);
    H::write(&words, tag);
    wipe(&mut words);
    Ok(())
}

/// The last eight bytes of the padding: the length in bits, in the hash's byte order.
fn length_field<H: Blocks>(bytes: usize) -> [u8; 8] {
    let bits = 8 * bytes as u64;
    if H::BIG_ENDIAN { bits.to_be_bytes() } else { bits.to_le_bytes() }
}

/// The inner hash behind the key's block.
fn inner<H: Blocks>(
    words: &mut [H::Words; 8],
    header: &[u8; HEADER_LEN],
    data: &[u8],
    len: usize,
) -> Zeroizing<[u8; 64]> {
    // The field of the length: 8 bytes, or 16 for the long blocks.
    let field = H::BLOCK_LEN / 8;
    // Public: the last place where the text may end, and the blocks up to there.
    let latest = HEADER_LEN + data.len() - H::LEN - 1;
    let blocks = (latest + 1 + field).div_ceil(H::BLOCK_LEN);
    // The text may end in any of this many blocks.
    let varying = (MAX_PADDING + H::LEN).div_ceil(H::BLOCK_LEN) + 1;
    let fixed = blocks.saturating_sub(varying);
    let message = |at: usize| match at.checked_sub(HEADER_LEN) {
        None => header[at],
        Some(at) => data.get(at).copied().unwrap_or(0),
    };
    let mut block = Zeroizing::new([0u8; MAX_BLOCK_LEN]);
    let block = &mut block[..H::BLOCK_LEN];
    for i in 0..fixed {
        block.iter_mut().enumerate().for_each(|(j, b)| *b = message(i * H::BLOCK_LEN + j));
        H::compress(words, block);
    }
    // Secret from here: where the text ends, and the block with its length.
    let end = black_box(HEADER_LEN + len);
    let last = (end + field) / H::BLOCK_LEN;
    let length = length_field::<H>(H::BLOCK_LEN + end);
    let mut digest = Zeroizing::new([0u8; 64]);
    let mut candidate = Zeroizing::new([0u8; 64]);
    for i in fixed..=fixed + varying {
        let is_last = equal(i, last);
        for (j, byte) in block.iter_mut().enumerate() {
            let at = i * H::BLOCK_LEN + j;
            let is_text = !at_least(at, end);
            let mut b = message(at) & is_text;
            b |= 0x80 & equal(at, end);
            if j >= H::BLOCK_LEN - 8 {
                b |= length[j + 8 - H::BLOCK_LEN] & is_last;
            }
            *byte = b;
        }
        H::compress(words, block);
        H::write(words, &mut candidate[..H::LEN]);
        digest.iter_mut().zip(candidate.iter()).for_each(|(d, c)| *d |= c & is_last);
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_crypto::{Kind, Registry};

    fn registry() -> Registry {
        sealane_drivers::system_registry().0
    }

    #[test]
    fn every_end_of_a_record_gives_the_mac_of_its_text() {
        let registry = registry();
        let data: Vec<u8> = (0..700u32).map(|i| (i * 7 % 251) as u8).collect();
        let header = *b"\0\0\0\0\0\0\0\x2a\x17\x03\x03\x01\x23";
        let key = [0x5a; 32];
        for (names, alg) in [
            (c"MD5", "hmac(md5)"),
            (c"SHA1", "hmac(sha1)"),
            (c"SHA2-224", "hmac(sha224)"),
            (c"SHA2-256", "hmac(sha256)"),
            (c"SHA2-384", "hmac(sha384)"),
            (c"SHA2-512", "hmac(sha512)"),
        ] {
            let mac = registry.lookup(Kind::Hash, alg).unwrap().mac(&key).unwrap();
            let tag_len = mac.info().digest_len;
            for public in [tag_len + 1, 64, 100, 127, 128, 300, 511, 700] {
                for len in public.saturating_sub(tag_len + 256)..public.saturating_sub(tag_len) {
                    let (mut tag, mut expected) = (vec![0; tag_len], vec![0; tag_len]);
                    digest_record(names, &mut tag, header, &data[..public], len, &key).unwrap();
                    mac.sign(&[&header, &data[..len]], &mut expected).unwrap();
                    assert_eq!(tag, expected, "{alg}, {len} of {public} bytes");
                }
            }
        }
    }
}
