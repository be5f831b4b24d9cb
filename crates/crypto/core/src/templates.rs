//! Algorithms composed of others: `rfc4106(gcm(aes))`, `authenc(hmac(sha256),cbc(aes))`, `cts(cbc(aes))`, ...
//!
//! A template resolves its parts through the [`Registry`], each with its own choice by measurement, so that a fast
//! driver of a part serves every composition. The row it makes is named as Linux names its instances: the generic name
//! from the parts' generic names, the driver name from their drivers'.

mod authenc;
mod cts;
mod gather;
mod ipsec;
mod rfc3686;

use crate::choice::{STREAM_BYTES, Way};
use crate::info::{AlgInfo, Kind, Lens};
use crate::registry::{Alg, Driver, Registry, Row, Template};
use crate::template::Name;

/// What composed rows carry as their module.
pub const MODULE: &str = "template";

/// How many operations of a burst a composition hands to its parts at a time.
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

/// Compositions that are worth listing although nobody has asked for them yet: those of protocols, and of Linux's
/// clients.
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

/// The driver that a part is named after: the one that serves long texts.
fn driver_of(alg: &Alg) -> &str {
    &alg.row_for(Way::Forward, STREAM_BYTES, 1).driver
}

/// A row named after its parts; `info.name` is filled in here.
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
