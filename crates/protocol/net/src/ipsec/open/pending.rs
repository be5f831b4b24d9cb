//! Packets of a burst that have been judged and not yet opened.
//!
//! Linux takes packets one by one: the second is judged by the window that the first has moved. A burst is judged before any of
//! it is opened, and who sends forged packets knows which of them are authentic as little as we do. So a packet waits for the next
//! round, untouched, where it would be judged otherwise if those in front of it were authentic; and so does all behind it of the
//! same association. In order, as packets come, none waits.

use crate::ipsec::burst::{BURST, Job, Jobs};
use crate::ipsec::replay::Window;
use crate::ipsec::sa::{Hot, SaId};
use arrayvec::ArrayVec;

/// Their jobs, and what they may change by association.
pub(super) struct Pending<'j> {
    pub(super) jobs: &'j mut Jobs,
    ids: ArrayVec<SaId, BURST>,
    entries: ArrayVec<PendingSa, BURST>,
}

/// What those of one association may change.
struct PendingSa {
    /// The highest number that the window may have seen then.
    top: u64,
    packets: u64,
    /// At most so many.
    bytes: u64,
    /// Whether one waits for the next round.
    waits: bool,
}

impl<'j> Pending<'j> {
    /// None yet.
    pub(super) fn new(jobs: &'j mut Jobs) -> Self {
        jobs.clear();
        Pending { jobs, ids: ArrayVec::new(), entries: ArrayVec::new() }
    }

    /// Whether the next packet, which carries `seq` and is taken for number `whole`, is to wait for what is in front of it.
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

    /// Another one is going to be opened, of `len` bytes; its job is there.
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
        // Mostly they are all of one.
        if self.ids.last() == Some(&id) {
            return Some(self.ids.len() - 1);
        }
        self.ids.iter().rposition(|of| *of == id)
    }
}

/// Whether a job has this number already.
#[cold]
fn is_duplicate(window: &Window, id: SaId, whole: u64, jobs: &[Job]) -> bool {
    window.size_pkts() != 0 && jobs.iter().any(|job| job.sa == id && job.spi_seq.number() == whole)
}
