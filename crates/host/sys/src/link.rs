//! Network devices of the calling thread's namespace: `ioctl`s of `netdevice(7)`.

use super::netlink::{Messages, Socket};
use sealane_abi::netlink as nl;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The ioctl of all ethtool commands.
pub const SIOCETHTOOL: u32 = 0x8946;

/// Properties of a device that the data path needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Whether its frames have an Ethernet header (`ARPHRD_ETHER`).
    pub ethernet: bool,
    /// The hardware address, meaningful if `ethernet`.
    pub address: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
}

/// A socket for ioctls; any kind will do.
fn any_socket() -> io::Result<OwnedFd> {
    Ok(super::transient::counted(std::os::unix::net::UnixDatagram::unbound())?.into())
}

/// A request about the device of this name.
///
/// # Errors
/// `ENODEV` for a name that is too long.
pub fn request(name: impl AsRef<[u8]>) -> io::Result<libc::ifreq> {
    let name = name.as_ref();
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

fn ioctl(fd: &OwnedFd, operation: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the operation reads and writes an `ifreq`.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), operation, &raw mut *request) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The index of the device with this name.
///
/// # Errors
/// `ENODEV` when there is none.
pub fn index(name: &str) -> io::Result<u32> {
    Ok(rustix::net::netdevice::name_to_index(any_socket()?, name)?)
}

/// The name of the device with this index.
///
/// # Errors
/// `ENODEV` when there is none.
pub fn name(index: u32) -> io::Result<String> {
    let mut request = request("")?;
    request.ifr_ifru.ifru_ifindex = index as i32;
    ioctl(&any_socket()?, libc::SIOCGIFNAME, &mut request)?;
    Ok(name_in(&request))
}

/// The name that the kernel has put into a request.
pub fn name_in(request: &libc::ifreq) -> String {
    let bytes: Vec<u8> = request.ifr_name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sets a device up or down.
///
/// # Errors
/// The kernel's.
pub fn set_up(name: &str, up: bool) -> io::Result<()> {
    let (fd, mut request) = (any_socket()?, request(name)?);
    ioctl(&fd, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the ioctl has written this member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let bit = libc::IFF_UP as libc::c_short;
    request.ifr_ifru.ifru_flags = if up { flags | bit } else { flags & !bit };
    ioctl(&fd, libc::SIOCSIFFLAGS, &mut request)
}

/// Whether a device is up (`IFF_UP`).
///
/// # Errors
/// `ENODEV` when there is none.
pub fn is_up(name: &str) -> io::Result<bool> {
    has_flag(name, libc::IFF_UP)
}

/// Whether the kernel's link watch has found that a device has a carrier (`IFF_RUNNING`). Otherwise it drops what it is to send.
///
/// # Errors
/// `ENODEV` when there is none.
pub fn is_running(name: &str) -> io::Result<bool> {
    has_flag(name, libc::IFF_RUNNING)
}

fn has_flag(name: &str, flag: i32) -> io::Result<bool> {
    let mut request = request(name)?;
    ioctl(&any_socket()?, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the ioctl has written this member.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }) & flag != 0)
}

/// A change of a device's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Its index.
    pub ifindex: u32,
    /// Whether it is up.
    pub up: bool,
    /// Whether it has been removed.
    pub gone: bool,
}

/// Reports changes of devices.
#[derive(Debug)]
pub struct Links {
    socket: Socket,
}

impl Links {
    /// Subscribes to changes in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_ROUTE)?;
        socket.join(libc::RTNLGRP_LINK)?;
        Ok(Links { socket })
    }

    /// Hands the changes since the last call to `each`, in order. Does not wait.
    ///
    /// # Errors
    /// `ENOBUFS` when some changes were lost.
    pub fn changes(&mut self, mut each: impl FnMut(Change)) -> io::Result<()> {
        self.socket.receive(|message| {
            // `struct ifinfomsg`: family, padding, type; index; flags; mask of changed flags.
            let word = |at: usize| message.payload.get(at..at + 4)?.first_chunk().map(|b| u32::from_ne_bytes(*b));
            let (Some(ifindex), Some(flags)) = (word(4), word(8)) else { return };
            let gone = match message.header.nlmsg_type {
                libc::RTM_NEWLINK => false,
                // A device that leaves a bridge is reported like this too, with the bridge's family.
                libc::RTM_DELLINK => message.payload.first() == Some(&0),
                _ => return,
            };
            each(Change { ifindex, up: !gone && flags & libc::IFF_UP as u32 != 0, gone });
        })
    }

    /// A descriptor that is readable when there are changes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }
}

