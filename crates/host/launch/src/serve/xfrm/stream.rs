//! `TCP_ULP` with `espintcp`: ESP in TCP (RFC 9329), where a daemon stands for the kernel's IPsec.
//!
//! Linux splits the stream of such a socket itself: the program reads and writes whole IKE messages, and ESP never comes to it.
//! Here the daemon takes the connection over, and one end of a pair of Unix sockets takes its place in the program, under each
//! of its numbers and in the epoll sets that watch it.

use super::link::{ask_with_rights, is_socket_served, may_administer, trusted, within};
use crate::serve::server::{Done, Verdict};
use crate::serve::supervisor::{CallContext, MayBlock};
use sealane_abi::sealane::Question;
use sealane_abi::socket::{ESPINTCP, TCP_ULP, TCP_ULP_NAME_MAX};
use sealane_sys::netns::Netns;
use sealane_sys::peer::readable;
use sealane_sys::seccomp::Notification;
use sealane_sys::stream;
use sealane_sys::thread::{Span, Thread};
use sealane_sys::{tcp_socket, unix, usersock};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// The time that the daemon has for each step.
const PATIENCE_MS: i32 = 2000;

/// Whether a call is about the protocol above TCP.
pub(super) fn is_ulp_call(n: &Notification) -> bool {
    matches!(n.nr, libc::SYS_setsockopt | libc::SYS_getsockopt)
        && (n.args[1] as i32, n.args[2] as i32) == (libc::IPPROTO_TCP, TCP_ULP)
}

/// Performs such a call.
pub(super) fn perform(call: &CallContext<'_>) -> Done {
    let (peer, n) = (call.peer, call.n);
    if peer.secure() {
        return Err(Verdict::Pass);
    }
    let Ok(fd) = peer.borrow(n.args[0] as u32) else { return Err(Verdict::Pass) };
    if n.nr == libc::SYS_getsockopt { name(peer, n, fd.as_fd()) } else { set(call, &fd) }
}

/// Tells the name of the protocol, of a socket that stands for a connection (`do_tcp_getsockopt`).
fn name(peer: &Thread, n: &Notification, fd: BorrowedFd<'_>) -> Done {
    if !stream::is_of_pair(fd) {
        return Err(Verdict::Pass);
    }
    let room = i32::from_ne_bytes(peer.bytes(n.args[4])?);
    let room = usize::try_from(room).map_err(|_| libc::EINVAL)?;
    let mut text = [0; TCP_ULP_NAME_MAX];
    text[..ESPINTCP.len()].copy_from_slice(ESPINTCP);
    let len = room.min(text.len());
    peer.write(&[Span { at: n.args[4], len: 4 }], &(len as u32).to_ne_bytes())?;
    peer.write(&[Span { at: n.args[3], len }], &text[..len])?;
    Ok(0)
}

/// The name that is asked for: the kernel reads as much as one may have, up to its end (`do_tcp_setsockopt`).
fn asked(peer: &Thread, n: &Notification) -> Result<Vec<u8>, i32> {
    let len = usize::try_from(n.args[4] as i32).ok().filter(|len| *len > 0).ok_or(libc::EINVAL)?;
    let mut value = vec![0; len.min(TCP_ULP_NAME_MAX - 1)];
    peer.read(&[Span { at: n.args[3], len: value.len() }], &mut value)?;
    value.truncate(value.iter().position(|byte| *byte == 0).unwrap_or(value.len()));
    Ok(value)
}

