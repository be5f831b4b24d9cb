//! The way up to the stack. Verified segments that follow one another are joined into superframes.

use super::super::counters::Counters;
use arrayvec::ArrayVec;
use core::ops::Range;
use sealane_engine_ao::{Ends, Located};
use sealane_net_ao::segment::join::{Join, Pushed};
use sealane_packets::ring::Ring;
use sealane_packets::tap::{Headers, MAX_PIECES, Tap};
use sealane_sys::link::Facts;
use sealane_sys::marks::Marks;
use sealane_wire::tcp::Segment;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// The most superframes that grow at a time, as in the kernel (`MAX_GRO_SKBS`).
const MAX_OPEN: usize = 8;
/// The most payloads of one superframe; its headers take two more pieces.
const MAX_SEGMENTS: usize = MAX_PIECES - 2;

/// A superframe that may still grow.
struct OpenSuperframe {
    ends: Ends,
    join: Join,
    /// The frames that hold its payloads, and the payloads' ranges.
    pieces: ArrayVec<(u64, Range<usize>), MAX_SEGMENTS>,
    /// Whether it has grown since the last [`ToStack::flush_idle`].
    grew: bool,
}

/// A verified segment in a ring.
pub(super) struct Delivered {
    pub(super) frame: u64,
    /// Offset of its IP header in the packet of the frame.
    pub(super) from: usize,
    /// The segment without its option, from its IP header on.
    pub(super) located: Located,
    pub(super) partial_checksum: bool,
}

impl Delivered {
    /// The segment.
    pub(super) fn segment<'r>(&self, ring: &'r Ring) -> Segment<'r> {
        let at = self.located.at;
        Segment::with_layout(ring.bytes(self.frame, self.from..self.from + at.end), at)
    }
}

/// The way up of one device.
pub(super) struct ToStack {
    tap: Tap,
    open: ArrayVec<OpenSuperframe, MAX_OPEN>,
    /// The reason why no packets can be given to the stack any more.
    broken: Option<String>,
}

impl ToStack {
    /// Opens the way up for a device with these `facts`.
    ///
    /// # Errors
    /// As [`Tap::open`].
    pub(super) fn open(device: u32, facts: &Facts, marks: Marks) -> io::Result<Self> {
        Ok(ToStack { tap: Tap::open(device, facts, marks)?, open: ArrayVec::new(), broken: None })
    }

    /// Whether there is no superframe that may still grow.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The first frame that is still needed.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.open.iter().filter_map(|o| o.pieces.first()).map(|p| p.0).min()
    }

    /// Takes the reason why no packets can be given to the stack any more.
    pub(super) fn broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    /// Adds segments, and gives completed superframes to the stack.
    pub(super) fn push_all(&mut self, delivered: &[Delivered], ring: &Ring, counters: &Counters) {
        for one in delivered {
            let done = self.push(one, ring);
            self.count_result(done, counters);
        }
    }

    /// Gives superframes to the stack that have not grown since the last call.
    pub(super) fn flush_idle(&mut self, ring: &Ring, counters: &Counters) {
        let mut i = 0;
        while i < self.open.len() {
            if core::mem::take(&mut self.open[i].grew) {
                i += 1;
            } else {
                let done = give(self.open.remove(i), ring, &mut self.tap);
                self.count_result(done, counters);
            }
        }
    }

    /// Counts a packet that the stack did not take, and notes a permanent error.
    fn count_result(&mut self, done: io::Result<()>, counters: &Counters) {
        if let Err(e) = done {
            counters.refused.fetch_add(1, Relaxed);
            if !matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR)) {
                self.broken = Some(format!("the stack takes nothing back: {e}"));
            }
        }
    }

    fn push(&mut self, delivered: &Delivered, ring: &Ring) -> io::Result<()> {
        let tap = &mut self.tap;
        let segment = delivered.segment(ring);
        let Located { at, ends } = delivered.located;
        let payload = (delivered.frame, delivered.from + at.payload_at..delivered.from + at.end);
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
            self.open.push(OpenSuperframe { ends, join, pieces, grew: true });
            return done;
        }
        let headers = Headers {
            bytes: &segment.packet()[..at.payload_at],
            tcp_at: at.tcp_at,
            partial_checksum: delivered.partial_checksum,
            gso_size: None,
        };
        done.and(tap.give(headers, core::iter::once(segment.payload())))
    }
}

/// Gives a superframe to the stack.
fn give(mut open: OpenSuperframe, ring: &Ring, tap: &mut Tap) -> io::Result<()> {
    let (count, size, tcp_at) = (open.join.count(), open.join.gso_size(), open.join.layout().tcp_at);
    let headers = Headers {
        bytes: open.join.header(),
        tcp_at,
        // The checksum is not verified again, because the MAC covers more.
        partial_checksum: true,
        gso_size: (count > 1).then_some(size as u16),
    };
    tap.give(headers, open.pieces.iter().map(|(frame, range)| ring.bytes(*frame, range.clone())))
}
