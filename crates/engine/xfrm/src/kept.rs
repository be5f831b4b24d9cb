//! Records of states and policies, by which another process goes on with them.
//!
//! A record is the request that makes the object again (`XFRM_MSG_NEWSA`, `XFRM_MSG_NEWPOLICY`,
//! `XFRM_MSG_SETDEFAULT`). The progress of a state, which packets change, is noted beside its record.

use crate::changes::DEFAULTS;
use crate::namespace::Xfrm;
use crate::policies::key_of;
use crate::reply::{Sender, plain};
use crate::serial::Serial;
use crate::state::{Km, State};
use crate::time::Now;
use crate::verify;
use sealane_abi::Caller;
use sealane_abi::Errno;
use sealane_abi::netlink::answer::AckOptions;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::netlink::{Messages, NLM_F_REQUEST};
use sealane_abi::xfrm::{
    Attribute, Body, Request, UserOffload, XFRM_MSG_NEWPOLICY, XFRM_MSG_NEWSA, XFRM_MSG_SETDEFAULT,
    XFRM_OFFLOAD_PACKET, XFRM_STATE_ESN, XfrmMessage,
};
use sealane_net_ipsec::progress::{Progress, Words};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A state or policy as it is recorded.
pub struct Record<'a> {
    /// The request that makes it again, without its device. That of a state has its keys.
    pub request: &'a [u8],
    /// Its device, by the index of the interface, and the flags of the offload. The index is 0 for a policy that has lost
    /// its device.
    pub device: Option<UserOffload>,
    /// The number of the words in which a state's progress is noted.
    pub progress: Option<u32>,
}

/// A place in which states and policies are recorded.
pub trait Recorder {
    /// Words for the progress of a state, all zero; `None` where there are none: the state is not recorded then.
    fn words(&mut self) -> Option<Arc<dyn Words>>;

