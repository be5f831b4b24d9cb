//! Block ciphers under their kernel names, one type for all key lengths of a cipher.

use cipher::array::{Array, ArraySize};
use cipher::consts::{U8, U16};
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use ctr::flavors::{Ctr64BE, Ctr128BE};
use sealane_crypto::Lengths;
use sealane_crypto::error::KeyError;
use sealane_guarded::Held;
use zeroize::Zeroizing;

/// A keyed block cipher with blocks of `B` bytes, both directions.
pub(super) trait Cipher<B: ArraySize>:
    BlockSizeUser<BlockSize = B> + BlockCipherEncrypt + BlockCipherDecrypt
{
}

impl<B: ArraySize, C: BlockSizeUser<BlockSize = B> + BlockCipherEncrypt + BlockCipherDecrypt> Cipher<B> for C {}

/// Code that is generic over the block cipher.
pub(super) trait Visit<B: ArraySize> {
    type Out;
    fn visit<C: Cipher<B>>(self, cipher: &C) -> Self::Out;
}

/// Encrypts one block in place.
pub(super) struct EncryptBlock<'b>(pub(super) &'b mut [u8; 16]);

impl Visit<U16> for EncryptBlock<'_> {
    type Out = ();

    fn visit<C: Cipher<U16>>(self, cipher: &C) {
        let block: &mut Array<u8, U16> = self.0.into();
        cipher.encrypt_block(block);
    }
}

/// A block cipher with all its key lengths.
pub(super) trait Family: Send + Sync + 'static {
    /// The kernel's name, `aes`.
    const NAME: &'static str;
    /// Accepted key lengths.
    const KEY_LENS: Lengths;
    /// Whether it is kept for old protocols only.
    const LEGACY: bool = false;
    type Block: ArraySize;
    /// Counter of CTR mode: the whole block, big endian.
    type Counter: ctr::CtrFlavor<Self::Block>;
    /// Round keys; wiped on drop.
    type Key: Send + Sync + 'static;
    fn key(key: &[u8]) -> Result<Self::Key, KeyError>;
    /// Runs `work` on the cipher behind `key`.
    fn with<V: Visit<Self::Block>>(key: &Self::Key, work: V) -> V::Out;
}

const AES_LIKE: Lengths = Lengths::Of(&[16, 24, 32]);

/// A key where the process has its keys.
fn held<K>(key: K) -> Result<Held<K>, KeyError> {
    Held::new(Box::new(key)).map_err(|_| KeyError::Driver)
}

/// Defines a family with one type for each key length.
macro_rules! three_lengths {
    ($family:ident, $key:ident, $name:literal, $short:ty, $middle:ty, $long:ty) => {
        pub(super) struct $family;

        pub(super) enum $key {
            Short($short),
            Middle($middle),
            Long($long),
        }

        impl Family for $family {
            const NAME: &'static str = $name;
            const KEY_LENS: Lengths = AES_LIKE;
            type Block = U16;
            type Counter = Ctr128BE;
            // In a place of its own, because the variants differ much in size, and because a key that moves would leave copies behind.
            type Key = Held<$key>;

            fn key(key: &[u8]) -> Result<Self::Key, KeyError> {
                let wrong = |_| KeyError::Length;
                held(match key.len() {
                    16 => $key::Short(<$short>::new_from_slice(key).map_err(wrong)?),
                    24 => $key::Middle(<$middle>::new_from_slice(key).map_err(wrong)?),
                    32 => $key::Long(<$long>::new_from_slice(key).map_err(wrong)?),
                    _ => return Err(KeyError::Length),
                })
            }

            #[inline]
            fn with<V: Visit<U16>>(key: &Self::Key, work: V) -> V::Out {
                // Open already in operations of the core, but not while a key is prepared at which guarded memory is established.
                let _open = key.open();
                match key.get() {
                    $key::Short(c) => work.visit(c),
                    $key::Middle(c) => work.visit(c),
                    $key::Long(c) => work.visit(c),
                }
            }
        }
    };
}

three_lengths!(Aes, AesKey, "aes", aes::Aes128, aes::Aes192, aes::Aes256);
three_lengths!(Camellia, CamelliaKey, "camellia", camellia::Camellia128, camellia::Camellia192, camellia::Camellia256);
three_lengths!(Aria, AriaKey, "aria", aria::Aria128, aria::Aria192, aria::Aria256);

/// Defines a family of one type.
macro_rules! one_type {
    ($family:ident, $name:literal, $cipher:ty, $lens:expr, $block:ty, $counter:ty, $legacy:literal, $prepare:expr) => {
        pub(super) struct $family;

        impl Family for $family {
            const NAME: &'static str = $name;
            const KEY_LENS: Lengths = $lens;
            const LEGACY: bool = $legacy;
            type Block = $block;
            type Counter = $counter;
            type Key = Held<$cipher>;

            fn key(key: &[u8]) -> Result<Self::Key, KeyError> {
                if !Self::KEY_LENS.contains(key.len()) {
                    return Err(KeyError::Length);
                }
                let prepare: fn(&[u8]) -> Result<$cipher, cipher::InvalidLength> = $prepare;
                held(prepare(key).map_err(|_| KeyError::Length)?)
            }

            #[inline]
            fn with<V: Visit<$block>>(key: &Self::Key, work: V) -> V::Out {
                let _open = key.open();
                work.visit(key.get())
            }
        }
    };
}

// Linux takes serpent keys of any length up to 32 bytes and pads them with a one bit (`crypto/serpent_generic.c`).
one_type!(Serpent, "serpent", serpent::Serpent, Lengths::Range(0, 32), U16, Ctr128BE, false, |key| {
    let mut padded = Zeroizing::new([0u8; 32]);
    padded[..key.len()].copy_from_slice(key);
    if let Some(next) = padded.get_mut(key.len()) {
        *next = 1;
    }
    serpent::Serpent::new_from_slice(&*padded)
});
one_type!(Twofish, "twofish", twofish::Twofish, AES_LIKE, U16, Ctr128BE, false, twofish::Twofish::new_from_slice);
one_type!(Sm4, "sm4", sm4::Sm4, Lengths::Of(&[16]), U16, Ctr128BE, false, sm4::Sm4::new_from_slice);
// Weak keys are accepted: Linux accepts them unless the caller forbids them, which callers of AF_ALG cannot.
one_type!(Des, "des", des::Des, Lengths::Of(&[8]), U8, Ctr64BE, true, des::Des::new_from_slice);
one_type!(Des3, "des3_ede", des::TdesEde3, Lengths::Of(&[24]), U8, Ctr64BE, true, des::TdesEde3::new_from_slice);
