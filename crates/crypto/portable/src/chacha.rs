//! ChaCha with the kernel's state layouts and IVs.

use super::modes::keystream;
use chacha20::variants::Ietf;
use chacha20::{ChaChaCore, KeyIvInit, Rounds};
use inout::InOutBuf;

/// XORs `data` with the keystream from block `counter` on. The counter has 32 bits and wraps without changing the
/// nonce, as in `lib/crypto/chacha-block-generic.c`.
pub(super) fn xor<R: Rounds>(key: &[u8; 32], counter: u32, nonce: &[u8; 12], data: InOutBuf<'_, '_, u8>) {
    let from = |counter| {
        let mut core = ChaChaCore::<R, Ietf>::new(key.into(), nonce.into());
        core.set_block_pos(counter);
        core
    };
    // A SIMD backend may carry into the nonce when the counter wraps within one of its batches, so the text is cut
    // at the wrap.
    let until_wrap = (u64::from(u32::MAX - counter) + 1) * 64;
    let cut = usize::try_from(until_wrap).unwrap_or(usize::MAX).min(data.len());
    let (head, rest) = data.split_at(cut);
    keystream(from(counter), head);
    if !rest.is_empty() {
        keystream(from(0), rest);
    }
}

/// Takes the kernel's 16-byte IV: the block counter, little endian, then the nonce.
pub(super) fn xor_iv<R: Rounds>(key: &[u8; 32], iv: &[u8; 16], data: InOutBuf<'_, '_, u8>) {
    let (counter, nonce) = iv.split_first_chunk::<4>().expect("16 bytes hold 4");
    let nonce: &[u8; 12] = nonce.try_into().expect("12 bytes are left");
    xor::<R>(key, u32::from_le_bytes(*counter), nonce, data);
}

/// XChaCha with the kernel's 32-byte IV: 24 bytes of nonce, then the position in blocks, little endian.
pub(super) fn xor_extended<R: Rounds>(key: &[u8; 32], iv: &[u8; 32], data: InOutBuf<'_, '_, u8>) {
    let (head, tail) = iv.split_at(16);
    let head: &[u8; 16] = head.try_into().expect("16 bytes");
    let mut subkey: [u8; 32] = chacha20::hchacha::<R>(key.into(), head.into()).into();
    let mut inner = [0u8; 16];
    inner[..8].copy_from_slice(&tail[8..]);
    inner[8..].copy_from_slice(&tail[..8]);
    xor_iv::<R>(&subkey, &inner, data);
    zeroize::Zeroize::zeroize(&mut subkey);
}
