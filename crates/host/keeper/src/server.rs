//! The sockets of a keeper: one thread that serves all clients in turns.
//!
//! An RSA key takes seconds to make. A thread of its own does it ([`Maker`]), and the client that asked for it waits while others are
//! served; if it goes away, the key is not made, or not kept.
//!
//! A client gets one request served in each round, and the next one is read only after it has taken its reply. So a client that
//! floods delays others by one request, and one that reads nothing delays nobody; after [`PATIENCE`] its connection ends. When all
//! clients of a user together have had their share (`shares`) of a round, the rest of them go first in the next one: somebody with many
//! connections, each of which signs by RSA, delays others by one request more than that.
//!
//! A client may have slots of shared memory beside its socket (`shared`), which are served for a moment before each round.
//!
//! Clients keep their connections as long as they like. When there is no room for another one, one without a request gives its
//! place: each process of a server that has once signed would have one for ever otherwise.

mod shared;
mod shares;

use self::shared::{Holder, Left, Phase, Places, Shared};
use self::shares::Shares;
use crate::private::{Job, Maker, NotMade};
use crate::service::{Making, Now, Served, Service};
use crate::streams::Streams;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sealane_crypto::wipe::wipe;
use sealane_keeper_client::codec::Wiped;
use sealane_keeper_client::key::Peer;
use sealane_keeper_client::message::{Answer, BELL, Code, MAX_MESSAGE_LEN, Refusal, Reply, Request};
use sealane_sys::poll::Waker;
use sealane_sys::{clock, transient, unix};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tracing::{debug, warn};

/// The time in which a client has to take a reply.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The places that only administrators get.
const RESERVED: usize = 8;
/// Connections accepted in a round.
const ACCEPTED: usize = 16;
/// The time in which a connection keeps its place without a request: its client has connected, and is about to send one.
const GRACE_NS: u64 = 1_000_000_000;
/// The longest round without anything to do.
const TICK: Duration = Duration::from_secs(1);

/// The longest request or reply of which a client may have several under way. A longer one is served when the client has taken its
/// replies, and the next one after that: so nobody keeps much of the keeper's memory in sockets.
const SHORT_LEN: usize = 72 * 1024;

/// The bounds on clients.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// In all.
    pub clients: usize,
    /// Of one user.
    pub per_user: usize,
}

struct Client {
    socket: OwnedFd,
    peer: Peer,
    /// The messages in pieces that are held for it.
    streams: Streams,
    /// The time of its last reply, or of its connection before that.
    used_ns: u64,
    /// It has had a reply: it has to be prepared for the end of its connection.
    is_served: bool,
    /// A reply that it has not taken yet, and since when.
    pending: Option<(Wiped, u64)>,
    /// Its connection ends with that reply.
    ends: bool,
    /// A request that waits for a key to be made, and its number.
    making: Option<(u64, Box<Making>)>,
    /// The time since which it has had a long reply: it is not served before it has taken it.
    drains: Option<u64>,
    /// Its user had no time left when its turn came: it goes first in the next round.
    waits: bool,
    /// Its slots of shared memory, if it has asked for them.
    shared: Option<Shared>,
}

/// A client, as far as the order of turns goes.
trait Queued {
    fn user(&self) -> u32;
    /// Whether its user had no time left when its turn came.
    fn waits(&self) -> bool;
    fn set_waits(&mut self, waits: bool);
}

impl Queued for Client {
    fn user(&self) -> u32 {
        self.peer.user
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn set_waits(&mut self, waits: bool) {
        self.waits = waits;
    }
}

impl Holder for Client {
    fn parts(&mut self) -> Option<(&mut Shared, &Peer, &mut Streams)> {
        // After a request that cannot be read its connection ends, and no other one is looked at.
        self.shared.as_mut().filter(|_| !self.ends).map(|shared| (shared, &self.peer, &mut self.streams))
    }

    fn served(&mut self, at_ns: u64, ends: bool) {
        (self.is_served, self.used_ns) = (true, at_ns);
        self.ends |= ends;
    }
}

/// The part of a round that a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// There is a request to serve, or room for its reply.
    Turn,
    /// Its connection ends.
    End,
}

/// The state of a client after its turn.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Stays,
    Gone,
}

fn now() -> Now {
    Now { wall_s: clock::wall_s(), mono_ns: clock::boot_ns() }
}

