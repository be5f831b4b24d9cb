//! The functions of signatures.

use super::entry::{bytes, create, duplicate, free, inner, on, tell};
use super::param::{Params, Requests, address};
use super::raw::{Dispatch, RawParam};
use crate::failure::{Done, Failure, Reason};
use crate::instance::Instance;
use crate::key::{Key, Kind};
use crate::names;
use crate::sign::{Signature, Task};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

/// The signatures, each with its names.
pub(super) static SIGNATURES: [(Kind, &CStr); 3] =
    [(Kind::Rsa, names::RSA), (Kind::Ec, c"ECDSA"), (Kind::Ed25519, names::ED25519)];

/// The functions of each row of [`SIGNATURES`].
pub(super) const TABLES: [&[Dispatch]; SIGNATURES.len()] = [RSA, ECDSA, ED25519];

/// The functions of all of them, and more.
macro_rules! table {
    ($i:literal; $($more:expr),*) => {
        &[
            Dispatch::new(1, newctx::<$i> as *const ()),
            Dispatch::new(8, digest_sign_init as *const ()),
            Dispatch::new(12, digest_verify_init as *const ()),
            Dispatch::new(16, freectx as *const ()),
            Dispatch::new(17, dupctx as *const ()),
            Dispatch::new(18, get_ctx_params as *const ()),
            Dispatch::new(19, gettable_ctx_params::<$i> as *const ()),
            Dispatch::new(20, set_ctx_params as *const ()),
            Dispatch::new(21, settable_ctx_params::<$i> as *const ()),
            $($more,)*
            Dispatch::END,
        ]
    };
}

const RSA: &[Dispatch] = table![
    0;
    Dispatch::new(2, sign_init as *const ()),
    Dispatch::new(3, sign as *const ()),
    Dispatch::new(4, verify_init as *const ()),
    Dispatch::new(5, verify as *const ()),
    Dispatch::new(6, verify_recover_init as *const ()),
    Dispatch::new(7, verify_recover as *const ()),
    Dispatch::new(9, update as *const ()),
    Dispatch::new(10, digest_sign_final as *const ()),
    Dispatch::new(13, update as *const ()),
    Dispatch::new(14, digest_verify_final as *const ())
];

const ECDSA: &[Dispatch] = table![
    1;
    Dispatch::new(2, sign_init as *const ()),
    Dispatch::new(3, sign as *const ()),
    Dispatch::new(4, verify_init as *const ()),
    Dispatch::new(5, verify as *const ()),
    Dispatch::new(9, update as *const ()),
    Dispatch::new(10, digest_sign_final as *const ()),
    Dispatch::new(13, update as *const ()),
    Dispatch::new(14, digest_verify_final as *const ())
];

// It signs whole messages only, as the default provider's does.
const ED25519: &[Dispatch] = table![
    2;
    Dispatch::new(11, sign as *const ()),
    Dispatch::new(15, verify as *const ())
];

unsafe extern "C" fn newctx<const I: usize>(provider: *mut c_void, _: *const c_char) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { create(provider, |instance| Ok(Signature::new(SIGNATURES[I].0, instance))) }
}

unsafe extern "C" fn freectx(context: *mut c_void) {
    // SAFETY: the contract of `ffi`.
    unsafe { free::<Signature>(context) }
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { duplicate(context, |signature: &Signature| Ok(signature.duplicate())) }
}

/// # Safety
/// The contract of `ffi`.
unsafe fn start(context: *mut c_void, key: *const c_void, params: *const RawParam, task: Task) -> c_int {
    // SAFETY: by the caller's promise; a key is one of ours.
    unsafe { on(context, |signature: &mut Signature, _| signature.start(inner::<Key>(key), task, Params::new(params))) }
}

unsafe extern "C" fn sign_init(context: *mut c_void, key: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { start(context, key, params, Task::Sign) }
}

unsafe extern "C" fn verify_init(context: *mut c_void, key: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { start(context, key, params, Task::Verify) }
}

unsafe extern "C" fn verify_recover_init(context: *mut c_void, key: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { start(context, key, params, Task::Recover) }
}

