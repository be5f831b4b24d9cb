//! The kernel's rule for one attribute (`struct nla_policy`), as data, and the check.

use super::{NLA_F_NESTED, NLA_HDRLEN, push_attr};
use crate::errno::Errno;

/// The kind of an attribute's payload, as `NLA_...` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes, at least this many.
    Bytes(u16),
    /// No payload; the presence of the attribute is its value.
    Flag,
    /// An 8-bit number.
    U8,
    /// A 16-bit number.
    U16,
    /// A 32-bit number.
    U32,
    /// A 64-bit number.
    U64,
}

impl Kind {
    /// The size of a number in bytes.
    fn size(self) -> Option<usize> {
        match self {
            Kind::Bytes(_) | Kind::Flag => None,
            Kind::U8 => Some(1),
            Kind::U16 => Some(2),
            Kind::U32 => Some(4),
            Kind::U64 => Some(8),
        }
    }
}

/// The rule for one attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Kind of payload.
    pub kind: Kind,
    /// Smallest and largest value of a number.
    pub range: Option<(u64, u64)>,
}

impl Rule {
    /// Everything is permitted.
    pub const ANY: Rule = Rule::new(Kind::Bytes(0));

    /// A rule of this kind that permits all values.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Rule { kind, range: None }
    }

    /// A rule that requires at least the size of `T`.
    ///
    /// # Panics
    /// When they are more than an attribute can hold.
    #[must_use]
    pub const fn least<T>() -> Self {
        assert!(size_of::<T>() <= (u16::MAX as usize) - NLA_HDRLEN);
        Rule::new(Kind::Bytes(size_of::<T>() as u16))
    }

    /// The same rule, for values from `min` to `max` only.
    #[must_use]
    pub const fn within(self, min: u64, max: u64) -> Self {
        Rule { kind: self.kind, range: Some((min, max)) }
    }

    /// Checks one attribute; `head` is its type with its flags.
    pub(super) fn check(self, head: u16, payload: &[u8], strict: bool) -> Result<(), (Errno, &'static str)> {
        if strict {
            if self.kind.size().is_some_and(|size| size != payload.len()) {
                return Err((Errno::EINVAL, "invalid attribute length"));
            }
            if head & NLA_F_NESTED != 0 && !matches!(self.kind, Kind::Bytes(_)) {
                return Err((Errno::EINVAL, "NLA_F_NESTED not expected"));
            }
            if matches!(self.kind, Kind::Bytes(_)) {
                return Err((Errno::EINVAL, "Unsupported attribute"));
            }
        }
        let fits = match self.kind {
            Kind::Bytes(least) => payload.len() >= usize::from(least),
            Kind::Flag => payload.is_empty(),
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => payload.len() >= self.kind.size().unwrap_or(0),
        };
        if !fits {
            return Err((Errno::ERANGE, "Attribute failed policy validation"));
        }
        match (self.range, self.kind.size()) {
            (Some((min, max)), Some(size)) => {
                let mut bytes = [0; 8];
                bytes[..size].copy_from_slice(&payload[..size]);
                let value = u64::from_le_bytes(bytes);
                if (min..=max).contains(&value) { Ok(()) } else { Err((Errno::ERANGE, "integer out of range")) }
            }
            _ => Ok(()),
        }
    }

    /// Writes the rule as the payload of `NLMSGERR_ATTR_POLICY`; `None` for bytes, which the kernel does not describe.
    pub(super) fn describe(self) -> Option<Vec<u8>> {
        /// `NL_POLICY_TYPE_ATTR_TYPE`.
        const TYPE: u16 = 1;
        /// `NL_POLICY_TYPE_ATTR_MIN_VALUE_U`.
        const MIN: u16 = 4;
        /// `NL_POLICY_TYPE_ATTR_MAX_VALUE_U`.
        const MAX: u16 = 5;
        let (type_, all) = match self.kind {
            Kind::Bytes(_) => return None,
            Kind::Flag => (1u32, None),
            Kind::U8 => (2, Some(u64::from(u8::MAX))),
            Kind::U16 => (3, Some(u64::from(u16::MAX))),
            Kind::U32 => (4, Some(u64::from(u32::MAX))),
            Kind::U64 => (5, Some(u64::MAX)),
        };
        let mut out = Vec::new();
        if let Some(all) = all {
            let (min, max) = self.range.unwrap_or((0, all));
            push_attr(&mut out, MIN, &min.to_ne_bytes());
            push_attr(&mut out, MAX, &max.to_ne_bytes());
        }
        push_attr(&mut out, TYPE, &type_.to_ne_bytes());
        Some(out)
    }
}

// `check` reads numbers as little-endian, which is the native order of 64-bit Linux as far as this crate describes it.
const _: () = assert!(cfg!(target_endian = "little"));