    /// Records a state, in the place of an earlier record with this key.
    fn put_state(&mut self, key: u64, record: &Record<'_>);

    /// Removes the record of a state, if there is one.
    fn remove_state(&mut self, key: u64);

    /// Records a policy, in the place of an earlier record with this key. Policies are restored in the order of their keys.
    fn put_policy(&mut self, key: u64, record: &Record<'_>);

    /// Removes the record of a policy.
    fn remove_policy(&mut self, key: u64);
}

impl Xfrm {
    /// Notes all changes from now on, for [`Self::record`].
    pub fn start_recording(&mut self) {
        let states: Vec<Serial> = self.states.iter().map(|(serial, _)| serial).collect();
        let policies: Vec<Serial> = self.policies.iter().map(|(_, policy)| policy.place).collect();
        self.states.changes.start();
        self.policies.changes.start();
        states.into_iter().for_each(|serial| self.states.changes.note(serial));
        policies.into_iter().for_each(|place| self.policies.changes.note(place));
        self.policies.changes.note(DEFAULTS);
    }

    /// Whether there is anything to record.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.states.changes.is_empty() || !self.policies.changes.is_empty()
    }

    /// Records what has changed. What is new is recorded before anything is removed.
    pub fn record(&mut self, to: &mut dyn Recorder) {
        let (gone, changed): (Vec<_>, Vec<_>) =
            self.policies.changes.take().into_iter().partition(|key| self.is_policy_gone(*key));
        changed.into_iter().for_each(|key| self.record_policy(key, to));
        gone.into_iter().for_each(|key| to.remove_policy(key));
        let (gone, changed): (Vec<_>, Vec<_>) =
            self.states.changes.take().into_iter().partition(|key| self.states.get(*key).is_none());
        changed.into_iter().for_each(|key| self.record_state(key, to));
        gone.into_iter().for_each(|key| to.remove_state(key));
    }

    fn is_policy_gone(&self, key: Serial) -> bool {
        key != DEFAULTS && self.policies.of_place(key).is_none()
    }

    fn record_policy(&self, key: Serial, to: &mut dyn Recorder) {
        let (message, device) = match self.policies.of_place(key) {
            Some(policy) => {
                let mut message = policy.new_message(&self.data.spd);
                message.attrs.retain(|attribute| !matches!(attribute, Attribute::OffloadDev(_)));
                (message, policy.offload.or_else(|| policy.is_orphan.then(UserOffload::default)))
            }
            None => (XfrmMessage::new(Body::SetDefault(self.settings.defaults)), None),
        };
        let request = message.encode(NLM_F_REQUEST, 0, 0);
        to.put_policy(key, &Record { request: &request, device, progress: None });
    }

    fn record_state(&mut self, key: Serial, to: &mut dyn Recorder) {
        let Some(state) = self.states.get(key) else { return };
        if state.info.id.spi.get() == 0 {
            // It only says that a key manager has been asked, and whoever goes on asks again.
            return;
        }
        if state.tunnel_users != 0 {
            // It comes with its users.
            return;
        }
        let noted = self.see_sad(state, |sad, sa| sad.get(sa).map(|sa| sa.progress_index())).flatten();
        let progress = match noted {
            // No packets go through it.
            None => None,
            Some(Some(index)) => Some(index),
            Some(None) => {
                let Some(words) = to.words() else {
                    // Whoever went on with it would accept packets again. The next record tries once more.
                    to.remove_state(key);
                    self.states.changes.note(key);
                    return;
                };
                let index = words.index();
                self.with_sad(key, |sad, sa| sad.set_progress(sa, words));
                Some(index)
            }
        };
        let Some(state) = self.states.get(key) else { return };
        let mut message = self.new_sa_message(state);
        message.attrs.retain(|attribute| !matches!(attribute, Attribute::OffloadDev(_)));
        message.attrs.push(Attribute::EtimerThresh(state.replay_ticks));
        message.attrs.push(Attribute::ReplayThresh(state.replay_thresh));
        let request = message.encode(NLM_F_REQUEST, 0, 0);
        to.put_state(key, &Record { request: &request, device: state.offload, progress });
    }

    /// Makes a policy or the defaults of a record again, on this device if it had one.
    ///
    /// # Errors
    /// The engine's, as if a key manager had asked: the policies are as they were.
    pub fn restore_policy(&mut self, request: &[u8], device: Option<UserOffload>, now: Now) -> Result<(), Errno> {
        // The direction in the flags is only told, never asked for.
        let device = device.map(|of| UserOffload { flags: of.flags & XFRM_OFFLOAD_PACKET, ..of });
        let mut messages = Messages::new(request);
        let is_wanted = |type_| matches!(type_, XFRM_MSG_NEWPOLICY | XFRM_MSG_SETDEFAULT);
        let is_one = messages.next().is_some_and(|m| is_wanted(m.header.nlmsg_type)) && messages.next().is_none();
        if !is_one {
            return Err(Errno::EINVAL);
        }
        let request = with_device(request, device).ok_or(Errno::EINVAL)?;
        let ours = Sender { port: 0, caller: Caller { privileged: true }, ack: AckOptions::default() };
        // Without NLM_F_ACK, which a record loses, only refusals are answered.
        let answers = self.call(&request, ours, now);
        if answers.unicast.is_empty() { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Takes the device from a policy that [`Self::restore_policy`] has made without it: the device is not there.
    pub fn restore_orphan(&mut self, request: &[u8]) {
        let decoded = Messages::new(request).next().and_then(|message| Request::decode(&message).ok());
        let Some(Request { body: Body::NewPolicy(info), attrs, .. }) = decoded else { return };
        let (Ok(mark), Ok(if_id)) = (attrs.mark(), attrs.if_id()) else { return };
        let key = key_of(info.dir, &info.sel, mark.unwrap_or_default(), if_id.unwrap_or(0));
        if let Some(serial) = self.policies.by_key.get(&key).copied() {
            self.orphan_policy(serial);
        }
    }

    /// Makes a state of a record again, on this device if it had one, with the progress that was noted.
    ///
    /// # Errors
    /// The engine's, as if a key manager had asked: there is no such state then.
    pub fn restore_state(
        &mut self,
        request: &[u8],
        device: Option<UserOffload>,
        progress: Option<Progress>,
        now: Now,
    ) -> Result<(), Errno> {
        let request = with_device(request, device).ok_or(Errno::EINVAL)?;
        self.try_restore(&request, progress, now).map_err(|reject| reject.errno)
    }

    fn try_restore(&mut self, request: &[u8], progress: Option<Progress>, now: Now) -> Result<(), Reject> {
        let wrong = || plain(Errno::EINVAL);
        let message = Messages::new(request).next().filter(|m| m.header.nlmsg_type == XFRM_MSG_NEWSA);
        let request = Request::decode(&message.ok_or_else(wrong)?)?;
        let Body::NewSa(info) = request.body else { return Err(wrong()) };
        let attrs = &request.attrs;
        let keyless = attrs.alg_aead()?.is_none() && attrs.alg_crypt()?.is_none() && attrs.alg_auth()?.is_none();
        if keyless && attrs.alg_comp()?.is_none() {
            // An SPI that is reserved until its keys come.
            let mut state = State::new(info, Km::Acquiring);
            (state.mark, state.if_id) = (attrs.mark()?.unwrap_or_default(), attrs.if_id()?.unwrap_or(0));
            (state.cpu, state.dir) = (attrs.sa_pcpu()?, attrs.sa_dir()?.unwrap_or(0));
            let serial = self.states.add(state, now.wall_s);
            self.renew_acquiring(serial, now.wall_s);
            return Ok(());
        }
        verify::new_state(&info, attrs)?;
        let (mut state, transform) = self.construct_state(&info, attrs, now.wall_s)?;
        state.info.curlft = info.curlft;
        state.info.stats = info.stats;
        if let Some(noted) = progress {
            let cur = &mut state.info.curlft;
            let has_moved = cur.packets != noted.packets;
            (cur.bytes, cur.packets, cur.use_time) = (noted.bytes, noted.packets, noted.use_time_s);
            let esn = info.flags & XFRM_STATE_ESN != 0;
            let window_pkts = state.window_pkts();
            state.sequence.advance(esn, window_pkts, noted.top, has_moved);
        }
        let (offload, key) = (state.offload, state.device_key);
        let added = self.insert_state(state, transform, now.wall_s).inspect_err(|_| self.release(offload, key))?;
        if let Some(noted) = progress {
            self.with_sad(added, |sad, sa| sad.set_last_used(sa, noted.last_used_s));
        }
        Ok(())
    }
}

/// The request of a record, with a device. A policy is there already, without it.
fn with_device(request: &[u8], device: Option<UserOffload>) -> Option<Zeroizing<Vec<u8>>> {
    let message = Messages::new(request).next()?;
    let mut message = XfrmMessage::decode(&message).ok()?;
    if let Some(device) = device {
        message.attrs.push(Attribute::OffloadDev(device));
        if let Body::NewPolicy(info) = message.body {
            message.body = Body::UpdPolicy(info);
        }
    }
    Some(message.encode(NLM_F_REQUEST, 0, 0))
}
