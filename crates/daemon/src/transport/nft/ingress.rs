//! The rules that keep the stack from packets which a device's ring has seen: ESP of single states, at the `ingress` hook.
//!
//! ```text
//! table netdev sealane-ipsec
//!   set esp4, esp6        device . destination . SPI
//!   chain in<ifindex>     hook ingress of one device, behind those of others
//!     ESP for this host, no fragment, no VLAN tag, in the set: jump taken
//!   chain taken
//!     last byte of the sequence number 0: mark it, accept (the ring's copy counts, this one shows that filters let it pass)
//!     drop
//! ```
//!
//! The conditions are those of [`crate::transport::ring::Ring::open_esp`]: what is dropped here has been seen there. The table is
//! owned by its socket and goes with it, so that nothing is dropped which nobody reads; a kernel that knows no owners (before
//! 5.12) gets none.

use super::expr::Rule;
use super::write::{
    Batch, NFT_TABLE_F_OWNER, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_TABLE, NFTA_CHAIN_TYPE, NFTA_DATA_VALUE,
    NFTA_LIST_ELEM, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE, NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_TABLE, NFTA_SET_FLAGS, NFTA_SET_ID,
    NFTA_SET_KEY_LEN, NFTA_SET_KEY_TYPE, NFTA_SET_NAME, NFTA_SET_TABLE, NFTA_TABLE_FLAGS, NFTA_TABLE_NAME, chain,
};
use super::{NETDEV, Socket, errno};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// The name of the first worker's table; others put their number behind it.
const TABLE: &str = "sealane-ipsec";
/// Its chain of packets that are not for the stack.
const TAKEN: &str = "taken";
/// As late as it can be: what rules of others drop here is gone before.
const PRIORITY: i32 = 250;

/// ESP of one state, as it comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EspWay {
    /// Index of the device.
    pub(crate) device: u32,
    /// An address of this host.
    pub(crate) destination: IpAddr,
    /// The SPI.
    pub(crate) spi: u32,
}

/// `nft`'s numbers of data types: `device . address . mark`.
const TYPES: [u32; 2] = [20 << 12 | 7 << 6 | 19, 20 << 12 | 8 << 6 | 19];
const SETS: [(&str, u32); 2] = [("esp4", 12), ("esp6", 24)];

/// The table in the namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct IngressTable {
    socket: Socket,
    name: String,
    /// The mark of what passes so that it can be seen to pass.
    mark: u32,
    /// Devices with a chain.
    devices: BTreeMap<u32, String>,
}

