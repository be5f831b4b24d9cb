//! GRE headers whose key a policy selects: those of which [`sealane_wire::gre::key`] reads it.

use crate::field;
use crate::rule::Rule;
use sealane_wire::gre::{CHECKSUM, KEY, PPP, ROUTING, VERSION};

/// A shape of headers that have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Whether there is a checksum before the key.
    checksum: bool,
    /// Version 1, of whose key policies see the lower half: the call.
    pptp: bool,
}

/// The shapes in which a key can be that is not 0: a value and its mask.
pub(super) fn shapes((key, mask): (u32, u32)) -> impl Iterator<Item = Shape> {
    let pptp = key & mask & 0xffff_0000 == 0;
    [(false, false), (true, false), (false, true), (true, true)]
        .into_iter()
        .map(|(checksum, pptp)| Shape { checksum, pptp })
        .filter(move |shape| pptp || !shape.pptp)
}

impl Rule {
    /// Goes on for GRE headers of a shape with this key.
    pub(super) fn of_key(self, of: Shape, (key, mask): (u32, u32)) -> Rule {
        let flags = KEY | if of.checksum { CHECKSUM } else { 0 };
        let (version, mask) = if of.pptp { (1, mask & 0xffff) } else { (0, mask) };
        let mut rule = self.has(field::GRE_FLAGS, CHECKSUM | ROUTING | KEY | VERSION, flags | version);
        if of.pptp {
            rule = rule.is(field::GRE_PROTOCOL, PPP);
        }
        rule.has(field::GRE_KEYS[usize::from(of.checksum)], mask, key & mask)
    }
}
