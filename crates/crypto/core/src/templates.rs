//! Algorithms composed of others: `rfc4106(gcm(aes))`, `authenc(hmac(sha256),cbc(aes))`, `cts(cbc(aes))`, ...
//!
//! A template looks its parts up in the [`Registry`](crate::registry::Registry), each with its own measured choice of
//! drivers, so that a fast driver of a part serves every composition. Rows are named as Linux names its instances: the
//! generic name is composed of the parts' generic names, the driver name of their driver names.

mod authenc;
mod cts;
mod gather;
mod ipsec;
mod part;
mod rfc3686;

use crate::info::Kind;
use crate::registry::Template;

pub use part::MODULE;

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
