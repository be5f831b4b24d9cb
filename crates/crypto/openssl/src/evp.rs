//! The few functions of `libcrypto.so.3` that are used, and owning types for its objects.
#![allow(clippy::type_complexity, non_snake_case, reason = "the functions keep their C names")]

use libloading::Library as Dl;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::ptr;
use std::sync::OnceLock;

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) -> $ret:ty;)*) => {
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            _dl: Dl,
        }

        impl Library {
            fn open() -> Result<Library, String> {
                // SAFETY: loading libcrypto runs its constructors, which are made to be run in any program.
                let dl = unsafe { Dl::new("libcrypto.so.3") }.map_err(|e| e.to_string())?;
                $(
                    // SAFETY: the type is the prototype of this function in OpenSSL 3.0's headers.
                    let $name = *unsafe {
                        dl.get::<unsafe extern "C" fn($($arg),*) -> $ret>(concat!(stringify!($name), "\0").as_bytes())
                    }.map_err(|e| e.to_string())?;
                )*
                Ok(Library { $($name,)* _dl: dl })
            }
        }
    };
}

functions! {
    OpenSSL_version: fn(c_int) -> *const c_char;
    EVP_MD_fetch: fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    EVP_Digest: fn(*const c_void, usize, *mut c_uchar, *mut u32, *const c_void, *mut c_void) -> c_int;
    EVP_MD_CTX_new: fn() -> *mut c_void;
    EVP_MD_CTX_free: fn(*mut c_void) -> ();
    EVP_DigestInit_ex: fn(*mut c_void, *const c_void, *mut c_void) -> c_int;
    EVP_DigestUpdate: fn(*mut c_void, *const c_void, usize) -> c_int;
    EVP_DigestFinal_ex: fn(*mut c_void, *mut c_uchar, *mut u32) -> c_int;
    EVP_MAC_fetch: fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    EVP_MAC_CTX_new: fn(*mut c_void) -> *mut c_void;
    EVP_MAC_CTX_free: fn(*mut c_void) -> ();
    EVP_MAC_init: fn(*mut c_void, *const c_uchar, usize, *const Param) -> c_int;
    EVP_MAC_update: fn(*mut c_void, *const c_uchar, usize) -> c_int;
    EVP_MAC_final: fn(*mut c_void, *mut c_uchar, *mut usize, usize) -> c_int;
    EVP_CIPHER_fetch: fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    EVP_CIPHER_CTX_new: fn() -> *mut c_void;
    EVP_CIPHER_CTX_free: fn(*mut c_void) -> ();
    EVP_CipherInit_ex: fn(*mut c_void, *const c_void, *mut c_void, *const c_uchar, *const c_uchar, c_int) -> c_int;
    EVP_CipherUpdate: fn(*mut c_void, *mut c_uchar, *mut c_int, *const c_uchar, c_int) -> c_int;
    EVP_CipherFinal_ex: fn(*mut c_void, *mut c_uchar, *mut c_int) -> c_int;
    EVP_CIPHER_CTX_ctrl: fn(*mut c_void, c_int, c_int, *mut c_void) -> c_int;
    EVP_CIPHER_CTX_set_padding: fn(*mut c_void, c_int) -> c_int;
    ERR_clear_error: fn() -> ();
}

/// `OSSL_PARAM` of OpenSSL 3.
#[repr(C)]
pub(crate) struct Param {
    key: *const c_char,
    data_type: u32,
    data: *mut c_void,
    data_size: usize,
    return_size: usize,
}

const OSSL_PARAM_UTF8_STRING: u32 = 4;

/// Opens the library at the first call. The error is the dynamic loader's message.
pub(crate) fn library() -> Result<&'static Library, &'static String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(Library::open).as_ref()
}

impl Library {
    pub(crate) fn version(&self) -> String {
        // SAFETY: OpenSSL_version(0) returns a static string.
        unsafe { CStr::from_ptr((self.OpenSSL_version)(0)) }.to_string_lossy().into_owned()
    }

