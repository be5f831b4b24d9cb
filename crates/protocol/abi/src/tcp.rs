//! `linux/tcp.h`: the socket options of TCP-AO and TCP-MD5, and the addresses inside them.
//!
//! Every struct has alignment 1, so that it can be read from a program's memory in place, without copying the key.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Level of TCP's socket options.
pub const IPPROTO_TCP: i32 = 6;
/// Socket option: an MD5 key for one peer address.
pub const TCP_MD5SIG: i32 = 14;
/// Socket option: repair mode, on 1, off 0, off without a window probe -1.
pub const TCP_REPAIR: i32 = 19;
/// Socket option: an MD5 key, for a prefix or a VRF too.
pub const TCP_MD5SIG_EXT: i32 = 32;
/// Socket option (set): add a master key tuple.
pub const TCP_AO_ADD_KEY: i32 = 38;
/// Socket option (set): delete a master key tuple.
pub const TCP_AO_DEL_KEY: i32 = 39;
/// Socket option (set, get): settings and counters of the socket.
pub const TCP_AO_INFO: i32 = 40;
/// Socket option (get): list master key tuples.
pub const TCP_AO_GET_KEYS: i32 = 41;
/// Socket option (set, get): ISNs and sequence number extensions, in repair mode.
pub const TCP_AO_REPAIR: i32 = 42;

/// Longest master key in bytes.
pub const TCP_AO_MAXKEYLEN: usize = 80;
/// Longest MD5 key in bytes.
pub const TCP_MD5SIG_MAXKEYLEN: usize = 80;
/// Key flag: `ifindex` is set; 0 is the default VRF.
pub const TCP_AO_KEYF_IFINDEX: u8 = 1;
/// Key flag: the MAC does not cover the other TCP options.
pub const TCP_AO_KEYF_EXCLUDE_OPT: u8 = 2;
/// MD5 flag: `tcpm_prefixlen` is set.
pub const TCP_MD5SIG_FLAG_PREFIX: u8 = 1;
/// MD5 flag: `tcpm_ifindex` is set.
pub const TCP_MD5SIG_FLAG_IFINDEX: u8 = 2;

/// The states of `net/tcp_states.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are RFC 9293's")]
#[repr(u8)]
pub enum State {
    Established = 1,
    SynSent = 2,
    SynRecv = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Close = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
    /// A request socket: a SYN was received, the handshake is not complete.
    NewSynRecv = 12,
    /// A socket that is only bound, as `sock_diag` reports it; the socket itself is in [`State::Close`].
    BoundInactive = 13,
}

impl State {
    /// The state with this number in `TCP_INFO` and `sock_diag`.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        use State::*;
        const ALL: [State; 13] = [
            Established,
            SynSent,
            SynRecv,
            FinWait1,
            FinWait2,
            TimeWait,
            Close,
            CloseWait,
            LastAck,
            Listen,
            Closing,
            NewSynRecv,
            BoundInactive,
        ];
        ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Bit `index` of a 32-bit field that C declares as bitfields, in the order of declaration.
const fn bit32(index: u32) -> u32 {
    if cfg!(target_endian = "little") { 1 << index } else { 1 << (31 - index) }
}

/// The same for a 16-bit field.
const fn bit16(index: u32) -> u16 {
    if cfg!(target_endian = "little") { 1 << index } else { 1 << (15 - index) }
}

/// Length of `struct __kernel_sockaddr_storage` in bytes.
pub const SOCKADDR_STORAGE_LEN: usize = 128;
/// `AF_INET`.
pub const AF_INET: u16 = 2;
/// `AF_INET6`.
pub const AF_INET6: u16 = 10;

/// `struct __kernel_sockaddr_storage`, read as `struct sockaddr_in` or `struct sockaddr_in6`.
///
/// ```text
/// 0        2      4          8                       24       28
/// | family | port | IPv4 addr | 0 ...
/// | family | port | flowinfo  | IPv6 addr            | scope | 0 ...
/// ```
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SockaddrStorage(pub [u8; SOCKADDR_STORAGE_LEN]);

impl SockaddrStorage {
    /// All zeros.
    pub const ZERO: SockaddrStorage = SockaddrStorage([0; SOCKADDR_STORAGE_LEN]);

