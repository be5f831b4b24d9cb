//! Policies of the kernel's that stand for ours, beside those in packet offload: where states in crypto offload are with the
//! kernel's own IPsec, the policies that they are for have to be there too.
//!
//! Which ones follows from the states: a policy whose template such a state is for. It is put into the kernel before our rules
//! let its packets pass, and taken out after they do not any more: nothing is in clear in between.

use super::kernel_socket::{KernelSocket, put, take};
use crate::control::policies::is_exact;
use parking_lot::Mutex;
use sealane_abi::xfrm::Message;
use sealane_engine_xfrm::Xfrm;
use sealane_engine_xfrm::device::StateKey;
use sealane_net::ipsec::sa::{Mode, Proto, SaSpec};
use sealane_net::ipsec::spd::{Action, Dir, Policy};
use sealane_sys::netns::Netns;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// What of a state a template asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    inbound: bool,
    src: IpAddr,
    dst: IpAddr,
    proto: Proto,
    mode: Mode,
    reqid: u32,
}

/// The policies of the kernel's that are ours.
#[derive(Default)]
pub(crate) struct Mirror {
    asker: Mutex<Option<KernelSocket>>,
    ends: Mutex<BTreeMap<(u32, StateKey), End>>,
    changed: AtomicBool,
    /// Those that stand for policies of ours, by their index.
    held: Mutex<BTreeMap<u32, Message>>,
    /// Those that are to go when our rules are in force.
    stale: Mutex<Vec<Message>>,
}

impl Mirror {
    /// Makes it ready for policies of a namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(&self, netns: &Netns) -> io::Result<()> {
        let mut asker = self.asker.lock();
        if asker.is_none() {
            *asker = Some(netns.run(KernelSocket::open)?);
        }
        Ok(())
    }

    /// A state in crypto offload is with the kernel now.
    pub(super) fn state(&self, ifindex: u32, key: StateKey, inbound: bool, spec: &SaSpec) {
        let SaSpec { src, dst, proto, mode, reqid, .. } = *spec;
        self.ends.lock().insert((ifindex, key), End { inbound, src, dst, proto, mode, reqid });
        self.changed.store(true, Ordering::Release);
    }

    /// It is there no more.
    pub(super) fn state_gone(&self, ifindex: u32, key: StateKey) {
        if self.ends.lock().remove(&(ifindex, key)).is_some() {
            self.changed.store(true, Ordering::Release);
        }
    }

    /// A policy of the kernel's is wanted, also if it was to go.
    pub(super) fn kept(&self, message: &Message) {
        let of = name(message);
        self.stale.lock().retain(|old| name(old) != of);
    }

    /// A policy of the kernel's is to go when our rules are in force.
    pub(super) fn stale(&self, message: Message) {
        self.stale.lock().push(message);
    }

    /// How many of ours the kernel has for states in crypto offload.
    pub(super) fn len(&self) -> usize {
        self.held.lock().len()
    }

    /// Whether states have come or gone since [`Mirror::put`].
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Puts the policies that states in crypto offload are for into the kernel: their indices. One that it refuses is not
    /// among them.
    pub(crate) fn put(&self, xfrm: &Xfrm) -> BTreeSet<u32> {
        self.changed.store(false, Ordering::Release);
        let ends = self.ends.lock();
        let mut held = self.held.lock();
        if ends.is_empty() && held.is_empty() {
            return BTreeSet::new();
        }
        let wanted: BTreeMap<u32, Message> = xfrm
            .policy_messages(|policy| covers(&ends, policy))
            .map(|(index, message)| (index, put(&message)))
            .collect();
        let mut asker = self.asker.lock();
        let same = |a: &Message, b: &Message| *a.encode(0, 0, 0) == *b.encode(0, 0, 0);
        let old = core::mem::take(&mut *held);
        for (index, message) in wanted {
            let there = old.get(&index).is_some_and(|old| same(old, &message));
            if there || asker.as_mut().is_some_and(|asker| asker.act(&message, 0).is_ok()) {
                held.insert(index, message);
            }
        }
        let kept: HashSet<_> = held.values().map(name).collect();
        let gone = old.into_iter().filter(|(index, _)| !held.contains_key(index)).map(|(_, message)| message);
        let mut stale = self.stale.lock();
        stale.extend(gone);
        stale.retain(|message| !kept.contains(&name(message)));
        held.keys().copied().collect()
    }

    /// Our rules are in force: what is not wanted in the kernel any more goes.
    pub(crate) fn settle(&self) {
        let stale = core::mem::take(&mut *self.stale.lock());
        if let Some(asker) = self.asker.lock().as_mut() {
            for message in stale.iter().filter_map(take) {
                // What somebody else has taken out is out.
                let _ = asker.act(&message, 0);
            }
        }
    }
}

/// What the kernel knows a policy by.
fn name(message: &Message) -> Option<Vec<u8>> {
    take(message).map(|m| m.encode(0, 0, 0).to_vec())
}

/// Whether states of the kernel's are what a policy asks for.
fn covers(ends: &BTreeMap<(u32, StateKey), End>, policy: &Policy) -> bool {
    let [template] = &policy.templates[..] else { return false };
    let plain = policy.device.is_none() && policy.action == Action::Allow && policy.if_id == 0 && !template.optional;
    let host = |address: IpAddr, prefix: (IpAddr, u8)| prefix == (address, if address.is_ipv4() { 32 } else { 128 });
    let s = &policy.selector;
    plain
        && is_exact(policy)
        && ends.values().any(|end| {
            let between = match template.mode {
                // A policy for more hosts than the state's needs states of which nothing is known.
                Mode::Transport => {
                    host(end.src, (s.source, s.source_len)) && host(end.dst, (s.destination, s.destination_len))
                }
                _ => (template.src, template.dst) == (end.src, end.dst),
            };
            between
                && end.inbound == (policy.dir != Dir::Out)
                && (end.proto, end.mode, end.reqid) == (template.proto, template.mode, template.reqid)
        })
}
