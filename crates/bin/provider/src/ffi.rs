//! OpenSSL's provider interface: every C entry point, and all unsafe code of this crate.
//!
//! - [`raw`] has the structures and numbers of `openssl/core.h` and `openssl/core_dispatch.h`;
//! - [`libcrypto`] calls what libcrypto gives us: the configuration, and the queue of errors;
//! - [`param`] reads and answers lists of parameters, [`call`] makes slices of a call's buffers;
//! - [`forks`] tells a child from its parent, and gives it guarded memory;
//! - [`entry`] stands between a C caller and us: contexts behind pointers, panics, failures; [`spare`] has contexts to use again,
//!   [`keyed`] those whose key may have a name;
//! - [`provider`], [`digest`], [`mac`], [`cipher`], [`skeymgmt`], [`store`], [`keymgmt`], [`signature`] and [`asym_cipher`] have
//!   the functions and their tables.
//!
//! # Contract
//! Each entry point owes its safety to what OpenSSL promises of every provider: pointers are null or as the header says,
//! a context is one that we returned and have not freed, no two threads use one context at a time, and a provider's
//! context outlives those of its algorithms. Nothing of libcrypto is linked: its functions come in the table that
//! `OSSL_provider_init` is given.

mod asym_cipher;
mod call;
mod cipher;
mod digest;
mod entry;
mod forks;
mod keyed;
mod keymgmt;
mod libcrypto;
mod mac;
mod param;
mod provider;
mod raw;
mod signature;
mod skeymgmt;
mod spare;
mod store;

pub(crate) use call::{Call, Text};
pub(crate) use forks::renew_in_children;
pub(crate) use libcrypto::Core;
pub(crate) use param::{Kind, Known, Params, Requests, Value, Word};
pub(crate) use spare::Spares;
