//! Homes: the memory of one socket, or of everything that belongs to none (the commons).
//!
//! Sizes are powers of two. Those below a page are cut from the home's own pages and kept in lists of free blocks; larger
//! ones are runs of pages of their own. A list of free blocks changes by one store, so that a process that is killed in
//! between leaves it whole.

use crate::lock::RawLock;
use crate::pages::{PAGE, Pages};
use core::alloc::Layout;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use lock_api::RawMutex as _;

/// Calls under way that leave nothing in memory which they give back: what is given back meanwhile is overwritten.
pub(crate) static WIPING: AtomicU32 = AtomicU32::new(0);
/// The index of the commons.
pub(crate) const COMMONS: u32 = 1;
/// The smallest block, in bytes.
const LEAST: usize = 16;
/// The sizes of blocks: 16 to 2,048 bytes.
const CLASSES: usize = 8;

/// The memory of one socket.
pub(crate) struct Home {
    /// Held while memory is taken or given back.
    pub(crate) lock: RawLock,
    /// Its handle while that has references, and the handles of the sockets that were accepted from it.
    pub(crate) users: AtomicU32,
    /// The home of the socket that this one was accepted from, which has the key; 0 for none.
    pub(crate) parent: AtomicU32,
    /// Pages with blocks, the newest first.
    small: AtomicU32,
    /// Runs that are each one piece of memory.
    large: AtomicU32,
    /// The end of the blocks in the newest page; 0 before the first.
    cursor: AtomicUsize,
    /// Free blocks of each size, each with the address of the next one at its beginning.
    free: [AtomicUsize; CLASSES],
}

impl Home {
    /// A home without memory.
    pub(crate) fn new() -> Self {
        Home {
            lock: RawLock::INIT,
            users: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            small: AtomicU32::new(0),
            large: AtomicU32::new(0),
            cursor: AtomicUsize::new(0),
            free: [const { AtomicUsize::new(0) }; CLASSES],
        }
    }

    /// The number of bytes that a request takes.
    pub(crate) fn room(layout: Layout) -> usize {
        layout.size().max(layout.align()).max(LEAST).next_power_of_two()
    }

    /// Takes memory from the home with this index; null when there is none.
    pub(crate) fn alloc(&self, pages: &Pages, index: u32, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE || layout.size() > pages.len {
            return core::ptr::null_mut();
        }
        let size = Self::room(layout);
        self.lock.lock();
        let at = if size < PAGE { self.block(pages, index, size) } else { self.run(pages, index, size) };
        // SAFETY: taken above.
        unsafe { self.lock.unlock() };
        at as *mut u8
    }

    fn block(&self, pages: &Pages, index: u32, size: usize) -> usize {
        let free = &self.free[(size / LEAST).trailing_zeros() as usize];
        let known = free.load(Relaxed);
        if known != 0 {
            // SAFETY: free blocks are ours, and hold the address of the next one.
            free.store(unsafe { *(known as *const usize) }, Release);
            return known;
        }
        let cursor = self.cursor.load(Relaxed);
        let mut at = cursor.next_multiple_of(size);
        if cursor == 0 || at + size > cursor.next_multiple_of(PAGE) {
            let Some(page) = pages.take_run(0, index) else { return 0 };
            pages.info(page).next.store(self.small.load(Relaxed), Relaxed);
            self.small.store(page, Release);
            at = pages.page(page);
        }
        self.cursor.store(at + size, Release);
        at
    }

    fn run(&self, pages: &Pages, index: u32, size: usize) -> usize {
        let Some(page) = pages.take_run((size / PAGE).trailing_zeros(), index) else { return 0 };
        pages.info(page).next.store(self.large.load(Relaxed), Relaxed);
        self.large.store(page, Release);
        pages.page(page)
    }

    /// Takes memory back.
    ///
    /// # Safety
    /// It must have come from this home for this layout, and nothing may use it any more.
    pub(crate) unsafe fn dealloc(&self, pages: &Pages, ptr: *mut u8, layout: Layout) {
        let size = Self::room(layout);
        if WIPING.load(Relaxed) != 0 {
            // SAFETY: the caller's, which nothing uses any more.
            unsafe { ptr.write_bytes(0, size) };
        }
        self.lock.lock();
        if size < PAGE {
            let free = &self.free[(size / LEAST).trailing_zeros() as usize];
            // SAFETY: the caller's, and large enough.
            unsafe { *ptr.cast::<usize>() = free.load(Relaxed) };
            free.store(ptr as usize, Release);
        } else {
            let page = pages.page_of(ptr as usize);
            let mut link = &self.large;
            while link.load(Relaxed) != page && link.load(Relaxed) != 0 {
                link = &pages.info(link.load(Relaxed)).next;
            }
            if link.load(Relaxed) == page {
                link.store(pages.info(page).next.load(Relaxed), Release);
                // SAFETY: the caller's, and on no list any more.
                unsafe { pages.give_run(page) };
            }
        }
        // SAFETY: taken above.
        unsafe { self.lock.unlock() };
    }

    /// Wipes all of it and gives its pages back, whatever was still in use.
    pub(crate) fn clear(&self, pages: &Pages) {
        self.lock.lock();
        self.free.iter().for_each(|free| free.store(0, Relaxed));
        self.cursor.store(0, Release);
        for list in [&self.small, &self.large] {
            let mut page = list.swap(0, Relaxed);
            while page != 0 {
                let next = pages.info(page).next.load(Relaxed);
                // SAFETY: on no list any more, and nobody uses a home without users.
                unsafe { pages.give_run(page) };
                page = next;
            }
        }
        self.parent.store(0, Relaxed);
        // SAFETY: taken above.
        unsafe { self.lock.unlock() };
    }
}
