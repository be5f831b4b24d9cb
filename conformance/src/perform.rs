//! Makes the calls of a list and writes one line for each.
//!
//! A line contains nothing that changes from run to run: no address, no descriptor number, no time, and only the number
//! of random bytes.

use crate::generate::CCM_IV;
use crate::plan::{Call, Cmsg, CmsgBody, Data, Fault, Misc, RecvBy, SLOTS, SendBy, Serial, Wild};
use crate::rng;
use crate::sys;
use std::fmt::Write as _;

/// The time that a call may block, in milliseconds.
const PATIENCE_MS: u32 = 80;

#[derive(Clone, Copy)]
struct Open {
    fd: i32,
    /// The open file behind it, because O_NONBLOCK belongs to the file and not to the descriptor.
    file: usize,
    rng: bool,
}

/// The descriptors of a running sequence.
pub struct Performer {
    slots: [Option<Open>; SLOTS],
    nonblock: Vec<bool>,
}

impl Default for Performer {
    fn default() -> Self {
        sys::catch_alarm();
        Performer { slots: [None; SLOTS], nonblock: Vec::new() }
    }
}

impl Drop for Performer {
    fn drop(&mut self) {
        for slot in 0..SLOTS {
            self.put(slot, None);
        }
    }
}

fn name_of(errno: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::ENODEV, "ENODEV"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::ESPIPE, "ESPIPE"),
        (libc::EPIPE, "EPIPE"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ELIBBAD, "ELIBBAD"),
        (libc::EBADMSG, "EBADMSG"),
        (libc::EOVERFLOW, "EOVERFLOW"),
        (libc::ENOTSOCK, "ENOTSOCK"),
        (libc::EMSGSIZE, "EMSGSIZE"),
        (libc::ENOPROTOOPT, "ENOPROTOOPT"),
        (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
        (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::EISCONN, "EISCONN"),
        (libc::ENOKEY, "ENOKEY"),
        (libc::EKEYREVOKED, "EKEYREVOKED"),
        (libc::EKEYREJECTED, "EKEYREJECTED"),
    ];
    match NAMES.iter().find(|&&(n, _)| n == errno) {
        Some((_, name)) => format!("-{name}"),
        None => format!("-errno{errno}"),
    }
}

fn shown(ret: sys::Ret) -> String {
    ret.map_or_else(name_of, |n| n.to_string())
}

/// Shows the first bytes, and a checksum of all.
fn digest(data: &[u8]) -> String {
    let mut out = String::new();
    for b in data.iter().take(16) {
        let _ = write!(out, "{b:02x}");
    }
    if data.len() > 16 {
        let _ = write!(out, "..{:016x}", rng::fnv(data));
    }
    out
}

fn fill(data: Data) -> Vec<u8> {
    let mut out = rng::bytes(data.seed & !CCM_IV, data.len);
    if data.seed & CCM_IV != 0
        && let Some(first) = out.first_mut()
    {
        // CCM: the width of the length field, 2..=8, minus one.
        *first = 1 + *first % 7;
    }
    out
}

