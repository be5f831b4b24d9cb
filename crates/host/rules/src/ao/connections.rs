//! Connections in sets of rules.

use crate::field::{self, Field};
use crate::key::push_ends;
use crate::table::{Element, Part};
use std::net::SocketAddr;

/// A connection as its incoming segments show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The device at which they arrive. Segments of a VLAN pass the hook of its parent device first, but do not match
    /// there.
    pub device: u32,
    /// The sender's address.
    pub source: SocketAddr,
    /// Our address.
    pub destination: SocketAddr,
}

/// A connection, by the address and port of its peer and of our end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The peer's end.
    pub remote: SocketAddr,
    /// Our end.
    pub local: SocketAddr,
}

/// The sets of flows of both families.
pub(super) const FLOWS: [(&str, &[Part]); 2] = [
    ("flows4", &[Part::Interface, Part::V4, Part::Port, Part::V4, Part::Port]),
    ("flows6", &[Part::Interface, Part::V6, Part::Port, Part::V6, Part::Port]),
];

/// The sets of known connections of both families.
pub(super) const KNOWN: [(&str, &[Part]); 2] = [
    ("known4", &[Part::V4, Part::Port, Part::V4, Part::Port]),
    ("known6", &[Part::V6, Part::Port, Part::V6, Part::Port]),
];

/// The fields of a segment that are a connection's key.
pub(super) fn ends(family: usize) -> [&'static Field; 4] {
    [field::SOURCES[family], field::SOURCE_PORT, field::DESTINATIONS[family], field::DESTINATION_PORT]
}

/// The flows of a family as elements.
pub(super) fn flows<'a>(flows: impl IntoIterator<Item = &'a Flow>, family: usize) -> Vec<Element> {
    let of_family = flows.into_iter().filter(|flow| usize::from(flow.source.is_ipv6()) == family);
    let element = |flow: &Flow| {
        let mut key = Vec::with_capacity(44);
        key.extend_from_slice(&flow.device.to_ne_bytes());
        push_ends(&mut key, flow.source, flow.destination);
        Element::new(key)
    };
    of_family.map(element).collect()
}

/// The connections of a family as elements.
pub(super) fn known<'a>(connections: impl IntoIterator<Item = &'a Connection>, family: usize) -> Vec<Element> {
    let of_family = connections.into_iter().filter(|connection| usize::from(connection.remote.is_ipv6()) == family);
    let element = |connection: &Connection| {
        let mut key = Vec::with_capacity(40);
        push_ends(&mut key, connection.remote, connection.local);
        Element::new(key)
    };
    of_family.map(element).collect()
}
