//! The functions of opaque keys (`SKEYMGMT`, OpenSSL 3.5 and later).

use super::entry::{create, free, inner, told};
use super::param::{Params, address, with_secret};
use super::raw::{Callback, Dispatch, RawParam};
use crate::home::forget_traces;
use crate::opaque::{GENERATED, IMPORTED, OPAQUES, Opaque, RAW_BYTES};
use core::ffi::{c_char, c_int, c_void};
use core::ptr;

/// The functions of each row of [`OPAQUES`].
pub(super) const TABLES: [&[Dispatch]; OPAQUES.len()] = super::raw::tables!(Functions; 0 1);

/// The functions of keys of row `I`.
struct Functions<const I: usize>;

impl<const I: usize> Functions<I> {
    const TABLE: &'static [Dispatch] = &[
        Dispatch::new(1, free_key as *const ()),
        Dispatch::new(2, import::<I> as *const ()),
        Dispatch::new(3, export as *const ()),
        Dispatch::new(4, generate::<I> as *const ()),
        Dispatch::new(5, key_id as *const ()),
        Dispatch::new(6, import_settable as *const ()),
        Dispatch::new(7, generate_settable as *const ()),
        Dispatch::END,
    ];
}

unsafe extern "C" fn free_key(key: *mut c_void) {
    // SAFETY: the contract of `ffi`.
    unsafe { free::<Opaque>(key) }
}

unsafe extern "C" fn import<const I: usize>(
    provider: *mut c_void,
    selection: c_int,
    params: *const RawParam,
) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe {
        create(provider, |instance| {
            let key = Opaque::import(&OPAQUES[I], instance, selection, Params::new(params));
            forget_traces();
            key
        })
    }
}

unsafe extern "C" fn generate<const I: usize>(provider: *mut c_void, params: *const RawParam) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe {
        create(provider, |instance| {
            let key = Opaque::generate(&OPAQUES[I], instance, Params::new(params));
            forget_traces();
            key
        })
    }
}

unsafe extern "C" fn export(
    key: *mut c_void,
    selection: c_int,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `ffi`. The list has its end, and lives as long as the call; the bytes live as long as the key.
    unsafe {
        told(key, callback, |key: &Opaque, callback| {
            key.export(selection, |bytes| with_secret(RAW_BYTES, bytes, |list| callback(list, argument)))
        })
    }
}

unsafe extern "C" fn key_id(key: *mut c_void) -> *const c_char {
    // SAFETY: the contract of `ffi`.
    let key = unsafe { inner::<Opaque>(key) };
    key.and_then(Opaque::id).map_or(ptr::null(), |id| id.as_ptr())
}

extern "C" fn import_settable(_: *mut c_void) -> *const RawParam {
    address(&IMPORTED)
}

extern "C" fn generate_settable(_: *mut c_void) -> *const RawParam {
    address(&GENERATED)
}
