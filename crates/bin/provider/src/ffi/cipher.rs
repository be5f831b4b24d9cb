//! The functions of ciphers.

use super::call::Call;
use super::entry::{alone, bytes, create, duplicate_keyed, free, inner, on, on_keyed, quick, tell};
use super::keyed::Named;
use super::param::{Kind, Known, Params, Requests, address};
use super::raw::{Dispatch, RawParam};
use crate::cipher::{CIPHERS, Cipher, MAX_PIPES, PipeCalls};
use crate::failure::{Done, Failure};
use crate::given::no_name_beside_bytes;
use crate::home::{explained, forget_traces};
use crate::instance::Instance;
use crate::opaque::Opaque;
use core::ffi::{c_int, c_void};
use core::ptr;
use sealane_crypto::skcipher::Direction;

/// The functions of each row of [`CIPHERS`].
pub(super) const TABLES: [&[Dispatch]; CIPHERS.len()] =
    super::raw::tables!(Functions; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21);

/// A context behind a pointer.
type Context = Named<dyn Cipher>;

/// The functions of cipher `I`.
struct Functions<const I: usize>;

impl<const I: usize> Functions<I> {
    const TABLE: &'static [Dispatch] = &[
        Dispatch::new(1, newctx::<I> as *const ()),
        Dispatch::new(2, init::<true> as *const ()),
        Dispatch::new(3, init::<false> as *const ()),
        Dispatch::new(4, update as *const ()),
        Dispatch::new(5, last as *const ()),
        Dispatch::new(6, cipher as *const ()),
        Dispatch::new(7, freectx as *const ()),
        Dispatch::new(8, dupctx as *const ()),
        Dispatch::new(9, get_params::<I> as *const ()),
        Dispatch::new(10, get_ctx_params as *const ()),
        Dispatch::new(11, set_ctx_params as *const ()),
        Dispatch::new(12, gettable_params as *const ()),
        Dispatch::new(13, gettable_ctx_params::<I> as *const ()),
        Dispatch::new(14, settable_ctx_params::<I> as *const ()),
        // OpenSSL 3.5 and later.
        Dispatch::new(19, skey_init::<true> as *const ()),
        Dispatch::new(20, skey_init::<false> as *const ()),
        // Only the ciphers that have pipelines say so; for the others the table ends here.
        if CIPHERS[I].pipes { Dispatch::new(15, pipeline_init::<true> as *const ()) } else { Dispatch::END },
        Dispatch::new(16, pipeline_init::<false> as *const ()),
        Dispatch::new(17, pipeline_update as *const ()),
        Dispatch::new(18, pipeline_last as *const ()),
        Dispatch::END,
    ];
}

static GETTABLE: [Known; 10] = [
    Known::new(c"mode", Kind::Uint),
    Known::new(c"keylen", Kind::Size),
    Known::new(c"ivlen", Kind::Size),
    Known::new(c"blocksize", Kind::Size),
    Known::new(c"aead", Kind::Int),
    Known::new(c"custom-iv", Kind::Int),
    Known::new(c"cts", Kind::Int),
    Known::new(c"tls-multi", Kind::Int),
    Known::new(c"has-randkey", Kind::Int),
    Known::END,
];

unsafe extern "C" fn newctx<const I: usize>(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { create::<Context>(provider, |_| Ok(Named::new((CIPHERS[I].new)(&CIPHERS[I])))) }
}

unsafe extern "C" fn freectx(context: *mut c_void) {
    // SAFETY: the contract of `ffi`.
    unsafe { free::<Context>(context) }
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of `ffi`.
    unsafe { duplicate_keyed::<Context>(context) }
}

/// Starts something in a direction, and takes the parameters that came with it.
///
/// # Safety
/// The contract of `ffi`.
unsafe fn begin<const ENCRYPTS: bool>(
    context: *mut c_void,
    has_key: bool,
    params: *const RawParam,
    f: impl FnOnce(&mut Context, &Instance, Direction) -> Done,
) -> c_int {
    let dir = if ENCRYPTS { Direction::Encrypt } else { Direction::Decrypt };
    // SAFETY: by the caller's promise.
    unsafe {
        on(context, |cipher: &mut Context, instance| {
            let params = Params::new(params);
            if has_key {
                no_name_beside_bytes(params)?;
            }
            let done = f(cipher, instance, dir);
            if has_key {
                forget_traces();
            }
            done?;
            if params.is_empty() { Ok(()) } else { cipher.set_all(instance, params) }
        })
    }
}

/// Starts a text, to encrypt it or to decrypt it.
unsafe extern "C" fn init<const ENCRYPTS: bool>(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    iv: *const u8,
    iv_len: usize,
    params: *const RawParam,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        begin::<ENCRYPTS>(context, !key.is_null(), params, |cipher, instance, dir| {
            if !key.is_null() {
                cipher.forget_name();
            }
            cipher.init(instance, dir, bytes(key, key_len), bytes(iv, iv_len))
        })
    }
}

/// Starts a text under an opaque key, or the one of before.
unsafe extern "C" fn skey_init<const ENCRYPTS: bool>(
    context: *mut c_void,
    key: *mut c_void,
    iv: *const u8,
    iv_len: usize,
    params: *const RawParam,
) -> c_int {
    // SAFETY: the contract of `ffi`: a key is one that our own functions have made.
    unsafe {
        begin::<ENCRYPTS>(context, !key.is_null(), params, |cipher, instance, dir| {
            cipher.init(instance, dir, None, bytes(iv, iv_len))?;
            match inner::<Opaque>(key) {
                Some(key) => cipher.take_opaque(key, |cipher, key| cipher.take_key(instance, key)),
                None => Ok(()),
            }
        })
    }
}

