//! Editing of segments: inserting and removing the option, lowering the MSS of the peer, cutting ([`cut`]) and joining
//! ([`join`]) superframes.
//!
//! The kernel's TCP knows nothing of the option. Outbound, the header grows; inbound, it shrinks. Nothing else of a
//! segment changes except what makes room for the option (SACK blocks, the MSS).

pub mod cut;
pub mod join;

use crate::ao::drop::DropReason;
use crate::ao::mkt::OPTION_HEADER_LEN;
use crate::ao::output::OptionFields;
use crate::wire::ip::{self, Layout, MAX_TCP_HEADER_LEN, TCP_HEADER_LEN, be16};
use crate::wire::tcp::{AoOption, Options, Segment, kind};
use arrayvec::ArrayVec;

/// Room for options in a TCP header, in bytes.
pub const MAX_OPTIONS_LEN: usize = MAX_TCP_HEADER_LEN - TCP_HEADER_LEN;

/// The options of a signed segment.
pub type OptionBytes = ArrayVec<u8, MAX_OPTIONS_LEN>;

/// The content of a packet's TCP checksum field, which decides how it is adjusted when the packet is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumState {
    /// The checksum, right or wrong. It is adjusted by the difference, so that a wrong one stays wrong for the
    /// receiver.
    Complete,
    /// The sum of the pseudo-header, which a device completes (a packet that has never been on a wire).
    Partial,
}

/// Builds the options of a signed segment: TCP-AO first, with its MAC zeroed and padded with NOPs to whole words as in
/// Linux, then those of the segment. SACK blocks that do not fit are left out, the last ones first. A SYN does not
/// offer SACK when the connection will have no room for a block.
///
/// # Errors
/// [`DropReason::NoRoom`] when they do not fit even without SACK blocks; [`DropReason::BadHeader`] when they do not fit
/// and are malformed.
pub fn options_with(fields: &OptionFields, options: &[u8]) -> Result<OptionBytes, DropReason> {
    let mut out = OptionBytes::new();
    let padded = fields.padded_len();
    if padded > MAX_OPTIONS_LEN {
        return Err(DropReason::NoRoom);
    }
    let len = OPTION_HEADER_LEN + fields.mac_len;
    out.extend([kind::AO, len as u8, fields.key_id, fields.rnext_key_id]);
    out.extend(core::iter::repeat_n(0, fields.mac_len));
    out.extend(core::iter::repeat_n(kind::NOP, padded - len));
    let room = MAX_OPTIONS_LEN - padded;
    if options.len() <= room {
        out.extend(options.iter().copied());
        withdraw_sack(&mut out[padded..], padded);
        return Ok(out);
    }
    // The padding between options is dropped, and SACK gets the room that all others leave.
    let parsed = || Options::new(options).map(|o| o.map_err(|_| DropReason::BadHeader));
    let mut others = 0;
    for option in parsed() {
        let option = option?;
        others += if matches!(option.kind(), kind::NOP | kind::SACK) { 0 } else { aligned_len(option.bytes) };
    }
    let mut sack_room = room.checked_sub(others).ok_or(DropReason::NoRoom)?;
    for option in parsed().filter_map(Result::ok).filter(|o| o.kind() != kind::NOP) {
        let bytes = if option.kind() == kind::SACK {
            let blocks = (option.bytes.len() - 2) / 8;
            let fitting = blocks.min(sack_room.saturating_sub(4) / 8);
            if fitting == 0 {
                continue;
            }
            sack_room -= 4 + 8 * fitting;
            &option.bytes[..2 + 8 * fitting]
        } else {
            option.bytes
        };
        out.extend(core::iter::repeat_n(kind::NOP, aligned_len(bytes) - bytes.len()));
        let start = out.len();
        out.extend(bytes.iter().copied());
        out[start + 1] = bytes.len() as u8;
    }
    Ok(out)
}

/// Length of an option with NOPs in front of it up to whole words.
fn aligned_len(option: &[u8]) -> usize {
    option.len().next_multiple_of(4)
}

/// Lengths in the header of timestamps and of one SACK block, with the NOPs that Linux puts in front of them.
const TIMESTAMPS_LEN: usize = 12;
const SACK_BLOCK_LEN: usize = 12;

/// Takes SACK-permitted out of the options of a SYN with timestamps when a signature of `option_len` bytes leaves no
/// room for one SACK block: MACs longer than 12 bytes. Only a SYN has that option (RFC 2018 section 2).
///
/// A sender that negotiated SACK does not count duplicate acknowledgments without SACK blocks, so that it repeats a
/// lost segment only when its timer expires, after 200 ms or more. Without SACK it counts them (RFC 6582). Linux's own
/// TCP-AO offers SACK nevertheless.
fn withdraw_sack(options: &mut [u8], option_len: usize) {
    if option_len + TIMESTAMPS_LEN + SACK_BLOCK_LEN <= MAX_OPTIONS_LEN {
        return;
    }
    let (mut permitted, mut timestamps) = (None, false);
    for option in Options::new(options).map_while(Result::ok) {
        match option.kind() {
            kind::SACK_PERMITTED => permitted = Some(option.at..option.at + option.bytes.len()),
            kind::TIMESTAMPS => timestamps = true,
            _ => {}
        }
    }
    if let Some(permitted) = permitted.filter(|_| timestamps) {
        options[permitted].fill(kind::NOP);
    }
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

fn set_header_len(packet: &mut [u8], at: &Layout) {
    let words = (at.tcp_header_len() / 4) as u8;
    let byte = &mut packet[at.tcp_at + 12];
    *byte = words << 4 | *byte & 0x0f;
}

/// Inserts the option into one segment, as [`cut::Cut`] does for a segment that is not cut.
///
/// Writes the packet to `out` and returns its layout there; the MAC is still zero and the TCP checksum stale until
/// [`mac::sign`](crate::ao::mac::sign).
///
/// # Errors
/// As [`options_with`]; [`DropReason::Overload`] when `out` is too small.
pub fn insert(segment: &Segment<'_>, fields: &OptionFields, out: &mut [u8]) -> Result<Layout, DropReason> {
    let cut = cut::Cut::new(segment, fields, usize::MAX)?;
    cut.write(segment.packet(), out)?;
    Ok(cut.layout(0))
}
