//! The portable hashes, MACs and generators: every row passes its self-test and has a published vector.

use sealane_crypto::selftest::vectors;
use sealane_crypto::{Kind, portable_registry};

#[test]
fn every_row_has_a_vector_and_passes() {
    let registry = portable_registry();
    for row in registry.rows() {
        let name = if row.info.kind == Kind::Rng { &row.driver } else { &row.info.name };
        // The host's entropy under a name of the kernel's: nothing about it can be foretold.
        let random = name == "jitterentropy_rng";
        assert!(random || !vectors::of(name).is_empty(), "{name} has no vector");
        if let Err(what) = registry.self_test(row) {
            panic!("{what}");
        }
    }
}
