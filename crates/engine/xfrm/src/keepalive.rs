//! NAT keep-alives and their timers.

use crate::serial::Serial;
use crate::timers::{Timer, Timers};
use core::net::IpAddr;

/// A datagram of one byte, 0xff (RFC 3948 section 2.3), that keeps a NAT from forgetting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Its source port.
    pub sport: u16,
    /// Its destination port.
    pub dport: u16,
}

/// The times of a state's next checks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NextChecks {
    /// The next one.
    pub(crate) next: Option<Timer>,
    /// Not before then, in seconds of wall time: it had been used.
    pub(crate) not_before_s: u64,
}

/// States by the time of their next check.
#[derive(Default)]
pub(crate) struct Keepalives(pub(crate) Timers);

impl Keepalives {
    /// When the first is looked at, in seconds of wall time.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.0.first_s()
    }

    pub(crate) fn forget(&mut self, serial: Serial, looked: NextChecks) {
        if let Some(timer) = looked.next {
            self.0.stop(timer, serial);
        }
    }
}
