//! Routes: what leads marked packets to the TUN device, which addresses are ours, and what a path carries.

use super::netlink::{IFA_ADDRESS, IFA_LOCAL, Messages, RTAX_MTU, Socket, errno, family, ip};
use super::nft::ipsec::Bits;
use arrayvec::ArrayVec;
use sealane_abi::netlink as nl;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The number of our table; those of offload devices follow it.
const TABLE: u32 = 0x5ea1;
/// Where the rule stands among others: behind the local table, before all that people usually write. Those of offload
/// devices, which look at more of the mark, stand before it.
const PRIORITY: u32 = 97;

/// Where the rules of [`PrefixRules`] stand.
const PREFIX_PRIORITY: u32 = 95;

// What `libc` does not have of `linux/fib_rules.h`.
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FR_ACT_TO_TBL: u8 = 1;

const FAMILIES: [i32; 2] = [libc::AF_INET, libc::AF_INET6];

/// Sends a message for each family; one that the kernel lacks is left out.
fn both(mut each: impl FnMut(u8) -> Messages) -> io::Result<()> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    for family in FAMILIES {
        match socket.transact(&each(family as u8)) {
            Err(e) if matches!(errno(&e), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {}
            Err(e) if errno(&e) == Some(libc::EEXIST) => {}
            done => done?,
        }
    }
    Ok(())
}

fn rule(type_: u16, flags: u16, family: u8, bits: Bits, number: u8) -> Messages {
    let mut messages = Messages::new();
    let fixed = [family, 0, 0, 0, 0, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
    messages.push(type_, nl::NLM_F_ACK | flags, &fixed, |a| {
        // What has no device's rule is the stack's, which drops what is not for it.
        let (priority, mask) =
            if number == 0 { (PRIORITY, bits.protect) } else { (PRIORITY - 1, bits.protect | bits.device) };
        a.u32(FRA_PRIORITY, priority);
        a.u32(FRA_FWMARK, bits.to_device(number));
        a.u32(FRA_FWMASK, mask);
        a.u32(FRA_TABLE, table(number));
    });
    messages
}

/// The table that leads to the TUN device of a number.
fn table(number: u8) -> u32 {
    TABLE + u32::from(number)
}

fn route(type_: u16, flags: u16, family: u8, number: u8, device: Option<u32>) -> Messages {
    let mut messages = Messages::new();
    let kind = if device.is_some() { libc::RTN_UNICAST } else { libc::RTN_UNREACHABLE };
    // Family, prefix lengths, TOS; table, protocol, scope, type; flags.
    let fixed =
        [family, 0, 0, 0, libc::RT_TABLE_UNSPEC, libc::RTPROT_STATIC, libc::RT_SCOPE_UNIVERSE, kind, 0, 0, 0, 0];
    messages.push(type_, nl::NLM_F_ACK | flags, &fixed, |a| {
        a.u32(libc::RTA_TABLE, table(number));
        match device {
            Some(index) => {
                a.u32(libc::RTA_PRIORITY, 1);
                a.u32(libc::RTA_OIF, index);
            }
            None => a.u32(libc::RTA_PRIORITY, u32::MAX - 1),
        }
    });
    messages
}

/// Leads what is marked with a number to a device, and nowhere when that is gone. What is in place already stays.
///
/// # Errors
/// The kernel's.
pub fn install(bits: Bits, number: u8, device: u32) -> io::Result<()> {
    let create = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let replace = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    both(|family| route(libc::RTM_NEWROUTE, create, family, number, None))?;
    both(|family| route(libc::RTM_NEWROUTE, replace, family, number, Some(device)))?;
    both(|family| rule(libc::RTM_NEWRULE, create, family, bits, number))
}

/// Takes rules and routes away.
///
/// # Errors
/// The kernel's.
pub fn remove_all(bits: Bits) -> io::Result<()> {
    let gone = |done: io::Result<()>| match done {
        Err(e) if matches!(errno(&e), Some(libc::ENOENT | libc::ESRCH)) => Ok(()),
        done => done,
    };
    for number in 0..=bits.last_device() {
        gone(both(|family| rule(libc::RTM_DELRULE, 0, family, bits, number)))?;
        gone(both(|family| route(libc::RTM_DELROUTE, 0, family, number, None)))?;
    }
    Ok(())
}

/// Packets that the first look at the routes already leads to a device: from and to, prefixes of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrefixRule {
    /// Source prefix.
    pub source: (IpAddr, u8),
    /// Destination prefix.
    pub destination: (IpAddr, u8),
    /// The number of its device.
    pub number: u8,
}

