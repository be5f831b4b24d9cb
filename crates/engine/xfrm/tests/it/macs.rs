//! MACs by name: those that Linux has no row for, and those of the crypto core that are none for packets.

use super::*;
use sealane_crypto::{KeyUse, Kind};

/// The answer to a state of AH whose MAC has this name, key and length of the ICV in bits.
fn said(name: &str, key: &[u8], icv_bits: u32) -> (i32, String) {
    let id = Id { daddr: address("192.0.2.2"), spi: 0x100.into(), proto: IPPROTO_AH, pad: [0; 3] };
    let order = XfrmMessage::new(Body::NewSa(UsersaInfo { id, ..state(0x100) })).with(auth(name, key, icv_bits));
    answer(&call(&mut xfrm(), &order, at(0)))
}

#[test]
fn what_linux_has_no_row_for() {
    const FINE: (i32, String) = (0, String::new());
    for name in ["hmac(sha224)", "hmac(sha3-256)", "blake2s-256", "blake3", "kmac256-128", "hmac(rmd160)"] {
        assert_eq!([0, 96, 128].map(|bits| said(name, &[1; 32], bits)), [FINE; 3], "{name}");
    }
    let (errno, text) = said("kmac256-128", &[1; 32], 136);
    assert_eq!((errno, &text[..]), (Errno::EINVAL.number(), "Invalid length requested for truncated ICV"));
    // Without a key anybody computes it.
    for name in ["blake2b-256", "kmac256-128", "hmac(sha3-256)"] {
        assert_eq!(said(name, &[], 128).0, Errno::EINVAL.number(), "{name}");
        assert_eq!(said(name, &[1; 32], 88).0, Errno::EINVAL.number(), "{name}");
    }
}

#[test]
fn what_is_none_for_packets() {
    let unsound = (Errno::ENOSYS.number(), Reason::AuthUnsound.text().to_owned());
    // Weak, with short tags, for other uses, with nonces.
    let none = [
        "hmac(md4)",
        "cbcmac(aes)",
        "siphash24",
        "crc32",
        "crc32c",
        "xxhash64",
        "cmac(des)",
        "cmac(des3_ede)",
        "kmac256",
        "kmac256-kdf",
        "gmac(aes)",
        "poly1305",
    ];
    for name in none {
        assert_eq!(said(name, &[1; 16], 96), unsound, "{name}");
    }
    // All others of the crypto core are for packets.
    let registry = sealane_crypto_portable::registry();
    for row in registry.rows().iter().filter(|row| row.info.kind == Kind::Hash && row.info.key_use != KeyUse::None) {
        let taken = [16, 32].iter().any(|len| said(&row.info.name, &vec![1; *len], 0) == (0, String::new()));
        assert_eq!(taken, !none.contains(&&*row.info.name), "{}", row.info.name);
    }
    for name in ["sha384", "hmac(whirlpool)", "gcm(aes)"] {
        assert_eq!(said(name, &[1; 16], 96), (Errno::ENOSYS.number(), Reason::AuthTruncUnknown.text().to_owned()));
    }
}
