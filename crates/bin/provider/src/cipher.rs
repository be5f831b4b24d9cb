//! Ciphers, with and without authentication.

mod base;
mod block;
mod ccm;
mod chacha;
mod ctr;
mod cts;
mod gcm;
mod pieces;
mod pipes;
mod record;
mod row;
mod tls;
mod xts;

use crate::ffi::{Kind, Known};
use crate::given::KEY_NAME;
use crate::instance::AlgId;
use crate::names;
use core::ffi::CStr;
use row::mode;

pub(crate) use pipes::{MAX_IV_LEN as MAX_GCM_IV_LEN, MAX_PIPES, PipeCalls};
pub(crate) use row::{Cipher, CipherRow};

const fn block(names: &'static CStr, mode: u32, key_len: usize, iv_len: usize, name: &str) -> CipherRow {
    CipherRow {
        names,
        mode,
        key_len,
        iv_len,
        block_len: 16,
        aead: false,
        custom_iv: false,
        cts: false,
        pipes: false,
        random_key: false,
        alg: AlgId::of(name),
        gettable: &GENERIC_GETTABLE,
        settable: &GENERIC_SETTABLE,
        new: block::new,
    }
}

const fn ecb(names: &'static CStr, key_len: usize) -> CipherRow {
    block(names, mode::ECB, key_len, 0, "ecb(aes)")
}

const fn cbc(names: &'static CStr, key_len: usize) -> CipherRow {
    block(names, mode::CBC, key_len, 16, "cbc(aes)")
}

const fn ctr(names: &'static CStr, key_len: usize) -> CipherRow {
    CipherRow { block_len: 1, new: ctr::new, ..block(names, mode::CTR, key_len, 16, "ctr(aes)") }
}

const fn gcm(names: &'static CStr, key_len: usize) -> CipherRow {
    CipherRow {
        block_len: 1,
        aead: true,
        custom_iv: true,
        pipes: true,
        gettable: &AEAD_GETTABLE,
        settable: &AEAD_SETTABLE,
        new: gcm::new,
        ..block(names, mode::GCM, key_len, 12, "gcm(aes)")
    }
}

const fn ccm(names: &'static CStr, key_len: usize) -> CipherRow {
    CipherRow { mode: mode::CCM, pipes: false, alg: AlgId::of("ccm(aes)"), new: ccm::new, ..gcm(names, key_len) }
}

const fn cts(names: &'static CStr, key_len: usize) -> CipherRow {
    CipherRow { cts: true, gettable: &CTS_GETTABLE, settable: &CTS_SETTABLE, new: cts::new, ..cbc(names, key_len) }
}

const fn xts(names: &'static CStr, key_len: usize) -> CipherRow {
    CipherRow {
        block_len: 1,
        custom_iv: true,
        settable: &XTS_SETTABLE,
        new: xts::new,
        ..block(names, mode::XTS, key_len, 16, "xts(aes)")
    }
}

/// The ciphers that are offered.
pub(crate) static CIPHERS: [CipherRow; 22] = [
    ecb(c"AES-256-ECB:2.16.840.1.101.3.4.1.41", 32),
    ecb(c"AES-192-ECB:2.16.840.1.101.3.4.1.21", 24),
    ecb(c"AES-128-ECB:2.16.840.1.101.3.4.1.1", 16),
    cbc(names::AES_256_CBC, 32),
    cbc(names::AES_192_CBC, 24),
    cbc(names::AES_128_CBC, 16),
    ctr(c"AES-256-CTR", 32),
    ctr(c"AES-192-CTR", 24),
    ctr(c"AES-128-CTR", 16),
    gcm(names::AES_256_GCM, 32),
    gcm(names::AES_192_GCM, 24),
    gcm(names::AES_128_GCM, 16),
    ccm(c"AES-256-CCM:id-aes256-CCM:2.16.840.1.101.3.4.1.47", 32),
    ccm(c"AES-192-CCM:id-aes192-CCM:2.16.840.1.101.3.4.1.27", 24),
    ccm(c"AES-128-CCM:id-aes128-CCM:2.16.840.1.101.3.4.1.7", 16),
    cts(c"AES-256-CBC-CTS", 32),
    cts(c"AES-192-CBC-CTS", 24),
    cts(c"AES-128-CBC-CTS", 16),
    xts(c"AES-256-XTS:1.3.111.2.1619.0.1.2", 64),
    xts(c"AES-128-XTS:1.3.111.2.1619.0.1.1", 32),
    CipherRow {
        block_len: 1,
        aead: true,
        custom_iv: true,
        gettable: &CHACHA_GETTABLE,
        settable: &CHACHA_SETTABLE,
        new: chacha::new,
        ..block(c"ChaCha20-Poly1305", mode::STREAM, 32, 12, "rfc7539(chacha20,poly1305)")
    },
    CipherRow {
        block_len: 8,
        random_key: true,
        gettable: &DES_GETTABLE,
        ..block(names::DES_EDE3_CBC, mode::CBC, 24, 8, "cbc(des3_ede)")
    },
];

