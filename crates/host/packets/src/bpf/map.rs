//! Maps of BPF programs, whose keys and values are plain bytes.

use super::program::bpf;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_MAP_DELETE_ELEM: i32 = 3;
const BPF_F_NO_PREALLOC: u32 = 1;

/// Map types (`enum bpf_map_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lookup of equal keys.
    Hash = 1,
    /// Lookup of the longest matching prefix. A key is its length in bits (`u32`, host order), then the bytes.
    LpmTrie = 11,
    /// `AF_XDP` sockets, by queue number.
    Xsk = 17,
}

/// A BPF map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_len: usize,
    value_len: usize,
}

#[repr(C)]
struct CreateAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct ElemAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Map {
    /// Creates an empty map; lengths are in bytes.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_BPF`, and for [`Kind::Xsk`] without `CAP_NET_ADMIN`.
    pub fn new(kind: Kind, key_len: usize, value_len: usize, max_entries: u32) -> io::Result<Self> {
        // Memory for elements is allocated on demand.
        let map_flags = if kind == Kind::Xsk { 0 } else { BPF_F_NO_PREALLOC };
        let (key_size, value_size) = (key_len as u32, value_len as u32);
        let attr = CreateAttr { map_type: kind as u32, key_size, value_size, max_entries, map_flags };
        // SAFETY: plain values.
        let fd = unsafe { bpf(BPF_MAP_CREATE, &attr)? };
        Ok(Map { fd, key_len, value_len })
    }

    /// The map's descriptor, which programs refer to.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// The kernel's: `ENOSPC` or `E2BIG` when the map is full.
    ///
    /// # Panics
    /// When a length differs from the map's.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert!(key.len() == self.key_len && value.len() == self.value_len, "as it was made");
        self.element(BPF_MAP_UPDATE_ELEM, key, value)
    }

    /// Sets the socket of a queue.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.set(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Removes a key; a missing key is no error.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When its length differs from the map's.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        assert!(key.len() == self.key_len, "as it was made");
        match self.element(BPF_MAP_DELETE_ELEM, key, &[]) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    fn element(&self, command: i32, key: &[u8], value: &[u8]) -> io::Result<()> {
        // Fields that a command does not use must be zero.
        let at = |bytes: &[u8]| if bytes.is_empty() { 0 } else { bytes.as_ptr().addr() as u64 };
        let attr = ElemAttr { map_fd: self.fd.as_raw_fd() as u32, pad: 0, key: at(key), value: at(value), flags: 0 };
        // SAFETY: an attribute of this size; key and value have the map's lengths and live until the call returns.
        let r = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attr, size_of::<ElemAttr>()) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
