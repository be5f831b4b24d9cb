//! The strength of MACs against forgers.

use crate::data::{Source, Table};
use sealane_crypto::{Alg, AlgInfo, Kind, Lengths};

/// The table of what is stated of these MACs.
pub(super) fn strength(macs: &[Alg]) -> Table {
    let columns = ["MAC", "tag, bits", "key, bits", "nonce", "chance to forge, as stated", "stated in", "use"];
    Table {
        title: "The strength of each MAC against forgers".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: macs.iter().map(|alg| row(alg.info()).to_vec()).collect(),
        source: Source::Published(
            "The documents that the table names. t: bits of the tag, less if it is cut short. A try: a message with a guessed tag that \
             somebody verifies."
                .to_owned(),
        ),
    }
}

fn row(info: &AlgInfo) -> [String; 7] {
    let (bound, source) = bound(info);
    let nonce = match (info.kind, info.iv_len) {
        (Kind::NonceMac, 0) => "a key for each message".to_owned(),
        (Kind::NonceMac, len) => format!("{} bits, never twice under a key", 8 * len),
        _ => "none".to_owned(),
    };
    let usage = if info.legacy { "old protocols only" } else { "" };
    [info.name.clone(), (8 * info.digest_len).to_string(), keys(info), nonce, bound, source, usage.to_owned()]
}

/// The lengths of keys, in bits.
fn keys(info: &AlgInfo) -> String {
    match info.key_lens {
        Lengths::None => String::new(),
        Lengths::Range(_, usize::MAX) => "any".to_owned(),
        Lengths::Range(min, max) if min == max => (8 * min).to_string(),
        Lengths::Range(min, max) => format!("{} to {}", 8 * min, 8 * max),
        Lengths::Of(list) => list.iter().map(|len| (8 * len).to_string()).collect::<Vec<_>>().join(", "),
    }
}

/// The bound that is stated for forging, and its source.
fn bound(info: &AlgInfo) -> (String, String) {
    let name = &*info.name;
    let said = |bound: &str, source: &str| (bound.to_owned(), source.to_owned());
    if let Some(hash) = name.strip_prefix("hmac(").and_then(|rest| rest.strip_suffix(')')) {
        let collisions = chaining_bits(hash, info.digest_len).map_or(String::new(), |bits| {
            format!("; by collisions of the hash's state after about 2^{} messages", bits / 2)
        });
        let weak = match hash {
            "md4" | "md5" => "; collisions of the hash without its key are easy",
            _ => "",
        };
        return (format!("2^-t a try{collisions}{weak}"), "RFC 2104, section 6".to_owned());
    }
    match name {
        "cmac(des)" | "cmac(des3_ede)" => said(
            "2^-t a try; at most 2^21 messages under a key, because of blocks of 64 bits",
            "NIST SP 800-38B, appendices A and B",
        ),
        _ if name.starts_with("cmac(") => said(
            "2^-t a try; by collisions of blocks about s^2 / 2^128 for s blocks under a key: at most 2^48 messages",
            "NIST SP 800-38B, appendices A and B",
        ),
        "xcbc(aes)" => said(
            "2^-t a try; by collisions of blocks about s^2 / 2^128 for s blocks under a key",
            "RFC 3566; Black and Rogaway, CRYPTO 2000",
        ),
        "cbcmac(aes)" => said(
            "certain where messages of several lengths have one key: it is a part of CCM, which says the length first",
            "Bellare, Kilian and Rogaway, CRYPTO 1994; RFC 3610",
        ),
        "gmac(aes)" => said(
            "about (l + 1) / 2^t a try, for messages of l blocks of 16 bytes; a nonce that comes twice gives the hash's key away",
            "NIST SP 800-38D, appendices A and B; McGrew and Viega, INDOCRYPT 2004",
        ),
        "poly1305" => said("l / 2^102 a try, for messages of l blocks of 16 bytes", "RFC 8439, section 4"),
        "siphash24" => said(
            "2^-64 a try: too short a tag against somebody who can try often",
            "Aumasson and Bernstein, INDOCRYPT 2012",
        ),
        "blake3" => said("2^-t a try, and no better than 2^-128", "O'Connor et al., BLAKE3, 2020"),
        _ if name.starts_with("kmac256") => {
            said("2^-t a try, with keys of 256 bits or more", "NIST SP 800-185, section 8")
        }
        _ if name.starts_with("blake2") => said("2^-t a try, and no better than 2^-k for a key of k bits", "RFC 7693"),
        _ => said("at best 2^-t a try", "every MAC"),
    }
}

/// The bits of the state that a hash of HMAC carries from block to block, which bounds collisions; of Keccak, its capacity.
pub(crate) fn chaining_bits(hash: &str, digest_len: usize) -> Option<usize> {
    Some(match hash {
        "md4" | "md5" => 128,
        "sha1" | "rmd160" => 160,
        "sha224" | "sha256" | "sm3" => 256,
        "sha384" | "sha512" | "streebog256" | "streebog512" | "wp512" => 512,
        _ if hash.starts_with("sha3-") => 16 * digest_len,
        _ if hash.starts_with("blake2b-") => 512,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(info: &AlgInfo) -> String {
        bound(info).0
    }

    #[test]
    fn lengths_and_bounds_are_of_the_algorithm() {
        let any = Lengths::Range(0, usize::MAX);
        let sha1 = AlgInfo::mac("hmac(sha1)", 64, 20, any);
        assert_eq!(row(&sha1)[..4], ["hmac(sha1)", "160", "any", "none"]);
        assert!(of(&sha1).contains("2^80"), "{}", of(&sha1));
        assert!(of(&AlgInfo::mac("hmac(sha3-256)", 136, 32, any)).contains("2^256"));
        assert!(of(&AlgInfo::mac("hmac(md5)", 64, 16, any)).contains("2^64"));
        assert!(!of(&AlgInfo::mac("hmac(unheard)", 64, 16, any)).contains("collisions"));
        let aes = Lengths::Of(&[16, 24, 32]);
        let gmac = AlgInfo::nonce_mac("gmac(aes)", 16, aes, 12);
        assert_eq!(row(&gmac)[1..4], ["128", "128, 192, 256", "96 bits, never twice under a key"]);
        let poly1305 = AlgInfo::nonce_mac("poly1305", 16, Lengths::Of(&[32]), 0);
        assert_eq!(row(&poly1305)[2..4], ["256", "a key for each message"]);
        let des = AlgInfo::mac("cmac(des)", 8, 8, Lengths::Of(&[8])).legacy();
        assert!(of(&des).contains("2^21"));
        assert_eq!(row(&des)[6], "old protocols only");
    }
}
