//! Calls of programs on their TCP sockets, handed to the engine of the socket's network namespace.
//!
//! The socket stays the program's and the kernel's. It is borrowed for the length of a call, to read what the engine
//! wants to know of it.

use crate::space::{Space, Spaces};
use sealane_abi::Errno;
use sealane_abi::tcp::{self, State, TcpAoAdd, TcpAoInfoOpt, TcpMd5sig};
pub use sealane_engine_ao::{Answer, Family, Write};
use sealane_engine_ao::{Interfaces, Namespace, RepairSeqs, SocketFacts, SocketId, netstat};
use sealane_net_ao::mkt::{Prefix, unmapped};
use sealane_sys::netns::Netns;
use sealane_sys::tcp_socket as sock;
use sealane_sys::vrf::Vrfs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tracing::error;
use zerocopy::FromBytes;
use zeroize::Zeroizing;

/// A call of a program on one of its TCP sockets.
pub struct Call {
    /// A duplicate of the program's descriptor. It goes with the call: a longer-lived one would keep the connection open
    /// after the program has closed its own.
    pub socket: OwnedFd,
    /// Its family, as [`family`] has it.
    pub family: Family,
    /// Whether the program is privileged in the socket's network namespace. `TCP_AO_REPAIR` alone asks for it.
    pub privileged: bool,
    /// The call.
    pub asked: Asked,
}

/// The request of a call.
pub enum Asked {
    /// setsockopt() at level `IPPROTO_TCP`.
    Set {
        /// The option: one of TCP-AO's, or of TCP-MD5's.
        name: i32,
        /// The program's bytes, up to `len` or to the first that cannot be read.
        value: Zeroizing<Vec<u8>>,
        /// `optlen`.
        len: i32,
    },
    /// getsockopt() at level `IPPROTO_TCP`.
    Get {
        /// One of TCP-AO's options.
        name: i32,
        /// The program's bytes, up to `len` or to the first that cannot be read.
        value: Zeroizing<Vec<u8>>,
        /// The number that the program's `optlen` points to.
        len: i32,
    },
    /// connect() to this address.
    Connect(SocketAddr),
}

impl Asked {
    /// The option that is set or read.
    #[must_use]
    pub fn option(&self) -> Option<i32> {
        match self {
            Asked::Set { name, .. } | Asked::Get { name, .. } => Some(*name),
            Asked::Connect(_) => None,
        }
    }
}

/// The answer to a call.
pub enum Outcome {
    /// The kernel should do it itself.
    Pass,
    /// It is done: what is to be written to the program.
    Done(Answer),
    /// It fails.
    Fail(i32),
}

impl From<Errno> for Outcome {
    fn from(errno: Errno) -> Self {
        Outcome::Fail(errno.number())
    }
}

/// A call that failed, or that is not ours.
type Refused = Outcome;

/// The family of a TCP socket; `None` for descriptors that are none of ours. Go's listeners are of MPTCP, which has no
/// TCP-AO in the kernel either.
#[must_use]
pub fn family(socket: BorrowedFd<'_>) -> Option<Family> {
    match sock::kind(socket) {
        Some((libc::AF_INET, libc::IPPROTO_TCP)) => Some(Family::V4),
        Some((libc::AF_INET6, libc::IPPROTO_TCP)) => Some(Family::V6),
        _ => None,
    }
}

/// Whether an option is TCP-MD5's.
#[must_use]
pub fn is_md5(name: i32) -> bool {
    matches!(name, tcp::TCP_MD5SIG | tcp::TCP_MD5SIG_EXT)
}

/// Whether the program's memory ends within a TCP-MD5 key, so that the kernel finds the right error.
#[must_use]
pub fn md5_is_cut_short(name: i32, value: &[u8], len: i32) -> bool {
    is_md5(name) && value.len() < usize::try_from(len).unwrap_or(0).min(size_of::<TcpMd5sig>())
}

impl Spaces {
    /// Makes a call. What it changes is kept for the next process before this returns.
    pub fn call(&self, call: Call) -> Outcome {
        let Call { socket, family, privileged, asked } = call;
        let Ok(cookie) = sock::cookie(socket.as_fd()) else { return Outcome::Fail(libc::EBADF) };
        let call = OnSocket { spaces: self, fd: socket.as_fd(), privileged, family, id: SocketId(cookie) };
        let done = match &asked {
            Asked::Set { name, value, len } => call.set(*name, value, *len),
            Asked::Get { name, value, len } => call.get(*name, value, *len),
            Asked::Connect(to) => call.connect(*to),
        };
        done.map_or_else(|refused| refused, Outcome::Done)
    }

    /// The text of /proc/net/netstat of a network namespace with our counters. A program that looks at those of its `own`
    /// wants segments counted from now on, also those for sockets without keys. In another one nothing is begun by a look.
    ///
    /// # Errors
    /// When TCP-AO is not served there, and, in its own, cannot be.
    pub fn netstat(&self, netns: Netns, text: &str, own: bool) -> io::Result<String> {
        let space = self.of(netns, own)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(netstat::render(text, space.delivered().netstat()))
    }
}

/// One call on a TCP socket.
struct OnSocket<'a> {
    spaces: &'a Spaces,
    fd: BorrowedFd<'a>,
    privileged: bool,
    family: Family,
    id: SocketId,
}

