//! ESP in TCP (RFC 9329): the connections of key managers whose streams carry IKE and ESP, as `espintcp` of Linux does
//! (`net/xfrm/espintcp.c`).
//!
//! A connection is taken over from the launcher, which has put one end of a pair of sockets in its place in the program. We
//! have the other end: whole IKE messages go to it and come from it, and ESP goes to the states and comes from them. One worker
//! reads all connections, any thread writes to them. Neither waits: what the program does not read is dropped, as Linux does,
//! and so is ESP while the kernel has not taken what was written before, so that neither holds up the other.
//!
//! A connection ends when the program closes it, when both have said that they send no more, or with the daemon. Nobody else
//! has it then, so that the program and the peer see its end.
//!
//! Anybody can connect to a key manager, and take a place so. A connection has proven itself when the key manager has sent a
//! message by it, or ESP of a state has gone by it. One that has not done so within [`IDLE`] gives way to a new one where there is
//! no place, and a peer has [`MOST_UNPROVEN`] such connections at a time.

use crate::flight::{Arrival, described_copy, slot_len};
use arrayvec::ArrayVec;
use parking_lot::Mutex;
use sealane_engine_xfrm::data::BURST;
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::open::Inbound;
use sealane_net_ipsec::tcp::{self, LENGTH_LEN, Message};
use sealane_sys::netlink::errno;
use sealane_sys::stream::{self, Ends, Interest, Ready, Waits};
use sealane_sys::unix;
use sealane_wire::outer::OuterHeader;
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// The most connections of a namespace. Each may have [`READ_LEN`] and a message in memory that are not complete.
const MOST: usize = 1024;
/// The most connections from one address, or one /64 of IPv6, that have not proven themselves. A NAT that has started again has
/// that many clients connect at a time and more: these come again.
const MOST_UNPROVEN: usize = 64;
/// The time that a connection has at least to prove itself. Linux has no such limit; a key manager answers within a second.
const IDLE: Duration = Duration::from_secs(60);
/// The most launchers that are about to hand over a connection, and the time that they have for it.
const MOST_OFFERS: usize = 64;
const OFFER: Duration = Duration::from_secs(5);
/// The most bytes that are read from a connection at a time.
const READ_LEN: usize = 1 << 16;
/// The most messages of a program before others have their turn.
const TURN: usize = 16;
/// Waits until it can be read, or its other end has gone.
const READ: Interest = Interest { read: true, write: false };
/// Waits until its other end has gone.
const NOTHING: Interest = Interest { read: false, write: false };

/// The connections of a namespace.
pub struct Streams {
    waits: Waits,
    table: Mutex<Table>,
    /// The mark of sockets whose packets no policy covers.
    mark: u32,
}

#[derive(Default)]
struct Table {
    /// The last number that was given.
    last: u64,
    streams: HashMap<u64, Arc<Stream>>,
    by_ends: HashMap<Ends, Arc<Stream>>,
    /// Launchers that are about to hand over a connection.
    offers: HashMap<u64, Offer>,
}

/// A launcher that is about to hand over a connection.
struct Offer {
    launcher: UnixStream,
    connection: Option<OwnedFd>,
    since: Instant,
}

/// One connection.
struct Stream {
    number: u64,
    ends: Ends,
    connection: OwnedFd,
    /// The other end of the program's socket.
    program: OwnedFd,
    /// The part of an incomplete message that has come, and messages that the last burst had no room for.
    received: Mutex<Vec<u8>>,
    out: Mutex<Outgoing>,
    since: Instant,
    /// Whether the key manager or a state has used it.
    proven: AtomicBool,
    /// Whether the peer sends no more. The program may: as in Linux, its messages go out then, and ESP does not.
    is_read_to_end: AtomicBool,
}

/// The sending direction of a connection.
#[derive(Default)]
struct Outgoing {
    /// The rest of a message of which the kernel has taken a part, or of one that it has not.
    rest: Vec<u8>,
    /// The program's messages wait until the kernel has taken it.
    holds_program: bool,
}

/// The descriptors that are waited for, by the lowest bits of their names.
const CONNECTION: u64 = 0;
const PROGRAM: u64 = 1;
const LAUNCHER: u64 = 2;
const KINDS: u64 = 4;

/// The part of the reader that is its own.
pub(crate) struct StreamReader {
    ready: VecDeque<Ready>,
    found: Vec<Ready>,
    buffer: Box<[u8]>,
}

impl StreamReader {
    pub(crate) fn new() -> Self {
        StreamReader { ready: VecDeque::new(), found: Vec::new(), buffer: vec![0; READ_LEN].into() }
    }
}

