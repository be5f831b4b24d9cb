//! Universal hashes over associated data in pieces.

use cipher::array::Array;
use cipher::consts::U16;
use universal_hash::UniversalHash;

/// Feeds the pieces as one string, padded with zeros to whole blocks, and returns its length in bytes.
pub(super) fn absorb<H: UniversalHash<BlockSize = U16>>(hash: &mut H, pieces: &[&[u8]]) -> u64 {
    let mut partial = Array::<u8, U16>::default();
    let (mut fill, mut total) = (0, 0);
    for piece in pieces {
        let mut piece = *piece;
        total += piece.len() as u64;
        if fill != 0 {
            let take = piece.len().min(16 - fill);
            partial[fill..fill + take].copy_from_slice(&piece[..take]);
            (fill, piece) = (fill + take, &piece[take..]);
            if fill < 16 {
                continue;
            }
            hash.update(core::slice::from_ref(&partial));
        }
        let (blocks, tail) = Array::slice_as_chunks(piece);
        hash.update(blocks);
        partial[..tail.len()].copy_from_slice(tail);
        fill = tail.len();
    }
    if fill != 0 {
        partial[fill..].fill(0);
        hash.update(core::slice::from_ref(&partial));
    }
    total
}
