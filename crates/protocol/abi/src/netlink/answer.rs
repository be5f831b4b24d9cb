//! The kernel's answers: acknowledgements, with the attributes of extended ones, and the messages of a dump.

use super::rule::Rule;
use super::{
    Attrs, Message, Messages, NLA_F_NESTED, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_MULTI, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_HDRLEN, Nlmsghdr, align, push_attr,
};
use crate::errno::Errno;
use zerocopy::{FromBytes, IntoBytes};

/// Attribute of an acknowledgement: text, NUL-terminated.
pub const NLMSGERR_ATTR_MSG: u16 = 1;
/// Attribute of an error: offset of the attribute at fault in the request, `u32`.
pub const NLMSGERR_ATTR_OFFS: u16 = 2;
/// Attribute of an acknowledgement: bytes defined by the subsystem.
pub const NLMSGERR_ATTR_COOKIE: u16 = 3;
/// Attribute of an error: the rule for the attribute at fault, nested.
pub const NLMSGERR_ATTR_POLICY: u16 = 4;
/// Attribute of an error: type of an attribute that is missing, `u32`.
pub const NLMSGERR_ATTR_MISS_TYPE: u16 = 5;
/// Attribute of an error: offset of the nest that lacks it, `u32`.
pub const NLMSGERR_ATTR_MISS_NEST: u16 = 6;

/// The contents of an extended acknowledgement beside the error number (`struct netlink_ext_ack`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtAck {
    /// The text.
    pub text: Option<&'static str>,
    /// Offset of the attribute at fault in the request, header included, in bytes.
    pub offset: Option<u32>,
    /// The rule for that attribute.
    pub rule: Option<Rule>,
}

impl ExtAck {
    /// A text and nothing else.
    #[must_use]
    pub const fn text(text: &'static str) -> Self {
        ExtAck { text: Some(text), offset: None, rule: None }
    }

    /// Appends the attributes: the text always, the rest only to an error.
    fn write(&self, out: &mut Vec<u8>, error: bool) {
        if let Some(text) = self.text {
            push_attr(out, NLMSGERR_ATTR_MSG, &[text.as_bytes(), &[0]].concat());
        }
        if let Some(offset) = self.offset.filter(|_| error) {
            push_attr(out, NLMSGERR_ATTR_OFFS, &offset.to_ne_bytes());
        }
        if let Some(rule) = self.rule.and_then(Rule::describe).filter(|_| error) {
            push_attr(out, NLMSGERR_ATTR_POLICY | NLA_F_NESTED, &rule);
        }
    }
}

/// A socket's options for acknowledgements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AckOptions {
    /// `NETLINK_CAP_ACK`: an error does not repeat the request.
    pub cap: bool,
    /// `NETLINK_EXT_ACK`: acknowledgements contain the [`ExtAck`].
    pub ext: bool,
}

/// A message from the kernel with this payload, padded to 4 bytes after its length.
#[must_use]
pub fn message(type_: u16, flags: u16, seq: u32, port: u32, payload: &[u8]) -> Vec<u8> {
    let len = NLMSG_HDRLEN + payload.len();
    let header =
        Nlmsghdr { nlmsg_len: len as u32, nlmsg_type: type_, nlmsg_flags: flags, nlmsg_seq: seq, nlmsg_pid: port };
    let mut out = Vec::with_capacity(align(len));
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(payload);
    out.resize(align(len), 0);
    out
}

/// The acknowledgement of `request` (`netlink_ack`), for the socket with the port `port`.
#[must_use]
pub fn ack(request: &Message<'_>, port: u32, outcome: Result<(), Errno>, options: AckOptions, ext: &ExtAck) -> Vec<u8> {
    let number = outcome.err().map_or(0, |e| -e.number());
    let mut flags = 0;
    let mut payload = number.to_ne_bytes().to_vec();
    if number == 0 || options.cap {
        flags |= NLM_F_CAPPED;
        payload.extend_from_slice(request.header.as_bytes());
    } else {
        payload.extend_from_slice(request.bytes);
        payload.resize(align(payload.len()), 0);
    }
    extend(&mut payload, &mut flags, number != 0, options, ext);
    message(NLMSG_ERROR, flags, request.header.nlmsg_seq, port, &payload)
}

/// The end of a dump: `NLMSG_DONE`, with the error if one ended it. `flags` are [`super::NLM_F_DUMP_INTR`] and the
/// like.
#[must_use]
pub fn done(seq: u32, port: u32, flags: u16, outcome: Result<(), Errno>, options: AckOptions, ext: &ExtAck) -> Vec<u8> {
    let number = outcome.err().map_or(0, |e| -e.number());
    let mut flags = flags | NLM_F_MULTI;
    let mut payload = number.to_ne_bytes().to_vec();
    extend(&mut payload, &mut flags, number != 0, options, ext);
    message(NLMSG_DONE, flags, seq, port, &payload)
}

