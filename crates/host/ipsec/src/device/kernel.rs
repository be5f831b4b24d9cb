//! The kernel's own IPsec, for an interface whose card can offload it.
//!
//! States and policies are handed on to NETLINK_XFRM of the namespace with their offload attribute, and the kernel's
//! answer is the device's. The kernel handles their packets itself; none come here. In crypto offload the stack behind
//! the card is the kernel's too, so that the policies for such states must be in the kernel as well: [`Mirror`] puts
//! them there.
//!
//! If the interface cannot do crypto offload, the kernel takes the state all the same and works in software, as Linux
//! always has.

use super::kernel_socket::{KernelSocket, put};
use super::mirror::Mirror;
use super::running::{DeviceContext, Running};
use parking_lot::Mutex;
use sealane_abi::Errno;
use sealane_abi::admin::ipsec::{self, DeviceKind};
use sealane_abi::xfrm::{
    Attribute, Body, UserpolicyInfo, UsersaId, UsersaInfo, XFRMNLGRP_ACQUIRE, XFRMNLGRP_EXPIRE, XfrmMessage,
};
use sealane_engine_xfrm::Notice;
use sealane_engine_xfrm::device::{Caps, Device, DeviceEvent, Mode, OffloadRequest, PolicyKey, Refusal, StateKey};
use sealane_ipsec_data::Shared;
use sealane_net_ipsec::lifetime::Usage;
use sealane_net_ipsec::sa::SaStat;
use sealane_net_ipsec::spd::Policy;
use sealane_sys::life::{self, Kind};
use sealane_sys::link;
use sealane_sys::netlink::Socket;
use sealane_sys::poll::{Waker, ready};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use zerocopy::IntoBytes;

const TICK: Duration = Duration::from_secs(60);

/// A state's name for the kernel, with its mark.
#[derive(Clone, Copy, PartialEq, Eq)]
struct KernelStateId {
    id: UsersaId,
    mark: Option<sealane_abi::xfrm::Mark>,
}

impl KernelStateId {
    fn of(info: &UsersaInfo, message: &XfrmMessage) -> Self {
        let id = UsersaId { daddr: info.id.daddr, spi: info.id.spi, family: info.family, proto: info.id.proto, pad: 0 };
        KernelStateId { id, mark: mark(message) }
    }

    fn ask(&self, body: fn(UsersaId) -> Body) -> XfrmMessage {
        XfrmMessage { body: body(self.id), attrs: self.mark.map(Attribute::Mark).into_iter().collect() }
    }
}

fn mark(message: &XfrmMessage) -> Option<sealane_abi::xfrm::Mark> {
    message.attrs.iter().find_map(|a| if let Attribute::Mark(mark) = a { Some(*mark) } else { None })
}

/// The part that both halves and the thread share.
struct KernelShared {
    asker: Mutex<KernelSocket>,
    states: Mutex<BTreeMap<StateKey, KernelStateId>>,
    policies: Mutex<BTreeMap<PolicyKey, XfrmMessage>>,
    events: Mutex<Vec<DeviceEvent>>,
    mirror: Arc<Mirror>,
    shared: Arc<Shared>,
    waker: Arc<Waker>,
    stop: AtomicBool,
    stopper: Waker,
    refused: AtomicU64,
}

/// The interface, which is not the daemon's, and the thread that listens for expired limits.
pub(super) struct Kernel {
    ifindex: u32,
    inner: Arc<KernelShared>,
    thread: Option<JoinHandle<()>>,
}

