//! Keys as OpenSSL names them. No panic; a mistake is named with the text, and what is read is written and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_keeper_client::uri::Uri;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = str::from_utf8(input) else { return };
    match Uri::parse(text) {
        Err(e) => assert!(e.to_string().starts_with(&format!("sealane: {text}: "))),
        Ok(uri) => {
            let version = if uri.version == 0 { String::new() } else { format!("?version={}", uri.version) };
            assert_eq!(Uri::parse(&format!("sealane://{}{version}", uri.name)), Ok(uri));
        }
    }
});
