//! Namespaces and devices for tests. They need root; without it, tests are reported as skipped.

use super::link;
use super::netlink::{IFA_ADDRESS, IFA_LOCAL, Messages, Socket, errno, family};
use super::netns::Netns;
use sealane_abi::netlink as nl;
use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time to wait for work of the kernel's own threads.
const ROUTE_WAIT: Duration = Duration::from_millis(500);

/// Reports that `test` is skipped, bypassing the output capture of `cargo test`.
pub fn skip(test: &str, reason: &str) {
    let _ = io::stderr().write_all(format!("\nSKIPPED {test}: {reason}\n").as_bytes());
}

/// A new network namespace with `lo` up. Without the right to create one, reports the test as skipped and returns
/// `None`.
///
/// # Panics
/// When a thread cannot be started.
pub fn namespace(test: &str) -> Option<Netns> {
    let made = std::thread::spawn(|| {
        // SAFETY: affects only this thread, which ends soon.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
            return Err(io::Error::last_os_error());
        }
        link::set_up("lo", true)?;
        Netns::current()
    });
    match made.join().expect("the thread does not panic") {
        Ok(namespace) => Some(namespace),
        Err(error) => {
            skip(test, &format!("no network namespace can be made: {error}"));
            None
        }
    }
}

/// A file at which a network namespace is mounted, as those of `ip netns` are, until this is dropped.
pub struct Mounted(CString);

impl Mounted {
    /// Mounts one.
    ///
    /// # Panics
    /// When it cannot be mounted.
    #[must_use]
    pub fn new(netns: &Netns, file: &Path) -> Self {
        let file = CString::new(file.as_os_str().as_bytes()).expect("no zeros");
        let from = CString::new(format!("/proc/self/fd/{}", netns.as_fd().as_raw_fd())).expect("no zeros");
        // SAFETY: both are strings, and a bind mount has neither type nor data.
        let done =
            unsafe { libc::mount(from.as_ptr(), file.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null()) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        Mounted(file)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: a string.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Runs `f` on a thread that has no capabilities.
///
/// # Panics
/// When they cannot be given up, or `f` panics.
pub fn without_capabilities<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let drop_all = || {
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
            .expect("less rights");
        f()
    };
    std::thread::scope(|scope| scope.spawn(drop_all).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Two namespaces joined by a veth pair; `None` as for [`namespace`]. `a` has 10.77.0.1 and fd77::1, `b` has 10.77.0.2
/// and fd77::2.
///
/// # Panics
/// When the kernel refuses the pair or its addresses.
pub fn pair(test: &str) -> Option<(Netns, Netns)> {
    let (a, b) = (namespace(test)?, namespace(test)?);
    a.run(|| veth("a", "b", &b)).expect("a veth pair");
    for (namespace, name, last) in [(&a, "a", 1), (&b, "b", 2)] {
        namespace
            .run(|| {
                address(name, [10, 77, 0, last].into(), 24)?;
                address(name, [0xfd77, 0, 0, 0, 0, 0, 0, u16::from(last)].into(), 64)?;
                link::set_up(name, true)
            })
            .expect("addresses");
    }
    Some((a, b))
}

const CREATE: u16 = nl::NLM_F_ACK | libc::NLM_F_CREATE as u16 | libc::NLM_F_EXCL as u16;

/// Creates a veth pair, one end here, the other in `there`.
fn veth(here: &str, name: &str, there: &Netns) -> io::Result<()> {
    const VETH_INFO_PEER: u16 = 1;
    let mut messages = Messages::new();
    messages.push(libc::RTM_NEWLINK, CREATE, &link::ifinfomsg(0), |a| {
        a.str(libc::IFLA_IFNAME, here);
        a.nest(libc::IFLA_LINKINFO, |a| {
            a.str(libc::IFLA_INFO_KIND, "veth");
            a.nest(libc::IFLA_INFO_DATA, |a| {
                a.nest(VETH_INFO_PEER, |a| {
                    a.raw(&link::ifinfomsg(0));
                    a.str(libc::IFLA_IFNAME, name);
                    a.u32(libc::IFLA_NET_NS_FD, there.as_fd().as_raw_fd() as u32);
                });
            });
        });
    });
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

/// Gives a device an address, without duplicate address detection. Packets to it are received once this returns.
///
/// # Errors
/// The kernel's.
pub fn address(name: &str, address: IpAddr, prefix_len: u8) -> io::Result<()> {
    const IFA_F_NODAD: u8 = 2;
    const RTF_LOCAL: u32 = 0x8000_0000;
    let index = link::index(name)?;
    let mut fixed = vec![family(address), prefix_len, IFA_F_NODAD, 0];
    fixed.extend_from_slice(&index.to_ne_bytes());
    let mut messages = Messages::new();
    messages.push(libc::RTM_NEWADDR, CREATE, &fixed, |a| {
        a.ip(IFA_LOCAL, address);
        a.ip(IFA_ADDRESS, address);
    });
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)?;
    // For IPv6 the kernel creates the local route later, in a thread of its own.
    let until = Instant::now() + ROUTE_WAIT;
    let IpAddr::V6(v6) = address else { return Ok(()) };
    let named: String = v6.octets().iter().map(|b| format!("{b:02x}")).collect();
    let is_local = |line: &str| {
        let flags = line.split_whitespace().nth(8).and_then(|f| u32::from_str_radix(f, 16).ok());
        line.starts_with(&named) && flags.is_some_and(|flags| flags & RTF_LOCAL != 0)
    };
    while Instant::now() < until {
        if fs::read_to_string("/proc/thread-self/net/ipv6_route")?.lines().any(is_local) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A TCP segment from 10.77.0.1 to 10.77.0.2, or from fd77::1 to fd77::2, with these options and a wrong checksum.
pub fn segment(v6: bool, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let tcp_len = 20 + options.len() + payload.len();
    let mut packet = if v6 {
        let mut ip = vec![0x60, 0, 0, 0, 0, tcp_len as u8, 6, 64];
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        ip
    } else {
        vec![0x45, 0, 0, 20 + tcp_len as u8, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]
    };
    packet.extend_from_slice(&[0x1b, 0x58, 0x1b, 0x58, 0, 0, 0, 1, 0, 0, 0, 2]);
    packet.extend_from_slice(&[((20 + options.len()) * 4) as u8, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend_from_slice(options);
    packet.extend_from_slice(payload);
    packet
}

/// A raw socket that receives the TCP segments of one device.
///
/// # Errors
/// The kernel's.
pub fn sniffer(v6: bool, device: &str) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let fd = crate::socket::open(family, libc::SOCK_RAW, libc::IPPROTO_TCP)?;
    crate::socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device)?;
    Ok(fd)
}

/// Whether `error` means that the kernel lacks a feature; if so, reports the test as skipped.
pub fn missing(test: &str, error: &io::Error) -> bool {
    let lacks = matches!(
        errno(error),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::ENOSYS)
    );
    if lacks {
        skip(test, &format!("this kernel lacks something for it: {error}"));
    }
    lacks
}
