//! TCP-AO for a served program: its socket options and its connect(), made by an engine of this process, or by that of a
//! daemon that serves the program's network namespace.
//!
//! The socket stays the program's and the kernel's; it is borrowed for the length of a call.

mod by_engine;

use super::engine::Engine;
use super::rights::is_capable;
use super::server::{Done, Verdict};
use super::supervisor::CallContext;
use sealane_abi::sealane::{NETSTAT_QUERY, SETTLED_QUERY};
use sealane_abi::tcp;
use sealane_sys::seccomp::Notification;
use sealane_sys::tcp_socket as sock;
use sealane_sys::thread::Span;
use sealane_tcp_ao::calls::{self, Asked, Family, Outcome, Write};
use std::os::fd::{AsFd, OwnedFd};
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
                || n.nr == libc::SYS_getsockopt && matches!(n.args[2] as i32, NETSTAT_QUERY | SETTLED_QUERY)
        }
        _ => false,
    }
}

/// Performs such a call.
pub(super) fn perform(call: &CallContext<'_>, engine: &Engine) -> Done {
    let (n, peer) = (call.n, call.peer);
    match (n.nr, n.args[2] as i32) {
        (libc::SYS_getsockopt, NETSTAT_QUERY) => return counters(call, engine),
        (libc::SYS_getsockopt, SETTLED_QUERY) => return settle(call, engine),
        _ => {}
    }
    if n.nr == libc::SYS_connect && engine.is_unused() {
        return Err(Verdict::Pass);
    }
    let Ok(fd) = peer.borrow(n.args[0] as u32) else { return Err(Verdict::Pass) };
    let Some(family) = calls::family(fd.as_fd()) else { return Err(Verdict::Pass) };
    let optname = n.args[2] as i32;
    let tcp = TcpCall { call, engine, family };
    match n.nr {
        libc::SYS_connect => tcp.connect(fd),
        libc::SYS_getsockopt if calls::is_md5(optname) => Err(Verdict::Pass),
        libc::SYS_getsockopt => tcp.getsockopt(fd, optname),
        _ => tcp.setsockopt(fd, optname),
    }
}

/// One call on a TCP socket.
struct TcpCall<'a> {
    call: &'a CallContext<'a>,
    engine: &'a Engine,
    family: Family,
}

impl TcpCall<'_> {
    /// The readable part of the program's `len` bytes at `at`, wiped on drop.
    fn read(&self, at: u64, len: i32) -> Result<Zeroizing<Vec<u8>>, Verdict> {
        let len = usize::try_from(len).unwrap_or(0).min(MAX_OPTION);
        let mut bytes = Zeroizing::new(vec![0; len]);
        match self.call.peer.read(&[Span { at, len }], &mut bytes) {
            Err(libc::EFAULT) => {}
            read => return Ok(read.map(|()| bytes)?),
        }
        // Its memory may end within: what is readable ends at the end of a page.
        let mut readable = 0;
        while readable < len {
            let next = (at.wrapping_add(readable as u64) | (PAGE - 1)).wrapping_add(1).wrapping_sub(at);
            let next = usize::try_from(next).map_or(len, |next| next.min(len));
            let span = Span { at: at.wrapping_add(readable as u64), len: next - readable };
            match self.call.peer.read(&[span], &mut bytes[readable..next]) {
                Err(libc::EFAULT) => break,
                read => read?,
            }
            readable = next;
        }
        bytes.truncate(readable);
        Ok(bytes)
    }

    /// Makes the call, and writes to the program what it answers.
    fn make(&self, socket: OwnedFd, asked: Asked) -> Done {
        // Nothing else asks for it, and to find it out takes longer than most calls.
        let privileged = asked.option() == Some(tcp::TCP_AO_REPAIR) && is_capable(self.call.peer);
        let answer = match self.engine.call(self.call, (socket, self.family), privileged, asked)? {
            Outcome::Pass => return Err(Verdict::Pass),
            Outcome::Fail(errno) => return Err(errno.into()),
            Outcome::Done(answer) => answer,
        };
        let put = |w: &Write| {
            self.call.peer.write(&[Span { at: self.call.n.args[3] + w.offset as u64, len: w.bytes.len() }], &w.bytes)
        };
        for write in &answer.writes {
            put(write)?;
        }
        if let Some(len) = answer.optlen {
            self.call.peer.write(&[Span { at: self.call.n.args[4], len: 4 }], &len.to_ne_bytes())?;
        }
        if let Some(write) = &answer.last {
            put(write)?;
        }
        Ok(0)
    }

    fn setsockopt(&self, socket: OwnedFd, name: i32) -> Done {
        let len = self.call.n.args[4] as i32;
        let value = self.read(self.call.n.args[3], len)?;
        if calls::md5_is_cut_short(name, &value, len) {
            return Err(Verdict::Pass);
        }
        self.call.check_waiting()?;
        self.make(socket, Asked::Set { name, value, len })
    }

    fn getsockopt(&self, socket: OwnedFd, name: i32) -> Done {
        let len = i32::from_ne_bytes(self.call.peer.bytes::<4>(self.call.n.args[4])?);
        let value = self.read(self.call.n.args[3], len)?;
        self.make(socket, Asked::Get { name, value, len })
    }

    fn connect(&self, socket: OwnedFd) -> Done {
        let len = (self.call.n.args[2] as usize).min(128);
        let mut bytes = [0; 128];
        // The kernel finds the error of a bad address.
        if self.call.peer.read(&[Span { at: self.call.n.args[1], len }], &mut bytes[..len]).is_err() {
            return Err(Verdict::Pass);
        }
        let Some(to) = sock::decode(&bytes[..len]) else { return Err(Verdict::Pass) };
        self.make(socket, Asked::Connect(to))
    }
}

/// Waits until no segment is under way, for the preloaded library.
fn settle(call: &CallContext<'_>, engine: &Engine) -> Done {
    // The workers may be busy, and a daemon stopped.
    let may_block = call.may_block()?;
    engine
        .settle(may_block, || call.peer.proc_folder(0).and_then(|folder| folder.netns()).map_err(|_| libc::ENOENT))?;
    Ok(0)
}

/// The text of /proc/net/netstat with our counters, for the preloaded library: of this thread (0), of this process (-1), or
/// of a process by its number, as it names it for /proc.
fn counters(call: &CallContext<'_>, engine: &Engine) -> Done {
    let (peer, n) = (call.peer, call.n);
    let read = || -> std::io::Result<_> {
        let folder = peer.proc_folder(n.args[0] as i32)?;
        let (netns, its_own) = (folder.netns()?, peer.proc_folder(0)?.netns()?);
        let own = netns.id()? == its_own.id()?;
        Ok((netns, own, folder.text("net/netstat")?))
    };
    let (netns, own, text) = read().map_err(|_| libc::ENOENT)?;
    let text = engine.netstat(call, netns, own, text)?;
    call.answer_text(&text)
}
