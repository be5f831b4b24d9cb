//! The kernel's rules for a message's attributes, as data, and the parser that applies them (`nlmsg_parse_deprecated`).
//!
//! The parser is liberal: unknown attributes are skipped, the last of several counts, and one that is too long is cut.
//! From [`Rules::strict_from`] on it is strict about lengths and flags.

use super::answer::ExtAck;
pub use super::rule::{Kind, Rule};
use super::{Message, NLA_HDRLEN, NLA_TYPE_MASK, NLMSG_HDRLEN, Nlattr, align};
use crate::errno::Errno;
use core::fmt;
use zerocopy::FromBytes;

/// The rules of a family of attributes, by their type.
#[derive(Debug, Clone, Copy)]
pub struct Rules<const N: usize> {
    /// The rule for each type. Types from `N` on are skipped, and so is type 0.
    pub rules: [Rule; N],
    /// From this type on the parser is strict; 0 means never.
    pub strict_from: u16,
}

/// The refusal of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// The error number for the caller.
    pub errno: Errno,
    /// The attribute at fault.
    pub attr: Option<u16>,
    /// The contents of the extended acknowledgement.
    pub ack: ExtAck,
}

impl Reject {
    /// A refusal of the whole message, with a text.
    #[must_use]
    pub const fn message(errno: Errno, text: &'static str) -> Self {
        Reject { errno, attr: None, ack: ExtAck::text(text) }
    }

    /// A refusal of one attribute whose offset the kernel does not report.
    #[must_use]
    pub const fn attribute(errno: Errno, attr: u16, text: &'static str) -> Self {
        Reject { errno, attr: Some(attr), ack: ExtAck::text(text) }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(attr) = self.attr {
            write!(f, "attribute {attr}: ")?;
        }
        write!(f, "{} ({})", self.ack.text.unwrap_or("refused"), self.errno)
    }
}

impl core::error::Error for Reject {}

/// The attributes of a message that the parser accepted: the last one of each type.
#[derive(Clone)]
pub struct Table<'a, const N: usize> {
    /// Offset in the message and payload.
    attrs: [Option<(u32, &'a [u8])>; N],
    /// A warning for the acknowledgement of an accepted message: bytes were left over.
    pub warning: ExtAck,
}

impl<'a, const N: usize> Table<'a, N> {
    /// The payload of the attribute of this type.
    #[must_use]
    pub fn raw(&self, type_: u16) -> Option<&'a [u8]> {
        self.attrs.get(usize::from(type_)).copied().flatten().map(|(_, payload)| payload)
    }

    /// The offset of that attribute in the message, in bytes, counting the message's header.
    #[must_use]
    pub fn offset(&self, type_: u16) -> Option<u32> {
        self.attrs.get(usize::from(type_)).copied().flatten().map(|(offset, _)| offset)
    }

    /// The types present, ascending.
    pub fn types(&self) -> impl Iterator<Item = u16> + '_ {
        self.attrs.iter().enumerate().filter(|(_, a)| a.is_some()).map(|(i, _)| i as u16)
    }
}

