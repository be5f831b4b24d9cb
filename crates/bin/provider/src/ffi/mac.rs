//! The functions of MACs.

use super::entry::{alone, bytes, create, duplicate_keyed, free, inner, on, on_keyed, tell};
use super::keyed::Named;
use super::param::{Kind, Known, Params, Requests, address};
use super::raw::{Dispatch, RawParam};
use crate::failure::{Failure, Reason};
use crate::given::{KEY_NAME, no_name_beside_bytes};
use crate::home::{explained, forget_traces};
use crate::mac::{MACS, Mac};
use crate::opaque::Opaque;
use core::ffi::{c_int, c_void};
use core::slice;

/// The functions of each row of [`MACS`].
pub(super) const TABLES: [&[Dispatch]; MACS.len()] = super::raw::tables!(Functions; 0 1 2 3 4);

/// A context behind a pointer.
type Context = Named<dyn Mac>;

/// The functions of MAC `I`.
struct Functions<const I: usize>;

impl<const I: usize> Functions<I> {
    const TABLE: &'static [Dispatch] = &[
        Dispatch::new(1, newctx::<I> as *const ()),
        Dispatch::new(2, dupctx as *const ()),
        Dispatch::new(3, freectx as *const ()),
        Dispatch::new(4, init as *const ()),
        Dispatch::new(5, update as *const ()),
        Dispatch::new(6, last as *const ()),
        Dispatch::new(9, set_ctx_params as *const ()),
        Dispatch::new(12, settable_ctx_params::<I> as *const ()),
        // OpenSSL 3.5 and later.
        Dispatch::new(13, init_skey as *const ()),
        // GMAC's length is a property of the algorithm, that of the others of a context.
        if MACS[I].fixed_len.is_some() {
            Dispatch::new(7, get_params::<I> as *const ())
        } else {
            Dispatch::new(8, get_ctx_params as *const ())
        },
        if MACS[I].fixed_len.is_some() {
            Dispatch::new(10, gettable_params as *const ())
        } else {
            Dispatch::new(11, gettable_ctx_params as *const ())
        },
        Dispatch::END,
    ];
}

static GETTABLE: [Known; 2] = [Known::new(c"size", Kind::Size), Known::END];

static GETTABLE_CTX: [Known; 4] = [
    Known::new(c"size", Kind::Size),
    Known::new(c"block-size", Kind::Size),
    Known::new(KEY_NAME, Kind::Text),
    Known::END,
];

unsafe extern "C" fn newctx<const I: usize>(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { create::<Context>(provider, |_| Ok(Named::new((MACS[I].new)()))) }
}

unsafe extern "C" fn freectx(context: *mut c_void) {
    // SAFETY: the contract of `ffi`.
    unsafe { free::<Context>(context) }
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { duplicate_keyed::<Context>(context) }
}

unsafe extern "C" fn init(context: *mut c_void, key: *const u8, len: usize, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |mac: &mut Context, instance| {
            let (key, params) = (bytes(key, len), Params::new(params));
            if key.is_some() {
                no_name_beside_bytes(params)?;
                mac.forget_name();
            }
            let done = mac.set_all(instance, params).and_then(|()| mac.init(instance, key));
            // A message is begun under the key that is there, too.
            forget_traces();
            // With a new key that of before plays no part.
            let is_new = key.is_some() || params.get(c"key").is_some() || params.get(KEY_NAME).is_some();
            done.map_err(|failure| if is_new { failure } else { explained(mac.owner(), failure) })
        })
    }
}

/// Starts a message under an opaque key.
unsafe extern "C" fn init_skey(context: *mut c_void, key: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`: a key is one that our own functions have made.
    unsafe {
        on(context, |mac: &mut Context, instance| {
            let key = inner::<Opaque>(key).ok_or_else(|| Failure::new(Reason::NoKeySet))?;
            let begin = |mac: &mut Context| {
                no_name_beside_bytes(Params::new(params))?;
                mac.set_all(instance, Params::new(params))?;
                mac.take_opaque(key, |mac, key| mac.take_key(instance, key))?;
                mac.init(instance, None)
            };
            let done = begin(mac);
            forget_traces();
            done
        })
    }
}

unsafe extern "C" fn update(context: *mut c_void, data: *const u8, len: usize) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on_keyed(context, |mac: &mut Context, _| {
            let reach = mac.reach(len);
            mac.update(bytes(data, reach).unwrap_or_default(), len)
        })
    }
}

unsafe extern "C" fn last(context: *mut c_void, out: *mut u8, out_len: *mut usize, room: usize) -> c_int {
    // SAFETY: the contract of `ffi`; the output is written for the length of the tag, for which there is room.
    unsafe {
        on_keyed(context, |mac: &mut Context, _| {
            let len = mac.len();
            if out.is_null() || room < len {
                return Err(Failure::SILENT);
            }
            mac.finish(slice::from_raw_parts_mut(out, len))?;
            tell(out_len, len);
            Ok(())
        })
    }
}

unsafe extern "C" fn get_params<const I: usize>(params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    let mut asked = unsafe { Requests::new(params) };
    alone(|| asked.answer(c"size", |p| p.size(MACS[I].fixed_len.unwrap_or_default())))
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |mac: &mut Context, _| {
            let mut asked = Requests::new(params);
            asked.answer(c"size", |p| p.size(mac.len()))?;
            asked.answer(c"block-size", |p| p.size(mac.block_len()))?;
            mac.tell_name(&mut asked)
        })
    }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |mac: &mut Context, instance| {
            let params = Params::new(params);
            let done = mac.set_all(instance, params);
            if params.get(c"key").is_some() {
                forget_traces();
            }
            done
        })
    }
}

extern "C" fn gettable_params(_: *mut c_void) -> *const RawParam {
    address(&GETTABLE)
}

extern "C" fn gettable_ctx_params(_: *mut c_void, _: *mut c_void) -> *const RawParam {
    address(&GETTABLE_CTX)
}

extern "C" fn settable_ctx_params<const I: usize>(_: *mut c_void, _: *mut c_void) -> *const RawParam {
    address(MACS[I].settable)
}
