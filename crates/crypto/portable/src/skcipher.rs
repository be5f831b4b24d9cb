//! Ciphers: the modes over the block ciphers, and the ChaCha stream ciphers.

use super::adiantum::{self, Adiantum};
use super::block::{Aes, Aria, Camellia, Cipher, Des, Des3, EncryptBlock, Family, Serpent, Sm4, Twofish, Visit};
use super::hctr2::{self, Hctr2};
use super::row::{MODULE, PRIORITY};
use super::{chacha, modes};
use chacha20::{R12, R20, Rounds};
use cipher::consts::U16;
use cipher::typenum::Unsigned;
use inout::InOutBuf;
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver};
use sealane_crypto::{AlgInfo, CipherMode, Lengths};
use std::marker::PhantomData;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Lengths of two serpent keys of equal length, each up to 32 bytes.
const SERPENT_PAIRS: [usize; 33] = {
    let mut lens = [0; 33];
    let mut half = 0;
    while half < lens.len() {
        lens[half] = 2 * half;
        half += 1;
    }
    lens
};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    modes_of::<Aes>(&mut rows);
    modes_of::<Camellia>(&mut rows);
    modes_of::<Serpent>(&mut rows);
    modes_of::<Twofish>(&mut rows);
    modes_of::<Sm4>(&mut rows);
    modes_of::<Aria>(&mut rows);
    modes_of::<Des>(&mut rows);
    modes_of::<Des3>(&mut rows);
    rows.push(xts_row::<Aes>(Lengths::Of(&[32, 48, 64]), TweakOut::Advanced));
    rows.push(xts_row::<Camellia>(Lengths::Of(&[32, 48, 64]), TweakOut::Kept));
    rows.push(xts_row::<Serpent>(Lengths::Of(&SERPENT_PAIRS), TweakOut::Kept));
    rows.push(xts_row::<Twofish>(Lengths::Of(&[32, 48, 64]), TweakOut::Kept));
    rows.push(xts_row::<Sm4>(Lengths::Of(&[32]), TweakOut::Kept));
    rows.push(xts_row::<Aria>(Lengths::Of(&[32, 48, 64]), TweakOut::Kept));
    rows.push(wide_row("hctr2(aes)", hctr2::TWEAK_LEN, Aes::KEY_LENS, Hctr2::<Aes>(PhantomData)));
    let key = Lengths::Of(&[32]);
    rows.push(wide_row("adiantum(xchacha12,aes)", adiantum::TWEAK_LEN, key, Adiantum::<R12>(PhantomData)));
    rows.push(wide_row("adiantum(xchacha20,aes)", adiantum::TWEAK_LEN, key, Adiantum::<R20>(PhantomData)));
    rows.push(chacha_row("chacha20", CipherMode::ChaCha20, 16, ChaCha20));
    rows.push(chacha_row("xchacha20", CipherMode::Other, 32, XChaCha::<R20>(PhantomData)));
    rows.push(chacha_row("xchacha12", CipherMode::Other, 32, XChaCha::<R12>(PhantomData)));
    rows
}

fn row(info: AlgInfo, driver: impl SkcipherDriver + 'static) -> Row {
    let name = format!("{}-{MODULE}", info.name.replace(['(', ','], "-").replace(')', ""));
    Row::new(info, &name, MODULE, PRIORITY, Driver::Skcipher(Arc::new(driver)))
}

fn modes_of<F: Family>(rows: &mut Vec<Row>) {
    let block = F::Block::USIZE;
    let info = |name, mode, block_len, iv_len| {
        let info = AlgInfo::skcipher(&format!("{name}({})", F::NAME), block_len, F::KEY_LENS, iv_len);
        AlgInfo { chunk_len: block, legacy: F::LEGACY, mode, ..info }
    };
    rows.push(row(info("ecb", CipherMode::Ecb, block, 0), Modes::<F> { mode: Mode::Ecb, family: PhantomData }));
    rows.push(row(info("cbc", CipherMode::Cbc, block, block), Modes::<F> { mode: Mode::Cbc, family: PhantomData }));
    rows.push(row(info("ctr", CipherMode::Ctr, 1, block), Modes::<F> { mode: Mode::Ctr, family: PhantomData }));
}

fn xts_row<F: Family<Block = U16>>(key_lens: Lengths, out: TweakOut) -> Row {
    let info = AlgInfo::skcipher(&format!("xts({})", F::NAME), 16, key_lens, 16).mode(CipherMode::Xts);
    row(info, Xts::<F> { out, family: PhantomData })
}

/// Makes the row of a wide-block cipher, whose block is the whole text of at least 16 bytes.
fn wide_row(name: &str, tweak_len: usize, key_lens: Lengths, driver: impl SkcipherDriver + 'static) -> Row {
    row(AlgInfo::skcipher(name, 16, key_lens, tweak_len), driver)
}

