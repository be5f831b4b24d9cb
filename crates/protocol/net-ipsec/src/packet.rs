//! A packet in its buffer, with room to add headers in front and trailers behind without copying.

/// Headroom needed in front of a packet to be sealed: outer header (40), UDP (8), ESP (8), IV (16), and 4 more in BEET
/// mode with IPv4 options; or AH with its longest ICV (12 + 64 + 4).
pub const HEADROOM: usize = 128;

/// Tailroom needed behind a packet to be sealed, without traffic flow confidentiality: padding (up to 15), pad length
/// and next header, ICV (64).
pub const TAILROOM: usize = 96;

/// Headroom needed in front of an ESP header when the packet is opened without its outer headers: the length of an IPv6
/// header, minus that of the ESP header, whose place it takes. Tunnel mode needs none.
pub const OPEN_HEADROOM: usize = 32;

/// An IP packet within a buffer.
pub struct Packet<'a> {
    buf: Buffer<'a>,
    start: usize,
    end: usize,
}

/// The buffer of a packet: the caller's, or one of its own, if the packet has outgrown that (IPComp) or was put together
/// (IP-TFS).
enum Buffer<'a> {
    Borrowed(&'a mut [u8]),
    Owned(Box<[u8]>),
}

impl core::ops::Deref for Buffer<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Borrowed(buf) => buf,
            Buffer::Owned(buf) => buf,
        }
    }
}

impl core::ops::DerefMut for Buffer<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Borrowed(buf) => buf,
            Buffer::Owned(buf) => buf,
        }
    }
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
        Packet { buf: Buffer::Borrowed(buf), start, end }
    }

    /// A packet that fills a buffer of its own.
    #[must_use]
    pub fn owned(buf: Vec<u8>) -> Packet<'static> {
        let end = buf.len();
        Packet { buf: Buffer::Owned(buf.into()), start: 0, end }
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

    /// The offset of its start in the buffer.
    #[must_use]
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// The offset of its end in the buffer.
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

    /// Whether the packet has no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether it has a buffer of its own, and is not in that which [`Self::new`] was given.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        matches!(self.buf, Buffer::Owned(_))
    }

    /// The packet, if it has a buffer of its own; an empty one is left in its place.
    pub fn take_owned(&mut self) -> Option<Packet<'static>> {
        match &mut self.buf {
            Buffer::Borrowed(_) => None,
            Buffer::Owned(buf) => {
                let buf = Buffer::Owned(core::mem::take(buf));
                let (start, end) = (core::mem::take(&mut self.start), core::mem::take(&mut self.end));
                Some(Packet { buf, start, end })
            }
        }
    }

    /// The whole buffer.
    #[inline]
    pub(crate) fn buf(&mut self) -> &mut [u8] {
        &mut self.buf
    }

    /// Replaces the buffer by one that the packet fills.
    pub(crate) fn replace(&mut self, buf: Box<[u8]>) {
        (self.start, self.end) = (0, buf.len());
        self.buf = Buffer::Owned(buf);
    }

    /// Sets new bounds.
    #[inline]
    pub(crate) fn set(&mut self, start: usize, end: usize) {
        debug_assert!(start <= end && end <= self.buf.len());
        (self.start, self.end) = (start, end);
    }
}
