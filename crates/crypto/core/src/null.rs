//! Drivers that compute nothing. They show what a burst, a system call or a packet costs without its cryptography.
//!
//! They are for measuring only. A null row protects nothing and **never authenticates**: a MAC or digest buffer keeps
//! the bytes it held, a text is neither encrypted nor copied, and [`open`](crate::aead::AeadTfm::open) always fails
//! with [`OpError::Auth`] and wipes its output. Rows are [exempt](Row::exempt): no generic name leads to them, only the
//! exact driver name (`gcm-aes-null`).

use crate::aead::{AeadDriver, FlatAeadOp};
use crate::error::{KeyError, OpError, Status};
use crate::hash::{HashDriver, HashOp, HashState};
use crate::info::{AlgInfo, CipherMode, Lengths};
use crate::key::PreparedKey;
use crate::mac::{MacDriver, MacOp};
use crate::registry::{Driver, Row};
use crate::skcipher::{Direction, FlatSkcipherOp, SkcipherDriver, SkcipherOp};
use std::sync::Arc;

/// The module name of these rows.
pub const MODULE: &str = "null";

/// Below every other priority, though an exempt row is never compared by it.
pub const PRIORITY: u32 = 0;

/// A null row for each algorithm that is commonly measured: those of TCP-AO, ESP and disks.
#[must_use]
pub fn rows() -> Vec<Row> {
    const AES: Lengths = Lengths::Of(&[16, 24, 32]);
    const GCM_TAGS: Lengths = Lengths::Of(&[4, 8, 12, 13, 14, 15, 16]);
    let hash = |info: AlgInfo| row(Driver::Hash(Arc::new(Null(info.key_lens))), info);
    let mac = |info: AlgInfo| row(Driver::Mac(Arc::new(Null(info.key_lens))), info);
    let hmac = |hash: &str, block, digest| {
        mac(AlgInfo::mac(&format!("hmac({hash})"), block, digest, Lengths::Range(0, usize::MAX)))
    };
    let skcipher = |info: AlgInfo| row(Driver::Skcipher(Arc::new(Null(info.key_lens))), info);
    let aead = |info: AlgInfo| row(Driver::Aead(Arc::new(Null(info.key_lens))), info);
    let stream = |info| AlgInfo { chunk_len: 16, ..info };
    vec![
        hash(AlgInfo::hash("sha1", 64, 20)),
        hash(AlgInfo::hash("sha256", 64, 32)),
        hash(AlgInfo::hash("sha512", 128, 64)),
        hmac("md5", 64, 16),
        hmac("sha1", 64, 20),
        hmac("sha256", 64, 32),
        hmac("sha512", 128, 64),
        mac(AlgInfo::mac("cmac(aes)", 16, 16, AES)),
        skcipher(AlgInfo::skcipher("ecb(aes)", 16, AES, 0).mode(CipherMode::Ecb)),
        skcipher(AlgInfo::skcipher("cbc(aes)", 16, AES, 16).mode(CipherMode::Cbc)),
        skcipher(stream(AlgInfo::skcipher("ctr(aes)", 1, AES, 16).mode(CipherMode::Ctr))),
        skcipher(AlgInfo::skcipher("xts(aes)", 16, Lengths::Of(&[32, 48, 64]), 16).mode(CipherMode::Xts)),
        aead(AlgInfo::aead("gcm(aes)", 1, AES, 12, GCM_TAGS)),
        aead(AlgInfo::aead("rfc4106(gcm(aes))", 1, Lengths::Of(&[20, 28, 36]), 8, Lengths::Of(&[8, 12, 16]))),
        aead(AlgInfo::aead("rfc7539(chacha20,poly1305)", 1, Lengths::Of(&[32]), 12, Lengths::Of(&[16]))),
    ]
}

fn row(driver: Driver, info: AlgInfo) -> Row {
    let name: String =
        info.name.chars().filter(|c| *c != ')').map(|c| if c == '(' || c == ',' { '-' } else { c }).collect();
    Row::new(info, &format!("{name}-{MODULE}"), MODULE, PRIORITY, driver).exempt()
}

/// A driver that accepts keys of these lengths and computes nothing.
struct Null(Lengths);

impl Null {
    fn key(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        if self.0.contains(key.len()) { Ok(Box::new(())) } else { Err(KeyError::Length) }
    }
}

impl HashState for () {
    fn update(&mut self, _: &[u8]) {}

    fn finish(&mut self, _: &mut [u8]) -> Status {
        Ok(())
    }

    fn reset(&mut self) {}

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(())
    }
}

impl HashDriver for Null {
    fn start(&self) -> Box<dyn HashState> {
        Box::new(())
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        ops.iter_mut().for_each(|op| op.status = Ok(()));
    }
}

impl MacDriver for Null {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.key(key)
    }

    fn start(&self, _: &dyn PreparedKey) -> Box<dyn HashState> {
        Box::new(())
    }

    fn burst(&self, _: usize, ops: &mut [MacOp<'_>]) {
        ops.iter_mut().for_each(|op| op.status = Ok(()));
    }
}

impl SkcipherDriver for Null {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.key(key)
    }

    fn one(&self, _: usize, _: FlatSkcipherOp<'_, '_>) -> Status {
        Ok(())
    }

    fn burst(&self, _: usize, ops: &mut [SkcipherOp<'_>]) {
        ops.iter_mut().for_each(|op| op.status = Ok(()));
    }
}

impl AeadDriver for Null {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.key(key)
    }

    fn one(&self, _: usize, mut op: FlatAeadOp<'_, '_>) -> Status {
        match op.dir {
            Direction::Encrypt => Ok(()),
            Direction::Decrypt => {
                op.data.get_out().fill(0);
                Err(OpError::Auth)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::Kind;
    use crate::registry::Registry;

    #[test]
    fn only_the_driver_name_leads_here_and_nothing_opens() {
        let registry = Registry::builder(|_| Err("must not be tested".to_owned())).rows(rows()).build();
        assert!(registry.lookup(Kind::Aead, "gcm(aes)").is_err());
        let tfm = registry.lookup(Kind::Aead, "gcm-aes-null").unwrap().aead(&[0; 16]).unwrap();
        let mut text = *b"secret";
        let mut tag = [7; 16];
        tfm.seal(&[0; 12], &[], text[..].as_mut().into(), &mut tag).unwrap();
        assert_eq!((&text, tag), (b"secret", [7; 16]));
        assert_eq!(tfm.open(&[0; 12], &[], text[..].as_mut().into(), &tag), Err(OpError::Auth));
        assert_eq!(text, [0; 6]);
    }

    #[test]
    fn a_null_tag_does_not_verify() {
        let registry = Registry::builder(|_| Err("must not be tested".to_owned())).rows(rows()).build();
        let tfm = registry.lookup(Kind::Hash, "hmac-sha256-null").unwrap().mac(b"key").unwrap();
        assert_eq!(tfm.verify(&[b"text"], &[0; 32]), Err(OpError::Auth));
    }
}
