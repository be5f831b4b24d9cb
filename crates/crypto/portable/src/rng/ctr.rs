//! CTR_DRBG over AES with the derivation function, SP 800-90A section 10.2.1.

use super::drbg::Mechanism;
use cipher::consts::U16;
use cipher::{Array, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use zeroize::{Zeroize, Zeroizing};

const BLOCK_LEN: usize = 16;

/// AES with any key length; round keys are wiped on drop.
pub(super) trait Aes:
    BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit + Send + Sync + 'static
{
}

impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + KeyInit + Send + Sync + 'static> Aes for C {}

/// `N` is the seed length in bytes: a key and a block.
pub(super) struct Ctr<C, const N: usize> {
    cipher: C,
    v: Array<u8, U16>,
}

impl<C, const N: usize> Drop for Ctr<C, N> {
    fn drop(&mut self) {
        self.v.zeroize();
    }
}

fn new_cipher<C: Aes>(key: &[u8]) -> C {
    C::new_from_slice(key).expect("N is the length of a key and a block")
}

/// BCC (section 10.3.3): a CBC-MAC whose message arrives in pieces and is padded with zeros.
struct Chain<'a, C> {
    cipher: &'a C,
    chain: Zeroizing<Array<u8, U16>>,
    pos: usize,
}

impl<C: Aes> Chain<'_, C> {
    fn add(&mut self, piece: &[u8]) {
        for byte in piece {
            self.chain[self.pos] ^= byte;
            self.pos += 1;
            if self.pos == BLOCK_LEN {
                self.cipher.encrypt_block(&mut self.chain);
                self.pos = 0;
            }
        }
    }

    fn end(mut self) -> Zeroizing<Array<u8, U16>> {
        if self.pos != 0 {
            self.cipher.encrypt_block(&mut self.chain);
        }
        self.chain
    }
}

impl<C: Aes, const N: usize> Ctr<C, N> {
    const KEY_LEN: usize = N - BLOCK_LEN;

    /// Block_Cipher_df (section 10.3.2): `N` bytes from the pieces of `input`.
    fn derive(input: &[&[u8]]) -> Zeroizing<[u8; N]> {
        let key: [u8; 32] = core::array::from_fn(|i| i as u8);
        let cipher: C = new_cipher(&key[..Self::KEY_LEN]);
        let len = input.iter().map(|i| i.len() as u32).sum::<u32>();
        let mut temp = Zeroizing::new([0; N]);
        for (i, out) in (0u32..).zip(temp.chunks_mut(BLOCK_LEN)) {
            let mut chain = Chain { cipher: &cipher, chain: Zeroizing::default(), pos: 0 };
            chain.add(&i.to_be_bytes());
            chain.add(&[0; BLOCK_LEN - 4]);
            chain.add(&len.to_be_bytes());
            chain.add(&(N as u32).to_be_bytes());
            for piece in input {
                chain.add(piece);
            }
            chain.add(&[0x80]);
            out.copy_from_slice(&chain.end()[..out.len()]);
        }
        let cipher: C = new_cipher(&temp[..Self::KEY_LEN]);
        let mut x = Zeroizing::new(Array::<u8, U16>::default());
        x.copy_from_slice(&temp[Self::KEY_LEN..]);
        for out in temp.chunks_mut(BLOCK_LEN) {
            cipher.encrypt_block(&mut x);
            out.copy_from_slice(&x[..out.len()]);
        }
        temp
    }

    /// The next block of keystream.
    fn next(&mut self) -> Zeroizing<Array<u8, U16>> {
        self.v = u128::from_be_bytes(self.v.into()).wrapping_add(1).to_be_bytes().into();
        let mut block = Zeroizing::new(self.v);
        self.cipher.encrypt_block(&mut block);
        block
    }

    /// CTR_DRBG_Update.
    fn update(&mut self, provided: &[u8; N]) {
        let mut temp = Zeroizing::new(*provided);
        for chunk in temp.chunks_mut(BLOCK_LEN) {
            chunk.iter_mut().zip(&**self.next()).for_each(|(t, k)| *t ^= k);
        }
        self.cipher = new_cipher(&temp[..Self::KEY_LEN]);
        self.v.copy_from_slice(&temp[Self::KEY_LEN..]);
    }
}

impl<C: Aes, const N: usize> Mechanism for Ctr<C, N> {
    const STRENGTH: usize = Self::KEY_LEN;

    fn instantiate(seed: &[&[u8]]) -> Self {
        let mut drbg = Ctr { cipher: new_cipher(&[0; N][..Self::KEY_LEN]), v: Array::default() };
        drbg.update(&Self::derive(seed));
        drbg
    }

    fn reseed(&mut self, seed: &[&[u8]]) {
        self.update(&Self::derive(seed));
    }

    fn generate(&mut self, additional: &[&[u8]], out: &mut [u8]) {
        let mut provided = Zeroizing::new([0; N]);
        if additional.iter().any(|a| !a.is_empty()) {
            provided = Self::derive(additional);
            self.update(&provided);
        }
        for chunk in out.chunks_mut(BLOCK_LEN) {
            let block = self.next();
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
        self.update(&provided);
    }
}
