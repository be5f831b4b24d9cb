//! Homes without memory.

use crate::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;

pub(crate) const COMMONS: u32 = 1;

#[derive(Default)]
pub(crate) struct Home {
    pub(crate) users: AtomicU32,
    pub(crate) parent: AtomicU32,
}

impl Home {
    pub(crate) fn clear(&self, (): &()) {
        self.parent.store(0, SeqCst);
    }
}