    /// Fetches an algorithm of an implementation with these properties. It is never freed, because rows live as long as the process.
    pub(crate) fn fetch(&self, what: Fetch, name: &CStr, properties: Option<&CStr>) -> Option<Fetched> {
        let fetch = match what {
            Fetch::Digest => self.EVP_MD_fetch,
            Fetch::Mac => self.EVP_MAC_fetch,
            Fetch::Cipher => self.EVP_CIPHER_fetch,
        };
        let properties = properties.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: a NULL context and NULL properties mean the defaults; the others are C strings.
        let got = unsafe { fetch(ptr::null_mut(), name.as_ptr(), properties) };
        if got.is_null() {
            // SAFETY: takes no arguments.
            unsafe { (self.ERR_clear_error)() };
            return None;
        }
        Some(Fetched(got))
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Fetch {
    Digest,
    Mac,
    Cipher,
}

/// An `EVP_MD`, `EVP_MAC` or `EVP_CIPHER`: read-only after fetching.
#[derive(Clone, Copy)]
pub(crate) struct Fetched(*mut c_void);

// SAFETY: fetched methods are immutable and reference counted with atomics; OpenSSL shares them between threads.
unsafe impl Send for Fetched {}
// SAFETY: as above.
unsafe impl Sync for Fetched {}

/// A context of OpenSSL, which is freed when this is dropped.
pub(crate) struct Ctx {
    raw: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: a context may move between threads as long as one at a time uses it, and every method takes `&mut self`.
unsafe impl Send for Ctx {}
// SAFETY: nothing is reachable through a shared reference.
unsafe impl Sync for Ctx {}

impl Drop for Ctx {
    fn drop(&mut self) {
        // SAFETY: `raw` came from the matching constructor and is freed once.
        unsafe { (self.free)(self.raw) }
    }
}

/// Digests `data` at once.
pub(crate) fn digest(md: Fetched, data: &[&[u8]], out: &mut [u8]) -> bool {
    let Ok(lib) = library() else { return false };
    let mut full = [0u8; 64];
    let ok = if let [one] = data {
        let mut len = 0;
        // SAFETY: the pointers are valid for the given lengths and `full` holds the largest digest.
        let done = unsafe {
            (lib.EVP_Digest)(one.as_ptr().cast(), one.len(), full.as_mut_ptr(), &raw mut len, md.0, ptr::null_mut())
        };
        done == 1
    } else {
        let Some(mut state) = DigestCtx::new(md) else { return false };
        data.iter().for_each(|d| state.update(d));
        state.finish(&mut full)
    };
    out.copy_from_slice(&full[..out.len()]);
    ok
}

/// A running digest.
struct DigestCtx(Ctx);

impl DigestCtx {
    pub(crate) fn new(md: Fetched) -> Option<Self> {
        let lib = library().ok()?;
        // SAFETY: no arguments.
        let raw = unsafe { (lib.EVP_MD_CTX_new)() };
        let ctx = Ctx { raw, free: lib.EVP_MD_CTX_free };
        // SAFETY: context and method are live.
        let ok = !raw.is_null() && unsafe { (lib.EVP_DigestInit_ex)(raw, md.0, ptr::null_mut()) } == 1;
        ok.then_some(DigestCtx(ctx))
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        if let Ok(lib) = library() {
            // SAFETY: the context is live and the slice valid.
            unsafe { (lib.EVP_DigestUpdate)(self.0.raw, data.as_ptr().cast(), data.len()) };
        }
    }

    pub(crate) fn finish(&mut self, full: &mut [u8; 64]) -> bool {
        let mut len = 0;
        // SAFETY: the context is live and `full` holds the largest digest.
        library().is_ok_and(|lib| unsafe { (lib.EVP_DigestFinal_ex)(self.0.raw, full.as_mut_ptr(), &raw mut len) } == 1)
    }
}

/// A MAC context with its key set.
pub(crate) struct MacCtx(Ctx);

impl MacCtx {
    /// Makes a context. `param` is the name and the value of the MAC's parameter, such as ("digest", "SHA1") or
    /// ("cipher", "AES-128-CBC"), and `properties` those of the digest or cipher.
    pub(crate) fn new(mac: Fetched, param: (&CStr, &CStr), properties: Option<&CStr>, key: &[u8]) -> Option<Self> {
        let lib = library().ok()?;
        // SAFETY: the method is live.
        let raw = unsafe { (lib.EVP_MAC_CTX_new)(mac.0) };
        if raw.is_null() {
            return None;
        }
        let ctx = Ctx { raw, free: lib.EVP_MAC_CTX_free };
        let text = |(key, value): (&CStr, &CStr)| Param {
            key: key.as_ptr(),
            data_type: OSSL_PARAM_UTF8_STRING,
            data: value.as_ptr().cast_mut().cast(),
            data_size: value.to_bytes().len(),
            return_size: 0,
        };
        let end = Param { key: ptr::null(), data_type: 0, data: ptr::null_mut(), data_size: 0, return_size: 0 };
        let properties = properties.map(|value| text((c"properties", value)));
        let params: Vec<Param> = [text(param)].into_iter().chain(properties).chain([end]).collect();
        // SAFETY: key and parameters outlive the call, which copies them.
        let ok = unsafe { (lib.EVP_MAC_init)(raw, key.as_ptr(), key.len(), params.as_ptr()) } == 1;
        ok.then_some(MacCtx(ctx))
    }

    pub(crate) fn sign(&mut self, data: &[&[u8]], out: &mut [u8]) -> bool {
        let Ok(lib) = library() else { return false };
        let mut full = [0u8; 64];
        let mut len = 0;
        // SAFETY: the context is live; a NULL key restarts with the key that is set; `full` holds the largest tag.
        let ok = unsafe {
            (lib.EVP_MAC_init)(self.0.raw, ptr::null(), 0, ptr::null()) == 1
                && data.iter().all(|d| (lib.EVP_MAC_update)(self.0.raw, d.as_ptr(), d.len()) == 1)
                && (lib.EVP_MAC_final)(self.0.raw, full.as_mut_ptr(), &raw mut len, full.len()) == 1
        };
        out.copy_from_slice(&full[..out.len()]);
        ok
    }
}

/// A cipher context with its key set for one direction.
pub(crate) struct CipherCtx(Ctx);

pub(crate) const CTRL_AEAD_GET_TAG: c_int = 0x10;
pub(crate) const CTRL_AEAD_SET_TAG: c_int = 0x11;

impl CipherCtx {
    pub(crate) fn new(cipher: Fetched, encrypt: bool, key: &[u8]) -> Option<Self> {
        let lib = library().ok()?;
        // SAFETY: no arguments.
        let raw = unsafe { (lib.EVP_CIPHER_CTX_new)() };
        if raw.is_null() {
            return None;
        }
        let ctx = Ctx { raw, free: lib.EVP_CIPHER_CTX_free };
        // SAFETY: the key has the length of the fetched cipher; NULL leaves the IV for later.
        let ok = unsafe {
            (lib.EVP_CipherInit_ex)(raw, cipher.0, ptr::null_mut(), key.as_ptr(), ptr::null(), c_int::from(encrypt))
                == 1
                && (lib.EVP_CIPHER_CTX_set_padding)(raw, 0) == 1
        };
        ok.then_some(CipherCtx(ctx))
    }

    /// Sets the IV of the next text.
    pub(crate) fn iv(&mut self, iv: &[u8]) -> bool {
        let iv = if iv.is_empty() { ptr::null() } else { iv.as_ptr() };
        // SAFETY: the IV has the cipher's length; -1 keeps the direction.
        library().is_ok_and(|lib| unsafe {
            (lib.EVP_CipherInit_ex)(self.0.raw, ptr::null(), ptr::null_mut(), ptr::null(), iv, -1) == 1
        })
    }

    pub(crate) fn aad(&mut self, aad: &[u8]) -> bool {
        let mut n = 0;
        let Ok(len) = c_int::try_from(aad.len()) else { return false };
        // SAFETY: a NULL output marks associated data.
        library().is_ok_and(|lib| unsafe {
            (lib.EVP_CipherUpdate)(self.0.raw, ptr::null_mut(), &raw mut n, aad.as_ptr(), len) == 1
        })
    }

    /// Encrypts or decrypts `len` bytes.
    ///
    /// # Safety
    /// `src` must be readable and `dst` writable for `len` bytes; they must be equal or not overlap.
    pub(crate) unsafe fn update(&mut self, src: *const u8, dst: *mut u8, len: usize) -> bool {
        let mut n = 0;
        let Ok(len) = c_int::try_from(len) else { return false };
        // SAFETY: the caller vouches for the pointers; without padding, no more than `len` bytes come out.
        library()
            .is_ok_and(|lib| len == 0 || unsafe { (lib.EVP_CipherUpdate)(self.0.raw, dst, &raw mut n, src, len) == 1 })
    }

    pub(crate) fn finish(&mut self) -> bool {
        let mut n = 0;
        let mut rest = [0u8; 32];
        // SAFETY: without padding nothing comes out, and `rest` would hold a block.
        library().is_ok_and(|lib| unsafe { (lib.EVP_CipherFinal_ex)(self.0.raw, rest.as_mut_ptr(), &raw mut n) == 1 })
    }

    pub(crate) fn ctrl(&mut self, what: c_int, buf: &mut [u8]) -> bool {
        let Ok(len) = c_int::try_from(buf.len()) else { return false };
        // SAFETY: both controls read or write `len` bytes of the buffer.
        library()
            .is_ok_and(|lib| unsafe { (lib.EVP_CIPHER_CTX_ctrl)(self.0.raw, what, len, buf.as_mut_ptr().cast()) == 1 })
    }
}

/// A C string of a name that has no NUL inside.
pub(crate) fn c_name(name: &str) -> CString {
    CString::new(name).expect("names of algorithms have no NUL")
}