fn set(call: &CallContext<'_>, fd: &OwnedFd) -> Done {
    let asked = asked(call.peer, call.n);
    if stream::is_of_pair(fd.as_fd()) {
        let known = [ESPINTCP, b"tls"].contains(&&*asked?);
        return Err(if known { libc::EEXIST } else { libc::ENOENT }.into());
    }
    if asked.as_deref() != Ok(ESPINTCP) {
        return Err(Verdict::Pass);
    }
    let Ok(netns) = Netns::of_socket(fd.as_fd()) else { return Err(Verdict::Pass) };
    let is_tcp = tcp_socket::kind(fd.as_fd()).is_some_and(|k| k.1 == libc::IPPROTO_TCP);
    let may_block = if is_tcp { is_socket_served(call, &netns)? } else { None };
    let Some(may_block) = may_block else { return Err(Verdict::Pass) };
    if tcp_socket::has_ulp(fd.as_fd()) {
        return Err(libc::EEXIST.into());
    }
    if tcp_socket::peer(fd.as_fd()).is_none() {
        return Err(libc::ENOTCONN.into());
    }
    if !may_administer(call.peer, &netns) {
        let sentence = "asks for ESP in TCP (espintcp), which is for key managers with CAP_NET_ADMIN: it is refused";
        call.tell_of_program("espintcp", sentence);
        return Err(libc::EPERM.into());
    }
    call.check_waiting()?;
    let program = hand_over(call, may_block, &netns, fd)?;
    put_in_place(call, fd.as_fd(), program.as_fd())
}

/// Hands a connection over to the daemon. Returns the socket that stands for it.
fn hand_over(
    call: &CallContext<'_>,
    may_block: MayBlock<'_>,
    netns: &Netns,
    connection: &OwnedFd,
) -> Result<OwnedFd, Verdict> {
    let errno = |e: io::Error| e.raw_os_error().unwrap_or(libc::ECONNREFUSED);
    let (ours, theirs) = stream::pair(usersock::nonblocking(connection.as_fd())).map_err(errno)?;
    let (listener, name) = within(netns, unix::listen_by_new_name).map_err(errno)?;
    // Whoever may ask this has shown its rights; whoever answers is the daemon.
    let refused = ask_with_rights(call, netns, Question::Stream, &name)?;
    if !refused.is_empty() {
        return Err(refused.parse().unwrap_or(libc::EIO).into());
    }
    let daemon = accept(may_block, &listener).map_err(errno)?;
    for descriptor in [connection, &ours] {
        unix::send_with(&daemon, &[0], Some(descriptor.as_fd())).map_err(errno)?;
    }
    drop(ours);
    match answer(may_block, &daemon).map_err(errno)? {
        0 => Ok(theirs),
        e => Err(e.into()),
    }
}

/// The daemon's connection to our listener, which anybody may find, and may keep busy.
fn accept(_: MayBlock<'_>, listener: &UnixListener) -> io::Result<UnixStream> {
    let until = Instant::now() + Duration::from_millis(PATIENCE_MS as u64);
    while Instant::now() < until && readable(listener.as_fd(), PATIENCE_MS) {
        let (stream, _) = listener.accept()?;
        if trusted(unix::peer_user(&stream)?) {
            return Ok(stream);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// The daemon's answer, an errno or 0.
fn answer(_: MayBlock<'_>, daemon: &UnixStream) -> io::Result<i32> {
    let mut bytes = [0; 4];
    if !readable(daemon.as_fd(), PATIENCE_MS) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (len, _) = unix::receive_with(daemon, &mut bytes)?;
    if len == bytes.len() { Ok(i32::from_ne_bytes(bytes)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Puts a socket in the place of a connection in a program. If that fails, the connection ends with the socket. A number that
/// another thread of the program closes meanwhile, and perhaps gives to another file, is left alone.
fn put_in_place(call: &CallContext<'_>, connection: BorrowedFd<'_>, socket: BorrowedFd<'_>) -> Done {
    let peer = call.peer;
    // That of the connection which was handed over, whatever its number stands for now.
    let inode = stream::inode(connection).map_err(|e| e.raw_os_error().unwrap_or(libc::EBADF))?;
    let all = peer.descriptors_of(inode)?;
    peer.watch_instead(connection, inode, socket)?;
    call.check_waiting()?;
    call.note_result(0);
    for held in all {
        // The kernel replaces whatever has the number, so that it is looked at until the last moment.
        if peer.socket_inode(held.fd) != Some(inode) {
            continue;
        }
        let put = call.install(socket, held.fd, held.cloexec);
        put.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
    }
    Ok(0)
}
