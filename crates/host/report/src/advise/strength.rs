//! The strength of a choice in bits, at the rate that is asked for.
//!
//! Strength is the smaller one of the key's length and the MAC's (to guess either), less what the construction loses. It loses nothing as
//! long as a day of one key leaves an attacker a chance of at most 2^-32, the bound that NIST SP 800-38B and SP 800-38D set for a key;
//! then as many bits as the chance is greater. These chances are counted, with q messages and s blocks of n bits in the day, and
//! tags of t bits:
//!
//! | construction | chance | source |
//! |---|---|---|
//! | CBC, CTR and GCM's encryption: equal blocks | s^2 / 2^(n+1) | Bellare, Desai, Jokipii, Rogaway, FOCS 1997 |
//! | CMAC, XCBC: equal states | s^2 / 2^n | NIST SP 800-38B, appendix B |
//! | CCM: each block is enciphered twice | (2s)^2 / 2^(n+1) | Jonsson, SAC 2002 |
//! | HMAC: equal states of the hash, of c bits | q^2 / 2^(c+1) | Preneel and van Oorschot, CRYPTO 1995 |
//! | GCM, GMAC: forged in q tries, packets of l blocks | q (l+1) / 2^t | NIST SP 800-38D, appendix B |
//! | Poly1305: the same | q 8l / 2^106 | RFC 8439, section 4 |
//! | nonces of m bits drawn at random | q^2 / 2^(m+1) | NIST SP 800-38D, section 8.3 |

use super::question::Day;
use crate::parts::mac::strength::chaining_bits;
use serde::Serialize;

/// The chance, as a power of two, below which a construction loses nothing.
const HARMLESS: f64 = -32.0;

/// No choice is stronger than this, in bits.
const MOST: u32 = 256;

/// The strength of a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Strength {
    /// In bits: about 2^bits tries, or what is worth as much.
    pub bits: u32,
    /// The point where an attacker would begin.
    pub by: String,
}

impl Strength {
    /// The weaker one of two that are used together.
    pub(super) fn and(self, other: Strength) -> Strength {
        if other.bits < self.bits { other } else { self }
    }
}

/// Why something is never recommended, however little strength is asked for.
pub(super) type Never = &'static str;

/// A chance of a day as a power of two, and where it comes from.
struct Chance(f64, &'static str);

fn settle(key_bits: u32, tag_bits: Option<u32>, chances: &[Chance]) -> Strength {
    let (base, by) = match tag_bits {
        Some(tag) if tag < key_bits => (tag, format!("a tag of {tag} bits")),
        _ => (key_bits, format!("a key of {key_bits} bits")),
    };
    let worst = chances.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    match worst {
        Some(Chance(power, what)) if *power > HARMLESS => {
            let lost = (power - HARMLESS).ceil() as u32;
            let by =
                format!("{what}: a day of one key leaves a chance of 2^{:.0}, which takes {lost} bits", power.min(0.0));
            Strength { bits: base.saturating_sub(lost), by }
        }
        _ => Strength { bits: base.min(MOST), by },
    }
}

impl Day {
    /// Packets, as a power of two.
    fn packets_log2(&self) -> f64 {
        self.packets.log2()
    }

    /// Blocks of so many bits, as a power of two.
    fn blocks_log2(&self, block_bits: u32) -> f64 {
        self.packets_log2() + (self.mean_bytes * 8.0 / f64::from(block_bits)).max(1.0).log2()
    }

    /// Blocks of 16 bytes in the longest packet.
    fn longest(&self) -> f64 {
        self.max_bytes.div_ceil(16) as f64
    }

    fn nonces(&self, nonce_bits: u32) -> Chance {
        let power =
            if self.random_nonces { 2.0 * self.packets_log2() - f64::from(nonce_bits + 1) } else { f64::NEG_INFINITY };
        Chance(power, "nonces drawn at random come twice")
    }
}

/// The block of a cipher in bits; none of ciphers that nobody should use any more, or of which nothing is known here.
fn block_bits(cipher: &str) -> Result<u32, Never> {
    match cipher {
        "aes" | "camellia" | "serpent" | "twofish" | "sm4" | "aria" => Ok(128),
        "des3_ede" | "cast5" | "blowfish" => Ok(64),
        "des" => Err("keys of 56 bits, which are found by trying them all"),
        _ => Err("nothing is known here of its strength"),
    }
}

/// The bits of a cipher's key that count.
fn key_bits(cipher: &str, key_len: usize) -> u32 {
    match cipher {
        // Meet in the middle: NIST SP 800-57 part 1, table 2.
        "des3_ede" => 112,
        _ => 8 * key_len as u32,
    }
}

/// The argument of `mode(argument)`.
fn inside<'a>(name: &'a str, mode: &str) -> Option<&'a str> {
    name.strip_prefix(mode)?.strip_prefix('(')?.strip_suffix(')')
}

