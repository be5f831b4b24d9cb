//! TCP-AO on this host: an engine and a data path for each network namespace in which a key was ever added.

mod fast;
pub mod host;
mod leftover;
mod path;
mod protected;
mod space;
mod state;

pub(crate) use space::{Space, Spaces};
