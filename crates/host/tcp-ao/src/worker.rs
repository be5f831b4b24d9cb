//! The workers of a data path. All segments of a connection belong to one of them, because the kernel selects the queue
//! by a hash of both addresses.

use super::counters::WorkerFigures;
use super::fast::{Fast, RingsServed};
use super::older::OlderPackets;
use super::path::{Shared, token};
use super::tables::Tables;
use super::transmit::Transmitter;
use arrayvec::ArrayVec;
use sealane_abi::admin::DataPath;
use sealane_abi::tcp::State;
use sealane_engine_ao::{
    Ends, Inbound, Located, Outbound, SignBurst, SocketId, Verdict, VerifyBurst, hide_from_sockets, icmp_error, is_icmp,
};
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::mac::BURST;
use sealane_net_ao::segment::ChecksumState;
use sealane_packets::fast_path::{MANY, TICK};
use sealane_packets::nfqueue::{BATCH, Queue, Verdict as Fate};
use sealane_packets::ring::MAX_FRAMES;
use sealane_rules::ao::PeerTable;
use sealane_rules::watch::Watch;
use sealane_sys::marks::Marks;
use sealane_sys::poll::{Tokens, sleep_precisely};
use sealane_sys::sock_diag::{Departures, Entry};
use sealane_sys::{life, transient};
use sealane_wire::ip;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::{debug, error, info, warn};

/// The interval at which unused peers are removed.
const TIDY: Duration = Duration::from_secs(60);

/// The most calls of the engine's sweep in one tick.
const SWEEPS: u32 = 32;

/// The pause in which expected segments accumulate. A connection with that many segments has more latency anyway.
const NAP: Duration = Duration::from_micros(30);
/// The most pauses before the worker checks everything else.
const NAPS: u32 = 32;
/// The number of pauses after which it looks for newcomers and strangers.
const OTHERS: u32 = 4;
/// The number of batches of known connections after which newcomers and strangers have a turn, even if more are waiting.
const TURN: u32 = 16;

/// The queues of one worker.
struct Receiver {
    output: Queue,
    /// Segments of known connections.
    input: Queue,
    /// Other segments from the addresses of peers.
    newcomers: Queue,
    /// Segments with the option that are not from a peer, and ICMP errors; the first worker has them.
    strangers: Option<Queue>,
}

impl Receiver {
    /// The queue of a source, and its place in [`Worker::stale`].
    fn of(&mut self, source: Source) -> (&mut Queue, usize) {
        match (source, &mut self.strangers) {
            (Source::Strangers, Some(strangers)) => (strangers, STRANGERS),
            (Source::Newcomers, _) => (&mut self.newcomers, NEWCOMERS),
            _ => (&mut self.input, INPUT),
        }
    }
}

/// Work in flight of one worker.
struct Work {
    sign: SignBurst,
    verify: VerifyBurst,
}

/// Duties that the first worker has for all: it restores rules that others change, and is notified of closed sockets.
struct SharedDuties {
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
    duties: Option<SharedDuties>,
    /// Counts the calls of [`Worker::packets`].
    turn: u32,
    /// Whether more newcomers or strangers may wait.
    others_wait: bool,
    /// The packets that are judged before the rings.
    older: OlderPackets,
    /// The number of VRFs' last change that it has taken up; `None` if they could not be read.
    vrfs: Option<u64>,
    /// For each queue, the packets that may be older than that change.
    stale: [OlderPackets; 4],
}

/// The places of the queues in [`Worker::stale`].
const OUTPUT: usize = 0;
const INPUT: usize = 1;
const NEWCOMERS: usize = 2;
const STRANGERS: usize = 3;

/// The parameters of a worker that outlive it.
pub(super) struct Place {
    shared: Arc<Shared>,
    /// The numbers of the queues: outbound, inbound, newcomers', strangers'.
    queues: [u16; 4],
    marks: Marks,
    wanted: DataPath,
}

/// The expectation of further segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    No,
    Soon,
    /// They are already waiting.
    Now,
}

/// The senders of inbound segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Those of known connections.
    Peers,
    /// Others from the addresses of peers, which anybody may forge.
    Newcomers,
    Strangers,
}

/// The sources that have something to read.
#[derive(Debug, Clone, Copy)]
struct Ready {
    output: bool,
    input: bool,
    newcomers: bool,
    strangers: bool,
    rings: bool,
}

