//! Network namespaces: identifying those of threads and sockets, and running code in them.

use super::transient;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// `SIOCGSKNS` of `linux/sockios.h`: the namespace of a socket.
const SIOCGSKNS: libc::Ioctl = 0x894c;
/// `NS_GET_NSTYPE` of `linux/nsfs.h`: the kind of a namespace.
const NS_GET_NSTYPE: libc::Ioctl = 0xb703;

/// A network namespace, kept alive by its descriptor.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
}

/// The identity of a namespace: device and inode of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetnsId {
    dev: u64,
    ino: u64,
}

impl NetnsId {
    /// The inode, as `readlink /proc/PID/ns/net` shows it.
    pub fn inode(self) -> u64 {
        self.ino
    }

    /// Its name in /run/netns, if it has one.
    pub fn name(self) -> Option<String> {
        let entries = std::fs::read_dir("/run/netns").ok()?;
        let same = |e: &std::fs::DirEntry| {
            std::fs::metadata(e.path()).is_ok_and(|m| NetnsId { dev: m.dev(), ino: m.ino() } == self)
        };
        entries.flatten().find(same).and_then(|e| e.file_name().into_string().ok())
    }
}

impl Netns {
    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn current() -> io::Result<Self> {
        Netns::open("/proc/thread-self/ns/net")
    }

    /// The namespace of a socket.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN` over that namespace.
    pub fn of_socket(socket: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: an ioctl without argument; the descriptor that it returns is new and ours.
        unsafe {
            let fd = libc::ioctl(socket.as_raw_fd(), SIOCGSKNS);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Netns { fd: OwnedFd::from_raw_fd(fd) }) }
        }
    }

    /// The namespace with a name of `ip netns` or with a path; without a name, that of the calling thread.
    ///
    /// # Errors
    /// The kernel's: `NotFound` when it does not exist.
    pub fn named(name: Option<&str>) -> io::Result<Self> {
        match name {
            None => Netns::current(),
            Some(path) if path.contains('/') => Netns::open(path),
            Some(name) => Netns::open(&format!("/run/netns/{name}")),
        }
    }

    /// Opens a namespace by its file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &str) -> io::Result<Self> {
        Ok(Netns { fd: File::open(path)?.into() })
    }

    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Netns { fd: self.fd.try_clone()? })
    }

    /// Whether it is a network namespace: files of other kinds can be opened, too.
    #[must_use]
    pub fn is_one(&self) -> bool {
        // SAFETY: an ioctl without argument that returns a number.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), NS_GET_NSTYPE) == libc::CLONE_NEWNET }
    }

    /// The identity of the namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn id(&self) -> io::Result<NetnsId> {
        let data = rustix::fs::fstat(&self.fd)?;
        Ok(NetnsId { dev: data.st_dev, ino: data.st_ino })
    }

    /// The kernel's cookie for the namespace, unique since boot.
    ///
    /// # Errors
    /// The kernel's: `ENOPROTOOPT` before Linux 5.14.
    pub fn cookie(&self) -> io::Result<u64> {
        self.run(|| cookie(super::usersock::open(libc::SOCK_RAW, 0)?.as_fd()))
    }

    /// Moves the calling thread into the namespace, for good. If it is there already, no rights are needed.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`, here and in the namespace.
    pub fn enter(&self) -> io::Result<()> {
        if Netns::current()?.id()? == self.id()? {
            return Ok(());
        }
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `f` in the namespace, on a thread of its own, and returns its result. Descriptors that `f` opens stay in
    /// the namespace wherever they are used.
    ///
    /// # Errors
    /// Those of [`Netns::enter`] and of `f`.
    ///
    /// # Panics
    /// When `f` does.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("netns".into()).spawn_scoped(scope, || {
                self.enter()?;
                f()
            });
            // Of all reasons only too little memory for the thread, or too many threads, are possible.
            let thread = transient::counted(thread.map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM)))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// [`Netns::cookie`] of the namespace that a socket is in.
///
/// # Errors
/// The kernel's.
pub fn cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_NETNS_COOKIE: i32 = 71;
    super::socket::option(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE)
}

impl From<OwnedFd> for Netns {
    /// The namespace of which this is a descriptor.
    fn from(fd: OwnedFd) -> Self {
        Netns { fd }
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn the_namespace_of_a_socket() {
        let here = Netns::current().and_then(|n| n.id()).expect("our own");
        let Some(other) = testing::namespace("sys::netns") else { return };
        let id = other.id().expect("an id");
        assert_ne!(id, here);
        let (socket, inside) = other
            .run(|| Ok((std::net::UdpSocket::bind("0.0.0.0:0")?, Netns::current()?.id()?)))
            .expect("a socket in there");
        assert_eq!(inside, id);
        assert_eq!(Netns::of_socket(socket.as_fd()).and_then(|n| n.id()).expect("by socket"), id);
        assert_eq!(Netns::current().and_then(|n| n.id()).expect("our own"), here, "this thread stayed");
    }
}
