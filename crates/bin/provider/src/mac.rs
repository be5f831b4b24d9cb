//! MACs: HMAC, CMAC, GMAC and KMAC.

mod cmac;
mod context;
mod gmac;
mod hmac;
mod kmac;
mod tls;

use crate::ffi::{Kind, Known};
use crate::given::KEY_NAME;
use core::ffi::CStr;

pub(crate) use context::Mac;

/// A MAC that is offered.
pub(crate) struct MacRow {
    /// Its names and its object identifier, as the default provider has them.
    pub(crate) names: &'static CStr,
    /// The length of the tag, where all of its tags have one length.
    pub(crate) fixed_len: Option<usize>,
    /// The parameters that a context takes.
    pub(crate) settable: &'static [Known],
    /// Makes a context.
    pub(crate) new: fn() -> Box<dyn Mac>,
}

/// The MACs that are offered.
pub(crate) static MACS: [MacRow; 5] = [
    MacRow { names: c"HMAC", fixed_len: None, settable: &HMAC, new: hmac::new },
    MacRow { names: c"CMAC", fixed_len: None, settable: &CMAC, new: cmac::new },
    MacRow { names: c"GMAC:1.0.9797.3.4", fixed_len: Some(gmac::TAG_LEN), settable: &GMAC, new: gmac::new },
    MacRow { names: c"KMAC-128:KMAC128:2.16.840.1.101.3.4.2.19", fixed_len: None, settable: &KMAC, new: kmac::new128 },
    MacRow { names: c"KMAC-256:KMAC256:2.16.840.1.101.3.4.2.20", fixed_len: None, settable: &KMAC, new: kmac::new256 },
];

static HMAC: [Known; 8] = [
    Known::new(c"digest", Kind::Text),
    Known::new(c"properties", Kind::Text),
    Known::new(c"key", Kind::Octets),
    Known::new(c"digest-noinit", Kind::Int),
    Known::new(c"digest-oneshot", Kind::Int),
    Known::new(c"tls-data-size", Kind::Size),
    Known::new(KEY_NAME, Kind::Text),
    Known::END,
];

static CMAC: [Known; 5] = [
    Known::new(c"cipher", Kind::Text),
    Known::new(c"properties", Kind::Text),
    Known::new(c"key", Kind::Octets),
    Known::new(KEY_NAME, Kind::Text),
    Known::END,
];

static GMAC: [Known; 6] = [
    Known::new(c"cipher", Kind::Text),
    Known::new(c"properties", Kind::Text),
    Known::new(c"key", Kind::Octets),
    Known::new(c"iv", Kind::Octets),
    Known::new(KEY_NAME, Kind::Text),
    Known::END,
];

static KMAC: [Known; 5] = [
    Known::new(c"xof", Kind::Int),
    Known::new(c"size", Kind::Size),
    Known::new(c"key", Kind::Octets),
    Known::new(c"custom", Kind::Octets),
    Known::END,
];
