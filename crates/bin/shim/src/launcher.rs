//! Questions to the launcher, which it answers in the kernel's place.

use crate::sys::{check, raw};
use core::ffi::c_int;

/// The text that the launcher has for the option `(level, name)`; none where nobody serves it.
pub(crate) fn asked(whose: c_int, (level, name): (c_int, c_int)) -> Option<Vec<u8>> {
    let mut text = vec![0u8; 1 << 14];
    let mut len = text.len() as u32;
    // SAFETY: room of that length.
    let r = unsafe { raw!(libc::SYS_getsockopt, whose, level, name, text.as_mut_ptr(), &raw mut len) };
    check(r).ok()?;
    text.truncate(len as usize);
    Some(text)
}
