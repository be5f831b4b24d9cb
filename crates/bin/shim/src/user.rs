//! Memory and structures that the program hands to a call.

use core::ffi::c_void;
use libc::{iovec, msghdr};

/// The most bytes that one call moves (kernel: MAX_RW_COUNT).
pub(crate) const MAX_BYTES: usize = 0x7fff_f000;
/// The most pieces that one call takes (kernel: UIO_MAXIOV).
const MAX_PIECES: usize = 1024;

/// Whether there can be memory: not in the first page. Other bad pointers fault in the program.
///
/// # Errors
/// `EFAULT` for addresses of the kernel's half, which the kernel refuses before a call reaches a socket.
#[inline]
fn present(at: usize, len: usize) -> Result<bool, i32> {
    // The end of what programs get unless they ask for more (x86-64), or of all that they can have (52 bits of arm64).
    const END: usize = if cfg!(target_arch = "x86_64") { 1 << 47 } else { 1 << 52 };
    if at >= END || len > END - at { Err(libc::EFAULT) } else { Ok(at >= 4096 || len == 0) }
}

/// Refuses what no program can mean.
#[inline]
fn plausible(at: usize, len: usize) -> Result<(), i32> {
    if len == 0 || present(at, len)? { Ok(()) } else { Err(libc::EFAULT) }
}

/// Bytes that the program gives us to read.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// The memory must be readable while `'a` lasts, unless it is refused.
#[inline]
pub(crate) unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], i32> {
    let len = len.min(MAX_BYTES);
    plausible(at as usize, len)?;
    // SAFETY: the caller's; an empty slice may have any pointer, so it gets a good one.
    Ok(if len == 0 { &[] } else { unsafe { core::slice::from_raw_parts(at.cast(), len) } })
}

/// Bytes that the program wants us to write.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// The memory must be writable while `'a` lasts, unless it is refused.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8], i32> {
    let len = len.min(MAX_BYTES);
    plausible(at as usize, len)?;
    // SAFETY: the caller's; an empty slice may have any pointer, so it gets a good one.
    Ok(if len == 0 { &mut [] } else { unsafe { core::slice::from_raw_parts_mut(at.cast(), len) } })
}

/// Bytes to send, and how many there would have been where there is no memory: some, or none.
///
/// # Errors
/// `EFAULT` for addresses of the kernel's half.
///
/// # Safety
/// As for [`bytes`].
#[inline]
pub(crate) unsafe fn flat<'a>(at: *const c_void, len: usize) -> Result<(&'a [u8], usize), i32> {
    let len = len.min(MAX_BYTES);
    // SAFETY: the caller's.
    if present(at as usize, len)? { Ok((unsafe { bytes(at, len) }?, 0)) } else { Ok((&[], len)) }
}

/// Bytes to receive into, and how many there would have been where there is no memory: some, or none.
///
/// # Errors
/// `EFAULT` for addresses of the kernel's half.
///
/// # Safety
/// As for [`bytes_mut`].
#[inline]
pub(crate) unsafe fn flat_mut<'a>(at: *mut c_void, len: usize) -> Result<(&'a mut [u8], usize), i32> {
    let len = len.min(MAX_BYTES);
    // SAFETY: the caller's.
    if present(at as usize, len)? { Ok((unsafe { bytes_mut(at, len) }?, 0)) } else { Ok((&mut [], len)) }
}

/// A structure that the program gives us.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// It must be readable, unless it is refused.
pub(crate) unsafe fn read<T: Copy>(at: *const T) -> Result<T, i32> {
    plausible(at as usize, size_of::<T>())?;
    // SAFETY: the caller's; programs owe no alignment.
    Ok(unsafe { at.read_unaligned() })
}

/// Stores a value for the program.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// It must be writable, unless it is refused.
pub(crate) unsafe fn write<T: Copy>(at: *mut T, value: T) -> Result<(), i32> {
    plausible(at as usize, size_of::<T>())?;
    // SAFETY: the caller's; programs owe no alignment.
    unsafe { at.write_unaligned(value) };
    Ok(())
}

/// The pieces of a gathered or scattered call: a few inline, many on the heap.
pub(crate) struct Pieces<T> {
    few: [T; 8],
    many: Vec<T>,
    n: usize,
    /// Bytes of the first piece without memory and of those behind it, which are left out.
    pub(crate) absent: usize,
}

impl<T> Pieces<T> {
    /// One alone; `empty` fills the places that are not used.
    fn one((piece, absent): (T, usize), empty: fn() -> T) -> Self {
        let mut few = core::array::from_fn(|_| empty());
        few[0] = piece;
        Pieces { few, many: Vec::new(), n: 1, absent }
    }

