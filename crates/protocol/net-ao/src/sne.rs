//! Sequence number extensions: the upper half of a 64-bit sequence number (RFC 5925 section 6.2, RFC 9187).

/// Whether `a` lies before `b` on the circle of sequence numbers (RFC 9293 section 3.4).
#[must_use]
pub const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The SNE of a segment that starts at `seq`, given that `base` has the SNE `ext`; right as long as the two lie less
/// than 2 GiB apart.
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

/// The distance from `b` to `a`, both with their SNE in the upper half; positive if `a` is ahead.
const fn ahead(a: u64, b: u64) -> i64 {
    a.wrapping_sub(b) as i64
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

    /// `seq` with its SNE in the upper half.
    #[must_use]
    pub const fn long(&self, seq: u32) -> u64 {
        (self.of(seq) as u64) << 32 | seq as u64
    }

    /// Moves the base forward to `seq`; a `seq` before the base changes nothing. `seq` has to be recent: one from more
    /// than 2 GiB ago would count as ahead.
    pub const fn advance(&mut self, seq: u32) {
        self.advance_to(self.long(seq));
    }

    /// Moves the base forward to a sequence number with its SNE in the upper half; one before the base changes nothing,
    /// however old it is.
    pub const fn advance_to(&mut self, long: u64) {
        if ahead(long, (self.ext as u64) << 32 | self.base as u64) > 0 {
            *self = Sne { ext: (long >> 32) as u32, base: long as u32 };
        }
    }

    /// Moves the base forward to `ack` if it is ahead of the base and not ahead of `sent`, the end of the data sent so
    /// far with its SNE in the upper half. An acknowledgment of data that was never sent is a replay from before a
    /// wrap.
    pub const fn acknowledge(&mut self, ack: u32, sent: u64) {
        let long = self.long(ack);
        if ahead(long, sent) <= 0 {
            self.advance_to(long);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_only_move_forward() {
        let mut sne = Sne { ext: 3, base: 10 };
        sne.advance(u32::MAX);
        assert_eq!(sne, Sne { ext: 3, base: 10 }, "just before the wrap");
        assert_eq!(sne.of(u32::MAX), 2);
        sne.advance_to(2 << 32 | 0x7000_0000);
        assert_eq!(sne, Sne { ext: 3, base: 10 }, "so long ago that it would count as ahead");
        sne.advance(0x7000_0000);
        assert_eq!(sne, Sne { ext: 3, base: 0x7000_0000 });
        // Before the very first number there is SNE -1, which is not the largest of all.
        let mut first = Sne::new(5);
        first.advance_to(first.long(3));
        assert_eq!(first, Sne::new(5));
    }

    #[test]
    fn only_what_was_sent_is_acknowledged() {
        let mut snd = Sne { ext: 1, base: 0x8000_0000 };
        let sent = 1 << 32 | 0x8001_0000;
        snd.acknowledge(0x8001_0001, sent);
        // Three GiB ago: seen from here, one GiB ahead.
        snd.acknowledge(0xc000_0000, sent);
        assert_eq!(snd.base, 0x8000_0000);
        snd.acknowledge(0x8001_0000, sent);
        assert_eq!(snd.base, 0x8001_0000);
        snd.acknowledge(0x8000_0000, sent);
        assert_eq!(snd.base, 0x8001_0000);
    }
}