/// Serves clients until `end` is woken.
///
/// # Errors
/// The kernel's, when it cannot wait for clients.
pub fn serve(listener: &OwnedFd, service: &mut Service, bounds: Bounds, maker: &Maker, end: &Waker) -> io::Result<()> {
    let mut made_before = 0;
    let mut clients: Vec<Client> = Vec::new();
    let mut buffer = Wiped::from(vec![0u8; MAX_MESSAGE_LEN + 1]);
    // When there are no descriptors left, connections wait.
    let mut accepts_from_ns = 0;
    let mut phase = Phase::new();
    let left = Left::default();
    let mut revocations = service.revocations();
    loop {
        // Requests in slots come without a system call, and go first for a moment.
        let mut shares = Shares::default();
        let may_sleep = phase.run(&mut clients, service, &mut buffer, &mut shares, now);
        drop_revoked(&mut clients, service, &mut revocations);
        clients.retain(|client| !client.ends || client.pending.is_some());
        let listens = clock::boot_ns() >= accepts_from_ns;
        let mut fds = Vec::with_capacity(clients.len() + 3);
        fds.push(PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN));
        fds.push(PollFd::new(listener, if listens { PollFlags::IN } else { PollFlags::empty() }));
        fds.push(PollFd::from_borrowed_fd(maker.as_fd(), PollFlags::IN));
        for client in &clients {
            let what = match (&client.making, &client.pending) {
                // Only its end is told.
                (Some(_), _) => PollFlags::empty(),
                (None, Some(_)) => PollFlags::OUT,
                (None, None) if client.drains.is_some() => PollFlags::OUT,
                (None, None) => PollFlags::IN,
            };
            fds.push(PollFd::from_borrowed_fd(client.socket.as_fd(), what));
        }
        let longest = if may_sleep { TICK } else { Duration::ZERO };
        match poll(&mut fds, Timespec::try_from(longest).ok().as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            done => done?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            for (number, making) in clients.iter_mut().filter_map(|client| client.making.take()) {
                maker.give_up(number);
                service.given_up(&making, now());
            }
            return Ok(());
        }
        if ready[2] {
            maker.drain();
            while let Some((number, secret)) = maker.take() {
                let is_for = |client: &Client| client.making.as_ref().is_some_and(|(of, _)| *of == number);
                let Some(at) = clients.iter().position(is_for) else { continue };
                let client = &mut clients[at];
                let Some((_, making)) = client.making.take() else { continue };
                // While a key is made a client shows nothing but its end.
                if ready[3 + at] {
                    service.given_up(&making, now());
                    continue;
                }
                client.pending =
                    Some((service.made(making, secret.map_err(|_| NotMade::Failed), now()), clock::boot_ns()));
            }
        }
        let needs: Vec<Needs> =
            clients.iter_mut().zip(&ready[3..]).map(|(client, ready)| needs(client, *ready, service, maker)).collect();
        let with_slots = clients.iter().filter(|client| client.shared.is_some());
        left.follow(clock::boot_ns());
        let mut places = Places::taken(with_slots.map(|client| client.peer.user), &left);
        let serve_one = |client: &mut Client| turn(client, service, &mut buffer, maker, &mut made_before, &mut places);
        round(&mut clients, &needs, &mut shares, clock::boot_ns, serve_one);
        drop_revoked(&mut clients, service, &mut revocations);
        if ready[1] {
            let mut without_room = HashSet::new();
            for _ in 0..ACCEPTED {
                match unix::accept(listener.as_fd()) {
                    Ok(socket) => {
                        let admitted = admit(socket, &mut clients, service, bounds, &mut without_room);
                        clients.extend(admitted);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => {
                        transient::count(&e);
                        accepts_from_ns = clock::boot_ns() + 100_000_000;
                        break;
                    }
                }
            }
        }
        service.follow(now());
    }
}

/// Drops the messages in pieces of all clients whose keys are revoked, if some were revoked since the last time.
fn drop_revoked(clients: &mut [Client], service: &Service, seen: &mut u64) {
    if core::mem::replace(seen, service.revocations()) != service.revocations() {
        clients.iter_mut().for_each(|client| service.drop_revoked(&mut client.streams));
    }
}

/// Says what a client needs in a round.
fn needs(client: &mut Client, is_ready: bool, service: &mut Service, maker: &Maker) -> Needs {
    let since = client.pending.as_ref().map(|(_, since)| *since).or(client.drains.filter(|_| !is_ready));
    if since.is_some_and(|since| clock::boot_ns().saturating_sub(since) > PATIENCE.as_nanos() as u64) {
        warn!(user = client.peer.user, process = client.peer.process, "a client takes no reply: its connection ends");
        return Needs::End;
    }
    if !is_ready {
        return Needs::Nothing;
    }
    if let Some((number, making)) = client.making.take() {
        // Without its client nobody would learn of the key.
        maker.give_up(number);
        service.given_up(&making, now());
        return Needs::End;
    }
    Needs::Turn
}

