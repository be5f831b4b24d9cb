//! Slots in memory that two processes share, each for one request and its reply: a server and one client of it, who need no
//! system call while both are awake.
//!
//! ```text
//! 0               asleep:u32 open:u32              the server waits for its sockets, and has to be told of a request;
//!                                                  what is read is true as long as `open` is 1 afterwards
//! 64 + 128 i      state:u32 len:u32 written:u32    of slot i: whose it is, the length of the message, and the bytes of the text
//!                                                  behind it that the client has written so far
//! 128 + 128 i     computed:u32                     the bytes of the text that the server has computed so far
//! 4096 + i room   a request, or its reply, and where the two sides have agreed on, its text
//! ```
//!
//! The state says whose a slot is. A text may come while it is the server's: the client goes on writing behind `written`, and the server
//! computes the part before that, and puts it in its place, where the client reads the part before `computed`. Each part is touched
//! by one side at a time, and while the slot is the server's, each of the two words is written by one side only.
//!
//! Neither side can rely on what the other one writes: lengths are read once and bounded, and bytes are copied before anybody looks at
//! them. Somebody who writes into a slot, or a part, that is not theirs spoils their own request.
//!
//! The system calls are made without the C library, which the preloaded library is in front of.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex::{self, Flags, Timespec};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The most slots.
pub const MAX_COUNT: usize = (HEAD_LEN - LINE) / WORDS_LEN;
const HEAD_LEN: usize = 4096;
/// A cache line, so that two slots do not disturb each other, nor the two sides of one.
const LINE: usize = 64;
/// The words of a slot: a line for each side.
const WORDS_LEN: usize = 2 * LINE;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The client's: it may write a request, or read the reply.
const CLIENTS: u32 = 0;
/// The server's: there is a request.
const SERVERS: u32 = 1;
/// The server's, and the client sleeps until there is the reply.
const AWAITED: u32 = 2;

/// The slots, as one of both processes has them.
///
/// A child of a fork has them too: it may let them go, and does nothing else with them.
pub struct Slots {
    /// The memory, of the process that made them.
    memory: Option<Memory>,
    start: NonNull<u8>,
    count: usize,
    room: usize,
}

