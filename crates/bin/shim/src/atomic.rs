//! The atomics and thread locals of the files that the model runs: it has its own in their place (tests/model.rs).

pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, compiler_fence, fence};
pub(crate) use std::thread_local;
