//! Receiving: what the daemon sent, as if the kernel had; nothing that anybody else sent.

use super::link::trusted;
use super::{Done, XfrmCall};
use crate::serve::server::Verdict;
use crate::serve::supervisor::{CallContext, LOOK_MS};
use parking_lot::MutexGuard;
use sealane_abi::netlink::answer::{AckOptions, fitted};
use sealane_abi::netlink::{NETLINK_CAP_ACK, NETLINK_EXT_ACK};
use sealane_abi::sealane::is_xfrm_port;
use sealane_sys::peer::readable;
use sealane_sys::thread::{Span, Thread};
use sealane_sys::usersock::{self, Frame, NETLINK_PKTINFO};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;
use zerocopy::IntoBytes;
use zeroize::Zeroizing;

/// A buffer size that is enough for most frames.
const USUAL: usize = 32 << 10;
const MSGHDR: usize = 56;

/// The part of a frame that a program receives.
struct ReceivedPart<'a> {
    frame: Frame,
    bytes: Zeroizing<Vec<u8>>,
    /// Nobody else takes it.
    _one: MutexGuard<'a, ()>,
}

/// The result of a call with room for `room` bytes.
pub(in crate::serve) fn told_len(bytes: &[u8], room: usize, flags: i32) -> i64 {
    if flags & libc::MSG_TRUNC != 0 { bytes.len() as i64 } else { bytes.len().min(room) as i64 }
}

pub(in crate::serve) fn room(spans: &[Span]) -> usize {
    spans.iter().fold(0usize, |sum, s| sum.saturating_add(s.len))
}

impl XfrmCall<'_> {
    pub(super) fn receive_plain(&self) -> Done {
        let (spans, flags) = match self.call.n.nr {
            libc::SYS_recvfrom => {
                (vec![Span { at: self.call.n.arg(1), len: self.call.n.arg(2) as usize }], self.call.n.int(3))
            }
            libc::SYS_read => (vec![Span { at: self.call.n.arg(1), len: self.call.n.arg(2) as usize }], 0),
            libc::SYS_preadv2 if self.call.n.arg(3) as i64 != -1 => return Err(libc::ESPIPE.into()),
            _ => (self.call.peer.spans(self.call.n.arg(1), self.call.n.arg(2), libc::EINVAL)?, 0),
        };
        if self.call.n.nr != libc::SYS_recvfrom && room(&spans) == 0 {
            return Ok(0);
        }
        self.deliver(flags, |got| {
            self.call.peer.write(&spans, &got.bytes[..got.bytes.len().min(room(&spans))])?;
            if self.call.n.nr == libc::SYS_recvfrom && self.call.n.arg(4) != 0 {
                name_out(self.call.peer, 0, got.frame.groups, self.call.n.arg(4), self.call.n.arg(5))?;
            }
            Ok(told_len(&got.bytes, room(&spans), flags))
        })
    }

    /// Gives the program the next frame, which is taken then, unless the program only looks. If this process is killed before
    /// the call is answered, the call has this result: a frame that comes twice does less harm than one that is lost.
    fn deliver(&self, flags: i32, give: impl FnOnce(&ReceivedPart<'_>) -> Done) -> Done {
        let got = self.receive(flags)?;
        let done = give(&got);
        if flags & libc::MSG_PEEK == 0 {
            if let (Ok(value), false) = (&done, self.call.n.nr == libc::SYS_recvmmsg) {
                self.call.note_result(*value);
            }
            usersock::receive(self.fd.as_fd(), &mut [], 0).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
        }
        done
    }

    pub(super) fn recvmsg(&self, at: u64, flags: i32) -> Done {
        let mut msg = ReceivingMessage::read(self.call.peer, at)?;
        self.deliver(flags, |got| {
            let passes_credentials = self.entry.passes_credentials.load(Ordering::Relaxed);
            msg.give(self.call.peer, flags, &got.frame, &got.bytes, passes_credentials)
        })
    }

    pub(super) fn recvmmsg(&self) -> Done {
        let n = u64::from(self.call.n.arg(2) as u32).min(1024);
        let mut flags = self.call.n.int(3);
        for i in 0..n {
            let at = self.call.n.arg(1) + i * 64;
            match self.recvmsg(at, flags & !libc::MSG_WAITFORONE) {
                Ok(len) => {
                    self.call.peer.write(&[Span { at: at + MSGHDR as u64, len: 4 }], &(len as u32).to_ne_bytes())?;
                }
                Err(Verdict::Fail(_)) if i > 0 => return Ok(i as i64),
                Err(e) => return Err(e),
            }
            if flags & libc::MSG_WAITFORONE != 0 {
                flags |= libc::MSG_DONTWAIT;
            }
        }
        Ok(n as i64)
    }

    /// The next frame of the daemon's, waited for as long as the socket waits. It stays in the socket.
    fn receive(&self, flags: i32) -> Result<ReceivedPart<'_>, Verdict> {
        if flags & libc::MSG_OOB != 0 {
            return Err(libc::EOPNOTSUPP.into());
        }
        await_frame(self.call, self.fd.as_fd(), flags, || self.look())
    }

    /// The next frame of the daemon's, if there is one. What others sent goes.
    fn look(&self) -> Result<Option<ReceivedPart<'_>>, Verdict> {
        let fd = self.fd.as_fd();
        let one = self.entry.receiving.lock();
        let mut bytes = Zeroizing::new(vec![0; USUAL]);
        loop {
            let frame = match usersock::receive(fd, &mut bytes, libc::MSG_PEEK) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                frame => frame.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?,
            };
            let ours = is_xfrm_port(frame.port) && frame.sender.is_some_and(|s| trusted(s.uid));
            if ours && frame.len > bytes.len() {
                bytes = Zeroizing::new(vec![0; frame.len]);
                continue;
            }
            if !ours {
                usersock::receive(fd, &mut [], 0).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
            }
            if ours {
                bytes.truncate(frame.len);
                let options =
                    AckOptions { cap: usersock::flag(fd, NETLINK_CAP_ACK), ext: usersock::flag(fd, NETLINK_EXT_ACK) };
                let bytes = fitted(&bytes, options).map_or(bytes, Zeroizing::new);
                return Ok(Some(ReceivedPart { frame, bytes, _one: one }));
            }
        }
    }
}

