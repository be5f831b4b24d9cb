//! A TUN device: it takes packets of the stack that need protection, and returns those that were protected.
//!
//! With vnet headers (`IFF_VNET_HDR`), superframes cross it unsplit in both directions.

use super::ring::LINK_HEADER_LEN;
use super::tap::{self, Headers, VNET_HEADER_LEN};
use sealane_abi::netlink as nl;
use sealane_abi::sealane::{INTERFACE_ALIAS, Interface};
use sealane_sys::netlink::{IFA_LOCAL, Messages, Socket, errno};
use sealane_sys::netns::Netns;
use sealane_sys::{link, netconf, transient};
use sealane_wire::gso::Offload;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Length of the longest frame of such a device, or of one of [`super::outgoing`]: a packet of 64 KB and its headers.
pub const FRAME_LEN: usize = VNET_HEADER_LEN + LINK_HEADER_LEN + 65_536;

/// The device's MTU, the largest there is: the data path tells senders the MTU of each path.
const MTU: u32 = 65_535;

/// Superframes of UDP (Linux 6.2).
const USO: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// The dummy address of IPv4 (RFC 7600 section 4.8).
const DUMMY: [u8; 4] = [192, 0, 0, 8];

/// The alias of the stack's device, by which that of an earlier daemon is recognized.
const STACK: &str = "sealane: packets that policies cover";

/// The MTU of an xfrm interface, as in the kernel (`xfrmi_dev_setup`).
const KEPT_MTU: u32 = 1500;

/// `TUNGETDEVNETNS` of `linux/if_tun.h` (Linux 5.2): a descriptor of the namespace that the device is in.
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;

/// The device. It is removed with this value.
#[derive(Debug)]
pub struct Tun {
    file: File,
    index: u32,
}

impl Tun {
    /// Creates a device in the calling thread's namespace and sets it up.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN`, `EBUSY` when a device of this
    /// name exists.
    pub fn open(name: &str) -> io::Result<Self> {
        let file = queue(name, libc::IFF_TUN)?;
        let index = prepare(name, MTU)?;
        Ok(Tun { file, index })
    }

    /// Like [`Tun::open`], but the device remains if the daemon dies, and then drops packets routed to it. A later call
    /// adopts it unchanged. After [`Self::let_go`] it is removed with this value.
    ///
    /// # Errors
    /// As [`Tun::open`]; `EEXIST` when another interface has this name.
    pub fn open_kept(name: &str) -> io::Result<Self> {
        Self::open_interface(name, INTERFACE_ALIAS, |alias| alias == INTERFACE_ALIAS, || link::set_up(name, true))
    }

    /// Like [`Tun::open_kept`], for an interface that a program makes: it is down at first. The device that this has made
    /// before becomes `interface`.
    ///
    /// # Errors
    /// As [`Tun::open_kept`].
    pub fn open_made(name: &str, interface: Interface) -> io::Result<Self> {
        let alias = interface.alias();
        let tun = Self::open_interface(name, &alias, |alias| Interface::of_alias(alias).is_some(), || Ok(()))?;
        link::set_alias(tun.index, &alias)?;
        Ok(tun)
    }

    /// Opens an interface, or the one of an earlier daemon whose alias is one of ours.
    fn open_interface(
        name: &str,
        alias: &str,
        is_ours: impl FnOnce(&str) -> bool,
        finish: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        let there = link::index(name).is_ok();
        if there && !link::alias(name)?.as_deref().is_some_and(is_ours) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let file = queue(name, libc::IFF_TUN)?;
        let tun = Tun { file, index: link::index(name)? };
        if !there {
            configure(name, KEPT_MTU)?;
            link::set_alias(tun.index, alias)?;
            finish()?;
            tun.persist(true)?;
        }
        wait_for_carrier(name)?;
        Ok(tun)
    }

    /// The interfaces that [`Tun::open_made`] has made in the calling thread's namespace, with their names.
    ///
    /// # Errors
    /// The kernel's.
    pub fn made() -> io::Result<Vec<(String, Interface)>> {
        let of = |(name, alias): (String, String)| Some((name, Interface::of_alias(&alias)?));
        Ok(link::aliases()?.into_iter().filter_map(of).collect())
    }

