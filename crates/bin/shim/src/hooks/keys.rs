//! Keys of the kernel's keyrings, for ALG_SET_KEY_BY_KEY_SERIAL.
//!
//! A `user` key is read with keyctl. A `logon` key cannot be read by user space at all, by design; the library therefore
//! remembers the payloads of the `logon` keys that the program itself adds. Of an `encrypted` or a `trusted` key the kernel gives the
//! form in which it may be stored, sealed under another key, and never the payload by which it computes.

use crate::arena::{self, Logon};
use crate::entry::quietly;
use crate::fork;
use crate::key_memory;
use crate::place::{self, Place};
use crate::sys::{self, check, raw, set_errno};
use core::ffi::{CStr, c_char, c_int, c_void};
use sealane_abi::Errno;
use sealane_crypto::wipe::{STACK_LEN, wipe_traces};
use sealane_engine_alg::KeyringKey;
use sealane_guarded::Held;
use zeroize::Zeroizing;

const KEYCTL_UPDATE: usize = 2;
const KEYCTL_DESCRIBE: usize = 6;
const KEYCTL_READ: usize = 11;
/// The most `logon` payloads that are remembered; a new one then replaces the oldest.
const MAX_LOGON: usize = 64;
/// The longest payload of a `logon` key.
const MAX_PAYLOAD: usize = 32767;

fn errno(number: i32) -> Errno {
    Errno::new(number).unwrap_or(Errno::EIO)
}

/// Calls a keyctl operation that fills a buffer: first for the size, then for the contents.
fn fill(operation: usize, serial: i32) -> Result<Zeroizing<Vec<u8>>, i32> {
    let mut buf = Zeroizing::new(Vec::new());
    loop {
        // SAFETY: the buffer has `len` writable bytes.
        let n = check(unsafe { raw!(libc::SYS_keyctl, operation, serial, buf.as_mut_ptr(), buf.len(), 0) })?;
        if n <= buf.len() {
            buf.truncate(n);
            return Ok(buf);
        }
        // The key has become longer: allocates a new buffer, so that growing the old one leaves no copy in freed memory.
        buf = Zeroizing::new(vec![0; n]);
    }
}

/// Returns a key that the kernel would use: its payload, or with `names` that it names a key of the keeper.
///
/// # Errors
/// `EACCES` for a payload that user space cannot have, `ENOPROTOOPT` for types of keys that have none, or else the kernel's error for
/// this key.
pub(crate) fn find(serial: i32, names: bool) -> Result<KeyringKey, Errno> {
    // "type;uid;gid;perm;description"
    let description = fill(KEYCTL_DESCRIBE, serial).map_err(|e| match e {
        // We lack the permission even to see the key.
        libc::EACCES => Errno::EACCES,
        e => errno(e),
    })?;
    if names && let Some(named) = KeyringKey::named_by(&description) {
        return Ok(named);
    }
    let type_ = description.split(|&b| b == b';').next().unwrap_or_default();
    let payload = match type_ {
        b"user" => fill(KEYCTL_READ, serial).map_err(errno),
        b"encrypted" | b"trusted" => Err(Errno::EACCES),
        b"logon" => arena::existing()
            .and_then(|a| a.logon.lock().iter().find(|key| key.serial == serial).and_then(|key| copy(&key.payload)))
            .ok_or(Errno::EACCES),
        _ => Err(errno(libc::ENOPROTOOPT)),
    };
    payload.map(KeyringKey::Payload)
}

/// A copy of a payload; none in a child of the process that guards it.
fn copy(payload: &Held<[u8]>) -> Option<Zeroizing<Vec<u8>>> {
    let _open = payload.open()?;
    Some(Zeroizing::new(payload.get().to_vec()))
}

/// Remembers the payload of a `logon` key.
fn remember(serial: i32, at: *const c_void, len: usize) {
    quietly(|| {
        // What the key was before is another one, whatever follows.
        if let Some(arena) = arena::existing() {
            arena.logon.lock().retain(|key| key.serial != serial);
        }
        let is_guarded = match place::of_keys() {
            Ok(Place::Process) => false,
            // With its record, for a fork in the middle of it.
            Ok(Place::Guarded { is_strict }) if fork::ensure().is_ok() && key_memory::make(is_strict).is_ok() => true,
            // A key that is to be in a keeper does not stay here.
            _ => return,
        };
        let Some(arena) = arena::get() else { return };
        // SAFETY: the kernel has just read the same bytes.
        let Ok(bytes) = (unsafe { crate::user::bytes(at, len.min(MAX_PAYLOAD)) }) else { return };
        let payload = Held::new(Box::<[u8]>::from(bytes));
        if is_guarded {
            wipe_traces(sys::stack_room(STACK_LEN));
        }
        let Ok(payload) = payload else { return };
        let mut known = arena.logon.lock();
        if known.len() == MAX_LOGON {
            known.remove(0);
        }
        known.push(Logon { pid: sys::getpid(), serial, payload });
    });
}

/// Remembers the payload of a `logon` key; called after add_key(2) has returned.
///
/// # Safety
/// The arguments must be those of the call that has succeeded.
pub(crate) unsafe fn after_add_key(type_: *const c_char, payload: *const c_void, len: usize, serial: isize) {
    // SAFETY: the kernel has read the type.
    if serial > 0 && !type_.is_null() && unsafe { CStr::from_ptr(type_) } == c"logon" {
        remember(serial as i32, payload, len);
    }
}

/// Remembers the new payload of a `logon` key; called after keyctl(2) has returned.
pub(crate) fn after_keyctl(operation: usize, serial: usize, payload: usize, len: usize, result: isize) {
    let known = || {
        let mut known = false;
        if let Some(arena) = arena::existing() {
            quietly(|| known = arena.logon.lock().iter().any(|key| key.serial == serial as i32));
        }
        known
    };
    if operation == KEYCTL_UPDATE && result >= 0 && known() {
        remember(serial as i32, payload as *const c_void, len);
    }
}

/// libkeyutils's `add_key`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn add_key(
    type_: *const c_char,
    description: *const c_char,
    payload: *const c_void,
    len: usize,
    keyring: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    let serial = unsafe { raw!(libc::SYS_add_key, type_, description, payload, len, keyring) };
    // SAFETY: as above.
    unsafe { after_add_key(type_, payload, len, serial) };
    match check(serial) {
        Ok(serial) => serial as c_int,
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}
