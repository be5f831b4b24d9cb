//! Peers: the connections that a key chain protects.

use super::keys::KeyChain;
use super::section::{At, Mistakes, Section, as_integer};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use toml::de::DeValue;

/// Addresses that share their first `len` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// The first address; its other bits are zero.
    pub addr: IpAddr,
    /// Length in bits, up to 32 or 128.
    pub len: u8,
}

impl Prefix {
    /// Whether `addr`, which must not be an IPv4-mapped address, has this prefix.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(32 - u32::from(self.len)).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(128 - u32::from(self.len)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Whether the two share an address, which means that one contains the other.
    #[must_use]
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.contains(other.addr) || other.contains(self.addr)
    }

    /// The prefix of `addr` with this length.
    fn of(addr: IpAddr, len: u8) -> Prefix {
        let addr = match addr {
            IpAddr::V4(a) => IpAddr::V4((a.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)).into()),
            IpAddr::V6(a) => {
                IpAddr::V6((a.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)).into())
            }
        };
        Prefix { addr, len }
    }

    /// Reads `ADDRESS` or `ADDRESS/LENGTH`.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn parse(text: &str) -> Result<Prefix, String> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let invalid =
            || format!("'{}' is no address or prefix such as 192.0.2.1 or 2001:db8::/32", text.escape_debug());
        let addr: IpAddr = addr.parse().map_err(|_| invalid())?;
        if let IpAddr::V6(v6) = addr
            && let Some(v4) = v6.to_ipv4_mapped()
        {
            return Err(format!("'{text}' is an IPv4 address: write it as {v4}"));
        }
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => bits,
            Some(len) => len.parse().ok().filter(|&l: &u8| l <= bits).ok_or_else(invalid)?,
        };
        let net = Prefix::of(addr, len).addr;
        if net != addr {
            return Err(format!("'{text}' has bits beyond its length: the prefix is {net}/{len}"));
        }
        Ok(Prefix { addr, len })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.addr, self.len) {
            (IpAddr::V4(a), 32) => a.fmt(f),
            (IpAddr::V6(a), 128) => a.fmt(f),
            (a, len) => write!(f, "{a}/{len}"),
        }
    }
}

/// The ports of connections: pairs of ranges, local and remote. Without any pair, all connections match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ports(pub Vec<(RangeInclusive<u16>, RangeInclusive<u16>)>);

impl Ports {
    /// Whether a connection between these ports matches.
    #[must_use]
    pub fn contains(&self, local: u16, remote: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|(l, r)| l.contains(&local) && r.contains(&remote))
    }

    /// Whether some connection matches both.
    fn overlaps(&self, other: &Ports) -> bool {
        let share = |a: &RangeInclusive<u16>, b: &RangeInclusive<u16>| a.start() <= b.end() && b.start() <= a.end();
        let pair = |a: &(_, _), b: &(_, _)| share(&a.0, &b.0) && share(&a.1, &b.1);
        self.0.is_empty() || other.0.is_empty() || self.0.iter().any(|a| other.0.iter().any(|b| pair(a, b)))
    }
}

/// Remote systems whose connections are protected, without the help of the program.
pub struct Peer {
    /// The name in messages.
    pub name: String,
    /// The addresses.
    pub prefixes: Vec<Prefix>,
    /// The ports of its connections.
    pub ports: Ports,
    /// The network namespace, by its name in /run/netns or its path; `None` is the daemon's own.
    pub netns: Option<String>,
    /// The VRF, by its device's name.
    pub vrf: Option<String>,
    /// Whether ICMP errors may end its connections; RFC 5925, section 7.8, requires to ignore them by default.
    pub accept_icmps: bool,
    /// The keys.
    pub chain: Arc<KeyChain>,
}

/// A connection whose keys are looked up.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    /// The network namespace, as in [`Peer`].
    pub netns: Option<&'a str>,
    /// The VRF's device, as in [`Peer`].
    pub vrf: Option<&'a str>,
    /// The local end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

/// Peers with an index by prefix, so that a search in 100,000 of them is as fast as in a few.
#[derive(Default)]
pub(super) struct Peers {
    list: Vec<Peer>,
    by_prefix: HashMap<Prefix, Vec<usize>>,
    /// The prefix lengths in use, longest first, for IPv4 and IPv6.
    lens: [Vec<u8>; 2],
}

impl Peers {
    pub(super) fn list(&self) -> &[Peer] {
        &self.list
    }

    pub(super) fn into_list(self) -> Vec<Peer> {
        self.list
    }

    /// Adds a peer. If another peer has one of its prefixes for the same connections, returns that prefix and peer: the
    /// keys would be ambiguous.
    pub(super) fn add(&mut self, peer: Peer) -> Option<(Prefix, &Peer)> {
        let index = self.list.len();
        let mut conflict = None;
        for prefix in &peer.prefixes {
            let others = self.by_prefix.entry(*prefix).or_default();
            let same = |i: &&usize| {
                let other = &self.list[**i];
                other.netns == peer.netns && other.vrf == peer.vrf && other.ports.overlaps(&peer.ports)
            };
            conflict = conflict.or(others.iter().find(same).map(|&i| (*prefix, i)));
            others.push(index);
            let lens = &mut self.lens[usize::from(prefix.addr.is_ipv6())];
            if let Err(at) = lens.binary_search_by(|len| prefix.len.cmp(len)) {
                lens.insert(at, prefix.len);
            }
        }
        self.list.push(peer);
        conflict.map(|(prefix, i)| (prefix, &self.list[i]))
    }