    /// `ss_family`.
    #[must_use]
    pub fn family(&self) -> u16 {
        u16::from_ne_bytes([self.0[0], self.0[1]])
    }

    /// `sin_port` or `sin6_port`, which have the same offset.
    #[must_use]
    pub fn port(&self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// `sin_addr`, whatever the family.
    #[must_use]
    pub fn in4(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[4], self.0[5], self.0[6], self.0[7])
    }

    /// `sin6_addr`, whatever the family.
    #[must_use]
    pub fn in6(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.0[8..24]);
        Ipv6Addr::from(octets)
    }

    /// An address with its family, everything else zero.
    #[must_use]
    pub fn new(addr: IpAddr) -> Self {
        let mut s = Self::ZERO;
        match addr {
            IpAddr::V4(a) => {
                s.0[..2].copy_from_slice(&AF_INET.to_ne_bytes());
                s.0[4..8].copy_from_slice(&a.octets());
            }
            IpAddr::V6(a) => {
                s.0[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
                s.0[8..24].copy_from_slice(&a.octets());
            }
        }
        s
    }

    /// The same with a port.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.0[2..4].copy_from_slice(&port.to_be_bytes());
        self
    }
}

/// `struct tcp_ao_add`.
///
/// ```text
/// 0          128        192       196     200        202      203     204     205      206        207      208
/// | addr 128 | alg 64   | ifindex | flags | reserved2 | prefix | sndid | rcvid | maclen | keyflags | keylen | key 80
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpAoAdd {
    /// Peer.
    pub addr: SockaddrStorage,
    /// Name of the algorithm, NUL-terminated; the last byte counts as NUL.
    pub alg_name: [u8; 64],
    /// Interface of the VRF.
    pub ifindex: I32,
    /// Bits, see the constants; all others must be 0.
    pub flags: U32,
    /// Must be 0.
    pub reserved2: U16,
    /// Prefix length of the peer in bits.
    pub prefix: u8,
    /// SendID.
    pub sndid: u8,
    /// RecvID.
    pub rcvid: u8,
    /// Length of the MAC in bytes; 0 means 12.
    pub maclen: u8,
    /// [`TCP_AO_KEYF_IFINDEX`], [`TCP_AO_KEYF_EXCLUDE_OPT`].
    pub keyflags: u8,
    /// Length of the key in bytes.
    pub keylen: u8,
    /// The master key. Secret.
    pub key: [u8; TCP_AO_MAXKEYLEN],
}

impl TcpAoAdd {
    /// Use the key to send, at once.
    pub const SET_CURRENT: u32 = bit32(0);
    /// Ask the peer to use it, at once.
    pub const SET_RNEXT: u32 = bit32(1);
    /// The bits of the flags that must be 0.
    pub const RESERVED: u32 = !(Self::SET_CURRENT | Self::SET_RNEXT);

    /// The name of the algorithm up to its NUL.
    #[must_use]
    pub fn alg_name(&self) -> &[u8] {
        let name = &self.alg_name[..63];
        name.split(|b| *b == 0).next().unwrap_or(name)
    }
}

/// `struct tcp_ao_del`.
///
/// ```text
/// 0          128       132     136         138      139     140     141           142     143
/// | addr 128 | ifindex | flags | reserved2 | prefix | sndid | rcvid | current_key | rnext | keyflags
/// ```
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpAoDel {
    /// Peer.
    pub addr: SockaddrStorage,
    /// Interface of the VRF.
    pub ifindex: I32,
    /// Bits, see the constants; all others must be 0.
    pub flags: U32,
    /// Must be 0.
    pub reserved2: U16,
    /// Prefix length of the peer in bits.
    pub prefix: u8,
    /// SendID.
    pub sndid: u8,
    /// RecvID.
    pub rcvid: u8,
    /// SendID of the new key to send with.
    pub current_key: u8,
    /// RecvID of the new key to request from the peer.
    pub rnext: u8,
    /// [`TCP_AO_KEYF_IFINDEX`].
    pub keyflags: u8,
}