// SAFETY: the memory is not tied to a thread. It is only reached by atomic words, and by copies to and from it.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Slots {
    /// Makes `count` slots of `room` bytes, a multiple of the page size, and the descriptor by which the client has them too.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` for other numbers.
    pub fn new(count: usize, room: usize) -> io::Result<(Self, OwnedFd)> {
        let len = len(count, room)?;
        let file = memfd_create(c"sealane-slots", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        let copy = fcntl_dupfd_cloexec(&file, 0)?;
        let mut slots = Slots::map(&copy, count, room)?;
        slots.memory = Some(Memory { file, len });
        slots.open().store(1, Ordering::Relaxed);
        Ok((slots, copy))
    }

    /// Takes over slots that somebody else has made.
    ///
    /// # Errors
    /// The kernel's; `InvalidData` for a file that may shrink, or has another length.
    pub fn of(file: &OwnedFd, count: usize, room: usize) -> io::Result<Self> {
        let len = len(count, room)?;
        if !fcntl_get_seals(file)?.contains(SEALS) {
            return Err(invalid("a file that may shrink"));
        }
        if u64::try_from(fstat(file)?.st_size) != Ok(len as u64) {
            return Err(invalid("a file of another length"));
        }
        Slots::map(file, count, room)
    }

    fn map(file: &OwnedFd, count: usize, room: usize) -> io::Result<Self> {
        let len = len(count, room)?;
        // SAFETY: a new mapping, of a file that has this length and cannot shrink.
        let at = unsafe {
            let both = ProtFlags::READ | ProtFlags::WRITE;
            mmap(core::ptr::null_mut(), len, both, MapFlags::SHARED, file.as_fd(), 0)
        }?;
        let start = NonNull::new(at.cast::<u8>()).ok_or_else(|| invalid("no address"))?;
        Ok(Slots { memory: None, start, count, room })
    }

    /// The number of slots.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The most bytes of a request or reply.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: in the first page of our mapping, and aligned; the other process uses it as an atomic word, too.
        unsafe { self.start.add(at).cast::<AtomicU32>().as_ref() }
    }

    fn asleep(&self) -> &AtomicU32 {
        self.word(0)
    }

    fn open(&self) -> &AtomicU32 {
        self.word(size_of::<u32>())
    }

    /// A word of a slot.
    fn word_of(&self, slot: usize, at: usize) -> &AtomicU32 {
        assert!(slot < self.count, "slot {slot} of {}", self.count);
        self.word(LINE + slot * WORDS_LEN + at)
    }

    fn state(&self, slot: usize) -> &AtomicU32 {
        self.word_of(slot, 0)
    }

    /// The length word of a slot: bytes of its request or reply.
    fn len(&self, slot: usize) -> &AtomicU32 {
        self.word_of(slot, size_of::<u32>())
    }

    fn written_word(&self, slot: usize) -> &AtomicU32 {
        self.word_of(slot, 2 * size_of::<u32>())
    }

    fn computed_word(&self, slot: usize) -> &AtomicU32 {
        self.word_of(slot, LINE)
    }

    fn body(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < self.count, "slot {slot} of {}", self.count);
        // SAFETY: within our mapping.
        unsafe { self.start.add(HEAD_LEN + slot * self.room) }
    }

    /// Copies bytes to a place of a slot.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn put(&self, slot: usize, at: usize, bytes: &[u8]) {
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= self.room);
        assert!(fits, "{} bytes at {at} in a slot of {}", bytes.len(), self.room);
        // SAFETY: within the slot. No reference to this memory exists, in no process of ours.
        unsafe { self.body(slot).add(at).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Copies pieces, which follow one another, into a slot, and returns their length.
    fn put_all(&self, slot: usize, pieces: &[&[u8]]) -> usize {
        pieces.iter().fold(0, |at, piece| {
            self.put(slot, at, piece);
            at + piece.len()
        })
    }

    /// Copies a part of a slot. False if it is not in the slot.
    #[must_use]
    pub fn part(&self, slot: usize, at: usize, to: &mut [u8]) -> bool {
        if at.checked_add(to.len()).is_none_or(|end| end > self.room) {
            return false;
        }
        // SAFETY: within the slot. No reference to this memory exists, in no process of ours.
        unsafe { self.body(slot).add(at).copy_to_nonoverlapping(NonNull::from(&mut *to).cast(), to.len()) };
        true
    }

    /// The server: whether there is a request in a slot.
    #[must_use]
    pub fn has_request(&self, slot: usize) -> bool {
        matches!(self.state(slot).load(Ordering::Acquire), SERVERS | AWAITED)
    }

    /// The server: copies the request in a slot. `None` if it does not fit: nothing is copied.
    #[must_use]
    pub fn request(&self, slot: usize, to: &mut [u8]) -> Option<usize> {
        let len = self.len(slot).load(Ordering::Relaxed) as usize;
        let to = to.get_mut(..len)?;
        self.part(slot, 0, to).then_some(len)
    }

    /// The server: the bytes of the text that are there, as the client says.
    #[must_use]
    pub fn written(&self, slot: usize) -> usize {
        self.written_word(slot).load(Ordering::Acquire) as usize
    }

    /// The server: so many bytes of the text are computed, and in their places.
    pub fn publish(&self, slot: usize, computed: usize) {
        self.computed_word(slot).store(computed as u32, Ordering::Release);
    }

    /// Gets a part of a slot, which this side is about to read and to write, into its cache while it does something else.
    pub fn prefetch(&self, slot: usize, at: usize, len: usize) {
        let end = at.saturating_add(len).min(self.room);
        for line in (at..end).step_by(LINE) {
            // SAFETY: within the slot.
            prefetch_to_write(unsafe { self.body(slot).add(line) });
        }
    }

    /// The server: puts the reply, in pieces that follow one another, into a slot, which is the client's again.
    ///
    /// # Panics
    /// If the reply is longer than [`Self::room`].
    pub fn reply(&self, slot: usize, reply: &[&[u8]]) {
        let len = self.put_all(slot, reply);
        self.give_back(slot, len);
    }

    /// The server: gives a slot with a reply of this length back to the client.
    pub fn give_back(&self, slot: usize, len: usize) {
        self.len(slot).store(len as u32, Ordering::Relaxed);
        let state = self.state(slot);
        if state.swap(CLIENTS, Ordering::AcqRel) == AWAITED {
            let _ = futex::wake(state, Flags::empty(), i32::MAX as u32);
        }
    }

    /// The server: says that it has to be told of requests, before it looks for the last time; or that it looks by itself.
    pub fn sleep(&self, asleep: bool) {
        self.asleep().store(u32::from(asleep), Ordering::Relaxed);
        if asleep {
            // Either the client sees this, or the server sees the request (`ask`).
            fence(Ordering::SeqCst);
        }
    }

    /// The client: puts a request into a slot. Whether the server has to be told of it.
    ///
    /// # Panics
    /// If the request is longer than [`Self::room`].
    #[must_use]
    pub fn ask(&self, slot: usize, request: &[&[u8]]) -> bool {
        let len = self.put_all(slot, request);
        self.post(slot, len, 0)
    }

    /// The client: gives the server a slot with a request of this length, and the first bytes of its text. Whether the server has to be
    /// told of it.
    #[must_use]
    pub fn post(&self, slot: usize, len: usize, written: usize) -> bool {
        self.len(slot).store(len as u32, Ordering::Relaxed);
        self.written_word(slot).store(written as u32, Ordering::Relaxed);
        // The word is the server's, and its line stays there where it need not be written.
        if self.computed_word(slot).load(Ordering::Relaxed) != 0 {
            self.computed_word(slot).store(0, Ordering::Relaxed);
        }
        self.state(slot).store(SERVERS, Ordering::Release);
        self.is_asleep()
    }

    /// The client: more bytes of the text are there.
    pub fn wrote(&self, slot: usize, written: usize) {
        self.written_word(slot).store(written as u32, Ordering::Release);
    }

    /// The client: whether the server has to be told of what was written before.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        // As in `sleep`.
        fence(Ordering::SeqCst);
        self.asleep().load(Ordering::Relaxed) != 0
    }

    /// The client: the bytes of the text that are computed, as the server says.
    #[must_use]
    pub fn computed(&self, slot: usize) -> usize {
        self.computed_word(slot).load(Ordering::Acquire) as usize
    }

    /// The client: whether the reply is there.
    #[must_use]
    pub fn has_reply(&self, slot: usize) -> bool {
        self.state(slot).load(Ordering::Acquire) == CLIENTS
    }

    /// The client: sleeps until the reply is there, at most for some time. It may return early.
    pub fn wait(&self, slot: usize, time: Duration) {
        let state = self.state(slot);
        match state.compare_exchange(SERVERS, AWAITED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(AWAITED) => {}
            Err(_) => return,
        }
        if let Ok(time) = Timespec::try_from(time) {
            // Whatever ends it, the caller looks.
            let _ = futex::wait(state, Flags::empty(), AWAITED, Some(&time));
        }
    }

    /// The server: its memory, so that it outlives the slots.
    pub fn memory(&mut self) -> Option<Memory> {
        self.memory.take()
    }

    /// The client: whether what it has read before is what the server has written.
    #[must_use]
    pub fn is_open(&self) -> bool {
        // What was copied before was copied before this.
        fence(Ordering::Acquire);
        self.open().load(Ordering::Relaxed) == 1
    }

    /// The client: whether the state of a slot is one of those that there are.
    #[must_use]
    pub fn is_sound(&self, slot: usize) -> bool {
        self.state(slot).load(Ordering::Relaxed) <= AWAITED
    }

    /// The client: wipes a part of a slot, as far as there is one.
    pub fn wipe(&self, slot: usize, at: usize, len: usize) {
        let at = at.min(self.room);
        // SAFETY: within the slot. No reference to this memory exists, in no process of ours. The other process may read it, so
        // that the compiler cannot leave this out.
        unsafe { self.body(slot).add(at).write_bytes(0, len.min(self.room - at)) };
    }

    /// The client: the length of the reply in a slot, as it says.
    #[must_use]
    pub fn reply_len(&self, slot: usize) -> usize {
        self.len(slot).load(Ordering::Relaxed) as usize
    }
}

