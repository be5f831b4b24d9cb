//! Files of the keeper: what is sealed in them, and whole files of a store, of a key and of counters. No panic; what can be read can be written
//! and read again; and no file is opened that this store has not sealed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_keeper::counters;
use sealane_keeper::key::Key;
use sealane_keeper::seal::{Cost, Protection, Sealer, StoreKey};
use sealane_keeper_client::key::Name;
use std::sync::LazyLock;

struct World {
    sealer: Sealer,
    store: StoreKey,
}

fn protection() -> Protection {
    Protection::Credential(vec![7; 32].into())
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let sealer = Sealer::new(&sealane_fuzz::registry()).expect("algorithms");
    let (_, store) = sealer.create_store(&protection(), Cost::RECOMMENDED).expect("a store");
    World { sealer, store }
});

fuzz_target!(|input: &[u8]| {
    let name = Name::new("k").expect("a name");
    match input {
        [0, bytes @ ..] => assert!(WORLD.sealer.open_store(bytes, &protection()).is_err()),
        [1, bytes @ ..] => assert!(WORLD.sealer.open_key(&WORLD.store, &name, bytes).is_err()),
        [3, bytes @ ..] => assert!(WORLD.sealer.open_counters(&WORLD.store, bytes).is_err()),
        [4, bytes @ ..] => {
            if let Ok(entries) = counters::decode(bytes) {
                let file = WORLD.sealer.seal_counters(&WORLD.store, &entries).expect("sealed");
                assert_eq!(WORLD.sealer.open_counters(&WORLD.store, &file), Ok(entries));
            }
        }
        [_, bytes @ ..] => {
            if let Ok(key) = Key::decode(bytes) {
                let file = WORLD.sealer.seal_key(&WORLD.store, &name, &key).expect("sealed");
                assert!(WORLD.sealer.open_key(&WORLD.store, &name, &file).is_ok());
            }
        }
        [] => {}
    }
});
