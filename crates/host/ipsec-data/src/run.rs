//! The loop of a worker.

use crate::bypass::fast_in::FastIn;
use crate::ready::PollTable;
use crate::receiver::FDS;
use crate::sockets::SocketId;
use crate::worker::Worker;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::device::crypto::Direction;
use sealane_sys::cpu;
use sealane_sys::poll::sleep_precisely;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest time without a look at the clock.
const TICK: Duration = Duration::from_secs(1);
/// The interval at which old entries and unused sockets are looked for.
const TIDY: Duration = Duration::from_secs(60);
/// The sleep while more packets are expected. A tunnel with so many packets has this much latency anyway.
const NAP: Duration = Duration::from_micros(80);
/// The most bursts of the stack that outer packets of IP-TFS wait for to be filled.
const MOST_HELD: u32 = 8;
/// The most bursts of a socket before others have their turn.
const TURN: usize = 4;

/// A descriptor that a worker waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Another thread wakes it.
    Waker,
    /// The queue of its TUN device.
    Queue,
    /// Addresses of this host have changed.
    Addresses,
    /// A ring of a device.
    Ring,
    /// A socket of ESP or AH.
    Socket(SocketId),
    /// Connections for ESP in TCP.
    Streams,
}

/// Work that was begun and goes on without waiting.
#[derive(Default)]
struct Ongoing {
    /// A frame of the stack is being cut.
    cutting: bool,
    /// Bursts in a row after which outer packets of IP-TFS waited for more.
    held: u32,
    /// More packets of rings are expected.
    ringing: bool,
    /// A socket may have more.
    socket: Option<SocketId>,
    /// Connections for ESP in TCP may have more.
    streams: bool,
}

/// The times of the last periodic work.
struct Timers {
    core: Instant,
    routes: Instant,
    ports: Instant,
    /// The last time that there was something to do.
    work: Instant,
}

impl Worker {
    /// Moves packets until it is told to stop.
    ///
    /// # Errors
    /// The kernel's: nothing passes any more.
    pub fn run(&mut self) -> io::Result<()> {
        sleep_precisely();
        cpu::be_preferred();
        let start = Instant::now();
        let mut timers = Timers { core: start, routes: start, ports: start, work: start };
        let mut ongoing = Ongoing::default();
        while !self.post.stop.load(Ordering::Acquire) {
            // Many packets come one after another: during a nap they gather, and nobody is woken in between.
            if ongoing.ringing && ongoing.socket.is_none() && !ongoing.cutting && !ongoing.streams {
                std::thread::sleep(NAP);
            }
            let completed = self.complete();
            self.close_unused(&ongoing, &mut timers);
            // While the core takes no more bursts, packets wait in the kernel.
            let room = self.flights.has_room();
            let wait = self.wait(completed, room, &ongoing, &mut timers);
            let reads = self.tables.reads(&self.shared);
            let woken = self.poll(reads, room, wait);
            self.rx.intake().disarm();
            self.tables.routes.tick();
            if !woken.is_empty() {
                timers.work = self.tables.routes.now();
            }
            self.tick(&mut timers)?;
            let intake = self.rx.intake();
            let mut queue = ongoing.cutting || intake.has_mail() || intake.is_held();
            let (mut rings, mut streams) = (false, core::mem::take(&mut ongoing.streams));
            let mut sockets: ArrayVec<SocketId, FDS> = ongoing.socket.take().into_iter().collect();
            for source in woken {
                match source {
                    Source::Waker => self.post.waker.drain(),
                    Source::Addresses => self.tables.routes.refresh()?,
                    Source::Queue => queue = true,
                    Source::Ring => rings = true,
                    Source::Socket(socket) if sockets.contains(&socket) => {}
                    Source::Socket(socket) => sockets.push(socket),
                    Source::Streams => streams = true,
                }
            }
            if queue {
                ongoing.cutting = self.outbound()? && self.rx.is_cutting();
            }
            ongoing.ringing = self.rings(rings, reads)?;
            for socket in sockets {
                if self.read(socket)? {
                    ongoing.socket = Some(socket);
                }
            }
            ongoing.socket = self.rx.pending().or(ongoing.socket);
            ongoing.streams = streams && self.inbound_in_streams()?;
            // The packets of others do not wait for as long as one flow goes on.
            ongoing.held = if ongoing.cutting { (ongoing.held + 1) % MOST_HELD } else { 0 };
            self.gathered(ongoing.held != 0);
            if ongoing.socket.is_none() && !ongoing.ringing && !ongoing.streams {
                self.flush_superframe();
            }
        }
        Ok(())
    }

