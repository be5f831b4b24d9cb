//! A packet, and its fields as the kernel finds them (`nft_set_pktinfo`, `ipv6_find_hdr`).

use crate::field::{self, Field, Header, Place};
use crate::value::Value;
use sealane_wire::extension::{Chain, is_basic};
use sealane_wire::proto;
use std::net::IpAddr;

/// A packet on its way through rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its bytes from IP's header on.
    pub bytes: Vec<u8>,
    /// The header of the link before it.
    pub link: Vec<u8>,
    /// Its mark.
    pub mark: u32,
    /// Its priority.
    pub priority: u32,
    /// The kind of addresses that its destination is one of.
    pub destination_type: u8,
    /// The interface that it came by; that of a packet of this host has the index 0 and no name.
    pub from: Device,
    /// The interface that it leaves by.
    pub to: Device,
    /// The user of its socket, if it has one.
    pub user: Option<u32>,
    /// The mark of its socket, or of the one that it is for.
    pub socket_mark: Option<u32>,
    /// Whose it is on the link.
    pub packet_type: u8,
    /// Whether it has a route.
    pub is_routed: bool,
}

/// An interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: &'static str,
    /// Its kind, if it has any.
    pub kind: &'static str,
}

/// A header above IP.
struct Upper {
    proto: u8,
    at: usize,
    /// Whether the packet is a fragment behind the first.
    later: bool,
}

impl Packet {
    /// A packet between two addresses of a family.
    ///
    /// # Panics
    /// When they are of two families.
    pub fn new(source: IpAddr, destination: IpAddr, proto: u8, payload: &[u8]) -> Self {
        let bytes = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let len = ((20 + payload.len()) as u16).to_be_bytes();
                let fixed = [0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, proto, 0, 0];
                [&fixed[..], &source.octets(), &destination.octets(), payload].concat()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let len = (payload.len() as u16).to_be_bytes();
                let fixed = [0x60, 0, 0, 0, len[0], len[1], proto, 64];
                [&fixed[..], &source.octets(), &destination.octets(), payload].concat()
            }
            _ => panic!("both are of one family"),
        };
        let ether_type = if source.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 } as u16;
        let link = [&[0; 12][..], &ether_type.to_be_bytes()].concat();
        let [from, to] = [Device::default(); 2];
        let destination_type = libc::RTN_UNICAST;
        let (mark, priority, user, socket_mark, packet_type, is_routed) = (0, 0, None, None, 0, true);
        Packet { bytes, link, mark, priority, destination_type, from, to, user, socket_mark, packet_type, is_routed }
    }

    /// Writes bytes into the header of the link.
    pub(super) fn write(&mut self, to: &Field, value: Value) {
        let Place::Header { of: Header::Link, at, len } = to.place else { panic!("{} is written", to.term) };
        self.link[at as usize..][..len as usize].copy_from_slice(value.bytes());
    }

    fn is_v4(&self) -> bool {
        self.bytes.first().is_some_and(|first| first >> 4 == 4)
    }

    /// A field, if the packet has it.
    pub(super) fn field(&self, field: &Field) -> Option<Value> {
        match field.place {
            Place::Meta(_) => self.meta(field),
            Place::Header { of: Header::Link, at, len } => bytes(&self.link, 0, at, len),
            Place::Header { of: Header::Network, at, len } => bytes(&self.bytes, 0, at, len),
            Place::Header { of: Header::Transport, at, len } => {
                let upper = self.upper().filter(|upper| !upper.later)?;
                bytes(&self.bytes, upper.at, at, len)
            }
            Place::TcpOption(number) => Some(Value::from(u8::from(self.has_tcp_option(number)))),
            Place::V6Fragment { at, len } => bytes(&self.bytes, self.v6_fragment()?, at, len),
            Place::SocketMark => self.socket_mark.map(Value::host),
            Place::DestinationType => Some(Value::host(self.destination_type.into())),
        }
    }

    fn meta(&self, field: &Field) -> Option<Value> {
        let [family, ether_type] = match self.is_v4() {
            true => [libc::NFPROTO_IPV4, libc::ETH_P_IP],
            false => [libc::NFPROTO_IPV6, libc::ETH_P_IPV6],
        };
        match field.place {
            place if place == field::FAMILY.place => Some(Value::from(family as u8)),
            place if place == field::ETHER_TYPE.place => Some(Value::from(ether_type as u16)),
            place if place == field::PROTOCOL.place => self.upper().map(|upper| upper.proto.into()),
            place if place == field::MARK.place => Some(Value::host(self.mark)),
            place if place == field::PRIORITY.place => Some(Value::host(self.priority)),
            place if place == field::IN.place => Some(Value::host(self.from.index)),
            place if place == field::OUT.place => Some(Value::host(self.to.index)),
            place if place == field::IN_NAME.place => Some(Value::name(self.from.name)),
            place if place == field::OUT_NAME.place => Some(Value::name(self.to.name)),
            place if place == field::OUT_KIND.place => {
                Some(self.to.kind).filter(|kind| !kind.is_empty()).map(Value::name)
            }
            place if place == field::USER.place => self.user.map(Value::host),
            place if place == field::REALM.place => self.is_routed.then(|| Value::host(0)),
            place if place == field::PACKET_TYPE.place => Some(Value::from(self.packet_type)),
            other => panic!("a field that nobody evaluates: {other:?}"),
        }
    }

    /// The header above IP. IPv6's later fragments have none where their fragment header names another extension header.
    fn upper(&self) -> Option<Upper> {
        if self.is_v4() {
            let fixed: &[u8; 20] = self.bytes.first_chunk()?;
            let later = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0;
            return Some(Upper { proto: fixed[9], at: usize::from(fixed[0] & 0xf) * 4, later });
        }
        let mut chain = Chain::of(&self.bytes)?;
        while chain.kind != proto::NONE {
            let Some(header) = chain.over(&self.bytes, is_basic).ok()? else { break };
            if let Some(fragment) = header.fragment().filter(|fragment| fragment.is_later) {
                let nameless = is_basic(fragment.next) || fragment.next == proto::AH;
                return (!nameless).then_some(Upper { proto: fragment.next, at: chain.at, later: true });
            }
        }
        Some(Upper { proto: chain.kind, at: chain.at, later: false })
    }

    /// The place of IPv6's fragment header.
    fn v6_fragment(&self) -> Option<usize> {
        let mut chain = Chain::of(&self.bytes).filter(|_| !self.is_v4())?;
        while chain.kind != proto::FRAGMENT {
            chain.over(&self.bytes, |kind| is_basic(kind) || kind == proto::AH).ok()??;
        }
        Some(chain.at)
    }

    fn has_tcp_option(&self, number: u8) -> bool {
        let Some(upper) = self.upper().filter(|upper| upper.proto == proto::TCP && !upper.later) else { return false };
        let header = self.bytes.get(upper.at..).unwrap_or_default();
        let len = header.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
        let options = header.get(20..len).unwrap_or_default();
        let mut at = 0;
        while at + 1 < options.len() {
            // An end of options has no length either, for the kernel's rules.
            let step = if options[at] <= 1 || options[at + 1] == 0 { 1 } else { usize::from(options[at + 1]) };
            if options[at] == number {
                return at + step <= options.len();
            }
            at += step;
        }
        false
    }
}

/// Bytes behind a place.
fn bytes(of: &[u8], start: usize, at: u32, len: u32) -> Option<Value> {
    let at = start + at as usize;
    of.get(at..at + len as usize).map(Value::new)
}
