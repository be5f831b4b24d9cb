//! The choices of an interface, and why some are left out.

use super::cost::Part;
use super::question::{Day, Interface, Question};
use super::strength::{self, Never, Strength};
use sealane_crypto::{Alg, KeyUse, Kind, Lengths, Registry};
use sealane_net_ao::alg::{Algorithms, Source};
use sealane_net_ipsec::transform::{self, IvKind};
use serde::Serialize;

/// The longest MAC of TCP-AO in bytes: what Linux and RFC 5925's option take beside other options.
const MAX_AO_MAC_LEN: usize = 16;

/// The MACs that Linux 7.1 and later have for TCP-AO.
const AO_LINUX: [&str; 3] = ["hmac(sha1)", "hmac(sha256)", "cmac(aes128)"];

/// The MACs of IPsec that Linux 7.3 has (`net/xfrm/xfrm_algo.c`). The others are Sealane's.
const IPSEC_LINUX: [&str; 8] =
    ["hmac(md5)", "hmac(sha1)", "hmac(sha256)", "hmac(sha384)", "hmac(sha512)", "xcbc(aes)", "cmac(aes)", "hmac(sm3)"];

/// A choice that is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// A choice that has all that was asked for.
pub(super) struct Candidate {
    /// As it is typed: a name of TCP-AO or AF_ALG, or a part of a line of `ip xfrm state`.
    pub(super) name: String,
    /// Lengths of keys in bytes, in the order in which they are typed.
    pub(super) key_bytes: Vec<usize>,
    /// Length of the MAC in bits; 0 for ciphers and hashes.
    pub(super) icv_bits: u32,
    pub(super) strength: Strength,
    /// Bytes that a packet of mean length grows by, without an outer IP header.
    pub(super) adds_bytes: f64,
    /// The documents and kernels that have it too.
    pub(super) known_by: &'static str,
    /// The algorithms that are computed for a packet, one after the other.
    pub(super) parts: Vec<Part>,
    /// The composition of these parts, where it can be measured as one.
    pub(super) whole: Option<Whole>,
}

/// A composition. It is looked up, and tested, when it is measured: there are hundreds of them.
pub(super) struct Whole {
    name: String,
    /// Length of the cipher's key in bytes, with a salt.
    key_len: usize,
    align: usize,
}

/// Bytes of ESP's trailer without padding: the length of the padding, and the next header.
const TRAILER_LEN: usize = 2;

impl Candidate {
    /// The parts that are measured: the composition as one, or else each part.
    pub(super) fn measurable(&self, registry: &Registry) -> Vec<Part> {
        let whole = self.whole.as_ref().and_then(|Whole { name, key_len, align }| {
            let alg = registry.lookup(Kind::Aead, name).ok()?;
            Some(Part::cipher(&alg, Some(*key_len), TRAILER_LEN as isize, *align))
        });
        whole.map_or_else(|| self.parts.clone(), |whole| vec![whole])
    }
}

/// The choices of a question.
pub(super) struct Candidates {
    pub(super) admitted: Vec<Candidate>,
    pub(super) left_out: Vec<LeftOut>,
}

/// All choices of the interface, divided.
pub(super) fn candidates(registry: &Registry, question: &Question) -> Candidates {
    let day = question.day();
    let mut sort = Sort { registry, question, day, found: Candidates { admitted: Vec::new(), left_out: Vec::new() } };
    match question.interface {
        Interface::TcpAo => sort.tcp_ao(),
        Interface::Ipsec => sort.ipsec(),
        Interface::AfAlgMac => sort.macs(),
        Interface::AfAlgCipher => sort.ciphers(),
        Interface::AfAlgAead => sort.aeads(),
        Interface::AfAlgHash => sort.hashes(),
    }
    sort.found
}

struct Sort<'a> {
    registry: &'a Registry,
    question: &'a Question,
    day: Day,
    found: Candidates,
}

/// A half of a choice of IPsec: a MAC or a cipher that is strong enough.
struct Half {
    name: &'static str,
    strength: Strength,
    /// Length of its key in bytes, with the salt.
    key_len: usize,
    salt: usize,
    /// Length of the IV in each packet in bytes.
    iv_len: usize,
    /// The algorithm, without a salt.
    alg: Alg,
}