    /// The time that it may wait. If it may, other threads wake it from now on when they hand something over.
    fn wait(&mut self, completed: bool, room: bool, ongoing: &Ongoing, timers: &mut Timers) -> Duration {
        let now = self.tables.routes.now();
        let reading = ongoing.socket.is_some() || ongoing.ringing || ongoing.streams;
        let going_on = reading || ongoing.cutting || self.rx.intake().has_mail();
        let busy = completed || room && going_on;
        if busy {
            timers.work = now;
        }
        let spins = !self.spin().is_zero() && now.duration_since(timers.work) < self.spin();
        let has_work = busy || spins || self.flights.arm() && self.complete() || room && self.rx.intake().arm();
        if has_work {
            return Duration::ZERO;
        }
        // Without room something else is waited for.
        self.tables.until_gathered(&self.shared).filter(|_| room).map_or(TICK, |due| due.min(TICK))
    }

    /// Waits for what there is to do, of sockets of port 4500 and raw ones only if this thread `reads` them.
    fn poll(&self, reads: bool, room: bool, wait: Duration) -> ArrayVec<Source, FDS> {
        let mut table = PollTable::new();
        table.add(Source::Waker, self.post.waker.as_fd());
        if room {
            if let Some(queue) = self.rx.queue() {
                table.add(Source::Queue, queue);
            }
            table.add(Source::Addresses, self.tables.routes.as_fd());
            self.rx.fast.iter().flat_map(FastIn::fds).for_each(|fd| table.add(Source::Ring, fd));
            let ports = self.tx.ports();
            // Sockets of other ports are always read by the thread that opened them.
            let first = if reads { 0 } else { ports.common() };
            for (i, socket) in ports.own().iter().enumerate().skip(first) {
                table.add(Source::Socket(SocketId::Udp(i)), socket.as_fd());
            }
            if self.streams.is_some() {
                table.add(Source::Streams, self.shared.streams.as_fd());
            }
            for (i, socket) in self.rx.raw().iter().enumerate().filter(|_| reads) {
                table.add(Source::Socket(SocketId::Raw(i)), socket.as_fd());
            }
        }
        table.wait(wait)
    }

    /// Does what is due at intervals.
    ///
    /// # Errors
    /// The kernel's.
    fn tick(&mut self, timers: &mut Timers) -> io::Result<()> {
        let now = self.tables.routes.now();
        if now.duration_since(timers.core) >= TICK {
            timers.core = now;
            self.tables.handle_timeout(&self.shared);
            self.tables.routes.catch_up()?;
        }
        if self.joins && self.shared.has_looked() {
            self.tx.join_key_managers();
        }
        if now.duration_since(timers.routes) > TIDY && self.tables.routes.forget_narrow_paths() {
            timers.routes = now;
        }
        Ok(())
    }

    /// Closes unused sockets, while nothing refers to a socket by its index.
    fn close_unused(&mut self, ongoing: &Ongoing, timers: &mut Timers) {
        let now = self.tables.routes.now();
        let due = now.duration_since(timers.ports) > TIDY;
        let ports = self.tx.ports();
        if ports.has_others()
            && (due || ports.has_left())
            && ongoing.socket.is_none()
            && self.flights.is_empty(Direction::Decrypt)
        {
            self.tx.close_left_ports();
            if due {
                timers.ports = now;
                self.tx.close_unused_ports();
                // Key managers may have come and gone without a request.
                self.shared.note_request();
            }
        }
    }

    /// Opens bursts of one socket until it is another's turn. Returns whether there may be more.
    ///
    /// # Errors
    /// The socket's.
    fn read(&mut self, socket: SocketId) -> io::Result<bool> {
        for _ in 0..TURN {
            if !self.inbound(socket)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
