//! The portable ciphers and AEADs: self-tests of every row, and what the vectors do not show.

use sealane_crypto::registry::Kind;
use sealane_crypto::selftest::vectors;
use sealane_crypto::{LookupError, portable_registry, templates};

#[test]
fn every_row_passes_its_self_test() {
    let registry = portable_registry();
    let mut tested = 0;
    for row in registry.rows().iter().filter(|row| matches!(row.info.kind, Kind::Skcipher | Kind::Aead)) {
        registry.self_test(row).unwrap_or_else(|what| panic!("{what}"));
        tested += 1;
    }
    assert!(tested > 30, "{tested}");
}

#[test]
fn well_known_compositions_pass_their_self_tests() {
    let registry = portable_registry();
    for (kind, name) in templates::well_known() {
        let alg = registry.lookup(*kind, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((alg.info().kind, &*alg.info().name), (*kind, *name));
        assert!(!vectors::of(name).is_empty(), "{name} has no vector");
        let again = registry.lookup(*kind, &alg.rows()[0].driver).unwrap();
        assert_eq!(again.info(), alg.info(), "a driver name leads to the same algorithm");
    }
}

#[test]
fn compositions_are_named_after_their_parts() {
    let registry = portable_registry();
    for (kind, name, driver) in [
        (Kind::Aead, "rfc4106(gcm(aes))", "rfc4106(gcm-aes-portable)"),
        (Kind::Aead, "authenc(hmac(sha256),cbc(aes))", "authenc(hmac-sha256-portable,cbc-aes-portable)"),
        (Kind::Aead, "authenc(hmac(sha1),rfc3686(ctr(aes)))", "authenc(hmac-sha1-portable,rfc3686(ctr-aes-portable))"),
        (Kind::Skcipher, "cts(cbc(camellia))", "cts(cbc-camellia-portable)"),
    ] {
        assert_eq!(registry.lookup(kind, name).unwrap().rows()[0].driver, driver);
        assert_eq!(registry.lookup(kind, driver).unwrap().info().name, name);
    }
    for (kind, name) in [
        (Kind::Aead, "rfc4106(ccm(aes))"),
        (Kind::Aead, "rfc4106(gcm(aes),gcm(aes))"),
        (Kind::Aead, "authenc(sha256,cbc(aes))"),
        (Kind::Aead, "authenc(hmac(sha256))"),
        (Kind::Aead, "rfc7539esp(chacha20,poly1306)"),
        (Kind::Skcipher, "cts(ctr(aes))"),
        (Kind::Skcipher, "rfc3686(cbc(aes))"),
        (Kind::Skcipher, "rfc4106(gcm(aes))"),
    ] {
        assert_eq!(registry.lookup(kind, name).err(), Some(LookupError::NotFound), "{name}");
    }
}
