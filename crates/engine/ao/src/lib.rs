//! TCP-AO as programs see it: the socket options of `net/ipv4/tcp_ao.c`, with what TCP-MD5 and connect() have to do with
//! them.
//!
//! A [`Namespace`] holds the sockets of one network namespace that ever used TCP-AO or TCP-MD5. Whoever intercepts the
//! calls hands each one over, with what it read about the socket at that moment ([`SocketFacts`]); the answer is what the
//! imitated kernel would answer. All state of a socket lies in its [`AoInfo`], which the data path shares.
//!
//! ```text
//! setsockopt ─▶ tcp.c's checks ─▶ add · del · info · repair ─▶ AoInfo ◀─ data path
//! getsockopt ─▶ tcp.c's checks ─▶ keys · info · repair ─▶ Answer
//! connect ────▶ connect() may it? ─▶ the kernel's own ─▶ connect_done() what it changed
//! TCP_MD5SIG ─▶ md5_setsockopt() may it? ─▶ the kernel's own ─▶ remembered without its key
//! ```
#![forbid(unsafe_code)]

mod add;
mod configured;
mod connect;
mod del;
mod flows;
mod icmp;
mod info;
mod keys;
mod md5;
pub mod netstat;
mod process;
mod repair;
mod snapshot;
mod user;

pub use configured::{ConfiguredKey, SavedConnection};
pub use connect::Accepted;
pub use flows::{Ends, Found, Kernel, MAX_HALF_OPEN, Target, Track};
pub use icmp::{icmp_error, tell_nobody};
pub use md5::Md5Key;
pub use process::{Inbound, Outbound, Piece, Verdict};
pub use snapshot::Snapshot;
pub use user::{Answer, Write};

use core::net::{IpAddr, SocketAddr};
use sealane_abi::tcp::{self, State};
use sealane_abi::{Errno, Profile};
use sealane_net::ao::alg::Algorithms;
use sealane_net::ao::drop::Netstat;
use sealane_net::ao::info::AoInfo;
use sealane_net::ao::mkt::Prefix;
use std::collections::HashMap;
use std::sync::Arc;
use user::UserBytes;

/// A socket: the cookie that the kernel gave it (`SO_COOKIE`), never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u64);

/// Address family of a socket, which decides how addresses in options are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`; peers may be v4-mapped.
    V6,
}

/// Interfaces of the network namespace.
pub trait Interfaces {
    /// The VRF of an interface: its own index for a VRF device itself (an L3 master), its master's for a device in a VRF,
    /// 0 for any other and for one that does not exist.
    fn vrf(&self, ifindex: i32) -> i32;
}

/// A namespace without VRFs.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoVrfs;

impl Interfaces for NoVrfs {
    fn vrf(&self, _: i32) -> i32 {
        0
    }
}

/// What is true of a TCP socket, and of who calls, at the moment of a call.
#[derive(Clone, Copy)]
pub struct SocketFacts<'a> {
    /// Address family.
    pub family: Family,
    /// State.
    pub state: State,
    /// Where it is bound; `None` before that.
    pub local: Option<SocketAddr>,
    /// Its peer; `None` where `getpeername` has none.
    pub peer: Option<SocketAddr>,
    /// Whether an IPv6 socket speaks IPv6 only (`IPV6_V6ONLY`).
    pub v6only: bool,
    /// The interface it is bound to, 0 for none.
    pub bound_ifindex: i32,
    /// In repair mode (`TCP_REPAIR`): the next sequence numbers to send and to receive. `None` outside it.
    pub repair: Option<RepairSeqs>,
    /// Whether the caller has CAP_NET_ADMIN in the user namespace of the network namespace.
    pub net_admin: bool,
    /// Interfaces.
    pub interfaces: &'a dyn Interfaces,
}

/// Sequence numbers of a socket in repair mode (`TCP_QUEUE_SEQ`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepairSeqs {
    /// The next to send.
    pub send: u32,
    /// The next to receive.
    pub receive: u32,
}

impl SocketFacts<'_> {
    /// Whether the state is one in which a socket has no connection.
    fn unconnected(&self) -> bool {
        matches!(self.state, State::Close | State::Listen)
    }

    /// Its port, once it has one.
    fn local_port(&self) -> Option<u16> {
        self.local.map(|l| l.port())
    }

    /// `tcp_can_repair_sock`.
    fn can_repair(&self) -> bool {
        self.net_admin && self.state != State::Listen
    }

    /// The VRF that the socket is in.
    fn vrf(&self) -> i32 {
        if self.bound_ifindex == 0 { 0 } else { self.interfaces.vrf(self.bound_ifindex) }
    }
}