/// The offset of the attributes in an acknowledgement or the end of a dump.
fn attributes_at(m: &Message<'_>) -> usize {
    let request = NLMSG_HDRLEN + 4;
    match m.header.nlmsg_type {
        NLMSG_ERROR if m.header.nlmsg_flags & NLM_F_CAPPED != 0 => request + NLMSG_HDRLEN,
        NLMSG_ERROR => {
            let header = m.bytes.get(request..).and_then(|b| Nlmsghdr::read_from_prefix(b).ok());
            header.map_or(m.bytes.len(), |(h, _)| request + align(h.nlmsg_len as usize))
        }
        NLMSG_DONE => request,
        _ => m.bytes.len(),
    }
}

/// The text of an extended acknowledgement, if it has one.
#[must_use]
pub fn text<'a>(m: &Message<'a>) -> Option<&'a str> {
    let attrs = m.bytes.get(attributes_at(m)..).filter(|_| m.header.nlmsg_flags & NLM_F_ACK_TLVS != 0)?;
    let text = Attrs::new(attrs).find(|a| a.type_ == NLMSGERR_ATTR_MSG)?.payload;
    str::from_utf8(text.split(|b| *b == 0).next()?).ok()
}

/// Adapts a datagram of complete acknowledgements (`ext`, not `cap`) to a socket with `options`; `None` if nothing
/// changes.
#[must_use]
pub fn fitted(datagram: &[u8], options: AckOptions) -> Option<Vec<u8>> {
    if options.ext && !options.cap {
        return None;
    }
    let mut out = Vec::with_capacity(datagram.len());
    let mut changed = false;
    for m in Messages::new(datagram) {
        let mut header = m.header;
        let tlvs = attributes_at(&m);
        let mut bytes = m.bytes[..tlvs.min(m.bytes.len())].to_vec();
        let has_tlvs = header.nlmsg_flags & NLM_F_ACK_TLVS != 0 && tlvs < m.bytes.len();
        if header.nlmsg_type == NLMSG_ERROR && options.cap && header.nlmsg_flags & NLM_F_CAPPED == 0 {
            bytes.truncate(NLMSG_HDRLEN + 4 + NLMSG_HDRLEN);
            header.nlmsg_flags |= NLM_F_CAPPED;
            changed = true;
        }
        if has_tlvs && options.ext {
            bytes.extend_from_slice(&m.bytes[tlvs..]);
        } else if has_tlvs {
            header.nlmsg_flags &= !NLM_F_ACK_TLVS;
            changed = true;
        }
        header.nlmsg_len = bytes.len() as u32;
        bytes[..NLMSG_HDRLEN].copy_from_slice(header.as_bytes());
        bytes.resize(align(bytes.len()), 0);
        out.extend_from_slice(&bytes);
    }
    changed.then_some(out)
}

/// Appends the attributes of an extended acknowledgement.
fn extend(payload: &mut Vec<u8>, flags: &mut u16, error: bool, options: AckOptions, ext: &ExtAck) {
    let before = payload.len();
    if options.ext {
        ext.write(payload, error);
    }
    if payload.len() > before {
        *flags |= NLM_F_ACK_TLVS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_is_what_would_have_been_written() {
        let request = message(0x10, 5, 7, 9, b"abcdef");
        let request = Messages::new(&request).next().expect("a message");
        let ext = ExtAck { text: Some("no"), offset: Some(20), rule: None };
        let all = AckOptions { cap: false, ext: true };
        for (cap, is_ext) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = AckOptions { cap, ext: is_ext };
            for outcome in [Ok(()), Err(Errno::EINVAL)] {
                for ext in [ExtAck::default(), ext] {
                    let full = ack(&request, 9, outcome, all, &ext);
                    let wanted = ack(&request, 9, outcome, options, &ext);
                    assert_eq!(fitted(&full, options).unwrap_or(full.clone()), wanted, "{options:?} {outcome:?}");
                    let whole = Messages::new(&full).next().expect("a message");
                    assert_eq!(text(&whole), ext.text);
                    let full = done(7, 9, 0, outcome, all, &ext);
                    let wanted = done(7, 9, 0, outcome, options, &ext);
                    assert_eq!(fitted(&full, options).unwrap_or(full.clone()), wanted, "{options:?} {outcome:?}");
                }
            }
        }
        let other = message(0x10, 2, 7, 9, &[1; 50]);
        assert_eq!(fitted(&other, AckOptions::default()), None);
    }
}
