//! The question: packets, their rate, and the properties that a choice has to have.

use serde::Serialize;
use std::fmt;

/// The longest packet that may be asked about, in bytes.
const MAX_PACKET: usize = 65_536;

/// Different sizes that are kept apart. A capture has more, which are gathered.
const MAX_SIZES: usize = 8;

/// Packets that arrive within this time are served together, in seconds.
const GATHERED_S: f64 = 20e-6;

/// The largest burst of the data paths, in packets.
const MAX_BURST: usize = 64;

/// The life of a key, in seconds: a day.
const KEY_LIFE_S: f64 = 86_400.0;

/// The interface of Linux that protects packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// TCP-AO (RFC 5925): a MAC in an option of each segment.
    TcpAo,
    /// IPsec by XFRM: ESP, and AH where nothing has to be encrypted.
    Ipsec,
    /// AF_ALG, for a MAC of each message.
    AfAlgMac,
    /// AF_ALG, for a cipher without integrity.
    AfAlgCipher,
    /// AF_ALG, for authenticated encryption.
    AfAlgAead,
    /// AF_ALG, for a hash without a key.
    AfAlgHash,
}

impl Interface {
    /// The strength that is asked for if nothing is said, in bits: 96, the length of TCP-AO's MACs in RFC 5926; otherwise 128.
    #[must_use]
    pub fn usual_strength(self) -> u32 {
        if self == Interface::TcpAo { 96 } else { 128 }
    }
}

/// A length of packets, and how many of them have it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Size {
    /// Length in bytes.
    pub bytes: usize,
    /// The share of packets, more than 0 and up to 1.
    pub share: f64,
}

/// Lengths of packets, ascending, whose shares make 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Sizes(Vec<Size>);

/// A part of a question that makes no sense: the text says which, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonsense(pub String);

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Nonsense {}

impl Sizes {
    /// Reads a length or several, separated by commas, each of as many packets.
    ///
    /// # Errors
    /// The word that is no length of a packet.
    pub fn parse(text: &str) -> Result<Self, Nonsense> {
        let length = |word: &str| {
            let fits = |bytes: &usize| (1..=MAX_PACKET).contains(bytes);
            word.trim().parse().ok().filter(fits).ok_or_else(|| {
                Nonsense(format!("'{word}' is no length of a packet in bytes: expected 1 to {MAX_PACKET}"))
            })
        };
        let lengths: Vec<usize> = text.split(',').map(length).collect::<Result<_, _>>()?;
        Sizes::of(lengths)
    }

    /// The lengths of these packets. More than eight different ones are gathered: neighbours into their mean, so that each has about as
    /// many packets.
    ///
    /// # Errors
    /// There is no packet.
    pub fn of(packets: impl IntoIterator<Item = usize>) -> Result<Self, Nonsense> {
        let mut counted = std::collections::BTreeMap::<usize, u64>::new();
        for bytes in packets {
            *counted.entry(bytes.clamp(1, MAX_PACKET)).or_default() += 1;
        }
        let all: u64 = counted.values().sum();
        if all == 0 {
            return Err(Nonsense("there is no packet whose length counts".to_owned()));
        }
        let share = |count: u64| count as f64 / all as f64;
        if counted.len() <= MAX_SIZES {
            return Ok(Sizes(counted.into_iter().map(|(bytes, n)| Size { bytes, share: share(n) }).collect()));
        }
        let (mut sizes, mut before) = (Vec::new(), 0);
        // Packets and bytes of the group that is being filled.
        let (mut packets, mut bytes) = (0, 0);
        for (len, n) in counted {
            (packets, bytes) = (packets + n, bytes + n * len as u64);
            // The groups that are left share what is left evenly; the last one is done with the last packet.
            let left = all - before;
            if packets * (MAX_SIZES - sizes.len()) as u64 >= left {
                sizes.push(Size { bytes: bytes.div_ceil(packets) as usize, share: share(packets) });
                before += packets;
                (packets, bytes) = (0, 0);
            }
        }
        Ok(Sizes(sizes))
    }

