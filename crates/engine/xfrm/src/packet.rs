//! A device for packet offload, without its I/O: it has its own states and policies, used by packets of its own thread.
//!
//! [`PacketDevice`] is the control plane's end and [`PacketCore`] the data path's; both share the same databases. A
//! state of the device is in the stack's tables as well, where nothing is ever sealed or opened with it
//! ([`SaState::Offloaded`](sealane_net_ipsec::sa::SaState)): numbers and counters have one owner.
//!
//! Unlike the stack, the device drops fragments and packets that exceed the path's MTU, raises no acquires (the stack
//! does) and handles only the traffic of its own policies.

use crate::data::{Databases, Owner, Paths, Run};
use crate::device::{Caps, Device, DeviceEvent, Mode, OffloadRequest, PolicyKey, Refusal, StateKey};
use crate::time::Now;
use crate::timers::ClockWatch;
use sealane_abi::Errno;
use sealane_abi::xfrm::XfrmMessage;
use sealane_net_ipsec::drop::Stat;
use sealane_net_ipsec::event::Event;
use sealane_net_ipsec::lifetime::Usage;
use sealane_net_ipsec::open::Inbound;
use sealane_net_ipsec::sa::{self, SaDir, SaError, SaId, SaSpec, SaStat};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::Outbound;
use sealane_net_ipsec::spd::{Policy, PolicyId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state that both ends share.
struct Core {
    data: Databases,
    /// `None` for one whose name another has, as long as the two stand for one state that is updated.
    states: BTreeMap<StateKey, Option<SaId>>,
    keys: HashMap<SaId, StateKey>,
    /// All of them, and which of two with one selector is in force: one that is about to take the other's place.
    policies: BTreeMap<PolicyKey, (Policy, Option<PolicyId>)>,
    told: Vec<DeviceEvent>,
    clock: ClockWatch,
    /// The number of inbound states.
    inbound: usize,
}

/// The control plane's end.
pub struct PacketDevice {
    core: PacketCore,
}

/// The packets' end; its clones are the same.
#[derive(Clone)]
pub struct PacketCore {
    core: Arc<Mutex<Core>>,
}

impl PacketDevice {
    /// A device without states and policies. `seed` gives numbers that strangers do not know.
    #[must_use]
    pub fn new(seed: impl FnMut() -> u64) -> Self {
        let core = Core {
            data: Databases::of(Owner::Device, seed),
            states: BTreeMap::new(),
            keys: HashMap::new(),
            policies: BTreeMap::new(),
            told: Vec::new(),
            clock: ClockWatch::default(),
            inbound: 0,
        };
        PacketDevice { core: PacketCore { core: Arc::new(Mutex::new(core)) } }
    }

    /// The data path's end.
    #[must_use]
    pub fn core(&self) -> PacketCore {
        self.core.clone()
    }
}

impl Core {
    /// Translates events of packets and timers into device events.
    fn collect_events(&mut self) {
        for event in self.data.events.drain(..) {
            let of = |sa: SaId| self.keys.get(&sa).copied();
            let told = match event {
                Event::SoftExpire(sa) => of(sa).map(DeviceEvent::Soft),
                Event::HardExpire(sa) => of(sa).map(DeviceEvent::Hard),
                Event::Mapping { state, address, port } => {
                    of(state).map(|key| DeviceEvent::Mapping { key, address, port })
                }
                Event::LeaseLow(sa) => of(sa).map(DeviceEvent::LeaseLow),
                // Nothing is asked for here.
                Event::Acquire { .. } | Event::Numbers(_) => None,
            };
            self.told.extend(told);
        }
    }

    fn add(&mut self, key: StateKey, spec: SaSpec) -> Result<(), SaError> {
        let inbound = spec.dir == Some(SaDir::In);
        let sa = match self.data.sad.add(spec) {
            Ok(sa) => {
                self.inbound += usize::from(inbound);
                Some(sa)
            }
            Err(SaError::Exists) => None,
            Err(error) => return Err(error),
        };
        self.states.insert(key, sa);
        self.keys.extend(sa.map(|sa| (sa, key)));
        Ok(())
    }

    fn add_policy(&mut self, key: PolicyKey, policy: Policy) -> Result<(), Refusal> {
        let refused = |_| Refusal { errno: Errno::EINVAL, text: None };
        let id = self.data.spd.add(policy.clone(), true).map_err(refused)?;
        self.policies.insert(key, (policy, Some(id)));
        Ok(())
    }

    fn remove_policy(&mut self, key: PolicyKey) {
        let Some((gone, Some(id))) = self.policies.remove(&key) else { return };
        if self.data.spd.remove(id).is_none() {
            return;
        }
        // The one whose place it would have taken is in force again.
        let same = |p: &Policy| {
            p.dir == gone.dir && p.selector == gone.selector && p.mark == gone.mark && p.if_id == gone.if_id
        };
        if let Some((policy, id)) = self.policies.values_mut().rev().find(|(policy, _)| same(policy)) {
            *id = self.data.spd.add(policy.clone(), true).ok();
        }
    }
}

impl Device for PacketDevice {
    fn caps(&self) -> Caps {
        Caps { states: true, esn: true, policies: true }
    }

    /// In crypto offload the stack does all of it.
    fn state_add(&mut self, state: OffloadRequest<'_>) -> Result<(), Refusal> {
        if state.mode == Mode::Crypto {
            return Ok(());
        }
        let spec = state.spec.filter(|spec| spec.mode != sa::Mode::Iptfs);
        let Some(mut spec) = spec else {
            return Err(Refusal { errno: Errno::EINVAL, text: Some("Packets of this mode cannot be offloaded") });
        };
        spec.dir = Some(if state.inbound { SaDir::In } else { SaDir::Out });
        // One thread does it, whatever CPU a packet comes from.
        spec.cpu = None;
        self.core.lock().add(state.key, spec).map_err(|error| Refusal {
            errno: if error == SaError::Full { Errno::ENOMEM } else { Errno::EINVAL },
            text: None,
        })
    }

    fn state_del(&mut self, key: StateKey) {
        let mut core = self.core.lock();
        if let Some(Some(sa)) = core.states.remove(&key) {
            core.keys.remove(&sa);
            let gone = core.data.sad.remove(sa);
            core.inbound -= usize::from(gone.is_some_and(|(sa, _)| sa.dir == Some(SaDir::In)));
        }
    }

    fn policy_add(&mut self, key: PolicyKey, policy: &Policy, _message: &XfrmMessage) -> Result<(), Refusal> {
        self.core.lock().add_policy(key, policy.clone())
    }

    fn policy_del(&mut self, key: PolicyKey) {
        self.core.lock().remove_policy(key);
    }

    fn counters(&self, key: StateKey) -> Option<(Usage, SaStat)> {
        let core = self.core.lock();
        let sa = core.states.get(&key).copied().flatten()?;
        Some((core.data.sad.usage(sa)?, core.data.sad.get(sa)?.stat))
    }

    fn events(&mut self, events: &mut Vec<DeviceEvent>) {
        events.append(&mut self.core.lock().told);
    }

    fn with_sad(&self, key: StateKey, look: &mut dyn FnMut(&mut Sad, SaId)) {
        let mut core = self.core.lock();
        if let Some(Some(sa)) = core.states.get(&key).copied() {
            look(&mut core.data.sad, sa);
            core.collect_events();
        }
    }

    fn policy_used_s(&self, key: PolicyKey) -> Option<u64> {
        let core = self.core.lock();
        let (_, id) = core.policies.get(&key)?;
        Some(core.data.spd.use_time_s((*id)?))
    }

    fn stat(&self) -> Option<Stat> {
        Some(self.core.lock().data.stat())
    }
}

impl PacketCore {
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seals packets by the device's policies and states, see [`Tables::outbound`](super::data::Tables::outbound);
    /// whether there is something to tell.
    ///
    /// A packet for which the device has no policy is left with [`DropReason::OutRest`], one without a state with
    /// [`DropReason::OutNoState`], neither is counted: the stack is to be asked, whose matter both are.
    ///
    /// [`DropReason::OutRest`]: sealane_net_ipsec::drop::DropReason::OutRest
    /// [`DropReason::OutNoState`]: sealane_net_ipsec::drop::DropReason::OutNoState
    pub fn outbound(&self, runs: &[Run], packets: &mut [Outbound<'_>], paths: &mut impl Paths, now: Now) -> bool {
        let mut core = self.lock();
        core.data.tables(0, now).outbound(runs, packets, paths);
        core.collect_events();
        !core.told.is_empty()
    }

    /// Opens packets by the device's states and asks its policies, see
    /// [`Tables::inbound`](super::data::Tables::inbound); whether there is something to tell. Packets for which
    /// [`is_unknown`](super::data::is_unknown) says so are not counted.
    pub fn inbound(&self, packets: &mut [Inbound<'_>], paths: &mut impl Paths, now: Now) -> bool {
        let mut core = self.lock();
        core.data.tables(0, now).inbound(packets, paths);
        core.collect_events();
        !core.told.is_empty()
    }

    /// Handles expired timers; returns whether there are device events.
    pub fn handle_timeout(&self, now: Now) -> bool {
        let mut core = self.lock();
        if let Some(by_s) = core.clock.was_set(now) {
            core.data.sad.clock_was_set(by_s);
        }
        let Databases { sad, events, .. } = &mut core.data;
        sad.handle_timeout(now.wall_s, events);
        core.collect_events();
        !core.told.is_empty()
    }

    /// The mode of a state that a packet has gone through.
    #[must_use]
    pub fn mode(&self, sa: SaId) -> Option<sa::Mode> {
        self.lock().data.sad.get(sa).map(|sa| sa.mode)
    }

    /// Whether there are inbound states.
    #[must_use]
    pub fn has_inbound(&self) -> bool {
        self.lock().inbound != 0
    }
}
