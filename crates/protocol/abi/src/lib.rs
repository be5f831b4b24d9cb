//! Linux's user-space interfaces: structs, constants and the walking of byte strings, without any state.
//!
//! One module for each kernel header, constants under their kernel names. All layouts are those of 64-bit Linux.
//! What the kernel's interfaces cannot say is in [`admin`]; numbers of our own are in [`sealane`].
//! [`Profile`] and [`Caller`] are data that the engines share.
#![forbid(unsafe_code)]

pub mod admin;
pub mod caller;
pub mod cryptouser;
pub mod errno;
pub mod if_alg;
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