/// The name of a key of the keeper's.
const NAMED: Known = Known::new(KEY_NAME, Kind::Text);

/// The parameters that a context of a mode without authentication gives, and one more.
const fn generic_and(more: Known) -> [Known; 9] {
    [
        Known::new(c"keylen", Kind::Size),
        Known::new(c"ivlen", Kind::Size),
        Known::new(c"padding", Kind::Uint),
        Known::new(c"num", Kind::Uint),
        Known::new(c"iv", Kind::Octets),
        Known::new(c"updated-iv", Kind::Octets),
        more,
        NAMED,
        Known::END,
    ]
}

static GENERIC_GETTABLE: [Known; 9] = generic_and(Known::new(c"tls-mac", Kind::OctetsPointer));

static GENERIC_SETTABLE: [Known; 7] = [
    Known::new(c"padding", Kind::Uint),
    Known::new(c"num", Kind::Uint),
    Known::new(c"use-bits", Kind::Uint),
    Known::new(c"tls-version", Kind::Uint),
    Known::new(c"tls-mac-size", Kind::Size),
    NAMED,
    Known::END,
];

static AEAD_GETTABLE: [Known; 10] = [
    Known::new(c"keylen", Kind::Size),
    Known::new(c"ivlen", Kind::Size),
    Known::new(c"taglen", Kind::Size),
    Known::new(c"iv", Kind::Octets),
    Known::new(c"updated-iv", Kind::Octets),
    Known::new(c"tag", Kind::Octets),
    Known::new(c"tlsaadpad", Kind::Size),
    Known::new(c"tlsivgen", Kind::Octets),
    NAMED,
    Known::END,
];

static AEAD_SETTABLE: [Known; 7] = [
    Known::new(c"ivlen", Kind::Size),
    Known::new(c"tag", Kind::Octets),
    Known::new(c"tlsaad", Kind::Octets),
    Known::new(c"tlsivfixed", Kind::Octets),
    Known::new(c"tlsivinv", Kind::Octets),
    NAMED,
    Known::END,
];

static CTS_GETTABLE: [Known; 9] = generic_and(Known::new(c"cts_mode", Kind::Text));

static CTS_SETTABLE: [Known; 5] = [
    Known::new(c"padding", Kind::Uint),
    Known::new(c"num", Kind::Uint),
    Known::new(c"cts_mode", Kind::Text),
    NAMED,
    Known::END,
];

static XTS_SETTABLE: [Known; 3] = [Known::new(c"keylen", Kind::Size), NAMED, Known::END];

static DES_GETTABLE: [Known; 9] = generic_and(Known::new(c"randkey", Kind::Octets));

static CHACHA_GETTABLE: [Known; 7] = [
    Known::new(c"keylen", Kind::Size),
    Known::new(c"ivlen", Kind::Size),
    Known::new(c"taglen", Kind::Size),
    Known::new(c"tag", Kind::Octets),
    Known::new(c"tlsaadpad", Kind::Size),
    NAMED,
    Known::END,
];

static CHACHA_SETTABLE: [Known; 7] = [
    Known::new(c"keylen", Kind::Size),
    Known::new(c"ivlen", Kind::Size),
    Known::new(c"tag", Kind::Octets),
    Known::new(c"tlsaad", Kind::Octets),
    Known::new(c"tlsivfixed", Kind::Octets),
    NAMED,
    Known::END,
];
