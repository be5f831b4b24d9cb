//! Frames past the stack: `AF_XDP` sockets that share one region of memory with the drivers of several interfaces.
//!
//! ```text
//!  fill ring: chunks for incoming frames ─▶ driver ─▶ receive ring ─▶ us: decrypted or encrypted in place
//!    ─▶ transmit ring of any of the sockets ─▶ driver ─▶ completion ring ─▶ free chunks
//! ```
//!
//! Each chunk always has one owner: the kernel, or us through a [`Frame`], of which there is one per chunk.

use rustix::io::Errno;
use rustix::net::sockopt::{xdp_mmap_offsets, xdp_statistics};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags as Flags, SocketAddrXdpWithSharedUmem, XdpRingOffset};
use rustix::net::{SendFlags, bind, send};
use sealane_sys::mapping::Mapping;
use sealane_sys::socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Length of a chunk in bytes.
pub const CHUNK: usize = 4096;
/// Headroom before a frame, in addition to the kernel's own (256 bytes).
const HEADROOM: u32 = 128;
/// Entries in each ring.
const ENTRIES: u32 = 1024;
/// Chunks per socket: those in the fill ring, and as many in flight.
const CHUNKS: usize = 3 * ENTRIES as usize;
/// Bytes that may wait for the interface in copy mode; the kernel counts allocated memory.
const SEND_BUFFER: i32 = 8 << 20;
/// The number of times in a row that the kernel is asked to send from a ring; each time it sends up to 32 frames.
const KICKS: usize = 64;

/// A chunk of memory that we own: no other value exists for it.
#[derive(Debug)]
pub struct Frame(NonNull<u8>);

// SAFETY: it stands for memory that is not tied to a thread.
unsafe impl Send for Frame {}

#[cfg(any(test, feature = "testing"))]
impl Frame {
    /// Frames without memory, for tests that only pass them around.
    pub fn some(count: usize) -> Vec<Frame> {
        (0..count).map(|_| Frame(NonNull::dangling())).collect()
    }
}

/// The memory of the frames (`UMEM`).
#[derive(Clone)]
pub struct Memory(Arc<Mapping>);

impl Memory {
    /// The whole chunk.
    ///
    /// # Panics
    /// When the chunk belongs to another memory.
    pub fn bytes<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let at = frame.0.as_ptr().addr().wrapping_sub(self.0.start().as_ptr().addr());
        assert!(at < self.0.len(), "a frame of this memory");
        // SAFETY: a whole chunk of this memory, which lives as long as the slice; the kernel does not touch it while
        // its only `Frame` is here, and that is borrowed.
        unsafe { core::slice::from_raw_parts_mut(frame.0.as_ptr(), CHUNK) }
    }

    fn offset(&self, frame: &Frame) -> u64 {
        (frame.0.as_ptr().addr() - self.0.start().as_ptr().addr()) as u64
    }

    /// The chunk at an address given by the kernel.
    ///
    /// # Safety
    /// The kernel has just returned it.
    unsafe fn frame(&self, address: u64) -> Frame {
        let at = address as usize / CHUNK * CHUNK;
        assert!(at + CHUNK <= self.0.len(), "the kernel gives back what it was given");
        // SAFETY: within the mapping.
        Frame(unsafe { self.0.start().add(at) })
    }
}

/// One of a socket's rings, of entries `T`: we write to it, or read from it.
struct Ring<T> {
    _map: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// Our position, and the other side's position when it was last read.
    ours: u32,
    theirs: u32,
}

