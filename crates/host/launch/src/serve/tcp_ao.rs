//! TCP-AO for a served program: its socket options and its connect(), handed to the engine of the socket's network
//! namespace.
//!
//! The socket stays the program's and the kernel's; we borrow it for the length of a call, to read what the engine
//! wants to know of it.

use super::server::{Done, Server, Verdict, caller, tell_text};
use sealane_abi::Errno;
use sealane_abi::sealane::NETSTAT_QUERY;
use sealane_abi::tcp::{self, State, TcpAoAdd, TcpAoInfoOpt, TcpMd5sig};
use sealane_engine_ao::{Family, Interfaces, Namespace, RepairSeqs, SocketFacts, SocketId, netstat};
use sealane_net::ao::mkt::{Prefix, unmapped};
use sealane_sys::netns::Netns;
use sealane_sys::seccomp::Notification;
use sealane_sys::tcp_socket as sock;
use sealane_sys::thread::{Span, Thread};
use sealane_tcp_ao::{Space, Spaces};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tracing::error;
use zerocopy::FromBytes;
use zeroize::Zeroizing;

/// More than any of the options takes: what follows only has to be looked at for zeros.
const MAX_OPTION: usize = 1 << 16;

/// The smallest size of a page.
const PAGE: u64 = 4096;

/// Whether a call is one of ours to look at.
pub(super) fn is_tcp_ao_call(n: &Notification) -> bool {
    match n.nr {
        libc::SYS_connect => true,
        libc::SYS_setsockopt | libc::SYS_getsockopt => {
            n.args[1] as i32 == libc::IPPROTO_TCP
                && matches!(
                    n.args[2] as i32,
                    tcp::TCP_MD5SIG | tcp::TCP_MD5SIG_EXT | tcp::TCP_AO_ADD_KEY..=tcp::TCP_AO_REPAIR
                )
                || n.nr == libc::SYS_getsockopt && n.args[2] as i32 == NETSTAT_QUERY
        }
        _ => false,
    }
}

/// Serves one call.
pub(super) fn serve(server: &Arc<Server>, spaces: &Spaces, n: &Notification, peer: &Thread) -> Done {
    if n.nr == libc::SYS_getsockopt && n.args[2] as i32 == NETSTAT_QUERY {
        return counters(spaces, peer, n);
    }
    if n.nr == libc::SYS_connect && spaces.is_empty() {
        return Err(Verdict::Pass);
    }
    let Ok(fd) = peer.borrow(n.args[0] as u32) else { return Err(Verdict::Pass) };
    let family = match sock::kind(fd.as_fd()) {
        Some((libc::AF_INET, libc::IPPROTO_TCP)) => Family::V4,
        Some((libc::AF_INET6, libc::IPPROTO_TCP)) => Family::V6,
        // Go's listeners are of MPTCP, which has no TCP-AO in the kernel either; the rest is not ours at all.
        _ => return Err(Verdict::Pass),
    };
    TcpCall { server, spaces, peer, n, family, fd }.serve()
}

/// One call on a TCP socket.
struct TcpCall<'a> {
    server: &'a Arc<Server>,
    spaces: &'a Spaces,
    peer: &'a Thread,
    n: &'a Notification,
    family: Family,
    /// A duplicate of the program's descriptor, which goes with the call.
    fd: OwnedFd,
}

