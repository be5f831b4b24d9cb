//! Bursts of packets, and the routes that they are given.

use core::net::IpAddr;
use sealane_net_ipsec::selector::Flow;
use sealane_net_ipsec::spd::Dir;

/// Packets of one burst at most.
pub const BURST: usize = 64;

/// Packets of one flow, one behind another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The number of packets.
    pub packets: usize,
    /// Their mark.
    pub mark: u32,
    /// The interface that they would leave by; 0 where it is not known.
    pub ifindex: i32,
}

impl Run {
    /// One packet more or less of a flow without anything special.
    #[must_use]
    pub fn new(packets: usize) -> Self {
        Run { packets, mark: 0, ifindex: 0 }
    }
}

/// Each run with its packets, of which there may be fewer than the runs say.
pub fn each_run<'r, 'p, T>(runs: &'r [Run], packets: &'p mut [T]) -> impl Iterator<Item = (&'r Run, &'p mut [T])> {
    let mut rest = packets;
    runs.iter().map(move |run| {
        let len = run.packets.min(rest.len());
        let (these, others) = core::mem::take(&mut rest).split_at_mut(len);
        rest = others;
        (run, these)
    })
}

/// Route lookups.
pub trait Paths {
    /// The MTU of the path to an address, in bytes; 0 where it is not known.
    fn mtu(&mut self, to: IpAddr) -> u32;
    /// Whether no route leads to an address, not even for packets from the address `from`.
    fn is_unreachable(&mut self, from: IpAddr, to: IpAddr) -> bool;
    /// The address that packets to an address leave with; unspecified where it is not known.
    fn source(&mut self, to: IpAddr) -> IpAddr;
    /// Whether packets to an address are for this host.
    fn is_local(&mut self, to: IpAddr) -> bool;
}

/// The direction of the policies that apply to an inbound packet.
pub(crate) fn direction(flow: &Flow, paths: &mut impl Paths) -> Dir {
    if paths.is_local(flow.destination) { Dir::In } else { Dir::Fwd }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_its_packets() {
        let runs = [2, 0, 3, 4, 1].map(Run::new);
        let mut packets = [1, 2, 3, 4, 5, 6];
        let all: Vec<Vec<i32>> = each_run(&runs, &mut packets).map(|(_, these)| these.to_vec()).collect();
        assert_eq!(all, [vec![1, 2], vec![], vec![3, 4, 5], vec![6], vec![]]);
    }
}