impl TcpAoDel {
    /// `current_key` is set.
    pub const SET_CURRENT: u32 = bit32(0);
    /// `rnext` is set.
    pub const SET_RNEXT: u32 = bit32(1);
    /// Do not wait for readers; listening sockets only.
    pub const DEL_ASYNC: u32 = bit32(2);
    /// The bits of the flags that must be 0.
    pub const RESERVED: u32 = !(Self::SET_CURRENT | Self::SET_RNEXT | Self::DEL_ASYNC);
}

/// `struct tcp_ao_info_opt`.
///
/// ```text
/// 0       4           6             7       8          16        24                  32                40
/// | flags | reserved2 | current_key | rnext | pkt_good | pkt_bad | pkt_key_not_found | pkt_ao_required | pkt_dropped_icmp
/// ```
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpAoInfoOpt {
    /// Bits, see the constants; all others must be 0.
    pub flags: U32,
    /// Must be 0.
    pub reserved2: U16,
    /// SendID of the key to send with.
    pub current_key: u8,
    /// RecvID of the key requested from the peer.
    pub rnext: u8,
    /// Segments verified.
    pub pkt_good: U64,
    /// Segments with a wrong MAC.
    pub pkt_bad: U64,
    /// Segments whose KeyID matches no key.
    pub pkt_key_not_found: U64,
    /// Segments without the option where it is required.
    pub pkt_ao_required: U64,
    /// ICMP errors ignored.
    pub pkt_dropped_icmp: U64,
}

impl TcpAoInfoOpt {
    /// `current_key` is set.
    pub const SET_CURRENT: u32 = bit32(0);
    /// `rnext` is set.
    pub const SET_RNEXT: u32 = bit32(1);
    /// Refuse connections without TCP-AO.
    pub const AO_REQUIRED: u32 = bit32(2);
    /// Sets the counters.
    pub const SET_COUNTERS: u32 = bit32(3);
    /// Accept ICMP errors.
    pub const ACCEPT_ICMPS: u32 = bit32(4);
    /// The bits of the flags that must be 0.
    pub const RESERVED: u32 =
        !(Self::SET_CURRENT | Self::SET_RNEXT | Self::AO_REQUIRED | Self::SET_COUNTERS | Self::ACCEPT_ICMPS);
}

/// `struct tcp_ao_getsockopt`: in, the first entry is the search criterion; out, each entry is a key.
///
/// ```text
/// 0          128      192      272     276     278     279     280      281      282        283      284       288
/// | addr 128 | alg 64 | key 80 | nkeys | flags | sndid | rcvid | prefix | maclen | keyflags | keylen | ifindex | pkt_good 8 | pkt_bad 8
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpAoGetsockopt {
    /// Peer.
    pub addr: SockaddrStorage,
    /// Name of the algorithm.
    pub alg_name: [u8; 64],
    /// The master key. Secret.
    pub key: [u8; TCP_AO_MAXKEYLEN],
    /// In: the number of entries that fit. Out, in the first entry: the number of keys that matched.
    pub nkeys: U32,
    /// Bits, see the constants; all others must be 0.
    pub flags: U16,
    /// SendID.
    pub sndid: u8,
    /// RecvID.
    pub rcvid: u8,
    /// Prefix length of the peer in bits.
    pub prefix: u8,
    /// Length of the MAC in bytes.
    pub maclen: u8,
    /// [`TCP_AO_KEYF_IFINDEX`], [`TCP_AO_KEYF_EXCLUDE_OPT`].
    pub keyflags: u8,
    /// Length of the key in bytes.
    pub keylen: u8,
    /// Interface of the VRF.
    pub ifindex: I32,
    /// Segments verified with this key.
    pub pkt_good: U64,
    /// Segments that failed with this key.
    pub pkt_bad: U64,
}

impl TcpAoGetsockopt {
    /// In: match the key to send with. Out: this key is it.
    pub const IS_CURRENT: u16 = bit16(0);
    /// In: match the key requested from the peer. Out: this key is it.
    pub const IS_RNEXT: u16 = bit16(1);
    /// In: match all keys.
    pub const GET_ALL: u16 = bit16(2);
    /// The bits of the flags that must be 0.
    pub const RESERVED: u16 = !(Self::IS_CURRENT | Self::IS_RNEXT | Self::GET_ALL);
    /// The offset of `nkeys` in bytes.
    pub const NKEYS_AT: usize = 272;
}

