//! From the TUN device to the wire.

use crate::counters::Counters;
use crate::flight::{BegunBurst, Completed, InFlight};
use crate::receiver::Frames;
use crate::tables::{Locked, Tables};
use crate::worker::Worker;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::data::{BURST, Run};
use sealane_engine_xfrm::device::crypto::{CryptoBurst, Direction};
use sealane_net_ipsec::burst::Jobs;
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::seal::Outbound;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// The most bursts that leave states of IP-TFS before others have their turn.
const GATHERED_TURN: usize = 32;

impl Worker {
    /// Seals and sends a burst of the stack's packets. Returns whether there may be more.
    ///
    /// # Errors
    /// The device's, which is gone then.
    pub(crate) fn outbound(&mut self) -> io::Result<bool> {
        let Worker { shared, tables, rx, tx, stack, flights, .. } = self;
        let Some(mut burst) = flights.begin() else { return Ok(true) };
        let mut packets: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        let mut runs: ArrayVec<Run, BURST> = ArrayVec::new();
        let frames = rx.frames(shared, tables, &mut burst.buffer, &mut packets, &mut runs)?;
        let Frames { cpu, device, more } = frames;
        tables.routes.set_device(device);
        if packets.is_empty() {
            drop(packets);
            flights.put(burst);
            return Ok(more);
        }
        let mut jobs = Jobs::new();
        // Looked at before the policies: when the rules of a former daemon go, new policies may have come after our
        // look at them.
        let is_leftover = shared.is_leftover();
        let begun = tables.outbound(shared, cpu, &runs, &mut packets, &mut jobs);
        // What has come late was covered a moment ago, and its route was another one than ours.
        if is_leftover || tables.are_late() {
            hold_unprotected(&mut packets, &shared.counters);
        }
        if begun.is_none() && flights.is_empty(Direction::Encrypt) {
            tx.send(&packets, tables, stack);
            drop(packets);
            flights.put(burst);
        } else {
            let rest = BegunBurst::outbound(&packets, device);
            drop(packets);
            go_on_later(flights, burst, rest, jobs, begun);
        }
        Ok(more)
    }

    /// Sends what leaves states of IP-TFS now, and gives to the stack what came out of them; with `more` of the stack's packets at
    /// hand, only outer packets that these add nothing to. At a rate that this thread does not keep up with there would be no end.
    pub(crate) fn gathered(&mut self, more: bool) {
        let Worker { shared, tables, tx, stack, flights, .. } = self;
        tables.routes.set_device(0);
        for _ in 0..GATHERED_TURN {
            let is_due = tables.until_gathered(shared).is_some_and(|wait| wait.is_zero());
            if !is_due {
                return;
            }
            let Some(mut burst) = flights.begin() else { return };
            let mut packets: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
            let mut jobs = Jobs::new();
            let begun = tables.gathered(shared, &mut burst.buffer, &mut packets, &mut jobs, more);
            let is_last = more && packets.is_empty();
            if packets.is_empty() || begun.is_none() && flights.is_empty(Direction::Encrypt) {
                tx.send(&packets, tables, stack);
                drop(packets);
                flights.put(burst);
            } else {
                let rest = BegunBurst::outbound(&packets, 0);
                drop(packets);
                go_on_later(flights, burst, rest, jobs, begun);
            }
            stack.deliver_emerged(shared, tables, false);
            if is_last {
                return;
            }
        }
    }

    /// Ends bursts that cores are done with, and those that waited behind them. Returns whether there were any.
    pub(crate) fn complete(&mut self) -> bool {
        let mut any = false;
        while let Some(done) = self.flights.next_done() {
            any = true;
            match done {
                Completed::Out(mut done) => {
                    let Worker { shared, tables, tx, stack, flights, .. } = self;
                    let device = done.device;
                    let (mut packets, jobs, statuses) = done.parts();
                    Tables::outbound_end(shared, &mut packets, jobs, statuses);
                    tables.routes.set_device(device);
                    tx.send(&packets, tables, stack);
                    drop(packets);
                    flights.put(done.burst);
                }
                Completed::In(done, origin) => self.complete_inbound(done, origin),
                Completed::Lost(reasons) => {
                    Tables::lost(&self.shared, &reasons);
                    self.flush_superframe();
                }
            }
        }
        any
    }
}

/// Hands a burst over to a core where the engine is still locked for that, or lets it wait for those before it.
fn go_on_later(
    flights: &mut InFlight,
    burst: Box<CryptoBurst>,
    rest: BegunBurst,
    jobs: Jobs,
    begun: Option<Locked<'_>>,
) {
    match begun {
        None => flights.enqueue(burst, Direction::Encrypt, rest),
        Some(locked) => {
            flights.submit(burst, Direction::Encrypt, rest, jobs, &locked.xfrm);
            locked.finish();
        }
    }
}

/// Holds back packets that no policy is for: rules led them here, so there was a policy.
fn hold_unprotected(packets: &mut [Outbound<'_>], counters: &Counters) {
    for out in packets.iter_mut().filter(|out| out.status.is_ok() && out.sa == SaId::NONE) {
        out.status = Err(DropReason::OutBlock);
        counters.held.fetch_add(1, Relaxed);
    }
}