/// What is known of one socket.
#[derive(Default)]
struct Socket {
    info: Option<AoInfo>,
    /// ISNs and SNEs, as far as [`AoInfo`] has no connection to hold them.
    isns: repair::Isns,
    md5: md5::Table,
    /// Memory of its options in bytes, as the kernel counts it (`sk_omem_alloc`).
    omem: usize,
    /// The peer of the last connect(), which stays with a socket that is closed again (`inet_daddr`), and the port that it
    /// had then.
    remembered: Option<(IpAddr, Option<u16>)>,
    progress: connect::Progress,
    /// A connect() that was allowed and whose SYN has not been seen.
    connecting: Option<connect::Connecting>,
    /// The last segment for it that was dropped.
    last_drop: Option<Box<snapshot::LastDrop>>,
    /// Whether it was seen to listen.
    listening: bool,
    /// The configured peer whose keys it has: number and name. `None` when the program set them.
    configured: Option<(u32, Arc<str>)>,
    /// How it was when it was saved.
    saved: Option<configured::Saved>,
}

impl Socket {
    /// The peer that a new key has to match.
    fn peer(&self, facts: &SocketFacts<'_>) -> Option<IpAddr> {
        // Binding an IPv4 socket anew makes it forget.
        let forgotten = |port| facts.family == Family::V4 && port != facts.local_port();
        let remembered = self.remembered.filter(|(_, port)| !forgotten(*port)).map(|(peer, _)| peer);
        facts.peer.map(|p| p.ip()).or(remembered).filter(|p| !p.is_unspecified())
    }

    /// Counts the memory of all keys anew.
    fn recount(&mut self) {
        let keys = self.info.iter().flat_map(|i| i.keys().iter());
        self.omem = self.md5.memory() + keys.map(|(_, k)| user::key_memory(&k.mkt.algorithm)).sum::<usize>();
    }
}

/// The sockets of one network namespace.
pub struct Namespace {
    profile: Profile,
    algorithms: Algorithms,
    sockets: HashMap<SocketId, Socket>,
    netstat: Netstat,
    flows: flows::Flows,
    drops: snapshot::Drops,
    /// Whether a connection has changed that has to survive us.
    dirty: bool,
    optmem_max: usize,
}

/// Keys that are tried to find out why a MAC does not match.
const MAX_TRIED: usize = 64;

/// `net.core.optmem_max` of Linux since 6.8, in bytes.
pub const OPTMEM_MAX: usize = 131_072;

impl Namespace {
    /// Without sockets. The open profile does not limit the memory of a socket's keys; the others limit it to
    /// [`OPTMEM_MAX`] until they are told otherwise.
    #[must_use]
    pub fn new(profile: Profile, algorithms: Algorithms) -> Self {
        let optmem_max = if profile == Profile::Open { usize::MAX } else { OPTMEM_MAX };
        Namespace {
            profile,
            algorithms,
            sockets: HashMap::new(),
            netstat: Netstat::default(),
            flows: flows::Flows::default(),
            drops: snapshot::Drops::default(),
            dirty: false,
            optmem_max,
        }
    }

    /// Limits the keys of a socket, in bytes as the kernel counts them (`/proc/sys/net/core/optmem_max`).
    pub fn set_optmem_max(&mut self, bytes: usize) {
        self.optmem_max = bytes;
    }

