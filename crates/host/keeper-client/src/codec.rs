//! Bytes of files and messages: numbers in little endian, and fields with a length before them.
//!
//! Both sides have bounds: a reader takes no field that is longer than its caller allows, and allocates nothing before it has
//! seen the bytes.

use sealane_crypto::wipe::wipe;
use std::ops::{Deref, DerefMut};
use zeroize::Zeroizing;

/// The bytes are not what the format says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads fields from the front of bytes.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Begins.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed(what))?;
        self.0 = rest;
        Ok(*head)
    }

    /// A byte.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.array(what).map(|[byte]| byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A field of at most `max` bytes, with its length before it.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn bytes(&mut self, max: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = self.u32(what)? as usize;
        if len > max {
            return Err(Malformed(what));
        }
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed(what))?;
        self.0 = rest;
        Ok(head)
    }

    /// The same, for texts.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn wiped(&mut self, max: usize, what: &'static str) -> Result<Wiped, Malformed> {
        Ok(Wiped::from(self.bytes(max, what)?))
    }

    /// The same, into memory that is wiped.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn secret(&mut self, max: usize, what: &'static str) -> Result<Zeroizing<Vec<u8>>, Malformed> {
        Ok(Zeroizing::new(self.bytes(max, what)?.to_vec()))
    }

    /// The same as text.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn text(&mut self, max: usize, what: &'static str) -> Result<&'a str, Malformed> {
        core::str::from_utf8(self.bytes(max, what)?).map_err(|_| Malformed(what))
    }

    /// A count of items, at most `max`.
    ///
    /// # Errors
    /// [`Malformed`] with `what`.
    pub fn count(&mut self, max: usize, what: &'static str) -> Result<usize, Malformed> {
        let count = usize::from(self.u16(what)?);
        if count > max { Err(Malformed(what)) } else { Ok(count) }
    }

    /// The number of bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// Requires that nothing is left.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes after the end")) }
    }
}

/// A message or a text, which is wiped when it is not needed any more: by whole cache lines, where [`Zeroizing`] goes byte by byte,
/// which takes longer than to encrypt the text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Wiped(Vec<u8>);

impl Wiped {
    /// An empty one with room for so many bytes.
    #[must_use]
    pub fn with_room(len: usize) -> Self {
        Wiped(Vec::with_capacity(len))
    }

    /// Adds bytes. It grows by moving into new memory, and wipes what it leaves.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.0.capacity() - self.0.len() < bytes.len() {
            let mut larger = Wiped::with_room((self.0.len() + bytes.len()) * 2);
            larger.0.extend_from_slice(&self.0);
            *self = larger;
        }
        self.0.extend_from_slice(bytes);
    }
}

impl From<Vec<u8>> for Wiped {
    fn from(bytes: Vec<u8>) -> Self {
        Wiped(bytes)
    }
}

impl From<&[u8]> for Wiped {
    fn from(bytes: &[u8]) -> Self {
        Wiped(bytes.to_vec())
    }
}

impl Deref for Wiped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Wiped {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        // What a longer text has left behind this one, too.
        self.0.resize(self.0.capacity(), 0);
        wipe(&mut self.0);
    }
}

/// Takes bytes, which follow one another.
pub trait Append {
    /// Adds bytes.
    fn append(&mut self, bytes: &[u8]);
}

impl Append for Wiped {
    fn append(&mut self, bytes: &[u8]) {
        Wiped::append(self, bytes);
    }
}

/// The room that a writer begins with.
const ROOM: usize = 512;

/// Writes fields, to memory that is wiped when it is not needed any more, or to another place.
pub struct Writer<A = Wiped>(A);

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl Writer {
    /// Begins.
    #[must_use]
    pub fn new() -> Self {
        Writer::with_room(0)
    }

    /// Begins with room for a field of so many bytes and what is around it.
    #[must_use]
    pub fn with_room(len: usize) -> Self {
        Writer(Wiped::with_room(ROOM + len))
    }
}

impl<A: Append> Writer<A> {
    /// Begins in a place.
    #[must_use]
    pub fn to(place: A) -> Self {
        Writer(place)
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.append(bytes);
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) {
        self.raw(&[value]);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    /// A field with its length before it. All fields of this crate have bounds far below 4 GiB.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.raw(bytes);
    }

    /// A count of items. All lists of this crate have bounds below 65,536.
    pub fn count(&mut self, count: usize) {
        self.u16(count as u16);
    }

    /// The bytes, or the place that they are in.
    #[must_use]
    pub fn done(self) -> A {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_nothing_is_read_past_the_end() {
        let mut writer = Writer::new();
        writer.u8(1);
        writer.u16(2);
        writer.u32(3);
        writer.u64(4);
        writer.bytes(&[5; 2000]);
        let bytes = writer.done();
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            let numbers = (reader.u8("a")?, reader.u16("b")?, reader.u32("c")?, reader.u64("d")?);
            let field = reader.bytes(2000, "e")?.to_vec();
            reader.end()?;
            Ok::<_, Malformed>((numbers, field))
        };
        assert_eq!(read(&bytes), Ok(((1, 2, 3, 4), vec![5; 2000])));
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "{len}");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert_eq!(read(&longer), Err(Malformed("bytes after the end")));
        let mut reader = Reader::new(&bytes[15..]);
        assert_eq!(reader.bytes(1999, "too long"), Err(Malformed("too long")));
    }
}
