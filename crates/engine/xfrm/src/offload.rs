//! Offload of states and policies to devices (`net/xfrm/xfrm_device.c`).

use crate::acquire::mapping_notice;
use crate::burst::BURST;
use crate::convert;
use crate::device::crypto::Crypto;
use crate::device::{Device, DeviceEvent, Mode, OffloadRequest, PolicyKey, Refusal, StateKey};
use crate::devices::is_packet;
use crate::namespace::Xfrm;
use crate::partial;
use crate::policy::PolicyRecord;
use crate::reply::{Notice, plain};
use crate::serial::Serial;
use crate::state::State;
use arrayvec::ArrayVec;
use core::num::NonZeroI32;
use sealane_abi::Errno;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    Reason, UserOffload, XFRM_OFFLOAD_INBOUND, XFRM_OFFLOAD_IPV6, XFRM_OFFLOAD_PACKET, XFRM_POLICY_ALLOW,
    XFRM_SA_DIR_IN, XFRM_SA_DIR_OUT, XFRM_STATE_ESN,
};
use sealane_net_ipsec::burst::Job;
use sealane_net_ipsec::drop::Stat;
use sealane_net_ipsec::lifetime::Usage;
use sealane_net_ipsec::sa::{CryptoDevice, SaId, SaSpec, SaStat};
use sealane_net_ipsec::sad::Sad;
use std::sync::Arc;

/// Turns a device's refusal into the request's: with `reason`, unless the device gave a text.
fn refused(refusal: Refusal, reason: Reason) -> Reject {
    match refusal.text {
        Some(text) => Reject::message(refusal.errno, text),
        None => reason.with(refusal.errno),
    }
}

impl Xfrm {
    /// Adds a device: states and policies may name its interface from now on.
    pub fn add_device(&mut self, ifindex: i32, device: Box<dyn Device>) {
        self.devices.devices.insert(ifindex, device);
    }

    /// A device.
    pub fn device_mut(&mut self, ifindex: i32) -> Option<&mut (dyn Device + 'static)> {
        self.devices.devices.get_mut(&ifindex).map(|device| &mut **device)
    }

    /// Removes a device that has gone down, with its states and without events, as on Linux (`xfrm_dev_down`).
    ///
    /// Linux removes its policies, too, after which their traffic passes in clear if no other policy is for it. Here they
    /// stay, behind all other policies: traffic that only they cover is dropped, as they have no states.
    pub fn device_down(&mut self, ifindex: i32) {
        let of = |offload: &Option<UserOffload>| offload.is_some_and(|offload| offload.ifindex == ifindex);
        let states: Vec<_> = self.states.iter().filter(|(_, s)| of(&s.offload)).map(|(serial, _)| serial).collect();
        states.into_iter().for_each(|serial| self.remove_state(serial));
        let policies: Vec<_> = self.policies.iter().filter(|(_, p)| of(&p.offload)).map(|(serial, _)| serial).collect();
        policies.into_iter().for_each(|serial| self.orphan_policy(serial));
        self.devices.devices.remove(&ifindex);
    }

    /// Takes the device from a policy.
    pub(crate) fn orphan_policy(&mut self, serial: Serial) {
        let protects = |policy: &PolicyRecord| !policy.tmpls.is_empty() || policy.info.action != XFRM_POLICY_ALLOW;
        let Some(mut policy) = self.policies.remove(serial) else { return };
        self.unload_policy(&mut policy);
        if !protects(&policy) {
            policy.id.into_iter().for_each(|id| drop(self.data.spd.remove(id)));
            return;
        }
        (policy.offload, policy.device_key) = (None, None);
        (policy.is_orphan, policy.info.priority) = (true, u32::MAX);
        let used_s = policy.info(&self.data.spd).curlft.use_time;
        // It replaces itself, which nothing refuses, and is behind all others.
        policy.place = 0;
        policy.id = self.data.spd.put(policy.to_packets(), policy.id).ok();
        policy.id.into_iter().for_each(|id| self.data.spd.used(id, used_s));
        self.policies.add(*policy);
    }

