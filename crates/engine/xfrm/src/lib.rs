//! NETLINK_XFRM as a state machine (`net/xfrm/xfrm_user.c`, `xfrm_state.c`, `xfrm_policy.c` of Linux 7.3): one [`Xfrm`] for
//! each network namespace.
//!
//! What a key manager said is kept as it said it ([`state`], [`policy`]) and told back byte for byte; what packets need of it
//! is in `sealane_net::ipsec`, under a handle. The two change together. A state that this version keeps but cannot use
//! (IPComp, IP-TFS) has no handle: no packet ever finds it, and a policy that requires it blocks.
//!
//! [`Xfrm::call`] takes a datagram and gives the datagrams to answer with, and events for multicast groups;
//! [`Xfrm::handle_timeout`] gives the events of time.
#![forbid(unsafe_code)]

use core::time::Duration;
use sealane_abi::netlink::answer::{AckOptions, ExtAck, ack, done};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::netlink::{self, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_MIN_TYPE};
use sealane_abi::xfrm::{Body, Message, Request, XFRM_MSG_GETPOLICY, XFRM_MSG_GETSA, XFRM_MSG_MAX};
use sealane_abi::{Caller, Errno};
use sealane_crypto::Registry;
use sealane_net::ipsec::transform::Transforms;
use std::sync::Arc;
use zeroize::Zeroizing;

mod acquire;
mod add;
mod aevent;
mod aevent_notify;
mod ahead;
mod convert;
pub mod data;
mod defaults;
pub mod device;
mod dump;
mod expire;
mod find;
mod keepalive;
mod migrate;
pub mod numbers;
mod offload;
mod output_mark;
pub mod packet;
mod pieces;
mod policies;
mod policy;
mod proc;
mod replay;
mod spi;
mod state;
mod states;
mod verify;

#[cfg(test)]
mod tests;

pub use keepalive::Keepalive;
pub use output_mark::OutputMark;
pub use proc::proc_xfrm_stat;

use policies::Policies;
use states::States;

/// The time, on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Since some start, never going back, in nanoseconds: for timers.
    pub monotonic_ns: u64,
    /// Since 1970, in seconds: lifetimes are counted in it, as the kernel's are.
    pub wall_s: u64,
}

/// Who sends a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sender {
    /// The port of its socket.
    pub port: u32,
    /// What it may do. Everything here needs CAP_NET_ADMIN; who knows its credentials has looked at them.
    pub caller: Caller,
    /// What its socket asked of acknowledgements.
    pub ack: AckOptions,
}

/// An event for who listens to a multicast group. It may hold keys and is wiped.
#[derive(Clone, PartialEq, Eq)]
pub struct Notice {
    /// `XFRMNLGRP_...`.
    pub group: u32,
    /// One message.
    pub bytes: Zeroizing<Vec<u8>>,
}

impl Notice {
    /// Encodes an event.
    pub(crate) fn new(group: u32, message: &Message, seq: u32, port: u32) -> Self {
        Notice { group, bytes: message.encode(0, seq, port) }
    }
}

/// What follows from a datagram. It may hold keys and is wiped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Replies {
    /// Datagrams for the sender, in their order.
    pub unicast: Vec<Zeroizing<Vec<u8>>>,
    /// Events, in their order.
    pub events: Vec<Notice>,
}

/// Fills a buffer with random bytes.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// What an [`Xfrm`] is made with.
pub struct Setup {
    /// Algorithms.
    pub registry: Arc<Registry>,
    /// Random bytes that nobody can foresee: SPIs, salts of IVs, seeds of hash tables.
    pub random: Random,
    /// How many CPUs there may be: the limit of `XFRMA_SA_PCPU`.
    pub cpus: u32,
    /// Where sequence numbers are leased; `None` for nowhere: a key that is added again begins anew.
    pub numbers: Option<Box<dyn numbers::Numbers>>,
}

/// The XFRM of one network namespace.
pub struct Xfrm {
    /// States and policies as packets need them.
    pub(crate) data: data::Databases,
    /// States as they were said.
    pub(crate) states: States,
    /// Policies as they were said.
    pub(crate) policies: Policies,
    transforms: Transforms,
    random: Random,
    cpus: u32,
    settings: defaults::Settings,
    aevents: aevent_notify::Aevents,
    keepalives: keepalive::Keepalives,
    devices: offload::Devices,
    numbers: Option<Box<dyn numbers::Numbers>>,
    /// States whose numbers could not be leased when they asked.
    starving: Vec<states::Serial>,
}

