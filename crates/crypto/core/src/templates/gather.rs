//! Lists of pieces of associated data, without allocation for the usual number of pieces.

use arrayvec::ArrayVec;

/// The number of pieces that fit on the stack; longer lists go to the heap.
const ON_STACK: usize = 8;

/// A list of pieces.
pub(super) enum Gather<'a> {
    Few(ArrayVec<&'a [u8], ON_STACK>),
    Many(Vec<&'a [u8]>),
}

impl<'a> Gather<'a> {
    pub(super) fn new() -> Self {
        Gather::Few(ArrayVec::new())
    }

    pub(super) fn push(&mut self, piece: &'a [u8]) {
        match self {
            Gather::Few(list) if list.is_full() => {
                let mut list = list.to_vec();
                list.push(piece);
                *self = Gather::Many(list);
            }
            Gather::Few(list) => list.push(piece),
            Gather::Many(list) => list.push(piece),
        }
    }

    /// Adds the bytes from `from` to `to` of the concatenation of `pieces`.
    pub(super) fn push_range(&mut self, pieces: &[&'a [u8]], from: usize, to: usize) {
        let mut at = 0;
        for piece in pieces {
            let start = from.saturating_sub(at).min(piece.len());
            let end = to.saturating_sub(at).min(piece.len());
            if start < end {
                self.push(&piece[start..end]);
            }
            at += piece.len();
        }
    }

    pub(super) fn as_slice(&self) -> &[&'a [u8]] {
        match self {
            Gather::Few(list) => list,
            Gather::Many(list) => list,
        }
    }
}

/// The length of all pieces together, in bytes.
pub(super) fn len(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// Copies the first `out.len()` bytes of the pieces, which hold at least as many.
pub(super) fn copy_head(pieces: &[&[u8]], out: &mut [u8]) {
    let bytes = pieces.iter().flat_map(|piece| *piece);
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_joined_pieces() {
        let text: Vec<u8> = (0..40).collect();
        for cut in [1, 2, 3, 7, 40] {
            let pieces: Vec<&[u8]> = text.chunks(cut).collect();
            assert_eq!(len(&pieces), 40);
            for (from, to) in [(0, 40), (0, 0), (5, 5), (8, 40), (0, 32), (3, 4), (39, 40)] {
                let mut gather = Gather::new();
                gather.push(b"first");
                gather.push_range(&pieces, from, to);
                assert_eq!(gather.as_slice().concat(), [b"first", &text[from..to]].concat(), "{cut} {from} {to}");
            }
            let mut head = [0; 8];
            copy_head(&pieces, &mut head);
            assert_eq!(head, text[..8]);
        }
    }
}
