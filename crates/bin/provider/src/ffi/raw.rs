//! The structures and numbers of OpenSSL's provider interface (`openssl/core.h`, `openssl/core_dispatch.h`).

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;

/// `OSSL_DISPATCH`: a function under its number. A table of them ends with number 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Dispatch {
    pub(super) id: c_int,
    pub(super) function: *const (),
}

// SAFETY: tables hold addresses of functions only, which any thread may read.
unsafe impl Sync for Dispatch {}

impl Dispatch {
    pub(super) const END: Dispatch = Dispatch { id: 0, function: ptr::null() };

    pub(super) const fn new(id: c_int, function: *const ()) -> Self {
        Dispatch { id, function }
    }
}

/// The tables of functions of the algorithms with these numbers.
macro_rules! tables {
    ($functions:ident; $($i:literal)*) => { [$($functions::<$i>::TABLE),*] };
}
pub(super) use tables;

/// `OSSL_ALGORITHM`: names, properties and functions of an algorithm. A table of them ends with null names.
#[repr(C)]
pub(super) struct Algorithm {
    pub(super) names: *const c_char,
    pub(super) properties: *const c_char,
    pub(super) implementation: *const Dispatch,
    pub(super) description: *const c_char,
}

impl Algorithm {
    pub(super) const END: Algorithm = Algorithm {
        names: ptr::null(),
        properties: ptr::null(),
        implementation: ptr::null(),
        description: ptr::null(),
    };
}

/// `OSSL_ITEM`: a text under a number. A list of them ends with number 0.
#[repr(C)]
pub(super) struct Item {
    pub(super) id: c_uint,
    pub(super) text: *const c_char,
}

// SAFETY: lists point to static text only, and nobody writes it.
unsafe impl Sync for Item {}

impl Item {
    pub(super) const END: Item = Item { id: 0, text: ptr::null() };
}

/// `OSSL_PARAM`: a value that is passed in or asked for. A list of them ends with a null key.
#[repr(C)]
pub(super) struct RawParam {
    pub(super) key: *const c_char,
    pub(super) data_type: c_uint,
    pub(super) data: *mut c_void,
    pub(super) data_size: usize,
    pub(super) return_size: usize,
}

/// The return size of a value that nobody has set.
pub(super) const UNMODIFIED: usize = usize::MAX;

pub(super) const INTEGER: c_uint = 1;
pub(super) const UNSIGNED_INTEGER: c_uint = 2;
pub(super) const UTF8_STRING: c_uint = 4;
pub(super) const OCTET_STRING: c_uint = 5;
pub(super) const UTF8_PTR: c_uint = 6;
pub(super) const OCTET_PTR: c_uint = 7;

/// Numbers of the core's functions.
pub(super) mod core_function {
    use core::ffi::c_int;

    pub(in crate::ffi) const GET_PARAMS: c_int = 2;
    pub(in crate::ffi) const NEW_ERROR: c_int = 5;
    pub(in crate::ffi) const SET_ERROR_DEBUG: c_int = 6;
    pub(in crate::ffi) const VSET_ERROR: c_int = 7;
    pub(in crate::ffi) const REGISTER_CHILD_CB: c_int = 105;
    pub(in crate::ffi) const DEREGISTER_CHILD_CB: c_int = 106;
    pub(in crate::ffi) const PROVIDER_NAME: c_int = 107;
}

/// Numbers of the provider's own functions.
pub(super) mod provider_function {
    use core::ffi::c_int;

    pub(in crate::ffi) const TEARDOWN: c_int = 1024;
    pub(in crate::ffi) const GETTABLE_PARAMS: c_int = 1025;
    pub(in crate::ffi) const GET_PARAMS: c_int = 1026;
    pub(in crate::ffi) const QUERY_OPERATION: c_int = 1027;
    pub(in crate::ffi) const GET_REASON_STRINGS: c_int = 1029;
}

/// Numbers of operations.
pub(super) mod operation {
    use core::ffi::c_int;

    pub(in crate::ffi) const DIGEST: c_int = 1;
    pub(in crate::ffi) const CIPHER: c_int = 2;
    pub(in crate::ffi) const MAC: c_int = 3;
    pub(in crate::ffi) const KEYMGMT: c_int = 10;
    pub(in crate::ffi) const KEYEXCH: c_int = 11;
    pub(in crate::ffi) const SIGNATURE: c_int = 12;
    pub(in crate::ffi) const ASYM_CIPHER: c_int = 13;
    pub(in crate::ffi) const SKEYMGMT: c_int = 15;
    pub(in crate::ffi) const STORE: c_int = 22;
}

/// `OSSL_FUNC_core_get_params_fn`.
pub(super) type CoreGetParams = unsafe extern "C" fn(*const c_void, *mut RawParam) -> c_int;
/// `OSSL_FUNC_core_new_error_fn`.
pub(super) type CoreNewError = unsafe extern "C" fn(*const c_void);
/// `OSSL_FUNC_core_set_error_debug_fn`.
pub(super) type CoreSetErrorDebug = unsafe extern "C" fn(*const c_void, *const c_char, c_int, *const c_char);
/// `OSSL_FUNC_core_vset_error_fn`; the last argument is a `va_list`.
pub(super) type CoreVsetError = unsafe extern "C" fn(*const c_void, u32, *const c_char, *mut c_void);
/// `OSSL_CALLBACK`.
pub(super) type Callback = unsafe extern "C" fn(*const RawParam, *mut c_void) -> c_int;
/// `OSSL_FUNC_provider_register_child_cb_fn`: it calls the first function for each provider that is active.
pub(super) type RegisterChildCb =
    unsafe extern "C" fn(*const c_void, SeeProvider, SeeProvider, SeeProperties, *mut c_void) -> c_int;
/// A function that is called with a provider.
pub(super) type SeeProvider = unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int;
/// A function that is called with properties.
pub(super) type SeeProperties = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;
/// `OSSL_FUNC_provider_deregister_child_cb_fn`.
pub(super) type DeregisterChildCb = unsafe extern "C" fn(*const c_void);
/// `OSSL_FUNC_provider_name_fn`.
pub(super) type ProviderName = unsafe extern "C" fn(*const c_void) -> *const c_char;