/// What a request has come to where it did not fail.
enum Outcome {
    /// Done: an acknowledgement where it was asked for.
    Done,
    /// A dump: its end is the acknowledgement.
    Dumped,
}

/// What serving one request needs.
pub(crate) struct Serving<'a> {
    /// Header of the request.
    pub(crate) header: netlink::Nlmsghdr,
    /// Port of the sender.
    pub(crate) port: u32,
    /// The time.
    pub(crate) now: Now,
    /// Where answers and events go.
    pub(crate) replies: &'a mut Replies,
}

impl Serving<'_> {
    /// Answers with one message.
    pub(crate) fn reply(&mut self, message: &Message) {
        self.replies.unicast.push(message.encode(0, self.header.nlmsg_seq, self.port));
    }

    /// Tells a group, with sequence number and port of the request's header.
    pub(crate) fn tell(&mut self, group: u32, message: &Message) {
        let header = &self.header;
        self.replies.events.push(Notice::new(group, message, header.nlmsg_seq, header.nlmsg_pid));
    }
}

/// A refusal without a text.
pub(crate) const fn plain(errno: Errno) -> Reject {
    Reject { errno, attr: None, ack: ExtAck { text: None, offset: None, rule: None } }
}

impl Xfrm {
    /// An empty one, which lets everything pass.
    #[must_use]
    pub fn new(mut setup: Setup) -> Self {
        let mut seed = || {
            let mut bytes = [0; 8];
            (setup.random)(&mut bytes);
            u64::from_ne_bytes(bytes)
        };
        Xfrm {
            data: data::Databases::of(data::Owner::Alone, &mut seed),
            states: States::default(),
            policies: Policies::default(),
            transforms: Transforms::new(setup.registry),
            random: setup.random,
            cpus: setup.cpus,
            settings: defaults::Settings::default(),
            aevents: aevent_notify::Aevents::default(),
            keepalives: keepalive::Keepalives::default(),
            devices: offload::Devices::default(),
            numbers: setup.numbers,
            starving: Vec::new(),
        }
    }

    /// Serves one datagram, message by message (`netlink_rcv_skb`, `xfrm_user_rcv_msg`).
    pub fn call(&mut self, datagram: &[u8], from: Sender, now: Now) -> Replies {
        let mut replies = Replies::default();
        self.aevents.now_ns = now.monotonic_ns;
        // As long as a dump has not been read to its end, which is not before this returns, there is no second one.
        let mut dumping = false;
        for message in Messages::new(datagram) {
            let header = message.header;
            let mut ext = ExtAck::default();
            let dump = matches!(header.nlmsg_type, XFRM_MSG_GETSA | XFRM_MSG_GETPOLICY)
                && header.nlmsg_flags & NLM_F_REQUEST != 0
                && header.nlmsg_flags & NLM_F_DUMP != 0
                && from.caller.privileged;
            let before = replies.unicast.len();
            let outcome = if header.nlmsg_flags & NLM_F_REQUEST == 0 || header.nlmsg_type < NLMSG_MIN_TYPE {
                Ok(Outcome::Done)
            } else if dump && dumping {
                Err(plain(Errno::EBUSY))
            } else {
                let mut serving = Serving { header, port: from.port, now, replies: &mut replies };
                self.request(&message, from, &mut serving, &mut ext)
            };
            let errno = match outcome {
                Ok(Outcome::Dumped) => {
                    dumping = replies.unicast.len() > before + 1;
                    continue;
                }
                Ok(Outcome::Done) if header.nlmsg_flags & NLM_F_ACK == 0 => continue,
                Ok(Outcome::Done) => Ok(()),
                Err(reject) => {
                    // A warning of the parser stands until something else is said.
                    if reject.ack.text.is_some() {
                        ext = reject.ack;
                    }
                    Err(reject.errno)
                }
            };
            let answer = if dump && !dumping {
                done(header.nlmsg_seq, from.port, 0, errno, from.ack, &ext)
            } else {
                ack(&message, from.port, errno, from.ack, &ext)
            };
            replies.unicast.push(Zeroizing::new(answer));
        }
        replies
    }

