//! Tables as text, much as `nft` prints and reads them.

use crate::field::{Field, Kind};
use crate::rule::{QueueWay, Rule, Step, Test};
use crate::table::{Chain, ChainType, Element, Family, Hook, Owned, Part, Point, Set, Table};
use crate::value::{Prefix, Value};
use core::fmt::{Display, Formatter, Result};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The most elements of a set that are printed.
const ELEMENTS: usize = 4;

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let family = match self.family {
            Family::Inet => "inet",
            Family::Netdev => "netdev",
        };
        writeln!(f, "table {family} {} {{", self.name)?;
        match self.owned {
            Owned::Persists => writeln!(f, "    flags owner, persist")?,
            Owned::Goes => writeln!(f, "    flags owner")?,
            Owned::Nobody => {}
        }
        self.sets.iter().try_for_each(|set| writeln!(f, "    {set}"))?;
        self.chains.iter().try_for_each(|chain| write!(f, "{chain}"))?;
        writeln!(f, "}}")
    }
}

impl Display for Chain {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "    chain {} {{", self.name)?;
        if let Some(hook) = &self.hook {
            writeln!(f, "        {hook}")?;
        }
        self.rules.iter().try_for_each(|rule| writeln!(f, "        {rule}"))?;
        writeln!(f, "    }}")
    }
}

impl Display for Hook {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let kind = match self.kind {
            ChainType::Filter => "filter",
            ChainType::Route => "route",
        };
        let point = match self.point {
            Point::Prerouting => "prerouting",
            Point::Input => "input",
            Point::Forward => "forward",
            Point::Output => "output",
            Point::Postrouting => "postrouting",
            Point::Ingress => "ingress",
            Point::Egress => "egress",
        };
        write!(f, "type {kind} hook {point} ")?;
        if let Some(device) = &self.device {
            write!(f, "device \"{device}\" ")?;
        }
        write!(f, "priority {}", self.priority)
    }
}

impl Display for Set {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let parts: Vec<&str> = self.key.iter().map(|part| part.type_name()).collect();
        write!(f, "set {} {{ type {}", self.name, parts.join(" . "))?;
        if self.intervals {
            write!(f, "; flags interval")?;
        }
        if let Some(timeout) = self.timeout {
            write!(f, "; timeout {}s", timeout.as_secs())?;
        }
        if !self.elements.is_empty() {
            let shown: Vec<String> = self.shown().take(ELEMENTS).collect();
            let more = if self.shown().nth(ELEMENTS).is_some() { ", ..." } else { "" };
            write!(f, "; elements = {{ {}{more} }}", shown.join(", "))?;
        }
        write!(f, " }}")
    }
}

impl Set {
    /// The elements as text: keys, or intervals with their first and last keys.
    fn shown(&self) -> impl Iterator<Item = String> {
        let next = |at: usize| self.elements.get(at + 1).filter(|next| next.ends);
        let begins = self.elements.iter().enumerate().filter(|(_, element)| !element.ends);
        begins.map(move |(at, element)| match next(at) {
            _ if !self.intervals => self.key_text(&element.key),
            Some(end) => format!("{}-{}", self.key_text(&element.key), self.key_text(&last(end))),
            None => format!("{} and all behind it", self.key_text(&element.key)),
        })
    }

    fn key_text(&self, mut key: &[u8]) -> String {
        let mut parts = Vec::new();
        for part in self.key {
            let (this, rest) = key.split_at(part.len() as usize);
            parts.push(part.text(this));
            key = rest;
        }
        parts.join(" . ")
    }
}

/// The last key of the interval that an element ends.
fn last(end: &Element) -> Vec<u8> {
    let mut key = end.key.clone();
    for byte in key.iter_mut().rev() {
        let borrows = *byte == 0;
        *byte = byte.wrapping_sub(1);
        if !borrows {
            break;
        }
    }
    key
}