/// Encodes control messages.
fn control_bytes(list: &[Cmsg], cut: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for Cmsg { body, skew } in list {
        let (level, ty, payload) = match body {
            CmsgBody::Op(op) => (279, 3, op.to_ne_bytes().to_vec()),
            CmsgBody::Iv(claim, data) => (279, 2, [&claim.to_ne_bytes()[..], &fill(*data)].concat()),
            CmsgBody::Assoc(n) => (279, 4, n.to_ne_bytes().to_vec()),
            CmsgBody::Raw(level, ty, data) => (*level, *ty, fill(*data)),
        };
        let len = (16 + payload.len()).saturating_add_signed(*skew);
        out.extend_from_slice(&len.to_ne_bytes());
        out.extend_from_slice(&i32::to_ne_bytes(level));
        out.extend_from_slice(&i32::to_ne_bytes(ty));
        out.extend_from_slice(&payload);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out.truncate(out.len().saturating_sub(cut));
    out
}

fn address(family: u16, ty: &str, name: &str, feat: u32, mask: u32) -> Vec<u8> {
    let mut out = vec![0u8; 88];
    out[..2].copy_from_slice(&family.to_ne_bytes());
    out[2..2 + ty.len().min(14)].copy_from_slice(&ty.as_bytes()[..ty.len().min(14)]);
    out[16..20].copy_from_slice(&feat.to_ne_bytes());
    out[20..24].copy_from_slice(&mask.to_ne_bytes());
    let n = name.len().min(63);
    out[24..24 + n].copy_from_slice(&name.as_bytes()[..n]);
    out
}

impl Performer {
    fn fd(&self, slot: usize) -> i32 {
        self.slots[slot].map_or(-1, |o| o.fd)
    }

    fn put(&mut self, slot: usize, open: Option<Open>) {
        if let Some(old) = std::mem::replace(&mut self.slots[slot], open) {
            let _ = sys::close(old.fd);
        }
    }

    fn new_file(&mut self, nonblock: bool) -> usize {
        self.nonblock.push(nonblock);
        self.nonblock.len() - 1
    }

    /// Runs `f`, with an alarm when it may block.
    fn guarded<T>(&self, slot: usize, flags: i32, f: impl FnOnce(i32) -> T) -> T {
        let nonblock = self.slots[slot].is_none_or(|o| self.nonblock[o.file]);
        let guard = !nonblock && flags & libc::MSG_DONTWAIT == 0;
        if guard {
            sys::set_alarm(PATIENCE_MS);
        }
        let done = f(self.fd(slot));
        if guard {
            sys::set_alarm(0);
        }
        done
    }

    /// Makes a call and returns its result as text.
    pub fn perform(&mut self, call: &Call) -> String {
        match call {
            Call::Socket { to, ty, proto } => {
                let r = sys::socket(*ty, *proto);
                if let Ok(fd) = r {
                    let file = self.new_file(false);
                    self.put(*to, Some(Open { fd: fd as i32, file, rng: false }));
                }
                shown(r.map(|_| 0))
            }
            Call::Bind { slot, family, ty, name, feat, mask, cut, pad } => {
                let mut addr = address(*family, ty, name, *feat, *mask);
                addr.truncate(addr.len() - cut);
                addr.resize(addr.len() + pad, 0);
                let r = sys::bind(self.fd(*slot), &addr);
                if r.is_ok()
                    && let Some(open) = &mut self.slots[*slot]
                {
                    open.rng = ty == "rng";
                }
                shown(r)
            }
            Call::Setsockopt { slot, level, name, val } => {
                let val = fill(*val);
                shown(sys::setsockopt(self.fd(*slot), *level, *name, Some(&val), val.len()))
            }
            Call::SetsockoptNull { slot, level, name, len } => {
                shown(sys::setsockopt(self.fd(*slot), *level, *name, None, *len))
            }
            Call::SetSerial { slot, key, payload, optlen } => self.set_serial(*slot, *key, *payload, *optlen),
            Call::Getsockopt { slot, level, name, len } => {
                let mut out = vec![0xa5; *len];
                let r = sys::getsockopt(self.fd(*slot), *level, *name, &mut out);
                let bytes = if r.is_ok() { digest(&out) } else { String::new() };
                format!("{} {bytes}", shown(r)).trim_end().to_owned()
            }
            Call::Accept { slot, to, flags } => {
                let r = self.guarded(*slot, 0, |fd| sys::accept4(fd, *flags));
                if let Ok(fd) = r {
                    let rng = self.slots[*slot].is_some_and(|o| o.rng);
                    let file = self.new_file(flags & libc::SOCK_NONBLOCK != 0);
                    self.put(*to, Some(Open { fd: fd as i32, file, rng }));
                }
                shown(r.map(|_| 0))
            }
            Call::Dup { slot, to } => {
                let r = sys::dup(self.fd(*slot));
                if let (Ok(fd), Some(old)) = (r, self.slots[*slot]) {
                    self.put(*to, Some(Open { fd: fd as i32, ..old }));
                }
                shown(r.map(|_| 0))
            }
            Call::Close { slot } => shown(sys::close(self.slots[*slot].take().map_or(-1, |o| o.fd))),
            Call::Nonblock { slot, on } => {
                let r = sys::set_nonblock(self.fd(*slot), *on);
                if let (Ok(_), Some(open)) = (r, self.slots[*slot]) {
                    self.nonblock[open.file] = *on;
                }
                shown(r)
            }
            Call::Send { slot, by, seed, pieces, flags, control, cut } => {
                let data = rng::bytes(*seed, pieces.iter().sum());
                let control = control.as_deref().map(|list| control_bytes(list, *cut)).unwrap_or_default();
                self.guarded(*slot, *flags, |fd| send(fd, *by, &data, pieces, &control, *flags))
            }
            Call::Recv { slot, by, pieces, flags } => {
                let secret = self.slots[*slot].is_some_and(|o| o.rng);
                // A splice waits for the socket whatever its flags are.
                let waits = if matches!(by, RecvBy::Splice) { 0 } else { *flags };
                self.guarded(*slot, waits, |fd| receive(fd, *by, pieces, *flags, secret))
            }
            Call::Poll { slot } => sys::poll(self.fd(*slot)).map_or_else(name_of, |n| format!("{n:#x}")),
            Call::Misc { slot, what } => self.misc(*slot, *what),
            Call::Fault { slot, what, at } => self.fault(*slot, *what, *at),
            Call::Iocb { slot, opcode, len, offset, resfd } => {
                let mut buf = vec![0xa5; *len];
                self.guarded(*slot, 0, |fd| {
                    let (event, _) = submitted(sys::aio(fd, sys::Iocb::Flat(*opcode, &mut buf), *offset, *resfd));
                    event
                })
            }
            Call::Forked(inner) => sys::in_child(|| self.perform(inner)).unwrap_or_else(|| "the child died".to_owned()),
        }
    }

    fn set_serial(&self, slot: usize, key: Serial, payload: Data, optlen: usize) -> String {
        let payload = fill(payload);
        let serial = match key {
            Serial::User | Serial::Revoked => sys::add_key(c"user", &payload),
            Serial::Logon => sys::add_key(c"logon", &payload),
            Serial::Keyring => sys::add_key(c"keyring", &[]),
            Serial::Unknown => Ok(0x7123_4567),
        };
        let serial = match serial {
            Ok(n) => n,
            Err(e) => return format!("add_key {}", name_of(e)),
        };
        if key == Serial::Revoked {
            let _ = sys::revoke_key(serial);
        }
        let val = [&(serial as i32).to_ne_bytes()[..], &[0; 8]].concat();
        shown(sys::setsockopt(self.fd(slot), 279, 7, Some(&val), optlen))
    }

    fn fault(&mut self, slot: usize, what: Fault, at: Wild) -> String {
        let r = self.guarded(slot, 0, |fd| sys::fault(fd, what, at.address()));
        match (what, r) {
            // An operation that was accepted after all is closed, because the model does not know of it.
            (Fault::AcceptLen, Ok(fd)) => {
                let _ = sys::close(fd as i32);
                "accepted".to_owned()
            }
            _ => shown(r),
        }
    }

    fn misc(&self, slot: usize, what: Misc) -> String {
        let fd = self.fd(slot);
        match what {
            Misc::Getsockname | Misc::Getpeername => {
                let mut out = [0xa5; 128];
                match sys::name(fd, what == Misc::Getpeername, &mut out) {
                    Ok(n) => format!("{n} {}", digest(&out[..(n as usize).min(128)])),
                    Err(e) => name_of(e),
                }
            }
            Misc::Connect => shown(sys::connect(fd, &address(38, "hash", "sha256", 0, 0))),
            Misc::Fstat => sys::file_type(fd).map_or_else(name_of, |n| format!("{n:#o}")),
            Misc::Getfl => sys::plain(fd, what).map_or_else(name_of, |n| format!("{n:#x}")),
            _ => shown(sys::plain(fd, what)),
        }
    }
}

/// Shows the result of `io_submit`, and the length in the event of an operation that succeeded.
fn submitted(done: Result<(u64, sys::Ret), i32>) -> (String, usize) {
    match done {
        Ok((data, result)) => (format!("event {data} {}", shown(result)), result.map_or(0, |n| n as usize)),
        Err(e) => (name_of(e), 0),
    }
}

fn send(fd: i32, by: SendBy, data: &[u8], pieces: &[usize], control: &[u8], flags: i32) -> String {
    let splice_flags = if flags & libc::MSG_MORE != 0 { libc::SPLICE_F_MORE } else { 0 };
    match by {
        SendBy::Send => shown(sys::send(fd, data, flags)),
        SendBy::Sendmsg => shown(sys::sendmsg(fd, data, pieces, control, flags)),
        SendBy::Write => shown(sys::write(fd, data)),
        SendBy::Writev => shown(sys::writev(fd, data, pieces)),
        SendBy::Splice | SendBy::Vmsplice => {
            let Ok((r, w)) = sys::pipe() else { return "no pipe".to_owned() };
            let n = if by == SendBy::Splice {
                sys::write(w, data)
            } else {
                sys::vmsplice(w, data, libc::SPLICE_F_NONBLOCK)
            };
            let _ = sys::close(w);
            let done = match n {
                Ok(n) => format!("{n} -> {}", shown(sys::splice(r, fd, n as usize, splice_flags))),
                Err(e) => format!("pipe {}", name_of(e)),
            };
            let _ = sys::close(r);
            done
        }
        SendBy::Sendfile => match sys::memory_file(data) {
            Ok(file) => {
                let done = shown(sys::sendfile(fd, file, data.len()));
                let _ = sys::close(file);
                done
            }
            Err(e) => format!("memfd {}", name_of(e)),
        },
        SendBy::Aio => submitted(sys::aio(fd, sys::Iocb::Flat(1, &mut data.to_vec()), 0, None)).0,
        SendBy::AioVec => submitted(sys::aio(fd, sys::Iocb::Pieces(8, &mut data.to_vec(), pieces), 0, None)).0,
    }
}

fn receive(fd: i32, by: RecvBy, pieces: &[usize], flags: i32, secret: bool) -> String {
    let mut out = vec![0xa5; pieces.iter().sum()];
    let show = |out: &[u8], r: sys::Ret| match r {
        // MSG_TRUNC asks for the real length, which may exceed the buffer.
        Ok(n) if !secret => format!("{n} {}", digest(&out[..(n as usize).min(out.len())])).trim_end().to_owned(),
        r => shown(r),
    };
    match by {
        RecvBy::Recv => {
            let r = sys::recv(fd, &mut out, flags);
            show(&out, r)
        }
        RecvBy::Read => {
            let r = sys::read(fd, &mut out);
            show(&out, r)
        }
        RecvBy::Readv => {
            let r = sys::readv(fd, &mut out, pieces);
            show(&out, r)
        }
        RecvBy::Recvmsg => match sys::recvmsg(fd, &mut out, pieces, flags) {
            Ok((n, flags, control_len, name_len)) => {
                let rest = if (control_len, name_len) == (0, 0) {
                    String::new()
                } else {
                    format!(" control={control_len} name={name_len}")
                };
                format!("{} flags={}{rest}", show(&out, Ok(n)), crate::plan::flag_names(flags))
            }
            Err(e) => name_of(e),
        },
        RecvBy::Aio | RecvBy::AioVec => {
            let operation =
                if by == RecvBy::Aio { sys::Iocb::Flat(0, &mut out) } else { sys::Iocb::Pieces(7, &mut out, pieces) };
            let (event, n) = submitted(sys::aio(fd, operation, 0, None));
            if secret { event } else { format!("{event} {}", digest(&out[..n])).trim_end().to_owned() }
        }
        RecvBy::Splice => {
            let Ok((r, w)) = sys::pipe() else { return "no pipe".to_owned() };
            let n = sys::splice(fd, w, out.len(), libc::SPLICE_F_NONBLOCK);
            let _ = sys::close(w);
            let got = if n.is_ok() { sys::read(r, &mut out) } else { n };
            let _ = sys::close(r);
            show(&out, got)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_have_the_kernels_layout() {
        let op = Cmsg { body: CmsgBody::Op(1), skew: 0 };
        let iv = Cmsg { body: CmsgBody::Iv(3, Data { seed: 1, len: 3 }), skew: -1 };
        let bytes = control_bytes(&[op, iv], 0);
        assert_eq!(bytes.len(), 24 + 24);
        assert_eq!(bytes[..8], 20usize.to_ne_bytes());
        assert_eq!(bytes[8..12], 279i32.to_ne_bytes());
        assert_eq!(bytes[24..32], 22usize.to_ne_bytes());
        assert_eq!(control_bytes(&[], 5), []);
    }

    #[test]
    fn addresses_have_the_kernels_layout() {
        let addr = address(38, "hash", "sha256", 0, 0x1000);
        assert_eq!(addr.len(), 88);
        assert_eq!(&addr[2..7], b"hash\0");
        assert_eq!(&addr[24..31], b"sha256\0");
    }
}
