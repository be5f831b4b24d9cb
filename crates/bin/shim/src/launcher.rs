//! Questions to the launcher, which it answers in the kernel's place.

use crate::sys::{check, raw};
use core::ffi::c_int;
use sealane_abi::sealane::Told;

/// Asks for the text that the launcher has for the option `(level, name)`.
///
/// # Errors
/// The launcher's: what it has is not known then.
pub(crate) fn ask(whose: c_int, (level, name): (c_int, c_int)) -> Result<Told, i32> {
    let mut text = vec![0u8; 1 << 14];
    let mut len = text.len() as u32;
    // SAFETY: room of that length.
    let r = unsafe { raw!(libc::SYS_getsockopt, whose, level, name, text.as_mut_ptr(), &raw mut len) };
    Told::of(check(r).map(|_| {
        text.truncate(len as usize);
        text
    }))
}

/// The text that the launcher has for the option `(level, name)`; none where it has none, or cannot say.
pub(crate) fn asked(whose: c_int, query: (c_int, c_int)) -> Option<Vec<u8>> {
    match ask(whose, query) {
        Ok(Told::Text(text)) => Some(text),
        _ => None,
    }
}