/// The strength of a MAC with a key of so many bytes, and a tag of `tag_bits`, cut from `digest_len` bytes.
pub(super) fn of_mac(
    name: &str,
    key_len: usize,
    tag_bits: u32,
    digest_len: usize,
    day: &Day,
) -> Result<Strength, Never> {
    if let Some(hash) = inside(name, "hmac") {
        // NIST SP 800-57 part 1, table 3, has 128 bits for HMAC over SHA-1, and 192 over hashes of 224 bits. RIPEMD-160 is as wide as
        // SHA-1. Of MD5, RFC 6151 knows no forgery by HMAC, but collisions of its compression are easy, so no more than half of its state
        // is counted.
        let most = match (hash, digest_len) {
            ("md4", _) => return Err("MD4 is broken"),
            ("md5", _) => 64,
            (_, ..=20) => 128,
            (_, 28) => 192,
            _ => MOST,
        };
        let state = chaining_bits(hash, digest_len).unwrap_or(8 * digest_len);
        let chance = 2.0 * day.packets_log2() - (state + 1) as f64;
        let chances = [Chance(chance, "equal states of the hash")];
        let mut strength = settle(most.min(8 * key_len as u32), Some(tag_bits), &chances);
        if strength.bits == most && most < MOST && most < tag_bits {
            strength.by = format!("HMAC over {hash} counts as no more");
        }
        return Ok(strength);
    }
    if let Some(cipher) = inside(name, "cmac").or_else(|| inside(name, "xcbc")) {
        let block = block_bits(cipher)?;
        let chance = 2.0 * day.blocks_log2(block) - f64::from(block);
        return Ok(settle(key_bits(cipher, key_len), Some(tag_bits), &[Chance(chance, "equal states between blocks")]));
    }
    let most = match name {
        // The BLAKE3 paper claims 128 bits for all that it does.
        "blake3" => 128,
        "siphash24" => 128,
        "kmac256" | "kmac256-128" => MOST,
        _ if name.starts_with("blake2") => (8 * digest_len as u32).min(MOST),
        _ if name.starts_with("cbcmac(") => {
            return Err("a part of CCM: by itself it is forged where lengths of messages differ");
        }
        "digest_null" => return Err("it authenticates nothing"),
        "crc32" | "crc32c" | "xxhash64" => return Err("a checksum, and no MAC"),
        "kmac256-kdf" => return Err("it derives keys"),
        _ => return Err("nothing is known here of its strength"),
    };
    Ok(settle(most.min(8 * key_len as u32), Some(tag_bits), &[]))
}

/// The strength of a cipher without integrity.
pub(super) fn of_cipher(name: &str, key_len: usize, day: &Day) -> Result<Strength, Never> {
    if let Some(inner) = inside(name, "rfc3686") {
        return of_cipher(inner, key_len, day);
    }
    match name {
        "chacha20" | "xchacha20" => {
            let bits = if name == "chacha20" { 128 } else { 192 };
            return Ok(settle(8 * key_len as u32, None, &[day.nonces(bits)]));
        }
        _ => {}
    }
    let mode = name.split('(').next().unwrap_or(name);
    match mode {
        "ecb" => return Err("equal blocks of text stay equal blocks"),
        // Eight or twelve of 20 rounds: a margin that is left for discs.
        "xchacha12" | "adiantum" | "hctr2" | "cts" | "xts" | "lrw" => {
            return Err("made for sectors of discs, not for packets");
        }
        _ => {}
    }
    let cipher = inside(name, mode).unwrap_or("");
    let block = block_bits(cipher)?;
    let equal = Chance(2.0 * day.blocks_log2(block) - f64::from(block + 1), "equal blocks under a key");
    match mode {
        // The IV of CBC has to be unpredictable, so it is random or encrypted anyway: a block of it is a block like the others.
        "cbc" => Ok(settle(key_bits(cipher, key_len), None, &[equal])),
        "ctr" => Ok(settle(key_bits(cipher, key_len), None, &[equal, day.nonces(block)])),
        _ => Err("nothing is known here of its strength"),
    }
}