impl Sort<'_> {
    fn leave(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        let left = LeftOut { name: name.into(), reason: reason.into() };
        if !self.found.left_out.contains(&left) {
            self.found.left_out.push(left);
        }
    }

    /// The strength, if it is enough; otherwise the choice is left out.
    fn enough(&mut self, name: &str, strength: Result<Strength, Never>) -> Option<Strength> {
        match strength {
            Ok(strength) if strength.bits >= self.question.strength_bits => return Some(strength),
            Ok(Strength { bits, by }) => {
                self.leave(name, format!("{bits} bits, of {} asked for ({by})", self.question.strength_bits));
            }
            Err(why) => self.leave(name, why),
        }
        None
    }

    /// The algorithm of this name; a driver that fails its self-test is a reason, a name that nobody serves is none.
    fn look_up(&mut self, kind: Kind, name: &str) -> Option<Alg> {
        match self.registry.lookup(kind, name) {
            Ok(alg) => Some(alg),
            Err(sealane_crypto::LookupError::NotFound) => None,
            Err(why) => {
                self.leave(name, why.to_string());
                None
            }
        }
    }

    /// The shortest of these lengths of a MAC, in bits, that is long enough, or else the longest; none where none is short enough.
    fn icv(&self, lengths: &[u32]) -> Option<u32> {
        let most = self.question.max_icv_bits.unwrap_or(u32::MAX);
        let fitting = || lengths.iter().copied().filter(|&bits| bits <= most);
        fitting().filter(|&bits| bits >= self.question.strength_bits).min().or_else(|| fitting().max())
    }

    fn too_long(&mut self, name: &str) {
        let most = self.question.max_icv_bits.unwrap_or(u32::MAX);
        self.leave(name, format!("its MAC is longer than {most} bits"));
    }

    fn needs_nonces(&mut self, name: &str) {
        self.leave(name, "it needs a number that never comes twice under a key");
    }

    /// The mean number of bytes that are added so that a packet with `more` bytes has a multiple of `align`.
    fn padding(&self, more: usize, align: usize) -> f64 {
        self.question.sizes.mean(|bytes| ((bytes + more).next_multiple_of(align) - bytes - more) as f64)
    }

    fn tcp_ao(&mut self) {
        for algorithm in Algorithms::new(self.registry).iter() {
            let (name, digest_len) = (algorithm.name, algorithm.digest_len);
            let usual = algorithm.default_mac_len as u32 * 8;
            // A MAC may have any whole number of bytes, but for those of a draft, which says 128 bits.
            let most = 8 * MAX_AO_MAC_LEN.min(digest_len) as u32;
            let lengths: Vec<u32> = if algorithm.source == Source::Draft {
                vec![usual]
            } else {
                (32..usual).step_by(8).filter(|_| self.question.max_icv_bits.is_some()).chain([usual, most]).collect()
            };
            let Some(icv_bits) = self.icv(&lengths) else {
                self.too_long(name);
                continue;
            };
            let mac = &algorithm.mac().info().name;
            let strength = strength::of_mac(mac, algorithm.traffic_key_len, icv_bits, digest_len, &self.day);
            let Some(strength) = self.enough(name, strength) else { continue };
            let known_by = match algorithm.source {
                Source::Rfc5926 => "RFC 5926, Linux",
                Source::Linux if AO_LINUX.contains(&name) => "Linux",
                Source::Linux => "Linux until 7.0",
                Source::Draft => "a draft",
            };
            // The MAC is over a pseudo-header (12 bytes) and the SNE (4) in place of the IP header (20).
            let part = Part::mac(algorithm.mac(), key_len_of(algorithm.mac(), algorithm.traffic_key_len), -4, 1);
            self.found.admitted.push(Candidate {
                name: name.to_owned(),
                key_bytes: Vec::new(),
                icv_bits,
                strength,
                adds_bytes: (4 + icv_bits as usize / 8).next_multiple_of(4) as f64,
                known_by,
                parts: vec![part],
                whole: None,
            });
        }
    }

    fn ipsec(&mut self) {
        for (name, icvs) in transform::aeads() {
            self.ipsec_aead(name, icvs);
        }
        let macs = self.ipsec_macs();
        if !self.question.encryption {
            for (mac, icv_bits) in &macs {
                self.ah_and_null(mac, *icv_bits);
            }
        }
        let mut ciphers = Vec::new();
        for (name, iv) in transform::encs() {
            if iv == IvKind::None {
                if self.question.encryption {
                    self.leave(format!("enc {name}"), "it encrypts nothing");
                }
                continue;
            }
            let Some(alg) = self.look_up(Kind::Skcipher, name) else { continue };
            if !self.question.nonces && iv == IvKind::Counter {
                self.needs_nonces(&format!("enc {name}"));
                continue;
            }
            let (part, salt) = match name.strip_prefix("rfc3686(").and_then(|rest| rest.strip_suffix(')')) {
                Some(inner) => (self.look_up(Kind::Skcipher, inner), 4),
                None => (Some(alg.clone()), 0),
            };
            let Some(part) = part else { continue };
            for key_len in key_lens(alg.info().key_lens, salt) {
                let typed = format!("enc {name}, key of {key_len} bytes");
                let strength = strength::of_cipher(name, key_len - salt, &self.day);
                if let Some(strength) = self.enough(&typed, strength) {
                    ciphers.push(Half { name, strength, key_len, salt, iv_len: alg.info().iv_len, alg: part.clone() });
                }
            }
        }
        for cipher in &ciphers {
            for (mac, icv_bits) in &macs {
                self.enc_auth(cipher, mac, *icv_bits);
            }
        }
    }

    fn ipsec_aead(&mut self, name: &'static str, icvs: &[u32]) {
        let typed = |icv: u32| format!("aead '{name}' KEY {icv}");
        let is_gmac = name.starts_with("rfc4543(");
        let Some(alg) = self.look_up(Kind::Aead, name) else { return };
        if is_gmac && self.question.encryption {
            return self.leave(format!("aead {name}"), "it encrypts nothing");
        }
        if !self.question.nonces {
            return self.needs_nonces(&format!("aead {name}"));
        }
        let Some(icv_bits) = self.icv(icvs) else { return self.too_long(&format!("aead {name}")) };
        let (inner, salt) = match name.split_once('(') {
            Some(("rfc7539esp", _)) => ("rfc7539(chacha20,poly1305)", 4),
            Some(("rfc4309", _)) => ("ccm(aes)", 3),
            _ => ("gcm(aes)", 4),
        };
        let Some(inner) = self.look_up(Kind::Aead, inner) else { return };
        for key_len in key_lens(alg.info().key_lens, salt) {
            let cipher_key_len = key_len - salt;
            let strength = if is_gmac {
                Ok(strength::of_gmac(cipher_key_len, icv_bits, &self.day))
            } else {
                strength::of_aead(&inner.info().name, cipher_key_len, icv_bits, &self.day)
            };
            let Some(strength) = self.enough(&format!("aead {name}, key of {key_len} bytes"), strength) else {
                continue;
            };
            let (extra, align) = (TRAILER_LEN as isize, 4);
            let part = if is_gmac {
                let gmac = self.look_up(Kind::NonceMac, "gmac(aes)");
                gmac.map(|gmac| Part::mac(&gmac, Some(cipher_key_len), extra + 16, align))
            } else {
                Some(Part::cipher(&inner, Some(cipher_key_len), extra, align))
            };
            // ESP's header, the IV, the trailer and the ICV.
            let adds = 8 + 8 + TRAILER_LEN + icv_bits as usize / 8;
            let adds_bytes = adds as f64 + self.padding(TRAILER_LEN, align);
            self.found.admitted.push(Candidate {
                name: typed(icv_bits),
                key_bytes: vec![key_len],
                icv_bits,
                strength,
                adds_bytes,
                known_by: "Linux",
                parts: part.into_iter().collect(),
                whole: Some(Whole { name: name.to_owned(), key_len, align }),
            });
        }
    }

    /// The MACs of IPsec that are strong enough, each with the length of its ICV.
    fn ipsec_macs(&mut self) -> Vec<(Half, u32)> {
        let mut macs = Vec::new();
        for auth in transform::auths() {
            let name = auth.name;
            let typed = format!("auth-trunc {name}");
            if auth.full_bits == 0 {
                self.leave(typed, "it authenticates nothing");
                continue;
            }
            let Some(alg) = self.look_up(Kind::Hash, name) else { continue };
            let half = if auth.full_bits.is_multiple_of(16) { auth.full_bits / 2 } else { auth.full_bits };
            let lengths: Vec<u32> = [auth.icv_bits, half.max(auth.icv_bits), auth.full_bits].into();
            let Some(icv_bits) = self.icv(&lengths) else {
                self.too_long(&typed);
                continue;
            };
            let info = alg.info();
            let usual =
                if info.key_lens.contains(info.digest_len) { info.digest_len } else { info.key_lens.max().min(32) };
            let lens = if info.key_lens.contains(16) && !info.key_lens.contains(17) {
                key_lens(info.key_lens, 0)
            } else {
                vec![usual]
            };
            for key_len in lens {
                let strength = strength::of_mac(name, key_len, icv_bits, info.digest_len, &self.day);
                if let Some(strength) = self.enough(&format!("{typed} KEY {icv_bits}"), strength) {
                    let half = Half { name, strength, key_len, salt: 0, iv_len: 0, alg: alg.clone() };
                    macs.push((half, icv_bits));
                }
            }
        }
        macs
    }

    fn ah_and_null(&mut self, mac: &Half, icv_bits: u32) {
        let Half { name, key_len, strength, alg, .. } = mac;
        let icv_len = icv_bits as usize / 8;
        let ways = [
            // ESP: its header, the packet and the trailer.
            (
                format!("proto esp enc ecb(cipher_null) '' auth-trunc '{name}' KEY {icv_bits}"),
                8 + TRAILER_LEN,
                8 + TRAILER_LEN + icv_len,
                self.padding(TRAILER_LEN, 4),
            ),
            // AH: the outer IP header, its own with an empty ICV, and the packet.
            (
                format!("proto ah auth-trunc '{name}' KEY {icv_bits}"),
                20 + 12 + icv_len,
                (12 + icv_len).next_multiple_of(4),
                0.0,
            ),
        ];
        for (typed, extra, adds, padding) in ways {
            self.found.admitted.push(Candidate {
                name: typed,
                key_bytes: vec![*key_len],
                icv_bits,
                strength: strength.clone(),
                adds_bytes: adds as f64 + padding,
                known_by: ipsec_known_by(name),
                parts: vec![Part::mac(alg, key_len_of(alg, *key_len), extra as isize, 1)],
                whole: None,
            });
        }
    }

    fn enc_auth(&mut self, cipher: &Half, mac: &Half, icv_bits: u32) {
        let align = cipher.alg.info().block_len.max(4);
        let iv_len = cipher.iv_len;
        // Compositions are measured with MAC keys of 32 bytes, which changes the cost of MACs of block ciphers.
        let fits = mac.alg.info().key_lens.contains(32) && (!mac.name.starts_with("cmac(") || mac.key_len == 32);
        self.found.admitted.push(Candidate {
            name: format!("enc '{}' KEY auth-trunc '{}' KEY {icv_bits}", cipher.name, mac.name),
            key_bytes: vec![cipher.key_len, mac.key_len],
            icv_bits,
            strength: cipher.strength.clone().and(mac.strength.clone()),
            adds_bytes: (8 + iv_len + TRAILER_LEN + icv_bits as usize / 8) as f64 + self.padding(TRAILER_LEN, align),
            known_by: ipsec_known_by(mac.name),
            parts: vec![
                Part::cipher(&cipher.alg, Some(cipher.key_len - cipher.salt), TRAILER_LEN as isize, align),
                Part::mac(&mac.alg, key_len_of(&mac.alg, mac.key_len), (8 + iv_len + TRAILER_LEN) as isize, 1),
            ],
            whole: fits.then(|| Whole {
                name: format!("authenc({},{})", mac.name, cipher.name),
                key_len: cipher.key_len,
                align,
            }),
        });
    }

    /// The algorithms of a kind, each once, in the order of their rows.
    fn all(&mut self, kind: Kind, is_one: impl Fn(KeyUse) -> bool) -> Vec<Alg> {
        let mut names: Vec<String> = Vec::new();
        for row in self.registry.rows() {
            let info = &row.info;
            if info.kind == kind && is_one(info.key_use) && !names.contains(&info.name) {
                names.push(info.name.clone());
            }
        }
        names.iter().filter_map(|name| self.look_up(kind, name)).collect()
    }

    fn admit_alg(&mut self, name: String, key_len: usize, icv_bits: u32, strength: Strength, adds: usize, part: Part) {
        self.found.admitted.push(Candidate {
            name,
            key_bytes: if key_len == 0 { Vec::new() } else { vec![key_len] },
            icv_bits,
            strength,
            adds_bytes: adds as f64,
            known_by: "",
            parts: vec![part],
            whole: None,
        });
    }

    fn macs(&mut self) {
        for alg in self.all(Kind::Hash, |key_use| key_use != KeyUse::None) {
            let info = alg.info();
            let full = 8 * info.digest_len as u32;
            // A MAC of AF_ALG may be cut to any whole number of bytes.
            let Some(icv_bits) = self.icv(&(32..=full).step_by(8).collect::<Vec<_>>()) else {
                self.too_long(&info.name);
                continue;
            };
            let block = matches!(info.key_lens, Lengths::Of(_));
            let lens = if block {
                key_lens(info.key_lens, 0)
            } else {
                vec![info.digest_len.min(info.key_lens.max()).max(info.key_lens.min())]
            };
            for key_len in lens {
                let strength = strength::of_mac(&info.name, key_len, icv_bits, info.digest_len, &self.day);
                let Some(strength) = self.enough(&info.name, strength) else { continue };
                let part = Part::mac(&alg, key_len_of(&alg, key_len), 0, 1);
                self.admit_alg(info.name.clone(), key_len, icv_bits, strength, icv_bits as usize / 8, part);
            }
        }
    }

    fn ciphers(&mut self) {
        for alg in self.all(Kind::Skcipher, |_| true) {
            let info = alg.info();
            for key_len in key_lens(info.key_lens, 0) {
                let strength = strength::of_cipher(&info.name, key_len, &self.day);
                let Some(strength) = self.enough(&info.name, strength) else { continue };
                if !self.question.nonces {
                    self.needs_nonces(&info.name);
                    continue;
                }
                let part = Part::cipher(&alg, Some(key_len), 0, info.block_len.max(1));
                let adds = self.travelling(info.iv_len);
                self.admit_alg(info.name.clone(), key_len, 0, strength, adds, part);
            }
        }
    }

    /// Bytes of a nonce that goes with each message, because the receiver cannot count.
    fn travelling(&self, nonce_len: usize) -> usize {
        if self.question.order { 0 } else { nonce_len }
    }

    fn aeads(&mut self) {
        for alg in self.all(Kind::Aead, |_| true) {
            let info = alg.info();
            if !self.question.nonces {
                self.needs_nonces(&info.name);
                continue;
            }
            let tags: Vec<u32> =
                (4..=info.digest_len).filter(|&len| info.tag_lens.contains(len)).map(|len| 8 * len as u32).collect();
            let Some(icv_bits) = self.icv(&tags) else {
                self.too_long(&info.name);
                continue;
            };
            for key_len in key_lens(info.key_lens, 0) {
                let strength = strength::of_aead(&info.name, key_len, icv_bits, &self.day);
                let Some(strength) = self.enough(&info.name, strength) else { continue };
                let part = Part::cipher(&alg, Some(key_len), 0, info.block_len.max(1));
                let adds = icv_bits as usize / 8 + self.travelling(info.iv_len.min(12));
                self.admit_alg(info.name.clone(), key_len, icv_bits, strength, adds, part);
            }
        }
    }

    fn hashes(&mut self) {
        for alg in self.all(Kind::Hash, |key_use| key_use != KeyUse::Required) {
            let info = alg.info();
            let Some(strength) = self.enough(&info.name, strength::of_hash(&info.name, info.digest_len)) else {
                continue;
            };
            let part = Part::mac(&alg, None, 0, 1);
            self.admit_alg(info.name.clone(), 0, 0, strength, info.digest_len, part);
        }
    }
}

fn ipsec_known_by(mac: &str) -> &'static str {
    if IPSEC_LINUX.contains(&mac) { "Linux" } else { "Sealane alone" }
}

/// The key's length where it decides about the cost: that of a block cipher.
fn key_len_of(alg: &Alg, key_len: usize) -> Option<usize> {
    matches!(alg.info().key_lens, Lengths::Of(_)).then_some(key_len)
}

/// Lengths of keys that are worth a choice, with a salt behind the key: 128 and 256 bits, or else the longest.
fn key_lens(lens: Lengths, salt: usize) -> Vec<usize> {
    let lengths: Vec<usize> = [16, 32].into_iter().map(|len| len + salt).filter(|&len| lens.contains(len)).collect();
    if lengths.is_empty() { vec![lens.max()] } else { lengths }
}
