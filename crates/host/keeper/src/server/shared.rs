//! Clients with slots of shared memory beside their socket ([`sealane_sys::slots`]): requests without system calls.
//!
//! A client asks for slots over its socket. Those who get none, because others have them, go on over the socket. Both ways carry
//! the same messages, but for those that take long or are about the connection. The server looks at slots as long as requests come,
//! and for a moment more; then it says in the slots that it sleeps, and clients tell it by a packet of one byte.

use super::shares::Shares;
use crate::private::NotMade;
use crate::service::{InParts, Now, Served, Service, StepsDone};
use crate::streams::Streams;
use sealane_crypto::wipe::wipe;
use sealane_crypto::{OpError, Status};
use sealane_keeper_client::codec::{Malformed, Wiped, Writer};
use sealane_keeper_client::key::Peer;
use sealane_keeper_client::lane::Front;
use sealane_keeper_client::limits::{PART_LEN, TEXTS_AT};
use sealane_keeper_client::message::{Answer, Code, Refusal, Reply, Request, SLOT_LEN, SLOTS};
use sealane_keeper_client::reference::KeyRef;
use sealane_keeper_client::text::{NotDone, Outcome, StepsRequest, write_reply};
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
/// The bytes of texts that are prefetched: with longer ones the processor does it by itself.
const PREFETCHED: usize = 4096;
/// The looks at a slot whose client is writing a text, before others are served: some microseconds.
const LOOKS: u32 = 200;
/// The looks at all slots between two at the clock.
const LOOKS_AT_ALL: u32 = 8;

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
    waiting: [Waiting; SLOTS],
    /// The slot that is looked at first.
    next: usize,
    /// The key of the last request, and its bytes: it mostly comes again.
    last: Option<(Vec<u8>, KeyRef)>,
    user: u32,
    left: Left,
}

/// A request in a slot whose client is slower than the server.
#[derive(Default)]
struct Waiting {
    /// The bytes of the text without which the server does not look at it.
    needed: usize,
    /// The part that is computed.
    parts: Option<InParts>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its client finds out with its next request.
        self.slots.sleep(true);
        // It may be about to read the last reply.
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
    fn new(slots: Slots, user: u32, left: Left) -> Self {
        Shared { slots, waiting: Default::default(), next: 0, last: None, user, left }
    }

    /// Whether there is a request in a slot, with as much of its text as is needed.
    fn is_ready(&self, slot: usize) -> bool {
        let Some(Waiting { needed, .. }) = self.waiting.get(slot) else { return false };
        self.slots.has_request(slot) && (*needed == 0 || self.slots.written(slot) >= *needed)
    }

    /// The next slot with a request.
    fn request(&mut self) -> Option<usize> {
        let count = self.slots.count();
        let slot = (self.next..count).chain(0..self.next).find(|slot| self.is_ready(*slot))?;
        self.next = (slot + 1) % count;
        Some(slot)
    }

