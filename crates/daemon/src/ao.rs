//! TCP-AO on this host: an engine and a data path for each network namespace in which a key was ever added.

mod path;
mod space;

pub(crate) use space::{Space, Spaces};
