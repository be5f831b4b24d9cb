//! The crypto core of Sealane: algorithms under their kernel names, each served by the fastest measured driver.
//!
//! From name to bytes, top to bottom:
//!
//! - [`template`] reads a kernel name (`authenc(hmac(sha256),cbc(aes))`) into a tree;
//! - [`registry`] holds one [`registry::Row`] for each driver, as `/proc/crypto` does, and resolves a name to an
//!   [`registry::Alg`]: the drivers that may serve it, each of which has passed its self-test;
//! - [`choice`] says which of them is fastest for a length and a burst on this machine;
//! - [`hash`], [`mac`], [`skcipher`], [`aead`] and [`rng`] hold a key that was prepared once ([`mac::MacTfm`], ...) and
//!   run bursts of operations in order, with a status for each and without allocating;
//! - [`partial`] composes MACs over a secret part of each packet, which no name of the registry leads to;
//! - a [`home::KeyHome`] computes with keys that are in another process;
//! - drivers do the work. Each family of them is a crate of its own (`crypto-portable`, `crypto-simd`, `crypto-awslc`,
//!   ...); only [`null`], which computes nothing, is here.
//!
//! The crate reads no clock, no file and no system random generator: entropy, calibration tables and CPU features
//! arrive as arguments.
#![forbid(unsafe_code)]

pub mod aead;
pub mod choice;
pub mod data;
pub mod error;
pub mod gather;
pub mod hash;
pub mod home;
pub mod info;
pub mod key;
pub mod mac;
pub mod null;
pub mod partial;
pub mod proc;
pub mod registry;
pub mod rng;
pub mod selftest;
pub mod skcipher;
pub mod template;
pub mod templates;
pub mod wipe;

pub use error::{KeyError, LookupError, OpError, Status};
pub use info::{AlgInfo, CipherMode, KeyFormat, KeyUse, Kind, Lengths};
pub use registry::{Alg, Registry, Row};