/// # Safety
/// The contract of `ffi`; `hash` is null or a string with a terminator.
unsafe fn start_message(
    context: *mut c_void,
    hash: *const c_char,
    key: *const c_void,
    params: *const RawParam,
    task: Task,
) -> c_int {
    // SAFETY: by the caller's promise; a key is one of ours.
    unsafe {
        on(context, |signature: &mut Signature, instance| {
            let hash = if hash.is_null() { None } else { Some(CStr::from_ptr(hash)) };
            let hash = hash.map(|hash| hash.to_str().map_err(|_| Reason::InvalidDigest)).transpose()?;
            signature.start_message(inner::<Key>(key), task, hash, Params::new(params), instance)
        })
    }
}

unsafe extern "C" fn digest_sign_init(
    context: *mut c_void,
    hash: *const c_char,
    key: *mut c_void,
    params: *const RawParam,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { start_message(context, hash, key, params, Task::Sign) }
}

unsafe extern "C" fn digest_verify_init(
    context: *mut c_void,
    hash: *const c_char,
    key: *mut c_void,
    params: *const RawParam,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { start_message(context, hash, key, params, Task::Verify) }
}

unsafe extern "C" fn update(context: *mut c_void, data: *const u8, len: usize) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { on(context, |signature: &mut Signature, _| signature.update(bytes(data, len).unwrap_or_default())) }
}

/// Puts what `make` gives into the caller's buffer, or tells the room that it needs at most if there is no buffer.
///
/// # Safety
/// `out` is null or writable for `room` bytes, `out_len` is null or writable.
pub(super) unsafe fn put<T: AsRef<[u8]>>(
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    most: usize,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Done {
    if out.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { tell(out_len, most) };
        return Ok(());
    }
    if room < most {
        return Err(Reason::OutputBufferTooSmall.into());
    }
    let made = make()?;
    let made = made.as_ref();
    if made.len() > room {
        return Err(Reason::OutputBufferTooSmall.into());
    }
    // SAFETY: there is room for it.
    unsafe {
        ptr::copy_nonoverlapping(made.as_ptr(), out, made.len());
        tell(out_len, made.len());
    }
    Ok(())
}

unsafe extern "C" fn sign(
    context: *mut c_void,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    text: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |signature: &mut Signature, instance: &Instance| {
            let most = signature.len()?;
            put(out, out_len, room, most, || signature.sign(instance, bytes(text, len).unwrap_or_default()))
        })
    }
}

unsafe extern "C" fn digest_sign_final(context: *mut c_void, out: *mut u8, out_len: *mut usize, room: usize) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |signature: &mut Signature, instance: &Instance| {
            let most = signature.len()?;
            put(out, out_len, room, most, || {
                let digest = signature.digest()?;
                signature.sign(instance, &digest)
            })
        })
    }
}

unsafe extern "C" fn verify(
    context: *mut c_void,
    made: *const u8,
    made_len: usize,
    text: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |signature: &mut Signature, _| {
            signature.verify(bytes(text, len).unwrap_or_default(), bytes(made, made_len).unwrap_or_default())
        })
    }
}

unsafe extern "C" fn digest_verify_final(context: *mut c_void, made: *const u8, made_len: usize) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |signature: &mut Signature, _| {
            let digest = signature.digest()?;
            signature.verify(&digest, bytes(made, made_len).unwrap_or_default())
        })
    }
}

unsafe extern "C" fn verify_recover(
    context: *mut c_void,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    made: *const u8,
    made_len: usize,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |signature: &mut Signature, _| {
            let most = signature.len()?;
            put(out, out_len, room, most, || signature.recover(bytes(made, made_len).unwrap_or_default()))
        })
    }
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { on(context, |signature: &mut Signature, _| signature.answer(&mut Requests::new(params))) }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { on(context, |signature: &mut Signature, _| signature.set(Params::new(params))) }
}

extern "C" fn gettable_ctx_params<const I: usize>(_: *mut c_void, _: *mut c_void) -> *const RawParam {
    address(Signature::gettable(SIGNATURES[I].0))
}

unsafe extern "C" fn settable_ctx_params<const I: usize>(context: *mut c_void, _: *mut c_void) -> *const RawParam {
    // SAFETY: the contract of `ffi`.
    let is_hashing = unsafe { inner::<Signature>(context) }.is_some_and(Signature::is_hashing);
    address(Signature::settable(SIGNATURES[I].0, is_hashing))
}
