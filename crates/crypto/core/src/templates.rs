//! Algorithms composed of others: `rfc4106(gcm(aes))`, `authenc(hmac(sha256),cbc(aes))`, `cts(cbc(aes))`, ...
//!
//! A template looks its parts up in the [`Registry`], each with its own measured choice of drivers, so that a fast
//! driver of a part serves every composition. Rows are named as Linux names its instances: the generic name is composed
//! of the parts' generic names, the driver name of their driver names.

mod authenc;
mod cts;
mod gather;
mod ipsec;
mod rfc3686;

use crate::choice::{STREAM_BYTES, Way};
use crate::info::{AlgInfo, Kind, Lens};
use crate::registry::{Alg, Driver, Registry, Row, Template};
use crate::template::Name;

/// The module name of composed rows.
pub const MODULE: &str = "template";

/// The most operations of a burst that a composition hands to its parts at a time.
const CHUNK: usize = 32;

/// The longest IV of a cipher here (XChaCha, Adiantum), in bytes.
const MAX_IV_LEN: usize = 32;

/// All templates.
#[must_use]
pub fn all() -> Vec<Template> {
    vec![
        authenc::authenc,
        authenc::authencesn,
        ipsec::rfc4106,
        ipsec::rfc4309,
        ipsec::rfc4543,
        ipsec::rfc7539esp,
        rfc3686::rfc3686,
        cts::cts,
    ]
}

/// Compositions that protocols and clients of Linux use, which are listed even before they are first looked up.
#[must_use]
pub fn well_known() -> &'static [(Kind, &'static str)] {
    const AEAD: Kind = Kind::Aead;
    &[
        (AEAD, "rfc4106(gcm(aes))"),
        (AEAD, "rfc4309(ccm(aes))"),
        (AEAD, "rfc4543(gcm(aes))"),
        (AEAD, "rfc7539esp(chacha20,poly1305)"),
        (AEAD, "authenc(hmac(md5),cbc(aes))"),
        (AEAD, "authenc(hmac(sha1),cbc(aes))"),
        (AEAD, "authenc(hmac(sha1),cbc(des3_ede))"),
        (AEAD, "authenc(hmac(sha1),rfc3686(ctr(aes)))"),
        (AEAD, "authenc(hmac(sha256),cbc(aes))"),
        (AEAD, "authenc(hmac(sha256),rfc3686(ctr(aes)))"),
        (AEAD, "authenc(hmac(sha384),cbc(aes))"),
        (AEAD, "authenc(hmac(sha512),cbc(aes))"),
        (AEAD, "authencesn(hmac(sha1),cbc(aes))"),
        (AEAD, "authencesn(hmac(sha256),cbc(aes))"),
        (AEAD, "authencesn(hmac(sha384),cbc(aes))"),
        (AEAD, "authencesn(hmac(sha512),cbc(aes))"),
        (Kind::Skcipher, "rfc3686(ctr(aes))"),
        (Kind::Skcipher, "cts(cbc(aes))"),
    ]
}

/// A part of a composition.
fn part(registry: &Registry, kind: Kind, name: &Name<'_>) -> Option<Alg> {
    registry.lookup(kind, name.text).ok()
}

/// The part in `template(part)`.
fn only_part(registry: &Registry, kind: Kind, name: &Name<'_>, template: &str) -> Option<Alg> {
    if name.head != template {
        return None;
    }
    part(registry, kind, name.only_arg()?)
}

/// The driver name of a part: that of the driver that serves long texts.
fn driver_of(alg: &Alg) -> &str {
    &alg.row_for(Way::Forward, STREAM_BYTES, 1).driver
}

/// Makes a row named after its parts, and sets `info.name`.
fn row(template: &str, parts: &[&Alg], info: AlgInfo, driver: Driver) -> Row {
    let join = |names: Vec<&str>| format!("{template}({})", names.join(","));
    let name = join(parts.iter().map(|alg| &*alg.info().name).collect());
    let driver_name = join(parts.iter().map(|alg| driver_of(alg)).collect());
    let priority = parts.iter().map(|alg| alg.rows()[0].priority).max().unwrap_or(0);
    let legacy = parts.iter().any(|alg| alg.info().legacy);
    Row::new(AlgInfo { name, legacy, ..info }, &driver_name, MODULE, priority, driver)
}

/// Key lengths of a part with `salt` more bytes.
fn salted(lens: Lens, salt: usize) -> Lens {
    match (lens, salt) {
        (Lens::Of([16, 24, 32]), 3) => Lens::Of(&[19, 27, 35]),
        (Lens::Of([16, 24, 32]), 4) => Lens::Of(&[20, 28, 36]),
        (lens, salt) => Lens::Range(lens.min() + salt, lens.max().saturating_add(salt)),
    }
}
