//! The threads of a data path. A connection is always with one of them: the kernel picks a queue by both addresses.

use super::counters::Noted;
use super::fast::{Fast, MAX_DEVICES, Pass};
use super::path::{Shared, complain};
use super::tables::Tables;
use super::transmit::Transmitter;
use arrayvec::ArrayVec;
use sealane_abi::admin::DataPath;
use sealane_abi::tcp::State;
use sealane_engine_ao::{
    Ends, Inbound, Located, Outbound, SignBurst, SocketId, Verdict, VerifyBurst, icmp_error, tell_nobody,
};
use sealane_net::ao::drop::DropReason;
use sealane_net::ao::mac::BURST;
use sealane_net::ao::segment::ChecksumState;
use sealane_net::wire::ip;
use sealane_sys::nfqueue::{BATCH, Queue, Verdict as Fate};
use sealane_sys::nft::{Marks, Table, Watch};
use sealane_sys::poll::{ready, sleep_precisely};
use sealane_sys::promote::MANY;
use sealane_sys::sock_diag::Departures;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often time is looked at when nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// How often it is looked for peers that nobody needs any more.
const TIDY: Duration = Duration::from_secs(60);

/// How often the kernel is asked in one tick about connections that nobody has told the end of.
const SWEEPS: u32 = 32;

/// Descriptors that are waited for.
const FDS: usize = 5 + MAX_DEVICES;
/// How long segments are given that are expected. A connection with so many segments has so much latency anyway.
const NAP: Duration = Duration::from_micros(30);
/// The most batches of a queue before others have their turn.
const TURN: usize = 4;
/// Naps before everything else is looked at.
const NAPS: u32 = 32;

/// The queues of one worker.
struct Receiver {
    output: Queue,
    input: Queue,
}

/// The bursts of one worker.
struct Work {
    sign: SignBurst,
    verify: VerifyBurst,
}

/// What the first worker does for all of them: it restores rules that somebody changed, and hears of sockets that close.
struct Duties {
    watch: Watch,
    departures: Departures,
    tidied: Instant,
}

/// One thread of a data path.
pub(super) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    receiver: Receiver,
    transmitter: Transmitter,
    fast: Fast,
    tables: Tables,
    work: Work,
    duties: Option<Duties>,
}

/// When more segments are to be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    No,
    Soon,
    /// They are there.
    Now,
}

/// What has something to read.
#[derive(Debug, Clone, Copy)]
struct Ready {
    output: bool,
    input: bool,
    rings: bool,
}

