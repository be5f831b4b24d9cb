//! The functions of the store: `sealane://NAME` is a key of the keeper.

use super::entry::{context_mut, create, free, guarded, inner, on};
use super::param::{Kind, Known, Params, Value, address, with_list};
use super::raw::{Callback, Dispatch, OCTET_STRING, RawParam, UNMODIFIED};
use crate::failure::{Failure, Reason};
use crate::key::{Key, Selection};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use sealane_keeper_client::uri::Uri;

/// The functions.
pub(super) static TABLE: [Dispatch; 7] = [
    Dispatch::new(1, open as *const ()),
    Dispatch::new(3, settable_ctx_params as *const ()),
    Dispatch::new(4, set_ctx_params as *const ()),
    Dispatch::new(5, load as *const ()),
    Dispatch::new(6, eof as *const ()),
    Dispatch::new(7, close as *const ()),
    Dispatch::END,
];

static SETTABLE: [Known; 3] = [Known::new(c"expect", Kind::Int), Known::new(c"properties", Kind::Text), Known::END];

/// `OSSL_OBJECT_PKEY`.
const OBJECT_PKEY: i32 = 2;
/// The kinds of objects that a caller may expect (`OSSL_STORE_INFO_*`).
const EXPECT_PUBKEY: i32 = 3;
const EXPECT_PKEY: i32 = 4;

/// An open name. It has one object, until that is taken.
struct Loader(Option<Key>);

unsafe extern "C" fn open(provider: *mut c_void, uri: *const c_char) -> *mut c_void {
    if uri.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the contract of `ffi`; the name is a string with a terminator.
    unsafe {
        create(provider, |instance| {
            let text = CStr::from_ptr(uri).to_str().map_err(|_| Reason::InvalidUri)?;
            let uri = Uri::parse(text)?;
            instance.check_keys()?;
            Ok(Loader(Some(Key::of_keeper(&uri, instance)?)))
        })
    }
}

unsafe extern "C" fn close(context: *mut c_void) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { free::<Loader>(context) };
    1
}

extern "C" fn settable_ctx_params(_: *mut c_void) -> *const RawParam {
    address(&SETTABLE)
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe {
        on(context, |loader: &mut Loader, _| {
            match Params::new(params).get(c"expect").map(|expect| expect.int()).transpose()? {
                None | Some(0 | EXPECT_PKEY) => {}
                // The public part alone.
                Some(EXPECT_PUBKEY) => loader.0 = loader.0.take().map(|key| key.duplicate(Selection(2))),
                Some(_) => loader.0 = None,
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn eof(context: *mut c_void) -> c_int {
    // SAFETY: the contract of `ffi`.
    unsafe { inner::<Loader>(context) }.is_none_or(|loader| loader.0.is_none()).into()
}

unsafe extern "C" fn load(
    context: *mut c_void,
    callback: Option<Callback>,
    argument: *mut c_void,
    _: *const (),
    _: *mut c_void,
) -> c_int {
    // SAFETY: the contract of `ffi`.
    let Some(context) = (unsafe { context_mut::<Loader>(context) }) else { return 0 };
    let instance = ptr::from_ref(context.instance());
    let key = context.inner.0.take();
    let done = guarded(context.instance().core(), || {
        let (key, callback) = key.zip(callback).ok_or(Failure::SILENT)?;
        let data_type = key.kind.data_type();
        // SAFETY: the instance is the provider's context.
        let mut raw = unsafe { create(instance.cast_mut().cast(), |_| Ok(key)) };
        if raw.is_null() {
            return Err(Failure::SILENT);
        }
        let place = ptr::from_mut(&mut raw);
        // SAFETY: the list has its end, and lives as long as the call; so does the place of the pointer, which `load` of the keys
        // takes.
        let done = unsafe { pass(place, data_type, callback, argument) };
        // SAFETY: the key was made above, and nobody has taken it, or it is null.
        unsafe { free::<Key>(place.read()) };
        Ok(done)
    });
    done.unwrap_or_default()
}

/// Passes a reference to a key on.
///
/// # Safety
/// `place` has a pointer to a key; `callback` and `argument` are libcrypto's.
unsafe fn pass(place: *mut *mut c_void, data_type: &'static CStr, callback: Callback, argument: *mut c_void) -> c_int {
    let mut values = [(c"type", Value::Int(OBJECT_PKEY)), (c"data-type", Value::Text(data_type))];
    with_list(&mut values, |list| {
        // The reference is no value of bytes: whoever takes the key writes the place.
        let reference = RawParam {
            key: c"reference".as_ptr(),
            data_type: OCTET_STRING,
            data: place.cast(),
            data_size: size_of::<*mut c_void>(),
            return_size: UNMODIFIED,
        };
        // SAFETY: `with_list` gives two entries and the end.
        let list = unsafe { [list.read(), list.add(1).read(), reference, list.add(2).read()] };
        // SAFETY: by the caller's promise; the list has its end.
        unsafe { callback(list.as_ptr(), argument) }
    })
}