// SAFETY: memory shared with the kernel, not tied to a thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn new(fd: &OwnedFd, option: i32, at: u64, offsets: &XdpRingOffset) -> io::Result<Self> {
        // They are missing before Linux 5.4.
        let flags = offsets.flags.ok_or(Errno::OPNOTSUPP)?;
        socket::set_option(fd.as_fd(), libc::SOL_XDP, option, &ENTRIES)?;
        let map = Mapping::of(fd, at as libc::off_t, offsets.desc as usize + ENTRIES as usize * size_of::<T>())?;
        // SAFETY: the kernel's offsets into its own mapping, aligned for the entries.
        unsafe {
            Ok(Ring {
                producer: map.start().add(offsets.producer as usize).cast(),
                consumer: map.start().add(offsets.consumer as usize).cast(),
                flags: map.start().add(flags as usize).cast(),
                entries: map.start().add(offsets.desc as usize).cast(),
                _map: map,
                ours: 0,
                theirs: 0,
            })
        }
    }

    fn word(&self, at: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: in the mapping, which lives as long as this value; both sides use it atomically.
        unsafe { at.as_ref() }
    }

    fn entry(&self, at: u32) -> NonNull<T> {
        // SAFETY: within the mapping.
        unsafe { self.entries.add((at % ENTRIES) as usize) }
    }

    /// Whether the kernel must be called to continue.
    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// The number of free entries in a ring that we write to.
    fn room(&mut self) -> u32 {
        if self.ours.wrapping_sub(self.theirs) >= ENTRIES {
            self.theirs = self.word(self.consumer).load(Ordering::Acquire);
        }
        ENTRIES - self.ours.wrapping_sub(self.theirs)
    }

    /// Writes an entry if there is [`Self::room`]; the kernel sees it after [`Self::publish`].
    fn write(&mut self, value: T) {
        // SAFETY: an entry that the kernel has read.
        unsafe { self.entry(self.ours).write(value) };
        self.ours = self.ours.wrapping_add(1);
    }

    fn publish(&self) {
        self.word(self.producer).store(self.ours, Ordering::Release);
    }

    /// Whether the kernel has not yet taken all entries.
    fn is_pending(&self) -> bool {
        self.word(self.consumer).load(Ordering::Acquire) != self.ours
    }

    /// Reads an entry of a ring that we read from.
    fn read(&mut self) -> Option<T> {
        if self.ours == self.theirs {
            self.theirs = self.word(self.producer).load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        // SAFETY: an entry that the kernel has written and does not touch before it is released.
        let value = unsafe { self.entry(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(value)
    }

    /// Releases the entries that were read.
    fn release(&self) {
        self.word(self.consumer).store(self.ours, Ordering::Release);
    }
}

/// A received frame and its position in its chunk.
#[derive(Debug)]
pub struct Received {
    /// The chunk.
    pub frame: Frame,
    /// The offset of the link header.
    pub start: usize,
    /// The end of the frame.
    pub end: usize,
}

/// The way in which frames get from the driver into the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copying {
    /// The card writes them directly.
    Zero,
    /// The kernel copies them.
    Once,
}

/// The number of frames that a socket lost, as counted by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Frames that arrived when there was no room.
    pub full: u64,
    /// Frames that were dropped for other reasons.
    pub dropped: u64,
}

/// A socket for one queue of an interface.
struct Socket {
    fd: OwnedFd,
    rx: Ring<libc::xdp_desc>,
    tx: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    completion: Ring<u64>,
    /// Whether `tx` has entries that the kernel has not been told of.
    unsent: bool,
}

/// One thread's share of the sockets that have a common memory, and of its chunks. A chunk may move to another thread
/// to be sent or freed there; it is that thread's [`Self::stray`] then.
pub struct Sockets {
    list: Vec<Socket>,
    memory: Memory,
    free: Vec<Frame>,
    /// The ends of the shares' chunks in bytes, and the index of this share.
    ends: Arc<[usize]>,
    share: usize,
    strays: Vec<Frame>,
}

/// A queue of an interface: the interface's index and the queue's number.
pub type Queue = (u32, u32);