impl IngressTable {
    /// That of a worker, without any device yet: each socket owns its own.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(mark: u32, worker: u32) -> io::Result<Self> {
        let name = if worker == 0 { TABLE.to_owned() } else { format!("{TABLE}-{worker}") };
        Ok(IngressTable { socket: Socket::open(libc::NETLINK_NETFILTER)?, name, mark, devices: BTreeMap::new() })
    }

    /// Begins to look at what comes in by a device.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn add_device(&mut self, index: u32, name: &str) -> io::Result<()> {
        let mut batch = Batch::new();
        if self.devices.is_empty() {
            self.write_table(&mut batch);
        }
        write_device(&mut batch, &self.name, index, name);
        self.commit(batch)?;
        self.devices.insert(index, name.to_owned());
        Ok(())
    }

    /// Forgets a device, whose chain may have gone with it; with the last one the table goes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn remove_device(&mut self, index: u32) -> io::Result<()> {
        if self.devices.remove(&index).is_none() {
            return Ok(());
        }
        let mut batch = Batch::new();
        if self.devices.is_empty() {
            batch.push(NETDEV, libc::NFT_MSG_DELTABLE, 0, |a| a.str(NFTA_TABLE_NAME, &self.name));
        } else {
            batch.push(NETDEV, libc::NFT_MSG_DELCHAIN, 0, |a| {
                a.str(NFTA_CHAIN_TABLE, &self.name);
                a.str(NFTA_CHAIN_NAME, &chain(index));
            });
        }
        match self.commit(batch) {
            Err(e) if errno(&e) == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// Keeps a state's packets from the stack, or leaves them to it again.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn take(&mut self, way: EspWay, take: bool) -> io::Result<()> {
        let mut key = way.device.to_ne_bytes().to_vec();
        match way.destination {
            IpAddr::V4(v4) => key.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => key.extend_from_slice(&v6.octets()),
        }
        key.extend_from_slice(&way.spi.to_be_bytes());
        let (type_, flags) =
            if take { (libc::NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE) } else { (libc::NFT_MSG_DELSETELEM, 0) };
        let mut batch = Batch::new();
        batch.push(NETDEV, type_, flags, |a| {
            a.str(NFTA_SET_ELEM_LIST_TABLE, &self.name);
            a.str(NFTA_SET_ELEM_LIST_SET, SETS[usize::from(way.destination.is_ipv6())].0);
            a.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |a| {
                a.nest(NFTA_LIST_ELEM, |a| a.nest(NFTA_SET_ELEM_KEY, |a| a.put(NFTA_DATA_VALUE, &key)));
            });
        });
        self.commit(batch)
    }

    fn write_table(&self, batch: &mut Batch) {
        batch.push(NETDEV, libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE, |a| {
            a.str(NFTA_TABLE_NAME, &self.name);
            a.be32(NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER);
        });
        for ((name, len), types) in SETS.into_iter().zip(TYPES) {
            batch.push(NETDEV, libc::NFT_MSG_NEWSET, libc::NLM_F_CREATE, |a| {
                a.str(NFTA_SET_TABLE, &self.name);
                a.str(NFTA_SET_NAME, name);
                a.be32(NFTA_SET_FLAGS, 0);
                a.be32(NFTA_SET_KEY_TYPE, types);
                a.be32(NFTA_SET_KEY_LEN, len);
                a.be32(NFTA_SET_ID, 1);
            });
        }
        batch.push(NETDEV, libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, |a| {
            a.str(NFTA_CHAIN_TABLE, &self.name);
            a.str(NFTA_CHAIN_NAME, TAKEN);
        });
        const R1: i32 = libc::NFT_REG_1;
        rule(batch, &self.name, TAKEN, |r| {
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 7, 1, R1).cmp(R1, libc::NFT_CMP_EQ, &[0]);
            r.meta(libc::NFT_META_MARK, R1).and(R1, &[0; 4]).or(R1, self.mark).set_mark(R1).accept();
        });
        rule(batch, &self.name, TAKEN, |r| r.drop());
    }

    fn commit(&mut self, batch: Batch) -> io::Result<()> {
        batch.finish().map_or(Ok(()), |messages| self.socket.transact(&messages))
    }
}

fn write_device(batch: &mut Batch, table: &str, index: u32, device: &str) {
    const R1: i32 = libc::NFT_REG_1;
    const PACKET_HOST: u8 = 0;
    let name = chain(index);
    batch.push(NETDEV, libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, |a| {
        a.str(NFTA_CHAIN_TABLE, table);
        a.str(NFTA_CHAIN_NAME, &name);
        a.nest(NFTA_CHAIN_HOOK, |a| {
            a.be32(1, libc::NF_NETDEV_INGRESS as u32);
            a.be32(2, PRIORITY as u32);
            a.str(3, device);
        });
        a.str(NFTA_CHAIN_TYPE, "filter");
    });
    for (v6, (set, _)) in [false, true].into_iter().zip(SETS) {
        let protocol = if v6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP } as u16;
        rule(batch, table, &name, |r| {
            r.meta(libc::NFT_META_PROTOCOL, R1).cmp(R1, libc::NFT_CMP_EQ, &protocol.to_be_bytes());
            let (protocol_at, destination_at, words) = if v6 { (6, 24, 4) } else { (9, 16, 1) };
            r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, protocol_at, 1, R1);
            r.cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_ESP as u8]);
            // Here a VLAN's tag stands, whoever took it off.
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

fn rule(batch: &mut Batch, table: &str, chain: &str, expressions: impl FnOnce(&mut Rule<'_, '_>)) {
    batch.push(NETDEV, libc::NFT_MSG_NEWRULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, |a| {
        a.str(NFTA_RULE_TABLE, table);
        a.str(NFTA_RULE_CHAIN, chain);
        a.nest(NFTA_RULE_EXPRESSIONS, |list| expressions(&mut Rule { list }));
    });
}

#[cfg(test)]
mod tests;
