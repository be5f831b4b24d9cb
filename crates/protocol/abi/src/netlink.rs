//! `linux/netlink.h`: message headers and attributes; the rules for attributes and their parser ([`rules`]);
//! acknowledgements and ends of dumps as the kernel writes them ([`answer`]); the datagrams of a dump ([`packer`]).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub mod answer;
pub mod packer;
mod rule;
pub mod rules;

/// Protocol for messages between programs.
pub const NETLINK_USERSOCK: i32 = 2;
/// Protocol of IPsec: see [`crate::xfrm`].
pub const NETLINK_XFRM: i32 = 6;
/// Protocol of the crypto configuration.
pub const NETLINK_CRYPTO: i32 = 21;

/// Option of [`crate::socket::SOL_NETLINK`]: errors do not repeat the request.
pub const NETLINK_CAP_ACK: i32 = 10;
/// Option of [`crate::socket::SOL_NETLINK`]: acknowledgements carry a text and the attribute at fault.
pub const NETLINK_EXT_ACK: i32 = 11;

/// No operation.
pub const NLMSG_NOOP: u16 = 1;
/// An error, or an acknowledgement (error 0).
pub const NLMSG_ERROR: u16 = 2;
/// End of a dump.
pub const NLMSG_DONE: u16 = 3;
/// Lower types are reserved for netlink itself.
pub const NLMSG_MIN_TYPE: u16 = 0x10;

/// The message is a request.
pub const NLM_F_REQUEST: u16 = 0x1;
/// The message is one of several, which end with [`NLMSG_DONE`].
pub const NLM_F_MULTI: u16 = 0x2;
/// The sender wants an acknowledgement.
pub const NLM_F_ACK: u16 = 0x4;
/// The sender wants to receive the notification about its request.
pub const NLM_F_ECHO: u16 = 0x8;
/// In a dump: the dumped data has changed in the meantime.
pub const NLM_F_DUMP_INTR: u16 = 0x10;
/// In a dump: the entries were filtered as requested.
pub const NLM_F_DUMP_FILTERED: u16 = 0x20;
/// In an error: the quoted request is truncated.
pub const NLM_F_CAPPED: u16 = 0x100;
/// In an acknowledgement: attributes (`NLMSGERR_ATTR_...`) follow.
pub const NLM_F_ACK_TLVS: u16 = 0x200;
/// The request is for all entries: `NLM_F_ROOT | NLM_F_MATCH`.
pub const NLM_F_DUMP: u16 = 0x300;
/// In a request that adds an entry: replace an existing one.
pub const NLM_F_REPLACE: u16 = 0x100;
/// In a request that adds an entry: fail if it exists.
pub const NLM_F_EXCL: u16 = 0x200;
/// In a request that adds an entry: add it if it does not exist.
pub const NLM_F_CREATE: u16 = 0x400;
/// In a request that adds an entry: append it to the list.
pub const NLM_F_APPEND: u16 = 0x800;

/// Flag in an attribute's type: the payload consists of attributes.
pub const NLA_F_NESTED: u16 = 0x8000;
/// Mask of an attribute's type without its flags.
pub const NLA_TYPE_MASK: u16 = 0x3fff;

/// `struct nlmsghdr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Nlmsghdr {
    /// Length in bytes with this header.
    pub nlmsg_len: u32,
    /// Type.
    pub nlmsg_type: u16,
    /// Flags.
    pub nlmsg_flags: u16,
    /// Sequence number of the request.
    pub nlmsg_seq: u32,
    /// Port of the sender; 0 is the kernel.
    pub nlmsg_pid: u32,
}

const _: () = assert!(size_of::<Nlmsghdr>() == 16);

/// Length of a message header in bytes.
pub const NLMSG_HDRLEN: usize = size_of::<Nlmsghdr>();

/// `struct nlattr` (or `rtattr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Nlattr {
    /// Length in bytes with this header, without padding.
    pub nla_len: u16,
    /// Type.
    pub nla_type: u16,
}

const _: () = assert!(size_of::<Nlattr>() == 4);

/// Length of an attribute header in bytes.
pub const NLA_HDRLEN: usize = size_of::<Nlattr>();