impl Kernel {
    /// Uses an existing interface.
    ///
    /// # Errors
    /// The kernel's: `ENODEV` without the interface, `EPROTONOSUPPORT` without IPsec.
    pub(super) fn open(name: &str, place: &DeviceContext<'_>) -> io::Result<Self> {
        let (ifindex, asker, mut listener) = place.netns.run(|| {
            let listener = Socket::open(libc::NETLINK_XFRM)?;
            listener.join(XFRMNLGRP_EXPIRE)?;
            listener.join(XFRMNLGRP_ACQUIRE)?;
            Ok((link::index(name)?, KernelSocket::open()?, listener))
        })?;
        place.mirror.open(place.netns)?;
        let inner = Arc::new(KernelShared {
            asker: Mutex::new(asker),
            states: Mutex::default(),
            policies: Mutex::default(),
            events: Mutex::default(),
            mirror: place.mirror.clone(),
            shared: place.shared.clone(),
            waker: place.waker.clone(),
            stop: AtomicBool::new(false),
            stopper: Waker::new()?,
            refused: AtomicU64::new(0),
        });
        let heard = inner.clone();
        let thread = std::thread::Builder::new().name("sealane-kernel".into()).spawn(move || {
            let _alive = life::begin("sealane-kernel", Kind::Control);
            while !heard.stop.load(Ordering::Acquire) {
                ready::<2>([heard.stopper.as_fd(), listener.as_fd()].into_iter(), TICK);
                heard.read_notifications(&mut listener);
            }
        })?;
        Ok(Kernel { ifindex, inner, thread: Some(thread) })
    }
}

impl Running for Kernel {
    fn ifindex(&self) -> u32 {
        self.ifindex
    }

    fn up(&mut self) -> io::Result<Box<dyn Device>> {
        Ok(Box::new(KernelOps { ifindex: self.ifindex, inner: self.inner.clone() }))
    }

