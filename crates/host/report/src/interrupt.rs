//! Ending a run in the middle.

/// From now on the first signal that would end the program (Ctrl-C, SIGTERM, SIGHUP) is noted, and the second one ends it.
pub fn defer() {
    sealane_sys::interrupt::defer();
}

/// The number of the signal that was noted.
#[must_use]
pub fn noted() -> Option<i32> {
    sealane_sys::interrupt::noted()
}