    /// The device of a state, what it does for it, and what it calls it.
    #[must_use]
    pub fn offloaded(&self, sa: SaId) -> Option<(i32, Mode, StateKey)> {
        let state = self.states.get(self.states.of_sa(sa)?)?;
        let offload = state.offload?;
        let mode = if is_packet(&offload) { Mode::Packet } else { Mode::Crypto };
        Some((offload.ifindex, mode, state.device_key?))
    }

    /// Takes the pending events of all devices.
    pub fn take_device_events(&mut self) -> Vec<DeviceEvent> {
        let mut events = Vec::new();
        self.devices.devices.values_mut().for_each(|device| device.events(&mut events));
        events
    }

    /// Takes and handles the pending events of all devices, see [`Self::handle_device_events`].
    pub fn device_events(&mut self) -> Vec<Notice> {
        let events = self.take_device_events();
        self.handle_device_events(events)
    }

    /// Handles events of devices and returns those for key managers: both limits are reported, and a hard one deletes
    /// its state.
    pub fn handle_device_events(&mut self, events: Vec<DeviceEvent>) -> Vec<Notice> {
        let mut notices = Vec::new();
        for event in events {
            let (key, hard) = match event {
                DeviceEvent::Soft(key) => (key, false),
                DeviceEvent::Hard(key) => (key, true),
                DeviceEvent::LeaseLow(key) => {
                    self.renew_lease(self.devices.states.get(&key).copied());
                    continue;
                }
                DeviceEvent::Mapping { key, address, port } => {
                    let state = self.devices.states.get(&key).and_then(|serial| self.states.get(*serial));
                    notices.extend(state.and_then(|state| mapping_notice(state, address, port)));
                    continue;
                }
            };
            let Some(serial) = self.devices.states.get(&key).copied() else { continue };
            notices.extend(self.states.get(serial).map(|state| self.expire_notice(state, hard, 0)));
            if hard {
                self.remove_state(serial);
            }
        }
        self.take_leases();
        notices
    }

    /// The crypto of a device; `None` for one that is not there or has none of its own.
    #[must_use]
    pub fn device_crypto(&self, ifindex: i32) -> Option<Arc<dyn Crypto>> {
        self.devices.devices.get(&ifindex)?.crypto()
    }

    /// Whether one of the jobs is for a device.
    #[must_use]
    pub fn needs_device(&self, jobs: &[Job]) -> bool {
        jobs.chunk_by(|a, b| a.sa() == b.sa()).any(|run| self.data.sad.crypto_device(run[0].sa()).is_some())
    }

    /// The device that is to run jobs, and its key of each job's state. A burst goes to at most one device, that of the
    /// first state that has one; the stack runs the jobs of other devices, as Linux does for packets that leave by
    /// another device.
    pub fn crypto_names(&self, jobs: &[Job], names: &mut ArrayVec<Option<StateKey>, BURST>) -> Option<i32> {
        let (mut device, mut last) = (None, (SaId::NONE, None));
        for job in jobs {
            if last.0 != job.sa() {
                last = (job.sa(), self.data.sad.crypto_device(job.sa()));
            }
            device = device.or(last.1.map(|of| of.ifindex));
            names.push(last.1.filter(|of| Some(of.ifindex) == device).map(|of| StateKey(of.key)));
        }
        device.map(NonZeroI32::get)
    }

    /// The device that does the crypto of a state in crypto offload.
    pub(crate) fn crypto_of(&self, state: &State) -> Option<CryptoDevice> {
        let offload = state.offload.filter(|offload| !is_packet(offload))?;
        self.device_crypto(offload.ifindex)?;
        Some(CryptoDevice { ifindex: NonZeroI32::new(offload.ifindex)?, key: state.device_key?.0 })
    }

    /// The device that owns a state's packets in the stack's place.
    pub(crate) fn packet_owner(&self, offload: Option<UserOffload>) -> Option<u32> {
        let owns = |offload: &UserOffload| {
            is_packet(offload) || self.devices.devices.get(&offload.ifindex).is_some_and(|device| device.is_stack())
        };
        offload.filter(owns).map(|offload| offload.ifindex as u32)
    }