    fn status(&self) -> DeviceKind {
        let inner = &self.inner;
        let policies = inner.policies.lock().len() + inner.mirror.len();
        DeviceKind::Kernel(ipsec::KernelOffload {
            kernel_states: inner.states.lock().len() as u64,
            kernel_policies: policies as u64,
            refused: inner.refused.load(Ordering::Relaxed),
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        self.inner.stopper.wake();
        if let Some(thread) = self.thread.take() {
            // The stopper ends with the loop.
            let _ = thread.join();
        }
    }
}

impl KernelShared {
    /// Reads the kernel's notifications.
    fn read_notifications(&self, listener: &mut Socket) {
        let mut told = Vec::new();
        // Lost notifications do no harm: the kernel has deleted the states past their hard limits.
        let _ = listener.receive(|m| told.extend(XfrmMessage::decode(m).ok()));
        listener.wipe();
        for message in told {
            match &message.body {
                Body::Expire(expire) => {
                    let name = KernelStateId::of(&expire.state, &message);
                    let states = self.states.lock();
                    let keys = states.iter().filter(|(_, held)| held.id == name.id).map(|(key, _)| *key);
                    let event = if expire.hard == 0 { DeviceEvent::Soft } else { DeviceEvent::Hard };
                    self.events.lock().extend(keys.map(event));
                }
                // An acquire for a mirrored policy: only the daemon can tell its key managers.
                Body::Acquire(acquire) if self.has_policy(&acquire.policy) => {
                    let bytes = message.encode(0, 0, 0);
                    self.shared.send_notices(vec![Notice { group: XFRMNLGRP_ACQUIRE, bytes }]);
                }
                _ => {}
            }
        }
        if !self.events.lock().is_empty() {
            self.waker.wake();
        }
    }

    fn has_policy(&self, asked: &UserpolicyInfo) -> bool {
        let same = |message: &XfrmMessage| match &message.body {
            Body::NewPolicy(info) => (info.dir, info.sel.as_bytes()) == (asked.dir, asked.sel.as_bytes()),
            _ => false,
        };
        self.policies.lock().values().any(same)
    }

    fn refused(&self, refusal: Refusal) -> Refusal {
        self.refused.fetch_add(1, Ordering::Relaxed);
        refusal
    }
}

/// The engine's half.
struct KernelOps {
    ifindex: u32,
    inner: Arc<KernelShared>,
}

impl Device for KernelOps {
    fn caps(&self) -> Caps {
        // The kernel decides what it can do.
        Caps { states: true, esn: true, policies: true }
    }

    fn is_stack(&self) -> bool {
        true
    }

    fn state_add(&mut self, state: OffloadRequest<'_>) -> Result<(), Refusal> {
        let Body::NewSa(info) = state.message.body else { return Ok(()) };
        // Larval states are made by the kernel itself.
        let Some(spec) = &state.spec else { return Ok(()) };
        if spec.encap.is_some() {
            // The daemon has the port of ESP in UDP, and so its packets.
            let text = Some("ESP in UDP does not go to the kernel");
            return Err(self.inner.refused(Refusal { errno: Errno::EOPNOTSUPP, text }));
        }
        let name = KernelStateId::of(&info, state.message);
        // As on Linux, a state that replaces another leaves that one in place, and a duplicate is refused.
        if !self.inner.states.lock().values().any(|held| *held == name) {
            // Packets that arrive while it is being made belong to it already.
            self.inner.shared.kernel_states.add(spec.dst, spec.spi);
            if let Err(refused) = self.inner.asker.lock().request(state.message, 0) {
                self.inner.shared.kernel_states.remove(spec.dst, spec.spi);
                return Err(self.inner.refused(refused));
            }
        }
        self.inner.states.lock().insert(state.key, name);
        if state.mode == Mode::Crypto {
            self.inner.mirror.state(self.ifindex, state.key, state.inbound, spec);
        }
        Ok(())
    }

    fn state_del(&mut self, key: StateKey) {
        self.inner.mirror.state_gone(self.ifindex, key);
        let name = {
            let mut states = self.inner.states.lock();
            let Some(name) = states.remove(&key) else { return };
            // The state that it replaced is still there.
            if states.values().any(|held| *held == name) {
                return;
            }
            name
        };
        // A state past its hard limit is gone already.
        let _ = self.inner.asker.lock().request(&name.ask(Body::DelSa), 0);
        let info = name.id;
        if let Some(to) = info.daddr.ip(info.family) {
            self.inner.shared.kernel_states.remove(to, info.spi.get());
        }
    }

    fn policy_add(&mut self, key: PolicyKey, policy: &Policy, message: &XfrmMessage) -> Result<(), Refusal> {
        if !crate::control::policies::is_exact(policy) {
            let text = Some("The rules for packets cannot tell which ones this policy is for");
            return Err(self.inner.refused(Refusal { errno: Errno::EOPNOTSUPP, text }));
        }
        let message = put(message);
        self.inner.asker.lock().request(&message, 0).map_err(|refused| self.inner.refused(refused))?;
        self.inner.mirror.keep(&message);
        self.inner.policies.lock().insert(key, message);
        Ok(())
    }

    fn policy_del(&mut self, key: PolicyKey) {
        if let Some(message) = self.inner.policies.lock().remove(&key) {
            // It stays until the daemon's rules cover its packets.
            self.inner.mirror.remove_later(message);
        }
    }

    fn counters(&self, key: StateKey) -> Option<(Usage, SaStat)> {
        let name = *self.inner.states.lock().get(&key)?;
        let answer = self.inner.asker.lock().answer(&name.ask(Body::GetSa), 0).ok()??;
        let Body::NewSa(UsersaInfo { curlft, stats, .. }) = answer.body else { return None };
        let used = Usage {
            bytes: curlft.bytes,
            packets: curlft.packets,
            add_time_s: curlft.add_time,
            use_time_s: curlft.use_time,
        };
        let stat = SaStat {
            replay_window: stats.replay_window,
            replay: stats.replay,
            integrity_failed: stats.integrity_failed,
        };
        Some((used, stat))
    }

    fn events(&mut self, events: &mut Vec<DeviceEvent>) {
        events.append(&mut self.inner.events.lock());
    }
}

#[cfg(test)]
mod tests;