impl Part {
    fn type_name(self) -> &'static str {
        match self {
            Part::Interface => "iface_index",
            Part::V4 => "ipv4_addr",
            Part::V6 => "ipv6_addr",
            Part::Name => "ifname",
            Part::Port => "inet_service",
            Part::Word => "mark",
        }
    }

    fn text(self, bytes: &[u8]) -> String {
        match self {
            Part::Interface => text(Kind::HostNumber, bytes),
            Part::V4 | Part::V6 => text(Kind::Address, bytes),
            Part::Name => text(Kind::Name, bytes),
            Part::Port => text(Kind::Number, &bytes[..2]),
            Part::Word => text(Kind::Bits, bytes),
        }
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        f.write_str(&steps.join(" "))
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Step::Is { field, mask, tests } => show_tests(f, field, *mask, tests),
            Step::In { fields, set } => {
                let terms: Vec<&str> = fields.iter().map(|field| field.term).collect();
                write!(f, "{} @{set}", terms.join(" . "))
            }
            Step::Between { fields: [from, to], pairs } => {
                let shown: Vec<String> =
                    pairs.iter().take(ELEMENTS).map(|[from, to]| format!("{from} . {to}")).collect();
                let more = if pairs.len() > ELEMENTS { ", ..." } else { "" };
                write!(f, "{} . {} {{ {}{more} }}", from.term, to.term, shown.join(", "))
            }
            Step::SetMark { keep: 0, set } => write!(f, "mark set {set:#010x}"),
            Step::SetMark { keep: u32::MAX, set } => write!(f, "mark set mark | {set:#010x}"),
            Step::SetMark { keep, set: 0 } => write!(f, "mark set mark & {keep:#010x}"),
            Step::SetMark { keep, set } => write!(f, "mark set mark & {keep:#010x} | {set:#010x}"),
            Step::SetMarkTo(field) => write!(f, "mark set {}", field.term),
            Step::SetPriority(priority) => write!(f, "meta priority set {priority:#010x}"),
            Step::Write { to, from } => write!(f, "{} set {}", to.term, from.term),
            Step::Forward(device) => write!(f, "fwd to {device}"),
            Step::Count(0) => write!(f, "counter"),
            Step::Count(packets) => write!(f, "counter packets {packets}"),
            Step::Accept => write!(f, "accept"),
            Step::Drop => write!(f, "drop"),
            Step::Reject => write!(f, "reject with icmpx admin-prohibited"),
            Step::Jump(chain) => write!(f, "jump {chain}"),
            Step::Queue { first, total, way } => {
                let way = if *way == QueueWay::Native { "queue to" } else { "xt NFQUEUE to" };
                match total {
                    1 => write!(f, "{way} {first}"),
                    _ => write!(f, "{way} {first}-{}", first + (total - 1)),
                }
            }
        }
    }
}

impl Display for Prefix {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}/{}", text(Kind::Address, self.first().bytes()), self.bits())
    }
}

/// Prints a field with its tests.
fn show_tests(f: &mut Formatter<'_>, field: &Field, mask: Option<Value>, tests: &[Test]) -> Result {
    write!(f, "{}", field.term)?;
    let of = |value: &Value| match field.kind {
        Kind::Bits | Kind::HostBits if value.bytes().iter().all(|byte| *byte == 0) => "0".to_owned(),
        kind => text(kind, value.bytes()),
    };
    // What a mask keeps: a prefix of an address, all bits, or some of them.
    let mut prefix = String::new();
    let mut some = false;
    if let Some(mask) = mask {
        let bits: u32 = mask.bytes().iter().map(|byte| byte.count_ones()).sum();
        let all = bits as usize == mask.bytes().len() * 8;
        match field.kind {
            Kind::Address => prefix = format!("/{bits}"),
            _ if all => {}
            kind => {
                let kind = if kind == Kind::Number { Kind::Bits } else { kind };
                write!(f, " & {}", text(kind, mask.bytes()))?;
                some = true;
            }
        }
    }
    let mut shown = Vec::new();
    let mut rest = tests;
    while let [test, behind @ ..] = rest {
        rest = behind;
        shown.push(match test {
            Test::Eq(value) => format!("{}{}{prefix}", if some { "== " } else { "" }, of(value)),
            Test::Ne(value) => format!("!= {}{prefix}", of(value)),
            Test::Ge(first) => match behind {
                [Test::Le(last), behind @ ..] => {
                    rest = behind;
                    format!("{}-{}", of(first), of(last))
                }
                _ => format!(">= {}", of(first)),
            },
            Test::Le(last) => format!("<= {}", of(last)),
            Test::Outside(first, last) => format!("!= {}-{}", of(first), of(last)),
        });
    }
    write!(f, " {}", shown.join(" and "))
}