/// Gives each client its turn, as long as its user has time left. The others come first in the next round, in the same order.
fn round<C: Queued>(
    clients: &mut Vec<C>,
    needs: &[Needs],
    shares: &mut Shares,
    clock_ns: impl Fn() -> u64,
    mut turn: impl FnMut(&mut C) -> Turn,
) {
    let mut needs = needs.iter();
    clients.retain_mut(|client| {
        let needs = needs.next().copied().unwrap_or(Needs::Nothing);
        let has_turn = needs == Needs::Turn && shares.is_left(client.user());
        client.set_waits(needs == Needs::Turn && !has_turn);
        if !has_turn {
            return needs != Needs::End;
        }
        let since_ns = clock_ns();
        let turn = turn(client);
        shares.took(client.user(), clock_ns().saturating_sub(since_ns));
        turn == Turn::Stays
    });
    clients.sort_by_key(|client| !client.waits());
}

/// A connection, as far as its place goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    user: u32,
    is_admin: bool,
    /// Messages in pieces are held for it, which its client loses with it.
    has_streams: bool,
    /// The time of its last request.
    used_ns: u64,
}

/// The connection that gives its place to a new client: one without a request, and if there is one without messages in pieces, that is
/// idle longest. It is the new client's user's
/// own one where that user has all that it gets, and else one of a user that still has more than the new client's afterwards, the one
/// with most first. So nobody with many connections takes a place of somebody with few, and none goes to and fro.
///
/// `is_idle` tells whether one has no request. That takes a system call, and only those are asked about that come first.
fn gives_way(
    places: &[Place],
    user: u32,
    is_admin: bool,
    bounds: Bounds,
    is_idle: impl FnMut(&usize) -> bool,
) -> Option<usize> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    places.iter().for_each(|place| *counts.entry(place.user).or_default() += 1);
    let count = |user: u32| counts.get(&user).copied().unwrap_or_default();
    let is_full_of_own = count(user) >= bounds.per_user;
    // The reserved places stay those of administrators.
    let takes_reserved = !is_admin && places.len() > bounds.clients - reserved(bounds);
    let may = |place: &Place| {
        let is_right = place.user == user || (!is_full_of_own && count(place.user) > count(user) + 1);
        is_right && !(takes_reserved && place.is_admin)
    };
    let mut candidates: Vec<usize> = (0..places.len()).filter(|at| may(&places[*at])).collect();
    candidates.sort_by_key(|at| {
        let Place { user, has_streams, used_ns, .. } = places[*at];
        (core::cmp::Reverse(count(user)), has_streams, used_ns)
    });
    candidates.into_iter().find(is_idle)
}

fn reserved(bounds: Bounds) -> usize {
    RESERVED.min(bounds.clients - 1)
}

impl Client {
    fn new(socket: OwnedFd, peer: Peer) -> Self {
        let used_ns = clock::boot_ns();
        let streams = Streams::default();
        Client {
            socket,
            peer,
            streams,
            used_ns,
            is_served: false,
            pending: None,
            ends: false,
            making: None,
            drains: None,
            waits: false,
            shared: None,
        }
    }

    /// Whether it has no request.
    fn is_idle(&self, now_ns: u64) -> bool {
        let is_asked = self.shared.as_ref().is_some_and(Shared::is_asked);
        if is_asked || self.pending.is_some() || self.making.is_some() {
            return false;
        }
        // It may have lost its processor in the middle of a text.
        let is_fresh = now_ns.saturating_sub(self.used_ns) <= GRACE_NS;
        if is_fresh && self.shared.as_ref().is_some_and(Shared::is_written) {
            return false;
        }
        match unix::peek_packet(self.socket.as_fd()) {
            // It has gone.
            Ok(0) => true,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.is_served || !is_fresh,
            Ok(_) | Err(_) => false,
        }
    }
}

