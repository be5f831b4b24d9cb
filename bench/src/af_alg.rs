//! AF_ALG as any C program uses it: plain libc calls, whoever serves them.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const ALG_SET_KEY: libc::c_int = 1;
const ALG_SET_IV: libc::c_int = 2;
const ALG_SET_OP: libc::c_int = 3;
const SOL_ALG: libc::c_int = 279;
/// `ALG_OP_ENCRYPT`.
pub const ENCRYPT: u32 = 1;

fn check(n: isize) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::last_os_error())
}

/// A transform socket with name and key.
pub struct Tfm(OwnedFd);

impl Tfm {
    /// Binds `name` of type `kind` and sets `key` unless it is empty.
    ///
    /// # Errors
    /// The error of a call.
    ///
    /// # Panics
    /// When a name is longer than the ABI allows.
    pub fn new(kind: &str, name: &str, key: &[u8]) -> Result<Self> {
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0) } as isize)?;
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // SAFETY: all zeros is a valid sockaddr_alg.
        let mut sa: libc::sockaddr_alg = unsafe { std::mem::zeroed() };
        sa.salg_family = libc::AF_ALG as u16;
        sa.salg_type[..kind.len()].copy_from_slice(kind.as_bytes());
        sa.salg_name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: the address is live and has the length given.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const sa).cast(), size_of_val(&sa) as u32) } as isize)?;
        if !key.is_empty() {
            // SAFETY: the key is live and has the length given.
            check(unsafe {
                libc::setsockopt(fd.as_raw_fd(), SOL_ALG, ALG_SET_KEY, key.as_ptr().cast(), key.len() as u32)
            } as isize)?;
        }
        Ok(Tfm(fd))
    }

    /// Accepts an operation socket.
    ///
    /// # Errors
    /// The error of `accept`.
    pub fn accept(&self) -> Result<Op> {
        // SAFETY: NULL address and length are allowed.
        let fd =
            check(unsafe { libc::accept(self.0.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) } as isize)?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Op(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }
}

/// An operation socket.
pub struct Op(OwnedFd);

impl Op {
    /// Sends operation and IV without data, with MSG_MORE.
    ///
    /// # Errors
    /// The error of `sendmsg`.
    pub fn start(&self, op: u32, iv: &[u8]) -> Result<()> {
        let mut control = Vec::new();
        let mut put = |kind: i32, data: &[u8]| {
            let len = size_of::<libc::cmsghdr>() + data.len();
            control.extend_from_slice(&len.to_ne_bytes());
            control.extend_from_slice(&SOL_ALG.to_ne_bytes());
            control.extend_from_slice(&kind.to_ne_bytes());
            control.extend_from_slice(data);
            control.resize(control.len().next_multiple_of(8), 0);
        };
        put(ALG_SET_OP, &op.to_ne_bytes());
        let mut value = (iv.len() as u32).to_ne_bytes().to_vec();
        value.extend_from_slice(iv);
        put(ALG_SET_IV, &value);
        // SAFETY: all zeros is a valid msghdr.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = control.len();
        // SAFETY: the header and its control bytes are live.
        check(unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const msg, libc::MSG_MORE) })?;
        Ok(())
    }

    /// Sends data with `flags`.
    ///
    /// # Errors
    /// The error of `send`.
    pub fn send(&self, data: &[u8], flags: i32) -> Result<usize> {
        // SAFETY: the slice is live.
        check(unsafe { libc::send(self.0.as_raw_fd(), data.as_ptr().cast(), data.len(), flags) })
    }

    /// Receives into `out`.
    ///
    /// # Errors
    /// The error of `recv`.
    pub fn recv(&self, out: &mut [u8]) -> Result<usize> {
        // SAFETY: the slice is live.
        check(unsafe { libc::recv(self.0.as_raw_fd(), out.as_mut_ptr().cast(), out.len(), 0) })
    }

    /// Reads into `out`.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn read(&self, out: &mut [u8]) -> Result<usize> {
        // SAFETY: the slice is live.
        check(unsafe { libc::read(self.0.as_raw_fd(), out.as_mut_ptr().cast(), out.len()) })
    }
}

/// A pipe that passes pages to an operation, as libkcapi does.
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// Makes a pipe for at least `bytes`.
    ///
    /// # Errors
    /// The error of `pipe` or `fcntl`.
    pub fn new(bytes: usize) -> Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: the array holds two descriptors.
        check(unsafe { libc::pipe(fds.as_mut_ptr()) } as isize)?;
        // SAFETY: fresh descriptors that nobody else owns.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        // A pipe counts pages, and an unaligned buffer touches one more.
        let size = (bytes + 2 * 4096).next_power_of_two() as libc::c_int;
        // SAFETY: an integer argument.
        check(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, size) } as isize)?;
        Ok(Pipe { read, write })
    }

    /// Passes the pages of `data` to `op`: vmsplice into the pipe, splice out of it.
    ///
    /// # Errors
    /// The error of `vmsplice` or `splice`.
    pub fn give(&self, op: &Op, data: &[u8]) -> Result<()> {
        let mut given = 0;
        let mut taken = 0;
        while taken < data.len() {
            if given < data.len() {
                let rest = &data[given..];
                let iov = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
                // SAFETY: the vector is live; vmsplice only reads the pages.
                given += check(unsafe { libc::vmsplice(self.write.as_raw_fd(), &raw const iov, 1, 0) })?;
            }
            let null = std::ptr::null_mut();
            // SAFETY: NULL offsets are what pipes and sockets want.
            taken +=
                check(unsafe { libc::splice(self.read.as_raw_fd(), null, op.0.as_raw_fd(), null, given - taken, 0) })?;
        }
        Ok(())
    }
}
