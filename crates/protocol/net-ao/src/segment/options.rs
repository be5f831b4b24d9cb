//! The options of a signed segment, and the length of a header with them.

use crate::drop::DropReason;
use crate::mkt::OPTION_HEADER_LEN;
use crate::output::OptionFields;
use arrayvec::ArrayVec;
use sealane_wire::ip::{Layout, MAX_TCP_HEADER_LEN, TCP_HEADER_LEN};
use sealane_wire::tcp::{Options, kind};

/// Room for options in a TCP header, in bytes.
pub const MAX_OPTIONS_LEN: usize = MAX_TCP_HEADER_LEN - TCP_HEADER_LEN;

/// The options of a signed segment.
pub type OptionBytes = ArrayVec<u8, MAX_OPTIONS_LEN>;

/// Builds the options of a signed segment: TCP-AO first, with its MAC zeroed and padded with NOPs to whole words as in
/// Linux, then those of the segment. SACK blocks that do not fit are left out, the last ones first. A SYN does not
/// offer SACK when the connection will have no room for a block. Accurate ECN's counters get what all others leave, as in Linux
/// (`tcp_options_fit_accecn`): some fields or none, which its receiver takes for what it is.
///
/// # Errors
/// [`DropReason::NoRoom`] when they do not fit even without these; [`DropReason::BadHeader`] when they do not fit
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
    let (mut others, mut accecn) = (0, None);
    // Whole words are faster to read; where accurate ECN takes part each byte counts.
    let unit = if parsed().any(|o| o.is_ok_and(|o| is_accecn(o.kind()))) { 1 } else { 4 };
    let len_of = |option: &[u8]| option.len().next_multiple_of(unit);
    for option in parsed() {
        let option = option?;
        match option.kind() {
            kind::NOP | kind::SACK => {}
            kind if is_accecn(kind) => accecn = Some(option.bytes),
            _ => others += len_of(option.bytes),
        }
    }
    let mut sack_room = room.checked_sub(others).ok_or(DropReason::NoRoom)?;
    for option in parsed().filter_map(Result::ok).filter(|o| o.kind() != kind::NOP && !is_accecn(o.kind())) {
        let bytes = if option.kind() == kind::SACK {
            let head = 2_usize.next_multiple_of(unit);
            let blocks = (option.bytes.len() - 2) / 8;
            let fitting = blocks.min(sack_room.saturating_sub(head) / 8);
            if fitting == 0 {
                continue;
            }
            sack_room -= head + 8 * fitting;
            &option.bytes[..2 + 8 * fitting]
        } else {
            option.bytes
        };
        out.extend(core::iter::repeat_n(kind::NOP, len_of(bytes) - bytes.len()));
        let start = out.len();
        out.extend(bytes.iter().copied());
        out[start + 1] = bytes.len() as u8;
    }
    if let Some(accecn) = accecn {
        let fields = accecn.len().saturating_sub(2).min(out.remaining_capacity().saturating_sub(2)) / ACCECN_FIELD_LEN;
        if fields > 0 {
            let len = 2 + ACCECN_FIELD_LEN * fields;
            out.extend([accecn[0], len as u8]);
            out.extend(accecn[2..len].iter().copied());
        }
        out.extend(core::iter::repeat_n(kind::NOP, out.len().next_multiple_of(4) - out.len()));
        withdraw_sack(&mut out[padded..], padded);
    }
    Ok(out)
}

/// Length of a counter in the option of accurate ECN (RFC 9768 section 3.2.3).
const ACCECN_FIELD_LEN: usize = 3;

/// Whether it is the option of accurate ECN, in either order of its counters.
fn is_accecn(kind: u8) -> bool {
    matches!(kind, kind::ACCECN0 | kind::ACCECN1)
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
pub(super) fn withdraw_sack(options: &mut [u8], option_len: usize) {
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

/// Writes the length of the TCP header that `at` tells.
pub(super) fn set_header_len(packet: &mut [u8], at: &Layout) {
    let words = (at.tcp_header_len() / 4) as u8;
    let byte = &mut packet[at.tcp_at + 12];
    *byte = words << 4 | *byte & 0x0f;
}