impl OnSocket<'_> {
    /// The namespace's engine and data path; with `make`, made if need be.
    fn space(&self, make: bool) -> Result<Option<Arc<Space>>, Refused> {
        self.spaces.of_socket(self.fd, make).map_err(|e| {
            error!(error = %e, "TCP-AO cannot be served here: {e}");
            Outcome::Fail(libc::ENOPROTOOPT)
        })
    }

    fn facts<'f>(&self, interfaces: &'f dyn Interfaces) -> SocketFacts<'f> {
        let state = sock::state(self.fd).and_then(State::new).unwrap_or(State::Close);
        SocketFacts {
            family: self.family,
            state,
            local: sock::local(self.fd),
            // One that is closed or listens has none, and one of IPv4 has no IPv6: each question takes a system call.
            peer: if matches!(state, State::Close | State::Listen) { None } else { sock::peer(self.fd) },
            v6only: self.family == Family::V6 && sock::v6_only(self.fd),
            bound_ifindex: sock::bound_ifindex(self.fd),
            repair: sock::repair_seqs(self.fd).map(|(send, receive)| RepairSeqs { send, receive }),
            net_admin: self.privileged,
            interfaces,
        }
    }

    fn set(&self, name: i32, value: &[u8], len: i32) -> Result<Answer, Refused> {
        let md5 = is_md5(name);
        let kernel = || sock::set(self.fd, libc::IPPROTO_TCP, name, value).map_err(errno);
        let Some(space) = self.space(!md5)? else {
            let interfaces = VrfsOfSocket(self.fd);
            let facts = self.facts(&interfaces);
            let set = |engine: &mut Namespace| engine.md5_setsockopt(self.id, &facts, name, value, len, kernel);
            self.spaces.call_early(self.fd, set).map_err(|_| Outcome::Pass)??;
            return Ok(Answer::default());
        };
        let interfaces = space.interfaces();
        let facts = self.facts(&interfaces);
        if md5 {
            let mut engine = space.engine();
            engine.adopt(self.id, &facts);
            let done = engine.md5_setsockopt(self.id, &facts, name, value, len, kernel);
            drop(engine);
            space.keep_changes();
            return Ok(done.map(|()| Answer::default())?);
        }
        if !space.serves_programs() {
            return Err(Outcome::Fail(libc::ENOPROTOOPT));
        }
        // The rules stand before the key does.
        let prefixes = protects(self.family, name, value);
        let held = space.protect(&prefixes).map_err(|e| {
            let peers = prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ");
            error!(peer = peers, error = %e, "cannot protect {peers}: {e}");
            Outcome::Fail(libc::ENOMEM)
        })?;
        let optmem_max = self.spaces.limits_memory().then(|| space.optmem_max()).flatten();
        let mut engine = space.engine();
        if let Some(bytes) = optmem_max {
            engine.set_optmem_max(bytes);
        }
        engine.adopt(self.id, &facts);
        let done = engine.setsockopt(self.id, &facts, name, value, len);
        drop(engine);
        drop(held);
        space.keep_changes();
        Ok(done.map(|()| Answer::default())?)
    }

    fn get(&self, name: i32, value: &[u8], len: i32) -> Result<Answer, Refused> {
        let Some(space) = self.space(false)? else {
            return Ok(self.spaces.blank().getsockopt(
                self.id,
                &self.facts(&VrfsOfSocket(self.fd)),
                name,
                value,
                len,
            )?);
        };
        let interfaces = space.interfaces();
        let facts = self.facts(&interfaces);
        let mut engine = space.delivered();
        engine.adopt(self.id, &facts);
        let answer = engine.getsockopt(self.id, &facts, name, value, len)?;
        drop(engine);
        space.keep_changes();
        Ok(answer)
    }

    fn connect(&self, to: SocketAddr) -> Result<Answer, Refused> {
        let Some(space) = self.space(false)? else { return Err(Outcome::Pass) };
        if space.engine().knows(self.id) {
            let interfaces = space.interfaces();
            let facts = self.facts(&interfaces);
            let done = space.engine().connect(self.id, &facts, to);
            space.keep_changes();
            done?;
        }
        // The kernel makes a call that is allowed.
        Err(Outcome::Pass)
    }
}

/// The VRFs of the namespace of a socket, where TCP-AO is not served.
struct VrfsOfSocket<'a>(BorrowedFd<'a>);

impl Interfaces for VrfsOfSocket<'_> {
    fn vrf(&self, ifindex: i32) -> i32 {
        let Ok(device) = u32::try_from(ifindex) else { return 0 };
        let of = |netns: Netns| netns.run(|| Ok(Vrfs::open()?.of(device)));
        Netns::of_socket(self.0).and_then(of).map_or(0, u32::cast_signed)
    }
}

fn errno(e: io::Error) -> Errno {
    e.raw_os_error().and_then(Errno::new).unwrap_or(Errno::EINVAL)
}

/// The peers whose segments a call makes subject to TCP-AO, as far as it is well formed; the engine judges it.
fn protects(family: Family, optname: i32, optval: &[u8]) -> Vec<Prefix> {
    let required = |info: &TcpAoInfoOpt| info.flags.get() & TcpAoInfoOpt::AO_REQUIRED != 0;
    match optname {
        tcp::TCP_AO_ADD_KEY => {
            let Ok((add, _)) = TcpAoAdd::ref_from_prefix(optval) else { return Vec::new() };
            let addr = match add.addr.family() {
                tcp::AF_INET => IpAddr::V4(add.addr.in4()),
                tcp::AF_INET6 => unmapped(IpAddr::V6(add.addr.in6())),
                _ => return Vec::new(),
            };
            let width = if addr.is_ipv4() { 32 } else { 128 };
            // A longer one is refused.
            if add.prefix > width { Vec::new() } else { vec![Prefix { addr, len: add.prefix }] }
        }
        tcp::TCP_AO_INFO => match TcpAoInfoOpt::ref_from_prefix(optval) {
            // Whoever connects has to sign.
            Ok((info, _)) if required(info) && family == Family::V6 => vec![Prefix::ANY_V4, Prefix::ANY_V6],
            Ok((info, _)) if required(info) => vec![Prefix::ANY_V4],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
