//! The pages of the memory, in runs of 1, 2, 4, ... pages, each with its owner.

use crate::lock::RawLock;
use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::Release};
use lock_api::RawMutex as _;

/// The unit of memory, in bytes.
pub(crate) const PAGE: usize = 4096;
/// The sizes of runs of pages: 1, 2, 4, ... pages.
const ORDERS: usize = 23;
/// The order from which on a run that is given back gives its memory back to the kernel, too.
const GENEROUS: u32 = 6;

/// The owner and the length of a run of pages, at the index of its first page.
pub(crate) struct PageInfo {
    /// The index of the home that has it: 0 for none, [`crate::home::COMMONS`], or that of a handle.
    pub(crate) home: AtomicU32,
    /// The next run of the same list; 0 ends it.
    pub(crate) next: AtomicU32,
    /// The logarithm of its length in pages.
    pub(crate) order: AtomicU32,
}

/// The pages of a mapping, at whose beginning this lies.
pub(crate) struct Pages {
    /// Bytes of the whole mapping.
    pub(crate) len: usize,
    /// The offset of the array of [`PageInfo`].
    infos: usize,
    /// The offset of page 0.
    heap: usize,
    /// Held while pages are taken or given back.
    pub(crate) paging: RawLock,
    free_runs: [AtomicU32; ORDERS],
    /// The first page that was never used; page 0 never is.
    pub(crate) next_page: AtomicU32,
}

impl Pages {
    /// The pages of a fresh mapping of `len` bytes.
    pub(crate) fn new(len: usize, infos: usize, heap: usize) -> Self {
        let free_runs = [const { AtomicU32::new(0) }; ORDERS];
        Pages { len, infos, heap, paging: RawLock::INIT, free_runs, next_page: AtomicU32::new(1) }
    }

    /// The address of the mapping's first byte.
    pub(crate) fn base(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// The address of a page.
    pub(crate) fn page(&self, page: u32) -> usize {
        self.base() + self.heap + page as usize * PAGE
    }

    /// The page that an address lies in.
    pub(crate) fn page_of(&self, at: usize) -> u32 {
        ((at - self.base() - self.heap) / PAGE) as u32
    }

    /// The owner of the run that begins at `page`.
    pub(crate) fn info(&self, page: u32) -> &PageInfo {
        debug_assert!((page as usize) < self.len / PAGE);
        // SAFETY: the array has an entry for each page of the mapping, whose zeros are a valid one.
        unsafe { &*((self.base() + self.infos) as *const PageInfo).add(page as usize) }
    }

    /// Takes a run of `1 << order` pages of zeros, which belongs to `home` from now on; its first page.
    pub(crate) fn take_run(&self, order: u32, home: u32) -> Option<u32> {
        let list = self.free_runs.get(order as usize)?;
        self.paging.lock();
        let mut page = list.load(Relaxed);
        if page != 0 {
            list.store(self.info(page).next.load(Relaxed), Release);
            self.info(page).home.store(home, Release);
        } else {
            page = self.next_page.load(Relaxed);
            let end = page as usize + (1 << order);
            if self.page(0) + end * PAGE <= self.base() + self.len {
                let info = self.info(page);
                info.order.store(order, Relaxed);
                info.home.store(home, Relaxed);
                self.next_page.store(end as u32, Release);
            } else {
                page = 0;
            }
        }
        // SAFETY: taken above.
        unsafe { self.paging.unlock() };
        (page != 0).then_some(page)
    }

    /// Wipes a run and takes it back.
    ///
    /// # Safety
    /// It must be on no list, and nothing may use it any more.
    pub(crate) unsafe fn give_run(&self, page: u32) {
        let info = self.info(page);
        let order = info.order.load(Relaxed);
        let (at, len) = (self.page(page), PAGE << order);
        // SAFETY: the run is the caller's to give.
        unsafe {
            if order < GENEROUS || !sys::discard(at, len) {
                core::ptr::write_bytes(at as *mut u8, 0, len);
            }
        }
        info.home.store(0, Release);
        self.paging.lock();
        let list = &self.free_runs[order as usize];
        info.next.store(list.load(Relaxed), Relaxed);
        list.store(page, Release);
        // SAFETY: taken above.
        unsafe { self.paging.unlock() };
    }
}
