//! The VRFs of a network namespace and the devices in them, as the kernel tells of changes.
//!
//! A VRF is a device of its own, and the master of others (`Documentation/networking/vrf.rst`). The kernel tells of a change while
//! it is made, so that a packet that was queued later never finds an older answer here.

use super::link::{ifinfomsg, text_in};
use super::netlink::{Messages, Socket};
use super::poll::{Tokens, Waits};
use sealane_abi::netlink as nl;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

/// The kind of their devices.
pub const KIND: &str = "vrf";

/// The VRFs of one namespace.
#[derive(Debug)]
pub struct Vrfs {
    socket: Socket,
    /// The socket alone: a look whether there are messages takes a quarter of the time of a look for them.
    news: Waits,
    /// Their names, by the index of their device.
    names: HashMap<u32, String>,
    /// The masters of devices, which are VRFs or others.
    masters: HashMap<u32, u32>,
    version: u64,
    /// Whether messages were lost, and nobody has read everything since.
    has_lost: bool,
}

impl Vrfs {
    /// Those of the calling thread's namespace. Other threads may use them, wherever they are.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_ROUTE)?;
        socket.join(libc::RTNLGRP_LINK)?;
        let news = Waits::new()?;
        news.add(socket.as_fd(), 0)?;
        let mut vrfs =
            Vrfs { socket, news, names: HashMap::new(), masters: HashMap::new(), version: 0, has_lost: false };
        vrfs.read_all()?;
        Ok(vrfs)
    }

    /// Takes up all changes so far, and returns a number that is another one after each change.
    ///
    /// # Errors
    /// The kernel's.
    pub fn refresh(&mut self) -> io::Result<u64> {
        // What the kernel has told before now is seen: it makes the socket readable at once.
        if !self.has_lost && self.news.ready_now() == Tokens::default() {
            return Ok(self.version);
        }
        let Vrfs { socket, names, masters, version, has_lost, .. } = self;
        let read = socket.receive(|message| *version += u64::from(apply(names, masters, message)));
        if read.is_err() {
            // The number changes now, for whoever goes by an older one, and also if what follows fails.
            (*has_lost, *version) = (true, *version + 1);
        }
        if self.has_lost {
            self.read_all()?;
            self.has_lost = false;
        }
        Ok(self.version)
    }

    /// The number that [`Vrfs::refresh`] returned last, to anybody.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    fn read_all(&mut self) -> io::Result<()> {
        let mut messages = Messages::new();
        messages.push(libc::RTM_GETLINK, nl::NLM_F_DUMP, &ifinfomsg(0), |_| {});
        (self.names, self.masters) = self.socket.dump(&messages, |(names, masters): &mut (_, _), message| {
            apply(names, masters, message);
        })?;
        Ok(())
    }

    /// The VRF of a device: that of its master, its own index if it is one, and otherwise 0.
    #[must_use]
    pub fn of(&self, device: u32) -> u32 {
        of(&self.names, &self.masters, device)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        self.names.keys().copied()
    }

    /// The devices in a VRF.
    pub fn members(&self, vrf: u32) -> impl Iterator<Item = u32> {
        self.masters.iter().filter(move |(_, master)| **master == vrf).map(|(device, _)| *device)
    }

    /// The name of a VRF.
    #[must_use]
    pub fn name(&self, vrf: u32) -> Option<&str> {
        self.names.get(&vrf).map(String::as_str)
    }

    /// Whether there is a VRF with this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.values().any(|known| known == name)
    }
}

fn of(names: &HashMap<u32, String>, masters: &HashMap<u32, u32>, device: u32) -> u32 {
    if names.is_empty() {
        return 0;
    }
    if names.contains_key(&device) {
        return device;
    }
    masters.get(&device).copied().filter(|master| names.contains_key(master)).unwrap_or(0)
}

