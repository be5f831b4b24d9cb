//! IP-TFS (RFC 9347) as Linux has it (`net/xfrm/xfrm_iptfs.c`): an outer packet carries several inner ones, or a piece of one.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Sub-type (0) | Reserved (0)  |          BlockOffset          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  rest of a packet, BlockOffset bytes; then packets; padding   |
//! ```
//!
//! (RFC 9347 section 6.1.1.) A block begins with an IP header, whose version and length say what it is. There is no clock
//! here: times are nanoseconds that the caller passes.

pub mod receive;
pub mod send;

use crate::ipsec::id::{MAX_DEPTH, SaId};
use arrayvec::ArrayVec;

/// The header of a payload without congestion control, in bytes.
pub const HEADER_LEN: usize = 4;

/// The header of a payload with congestion control (RFC 9347 section 6.1.2), in bytes.
pub const CC_HEADER_LEN: usize = 24;

pub(crate) const SUBTYPE_BASIC: u8 = 0;
pub(crate) const SUBTYPE_CC: u8 = 1;

const NS_IN_US: u64 = 1000;

/// The properties of an association in this mode; each matters for one direction only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Out: packets that do not fit one outer packet are refused instead of cut.
    pub dont_frag: bool,
    /// Out: roughly the size of an outer packet in bytes, as Linux counts it (without trailer and ICV); 0 for what the path
    /// takes.
    pub pkt_size: u32,
    /// Out: the most bytes that wait.
    pub max_queue_len: u32,
    /// Out: microseconds that the first packet waits for others.
    pub init_delay_us: u32,
    /// In: the most outer packets by which one may be late.
    pub reorder_pkts: u16,
    /// In: microseconds after which an outer packet that has not come is given up.
    pub drop_time_us: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            dont_frag: false,
            pkt_size: 0,
            max_queue_len: 1024 * 10_240,
            init_delay_us: 0,
            reorder_pkts: 3,
            drop_time_us: 1_000_000,
        }
    }
}

/// What an outer packet gives to the packets that begin in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The associations that opened it, outermost first.
    pub path: ArrayVec<SaId, MAX_DEPTH>,
    /// Its mark.
    pub mark: u32,
}

/// The changing part of an association in this mode.
pub(crate) struct Aggregation {
    pub(crate) config: Config,
    pub(crate) receiver: receive::Receiver,
    pub(crate) sender: send::Sender,
    /// The timer that runs: the thread that it is for, and its time.
    pub(crate) timer: Option<(u32, u64)>,
}

impl Aggregation {
    pub(crate) fn new(config: Config) -> Self {
        let receiver = receive::Receiver::new(&config);
        Aggregation { config, receiver, sender: send::Sender::default(), timer: None }
    }

    /// When there is something to do next; 0 for at once.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        [self.receiver.poll_timeout(), self.sender.poll_timeout()].into_iter().flatten().min()
    }
}
