//! Judging of bursts: what of it needs the lock of the engine, and what does not.

use super::homes;
use super::path::Shared;
use super::tables::Sockets;
use sealane_crypto::mac::MacTfm;
use sealane_engine_ao::{Hurry, Inbound, Outbound, SignBurst, VerifyBurst};
use sealane_net_ao::traffic::Wanted;
use std::sync::Arc;

/// The most traffic keys that are looked for at once, for connections whose segments do not wait for them. They are asked for as long as
/// the desk has time.
const AT_ONCE: usize = 4096;

impl Shared {
    /// Judges inbound packets and removes the option from authentic ones. Changed connections are saved when this
    /// returns, that is, before the segment that completes a handshake is delivered.
    pub(super) fn verify(&self, work: &mut VerifyBurst, packets: &mut [Inbound<'_>], kernel: &mut Sockets) {
        let (mut dirty, mut changed) = (false, false);
        let mut rest = packets;
        while !rest.is_empty() {
            let count = kernel.ask_unlocked(|kernel| self.engine.lock().begin_input(work, rest, kernel));
            let (now, later) = rest.split_at_mut(count);
            work.run(now, &mut |wanted| self.derive(wanted));
            let mut engine = self.engine.lock();
            engine.end_input(work, now, kernel, self.now_ms());
            dirty |= engine.dirty();
            changed |= engine.has_changes();
            drop(engine);
            work.finish(now);
            rest = later;
        }
        if dirty {
            self.save();
        }
        if changed {
            self.keep_changes();
        }
    }

    /// Judges and signs the first of `packets`, which are outbound. Returns their number; their pieces may leave then.
    pub(super) fn sign(&self, work: &mut SignBurst, packets: &mut [Outbound<'_>], kernel: &mut Sockets) -> usize {
        let now_ms = self.now_ms();
        let count = kernel.ask_unlocked(|kernel| self.engine.lock().begin_output(work, packets, kernel, now_ms));
        let now = &mut packets[..count];
        work.run(now, &mut |wanted| self.derive(wanted));
        let mut engine = self.engine.lock();
        engine.end_output(work, now, kernel, now_ms);
        let (dirty, changed) = (engine.dirty(), engine.has_changes());
        drop(engine);
        if dirty {
            self.save();
        }
        if changed {
            self.keep_changes();
        }
        count
    }

    /// Asks for a traffic key for which a segment waits. No lock may be held.
    fn derive(&self, wanted: &Wanted) -> Option<Arc<MacTfm>> {
        self.desk.derive(wanted, Hurry::Segment, &homes::now)
    }

    /// Asks for traffic keys that connections will need: when their peer asks for another key nobody has to be asked for it. Those that
    /// could not be had before are asked for again. To be called about once a second.
    pub(super) fn derive_ahead(&self) {
        let now = homes::now();
        if !self.desk.has_time(now) {
            return;
        }
        let resting = self.desk.resting(now);
        let wanted = self.engine.lock().wanted(AT_ONCE, |wanted| !resting.has(wanted));
        for (id, wanted) in wanted {
            if !self.desk.has_time(homes::now()) {
                return;
            }
            // Without an answer the next key may still be somebody else's.
            if let Some(tfm) = self.desk.derive(&wanted, Hurry::Later, &homes::now) {
                self.engine.lock().give(id, &wanted, &tfm);
            }
        }
    }
}
