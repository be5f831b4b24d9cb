//! The functions of RSA as a cipher.

use super::entry::{bytes, create, duplicate, free, inner, on};
use super::param::{Params, Requests, address};
use super::raw::{Dispatch, RawParam};
use super::signature::put;
use crate::decrypt::{AsymCipher, GETTABLE, SETTABLE};
use crate::failure::Reason;
use crate::instance::Instance;
use crate::key::Key;
use core::ffi::{c_int, c_void};

/// The functions.
pub(super) static TABLE: [Dispatch; 12] = [
    Dispatch::new(1, newctx as *const ()),
    Dispatch::new(2, init::<false> as *const ()),
    Dispatch::new(3, encrypt as *const ()),
    Dispatch::new(4, init::<true> as *const ()),
    Dispatch::new(5, decrypt as *const ()),
    Dispatch::new(6, freectx as *const ()),
    Dispatch::new(7, dupctx as *const ()),
    Dispatch::new(8, get_ctx_params as *const ()),
    Dispatch::new(9, gettable_ctx_params as *const ()),
    Dispatch::new(10, set_ctx_params as *const ()),
    Dispatch::new(11, settable_ctx_params as *const ()),
    Dispatch::END,
];

unsafe extern "C" fn newctx(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { create(provider, |_| Ok(AsymCipher::new())) }
}

unsafe extern "C" fn freectx(context: *mut c_void) {
    // SAFETY: the contract of `ffi`.
    unsafe { free::<AsymCipher>(context) }
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { duplicate(context, |cipher: &AsymCipher| Ok(cipher.clone())) }
}

/// Starts an operation: to decrypt, or to encrypt.
unsafe extern "C" fn init<const DECRYPTS: bool>(
    context: *mut c_void,
    key: *mut c_void,
    params: *const RawParam,
) -> c_int {
    // SAFETY: the contract of `ffi`; a key is one of ours.
    unsafe { on(context, |cipher: &mut AsymCipher, _| cipher.start(inner::<Key>(key), DECRYPTS, Params::new(params))) }
}

unsafe extern "C" fn encrypt(
    context: *mut c_void,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    text: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |cipher: &mut AsymCipher, _| {
            let most = cipher.len()?;
            put(out, out_len, room, most, || cipher.encrypt(bytes(text, len).unwrap_or_default()))
        })
    }
}

unsafe extern "C" fn decrypt(
    context: *mut c_void,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    text: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |cipher: &mut AsymCipher, instance: &Instance| {
            let most = cipher.len()?;
            if !out.is_null() && room < most {
                return Err(Reason::BadLength.into());
            }
            put(out, out_len, room, most, || cipher.decrypt(instance, bytes(text, len).unwrap_or_default()))
        })
    }
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { on(context, |cipher: &mut AsymCipher, _| cipher.answer(&mut Requests::new(params))) }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { on(context, |cipher: &mut AsymCipher, _| cipher.set(Params::new(params))) }
}

extern "C" fn gettable_ctx_params(_: *mut c_void, _: *mut c_void) -> *const RawParam {
    address(&GETTABLE)
}

extern "C" fn settable_ctx_params(_: *mut c_void, _: *mut c_void) -> *const RawParam {
    address(&SETTABLE)
}
