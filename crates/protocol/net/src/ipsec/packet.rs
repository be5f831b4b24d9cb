//! A packet in its buffer: headers are put in front of it and trailers behind it, and nothing is copied.

/// Room to leave in front of a packet that is to be sealed: outer header (40), UDP (8), ESP (8), IV (16), and for BEET mode
/// with IPv4 options 4 more; or AH with its longest ICV (12 + 64 + 4).
pub const HEADROOM: usize = 128;

/// Room to leave behind it, traffic flow confidentiality aside: padding (up to 15), pad length and next header, ICV (64).
pub const TAILROOM: usize = 96;

/// Room to leave in front of an ESP header that is opened without its outer headers: an IPv6 header less the ESP header in its
/// place. Tunnels need none.
pub const OPEN_HEADROOM: usize = 32;

/// An IP packet within a buffer.
pub struct Packet<'a> {
    buf: &'a mut [u8],
    start: usize,
    end: usize,
}

impl<'a> Packet<'a> {
    /// The packet is `buf[start..end]`.
    ///
    /// # Panics
    /// When it is not within the buffer.
    #[must_use]
    #[inline]
    pub fn new(buf: &'a mut [u8], start: usize, end: usize) -> Self {
        assert!(start <= end && end <= buf.len(), "the packet lies in its buffer");
        Packet { buf, start, end }
    }

    /// The packet.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// The packet.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buf[self.start..self.end]
    }

    /// Where it starts in its buffer.
    #[must_use]
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Where it ends in its buffer.
    #[must_use]
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Its length in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Length of its buffer in bytes.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.buf.len()
    }

    /// Whether there is nothing.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The whole buffer.
    #[inline]
    pub(crate) fn buf(&mut self) -> &mut [u8] {
        self.buf
    }

    /// Sets new bounds.
    #[inline]
    pub(crate) fn set(&mut self, start: usize, end: usize) {
        debug_assert!(start <= end && end <= self.buf.len());
        (self.start, self.end) = (start, end);
    }
}