/// Has the processor get a cache line, to be its only owner, while it does something else.
fn prefetch_to_write(line: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads and writes nothing that a program sees, at any address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nothing made from it outlives it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), HEAD_LEN + self.count * self.room) };
    }
}

/// The memory of slots. It is given back when this is dropped: the client may keep the file, but no memory that counts as the server's.
/// A client reads zeros then, and finds out ([`Slots::is_open`]).
pub struct Memory {
    file: OwnedFd,
    len: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // `open` is 0 before anything else is.
        for (at, len) in [(0, HEAD_LEN), (HEAD_LEN, self.len - HEAD_LEN)] {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.file, how, at as u64, len as u64);
        }
    }
}

/// The length of a file of slots.
fn len(count: usize, room: usize) -> io::Result<usize> {
    let fits = (1..=MAX_COUNT).contains(&count) && (1..=1 << 24).contains(&room) && room.is_multiple_of(HEAD_LEN);
    if fits { Ok(HEAD_LEN + count * room) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// The time for which somebody looks at a word again and again before they sleep: longer while it is not in vain.
///
/// A spin is in vain where both processes have one CPU, or the other side has nothing to do; it then costs next to nothing soon. Now and
/// then the longest one is tried, because one that has become too short is in vain, whatever the other side does.
#[derive(Debug)]
pub struct Spin {
    ns: u64,
    /// The spins in vain since the last one that was not.
    vain: u32,
}

impl Spin {
    const MAX_NS: u64 = 50_000;
    const MIN_NS: u64 = 1_000;
    const VAIN: u32 = 64;

    /// The longest time at first; none on a machine with one CPU.
    #[must_use]
    pub fn new() -> Self {
        // Where it cannot be told there are many CPUs.
        let is_alone = rustix::thread::sched_getaffinity(None).is_ok_and(|cpus| cpus.count() < 2);
        Spin { ns: if is_alone { 0 } else { Self::MAX_NS }, vain: 0 }
    }

    /// The time to spin now, in nanoseconds.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.ns
    }

    /// Learns whether the last spin was in vain.
    pub fn learn(&mut self, in_vain: bool) {
        if self.ns == 0 {
            return;
        }
        self.vain = if in_vain { self.vain.wrapping_add(1) } else { 0 };
        self.ns = match in_vain {
            true if self.vain.is_multiple_of(Self::VAIN) => Self::MAX_NS,
            true => (self.ns / 2).max(Self::MIN_NS),
            false => (self.ns * 2).min(Self::MAX_NS),
        };
    }
}

impl Default for Spin {
    fn default() -> Self {
        Spin::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    const ROOM: usize = 8192;

    fn both(count: usize) -> (Slots, Slots) {
        let (server, file) = Slots::new(count, ROOM).unwrap();
        (server, Slots::of(&file, count, ROOM).unwrap())
    }

    #[test]
    fn a_request_has_its_reply() {
        let (server, client) = both(2);
        let mut buffer = [0; ROOM];
        assert!(!server.has_request(1) && client.has_reply(1));
        assert!(!client.ask(1, &[b"to ", b"", b"seal"]));
        assert!(server.has_request(1) && !server.has_request(0) && !client.has_reply(1));
        assert_eq!(server.request(1, &mut buffer), Some(7));
        assert_eq!(&buffer[..7], b"to seal");
        server.reply(1, &[b"sealed", b"!!"]);
        assert!(client.has_reply(1) && !server.has_request(1));
        assert!(client.reply_len(1) == 8 && client.part(1, 0, &mut buffer[..8]));
        assert_eq!(&buffer[..8], b"sealed!!");
        let mut part = [0; 4];
        assert!(client.part(1, 2, &mut part) && &part == b"aled" && client.reply_len(1) == 8);
        assert!(!client.part(1, ROOM - 3, &mut part) && !client.part(1, usize::MAX, &mut part));
        client.wipe(1, 0, 3);
        assert!(client.part(1, 0, &mut buffer[..8]) && &buffer[..8] == b"\0\0\0led!!");
    }

    #[test]
    fn a_text_is_computed_while_it_is_written() {
        const AT: usize = 4096;
        let (server, client) = both(2);
        let mut buffer = [0; 8];
        client.put(1, 0, b"front");
        client.put(1, AT, b"abcd");
        assert!(!client.post(1, 5, 4));
        assert!(server.has_request(1) && server.request(1, &mut buffer) == Some(5) && server.written(1) == 4);
        assert!(server.part(1, AT, &mut buffer[..4]) && &buffer[..4] == b"abcd");
        client.put(1, AT + 4, b"efgh");
        client.wrote(1, 8);
        server.prefetch(1, AT + 4, 4);
        server.put(1, AT, b"ABCD");
        server.publish(1, 4);
        assert!(client.computed(1) == 4 && !client.has_reply(1) && server.written(1) == 8);
        assert!(client.part(1, AT, &mut buffer[..4]) && &buffer[..4] == b"ABCD");
        assert!(server.part(1, AT + 4, &mut buffer[..4]) && &buffer[..4] == b"efgh");
        server.reply(1, &[b"done"]);
        assert!(client.has_reply(1) && client.reply_len(1) == 4);
        // The next request begins anew, and the other slot has words of its own.
        assert!(!client.post(1, 0, 0));
        assert!(client.computed(1) == 0 && server.written(1) == 0);
        assert!(server.computed(0) == 0 && server.written(0) == 0 && !server.has_request(0));
        // At any place the ends of a slot hold.
        server.prefetch(1, ROOM - 1, usize::MAX);
        client.wipe(1, ROOM - 1, usize::MAX);
        client.wipe(1, usize::MAX, 1);
        for (at, len) in [(ROOM, 1), (ROOM - 3, 4), (usize::MAX, 1)] {
            let put = std::panic::catch_unwind(|| client.put(1, at, &[1; 8][..len]));
            assert!(put.is_err(), "{len} bytes at {at}");
        }
    }

    #[test]
    fn a_length_that_does_not_fit_is_no_request() {
        let (server, client) = both(1);
        let mut buffer = [7; 16];
        for len in [17, ROOM as u32, ROOM as u32 + 1, u32::MAX] {
            let _ = client.ask(0, &[b"x"]);
            client.len(0).store(len, Ordering::Relaxed);
            assert_eq!(server.request(0, &mut buffer), None, "{len}");
            assert_eq!(buffer, [7; 16]);
            server.reply(0, &[]);
        }
    }

    #[test]
    fn memory_goes_with_the_server() {
        let (server, file) = Slots::new(2, ROOM).unwrap();
        let client = Slots::of(&file, 2, ROOM).unwrap();
        let _ = client.ask(1, &[&[1; ROOM]]);
        let mut server = server;
        let memory = server.memory();
        drop(server);
        assert!(fstat(&file).unwrap().st_blocks > 0 && client.is_open());
        drop(memory);
        assert_eq!(fstat(&file).unwrap().st_blocks, 0);
        assert!(!client.is_open());
        let mut bytes = [1; 8];
        assert!(client.part(1, 0, &mut bytes) && bytes == [0; 8]);
    }

    #[test]
    fn a_file_that_can_shrink_or_has_another_length_is_not_taken() {
        let open = memfd_create(c"open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, (HEAD_LEN + ROOM) as u64).unwrap();
        let kind = |done: io::Result<Slots>| done.err().map(|e| e.kind());
        assert_eq!(kind(Slots::of(&open, 1, ROOM)), Some(io::ErrorKind::InvalidData));
        let (_server, file) = Slots::new(2, ROOM).unwrap();
        assert_eq!(kind(Slots::of(&file, 1, ROOM)), Some(io::ErrorKind::InvalidData));
        assert!(ftruncate(&file, 0).is_err());
        for (count, room) in [(0, ROOM), (MAX_COUNT + 1, ROOM), (1, 0), (1, 100), (1, 1 << 25)] {
            assert_eq!(kind(Slots::new(count, room).map(|(slots, _)| slots)), Some(io::ErrorKind::InvalidInput));
        }
    }

    /// No request is missed by a server that goes to sleep at any moment, and no reply by a client.
    #[test]
    fn nobody_sleeps_while_there_is_something_for_them() {
        let (server, client) = both(1);
        let ended = AtomicBool::new(false);
        let (bell, rings) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (server, ended) = (&server, &ended);
            scope.spawn(move || {
                let mut buffer = [0; ROOM];
                while !ended.load(Ordering::Relaxed) {
                    server.sleep(true);
                    if !server.has_request(0) && rings.recv().is_err() {
                        return;
                    }
                    server.sleep(false);
                    // A bell may be late.
                    while server.has_request(0) {
                        let len = server.request(0, &mut buffer).unwrap();
                        server.reply(0, &[&buffer[..len]]);
                    }
                }
            });
            for n in 0..20_000u32 {
                if client.ask(0, &[&n.to_le_bytes()]) {
                    bell.send(()).unwrap();
                }
                for _ in 0..n % 64 {
                    core::hint::spin_loop();
                }
                while !client.has_reply(0) {
                    // Nobody would wake it: an hour is for ever.
                    client.wait(0, Duration::from_secs(3600));
                }
                let mut back = [0; 4];
                assert!(client.reply_len(0) == 4 && client.part(0, 0, &mut back));
                assert_eq!(back, n.to_le_bytes());
            }
            ended.store(true, Ordering::Relaxed);
            drop(bell);
        });
    }

    /// Nor is the rest of a text by a server that waits for all of it.
    #[test]
    fn nobody_sleeps_while_a_text_is_written() {
        const AT: usize = 4096;
        let (server, client) = both(1);
        let ended = AtomicBool::new(false);
        let (bell, rings) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (server, ended) = (&server, &ended);
            scope.spawn(move || {
                let is_whole = || server.has_request(0) && server.written(0) >= 8;
                while !ended.load(Ordering::Relaxed) {
                    server.sleep(true);
                    if !is_whole() && rings.recv().is_err() {
                        return;
                    }
                    server.sleep(false);
                    while is_whole() {
                        let mut text = [0; 8];
                        assert!(server.part(0, AT, &mut text));
                        server.reply(0, &[&text]);
                    }
                }
            });
            for n in 0..20_000u32 {
                let [first, second] = [n, !n].map(u32::to_le_bytes);
                client.put(0, AT, &first);
                let mut rings = client.post(0, 0, first.len());
                for _ in 0..n % 64 {
                    core::hint::spin_loop();
                }
                client.put(0, AT + first.len(), &second);
                client.wrote(0, first.len() + second.len());
                rings |= client.is_asleep();
                if rings {
                    bell.send(()).unwrap();
                }
                while !client.has_reply(0) {
                    client.wait(0, Duration::from_secs(3600));
                }
                let mut back = [[0; 4]; 2];
                assert!(client.part(0, 0, back.as_flattened_mut()) && back == [first, second]);
            }
            ended.store(true, Ordering::Relaxed);
            drop(bell);
        });
    }

    #[test]
    fn a_spin_in_vain_becomes_short_and_grows_again() {
        let mut spin = Spin { ns: Spin::MAX_NS, vain: 0 };
        let learnt = |_| {
            let ns = spin.ns();
            spin.learn(true);
            ns
        };
        let lens: Vec<u64> = (0..2 * Spin::VAIN).map(learnt).collect();
        assert_eq!(lens.iter().filter(|ns| **ns == Spin::MAX_NS).count(), 2, "{lens:?}");
        assert!(lens.iter().filter(|ns| **ns == Spin::MIN_NS).count() > 100);
        // One that is long enough stays.
        (0..20).for_each(|_| spin.learn(false));
        assert_eq!(spin.ns(), Spin::MAX_NS);
        let mut none = Spin { ns: 0, vain: 0 };
        (0..100).for_each(|n| none.learn(n % 2 == 0));
        assert_eq!(none.ns(), 0);
    }
}