/// The part of a burst that is still free.
struct Room<'p, 'b> {
    rest: &'b mut [u8],
    len: usize,
    packets: &'p mut ArrayVec<Inbound<'b>, BURST>,
    arrivals: &'p mut ArrayVec<Arrival, BURST>,
    drops: ArrayVec<DropReason, BURST>,
}

impl<'b> Room<'_, 'b> {
    /// Whether there is room for one more message of this length.
    fn has(&self, len: usize) -> bool {
        !self.packets.is_full() && !self.drops.is_full() && slot_len(len) <= self.rest.len()
    }

    fn put(&mut self, message: &[u8], outer: OuterHeader) {
        let arrival = Arrival { at: self.len - self.rest.len(), flow: None };
        let packet = described_copy(&mut self.rest, message, outer);
        self.packets.push(packet);
        self.arrivals.push(arrival);
    }
}

impl Outgoing {
    /// Writes what is left of a message. Returns whether there is room for another one.
    fn flush(&mut self, connection: BorrowedFd<'_>) -> io::Result<bool> {
        while !self.rest.is_empty() {
            match stream::send(connection, &[IoSlice::new(&self.rest)])? {
                0 => return Ok(false),
                sent => drop(self.rest.drain(..sent)),
            }
        }
        Ok(true)
    }
}

impl Stream {
    fn name(&self, kind: u64) -> u64 {
        self.number * KINDS + kind
    }

    /// The events for which the connection is waited.
    fn interest(&self, write: bool) -> Interest {
        Interest { read: !self.is_read_to_end.load(Relaxed), write }
    }

    /// Writes messages, each of which goes out as a whole or not at all. Returns how many were taken.
    fn send(&self, waits: &Waits, out: &mut Outgoing, messages: &[&[u8]]) -> io::Result<usize> {
        let lengths: ArrayVec<_, BURST> =
            messages.iter().map_while(|m| tcp::length_field(m.len())).take(BURST).collect();
        let connection = self.connection.as_fd();
        if lengths.is_empty() || !out.flush(connection)? {
            return Ok(0);
        }
        let both = lengths.iter().zip(messages);
        let parts: Vec<_> = both.flat_map(|(length, message)| [IoSlice::new(length), IoSlice::new(message)]).collect();
        let mut sent = stream::send(connection, &parts)?;
        for (taken, (length, message)) in (1..).zip(lengths.iter().zip(messages)) {
            match sent.checked_sub(LENGTH_LEN + message.len()) {
                Some(left) => sent = left,
                // Like Linux, one that the kernel has not taken is kept, and those behind it are not.
                None => {
                    out.rest.extend_from_slice(&length[sent.min(LENGTH_LEN)..]);
                    out.rest.extend_from_slice(&message[sent.saturating_sub(LENGTH_LEN)..]);
                    waits.change(connection, self.name(CONNECTION), self.interest(true))?;
                    return Ok(taken);
                }
            }
        }
        Ok(lengths.len())
    }

    /// The headers that its packets would have had outside of it.
    fn outer(&self) -> OuterHeader {
        let Ends { local, remote } = self.ends;
        OuterHeader {
            source: remote.0,
            destination: local.0,
            tos: 0,
            ttl: 64,
            dont_fragment: false,
            ports: Some((remote.1, local.1)),
            tcp: true,
        }
    }
}

impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waits.as_fd()
    }
}

