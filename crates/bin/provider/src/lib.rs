//! An OpenSSL provider over the crypto core: `sealane.so`.
//!
//! A program that uses OpenSSL 3 fetches its digests, MACs and ciphers from here, as its configuration says. From C to
//! bytes, top to bottom:
//!
//! - [`ffi`] has OpenSSL's interface, and all unsafe code: entry points, tables of functions, lists of parameters;
//! - [`instance`] is one load of the provider: the registry of drivers, and by [`settings`] what the configuration says;
//! - [`digest`], [`mac`] and [`cipher`] do what OpenSSL's default provider does, call for call, over algorithms of
//!   `sealane-crypto`;
//! - [`failure`] has the reasons that go into OpenSSL's queue of errors.
//!
//! The library shares a process with a program that knows nothing of it. It starts no thread, opens nothing after it was
//! loaded, and no panic of it reaches the program: entry points catch them, because to abort would end the program.
#![deny(unsafe_code)]

mod cipher;
mod ct;
mod digest;
mod failure;
#[allow(unsafe_code, reason = "a provider is called by C")]
mod ffi;
mod instance;
mod keystream;
mod mac;
mod names;
mod partial;
mod settings;
