//! Prefetches of the entries of large tables that the packets of a burst need. Each step is taken for the whole burst
//! before the next one, so that the cache misses overlap.

use crate::burst::{BURST, Paths, Run, direction};
use crate::data::Tables;
use crate::scratch::{InboundAhead, OutboundAhead};
use arrayvec::ArrayVec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::seal::Outbound;
use sealane_net_ipsec::selector::Flow;
use sealane_net_ipsec::spd::Dir;
use sealane_net_ipsec::spd::resolve::{self, OutboundQuery};

/// The number of flows from which on cache misses overlap enough.
const FLOWS_FROM: usize = 8;

impl Tables<'_> {
    /// Whether looking ahead pays for this number of flows.
    #[inline]
    pub(crate) fn looks_ahead(&self, flows: usize) -> bool {
        flows >= FLOWS_FROM && (self.sad.is_large() || self.spd.is_large())
    }

    /// The properties of a leaving flow that are known without its policy.
    pub(crate) fn outbound_query<'f>(&self, flow: &'f Flow) -> OutboundQuery<'f> {
        let local = match flow.destination {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        OutboundQuery { flow, if_id: self.if_id, cpu: self.cpu, local, now_s: self.now_s }
    }

    /// Parses the flows of a burst's runs and prefetches their cache entries, or the policies and states of flows that
    /// are not cached.
    #[inline(never)]
    pub(crate) fn outbound_ahead(
        &mut self,
        runs: &[Run],
        packets: &[Outbound<'_>],
        all: &mut ArrayVec<OutboundAhead, BURST>,
    ) {
        let mut rest = packets;
        all.extend(runs.iter().take(BURST).map(|run| {
            let (these, others) = rest.split_at(run.packets.min(rest.len()));
            rest = others;
            let bytes = these.first().map_or(&[][..], |first| first.packet.bytes());
            let flow = Flow::of(bytes, run.mark, run.ifindex).map_err(|_| DropReason::Malformed);
            OutboundAhead { flow, policy: None }
        }));
        self.cache.grow(self.sad.len());
        all.iter().flat_map(|ahead| &ahead.flow).for_each(|flow| self.cache.warm(flow, self.if_id));
        let (mut flows, mut at) = (ArrayVec::<Flow, BURST>::new(), ArrayVec::<usize, BURST>::new());
        for (i, ahead) in all.iter().enumerate() {
            if let Ok(flow) = ahead.flow
                && !self.cache.knows(self.spd, self.sad, &self.outbound_query(&flow))
            {
                flows.push(flow);
                at.push(i);
            }
        }
        if !flows.is_empty() {
            let mut found = [None; BURST];
            self.spd.lookup_burst(Dir::Out, &flows, self.if_id, &mut found);
            resolve::warm(self.spd, self.sad, &flows, &found);
            at.iter().zip(found).for_each(|(i, found)| all[*i].policy = Some(found));
        }
    }

    /// Looks up the policies of the packets of an opened burst.
    #[inline(never)]
    pub(crate) fn inbound_ahead(
        &self,
        packets: &[Inbound<'_>],
        paths: &mut impl Paths,
        all: &mut ArrayVec<InboundAhead, BURST>,
    ) {
        for arrived in packets.iter().take(BURST) {
            let opened = matches!(arrived.status, Ok(Opened::Packet));
            let flow = opened.then(|| Flow::of(arrived.packet.bytes(), arrived.mark, 0).ok()).flatten();
            all.push(flow.map(|flow| (flow, direction(&flow, paths), None)));
        }
        for dir in [Dir::In, Dir::Fwd] {
            let these = || all.iter().flatten().filter(|judged| judged.1 == dir);
            let flows: ArrayVec<Flow, BURST> = these().map(|judged| judged.0).collect();
            let mut found = [None; BURST];
            self.spd.lookup_burst(dir, &flows, 0, &mut found);
            let these = all.iter_mut().flatten().filter(|judged| judged.1 == dir);
            these.zip(found).for_each(|(judged, found)| judged.2 = found);
        }
    }
}