impl Worker {
    /// Opens one in the calling thread's namespace, with the queues of packets that leave and that come in. The first one has
    /// `duties`.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(
        shared: &Arc<Shared>,
        index: usize,
        (output, input): (Queue, Queue),
        marks: Marks,
        wanted: DataPath,
        duties: Option<(Watch, Departures)>,
    ) -> io::Result<Self> {
        Ok(Worker {
            shared: shared.clone(),
            index,
            receiver: Receiver { output, input },
            transmitter: Transmitter::open(marks)?,
            fast: Fast::new(marks, wanted),
            tables: Tables::open(shared.clone())?,
            work: Work { sign: SignBurst::new(), verify: VerifyBurst::new() },
            duties: duties.map(|(watch, departures)| Duties { watch, departures, tidied: Instant::now() }),
        })
    }

    /// Moves packets until it is told to stop.
    pub(super) fn run(&mut self) {
        sleep_precisely();
        let mut ticked = Instant::now();
        let (mut busy, mut naps) = (Busy::No, 0);
        while !self.shared.stop.load(Ordering::Acquire) {
            // Many segments come one after another: a nap lets them come together, and wakes nobody in between.
            if busy != Busy::No && naps < NAPS {
                if busy == Busy::Soon {
                    std::thread::sleep(NAP);
                }
                naps += 1;
                busy = self.packets(Ready { output: true, input: true, rings: true });
                continue;
            }
            let shared = self.shared.clone();
            let waker = &shared.posts[self.index].waker;
            let of_duties = |fd: fn(&Duties) -> BorrowedFd<'_>| self.duties.as_ref().map(fd);
            let duties = [of_duties(|d| d.watch.as_fd()), of_duties(|d| d.departures.as_fd())];
            let first = 3 + duties.iter().flatten().count();
            let fds = [waker.as_fd(), self.receiver.output.as_fd(), self.receiver.input.as_fd()];
            let fds = fds.into_iter().chain(duties.into_iter().flatten()).chain(self.fast.fds());
            let ready: ArrayVec<bool, FDS> = ready(fds, if busy == Busy::No { TICK } else { Duration::ZERO });
            naps = 0;
            let rings = busy != Busy::No || ready[first..].contains(&true);
            busy = self.packets(Ready { output: ready[1], input: ready[2], rings });
            if ready[0] {
                waker.drain();
            }
            if let (&[changed, departed], Some(duties)) = (&ready[3..first], &mut self.duties) {
                if changed && duties.watch.changed() {
                    let restored = self.shared.table.lock().as_mut().map_or(Ok(()), Table::restore);
                    complain("rules that somebody changed", restored);
                }
                if departed {
                    self.departed();
                }
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick();
            }
        }
        // What is left in the queues is dropped with them; only then do the rules go.
    }

    /// What is to be done about once a second.
    fn tick(&mut self) {
        self.tables.forget();
        complain("the fast path", self.fast.tick(&self.shared));
        self.note();
        let Some(duties) = &mut self.duties else { return };
        let now_ms = self.shared.now_ms();
        self.shared.engine.lock().expire(now_ms);
        // The kernel is asked about a few connections at a time, and others have their turn in between.
        let sockets = &mut self.tables.sockets;
        (0..SWEEPS).any(|_| !self.shared.engine.lock().sweep(sockets, now_ms));
        let unsaved = self.shared.engine.lock().unsaved();
        if unsaved {
            self.shared.save();
        }
        if duties.tidied.elapsed() >= TIDY {
            duties.tidied = Instant::now();
            complain("peers that nobody needs", self.shared.unprotect_unused(duties.tidied));
        }
    }

    /// Notes what may be shown.
    fn note(&mut self) {
        let noted = Noted {
            connections: self.fast.connections() as u64,
            ring_drops: self.fast.drops(),
            queue_drops: self.receiver.output.overruns() + self.receiver.input.overruns(),
            not_fast: self.fast.unable(),
        };
        self.shared.counters.note(self.index, |n| *n = noted);
    }

    /// Judges the packets that wait in both queues and in the rings, as far as somebody said that there are some, and
    /// says whether more are to be expected at once.
    fn packets(&mut self, ready: Ready) -> Busy {
        if ready.output {
            complain("packets that leave", self.outgoing());
        }
        if ready.input {
            complain("packets that come in", self.incoming());
        }
        let pass = if ready.rings { self.rings() } else { Pass::default() };
        match pass {
            Pass { more: true, .. } => Busy::Now,
            Pass { open: true, .. } | Pass { frames: MANY.., .. } => Busy::Soon,
            _ => Busy::No,
        }
    }

    fn rings(&mut self) -> Pass {
        self.fast.serve(&self.shared, &mut self.work.verify, &mut self.tables.sockets)
    }

    fn outgoing(&mut self) -> io::Result<()> {
        for _ in 0..TURN {
            if self.outgoing_batch()? < BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Signs and sends the packets that one call reads, and says how many there were.
    fn outgoing_batch(&mut self) -> io::Result<usize> {
        let Worker { shared, receiver, transmitter, fast, tables, work, .. } = self;
        let count = receiver.output.receive()?;
        if count == 0 {
            return Ok(0);
        }
        let (packets, mut verdicts) = receiver.output.split();
        let mut batch: ArrayVec<Outbound<'_>, BATCH> = ArrayVec::new();
        let mut about: ArrayVec<About, BATCH> = ArrayVec::new();
        for p in packets {
            let (device, located) = (p.out_device, Located::sent(p.bytes));
            let bound = p.superframe && located.is_some_and(|l| tables.is_bound(l.ends, device));
            about.push(About { id: p.id, superframe: p.superframe, only: if bound { device } else { 0 } });
            let mtu = tables.mtu(device);
            batch.push(Outbound { packet: p.bytes, located, device, mtu, verdict: Verdict::Pass });
        }
        let mut done = 0;
        while done < batch.len() {
            let signed = shared.sign(&mut work.sign, &mut batch[done..], &mut tables.sockets);
            let mut pieces = work.sign.pieces().peekable();
            let mut packets: ArrayVec<&[u8], BURST> = ArrayVec::new();
            while let Some(piece) = pieces.next() {
                let about = &about[done + piece.of];
                if piece.pieces == 1 && !about.superframe {
                    verdicts.judge(about.id, Fate::Replace(piece.packet));
                    continue;
                }
                packets.push(piece.packet);
                if packets.is_full() || pieces.peek().is_none_or(|next| next.of != piece.of) {
                    // A packet that cannot be sent is a packet that is lost, and sent again. Those before it go first.
                    let _ = verdicts.flush();
                    let links = fast.links(batch[done + piece.of].device);
                    transmitter.send(&shared.counters, links, about.only, &packets);
                    packets.clear();
                }
            }
            done += signed;
        }
        for (about, p) in about.iter().zip(&batch) {
            if p.verdict == Verdict::Pass {
                verdicts.judge(about.id, Fate::Accept);
            }
        }
        drop(batch);
        receiver.output.finish()?;
        Ok(count)
    }

    fn incoming(&mut self) -> io::Result<()> {
        let mut turns = TURN;
        loop {
            let (count, worth) = self.incoming_batch()?;
            turns = turns.saturating_sub(1);
            if worth.is_empty() {
                if count < BATCH || turns == 0 {
                    return Ok(());
                }
                continue;
            }
            while self.rings().more {}
            if let Some(table) = self.shared.table.lock().as_mut() {
                for &(device, ends) in &worth {
                    self.fast.promote(device, ends, table);
                }
            }
            self.note();
            // What came meanwhile, still by the queue, is older than what will be in the ring.
            turns = usize::MAX;
        }
    }

    /// Verifies and delivers the packets that one call reads, and says how many there were and which connections are worth
    /// the fast path.
    fn incoming_batch(&mut self) -> io::Result<(usize, ArrayVec<(u32, Ends), BATCH>)> {
        let Worker { shared, index, receiver, fast, tables, work, .. } = self;
        let mut worth = ArrayVec::new();
        let count = receiver.input.receive()?;
        if count == 0 {
            return Ok((0, worth));
        }
        let (packets, mut verdicts) = receiver.input.split();
        let mut batch: ArrayVec<Inbound<'_>, BATCH> = ArrayVec::new();
        let mut ids: ArrayVec<u32, BATCH> = ArrayVec::new();
        for p in packets {
            ids.push(p.id);
            let (device, mtu) = (p.in_device, tables.mtu(p.in_device));
            let checksum = if p.partial_checksum { ChecksumState::Partial } else { ChecksumState::Complete };
            let located = Located::received(p.bytes);
            batch.push(Inbound { packet: p.bytes, located, checksum, device, mtu, verdict: Verdict::Pass });
        }
        // The kernel delivers within `finish`.
        let delivering = shared.delivering(*index);
        shared.verify(&mut work.verify, &mut batch, &mut tables.sockets);
        for (id, p) in ids.iter().zip(&mut batch) {
            match p.verdict {
                Verdict::Pass => verdicts.judge(*id, Fate::Accept),
                // The rules queue ICMP errors and TCP. What is no ICMP and no whole segment cannot be judged: a
                // fragment, for example, that the stack would put together behind us.
                Verdict::NotTcp if !is_icmp(p.packet) => {}
                Verdict::NotTcp => {
                    let about = icmp_error(p.packet);
                    if about.is_some_and(|(ends, error)| shared.engine.lock().ignore_icmp(ends, error)) {
                        tell_nobody(p.packet);
                        verdicts.judge(*id, Fate::Replace(p.packet));
                    } else {
                        verdicts.judge(*id, Fate::Accept);
                    }
                }
                Verdict::Deliver(from, at) => {
                    let packet = &mut p.packet[from..];
                    if p.checksum == ChecksumState::Partial {
                        // The queue tells the kernel that there is nothing left to compute.
                        ip::set_tcp_checksum(packet, &at);
                    }
                    verdicts.judge(*id, Fate::Replace(&packet[..at.end]));
                    if let Some(located) = p.located.filter(|l| fast.count(p.device, l.ends)) {
                        worth.push((p.device, located.ends));
                    }
                }
                Verdict::Drop(DropReason::Required) => {
                    if let Some(located) = p.located {
                        fast.unsigned(p.device, located.ends);
                    }
                }
                Verdict::Sent | Verdict::Drop(_) => {}
            }
        }
        drop(batch);
        receiver.input.finish()?;
        drop(delivering);
        Ok((count, worth))
    }

    /// Takes news of sockets that closed.
    fn departed(&mut self) {
        let Some(duties) = &mut self.duties else { return };
        let (shared, diag) = (&self.shared, &mut self.tables.sockets.diag);
        let now_ms = shared.now_ms();
        let told = duties.departures.each(|entry| {
            let ends = (entry.remote.port() != 0).then(|| Ends::new(entry.local, entry.remote));
            // The answer of the kernel is about the connection that is known now: nobody may put another one there meanwhile.
            let mut engine = shared.engine.lock();
            // Sockets go that shared the ends of one that stays: copies of a handshake, a predecessor in repair mode. Copies
            // share the cookie, too, if somebody asked about the handshake; one that is really gone is not found.
            let lives = ends.filter(|ends| engine.tracks(ends)).is_some_and(|ends| {
                let found = diag.find(ends.local, ends.remote, entry.ifindex);
                found.is_ok_and(|f| f.is_some_and(|f| !matches!(f.state, State::TimeWait | State::Listen)))
            });
            if lives {
                engine.closed_copy(SocketId(entry.cookie));
            } else {
                engine.destroyed(SocketId(entry.cookie), ends, now_ms);
            }
        });
        if told.is_err() {
            shared.engine.lock().doubt(now_ms);
        }
        complain("news of sockets that close", told);
    }
}

/// Whether a packet is ICMP, whose errors the rules queue beside TCP.
fn is_icmp(packet: &[u8]) -> bool {
    match packet.first().map(|b| b >> 4) {
        Some(4) => packet.get(9) == Some(&(libc::IPPROTO_ICMP as u8)),
        Some(6) => packet.get(6) == Some(&(libc::IPPROTO_ICMPV6 as u8)),
        _ => false,
    }
}

/// What is to be known of a packet that leaves, besides what the engine needs.
struct About {
    id: u32,
    superframe: bool,
    /// The device that it may leave by alone, 0 for any.
    only: u32,
}