    /// setsockopt() at level `IPPROTO_TCP` with one of the options 38 to 42. `optval` holds the program's bytes from its
    /// pointer on, up to `optlen` or to the first that cannot be read.
    ///
    /// # Errors
    /// What the imitated kernel answers.
    pub fn setsockopt(
        &mut self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        optname: i32,
        optval: &[u8],
        optlen: i32,
    ) -> Result<(), Errno> {
        let user = UserBytes::new(optval, optlen, self.rules().tails_count)?;
        // do_tcp_setsockopt reads an int before it looks at the option.
        if optlen < 4 {
            return Err(Errno::EINVAL);
        }
        user.prefix(4)?;
        if !self.rules().exists {
            return Err(Errno::ENOPROTOOPT);
        }
        let done = match optname {
            tcp::TCP_AO_REPAIR if !facts.can_repair() => Err(Errno::EPERM),
            tcp::TCP_AO_REPAIR => self.set_repair(id, facts, &user),
            tcp::TCP_AO_ADD_KEY | tcp::TCP_AO_DEL_KEY | tcp::TCP_AO_INFO => {
                // Whether a connection uses TCP-AO is decided by its SYN.
                if !facts.unconnected() && self.info(id).is_none() && facts.repair.is_none() {
                    return Err(Errno::EISCONN);
                }
                match optname {
                    tcp::TCP_AO_ADD_KEY => self.add_key(id, facts, &user),
                    tcp::TCP_AO_DEL_KEY => self.del_key(id, facts, &user),
                    _ => self.set_info(id, facts, &user),
                }
            }
            _ => Err(Errno::ENOPROTOOPT),
        };
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.listening = facts.state == State::Listen;
        }
        if done.is_ok() && facts.repair.is_some() {
            self.repaired(id, facts);
        }
        done
    }

    /// getsockopt() at level `IPPROTO_TCP` with one of the options 38 to 42. `optval` as for [`Namespace::setsockopt`];
    /// `optlen` is the number that the program's pointer pointed to.
    ///
    /// # Errors
    /// What the imitated kernel answers.
    pub fn getsockopt(
        &self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        optname: i32,
        optval: &[u8],
        optlen: i32,
    ) -> Result<Answer, Errno> {
        let user = UserBytes::new(optval, optlen, self.rules().tails_count)?;
        if !self.rules().exists {
            return Err(Errno::ENOPROTOOPT);
        }
        match optname {
            tcp::TCP_AO_REPAIR if !facts.can_repair() => Err(Errno::EPERM),
            tcp::TCP_AO_REPAIR => self.repair(id, facts, &user),
            tcp::TCP_AO_GET_KEYS => self.keys(id, &user),
            tcp::TCP_AO_INFO => self.ao_info(id, &user),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// The socket is gone: forgets it, and hands out what TIME_WAIT may still need.
    pub fn closed(&mut self, id: SocketId) -> Option<AoInfo> {
        self.sockets.remove(&id)?.info
    }

    /// How many sockets it knows.
    #[must_use]
    pub fn known(&self) -> usize {
        self.sockets.len()
    }

    /// Whether a socket ever used TCP-AO or, since then, TCP-MD5.
    #[must_use]
    pub fn knows(&self, id: SocketId) -> bool {
        self.sockets.contains_key(&id)
    }

    /// What a socket knows of TCP-AO; `None` for one without.
    #[must_use]
    pub fn info(&self, id: SocketId) -> Option<&AoInfo> {
        self.sockets.get(&id)?.info.as_ref()
    }

    /// The same, for the data path: to count, to rotate keys, to follow sequence numbers.
    pub fn info_mut(&mut self, id: SocketId) -> Option<&mut AoInfo> {
        self.sockets.get_mut(&id)?.info.as_mut()
    }

    /// All sockets with TCP-AO, in no order.
    pub fn sockets(&self) -> impl Iterator<Item = (SocketId, &AoInfo)> {
        self.sockets.iter().filter_map(|(id, s)| Some((*id, s.info.as_ref()?)))
    }

    /// The peers of all keys, as often as there are keys.
    pub fn key_peers(&self) -> impl Iterator<Item = Prefix> {
        self.sockets().flat_map(|(_, info)| info.keys().iter().map(|(_, key)| key.mkt.peer))
    }

    /// Whether a socket takes no connection without TCP-AO, whoever the peer is.
    #[must_use]
    pub fn requires(&self) -> bool {
        self.sockets().any(|(_, info)| info.ao_required)
    }

    /// Counters of the namespace.
    #[must_use]
    pub fn netstat(&self) -> &Netstat {
        &self.netstat
    }

    /// The same, to count.
    pub fn netstat_mut(&mut self) -> &mut Netstat {
        &mut self.netstat
    }

    fn rules(&self) -> Rules {
        Rules::of(self.profile)
    }

    /// The socket as a setter may change it: it exists from its first accepted option on.
    fn socket(&mut self, id: SocketId) -> &mut Socket {
        self.sockets.entry(id).or_default()
    }
}

/// The rules in which the kernels differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rules {
    /// Whether there is TCP-AO at all: since 6.7.
    exists: bool,
    /// Whether bytes behind the struct that the kernel knows must be zero. Linux 6.12 means to and does not.
    tails_count: bool,
    /// Whether TCP_AO_DEL_KEY finds keys that are bound to a VRF. Linux 6.12 does not.
    deletes_in_vrfs: bool,
    /// The algorithms' names.
    names: Names,
}

/// Which algorithms' names are taken, and how AES-CMAC is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Linux 7.1 and later: SHA-1, SHA-256 and AES-128-CMAC; `cmac(aes)` is AES-128-CMAC with a key of 16 bytes.
    Three,
    /// Until Linux 7.0: what its crypto API has. `cmac(aes)` takes keys of AES, `cmac(aes128)` any key.
    Wide,
    /// All that we have, otherwise like Linux 7.3.
    All,
}

impl Rules {
    fn of(profile: Profile) -> Self {
        match profile {
            Profile::Linux6_1 => Rules { exists: false, ..Rules::of(Profile::Linux6_12) },
            Profile::Linux6_12 => {
                Rules { exists: true, tails_count: false, deletes_in_vrfs: false, names: Names::Wide }
            }
            Profile::Linux7_3 | Profile::Linux7_3Restricted => {
                Rules { exists: true, tails_count: true, deletes_in_vrfs: true, names: Names::Three }
            }
            Profile::Open => Rules { exists: true, tails_count: true, deletes_in_vrfs: true, names: Names::All },
        }
    }
}
