//! Packets of a burst that have been judged and not yet opened.
//!
//! Linux takes packets one by one: the second is judged by the window that the first has moved. A burst is judged before any of
//! it is opened, and who sends forged packets knows which of them are authentic as little as we do. So a packet waits for the next
//! round, untouched, where it would be judged otherwise if those in front of it were authentic; and so does all behind it of the
//! same association. In order, as packets come, none waits.

use crate::ipsec::burst::{BURST, Job, Jobs};
use crate::ipsec::sa::{Hot, Sa, SaId};
use arrayvec::ArrayVec;

/// Their jobs, and what they may change by association.
pub(super) struct Unsettled<'j> {
    /// Which packet is being judged.
    pub(super) packet: u8,
    jobs: &'j mut Jobs,
    ids: ArrayVec<SaId, BURST>,
    of: ArrayVec<Ahead, BURST>,
}

/// What those of one association may change.
struct Ahead {
    /// The highest number that the window may have seen then.
    top: u64,
    packets: u64,
    /// At most so many.
    bytes: u64,
    /// Whether one waits for the next round.
    waits: bool,
}

impl<'j> Unsettled<'j> {
    /// None yet.
    pub(super) fn new(jobs: &'j mut Jobs) -> Self {
        jobs.clear();
        Unsettled { packet: 0, jobs, ids: ArrayVec::new(), of: ArrayVec::new() }
    }

    /// Whether the next packet, of the number `seq`, is to wait for what is in front of it.
    pub(super) fn must_wait(&mut self, id: SaId, hot: &Hot, sa: &Sa, seq: u32) -> bool {
        let Some(ahead) = self.find(id) else { return false };
        let (jobs, ahead) = (&*self.jobs, &mut self.of[ahead]);
        let window = &sa.window;
        let whole = window.extend(seq);
        let is_twice = || jobs.iter().any(|job| job.sa == id && job.named.number() == whole);
        ahead.waits = ahead.waits
            || hot.packets_left <= ahead.packets
            || hot.bytes_left <= ahead.bytes
            || !window.would_say_the_same(seq, ahead.top)
            // In order each number is above all others.
            || window.size_pkts() != 0 && whole <= ahead.top && is_twice();
        ahead.waits
    }

    /// The packet is going to be opened, of `len` bytes.
    pub(super) fn push(&mut self, job: Job, sa: &Sa, len: usize) {
        let (id, whole) = (job.sa, job.named.number());
        self.jobs.push(Job { at: self.packet, ..job });
        let at = self.find(id).unwrap_or_else(|| {
            self.ids.push(id);
            self.of.push(Ahead { top: sa.window.top(), packets: 0, bytes: 0, waits: false });
            self.of.len() - 1
        });
        let ahead = &mut self.of[at];
        ahead.packets += 1;
        ahead.bytes += len as u64;
        if sa.window.may_move_to(whole) {
            ahead.top = ahead.top.max(whole);
        }
    }

    fn find(&self, id: SaId) -> Option<usize> {
        self.ids.iter().rposition(|of| *of == id)
    }
}