    fn request(
        &mut self,
        message: &netlink::Message<'_>,
        from: Sender,
        serving: &mut Serving<'_>,
        ext: &mut ExtAck,
    ) -> Result<Outcome, Reject> {
        if message.header.nlmsg_type > XFRM_MSG_MAX {
            return Err(plain(Errno::EINVAL));
        }
        // Everything needs the privilege, questions too.
        if !from.caller.privileged {
            return Err(plain(Errno::EPERM));
        }
        let request = Request::decode(message)?;
        *ext = request.warning;
        if matches!(request.body, Body::DumpPolicy | Body::GetPolicy(_) | Body::DelPolicy(_)) {
            self.ask_when_used();
        }
        match request.body {
            Body::DumpSa => return self.dump_states(&request, serving, from.ack).map(|()| Outcome::Dumped),
            Body::DumpPolicy => {
                self.dump_policies(serving, from.ack);
                return Ok(Outcome::Dumped);
            }
            Body::NewSa(info) => self.add_state(&info, &request.attrs, false, serving)?,
            Body::UpdSa(info) => self.add_state(&info, &request.attrs, true, serving)?,
            Body::DelSa(id) => self.delete_state(&id, &request.attrs, serving)?,
            Body::GetSa(id) => self.tell_state(&id, &request.attrs, serving)?,
            Body::AllocSpi(info) => self.alloc_spi(&info, &request.attrs, serving)?,
            Body::FlushSa(flush) => self.flush_states(flush.proto, serving),
            Body::NewPolicy(info) => self.add_policy(&info, &request.attrs, false, serving)?,
            Body::UpdPolicy(info) => self.add_policy(&info, &request.attrs, true, serving)?,
            Body::DelPolicy(id) => self.delete_policy(&id, &request.attrs, serving)?,
            Body::GetPolicy(id) => self.tell_policy(&id, &request.attrs, serving)?,
            Body::FlushPolicy => self.flush_policies(&request.attrs, serving)?,
            Body::GetSadInfo(flags) => self.tell_sad_info(flags, serving),
            Body::GetSpdInfo(flags) => self.tell_spd_info(flags, serving),
            Body::NewSpdInfo(_) => self.set_thresholds(&request)?,
            Body::SetDefault(defaults) => self.set_defaults(&defaults, serving),
            Body::GetDefault(_) => self.tell_defaults(serving),
            Body::Acquire(acquire) => self.send_acquire(&acquire, &request.attrs, serving)?,
            Body::Expire(expire) => self.expire_state(&expire, &request.attrs, serving)?,
            Body::PolExpire(expire) => self.expire_policy(&expire, &request.attrs, serving)?,
            Body::NewAe(id) => self.set_aevent(&id, &request.attrs, serving)?,
            Body::GetAe(id) => self.tell_aevent(&id, &request.attrs, serving)?,
            Body::Migrate(id) => self.migrate(&id, &request.attrs, serving)?,
            Body::MigrateState(order) => self.migrate_state(&order, &request.attrs, serving)?,
            _ => return Err(plain(Errno::EINVAL)),
        }
        Ok(Outcome::Done)
    }

    /// In how long [`Self::handle_timeout`] should be called; `None` for never, as things stand.
    #[must_use]
    pub fn poll_timeout(&self, now: Now) -> Option<Duration> {
        let at = [
            self.data.sad.poll_timeout(),
            self.states.poll_timeout(),
            self.policies.poll_timeout(),
            self.keepalives.poll_timeout(),
        ];
        let at = at.into_iter().flatten().min().map(|at| Duration::from_secs(at.saturating_sub(now.wall_s)));
        let aevent = self.aevents.poll_timeout().map(|at| Duration::from_nanos(at.saturating_sub(now.monotonic_ns)));
        at.into_iter().chain(self.numbers_poll_timeout()).chain(aevent).min()
    }

    /// What time has brought: events for those who listen.
    pub fn handle_timeout(&mut self, now: Now) -> Vec<Notice> {
        let mut events = Vec::new();
        self.data.sad.handle_timeout(now.wall_s, &mut events);
        let mut notices = Vec::new();
        self.handle_events(events, now, &mut notices);
        self.states_timeout(now, &mut notices);
        self.policies_timeout(now, &mut notices);
        self.aevents_timeout(now, &mut notices);
        self.numbers_timeout();
        notices
    }

    /// Random bytes.
    pub(crate) fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }
}
