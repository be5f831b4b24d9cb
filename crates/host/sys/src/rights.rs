//! The right to administer a network namespace, by the kernel's rule and from /proc.

use super::netns::Netns;
use super::peer::{self, Peer, field};
use super::process;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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
    let euid: u32 = field(status, "Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let mut namespace = related(netns, NS_GET_USERNS)?;
    loop {
        if id(&namespace)? == theirs {
            return Some(peer::capabilities(status) & CAP_NET_ADMIN != 0);
        }
        // Fails at the last ancestor that is visible to us.
        let above = related(namespace.as_fd(), NS_GET_PARENT)?;
        if id(&above)? == theirs && owner(&namespace) == Some(euid) {
            return Some(true);
        }
        namespace = above;
    }
}

/// The number of this process's user in rules of nftables (`meta skuid`) of the calling thread's network namespace; `None`
/// where another user namespace than ours owns it, in which our user has another number, or none.
///
/// # Errors
/// The kernel's.
pub fn user_in_rules() -> io::Result<Option<u32>> {
    let netns = Netns::current()?;
    // An owner that is not below our own namespace is refused.
    let Some(owner) = related(netns.as_fd(), NS_GET_USERNS) else { return Ok(None) };
    let ours = File::open("/proc/self/ns/user")?;
    Ok((id(&owner) == id(&ours)).then(process::effective_user))
}

/// The ports of NETLINK_USERSOCK sockets in the network namespace of a thread.
///
/// # Errors
/// The file system's.
pub fn ports(of: Peer) -> io::Result<Vec<u32>> {
    let text = fs::read_to_string(format!("/proc/{}/net/netlink", of.0))?;
    Ok(text.lines().filter_map(port).collect())
}

/// The port in a line of /proc/net/netlink, if it is about NETLINK_USERSOCK.
fn port(line: &str) -> Option<u32> {
    let mut words = line.split_whitespace();
    let protocol: i32 = words.nth(1)?.parse().ok()?;
    let port = words.next()?.parse().ok()?;
    (protocol == sealane_abi::netlink::NETLINK_USERSOCK).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

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
