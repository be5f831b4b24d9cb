//! The reference: what Linux makes of policies and packets, said in the simplest words.

use crate::flow::{Flow, Upper};
use crate::net::{Peer, Prefix};
use std::collections::BTreeMap;

/// The direction of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dir {
    In,
    Out,
    Fwd,
}

/// A selector; it has no ports but where its protocol is TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Selector {
    pub(crate) source: Prefix,
    pub(crate) destination: Prefix,
    pub(crate) upper: Selected,
}

/// The protocol above IP that a selector asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Selected {
    Any,
    /// UDP to or from this port of the far side.
    UdpTo(u16),
    UdpFrom(u16),
    /// GRE with this key.
    Gre(u32),
}

impl Selector {
    fn has(&self, flow: &Flow) -> bool {
        let upper = match (self.upper, flow.upper) {
            (Selected::Any, _) => true,
            (Selected::UdpTo(port), Upper::Udp { to, .. }) => to == port,
            (Selected::UdpFrom(port), Upper::Udp { from, .. }) => from == port,
            (Selected::Gre(key), Upper::Gre(of)) => of == key,
            _ => false,
        };
        upper && self.source.has(flow.source) && self.destination.has(flow.destination)
    }
}

/// The action of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Pass,
    Block,
    /// By a tunnel to, or from, a peer.
    Protect(Peer),
}

/// A policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) dir: Dir,
    pub(crate) selector: Selector,
    pub(crate) priority: u32,
    pub(crate) action: Action,
}

/// A state: a number names its key, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) peer: Peer,
    /// Whether its packets come in.
    pub(crate) inward: bool,
}

/// A change that a key manager asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Add(Policy),
    Update(Policy),
    Delete(Dir, Selector),
    FlushPolicies,
    AddState(u32, State),
    DeleteState(u32, State),
}

/// Policies in their order, and states by their SPI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) policies: Vec<Policy>,
    pub(crate) states: BTreeMap<u32, State>,
}

impl Reference {
    /// Makes a change; false where the kernel refuses it.
    pub(crate) fn make(&mut self, change: Change) -> bool {
        let place = |all: &[Policy], dir, selector| all.iter().position(|p| (p.dir, p.selector) == (dir, selector));
        match change {
            Change::Add(policy) => {
                let is_new = place(&self.policies, policy.dir, policy.selector).is_none();
                if is_new {
                    self.insert(policy);
                }
                is_new
            }
            Change::Update(policy) => {
                match place(&self.policies, policy.dir, policy.selector) {
                    // It keeps its place among those of its priority.
                    Some(at) if self.policies[at].priority == policy.priority => self.policies[at] = policy,
                    Some(at) => {
                        self.policies.remove(at);
                        self.insert(policy);
                    }
                    None => self.insert(policy),
                }
                true
            }
            Change::Delete(dir, selector) => {
                let at = place(&self.policies, dir, selector);
                at.map(|at| self.policies.remove(at)).is_some()
            }
            Change::FlushPolicies => {
                self.policies.clear();
                true
            }
            Change::AddState(spi, state) => {
                let is_new = !self.states.contains_key(&spi);
                if is_new {
                    self.states.insert(spi, state);
                }
                is_new
            }
            Change::DeleteState(spi, _) => self.states.remove(&spi).is_some(),
        }
    }

    /// Behind all of the same priority.
    fn insert(&mut self, policy: Policy) {
        let at = self.policies.partition_point(|other| other.priority <= policy.priority);
        self.policies.insert(at, policy);
    }

    /// The action for a flow: the first policy decides, and without one it passes.
    pub(crate) fn action(&self, dir: Dir, flow: &Flow) -> Option<Action> {
        self.policies.iter().find(|policy| policy.dir == dir && policy.selector.has(flow)).map(|policy| policy.action)
    }

    /// Whether no packet of a flow may leave, or come in, as it is.
    pub(crate) fn covers(&self, dir: Dir, flow: &Flow) -> bool {
        self.action(dir, flow).is_some_and(|action| action != Action::Pass)
    }
}
