//! Rules at the `ingress` hook that drop packets which a device's ring has already seen: the ESP of chosen states.
//!
//! ```text
//! table netdev sealane-ipsec
//!   set esp4, esp6        device . destination . SPI
//!   chain in<ifindex>     hook ingress of one device, behind those of others
//!     ESP for this host, no fragment, no VLAN tag, in the set: jump taken
//!   chain taken
//!     last byte of the sequence number 0: mark it, accept (the ring's copy counts; this shows that filters pass it)
//!     drop
//! ```
//!
//! The conditions match those of [`crate::ring::Ring::open_esp`]: every packet dropped here has been seen there. The
//! table is owned by its socket and removed with it, so that no packet is dropped which nobody reads. A kernel without
//! table owners (before 5.12) gets no such table.

use super::expr::R1;
use super::write::{
    Base, Batch, NFT_TABLE_F_OWNER, chain, delete_chain, delete_table, push_address, write_chain, write_elements,
    write_rule, write_set, write_table,
};
use super::{NETDEV, Socket, errno};
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

/// Key types as `nft` numbers them: `device . address . mark`.
const TYPES: [u32; 2] = [20 << 12 | 7 << 6 | 19, 20 << 12 | 8 << 6 | 19];
const SETS: [(&str, u32); 2] = [("esp4", 12), ("esp6", 24)];

/// The table in the namespace of the thread that made it.
#[derive(Debug)]
pub struct IngressTable {
    socket: Socket,
    name: String,
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
        let name = if worker == 0 { TABLE.to_owned() } else { format!("{TABLE}-{worker}") };
        Ok(IngressTable { socket: Socket::open(libc::NETLINK_NETFILTER)?, name, mark, devices: BTreeMap::new() })
    }

    /// Installs the rules for a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_device(&mut self, index: u32, name: &str) -> io::Result<()> {
        let mut batch = Batch::new();
        if self.devices.is_empty() {
            self.write_table(&mut batch);
        }
        write_device(&mut batch, &self.name, index, name);
        batch.commit(&mut self.socket)?;
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
        let mut batch = Batch::new();
        if self.devices.is_empty() {
            delete_table(&mut batch, NETDEV, &self.name);
        } else {
            delete_chain(&mut batch, (NETDEV, &self.name), &chain(index));
        }
        match batch.commit(&mut self.socket) {
            Err(e) if errno(&e) == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// Starts to drop a state's packets at ingress, or leaves them to the stack again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&mut self, way: EspFlow, take: bool) -> io::Result<()> {
        let mut key = way.device.to_ne_bytes().to_vec();
        push_address(&mut key, way.destination);
        key.extend_from_slice(&way.spi.to_be_bytes());
        let type_ = if take { libc::NFT_MSG_NEWSETELEM } else { libc::NFT_MSG_DELSETELEM };
        let set = SETS[usize::from(way.destination.is_ipv6())].0;
        let mut batch = Batch::new();
        write_elements(&mut batch, (NETDEV, &self.name), type_, set, &[(key, 0)]);
        batch.commit(&mut self.socket)
    }

    fn write_table(&self, batch: &mut Batch) {
        let of = (NETDEV, &*self.name);
        write_table(batch, NETDEV, &self.name, NFT_TABLE_F_OWNER);
        for ((name, len), types) in SETS.into_iter().zip(TYPES) {
            write_set(batch, of, name, types, len, 0);
        }
        write_chain(batch, of, TAKEN, None);
        write_rule(batch, of, TAKEN, |r| {
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 7, 1, R1).cmp(R1, libc::NFT_CMP_EQ, &[0]);
            r.meta(libc::NFT_META_MARK, R1).and(R1, &[0; 4]).or(R1, self.mark).set_mark(R1).accept();
        });
        write_rule(batch, of, TAKEN, |r| r.drop());
    }
}

fn write_device(batch: &mut Batch, table: &str, index: u32, device: &str) {
    const PACKET_HOST: u8 = 0;
    let name = chain(index);
    let (hook, device) = (libc::NF_NETDEV_INGRESS, Some(device));
    write_chain(batch, (NETDEV, table), &name, Some(Base { kind: "filter", hook, priority: PRIORITY, device }));
    for (v6, (set, _)) in [false, true].into_iter().zip(SETS) {
        let protocol = if v6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP } as u16;
        write_rule(batch, (NETDEV, table), &name, |r| {
            r.meta(libc::NFT_META_PROTOCOL, R1).cmp(R1, libc::NFT_CMP_EQ, &protocol.to_be_bytes());
            let (protocol_at, destination_at, words) = if v6 { (6, 24, 4) } else { (9, 16, 1) };
            r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, protocol_at, 1, R1);
            r.cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_ESP as u8]);
            // For frames with a VLAN tag this is the tag's EtherType, even if the device has stripped the tag.
            r.payload(libc::NFT_PAYLOAD_LL_HEADER, 12, 2, R1).cmp(R1, libc::NFT_CMP_EQ, &protocol.to_be_bytes());
            r.meta(libc::NFT_META_PKTTYPE, R1).cmp(R1, libc::NFT_CMP_EQ, &[PACKET_HOST]);
            if !v6 {
                r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, 0, 1, R1).cmp(R1, libc::NFT_CMP_EQ, &[0x45]);
                r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, 6, 2, R1).and(R1, &[0x3f, 0xff]);
                r.cmp(R1, libc::NFT_CMP_EQ, &[0, 0]);
            }
            r.meta(libc::NFT_META_IIF, libc::NFT_REG32_00);
            r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, destination_at, words * 4, libc::NFT_REG32_01);
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 4, libc::NFT_REG32_01 + words as i32);
            r.lookup(set, libc::NFT_REG32_00).jump(TAKEN);
        });
    }
}

#[cfg(test)]
mod tests;
