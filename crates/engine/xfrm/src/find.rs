//! Requests to get, delete and flush states, and the events of states that packets and timers cause.

use crate::namespace::Xfrm;
use crate::reply::{Notice, RequestContext, plain};
use crate::serial::Serial;
use crate::state::State;
use crate::time::Now;
use sealane_abi::Errno;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::netlink::{Messages, NLM_F_REQUEST};
use sealane_abi::xfrm::{
    Attributes, Body, IPSEC_PROTO_ANY, Mark, Reason, Request, UDP_ENCAP_ESPINUDP, UsersaFlush, UsersaId,
    XFRM_MSG_FLUSHSA, XFRMNLGRP_SA, XfrmMessage, proto_matches,
};
use sealane_net_ipsec::event::Event;

/// The most states that [`Xfrm::flush_ahead`] deletes: some milliseconds.
const FLUSHED_AT_ONCE: usize = 1024;

/// Returns the mark of a request, and its value under its mask, by which states are looked up (`xfrm_mark_get`).
pub(crate) fn mark(attrs: &Attributes<'_>) -> Result<(Mark, u32), Reject> {
    let mark = attrs.mark()?.unwrap_or_default();
    Ok((mark, mark.v & mark.m))
}

impl Xfrm {
    /// The state that a request names (`xfrm_user_state_lookup`).
    pub(crate) fn named(&self, id: &UsersaId, attrs: &Attributes<'_>) -> Result<Serial, Reject> {
        let (_, mark) = mark(attrs)?;
        if !proto_matches(id.proto, IPSEC_PROTO_ANY) {
            // Others are named by addresses: those of Mobile IPv6, of which Sealane has none, and of IP in IP.
            let source = attrs.srcaddr()?.ok_or(plain(Errno::EINVAL))?;
            return self.states.find_between(mark, &id.daddr, &source, id.proto, id.family).ok_or(plain(Errno::ESRCH));
        }
        self.states.find(mark, &id.daddr, id.spi.get(), id.proto, id.family).ok_or(plain(Errno::ESRCH))
    }

    pub(crate) fn reply_state(
        &self,
        id: &UsersaId,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let serial = self.named(id, attrs)?;
        if let Some(state) = self.states.get(serial) {
            context.reply(&self.new_sa_message(state));
        }
        Ok(())
    }

    pub(crate) fn delete_state(
        &mut self,
        id: &UsersaId,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let serial = self.named(id, attrs)?;
        if let Some(state) = self.states.get(serial) {
            if state.tunnel_users != 0 {
                return Err(Reason::InUse.into());
            }
            let event = self.del_sa_message(state);
            self.remove_state(serial);
            context.notify(XFRMNLGRP_SA, &event);
        }
        Ok(())
    }

    /// The protocol whose states a datagram flushes before it does anything else.
    #[must_use]
    pub fn flushed_protocol(datagram: &[u8]) -> Option<u8> {
        let first = Messages::new(datagram).next()?;
        let is_flush = first.header.nlmsg_type == XFRM_MSG_FLUSHSA && first.header.nlmsg_flags & NLM_F_REQUEST != 0;
        let request = if is_flush { Request::decode(&first).ok()? } else { return None };
        if let Body::FlushSa(flush) = request.body { Some(flush.proto) } else { None }
    }

    /// Deletes some of the states that a request is going to flush, so that packets need not wait until all are gone. Returns
    /// whether there may be more; [`Self::call`] does the rest.
    pub fn flush_ahead(&mut self, proto: u8) -> bool {
        let gone = self.states_of(proto, FLUSHED_AT_ONCE + 1);
        let more = gone.len() > FLUSHED_AT_ONCE;
        if more {
            gone[..FLUSHED_AT_ONCE].iter().for_each(|serial| self.remove_state(*serial));
        }
        more
    }

    /// So many states of a protocol, at most.
    fn states_of(&self, proto: u8, most: usize) -> Vec<Serial> {
        let fits = |state: &State| state.tunnel_users == 0 && proto_matches(state.info.id.proto, proto);
        let of_proto = self.states.iter().filter(|(_, state)| fits(state));
        of_proto.map(|(serial, _)| serial).take(most).collect()
    }

    /// Deletes all states of a protocol, and sends an event if there were any (`xfrm_flush_sa`).
    pub(crate) fn flush_states(&mut self, proto: u8, context: &mut RequestContext<'_>) {
        let gone = self.states_of(proto, usize::MAX);
        if gone.is_empty() {
            return;
        }
        gone.into_iter().for_each(|serial| self.remove_state(serial));
        context.notify(XFRMNLGRP_SA, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto })));
    }

    /// Calls `each` with the UDP ports of states, at both ends: whether the state is of IPv6, and the port. It visits
    /// at most `most` states from number `from` on, and returns the number to continue with; the first call takes 0.
    pub fn udp_ports(&self, from: u64, most: usize, mut each: impl FnMut(bool, u16)) -> Option<u64> {
        let mut states = self.states.since(from);
        for (_, state) in states.by_ref().take(most) {
            if let Some(encap) = state.encap.as_ref().filter(|encap| encap.encap_type == UDP_ENCAP_ESPINUDP) {
                let v6 = state.info.family == sealane_abi::xfrm::AF_INET6;
                [encap.encap_sport, encap.encap_dport].iter().for_each(|port| each(v6, port.get()));
            }
        }
        states.next().map(|(serial, _)| serial)
    }

    /// Removes a state from the table of states and from the SAD.
    pub(crate) fn remove_state(&mut self, serial: Serial) {
        let Some(mut state) = self.states.remove(serial) else { return };
        self.aevents.forget(serial, &state.last_event);
        self.keepalives.forget(serial, state.keepalive);
        let used = self.last_number(&state);
        self.end_lease(&mut state, used);
        if let Some(sa) = state.sa {
            self.data.sad.remove(sa);
        }
        self.release(state.offload, state.device_key);
        self.detach_tunnel(&state);
    }

    /// Handles events that packets and timers caused.
    pub(crate) fn handle_events(&mut self, events: Vec<Event>, now: Now, notices: &mut Vec<Notice>) {
        for event in events {
            match event {
                Event::SoftExpire(sa) => {
                    let state = self.states.of_sa(sa).and_then(|serial| self.states.get(serial));
                    notices.extend(state.map(|state| self.expire_notice(state, false, 0)));
                }
                Event::HardExpire(sa) => {
                    let Some(serial) = self.states.of_sa(sa) else { continue };
                    notices.extend(self.states.get(serial).map(|state| self.expire_notice(state, true, 0)));
                    self.remove_state(serial);
                }
                Event::Acquire { state, policy, .. } => notices.extend(self.acquired(state, policy, now)),
                Event::Mapping { state, address, port } => notices.extend(self.mapped(state, address, port)),
                Event::Numbers(sa) => {
                    let serial = self.states.of_sa(sa);
                    notices.extend(serial.and_then(|serial| self.numbers_moved(serial, now)));
                }
                Event::LeaseLow(sa) => self.renew_lease(self.states.of_sa(sa)),
            }
        }
    }
}
