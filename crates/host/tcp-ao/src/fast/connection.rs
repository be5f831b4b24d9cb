//! The connections of the fast path, and the result of serving their rings.

use sealane_engine_ao::Ends;
use sealane_packets::fast_path::Idle;
use sealane_rules::ao::Flow;
use sealane_wire::tcp::Segment;

/// After this many ticks without progress, packets given to the stack are taken not to arrive.
const STUCK_TICKS: u8 = 2;

/// The inbound direction of a connection, with the device by which it comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FastConnection {
    pub(super) device: u32,
    pub(super) ends: Ends,
}

impl FastConnection {
    pub(super) fn flow(&self) -> Flow {
        Flow { device: self.device, source: self.ends.remote, destination: self.ends.local }
    }
}

/// Activity of a connection of the fast path, and whether it makes progress.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Activity {
    /// Authentic segments since the last tick.
    segments: u32,
    idle: Idle,
    /// The highest sequence number and acknowledgment number so far.
    furthest: Option<[u32; 2]>,
    /// Whether either has advanced since the last tick.
    advanced: bool,
    /// Whether the last segment shows a loss: repeated data, or a segment given to the stack that came back by the
    /// queue.
    pub(super) lost: bool,
    stuck_ticks: u8,
}

impl Activity {
    /// Counts a segment that is given to the stack.
    pub(super) fn deliver(&mut self, segment: &Segment<'_>) {
        self.segments += 1;
        let len = segment.layout().payload_len();
        let ack = segment.header()[8..12].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
        let at = [segment.seq().wrapping_add(len as u32), ack];
        let furthest = self.furthest.get_or_insert(at);
        let mut further = false;
        for (furthest, at) in furthest.iter_mut().zip(at) {
            if at.wrapping_sub(*furthest).cast_signed() > 0 {
                *furthest = at;
                further = true;
            }
        }
        self.advanced |= further;
        // One byte may be a window probe.
        self.lost = !further && (self.lost || len > 1);
    }

    /// Evaluates the time since the last tick: whether the connection has been idle for too long, and whether it is
    /// stuck.
    pub(super) fn tick(&mut self) -> (bool, bool) {
        let is_idle = self.idle.tick(self.segments);
        self.stuck_ticks = match (self.lost, self.advanced) {
            (true, _) => self.stuck_ticks + 1,
            (false, true) => 0,
            (false, false) => self.stuck_ticks,
        };
        (self.segments, self.advanced, self.lost) = (0, false, false);
        (is_idle, self.stuck_ticks >= STUCK_TICKS)
    }
}

/// The result of serving the rings.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingsServed {
    /// Frames that were read.
    pub(crate) frames: usize,
    /// Whether there are superframes that may still grow.
    pub(crate) open: bool,
    /// Whether frames were left in a ring.
    pub(crate) more: bool,
}
