//! The provider itself: how it is loaded, what it offers, what it says of itself.

use super::entry::{alone, instance, note_panics};
use super::libcrypto::Core;
use super::param::{Kind, Known, Requests, address};
use super::raw::{Algorithm, Dispatch, Item, RawParam, operation, provider_function};
use super::signature::SIGNATURES;
use super::{asym_cipher, cipher, digest, keymgmt, mac, signature, skeymgmt, store};
use crate::cipher::CIPHERS;
use crate::digest::DIGESTS;
use crate::failure::{Failure, OWN, OWN_REASONS};
use crate::home;
use crate::instance::{Instance, is_named};
use crate::key::KINDS;
use crate::mac::MACS;
use crate::names;
use crate::opaque::OPAQUES;
use crate::settings::{Names, Offer};
use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use sealane_guarded::Memory;
use sealane_sys::forks;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The provider's context: what it is, and the tables that libcrypto reads as long as it is loaded.
#[repr(C)]
struct Loaded {
    /// First, so that the address of one is that of the other.
    instance: Instance,
    digests: Box<[Algorithm]>,
    ciphers: Box<[Algorithm]>,
    macs: Box<[Algorithm]>,
    stores: Box<[Algorithm]>,
    keys: Box<[Algorithm]>,
    signatures: Box<[Algorithm]>,
    asym_ciphers: Box<[Algorithm]>,
    opaques: Box<[Algorithm]>,
}

/// The properties of all that programs may prefer.
const PROPERTIES: &CStr = c"provider=sealane";
/// The properties of keys: a program that prefers this provider goes on to make keys with another one, and to read files
/// (`instance::no_keys`). A key that our store has loaded stays with us whatever the properties say.
const KEY_PROPERTIES: &CStr = c"provider=sealane-keys";

/// The algorithms that are offered, as a table for libcrypto.
fn offered<T>(
    rows: &'static [T],
    names: fn(&T) -> &'static CStr,
    tables: &[&'static [Dispatch]],
    offer: &Offer,
    properties: &'static CStr,
) -> Box<[Algorithm]> {
    let all = rows.iter().map(names).zip(tables);
    all.filter(|(names, _)| offer.has(|name| is_named(names, name)))
        .map(|(names, functions)| Algorithm {
            names: names.as_ptr(),
            properties: properties.as_ptr(),
            implementation: functions.as_ptr(),
            description: ptr::null(),
        })
        .chain([Algorithm::END])
        .collect()
}

/// The entry point by which libcrypto loads the provider.
///
/// # Safety
/// The contract of `ffi`: `handle` and `table` are libcrypto's, `out` and `context` are writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn OSSL_provider_init(
    handle: *const c_void,
    table: *const Dispatch,
    out: *mut *const Dispatch,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let core = unsafe { Core::new(handle, table) };
    note_panics();
    // The first look at it makes a page, for which a program that is confined later may have no right.
    let _ = forks::process();
    let Ok(Ok(loaded)) =
        catch_unwind(AssertUnwindSafe(|| load(core).map_err(|(core, failure)| refuse(&core, &failure))))
    else {
        return 0;
    };
    // SAFETY: by the caller's promise.
    unsafe {
        out.write(FUNCTIONS.as_ptr());
        context.write(Box::into_raw(loaded).cast());
    }
    1
}

/// Everything that needs a system call is done here, except for keys of the keeper: sandboxes kill programs that make one later.
fn load(core: Core) -> Result<Box<Loaded>, (Core, Failure)> {
    let known = Names {
        cipher: &|name| CIPHERS.iter().any(|row| is_named(row.names, name)),
        digest: &|name| DIGESTS.iter().any(|row| is_named(row.names, name)),
        mac: &|name| MACS.iter().any(|row| is_named(row.names, name)),
    };
    let instance = Instance::new(core, &known)?;
    let settings = instance.settings();
    let digests = offered(&DIGESTS, |row| row.names, &digest::TABLES, &settings.digests, PROPERTIES);
    let ciphers = offered(&CIPHERS, |row| row.names, &cipher::TABLES, &settings.ciphers, PROPERTIES);
    let macs = offered(&MACS, |row| row.names, &mac::TABLES, &settings.macs, PROPERTIES);
    // The store says why there are no keys.
    let stores = offered(&[c"sealane"], |names| names, &[&store::TABLE], &settings.stores, PROPERTIES);
    let none = Offer::NONE;
    let keys_of = |offer| if instance.has_keys() { offer } else { &none };
    let keys = offered(&KINDS, |row| row.1, &keymgmt::TABLES, keys_of(&settings.keys), KEY_PROPERTIES);
    let (offer, tables) = (keys_of(&settings.signatures), &signature::TABLES);
    let signatures = offered(&SIGNATURES, |row| row.1, tables, offer, KEY_PROPERTIES);
    let (offer, tables) = (keys_of(&settings.asym_ciphers), &[asym_cipher::TABLE.as_slice()]);
    let asym_ciphers = offered(&[names::RSA], |names| names, tables, offer, KEY_PROPERTIES);
    let offer = if instance.has_opaque_keys() { &settings.opaques } else { &none };
    let opaques = offered(&OPAQUES, |row| row.names, &skeymgmt::TABLES, offer, PROPERTIES);
    Ok(Box::new(Loaded { instance, digests, ciphers, macs, stores, keys, signatures, asym_ciphers, opaques }))
}

