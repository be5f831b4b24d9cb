//! Clients with slots of shared memory beside their socket ([`sealane_sys::slots`]): requests without system calls.
//!
//! A client asks for slots over its socket. Those who get none, because others have them, go on over the socket. Both ways carry
//! the same messages, but for those that take long or are about the connection. The server looks at slots as long as requests come,
//! and for a moment more; then it says in the slots that it sleeps, and clients tell it by a packet of one byte.

use super::shares::Shares;
use crate::private::NotMade;
use crate::service::{Now, Served, Service};
use crate::streams::Streams;
use sealane_crypto::wipe::wipe;
use sealane_keeper_client::codec::Wiped;
use sealane_keeper_client::key::Peer;
use sealane_keeper_client::message::{Answer, Code, Refusal, Reply, Request, SLOT_LEN, SLOTS};
use sealane_keeper_client::text::TextRequest;
use sealane_sys::slots::{Memory, Slots, Spin};
use sealane_sys::{clock, unix};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

/// The most clients with slots, and those of one user.
const MAX_SHARED: (usize, usize) = (64, 8);
/// The time for which a client that has gone may still read its last reply. Its place is taken as long.
const GRACE_NS: u64 = 1_000_000_000;
/// The longest time for which requests in slots are served before sockets have their turn.
const PHASE_NS: u64 = 200_000;

/// A client that may have slots.
pub(super) trait Holder {
    /// Its slots, the client, and its messages in pieces; `None` without slots.
    fn parts(&mut self) -> Option<(&mut Shared, &Peer, &mut Streams)>;
    /// A request was served, and its connection `ends`.
    fn served(&mut self, at_ns: u64, ends: bool);
}

/// The slots of a client.
pub(super) struct Shared {
    slots: Slots,
    /// The slot that is looked at first.
    next: usize,
    user: u32,
    left: Left,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its client may be about to read the last reply.
        if let Some(memory) = self.slots.memory() {
            self.left.0.borrow_mut().push((memory, self.user, clock::boot_ns()));
        }
    }
}

/// Memory of clients that have gone, with their users and the time since.
#[derive(Clone, Default)]
pub(super) struct Left(Rc<RefCell<Vec<(Memory, u32, u64)>>>);

impl Left {
    /// Gives back what nobody reads any more.
    pub(super) fn follow(&self, now_ns: u64) {
        self.0.borrow_mut().retain(|(_, _, since_ns)| now_ns.saturating_sub(*since_ns) < GRACE_NS);
    }
}

impl Shared {
    /// The next slot with a request.
    fn request(&mut self) -> Option<usize> {
        let count = self.slots.count();
        let slot = (self.next..count).chain(0..self.next).find(|slot| self.slots.has_request(*slot))?;
        self.next = (slot + 1) % count;
        Some(slot)
    }

    /// Serves one request, and returns whether the connection ends after it. `None`: there is none.
    fn serve(
        &mut self,
        peer: &Peer,
        streams: &mut Streams,
        service: &mut Service,
        buffer: &mut [u8],
        now: Now,
    ) -> Option<bool> {
        let slot = self.request()?;
        // One that does not fit has no end that could be read, and is refused as malformed.
        let len = self.slots.request(slot, buffer).unwrap_or_default();
        if TextRequest::is_one(&buffer[..len])
            && let Ok(mut request) = TextRequest::of(&mut buffer[..len])
        {
            match service.text(peer, &mut request, now) {
                Ok((head, tail)) => self.reply(slot, request.id, &[&head, request.text, &tail]),
                Err(reply) => self.reply(slot, request.id, &[&reply]),
            }
            wipe(&mut buffer[..len]);
            return Some(false);
        }
        let id = Request::id_of(&buffer[..len]);
        let served = service.message(peer, streams, &buffer[..len], now);
        wipe(&mut buffer[..len]);
        let (reply, ends) = match served {
            Served::Reply(reply, ends) => (reply, ends),
            Served::Later(making) => (service.made(making, Err(NotMade::InSlot), now), false),
            Served::Slots(id) => (refused(id, Code::Parameter, "slots are asked for over the socket"), false),
        };
        self.reply(slot, id, &[&reply]);
        Some(ends)
    }

    fn reply(&self, slot: usize, id: u64, reply: &[&[u8]]) {
        if reply.iter().map(|piece| piece.len()).sum::<usize>() <= self.slots.room() {
            self.slots.reply(slot, reply);
        } else {
            self.slots.reply(slot, &[&refused(id, Code::Parameter, "its reply is too long for a slot")]);
        }
    }

    /// Whether there is a request.
    pub(super) fn is_asked(&self) -> bool {
        (0..self.slots.count()).any(|slot| self.slots.has_request(slot))
    }
}

/// The places of clients with slots that are taken.
pub(super) struct Places {
    all: usize,
    of: HashMap<u32, usize>,
    left: Left,
}

impl Places {
    /// The places of clients of these users, and of those that have gone.
    pub(super) fn taken(users: impl Iterator<Item = u32>, left: &Left) -> Self {
        let mut places = Places { all: 0, of: HashMap::new(), left: left.clone() };
        users.for_each(|user| places.take(user));
        left.0.borrow().iter().for_each(|(_, user, _)| places.take(*user));
        places
    }