/// `struct tcp_ao_repair`.
///
/// ```text
/// 0         4         8         12
/// | snt_isn | rcv_isn | snd_sne | rcv_sne
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpAoRepair {
    /// Our initial sequence number.
    pub snt_isn: zerocopy::big_endian::U32,
    /// The peer's initial sequence number.
    pub rcv_isn: zerocopy::big_endian::U32,
    /// Sequence number extension of sent segments.
    pub snd_sne: U32,
    /// Sequence number extension of received segments.
    pub rcv_sne: U32,
}

/// `struct tcp_md5sig`.
///
/// ```text
/// 0          128     129         130      132       136
/// | addr 128 | flags | prefixlen | keylen | ifindex | key 80
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpMd5sig {
    /// Peer.
    pub tcpm_addr: SockaddrStorage,
    /// [`TCP_MD5SIG_FLAG_PREFIX`], [`TCP_MD5SIG_FLAG_IFINDEX`]; others are ignored.
    pub tcpm_flags: u8,
    /// Prefix length of the peer in bits.
    pub tcpm_prefixlen: u8,
    /// Length of the key in bytes; 0 deletes the key.
    pub tcpm_keylen: U16,
    /// Interface of the VRF.
    pub tcpm_ifindex: I32,
    /// The key. Secret.
    pub tcpm_key: [u8; TCP_MD5SIG_MAXKEYLEN],
}

const _: () = {
    assert!(size_of::<TcpAoAdd>() == 288 && core::mem::offset_of!(TcpAoAdd, key) == 208);
    assert!(size_of::<TcpAoDel>() == 144 && core::mem::offset_of!(TcpAoDel, keyflags) == 143);
    assert!(size_of::<TcpAoInfoOpt>() == 48 && core::mem::offset_of!(TcpAoInfoOpt, pkt_good) == 8);
    assert!(size_of::<TcpAoGetsockopt>() == 304);
    assert!(core::mem::offset_of!(TcpAoGetsockopt, nkeys) == TcpAoGetsockopt::NKEYS_AT);
    assert!(core::mem::offset_of!(TcpAoGetsockopt, ifindex) == 284);
    assert!(size_of::<TcpAoRepair>() == 16);
    assert!(size_of::<TcpMd5sig>() == 216 && core::mem::offset_of!(TcpMd5sig, tcpm_key) == 136);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lie_where_c_puts_them() {
        let a = SockaddrStorage::new(Ipv4Addr::new(10, 1, 2, 3).into()).with_port(179);
        assert_eq!(a.0[..8], [2, 0, 0, 179, 10, 1, 2, 3]);
        assert_eq!((a.family(), a.port(), a.in4()), (AF_INET, 179, Ipv4Addr::new(10, 1, 2, 3)));
        let v6: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let a = SockaddrStorage::new(v6.into());
        assert_eq!((a.family(), a.port(), a.in6()), (AF_INET6, 0, v6));
        assert_eq!((a.0[8], a.0[23], a.0[24]), (0x20, 7, 0));
    }

    #[test]
    fn bitfields_follow_the_order_of_declaration() {
        assert_eq!(U32::new(TcpAoInfoOpt::ACCEPT_ICMPS | TcpAoInfoOpt::SET_CURRENT).as_bytes(), [0x11, 0, 0, 0]);
        assert_eq!(U16::new(TcpAoGetsockopt::GET_ALL).as_bytes(), [4, 0]);
        assert_eq!(TcpAoDel::RESERVED, 0xffff_fff8);
    }

    #[test]
    fn the_name_of_an_algorithm_ends_at_its_nul() {
        let mut bytes = [b'x'; 288];
        let add = TcpAoAdd::ref_from_bytes(&bytes).unwrap();
        assert_eq!(add.alg_name().len(), 63, "the last byte counts as NUL");
        bytes[128 + 9] = 0;
        assert_eq!(TcpAoAdd::ref_from_bytes(&bytes).unwrap().alg_name(), b"xxxxxxxxx");
    }

    #[test]
    fn states_have_the_kernels_numbers() {
        assert_eq!(State::new(10), Some(State::Listen));
        assert_eq!(State::new(State::BoundInactive as u8), Some(State::BoundInactive));
        assert_eq!((State::new(0), State::new(14)), (None, None));
    }
}
