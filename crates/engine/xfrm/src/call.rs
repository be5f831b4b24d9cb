//! Requests (`netlink_rcv_skb`, `xfrm_user_rcv_msg`) and timers.

use crate::namespace::Xfrm;
use crate::reply::{Notice, Replies, RequestContext, Sender, plain};
use crate::time::Now;
use core::time::Duration;
use sealane_abi::Errno;
use sealane_abi::netlink::answer::{ExtAck, ack, done};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::netlink::{self, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_MIN_TYPE};
use sealane_abi::xfrm::{Body, Request, XFRM_MSG_GETPOLICY, XFRM_MSG_GETSA, XFRM_MSG_MAX};
use zeroize::Zeroizing;

/// The outcome of a request that did not fail.
enum Outcome {
    /// Done: an acknowledgement where it was asked for.
    Done,
    /// A dump: its end is the acknowledgement.
    Dumped,
}

impl Xfrm {
    /// The answers to a datagram of a client without rights, to whom everything is refused, questions too.
    #[must_use]
    pub fn call_without_rights(datagram: &[u8], from: Sender) -> Replies {
        let answer = |message: netlink::Message<'_>| {
            let header = message.header;
            let is_request = header.nlmsg_flags & NLM_F_REQUEST != 0 && header.nlmsg_type >= NLMSG_MIN_TYPE;
            let known = header.nlmsg_type <= XFRM_MSG_MAX;
            let refused = is_request.then_some(if known { Errno::EPERM } else { Errno::EINVAL });
            let answered = refused.is_some() || header.nlmsg_flags & NLM_F_ACK != 0;
            let answer = || ack(&message, from.port, refused.map_or(Ok(()), Err), from.ack, &ExtAck::default());
            answered.then(answer).map(Zeroizing::new)
        };
        Replies { unicast: Messages::new(datagram).filter_map(answer).collect(), events: Vec::new() }
    }

    /// Serves one datagram, message by message (`netlink_rcv_skb`, `xfrm_user_rcv_msg`).
    pub fn call(&mut self, datagram: &[u8], from: Sender, now: Now) -> Replies {
        if !from.caller.privileged {
            return Xfrm::call_without_rights(datagram, from);
        }
        let mut replies = Replies::default();
        self.aevents.now_ns = now.monotonic_ns;
        // As long as a dump has not been read to its end, which is not before this returns, there is no second one.
        let mut dumping = false;
        for message in Messages::new(datagram) {
            let header = message.header;
            let mut ext = ExtAck::default();
            let dump = matches!(header.nlmsg_type, XFRM_MSG_GETSA | XFRM_MSG_GETPOLICY)
                && header.nlmsg_flags & NLM_F_REQUEST != 0
                && header.nlmsg_flags & NLM_F_DUMP != 0;
            let before = replies.unicast.len();
            let outcome = if header.nlmsg_flags & NLM_F_REQUEST == 0 || header.nlmsg_type < NLMSG_MIN_TYPE {
                Ok(Outcome::Done)
            } else if dump && dumping {
                Err(plain(Errno::EBUSY))
            } else {
                let mut context = RequestContext { header, port: from.port, now, replies: &mut replies };
                self.request(&message, from, &mut context, &mut ext)
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
        context: &mut RequestContext<'_>,
        ext: &mut ExtAck,
    ) -> Result<Outcome, Reject> {
        if message.header.nlmsg_type > XFRM_MSG_MAX {
            return Err(plain(Errno::EINVAL));
        }
        let request = Request::decode(message)?;
        *ext = request.warning;
        if matches!(request.body, Body::DumpPolicy | Body::GetPolicy(_) | Body::DelPolicy(_)) {
            self.ask_when_used();
        }
        match request.body {
            Body::DumpSa => return self.dump_states(&request, context, from.ack).map(|()| Outcome::Dumped),
            Body::DumpPolicy => {
                self.dump_policies(context, from.ack);
                return Ok(Outcome::Dumped);
            }
            Body::NewSa(info) => self.add_state(&info, &request.attrs, false, context)?,
            Body::UpdSa(info) => self.add_state(&info, &request.attrs, true, context)?,
            Body::DelSa(id) => self.delete_state(&id, &request.attrs, context)?,
            Body::GetSa(id) => self.reply_state(&id, &request.attrs, context)?,
            Body::AllocSpi(info) => self.alloc_spi(&info, &request.attrs, context)?,
            Body::FlushSa(flush) => self.flush_states(flush.proto, context),
            Body::NewPolicy(info) => self.add_policy(&info, &request.attrs, false, context)?,
            Body::UpdPolicy(info) => self.add_policy(&info, &request.attrs, true, context)?,
            Body::DelPolicy(id) => self.delete_policy(&id, &request.attrs, context)?,
            Body::GetPolicy(id) => self.reply_policy(&id, &request.attrs, context)?,
            Body::FlushPolicy => self.flush_policies(&request.attrs, context)?,
            Body::GetSadInfo(flags) => self.reply_sad_info(flags, context),
            Body::GetSpdInfo(flags) => self.reply_spd_info(flags, context),
            Body::NewSpdInfo(_) => self.set_thresholds(&request)?,
            Body::SetDefault(defaults) => self.set_defaults(&defaults, context),
            Body::GetDefault(_) => self.reply_defaults(context),
            Body::Acquire(acquire) => self.send_acquire(&acquire, &request.attrs, context)?,
            Body::Expire(expire) => self.expire_state(&expire, &request.attrs, context)?,
            Body::PolExpire(expire) => self.expire_policy(&expire, &request.attrs, context)?,
            Body::NewAe(id) => self.set_aevent(&id, &request.attrs, context)?,
            Body::GetAe(id) => self.reply_aevent(&id, &request.attrs, context)?,
            Body::Migrate(id) => self.migrate(&id, &request.attrs, context)?,
            Body::MigrateState(order) => self.migrate_state(&order, &request.attrs, context)?,
            _ => return Err(plain(Errno::EINVAL)),
        }
        Ok(Outcome::Done)
    }

    /// Looks at the clocks, before anything else is done at this time: when somebody has set the one on the wall, timers go on as
    /// they were, as the kernel's do.
    pub fn note_time(&mut self, now: Now) {
        if let Some(by_s) = self.clock.was_set(now) {
            self.data.sad.clock_was_set(by_s);
            self.states.clock_was_set(by_s);
            self.policies.clock_was_set(by_s);
            self.keepalives.0.clock_was_set(by_s);
        }
    }

    /// In how long [`Self::handle_timeout`] and [`Self::look_after_leases`] should be called; `None` for never, as things stand.
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
        at.into_iter().chain(self.numbers_poll_timeout(now)).chain(aevent).min()
    }

    /// Handles expired timers and returns the events for listeners.
    pub fn handle_timeout(&mut self, now: Now) -> Vec<Notice> {
        let mut events = Vec::new();
        self.data.sad.handle_timeout(now.wall_s, &mut events);
        let mut notices = Vec::new();
        self.handle_events(events, now, &mut notices);
        self.states_timeout(now, &mut notices);
        self.policies_timeout(now, &mut notices);
        self.aevents_timeout(now, &mut notices);
        notices
    }
}
