//! An OpenSSL provider over the crypto core: `sealane.so`.
//!
//! A program that uses OpenSSL 3 fetches its digests, MACs and ciphers from here, as its configuration says. From C to
//! bytes, top to bottom:
//!
//! - [`ffi`] has OpenSSL's interface, and all unsafe code: entry points, tables of functions, lists of parameters;
//! - [`instance`] is one load of the provider: the registry of drivers, and by [`settings`] what the configuration says;
//! - [`digest`], [`mac`] and [`cipher`] do what OpenSSL's default provider does, call for call, over algorithms of
//!   `sealane-crypto`;
//! - [`key`], [`sign`] and [`decrypt`] do the same with private keys, which are in the process of a keeper: [`keeper`] is the
//!   way to it;
//! - [`home`] is where the keys of ciphers and MACs lie: on the heap, in guarded memory, or with the keeper; [`given`] has them as
//!   programs give them, [`opaque`] as objects of their own;
//! - [`failure`] has the reasons that go into OpenSSL's queue of errors.
//!
//! The library shares a process with a program that knows nothing of it. It starts no thread, opens nothing after it was
//! loaded except connections to the keeper when a key of it is used, and no panic of it reaches the program: entry points catch them, because to abort would end the program.
#![deny(unsafe_code)]

mod cipher;
mod ct;
mod decrypt;
mod digest;
mod failure;
#[allow(unsafe_code, reason = "a provider is called by C")]
mod ffi;
mod given;
mod home;
mod instance;
mod keeper;
mod key;
mod keystream;
mod mac;
mod names;
mod opaque;
mod partial;
mod settings;
mod sign;
