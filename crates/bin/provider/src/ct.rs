//! Comparisons whose time does not depend on what is compared.

use core::hint::black_box;

/// All ones where `a` and `b` are equal, else zero; no branch.
pub(crate) fn equal(a: usize, b: usize) -> u8 {
    let differing = black_box(a ^ b);
    // The top bit is set if, and only if, some bit differs.
    let top = (differing | differing.wrapping_neg()) >> (usize::BITS - 1);
    (black_box(top) as u8).wrapping_sub(1)
}

/// All ones where `a >= b`, else zero; no branch. Both are below half of the range.
pub(crate) fn at_least(a: usize, b: usize) -> u8 {
    let less = black_box(a.wrapping_sub(b)) >> (usize::BITS - 1);
    (black_box(less) as u8).wrapping_sub(1)
}

/// Whether two strings of bytes are equal; only their lengths decide how long that takes.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |differing, (x, y)| differing | (x ^ y));
    a.len() == b.len() && black_box(differing) == 0
}

/// Whether both halves of a key are equal.
pub(crate) fn halves_are_same(key: &[u8]) -> bool {
    let (first, second) = key.split_at(key.len() / 2);
    same(first, second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_all_or_nothing() {
        for (a, b) in [(0, 0), (0, 1), (1, 0), (255, 256), (4096, 4096), (usize::MAX / 4, 3)] {
            assert_eq!(equal(a, b), if a == b { 0xff } else { 0 });
            assert_eq!(at_least(a, b), if a >= b { 0xff } else { 0 });
        }
    }

    #[test]
    fn strings_that_differ_anywhere_differ() {
        assert!(same(b"", b"") && same(b"tag", b"tag"));
        assert!(halves_are_same(b"tagtag") && !halves_are_same(b"tagtab") && !halves_are_same(b"tagta"));
        assert!(!same(b"tag", b"tab") && !same(b"tag", b"ta") && !same(b"", b"t"));
    }
}
