//! Modes of operation over any block cipher: ECB, CBC, CTR and XTS.

use super::block::{Cipher, Family};
use cipher::array::{Array, ArraySize};
use cipher::consts::U16;
use cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, IvState, StreamCipherCore};
use inout::InOutBuf;
use sealane_crypto::error::{OpError, Status};
use sealane_crypto::skcipher::Direction;
use zeroize::Zeroize;

/// Runs whole blocks through the bare cipher. The length is a multiple of the block.
pub(super) fn ecb<B: ArraySize, C: Cipher<B>>(cipher: &C, dir: Direction, data: InOutBuf<'_, '_, u8>) -> Status {
    let (blocks, rest) = data.into_chunks::<B>();
    if !rest.is_empty() {
        return Err(OpError::Length);
    }
    match dir {
        Direction::Encrypt => cipher.encrypt_blocks_inout(blocks),
        Direction::Decrypt => cipher.decrypt_blocks_inout(blocks),
    }
    Ok(())
}

/// CBC without padding. `iv` becomes the last ciphertext block.
pub(super) fn cbc<B: ArraySize, C: Cipher<B>>(
    cipher: &C,
    dir: Direction,
    iv: &mut [u8],
    data: InOutBuf<'_, '_, u8>,
) -> Status {
    let (blocks, rest) = data.into_chunks::<B>();
    if !rest.is_empty() {
        return Err(OpError::Length);
    }
    let iv: &mut Array<u8, B> = iv.try_into().map_err(|_| OpError::Nonce)?;
    match dir {
        Direction::Encrypt => {
            let mut mode = cbc::Encryptor::inner_iv_init(cipher, iv);
            mode.encrypt_blocks_inout(blocks);
            *iv = mode.iv_state();
        }
        Direction::Decrypt => {
            let mut mode = cbc::Decryptor::inner_iv_init(cipher, iv);
            mode.decrypt_blocks_inout(blocks);
            *iv = mode.iv_state();
        }
    }
    Ok(())
}

/// CTR with the counter over the whole block. `iv` becomes the counter after the last block, which may be partial.
pub(super) fn ctr<F: Family, C: Cipher<F::Block>>(cipher: &C, iv: &mut [u8], data: InOutBuf<'_, '_, u8>) -> Status {
    let iv: &mut Array<u8, F::Block> = iv.try_into().map_err(|_| OpError::Nonce)?;
    let blocks = data.len().div_ceil(iv.len());
    keystream(ctr::CtrCore::<&C, F::Counter>::inner_iv_init(cipher, iv), data);
    add_be(iv, blocks as u64);
    Ok(())
}

/// XORs `data` with the keystream. Unlike the `StreamCipher` wrappers it does not limit the number of blocks, so that a
/// counter wraps as in the kernel.
pub(super) fn keystream<S: StreamCipherCore>(mut core: S, data: InOutBuf<'_, '_, u8>) {
    let (blocks, mut rest) = data.into_chunks::<S::BlockSize>();
    core.apply_keystream_blocks_inout(blocks);
    if !rest.is_empty() {
        let mut block = Array::default();
        core.write_keystream_block(&mut block);
        rest.xor_in2out(&block[..rest.len()]);
        block.zeroize();
    }
}

/// Adds `n` to a big-endian number, modulo its width.
fn add_be(number: &mut [u8], n: u64) {
    let mut carry = u128::from(n);
    for byte in number.iter_mut().rev() {
        carry += u128::from(*byte);
        *byte = (carry & 0xff) as u8;
        carry >>= 8;
    }
}

/// Blocks that XTS passes to the cipher at a time.
const XTS_CHUNK: usize = 16;

/// Multiplies an XTS tweak by x (IEEE 1619-2007 section 5.2).
fn double(tweak: &mut [u8; 16]) {
    let t = u128::from_le_bytes(*tweak);
    *tweak = ((t << 1) ^ ((t >> 127) * 0x87)).to_le_bytes();
}