    fn take(&mut self, user: u32) {
        self.all += 1;
        *self.of.entry(user).or_default() += 1;
    }

    fn is_left(&self, user: u32) -> bool {
        self.all < MAX_SHARED.0 && self.of.get(&user).is_none_or(|count| *count < MAX_SHARED.1)
    }

    /// Gives a client slots, and sends the reply with their descriptor.
    ///
    /// # Errors
    /// The refusal that is to be the reply.
    pub(super) fn give(
        &mut self,
        to: &mut Option<Shared>,
        user: u32,
        socket: BorrowedFd<'_>,
        id: u64,
    ) -> Result<(), Refusal> {
        let refuse = |code, text: &str| Err(Refusal { code, text: text.to_owned() });
        if to.is_some() {
            return refuse(Code::Parameter, "this connection has slots");
        }
        if !self.is_left(user) {
            return refuse(Code::Busy, "too many clients have slots");
        }
        let reply = Reply { id, answer: Answer::Slots { count: SLOTS as u32, room: SLOT_LEN as u32 } }.encode();
        let give = || -> io::Result<Slots> {
            let (slots, file) = Slots::new(SLOTS, SLOT_LEN)?;
            unix::send_with(socket, &reply, Some(file.as_fd()))?;
            Ok(slots)
        };
        match give() {
            Ok(slots) => {
                *to = Some(Shared { slots, next: 0, user, left: self.left.clone() });
                self.take(user);
                Ok(())
            }
            // No memory or no descriptor is left, or the client takes no reply.
            Err(_) => refuse(Code::Busy, "there is no memory for slots"),
        }
    }
}

fn refused(id: u64, code: Code, text: &str) -> Wiped {
    Reply { id, answer: Answer::Refused(Refusal { code, text: text.to_owned() }) }.encode()
}

/// The part of the server's rounds in which it serves slots.
pub(super) struct Phase {
    spin: Spin,
    /// The time of the last request in a slot.
    worked_ns: u64,
    /// Whether it has looked in vain since.
    is_idle: bool,
    is_asleep: bool,
}

impl Phase {
    pub(super) fn new() -> Self {
        Phase { spin: Spin::new(), worked_ns: 0, is_idle: true, is_asleep: false }
    }

    /// Serves requests in slots. Returns whether the server may sleep: there are no more, and clients know that they have to tell it.
    pub(super) fn run<H: Holder>(
        &mut self,
        clients: &mut [H],
        service: &mut Service,
        buffer: &mut [u8],
        shares: &mut Shares,
        now: impl Fn() -> Now,
    ) -> bool {
        let mut with_slots: Vec<&mut H> =
            clients.iter_mut().filter_map(|client| client.parts().is_some().then_some(client)).collect();
        if with_slots.is_empty() {
            return true;
        }
        self.wake(&mut with_slots);
        let begun_ns = clock::boot_ns();
        loop {
            let (mut is_served, mut waits) = (false, false);
            for client in &mut with_slots {
                let Some((shared, peer, streams)) = client.parts() else { continue };
                if !shared.is_asked() {
                    continue;
                }
                let user = peer.user;
                if !shares.is_left(user) {
                    waits = true;
                    continue;
                }
                let at = now();
                if let Some(ends) = shared.serve(peer, streams, service, buffer, at) {
                    is_served = true;
                    client.served(at.mono_ns, ends);
                    shares.took(user, clock::boot_ns().saturating_sub(at.mono_ns));
                }
            }
            let now_ns = clock::boot_ns();
            if is_served {
                // The spin since the last request was not in vain.
                if !self.is_idle {
                    self.spin.learn(false);
                }
                (self.worked_ns, self.is_idle) = (now_ns, false);
            } else if waits {
                // They have had their share, and sockets come first.
                return false;
            } else if now_ns.saturating_sub(self.worked_ns) >= self.spin.ns() {
                if !self.is_idle {
                    self.spin.learn(true);
                    self.is_idle = true;
                }
                return self.sleep(&mut with_slots);
            } else {
                core::hint::spin_loop();
            }
            if now_ns.saturating_sub(begun_ns) >= PHASE_NS {
                return false;
            }
        }
    }

    /// Tells clients that the server sleeps. False if one of them has asked meanwhile.
    fn sleep<H: Holder>(&mut self, clients: &mut [&mut H]) -> bool {
        each(clients, |shared| shared.slots.sleep(true));
        self.is_asleep = true;
        let mut is_asked = false;
        each(clients, |shared| is_asked |= shared.is_asked());
        !is_asked
    }

    fn wake<H: Holder>(&mut self, clients: &mut [&mut H]) {
        if core::mem::take(&mut self.is_asleep) {
            each(clients, |shared| shared.slots.sleep(false));
        }
    }
}

fn each<H: Holder>(clients: &mut [&mut H], mut f: impl FnMut(&Shared)) {
    clients.iter_mut().filter_map(|client| client.parts()).for_each(|(shared, ..)| f(shared));
}