fn chacha_row(name: &str, mode: CipherMode, iv_len: usize, driver: impl SkcipherDriver + 'static) -> Row {
    let info = AlgInfo::skcipher(name, 1, Lengths::Of(&[32]), iv_len).mode(mode);
    row(AlgInfo { chunk_len: 64, ..info }, driver)
}

#[derive(Clone, Copy)]
enum Mode {
    Ecb,
    Cbc,
    Ctr,
}

/// A mode with one key.
struct Modes<F> {
    mode: Mode,
    family: PhantomData<F>,
}

impl<F: Family> SkcipherDriver for Modes<F> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(F::key(key)?))
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        F::with(
            op.tfm.key::<F::Key>(slot),
            RunMode::<F> { mode: self.mode, dir: op.dir, iv: op.iv, data: op.data, family: PhantomData },
        )
    }
}

struct RunMode<'b, F> {
    mode: Mode,
    dir: Direction,
    iv: &'b mut [u8],
    data: InOutBuf<'b, 'b, u8>,
    family: PhantomData<F>,
}

impl<F: Family> Visit<F::Block> for RunMode<'_, F> {
    type Out = Status;

    fn visit<C: Cipher<F::Block>>(self, cipher: &C) -> Status {
        match self.mode {
            Mode::Ecb => modes::ecb(cipher, self.dir, self.data),
            Mode::Cbc => modes::cbc(cipher, self.dir, self.iv, self.data),
            Mode::Ctr => modes::ctr::<F, C>(cipher, self.iv, self.data),
        }
    }
}

/// The IV on return from XTS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TweakOut {
    /// The advanced tweak, as in Linux 7.3's AES-XTS (`lib/crypto/aes.c`).
    Advanced,
    /// Unchanged, as in the template for all other ciphers (`crypto/xts.c`).
    Kept,
}

/// XTS: the first half of the key is for the data, the second for the tweak.
struct Xts<F> {
    out: TweakOut,
    family: PhantomData<F>,
}

struct XtsKey<K> {
    data: K,
    tweak: K,
}

impl<F: Family<Block = U16>> SkcipherDriver for Xts<F> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        if !key.len().is_multiple_of(2) {
            return Err(KeyError::Length);
        }
        let (data, tweak) = key.split_at(key.len() / 2);
        Ok(Box::new(XtsKey { data: F::key(data)?, tweak: F::key(tweak)? }))
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let key = op.tfm.key::<XtsKey<F::Key>>(slot);
        if op.data.len() < 16 {
            return Err(OpError::Length);
        }
        let mut tweak = Zeroizing::new(<[u8; 16]>::try_from(&*op.iv).map_err(|_| OpError::Nonce)?);
        F::with(&key.tweak, EncryptBlock(&mut tweak));
        F::with(&key.data, RunXts { dir: op.dir, tweak: &mut tweak, data: op.data })?;
        if self.out == TweakOut::Advanced {
            op.iv.copy_from_slice(&*tweak);
        }
        Ok(())
    }
}

struct RunXts<'b> {
    dir: Direction,
    tweak: &'b mut [u8; 16],
    data: InOutBuf<'b, 'b, u8>,
}

impl Visit<U16> for RunXts<'_> {
    type Out = Status;

    fn visit<C: Cipher<U16>>(self, cipher: &C) -> Status {
        modes::xts(cipher, self.dir, self.tweak, self.data)
    }
}

type ChachaKey = Zeroizing<[u8; 32]>;

fn chacha_key(key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
    let key: [u8; 32] = key.try_into().map_err(|_| KeyError::Length)?;
    Ok(Box::new(ChachaKey::new(key)))
}

/// ChaCha20 as a stream cipher. The IV on return is unchanged, as in the kernel, which does not continue a stream.
struct ChaCha20;

impl SkcipherDriver for ChaCha20 {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        chacha_key(key)
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let iv = (&*op.iv).try_into().map_err(|_| OpError::Nonce)?;
        chacha::xor_iv::<R20>(op.tfm.key::<ChachaKey>(slot), iv, op.data);
        Ok(())
    }
}

/// XChaCha as a stream cipher. The IV on return is unchanged.
struct XChaCha<R>(PhantomData<fn() -> R>);

impl<R: Rounds> SkcipherDriver for XChaCha<R> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        chacha_key(key)
    }

    fn one(&self, slot: usize, op: FlatSkcipherOp<'_, '_>) -> Status {
        let iv = (&*op.iv).try_into().map_err(|_| OpError::Nonce)?;
        chacha::xor_extended::<R>(op.tfm.key::<ChachaKey>(slot), iv, op.data);
        Ok(())
    }
}
