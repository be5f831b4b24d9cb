//! System calls, wrapped.
#![allow(unsafe_code, reason = "the one place of this crate where system calls are made")]

pub(crate) mod keys;
pub(crate) mod mapping;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod seccomp;
pub(crate) mod sleep;
pub(crate) mod unix;
