//! TCP options: the walk, the authentication option as the kernel finds it, and inserting ours before the others.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_fuzz::{Input, offered};
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::output::OptionFields;
use sealane_net_ao::segment::{MAX_OPTIONS_LEN, options_with};
use sealane_wire::tcp::{Auth, Options, kind};

/// Returns all options but NOPs; `None` when one is malformed.
fn list(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let all: Result<Vec<_>, _> = Options::new(bytes).collect();
    Some(all.ok()?.iter().filter(|o| o.kind() != kind::NOP).map(|o| o.bytes.to_vec()).collect())
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let fields =
        OptionFields { key_id: input.byte(), rnext_key_id: input.byte(), mac_len: usize::from(input.byte() % 40) };
    let options = input.take(60);
    let mut end = 0;
    for option in Options::new(options) {
        let Ok(option) = option else { break };
        assert_eq!(option.at, end, "one behind the other");
        assert_eq!(options[option.at..].get(..option.bytes.len()), Some(option.bytes));
        assert_ne!(option.kind(), kind::EOL);
        end += option.bytes.len();
    }
    match Auth::find(options) {
        Ok(Some(Auth::Ao(o))) => {
            assert_eq!(options[o.at..o.at + 4], [kind::AO, (o.mac_len + 4) as u8, o.key_id, o.rnext_key_id]);
            assert!(o.mac_len > 0 && o.at + 4 + o.mac_len <= options.len());
        }
        Ok(Some(Auth::Md5 { at })) => assert_eq!(options[at..at + 2], [kind::MD5, 18]),
        Ok(None) | Err(_) => {}
    }

    // Options in a header take whole words.
    let options = &options[..options.len().min(MAX_OPTIONS_LEN) & !3];
    match options_with(&fields, options) {
        Ok(out) => {
            let padded = fields.padded_len();
            assert!(out.len() <= MAX_OPTIONS_LEN && out.len() % 4 == 0);
            assert_eq!(out[..4], [kind::AO, (fields.mac_len + 4) as u8, fields.key_id, fields.rnext_key_id]);
            assert!(out[4..4 + fields.mac_len].iter().all(|b| *b == 0));
            assert!(out[4 + fields.mac_len..padded].iter().all(|b| *b == kind::NOP));
            if padded + options.len() <= MAX_OPTIONS_LEN {
                assert_eq!(out[padded..], offered(options, padded));
                return;
            }
            // Only SACK blocks have been removed, from the end.
            let (before, after) = (list(options).expect("well-formed"), list(&out[padded..]).expect("well-formed"));
            let mut kept = after.iter().peekable();
            for option in &before {
                let trimmed = |next: &Vec<u8>| {
                    let front = next.len() < option.len() && option[2..].starts_with(&next[2..]);
                    option[0] == kind::SACK && next[0] == kind::SACK && next.len() % 8 == 2 && front
                };
                match kept.peek() {
                    Some(next) if *next == option || trimmed(next) => drop(kept.next()),
                    _ => assert_eq!(option[0], kind::SACK, "{before:?} {after:?}"),
                }
            }
            assert_eq!(kept.next(), None);
        }
        Err(reason) => {
            assert!(matches!(reason, DropReason::NoRoom | DropReason::BadHeader));
            assert!(fields.padded_len() + options.len() > MAX_OPTIONS_LEN, "it would have fitted");
        }
    }
});
