//! Protocols that carry ESP in place of IP itself.

use crate::tcp;
use sealane_wire::ip::UDP_HEADER_LEN;

/// The protocol that ESP is within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// UDP (`UDP_ENCAP_ESPINUDP`, RFC 3948).
    Udp,
    /// A TCP connection, which a key manager has made (`TCP_ENCAP_ESPINTCP`, RFC 9329).
    Tcp,
}

impl Carrier {
    /// Length in bytes of what is between the IP header and ESP: UDP's header, or the length field of a message in TCP, whose
    /// own header the socket writes.
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Carrier::Udp => UDP_HEADER_LEN,
            Carrier::Tcp => tcp::LENGTH_LEN,
        }
    }
}
