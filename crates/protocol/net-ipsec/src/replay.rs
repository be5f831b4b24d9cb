//! The anti-replay window (RFC 4303 section 3.4.3, appendix A2; `net/xfrm/xfrm_replay.c`), of any size.
//!
//! The window is a ring of bits, one for each sequence number, in words of 64 (RFC 6479): moving forward clears whole
//! words. The order is the kernel's: check, open, check again and advance. Other packets of the same burst may have
//! moved the window in the meantime, and only an authentic packet moves it.

use crate::drop::DropReason;
use sealane_cpu::prefetch;

/// The largest window in packets: 1 MiB of bits.
pub const MAX_WINDOW_PKTS: u32 = 1 << 23;

/// The window of an inbound state.
#[derive(Debug, Clone)]
pub struct Window {
    /// The highest number received.
    top: u64,
    /// Size in packets; 0 means no window.
    size: u32,
    esn: bool,
    bits: Box<[u64]>,
}

impl Window {
    /// A window of `size` packets (0: none) whose highest number received is `top`, as when a state is taken over from
    /// a peer. With `esn`, numbers have 64 bits and a window is required.
    ///
    /// Returns `None` if `size` is larger than [`MAX_WINDOW_PKTS`], or 0 with `esn`, or if `top` exceeds 32 bits
    /// without.
    #[must_use]
    pub fn new(size: u32, esn: bool, top: u64) -> Option<Self> {
        if size > MAX_WINDOW_PKTS || (esn && size == 0) || (!esn && top > u64::from(u32::MAX)) {
            return None;
        }
        // One word more than the window needs, because clearing is done by words.
        let words = if size == 0 { 0 } else { (size.div_ceil(64) as usize + 1).next_power_of_two() };
        Some(Window { top, size, esn, bits: vec![0; words].into() })
    }

    /// The highest number received.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Size in packets.
    #[must_use]
    pub fn size_pkts(&self) -> u32 {
        self.size
    }

    /// Bytes of heap memory.
    #[must_use]
    pub fn heap_len(&self) -> usize {
        self.bits.len() * 8
    }

    /// Infers the whole number from its low half `seq` (RFC 4303 appendix A2.1, `xfrm_replay_seqhi`).
    #[must_use]
    #[inline]
    pub fn extend(&self, seq: u32) -> u64 {
        self.extend_at(self.top, seq)
    }

    fn extend_at(&self, top: u64, seq: u32) -> u64 {
        if !self.esn {
            return u64::from(seq);
        }
        let (high, low) = ((top >> 32) as u32, top as u32);
        let bottom = low.wrapping_sub(self.size).wrapping_add(1);
        let high = if low >= self.size - 1 {
            // The window lies in one subspace.
            if seq < bottom { high.wrapping_add(1) } else { high }
        } else if seq >= bottom {
            // The window spans two subspaces.
            high.wrapping_sub(1)
        } else {
            high
        };
        u64::from(high) << 32 | u64::from(seq)
    }

    /// Checks whether a packet may be opened, and returns its whole number.
    ///
    /// # Errors
    /// [`DropReason::SeqZero`], [`DropReason::BehindWindow`], [`DropReason::Replayed`].
    pub fn check(&self, seq: u32) -> Result<u64, DropReason> {
        self.check_whole(seq, self.extend(seq))
    }

    /// [`Self::check`] with the number that [`Self::extend`] returned.
    #[inline]
    pub(crate) fn check_whole(&self, seq: u32, whole: u64) -> Result<u64, DropReason> {
        self.place(self.top, seq, whole)?;
        if self.is_seen(whole) { Err(DropReason::Replayed) } else { Ok(whole) }
    }

    /// Checks that a number is not behind the window once that has moved to `top`.
    fn place(&self, top: u64, seq: u32, whole: u64) -> Result<(), DropReason> {
        if self.size == 0 {
            return Ok(());
        }
        // With extended numbers, a low half of 0 is valid after the first subspace.
        let zero = seq == 0 && (!self.esn || (top >> 32 == 0 && top < u64::from(self.size) - 1));
        if zero {
            return Err(DropReason::SeqZero);
        }
        // The window reaches below the first number: no sender uses such a high half, and the ICV will not match.
        if whole <= top && top - whole >= u64::from(self.size) {
            return Err(DropReason::BehindWindow);
        }
        Ok(())
    }