impl Ready {
    /// Those with these tokens; the rings also if superframes of them may be open.
    fn of(tokens: Tokens, rings: bool) -> Self {
        Ready {
            output: tokens.has(token::OUTPUT),
            input: tokens.has(token::INPUT),
            newcomers: tokens.has(token::NEWCOMERS),
            strangers: tokens.has(token::STRANGERS),
            rings: rings || tokens.has(token::RINGS),
        }
    }
}

impl Worker {
    /// Opens a worker in the calling thread's namespace, with the queues of outbound segments, of inbound ones, and of
    /// newcomers. The first one has `duties`, and the queue of strangers.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(
        shared: &Arc<Shared>,
        index: usize,
        [output, input, newcomers]: [Queue; 3],
        marks: Marks,
        wanted: DataPath,
        duties: Option<(Watch, Departures, Queue)>,
    ) -> io::Result<Self> {
        let (duties, strangers) = match duties {
            Some((watch, departures, strangers)) => {
                (Some(SharedDuties { watch, departures, tidied: Instant::now() }), Some(strangers))
            }
            None => (None, None),
        };
        let vrfs = shared.vrfs.lock().refresh().ok();
        let receiver = Receiver { output, input, newcomers, strangers };
        let waits = &shared.posts[index].waits;
        let fixed = [
            (Some(receiver.output.as_fd()), token::OUTPUT),
            (Some(receiver.input.as_fd()), token::INPUT),
            (Some(receiver.newcomers.as_fd()), token::NEWCOMERS),
            (receiver.strangers.as_ref().map(AsFd::as_fd), token::STRANGERS),
            (duties.as_ref().map(|d| d.watch.as_fd()), token::CHANGED),
            (duties.as_ref().map(|d| d.departures.as_fd()), token::DEPARTED),
        ];
        for (fd, token) in fixed {
            fd.map_or(Ok(()), |fd| waits.add(fd, token))?;
        }
        Ok(Worker {
            shared: shared.clone(),
            index,
            receiver,
            transmitter: Transmitter::open(marks)?,
            fast: Fast::new(marks, wanted)?,
            tables: Tables::open(shared.clone(), marks)?,
            work: Work { sign: SignBurst::new(), verify: VerifyBurst::new() },
            duties,
            turn: 0,
            others_wait: false,
            older: OlderPackets::default(),
            vrfs,
            stale: Default::default(),
        })
    }

    /// Opens a worker in the place of this one, which has failed, with the same queues. Packets that come meanwhile are
    /// dropped. Only where there is one worker: devices and flows of the fast path begin anew.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn reopen(place: &Place) -> io::Result<Self> {
        let shared = &place.shared;
        let [output, input, newcomers, strangers] = place.queues;
        let open = |number, gso| Queue::open(number, gso)?.exactly(number);
        let queues = [open(output, true)?, open(input, false)?, open(newcomers, false)?];
        let strangers = Queue::open_for_strangers(strangers)?.exactly(strangers)?;
        let watch = match shared.table.lock().as_mut() {
            Some(table) => {
                table.forget_flows()?;
                table.watch()?
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let duties = (watch, Departures::open()?, strangers);
        // Sockets may have been closed meanwhile.
        shared.engine.lock().recheck_all(shared.now_ms());
        let mut worker = Worker::open(shared, 0, queues, place.marks, place.wanted, Some(duties))?;
        // The one before may not have taken up the last change of VRFs.
        worker.vrfs = None;
        Ok(worker)
    }

    /// The parameters for [`Worker::reopen`]; `None` if another worker has the queue of strangers.
    pub(super) fn place(&self, marks: Marks, wanted: DataPath) -> Option<Place> {
        let Receiver { output, input, newcomers, strangers } = &self.receiver;
        let queues = [output.number(), input.number(), newcomers.number(), strangers.as_ref()?.number()];
        Some(Place { shared: self.shared.clone(), queues, marks, wanted })
    }

    /// Moves packets until the data path is stopped.
    pub(super) fn run(&mut self) {
        sleep_precisely();
        let shared = self.shared.clone();
        let post = &shared.posts[self.index];
        let mut ticked = Instant::now();
        let (mut busy, mut naps) = (Busy::No, 0);
        while !self.shared.stop.load(Ordering::Acquire) {
            // While segments follow each other closely, a pause lets them accumulate and saves wake-ups.
            if busy != Busy::No && naps < NAPS {
                if busy == Busy::Soon {
                    std::thread::sleep(NAP);
                }
                naps += 1;
                life::beat();
                // Others are looked at less often: each look costs a system call.
                let others = naps.is_multiple_of(OTHERS) || self.others_wait;
                busy = self.packets(Ready {
                    output: true,
                    input: true,
                    newcomers: others,
                    strangers: others,
                    rings: true,
                });
                continue;
            }
            self.fast.follow_rings(&post.waits, token::RINGS);
            let waits = busy == Busy::No;
            post.idle.store(waits, Ordering::SeqCst);
            let ready = post.waits.ready(if waits { TICK } else { Duration::ZERO });
            post.idle.store(false, Ordering::SeqCst);
            naps = 0;
            busy = self.packets(Ready::of(ready, !waits));
            if ready.has(token::WAKER) {
                post.waker.drain();
                busy = self.look(busy);
            }
            post.idle.store(busy == Busy::No, Ordering::SeqCst);
            self.serve_duties(ready);
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick();
            }
        }
        // Packets left in the queues are dropped with the queues, before the rules are removed.
    }

    /// Restores rules that somebody changed, and takes notice of closed sockets.
    fn serve_duties(&mut self, ready: Tokens) {
        if ready.has(token::CHANGED)
            && let Some(duties) = &mut self.duties
            && duties.watch.changed()
        {
            let restored = self.shared.table.lock().as_mut().map_or(Ok(()), PeerTable::restore);
            match restored {
                Ok(()) => debug!("TCP-AO: rules that somebody changed are as they were"),
                Err(e) => error!(error = %e, "TCP-AO: rules that somebody changed: {e}"),
            }
        }
        if ready.has(token::DEPARTED) {
            self.handle_closed_sockets();
        }
    }

    /// Judges what waits, if somebody waits for that. Returns whether more is expected; `busy` is what was expected before.
    fn look(&mut self, mut busy: Busy) -> Busy {
        let shared = self.shared.clone();
        let post = &shared.posts[self.index];
        let Some(look) = post.looks.open() else { return busy };
        for _ in 0..NAPS {
            let ready = post.waits.ready_now();
            if busy == Busy::No && !ready.has_any(token::SEGMENTS) {
                break;
            }
            if busy == Busy::Soon {
                std::thread::sleep(NAP);
            }
            busy = self.packets(Ready::of(ready, busy != Busy::No));
        }
        post.looks.done(look);
        busy
    }

    /// Takes up changes of VRFs. Packets that wait in the queues then may be from before, when their device was in another VRF: as
    /// nobody can tell, they are dropped, and TCP repeats them.
    fn follow_vrfs(&mut self) {
        let mut vrfs = self.shared.vrfs.lock();
        let now = vrfs.refresh();
        if now.as_ref().ok() == self.vrfs.as_ref() && self.vrfs.is_some() {
            return;
        }
        let was_known = core::mem::replace(&mut self.vrfs, now.as_ref().ok().copied()).is_some();
        self.fast.leave_vrfs(|device| vrfs.of(device) != 0);
        drop(vrfs);
        self.tables.forget();
        self.stale.iter_mut().for_each(OlderPackets::promoted);
        let now = now.and_then(|_| self.shared.follow_devices(&mut self.tables.sockets.diag));
        if now.is_err() {
            // Nothing passes until this has worked.
            self.vrfs = None;
        }
        if self.duties.is_none() {
            return;
        }
        if let Err(e) = now {
            if was_known {
                warn!(error = %e, "TCP-AO: which devices are in VRFs is not known: segments are dropped: {e}");
            }
            return;
        }
        info!("TCP-AO: VRFs or the devices in them have changed: segments that waited are dropped");
        self.shared.engine.lock().recheck_all(self.shared.now_ms());
        self.shared.tell_vrfs();
    }

    /// Takes up changes of VRFs before a batch of so many packets of a queue is judged. Returns whether it has to be dropped.
    fn is_stale(&mut self, queue: usize, count: usize) -> bool {
        if count > 0 {
            self.follow_vrfs();
        }
        let is_stale = !self.stale[queue].are_read();
        if is_stale {
            let is_drained = match queue {
                OUTPUT => self.receiver.output.is_drained(),
                INPUT => self.receiver.input.is_drained(),
                NEWCOMERS => self.receiver.newcomers.is_drained(),
                _ => self.receiver.strangers.as_ref().is_none_or(Queue::is_drained),
            };
            self.stale[queue].read(count, is_drained);
        }
        is_stale
    }

    /// Whether packets that waited when VRFs changed may not have been read yet. They are read at once: those that come later would be
    /// dropped with them.
    fn has_stale(&self) -> bool {
        let queues = if self.receiver.strangers.is_some() { STRANGERS + 1 } else { STRANGERS };
        self.stale[..queues].iter().any(|packets| !packets.are_read())
    }

    /// Periodic work, about once a second.
    fn tick(&mut self) {
        let Receiver { output, input, newcomers, strangers } = &mut self.receiver;
        for queue in [output, input, newcomers].into_iter().chain(strangers) {
            packet_count("packets whose verdicts could not be sent", queue.finish().map(|()| 0));
        }
        self.follow_vrfs();
        self.tables.forget();
        if let Err(e) = self.fast.tick(&self.shared) {
            warn!(error = %e, "TCP-AO: the fast path: {e}");
        }
        self.note();
        let Some(duties) = &mut self.duties else { return };
        let now_ms = self.shared.now_ms();
        self.shared.engine.lock().expire(now_ms);
        // The lock is released between a few questions to the kernel at a time.
        let sockets = &mut self.tables.sockets;
        (0..SWEEPS).any(|_| !self.shared.engine.lock().sweep(sockets, now_ms));
        let unsaved = self.shared.engine.lock().unsaved();
        if unsaved {
            self.shared.save();
        }
        self.shared.keep_progress();
        self.shared.derive_ahead();
        if duties.tidied.elapsed() >= TIDY {
            duties.tidied = Instant::now();
            self.shared.unknow_closed();
            if let Err(e) = self.shared.unprotect_unused(duties.tidied) {
                warn!(error = %e, "TCP-AO: peers that nobody needs: {e}");
            }
        }
    }

    /// Updates this worker's figures for the status.
    fn note(&mut self) {
        let noted = WorkerFigures {
            connections: self.fast.connections() as u64,
            ring_drops: self.fast.drops(),
            queue_drops: self.receiver.output.overruns() + self.receiver.input.overruns(),
            newcomer_drops: self.receiver.newcomers.overruns(),
            not_fast: self.fast.unsupported_devices(),
        };
        self.shared.counters.note(self.index, |n| *n = noted);
    }

    /// Judges the packets of the sources that are ready, and returns whether more are expected.
    fn packets(&mut self, ready: Ready) -> Busy {
        let (mut full, mut judged) = (false, 0);
        if ready.output {
            let count = packet_count("packets that leave", self.outgoing());
            (full, judged) = (count == BATCH, count);
        }
        if ready.input {
            let count = packet_count("packets that come in", self.incoming());
            full |= count == BATCH;
            judged += count;
        } else {
            self.older.read(0, true);
        }
        // Others wait until no known connection does, or have a turn now and then; a turn is one batch. Strangers wait for
        // newcomers, too.
        self.turn = self.turn.wrapping_add(1);
        self.others_wait = false;
        for (is_ready, source, what) in [
            (ready.newcomers, Source::Newcomers, "packets of new connections"),
            (ready.strangers, Source::Strangers, "packets of strangers"),
        ] {
            if is_ready && (!full || self.turn.is_multiple_of(TURN)) {
                let count = self.incoming_batch(source).map(|(count, _)| count);
                let count = packet_count(what, count);
                self.others_wait |= count == BATCH;
                full |= self.others_wait;
                judged += count;
            }
        }
        let rings = ready.rings && self.older.are_read();
        // A promotion serves the rings, too, and leaves superframes open.
        let pass = if rings { self.rings() } else { RingsServed { open: self.fast.has_open(), ..Default::default() } };
        judged += pass.frames;
        if judged > 0 {
            self.shared.posts[self.index].judged.fetch_add(judged as u64, Ordering::AcqRel);
        }
        match pass {
            _ if full || !self.older.are_read() || self.has_stale() => Busy::Now,
            RingsServed { more: true, .. } => Busy::Now,
            RingsServed { open: true, .. } | RingsServed { frames: MANY.., .. } => Busy::Soon,
            _ => Busy::No,
        }
    }

    fn rings(&mut self) -> RingsServed {
        if self.fast.connections() > 0 {
            self.follow_vrfs();
        }
        self.fast.serve(&self.shared, &mut self.work.verify, &mut self.tables.sockets)
    }

    /// Signs and sends one batch of packets, and returns their number.
    fn outgoing(&mut self) -> io::Result<usize> {
        let count = self.receiver.output.receive()?;
        let is_stale = self.is_stale(OUTPUT, count);
        let Worker { shared, receiver, transmitter, fast, tables, work, vrfs, .. } = self;
        if count == 0 {
            return Ok(0);
        }
        if is_stale {
            return receiver.output.finish().map(|()| count);
        }
        let (packets, mut verdicts) = receiver.output.split();
        let mut batch: ArrayVec<Outbound<'_>, BATCH> = ArrayVec::new();
        let mut about: ArrayVec<PacketFacts, BATCH> = ArrayVec::new();
        for p in packets {
            let (device, vrf) = (p.out_device, shared.vrf_of(p.out_device));
            let located = Located::sent(p.bytes).map(|located| located.in_vrf(vrf));
            // Routes of a VRF are found by the device in it.
            let bound = vrf != 0 || p.superframe && located.is_some_and(|l| tables.is_bound(l.ends, device));
            about.push(PacketFacts { id: p.id, superframe: p.superframe, only: if bound { device } else { 0 }, vrf });
            let mtu = match located {
                Some(located) => tables.mtu_to(device, &located.ends),
                None => tables.mtu(device),
            };
            batch.push(Outbound { packet: p.bytes, located, device, mtu, verdict: Verdict::Pass });
        }
        if !is_current(shared, *vrfs) {
            drop(batch);
            return receiver.output.finish().map(|()| count);
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
                    // Packets before it are sent first. A packet that cannot be sent is lost, and TCP repeats it.
                    let _ = verdicts.flush();
                    let links = if about.vrf == 0 { fast.links(batch[done + piece.of].device) } else { None };
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

    /// Verifies and delivers one batch of packets, promotes busy connections, and returns the number of packets. A flood does
    /// not keep the worker here: packets that leave, and everything else, have their turn after each batch.
    fn incoming(&mut self) -> io::Result<usize> {
        let (count, worth) = self.incoming_batch(Source::Peers)?;
        self.older.read(count, self.receiver.input.is_drained());
        if worth.is_empty() {
            return Ok(count);
        }
        // What comes behind what is in the rings now does not count.
        let _ = (0..MAX_FRAMES.div_ceil(BURST)).all(|_| self.rings().more);
        let promoted = match self.shared.table.lock().as_mut() {
            Some(table) => worth.iter().filter(|(device, ends)| self.fast.promote(*device, *ends, table)).count(),
            None => 0,
        };
        if promoted > 0 {
            self.older.promoted();
        }
        self.note();
        Ok(count)
    }

    /// Verifies and delivers one batch of packets. Returns their number, and the connections to promote to the fast
    /// path.
    fn incoming_batch(&mut self, source: Source) -> io::Result<(usize, ArrayVec<(u32, Ends), BATCH>)> {
        let mut worth = ArrayVec::new();
        let mut new: ArrayVec<Ends, BATCH> = ArrayVec::new();
        let (queue, place) = self.receiver.of(source);
        let count = queue.receive()?;
        let is_stale = self.is_stale(place, count);
        let Worker { shared, index, receiver, fast, tables, work, vrfs, .. } = self;
        let (queue, _) = receiver.of(source);
        if count == 0 {
            return Ok((0, worth));
        }
        if is_stale {
            return queue.finish().map(|()| (count, worth));
        }
        let (packets, mut verdicts) = queue.split();
        let mut batch: ArrayVec<Inbound<'_>, BATCH> = ArrayVec::new();
        let mut ids: ArrayVec<u32, BATCH> = ArrayVec::new();
        for p in packets {
            ids.push(p.id);
            let (device, mtu) = (p.in_device, tables.mtu(p.in_device));
            let checksum = if p.partial_checksum { ChecksumState::Partial } else { ChecksumState::Complete };
            let located = Located::received(p.bytes).map(|located| located.in_vrf(shared.vrf_of(p.in_device)));
            batch.push(Inbound { packet: p.bytes, located, checksum, device, mtu, verdict: Verdict::Pass });
        }
        if !is_current(shared, *vrfs) {
            drop(batch);
            return queue.finish().map(|()| (count, worth));
        }
        // The kernel delivers the packets within `finish`.
        let delivering = shared.delivering(*index);
        tables.sockets.keeps_absence(source == Source::Strangers);
        shared.verify(&mut work.verify, &mut batch, &mut tables.sockets);
        tables.sockets.keeps_absence(false);
        for (id, p) in ids.iter().zip(&mut batch) {
            match p.verdict {
                Verdict::Pass => verdicts.judge(*id, Fate::Accept),
                // The rules queue ICMP errors and TCP. A packet that is neither ICMP nor a whole segment is dropped,
                // for example a fragment, which the stack would reassemble unverified.
                Verdict::NotTcp if !is_icmp(p.packet) => {}
                Verdict::NotTcp => {
                    let vrf = shared.vrf_of(p.device);
                    let about = icmp_error(p.packet).map(|(ends, error)| (ends.in_vrf(vrf), error));
                    if about.is_some_and(|(ends, error)| shared.engine.lock().ignore_icmp(ends, error)) {
                        hide_from_sockets(p.packet);
                        verdicts.judge(*id, Fate::Replace(p.packet));
                    } else {
                        verdicts.judge(*id, Fate::Accept);
                    }
                }
                Verdict::Deliver(from, at) => {
                    let packet = &mut p.packet[from..];
                    if p.checksum == ChecksumState::Partial {
                        // A packet from the queue must have a complete checksum.
                        ip::set_tcp_checksum(packet, &at);
                    }
                    verdicts.judge(*id, Fate::Replace(&packet[..at.end]));
                    match (source, p.located) {
                        (Source::Peers, Some(l)) if fast.count(p.device, l.ends) => worth.push((p.device, l.ends)),
                        (Source::Newcomers, Some(l)) => new.push(l.ends),
                        _ => {}
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
        queue.finish()?;
        drop(delivering);
        if !new.is_empty() {
            shared.know(&new);
        }
        Ok((count, worth))
    }

    /// Handles notifications of closed sockets.
    fn handle_closed_sockets(&mut self) {
        let Some(duties) = &mut self.duties else { return };
        let (shared, diag) = (&self.shared, &mut self.tables.sockets.diag);
        let now_ms = shared.now_ms();
        let told = duties.departures.each(|entry| {
            let ends = (entry.remote.port() != 0).then(|| shared.ends_of(&entry));
            // The lock is held during the question, so that the answer is about the connection that is known now.
            let mut engine = shared.engine.lock();
            // It may have been bound to a VRF that has gone.
            let ends = ends.map(|ends| match engine.tracks(&ends) {
                true => ends,
                false => ends.in_vrf(entry.ifindex.cast_signed()),
            });
            // A closed socket may share its ends with a live one: copies made during a handshake, or a predecessor in
            // repair mode. Copies may even share the cookie. A connection that has really ended is not found.
            let lives = ends.filter(|ends| engine.tracks(ends)).is_some_and(|ends| {
                let found = diag.find(ends.local, ends.remote, entry.ifindex);
                // Asked about a VRF, the kernel also finds what is bound to none.
                let is_same =
                    |f: &Entry| f.ifindex == entry.ifindex && !matches!(f.state, State::TimeWait | State::Listen);
                found.is_ok_and(|f| f.as_ref().is_some_and(is_same))
            });
            if lives {
                engine.closed_copy(SocketId(entry.cookie));
            } else {
                engine.destroyed(SocketId(entry.cookie), ends, now_ms);
            }
        });
        if told.is_err() {
            shared.engine.lock().recheck_all(now_ms);
        }
        if let Err(e) = told {
            warn!(error = %e, "TCP-AO: news of sockets that close: {e}");
        }
    }
}

/// Whether the VRFs are still those of this number: others may have taken up a change in the middle of a batch.
fn is_current(shared: &Shared, vrfs: Option<u64>) -> bool {
    vrfs == Some(shared.vrfs.lock().version())
}

/// The number of packets; 0 after an error, which is reported.
fn packet_count(what: &str, done: io::Result<usize>) -> usize {
    match done {
        Ok(count) => count,
        // Counted where it happened, and reported for all threads together.
        Err(e) if transient::is(&e) => 0,
        Err(e) => {
            error!(error = %e, "TCP-AO: {what}: {e}");
            0
        }
    }
}

/// Facts about an outbound packet that the engine does not need.
struct PacketFacts {
    id: u32,
    superframe: bool,
    /// The only device by which it may leave; 0 for any.
    only: u32,
    /// Its VRF; 0 for none.
    vrf: i32,
}
