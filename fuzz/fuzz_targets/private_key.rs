//! Private keys as users give them: PEM documents, or PKCS #8, PKCS #1 and SEC 1 in DER. No panic; and what is taken is written,
//! read again as the same key, and signs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_crypto_awslc::pkey::PrivateKey;
use sealane_pkey::{Algorithm, Digest, Scheme, pem};

fuzz_target!(|input: &[u8]| {
    let der = match pem::private_key(input) {
        Ok(Some(der)) => der,
        Ok(None) => input.to_vec().into(),
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    let key = match PrivateKey::import(&der) {
        Ok(key) => key,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    let (pkcs8, spki) = (key.pkcs8().expect("written"), key.spki().expect("written"));
    assert!(pem::public_key(&spki).lines().all(|line| line.len() <= 64));
    let again = PrivateKey::import(&pkcs8).expect("read again");
    assert!(again.pkcs8().is_ok_and(|twice| twice == pkcs8) && again.spki() == Ok(spki));
    let scheme = match key.algorithm() {
        Algorithm::Rsa2048 | Algorithm::Rsa3072 | Algorithm::Rsa4096 => Scheme::RsaPkcs1(Digest::Sha256),
        Algorithm::EcP256 | Algorithm::EcP384 => Scheme::Ecdsa,
        Algorithm::Ed25519 => Scheme::Ed25519,
    };
    // A key whose numbers belong together as far as they were checked need not have primes. Then it is not kept.
    let signs = key.sign(scheme, &[7; 32]).is_ok();
    assert!(key.tried().is_ok() == signs);
});
