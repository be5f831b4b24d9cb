//! The right to administer a network namespace, by the kernel's rule and from /proc.

use super::peer::{self, Peer, field};
use super::process::Watch;
use super::usersock::Credentials;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// `NS_GET_USERNS`, `NS_GET_PARENT` and `NS_GET_OWNER_UID` of `linux/nsfs.h`.
const NS_GET_USERNS: libc::Ioctl = 0xb701;
const NS_GET_PARENT: libc::Ioctl = 0xb702;
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

const CAP_NET_ADMIN: u64 = 1 << 12;

/// Device and inode of a namespace.
type Id = (u64, u64);

fn id(file: &File) -> Option<Id> {
    file.metadata().ok().map(|m| (m.dev(), m.ino()))
}

fn related(fd: BorrowedFd<'_>, request: libc::Ioctl) -> Option<File> {
    // SAFETY: an ioctl without argument; the descriptor that it returns is new and ours.
    unsafe {
        let fd = libc::ioctl(fd.as_raw_fd(), request);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd).into())
    }
}

fn owner(namespace: &File) -> Option<u32> {
    let mut uid = u32::MAX;
    // SAFETY: room for a user id.
    let r = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut uid) };
    (r >= 0).then_some(uid)
}

/// Whether a thread has CAP_NET_ADMIN over the network namespace `netns` (`ns_capable`): in the user namespace that
/// owns it or in an ancestor, or as the user who created one of these from the thread's own user namespace.
pub fn net_admin(peer: Peer, netns: BorrowedFd<'_>) -> bool {
    peer.status().is_some_and(|status| net_admin_by(peer, &status, netns).unwrap_or(false))
}

fn net_admin_by(peer: Peer, status: &str, netns: BorrowedFd<'_>) -> Option<bool> {
    let theirs = fs::metadata(format!("/proc/{}/ns/user", peer.0)).ok().map(|m| (m.dev(), m.ino()))?;
    let euid: u32 = users(status)?.1;
    let mut namespace = related(netns, NS_GET_USERNS)?;
    loop {
        if id(&namespace)? == theirs {
            return Some(peer::capabilities(status) & CAP_NET_ADMIN != 0);
        }
        // Fails at the last ancestor that is visible to us.
        let above = related(std::os::fd::AsFd::as_fd(&namespace), NS_GET_PARENT)?;
        if id(&above)? == theirs && owner(&namespace) == Some(euid) {
            return Some(true);
        }
        namespace = above;
    }
}

/// The real and effective user in a /proc status.
fn users(status: &str) -> Option<(u32, u32)> {
    let mut ids = field(status, "Uid:")?.split_whitespace().map(str::parse);
    Some((ids.next()?.ok()?, ids.next()?.ok()?))
}

/// The credentials that the kernel would attach to messages of a thread's process.
pub fn credentials(peer: Peer) -> Option<Credentials> {
    let status = peer.status()?;
    Some(Credentials { pid: field(&status, "Tgid:")?.trim().parse().ok()?, uid: users(&status)?.0 })
}

/// A process that sends to us, safe against reuse of its id.
#[derive(Debug)]
pub struct Sender {
    process: Watch,
    pid: u32,
    /// The user who created its socket.
    maker: u32,
}

impl Sender {
    /// Finds the process `pid`, which must have the socket of `inode` open. `None`: it has ended, and another may have
    /// its id.
    pub fn find(pid: u32, inode: u64) -> Option<Sender> {
        let process = Watch::new(pid)?;
        let name = format!("socket:[{inode}]");
        let link = fs::read_dir(format!("/proc/{pid}/fd"))
            .ok()?
            .flatten()
            .find(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str().as_encoded_bytes() == name.as_bytes()))?;
        let maker = fs::metadata(link.path()).ok()?.uid();
        let sender = Sender { process, pid, maker };
        sender.lives().then_some(sender)
    }

    /// Whether the process has not ended.
    pub fn lives(&self) -> bool {
        self.process.lives()
    }

    /// Whether a message that it sends now, with these credentials, may change `netns`.
    ///
    /// The kernel also requires the right of the socket's creator, so that nobody can trick a more privileged program
    /// into writing to a socket that it was given. We know only the creator's user.
    pub fn may_administer(&self, credentials: Credentials, netns: BorrowedFd<'_>) -> bool {
        let peer = Peer(self.pid);
        let Some(status) = peer.status() else { return false };
        let Some((real, effective)) = users(&status) else { return false };
        let allowed = credentials.pid == self.pid
            && credentials.uid == real
            && (self.maker == effective || self.maker == 0)
            && net_admin_by(peer, &status, netns).unwrap_or(false);
        allowed && self.lives()
    }
}

/// The inodes of NETLINK_USERSOCK sockets by their ports, in the calling thread's network namespace or, with `of`, in
/// that of a thread.
///
/// # Errors
/// The file system's.
pub fn ports(of: Option<Peer>) -> io::Result<Vec<(u32, u64)>> {
    let text = match of {
        Some(Peer(tid)) => fs::read_to_string(format!("/proc/{tid}/net/netlink")),
        None => fs::read_to_string("/proc/thread-self/net/netlink"),
    }?;
    Ok(text.lines().filter_map(row).collect())
}

/// Port and inode in a line of /proc/net/netlink, if it is about NETLINK_USERSOCK.
fn row(line: &str) -> Option<(u32, u64)> {
    let mut words = line.split_whitespace();
    let protocol: i32 = words.nth(1)?.parse().ok()?;
    let port = words.next()?.parse().ok()?;
    let inode = words.last()?.parse().ok()?;
    (protocol == sealane_abi::netlink::NETLINK_USERSOCK).then_some((port, inode))
}

#[cfg(test)]
mod tests {
    use super::super::{testing, usersock};
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_sender_is_its_process_and_its_socket() {
        let socket = usersock::open(libc::SOCK_RAW, 0).expect("a socket");
        usersock::bind(socket.as_fd(), 0, 0).expect("a port");
        let port = usersock::port(socket.as_fd()).expect("a name");
        let rows = ports(None).expect("a list");
        let inode = rows.iter().find(|(p, _)| *p == port).expect("our port").1;
        let sender = Sender::find(std::process::id(), inode).expect("ourselves");
        assert!(sender.lives());
        assert!(Sender::find(std::process::id(), inode + 1_000_000_000).is_none(), "a socket that we do not have");
        assert!(Sender::find(1, inode).is_none(), "a process that does not have it");
        let Some(netns) = testing::namespace("sys::rights") else { return };
        let uid = super::super::process::effective_user();
        let own = Credentials { pid: std::process::id(), uid };
        assert!(sender.may_administer(own, netns.as_fd()));
        assert!(!sender.may_administer(Credentials { uid: uid + 1, ..own }, netns.as_fd()), "another's credentials");
        assert!(!sender.may_administer(Credentials { pid: 1, ..own }, netns.as_fd()), "another's process");
    }

    #[test]
    fn only_who_has_the_capability_administers() {
        let Some(netns) = testing::namespace("sys::rights") else { return };
        assert!(net_admin(Peer(std::process::id()), netns.as_fd()));
        let mut nobody = std::process::Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "--bounding-set", "-all", "sleep", "60"])
            .spawn()
            .expect("setpriv");
        // The process has its final identity only after exec.
        let comm = format!("/proc/{}/comm", nobody.id());
        while fs::read_to_string(&comm).is_ok_and(|c| c.trim() != "sleep") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let may = net_admin(Peer(nobody.id()), netns.as_fd());
        nobody.kill().expect("it runs");
        nobody.wait().expect("a child");
        assert!(!may);
    }
}