    /// The lengths.
    pub fn iter(&self) -> impl Iterator<Item = Size> {
        self.0.iter().copied()
    }

    /// The mean of `what` over the packets.
    pub fn mean(&self, what: impl Fn(usize) -> f64) -> f64 {
        self.iter().map(|size| size.share * what(size.bytes)).sum()
    }

    /// The mean length in bytes.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        self.mean(|bytes| bytes as f64)
    }
}

/// The rate of traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// Packets a second.
    Packets(f64),
    /// Bits a second.
    Bits(f64),
}

impl Rate {
    /// Reads `100000`, `100k` (packets a second), `10Gbit` (bits a second).
    ///
    /// # Errors
    /// The text, and the forms that a rate has.
    pub fn parse(text: &str) -> Result<Self, Nonsense> {
        let wrong = || {
            Nonsense(format!(
                "'{text}' is no rate: expected packets a second (100000, 100k, 2.5M) or bits a second (500Mbit, 10Gbit)"
            ))
        };
        let word = text.trim();
        let lower = word.to_ascii_lowercase();
        let bits = lower.strip_suffix("bit/s").or_else(|| lower.strip_suffix("bit"));
        let number = bits.unwrap_or(&lower);
        let (number, factor) = match number.chars().last() {
            Some('k') => (&number[..number.len() - 1], 1e3),
            Some('m') => (&number[..number.len() - 1], 1e6),
            Some('g') => (&number[..number.len() - 1], 1e9),
            _ => (number, 1.0),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        if !(number.is_finite() && number > 0.0) {
            return Err(wrong());
        }
        Ok(if bits.is_some() { Rate::Bits(number * factor) } else { Rate::Packets(number * factor) })
    }

    /// Packets a second, where packets have these lengths.
    #[must_use]
    pub fn packets_per_s(self, sizes: &Sizes) -> f64 {
        match self {
            Rate::Packets(rate) => rate,
            Rate::Bits(rate) => rate / 8.0 / sizes.mean_bytes(),
        }
    }
}

/// The packets to protect, and the properties that a choice has to have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Question {
    /// The interface.
    #[serde(rename = "for")]
    pub interface: Interface,
    /// Lengths of packets: of TCP-AO and IPsec those of IP packets, of AF_ALG those of messages.
    pub sizes: Sizes,
    /// Packets a second, of all sessions and one direction.
    pub packets_per_s: f64,
    /// Connections, pairs of SAs or sockets. Each has its own keys and an equal part of the packets.
    pub sessions: u32,
    /// The least strength, in bits.
    pub strength_bits: u32,
    /// Whether a number that never comes twice under a key can be had for each packet.
    pub nonces: bool,
    /// Whether packets arrive in order and none is lost, so that both ends can count them.
    pub order: bool,
    /// Whether the text has to be encrypted, of IPsec.
    pub encryption: bool,
    /// The longest MAC or ICV that fits into a packet, in bits.
    pub max_icv_bits: Option<u32>,
}

/// The traffic of one key in a day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Day {
    /// Packets.
    pub(super) packets: f64,
    /// Mean length in bytes.
    pub(super) mean_bytes: f64,
    /// The longest packet, in bytes.
    pub(super) max_bytes: usize,
    /// Whether nonces are drawn at random, because nobody can count.
    pub(super) random_nonces: bool,
}

impl Question {
    /// Packets that are served together: those that arrive within 20 us, and at most 64. Of TCP-AO no more than there are connections,
    /// because a connection waits for answers. AF_ALG serves each call alone.
    #[must_use]
    pub fn burst(&self) -> usize {
        let gathered = ((self.packets_per_s * GATHERED_S) as usize).clamp(1, MAX_BURST);
        match self.interface {
            Interface::TcpAo => gathered.min(self.sessions.max(1) as usize),
            Interface::Ipsec => gathered,
            _ => 1,
        }
    }