impl TcpCall<'_> {
    fn serve(self) -> Done {
        let id = SocketId(sock::cookie(self.fd.as_fd()).map_err(|_| libc::EBADF)?);
        let optname = self.n.args[2] as i32;
        match self.n.nr {
            libc::SYS_connect => self.connect(id),
            libc::SYS_getsockopt if matches!(optname, tcp::TCP_MD5SIG | tcp::TCP_MD5SIG_EXT) => Err(Verdict::Pass),
            libc::SYS_getsockopt => self.getsockopt(id, optname),
            _ => self.setsockopt(id, optname),
        }
    }

    /// The namespace's engine and data path; with `make`, made if need be.
    fn space(&self, make: bool) -> Result<Option<Arc<Space>>, Verdict> {
        self.spaces.of_socket(self.fd.as_fd(), make).map_err(|e| {
            error!(error = %e, "TCP-AO cannot be served here: {e}");
            Verdict::Fail(libc::ENOPROTOOPT)
        })
    }

    fn facts<'f>(&self, interfaces: &'f dyn Interfaces) -> SocketFacts<'f> {
        let fd = self.fd.as_fd();
        let state = sock::state(fd).and_then(State::new).unwrap_or(State::Close);
        SocketFacts {
            family: self.family,
            state,
            local: sock::local(fd),
            peer: sock::peer(fd),
            v6only: sock::v6_only(fd),
            bound_ifindex: sock::bound_ifindex(fd),
            repair: sock::repair_seqs(fd).map(|(send, receive)| RepairSeqs { send, receive }),
            net_admin: caller(self.peer).privileged,
            interfaces,
        }
    }

    /// The readable part of the program's `len` bytes at `at`, wiped on drop.
    fn read(&self, at: u64, len: i32) -> Result<Zeroizing<Vec<u8>>, Verdict> {
        let len = usize::try_from(len).unwrap_or(0).min(MAX_OPTION);
        let mut bytes = Zeroizing::new(vec![0; len]);
        match self.peer.read(&[Span { at, len }], &mut bytes) {
            Err(libc::EFAULT) => {}
            read => return Ok(read.map(|()| bytes)?),
        }
        // Its memory may end within: what is readable ends at the end of a page.
        let mut readable = 0;
        while readable < len {
            let next = (at.wrapping_add(readable as u64) | (PAGE - 1)).wrapping_add(1).wrapping_sub(at);
            let next = usize::try_from(next).map_or(len, |next| next.min(len));
            let span = Span { at: at.wrapping_add(readable as u64), len: next - readable };
            match self.peer.read(&[span], &mut bytes[readable..next]) {
                Err(libc::EFAULT) => break,
                read => read?,
            }
            readable = next;
        }
        bytes.truncate(readable);
        Ok(bytes)
    }

    fn setsockopt(&self, id: SocketId, optname: i32) -> Done {
        let optlen = self.n.args[4] as i32;
        let optval = self.read(self.n.args[3], optlen)?;
        let md5 = matches!(optname, tcp::TCP_MD5SIG | tcp::TCP_MD5SIG_EXT);
        if md5 && optval.len() < usize::try_from(optlen).unwrap_or(0).min(size_of::<TcpMd5sig>()) {
            // Memory that ends early: the kernel finds the right error.
            return Err(Verdict::Pass);
        }
        let kernel = || sock::set(self.fd.as_fd(), libc::IPPROTO_TCP, optname, &optval).map_err(errno);
        let Some(space) = self.space(!md5)? else {
            let facts = self.facts(&sealane_engine_ao::NoVrfs);
            let set = |engine: &mut Namespace| engine.md5_setsockopt(id, &facts, optname, &optval, optlen, kernel);
            self.spaces.call_early(self.fd.as_fd(), set).map_err(|_| Verdict::Pass)??;
            return Ok(0);
        };
        let interfaces = space.interfaces();
        let facts = self.facts(&interfaces);
        if md5 {
            let mut engine = space.engine();
            engine.adopt(id, &facts);
            engine.md5_setsockopt(id, &facts, optname, &optval, optlen, kernel)?;
            return Ok(0);
        }
        if !self.server.listener.valid(self.n.id) {
            return Err(Verdict::Answered);
        }
        // The rules stand before the key does.
        let prefixes = protects(self.family, optname, &optval);
        let held = space.protect(&prefixes).map_err(|e| {
            let peers = prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ");
            error!(peer = peers, error = %e, "cannot protect {peers}: {e}");
            Verdict::Fail(libc::ENOMEM)
        })?;
        let optmem_max = self.spaces.limits_memory().then(|| space.optmem_max()).flatten();
        let mut engine = space.engine();
        if let Some(bytes) = optmem_max {
            engine.set_optmem_max(bytes);
        }
        engine.adopt(id, &facts);
        let done = engine.setsockopt(id, &facts, optname, &optval, optlen);
        drop(held);
        done?;
        Ok(0)
    }

    fn getsockopt(&self, id: SocketId, optname: i32) -> Done {
        let optlen = i32::from_ne_bytes(self.peer.bytes::<4>(self.n.args[4])?);
        let optval = self.read(self.n.args[3], optlen)?;
        let answer = match self.space(false)? {
            Some(space) => {
                let interfaces = space.interfaces();
                let facts = self.facts(&interfaces);
                let mut engine = space.delivered();
                engine.adopt(id, &facts);
                engine.getsockopt(id, &facts, optname, &optval, optlen)?
            }
            None => {
                let facts = self.facts(&sealane_engine_ao::NoVrfs);
                self.spaces.blank().getsockopt(id, &facts, optname, &optval, optlen)?
            }
        };
        let put = |w: &sealane_engine_ao::Write| {
            self.peer.write(&[Span { at: self.n.args[3] + w.offset as u64, len: w.bytes.len() }], &w.bytes)
        };
        for write in &answer.writes {
            put(write)?;
        }
        if let Some(len) = answer.optlen {
            self.peer.write(&[Span { at: self.n.args[4], len: 4 }], &len.to_ne_bytes())?;
        }
        if let Some(write) = &answer.last {
            put(write)?;
        }
        Ok(0)
    }

    fn connect(&self, id: SocketId) -> Done {
        let Some(space) = self.space(false)? else { return Err(Verdict::Pass) };
        if !space.engine().knows(id) {
            return Err(Verdict::Pass);
        }
        let len = (self.n.args[2] as usize).min(128);
        let mut bytes = [0; 128];
        self.peer.read(&[Span { at: self.n.args[1], len }], &mut bytes[..len])?;
        let Some(to) = sock::decode(&bytes[..len]) else { return Err(Verdict::Pass) };
        let interfaces = space.interfaces();
        let facts = self.facts(&interfaces);
        space.engine().connect(id, &facts, to)?;
        Err(Verdict::Pass)
    }
}

fn errno(e: std::io::Error) -> Errno {
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

/// The text of /proc/net/netstat with our counters, for the preloaded library.
fn counters(spaces: &Spaces, peer: &Thread, n: &Notification) -> Done {
    let (tid, proc) = (n.tid, "/proc");
    let of = match n.args[0] as i32 {
        0 => format!("{proc}/{tid}/task/{tid}"),
        pid if pid > 0 => format!("{proc}/{pid}"),
        _ => format!("{proc}/{}", peer.process().unwrap_or(tid)),
    };
    // Whoever looks at counters wants segments counted from now on, also those for sockets without keys.
    let read = || Ok((Netns::open(&format!("{of}/ns/net"))?, std::fs::read_to_string(format!("{of}/net/netstat"))?));
    let (netns, text) = peer.ask(|_| read()).ok_or(Verdict::Answered)?.map_err(|_: std::io::Error| libc::ENOENT)?;
    let Ok(Some(space)) = spaces.of(netns, true) else { return Err(libc::ENOENT.into()) };
    let text = netstat::render(&text, space.delivered().netstat());
    tell_text(peer, n, &text)
}
