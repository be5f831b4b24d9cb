//! The text of an operation: in place, from one buffer to another, or gathered and scattered over segments.

use crate::wipe::wipe;
use inout::InOutBuf;

/// Text to be encrypted or decrypted. Input and output have the same length.
pub enum Data<'a> {
    /// One contiguous piece, in place (`buf.into()` for a `&mut [u8]`) or apart (`InOutBuf::new(src, dst)`).
    Flat(InOutBuf<'a, 'a, u8>),
    /// Input gathered from `src`, output scattered over `dst`; both hold the same number of bytes in all.
    /// `dst` may be longer than `src`: the rest is left alone.
    Scattered {
        /// Pieces of the input, in order.
        src: &'a [&'a [u8]],
        /// Pieces of the output, in order.
        dst: &'a mut [&'a mut [u8]],
        /// Buffer in which the text is joined, because drivers take it in one piece. The caller keeps it, so that
        /// nothing is allocated once it has grown; it is wiped after use.
        scratch: &'a mut Scratch,
    },
}

impl Data<'_> {
    /// Length of the text in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::Flat(buf) => buf.len(),
            Data::Scattered { src, .. } => src.iter().map(|s| s.len()).sum(),
        }
    }

    /// Whether there is no text at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&'a mut [u8]> for Data<'a> {
    fn from(buf: &'a mut [u8]) -> Self {
        Data::Flat(buf.into())
    }
}

impl<'a> From<InOutBuf<'a, 'a, u8>> for Data<'a> {
    fn from(buf: InOutBuf<'a, 'a, u8>) -> Self {
        Data::Flat(buf)
    }
}

/// A buffer that grows to the largest text it has met and is wiped after each use.
#[derive(Default)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Scratch(Vec::new())
    }

    /// Joins `src` into one piece, lets `f` change it in place, and scatters the result over `dst`, unless `f` fails.
    pub(crate) fn through<E>(
        &mut self,
        src: &[&[u8]],
        dst: &mut [&mut [u8]],
        f: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.0.clear();
        // Reserved at once: growing piece by piece would leave text behind in the freed, smaller buffers.
        self.0.reserve(src.iter().map(|piece| piece.len()).sum());
        for piece in src {
            self.0.extend_from_slice(piece);
        }
        let done = f(&mut self.0);
        if done.is_ok() {
            let mut rest = &self.0[..];
            for piece in dst {
                let n = piece.len().min(rest.len());
                piece[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
            }
        }
        wipe(&mut self.0);
        done
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The whole capacity: a panic in `through` may have left a text behind that a later, shorter one did not cover.
        self.0.resize(self.0.capacity(), 0);
        wipe(&mut self.0);
    }
}
