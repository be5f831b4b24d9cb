//! The state of a socket as plain bytes.
//!
//! Processes that came to have a socket in common by fork each have a copy of it. An image is what one of them hands to
//! the others after a call: numbers, flags, and bytes, no address. It may come from anybody who can write into the memory
//! that carries it; nothing in it is believed that was not checked.

use zeroize::{Zeroize, Zeroizing};

/// An image that no socket of this kind can have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// An image in the making.
#[derive(Default)]
pub struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    /// An empty image.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The image.
    #[must_use]
    pub fn finish(self) -> Zeroizing<Vec<u8>> {
        self.0
    }

    /// Adds a number.
    pub fn number(&mut self, n: u64) {
        self.put(&n.to_ne_bytes());
    }

    /// Adds a flag.
    pub fn flag(&mut self, on: bool) {
        self.put(&[u8::from(on)]);
    }

    /// Adds bytes and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.put(bytes);
    }

    /// Adds bytes that may be absent.
    pub fn option(&mut self, bytes: Option<&[u8]>) {
        self.flag(bytes.is_some());
        if let Some(bytes) = bytes {
            self.bytes(bytes);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.0.capacity() - self.0.len() < bytes.len() {
            // Growth would leave keys in the memory of before.
            let mut more = Vec::with_capacity((self.0.len() + bytes.len()).next_power_of_two().max(512));
            more.extend_from_slice(&self.0);
            self.0.zeroize();
            *self.0 = more;
        }
        self.0.extend_from_slice(bytes);
    }
}

/// An image that is being read.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the beginning of `image`.
    #[must_use]
    pub fn new(image: &'a [u8]) -> Self {
        Reader(image)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next number.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the image.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        self.take(8)?.first_chunk().map(|n| u64::from_ne_bytes(*n)).ok_or(Malformed)
    }

    /// The next number, which fits into 32 bits.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the image, or for a larger number.
    pub fn word(&mut self) -> Result<u32, Malformed> {
        self.number()?.try_into().map_err(|_| Malformed)
    }

    /// The next flag.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the image, or for what is no flag.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// [`Malformed`] when there are fewer than their number says.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.number()?;
        self.take(usize::try_from(len).map_err(|_| Malformed)?)
    }

    /// The next bytes, which may be absent.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn option(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        Ok(if self.flag()? { Some(self.bytes()?) } else { None })
    }
}
