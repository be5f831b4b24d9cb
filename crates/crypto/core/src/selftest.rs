//! The self-test that a driver has to pass before it serves: published vectors, then the same results as the portable
//! driver.
//!
//! A registry runs it when a row is first looked up. It takes about 2 ms at most.

mod compare;
mod report;
pub mod vectors;

use crate::data::Data;
use crate::error::OpError;
use crate::info::{KeyUse, Kind};
use crate::registry::Alg;
use crate::skcipher::Direction;
use inout::InOutBuf;
use report::{equal, key, op};
use vectors::Vector;

/// Tests the only row of `alg`: all vectors of its name, then at awkward lengths the same results as `reference`, in
/// bursts, in pieces, in place and apart. Without a reference the row is compared with itself.
///
/// # Errors
/// A text that says what differed, and where.
pub fn run(alg: &Alg, reference: Option<&Alg>) -> Result<(), String> {
    let row = &alg.rows()[0];
    let name = if row.info.kind == Kind::Rng { &row.driver } else { &row.info.name };
    for vector in vectors::of(name) {
        check(alg, &vector).map_err(|what| format!("{}: vector at line {}: {what}", row.driver, vector.line))?;
    }
    compare::run(alg, reference.unwrap_or(alg)).map_err(|what| format!("{}: {what}", row.driver))
}

fn check(alg: &Alg, vector: &Vector<'_>) -> Result<(), String> {
    match alg.info().kind {
        Kind::Hash if alg.info().key_use == KeyUse::None => {
            let mut digest = vec![0; vector.bytes("out")?.len()];
            alg.hash().one(&[&vector.bytes("in")?], &mut digest).map_err(op)?;
            equal("digest", &digest, &vector.bytes("out")?)
        }
        Kind::Hash => {
            let tfm = alg.mac(&vector.bytes("key")?).map_err(key)?;
            let mut tag = vec![0; vector.bytes("out")?.len()];
            tfm.sign(&[&vector.bytes("in")?], &mut tag).map_err(op)?;
            equal("tag", &tag, &vector.bytes("out")?)
        }
        Kind::NonceMac => {
            let tfm = alg.nonce_mac(&vector.bytes("key")?).map_err(key)?;
            let mut tag = vec![0; vector.bytes("out")?.len()];
            tfm.sign(&vector.bytes("iv")?, &[&vector.bytes("in")?], &mut tag).map_err(op)?;
            equal("tag", &tag, &vector.bytes("out")?)
        }
        Kind::Skcipher => check_skcipher(alg, vector),
        Kind::Aead => check_aead(alg, vector),
        Kind::Rng => check_rng(alg, vector),
    }
}

fn check_skcipher(alg: &Alg, vector: &Vector<'_>) -> Result<(), String> {
    let tfm = alg.skcipher(&vector.bytes("key")?).map_err(key)?;
    let (plain, cipher) = (vector.bytes("in")?, vector.bytes("out")?);
    for (dir, from, to) in [(Direction::Encrypt, &plain, &cipher), (Direction::Decrypt, &cipher, &plain)] {
        let mut iv = vector.bytes("iv")?;
        let mut text = from.clone();
        tfm.one(dir, &mut iv, (&mut text[..]).into()).map_err(op)?;
        equal("text", &text, to)?;
        if vector.has("ivout") {
            equal("IV on return", &iv, &vector.bytes("ivout")?)?;
        }
    }
    Ok(())
}

fn check_aead(alg: &Alg, vector: &Vector<'_>) -> Result<(), String> {
    let tfm = alg.aead(&vector.bytes("key")?).map_err(key)?;
    let (nonce, aad) = (vector.bytes("iv")?, vector.bytes("aad")?);
    let (plain, cipher, tag) = (vector.bytes("in")?, vector.bytes("out")?, vector.bytes("tag")?);
    let mut text = cipher.clone();
    let opened = tfm.open(&nonce, &[&aad], (&mut text[..]).into(), &tag);
    if let Some(why) = vector.word("fail") {
        return match opened {
            Err(OpError::Auth) if why != "auth" => Err(format!("fail = {why} is not known")),
            Err(OpError::Auth) if text.iter().any(|b| *b != 0) => Err("a refused text was not wiped".to_owned()),
            Err(OpError::Auth) => Ok(()),
            other => Err(format!("a forgery was answered with {other:?}")),
        };
    }
    opened.map_err(op)?;
    equal("plaintext", &text, &plain)?;
    let mut sealed_tag = vec![0; tag.len()];
    let mut sealed = vec![0; plain.len()];
    let apart = InOutBuf::new(&plain, &mut sealed).map_err(|_| "lengths differ".to_owned())?;
    tfm.seal(&nonce, &[&aad], Data::Flat(apart), &mut sealed_tag).map_err(op)?;
    equal("ciphertext", &sealed, &cipher)?;
    equal("tag", &sealed_tag, &tag)
}

/// Checks a generator as SP 800-90A validation does: seed, two requests of the same length, compare the second.
fn check_rng(alg: &Alg, vector: &Vector<'_>) -> Result<(), String> {
    let mut rng = alg.rng();
    rng.set_entropy(&vector.bytes("entropy")?).map_err(key)?;
    rng.seed(&vector.bytes("pers")?).map_err(key)?;
    let mut out = vec![0; vector.bytes("out")?.len()];
    for (entropy, addtl) in [("entropy2", "addtl"), ("entropy3", "addtl2")] {
        if vector.has(entropy) {
            rng.set_entropy(&vector.bytes(entropy)?).map_err(key)?;
        }
        rng.generate(&vector.bytes(addtl)?, &mut out).map_err(op)?;
    }
    equal("random bytes", &out, &vector.bytes("out")?)
}
