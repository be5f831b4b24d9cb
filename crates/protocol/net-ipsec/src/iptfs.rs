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

mod config;
pub mod congestion;
pub mod pace;
pub mod receive;
pub mod send;

pub(crate) use config::NS_IN_US;
pub use config::{CC_HEADER_LEN, Config, HEADER_LEN, Origin, PairKey, Rate};

/// The changing part of an association in this mode.
pub(crate) struct Aggregation {
    pub(crate) config: Config,
    pub(crate) receiver: receive::Receiver,
    pub(crate) sender: send::Sender,
    /// The times at which outer packets leave, if these do not depend on what is sent.
    pub(crate) pace: Option<pace::Pace>,
    /// The pair whose congestion control it uses.
    pub(crate) pair: Option<PairKey>,
    /// The timer that runs: the thread that it is for, and its time.
    pub(crate) timer: Option<(u32, u64)>,
}

impl Aggregation {
    pub(crate) fn new(config: Config) -> Self {
        let receiver = receive::Receiver::new(&config);
        let pace = config.rate.map(|rate| pace::Pace::new(rate.interval_ns));
        Aggregation { config, receiver, sender: send::Sender::default(), pace, pair: None, timer: None }
    }

    /// When there is something to do next; 0 for at once.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let sender = self.pace.map_or_else(|| self.sender.poll_timeout(), |pace| Some(pace.due_ns()));
        [self.receiver.poll_timeout(), sender].into_iter().flatten().min()
    }
}
