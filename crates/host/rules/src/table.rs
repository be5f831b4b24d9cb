//! Tables: sets, and chains of rules.

use crate::rule::Rule;
use std::borrow::Cow;
use std::time::Duration;

/// A table with all that is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The family of its packets.
    pub family: Family,
    /// Its name.
    pub name: Cow<'static, str>,
    /// Whose it is.
    pub owned: Owned,
    /// Its sets.
    pub sets: Vec<Set>,
    /// Its chains. Those that others jump to come before these.
    pub chains: Vec<Chain>,
}

/// The name of a table, unique in its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The family.
    pub family: Family,
    /// The name.
    pub name: &'a str,
}

/// The family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Packets of IPv4 and IPv6.
    Inet,
    /// Frames of a device.
    Netdev,
}

impl Family {
    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            Family::Inet => libc::NFPROTO_INET as u8,
            Family::Netdev => libc::NFPROTO_NETDEV as u8,
        }
    }
}

/// The owner of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owned {
    /// The socket that writes it; others cannot change it. It stays when the socket is closed (Linux 6.9).
    Persists,
    /// The socket that writes it, with which it goes (Linux 5.12).
    Goes,
    /// Nobody: everybody with the right to change rules can change it.
    Nobody,
}

impl Owned {
    /// Ownership as an older kernel has it.
    pub fn less(self) -> Owned {
        match self {
            Owned::Persists => Owned::Goes,
            Owned::Goes | Owned::Nobody => Owned::Nobody,
        }
    }
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The place where packets come to it; without one others jump to it. A packet that no rule ends passes.
    pub hook: Option<Hook>,
    /// Its rules in order.
    pub rules: Vec<Rule>,
}

impl Chain {
    /// A chain.
    pub fn new(name: impl Into<Cow<'static, str>>, hook: Option<Hook>, rules: Vec<Rule>) -> Self {
        Chain { name: name.into(), hook, rules }
    }

    /// Whether a rule of it looks into a set of pairs.
    pub(crate) fn looks_for_pairs(&self) -> bool {
        self.rules.iter().any(|rule| rule.pairs().is_some())
    }
}

/// The place of a chain on the way of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The type of the chain.
    pub kind: ChainType,
    /// The hook.
    pub point: Point,
    /// The order of chains at a hook.
    pub priority: i32,
    /// The device, at hooks of a single one.
    pub device: Option<String>,
}

/// The priority before everything else.
pub(crate) const FIRST: i32 = i32::MIN + 1;

impl Hook {
    /// A hook of the packets of all devices.
    pub const fn new(kind: ChainType, point: Point, priority: i32) -> Self {
        Hook { kind, point, priority, device: None }
    }

    /// The hook of what leaves by one device (Linux 5.16).
    pub fn egress(device: &str, priority: i32) -> Self {
        Hook { device: Some(device.to_owned()), ..Hook::new(ChainType::Filter, Point::Egress, priority) }
    }

    /// The hook of what comes in by one device.
    pub fn ingress(device: &str, priority: i32) -> Self {
        Hook { device: Some(device.to_owned()), ..Hook::new(ChainType::Filter, Point::Ingress, priority) }
    }
}

/// The type of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainType {
    /// Packets go on.
    Filter,
    /// Packets of this host whose mark has changed are routed anew.
    Route,
}

/// The hooks of netfilter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Before routing.
    Prerouting,
    /// To this host.
    Input,
    /// Through this host.
    Forward,
    /// From this host.
    Output,
    /// Behind routing.
    Postrouting,
    /// Into this host by one device, before everything else.
    Ingress,
    /// Out of this host by one device, behind everything else.
    Egress,
}

/// `NF_NETDEV_EGRESS` of `linux/netfilter.h`, which `libc` lacks.
const NF_NETDEV_EGRESS: i32 = 1;

impl Point {
    /// Its number.
    pub fn number(self) -> u32 {
        let number = match self {
            Point::Prerouting => libc::NF_INET_PRE_ROUTING,
            Point::Input => libc::NF_INET_LOCAL_IN,
            Point::Forward => libc::NF_INET_FORWARD,
            Point::Output => libc::NF_INET_LOCAL_OUT,
            Point::Postrouting => libc::NF_INET_POST_ROUTING,
            Point::Ingress => libc::NF_NETDEV_INGRESS,
            Point::Egress => NF_NETDEV_EGRESS,
        };
        number as u32
    }
}

/// A set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: &'static str,
    /// The parts of its keys.
    pub key: &'static [Part],
    /// Whether its elements are ends of intervals.
    pub intervals: bool,
    /// The time for which an element stays, if not for good.
    pub timeout: Option<Duration>,
    /// Its elements.
    pub elements: Vec<Element>,
}

/// A part of a key, padded to words of four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The index of an interface.
    Interface,
    /// The name of an interface.
    Name,
    /// An IPv4 address.
    V4,
    /// An IPv6 address.
    V6,
    /// A port.
    Port,
    /// Any four bytes. For `nft` it is a mark.
    Word,
}

impl Part {
    /// The number that `nft` has for its type, so that `nft list ruleset` prints our sets.
    fn number(self) -> u32 {
        match self {
            Part::V4 => 7,
            Part::V6 => 8,
            Part::Port => 13,
            Part::Word => 19,
            Part::Interface => 20,
            Part::Name => 41,
        }
    }

    /// Its length in bytes, with its padding.
    pub(crate) fn len(self) -> u32 {
        if matches!(self, Part::V6 | Part::Name) { 16 } else { 4 }
    }
}

impl Set {
    /// An empty set.
    pub fn new(name: &'static str, key: &'static [Part]) -> Self {
        Set { name, key, intervals: false, timeout: None, elements: Vec::new() }
    }

    /// The number of its key's type, as `nft` counts.
    pub fn type_number(&self) -> u32 {
        self.key.iter().fold(0, |whole, part| whole << 6 | part.number())
    }

    /// The length of its keys in bytes.
    pub fn key_len(&self) -> u32 {
        self.key.iter().map(|part| part.len()).sum()
    }
}

/// An element of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The key.
    pub key: Vec<u8>,
    /// Whether it is the first key behind an interval. One that ends with the last key has no end.
    pub ends: bool,
}

impl Element {
    /// A key, or the first one of an interval.
    pub fn new(key: Vec<u8>) -> Self {
        Element { key, ends: false }
    }
}

impl Table {
    /// Its name and family.
    pub fn name(&self) -> Name<'_> {
        Name { family: self.family, name: &self.name }
    }
}