    /// The name that the device has now, in whatever namespace it is.
    ///
    /// # Errors
    /// `EBADFD` when somebody has deleted it.
    pub fn name(&self) -> io::Result<String> {
        let mut request = link::request("")?;
        // SAFETY: the ioctl writes an `ifreq`.
        let r = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNGETIFF, &raw mut request) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(link::name_in(&request)) }
    }

    /// Whether nobody has deleted the device, in whatever namespace it is.
    pub fn is_there(&self) -> bool {
        self.name().is_ok()
    }

    /// The namespace that the device is in.
    ///
    /// # Errors
    /// The kernel's: `EBADFD` when somebody has deleted it, `EPERM` without `CAP_NET_ADMIN` over that namespace, `EINVAL` before
    /// Linux 5.2.
    pub fn netns(&self) -> io::Result<Netns> {
        // SAFETY: an ioctl without argument; the descriptor that it returns is new and ours.
        unsafe {
            let fd = libc::ioctl(self.file.as_raw_fd(), TUNGETDEVNETNS);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd).into()) }
        }
    }

    /// Gives a device back what it has lost on its way into the calling thread's namespace, without which the kernel drops what
    /// comes out of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn settle(&self) -> io::Result<()> {
        furnish(link::index(&self.name()?)?)
    }

    /// Makes the kernel remove the device with the last value of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn let_go(&self) -> io::Result<()> {
        self.persist(false)
    }

    fn persist(&self, stays: bool) -> io::Result<()> {
        persist(&self.file, stays)
    }

    /// Opens the stack's device with several queues, a value for each. The stack distributes flows over them, and sends
    /// a flow's packets to the queue at which its packets in the other direction arrived.
    ///
    /// The device of an earlier daemon is adopted: key managers notice when an interface comes or goes, and tell their
    /// peers. After [`Self::keep`] it remains without the daemon, and drops packets routed to it.
    ///
    /// # Errors
    /// As [`Tun::open`]; `EEXIST` when another interface has this name.
    pub fn open_stack(name: &str, count: usize) -> io::Result<Vec<Self>> {
        let is_there = link::index(name).is_ok();
        // Otherwise the kernel would add queues to somebody else's device.
        if is_there && !is_stack(name)? {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let kind = libc::IFF_TUN | if count == 1 { 0 } else { libc::IFF_MULTI_QUEUE };
        let first = match queue(name, kind) {
            // With one queue it is another kind of device than with several.
            Err(e) if is_there && e.raw_os_error() == Some(libc::EINVAL) => {
                link::delete(link::index(name)?)?;
                queue(name, kind)?
            }
            opened => opened?,
        };
        let others = (1..count).map(|_| queue(name, kind));
        let files: Vec<File> = core::iter::once(Ok(first)).chain(others).collect::<io::Result<_>>()?;
        wait_for_carrier(name)?;
        let index = prepare(name, MTU)?;
        link::set_alias(index, STACK)?;
        Ok(files.into_iter().map(|file| Tun { file, index }).collect())
    }

    /// Makes the device remain without the daemon.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keep(&self) -> io::Result<()> {
        self.persist(true)
    }

    /// Gives the stack's device its name back, by which rules know it. Returns whether others had renamed it.
    ///
    /// # Errors
    /// The kernel's: `ENODEV` when it has been deleted or is not in the calling thread's namespace any more, others as
    /// [`link::rename`].
    pub fn keep_name(&self, name: &str) -> io::Result<bool> {
        let now = link::name(self.index)?;
        if now == name {
            return Ok(false);
        }
        // Another device may have its index.
        if !is_stack(&now)? {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        link::rename(self.index, name)?;
        Ok(true)
    }

    /// Removes the stack's device of a daemon that has ended, if there is one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_stack(name: &str) -> io::Result<()> {
        match link::index(name) {
            Ok(index) if is_stack(name)? => link::delete(index),
            _ => Ok(()),
        }
    }

    /// Duplicates the descriptor, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Tun { file: self.file.try_clone()?, index: self.index })
    }

    /// The device's index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads a frame. Returns the range of its packet in `buf` and the offloads that are left to do; `None` when there
    /// is no frame.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<Option<(core::ops::Range<usize>, Offload)>> {
        read_frame(&mut self.file, buf)
    }

    /// Passes a packet to the stack: its headers, then the pieces of its payload, at most [`tap::MAX_PIECES`] less two.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for headers that contradict each other.
    ///
    /// # Panics
    /// When there are too many pieces.
    pub fn give<'a>(&mut self, headers: Headers<'a>, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        tap::write(&self.file, &tap::vnet_header(&headers, 0), headers.bytes, pieces)
    }
}