/// Lets a client in, if there is room for one of its user, or somebody gives it.
fn admit(
    socket: OwnedFd,
    clients: &mut Vec<Client>,
    service: &Service,
    bounds: Bounds,
    without_room: &mut HashSet<(u32, bool)>,
) -> Option<Client> {
    let (process, user, groups) = match unix::peer(socket.as_fd()) {
        Ok(peer) => peer,
        Err(e) => {
            warn!(error = %e, "a client whose user cannot be told: {e}");
            return None;
        }
    };
    let peer = Peer { process, user, groups };
    let is_admin = service.is_admin(&peer);
    let reserved = if is_admin { 0 } else { reserved(bounds) };
    let same = clients.iter().filter(|client| client.peer.user == user).count();
    if same < bounds.per_user && clients.len() < bounds.clients - reserved {
        return Some(Client::new(socket, peer));
    }
    // It is looked for in vain once in a round for each user.
    let found = if without_room.contains(&(user, is_admin)) {
        None
    } else {
        let now_ns = clock::boot_ns();
        let place = |client: &Client| Place {
            user: client.peer.user,
            is_admin: service.is_admin(&client.peer),
            has_streams: !client.streams.is_empty(),
            used_ns: client.used_ns,
        };
        let places: Vec<Place> = clients.iter().map(place).collect();
        gives_way(&places, user, is_admin, bounds, |at| clients[*at].is_idle(now_ns))
    };
    if let Some(at) = found {
        let Peer { process: of, user: from, .. } = clients.remove(at).peer;
        debug!(user, process, from, of, "no room: an idle client of user {from} gives its place to one of user {user}");
        return Some(Client::new(socket, peer));
    }
    without_room.insert((user, is_admin));
    debug!(user, process, "too many clients: one of user {user} is refused");
    let text = format!("too many clients: {same} of user {user}, {} in all", clients.len());
    let refused = Reply { id: 0, answer: Answer::Refused(Refusal { code: Code::Busy, text }) };
    // If it takes no reply, it sees the end of the connection.
    let _ = unix::send_packet(socket.as_fd(), &refused.encode());
    None
}

/// Sends a client the reply that waits for it, or serves one request.
fn turn(
    client: &mut Client,
    service: &mut Service,
    buffer: &mut Wiped,
    maker: &Maker,
    made_before: &mut u64,
    places: &mut Places,
) -> Turn {
    client.drains = None;
    if client.pending.is_none() {
        let len = match unix::receive_packet(client.socket.as_fd(), &mut buffer[..]) {
            Ok(0) => return Turn::Gone,
            // There is a request in a slot, or there was.
            Ok(len) if client.shared.is_some() && buffer[..len] == BELL => return Turn::Stays,
            Ok(len) => len,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Turn::Stays,
            Err(_) => return Turn::Gone,
        };
        // One that did not fit has no end that could be read, and is refused as malformed.
        let served = if len > SHORT_LEN && !unix::is_writable(client.socket.as_fd()).unwrap_or(false) {
            let text = "a long request waits until the replies before it are taken".to_owned();
            let answer = Answer::Refused(Refusal { code: Code::Busy, text });
            Served::Reply(Reply { id: Request::id_of(&buffer[..len]), answer }.encode(), false)
        } else {
            service.message(&client.peer, &mut client.streams, &buffer[..len], now())
        };
        wipe(&mut buffer[..len]);
        let (reply, ends) = match served {
            Served::Reply(reply, ends) => (reply, ends),
            Served::Slots(id) => {
                let given = places.give(&mut client.shared, client.peer.user, client.socket.as_fd(), id);
                service.gave_slots(&client.peer, given.as_ref().err(), now());
                match given {
                    Ok(()) => {
                        client.served(clock::boot_ns(), false);
                        return Turn::Stays;
                    }
                    Err(refusal) => (Reply { id, answer: Answer::Refused(refusal) }.encode(), false),
                }
            }
            Served::Later(making) => {
                *made_before += 1;
                let job = Job { number: *made_before, user: client.peer.user, algorithm: making.algorithm() };
                match maker.ask(job, service.is_admin(making.peer())) {
                    Ok(()) => {
                        client.making = Some((*made_before, making));
                        return Turn::Stays;
                    }
                    Err(why) => (service.made(making, Err(why), now()), false),
                }
            }
        };
        client.pending = Some((reply, clock::boot_ns()));
        client.ends = ends;
    }
    let Some((reply, _)) = &client.pending else { return Turn::Stays };
    match unix::send_packet(client.socket.as_fd(), reply) {
        Ok(()) => {
            client.drains = (reply.len() > SHORT_LEN).then(clock::boot_ns);
            client.pending = None;
            client.served(clock::boot_ns(), false);
            if client.ends { Turn::Gone } else { Turn::Stays }
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Turn::Stays,
        Err(_) => Turn::Gone,
    }
}

#[cfg(test)]
mod tests;