    /// A day of one key.
    pub(super) fn day(&self) -> Day {
        Day {
            packets: (self.packets_per_s / f64::from(self.sessions.max(1)) * KEY_LIFE_S).max(1.0),
            mean_bytes: self.sizes.mean_bytes(),
            max_bytes: self.sizes.iter().map(|size| size.bytes).max().unwrap_or(1),
            random_nonces: !self.order && matches!(self.interface, Interface::AfAlgAead | Interface::AfAlgCipher),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_weighted() {
        let sizes = Sizes::parse("1420,64, 64,576").unwrap();
        let expected = [(64, 0.5), (576, 0.25), (1420, 0.25)].map(|(bytes, share)| Size { bytes, share });
        assert_eq!(sizes.iter().collect::<Vec<_>>(), expected);
        assert!((sizes.mean_bytes() - 531.0).abs() < 1e-9);
        for (text, wrong) in [("", "''"), ("64,x", "'x'"), ("0", "'0'"), ("65537", "'65537'"), ("64,,5", "''")] {
            let Nonsense(why) = Sizes::parse(text).unwrap_err();
            assert!(why.contains(wrong) && why.contains("1 to 65536"), "{text}: {why}");
        }
        assert!(Sizes::of([]).is_err());
    }

    #[test]
    fn many_sizes_are_gathered_and_keep_packets_and_bytes() {
        let sizes = Sizes::of(40..1500).unwrap();
        assert_eq!(sizes.iter().count(), MAX_SIZES);
        assert!((sizes.mean(|_| 1.0) - 1.0).abs() < 1e-9);
        assert!((sizes.mean_bytes() - 769.5).abs() < 1.0, "{}", sizes.mean_bytes());
        // Most packets have one length, with few others before or behind it.
        for others in [40..60, 1440..1460] {
            let sizes = Sizes::of(others.clone().chain([1420; 1000])).unwrap();
            assert!(sizes.iter().any(|size| size.share > 0.9 && size.bytes.abs_diff(1420) < 50), "{sizes:?}");
            assert!((sizes.mean(|_| 1.0) - 1.0).abs() < 1e-9, "{sizes:?}");
        }
    }

    #[test]
    fn rates_are_packets_or_bits() {
        let sizes = Sizes::parse("1250").unwrap();
        for (text, rate) in
            [("100000", 1e5), ("100k", 1e5), ("2.5M", 2.5e6), ("10Gbit", 1e6), ("10gbit/s", 1e6), ("1e3", 1e3)]
        {
            assert_eq!(Rate::parse(text).unwrap().packets_per_s(&sizes), rate, "{text}");
        }
        for text in ["", "fast", "-1", "0", "10Gbyte", "k", "inf", "nan", "Gbit"] {
            let Nonsense(why) = Rate::parse(text).unwrap_err();
            assert!(why.starts_with(&format!("'{text}' is no rate")), "{why}");
        }
    }

    #[test]
    fn bursts_follow_rate_sessions_and_interface() {
        let ask = |interface, packets_per_s, sessions| Question {
            interface,
            sizes: Sizes::parse("100").unwrap(),
            packets_per_s,
            sessions,
            strength_bits: 96,
            nonces: true,
            order: true,
            encryption: true,
            max_icv_bits: None,
        };
        for (interface, rate, sessions, burst) in [
            (Interface::TcpAo, 1e3, 100, 1),
            (Interface::TcpAo, 1e6, 100, 20),
            (Interface::TcpAo, 1e6, 3, 3),
            (Interface::Ipsec, 1e6, 1, 20),
            (Interface::Ipsec, 1e9, 1, 64),
            (Interface::AfAlgMac, 1e9, 100, 1),
        ] {
            assert_eq!(ask(interface, rate, sessions).burst(), burst, "{interface:?} {rate} {sessions}");
        }
        assert_eq!(ask(Interface::TcpAo, 1e3, 10).day().packets, 8.64e6);
    }
}