impl Sockets {
    /// Opens a socket for each queue of each share, on interfaces in the calling thread's namespace, all in the same
    /// mode.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` without `AF_XDP`, `EOPNOTSUPP` and others where a
    /// driver does not support it, `ENOBUFS` where memory may not be locked.
    pub fn open(shares: &[Vec<Queue>], copying: Copying) -> io::Result<Vec<Self>> {
        let mut end = 0;
        let ends: Arc<[usize]> = shares
            .iter()
            .map(|queues| {
                end += queues.len() * CHUNKS * CHUNK;
                end
            })
            .collect();
        let memory = Memory(Arc::new(Mapping::anonymous(end)?));
        let mut all: Vec<Sockets> = Vec::with_capacity(shares.len());
        for (share, queues) in shares.iter().enumerate() {
            let mut list = Vec::with_capacity(queues.len());
            for queue in queues {
                let first = all.first().and_then(|of| of.list.first()).or(list.first());
                let socket = Socket::open(*queue, copying, &memory, first)?;
                list.push(socket);
            }
            let start = if share == 0 { 0 } else { ends[share - 1] };
            // SAFETY: within the mapping. All chunks are still free.
            let free =
                (start..ends[share]).step_by(CHUNK).map(|at| Frame(unsafe { memory.0.start().add(at) })).collect();
            all.push(Sockets { list, memory: memory.clone(), free, ends: ends.clone(), share, strays: Vec::new() });
        }
        for sockets in &mut all {
            (0..sockets.list.len()).for_each(|i| sockets.refill(i));
        }
        Ok(all)
    }

    /// The memory of the frames.
    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// The socket of a queue, by the order of opening.
    pub fn fd(&self, i: usize) -> BorrowedFd<'_> {
        self.list[i].fd.as_fd()
    }

    /// Hands the frames received by a socket, at most `most`, to `each`. Returns their number.
    pub fn receive(&mut self, i: usize, most: usize, mut each: impl FnMut(Received)) -> usize {
        let rx = &mut self.list[i].rx;
        let mut count = 0;
        while count < most
            && let Some(desc) = rx.read()
        {
            // SAFETY: the kernel has just handed it to us.
            let frame = unsafe { self.memory.frame(desc.addr) };
            let start = desc.addr as usize % CHUNK;
            let end = (start + desc.len as usize).min(CHUNK);
            each(Received { frame, start, end });
            count += 1;
        }
        rx.release();
        count
    }

    /// Queues `start..end` of a chunk for a socket's interface; returns whether there was room. [`Self::flush`] sends
    /// it.
    pub fn send(&mut self, i: usize, frame: Frame, start: usize, end: usize) -> bool {
        if self.list[i].tx.room() == 0 {
            self.flush();
        }
        let Sockets { list, memory, .. } = self;
        let Socket { tx, unsent, .. } = &mut list[i];
        let room = tx.room() > 0 && start <= end && end <= CHUNK;
        if room {
            let desc =
                libc::xdp_desc { addr: memory.offset(&frame) + start as u64, len: (end - start) as u32, options: 0 };
            tx.write(desc);
            tx.publish();
            *unsent = true;
            // From here on the chunk is the kernel's.
        } else {
            self.put(frame);
        }
        room
    }

    /// Takes back a chunk that is no longer needed.
    pub fn put(&mut self, frame: Frame) {
        let of = if self.home(&frame) == self.share { &mut self.free } else { &mut self.strays };
        of.push(frame);
    }

    /// The share that a chunk belongs to.
    fn home(&self, frame: &Frame) -> usize {
        let at = self.memory.offset(frame) as usize;
        self.ends.partition_point(|end| *end <= at)
    }

    /// A chunk of another share, and that share's index: it is missing there.
    pub fn stray(&mut self) -> Option<(usize, Frame)> {
        let frame = self.strays.pop()?;
        Some((self.home(&frame), frame))
    }

    /// The number of chunks of a share.
    pub fn chunks(&self, share: usize) -> usize {
        let before = if share == 0 { 0 } else { self.ends[share - 1] };
        (self.ends[share] - before) / CHUNK
    }

    /// Takes all free chunks.
    #[cfg(any(test, feature = "testing"))]
    pub fn all_free(&mut self) -> Vec<Frame> {
        core::mem::take(&mut self.free)
    }

    /// Whether a socket will soon have no room for incoming frames.
    pub fn is_short(&self) -> bool {
        let low = |fill: &Ring<u64>| {
            let left = fill.ours.wrapping_sub(fill.word(fill.consumer).load(Ordering::Relaxed));
            left < ENTRIES / 4
        };
        self.free.is_empty() && self.list.iter().any(|socket| low(&socket.fill))
    }

    /// Sends queued frames, takes back sent ones, and gives the kernel room for incoming ones.
    pub fn flush(&mut self) {
        for i in 0..self.list.len() {
            let socket = &mut self.list[i];
            if core::mem::take(&mut socket.unsent) && socket.tx.needs_wakeup() {
                socket.kick();
                // Frames that have no room now are sent the next time.
                socket.unsent = socket.tx.is_pending();
            }
            while let Some(address) = self.list[i].completion.read() {
                // SAFETY: the kernel has sent it and returns it.
                let frame = unsafe { self.memory.frame(address) };
                self.put(frame);
            }
            self.list[i].completion.release();
            self.refill(i);
        }
    }

    /// Whether frames wait to be sent.
    pub fn is_sending(&self) -> bool {
        self.list.iter().any(|socket| socket.unsent)
    }

    fn refill(&mut self, i: usize) {
        let Sockets { list, memory, free, .. } = self;
        let fill = &mut list[i].fill;
        let mut any = false;
        // Enough is missing to justify a look at the other side.
        if fill.ours.wrapping_sub(fill.theirs) > ENTRIES - ENTRIES / 8 {
            fill.theirs = fill.word(fill.consumer).load(Ordering::Acquire);
        }
        while fill.ours.wrapping_sub(fill.theirs) < ENTRIES
            && let Some(frame) = free.pop()
        {
            fill.write(memory.offset(&frame));
            any = true;
        }
        if any {
            fill.publish();
        }
    }

    /// The number of frames that a socket has lost so far.
    pub fn lost(&self, i: usize) -> Lost {
        let Ok(stats) = xdp_statistics(&self.list[i].fd) else { return Lost::default() };
        // Before Linux 5.9 only the dropped ones are counted.
        let full = stats.rx_ring_full.unwrap_or(0) + stats.rx_fill_ring_empty_descs.unwrap_or(0);
        Lost { full, dropped: stats.rx_dropped }
    }
}

