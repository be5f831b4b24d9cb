//! Editing of segments: inserting and removing the option, lowering the MSS of the peer, cutting ([`cut`]) and joining
//! ([`join`]) superframes.
//!
//! The kernel's TCP knows nothing of the option. Outbound, the header grows; inbound, it shrinks. Nothing else of a
//! segment changes except what makes room for the option (SACK blocks, the MSS).

pub mod cut;
pub mod join;
mod options;

use crate::drop::DropReason;
use crate::mkt::OPTION_HEADER_LEN;
use crate::output::OptionFields;
use options::{set_header_len, withdraw_sack};
use sealane_wire::ip::{self, Layout, TCP_HEADER_LEN, be16};
use sealane_wire::tcp::{AoOption, Options, Segment, kind};

pub use options::{MAX_OPTIONS_LEN, OptionBytes, options_with};

/// The content of a packet's TCP checksum field, which decides how it is adjusted when the packet is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumState {
    /// The checksum, right or wrong. It is adjusted by the difference, so that a wrong one stays wrong for the
    /// receiver.
    Complete,
    /// The sum of the pseudo-header, which a device completes (a packet that has never been on a wire).
    Partial,
}

/// The largest payload of a signed segment in bytes when the whole packet may have `mtu` bytes; 0 when not even the
/// headers fit.
#[must_use]
pub fn max_payload(at: &Layout, options_len: usize, mtu: usize) -> usize {
    mtu.saturating_sub(at.tcp_at + TCP_HEADER_LEN + options_len)
}

/// Removes the option from a segment, with its padding, so that the header stays a multiple of whole words. The payload
/// stays in place and the headers move towards it. Returns the offset at which the packet now starts in `packet`, and
/// its layout from there.
///
/// ```text
///  before  | IP | TCP | NOP NOP TS | TCP-AO | payload |
///  after          | IP | TCP | NOP NOP TS   | payload |
/// ```
///
/// # Panics
/// When `option` is not what [`Segment::auth`] found in this packet.
#[must_use]
pub fn strip(packet: &mut [u8], at: &Layout, option: &AoOption, checksum: ChecksumState) -> (usize, Layout) {
    let options = &packet[at.tcp_at + TCP_HEADER_LEN..at.payload_at];
    let (from, to) = padded_extent(options, option);
    let removed = (to - from) & !3;
    // A remainder of less than a word becomes NOPs in place of the option.
    let kept_at = at.tcp_at + TCP_HEADER_LEN + from + removed;
    let (gone_at, old) = (at.tcp_at + TCP_HEADER_LEN + from, before_edit(packet, at));
    packet[kept_at..at.tcp_at + TCP_HEADER_LEN + to].fill(kind::NOP);
    packet.copy_within(..gone_at, removed);
    let new_at = Layout { payload_at: at.payload_at - removed, end: at.end - removed, ..*at };
    let packet = &mut packet[removed..];
    set_header_len(packet, &new_at);
    ip::set_len(packet, &new_at);
    after_edit(packet, &new_at, checksum, &old);
    (removed, new_at)
}

/// The extent of the option with removable padding around it: NOPs and EOLs behind it, then NOPs in front of it, up to
/// whole words.
fn padded_extent(options: &[u8], option: &AoOption) -> (usize, usize) {
    let (mut from, mut to) = (option.at, option.at + OPTION_HEADER_LEN + option.mac_len);
    // An EOL is padding only if nothing but zeros follows; otherwise it ends the options before other bytes.
    let ends = options[to..].iter().all(|b| *b == kind::EOL);
    while (to - from) % 4 != 0 && options.get(to).is_some_and(|b| *b == kind::NOP || ends) {
        to += 1;
    }
    // A NOP before the option may also be the last byte of another one: only a walk can tell.
    let before = Options::new(&options[..from]).map_while(Result::ok);
    let nops = before.fold(0, |run, o| if o.kind() == kind::NOP { run + 1 } else { 0 });
    from -= nops.min((4 - (to - from) % 4) % 4);
    (from, to)
}

/// Edits the options of a received SYN or SYN-ACK so that segments of the kernel leave room for our `option_len` bytes:
/// the MSS becomes the smaller of the peer's and of what fits into `mtu`, less `option_len`, and SACK-permitted is
/// removed where no block would fit. Without an MSS option the kernel uses the default of 536 or 1220 bytes, which
/// leaves room.
///
/// # Panics
/// When `at` is not the layout of `packet`.
pub fn make_room(packet: &mut [u8], at: &Layout, mtu: usize, option_len: usize, checksum: ChecksumState) {
    let old = before_edit(packet, at);
    let options_at = at.tcp_at + TCP_HEADER_LEN;
    withdraw_sack(&mut packet[options_at..at.payload_at], option_len);
    let mut options = Options::new(&packet[options_at..at.payload_at]).map_while(Result::ok);
    if let Some(mss) = options.find(|o| o.kind() == kind::MSS && o.bytes.len() == 4) {
        let mss_at = options_at + mss.at + 2;
        // The MSS counts no options, neither IP's nor TCP's (RFC 6691).
        let headers = if at.family == ip::Family::V4 { 20 } else { ip::V6_HEADER_LEN } + TCP_HEADER_LEN;
        let fits = usize::from(be16(packet, mss_at)).min(mtu.saturating_sub(headers)).saturating_sub(option_len);
        packet[mss_at..mss_at + 2].copy_from_slice(&(fits as u16).to_be_bytes());
    }
    after_edit(packet, at, checksum, &old);
}

/// The sum of pseudo-header and TCP header before an edit.
struct OldSum(u64);

fn before_edit(packet: &[u8], at: &Layout) -> OldSum {
    OldSum(ip::sum(&packet[at.tcp_at..at.payload_at], ip::pseudo_sum(packet, at)))
}

/// Adjusts the TCP checksum for changes of pseudo-header and TCP header since then (RFC 1624).
fn after_edit(packet: &mut [u8], at: &Layout, checksum: ChecksumState, old: &OldSum) {
    if checksum == ChecksumState::Partial {
        return ip::set_partial_checksum(packet, at);
    }
    // Both sums contain the old checksum, which cancels out: HC' = ~(~HC + ~m + m').
    let new = ip::sum(&packet[at.tcp_at..at.payload_at], ip::pseudo_sum(packet, at));
    let field = at.tcp_at + 16;
    let checksum = u64::from(!be16(packet, field)) + u64::from(ip::finish(old.0)) + new;
    packet[field..field + 2].copy_from_slice(&ip::finish(checksum).to_be_bytes());
}

/// Inserts the option into one segment, as [`cut::Cut`] does for a segment that is not cut.
///
/// Writes the packet to `out` and returns its layout there; the MAC is still zero and the TCP checksum stale until
/// [`mac::sign`](crate::mac::sign).
///
/// # Errors
/// As [`options_with`]; [`DropReason::Overload`] when `out` is too small.
pub fn insert(segment: &Segment<'_>, fields: &OptionFields, out: &mut [u8]) -> Result<Layout, DropReason> {
    let cut = cut::Cut::new(segment, fields, usize::MAX)?;
    cut.write(segment.packet(), out)?;
    Ok(cut.layout(0))
}
