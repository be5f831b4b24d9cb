//! The late way of packets that a policy protects and that did not take the early one, by mark and routing rule: their source has been
//! translated behind routing, their socket is bound to a device, somebody has flushed the routing rules.
//!
//! Behind everything else, a chain of [`super::ipsec`] (`backstop`) gives them a priority in place of dropping them. From then on
//! connection tracking has their translation for good, which it would forget with a packet that is dropped or queued. A chain at the
//! `egress` of the device that they are about to leave by (Linux 5.16) hands them to a TAP device of ours, with their mark and the device in
//! the header of the frame. These chains have a table of their own:
//!
//! ```text
#![doc = include_str!("late/picture.txt")]
//! ```
//!
//! The packets of a flowtable come to no other chain of ours than these, which judge them by the policies once more: a flow may have been
//! taken over although only its translated packets are covered. In Linux these leave in clear.
//!
//! Only devices with such a chain are in the set `late`, by index and name. A chain follows a device that goes to another namespace and
//! comes back by its name (Linux 6.16). Before, it is gone then, so that an element stays for a while only, and has to be written again and
//! again.
//!
//! The TAP device stays when the daemon ends, and drops. Where the tables go with their owner (before Linux 6.9) a guard without an
//! owner drops in their place.

use crate::field;
use crate::key;
use crate::rule::{Rule, Step, Test};
use crate::table::{Chain, Element, FIRST, Family, Hook, Name, Owned, Part, Set, Table};
use crate::transaction::Transaction;
use crate::value::Value;
use sealane_sys::marks::Bits;
use sealane_sys::netlink::{Socket, errno};
use sealane_sys::release;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

/// The table of the chains at egress.
pub(crate) const LATE: Name<'static> = Name { family: Family::Netdev, name: "sealane-ipsec-late" };
/// The same without an owner, where [`LATE`] would not outlive its owner.
pub(crate) const LATE_GUARD: Name<'static> = Name { family: Family::Netdev, name: "sealane-ipsec-late-guard" };
/// A table that shows what the kernel's rules know.
const PROBE: Name<'static> = Name { family: Family::Netdev, name: "sealane-ipsec-probe" };

/// The set of devices.
pub(crate) const SET: &str = "late";
/// The time for which an element stays.
const STAYS: Duration = Duration::from_secs(10);
/// The time after which elements that do not stay are written again.
const AGAIN: Duration = Duration::from_secs(3);

/// The chains of the first table that others jump to.
pub(crate) const LED: &str = "led";
pub(crate) const LOOKED_AT: &str = "looked-at";
pub(crate) const STRAYED: &str = "strayed";
pub(crate) const STRAYED_LATE: &str = "strayed-late";
pub(crate) const SEALED_LATE: &str = "sealed-late";
pub(crate) const PASSED: &str = "passed";
/// Those of the table at egress.
pub(crate) const TO_DAEMON: &str = "to-daemon";
pub(crate) const JUDGE: &str = "judge";
pub(crate) const COVERED: &str = "covered";
pub(crate) const BLOCKED: &str = "blocked";

/// The late way of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// The priority of packets that are to be sealed.
    pub(crate) priority: u32,
    /// The index of the TAP device.
    pub(crate) device: u32,
    /// Whether rules can tell packets that have no route.
    realms: bool,
    /// Whether a chain is lost when its device goes to another namespace, so that no element stays for long.
    expires: bool,
}

impl Late {
    /// Looks whether the kernel's rules can lead packets to this TAP device, in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's: `EOPNOTSUPP` or `ENOENT` where they cannot.
    pub fn probe(bits: Bits, device: u32, name: &str) -> io::Result<Late> {
        let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
        let mut late = Late { priority: bits.late(), device, realms: true, expires: !release::is_at_least(6, 16) };
        loop {
            let mut changes = Transaction::new();
            let judge = late.unjudged(Rule::new().jump(TO_DAEMON));
            let chains = vec![Chain::new(TO_DAEMON, None, late.to_daemon()), Chain::new(JUDGE, None, judge)];
            let table = late.table(PROBE, Owned::Nobody, chains, (&[(device, name.to_owned())].into(), FIRST));
            changes.create(&table);
            changes.delete(PROBE);
            match changes.commit(&mut socket) {
                // `CONFIG_IP_ROUTE_CLASSID`.
                Err(e) if late.realms && errno(&e) == Some(libc::EOPNOTSUPP) => late.realms = false,
                done => return done.map(|()| late),
            }
        }
    }

