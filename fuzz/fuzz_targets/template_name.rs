//! Names of algorithms: the parser, and look-ups in the registry.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_crypto::template::{MAX_DEPTH, MAX_NAME_LEN, Name};
use sealane_crypto::{Kind, LookupError, Registry};
use std::sync::LazyLock;

fn check(name: &Name<'_>, depth: usize) {
    assert!(depth < MAX_DEPTH);
    assert!(name.text.starts_with(name.head) && !name.head.is_empty());
    if name.args.is_empty() {
        assert_eq!(name.text, name.head);
    } else {
        let args: Vec<&str> = name.args.iter().map(|a| a.text).collect();
        assert_eq!(name.text, format!("{}({})", name.head, args.join(",")));
    }
    assert_eq!(Name::parse(name.text).as_ref(), Ok(name));
    name.args.iter().for_each(|arg| check(arg, depth + 1));
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Name::parse(text) {
        Ok(name) => {
            assert_eq!(name.text, text);
            assert!(text.len() <= MAX_NAME_LEN);
            check(&name, 0);
        }
        Err(LookupError::Name { at, .. }) => assert!(at <= text.len()),
        Err(other) => panic!("{other:?}"),
    }
    static REGISTRY: LazyLock<Registry> = LazyLock::new(sealane_fuzz::registry);
    for kind in [Kind::Hash, Kind::NonceMac, Kind::Skcipher, Kind::Aead, Kind::Rng] {
        if let Ok(alg) = REGISTRY.lookup(kind, text) {
            assert_eq!(alg.info().kind, kind);
            assert!(alg.rows().iter().all(|row| alg.info().name == text || row.driver == text));
        }
    }
});
