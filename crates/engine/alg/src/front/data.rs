//! send, recv, read, write and their families.

use super::object::Object;
use super::program::{Buffers, Descriptor};
use super::socket::address_out;
use crate::{Received, SendMsg};
use sealane_abi::Errno;
use sealane_abi::socket::{MAX_MESSAGES, MMSGHDR_LEN, MSG_DONTWAIT, MSG_WAITFORONE, Msghdr, SOCKADDR_STORAGE_LEN};
use zerocopy::IntoBytes;

/// Sends to the object.
///
/// # Errors
/// [`crate::Socket::sendmsg`]'s, [`crate::CryptoUser::send`]'s.
#[inline]
pub fn give<D: Descriptor>(d: &D, mut msg: SendMsg<'_>) -> Result<usize, D::Failure> {
    msg.flags |= dontwait(d);
    let sent = match d.object() {
        Object::Alg(socket) => socket.sendmsg(d.task(), &msg),
        Object::Netlink(socket) => {
            if socket.port() == 0 {
                socket.set_port(d.own_port());
            }
            match msg.data {
                _ if msg.unreadable > 0 => Err(Errno::EFAULT),
                [all] => socket.send(all, d.caller()),
                pieces => socket.send(&pieces.concat(), d.caller()),
            }
        }
    };
    d.changed();
    Ok(sent?)
}

/// Receives from the object, where the program has named `unwritable` bytes behind `data` that cannot be written.
///
/// # Errors
/// [`crate::Socket::recvmsg_faulty`]'s, [`crate::CryptoUser::recv`]'s.
#[inline]
pub fn take<D: Descriptor>(
    d: &D,
    data: &mut [&mut [u8]],
    unwritable: usize,
    flags: u32,
) -> Result<Received, D::Failure> {
    let flags = flags | dontwait(d);
    let got = match d.object() {
        Object::Alg(socket) => socket.recvmsg_faulty(d.task(), data, unwritable, flags),
        Object::Netlink(_) if unwritable > 0 => Err(Errno::EFAULT),
        Object::Netlink(socket) => match data {
            [all] => socket.recv(d.task(), all, flags),
            pieces => {
                let mut whole = vec![0; pieces.iter().map(|p| p.len()).sum()];
                socket.recv(d.task(), &mut whole, flags).inspect(|got| {
                    let mut rest = &whole[..got.len.min(whole.len())];
                    for piece in pieces {
                        let n = piece.len().min(rest.len());
                        piece[..n].copy_from_slice(&rest[..n]);
                        rest = &rest[n..];
                    }
                })
            }
        },
    };
    d.changed();
    Ok(got?)
}

#[inline]
fn dontwait<D: Descriptor>(d: &D) -> u32 {
    if d.is_nonblocking() { MSG_DONTWAIT } else { 0 }
}

/// `send(2)` and `write(2)`.
///
/// # Errors
/// [`give`]'s, `EFAULT`.
#[inline]
pub fn send<D: Descriptor>(d: &D, at: u64, len: usize, flags: u32) -> Result<usize, D::Failure> {
    d.gather(Buffers::One { at, len }, |data, unreadable| {
        d.begin()?;
        give(d, SendMsg { data, unreadable, flags, ..SendMsg::default() })
    })
}

/// `sendto(2)`; the address changes nothing.
///
/// # Errors
/// [`send`]'s, `EINVAL` for a long address.
#[inline]
pub fn sendto<D: Descriptor>(
    d: &D,
    at: u64,
    len: usize,
    flags: u32,
    addr: u64,
    addr_len: u32,
) -> Result<usize, D::Failure> {
    if addr != 0 && addr_len as usize > SOCKADDR_STORAGE_LEN {
        return Err(Errno::EINVAL.into());
    }
    send(d, at, len, flags)
}

