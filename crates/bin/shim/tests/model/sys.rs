//! System calls.

use super::atomic::AtomicU32;
use super::world;

pub(crate) fn complain(what: core::fmt::Arguments<'_>) {
    world::fail(&what.to_string());
}

pub(crate) fn getpid() -> u32 {
    world::pid()
}

pub(crate) fn gettid() -> u32 {
    world::tid()
}

pub(crate) fn alive(id: u32) -> bool {
    world::exists(id)
}

pub(crate) fn may_signal(id: u32) -> bool {
    world::exists(id)
}

pub(crate) fn is_no_thread(tid: u32) -> bool {
    !world::exists(tid)
}

pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, timeout_ms: Option<u32>) -> Result<(), i32> {
    world::sleep(word, seen, timeout_ms.is_some())
}

pub(crate) fn futex_wake(word: &AtomicU32, count: i32) {
    world::wake(word, count as usize);
}

pub(crate) fn pause() {
    shuttle::thread::yield_now();
    world::step();
}

pub(crate) fn barrier() {
    world::step();
}

pub(crate) fn discard_shared(_: usize, _: usize) {}

pub(crate) fn map_private(len: usize) -> Option<*mut u8> {
    world::map(len, false)
}

pub(crate) fn map_shared(len: usize) -> Option<*mut u8> {
    world::map(len, true)
}

pub(crate) unsafe fn put_in_place(new: *mut u8, at: *mut u8, _: usize) -> bool {
    world::put_in_place(new as usize, at as usize);
    true
}

pub(crate) unsafe fn unmap(at: *mut u8, len: usize) {
    world::unmap(at as usize, len);
}