    /// Serves one request, or a part of one, and returns whether the connection ends after it. `None`: there is none.
    fn serve(
        &mut self,
        peer: &Peer,
        streams: &mut Streams,
        service: &mut Service,
        buffer: &mut [u8],
        now: Now,
    ) -> Option<bool> {
        let slot = self.request()?;
        if let Some(parts) = core::mem::take(&mut self.waiting[slot]).parts {
            self.go_on(slot, parts, peer, service, &mut buffer[..PART_LEN], now);
            return Some(false);
        }
        // The texts come while what is around them is read.
        self.slots.prefetch(slot, TEXTS_AT, self.slots.written(slot).min(PREFETCHED));
        // One that does not fit has no end that could be read, and is refused as malformed.
        let len = self.slots.request(slot, buffer).unwrap_or_default();
        let (front, texts) = buffer.split_at_mut(TEXTS_AT);
        if let Some(front) = front.get(..len).filter(|front| StepsRequest::is_one(front))
            && let Ok(request) = StepsRequest::of(front)
            && let Ok(key) = known(&mut self.last, request.key)
        {
            match service.in_parts(peer, key, &request, now) {
                Ok(Some(parts)) => self.go_on(slot, parts, peer, service, &mut texts[..PART_LEN], now),
                Ok(None) if !gather(&self.slots, slot, &mut texts[..request.texts_len], core::hint::spin_loop) => {
                    self.waiting[slot].needed = request.texts_len;
                }
                Ok(None) => {
                    let texts = &mut texts[..request.texts_len];
                    let done = service.steps(peer, key, &request, texts, now);
                    self.reply_to_steps(slot, &request, done, texts);
                    wipe(texts);
                }
                Err(refusal) => self.refuse(slot, request.id, refusal),
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
        if reply.len() <= self.slots.room() {
            self.slots.reply(slot, &[&reply]);
        } else {
            self.slots.reply(slot, &[&refused(id, Code::Parameter, "its reply is too long for a slot")]);
        }
        Some(ends)
    }

    fn refuse(&self, slot: usize, id: u64, refusal: Refusal) {
        self.slots.reply(slot, &[&Reply { id, answer: Answer::Refused(refusal) }.encode()]);
    }

    /// Puts the texts of those steps that are done into their places, and the reply before them.
    fn reply_to_steps(&self, slot: usize, request: &StepsRequest<'_>, done: Result<StepsDone, Refusal>, texts: &[u8]) {
        let (version, done) = match done {
            Ok(done) => done,
            Err(refusal) => return self.refuse(slot, request.id, refusal),
        };
        let mut at = 0;
        for ((step, len), done) in core::iter::zip(&request.steps, &done) {
            if done.is_ok() && step.has_output() {
                self.slots.put(slot, TEXTS_AT + at, &texts[at..at + len]);
            }
            at += len;
        }
        self.reply_around(slot, request.id, version, &done);
    }

    fn reply_around(&self, slot: usize, id: u64, version: u32, done: &[Result<Outcome, NotDone>]) {
        let mut to = Writer::to(Front::new(&self.slots, slot));
        write_reply(&mut to, id, version, done.iter());
        self.slots.give_back(slot, to.done().len());
    }

    /// Computes the parts of a text that are there, each in memory that the client does not have.
    fn go_on(
        &mut self,
        slot: usize,
        mut parts: InParts,
        peer: &Peer,
        service: &mut Service,
        buffer: &mut [u8],
        now: Now,
    ) {
        let mut next = || -> Result<Option<Status>, Refusal> {
            let (tfm, mut looks) = (service.cipher(peer, &parts, now)?, 0);
            while parts.at < parts.len {
                let (at, len) = (TEXTS_AT + parts.at, PART_LEN.min(parts.len - parts.at));
                let there = self.slots.written(slot).min(parts.len);
                if there < parts.at + len {
                    looks += 1;
                    if looks > LOOKS {
                        return Ok(None);
                    }
                    core::hint::spin_loop();
                    continue;
                }
                looks = 0;
                let part = &mut buffer[..len];
                if !self.slots.part(slot, at, part) {
                    return Ok(Some(Err(OpError::Driver)));
                }
                if let Err(error) = tfm.flat(parts.direction, &mut parts.iv, (&mut *part).into()) {
                    return Ok(Some(Err(error)));
                }
                self.slots.put(slot, at, part);
                parts.at += len;
                self.slots.publish(slot, parts.at);
            }
            Ok(Some(Ok(())))
        };
        let done = match next() {
            Ok(None) => {
                let needed = parts.at + PART_LEN.min(parts.len - parts.at);
                self.waiting[slot] = Waiting { needed, parts: Some(parts) };
                wipe(buffer);
                return;
            }
            Ok(Some(done)) => Ok(done),
            Err(refusal) => Err(refusal),
        };
        wipe(buffer);
        service.ended(peer, &parts, &done, now);
        let outcome = match done {
            Ok(Ok(())) => Ok(Outcome { iv: parts.iv, ..Outcome::default() }),
            Ok(Err(error)) => Err(NotDone::Failed(error)),
            Err(refusal) => return self.refuse(slot, parts.id, refusal),
        };
        self.reply_around(slot, parts.id, parts.version, &[outcome]);
    }

    /// Whether there is a request.
    pub(super) fn is_asked(&self) -> bool {
        (0..self.slots.count()).any(|slot| self.is_ready(slot))
    }

    /// Whether its client is writing a text, or has stopped in the middle of one.
    pub(super) fn is_written(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.needed > 0)
    }
}

/// Copies the texts of a request, as they come, into memory that the client does not have. False if they do not come now: a client
/// that writes byte by byte delays nobody for longer than one that writes whole parts.
fn gather(slots: &Slots, slot: usize, texts: &mut [u8], mut pause: impl FnMut()) -> bool {
    let (mut at, mut looks) = (0, 0);
    while at < texts.len() {
        let there = slots.written(slot).min(texts.len());
        if there < texts.len().min(at + PART_LEN) {
            looks += 1;
            if looks > LOOKS {
                wipe(texts);
                return false;
            }
            pause();
            continue;
        }
        looks = 0;
        if !slots.part(slot, TEXTS_AT + at, &mut texts[at..there]) {
            wipe(texts);
            return false;
        }
        at = there;
    }
    true
}

/// The key of these bytes, which is the last one if that has them.
fn known<'a>(last: &'a mut Option<(Vec<u8>, KeyRef)>, bytes: &[u8]) -> Result<&'a KeyRef, Malformed> {
    if last.as_ref().is_none_or(|(of, _)| of != bytes) {
        *last = Some((bytes.to_vec(), KeyRef::decode(bytes)?));
    }
    last.as_ref().map(|(_, key)| key).ok_or(Malformed("reference to a key"))
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
                *to = Some(Shared::new(slots, user, self.left.clone()));
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
        let mut at = now();
        let begun_ns = at.mono_ns;
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
                if let Some(ends) = shared.serve(peer, streams, service, buffer, at) {
                    is_served = true;
                    client.served(at.mono_ns, ends);
                    let since_ns = core::mem::replace(&mut at, now()).mono_ns;
                    shares.took(user, at.mono_ns.saturating_sub(since_ns));
                }
            }
            if is_served {
                // The spin since the last request was not in vain.
                if !self.is_idle {
                    self.spin.learn(false);
                }
                (self.worked_ns, self.is_idle) = (at.mono_ns, false);
            } else if waits {
                // They have had their share, and sockets come first.
                return false;
            } else if at.mono_ns.saturating_sub(self.worked_ns) >= self.spin.ns() {
                if !self.is_idle {
                    self.spin.learn(true);
                    self.is_idle = true;
                }
                return self.sleep(&mut with_slots);
            } else {
                for _ in 0..LOOKS_AT_ALL {
                    core::hint::spin_loop();
                    if any(&mut with_slots, Shared::is_asked) {
                        break;
                    }
                }
                at = now();
            }
            if at.mono_ns.saturating_sub(begun_ns) >= PHASE_NS {
                return false;
            }
        }
    }

    /// Tells clients that the server sleeps. False if one of them has asked meanwhile.
    fn sleep<H: Holder>(&mut self, clients: &mut [&mut H]) -> bool {
        each(clients, |shared| shared.slots.sleep(true));
        self.is_asleep = true;
        !any(clients, Shared::is_asked)
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

fn any<H: Holder>(clients: &mut [&mut H], f: impl Fn(&Shared) -> bool) -> bool {
    clients.iter_mut().filter_map(|client| client.parts()).any(|(shared, ..)| f(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_comes_byte_by_byte_is_waited_for_like_one_that_does_not_come() {
        let (server, file) = Slots::new(SLOTS, SLOT_LEN).unwrap();
        let client = Slots::of(&file, SLOTS, SLOT_LEN).unwrap();
        let mut texts = vec![1; 3 * PART_LEN];
        client.put(0, TEXTS_AT, &[7; 3 * PART_LEN]);
        let _ = client.post(0, 0, PART_LEN);
        let (mut written, mut pauses) = (PART_LEN, 0);
        let trickle = || {
            pauses += 1;
            written += 1;
            client.wrote(0, written);
        };
        assert!(!gather(&server, 0, &mut texts, trickle));
        assert!(pauses == LOOKS && texts == [0; 3 * PART_LEN], "{pauses} pauses");
        // By whole parts it comes, with a pause for each at most.
        let mut pauses = 0;
        let parts = || {
            pauses += 1;
            written = (written / PART_LEN + 1) * PART_LEN;
            client.wrote(0, written);
        };
        assert!(gather(&server, 0, &mut texts, parts));
        assert!(pauses == 2 && texts == [7; 3 * PART_LEN], "{pauses} pauses");
    }
}
