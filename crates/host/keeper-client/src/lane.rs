//! The way of requests through memory that the keeper shares with a client, beside the socket of their connection.

use crate::codec::{Append, Writer};
use crate::limits::{BELL, FIRST_LEN, MAX_TEXTS_LEN, PART_LEN, SLOT_LEN, SLOTS, TEXTS_AT};
use inout::InOutBuf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use sealane_sys::forks;
use sealane_sys::slots::{Slots, Spin};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The longest time for which a client sleeps before it looks whether the keeper is still there.
const LOOK: Duration = Duration::from_millis(20);

/// The slot that is used: a connection has one request under way.
const SLOT: usize = 0;
/// The bytes of texts that are prefetched: with longer ones the processor does it by itself.
const PREFETCHED: usize = 4096;
/// The looks at a slot between two at the clock, which takes longer.
const LOOKS: usize = 16;

/// The front of a slot, where the part of a message stands that is around its texts.
pub struct Front<'a> {
    slots: &'a Slots,
    slot: usize,
    len: usize,
}

impl<'a> Front<'a> {
    /// An empty one, for a message of less than [`TEXTS_AT`] bytes.
    #[must_use]
    pub fn new(slots: &'a Slots, slot: usize) -> Self {
        Front { slots, slot, len: 0 }
    }

    /// The bytes in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Append for Front<'_> {
    fn append(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        assert!(end <= TEXTS_AT, "{end} bytes before the texts");
        self.slots.put(self.slot, self.len, bytes);
        self.len = end;
    }
}

/// A reply, as long as no other request is made. Nothing of it, or of its request, stays in shared memory.
pub struct LaneReply<'a> {
    lane: &'a Lane,
    len: usize,
    asked: Asked,
}

/// The parts of a slot that a request has written: of its front, and of its texts.
#[derive(Clone, Copy)]
struct Asked {
    front_len: usize,
    texts_len: usize,
}

impl Drop for LaneReply<'_> {
    fn drop(&mut self) {
        let front_len = self.asked.front_len.max(self.len);
        self.lane.wipe(Asked { front_len, ..self.asked });
    }
}

impl LaneReply<'_> {
    /// Its length in bytes, as the keeper says.
    #[must_use]
    pub fn whole_len(&self) -> usize {
        self.len
    }

    /// Copies a part of it.
    ///
    /// # Errors
    /// `InvalidData` if the reply does not have it, and `ConnectionReset` if the keeper has taken its memory back: what was copied is
    /// not the reply.
    pub fn read(&self, at: usize, to: &mut [u8]) -> io::Result<()> {
        let is_there = at.checked_add(to.len()).is_some_and(|end| end <= self.len);
        if !is_there || !self.lane.slots.part(SLOT, at, to) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its reply is shorter than it says"));
        }
        self.check_open()
    }

    /// Copies a part of the texts that came of those of the request.
    ///
    /// # Errors
    /// `InvalidInput` if the request had no such part, and `ConnectionReset` as for [`Self::read`].
    pub fn read_text(&self, at: usize, to: &mut [u8]) -> io::Result<()> {
        let is_there = at.checked_add(to.len()).is_some_and(|end| end <= self.asked.texts_len);
        if !is_there || !self.lane.slots.part(SLOT, TEXTS_AT + at, to) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.check_open()
    }

    fn check_open(&self) -> io::Result<()> {
        self.lane.check_ours()?;
        if self.lane.is_open() { Ok(()) } else { Err(io::ErrorKind::ConnectionReset.into()) }
    }
}

/// The slots of a connection.
pub struct Lane {
    slots: Slots,
    spin: Spin,
    of: u64,
}

impl Lane {
    /// Takes over [`SLOTS`] slots of [`SLOT_LEN`] bytes that came with [`Answer::Slots`](crate::message::Answer::Slots).
    ///
    /// # Errors
    /// The kernel's; `InvalidData` if the memory is not as it should be.
    pub fn new(file: &OwnedFd) -> io::Result<Self> {
        Ok(Lane { slots: Slots::of(file, SLOTS, SLOT_LEN)?, spin: Spin::new(), of: forks::process() })
    }

