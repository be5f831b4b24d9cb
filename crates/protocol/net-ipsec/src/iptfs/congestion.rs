//! Congestion control (RFC 9347 sections 2.4.2 and 3) by TFRC (RFC 5348): the rate at which packets leave to a peer follows what the
//! peer says of the packets that it gets, and the peer is told the same of its own.
//!
//! ```text
//!  packets from the peer ─ numbers, marks ─▶ losses ─ loss event rate ─▶ headers of packets to the peer
//!                        └ headers ────────▶ sending: RTT, rate ───────▶ times of packets to the peer
//! ```
//!
//! Feedback is in every header. What the packets carry has no part in any of that, so that the rate tells of the path alone.

pub mod equation;
pub mod header;
pub mod losses;
pub mod sending;

use self::header::CcHeader;
use self::losses::Losses;
use self::sending::{Sending, time};
use crate::iptfs::config::{NS_IN_US, Rate};

/// Congestion control of the packets to a peer and from it.
#[derive(Debug, Clone)]
pub struct Congestion {
    losses: Losses,
    sending: Sending,
    /// The association whose numbers count, by the order in which they were added; `None` until one brings a packet.
    serial: Option<u64>,
    /// The last time of the peer's clock, and when it came first.
    told: Option<(u32, u64)>,
}

impl Congestion {
    /// One that knows nothing of its path.
    #[must_use]
    pub fn new(rate: &Rate) -> Self {
        Congestion { losses: Losses::default(), sending: Sending::new(rate), serial: None, told: None }
    }

    /// Changes the highest rate.
    pub fn set_rate(&mut self, rate: &Rate) {
        self.sending.set_rate(rate);
    }

    /// The rate.
    #[must_use]
    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    /// Takes note of an authentic payload with this sequence number, never the same twice, and of whether its packet was marked as
    /// having met congestion. `serial` is higher for the association of newer keys, and numbers of older ones count no more.
    pub fn input(&mut self, serial: u64, number: u64, payload: &[u8], marked: bool, now_ns: u64) {
        let header = CcHeader::parse(payload);
        if let Some(header) = header.filter(|header| header.rtt_us != 0) {
            self.losses.set_rtt(u64::from(header.rtt_us) * NS_IN_US);
        }
        if Some(serial) > self.serial {
            self.serial = Some(serial);
            self.losses.renumber(number);
        }
        if Some(serial) == self.serial {
            self.losses.arrive(number, marked, header.is_some_and(|header| header.probing), now_ns);
        }
        let Some(header) = header else { return };
        if self.told.is_none_or(|(time, _)| time != header.time) {
            self.told = Some((header.time, now_ns));
        }
        self.sending.feedback(&header, now_ns);
    }

    /// An association from the peer is deleted. If its numbers counted, those of the next one that brings a packet do: keys that
    /// were newer may go before older ones.
    pub fn forget(&mut self, serial: u64) {
        if self.serial == Some(serial) {
            self.serial = None;
        }
    }

    /// The interval from a packet that leaves now to the next one, in nanoseconds, and its header, where the offset is missing.
    pub fn output(&mut self, now_ns: u64) -> (u64, CcHeader) {
        self.sending.handle_timeout(now_ns);
        let interval_ns = self.sending.interval_ns();
        let in_us = |ns: u64| u32::try_from(ns / NS_IN_US).unwrap_or(u32::MAX);
        let (loss_interval, marked) = self.losses.loss_interval();
        let (echo, echo_delay_us) =
            self.told.map_or((0, 0), |(time, at_ns)| (time, in_us(now_ns.saturating_sub(at_ns))));
        let header = CcHeader {
            probing: false,
            marked,
            offset: 0,
            loss_interval,
            rtt_us: self.sending.rtt_us(),
            echo_delay_us,
            transmit_delay_us: in_us(interval_ns),
            time: time(now_ns),
            echo,
        };
        (interval_ns, header)
    }
}
