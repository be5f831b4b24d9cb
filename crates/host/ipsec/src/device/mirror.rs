//! Policies that are mirrored into the kernel, beside those in packet offload: if the kernel's own IPsec has states in
//! crypto offload, it needs their policies too.
//!
//! A policy is mirrored if one of its templates matches such a state. It is put into the kernel before the daemon's
//! rules let its packets pass, and removed after they stop doing so: no packet leaves unencrypted in between.

use super::kernel_socket::{KernelSocket, put, take};
use crate::control::policies::is_exact;
use parking_lot::Mutex;
use sealane_abi::xfrm::XfrmMessage;
use sealane_engine_xfrm::Xfrm;
use sealane_engine_xfrm::device::StateKey;
use sealane_net_ipsec::sa::{Mode, Proto, SaSpec};
use sealane_net_ipsec::spd::{Action, Dir, Policy};
use sealane_sys::netns::Netns;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The fields of a state that a template asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TemplateFields {
    inbound: bool,
    src: IpAddr,
    dst: IpAddr,
    proto: Proto,
    mode: Mode,
    reqid: u32,
}

/// The daemon's policies in the kernel.
#[derive(Default)]
pub(crate) struct Mirror {
    asker: Mutex<Option<KernelSocket>>,
    ends: Mutex<BTreeMap<(u32, StateKey), TemplateFields>>,
    changed: AtomicBool,
    /// Mirrored policies, by the index of the daemon's policy.
    held: Mutex<BTreeMap<u32, XfrmMessage>>,
    /// Policies to be removed when the daemon's rules are in force.
    stale: Mutex<Vec<XfrmMessage>>,
}

impl Mirror {
    /// Opens the mirror for the policies of a namespace.
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

    /// Notes that the kernel has a state in crypto offload.
    pub(super) fn state(&self, ifindex: u32, key: StateKey, inbound: bool, spec: &SaSpec) {
        let SaSpec { src, dst, proto, mode, reqid, .. } = *spec;
        self.ends.lock().insert((ifindex, key), TemplateFields { inbound, src, dst, proto, mode, reqid });
        self.changed.store(true, Ordering::Release);
    }

    /// Notes that the kernel does not have it any more.
    pub(super) fn state_gone(&self, ifindex: u32, key: StateKey) {
        if self.ends.lock().remove(&(ifindex, key)).is_some() {
            self.changed.store(true, Ordering::Release);
        }
    }

    /// Keeps a policy in the kernel, even if it was to be removed.
    pub(super) fn keep(&self, message: &XfrmMessage) {
        let of = name(message);
        self.stale.lock().retain(|old| name(old) != of);
    }

    /// Removes a policy from the kernel when the daemon's rules are in force.
    pub(super) fn remove_later(&self, message: XfrmMessage) {
        self.stale.lock().push(message);
    }

    /// The indices of the policies that the kernel has.
    pub(crate) fn held(&self) -> BTreeSet<u32> {
        self.held.lock().keys().copied().collect()
    }

    /// The number of mirrored policies.
    pub(super) fn len(&self) -> usize {
        self.held.lock().len()
    }

    /// Whether states have come or gone since [`Mirror::put`].
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Mirrors the policies for states in crypto offload. Returns the indices of those that the kernel has accepted.
    pub(crate) fn put(&self, xfrm: &Xfrm) -> BTreeSet<u32> {
        self.changed.store(false, Ordering::Release);
        let ends = self.ends.lock();
        let mut held = self.held.lock();
        if ends.is_empty() && held.is_empty() {
            return BTreeSet::new();
        }
        let wanted: BTreeMap<u32, XfrmMessage> = xfrm
            .policy_messages(|policy| covers(&ends, policy))
            .map(|(index, message)| (index, put(&message)))
            .collect();
        let mut asker = self.asker.lock();
        let same = |a: &XfrmMessage, b: &XfrmMessage| *a.encode(0, 0, 0) == *b.encode(0, 0, 0);
        let old = core::mem::take(&mut *held);
        for (index, message) in wanted {
            let there = old.get(&index).is_some_and(|old| same(old, &message));
            if there || asker.as_mut().is_some_and(|asker| asker.request(&message, 0).is_ok()) {
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

    /// Removes unwanted policies from the kernel, as the daemon's rules are in force now.
    pub(crate) fn remove_unwanted(&self) {
        let stale = core::mem::take(&mut *self.stale.lock());
        if let Some(asker) = self.asker.lock().as_mut() {
            for message in stale.iter().filter_map(take) {
                // Another program may have removed it already.
                let _ = asker.request(&message, 0);
            }
        }
    }
}

/// The parts of a policy by which the kernel identifies it.
fn name(message: &XfrmMessage) -> Option<Vec<u8>> {
    take(message).map(|m| m.encode(0, 0, 0).to_vec())
}

/// Whether the kernel has the states that a policy asks for.
fn covers(ends: &BTreeMap<(u32, StateKey), TemplateFields>, policy: &Policy) -> bool {
    let [template] = &policy.templates[..] else { return false };
    let plain = policy.device.is_none() && policy.action == Action::Allow && policy.if_id == 0 && !template.optional;
    let host = |address: IpAddr, prefix: (IpAddr, u8)| prefix == (address, if address.is_ipv4() { 32 } else { 128 });
    let s = &policy.selector;
    plain
        && is_exact(policy)
        && ends.values().any(|end| {
            let between = match template.mode {
                // A policy for more hosts than the state's needs further states, which are not known.
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