/// `struct sockaddr_nl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SockaddrNl {
    /// [`crate::socket::AF_NETLINK`].
    pub nl_family: u16,
    /// Zero.
    pub nl_pad: u16,
    /// Port; 0 is the kernel.
    pub nl_pid: u32,
    /// Multicast groups.
    pub nl_groups: u32,
}

const _: () = assert!(size_of::<SockaddrNl>() == 12);

/// Rounds a length up to netlink's multiple of 4 bytes.
#[must_use]
pub const fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// One message of a buffer: its header and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Header.
    pub header: Nlmsghdr,
    /// Payload without padding.
    pub payload: &'a [u8],
    /// The whole message with its header.
    pub bytes: &'a [u8],
}

/// Iterates over the messages of one datagram like the kernel's `netlink_rcv_skb`: the first malformed header ends it.
#[derive(Clone)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Iterates over all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Messages(bytes)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (header, _) = Nlmsghdr::read_from_prefix(self.0).ok()?;
        let len = header.nlmsg_len as usize;
        let bytes = self.0.get(..len).filter(|b| b.len() >= NLMSG_HDRLEN)?;
        self.0 = self.0.get(align(len)..).unwrap_or(&[]);
        Some(Message { header, payload: &bytes[NLMSG_HDRLEN..], bytes })
    }
}

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Type without its flags.
    pub type_: u16,
    /// Whether the payload is marked as a list of attributes (`NLA_F_NESTED`); the kernel does not mark all lists.
    pub nested: bool,
    /// Payload.
    pub payload: &'a [u8],
}

/// Iterates over attributes like `nla_for_each_attr`: a malformed one ends it.
#[derive(Clone)]
pub struct Attrs<'a>(&'a [u8]);

impl<'a> Attrs<'a> {
    /// Iterates over all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Attrs(bytes)
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, _) = Nlattr::read_from_prefix(self.0).ok()?;
        let len = usize::from(head.nla_len);
        let bytes = self.0.get(..len).filter(|b| b.len() >= NLA_HDRLEN)?;
        self.0 = self.0.get(align(len)..).unwrap_or(&[]);
        let (type_, nested) = (head.nla_type & NLA_TYPE_MASK, head.nla_type & NLA_F_NESTED != 0);
        Some(Attr { type_, nested, payload: &bytes[NLA_HDRLEN..] })
    }
}

/// Writes one attribute with its padding.
///
/// # Panics
/// When the payload does not fit into 65,531 bytes.
pub fn push_attr(out: &mut Vec<u8>, type_: u16, payload: &[u8]) {
    let len = u16::try_from(NLA_HDRLEN + payload.len()).expect("attributes are written from fixed structs");
    out.extend_from_slice(Nlattr { nla_len: len, nla_type: type_ }.as_bytes());
    out.extend_from_slice(payload);
    out.resize(align(out.len()), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_end_at_the_first_malformed_header() {
        let header = |len| Nlmsghdr { nlmsg_len: len, nlmsg_type: 1, nlmsg_flags: 2, nlmsg_seq: 3, nlmsg_pid: 4 };
        let mut bytes = header(18).as_bytes().to_vec();
        bytes.extend_from_slice(b"ab\0\0");
        bytes.extend_from_slice(header(16).as_bytes());
        let payloads: Vec<_> = Messages::new(&bytes).map(|m| m.payload).collect();
        assert_eq!(payloads, [&b"ab"[..], b""]);
        for len in [0, 15, 17, u32::MAX] {
            assert_eq!(Messages::new(header(len).as_bytes()).count(), 0, "{len}");
        }
        assert_eq!(Messages::new(&bytes[..15]).count(), 0);
    }

    #[test]
    fn attributes_round_trip() {
        let mut out = Vec::new();
        push_attr(&mut out, 1, &7u32.to_ne_bytes());
        push_attr(&mut out, 3 | NLA_F_NESTED, b"xyz");
        let attrs: Vec<_> = Attrs::new(&out).collect();
        assert_eq!(attrs[0], Attr { type_: 1, nested: false, payload: &7u32.to_ne_bytes() });
        assert_eq!(attrs[1], Attr { type_: 3, nested: true, payload: b"xyz" });
        assert_eq!(attrs.len(), 2);
        assert_eq!(Attrs::new(&[3, 0, 1, 0]).count(), 0);
    }
}