/// The strength of an AEAD by its plain name, with a tag of `tag_bits`.
pub(super) fn of_aead(name: &str, key_len: usize, tag_bits: u32, day: &Day) -> Result<Strength, Never> {
    if name == "rfc7539(chacha20,poly1305)" {
        let forged = day.packets_log2() + (8.0 * day.longest()).log2() - 106.0;
        return Ok(settle(
            8 * key_len as u32,
            Some(tag_bits),
            &[Chance(forged, "forged tags of Poly1305"), day.nonces(96)],
        ));
    }
    let mode = name.split('(').next().unwrap_or(name);
    let cipher = inside(name, mode).unwrap_or("");
    let block = block_bits(cipher)?;
    let blocks = 2.0 * day.blocks_log2(block) - f64::from(block + 1);
    let equal = |power| Chance(power, "equal blocks under a key");
    match mode {
        "gcm" => {
            let forged = day.packets_log2() + (day.longest() + 1.0).log2() - f64::from(tag_bits);
            let chances = [equal(blocks), Chance(forged, "forged tags of GHASH"), day.nonces(96)];
            Ok(settle(key_bits(cipher, key_len), Some(tag_bits), &chances))
        }
        "ccm" => Ok(settle(key_bits(cipher, key_len), Some(tag_bits), &[equal(blocks + 2.0), day.nonces(88)])),
        _ => Err("nothing is known here of its strength"),
    }
}

/// The strength of GMAC, the MAC of GCM.
pub(super) fn of_gmac(key_len: usize, tag_bits: u32, day: &Day) -> Strength {
    let forged = day.packets_log2() + (day.longest() + 1.0).log2() - f64::from(tag_bits);
    settle(8 * key_len as u32, Some(tag_bits), &[Chance(forged, "forged tags of GHASH")])
}