    /// The device's counters of a state that it owns.
    pub(crate) fn device_counters(&self, state: &State) -> Option<(Usage, SaStat)> {
        let (device, key) = self.device_of(state)?;
        device.counters(key)
    }

    /// Calls `look` with the association that holds a state's numbers and counters: its device's, if the device keeps
    /// it in this process, or the stack's. `None` if there is none.
    pub(crate) fn with_sad<R>(&mut self, serial: Serial, look: impl FnOnce(&mut Sad, SaId) -> R) -> Option<R> {
        let state = self.states.get(serial)?;
        let (sa, mut look) = (state.sa, Some(look));
        let found = self.in_device(state, |sad, sa| look.take().map(|look| look(sad, sa)));
        found.flatten().or_else(|| Some(look.take()?(&mut self.data.sad, sa?)))
    }

    /// [`Self::with_sad`] for reading.
    pub(crate) fn see_sad<R>(&self, state: &State, look: impl FnOnce(&Sad, SaId) -> R) -> Option<R> {
        let mut look = Some(look);
        let found = self.in_device(state, |sad, sa| look.take().map(|look| look(sad, sa)));
        found.flatten().or_else(|| Some(look.take()?(&self.data.sad, state.sa?)))
    }

    /// [`Self::with_sad`] for the device's association alone.
    pub(crate) fn in_device<R>(&self, state: &State, look: impl FnOnce(&mut Sad, SaId) -> R) -> Option<R> {
        let (device, key) = self.device_of(state)?;
        let (mut look, mut found) = (Some(look), None);
        device.with_sad(key, &mut |sad, sa| found = look.take().map(|look| look(sad, sa)));
        found
    }

    /// The device that owns a state.
    fn device_of(&self, state: &State) -> Option<(&dyn Device, StateKey)> {
        let ifindex = self.packet_owner(state.offload)? as i32;
        Some((&**self.devices.devices.get(&ifindex)?, state.device_key?))
    }

    /// Asks the devices for the last use of their policies.
    pub(crate) fn ask_when_used(&mut self) {
        if self.devices.devices.is_empty() {
            return;
        }
        for (_, policy) in self.policies.iter() {
            let (Some(offload), Some(key), Some(id)) = (policy.offload, policy.device_key, policy.id) else { continue };
            let device = self.devices.devices.get(&offload.ifindex);
            if let Some(used_s) = device.and_then(|device| device.policy_used_s(key)).filter(|used_s| *used_s != 0) {
                self.data.spd.used(id, used_s);
            }
        }
    }

    /// Adds the counters of all devices to `stat`.
    pub(crate) fn add_device_stat(&self, stat: &mut Stat) {
        self.devices.devices.values().filter_map(|device| device.stat()).for_each(|more| stat.add(&more));
    }