impl Streams {
    /// Without any.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(mark: u32) -> io::Result<Self> {
        Ok(Streams { waits: Waits::new()?, table: Mutex::default(), mark })
    }

    /// Takes a connection over that a launcher is about to hand over by this socket: the connection first, then our end of the
    /// program's pair. The answer is an errno, or 0.
    ///
    /// # Errors
    /// The kernel's, and `ENOBUFS` where there are too many.
    pub fn expect(&self, launcher: UnixStream) -> io::Result<()> {
        launcher.set_nonblocking(true)?;
        let mut table = self.table.lock();
        table.offers.retain(|_, offer| offer.since.elapsed() < OFFER);
        if table.offers.len() >= MOST_OFFERS {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        table.last += 1;
        let number = table.last;
        self.waits.add(&launcher, number * KINDS + LAUNCHER, READ)?;
        table.offers.insert(number, Offer { launcher, connection: None, since: Instant::now() });
        Ok(())
    }

    /// Reads what a launcher hands over.
    fn take_offer(&self, number: u64) {
        let mut table = self.table.lock();
        let Some(offer) = table.offers.get_mut(&number) else { return };
        let taken = match unix::receive_with(&offer.launcher, &mut [0; 1]) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            Ok((1, Some(descriptor))) => match offer.connection.take() {
                None => {
                    offer.connection = Some(descriptor);
                    return;
                }
                Some(connection) => self.add(&mut table, connection, descriptor),
            },
            _ => Err(io::Error::from_raw_os_error(libc::EPROTO)),
        };
        let Some(offer) = table.offers.remove(&number) else { return };
        drop(table);
        let answer = taken.as_ref().map_or_else(|e| errno(e).unwrap_or(libc::EIO), |_| 0);
        // Without the answer the launcher lets go of the program's end, which ends the connection.
        let _ = unix::send_with(&offer.launcher, &answer.to_ne_bytes(), None);
        if let Err(e) = taken {
            warn!(error = %e, "xfrm: a key manager's connection for ESP in TCP: {e}");
        }
    }

    fn add(&self, table: &mut Table, connection: OwnedFd, program: OwnedFd) -> io::Result<()> {
        let ends = stream::ends(connection.as_fd())?;
        let now = Instant::now();
        if let Some(number) = place(table.streams.values().map(|stream| stream.claim(now)), ends.remote.0)?
            && let Some(gone) = table.remove(number)
        {
            self.finish(&gone, &"nobody has used it, and another one needs its place");
        }
        stream::take(connection.as_fd(), self.mark)?;
        table.last += 1;
        let stream = Arc::new(Stream {
            number: table.last,
            ends,
            connection,
            program,
            received: Mutex::default(),
            out: Mutex::default(),
            since: now,
            proven: AtomicBool::new(false),
            is_read_to_end: AtomicBool::new(false),
        });
        self.waits.add(&stream.connection, stream.name(CONNECTION), READ)?;
        self.waits.add(&stream.program, stream.name(PROGRAM), READ)?;
        debug!(local = ?ends.local, remote = ?ends.remote, "xfrm: a connection for ESP in TCP");
        table.by_ends.insert(ends, stream.clone());
        table.streams.insert(stream.number, stream);
        Ok(())
    }

    /// Ends a connection, for the program as for the peer.
    fn end(&self, stream: &Stream, why: &dyn core::fmt::Display) {
        let removed = self.table.lock().remove(stream.number);
        if let Some(stream) = removed {
            self.finish(&stream, why);
        }
    }

    /// Ends a connection that is in the table no more.
    fn finish(&self, stream: &Stream, why: &dyn core::fmt::Display) {
        let Ends { local, remote } = stream.ends;
        debug!(?local, ?remote, "xfrm: a connection for ESP in TCP ends: {why}");
        self.waits.remove(&stream.connection);
        self.waits.remove(&stream.program);
        // Processes that the program has forked may have descriptors of both.
        stream::end(stream.connection.as_fd());
        stream::end(stream.program.as_fd());
    }

    /// Ends all connections, because the daemon ends.
    pub fn end_all(&self) {
        let all: Vec<_> = self.table.lock().streams.values().cloned().collect();
        if !all.is_empty() {
            info!(
                connections = all.len(),
                "xfrm: connections for ESP in TCP end with the daemon: key managers make new ones"
            );
        }
        all.iter().for_each(|stream| self.end(stream, &"the daemon ends"));
    }

    /// Sends packets of ESP by the connection between these ends. Returns how many were taken: fewer where the kernel has not
    /// taken what was written before. `None`: there is no such connection.
    pub(crate) fn send(&self, outer: &OuterHeader, packets: &[&[u8]]) -> Option<usize> {
        let (sport, dport) = outer.ports?;
        let ends = Ends { local: (outer.source, sport), remote: (outer.destination, dport) };
        let stream = self.table.lock().by_ends.get(&ends).cloned()?;
        stream.proven.store(true, Relaxed);
        if stream.is_read_to_end.load(Relaxed) {
            // Linux sends ESP by established connections alone (`espintcp_push_skb`).
            return Some(0);
        }
        let sent = stream.send(&self.waits, &mut stream.out.lock(), packets);
        // The reader hears of a connection that is over, and ends it.
        Some(sent.unwrap_or(0))
    }

    /// Notes that authentic ESP has come by the connection with these headers.
    pub(crate) fn prove(&self, outer: &OuterHeader) {
        let Some((sport, dport)) = outer.ports else { return };
        let ends = Ends { local: (outer.destination, dport), remote: (outer.source, sport) };
        if let Some(stream) = self.table.lock().by_ends.get(&ends) {
            stream.proven.store(true, Relaxed);
        }
    }

    /// Serves connections that are ready, and fills a burst with the ESP that they have. Returns whether there may be more, and
    /// what was dropped.
    pub(crate) fn receive<'b>(
        &self,
        reader: &mut StreamReader,
        buffer: &'b mut [u8],
        packets: &mut ArrayVec<Inbound<'b>, BURST>,
        arrivals: &mut ArrayVec<Arrival, BURST>,
    ) -> (bool, ArrayVec<DropReason, BURST>) {
        let StreamReader { ready, found, buffer: own } = reader;
        if ready.is_empty() {
            self.waits.ready(found);
            ready.extend(found.drain(..));
        }
        let mut room = Room { len: buffer.len(), rest: buffer, packets, arrivals, drops: ArrayVec::new() };
        while let Some(&event) = ready.front() {
            let (number, kind) = (event.name / KINDS, event.name % KINDS);
            if kind == LAUNCHER {
                self.take_offer(number);
            }
            let stream = self.table.lock().streams.get(&number).cloned().filter(|_| kind != LAUNCHER);
            if let Some(stream) = stream {
                match self.serve(&stream, kind, event, own, &mut room) {
                    Ok(true) => {}
                    Ok(false) => return (true, room.drops),
                    Err(e) => self.end(&stream, &e),
                }
            }
            ready.pop_front();
        }
        (false, room.drops)
    }

    /// Serves one connection. Returns whether the burst has had room for all that has come.
    fn serve(
        &self,
        stream: &Stream,
        kind: u64,
        event: Ready,
        own: &mut [u8],
        room: &mut Room<'_, '_>,
    ) -> io::Result<bool> {
        if kind == PROGRAM {
            return self.program_sent(stream, event, own).map(|()| true);
        }
        if event.write {
            self.go_on(stream)?;
        }
        if event.read { self.peer_sent(stream, event, own, room) } else { Ok(true) }
    }

    /// Goes on with a message, now that the kernel takes more.
    fn go_on(&self, stream: &Stream) -> io::Result<()> {
        let mut out = stream.out.lock();
        if !out.flush(stream.connection.as_fd())? {
            return Ok(());
        }
        out.rest = Vec::new();
        self.waits.change(&stream.connection, stream.name(CONNECTION), stream.interest(false))?;
        if core::mem::take(&mut out.holds_program) {
            self.waits.change(&stream.program, stream.name(PROGRAM), READ)?;
        }
        Ok(())
    }

    /// Sends messages of the program.
    fn program_sent(&self, stream: &Stream, event: Ready, own: &mut [u8]) -> io::Result<()> {
        let over = || Err(io::Error::other("the key manager has closed it"));
        // What a program has written before it closed its end still goes out.
        let turns = if event.hung_up { usize::MAX } else { TURN };
        for _ in 0..turns {
            let mut out = stream.out.lock();
            if !out.flush(stream.connection.as_fd())? {
                if event.hung_up {
                    return over();
                }
                out.holds_program = true;
                return self.waits.change(&stream.program, stream.name(PROGRAM), NOTHING);
            }
            match stream::receive(stream.program.as_fd(), own) {
                // It has closed its end and left messages unread, which is told once; what it wrote is behind that.
                Err(e) if e.raw_os_error() == Some(libc::ECONNRESET) => {}
                Err(e) => return Err(e),
                Ok(Some(0)) if event.hung_up => return over(),
                Ok(Some(0)) if stream::is_read_to_end(stream.program.as_fd()) => {
                    stream::end_sending(stream.connection.as_fd());
                    return self.waits.change(&stream.program, stream.name(PROGRAM), NOTHING);
                }
                Ok(Some(len)) => {
                    stream.send(&self.waits, &mut out, &[&own[..len]])?;
                    stream.proven.store(true, Relaxed);
                }
                Ok(None) if event.hung_up => return over(),
                Ok(None) => break,
            }
        }
        Ok(())
    }

    /// Gives messages of the peer to the program and to the burst. Returns whether that had room for all of them.
    fn peer_sent(&self, stream: &Stream, event: Ready, own: &mut [u8], room: &mut Room<'_, '_>) -> io::Result<bool> {
        let mut received = stream.received.lock();
        let mut read = 0;
        if tcp::first(&received).map_err(io::Error::other)?.is_none() {
            match stream::receive(stream.connection.as_fd(), &mut own[..READ_LEN])? {
                Some(0) => {
                    drop(received);
                    return self.peer_ended(stream, event).map(|()| true);
                }
                Some(len) => read = len,
                // It would be told again and again.
                None if event.hung_up => return Err(io::Error::other("an error that reading does not tell")),
                None => return Ok(true),
            }
        }
        // What is not complete is copied once, in however small pieces it comes.
        let is_kept = !received.is_empty();
        let bytes = if is_kept {
            received.extend_from_slice(&own[..read]);
            &received[..]
        } else {
            &own[..read]
        };
        let (at, fits) = Self::pass_on(stream, bytes, room)?;
        if !is_kept {
            received.extend_from_slice(&own[at..read]);
        } else if at > 0 {
            // Its memory is given back where there is nothing to keep.
            *received = received[at..].to_vec();
        }
        Ok(fits)
    }

    /// Passes on the whole messages of a stream. Returns the length of those that are done with, and whether there was room for
    /// all of them.
    fn pass_on(stream: &Stream, bytes: &[u8], room: &mut Room<'_, '_>) -> io::Result<(usize, bool)> {
        let mut at = 0;
        while let Some((message, len)) = tcp::first(&bytes[at..]).map_err(io::Error::other)? {
            if !room.has(len) {
                return Ok((at, false));
            }
            at += len;
            match message {
                Message::Keepalive => {}
                Message::Short => room.drops.push(DropReason::StreamMessage),
                Message::Esp(esp) => room.put(esp, stream.outer()),
                Message::Ike(ike) => {
                    // Nobody waits for a program that does not read.
                    if stream::send(stream.program.as_fd(), &[IoSlice::new(ike)]).unwrap_or(0) == 0 {
                        room.drops.push(DropReason::Unread);
                    }
                }
            }
        }
        Ok((at, true))
    }

    /// The peer sends no more. The program reads the end, and may go on sending.
    fn peer_ended(&self, stream: &Stream, event: Ready) -> io::Result<()> {
        if event.hung_up || stream.is_read_to_end.swap(true, Relaxed) {
            return Err(io::Error::other("both have closed it"));
        }
        stream::end_sending(stream.program.as_fd());
        let out = stream.out.lock();
        self.waits.change(&stream.connection, stream.name(CONNECTION), stream.interest(!out.rest.is_empty()))
    }
}