/// The strength of a hash without a key against collisions.
pub(super) fn of_hash(name: &str, digest_len: usize) -> Result<Strength, Never> {
    let bits = match name {
        "md4" => return Err("MD4 is broken"),
        // Xie, Liu and Feng, 2013: collisions of MD5 in 2^18. Leurent and Peyrin, 2020: of SHA-1 in 2^61.
        "md5" => return Err("collisions of MD5 take a second"),
        "sha1" => 61,
        "crc32" | "crc32c" | "xxhash64" => return Err("a checksum, and no hash"),
        _ => (4 * digest_len as u32).min(MOST),
    };
    Ok(Strength { bits, by: format!("collisions of a digest of {} bits", 8 * digest_len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that sees little.
    const CALM: Day = Day { packets: 1e6, mean_bytes: 1420.0, max_bytes: 1420, random_nonces: false };
    /// A key at 10 Gbit/s.
    const BUSY: Day = Day { packets: 7.6e10, ..CALM };

    fn bits(strength: Result<Strength, Never>) -> Option<u32> {
        strength.ok().map(|s| s.bits)
    }

    #[test]
    fn macs() {
        for (name, key_len, tag_bits, digest_len, calm, busy) in [
            ("hmac(sha1)", 20, 96, 20, Some(96), Some(96)),
            ("hmac(sha1)", 20, 160, 20, Some(128), Some(128)),
            ("hmac(sha224)", 28, 224, 28, Some(192), Some(192)),
            ("hmac(sha256)", 32, 128, 32, Some(128), Some(128)),
            ("hmac(sha512)", 64, 512, 64, Some(256), Some(256)),
            ("hmac(md5)", 16, 96, 16, Some(64), Some(64)),
            ("hmac(md4)", 16, 96, 16, None, None),
            ("hmac(rmd160)", 20, 160, 20, Some(128), Some(128)),
            ("hmac(sha3-256)", 32, 128, 32, Some(128), Some(128)),
            ("cmac(aes)", 16, 96, 16, Some(96), Some(96)),
            ("cmac(aes)", 32, 128, 16, Some(128), Some(128)),
            ("xcbc(aes)", 16, 96, 16, Some(96), Some(96)),
            ("cmac(des3_ede)", 24, 64, 8, Some(41), Some(8)),
            ("cmac(des)", 8, 64, 8, None, None),
            ("cbcmac(aes)", 16, 128, 16, None, None),
            ("blake3", 32, 256, 32, Some(128), Some(128)),
            ("blake2s-256", 32, 128, 32, Some(128), Some(128)),
            ("kmac256-128", 32, 128, 16, Some(128), Some(128)),
            ("siphash24", 16, 64, 8, Some(64), Some(64)),
            ("digest_null", 0, 0, 0, None, None),
            ("crc32c", 4, 32, 4, None, None),
            ("unheard", 16, 128, 16, None, None),
        ] {
            let at = |day| bits(of_mac(name, key_len, tag_bits, digest_len, day));
            assert_eq!([at(&CALM), at(&BUSY)], [calm, busy], "{name} {tag_bits}");
        }
    }

    #[test]
    fn ciphers() {
        for (name, key_len, calm, busy) in [
            ("cbc(aes)", 16, Some(128), Some(128)),
            ("cbc(aes)", 32, Some(256), Some(256)),
            ("rfc3686(ctr(aes))", 16, Some(128), Some(128)),
            ("ctr(camellia)", 16, Some(128), Some(128)),
            ("cbc(des3_ede)", 24, Some(90), Some(57)),
            ("cbc(des)", 8, None, None),
            ("ecb(aes)", 16, None, None),
            ("xts(aes)", 32, None, None),
            ("chacha20", 32, Some(256), Some(256)),
            ("arc4", 16, None, None),
        ] {
            let at = |day| bits(of_cipher(name, key_len, day));
            assert_eq!([at(&CALM), at(&BUSY)], [calm, busy], "{name}");
        }
    }

    #[test]
    fn aeads() {
        for (name, key_len, tag_bits, calm, busy) in [
            ("gcm(aes)", 16, 128, Some(128), Some(128)),
            ("gcm(aes)", 32, 128, Some(128), Some(128)),
            ("gcm(aes)", 16, 64, Some(64), Some(53)),
            ("ccm(aes)", 16, 128, Some(128), Some(128)),
            ("rfc7539(chacha20,poly1305)", 32, 128, Some(128), Some(128)),
            ("gcm(des)", 16, 128, None, None),
            ("unheard(aes)", 16, 128, None, None),
        ] {
            let at = |day| bits(of_aead(name, key_len, tag_bits, day));
            assert_eq!([at(&CALM), at(&BUSY)], [calm, busy], "{name} {tag_bits}");
        }
        assert_eq!(of_gmac(16, 128, &BUSY).bits, 128);
        let random = Day { random_nonces: true, ..BUSY };
        let gcm = of_aead("gcm(aes)", 16, 128, &random).unwrap();
        assert!(gcm.bits == 120 && gcm.by.contains("nonces drawn at random"), "{gcm:?}");
    }

    #[test]
    fn hashes() {
        for (name, digest_len, expected) in [
            ("sha256", 32, Some(128)),
            ("sha512", 64, Some(256)),
            ("sha1", 20, Some(61)),
            ("md5", 16, None),
            ("md4", 16, None),
            ("crc32", 4, None),
        ] {
            assert_eq!(bits(of_hash(name, digest_len)), expected, "{name}");
        }
    }

    #[test]
    fn what_limits_is_named() {
        assert_eq!(of_mac("hmac(sha1)", 20, 96, 20, &CALM).unwrap().by, "a tag of 96 bits");
        assert_eq!(of_mac("hmac(md5)", 16, 96, 16, &CALM).unwrap().by, "HMAC over md5 counts as no more");
        assert_eq!(of_cipher("cbc(aes)", 16, &CALM).unwrap().by, "a key of 128 bits");
        // A terabit a second under one key is too much for blocks of 128 bits.
        let worn = of_mac("cmac(aes)", 16, 96, 16, &Day { packets: 7.6e12, ..CALM }).unwrap();
        assert!(worn.bits < 96 && worn.by.starts_with("equal states between blocks"), "{worn:?}");
    }
}
