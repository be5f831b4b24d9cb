//! The functions of `csrc/shim.c`. Names, numbers and layouts are the same in both files.

use core::ffi::c_char;
use core::marker::{PhantomData, PhantomPinned};

/// The most operations of one call of [`slmb_run`].
pub(crate) const MAX_OPS: usize = 64;

/// Room for the library's GCM key; its own size depends on its version.
pub(crate) const GCM_KEY_LEN: usize = 1536;

/// The longest message whose length a lane can count (16 bits, the last two values reserved). Rounded down to a block,
/// it is also the longest text of one cipher job.
pub(crate) const MAX_LANE_LEN: usize = 65534;

/// The most bytes that CMAC reads past the end of a message (16 bytes from the start of its last block, in 1.3 and
/// 2.0).
pub(crate) const OVER_READ: usize = 16;

/// The library's manager.
#[repr(C)]
pub(crate) struct Mgr {
    _opaque: [u8; 0],
    // Neither Send nor Sync nor Unpin, because it is a C object.
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// The algorithm of a job.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MbAlg {
    HmacMd5 = 0,
    HmacSha1,
    HmacSha224,
    HmacSha256,
    HmacSha384,
    HmacSha512,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Cmac,
    Poly1305,
    AesCbc,
    AesCtr,
    AesEcb,
    DesCbc,
    Des3Cbc,
    AesCcm,
    Chacha20Poly1305,
}

/// One operation. All pointers stay valid until the call returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) src: *const u8,
    pub(crate) dst: *mut u8,
    pub(crate) len: u64,
    pub(crate) key: [*const u8; 3],
    pub(crate) iv: *const u8,
    pub(crate) aad: *const u8,
    pub(crate) aad_len: u64,
    /// Receives the full tag or digest.
    pub(crate) tag: *mut u8,
    pub(crate) key_len: u32,
    pub(crate) iv_len: u8,
    pub(crate) tag_len: u8,
    /// Out: 1 when the library has completed it.
    pub(crate) done: u8,
    pub(crate) pad: u8,
}

const _: () = assert!(size_of::<Op>() == 88, "csrc/shim.c declares the same structure");

impl Op {
    pub(crate) const EMPTY: Op = Op {
        src: core::ptr::dangling(),
        dst: core::ptr::dangling_mut(),
        len: 0,
        key: [core::ptr::null(); 3],
        iv: core::ptr::dangling(),
        aad: core::ptr::dangling(),
        aad_len: 0,
        tag: core::ptr::dangling_mut(),
        key_len: 0,
        iv_len: 0,
        tag_len: 0,
        done: 0,
        pad: 0,
    };
}

/// Room for the library's state of a GCM message.
pub(crate) const GCM_CONTEXT_LEN: usize = 128;

/// The library's functions for GCM under keys of one length, which belong to no manager. Their parameters are the key and the state of a
/// message, and
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GcmCalls {
    /// (in place of both the bytes of a key, and the room for the library's key);
    pub(crate) expand: Option<unsafe extern "C" fn(*const u8, *mut u8)>,
    /// the nonce of 12 bytes, and all associated data with its length;
    pub(crate) start: Option<unsafe extern "C" fn(*const u8, *mut u8, *const u8, *const u8, u64)>,
    /// a nonce of any length, and all associated data with its length;
    pub(crate) start_any: Option<unsafe extern "C" fn(*const u8, *mut u8, *const u8, u64, *const u8, u64)>,
    /// more associated data, for a message that was started without;
    pub(crate) associated: Option<unsafe extern "C" fn(*const u8, *mut u8, *const u8, u64)>,
    /// the output, the text and its length;
    pub(crate) encrypt: Option<unsafe extern "C" fn(*const u8, *mut u8, *mut u8, *const u8, u64)>,
    /// the same;
    pub(crate) decrypt: Option<unsafe extern "C" fn(*const u8, *mut u8, *mut u8, *const u8, u64)>,
    /// the tag and its length.
    pub(crate) end: Option<unsafe extern "C" fn(*const u8, *mut u8, *mut u8, u64)>,
}

const _: () = assert!(size_of::<GcmCalls>() == 7 * size_of::<usize>(), "csrc/shim.c declares the same structure");

impl GcmCalls {
    pub(crate) const NONE: GcmCalls = GcmCalls {
        expand: None,
        start: None,
        start_any: None,
        associated: None,
        encrypt: None,
        decrypt: None,
        end: None,
    };
}

unsafe extern "C" {
    pub(crate) fn slmb_version() -> u32;
    pub(crate) fn slmb_manager_len() -> usize;
    pub(crate) fn slmb_manager_init(mem: *mut u8, why: *mut *const c_char) -> *const c_char;
    pub(crate) fn slmb_wipe(mem: *mut u8, len: usize);
    pub(crate) fn slmb_aes_expand(m: *mut Mgr, key: *const u8, key_len: usize, enc: *mut u8, dec: *mut u8);
    pub(crate) fn slmb_cmac_subkeys(m: *mut Mgr, enc: *const u8, key_len: usize, k1: *mut u8, k2: *mut u8);
    pub(crate) fn slmb_xcbc_keys(m: *mut Mgr, key: *const u8, k1: *mut u8, k2: *mut u8, k3: *mut u8);
    pub(crate) fn slmb_des_expand(m: *mut Mgr, key: *const u8, schedule: *mut u64);
    pub(crate) fn slmb_hmac_state(m: *mut Mgr, alg: u32, block: *const u8, state: *mut u8);
    pub(crate) fn slmb_run(m: *mut Mgr, alg: u32, encrypt: i32, ops: *mut Op, order: *const u8, n: u32);
    pub(crate) fn slmb_gcm_calls(m: *mut Mgr, key_len: usize, out: *mut GcmCalls);
    pub(crate) fn slmb_gcm_less_associated(context: *mut u8, len: u64);
    pub(crate) fn slmb_gcm(m: *mut Mgr, encrypt: i32, ops: *mut Op, n: u32);
}