    /// Offers a state to a device (`xfrm_dev_state_add`). `spec` makes the association for the device.
    pub(crate) fn offload_state(
        &mut self,
        state: &mut State,
        wanted: &UserOffload,
        spec: impl FnOnce(&mut Self, &State) -> Option<SaSpec>,
    ) -> Result<(), Reject> {
        partial::check_offload(state)?;
        let known = XFRM_OFFLOAD_IPV6 | XFRM_OFFLOAD_INBOUND | XFRM_OFFLOAD_PACKET;
        let inbound = wanted.flags & XFRM_OFFLOAD_INBOUND != 0;
        let packet = is_packet(wanted);
        let reason = match state.dir {
            _ if wanted.flags & !known != 0 => Some(Reason::OffloadFlags),
            XFRM_SA_DIR_OUT if inbound => Some(Reason::OffloadDir),
            XFRM_SA_DIR_IN if !inbound => Some(Reason::OffloadDir),
            _ if inbound && state.if_id != 0 => Some(Reason::OffloadIfId),
            _ if state.tfcpad != 0 => Some(Reason::OffloadTfc),
            _ => None,
        };
        if let Some(reason) = reason {
            return Err(reason.into());
        }
        let caps = self.devices.devices.get(&wanted.ifindex).map(|device| device.caps()).unwrap_or_default();
        if !caps.states {
            // Crypto offload is only an optimisation: without it the stack does the work.
            return if packet { Err(plain(Errno::EINVAL)) } else { Ok(()) };
        }
        if !packet && state.info.flags & XFRM_STATE_ESN != 0 && !caps.esn {
            return Err(Reason::OffloadEsn.into());
        }
        // Only ESP has a type that can be offloaded.
        if convert::proto(state.info.id.proto) != Some(sealane_net_ipsec::sa::Proto::Esp) {
            return Err(Reason::OffloadType.into());
        }
        let flags = wanted.flags & (XFRM_OFFLOAD_INBOUND | XFRM_OFFLOAD_PACKET);
        state.offload = Some(UserOffload { ifindex: wanted.ifindex, flags, pad: [0; 3] });
        let spec = spec(self, state);
        let message = self.new_sa_message(state);
        let key = StateKey(self.devices.next_key());
        let mode = if packet { Mode::Packet } else { Mode::Crypto };
        let taken = match self.devices.devices.get_mut(&wanted.ifindex) {
            Some(device) => device.state_add(OffloadRequest { key, mode, inbound, spec, message: &message }),
            None => Err(Refusal { errno: Errno::EINVAL, text: None }),
        };
        match taken {
            Ok(()) => {
                state.device_key = Some(key);
                Ok(())
            }
            Err(refusal) => {
                state.offload = None;
                if refusal.errno == Errno::EOPNOTSUPP && !packet {
                    return Ok(());
                }
                Err(refused(refusal, Reason::OffloadState))
            }
        }
    }

    /// Takes a state back from its device.
    pub(crate) fn release(&mut self, offload: Option<UserOffload>, key: Option<StateKey>) {
        if let (Some(offload), Some(key)) = (offload, key) {
            self.devices.states.remove(&key);
            if let Some(device) = self.devices.devices.get_mut(&offload.ifindex) {
                device.state_del(key);
            }
        }
    }

    /// Gives a policy to a device (`xfrm_dev_policy_add`).
    pub(crate) fn offload_policy(&mut self, policy: &mut PolicyRecord, wanted: &UserOffload) -> Result<(), Reject> {
        if wanted.flags != XFRM_OFFLOAD_PACKET {
            return Err(Reason::OffloadFlags.into());
        }
        let device = self.devices.devices.get(&wanted.ifindex).filter(|device| device.caps().policies);
        if device.is_none() {
            return Err(Reason::OffloadPolicies.into());
        }
        let key = PolicyKey(self.devices.next_key());
        policy.offload = Some(UserOffload { ifindex: wanted.ifindex, flags: XFRM_OFFLOAD_PACKET, pad: [0; 3] });
        if policy.info.dir == sealane_abi::xfrm::XFRM_POLICY_IN
            && let Some(offload) = &mut policy.offload
        {
            offload.flags |= XFRM_OFFLOAD_INBOUND;
        }
        let (packets, message) = (policy.to_packets(), policy.new_message(&self.data.spd));
        let taken = match self.devices.devices.get_mut(&wanted.ifindex) {
            Some(device) => device.policy_add(key, &packets, &message),
            None => Err(Refusal { errno: Errno::EINVAL, text: None }),
        };
        match taken {
            Ok(()) => {
                policy.device_key = Some(key);
                Ok(())
            }
            Err(refusal) => {
                policy.offload = None;
                Err(refused(refusal, Reason::OffloadPolicy))
            }
        }
    }

    /// Takes a policy back from its device.
    pub(crate) fn unload_policy(&mut self, policy: &mut PolicyRecord) {
        if let (Some(offload), Some(key)) = (policy.offload.take(), policy.device_key.take())
            && let Some(device) = self.devices.devices.get_mut(&offload.ifindex)
        {
            device.policy_del(key);
        }
    }
}