/// The bytes of a field as text.
fn text(kind: Kind, bytes: &[u8]) -> String {
    let number = || bytes.iter().fold(0u64, |whole, byte| whole << 8 | u64::from(*byte));
    let host = || bytes.first_chunk().map_or_else(number, |bytes| u64::from(u32::from_ne_bytes(*bytes)));
    let bits = |number: u64| format!("0x{number:0width$x}", width = bytes.len() * 2);
    match kind {
        Kind::Number => number().to_string(),
        Kind::Bits => bits(number()),
        Kind::HostNumber => host().to_string(),
        Kind::HostBits => bits(host()),
        Kind::Name => format!("\"{}\"", String::from_utf8_lossy(bytes).trim_end_matches('\0')),
        Kind::Address => match *bytes {
            [a, b, c, d] => Ipv4Addr::from([a, b, c, d]).to_string(),
            _ => <[u8; 16]>::try_from(bytes).map_or_else(|_| bits(number()), |v6| Ipv6Addr::from(v6).to_string()),
        },
        Kind::Family => match i32::from(bytes[0]) {
            libc::NFPROTO_IPV4 => "ipv4".to_owned(),
            libc::NFPROTO_IPV6 => "ipv6".to_owned(),
            other => other.to_string(),
        },
        Kind::Protocol => protocol(bytes[0]),
        Kind::AddressType => address_type(host()),
        Kind::Exists => if bytes[0] == 0 { "missing" } else { "exists" }.to_owned(),
        Kind::EtherType => match number() as i32 {
            libc::ETH_P_IP => "ip".to_owned(),
            libc::ETH_P_IPV6 => "ip6".to_owned(),
            _ => bits(number()),
        },
    }
}

/// The name of a kind of addresses, of those that our rules are about, or its number.
fn address_type(number: u64) -> String {
    const NAMES: [(u8, &str); 4] = [
        (libc::RTN_LOCAL, "local"),
        (libc::RTN_BROADCAST, "broadcast"),
        (libc::RTN_ANYCAST, "anycast"),
        (libc::RTN_MULTICAST, "multicast"),
    ];
    name_or_number(NAMES, number)
}

/// The name of a number, if it has one.
fn name_or_number<const N: usize, T: Into<i64>>(names: [(T, &str); N], number: u64) -> String {
    let name = names.into_iter().find_map(|(known, name)| (Ok(number) == u64::try_from(known.into())).then_some(name));
    name.map_or_else(|| number.to_string(), str::to_owned)
}

/// The name of a protocol, of those that our rules are about, or its number.
fn protocol(number: u8) -> String {
    const NAMES: [(i32, &str); 12] = [
        (libc::IPPROTO_ICMP, "icmp"),
        (libc::IPPROTO_TCP, "tcp"),
        (libc::IPPROTO_UDP, "udp"),
        (libc::IPPROTO_DCCP, "dccp"),
        (libc::IPPROTO_GRE, "gre"),
        (libc::IPPROTO_ESP, "esp"),
        (libc::IPPROTO_AH, "ah"),
        (libc::IPPROTO_ICMPV6, "icmpv6"),
        (libc::IPPROTO_SCTP, "sctp"),
        (libc::IPPROTO_MH, "mh"),
        (libc::IPPROTO_UDPLITE, "udplite"),
        (libc::IPPROTO_IPIP, "ipip"),
    ];
    name_or_number(NAMES, number.into())
}