    /// Whether [`Self::check`] gives the same verdict for `seq` however far other packets move the window, up to `top`.
    pub(crate) fn would_say_the_same(&self, seq: u32, top: u64) -> bool {
        let said = |top| {
            let whole = self.extend_at(top, seq);
            (whole, self.place(top, seq, whole))
        };
        // As the window moves up, no inferred number or verdict returns to an earlier one: if both ends agree, so does
        // everything between.
        said(self.top) == said(top)
    }

    /// Whether a number that [`Self::extend`] returned is above the window, and is still the same number and above it
    /// once the window has moved to `top`. Then no further checks are needed.
    #[inline]
    pub(crate) fn is_above(&self, whole: u64, top: u64) -> bool {
        // Within half a subspace the inferred number stays the same, as windows are smaller.
        whole > top && whole - self.top < 1 << 31
    }

    /// Whether an authentic packet with this number would move the window.
    pub(crate) fn may_move_to(&self, whole: u64) -> bool {
        self.size != 0 && whole > self.top && !self.is_below_the_first(whole)
    }

    /// Whether a number is below the first one: in the first subspace a high half of all ones is below it, not above.
    fn is_below_the_first(&self, whole: u64) -> bool {
        self.esn && self.top >> 32 == 0 && whole >> 32 == u64::from(u32::MAX)
    }

    /// Checks again after a packet was found authentic, and advances the window. `whole` is the result of
    /// [`Self::check`].
    ///
    /// # Errors
    /// As [`Self::check`], and [`DropReason::SeqHigh`] when the window has moved so far that the low half stands for
    /// another number.
    pub fn commit(&mut self, whole: u64) -> Result<(), DropReason> {
        if self.size == 0 {
            return Ok(());
        }
        if self.check(whole as u32)? != whole {
            return Err(DropReason::SeqHigh);
        }
        if whole > self.top {
            if self.is_below_the_first(whole) {
                return Err(DropReason::BehindWindow);
            }
            let (from, to) = (self.top / 64, whole / 64);
            let cleared = (to - from).min(self.bits.len() as u64);
            for word in to + 1 - cleared..=to {
                let at = self.word(word * 64);
                self.bits[at] = 0;
            }
            self.top = whole;
        }
        let at = self.word(whole);
        self.bits[at] |= 1 << (whole % 64);
        Ok(())
    }

    /// Prefetches the memory in which a number is looked up.
    pub(crate) fn warm(&self, seq: u32) {
        if !self.bits.is_empty() {
            prefetch(&self.bits[self.word(seq.into())], 1);
        }
    }

    fn word(&self, whole: u64) -> usize {
        (whole / 64) as usize & (self.bits.len() - 1)
    }

    fn seen(&self, whole: u64) -> bool {
        self.bits[self.word(whole)] >> (whole % 64) & 1 != 0
    }

    /// Marks a number inside the window as seen, to take over a bitmap from elsewhere.
    pub fn mark(&mut self, whole: u64) {
        if self.size != 0 && whole <= self.top && self.top - whole < u64::from(self.size) {
            let at = self.word(whole);
            self.bits[at] |= 1 << (whole % 64);
        }
    }

