//! The functions that libcrypto gives a provider.

use super::raw::{
    CoreGetParams, CoreNewError, CoreSetErrorDebug, CoreVsetError, DeregisterChildCb, Dispatch, ProviderName, RawParam,
    RegisterChildCb, UNMODIFIED, UTF8_PTR, core_function,
};
use crate::failure::{Failure, OWN};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// The number of the library under which libcrypto's own providers raise their errors (`ERR_LIB_PROV`), and where it stands
/// in an error code.
const LIB_PROV: u32 = 57 << 23;

/// The providers that libcrypto has told of.
struct Seen<'a> {
    core: &'a Core,
    /// Other threads may activate providers meanwhile.
    names: Mutex<Vec<String>>,
}

unsafe extern "C" fn see(provider: *const c_void, seen: *mut c_void) -> c_int {
    // SAFETY: the argument of `Core::active`, and one of libcrypto's providers. libcrypto has a lock meanwhile: nothing of it is
    // called but what gives a name.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe {
        let seen = &*seen.cast::<Seen<'_>>();
        if let Ok(mut names) = seen.names.lock() {
            names.extend(seen.core.name_of(provider));
        }
    }));
    1
}

extern "C" fn see_no_more(_: *const c_void, _: *mut c_void) -> c_int {
    1
}

extern "C" fn see_properties(_: *const c_char, _: *mut c_void) -> c_int {
    1
}

/// libcrypto, as this load of the provider sees it.
pub(crate) struct Core {
    handle: *const c_void,
    get_params: Option<CoreGetParams>,
    new_error: Option<CoreNewError>,
    set_error_debug: Option<CoreSetErrorDebug>,
    vset_error: Option<CoreVsetError>,
    register_child_cb: Option<RegisterChildCb>,
    deregister_child_cb: Option<DeregisterChildCb>,
    provider_name: Option<ProviderName>,
}

// SAFETY: the handle is only given back to libcrypto, whose functions any thread may call.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

impl Core {
    /// # Safety
    /// `table` is the table of functions that `OSSL_provider_init` was given, and `handle` its handle.
    pub(super) unsafe fn new(handle: *const c_void, table: *const Dispatch) -> Self {
        let mut core = Core {
            handle,
            get_params: None,
            new_error: None,
            set_error_debug: None,
            vset_error: None,
            register_child_cb: None,
            deregister_child_cb: None,
            provider_name: None,
        };
        let mut at = table;
        // SAFETY: the table ends with number 0, and each number says which type its function has.
        unsafe {
            while !at.is_null() && (*at).id != 0 {
                let function = (*at).function;
                match (*at).id {
                    core_function::GET_PARAMS => {
                        core.get_params = transmute::<*const (), Option<CoreGetParams>>(function)
                    }
                    core_function::NEW_ERROR => core.new_error = transmute::<*const (), Option<CoreNewError>>(function),
                    core_function::SET_ERROR_DEBUG => {
                        core.set_error_debug = transmute::<*const (), Option<CoreSetErrorDebug>>(function);
                    }
                    core_function::VSET_ERROR => {
                        core.vset_error = transmute::<*const (), Option<CoreVsetError>>(function)
                    }
                    core_function::REGISTER_CHILD_CB => {
                        core.register_child_cb = transmute::<*const (), Option<RegisterChildCb>>(function);
                    }
                    core_function::DEREGISTER_CHILD_CB => {
                        core.deregister_child_cb = transmute::<*const (), Option<DeregisterChildCb>>(function);
                    }
                    core_function::PROVIDER_NAME => {
                        core.provider_name = transmute::<*const (), Option<ProviderName>>(function);
                    }
                    _ => {}
                }
                at = at.add(1);
            }
        }
        core
    }

    /// The value of a key in the provider's section of the configuration.
    pub(crate) fn setting(&self, key: &CStr) -> Option<String> {
        let get_params = self.get_params?;
        let mut value: *const c_char = ptr::null();
        let mut list = [
            RawParam {
                key: key.as_ptr(),
                data_type: UTF8_PTR,
                data: (&raw mut value).cast(),
                data_size: 0,
                return_size: UNMODIFIED,
            },
            RawParam { key: ptr::null(), data_type: 0, data: ptr::null_mut(), data_size: 0, return_size: 0 },
        ];
        // SAFETY: a list with its end; the place of the pointer lives until the call has returned.
        let ok = unsafe { get_params(self.handle, list.as_mut_ptr()) };
        if ok != 1 || value.is_null() {
            return None;
        }
        // SAFETY: libcrypto keeps the text, with its terminator, for as long as the provider is loaded.
        Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    /// The name under which this provider is loaded.
    pub(crate) fn own_name(&self) -> Option<String> {
        // SAFETY: the handle is ours.
        unsafe { self.name_of(self.handle) }
    }

    /// # Safety
    /// `provider` is the handle of a provider.
    unsafe fn name_of(&self, provider: *const c_void) -> Option<String> {
        // SAFETY: by the caller's promise.
        let name = unsafe { self.provider_name?(provider) };
        // SAFETY: a name has its terminator, and is copied while libcrypto keeps it.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// The names of the providers that are active.
    pub(crate) fn active(&self) -> Vec<String> {
        let (Some(register), Some(deregister)) = (self.register_child_cb, self.deregister_child_cb) else {
            return Vec::new();
        };
        let seen = Seen { core: self, names: Mutex::new(Vec::new()) };
        let argument = ptr::from_ref(&seen).cast_mut().cast();
        // SAFETY: libcrypto calls the functions with its providers and this argument, which is only read, and forgets them in the
        // second call.
        unsafe {
            if register(self.handle, see, see_no_more, see_properties, argument) == 1 {
                deregister(self.handle);
            }
        }
        seen.names.into_inner().unwrap_or_default()
    }

    /// Puts a failure into the queue of errors.
    pub(super) fn raise(&self, failure: &Failure) {
        let (Some(reason), Some(new_error), Some(vset_error)) = (failure.reason, self.new_error, self.vset_error)
        else {
            return;
        };
        // A code without a library stands under the one that libcrypto has given this provider.
        let code = if reason as u32 & OWN == 0 { LIB_PROV | reason as u32 } else { reason as u32 & !OWN };
        // The text is a format, and it asks for no argument.
        let text = CString::new(failure.text.replace('%', "%%")).unwrap_or_default();
        let format = if text.is_empty() { ptr::null() } else { text.as_ptr() };
        // An empty `va_list`, which is passed by address and has 32 bytes at most. Not null: OpenSSL before 3.6 never looks at
        // it where the format asks for nothing, but later ones hand it to the C library, which copies it first.
        let mut arguments = [0u64; 4];
        // SAFETY: the handle is ours; the strings end with a terminator, and the format takes nothing of the list.
        unsafe {
            new_error(self.handle);
            if let Some(set_error_debug) = self.set_error_debug {
                set_error_debug(self.handle, c"sealane".as_ptr(), 0, c"".as_ptr());
            }
            vset_error(self.handle, code, format, arguments.as_mut_ptr().cast());
        }
    }
}
