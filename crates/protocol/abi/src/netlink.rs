//! `linux/netlink.h`: message headers and attributes; what a parser asks of attributes ([`rules`]), acknowledgements and
//! ends of dumps as the kernel writes them ([`answer`]), the datagrams of a dump ([`packer`]).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub mod answer;
pub mod packer;
mod rule;
pub mod rules;

/// Protocol between programs only.
pub const NETLINK_USERSOCK: i32 = 2;
/// Protocol of IPsec: see [`crate::xfrm`].
pub const NETLINK_XFRM: i32 = 6;
/// Protocol of the crypto configuration.
pub const NETLINK_CRYPTO: i32 = 21;

/// Option of [`crate::socket::SOL_NETLINK`]: errors do not repeat the request.
pub const NETLINK_CAP_ACK: i32 = 10;
/// Option of [`crate::socket::SOL_NETLINK`]: acknowledgements carry a text and what it is about.
pub const NETLINK_EXT_ACK: i32 = 11;

/// No operation.
pub const NLMSG_NOOP: u16 = 1;
/// An error, or an acknowledgement (error 0).
pub const NLMSG_ERROR: u16 = 2;
/// End of a dump.
pub const NLMSG_DONE: u16 = 3;
/// Types below this one are netlink's own.
pub const NLMSG_MIN_TYPE: u16 = 0x10;

/// It is a request.
pub const NLM_F_REQUEST: u16 = 0x1;
/// One of several messages, ended by [`NLMSG_DONE`].
pub const NLM_F_MULTI: u16 = 0x2;
/// Acknowledge it.
pub const NLM_F_ACK: u16 = 0x4;
/// The sender wants the notification that its request causes.
pub const NLM_F_ECHO: u16 = 0x8;
/// In a dump: what is dumped has changed meanwhile.
pub const NLM_F_DUMP_INTR: u16 = 0x10;
/// In a dump: only what was asked for is in it.
pub const NLM_F_DUMP_FILTERED: u16 = 0x20;
/// In an error: the request has been cut off.
pub const NLM_F_CAPPED: u16 = 0x100;
/// In an acknowledgement: attributes (`NLMSGERR_ATTR_...`) follow.
pub const NLM_F_ACK_TLVS: u16 = 0x200;
/// All of them: `NLM_F_ROOT | NLM_F_MATCH`.
pub const NLM_F_DUMP: u16 = 0x300;
/// In a request that makes something: replace what is there.
pub const NLM_F_REPLACE: u16 = 0x100;
/// In a request that makes something: only if there is none.
pub const NLM_F_EXCL: u16 = 0x200;
/// In a request that makes something: make it if there is none.
pub const NLM_F_CREATE: u16 = 0x400;
/// In a request that makes something: at the end of the list.
pub const NLM_F_APPEND: u16 = 0x800;

/// Flag beside an attribute's type: its payload is attributes.
pub const NLA_F_NESTED: u16 = 0x8000;
/// Mask of an attribute's type without its flags.
pub const NLA_TYPE_MASK: u16 = 0x3fff;

/// `struct nlmsghdr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Nlmsghdr {
    /// Length in bytes, this header included.
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
    /// Length in bytes, this header included, padding not.
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

/// One message of a buffer: its header and what follows within its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Header.
    pub header: Nlmsghdr,
    /// Payload, padding not included.
    pub payload: &'a [u8],
    /// The whole message, header included.
    pub bytes: &'a [u8],
}

/// Walks the messages of one datagram as the kernel's `netlink_rcv_skb` does: the first malformed header ends it.
#[derive(Clone)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// A walk over all of `bytes`.
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
    /// Payload.
    pub payload: &'a [u8],
}

/// Walks attributes; a malformed one ends the walk, as `nla_for_each_attr` does.
#[derive(Clone)]
pub struct Attrs<'a>(&'a [u8]);

impl<'a> Attrs<'a> {
    /// A walk over all of `bytes`.
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
        Some(Attr { type_: head.nla_type & NLA_TYPE_MASK, payload: &bytes[NLA_HDRLEN..] })
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
        push_attr(&mut out, 3, b"xyz");
        let attrs: Vec<_> = Attrs::new(&out).collect();
        assert_eq!(attrs[0], Attr { type_: 1, payload: &7u32.to_ne_bytes() });
        assert_eq!(attrs[1], Attr { type_: 3, payload: b"xyz" });
        assert_eq!(attrs.len(), 2);
        assert_eq!(Attrs::new(&[3, 0, 1, 0]).count(), 0);
    }
}