unsafe extern "C" fn update(
    context: *mut c_void,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    input: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        if context.is_null() {
            return 0;
        }
        let mut call = Call::new(input, len, out, room);
        match quick(context, |cipher: &mut Context| cipher.quick(&mut call)) {
            Some(true) => {
                tell(out_len, len);
                return 1;
            }
            Some(false) => {}
            None => return 0,
        }
        on_keyed(context, |cipher: &mut Context, instance| {
            // Made anew: a call that moves waits for its own words (`entry::guarded`).
            tell(out_len, cipher.update(instance, Call::new(input, len, out, room))?);
            Ok(())
        })
    }
}

unsafe extern "C" fn last(context: *mut c_void, out: *mut u8, out_len: *mut usize, room: usize) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on_keyed(context, |cipher: &mut Context, instance| {
            tell(out_len, cipher.finish(instance, Call::new(ptr::null(), 0, out, room))?);
            Ok(())
        })
    }
}

unsafe extern "C" fn cipher(
    context: *mut c_void,
    out: *mut u8,
    out_len: *mut usize,
    room: usize,
    input: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on_keyed(context, |cipher: &mut Context, instance| {
            tell(out_len, cipher.cipher(instance, Call::new(input, len, out, room))?);
            Ok(())
        })
    }
}

/// Starts a pipeline: `ivs` has an IV for each pipe.
unsafe extern "C" fn pipeline_init<const ENCRYPTS: bool>(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    pipes: usize,
    ivs: *const *const u8,
    iv_len: usize,
    params: *const RawParam,
) -> c_int {
    // SAFETY: the contract of `ffi`: the array has a pointer for each pipe.
    unsafe {
        begin::<ENCRYPTS>(context, !key.is_null(), params, |cipher, instance, dir| {
            let mut list = [None; MAX_PIPES];
            let list = list.get_mut(..pipes).ok_or(Failure::SILENT)?;
            if !ivs.is_null() {
                for (i, iv) in list.iter_mut().enumerate() {
                    *iv = bytes(*ivs.add(i), iv_len);
                }
            }
            if !key.is_null() {
                cipher.forget_name();
            }
            cipher.start_pipes(instance, dir, bytes(key, key_len), list)
        })
    }
}

unsafe extern "C" fn pipeline_update(
    context: *mut c_void,
    pipes: usize,
    out: *const *mut u8,
    out_len: *mut usize,
    room: *const usize,
    input: *const *const u8,
    len: *const usize,
) -> c_int {
    // SAFETY: the contract of `ffi`: the arrays that are there have an entry for each pipe, and no output is used by others.
    unsafe {
        on_keyed(context, |cipher: &mut Context, instance| {
            if pipes > MAX_PIPES || out_len.is_null() || input.is_null() || len.is_null() {
                return Err(Failure::SILENT);
            }
            let calls = (0..pipes).map(|i| {
                let to = if out.is_null() { ptr::null_mut() } else { *out.add(i) };
                // There is no room where the caller says nothing of it, and associated data needs none.
                let room = if room.is_null() { 0 } else { *room.add(i) };
                Call::new(*input.add(i), *len.add(i), to, room)
            });
            let calls: PipeCalls<'_> = calls.collect();
            cipher.update_pipes(instance, calls)?;
            for i in 0..pipes {
                out_len.add(i).write(*len.add(i));
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn pipeline_last(
    context: *mut c_void,
    pipes: usize,
    _out: *const *mut u8,
    out_len: *mut usize,
    _room: *const usize,
) -> c_int {
    // SAFETY: the contract of `ffi`, as above.
    unsafe {
        on_keyed(context, |cipher: &mut Context, instance| {
            if out_len.is_null() {
                return Err(Failure::SILENT);
            }
            cipher.finish_pipes(instance)?;
            for i in 0..pipes {
                out_len.add(i).write(0);
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn get_params<const I: usize>(params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    let mut asked = unsafe { Requests::new(params) };
    let row = &CIPHERS[I];
    alone(|| {
        asked.answer(c"mode", |p| p.uint(row.mode))?;
        asked.answer(c"keylen", |p| p.size(row.key_len))?;
        asked.answer(c"ivlen", |p| p.size(row.iv_len))?;
        asked.answer(c"blocksize", |p| p.size(row.block_len))?;
        asked.answer(c"aead", |p| p.int(row.aead.into()))?;
        asked.answer(c"custom-iv", |p| p.int(row.custom_iv.into()))?;
        asked.answer(c"cts", |p| p.int(row.cts.into()))?;
        asked.answer(c"tls-multi", |p| p.int(0))?;
        asked.answer(c"has-randkey", |p| p.int(row.random_key.into()))
    })
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |cipher: &mut Context, instance| {
            let mut asked = Requests::new(params);
            let done = cipher.get(instance, &mut asked).and_then(|()| cipher.tell_name(&mut asked));
            done.map_err(|failure| explained(cipher.owner(), failure))
        })
    }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |cipher: &mut Context, instance| {
            cipher.set_all(instance, Params::new(params)).map_err(|failure| explained(cipher.owner(), failure))
        })
    }
}

extern "C" fn gettable_params(_: *mut c_void) -> *const RawParam {
    address(&GETTABLE)
}

extern "C" fn gettable_ctx_params<const I: usize>(_: *mut c_void, _: *mut c_void) -> *const RawParam {
    address(CIPHERS[I].gettable)
}

extern "C" fn settable_ctx_params<const I: usize>(_: *mut c_void, _: *mut c_void) -> *const RawParam {
    address(CIPHERS[I].settable)
}