/// `struct ifinfomsg` with this index and zeros otherwise.
pub fn ifinfomsg(index: u32) -> [u8; 16] {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed
}

/// The alias of a device (`ip link set DEVICE alias`).
///
/// # Errors
/// The kernel's: `ENODEV` when there is none.
pub fn alias(name: &str) -> io::Result<Option<String>> {
    let mut messages = Messages::new();
    messages.push(libc::RTM_GETLINK, 0, &ifinfomsg(0), |a| a.str(libc::IFLA_IFNAME, name));
    let mut alias = None;
    Socket::open(libc::NETLINK_ROUTE)?.request(&messages, |message| {
        alias = alias.take().or_else(|| text(message, libc::IFLA_IFALIAS));
    })?;
    Ok(alias)
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether its frames have an Ethernet header (`ARPHRD_ETHER`).
    pub ethernet: bool,
    /// Whether it is the interface of the host to itself.
    pub loopback: bool,
    /// Its kind, if it has one.
    pub kind: Option<String>,
    /// The kind of the device that it is a member of; empty where that is not known.
    pub member_of: Option<String>,
}

impl Link {
    /// The device that a message (`struct ifinfomsg`) is about.
    fn of(message: &[u8]) -> Option<Link> {
        const IFLA_INFO_SLAVE_KIND: u16 = 4;
        let of = |bytes, type_| nl::Attrs::new(bytes).find(|a| a.type_ == type_).map(|a| a.payload);
        let hardware = u16::from_ne_bytes(*message.get(2..)?.first_chunk()?);
        let index = u32::from_ne_bytes(*message.get(4..)?.first_chunk()?);
        let flags = u32::from_ne_bytes(*message.get(8..)?.first_chunk()?);
        let attributes = message.get(16..)?;
        let info = of(attributes, libc::IFLA_LINKINFO).unwrap_or_default();
        let member_of =
            of(attributes, libc::IFLA_MASTER).map(|_| of(info, IFLA_INFO_SLAVE_KIND).map(text_in).unwrap_or_default());
        Some(Link {
            index,
            name: text_in(of(attributes, libc::IFLA_IFNAME)?),
            ethernet: hardware == libc::ARPHRD_ETHER,
            loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
            kind: of(info, libc::IFLA_INFO_KIND).map(text_in),
            member_of,
        })
    }
}

/// The devices of the calling thread's namespace.
///
/// # Errors
/// The kernel's.
pub fn all() -> io::Result<Vec<Link>> {
    let mut messages = Messages::new();
    messages.push(libc::RTM_GETLINK, nl::NLM_F_DUMP, &ifinfomsg(0), |_| {});
    Socket::open(libc::NETLINK_ROUTE)?
        .dump(&messages, |found: &mut Vec<_>, message| found.extend(Link::of(message.payload)))
}

/// The devices that have aliases: names and aliases.
///
/// # Errors
/// The kernel's.
pub fn aliases() -> io::Result<Vec<(String, String)>> {
    let mut messages = Messages::new();
    messages.push(libc::RTM_GETLINK, nl::NLM_F_DUMP, &ifinfomsg(0), |_| {});
    Socket::open(libc::NETLINK_ROUTE)?.dump(&messages, |found: &mut Vec<_>, message| {
        found.extend(text(message, libc::IFLA_IFNAME).zip(text(message, libc::IFLA_IFALIAS)));
    })
}

/// A text among the attributes of a device.
fn text(message: &nl::Message<'_>, type_: u16) -> Option<String> {
    let attribute = nl::Attrs::new(message.payload.get(16..)?).find(|a| a.type_ == type_)?;
    Some(text_in(attribute.payload))
}