    /// The peer with the longest prefix that matches the flow.
    pub(super) fn lookup(&self, flow: &Flow<'_>) -> Option<&Peer> {
        let addr = flow.remote.ip().to_canonical();
        let meant = |p: &&Peer| {
            let here = p.netns.as_deref() == flow.netns && p.vrf.as_deref() == flow.vrf;
            here && p.ports.contains(flow.local.port(), flow.remote.port())
        };
        self.lens[usize::from(addr.is_ipv6())].iter().find_map(|&len| {
            let candidates = self.by_prefix.get(&Prefix::of(addr, len))?;
            candidates.iter().map(|&i| &self.list[i]).find(meant)
        })
    }
}

/// Reads the addresses of a peer: a string or an array of strings.
pub(super) fn prefixes(section: &mut Section<'_>, mistakes: &mut Mistakes<'_>) -> Vec<Prefix> {
    let given = section.one_or_many("prefix");
    if section.value("prefix").is_none() {
        section.missing("prefix", mistakes);
    }
    let mut prefixes = Vec::new();
    for At { value, span } in given {
        let parsed = value.as_str().ok_or_else(|| "a prefix is text, as \"192.0.2.0/24\"".to_owned());
        match parsed.and_then(Prefix::parse) {
            Ok(prefix) if prefixes.contains(&prefix) => mistakes.at(&span, format!("{prefix} is there twice")),
            Ok(prefix) => prefixes.push(prefix),
            Err(what) => mistakes.at(&span, what),
        }
    }
    prefixes
}

/// Reads `port`, or `local-port` and `remote-port`: numbers, ranges "8000-8080", or arrays of them.
pub(super) fn ports(section: &mut Section<'_>, mistakes: &mut Mistakes<'_>) -> Ports {
    const ANY: RangeInclusive<u16> = 0..=u16::MAX;
    let either = port_list(section, "port", mistakes);
    let local = port_list(section, "local-port", mistakes);
    let remote = port_list(section, "remote-port", mistakes);
    if !either.is_empty() && (!local.is_empty() || !remote.is_empty()) {
        let span = section.value("port").map_or_else(|| section.span.clone(), |at| at.span);
        mistakes.at(&span, "'port' is that of either end: it leaves no place for 'local-port' and 'remote-port'");
    }
    if !either.is_empty() {
        return Ports(either.into_iter().flat_map(|r| [(r.clone(), ANY), (ANY, r)]).collect());
    }
    if local.is_empty() && remote.is_empty() {
        return Ports::default();
    }
    let or_any = |list: Vec<_>| if list.is_empty() { vec![ANY] } else { list };
    let (local, remote) = (or_any(local), or_any(remote));
    Ports(local.iter().flat_map(|l| remote.iter().map(|r| (l.clone(), r.clone()))).collect())
}

fn port_list(section: &mut Section<'_>, name: &'static str, mistakes: &mut Mistakes<'_>) -> Vec<RangeInclusive<u16>> {
    let mut list = Vec::new();
    for At { value, span } in section.one_or_many(name) {
        let number = |n: i64| u16::try_from(n).ok().filter(|&p| p > 0);
        let range = match value {
            DeValue::Integer(_) => as_integer(value).and_then(number).map(|p| p..=p),
            DeValue::String(s) => s.split_once('-').and_then(|(a, b)| {
                let end = |t: &str| t.trim().parse().ok().and_then(number);
                Some(end(a)?..=end(b)?).filter(|r| !r.is_empty())
            }),
            _ => None,
        };
        match range {
            Some(range) => list.push(range),
            None => {
                mistakes.at(&span, format!("'{name}' is a number from 1 to 65535 or a range such as \"8000-8080\""))
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_addresses() {
        let holds = |prefix: &str, addr: &str| Prefix::parse(prefix).unwrap().contains(addr.parse().unwrap());
        assert!(holds("192.0.2.0/24", "192.0.2.255") && !holds("192.0.2.0/24", "192.0.3.0"));
        assert!(holds("0.0.0.0/0", "255.255.255.255") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("192.0.2.1", "192.0.2.1") && !holds("192.0.2.1", "192.0.2.0"));
        assert!(holds("2001:db8::/33", "2001:db8:7fff::1") && !holds("2001:db8::/33", "2001:db8:8000::"));
        assert!(holds("::/0", "::1") && holds("fe80::1/128", "fe80::1"));
    }

    #[test]
    fn prefixes_are_written_as_they_are_read() {
        for text in ["192.0.2.0/24", "0.0.0.0/0", "192.0.2.1", "::/0", "2001:db8::/32", "fe80::1", "128.0.0.0/1"] {
            assert_eq!(Prefix::parse(text).unwrap().to_string(), text);
        }
        let wrong = |text| Prefix::parse(text).unwrap_err();
        assert!(wrong("192.0.2.1/24").contains("192.0.2.0/24"));
        assert!(wrong("::1/0").contains("::/0"));
        assert!(wrong("::ffff:192.0.2.1").contains("as 192.0.2.1"));
        for text in ["", "192.0.2.0/33", "192.0.2.0/-1", "::/129", "x", "192.0.2.0/", "1.2.3.4/24/8"] {
            assert!(wrong(text).contains("no address"), "{text}");
        }
    }

    #[test]
    fn ports_meet_or_do_not() {
        let bgp = Ports(vec![(179..=179, 0..=u16::MAX), (0..=u16::MAX, 179..=179)]);
        let high = Ports(vec![(1024..=65535, 1024..=65535)]);
        assert!(bgp.contains(179, 40000) && bgp.contains(40000, 179) && !bgp.contains(40000, 178));
        assert!(!bgp.overlaps(&high) && bgp.overlaps(&Ports::default()) && high.overlaps(&high));
    }
}
