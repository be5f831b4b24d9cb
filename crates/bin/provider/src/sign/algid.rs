//! AlgorithmIdentifiers of signatures in DER, as certificates have them.

use sealane_pkey::Digest;

const NULL: [u8; 2] = [5, 0];
/// 1.2.840.113549.1.1, with room for the last number.
const PKCS1: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];

/// A value of DER, which is short.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let len = u8::try_from(content.len()).expect("an identifier is short");
    // A length from 128 on has a byte before it that says so.
    let head: &[u8] = if len < 0x80 { &[tag, len] } else { &[tag, 0x81, len] };
    [head, &content].concat()
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, parts)
}

fn pkcs1(last: u8) -> Vec<u8> {
    der(6, &[&PKCS1, &[last]])
}

/// The AlgorithmIdentifier of a digest below PSS.
fn hash(digest: Digest) -> Vec<u8> {
    let sha2 = |last| der(6, &[&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, last]]);
    let oid = match digest {
        Digest::Sha1 => der(6, &[&[0x2b, 0x0e, 3, 2, 0x1a]]),
        Digest::Sha224 => sha2(4),
        Digest::Sha256 => sha2(1),
        Digest::Sha384 => sha2(2),
        Digest::Sha512 => sha2(3),
    };
    sequence(&[&oid, &NULL])
}

pub(super) fn ed25519() -> Vec<u8> {
    sequence(&[&der(6, &[&[0x2b, 0x65, 0x70]])])
}

pub(super) fn ecdsa(digest: Digest) -> Vec<u8> {
    let base = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
    let last: &[u8] = match digest {
        Digest::Sha1 => &[1],
        Digest::Sha224 => &[3, 1],
        Digest::Sha256 => &[3, 2],
        Digest::Sha384 => &[3, 3],
        Digest::Sha512 => &[3, 4],
    };
    sequence(&[&der(6, &[&base, last])])
}

pub(super) fn rsa_pkcs1(digest: Digest) -> Vec<u8> {
    let last = match digest {
        Digest::Sha1 => 5,
        Digest::Sha224 => 14,
        Digest::Sha256 => 11,
        Digest::Sha384 => 12,
        Digest::Sha512 => 13,
    };
    sequence(&[&pkcs1(last), &NULL])
}

/// RSASSA-PSS with its parameters (RFC 4055, section 3.1), of which those that are the default are left out.
pub(super) fn rsa_pss(digest: Digest, mgf1: Digest, salt_len: u16) -> Vec<u8> {
    let mut params = Vec::new();
    if digest != Digest::Sha1 {
        params.extend(der(0xa0, &[&hash(digest)]));
    }
    if mgf1 != Digest::Sha1 {
        params.extend(der(0xa1, &[&sequence(&[&pkcs1(8), &hash(mgf1)])]));
    }
    if salt_len != 20 {
        let bytes = salt_len.to_be_bytes();
        let bytes = if bytes[0] == 0 { &bytes[1..] } else { &bytes[..] };
        // A number whose first bit is set would be negative.
        let zero: &[u8] = if bytes[0] & 0x80 == 0 { &[] } else { &[0] };
        params.extend(der(0xa2, &[&der(2, &[zero, bytes])]));
    }
    sequence(&[&pkcs1(10), &sequence(&[&params])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_those_of_openssl() {
        // `openssl req -x509` with these digests, by OpenSSL 3.0: the signatureAlgorithm.
        assert_eq!(rsa_pkcs1(Digest::Sha256), *b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00");
        assert_eq!(ecdsa(Digest::Sha384), *b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x03");
        assert_eq!(ecdsa(Digest::Sha1), *b"\x30\x09\x06\x07\x2a\x86\x48\xce\x3d\x04\x01");
        assert_eq!(ed25519(), *b"\x30\x05\x06\x03\x2b\x65\x70");
        let pss = rsa_pss(Digest::Sha256, Digest::Sha256, 222);
        let expected = b"\x30\x42\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x35\xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\
            \x65\x03\x04\x02\x01\x05\x00\xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\x30\x0d\x06\x09\x60\x86\
            \x48\x01\x65\x03\x04\x02\x01\x05\x00\xa2\x04\x02\x02\x00\xde";
        assert_eq!(pss, expected);
        assert_eq!(
            rsa_pss(Digest::Sha1, Digest::Sha1, 20),
            *b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x00"
        );
    }
}
