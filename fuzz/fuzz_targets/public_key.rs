//! Public keys in DER, as a keeper sends them. No panic; what is taken has the same numbers when it is made of them, verifies
//! nothing that nobody has signed, and encrypts no more than its modulus has room for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_crypto_awslc::public::{Check, MAX_MODULUS_LEN, Parts, PublicKey, SaltLen};
use sealane_pkey::{Digest, Padding};

fuzz_target!(|input: &[u8]| {
    let Some(key) = PublicKey::from_spki(input) else { return };
    let parts = key.parts().expect("numbers of a key that was taken");
    let again = PublicKey::from_parts(&parts).expect("a key of its numbers");
    assert!(again.parts().as_ref() == Some(&parts));
    let digest = Digest::Sha256;
    let signature_len = match &parts {
        Parts::Rsa { n, .. } => n.len(),
        Parts::Ec(curve, point) => {
            assert_eq!(point.len(), 1 + 2 * curve.coordinate_len());
            2 * curve.coordinate_len()
        }
        Parts::Ed25519(_) => 64,
    };
    assert!(signature_len <= MAX_MODULUS_LEN);
    let signature = vec![7; signature_len];
    for check in [
        Check::RsaPkcs1(digest),
        Check::RsaPkcs1Md5Sha1,
        Check::RsaPss { digest, mgf1: digest, salt_len: SaltLen::Any },
        Check::Ecdsa,
        Check::Ed25519,
    ] {
        let is_good = [&key, &again].map(|key| key.verify(check, &[7; 32], &signature));
        assert_eq!(is_good, [false; 2], "{check:?}");
    }
    let _ = key.recover(digest, &signature);
    let sealed = key.encrypt(&Padding::Pkcs1, b"text");
    assert!(sealed.is_none_or(|sealed| sealed.len() == signature_len));
});