/// Reads what is behind the vnet header of a frame, as [`Tun::read`].
pub(super) fn read_frame(file: &mut File, buf: &mut [u8]) -> io::Result<Option<(core::ops::Range<usize>, Offload)>> {
    loop {
        match file.read(buf) {
            Ok(n) if n > VNET_HEADER_LEN => {
                return Ok(Some((VNET_HEADER_LEN..n, offload(&buf[..VNET_HEADER_LEN]))));
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The frame waits for the next turn.
            Err(e) if transient::count(&e) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}

/// Makes the device of a queue stay without the daemon, or not.
pub(super) fn persist(file: &File, stays: bool) -> io::Result<()> {
    // SAFETY: the ioctl takes a plain value.
    let r = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETPERSIST, libc::c_int::from(stays)) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a device is the stack's, of this daemon or of an earlier one.
fn is_stack(name: &str) -> io::Result<bool> {
    Ok(link::alias(name)?.as_deref() == Some(STACK))
}

/// Opens a queue of a device of a kind, which is created with its first queue.
pub(super) fn queue(name: &str, kind: i32) -> io::Result<File> {
    Ok(tap::open_device(name, kind, &[tap::OFFLOADS | USO, tap::OFFLOADS])?.0)
}

/// Configures a device and sets it up; returns its index. A device that is so already does not change.
fn prepare(name: &str, mtu: u32) -> io::Result<u32> {
    let index = configure(name, mtu)?;
    link::set_up(name, true)?;
    Ok(index)
}

/// Configures a device that is up or down, and returns its index.
fn configure(name: &str, mtu: u32) -> io::Result<u32> {
    let index = link::index(name)?;
    link::set_mtu(name, mtu)?;
    furnish(index)?;
    Ok(index)
}

/// Has the kernel send nothing by itself by a device, and take what comes out of it.
fn furnish(index: u32) -> io::Result<()> {
    // Without an address it sends nothing by itself. This fails on a kernel without IPv6, which needs nothing.
    let _ = tap::no_addresses(index);
    netconf::filter_loosely(index)?;
    keep_address(index).map(drop)
}

/// Waits until the kernel sends packets by a device that is up. Without a queue the device had no carrier, and as long as the
/// kernel's link watch, a thread, has not found that it has one again, packets are lost that came after the daemon was ready.
pub(super) fn wait_for_carrier(name: &str) -> io::Result<()> {
    const MOST: Duration = Duration::from_secs(10);
    let start = Instant::now();
    while link::is_up(name)? && !link::is_running(name)? && start.elapsed() < MOST {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Gives a device an address that nobody uses: even loose filters drop packets that arrive at a device without one. Returns
/// whether it was missing.
///
/// # Errors
/// The kernel's.
pub fn keep_address(index: u32) -> io::Result<bool> {
    let [a, b, c, d] = index.to_ne_bytes();
    let mut messages = Messages::new();
    let flags = nl::NLM_F_ACK | libc::NLM_F_CREATE as u16;
    // With host scope, so that it is never used as a source address.
    let fixed = [libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_HOST, a, b, c, d];
    messages.push(libc::RTM_NEWADDR, flags, &fixed, |to| to.put(IFA_LOCAL, &DUMMY));
    match Socket::open(libc::NETLINK_ROUTE)?.transact(&messages) {
        Err(e) if errno(&e) == Some(libc::EEXIST) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Decodes a vnet header.
fn offload(header: &[u8]) -> Offload {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    Offload {
        checksum: (header[0] & 1 != 0).then(|| (word(6), word(8))),
        gso_size: if header[1] == 0 { 0 } else { word(4) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_sys::testing;

    const NAME: &str = "kept";

    /// Tries to open a queue as a user without rights, to whom somebody has opened /dev/net/tun.
    fn as_nobody(kind: i32) -> io::Result<()> {
        const NOBODY: libc::uid_t = 65534;
        let device = File::options().read(true).write(true).open("/dev/net/tun")?;
        let mut request = link::request(NAME)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // Capabilities go with the user. The C library would change all threads.
        // SAFETY: the system call takes plain values, and changes this thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
        // SAFETY: the ioctl reads and writes an `ifreq`.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// In a thread of its own, in a namespace.
    fn refused(netns: &Netns, kind: i32) -> Option<i32> {
        let there = netns.try_clone().expect("a namespace");
        let done = std::thread::spawn(move || there.enter().and_then(|()| as_nobody(kind))).join();
        done.expect("no panic").err().and_then(|e| e.raw_os_error())
    }

    #[test]
    fn an_interface_is_followed_to_another_namespace() {
        const TEST: &str = "sys::tun::followed";
        let (Some(home), Some(other)) = (testing::namespace(TEST), testing::namespace(TEST)) else { return };
        let cookie = home.cookie().expect("a cookie");
        let interface = Interface { if_id: 7, link: 0, home: cookie };
        let tun = match home.run(|| Tun::open_made("x0", interface)) {
            Err(e) if testing::missing(TEST, &e) => return,
            done => done.expect("a device"),
        };
        let place = || tun.netns().and_then(|netns| netns.id()).expect("a namespace");
        assert_eq!(place(), home.id().expect("an id"));
        home.run(|| link::rename(tun.index(), "x1")).expect("another name");
        assert_eq!(tun.name().expect("a name"), "x1");
        let there = other.as_fd().as_raw_fd().to_ne_bytes();
        home.run(|| link::change(tun.index(), [0, 0], &[(libc::IFLA_NET_NS_FD, &there)])).expect("it moves");
        assert_eq!(place(), other.id().expect("an id"));
        other.run(|| tun.settle()).expect("addresses");
        // It says what it is wherever it is, and an address is there.
        assert_eq!(other.run(Tun::made).expect("devices"), [("x1".to_owned(), interface)]);
        assert!(home.run(Tun::made).expect("devices").is_empty());
        other.run(|| link::delete(link::index("x1")?)).expect("deleted");
        assert!(!tun.is_there() && tun.netns().is_err());
    }

    #[test]
    fn others_cannot_open_queues() {
        let Some(netns) = testing::namespace("sys::tun::others") else { return };
        for (count, kind) in [(1, 0), (2, libc::IFF_MULTI_QUEUE)] {
            let queues = match netns.run(|| Tun::open_stack(NAME, count)) {
                Err(e) if testing::missing("sys::tun::others", &e) => return,
                done => done.expect("a device"),
            };
            if count > 1 {
                assert_eq!(refused(&netns, kind), Some(libc::EPERM), "{count} queues");
            }
            queues[0].keep().expect("it stays");
            drop(queues);
            assert_eq!(refused(&netns, kind), Some(libc::EPERM), "{count} queues, without a daemon");
        }
    }

    #[test]
    fn the_device_of_an_earlier_daemon_is_adopted() {
        let Some(netns) = testing::namespace("sys::tun::adopted") else { return };
        let open = |count| netns.run(|| Tun::open_stack(NAME, count));
        let there = || netns.run(|| link::index(NAME)).ok();
        let first = match open(1) {
            Err(e) if testing::missing("sys::tun::adopted", &e) => return,
            done => done.expect("a device"),
        };
        let index = first[0].index();
        drop(first);
        assert_eq!(there(), None, "nobody has kept it");
        let first = open(1).expect("a device");
        let kept = first[0].index();
        assert_ne!(kept, index);
        first[0].keep().expect("it stays");
        drop(first);
        assert_eq!(there(), Some(kept));
        let runs = || netns.run(|| link::is_running(NAME)).expect("a device");
        let start = Instant::now();
        while runs() {
            assert!(start.elapsed() < Duration::from_secs(60), "a device without a queue has a carrier");
            std::thread::sleep(Duration::from_millis(10));
        }
        let second = open(1).expect("the same");
        assert!(runs(), "the next packet would be lost");
        assert_eq!(second[0].index(), kept);
        assert!(netns.run(|| link::is_up(NAME)).expect("a device"));
        drop(second);
        // With another number of workers it is another device.
        let third = open(2).expect("two queues");
        assert_ne!(third[0].index(), kept);
        third[0].keep().expect("it stays");
        third[0].let_go().expect("it goes");
        drop(third);
        assert_eq!(there(), None);
        open(1).expect("a device")[0].keep().expect("it stays");
        netns.run(|| Tun::remove_stack(NAME)).expect("removed");
        assert_eq!(there(), None);
        // Somebody else's device is left alone.
        let other = netns.run(|| Tun::open(NAME)).expect("a device");
        netns.run(|| Tun::remove_stack(NAME)).expect("nothing to do");
        assert_eq!(there(), Some(other.index()));
        assert_eq!(open(1).expect_err("taken").raw_os_error(), Some(libc::EEXIST));
    }
}
