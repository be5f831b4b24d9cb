//! Keys in PEM (RFC 7468): a private key among other documents, and a public key to show.
//!
//! Secrets are only in memory that is wiped, for which other readers of PEM have no room.

use base64ct::{Base64, Encoding};
use std::fmt;
use zeroize::Zeroizing;

/// The longest text that is looked at: a key behind a chain of certificates.
pub const MAX_PEM_LEN: usize = 256 * 1024;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// The reason why there is no private key in a text. No part of the text is in it, but for labels of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PemError {
    /// The key is under a passphrase.
    Encrypted,
    /// There are documents, and none is a private key; with the label of the first.
    NoKey(String),
    /// There are several private keys.
    Several,
    /// A document does not end, or its text is no base64; with its line, from 1.
    Malformed(usize),
    /// The text is longer than [`MAX_PEM_LEN`].
    TooLong,
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PemError::Encrypted => {
                f.write_str("the private key is encrypted: decrypt it first, for example by 'openssl pkey -in FILE'")
            }
            PemError::NoKey(label) => write!(f, "no private key, but for example a document '{label}'"),
            PemError::Several => f.write_str("more than one private key"),
            PemError::Malformed(line) => write!(f, "the PEM document of line {line} is malformed"),
            PemError::TooLong => write!(f, "longer than {MAX_PEM_LEN} bytes"),
        }
    }
}

impl std::error::Error for PemError {}

/// The private key in a text of PEM documents, in DER; `None` if the text has no document, and may be DER itself.
///
/// # Errors
/// [`PemError`].
pub fn private_key(text: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, PemError> {
    if text.len() > MAX_PEM_LEN {
        return Err(PemError::TooLong);
    }
    let mut lines = (1..).zip(text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
    let (mut found, mut other) = (None, None);
    while let Some((begin, line)) = lines.next() {
        let Some(label) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(DASHES)) else { continue };
        let is_key = matches!(label, b"PRIVATE KEY" | b"RSA PRIVATE KEY" | b"EC PRIVATE KEY");
        if label == b"ENCRYPTED PRIVATE KEY" {
            return Err(PemError::Encrypted);
        }
        let mut body = Zeroizing::new(Vec::with_capacity(if is_key { text.len() } else { 0 }));
        loop {
            let (_, line) = lines.next().ok_or(PemError::Malformed(begin))?;
            if let Some(rest) = line.strip_prefix(END) {
                if rest.strip_suffix(DASHES) != Some(label) {
                    return Err(PemError::Malformed(begin));
                }
                break;
            }
            if !is_key {
                continue;
            }
            // A header of the format before PKCS #8 (RFC 1421).
            if line.contains(&b':') {
                if line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED") {
                    return Err(PemError::Encrypted);
                }
                continue;
            }
            body.extend_from_slice(line);
        }
        if is_key {
            let len = Base64::decode_in_place(&mut body).map_err(|_| PemError::Malformed(begin))?.len();
            body.truncate(len);
            if found.replace(body).is_some() {
                return Err(PemError::Several);
            }
        } else if other.is_none() {
            let label: String = String::from_utf8_lossy(label).chars().take(64).filter(|c| !c.is_control()).collect();
            other = Some(label);
        }
    }
    match (found, other) {
        (None, Some(label)) => Err(PemError::NoKey(label)),
        (found, _) => Ok(found),
    }
}

/// A public key, given as SubjectPublicKeyInfo in DER, as a PEM document.
#[must_use]
pub fn public_key(spki: &[u8]) -> String {
    let mut text = String::from("-----BEGIN PUBLIC KEY-----\n");
    let body = Base64::encode_string(spki);
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = tail;
    }
    text.push_str("-----END PUBLIC KEY-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nAQID\r\n BAUG\n-----END PRIVATE KEY-----\n";
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nno base64\n-----END CERTIFICATE-----\n";

    fn found(text: &str) -> Result<Option<Vec<u8>>, PemError> {
        private_key(text.as_bytes()).map(|key| key.map(|key| key.to_vec()))
    }

    #[test]
    fn the_key_is_found_among_other_documents() {
        let key = Ok(Some(vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(found(KEY), key);
        assert_eq!(found(&format!("text\n{CERTIFICATE}more: text\n{KEY}{CERTIFICATE}")), key);
        for label in ["RSA PRIVATE KEY", "EC PRIVATE KEY"] {
            assert_eq!(found(&KEY.replace("PRIVATE KEY", label)), key);
        }
        assert_eq!((found(""), found("0\x01\n-----")), (Ok(None), Ok(None)));
    }

    #[test]
    fn what_is_no_key_is_named() {
        assert_eq!(found(CERTIFICATE), Err(PemError::NoKey("CERTIFICATE".to_owned())));
        assert_eq!(found(&format!("{KEY}{KEY}")), Err(PemError::Several));
        assert_eq!(found(&KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")), Err(PemError::Encrypted));
        let headers = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAQID\n";
        assert_eq!(found(&format!("{headers}-----END RSA PRIVATE KEY-----")), Err(PemError::Encrypted));
        for wrong in
            ["-----BEGIN PRIVATE KEY-----\nAQID", &KEY.replace("END PRIVATE", "END OTHER"), &KEY.replace('Q', "!")]
        {
            assert_eq!(found(&format!("\n{wrong}")), Err(PemError::Malformed(2)), "{wrong}");
        }
        assert_eq!(private_key(&vec![b'\n'; MAX_PEM_LEN + 1]).err(), Some(PemError::TooLong));
    }

    #[test]
    fn a_public_key_has_lines_of_64() {
        let text = public_key(&[1; 91]);
        assert!(text.lines().all(|line| line.len() <= 64) && text.lines().count() == 4);
        assert_eq!(found(&text.replace("PUBLIC", "PRIVATE")), Ok(Some(vec![1; 91])));
    }
}
