//! From the TUN device to the wire.

use crate::data::counters::Counters;
use crate::data::flight::{Begun, Landed};
use crate::data::inbound::{Stack, arrived};
use crate::data::join::settle;
use crate::data::lane::{Lane, Next, Parcel};
use crate::data::wire::{Wire, superframe};
use crate::data::worker::Worker;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::{BURST, Run};
use sealane_engine_xfrm::device::crypto::Direction;
use sealane_net::ipsec::burst::Jobs;
use sealane_net::ipsec::drop::DropReason;
use sealane_net::ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net::ipsec::sa::SaId;
use sealane_net::ipsec::seal::Outbound;
use sealane_net::wire::gso::Cutter;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// Room for a packet at least: short ones may be padded.
const LEAST: usize = 1536;

impl Worker {
    /// Seals and sends a burst of what the stack has; whether there may be more.
    ///
    /// # Errors
    /// The TUN device's, which is gone then.
    pub(crate) fn outbound(&mut self) -> io::Result<bool> {
        let Worker { shared, tables, flights, tun, intake, cutting, routes, udp, lent, raw, out, fast_out, .. } = self;
        if !flights.has_room() {
            return Ok(true);
        }
        let Some(mut burst) = flights.empty() else { return Ok(true) };
        let mut packets: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        let mut runs: ArrayVec<Run, BURST> = ArrayVec::new();
        let mut rest = &mut burst.buffer[..];
        let mut fresh = true;
        let mut more = true;
        let mut cpu = intake.cpu();
        let mut most = BURST;
        while packets.len() < most {
            if cutting.is_none() {
                let begun = (!packets.is_empty()).then_some(cpu);
                let owners =
                    |lane: &Lane, parcel: &Parcel| shared.owners(lane.index(), lane.of(), parcel.packets(), routes);
                let (range, offload) = match intake.next(tun, begun, owners)? {
                    Next::Frame(range, offload) => (range, offload),
                    Next::Other => break,
                    Next::Nothing => {
                        more = false;
                        break;
                    }
                };
                cpu = intake.cpu();
                fresh = true;
                match Cutter::new(&mut intake.buffer()[range.clone()], &offload) {
                    Ok(cutter) => *cutting = Some((range, cutter)),
                    Err(_) => {
                        shared.counters.malformed.fetch_add(1, Relaxed);
                        continue;
                    }
                }
            }
            let Some((range, cutter)) = cutting else { break };
            let Some(len) = cutter.next_len() else {
                *cutting = None;
                continue;
            };
            let need = HEADROOM + len.max(LEAST) + TAILROOM;
            if need > rest.len() {
                break;
            }
            let (slot, others) = core::mem::take(&mut rest).split_at_mut(need);
            rest = others;
            if packets.is_empty() {
                // What is more would leave as a superframe of its own, a small one.
                most = superframe(len).clamp(1, BURST);
            }
            cutter.next(&intake.buffer()[range.clone()], &mut slot[HEADROOM..HEADROOM + len]);
            packets.push(Outbound::new(SaId::NONE, Packet::new(slot, HEADROOM, HEADROOM + len)));
            if core::mem::take(&mut fresh) {
                runs.push(Run::new(1));
            } else if let Some(run) = runs.last_mut() {
                run.packets += 1;
            }
        }
        if packets.is_empty() {
            drop(packets);
            flights.put(burst);
            return Ok(more);
        }
        let mut jobs = Jobs::new();
        // Asked before the policies are: when the rules of before go, new ones may have come behind our look at them.
        let is_leftover = shared.is_leftover();
        let begun = shared.outbound(tables, cpu, &runs, &mut packets, routes, &mut jobs);
        if is_leftover {
            hold(&mut packets, &shared.counters);
        }
        match begun {
            None if flights.is_empty(Direction::Encrypt) => {
                let mut wire = Wire { udp, lent, raw, out, fast: fast_out, shared, tables, routes };
                wire.send(&packets, tun);
                drop(packets);
                flights.put(burst);
            }
            None => {
                let begun = Begun::out(&packets);
                drop(packets);
                flights.follow(burst, Direction::Encrypt, begun);
            }
            Some(locked) => {
                let begun = Begun::out(&packets);
                drop(packets);
                flights.depart(burst, Direction::Encrypt, begun, jobs, &locked.xfrm);
                locked.tell();
            }
        }
        Ok(more)
    }

    /// Ends bursts that devices are done with, and what waited behind them; whether there were any.
    pub(crate) fn land(&mut self) -> bool {
        let Worker { shared, tables, flights, tun, routes, udp, lent, raw, out, fast_out, fast_in, kept, .. } = self;
        let mut any = false;
        while let Some(landed) = flights.land() {
            any = true;
            match landed {
                Landed::Out(mut landed) => {
                    let (mut packets, jobs, done) = landed.parts();
                    shared.outbound_end(&mut packets, jobs, done);
                    let mut wire = Wire { udp, lent, raw, out, fast: fast_out, shared, tables, routes };
                    wire.send(&packets, tun);
                    drop(packets);
                    flights.put(landed.burst);
                }
                Landed::In(mut landed, origin) => {
                    let ways = landed.ways();
                    let (mut packets, jobs, done) = landed.parts();
                    shared.inbound_end(&mut packets, routes, jobs, done);
                    let more = !flights.is_empty(Direction::Decrypt);
                    let mut stack = Stack { tun, kept, gates: &shared.gates, more };
                    arrived(&packets, &ways, origin, &mut stack, udp, fast_in, &shared.counters, routes.now());
                    drop(packets);
                    flights.put(landed.burst);
                }
                Landed::Lost(reasons) => {
                    shared.lost(&reasons);
                    settle(kept, flights, tun, &shared.counters);
                }
            }
        }
        any
    }
}

/// Holds back what no policy is for: that rules of a daemon before this one led it here says that there was one.
fn hold(packets: &mut [Outbound<'_>], counters: &Counters) {
    for out in packets.iter_mut().filter(|out| out.status.is_ok() && out.sa == SaId::NONE) {
        out.status = Err(DropReason::OutBlock);
        counters.held.fetch_add(1, Relaxed);
    }
}
