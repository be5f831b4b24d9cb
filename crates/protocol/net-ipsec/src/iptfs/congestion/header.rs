//! The header that tells of congestion.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Sub-type (1) | Reserved  |P|E|          BlockOffset          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                         LossEventRate                         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                 RTT (22)                  |    Echo Delay ... |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |   ... (21)          |            Transmit Delay (21)          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                             TVal                              |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                             TEcho                             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! (RFC 9347 section 6.1.2.)

use crate::iptfs::config::{CC_HEADER_LEN, SUBTYPE_CC};
use sealane_wire::ip::be32;

/// The path's MTU is being probed.
const PROBING: u8 = 2;
/// Congestion was experienced.
const MARKED: u8 = 1;
/// The flags that a header may have.
pub(crate) const KNOWN_FLAGS: u8 = PROBING | MARKED;

/// The longest RTT that a header tells, in microseconds; it stands for longer ones.
pub const MAX_RTT_US: u32 = (1 << 22) - 1;
/// The longest delay that a header tells, in microseconds; it stands for longer ones.
pub const MAX_DELAY_US: u32 = (1 << 21) - 1;

/// The header of a payload with congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CcHeader {
    /// Its sender probes the MTU of the path: what is missing may have been too long.
    pub probing: bool,
    /// The loss event rate also counts packets that are marked as having met congestion.
    pub marked: bool,
    /// The bytes before the first packet that begins.
    pub offset: u16,
    /// The inverse of the loss event rate, 0 without loss: the mean number of packets from one loss event to the next.
    pub loss_interval: u32,
    /// Its sender's estimate of the RTT in microseconds, at most [`MAX_RTT_US`]; 0 before there is one.
    pub rtt_us: u32,
    /// Microseconds since `echo` came, at most [`MAX_DELAY_US`].
    pub echo_delay_us: u32,
    /// Microseconds from one packet of its sender to the next, at most [`MAX_DELAY_US`].
    pub transmit_delay_us: u32,
    /// The time by its sender's clock, which its receiver sends back.
    pub time: u32,
    /// The time of its receiver that came last.
    pub echo: u32,
}

impl CcHeader {
    /// The header of a payload, if it has one of this kind. Nothing in it is judged.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<CcHeader> {
        let header = payload.first_chunk::<CC_HEADER_LEN>()?;
        let [SUBTYPE_CC, flags, high, low, ..] = *header else { return None };
        let times = u64::from(be32(header, 8)) << 32 | u64::from(be32(header, 12));
        Some(CcHeader {
            probing: flags & PROBING != 0,
            marked: flags & MARKED != 0,
            offset: u16::from_be_bytes([high, low]),
            loss_interval: be32(header, 4),
            rtt_us: (times >> 42) as u32,
            echo_delay_us: (times >> 21) as u32 & MAX_DELAY_US,
            transmit_delay_us: times as u32 & MAX_DELAY_US,
            time: be32(header, 16),
            echo: be32(header, 20),
        })
    }

    /// Writes it. Times that are too long become the longest ones.
    pub fn write(&self, to: &mut [u8; CC_HEADER_LEN]) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let [high, low] = self.offset.to_be_bytes();
        let flags = flag(self.probing, PROBING) | flag(self.marked, MARKED);
        let times = u64::from(self.rtt_us.min(MAX_RTT_US)) << 42
            | u64::from(self.echo_delay_us.min(MAX_DELAY_US)) << 21
            | u64::from(self.transmit_delay_us.min(MAX_DELAY_US));
        to[..4].copy_from_slice(&[SUBTYPE_CC, flags, high, low]);
        to[4..8].copy_from_slice(&self.loss_interval.to_be_bytes());
        to[8..16].copy_from_slice(&times.to_be_bytes());
        to[16..20].copy_from_slice(&self.time.to_be_bytes());
        to[20..].copy_from_slice(&self.echo.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_they_belong() {
        let header = CcHeader {
            probing: true,
            marked: false,
            offset: 0x0102,
            loss_interval: 0x0304_0506,
            rtt_us: 1,
            echo_delay_us: 1,
            transmit_delay_us: 1,
            time: 0x0708_090a,
            echo: 0x0b0c_0d0e,
        };
        let mut bytes = [0xee; CC_HEADER_LEN];
        header.write(&mut bytes);
        let wanted = [1, 2, 1, 2, 3, 4, 5, 6, 0, 0, 4, 0, 0, 0x20, 0, 1, 7, 8, 9, 10, 11, 12, 13, 14];
        assert_eq!(bytes, wanted);
        assert_eq!(CcHeader::parse(&bytes), Some(header));
        let long = CcHeader { rtt_us: u32::MAX, echo_delay_us: 0, transmit_delay_us: MAX_DELAY_US + 1, ..header };
        CcHeader { marked: true, ..long }.write(&mut bytes);
        assert_eq!((bytes[1], &bytes[8..16]), (3, &[0xff, 0xff, 0xfc, 0, 0, 0x1f, 0xff, 0xff][..]));
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut seed = 1u64;
        for _ in 0..1000 {
            let mut bytes = [0; CC_HEADER_LEN];
            for byte in &mut bytes {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *byte = (seed >> 56) as u8;
            }
            (bytes[0], bytes[1]) = (1, bytes[1] & KNOWN_FLAGS);
            let mut again = [0; CC_HEADER_LEN];
            CcHeader::parse(&bytes).expect("its sub-type").write(&mut again);
            assert_eq!(bytes, again);
        }
        assert_eq!(CcHeader::parse(&[1; CC_HEADER_LEN - 1]), None, "cut short");
        assert_eq!(CcHeader::parse(&[0; 100]), None, "without congestion control");
    }
}
