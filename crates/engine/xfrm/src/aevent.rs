//! NEWAE and GETAE: replay and lifetime of a state, for who keeps a copy of it on another machine (`build_aevent`).

use crate::convert;
use crate::find::mark;
use crate::namespace::Xfrm;
use crate::replay::{Replay, Sequence};
use crate::reply::{RequestContext, plain};
use crate::serial::Serial;
use crate::state::{Km, State, mark_attr, unless_zero};
use crate::time::TICKS_S;
use sealane_abi::Errno;
use sealane_abi::netlink::NLM_F_REPLACE;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    AeventId, Attribute, Attributes, Body, Reason, ReplayStateEsn, XFRM_AE_CU, XFRM_AE_ETHR, XFRM_AE_RTHR,
    XFRMA_ETIMER_THRESH, XFRMA_LTIME_VAL, XFRMA_REPLAY_ESN_VAL, XFRMA_REPLAY_THRESH, XFRMA_REPLAY_VAL,
    XFRMNLGRP_AEVENTS, XfrmMessage,
};
use sealane_net_ipsec::sa::SaError;

/// Length of the head of [`ReplayStateEsn`] in bytes.
const ESN_HEAD_LEN: usize = 24;

impl Xfrm {
    fn of_aevent(&self, id: &AeventId, attrs: &Attributes<'_>) -> Result<Serial, Reject> {
        let (sa, (_, mark)) = (&id.sa_id, mark(attrs)?);
        self.states.find(mark, &sa.daddr, sa.spi.get(), sa.proto, sa.family).ok_or(plain(Errno::ESRCH))
    }

    /// The message, with `flags` saying what is in it.
    pub(crate) fn aevent_message(&self, state: &State, flags: u32) -> XfrmMessage {
        let info = &state.info;
        let id = AeventId { sa_id: state.id(), saddr: info.saddr, flags, reqid: info.reqid };
        let mut attrs = vec![self.replay_attr(state), Attribute::LtimeVal(convert::lifetime_cur(&self.usage(state)))];
        if flags & XFRM_AE_RTHR != 0 {
            attrs.push(Attribute::ReplayThresh(state.replay_thresh));
        }
        if flags & XFRM_AE_ETHR != 0 {
            attrs.push(Attribute::EtimerThresh(state.replay_ticks.wrapping_mul(10) / TICKS_S));
        }
        mark_attr(&mut attrs, state.mark);
        unless_zero(&mut attrs, state.if_id, Attribute::IfId);
        attrs.extend(state.cpu.map(Attribute::SaPcpu));
        if state.dir != 0 {
            attrs.push(Attribute::SaDir(state.dir));
        }
        XfrmMessage { body: Body::NewAe(id), attrs }
    }

    pub(crate) fn reply_aevent(
        &self,
        id: &AeventId,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let serial = self.of_aevent(id, attrs)?;
        if let Some(state) = self.states.get(serial) {
            let message = self.aevent_message(state, id.flags);
            // This answer carries the port of the request's header, not that of its sender.
            let header = &context.header;
            context.replies.unicast.push(message.encode(0, header.nlmsg_seq, header.nlmsg_pid));
        }
        Ok(())
    }

    pub(crate) fn set_aevent(
        &mut self,
        id: &AeventId,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let about = [XFRMA_LTIME_VAL, XFRMA_REPLAY_VAL, XFRMA_REPLAY_ESN_VAL, XFRMA_ETIMER_THRESH, XFRMA_REPLAY_THRESH];
        if about.iter().all(|attr| attrs.raw(*attr).is_none()) {
            return Err(Reason::AeMissing.into());
        }
        if context.header.nlmsg_flags & NLM_F_REPLACE == 0 {
            return Err(Reason::AeReplace.into());
        }
        let serial = self.of_aevent(id, attrs)?;
        let Some(state) = self.states.get(serial).filter(|state| state.km == Km::Valid) else {
            return Err(Reason::NotValid.into());
        };
        let replay = match state.sequence.said() {
            Replay::Esn(now) => new_esn(now, attrs)?.map(Replay::Esn),
            Replay::Legacy(_) => attrs.replay_val()?.map(Replay::Legacy),
        };
        if let Some(replay) = replay {
            self.set_numbers(serial, replay)?;
        }
        if let (Some(cur), Some(state)) = (attrs.ltime_val()?, self.states.get_mut(serial)) {
            state.info.curlft = cur;
            self.with_sad(serial, |sad, sa| sad.set_usage(sa, &convert::usage(&cur), context.now.wall_s));
        }
        let (ticks, thresh) = (attrs.etimer_thresh()?, attrs.replay_thresh()?);
        let maxage = attrs.mtimer_thresh()?;
        if let Some(state) = self.states.get_mut(serial) {
            state.replay_ticks = ticks.unwrap_or(state.replay_ticks);
            state.replay_thresh = thresh.unwrap_or(state.replay_thresh);
            state.mapping_maxage_s = maxage.unwrap_or(state.mapping_maxage_s);
        }
        self.watch(serial);
        self.states.changes.note(serial);
        if let Some(state) = self.states.get(serial) {
            let message = self.aevent_message(state, XFRM_AE_CU);
            context.notify(XFRMNLGRP_AEVENTS, &message);
        }
        Ok(())
    }

    /// Numbers and window go on from here. Back they do not go, other than Linux's: a number sent twice is an IV used
    /// twice.
    fn set_numbers(&mut self, serial: Serial, replay: Replay) -> Result<(), Reject> {
        let Some(state) = self.states.get(serial) else { return Ok(()) };
        let (mut sequence, window) = (Sequence::of(replay), state.window_pkts());
        let set = self.with_sad(serial, |sad, sa| sequence.set(sad, sa, window)).unwrap_or(Ok(()));
        set.map_err(|error| match error {
            SaError::Gone => plain(Errno::ESRCH),
            _ => plain(Errno::EINVAL),
        })?;
        if let Some(state) = self.states.get_mut(serial) {
            state.sequence = sequence;
            state.last_event.forget_numbers();
        }
        Ok(())
    }
}

/// The numbers of 64 bits that a request sets, of the same size as those that are there (`xfrm_replay_verify_len`).
fn new_esn(now: &ReplayStateEsn, attrs: &Attributes<'_>) -> Result<Option<ReplayStateEsn>, Reject> {
    let Some(raw) = attrs.raw(XFRMA_REPLAY_ESN_VAL) else { return Ok(None) };
    let words = raw.first_chunk().map_or(0, |w| u32::from_ne_bytes(*w));
    if raw.len() < ESN_HEAD_LEN + 4 * words as usize {
        return Err(Reason::EsnShort.into());
    }
    if words != now.bmp_len {
        return Err(Reason::EsnSizeChanged.into());
    }
    let Some(new) = attrs.replay_esn_val()? else { return Ok(None) };
    if new.replay_window > words * 32 {
        return Err(Reason::EsnWindowLong.into());
    }
    // The window itself stays: packets are judged by the one that the state was made with.
    Ok(Some(ReplayStateEsn { replay_window: now.replay_window, ..new }))
}