/// Says why the provider is not loaded: in the queue of errors, and where OpenSSL would drop that, on standard error too.
///
/// OpenSSL drops it where the configuration activates the provider (`provider_conf_load` takes a failed activation for a
/// success, whatever `config_diagnostics` says). The program would go on without us, and nobody would know.
fn refuse(core: &Core, failure: &Failure) {
    core.raise(failure);
    if core.setting(c"activate").is_some() {
        // Nobody is left to tell if this fails too.
        let _ = writeln!(std::io::stderr(), "{} (the provider is not loaded)", failure.text);
    }
}

static FUNCTIONS: [Dispatch; 6] = [
    Dispatch::new(provider_function::TEARDOWN, teardown as *const ()),
    Dispatch::new(provider_function::GETTABLE_PARAMS, gettable_params as *const ()),
    Dispatch::new(provider_function::GET_PARAMS, get_params as *const ()),
    Dispatch::new(provider_function::QUERY_OPERATION, query_operation as *const ()),
    Dispatch::new(provider_function::GET_REASON_STRINGS, get_reason_strings as *const ()),
    Dispatch::END,
];

static REASONS: [Item; OWN_REASONS.len() + 1] = {
    let mut items = [Item::END; OWN_REASONS.len() + 1];
    let mut i = 0;
    while i < OWN_REASONS.len() {
        let (reason, text) = OWN_REASONS[i];
        items[i] = Item { id: reason as u32 & !OWN, text: text.as_ptr() };
        i += 1;
    }
    items
};

static GETTABLE: [Known; 8] = [
    Known::new(c"name", Kind::TextPointer),
    Known::new(c"version", Kind::TextPointer),
    Known::new(c"buildinfo", Kind::TextPointer),
    Known::new(c"status", Kind::Int),
    Known::new(c"contexts", Kind::Size),
    Known::new(c"guarded-memory", Kind::Size),
    Known::new(c"guarded-memory-used", Kind::Size),
    Known::END,
];

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

unsafe extern "C" fn teardown(context: *mut c_void) {
    if !context.is_null() {
        // There is nobody left to tell of a panic.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the provider is unloaded: `OSSL_provider_init` made it of a box, and libcrypto has freed the contexts of
            // algorithms before, but for those that were put aside.
            unsafe {
                if let Some(instance) = instance(context) {
                    digest::free_spares(instance);
                }
                drop(Box::from_raw(context.cast::<Loaded>()));
            }
        }));
    }
}

extern "C" fn gettable_params(_: *mut c_void) -> *const RawParam {
    address(&GETTABLE)
}

extern "C" fn get_reason_strings(_: *mut c_void) -> *const Item {
    REASONS.as_ptr()
}

unsafe extern "C" fn get_params(context: *mut c_void, params: *mut RawParam) -> c_int {
    // SAFETY: the contract of `ffi`.
    let (provider, mut asked) = unsafe { (instance(context), Requests::new(params)) };
    let Some(provider) = provider else { return 0 };
    alone(|| {
        asked.answer(c"name", |p| p.provider_text(c"Sealane provider"))?;
        asked.answer(c"version", |p| p.provider_text(VERSION))?;
        asked.answer(c"buildinfo", |p| p.provider_text(provider.build_info()))?;
        asked.answer(c"status", |p| p.int(1))?;
        asked.answer(c"contexts", |p| p.size(provider.contexts()))?;
        asked.answer(c"guarded-memory", |p| p.size(home::memory().map_or(0, Memory::len)))?;
        asked.answer(c"guarded-memory-used", |p| p.size(home::memory().map_or(0, Memory::used)))
    })
}

unsafe extern "C" fn query_operation(context: *mut c_void, id: c_int, no_cache: *mut c_int) -> *const Algorithm {
    if !no_cache.is_null() {
        // SAFETY: the contract of `ffi`.
        unsafe { no_cache.write(0) };
    }
    // SAFETY: the contract of `ffi`.
    let Some(loaded) = (unsafe { context.cast::<Loaded>().as_ref() }) else { return ptr::null() };
    match id {
        operation::DIGEST => loaded.digests.as_ptr(),
        operation::CIPHER => loaded.ciphers.as_ptr(),
        operation::MAC => loaded.macs.as_ptr(),
        operation::STORE => loaded.stores.as_ptr(),
        operation::KEYMGMT => loaded.keys.as_ptr(),
        operation::SIGNATURE => loaded.signatures.as_ptr(),
        operation::ASYM_CIPHER => loaded.asym_ciphers.as_ptr(),
        // The number has no meaning before.
        operation::SKEYMGMT if loaded.instance.has_opaque_keys() => loaded.opaques.as_ptr(),
        _ => ptr::null(),
    }
}
