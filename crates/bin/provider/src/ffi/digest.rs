//! The functions of digests.

use super::entry::{alone, bytes, duplicate, free, keep_or_free, on, take_or_create, tell};
use super::param::{Kind, Known, Params, Requests, address};
use super::raw::{Dispatch, RawParam};
use super::spare::KINDS;
use crate::digest::{DIGESTS, Digest};
use crate::failure::Failure;
use crate::instance::Instance;
use core::ffi::{c_int, c_void};
use core::slice;

/// The functions of each row of [`DIGESTS`].
pub(super) const TABLES: [&[Dispatch]; DIGESTS.len()] = super::raw::tables!(Functions; 0 1 2 3 4 5 6 7 8 9 10 11 12 13);

/// The functions of digest `I`.
struct Functions<const I: usize>;

impl<const I: usize> Functions<I> {
    const TABLE: &'static [Dispatch] = &[
        Dispatch::new(1, newctx::<I> as *const ()),
        Dispatch::new(2, init as *const ()),
        Dispatch::new(3, update as *const ()),
        Dispatch::new(4, last as *const ()),
        Dispatch::new(6, freectx::<I> as *const ()),
        Dispatch::new(7, dupctx as *const ()),
        Dispatch::new(8, get_params::<I> as *const ()),
        Dispatch::new(11, gettable_params as *const ()),
        // Only the functions of an extendable output have parameters; the others end here.
        if DIGESTS[I].xof { Dispatch::new(9, set_ctx_params as *const ()) } else { Dispatch::END },
        Dispatch::new(12, settable_ctx_params as *const ()),
        // OpenSSL 3.3 and later; its ML-KEM, and so TLS 1.3 since 3.5, needs it.
        Dispatch::new(14, squeeze as *const ()),
        Dispatch::END,
    ];
}

const _: () = assert!(DIGESTS.len() <= KINDS, "each digest has places");

/// Frees the contexts that were put aside.
///
/// # Safety
/// The provider is unloaded: nobody uses it any more.
pub(super) unsafe fn free_spares(instance: &Instance) {
    for spare in &instance.spares().0 {
        // SAFETY: nobody uses it any more; contexts that `freectx` has put there, or null.
        unsafe { spare.drain().for_each(|context| free::<Digest>(context)) };
    }
}

static GETTABLE: [Known; 5] = [
    Known::new(c"blocksize", Kind::Size),
    Known::new(c"size", Kind::Size),
    Known::new(c"xof", Kind::Int),
    Known::new(c"algid-absent", Kind::Int),
    Known::END,
];

static SETTABLE: [Known; 2] = [Known::new(c"xoflen", Kind::Unsigned), Known::END];

unsafe extern "C" fn newctx<const I: usize>(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { take_or_create(provider, |spares| &spares.0[I], |instance| Digest::new(&DIGESTS[I], instance)) }
}

unsafe extern "C" fn freectx<const I: usize>(context: *mut c_void) {
    // SAFETY: the contract of `ffi`.
    unsafe { keep_or_free(context, |spares| &spares.0[I], |digest: &mut Digest| digest.renew(&DIGESTS[I])) }
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { duplicate(context, |digest: &Digest| Ok(digest.duplicate())) }
}

unsafe extern "C" fn init(context: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |digest: &mut Digest, _| {
            digest.reset();
            digest.set(Params::new(params))
        })
    }
}

unsafe extern "C" fn update(context: *mut c_void, data: *const u8, len: usize) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { on(context, |digest: &mut Digest, _| digest.update(bytes(data, len).unwrap_or_default())) }
}

unsafe extern "C" fn last(context: *mut c_void, out: *mut u8, out_len: *mut usize, room: usize) -> c_int {
    // SAFETY: the contract of `ffi`; the output is written for the length of the digest, for which there is room.
    unsafe {
        on(context, |digest: &mut Digest, _| {
            let len = digest.len();
            if room < len || (out.is_null() && len > 0) {
                return Err(Failure::SILENT);
            }
            // An extendable output may be empty, and then has no place.
            digest.finish(if len == 0 { &mut [] } else { slice::from_raw_parts_mut(out, len) })?;
            tell(out_len, len);
            Ok(())
        })
    }
}

unsafe extern "C" fn squeeze(context: *mut c_void, out: *mut u8, out_len: *mut usize, len: usize) -> c_int {
    // SAFETY: the contract of `ffi`; the output is written for the length that was asked for.
    unsafe {
        on(context, |digest: &mut Digest, _| {
            if out.is_null() && len > 0 {
                return Err(Failure::SILENT);
            }
            digest.squeeze(if len == 0 { &mut [] } else { slice::from_raw_parts_mut(out, len) })?;
            tell(out_len, len);
            Ok(())
        })
    }
}

unsafe extern "C" fn get_params<const I: usize>(params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    let mut asked = unsafe { Requests::new(params) };
    let row = &DIGESTS[I];
    alone(|| {
        asked.answer(c"blocksize", |p| p.size(row.block_len))?;
        asked.answer(c"size", |p| p.size(row.len))?;
        asked.answer(c"xof", |p| p.int(row.xof.into()))?;
        asked.answer(c"algid-absent", |p| p.int(row.algid_absent.into()))
    })
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { on(context, |digest: &mut Digest, _| digest.set(Params::new(params))) }
}

extern "C" fn gettable_params(_: *mut c_void) -> *const RawParam {
    address(&GETTABLE)
}

extern "C" fn settable_ctx_params(_: *mut c_void, _: *mut c_void) -> *const RawParam {
    address(&SETTABLE)
}