/// XTS from an encrypted `tweak`, with ciphertext stealing. As in Linux 7.3, `tweak` becomes that of the block after
/// the last whole one, or, when a stolen tail is decrypted, that of the last whole one.
pub(super) fn xts<C: Cipher<U16>>(
    cipher: &C,
    dir: Direction,
    tweak: &mut [u8; 16],
    data: InOutBuf<'_, '_, u8>,
) -> Status {
    if data.len() < 16 {
        return Err(OpError::Length);
    }
    let partial = data.len() % 16;
    let steal_decrypting = partial != 0 && dir == Direction::Decrypt;
    let whole = data.len() - partial - if steal_decrypting { 16 } else { 0 };
    let (mut body, mut tail) = data.split_at(whole);
    if partial != 0 && dir == Direction::Encrypt {
        // The last whole block is encrypted twice: here, and again with the tail's bytes in it.
        let (bulk, last) = body.split_at(whole - 16);
        xts_blocks(cipher, dir, tweak, bulk);
        let mut block: [u8; 16] = last.get_in().try_into().expect("one block");
        xts_block(cipher, dir, tweak, &mut block);
        let mut stolen = [0u8; 16];
        stolen[..partial].copy_from_slice(&block[..partial]);
        block[..partial].copy_from_slice(tail.get_in());
        double(tweak);
        xts_block(cipher, dir, tweak, &mut block);
        let mut last = last;
        last.get_out().copy_from_slice(&block);
        tail.get_out().copy_from_slice(&stolen[..partial]);
        block.zeroize();
        return Ok(());
    }
    xts_blocks(cipher, dir, tweak, body.reborrow());
    if steal_decrypting {
        let (mut last, mut tail) = tail.split_at(16);
        // Stealing swaps the order of the last two tweaks.
        let mut next = *tweak;
        double(&mut next);
        let mut block: [u8; 16] = last.get_in().try_into().expect("one block");
        xts_block(cipher, dir, &next, &mut block);
        let mut plain_tail = [0u8; 16];
        plain_tail[..partial].copy_from_slice(&block[..partial]);
        block[..partial].copy_from_slice(tail.get_in());
        xts_block(cipher, dir, tweak, &mut block);
        last.get_out().copy_from_slice(&block);
        tail.get_out().copy_from_slice(&plain_tail[..partial]);
        block.zeroize();
        plain_tail.zeroize();
    }
    Ok(())
}

fn xts_block<C: Cipher<U16>>(cipher: &C, dir: Direction, tweak: &[u8; 16], block: &mut [u8; 16]) {
    let mut tweak = *tweak;
    xts_blocks(cipher, dir, &mut tweak, InOutBuf::from(&mut block[..]));
}

/// Processes whole blocks, and advances `tweak` for each.
fn xts_blocks<C: Cipher<U16>>(cipher: &C, dir: Direction, tweak: &mut [u8; 16], mut data: InOutBuf<'_, '_, u8>) {
    let mut tweaks = [[0u8; 16]; XTS_CHUNK];
    while !data.is_empty() {
        let n = data.len().min(16 * XTS_CHUNK);
        for slot in &mut tweaks[..n / 16] {
            *slot = *tweak;
            double(tweak);
        }
        let tweaks = &tweaks.as_flattened()[..n];
        let (mut head, rest) = data.split_at(n);
        head.xor_in2out(tweaks);
        let out = head.into_out();
        let (blocks, _) = Array::slice_as_chunks_mut(out);
        match dir {
            Direction::Encrypt => cipher.encrypt_blocks(blocks),
            Direction::Decrypt => cipher.decrypt_blocks(blocks),
        }
        out.iter_mut().zip(tweaks).for_each(|(byte, t)| *byte ^= t);
        data = rest;
    }
    tweaks.as_flattened_mut().zeroize();
}