impl PrefixRule {
    /// A rule for packets without a mark: ours have one.
    fn rule(&self, type_: u16, flags: u16) -> Messages {
        let fixed = [family(self.source.0), self.destination.1, self.source.1, 0, 0, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
        let mut messages = Messages::new();
        messages.push(type_, nl::NLM_F_ACK | flags, &fixed, |a| {
            for ((address, bits), attribute) in [(self.destination, FRA_DST), (self.source, FRA_SRC)] {
                if bits > 0 {
                    a.ip(attribute, address);
                }
            }
            a.u32(FRA_PRIORITY, PREFIX_PRIORITY);
            a.u32(FRA_FWMARK, 0);
            a.u32(FRA_FWMASK, u32::MAX);
            a.u32(FRA_TABLE, table(self.number));
        });
        messages
    }
}

/// Rules that lead packets to devices before a mark does, which spares them a second look at the routes. They may be missing:
/// what they do not lead, marks do.
#[derive(Debug, Default)]
pub struct PrefixRules(BTreeSet<PrefixRule>);

impl PrefixRules {
    /// Whether it has these and no others.
    pub fn are(&self, wanted: &BTreeSet<PrefixRule>) -> bool {
        self.0 == *wanted
    }

    /// Has these and no others.
    ///
    /// # Errors
    /// The kernel's; which there are is not known then.
    pub fn set(&mut self, wanted: BTreeSet<PrefixRule>) -> io::Result<()> {
        let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
        for gone in self.0.difference(&wanted) {
            socket.transact(&gone.rule(libc::RTM_DELRULE, 0))?;
        }
        for new in wanted.difference(&self.0) {
            socket.transact(&new.rule(libc::RTM_NEWRULE, (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16))?;
        }
        self.0 = wanted;
        Ok(())
    }

    /// Takes all of them away, those of a daemon before this one too; rules of others stand.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&mut self, bits: Bits) -> io::Result<()> {
        self.0.clear();
        let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
        for (family, number) in FAMILIES.into_iter().flat_map(|f| (1..=bits.last_device()).map(move |n| (f, n))) {
            let mut messages = Messages::new();
            let fixed = [family as u8, 0, 0, 0, 0, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
            messages.push(libc::RTM_DELRULE, nl::NLM_F_ACK, &fixed, |a| {
                a.u32(FRA_PRIORITY, PREFIX_PRIORITY);
                a.u32(FRA_TABLE, table(number));
            });
            // One goes at a time.
            while socket.transact(&messages).is_ok() {}
        }
        Ok(())
    }
}

/// How long a narrow path is believed to be one, as the kernel does it (`mtu_expires`).
const NARROW_FOR: Duration = Duration::from_secs(600);
/// How many are remembered.
const MAX_NARROW: usize = 4096;
/// How many are forgotten at a time: whoever has another one waits for it.
const FORGET: usize = 64;

/// Destinations whose packets the kernel has to cut before they come to the TUN device: the sender's stack has not heard of
/// it, or forgets it when its packet is led here.
#[derive(Debug)]
pub struct Narrow {
    number: u8,
    device: u32,
    socket: Socket,
    known: HashMap<IpAddr, (u32, Instant)>,
}

impl Narrow {
    /// None yet, of the TUN device with this number and this index.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(number: u8, device: u32) -> io::Result<Self> {
        Ok(Narrow { number, device, socket: Socket::open(libc::NETLINK_ROUTE)?, known: HashMap::new() })
    }

