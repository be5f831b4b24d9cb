//! The interposed functions, by subject.

pub(crate) mod aio;
pub(crate) mod aside;
pub(crate) mod calls;
pub(crate) mod creds;
pub(crate) mod data;
pub(crate) mod fds;
pub(crate) mod files;
mod hook;
pub(crate) mod keys;
pub(crate) mod pipes;
pub(crate) mod polls;
mod settled;
pub(crate) mod sockets;
