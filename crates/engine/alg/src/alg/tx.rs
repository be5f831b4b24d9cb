//! Data sent to a cipher operation and not received yet: the kernel's TX list (`crypto/af_alg.c`).
//!
//! The kernel keeps it in pages, and what a sender is allowed depends on them: a page that has been begun is always
//! filled, a new one is begun only while a whole page of the send buffer is free. Here it is one buffer, and only the
//! fill of the last page is remembered.

use super::iov::Source;
use crate::image::{Malformed, Reader, Writer};
use sealane_abi::socket::PAGE_SIZE;
use zeroize::Zeroize;

/// A queue of bytes in one piece, whose memory grows with use and is kept.
#[derive(Default)]
pub(super) struct Tx {
    bytes: Vec<u8>,
    head: usize,
    /// The fill of the last page; 0: the next byte begins a page.
    last_page_len: usize,
}

impl Tx {
    /// Writes the queue into an image.
    pub(super) fn save(&self, image: &mut Writer) {
        image.bytes(&self.bytes[self.head..]);
        image.number(self.last_page_len as u64);
    }

    /// Takes the queue from an image.
    pub(super) fn load(&mut self, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let bytes = image.bytes()?;
        let last_page_len = image.word()? as usize;
        if last_page_len >= PAGE_SIZE || (bytes.is_empty() && last_page_len != 0) {
            return Err(Malformed);
        }
        self.bytes.zeroize();
        self.head = 0;
        self.bytes.extend_from_slice(bytes);
        self.last_page_len = last_page_len;
        Ok(())
    }

    /// Bytes queued.
    pub(super) fn used(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// Whether a page can be begun, when `limit` bytes may be queued.
    pub(super) fn writable(&self, limit: usize) -> bool {
        limit >= self.used() + PAGE_SIZE
    }

    /// The number of bytes that are taken when only the first `len` can be read: a page is copied as a whole or not at
    /// all.
    pub(super) fn before_fault(&self, len: usize) -> usize {
        let to_page_end = (PAGE_SIZE - self.last_page_len) % PAGE_SIZE;
        if len < to_page_end { 0 } else { to_page_end + (len - to_page_end) / PAGE_SIZE * PAGE_SIZE }
    }

    /// Whether the next byte goes into a page that has been begun.
    pub(super) fn in_page(&self) -> bool {
        self.last_page_len != 0
    }

    /// Queues bytes of `source` as far as there is room; returns how many.
    pub(super) fn fill(&mut self, source: &mut Source<'_>, limit: usize, lend_pages: bool) -> usize {
        let mut room = 0;
        if self.last_page_len != 0 && !lend_pages {
            room = PAGE_SIZE - self.last_page_len;
        }
        if source.left > room && self.used() + room + PAGE_SIZE <= limit {
            room = limit - self.used();
        }
        let len = source.left.min(room);
        if len == 0 {
            return 0;
        }
        if self.head > 0 && self.bytes.len() + len > self.bytes.capacity() {
            self.bytes.copy_within(self.head.., 0);
            self.bytes.truncate(self.used());
            self.head = 0;
        }
        source.append_to(&mut self.bytes, len);
        self.last_page_len = if lend_pages { 0 } else { (self.last_page_len + len) % PAGE_SIZE };
        len
    }

    /// The first `len` bytes.
    pub(super) fn front(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.head..self.head + len]
    }

    /// Wipes and removes the first `len` bytes; returns whether nothing is left.
    pub(super) fn consume(&mut self, len: usize) -> bool {
        wipe(&mut self.bytes[self.head..self.head + len]);
        self.head += len;
        let empty = self.head == self.bytes.len();
        if empty {
            self.bytes.clear();
            self.head = 0;
            self.last_page_len = 0;
        }
        empty
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// Overwrites with zeros at the speed of memset; the buffer lives on, and `black_box` keeps the writes.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    core::hint::black_box(bytes);
}
