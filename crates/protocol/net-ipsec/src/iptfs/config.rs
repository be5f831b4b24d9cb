//! Properties and constants that both directions of an association need.

use crate::id::{MAX_DEPTH, SaId};
use arrayvec::ArrayVec;
use core::net::IpAddr;

/// The header of a payload without congestion control, in bytes.
pub const HEADER_LEN: usize = 4;

/// The header of a payload with congestion control (RFC 9347 section 6.1.2), in bytes.
pub const CC_HEADER_LEN: usize = 24;

pub(crate) const SUBTYPE_BASIC: u8 = 0;
pub(crate) const SUBTYPE_CC: u8 = 1;

pub(crate) const NS_IN_US: u64 = 1000;

/// The properties of an association in this mode; each matters for one direction only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Out: packets that do not fit one outer packet are refused instead of cut.
    pub dont_frag: bool,
    /// Out: roughly the size of an outer packet in bytes, as Linux counts it (without trailer and ICV); 0 for what the path
    /// takes.
    pub pkt_size: u32,
    /// Out: the most bytes that wait.
    pub max_queue_len: u32,
    /// Out: microseconds that the first packet waits for others.
    pub init_delay_us: u32,
    /// In: the most outer packets by which one may be late.
    pub reorder_pkts: u16,
    /// In: microseconds after which an outer packet that has not come is given up.
    pub drop_time_us: u32,
    /// Out: outer packets of one length leave at a constant rate, whatever there is to send. Linux has none of that.
    pub rate: Option<Rate>,
}

/// A constant rate (RFC 9347 section 2.4.1), or the highest one (section 2.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds from one outer packet to the next, at least.
    pub interval_ns: u64,
    /// The length of an outer packet in bytes, with all headers; it is shorter by less than what ESP aligns to, and where the path
    /// does not take it.
    pub packet_len: u32,
    /// Whether congestion makes the rate lower ([`congestion`](super::congestion)).
    pub congestion_control: bool,
}

impl Config {
    /// The length of the header of its payloads.
    pub(crate) fn header_len(&self) -> usize {
        if self.rate.is_some_and(|rate| rate.congestion_control) { CC_HEADER_LEN } else { HEADER_LEN }
    }
}

/// The associations in both directions that belong together: those to one peer, and those from it. Keys come and go, and what is
/// known of the path stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairKey {
    /// The outer address of this end.
    pub local: IpAddr,
    /// The outer address of the peer.
    pub remote: IpAddr,
    /// The request id.
    pub reqid: u32,
    /// The interface id.
    pub if_id: u32,
    /// The CPU whose packets these associations are for (RFC 9611).
    pub cpu: Option<u32>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            dont_frag: false,
            pkt_size: 0,
            max_queue_len: 1024 * 10_240,
            init_delay_us: 0,
            reorder_pkts: 3,
            drop_time_us: 1_000_000,
            rate: None,
        }
    }
}

/// Properties of an outer packet that the packets get that begin in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The associations that opened it, outermost first.
    pub path: ArrayVec<SaId, MAX_DEPTH>,
    /// Its mark.
    pub mark: u32,
    /// The index of the device that it came by; 0 if unknown.
    pub device: u32,
}