/// Notes what a message says, and returns whether it has changed a VRF or what is in one.
fn apply(names: &mut HashMap<u32, String>, masters: &mut HashMap<u32, u32>, message: &nl::Message<'_>) -> bool {
    // `struct ifinfomsg`. Of ports of bridges there are messages of another family.
    let Some((fixed, attributes)) = message.payload.split_at_checked(16).filter(|(fixed, _)| fixed[0] == 0) else {
        return false;
    };
    let find = |bytes, type_| nl::Attrs::new(bytes).find(|a| a.type_ == type_).map(|a| a.payload);
    // News of a radio are of the same type, and tell nothing else.
    if find(attributes, libc::IFLA_WIRELESS).is_some() {
        return false;
    }
    let device = u32::from_ne_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let before = (of(names, masters, device), names.get(&device).cloned());
    match message.header.nlmsg_type {
        libc::RTM_NEWLINK => {
            let kind =
                find(attributes, libc::IFLA_LINKINFO).and_then(|info| find(info, libc::IFLA_INFO_KIND)).map(text_in);
            match find(attributes, libc::IFLA_IFNAME).map(text_in).filter(|_| kind.as_deref() == Some(KIND)) {
                Some(name) => names.insert(device, name),
                None => names.remove(&device),
            };
            match find(attributes, libc::IFLA_MASTER).and_then(|master| master.first_chunk()) {
                Some(master) => masters.insert(device, u32::from_ne_bytes(*master)),
                None => masters.remove(&device),
            };
        }
        libc::RTM_DELLINK => {
            names.remove(&device);
            masters.remove(&device);
        }
        _ => return false,
    }
    before != (of(names, masters, device), names.get(&device).cloned())
}

#[cfg(test)]
mod tests {
    use super::super::{link, testing};
    use super::*;

    /// A message about a device.
    fn told(type_: u16, index: u32, name: &str, kind: &str, master: u32, family: u8) -> Vec<u8> {
        let mut messages = Messages::new();
        let mut fixed = ifinfomsg(index);
        fixed[0] = family;
        messages.push(type_, 0, &fixed, |a| {
            a.str(libc::IFLA_IFNAME, name);
            if master > 0 {
                a.u32(libc::IFLA_MASTER, master);
            }
            a.nest(libc::IFLA_LINKINFO, |a| a.str(libc::IFLA_INFO_KIND, kind));
        });
        messages.bytes().to_vec()
    }

    #[test]
    fn devices_come_into_vrfs_and_go() {
        let (mut names, mut masters) = (HashMap::new(), HashMap::new());
        let mut tell = |bytes: Vec<u8>, devices: [u32; 3]| {
            let message = nl::Messages::new(&bytes).next().expect("one");
            let changed = apply(&mut names, &mut masters, &message);
            (changed, devices.map(|device| of(&names, &masters, device)))
        };
        let (new, gone) = (libc::RTM_NEWLINK, libc::RTM_DELLINK);
        let all = [5, 6, 7];
        // A bridge with a port is none.
        assert_eq!(tell(told(new, 7, "br0", "bridge", 0, 0), all), (false, [0, 0, 0]));
        assert_eq!(tell(told(new, 6, "eth0", "veth", 7, 0), all), (false, [0, 0, 0]));
        assert_eq!(tell(told(new, 5, "red", KIND, 0, 0), all), (true, [5, 0, 0]));
        assert_eq!(tell(told(new, 5, "red", KIND, 0, 0), all), (false, [5, 0, 0]), "nothing new");
        assert_eq!(tell(told(new, 6, "eth0", "veth", 5, 0), all), (true, [5, 5, 0]));
        let mut radio = Messages::new();
        radio.push(new, 0, &ifinfomsg(6), |a| {
            a.str(libc::IFLA_IFNAME, "eth0");
            a.put(libc::IFLA_WIRELESS, &[0; 4]);
        });
        assert_eq!(tell(radio.bytes().to_vec(), all), (false, [5, 5, 0]), "of a radio");
        let bridge = libc::AF_BRIDGE as u8;
        assert_eq!(tell(told(gone, 6, "eth0", "veth", 5, bridge), all), (false, [5, 5, 0]), "of a bridge");
        assert_eq!(tell(told(new, 5, "rot", KIND, 0, 0), all), (true, [5, 5, 0]), "another name");
        assert_eq!(tell(told(new, 6, "eth0", "veth", 0, 0), all), (true, [5, 0, 0]));
        assert_eq!(tell(told(new, 6, "eth0", "veth", 5, 0), all), (true, [5, 5, 0]));
        assert_eq!(tell(told(gone, 5, "rot", KIND, 0, 0), all), (true, [0, 0, 0]));
    }

    #[test]
    fn changes_are_told() {
        let Some(ns) = testing::namespace("sys::vrf") else { return };
        ns.run(|| {
            let mut vrfs = Vrfs::open()?;
            let before = vrfs.refresh()?;
            link::set_up("lo", true)?;
            // It is known, and in none.
            assert_eq!((vrfs.refresh()?, vrfs.of(link::index("lo")?)), (before, 0));
            Ok(())
        })
        .expect("rtnetlink");
    }
}