impl Table {
    /// Takes a connection out.
    fn remove(&mut self, number: u64) -> Option<Arc<Stream>> {
        let stream = self.streams.remove(&number)?;
        if self.by_ends.get(&stream.ends).is_some_and(|of| of.number == number) {
            self.by_ends.remove(&stream.ends);
        }
        Some(stream)
    }
}

/// A connection's claim to its place.
#[derive(Clone, Copy)]
struct Claim {
    number: u64,
    peer: IpAddr,
    age: Duration,
    is_proven: bool,
}

impl Stream {
    fn claim(&self, now: Instant) -> Claim {
        let age = now.saturating_duration_since(self.since);
        Claim { number: self.number, peer: self.ends.remote.0, age, is_proven: self.proven.load(Relaxed) }
    }
}

/// Finds a place for one more connection from `peer`: the number of the connection that gives way, if one has to.
///
/// # Errors
/// `ENOBUFS`: there is none.
fn place(claims: impl Iterator<Item = Claim>, peer: IpAddr) -> io::Result<Option<u64>> {
    let peer = network(peer);
    let (mut all, mut of_peer) = (0, 0);
    let (mut oldest, mut oldest_of_peer): (Option<Claim>, Option<Claim>) = (None, None);
    for claim in claims {
        all += 1;
        if claim.is_proven {
            continue;
        }
        let older = |known: Option<Claim>| known.filter(|known| known.age >= claim.age).or(Some(claim));
        oldest = older(oldest);
        if network(claim.peer) == peer {
            of_peer += 1;
            oldest_of_peer = older(oldest_of_peer);
        }
    }
    let gives_way = if of_peer >= MOST_UNPROVEN {
        oldest_of_peer
    } else if all >= MOST {
        oldest
    } else {
        return Ok(None);
    };
    let gone = gives_way.filter(|claim| claim.age >= IDLE);
    gone.map(|claim| Some(claim.number)).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOBUFS))
}