impl Socket {
    fn open((ifindex, queue): Queue, copying: Copying, memory: &Memory, first: Option<&Socket>) -> io::Result<Self> {
        let fd = socket::open(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)?;
        if first.is_none() {
            let region = libc::xdp_umem_reg {
                addr: memory.0.start().as_ptr().addr() as u64,
                len: memory.0.len() as u64,
                chunk_size: CHUNK as u32,
                headroom: HEADROOM,
                flags: 0,
                tx_metadata_len: 0,
            };
            socket::set_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &region)?;
        }
        let offsets = xdp_mmap_offsets(&fd)?;
        let (rx_at, tx_at) = (libc::XDP_PGOFF_RX_RING as u64, libc::XDP_PGOFF_TX_RING as u64);
        let (fill_at, completion_at) = (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let fill = Ring::new(&fd, libc::XDP_UMEM_FILL_RING, fill_at, &offsets.fr)?;
        let completion = Ring::new(&fd, libc::XDP_UMEM_COMPLETION_RING, completion_at, &offsets.cr)?;
        let rx = Ring::new(&fd, libc::XDP_RX_RING, rx_at, &offsets.rx)?;
        let tx = Ring::new(&fd, libc::XDP_TX_RING, tx_at, &offsets.tx)?;
        let address = |flags| SocketAddrXdp::new(flags, ifindex, queue);
        match (first, copying) {
            // It takes the mode of the first socket.
            (Some(first), _) => {
                let (addr, shared_umem_fd) = (address(Flags::XDP_SHARED_UMEM), first.fd.as_fd());
                bind(&fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })?;
            }
            (None, Copying::Zero) => bind(&fd, &address(Flags::XDP_ZEROCOPY | Flags::XDP_USE_NEED_WAKEUP))?,
            (None, Copying::Once) => bind(&fd, &address(Flags::XDP_COPY | Flags::XDP_USE_NEED_WAKEUP))?,
        }
        Ok(Socket { fd, rx, tx, fill, completion, unsent: false })
    }

    /// Makes the kernel send the entries of the ring.
    fn kick(&self) {
        for _ in 0..KICKS {
            // EAGAIN means that there are more frames, or no room.
            let refused = match send(&self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => false,
                Err(_) => true,
            };
            if refused || !self.tx.is_pending() {
                break;
            }
        }
    }
}
