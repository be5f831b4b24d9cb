//! From the TUN device to the wire.

use super::path::Worker;
use super::wire::Wire;
use arrayvec::ArrayVec;
use sealane_engine::xfrm::data::{BURST, Run};
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
    pub(super) fn outbound(&mut self) -> io::Result<bool> {
        let Worker { shared, tables, tun, frame, cutting, arena, routes, udp, raw, out, fast_out, .. } = self;
        let mut packets: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        let mut runs: ArrayVec<Run, BURST> = ArrayVec::new();
        let mut rest = &mut arena[..];
        let mut fresh = true;
        let mut more = true;
        while !packets.is_full() {
            if cutting.is_none() {
                let Some((range, offload)) = tun.read(frame)? else {
                    more = false;
                    break;
                };
                fresh = true;
                match Cutter::new(&mut frame[range.clone()], &offload) {
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
            cutter.next(&frame[range.clone()], &mut slot[HEADROOM..HEADROOM + len]);
            packets.push(Outbound::new(SaId::NONE, Packet::new(slot, HEADROOM, HEADROOM + len)));
            if core::mem::take(&mut fresh) {
                runs.push(Run::new(1));
            } else if let Some(run) = runs.last_mut() {
                run.packets += 1;
            }
        }
        if packets.is_empty() {
            return Ok(more);
        }
        shared.outbound(tables, &runs, &mut packets, routes);
        let mut wire = Wire { udp, raw, out, fast: fast_out, shared, tables, routes };
        wire.send(&packets, tun);
        Ok(more)
    }
}