/// The text in an attribute, up to its terminating zero.
pub(super) fn text_in(bytes: &[u8]) -> String {
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Changes a device: `flags` of `struct ifinfomsg` with the mask of those that change, and attributes with their types.
///
/// # Errors
/// The kernel's.
pub fn change(index: u32, [flags, mask]: [u32; 2], attributes: &[(u16, &[u8])]) -> io::Result<()> {
    let mut fixed = ifinfomsg(index);
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&mask.to_ne_bytes());
    let mut messages = Messages::new();
    messages.push(libc::RTM_NEWLINK, nl::NLM_F_ACK, &fixed, |a| {
        attributes.iter().for_each(|(type_, payload)| a.put(*type_, payload));
    });
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

/// Sets the alias of a device.
///
/// # Errors
/// The kernel's.
pub fn set_alias(index: u32, alias: &str) -> io::Result<()> {
    let mut messages = Messages::new();
    messages.push(libc::RTM_SETLINK, nl::NLM_F_ACK, &ifinfomsg(index), |a| a.str(libc::IFLA_IFALIAS, alias));
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

/// Renames a device.
///
/// # Errors
/// The kernel's: `EEXIST` when another device has the name, `EBUSY` for a device that is up before Linux 6.2.
pub fn rename(index: u32, name: &str) -> io::Result<()> {
    let mut messages = Messages::new();
    messages.push(libc::RTM_SETLINK, nl::NLM_F_ACK, &ifinfomsg(index), |a| a.str(libc::IFLA_IFNAME, name));
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

/// Deletes a device.
///
/// # Errors
/// The kernel's: `ENODEV` when there is none.
pub fn delete(index: u32) -> io::Result<()> {
    let mut messages = Messages::new();
    messages.push(libc::RTM_DELLINK, nl::NLM_F_ACK, &ifinfomsg(index), |_| {});
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

/// Sets a device's MTU.
///
/// # Errors
/// The kernel's.
pub fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = mtu as i32;
    ioctl(&any_socket()?, libc::SIOCSIFMTU, &mut request)
}

/// The properties of the device with this index.
///
/// # Errors
/// `ENODEV` when there is none.
pub fn facts(index: u32) -> io::Result<Facts> {
    let (fd, mut request) = (any_socket()?, request(&name(index)?)?);
    ioctl(&fd, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the ioctl has written this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu } as u32;
    ioctl(&fd, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the ioctl has written this member.
    let hardware = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut address = [0; 6];
    for (to, from) in address.iter_mut().zip(hardware.sa_data) {
        *to = from as u8;
    }
    Ok(Facts { ethernet: hardware.sa_family == libc::ARPHRD_ETHER, address, mtu })
}

/// The number of receive queues of a device; 1 if it does not report one.
///
/// # Errors
/// The kernel's, when the device cannot be queried.
pub fn queues(name: &str) -> io::Result<u32> {
    // ETHTOOL_GCHANNELS: the command; maxima of rx, tx, other and combined channels; the numbers in use.
    let mut channels: [u32; 9] = [0x3c, 0, 0, 0, 0, 0, 0, 0, 0];
    let (fd, mut request) = (any_socket()?, request(name)?);
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    let asked = ioctl(&fd, SIOCETHTOOL.into(), &mut request);
    Ok(if asked.is_ok() { (channels[5] + channels[8]).max(1) } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn changes_are_told() {
        let Some((a, _b)) = testing::pair("sys::link") else { return };
        a.run(|| {
            let (mut links, index) = (Links::new()?, index("a")?);
            let told = |links: &mut Links| {
                let mut list = Vec::new();
                links.changes(|change| list.extend((change.ifindex == index).then_some((change.up, change.gone))))?;
                io::Result::Ok(list)
            };
            assert_eq!((told(&mut links)?, is_up("a")?), (vec![], true));
            set_up("a", false)?;
            assert!(!told(&mut links)?.is_empty() && !is_up("a")?);
            set_up("a", true)?;
            assert!(told(&mut links)?.last() == Some(&(true, false)) && is_up("a")?);
            let mut messages = Messages::new();
            messages.push(libc::RTM_DELLINK, nl::NLM_F_ACK, &ifinfomsg(index), |_| {});
            Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)?;
            assert_eq!(told(&mut links)?.last(), Some(&(false, true)));
            Ok(())
        })
        .expect("changes");
    }

    #[test]
    fn a_device_by_name_and_by_index() {
        let lo = index("lo").expect("there is always lo");
        assert_eq!(name(lo).expect("a name"), "lo");
        assert!(!facts(lo).expect("facts").ethernet);
        for bad in ["no-such-device", "a name that is too long"] {
            assert_eq!(index(bad).expect_err("none").raw_os_error(), Some(libc::ENODEV), "{bad}");
        }
        assert!(name(u32::MAX >> 1).is_err());
        let Some((a, _b)) = testing::pair("sys::link") else { return };
        a.run(|| {
            let facts = facts(index("a")?)?;
            assert!(facts.ethernet);
            assert_ne!(facts.address, [0; 6]);
            assert_eq!(facts.mtu, 1500);
            set_mtu("a", 9000)?;
            assert_eq!(super::facts(index("a")?)?.mtu, 9000);
            Ok(())
        })
        .expect("facts");
    }
}
