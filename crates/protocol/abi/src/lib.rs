//! Linux's user-space interfaces: structs, constants and parsers of byte strings, without any state.
//!
//! Each kernel header has one module, and constants have their kernel names. All layouts are those of 64-bit Linux.
//! [`admin`] has the interfaces that Linux lacks, [`sealane`] the numbers that Sealane chose itself. [`Profile`] and
//! [`Caller`] are data shared by the engines.
#![forbid(unsafe_code)]

pub mod admin;
pub mod caller;
pub mod cryptouser;
pub mod errno;
pub mod if_alg;
pub mod if_link;
pub mod netlink;
pub mod poll;
pub mod profile;
pub mod sealane;
pub mod socket;
pub mod tcp;
pub mod xfrm;

pub use caller::Caller;
pub use errno::Errno;
pub use profile::Profile;
