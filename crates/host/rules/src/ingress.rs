//! Rules at the `ingress` hook that drop packets which a device's ring has already seen: the ESP of chosen states. Each
//! worker has a table of its own:
//!
//! ```text
#![doc = include_str!("ingress/picture.txt")]
//! ```
//!
//! The conditions match those of [`sealane_packets::ring::Ring::open_esp`]: every packet dropped here has been seen there. One
//! packet in 256 passes, with a mark: the ring's copy counts, and this one shows that filters let it pass. The table is owned
//! by its socket and removed with it, so that no packet is dropped which nobody reads. A kernel without table owners
//! (before 5.12) gets no such table.

use crate::field::{self, Field};
use crate::key;
use crate::rule::Rule;
use crate::table::{Chain, Element, Family, Hook, Name, Owned, Part, Set, Table};
use crate::transaction::Transaction;
use sealane_sys::netlink::{Socket, errno};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// The name of the first worker's table; those of others end with the worker's number.
const TABLE: &str = "sealane-ipsec";
/// The chain of packets that the ring handles.
const TAKEN: &str = "taken";
/// As late as possible: packets that other rules drop never get here.
const PRIORITY: i32 = 250;

/// The incoming ESP packets of one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EspFlow {
    /// Index of the device.
    pub device: u32,
    /// An address of this host.
    pub destination: IpAddr,
    /// The SPI.
    pub spi: u32,
}

impl EspFlow {
    fn element(&self) -> Element {
        let mut key = self.device.to_ne_bytes().to_vec();
        key::push_address(&mut key, self.destination);
        key.extend_from_slice(&self.spi.to_be_bytes());
        Element::new(key)
    }
}

/// The sets of both families.
const SETS: [(&str, &[Part]); 2] =
    [("esp4", &[Part::Interface, Part::V4, Part::Word]), ("esp6", &[Part::Interface, Part::V6, Part::Word])];

/// The table in the namespace of the thread that made it.
#[derive(Debug)]
pub struct IngressTable {
    socket: Socket,
    worker: u32,
    /// The mark of packets that pass to show that filters allow them.
    mark: u32,
    /// The devices that have a chain.
    devices: BTreeMap<u32, String>,
}

impl IngressTable {
    /// The table of a worker, without devices; each socket owns its own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(mark: u32, worker: u32) -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_NETFILTER)?;
        Ok(IngressTable { socket, worker, mark, devices: BTreeMap::new() })
    }

    /// Installs the rules for a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_device(&mut self, index: u32, name: &str) -> io::Result<()> {
        let mut table = table(self.worker, self.mark);
        let mut changes = Transaction::new();
        if self.devices.is_empty() {
            table.chains.push(of_device(index, name));
            changes.create(&table);
        } else {
            changes.create_chain(table.name(), &of_device(index, name));
        }
        changes.commit(&mut self.socket)?;
        self.devices.insert(index, name.to_owned());
        Ok(())
    }

    /// Removes a device, whose chain may already be gone; the table is removed with the last one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_device(&mut self, index: u32) -> io::Result<()> {
        if self.devices.remove(&index).is_none() {
            return Ok(());
        }
        let name = name(self.worker);
        let mut changes = Transaction::new();
        if self.devices.is_empty() {
            changes.delete(of(&name));
        } else {
            changes.delete_chain(of(&name), &key::chain(index));
        }
        match changes.commit(&mut self.socket) {
            Err(e) if errno(&e) == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// Starts to drop a state's packets at ingress, or leaves them to the stack again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&mut self, way: EspFlow, take: bool) -> io::Result<()> {
        let name = name(self.worker);
        let set = SETS[usize::from(way.destination.is_ipv6())].0;
        let mut changes = Transaction::new();
        if take {
            changes.add(of(&name), set, &[way.element()]);
        } else {
            changes.remove(of(&name), set, &[way.element()]);
        }
        changes.commit(&mut self.socket)
    }
}

/// The name of a worker's table.
fn name(worker: u32) -> Cow<'static, str> {
    if worker == 0 { TABLE.into() } else { format!("{TABLE}-{worker}").into() }
}

fn of(name: &str) -> Name<'_> {
    Name { family: Family::Netdev, name }
}

/// A worker's table without devices.
fn table(worker: u32, mark: u32) -> Table {
    Table {
        family: Family::Netdev,
        name: name(worker),
        owned: Owned::Goes,
        sets: SETS.map(|(name, key)| Set::new(name, key)).into(),
        chains: vec![Chain::new(TAKEN, None, taken(mark))],
    }
}

/// Packets that the ring has.
fn taken(mark: u32) -> Vec<Rule> {
    let now_and_then = Rule::new().is(field::ESP_LAST_BYTE, 0u8);
    vec![now_and_then.set_mark(0, mark).accept(), Rule::new().drop()]
}

/// The chain of a device.
fn of_device(index: u32, device: &str) -> Chain {
    Chain::new(key::chain(index), Some(Hook::ingress(device, PRIORITY)), [0, 1].map(seen).into())
}

/// Packets of a family that the ring may have.
fn seen(family: usize) -> Rule {
    const PACKET_HOST: u8 = 0;
    let ether_type = [libc::ETH_P_IP, libc::ETH_P_IPV6][family] as u16;
    let protocol: &Field = [field::V4_PROTOCOL, field::V6_NEXT][family];
    let mut rule = Rule::new().is(field::ETHER_TYPE, ether_type).is(protocol, libc::IPPROTO_ESP as u8);
    // For frames with a VLAN tag this is the tag's EtherType, even if the device has stripped the tag.
    rule = rule.is(field::LINK_TYPE, ether_type).is(field::PACKET_TYPE, PACKET_HOST);
    if family == 0 {
        rule = rule.is(field::V4_VERSION_LEN, 0x45u8).has(field::V4_FRAGMENT, key::V4_ANY_FRAGMENT, 0u16);
    }
    rule.in_set([field::IN, field::DESTINATIONS[family], field::ESP_SPI], SETS[family].0).jump(TAKEN)
}

#[cfg(test)]
mod tests;