    /// Whether the kernel removes the chain of a device that goes.
    pub(crate) fn loses_chains(self) -> bool {
        self.expires
    }

    /// The time after which the devices have to be listed again, if they do not stay.
    pub(crate) fn again(self) -> Option<Duration> {
        self.expires.then_some(AGAIN)
    }

    /// To the guard the priority says that a packet has been judged. Nobody else gives it to packets.
    pub(crate) fn judged(self, guards: bool) -> Option<Rule> {
        guards.then(|| Rule::new().is(field::PRIORITY, Value::host(self.priority)).accept())
    }

    /// The set of devices.
    pub(crate) fn set(self, devices: &Devices) -> Set {
        let timeout = self.expires.then_some(STAYS);
        Set { timeout, elements: devices.elements(), ..Set::new(SET, &[Part::Interface, Part::Name]) }
    }

    /// A table at egress, with these chains besides those for devices, which have this priority.
    pub(crate) fn table(
        self,
        name: Name<'static>,
        owned: Owned,
        mut chains: Vec<Chain>,
        (devices, priority): (&BTreeMap<u32, String>, i32),
    ) -> Table {
        chains.extend(devices.iter().map(|(index, name)| self.of_device(*index, name, priority)));
        Table { family: name.family, name: name.name.into(), owned, sets: Vec::new(), chains }
    }

    /// The chain of a device.
    pub(crate) fn of_device(self, index: u32, name: &str, priority: i32) -> Chain {
        let late = Rule::new().is(field::PRIORITY, Value::host(self.priority)).jump(TO_DAEMON);
        Chain::new(key::out_chain(index), Some(Hook::egress(name, priority)), vec![late, Rule::new().jump(JUDGE)])
    }

    /// Frames that no rule has judged behind routing end so.
    pub(crate) fn unjudged(self, end: Rule) -> Vec<Rule> {
        // That of a socket has been judged, or is for nobody to judge, as in Linux.
        let of_a_socket = Rule::new().tests(field::USER, ANY).accept();
        // What containers send by a device above this one has no route here.
        let routed = if self.realms { Rule::new().tests(field::REALM, ANY) } else { Rule::new() };
        vec![of_a_socket, routed.steps(end.steps)]
    }

    /// Frames for the daemon.
    pub(crate) fn to_daemon(self) -> Vec<Rule> {
        let write = |to, from| Rule::new().step(Step::Write { to, from });
        let device = write(field::LINK_DEVICE, field::OUT);
        vec![device, write(field::LINK_MARK, field::MARK).step(Step::Forward(self.device))]
    }
}

/// Any number in the byte order of this machine.
const ANY: [Test; 1] = [Test::Ge(Value::ZERO)];

/// The devices by which packets may leave late.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    /// Those with a chain.
    pub(crate) with_chain: BTreeMap<u32, String>,
    /// Those among them that are in the set.
    pub(crate) listed: BTreeSet<u32>,
}

impl Devices {
    /// The next ones: those that can be listed, and those that have a chain and are still there, by which packets may be about to leave.
    pub(crate) fn next(&self, there: &BTreeMap<u32, String>, suitable: &BTreeSet<u32>) -> Devices {
        let listed: BTreeSet<u32> = suitable.iter().copied().filter(|index| there.contains_key(index)).collect();
        let stays = |index: &u32| listed.contains(index) || self.with_chain.contains_key(index);
        let with_chain = there.iter().filter(|(index, _)| stays(index)).map(|(index, name)| (*index, name.clone()));
        Devices { with_chain: with_chain.collect(), listed }
    }

    /// Forgets those that have gone, whose chains the kernel has removed. Returns them.
    pub(crate) fn forget(&mut self, gone: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        let (gone, there) = core::mem::take(&mut self.with_chain).into_iter().partition(|(index, _)| gone(*index));
        self.with_chain = there;
        let gone: BTreeMap<u32, String> = gone;
        self.listed.retain(|index| !gone.contains_key(index));
        gone.into_keys()
    }

    pub(crate) fn elements(&self) -> Vec<Element> {
        let listed = self.with_chain.iter().filter(|(index, _)| self.listed.contains(index));
        listed
            .map(|(index, name)| Element::new([&index.to_ne_bytes()[..], Value::name(name).bytes()].concat()))
            .collect()
    }
}

/// The late way of the picture in the documentation.
#[cfg(test)]
pub(crate) const EXAMPLE: Late = Late { priority: 0x4d3c_2b13, device: 9, realms: true, expires: true };