/// The network that one peer may have the addresses of.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_sys::peer::readable;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    const PATIENCE_MS: i32 = 10_000;

    /// A connection that was handed over: the peer's end, and the program's.
    struct Rig {
        streams: Streams,
        reader: StreamReader,
        /// The addresses of the program's end and of the peer's.
        local: SocketAddr,
        remote: SocketAddr,
        peer: TcpStream,
        program: OwnedFd,
    }

    fn message(bytes: &[u8]) -> Vec<u8> {
        [&tcp::length_field(bytes.len()).expect("it fits")[..], bytes].concat()
    }

    fn esp(sequence: u32, len: usize) -> Vec<u8> {
        let mut packet = vec![7; len];
        packet[..8].copy_from_slice(&(u64::from(9u32) << 32 | u64::from(sequence)).to_be_bytes());
        packet
    }

    impl Rig {
        fn new() -> io::Result<Self> {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let peer = TcpStream::connect(listener.local_addr()?)?;
            let connection = OwnedFd::from(listener.accept()?.0);
            let (streams, (launcher, daemon)) = (Streams::new(0)?, UnixStream::pair()?);
            let (ours, program) = stream::pair(true)?;
            streams.expect(daemon)?;
            let (local, remote) = (peer.peer_addr()?, peer.local_addr()?);
            let mut rig = Rig { streams, reader: StreamReader::new(), local, remote, peer, program };
            for descriptor in [connection, ours] {
                unix::send_with(&launcher, &[0], Some(descriptor.as_fd()))?;
                drop(descriptor);
                rig.turn(1 << 18);
            }
            let mut answer = [1; 4];
            (&launcher).read_exact(&mut answer)?;
            assert_eq!(answer, [0; 4]);
            Ok(rig)
        }

        /// Serves what there is, with so many bytes for a burst: the packets of ESP, whether there may be more, and drops.
        fn turn(&mut self, len: usize) -> (Vec<Vec<u8>>, bool, Vec<DropReason>) {
            assert!(!self.reader.ready.is_empty() || readable(self.streams.as_fd(), PATIENCE_MS), "nothing comes");
            let mut buffer = vec![0; len];
            let (mut packets, mut arrivals) = (ArrayVec::new(), ArrayVec::new());
            let (more, drops) = self.streams.receive(&mut self.reader, &mut buffer, &mut packets, &mut arrivals);
            assert_eq!(packets.len(), arrivals.len());
            for packet in &packets {
                let outer = packet.outer.expect("it is described");
                assert_eq!((outer.ports, outer.tcp), (Some((self.remote.port(), self.local.port())), true));
            }
            (packets.iter().map(|packet| packet.packet.bytes().to_vec()).collect(), more, drops.to_vec())
        }

        fn say(&self, message: &[u8]) -> io::Result<()> {
            let len = stream::send(self.program.as_fd(), &[IoSlice::new(message)])?;
            assert_eq!(len, message.len());
            Ok(())
        }

        fn said(&self) -> Option<Vec<u8>> {
            let mut buffer = vec![0; 1 << 16];
            let len = stream::receive(self.program.as_fd(), &mut buffer).expect("it is there")?;
            buffer.truncate(len);
            Some(buffer)
        }

        /// The headers of packets that the program's end sends.
        fn outer(&self) -> OuterHeader {
            OuterHeader {
                source: self.local.ip(),
                destination: self.remote.ip(),
                tos: 0,
                ttl: 0,
                dont_fragment: false,
                ports: Some((self.local.port(), self.remote.port())),
                tcp: true,
            }
        }
    }

    fn with_rig(test: impl FnOnce(Rig) -> io::Result<()> + Send) {
        let Some(netns) = sealane_sys::testing::namespace("xfrm::streams") else { return };
        netns.run(|| test(Rig::new()?)).expect("a connection");
    }

    #[test]
    fn ike_goes_to_the_program_and_esp_to_the_burst() {
        with_rig(|mut rig| {
            let ike = [&[0; 4][..], b"hello"].concat();
            let all = [esp(1, 100), ike.clone(), vec![0xff], vec![1; 3], esp(2, 200)];
            let stream: Vec<u8> = all.iter().flat_map(|bytes| message(bytes)).collect();
            // In two parts, of which the first ends within a message.
            let (first, second) = stream.split_at(60);
            rig.peer.write_all(first)?;
            assert_eq!(rig.turn(1 << 18), (vec![], false, vec![]));
            rig.peer.write_all(second)?;
            let (packets, more, drops) = rig.turn(1 << 18);
            assert_eq!((packets, more), (vec![esp(1, 100), esp(2, 200)], false));
            assert_eq!((drops, rig.said(), rig.said()), (vec![DropReason::StreamMessage], Some(ike), None));
            // The other way.
            rig.say(b"\0\0\0\0back")?;
            assert_eq!(rig.turn(1 << 18), (vec![], false, vec![]));
            assert_eq!(rig.streams.send(&rig.outer(), &[&esp(3, 50)]), Some(1));
            let mut told = vec![0; 10 + 52];
            rig.peer.read_exact(&mut told)?;
            assert_eq!(told, [message(b"\0\0\0\0back"), message(&esp(3, 50))].concat());
            let other = OuterHeader { ports: Some((1, 2)), ..rig.outer() };
            assert_eq!(rig.streams.send(&other, &[&esp(4, 50)]), None);
            Ok(())
        });
    }

    #[test]
    fn a_burst_takes_what_it_has_room_for() {
        with_rig(|mut rig| {
            let count = BURST as u32 + 10;
            let stream: Vec<u8> = (0..count).flat_map(|n| message(&esp(n, 40))).collect();
            rig.peer.write_all(&stream)?;
            let mut found = Vec::new();
            while found.len() < count as usize {
                let (packets, ..) = rig.turn(1 << 18);
                assert!(packets.len() <= BURST);
                found.extend(packets);
            }
            assert_eq!(found, (0..count).map(|n| esp(n, 40)).collect::<Vec<_>>());
            // The longest one does not fit behind another.
            rig.peer.write_all(&[message(&esp(1, 40)), message(&esp(2, tcp::MAX_LEN))].concat())?;
            let mut found = Vec::new();
            while found.len() < 2 {
                found.extend(rig.turn(1 << 16 | 256).0);
            }
            assert_eq!(found, [esp(1, 40), esp(2, tcp::MAX_LEN)]);
            Ok(())
        });
    }

    /// Messages that come in pieces of one byte are put together once.
    #[test]
    fn byte_by_byte() {
        with_rig(|mut rig| {
            rig.peer.set_nodelay(true)?;
            let (mut packets, stream) = (Vec::new(), [message(&esp(1, 60)), message(&esp(2, 30))].concat());
            for byte in &stream {
                rig.peer.write_all(&[*byte])?;
                packets.extend(rig.turn(1 << 18).0);
            }
            assert_eq!(packets, [esp(1, 60), esp(2, 30)]);
            let streams = rig.streams.table.lock().streams.values().cloned().collect::<Vec<_>>();
            assert!(streams[0].received.lock().capacity() == 0, "nothing is kept");
            Ok(())
        });
    }

    #[test]
    fn who_has_used_a_connection() {
        let is_proven = |rig: &Rig| rig.streams.table.lock().streams.values().all(|stream| stream.proven.load(Relaxed));
        with_rig(|mut rig| {
            rig.peer.write_all(&[message(b"\0\0\0\0hello"), message(&esp(1, 60))].concat())?;
            let mut packets = Vec::new();
            while packets.is_empty() {
                packets = rig.turn(1 << 18).0;
            }
            assert!(!is_proven(&rig), "anybody can say so");
            rig.say(b"\0\0\0\0welcome")?;
            rig.turn(1 << 18);
            assert!(is_proven(&rig));
            Ok(())
        });
        with_rig(|rig| {
            let there = rig.outer();
            let back = OuterHeader {
                source: there.destination,
                destination: there.source,
                ports: there.ports.map(|(local, remote)| (remote, local)),
                ..there
            };
            rig.streams.prove(&there);
            assert!(!is_proven(&rig), "another connection");
            rig.streams.prove(&back);
            assert!(is_proven(&rig));
            Ok(())
        });
    }

    #[test]
    fn strangers_do_not_keep_all_places() {
        let claim = |number: u64, peer: &str, age_s: u64, is_proven| Claim {
            number,
            peer: peer.parse().expect("an address"),
            age: Duration::from_secs(age_s),
            is_proven,
        };
        let placed = |claims: &[Claim], peer: &str| {
            let peer = peer.parse().expect("an address");
            place(claims.iter().copied(), peer).map_err(|e| e.raw_os_error())
        };
        let full = Err(Some(libc::ENOBUFS));
        let of = |count: usize, peer: &str, age_s: u64, is_proven: bool| -> Vec<Claim> {
            (0..count as u64).map(|n| claim(n, peer, age_s, is_proven)).collect()
        };
        assert_eq!(placed(&[], "192.0.2.1"), Ok(None));
        // One address.
        assert_eq!(placed(&of(MOST_UNPROVEN - 1, "192.0.2.1", 9, false), "192.0.2.1"), Ok(None));
        assert_eq!(placed(&of(MOST_UNPROVEN, "192.0.2.1", 9, false), "192.0.2.1"), full);
        assert_eq!(placed(&of(MOST_UNPROVEN, "192.0.2.1", 9, false), "192.0.2.2"), Ok(None));
        assert_eq!(placed(&of(MOST_UNPROVEN, "192.0.2.1", 9, true), "192.0.2.1"), Ok(None), "clients behind a NAT");
        assert_eq!(placed(&of(MOST_UNPROVEN, "2001:db8::1", 9, false), "2001:db8::2:0:0:2"), full);
        assert_eq!(placed(&of(MOST_UNPROVEN, "2001:db8::1", 9, false), "2001:db8:0:1::1"), Ok(None));
        // The oldest of them gives way, and none that has been used.
        let mut some = of(MOST_UNPROVEN, "192.0.2.1", 59, false);
        some.extend([claim(500, "192.0.2.1", 70, false), claim(501, "192.0.2.1", 900, true)]);
        some.extend([claim(502, "192.0.2.9", 80, false), claim(503, "192.0.2.1", 60, false)]);
        assert_eq!(placed(&some, "192.0.2.1"), Ok(Some(500)));
        // All places.
        let mut all = of(MOST, "192.0.2.1", 900, true);
        assert_eq!(placed(&all, "192.0.2.2"), full);
        all[7] = claim(7, "192.0.2.3", 59, false);
        assert_eq!(placed(&all, "192.0.2.2"), full);
        all[9] = claim(9, "192.0.2.4", 60, false);
        assert_eq!(placed(&all, "192.0.2.2"), Ok(Some(9)));
    }

    /// Neither a program that does not read nor a peer that does not hold anybody else up, or fill memory.
    #[test]
    fn those_who_do_not_read() {
        with_rig(|mut rig| {
            let ike = message(&[&[0; 4][..], &[1; 1000]].concat());
            let mut unread = 0;
            while unread == 0 {
                rig.peer.write_all(&[&*ike, &*message(&esp(1, 60))].concat())?;
                let (packets, _, drops) = rig.turn(1 << 18);
                assert_eq!(packets, [esp(1, 60)]);
                assert!(drops.iter().all(|reason| *reason == DropReason::Unread));
                unread += drops.len();
            }
            // The other direction.
            let outer = rig.outer();
            let mut sent = 0;
            loop {
                let three = [0, 1, 2].map(|n| esp(sent + n, 1000));
                let taken = rig.streams.send(&outer, &three.each_ref().map(|packet| &**packet)).expect("a connection");
                sent += taken as u32;
                if taken < 3 {
                    break;
                }
            }
            assert_eq!(rig.streams.send(&outer, &[&esp(0, 1000)]), Some(0));
            assert!(sent > 10);
            rig.say(b"\0\0\0\0waits")?;
            assert_eq!(rig.turn(1 << 18).0, Vec::<Vec<u8>>::new());
            let mut peer = rig.peer.try_clone()?;
            let reading = std::thread::spawn(move || {
                let mut bytes = vec![0; sent as usize * 1002 + 11];
                peer.read_exact(&mut bytes).map(|()| bytes)
            });
            while !reading.is_finished() {
                if readable(rig.streams.as_fd(), 10) {
                    rig.turn(1 << 18);
                }
            }
            let bytes = reading.join().expect("it reads")?;
            let wanted: Vec<u8> =
                (0..sent).flat_map(|n| message(&esp(n, 1000))).chain(message(b"\0\0\0\0waits")).collect();
            assert!(bytes == wanted, "whole messages, in order");
            Ok(())
        });
    }

    #[test]
    fn ends_of_a_connection() {
        // The program's, which has not read everything.
        with_rig(|mut rig| {
            rig.peer.write_all(&message(b"\0\0\0\0unread"))?;
            assert_eq!(rig.turn(1 << 18), (vec![], false, vec![]));
            rig.say(b"\0\0\0\0last")?;
            rig.program = stream::pair(true)?.1;
            let outer = rig.outer();
            while rig.streams.send(&outer, &[&esp(1, 50)]).is_some() {
                rig.turn(1 << 18);
            }
            let mut told = Vec::new();
            rig.peer.read_to_end(&mut told)?;
            assert!(told.windows(10).any(|part| part == message(b"\0\0\0\0last")));
            Ok(())
        });
        // The peer's, by a length that is none.
        with_rig(|mut rig| {
            rig.peer.write_all(&[message(b"\0\0\0\0last"), vec![0, 1, 7]].concat())?;
            let outer = rig.outer();
            while rig.streams.send(&outer, &[&esp(1, 50)]).is_some() {
                rig.turn(1 << 18);
            }
            assert_eq!((rig.said(), rig.said()), (Some(b"\0\0\0\0last".to_vec()), Some(vec![])));
            Ok(())
        });
        // The peer's, who sends no more and still reads; and then the program's.
        for closes in [true, false] {
            with_rig(|mut rig| {
                rig.peer.write_all(&message(b"\0\0\0\0last"))?;
                rig.peer.shutdown(std::net::Shutdown::Write)?;
                let stream = rig.streams.table.lock().streams.values().next().cloned().expect("a connection");
                while !stream.is_read_to_end.load(Relaxed) {
                    rig.turn(1 << 18);
                }
                assert_eq!((rig.said(), rig.said()), (Some(b"\0\0\0\0last".to_vec()), Some(vec![])));
                let outer = rig.outer();
                assert_eq!(rig.streams.send(&outer, &[&esp(1, 50)]), Some(0), "no ESP");
                rig.say(b"\0\0\0\0back")?;
                rig.turn(1 << 18);
                let mut told = [0; 10];
                rig.peer.read_exact(&mut told)?;
                assert_eq!(told[..], message(b"\0\0\0\0back"));
                if closes {
                    rig.program = stream::pair(true)?.1;
                } else {
                    stream::end_sending(rig.program.as_fd());
                }
                while rig.streams.send(&outer, &[&esp(1, 50)]).is_some() {
                    rig.turn(1 << 18);
                }
                assert_eq!(rig.peer.read(&mut told)?, 0);
                Ok(())
            });
        }
        // The daemon's.
        with_rig(|mut rig| {
            rig.streams.end_all();
            assert_eq!(rig.said(), Some(vec![]));
            assert_eq!(rig.peer.read(&mut [0; 9])?, 0);
            Ok(())
        });
    }
}