    /// Whether a number inside the window has been seen.
    #[must_use]
    pub fn is_seen(&self, whole: u64) -> bool {
        self.size != 0 && whole <= self.top && self.top - whole < u64::from(self.size) && self.seen(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DropReason::{BehindWindow, Replayed, SeqZero};

    fn take(window: &mut Window, seq: u64) -> Result<(), DropReason> {
        let whole = window.check(seq as u32)?;
        assert_eq!(whole, seq, "the high half is inferred");
        window.commit(whole)
    }

    /// The standard's definition, with a set instead of a ring.
    struct Plain {
        seen: std::collections::BTreeSet<u64>,
        top: u64,
        size: u64,
    }

    impl Plain {
        fn take(&mut self, seq: u64) -> Result<(), DropReason> {
            if seq == 0 {
                return Err(SeqZero);
            }
            if seq <= self.top {
                if self.top - seq >= self.size {
                    return Err(BehindWindow);
                }
                if self.seen.contains(&seq) {
                    return Err(Replayed);
                }
            }
            self.seen.insert(seq);
            self.top = self.top.max(seq);
            Ok(())
        }
    }

    #[test]
    fn like_a_set() {
        for size in [1, 2, 4, 31, 32, 33, 63, 64, 65, 100, 127, 128, 4095, 4096, 5000] {
            let mut window = Window::new(size, false, 0).unwrap();
            let mut plain = Plain { seen: Default::default(), top: 0, size: u64::from(size) };
            let mut random = 0x1234_5678_9abc_def1u64 ^ u64::from(size);
            let mut at = 1u64;
            for _ in 0..20_000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Mostly near the top, with occasional jumps.
                at += match random % 97 {
                    0 => u64::from(size) * 3,
                    1 => 1000,
                    n => u64::from(n > 40),
                };
                let back = (random >> 32) % (2 * u64::from(size) + 3);
                let seq = at.saturating_sub(if random.is_multiple_of(3) { back } else { 0 });
                assert_eq!(take(&mut window, seq), plain.take(seq), "size {size}, {seq} below {}", plain.top);
                assert_eq!(window.top(), plain.top);
            }
        }
    }

    #[test]
    fn extended_across_subspaces() {
        let start = 0x1_ffff_fff0u64;
        for size in [4, 32, 33, 64, 128, 4096] {
            let mut window = Window::new(size, true, start).unwrap();
            for seq in start + 1..start + 40 {
                if seq % 3 != 0 {
                    take(&mut window, seq).unwrap();
                    assert_eq!(window.check(seq as u32), Err(Replayed));
                }
            }
            assert_eq!(window.top(), start + 39);
            // Numbers left out below the border are still accepted if the window reaches there.
            let missing = (start + 1..start + 40).rfind(|s| s % 3 == 0).unwrap();
            assert_eq!(take(&mut window, missing).is_ok(), start + 39 - missing < u64::from(size));
            if size >= 64 {
                let below = (start + 1..0x2_0000_0000).find(|s| s % 3 == 0).unwrap();
                take(&mut window, below).unwrap();
                assert_eq!(take(&mut window, below), Err(Replayed));
            }
        }
    }

    #[test]
    fn high_half_as_the_standard_infers_it() {
        // RFC 4303 appendix A2.1, figures: same subspace, and a window that spans two.
        let window = |top| Window::new(64, true, top).unwrap();
        assert_eq!(window(0x5_0000_1000).extend(0x0fc1), 0x5_0000_0fc1, "the bottom of the window");
        assert_eq!(window(0x5_0000_1000).extend(0x0fc0), 0x6_0000_0fc0, "below it: the next subspace");
        assert_eq!(window(0x5_0000_1000).extend(0xffff_ffff), 0x5_ffff_ffff);
        assert_eq!(window(0x5_0000_0010).extend(0xffff_fff0), 0x4_ffff_fff0, "the subspace before");
        assert_eq!(window(0x5_0000_0010).extend(0xffff_ffd0), 0x5_ffff_ffd0);
        assert_eq!(window(0x5_0000_0010).extend(0x0011), 0x5_0000_0011);
    }

    #[test]
    fn the_start() {
        let mut window = Window::new(32, true, 0).unwrap();
        assert_eq!(window.check(0), Err(SeqZero));
        // Inferred as below the first number, which no peer can have sent: only a forger who has the key passes.
        assert_eq!(window.check(u32::MAX), Ok(u64::MAX));
        assert_eq!(window.commit(u64::MAX), Err(BehindWindow));
        take(&mut window, 1).unwrap();
        assert_eq!(window.check(1), Err(Replayed));
        let mut off = Window::new(0, false, 0).unwrap();
        for _ in 0..2 {
            take(&mut off, 7).unwrap();
        }
        assert!(Window::new(0, true, 0).is_none() && Window::new(MAX_WINDOW_PKTS + 1, false, 0).is_none());
        let mut last = Window::new(32, false, u64::from(u32::MAX) - 1).unwrap();
        take(&mut last, u64::from(u32::MAX)).unwrap();
        assert_eq!(last.check(0), Err(SeqZero), "no wrap without extended numbers");
        assert_eq!(last.check(1), Err(BehindWindow));
    }

    #[test]
    fn moved_between_check_and_commit() {
        let mut window = Window::new(32, false, 0).unwrap();
        let (a, b) = (window.check(5).unwrap(), window.check(5).unwrap());
        window.commit(a).unwrap();
        assert_eq!(window.commit(b), Err(Replayed), "twice in one burst");
        let late = window.check(3).unwrap();
        take(&mut window, 1000).unwrap();
        assert_eq!(window.commit(late), Err(BehindWindow));
        let mut window = Window::new(64, true, 0xffff_ff00).unwrap();
        let old = window.check(0xffff_fef0).unwrap();
        take(&mut window, 0x1_0000_1000).unwrap();
        assert_eq!(window.commit(old), Err(DropReason::SeqHigh));
    }
}
