//! The tie between a handle and its cell, and who may use the cell's memory.
//!
//! **The memory of a cell lives as long as its handle.** A handle gets a cell from the first fork that finds it open, and gives
//! it back when its home has no users any more. Until then there is a cell at this address: a change of credentials puts
//! private memory in its place, and a later fork ties the handle to the cell at the same address (mapping.rs).
//!
//! No thread needs to know more than that to use a cell, because it finds cells by handles alone, and has the handle:
//!
//! - a call has a reference to the handle until it returns, also while it sleeps on the cell's word ([`Cell::changes`]);
//! - a call on an operation that locks the cell of its transform, too, has the transform's home by that of the operation;
//! - who looks at the handles of others takes a reference first ([`crate::borrow::Borrow::of`]), or has closed the gate, so
//!   that no other thread is inside and gives one back (thread.rs).
//!
//! **Whether the handle is tied** is another matter. Calls on a tied handle have the cell's lock.
//!
//! - It is tied while the gate is closed ([`Tie::tie`]): no call begins untied and ends tied.
//! - It is untied with the lock held ([`Tie::untie`]): a call that has the lock stays tied unless it unties the handle itself,
//!   and one that has waited for the lock looks again ([`Tie::lock`]). Therefore each tie ends once.
//!
//! A call that sleeps has no lock. It sleeps on the cell's word if the handle is tied, and otherwise on one of the
//! engine's. Tying and untying change the word on which it sleeps until then and wake it; the word of a cell never takes a
//! former value again.
//!
//! `tests/model.rs` runs this file and those that use it under every order of threads that it can find.

use crate::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use crate::cell::Cell;
use crate::mapping;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of handles of this process that are tied: 0 in a process that never forked.
static TIED: AtomicU32 = AtomicU32::new(0);

/// Whether any handle of this process is tied.
#[inline]
pub(crate) fn any() -> bool {
    TIED.load(Relaxed) != 0
}

/// The part of a handle that ties it to its cell.
#[derive(Default)]
pub(crate) struct Tie {
    /// Null before the first fork.
    cell: AtomicPtr<Cell>,
    /// Whether other processes have the socket, as far as this one knows.
    tied: AtomicBool,
    /// Changes each time the handle is tied.
    times: AtomicU32,
    /// The number of the image that this process has.
    pub(crate) seen: AtomicU32,
    /// Its place among the members.
    pub(crate) place: AtomicU32,
    /// The place of the child that is being made.
    pub(crate) child: AtomicU32,
    /// Calls since it was tied.
    pub(crate) calls: AtomicU32,
}

impl Tie {
    /// The cell's memory, whether the handle is tied to it or not. For those who have the handle.
    pub(crate) fn cell(&self) -> Option<&'static Cell> {
        // SAFETY: the memory of a cell lives as long as its handle, as said above.
        unsafe { self.cell.load(Acquire).as_ref() }
    }

    /// The cell that the handle is tied to: certain with its lock held, or while no other thread is inside.
    pub(crate) fn tied(&self) -> Option<&'static Cell> {
        self.cell().filter(|_| self.tied.load(Acquire))
    }

    /// Locks the cell that the handle is tied to. None: other processes do not have the socket.
    pub(crate) fn lock(&self) -> Option<&'static Cell> {
        let cell = self.tied()?;
        cell.lock();
        // The thread that had the lock may have untied it.
        if self.tied.load(Relaxed) {
            return Some(cell);
        }
        cell.unlock();
        None
    }

    /// Changes each time the handle is tied.
    pub(crate) fn times(&self) -> u32 {
        self.times.load(Relaxed)
    }

    /// Ties the handle to a cell: its own, or a new one if it has none. While no other thread of the process is inside.
    pub(crate) fn tie(&self, cell: &'static Cell, pid: u32, started: u64) {
        cell.forget_sleepers();
        self.place.store(cell.join(pid, started, [0, 0]), Relaxed);
        self.seen.store(cell.number(), Relaxed);
        self.calls.store(0, Relaxed);
        self.times.fetch_add(1, Relaxed);
        self.cell.store(core::ptr::from_ref(cell).cast_mut(), Release);
        self.tied.store(true, Release);
        TIED.fetch_add(1, Relaxed);
    }

    /// Unties the handle from its cell, whose lock the caller holds and has to unlock; whether other processes still have
    /// the socket.
    pub(crate) fn untie(&self, cell: &Cell) -> bool {
        let own = self.place.load(Relaxed);
        let alone = cell.is_alone(own);
        if alone {
            cell.wipe();
        }
        cell.unjoin(own);
        self.tied.store(false, Release);
        TIED.fetch_sub(1, Relaxed);
        // Calls of this process that wait now sleep on the engine's words from now on.
        cell.tell_all();
        !alone
    }

    /// Gives the cell back, once the handle's home has no users any more.
    pub(crate) fn end(&self) {
        if let Some(cell) = self.lock() {
            self.untie(cell);
            cell.unlock();
        }
        let cell = self.cell.swap(core::ptr::null_mut(), Relaxed);
        if !cell.is_null() {
            mapping::leave(cell as usize);
        }
    }
}