/// `writev(2)`: a vector of no bytes does not reach the socket, unlike a write of none.
///
/// # Errors
/// [`give`]'s, `EFAULT`, `EINVAL`.
pub fn writev<D: Descriptor>(d: &D, at: u64, count: u64) -> Result<usize, D::Failure> {
    d.gather(Buffers::Vector { at, count, too_many: Errno::EINVAL }, |data, unreadable| {
        if unreadable == 0 && data.iter().all(|piece| piece.is_empty()) {
            return Ok(0);
        }
        d.begin()?;
        give(d, SendMsg { data, unreadable, ..SendMsg::default() })
    })
}

/// `pwritev2(2)`.
///
/// # Errors
/// [`writev`]'s, `ESPIPE` for any position but the current one.
pub fn pwritev2<D: Descriptor>(d: &D, at: u64, count: u64, offset: i64) -> Result<usize, D::Failure> {
    positioned(offset)?;
    writev(d, at, count)
}

/// Refuses positions: -1 asks for the current one, which is all that sockets have.
fn positioned(offset: i64) -> Result<(), Errno> {
    if offset == -1 { Ok(()) } else { Err(Errno::ESPIPE) }
}

/// `sendmsg(2)`; the address changes nothing.
///
/// # Errors
/// [`give`]'s, `EFAULT`, `EINVAL`, `EMSGSIZE` for too many buffers, `ENOBUFS` for too long control messages.
pub fn sendmsg<D: Descriptor>(d: &D, at: u64, flags: u32) -> Result<usize, D::Failure> {
    let msg = header(d, at)?;
    d.gather(vector(&msg), |data, unreadable| {
        let control_len = usize::try_from(msg.msg_controllen).unwrap_or(usize::MAX);
        if control_len > D::MAX_INPUT.min(i32::MAX as usize) {
            return Err(Errno::ENOBUFS.into());
        }
        d.input(msg.msg_control, control_len, |control| {
            d.begin()?;
            give(d, SendMsg { data, unreadable, control, flags, spliced: false })
        })?
    })
}

fn header<D: Descriptor>(d: &D, at: u64) -> Result<Msghdr, D::Failure> {
    Ok(zerocopy::transmute!(d.read::<{ size_of::<Msghdr>() }>(at)?))
}

fn vector(msg: &Msghdr) -> Buffers {
    Buffers::Vector { at: msg.msg_iov, count: msg.msg_iovlen, too_many: Errno::EMSGSIZE }
}

/// `sendmmsg(2)`: the number of messages sent, or the error of the first.
///
/// # Errors
/// [`sendmsg`]'s.
pub fn sendmmsg<D: Descriptor>(d: &D, at: u64, count: u32, flags: u32) -> Result<usize, D::Failure> {
    several::<D>(count, |i| {
        let at = at.wrapping_add(i * MMSGHDR_LEN);
        let sent = sendmsg(d, at, flags)?;
        d.write(at.wrapping_add(size_of::<Msghdr>() as u64), &(sent as u32).to_ne_bytes())
    })
}

/// `recvmmsg(2)`: the number of messages received, or the error of the first.
///
/// # Errors
/// [`recvmsg`]'s.
pub fn recvmmsg<D: Descriptor>(d: &D, at: u64, count: u32, flags: u32) -> Result<usize, D::Failure> {
    several::<D>(count, |i| {
        let at = at.wrapping_add(i * MMSGHDR_LEN);
        let dontwait = if i > 0 && flags & MSG_WAITFORONE != 0 { MSG_DONTWAIT } else { 0 };
        let got = recvmsg(d, at, flags & !MSG_WAITFORONE | dontwait)?;
        d.write(at.wrapping_add(size_of::<Msghdr>() as u64), &(got as u32).to_ne_bytes())
    })
}

/// Serves up to `count` messages: the number that succeeded, or the error of the first.
fn several<D: Descriptor>(
    count: u32,
    mut each: impl FnMut(u64) -> Result<(), D::Failure>,
) -> Result<usize, D::Failure> {
    let count = count.min(MAX_MESSAGES);
    for i in 0..count {
        match each(i.into()) {
            Err(failure) if i == 0 || D::ends_call(&failure) => return Err(failure),
            Err(_) => return Ok(i as usize),
            Ok(()) => {}
        }
    }
    Ok(count as usize)
}