    /// Whether the keeper still has this memory, as far as can be told without a system call.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.slots.is_open()
    }

    /// Whether it is this process's, and not that of its parent: a program may fork while a signal interrupts a request, and both go on.
    fn is_ours(&self) -> bool {
        forks::process() == self.of
    }

    /// Ends a request of the parent in the child.
    fn check_ours(&self) -> io::Result<()> {
        if self.is_ours() { Ok(()) } else { Err(io::ErrorKind::ConnectionReset.into()) }
    }

    /// Wipes what a request has written.
    fn wipe(&self, asked: Asked) {
        if self.is_ours() {
            self.slots.wipe(SLOT, 0, asked.front_len);
            self.slots.wipe(SLOT, TEXTS_AT, asked.texts_len);
        }
    }

    /// Sends a request, in pieces that follow one another, and waits for its reply. The program may close the connection's descriptor
    /// at any time, so `socket` is asked for it before each use.
    ///
    /// # Errors
    /// `TimedOut` at `until`; `ConnectionReset` when the keeper has ended the connection; `InvalidData` when it writes what it must
    /// not; and those of `socket`. The connection is of no use any more, and whether the request was served is not known.
    pub fn exchange<'a, F: AsFd>(
        &'a mut self,
        socket: impl Fn() -> Result<F, Errno>,
        request: &[&[u8]],
        until: Instant,
    ) -> io::Result<LaneReply<'a>> {
        let asked = Asked { front_len: request.iter().map(|piece| piece.len()).sum(), texts_len: 0 };
        let done = self.check_ours().and_then(|()| if self.slots.ask(SLOT, request) { ring(&socket) } else { Ok(()) });
        let done = done.and_then(|()| self.wait(&socket, until));
        self.reply(asked, done)
    }

    /// Sends a request with texts that follow one another, and waits for its reply.
    ///
    /// # Errors
    /// As for [`Self::exchange`].
    ///
    /// # Panics
    /// If the texts have more than [`MAX_TEXTS_LEN`] bytes, or what is around them more than [`TEXTS_AT`].
    pub fn exchange_texts<'a, 'b, F: AsFd>(
        &'a mut self,
        socket: impl Fn() -> Result<F, Errno>,
        write: impl FnOnce(&mut Writer<Front<'_>>),
        texts: impl IntoIterator<Item = &'b [u8]>,
        until: Instant,
    ) -> io::Result<LaneReply<'a>> {
        let mut asked = Asked { front_len: self.front(write), texts_len: 0 };
        // The keeper copies what is there while the rest is written.
        let (mut posted, mut rings) = (None, false);
        for text in texts {
            for part in text.chunks(PART_LEN) {
                let shown = posted.map_or(FIRST_LEN, |posted| (posted / PART_LEN + 1) * PART_LEN);
                if asked.texts_len >= shown {
                    rings |= self.show(&asked, &mut posted, false);
                }
                if let Err(e) = self.check_ours() {
                    return self.reply(asked, Err(e));
                }
                self.slots.put(SLOT, TEXTS_AT + asked.texts_len, part);
                asked.texts_len += part.len();
            }
        }
        rings |= self.show(&asked, &mut posted, true);
        let done = if rings { ring(&socket) } else { Ok(()) };
        let done = done.and_then(|()| self.wait(&socket, until));
        self.reply(asked, done)
    }

    /// Sends a request with one text, and takes the text that comes of it while the keeper computes it, if it does so in parts: `taken`
    /// is the length of what was taken.
    ///
    /// # Errors
    /// As for [`Self::exchange`]. A part of the text may have been written.
    ///
    /// # Panics
    /// As for [`Self::exchange_texts`].
    pub fn exchange_text<'a, F: AsFd>(
        &'a mut self,
        socket: impl Fn() -> Result<F, Errno>,
        write: impl FnOnce(&mut Writer<Front<'_>>),
        text: &mut InOutBuf<'_, '_, u8>,
        taken: &mut usize,
        until: Instant,
    ) -> io::Result<LaneReply<'a>> {
        let mut asked = Asked { front_len: self.front(write), texts_len: 0 };
        let (mut posted, mut told) = (None, Ok(()));
        loop {
            let end = text.len().min(asked.texts_len + PART_LEN);
            if let Err(e) = self.check_ours() {
                return self.reply(asked, Err(e));
            }
            self.slots.put(SLOT, TEXTS_AT + asked.texts_len, &text.get_in()[asked.texts_len..end]);
            asked.texts_len = end;
            // It wakes up while the rest is written.
            if self.show(&asked, &mut posted, end == text.len()) {
                told = ring(&socket);
            }
            if end == text.len() || told.is_err() {
                break;
            }
        }
        let done = told.and_then(|()| {
            let mut look = Looking::new(self.spin.ns());
            while !self.slots.has_reply(SLOT) {
                let parts = *taken / PART_LEN;
                self.take(&asked, text, taken);
                if *taken / PART_LEN > parts {
                    look = Looking::new(self.spin.ns());
                } else if !look.goes_on() {
                    self.spin.learn(true);
                    return self.sleep(&socket, until, || self.take(&asked, text, taken));
                }
            }
            self.spin.learn(false);
            Ok(())
        });
        if done.is_ok() {
            self.take(&asked, text, taken);
        }
        self.reply(asked, done)
    }

    /// Takes what the keeper has computed of a text, and was not taken before, and wipes it: there is time, until the next part is
    /// there.
    fn take(&self, asked: &Asked, text: &mut InOutBuf<'_, '_, u8>, taken: &mut usize) {
        // The keeper cannot have computed what it has not got.
        let end = self.slots.computed(SLOT).min(asked.texts_len);
        if end <= *taken || !self.is_ours() {
            return;
        }
        let is_there = self.slots.part(SLOT, TEXTS_AT + *taken, &mut text.get_out()[*taken..end]);
        debug_assert!(is_there, "a part of a text in a slot");
        self.slots.wipe(SLOT, TEXTS_AT + *taken, end - *taken);
        *taken = end;
    }

    /// Writes what is around the texts of a request, and returns its length.
    fn front(&self, write: impl FnOnce(&mut Writer<Front<'_>>)) -> usize {
        let mut to = Writer::to(Front::new(&self.slots, SLOT));
        write(&mut to);
        to.done().len()
    }

    /// Shows the keeper what is written, which at last is all. Whether it has to be told of it. It may wait for all, and no less.
    fn show(&self, asked: &Asked, posted: &mut Option<usize>, is_all: bool) -> bool {
        assert!(asked.texts_len <= MAX_TEXTS_LEN, "{} bytes of texts", asked.texts_len);
        if !self.is_ours() {
            return false;
        }
        if posted.replace(asked.texts_len).is_none() {
            return self.slots.post(SLOT, asked.front_len, asked.texts_len);
        }
        self.slots.wrote(SLOT, asked.texts_len);
        is_all && self.slots.is_asleep()
    }

    /// The reply, if the request was `done`.
    fn reply(&self, asked: Asked, done: io::Result<()>) -> io::Result<LaneReply<'_>> {
        match done {
            Ok(()) => {
                // They come while what is around them is read.
                self.slots.prefetch(SLOT, TEXTS_AT, asked.texts_len.min(PREFETCHED));
                Ok(LaneReply { lane: self, len: self.slots.reply_len(SLOT), asked })
            }
            Err(e) => {
                self.wipe(asked);
                Err(e)
            }
        }
    }

    fn wait<F: AsFd>(&mut self, socket: &impl Fn() -> Result<F, Errno>, until: Instant) -> io::Result<()> {
        let mut look = Looking::new(self.spin.ns());
        while !self.slots.has_reply(SLOT) {
            if !look.goes_on() {
                self.spin.learn(true);
                return self.sleep(socket, until, || {});
            }
        }
        self.spin.learn(false);
        Ok(())
    }

    /// Sleeps until the reply is there, and looks now and then: `look` is called each time.
    fn sleep<F: AsFd>(
        &self,
        socket: &impl Fn() -> Result<F, Errno>,
        until: Instant,
        mut look: impl FnMut(),
    ) -> io::Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.slots.wait(SLOT, left.min(LOOK));
            look();
            if self.slots.has_reply(SLOT) {
                return Ok(());
            }
            if !self.slots.is_sound(SLOT) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it writes what it must not into shared memory",
                ));
            }
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Nothing else would tell of its end. It says nothing over the socket while a request is in a slot.
            let socket = socket()?;
            let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&Timespec::default())) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if self.slots.has_reply(SLOT) => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::ConnectionReset.into()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Looks at a slot, for a time.
struct Looking {
    looks: usize,
    begun: Option<Instant>,
    spin: Duration,
}

impl Looking {
    fn new(spin_ns: u64) -> Self {
        Looking { looks: 0, begun: None, spin: Duration::from_nanos(spin_ns) }
    }

    /// Waits for a moment. False when the time is over.
    fn goes_on(&mut self) -> bool {
        core::hint::spin_loop();
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOKS) {
            return !self.spin.is_zero();
        }
        self.begun.get_or_insert_with(Instant::now).elapsed() < self.spin
    }
}

/// Tells the keeper of a request.
fn ring<F: AsFd>(socket: &impl Fn() -> Result<F, Errno>) -> io::Result<()> {
    loop {
        match send(socket()?, &BELL, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            // If there is no room, it has been told of something already.
            Ok(_) | Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
