//! Sequence number extensions: the upper half of a 64-bit sequence number (RFC 5925 section 6.2, RFC 9187).

/// Whether `a` lies before `b` on the circle of sequence numbers (RFC 9293 section 3.4).
#[must_use]
pub const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The SNE of a segment that starts at `seq`, given that `base` has the SNE `ext`; right as long as the two lie less than
/// 2 GiB apart.
#[must_use]
pub const fn extend(ext: u32, base: u32, seq: u32) -> u32 {
    if before(seq, base) {
        if seq > base { ext.wrapping_sub(1) } else { ext }
    } else if seq < base {
        ext.wrapping_add(1)
    } else {
        ext
    }
}

/// One direction of a connection: a sequence number known to be recent, with its SNE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sne {
    /// The SNE of `base`.
    pub ext: u32,
    /// The sequence number that others are compared with: `snd_una` or `rcv_nxt`.
    pub base: u32,
}

impl Sne {
    /// A direction that starts at `isn`, whose SNE is 0.
    #[must_use]
    pub const fn new(isn: u32) -> Self {
        Sne { ext: 0, base: isn }
    }

    /// The SNE of a segment that starts at `seq`.
    #[must_use]
    pub const fn of(&self, seq: u32) -> u32 {
        extend(self.ext, self.base, seq)
    }

    /// Moves the base forward to `seq`; a `seq` that lies before it changes nothing.
    pub fn advance(&mut self, seq: u32) {
        if before(self.base, seq) {
            *self = Sne { ext: self.of(seq), base: seq };
        }
    }
}
