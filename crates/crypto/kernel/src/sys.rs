//! The system calls of AF_ALG.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The longest IV of any algorithm, in bytes.
pub(crate) const MAX_IV_LEN: usize = 32;

/// The most pieces that one request carries.
pub(crate) const MAX_PIECES: usize = 16;

/// Whether the kernel offers AF_ALG to this process.
pub(crate) fn present() -> bool {
    socket().is_ok()
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(libc::AF_ALG, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) })
}

/// A bound socket: the kernel's transform.
pub(crate) struct Tfm(OwnedFd);

impl Tfm {
    /// Binds `name` of type `kind`.
    pub(crate) fn bind(kind: &str, name: &str) -> io::Result<Self> {
        let fd = socket()?;
        // SAFETY: zeros are a value of this struct of integers.
        let mut addr: libc::sockaddr_alg = unsafe { zeroed() };
        addr.salg_family = libc::AF_ALG as libc::sa_family_t;
        // The last byte of both fields stays NUL.
        if kind.len() >= addr.salg_type.len() || name.len() >= addr.salg_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        addr.salg_type[..kind.len()].copy_from_slice(kind.as_bytes());
        addr.salg_name[..name.len()].copy_from_slice(name.as_bytes());
        let len = size_of::<libc::sockaddr_alg>() as libc::socklen_t;
        // SAFETY: the address is a live sockaddr_alg of that length.
        match unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) } {
            0 => Ok(Tfm(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// ALG_SET_KEY.
    pub(crate) fn set_key(&self, key: &[u8]) -> io::Result<()> {
        self.set(libc::ALG_SET_KEY, key.as_ptr(), key.len())
    }

    /// ALG_SET_AEAD_AUTHSIZE, whose length is its value.
    pub(crate) fn set_authsize(&self, len: usize) -> io::Result<()> {
        self.set(libc::ALG_SET_AEAD_AUTHSIZE, std::ptr::null(), len)
    }

    fn set(&self, option: libc::c_int, value: *const u8, len: usize) -> io::Result<()> {
        let len = libc::socklen_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a key is readable for its length; for ALG_SET_AEAD_AUTHSIZE the kernel reads no value.
        match unsafe { libc::setsockopt(self.0.as_raw_fd(), libc::SOL_ALG, option, value.cast(), len) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A socket for requests.
    pub(crate) fn accept(&self) -> io::Result<Op> {
        // SAFETY: no address is asked for.
        let fd = unsafe {
            libc::accept4(self.0.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC)
        };
        owned(fd).map(Op)
    }
}

/// The parameters of a cipher request, besides its text.
pub(crate) struct Control<'a> {
    pub(crate) encrypt: bool,
    pub(crate) iv: &'a [u8],
    /// AEADs only.
    pub(crate) assoc_len: Option<usize>,
}

/// A socket that takes requests.
pub(crate) struct Op(OwnedFd);

/// Room for the three control messages, with the alignment of cmsghdr.
#[repr(align(8))]
struct ControlBuf([u8; 128]);

impl Op {
    /// Sends one request, whose text is the concatenation of at most [`MAX_PIECES`] pieces.
    pub(crate) fn send(&self, control: Option<&Control<'_>>, pieces: &[&[u8]], more: bool) -> io::Result<()> {
        let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_PIECES];
        let iov = iov.get_mut(..pieces.len()).ok_or(io::ErrorKind::InvalidInput)?;
        for (slot, piece) in iov.iter_mut().zip(pieces) {
            *slot = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
        }
        let mut buf = ControlBuf([0; 128]);
        // SAFETY: zeros are a value of msghdr.
        let mut msg: libc::msghdr = unsafe { zeroed() };
        msg.msg_iov = iov.as_mut_ptr();
        msg.msg_iovlen = iov.len() as _;
        if let Some(control) = control {
            msg.msg_controllen = fill_control(&mut buf.0, control)? as _;
            msg.msg_control = buf.0.as_mut_ptr().cast();
        }
        let flags = if more { libc::MSG_MORE } else { 0 };
        // SAFETY: the message points to live buffers that the kernel only reads.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &msg, flags) };
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        match usize::try_from(sent) {
            Err(_) => Err(io::Error::last_os_error()),
            Ok(n) if n == total => Ok(()),
            // Only part of the request was sent: the socket buffer is smaller than our texts.
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Receives a result that fills all of `pieces`.
    pub(crate) fn recv(&self, pieces: &mut [&mut [u8]]) -> io::Result<()> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 4];
        let iov = iov.get_mut(..pieces.len()).ok_or(io::ErrorKind::InvalidInput)?;
        for (slot, piece) in iov.iter_mut().zip(pieces) {
            *slot = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
        }
        // SAFETY: each piece is writable for its length.
        let got = unsafe { libc::readv(self.0.as_raw_fd(), iov.as_ptr(), iov.len() as libc::c_int) };
        match usize::try_from(got) {
            Err(_) => Err(io::Error::last_os_error()),
            Ok(n) if n == total => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Writes control messages; returns their length.
fn fill_control(buf: &mut [u8; 128], control: &Control<'_>) -> io::Result<usize> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let mut at = 0;
    let mut put = |kind: libc::c_int, parts: [&[u8]; 2]| {
        let len = HEADER + parts[0].len() + parts[1].len();
        // SAFETY: zeros are a value of cmsghdr.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_len = len as _;
        header.cmsg_level = libc::SOL_ALG;
        header.cmsg_type = kind;
        // SAFETY: any struct of integers can be read as bytes.
        let header = unsafe { *(&raw const header).cast::<[u8; HEADER]>() };
        for part in [&header[..], parts[0], parts[1]] {
            buf[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        at = at.next_multiple_of(size_of::<usize>());
    };
    let op = if control.encrypt { libc::ALG_OP_ENCRYPT } else { libc::ALG_OP_DECRYPT } as u32;
    put(libc::ALG_SET_OP, [&op.to_ne_bytes(), &[]]);
    if control.iv.len() > MAX_IV_LEN {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if !control.iv.is_empty() {
        put(libc::ALG_SET_IV, [&(control.iv.len() as u32).to_ne_bytes(), control.iv]);
    }
    if let Some(len) = control.assoc_len {
        put(libc::ALG_SET_AEAD_ASSOCLEN, [&(len as u32).to_ne_bytes(), &[]]);
    }
    Ok(at)
}
