//! The functions of keys (`KEYMGMT`).

use super::entry::{create, duplicate, free, inner, on, shared, told};
use super::param::{Params, Requests, address, with_list};
use super::raw::{Callback, Dispatch, RawParam, operation};
use crate::key::{KINDS, Key, Kind, Selection};
use core::ffi::{c_char, c_int, c_void};
use core::ptr;

/// The functions of each row of [`KINDS`].
pub(super) const TABLES: [&[Dispatch]; KINDS.len()] = super::raw::tables!(Functions; 0 1 2);

/// The functions of keys of kind `I`.
struct Functions<const I: usize>;

impl<const I: usize> Functions<I> {
    const TABLE: &'static [Dispatch] = &[
        Dispatch::new(1, new::<I> as *const ()),
        Dispatch::new(8, load::<I> as *const ()),
        Dispatch::new(10, free_key as *const ()),
        Dispatch::new(11, get_params as *const ()),
        Dispatch::new(12, gettable_params::<I> as *const ()),
        Dispatch::new(20, query_operation_name::<I> as *const ()),
        Dispatch::new(21, has as *const ()),
        Dispatch::new(22, validate as *const ()),
        Dispatch::new(23, is_same as *const ()),
        Dispatch::new(40, import as *const ()),
        Dispatch::new(41, types::<I> as *const ()),
        Dispatch::new(42, export as *const ()),
        Dispatch::new(43, types::<I> as *const ()),
        Dispatch::new(44, dup as *const ()),
        Dispatch::END,
    ];
}

unsafe extern "C" fn new<const I: usize>(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { create(provider, |_| Ok(Key::empty(KINDS[I].0))) }
}

/// Takes over the key behind a reference that our store has made.
unsafe extern "C" fn load<const I: usize>(reference: *mut *mut c_void, len: usize) -> *mut c_void {
    if reference.is_null() || len != size_of::<*mut c_void>() {
        return ptr::null_mut();
    }
    // SAFETY: libcrypto gives references to the provider that made them; the store's are the place of a pointer to a key, or null
    // once it is taken. The place need not be aligned.
    unsafe {
        let raw = reference.read_unaligned();
        match inner::<Key>(raw) {
            Some(key) if key.kind == KINDS[I].0 => {
                reference.write_unaligned(ptr::null_mut());
                raw
            }
            _ => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn free_key(key: *mut c_void) {
    // SAFETY: the contract of `ffi`.
    unsafe { free::<Key>(key) }
}

unsafe extern "C" fn dup(key: *const c_void, selection: c_int) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { duplicate(key.cast_mut(), |key: &Key| Ok(key.duplicate(Selection(selection)))) }
}

unsafe extern "C" fn get_params(key: *mut c_void, params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { shared(key, |key: &Key, _| key.answer(&mut Requests::new(params))) }
}

extern "C" fn gettable_params<const I: usize>(_: *mut c_void) -> *const RawParam {
    address(KINDS[I].0.gettable())
}

extern "C" fn query_operation_name<const I: usize>(id: c_int) -> *const c_char {
    match (KINDS[I].0, id) {
        (Kind::Ec, operation::SIGNATURE) => c"ECDSA".as_ptr(),
        (Kind::Ec, operation::KEYEXCH) => c"ECDH".as_ptr(),
        (kind, _) => kind.data_type().as_ptr(),
    }
}

unsafe extern "C" fn has(key: *const c_void, selection: c_int) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { inner::<Key>(key) }.is_some_and(|key| key.has(Selection(selection))).into()
}

/// A public part has been checked when it came, and the keeper has checked its private one.
unsafe extern "C" fn validate(key: *const c_void, selection: c_int, _: c_int) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { has(key, selection) }
}

unsafe extern "C" fn is_same(one: *const c_void, other: *const c_void, selection: c_int) -> c_int {
    // SAFETY: the contract of `ffi`.
    let (one, other) = unsafe { (inner::<Key>(one), inner::<Key>(other)) };
    one.zip(other).is_some_and(|(one, other)| one.is_same(other, Selection(selection))).into()
}

unsafe extern "C" fn import(key: *mut c_void, _: c_int, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { on(key, |key: &mut Key, _| key.import(Params::new(params))) }
}

extern "C" fn types<const I: usize>(selection: c_int) -> *const RawParam {
    KINDS[I].0.passed(Selection(selection)).map_or(ptr::null(), address)
}

unsafe extern "C" fn export(
    key: *mut c_void,
    selection: c_int,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `ffi`. The list has its end, and lives as long as the call.
    unsafe {
        told(key, callback, |key: &Key, callback| {
            let mut values = key.export(Selection(selection))?;
            Ok(with_list(&mut values, |list| callback(list, argument)))
        })
    }
}