/// The message of a `recvmsg` or `sendmsg` (`struct msghdr`).
pub(in crate::serve) struct ReceivingMessage {
    at: u64,
    bytes: [u8; MSGHDR],
    /// The room for bytes.
    pub(in crate::serve) spans: Vec<Span>,
}

impl ReceivingMessage {
    /// Reads the message at an address of a program.
    pub(in crate::serve) fn read(peer: &Thread, at: u64) -> Result<Self, i32> {
        let mut message = ReceivingMessage { at, bytes: peer.bytes(at)?, spans: Vec::new() };
        message.spans = peer.spans(message.word(16), message.word(24), libc::EMSGSIZE)?;
        Ok(message)
    }

    /// The address of the name of the other end, and its length.
    pub(in crate::serve) fn name(&self) -> (u64, u32) {
        (self.word(0), self.word(8) as u32)
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(*self.bytes[at..].first_chunk().expect("inside the structure"))
    }

    /// Writes a frame of the kernel's, as `recvmsg` does.
    pub(in crate::serve) fn give(
        &mut self,
        peer: &Thread,
        flags: i32,
        frame: &Frame,
        bytes: &[u8],
        passes_credentials: bool,
    ) -> Done {
        let room = room(&self.spans);
        peer.write(&self.spans, &bytes[..bytes.len().min(room)])?;
        let mut told = 0;
        if bytes.len() > room {
            told |= libc::MSG_TRUNC;
        }
        let name = self.word(0);
        if name != 0 {
            let from = usersock::address(0, frame.groups);
            let n = (self.word(8) as u32 as usize).min(from.as_bytes().len());
            peer.write(&[Span { at: name, len: n }], &from.as_bytes()[..n])?;
            self.bytes[8..12].copy_from_slice(&(from.as_bytes().len() as u32).to_ne_bytes());
        }
        let (control, controllen) = (self.word(32), self.word(40) as usize);
        let mut out = Vec::new();
        if !put_cmsgs(&control_messages(frame, passes_credentials), controllen, &mut out) {
            told |= libc::MSG_CTRUNC;
        }
        peer.write(&[Span { at: control, len: out.len() }], &out)?;
        self.bytes[40..48].copy_from_slice(&(out.len() as u64).to_ne_bytes());
        self.bytes[48..52].copy_from_slice(&told.to_ne_bytes());
        peer.write(&[Span { at: self.at, len: MSGHDR }], &self.bytes)?;
        Ok(told_len(bytes, room, flags))
    }
}

