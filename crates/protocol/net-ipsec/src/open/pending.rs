//! Packets of a burst that passed the first checks and are not yet known to be authentic.
//!
//! Linux processes packets one by one: the second one is checked against the window that the first has moved. Here the
//! whole burst is checked before any of it is opened, and it is not known which packets are authentic, as some may be
//! forged. So a packet waits for the next round, unchanged, if its verdict would differ once those in front of it are
//! found authentic; and so do all behind it of the same association. Packets that arrive in order never wait.

use crate::burst::{BURST, Job, Jobs};
use crate::replay::Window;
use crate::sa::{Hot, SaId};
use arrayvec::ArrayVec;

/// The jobs of these packets, and their possible effect on each association.
pub(super) struct Pending<'j> {
    pub(super) jobs: &'j mut Jobs,
    ids: ArrayVec<SaId, BURST>,
    entries: ArrayVec<PendingSa, BURST>,
}

/// The possible effect of the pending packets of one association.
struct PendingSa {
    /// The highest number that the window may have seen by then.
    top: u64,
    packets: u64,
    /// An upper bound.
    bytes: u64,
    /// Whether a packet waits for the next round.
    waits: bool,
}

impl<'j> Pending<'j> {
    /// Starts a burst without jobs.
    pub(super) fn new(jobs: &'j mut Jobs) -> Self {
        jobs.clear();
        Pending { jobs, ids: ArrayVec::new(), entries: ArrayVec::new() }
    }

    /// Whether the next packet, with `seq` in its header and `whole` as its inferred number, must wait for those in
    /// front of it.
    #[inline]
    pub(super) fn must_wait(&mut self, id: SaId, hot: &Hot, window: &Window, seq: u32, whole: u64) -> bool {
        let Some(at) = self.find(id) else { return false };
        let entry = &mut self.entries[at];
        entry.waits = entry.waits
            || hot.packets_left <= entry.packets
            || hot.bytes_left <= entry.bytes
            || !window.is_above(whole, entry.top)
                && (!window.would_say_the_same(seq, entry.top) || is_duplicate(window, id, whole, self.jobs));
        entry.waits
    }

    /// Records another packet of `len` bytes that will be opened; its job is pushed by the caller.
    #[inline]
    pub(super) fn push(&mut self, id: SaId, window: &Window, whole: u64, len: usize) {
        let at = self.find(id).unwrap_or_else(|| {
            self.ids.push(id);
            self.entries.push(PendingSa { top: window.top(), packets: 0, bytes: 0, waits: false });
            self.entries.len() - 1
        });
        let entry = &mut self.entries[at];
        entry.packets += 1;
        entry.bytes += len as u64;
        if whole > entry.top && window.may_move_to(whole) {
            entry.top = whole;
        }
    }

    #[inline]
    fn find(&self, id: SaId) -> Option<usize> {
        // Most bursts are all of one association.
        if self.ids.last() == Some(&id) {
            return Some(self.ids.len() - 1);
        }
        self.ids.iter().rposition(|of| *of == id)
    }
}

/// Whether a job already has this number.
#[cold]
fn is_duplicate(window: &Window, id: SaId, whole: u64, jobs: &[Job]) -> bool {
    window.size_pkts() != 0 && jobs.iter().any(|job| job.sa == id && job.spi_seq.number() == whole)
}