    /// Packets to an address may have this many bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set(&mut self, to: IpAddr, mtu: u32, now: Instant) -> io::Result<()> {
        if self.known.get(&to).is_some_and(|known| known.0 == mtu) {
            return Ok(());
        }
        if self.known.len() >= MAX_NARROW && !self.known.contains_key(&to) {
            return Ok(());
        }
        self.known.insert(to, (mtu, now));
        let mut messages = Messages::new();
        let flags = nl::NLM_F_ACK | (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        self.push(&mut messages, libc::RTM_NEWROUTE, flags, to, mtu);
        self.socket.transact(&messages)
    }

    /// Forgets some of what is old; whether there is no more of it.
    pub fn tidy(&mut self, now: Instant) -> bool {
        let old = self.known.extract_if(|_, known| now.duration_since(known.1) > NARROW_FOR);
        let old: ArrayVec<(IpAddr, (u32, Instant)), FORGET> = old.take(FORGET).collect();
        let mut messages = Messages::new();
        let mut last = 0;
        for (to, (mtu, _)) in &old {
            last = messages.bytes().len();
            self.push(&mut messages, libc::RTM_DELROUTE, 0, *to, *mtu);
        }
        if !old.is_empty() {
            messages.acknowledge(last);
            // Gone already is as good.
            let _ = self.socket.transact(&messages);
        }
        !old.is_full()
    }

    fn push(&self, messages: &mut Messages, type_: u16, flags: u16, to: IpAddr, mtu: u32) {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let (kind, scope) = (libc::RTN_UNICAST, libc::RT_SCOPE_UNIVERSE);
        let fixed = [family(to), bits, 0, 0, libc::RT_TABLE_UNSPEC, libc::RTPROT_STATIC, scope, kind, 0, 0, 0, 0];
        messages.push(type_, flags, &fixed, |a| {
            a.u32(libc::RTA_TABLE, table(self.number));
            a.ip(libc::RTA_DST, to);
            a.u32(libc::RTA_PRIORITY, 1);
            a.u32(libc::RTA_OIF, self.device);
            a.nest(libc::RTA_METRICS, |a| a.u32(RTAX_MTU, mtu));
        });
    }
}

/// The addresses of this host, kept up to date.
#[derive(Debug)]
pub struct Locals {
    socket: Socket,
    known: HashSet<IpAddr>,
}

impl Locals {
    /// Those of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_ROUTE)?;
        socket.join(libc::RTNLGRP_IPV4_IFADDR)?;
        socket.join(libc::RTNLGRP_IPV6_IFADDR)?;
        let mut locals = Locals { socket, known: HashSet::new() };
        locals.dump()?;
        Ok(locals)
    }

    fn dump(&mut self) -> io::Result<()> {
        let mut messages = Messages::new();
        messages.push(libc::RTM_GETADDR, libc::NLM_F_DUMP as u16, &[0; 8], |_| {});
        // A socket of its own: notifications and answers do not mix.
        self.known = Socket::open(libc::NETLINK_ROUTE)?.dump(&messages, |known: &mut HashSet<_>, message| {
            let attributes = nl::Attrs::new(message.payload.get(8..).unwrap_or_default());
            let (mut local, mut address) = (None, None);
            for attribute in attributes {
                match attribute.type_ {
                    IFA_LOCAL => local = ip(attribute.payload),
                    IFA_ADDRESS => address = ip(attribute.payload),
                    _ => {}
                }
            }
            known.extend(local.or(address));
        })?;
        Ok(())
    }

    /// Takes up changes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn refresh(&mut self) -> io::Result<()> {
        // What was lost is in the dump too.
        let _ = self.socket.receive(|_| {});
        match self.dump() {
            // What goes on changing is told again.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            done => done,
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.known.iter().copied()
    }

    /// Whether packets to an address are for this host.
    pub fn has(&self, address: IpAddr) -> bool {
        address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) || self.known.contains(&address)
    }
}

impl AsFd for Locals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// How long an answer of the routes is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// How many answers are kept.
const MAX_PATHS: usize = 65_536;

/// A path.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// What it carries, in bytes; 0 where it is not known.
    pub mtu: u32,
    /// The address that leaves on it.
    pub source: IpAddr,
    asked: Instant,
}