/// `recv(2)`.
///
/// # Errors
/// [`take`]'s, `EFAULT`.
#[inline]
pub fn recv<D: Descriptor>(d: &D, at: u64, len: usize, flags: u32) -> Result<usize, D::Failure> {
    receive(d, Buffers::One { at, len }, flags).map(|got| got.len)
}

#[inline]
fn receive<D: Descriptor>(d: &D, to: Buffers, flags: u32) -> Result<Received, D::Failure> {
    d.scatter(to, |data, unwritable| {
        d.begin()?;
        take(d, data, unwritable, flags)
    })
}

/// `recvfrom(2)`.
///
/// # Errors
/// [`recv`]'s, `EINVAL` and `EFAULT` for the address.
pub fn recvfrom<D: Descriptor>(
    d: &D,
    at: u64,
    len: usize,
    flags: u32,
    addr: u64,
    addr_len: u64,
) -> Result<usize, D::Failure> {
    let n = recv(d, at, len, flags)?;
    if addr != 0 {
        address_out(d, d.object().sender(), addr, addr_len)?;
    }
    Ok(n)
}

/// Receives into pieces; without room for a byte the socket is not reached.
///
/// # Errors
/// [`take`]'s.
#[inline]
pub fn recv_pieces<D: Descriptor>(d: &D, data: &mut [&mut [u8]], unwritable: usize) -> Result<Received, D::Failure> {
    if unwritable == 0 && data.iter().all(|piece| piece.is_empty()) {
        return Ok(Received::default());
    }
    d.begin()?;
    take(d, data, unwritable, 0)
}

/// `read(2)`: a read of no bytes does not reach the socket.
///
/// # Errors
/// [`take`]'s, `EFAULT`.
#[inline]
pub fn read<D: Descriptor>(d: &D, at: u64, len: usize) -> Result<usize, D::Failure> {
    d.scatter(Buffers::One { at, len }, |data, unwritable| recv_pieces(d, data, unwritable)).map(|got| got.len)
}

/// `readv(2)`: a vector of no bytes does not reach the socket.
///
/// # Errors
/// [`take`]'s, `EFAULT`, `EINVAL`.
pub fn readv<D: Descriptor>(d: &D, at: u64, count: u64) -> Result<usize, D::Failure> {
    let to = Buffers::Vector { at, count, too_many: Errno::EINVAL };
    d.scatter(to, |data, unwritable| recv_pieces(d, data, unwritable)).map(|got| got.len)
}

/// `preadv2(2)`.
///
/// # Errors
/// [`readv`]'s, `ESPIPE` for any position but the current one.
pub fn preadv2<D: Descriptor>(d: &D, at: u64, count: u64, offset: i64) -> Result<usize, D::Failure> {
    positioned(offset)?;
    readv(d, at, count)
}

/// `recvmsg(2)`.
///
/// # Errors
/// [`take`]'s, `EFAULT`, `EINVAL`, `EMSGSIZE` for too many buffers.
pub fn recvmsg<D: Descriptor>(d: &D, at: u64, flags: u32) -> Result<usize, D::Failure> {
    let mut msg = header(d, at)?;
    let got = receive(d, vector(&msg), flags)?;
    if msg.msg_name != 0 {
        let sender = d.object().sender();
        let sender = sender.as_ref().map_or(&[][..], |sender| sender.as_bytes());
        d.write(msg.msg_name, &sender[..sender.len().min(msg.msg_namelen as usize)])?;
        msg.msg_namelen = sender.len() as u32;
    }
    msg.msg_controllen = 0;
    msg.msg_flags = got.flags;
    d.write(at, msg.as_bytes())?;
    Ok(got.len)
}
