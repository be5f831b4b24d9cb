//! The demands of policies, states and devices.

use sealane_sys::families::Families;
use std::net::IpAddr;

/// A packet selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Source prefix; its family is that of the packets.
    pub source: (IpAddr, u8),
    /// Destination prefix.
    pub destination: (IpAddr, u8),
    /// Protocol; 0 for all.
    pub proto: u8,
    /// Source port and its mask.
    pub sport: (u16, u16),
    /// Destination port and its mask.
    pub dport: (u16, u16),
    /// Mark and its mask.
    pub mark: (u32, u32),
}

/// The treatment of matching packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// They pass unchanged, or the kernel's own policy applies.
    Pass,
    /// They require protection: outgoing packets go to the TUN device with this number, where the engine decides;
    /// incoming unprotected ones are dropped.
    Protect(u8),
    /// They are dropped, incoming ones even if they were protected. The sender of an outgoing one gets an error.
    Block,
}

/// The rules of one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// In the order of the policies.
    pub list: Vec<(Match, Then)>,
    /// Whether packets without a policy are blocked.
    pub block_rest: bool,
}

impl Rules {
    /// Those of these families: whether each is IPv4.
    pub(super) fn of_families(&self, families: &[bool]) -> Rules {
        let list = self.list.iter().filter(|(of, _)| families.contains(&of.source.0.is_ipv4()));
        Rules { list: list.copied().collect(), block_rest: self.block_rest }
    }

    fn of_family(&self, is_v4: bool) -> impl Iterator<Item = &(Match, Then)> {
        self.list.iter().filter(move |(of, _)| of.source.0.is_ipv4() == is_v4)
    }
}

/// The rules of all directions, with the devices and states that they depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Packets for this host.
    pub input: Rules,
    /// Outgoing packets.
    pub output: Rules,
    /// Forwarded packets.
    pub forward: Rules,
    /// The TUN devices of packet offload. Packets from them were protected, like those from the TUN device of the
    /// stack's path.
    pub devices: Vec<String>,
    /// Xfrm interfaces. Packets from them have passed their policies; encrypted packets must not enter them again.
    pub interfaces: Vec<String>,
    /// States whose encrypted packets get a mark, by which they are rerouted.
    pub marks: Vec<StateMark>,
}

/// The mark for encrypted packets of a state (`XFRMA_SET_MARK`), by which they are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateMark {
    /// The state's destination.
    pub destination: IpAddr,
    /// The protocol after the IP header: ESP, AH, or UDP for ESP in UDP.
    pub proto: u8,
    /// The state's SPI.
    pub spi: u32,
    /// The mark.
    pub mark: u32,
}

impl Match {
    /// Whether it selects ports, types and codes of ICMP, or keys of GRE, which later fragments lack.
    pub(super) fn selects_ports(&self) -> bool {
        self.sport.1 != 0 || self.dport.1 != 0
    }

    /// Whether it selects GRE by a key other than 0, which a header without a key counts as.
    pub(super) fn selects_key(&self) -> bool {
        let (key, mask) = self.key();
        i32::from(self.proto) == libc::IPPROTO_GRE && key & mask != 0
    }

    /// A GRE key and its mask.
    pub(super) fn key(&self) -> (u32, u32) {
        let whole = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        (whole(self.sport.0, self.dport.0), whole(self.sport.1, self.dport.1))
    }

    /// Whether a rule can express this exactly. Ports of other protocols are left to the engine.
    pub fn is_exact(&self) -> bool {
        let ports = self.selects_ports();
        let whole = [self.sport.1, self.dport.1].iter().all(|mask| [0, u16::MAX].contains(mask));
        match i32::from(self.proto) {
            libc::IPPROTO_TCP | libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE | libc::IPPROTO_SCTP | libc::IPPROTO_DCCP => {
                true
            }
            libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6 => whole,
            libc::IPPROTO_GRE => !ports || self.selects_key(),
            libc::IPPROTO_MH => whole && self.dport.1 == 0,
            _ => !ports,
        }
    }
}

impl Wanted {
    /// The families for whose outgoing and forwarded packets the policies of `that` are others.
    pub(super) fn families(&self, that: &Wanted) -> Families {
        let differ = |is_v4| {
            let pairs = [(&self.output, &that.output), (&self.forward, &that.forward)];
            pairs.into_iter().any(|(one, other)| {
                one.block_rest != other.block_rest || !one.of_family(is_v4).eq(other.of_family(is_v4))
            })
        };
        Families { v4: differ(true), v6: differ(false) }
    }
}