/// Waits for what `look` finds in a program's socket, as long as a call on it waits.
pub(in crate::serve) fn await_frame<T>(
    call: &CallContext<'_>,
    fd: BorrowedFd<'_>,
    flags: i32,
    mut look: impl FnMut() -> Result<Option<T>, Verdict>,
) -> Result<T, Verdict> {
    let waits = flags & libc::MSG_DONTWAIT == 0 && !usersock::nonblocking(fd);
    let until = usersock::receive_timeout(fd).map(|t| Instant::now() + t);
    call.check_waiting()?;
    loop {
        if let Some(got) = look()? {
            return Ok(got);
        }
        if !waits || until.is_some_and(|t| Instant::now() >= t) {
            return Err(libc::EAGAIN.into());
        }
        let over = || until.is_some_and(|t| Instant::now() >= t);
        call.wait_until(|_| readable(fd, LOOK_MS as i32) || over()).inspect_err(|_| {
            // One that waits for a limited time is not begun anew after a signal.
            if until.is_some() {
                call.not_restarted();
            }
        })?;
    }
}

/// The control messages that a program has asked for: level, type, payload.
fn control_messages(frame: &Frame, passes_credentials: bool) -> Vec<(i32, i32, Vec<u8>)> {
    let mut list = Vec::new();
    if let Some(group) = frame.group {
        list.push((libc::SOL_NETLINK, NETLINK_PKTINFO, group.to_ne_bytes().to_vec()));
    }
    if passes_credentials {
        // The kernel's: process, user and group 0.
        list.push((libc::SOL_SOCKET, libc::SCM_CREDENTIALS, vec![0; 12]));
    }
    list
}

/// Writes a netlink address where a program wants one.
pub(in crate::serve) fn name_out(peer: &Thread, port: u32, groups: u32, addr: u64, len: u64) -> Result<(), Verdict> {
    let name = usersock::address(port, groups);
    let room = i32::from_ne_bytes(peer.bytes(len)?);
    let n = usize::try_from(room).map_err(|_| libc::EINVAL)?.min(name.as_bytes().len());
    peer.write(&[Span { at: addr, len: n }], &name.as_bytes()[..n])?;
    peer.write(&[Span { at: len, len: 4 }], &(name.as_bytes().len() as u32).to_ne_bytes())?;
    Ok(())
}

/// Lays control messages out as `put_cmsg` does. Returns whether all fitted into `room` bytes.
fn put_cmsgs(list: &[(i32, i32, Vec<u8>)], room: usize, out: &mut Vec<u8>) -> bool {
    const HEAD: usize = 16;
    for (level, type_, payload) in list {
        let left = room - out.len();
        if left < HEAD {
            return false;
        }
        let len = (HEAD + payload.len()).min(left);
        out.extend_from_slice(&(len as u64).to_ne_bytes());
        out.extend_from_slice(&level.to_ne_bytes());
        out.extend_from_slice(&type_.to_ne_bytes());
        out.extend_from_slice(&payload[..len - HEAD]);
        if len < HEAD + payload.len() {
            return false;
        }
        out.resize(out.len().next_multiple_of(8).min(room), 0);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_cut_where_the_room_ends() {
        let list = [(270, 3, vec![1; 4]), (1, 2, vec![0; 12])];
        for (room, whole, len) in [(56, true, 56), (52, true, 52), (51, false, 51), (24, false, 24), (15, false, 0)] {
            let mut out = Vec::new();
            assert_eq!((put_cmsgs(&list, room, &mut out), out.len()), (whole, len), "{room}");
        }
    }
}
