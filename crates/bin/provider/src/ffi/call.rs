//! The buffers of a cipher's call.

use crate::failure::{Failure, Reason};
use core::marker::PhantomData;
use core::ops::Range;
use core::{ptr, slice};
use inout::InOutBuf;
use zeroize::Zeroizing;

/// A call that brings text in and takes text out. No slice is made of the output before it is known how much of it is
/// written: OpenSSL claims more room than a caller may have (`EVP_EncryptUpdate` adds a block to the length of the input).
pub(crate) struct Call<'a> {
    input: *const u8,
    len: usize,
    out: *mut u8,
    room: usize,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Call<'a> {
    /// # Safety
    /// `input` is null or readable for `len` bytes, `out` is null or writable for as many bytes as the operation writes by
    /// its definition and for `room` at most, and neither is used otherwise for `'a`.
    pub(super) unsafe fn new(input: *const u8, len: usize, out: *mut u8, room: usize) -> Self {
        Call { input, len, out, room, life: PhantomData }
    }

    /// The length of the input.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the output of one of the two meets anything of the other.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let meet = |a: *const u8, a_len: usize, b: *const u8, b_len: usize| {
            !a.is_null() && !b.is_null() && (a as usize) < b as usize + b_len && (b as usize) < a as usize + a_len
        };
        meet(self.out, self.len, other.input, other.len)
            || meet(self.out, self.len, other.out, other.len)
            || meet(self.input, self.len, other.out, other.len)
    }

    pub(crate) fn has_input(&self) -> bool {
        !self.input.is_null()
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_null()
    }

    /// Whether input and output begin at the same place.
    pub(crate) fn in_place(&self) -> bool {
        ptr::eq(self.input, self.out)
    }

    /// The bytes that OpenSSL says there is room for.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// The input, empty where there is none.
    pub(crate) fn input(&self) -> &[u8] {
        if self.input.is_null() || self.len == 0 {
            return &[];
        }
        // SAFETY: `new` was promised that it is readable, and no slice of the output exists while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.input, self.len) }
    }

    /// Input on its way to an output of the same length, where there are both, and they are the same memory or apart. That is
    /// nearly always so; [`Self::text`] has the other cases.
    #[inline]
    pub(crate) fn flat(&mut self) -> Option<InOutBuf<'_, '_, u8>> {
        if self.input.is_null() || self.out.is_null() || !(1..=self.room).contains(&self.len) {
            return None;
        }
        if !self.in_place() && (self.input as usize).abs_diff(self.out as usize) < self.len {
            return None;
        }
        // SAFETY: `new` was promised that the input is readable, and that what is written by definition is writable. They are
        // the same or have no byte in common, and nothing else is made of `self` meanwhile.
        Some(unsafe { InOutBuf::from_raw(self.input, self.out, self.len) })
    }

    /// Input and output, of which `written` bytes are written.
    pub(crate) fn text(self, written: usize) -> Result<Text<'a>, Failure> {
        if written > self.room {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        // The default provider reads or writes at address 0 there, which ends the program.
        if self.out.is_null() && written > 0 {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        if self.input.is_null() && self.len > 0 {
            return Err(Reason::CipherOperationFailed.into());
        }
        if written == 0 {
            let src = if self.len == 0 { Source::Apart(&[]) } else { Source::Apart(self.into_input()) };
            return Ok(Text { src, dst: &mut [] });
        }
        if self.len == 0 {
            // SAFETY: `new` was promised that what is written is writable.
            return Ok(Text { src: Source::Apart(&[]), dst: unsafe { slice::from_raw_parts_mut(self.out, written) } });
        }
        let (from, to) = (self.input as usize, self.out as usize);
        if from == to {
            let both = written.max(self.len);
            // SAFETY: input and output begin together, so that the longer one has both.
            let dst = unsafe { slice::from_raw_parts_mut(self.out, both) };
            return Ok(Text { src: Source::Same(self.len), dst });
        }
        let apart = from + self.len <= to || to + written <= from;
        let src = if apart {
            // SAFETY: the input is readable and has no byte in common with what is written.
            Source::Apart(unsafe { slice::from_raw_parts(self.input, self.len) })
        } else {
            Source::Copied(Zeroizing::new(self.input().to_vec()))
        };
        // SAFETY: `new` was promised that what is written is writable; no slice of the input overlaps it.
        Ok(Text { src, dst: unsafe { slice::from_raw_parts_mut(self.out, written) } })
    }

    fn into_input(self) -> &'a [u8] {
        // SAFETY: nothing is written in this call.
        unsafe { slice::from_raw_parts(self.input, self.len) }
    }
}

enum Source<'a> {
    /// The first bytes of the output.
    Same(usize),
    Apart(&'a [u8]),
    /// A copy, because the output overlaps it.
    Copied(Zeroizing<Vec<u8>>),
}

/// Input and output of a call: the same memory, or apart.
pub(crate) struct Text<'a> {
    src: Source<'a>,
    dst: &'a mut [u8],
}

impl Text<'_> {
    /// No text at all.
    pub(crate) fn empty() -> Self {
        Text { src: Source::Apart(&[]), dst: &mut [] }
    }

    /// The input.
    pub(crate) fn input(&self) -> &[u8] {
        match &self.src {
            Source::Same(len) => &self.dst[..*len],
            Source::Apart(src) => src,
            Source::Copied(src) => src,
        }
    }

    /// The output.
    pub(crate) fn output(&mut self) -> &mut [u8] {
        self.dst
    }

    /// Sees to it that input at one place can go to output at another.
    pub(crate) fn part(&mut self) {
        if let Source::Same(len) = self.src {
            self.src = Source::Copied(Zeroizing::new(self.dst[..len].to_vec()));
        }
    }

    /// Bytes of the input, on their way to the output from `to` on. Where both are the same memory, `to` is where they are.
    pub(crate) fn piece(&mut self, from: Range<usize>, to: usize) -> InOutBuf<'_, '_, u8> {
        let src: &[u8] = match &self.src {
            Source::Same(_) => {
                assert_eq!(from.start, to, "text in place stays where it is");
                return (&mut self.dst[from]).into();
            }
            Source::Apart(src) => src,
            Source::Copied(src) => src,
        };
        let len = from.len();
        InOutBuf::new(&src[from], &mut self.dst[to..to + len]).expect("both have the same length")
    }

    /// All of the input, on its way to the front of the output.
    pub(crate) fn all(&mut self) -> InOutBuf<'_, '_, u8> {
        let len = self.input().len();
        self.piece(0..len, 0)
    }
}