/// Paths of the calling thread's namespace, by destination.
#[derive(Debug)]
pub struct PathTable {
    mark: u32,
    known: HashMap<IpAddr, Path>,
    /// What senders were told about packets to these addresses, and what the path carried then. The kernel believes it about
    /// sealed packets too where they have the same destination.
    told: HashMap<IpAddr, (u32, u32)>,
}

impl PathTable {
    /// None known yet. `mark` is that of the packets that take them.
    pub fn new(mark: u32) -> Self {
        PathTable { mark, known: HashMap::new(), told: HashMap::new() }
    }

    /// The path to an address. The kernel finds it for a socket that is connected there, by routes and by what ICMP said.
    pub fn to(&mut self, to: IpAddr, now: Instant) -> Path {
        if let Some(path) = self.known.get(&to)
            && now.duration_since(path.asked) < BELIEVED
        {
            return *path;
        }
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let path = match ask(to, any, self.mark) {
            Ok((mtu, source)) => Path { mtu: self.beyond_told(to, mtu), source, asked: now },
            Err(_) => Path { mtu: 0, source: any, asked: now },
        };
        if self.known.len() >= MAX_PATHS {
            self.known.clear();
        }
        self.known.insert(to, path);
        path
    }

    fn beyond_told(&mut self, to: IpAddr, mtu: u32) -> u32 {
        match self.told.get(&to) {
            Some((told, carried)) if *told == mtu => *carried,
            // Somebody on the path says less, or it is forgotten.
            Some(_) => {
                self.told.remove(&to);
                mtu
            }
            None => mtu,
        }
    }

    /// A sender was told that packets to an address may have `mtu` bytes before they are sealed.
    pub fn tell(&mut self, to: IpAddr, mtu: u32, now: Instant) {
        if self.told.len() >= MAX_PATHS {
            self.told.clear();
        }
        let carried = self.to(to, now).mtu;
        self.told.insert(to, (mtu, carried));
    }

    /// What was said about an address is not so any more.
    pub fn forget(&mut self, to: IpAddr) {
        self.known.remove(&to);
    }
}

fn ask(to: IpAddr, any: IpAddr, mark: u32) -> io::Result<(u32, IpAddr)> {
    let socket = UdpSocket::bind((any, 0))?;
    super::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    socket.connect((to, 9))?;
    let (level, option) =
        if to.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let (mut mtu, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: four writable bytes.
    let r = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut len) };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((mtu as u32, socket.local_addr()?.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{link, testing};

    /// How many routes the tables of devices have.
    fn routes() -> io::Result<usize> {
        let mut messages = Messages::new();
        messages.push(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, &[0; 12], |_| {});
        Socket::open(libc::NETLINK_ROUTE)?.dump(&messages, |ours: &mut usize, message| {
            let mut attributes = nl::Attrs::new(message.payload.get(12..).unwrap_or_default());
            let is = |a: nl::Attr<'_>| a.type_ == libc::RTA_TABLE && a.payload == table(1).to_ne_bytes();
            *ours += usize::from(attributes.any(is));
        })
    }

    #[test]
    fn narrow_paths_are_forgotten_some_at_a_time() {
        let Some((a, _b)) = testing::pair("transport::route::narrow") else { return };
        a.run(|| {
            let mut narrow = Narrow::new(1, link::index("a")?)?;
            let (start, more) = (Instant::now(), FORGET as u8 + 10);
            for last in 0..more {
                narrow.set([192, 0, 2, last].into(), 1300, start)?;
            }
            let later = start + NARROW_FOR / 2;
            narrow.set("fd78::1".parse().unwrap(), 1300, later)?;
            assert_eq!((routes()?, narrow.tidy(later)), (usize::from(more) + 1, true), "none is old");
            let old = start + NARROW_FOR + Duration::from_secs(1);
            assert_eq!((narrow.tidy(old), routes()?), (false, 11));
            assert_eq!((narrow.tidy(old), routes()?, narrow.known.len()), (true, 1, 1));
            // One that was forgotten is set anew.
            narrow.set([192, 0, 2, 1].into(), 1300, old)?;
            assert_eq!(routes()?, 2);
            Ok(())
        })
        .expect("routes");
    }
}
