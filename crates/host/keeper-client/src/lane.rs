//! The way of requests through memory that the keeper shares with a client, beside the socket of their connection.

use crate::message::BELL;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use sealane_sys::slots::{Slots, Spin};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The longest time for which a client sleeps before it looks whether the keeper is still there.
const LOOK: Duration = Duration::from_millis(20);

/// The slot that is used: a connection has one request under way.
const SLOT: usize = 0;

/// A reply, as long as no other request is made. Nothing of it, or of its request, stays in shared memory.
pub struct LaneReply<'a> {
    slots: &'a Slots,
    len: usize,
    request_len: usize,
}

impl Drop for LaneReply<'_> {
    fn drop(&mut self) {
        self.slots.wipe(SLOT, self.len.max(self.request_len));
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
        if !is_there || !self.slots.part(SLOT, at, to) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its reply is shorter than it says"));
        }
        if self.slots.is_open() { Ok(()) } else { Err(io::ErrorKind::ConnectionReset.into()) }
    }
}

/// The slots of a connection.
pub struct Lane {
    slots: Slots,
    spin: Spin,
}

impl Lane {
    /// Takes over the slots that came with [`Answer::Slots`](crate::message::Answer::Slots).
    ///
    /// # Errors
    /// The kernel's; `InvalidData` and `InvalidInput` if the memory is not as the keeper says.
    pub fn new(file: &OwnedFd, count: u32, room: u32) -> io::Result<Self> {
        Ok(Lane { slots: Slots::of(file, count as usize, room as usize)?, spin: Spin::new() })
    }

    /// The most bytes of a request.
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.room()
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
        let request_len = request.iter().map(|piece| piece.len()).sum();
        let rings = self.slots.ask(SLOT, request);
        let done = if rings { ring(&socket) } else { Ok(()) };
        if let Err(e) = done.and_then(|()| self.wait(&socket, until)) {
            self.slots.wipe(SLOT, request_len);
            return Err(e);
        }
        Ok(LaneReply { slots: &self.slots, len: self.slots.reply_len(SLOT), request_len })
    }

    fn wait<F: AsFd>(&mut self, socket: &impl Fn() -> Result<F, Errno>, until: Instant) -> io::Result<()> {
        let begun = Instant::now();
        let spin = Duration::from_nanos(self.spin.ns());
        while !self.slots.has_reply(SLOT) {
            if begun.elapsed() < spin {
                core::hint::spin_loop();
                continue;
            }
            self.spin.learn(true);
            return self.sleep(socket, until);
        }
        self.spin.learn(false);
        Ok(())
    }

    fn sleep<F: AsFd>(&self, socket: &impl Fn() -> Result<F, Errno>, until: Instant) -> io::Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.slots.wait(SLOT, left.min(LOOK));
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
