//! The portable drivers: vectors, lengths, and the self-tests of the registry.

mod cipher;
mod hash;
mod partial;
mod selftest;
