//! The caller that a thread serves, for what the engine asks of its host meanwhile.

use sealane_sys::thread::Thread;
use std::cell::RefCell;
use std::rc::Rc;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Thread>>> = const { RefCell::new(None) };
}

/// Notes the caller that this thread serves from now on.
pub(super) fn set(caller: Option<Rc<Thread>>) {
    CURRENT.set(caller);
}

/// The caller that this thread serves.
pub(super) fn current() -> Option<Rc<Thread>> {
    CURRENT.with_borrow(Clone::clone)
}