    /// All of them.
    pub(crate) fn as_mut(&mut self) -> &mut [T] {
        if self.n <= self.few.len() { &mut self.few[..self.n] } else { &mut self.many }
    }
}

/// Reads an array of pieces, cut so that all together hold at most [`MAX_BYTES`]. `make` also returns the number of
/// absent bytes.
///
/// # Errors
/// `too_many` beyond 1,024 pieces, `EINVAL` for lengths beyond the address space, `EFAULT`.
unsafe fn pieces<T>(
    iov: *const iovec,
    n: usize,
    too_many: i32,
    empty: fn() -> T,
    make: impl Fn(*mut c_void, usize) -> Result<(T, usize), i32>,
) -> Result<Pieces<T>, i32> {
    if n > MAX_PIECES {
        return Err(too_many);
    }
    let mut out = Pieces { few: core::array::from_fn(|_| empty()), many: Vec::new(), n, absent: 0 };
    if n > out.few.len() {
        out.many.reserve_exact(n);
    }
    let mut left = MAX_BYTES;
    for i in 0..n {
        // SAFETY: the caller's array.
        let v = unsafe { read(iov.wrapping_add(i)) }?;
        if v.iov_len > isize::MAX as usize {
            return Err(libc::EINVAL);
        }
        let len = v.iov_len.min(left);
        left -= len;
        let (piece, absent) = make(v.iov_base, len)?;
        if out.absent + absent > 0 {
            out.absent += len;
            continue;
        }
        if n > out.few.len() { out.many.push(piece) } else { out.few[i] = piece }
    }
    Ok(out)
}

/// The buffers of a gathered send.
///
/// # Errors
/// As the kernel: `too_many`, `EINVAL`, `EFAULT`.
///
/// # Safety
/// The array and its pieces must be readable while `'a` lasts.
pub(crate) unsafe fn gather<'a>(iov: *const iovec, n: usize, too_many: i32) -> Result<Pieces<&'a [u8]>, i32> {
    // SAFETY: the caller's.
    unsafe { pieces(iov, n, too_many, || &[][..], |at, len| flat(at, len)) }
}

/// The buffers of a scattered receive.
///
/// # Errors
/// As the kernel: `too_many`, `EINVAL`, `EFAULT`.
///
/// # Safety
/// The array must be readable and its pieces writable while `'a` lasts.
pub(crate) unsafe fn scatter<'a>(iov: *const iovec, n: usize, too_many: i32) -> Result<Pieces<&'a mut [u8]>, i32> {
    // SAFETY: the caller's.
    unsafe { pieces(iov, n, too_many, || &mut [][..], |at, len| flat_mut(at, len)) }
}

impl Pieces<&[u8]> {
    /// One buffer to send from.
    ///
    /// # Errors
    /// `EFAULT` for addresses of the kernel's half.
    ///
    /// # Safety
    /// As for [`bytes`].
    pub(crate) unsafe fn flat(at: *const c_void, len: usize) -> Result<Self, i32> {
        // SAFETY: the caller's.
        Ok(Pieces::one(unsafe { flat(at, len) }?, || &[]))
    }
}

impl Pieces<&mut [u8]> {
    /// One buffer to receive into.
    ///
    /// # Errors
    /// `EFAULT` for addresses of the kernel's half.
    ///
    /// # Safety
    /// As for [`bytes_mut`].
    pub(crate) unsafe fn flat(at: *mut c_void, len: usize) -> Result<Self, i32> {
        // SAFETY: the caller's.
        Ok(Pieces::one(unsafe { flat_mut(at, len) }?, || &mut []))
    }
}

impl<T: core::ops::Deref<Target = [u8]>> Pieces<T> {
    /// Bytes in all.
    pub(crate) fn len(&mut self) -> usize {
        self.absent + self.as_mut().iter().map(|piece| piece.len()).sum::<usize>()
    }
}

/// The control messages of a send.
///
/// # Errors
/// `ENOBUFS` for a length beyond an int, `EFAULT`.
///
/// # Safety
/// They must be readable while `'a` lasts.
pub(crate) unsafe fn control<'a>(msg: &msghdr) -> Result<&'a [u8], i32> {
    if msg.msg_controllen > i32::MAX as usize {
        return Err(libc::ENOBUFS);
    }
    // SAFETY: the caller's.
    unsafe { bytes(msg.msg_control, msg.msg_controllen) }
}