impl<const N: usize> Rules<N> {
    /// Parses the attributes after the first `body` bytes of a message's payload.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] and [`Errno::ERANGE`], with the kernel's texts.
    pub fn parse<'a>(&self, message: &Message<'a>, body: usize) -> Result<Table<'a, N>, Reject> {
        let mut attrs = [None; N];
        let warning = self.walk(message, body, |type_, offset, payload| {
            attrs[usize::from(type_)] = Some((offset, payload));
            Ok(())
        })?;
        Ok(Table { attrs, warning })
    }

    /// Checks the attributes after the first `body` bytes of a message's payload and passes each to `found` in order:
    /// type, offset in the message, payload. Returns the warning, if any.
    ///
    /// # Errors
    /// As [`Rules::parse`], and the first that `found` returns.
    pub fn walk<'a>(
        &self,
        message: &Message<'a>,
        body: usize,
        mut found: impl FnMut(u16, u32, &'a [u8]) -> Result<(), Reject>,
    ) -> Result<ExtAck, Reject> {
        if message.payload.len() < body {
            return Err(Reject::message(Errno::EINVAL, "Invalid header length"));
        }
        let mut rest = message.payload.get(align(body)..).unwrap_or(&[]);
        while let Ok((head, _)) = Nlattr::read_from_prefix(rest) {
            let len = usize::from(head.nla_len);
            let Some(payload) = rest.get(NLA_HDRLEN..len) else { break };
            let type_ = head.nla_type & NLA_TYPE_MASK;
            if let Some(rule) = self.rules.get(usize::from(type_)).filter(|_| type_ != 0) {
                let strict = self.strict_from != 0 && type_ >= self.strict_from;
                // A message is at most as long as its header's 32 bits can say.
                let offset = (NLMSG_HDRLEN + message.payload.len() - rest.len()) as u32;
                rule.check(head.nla_type, payload, strict).map_err(|(errno, text)| {
                    let ack = ExtAck { text: Some(text), offset: Some(offset), rule: Some(*rule) };
                    Reject { errno, attr: Some(type_), ack }
                })?;
                found(type_, offset, payload)?;
            }
            rest = rest.get(align(len)..).unwrap_or(&[]);
        }
        let leftover = !rest.is_empty();
        Ok(if leftover { ExtAck::text("bytes leftover after parsing attributes") } else { ExtAck::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Messages, NLA_F_NESTED, push_attr};

    const RULES: Rules<6> = Rules {
        rules: [
            Rule::ANY,
            Rule::new(Kind::Bytes(3)),
            Rule::new(Kind::U32),
            Rule::new(Kind::U8).within(1, 2),
            Rule::new(Kind::Flag),
            Rule::ANY,
        ],
        strict_from: 3,
    };

    fn message(attrs: &[u8]) -> Vec<u8> {
        crate::netlink::answer::message(0x10, 1, 7, 0, &[&[9; 4], attrs].concat())
    }

    fn refusal(attrs: &[u8]) -> Option<(Errno, &'static str, Option<u32>)> {
        let bytes = message(attrs);
        let parsed = RULES.parse(&Messages::new(&bytes).next().unwrap(), 4);
        parsed.err().map(|r| (r.errno, r.ack.text.unwrap(), r.ack.offset))
    }

    fn attr(type_: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_attr(&mut out, type_, payload);
        out
    }

    #[test]
    fn the_parser_is_liberal_below_and_strict_above() {
        let policy = "Attribute failed policy validation";
        assert_eq!(refusal(&[]), None);
        assert_eq!(refusal(&attr(1, b"ab")), Some((Errno::ERANGE, policy, Some(20))));
        assert_eq!(refusal(&[attr(1, b"abc"), attr(2, b"abc")].concat()), Some((Errno::ERANGE, policy, Some(28))));
        assert_eq!(refusal(&attr(2, b"abcdefgh")), None);
        assert_eq!(refusal(&attr(2 | NLA_F_NESTED, b"abcd")), None);
        assert_eq!(refusal(&attr(3, &[1, 0])), Some((Errno::EINVAL, "invalid attribute length", Some(20))));
        assert_eq!(refusal(&attr(3, &[0])), Some((Errno::ERANGE, "integer out of range", Some(20))));
        assert_eq!(refusal(&attr(3, &[2])), None);
        assert_eq!(
            refusal(&attr(3 | NLA_F_NESTED, &[2])),
            Some((Errno::EINVAL, "NLA_F_NESTED not expected", Some(20)))
        );
        assert_eq!(refusal(&attr(4, &[])), None);
        assert_eq!(refusal(&attr(4, &[1])), Some((Errno::ERANGE, policy, Some(20))));
        assert_eq!(refusal(&attr(5, &[])), Some((Errno::EINVAL, "Unsupported attribute", Some(20))));
        assert_eq!(refusal(&[attr(6, &[]), attr(0, &[])].concat()), None);
    }

    #[test]
    fn the_last_one_counts_and_leftovers_are_told() {
        let bytes = message(&[attr(2, &[1; 4]), attr(1, b"abc"), attr(2, &[2; 4])].concat());
        let table = RULES.parse(&Messages::new(&bytes).next().unwrap(), 4).unwrap();
        assert_eq!(table.raw(2), Some(&[2; 4][..]));
        assert_eq!(table.types().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((table.raw(4), table.raw(99), table.warning), (None, None, ExtAck::default()));
        for tail in [&[3, 0, 1, 0][..], &[1], &[9, 0, 1, 0, 0, 0, 0, 0]] {
            let bytes = message(&[&attr(2, &[1; 4]), tail].concat());
            let table = RULES.parse(&Messages::new(&bytes).next().unwrap(), 4).unwrap();
            assert_eq!(table.warning.text, Some("bytes leftover after parsing attributes"));
        }
        let bytes = message(&[]);
        let short = RULES.parse(&Messages::new(&bytes).next().unwrap(), 5).err().unwrap();
        assert_eq!((short.errno, short.ack.text), (Errno::EINVAL, Some("Invalid header length")));
    }
}
