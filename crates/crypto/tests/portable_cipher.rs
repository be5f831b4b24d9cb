//! The portable ciphers and AEADs: self-tests of every row, and what the vectors do not show.

use sealane_crypto::portable_registry;
use sealane_crypto::registry::Kind;

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
