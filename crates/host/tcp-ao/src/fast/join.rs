//! Superframes in the making: segments that follow one another go up together.

use arrayvec::ArrayVec;
use core::ops::Range;
use sealane_engine_ao::Ends;
use sealane_net::ao::segment::join::{Join, Pushed};
use sealane_net::wire::tcp::Segment;
use sealane_sys::ring::Ring;
use sealane_sys::tap::{Headers, MAX_PIECES, Tap};
use std::io;

/// Connections whose superframes grow at a time, as in the kernel (`MAX_GRO_SKBS`).
const MAX_OPEN: usize = 8;
/// Payloads of one superframe; its headers take two pieces more.
const MAX_SEGMENTS: usize = MAX_PIECES - 2;

/// One of them.
struct Open {
    ends: Ends,
    join: Join,
    /// The frames that hold its payloads, and where.
    pieces: ArrayVec<(u64, Range<usize>), MAX_SEGMENTS>,
    /// Whether it grew since the last look.
    grew: bool,
}

/// A delivered segment: its frame, where its IP header starts there, and whether its checksum is partial.
pub(super) struct Delivered {
    pub(super) frame: u64,
    pub(super) from: usize,
    pub(super) end: usize,
    pub(super) partial_checksum: bool,
}

/// All of a device.
#[derive(Default)]
pub(super) struct Joins {
    open: ArrayVec<Open, MAX_OPEN>,
}

impl Joins {
    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The first frame that is still needed.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.open.iter().filter_map(|o| o.pieces.first()).map(|p| p.0).min()
    }

    /// Takes a segment, shows it to `seen`, and gives to the stack what is complete by that.
    ///
    /// # Errors
    /// The stack's, which has lost something then.
    pub(super) fn push(
        &mut self,
        delivered: &Delivered,
        ring: &Ring,
        tap: &mut Tap,
        seen: impl FnOnce(&Segment<'_>),
    ) -> io::Result<()> {
        let bytes = ring.bytes(delivered.frame, delivered.from..delivered.end);
        let Ok(segment) = Segment::parse(bytes) else { return Ok(()) };
        seen(&segment);
        let at = segment.layout();
        let ends = Ends::received(&segment);
        let payload = (delivered.frame, delivered.from + at.payload_at..delivered.end);
        let mut done = Ok(());
        if let Some(i) = self.open.iter().position(|o| o.ends == ends) {
            let open = &mut self.open[i];
            let pushed = if open.pieces.is_full() { Pushed::No } else { open.join.push(&segment) };
            if pushed != Pushed::No {
                open.pieces.push(payload.clone());
                open.grew = true;
            }
            match pushed {
                Pushed::Yes => return Ok(()),
                Pushed::Last => return give(self.open.remove(i), ring, tap),
                Pushed::No => done = give(self.open.remove(i), ring, tap),
            }
        }
        if let Some(join) = Join::start(&segment) {
            if self.open.is_full() {
                done = done.and(give(self.open.remove(0), ring, tap));
            }
            let mut pieces = ArrayVec::new();
            pieces.push(payload);
            self.open.push(Open { ends, join, pieces, grew: true });
            return done;
        }
        let headers = Headers {
            bytes: &bytes[..at.payload_at],
            tcp_at: at.tcp_at,
            partial_checksum: delivered.partial_checksum,
            gso_size: None,
        };
        done.and(tap.give(headers, core::iter::once(&bytes[at.payload_at..])))
    }

    /// Gives up those that have not grown since the last look.
    ///
    /// # Errors
    /// The stack's.
    pub(super) fn look(&mut self, ring: &Ring, tap: &mut Tap) -> io::Result<()> {
        let (mut done, mut i) = (Ok(()), 0);
        while i < self.open.len() {
            if core::mem::take(&mut self.open[i].grew) {
                i += 1;
            } else {
                done = done.and(give(self.open.remove(i), ring, tap));
            }
        }
        done
    }
}

/// Gives a superframe to the stack.
fn give(mut open: Open, ring: &Ring, tap: &mut Tap) -> io::Result<()> {
    let (count, size, tcp_at) = (open.join.count(), open.join.gso_size(), open.join.layout().tcp_at);
    let headers = Headers {
        bytes: open.join.header(),
        tcp_at,
        // The MAC covers more than the checksum does.
        partial_checksum: true,
        gso_size: (count > 1).then_some(size as u16),
    };
    tap.give(headers, open.pieces.iter().map(|(frame, range)| ring.bytes(*frame, range.clone())))
}
