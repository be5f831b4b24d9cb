//! Routing: rules that lead marked packets to TUN devices, the ways of flows that there are, the addresses of this host, and
//! path MTUs.

use super::cbpf::{ALL, NEXT, Program, Size};
use super::families::{FAMILIES, Families};
use super::marks::Bits;
use super::netconf::{RTM_DELNETCONF, RTM_NEWNETCONF, Told};
use super::netlink::{Attributes, IFA_ADDRESS, IFA_LOCAL, Messages, RTAX_MTU, Socket, errno, family, ip};
use super::vti::Vti;
use super::{link, transient};
use arrayvec::ArrayVec;
use rustix::net::sockopt::{ip_mtu, ipv6_mtu};
use sealane_abi::netlink as nl;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The number of our routing table; those of offload devices follow it.
const TABLE: u32 = 0x5ea1;
/// The priority of our rule: after the local table, before the rules that people usually write. The rules of offload
/// devices, which compare more bits of the mark, precede it.
const PRIORITY: u32 = 97;
/// The priority of the rule of [`Ways`], which no packet reaches: ours before it takes them.
const WAYS_PRIORITY: u32 = 98;

/// The priorities of the rules for [`Bits::perhaps_bound`]: the first one leads to the TUN device; the second one leads what has asked for
/// another device past ours to the third one, behind which are the rules of others.
const PERHAPS_BOUND: [u32; 3] = [92, 93, 99];
/// The priority of the rules for packets that may leave only by a TUN device.
const DEVICE_PRIORITY: u32 = 94;
/// The priority of the rules of [`PrefixRules`].
const PREFIX_PRIORITY: u32 = 95;

// Constants of `linux/fib_rules.h` that `libc` lacks.
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_GOTO: u8 = 2;
const FR_ACT_NOP: u8 = 3;
/// The most devices of each kind in one [`Changes`]; others may change the settings of a million.
const MAX_TOLD: usize = 1024;

/// Sends a message for each family; skips families that the kernel lacks.
fn both(mut each: impl FnMut(u8) -> Messages) -> io::Result<()> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    for family in FAMILIES {
        match skip_missing(socket.transact(&each(family as u8))) {
            Err(e) if errno(&e) == Some(libc::EEXIST) => {}
            // The administrator has disabled IPv6 on the device (`disable_ipv6`): packets that are led to it are dropped.
            Err(e) if family == libc::AF_INET6 && errno(&e) == Some(libc::EACCES) => {}
            done => done?,
        }
    }
    Ok(())
}

/// An answer about a family, which the kernel may lack.
fn skip_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if matches!(errno(&e), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => Ok(()),
        done => done,
    }
}

fn rule(type_: u16, flags: u16, family: u8, bits: Bits, number: u8) -> Messages {
    // Packets of a device without a rule of its own reach the stack's TUN device, which drops packets that are not for it.
    let (priority, mask) =
        if number == 0 { (PRIORITY, bits.protect) } else { (PRIORITY - 1, bits.protect | bits.device) };
    let mut messages = Messages::new();
    push_rule(&mut messages, (type_, flags), family, priority, number, |a| of_mark(a, bits.to_device(number), mask));
    messages
}

/// Appends a message about a rule that leads what `selects` writes to the table with a number.
fn push_rule(
    to: &mut Messages,
    what: (u16, u16),
    family: u8,
    priority: u32,
    number: u8,
    selects: impl FnOnce(&mut Attributes<'_>),
) {
    push_action(to, what, family, priority, FR_ACT_TO_TBL, |a| {
        selects(a);
        a.u32(FRA_TABLE, table(number));
    });
}

/// Appends a message about a rule that does something else.
fn push_action(
    to: &mut Messages,
    (type_, flags): (u16, u16),
    family: u8,
    priority: u32,
    action: u8,
    more: impl FnOnce(&mut Attributes<'_>),
) {
    to.push(type_, nl::NLM_F_ACK | flags, &[family, 0, 0, 0, 0, 0, 0, action, 0, 0, 0, 0], |a| {
        a.u32(FRA_PRIORITY, priority);
        more(a);
    });
}

/// Selects packets with a mark.
fn of_mark(a: &mut Attributes<'_>, mark: u32, mask: u32) {
    a.u32(FRA_FWMARK, mark);
    a.u32(FRA_FWMASK, mask);
}

/// The number of the table that leads to the TUN device with this number.
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

/// A rule that leads what may leave only by a TUN device to it. A flowtable looks for the way there when a packet that came
/// from the device has it take a flow over; without this IPv6 finds the way that unprotected packets take.
fn device_rule(type_: u16, flags: u16, family: u8, number: u8, name: Option<&str>) -> Messages {
    let mut messages = Messages::new();
    push_rule(&mut messages, (type_, flags), family, DEVICE_PRIORITY, number, |a| {
        if let Some(name) = name {
            a.str(FRA_OIFNAME, name);
        }
    });
    messages
}

/// Routes packets marked with a number to a device, and to nowhere if that is gone. Existing rules and routes stay.
///
/// # Errors
/// The kernel's.
pub fn install(bits: Bits, number: u8, device: u32) -> io::Result<()> {
    let create = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let replace = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    both(|family| route(libc::RTM_NEWROUTE, create, family, number, None))?;
    both(|family| route(libc::RTM_NEWROUTE, replace, family, number, Some(device)))?;
    both(|family| rule(libc::RTM_NEWRULE, create, family, bits, number))?;
    let name = link::name(device)?;
    both(|family| device_rule(libc::RTM_NEWRULE, create, family, number, Some(&name)))
}

/// Routes packets with the mark of [`Bits::perhaps_bound`]. Existing rules and routes stay.
///
/// A lookup for a socket that is bound to another device fails in [`install`]'s table, and IPv4 then takes the destination for one on that
/// device's link (`ip_route_output_key_hash_rcu`). This table has no route for it, and the rules of others find one.
///
/// # Errors
/// The kernel's.
pub fn install_perhaps_bound(bits: Bits, device: u32) -> io::Result<()> {
    let create = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let replace = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    both(|family| route(libc::RTM_NEWROUTE, replace, family, bits.perhaps_bound_number(), Some(device)))?;
    // Where the second one leads to has to be there before it.
    for place in [2, 1, 0] {
        both(|family| perhaps_bound_rule((libc::RTM_NEWRULE, create), family, bits, place))?;
    }
    Ok(())
}

/// A message about one of the rules for [`Bits::perhaps_bound`].
fn perhaps_bound_rule(what: (u16, u16), family: u8, bits: Bits, place: usize) -> Messages {
    let [_, _, behind] = PERHAPS_BOUND;
    let selects = |a: &mut Attributes<'_>| of_mark(a, bits.perhaps_bound(), bits.protect | bits.device);
    let (mut messages, priority) = (Messages::new(), PERHAPS_BOUND[place]);
    match place {
        0 => push_rule(&mut messages, what, family, priority, bits.perhaps_bound_number(), selects),
        1 => push_action(&mut messages, what, family, priority, FR_ACT_GOTO, |a| {
            selects(a);
            a.u32(FRA_GOTO, behind);
        }),
        _ => push_action(&mut messages, what, family, priority, FR_ACT_NOP, |_| {}),
    }
    messages
}

/// The ways that the kernel keeps for flows that there are. A flow that a flowtable has taken over passes all rules by as long
/// as its way is good.
#[derive(Debug)]
pub struct Ways {
    socket: Socket,
    bits: Bits,
    stale: Families,
}

impl Ways {
    /// Those of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(bits: Bits) -> io::Result<Self> {
        Ok(Ways { socket: Socket::open(libc::NETLINK_ROUTE)?, bits, stale: Families::default() })
    }

    /// Has the kernel choose them anew, as Linux does when a policy comes (`xfrm_policy_insert`), for flows of these families
    /// and of those for which it has failed before.
    ///
    /// # Errors
    /// The kernel's.
    pub fn choose_anew(&mut self, families: Families) -> io::Result<()> {
        self.stale = Families { v4: self.stale.v4 || families.v4, v6: self.stale.v6 || families.v6 };
        for family in self.stale.iter() {
            // A change of rules makes every way that was chosen before it stale (`fib_rules_ops.flush_cache`).
            let mut messages = Messages::new();
            for what in [(libc::RTM_NEWRULE, libc::NLM_F_CREATE as u16), (libc::RTM_DELRULE, 0)] {
                let mark = self.bits.to_device(0);
                push_rule(&mut messages, what, family, WAYS_PRIORITY, 0, |a| of_mark(a, mark, self.bits.protect));
            }
            skip_missing(self.socket.transact(&messages))?;
        }
        self.stale = Families::default();
        Ok(())
    }
}

/// The groups of notifications about rules, devices, their addresses and settings, and about routes.
const RULE_GROUPS: [u32; 5] = [
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_NETCONF,
];
const ROUTE_GROUPS: [u32; 2] = [libc::RTNLGRP_IPV4_ROUTE, libc::RTNLGRP_IPV6_ROUTE];

/// Changes that others have made.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// A rule or a route of a table like ours has been removed, or a device has been put up, whose routes went when it was put
    /// down.
    pub routes: bool,
    /// A device has changed or gone.
    pub devices: bool,
    /// The devices that have gone.
    pub gone: Gone,
    /// A device has lost an IPv4 address, without which packets do not come out of ours.
    pub addresses: bool,
    /// The numbers of devices whose `rp_filter` has become strict, which drops packets from a tunnel.
    pub strict: Vec<u32>,
    /// `forwarding` of some device has been set, or a device has gone.
    pub forwarding: bool,
    /// VTI devices that have been made or changed.
    pub vtis: Vec<Vti>,
}

impl Changes {
    /// Notes a device's settings.
    fn note(&mut self, told: Told) {
        const STRICT: u32 = 1;
        self.forwarding |= told.forwarding.is_some();
        if told.rp_filter == Some(STRICT) && self.strict.len() < MAX_TOLD {
            self.strict.push(told.ifindex);
        }
    }
}

/// Tells when others change what leads packets to our devices, or keeps them from coming out of them.
#[derive(Debug)]
pub struct Watch {
    rules: Socket,
    routes: Socket,
}

impl Watch {
    /// Watches in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        let [rules, routes] = [Socket::open(libc::NETLINK_ROUTE)?, Socket::open(libc::NETLINK_ROUTE)?];
        // A router has a million routes that come and go. Only those are told that leave a table with a number above 255.
        routes.keep_only(&removed_routes())?;
        RULE_GROUPS.iter().try_for_each(|group| rules.join(*group))?;
        ROUTE_GROUPS.iter().try_for_each(|group| routes.join(*group))?;
        Ok(Watch { rules, routes })
    }

    /// The descriptors that become readable.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.rules.as_fd(), self.routes.as_fd()]
    }

    /// The changes since the last call, perhaps of what is not ours. Does not wait.
    pub fn changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        for socket in [&mut self.rules, &mut self.routes] {
            let read = socket.receive(|message| match message.header.nlmsg_type {
                libc::RTM_DELRULE => changes.routes |= !is_of_ways(message.payload),
                libc::RTM_DELROUTE => changes.routes = true,
                // With a device's last address its routes go, of which nobody is told (`fib_disable_ip`).
                libc::RTM_DELADDR => (changes.addresses, changes.routes) = (true, true),
                libc::RTM_DELLINK => {
                    changes.devices = true;
                    // A device that leaves a bridge is reported like this too, with the bridge's family.
                    if message.payload.first() == Some(&0) {
                        changes.gone.note(message.payload);
                    }
                }
                libc::RTM_NEWLINK => {
                    changes.devices = true;
                    changes.routes |= is_put_up(message.payload);
                    if changes.vtis.len() < MAX_TOLD {
                        changes.vtis.extend(Vti::of(message.payload));
                    }
                }
                RTM_NEWNETCONF => Told::of(message.payload).into_iter().for_each(|told| changes.note(told)),
                RTM_DELNETCONF => changes.forwarding = true,
                _ => {}
            });
            // Lost messages may have been about ours.
            changes.routes |= read.is_err();
            changes.devices |= read.is_err();
            changes.gone.any |= read.is_err();
            changes.addresses |= read.is_err();
        }
        changes
    }
}

/// The devices that have gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone {
    /// Whether it may be any.
    any: bool,
    indices: BTreeSet<u32>,
}

impl Gone {
    /// Whether a device may be one of them.
    pub fn has(&self, index: u32) -> bool {
        self.any || self.indices.contains(&index)
    }

    /// Notes the device of a message (`struct ifinfomsg`).
    fn note(&mut self, message: &[u8]) {
        let index = message.get(4..).and_then(|rest| rest.first_chunk()).map(|bytes| u32::from_ne_bytes(*bytes));
        match index {
            Some(index) if self.indices.len() < MAX_TOLD => self.indices.extend([index]),
            _ => self.any = true,
        }
    }
}

/// Whether a message (`struct fib_rule_hdr`) is about the rule of [`Ways`].
fn is_of_ways(message: &[u8]) -> bool {
    const FIXED: usize = 12;
    let has = |type_, value: u32| {
        nl::Attrs::new(message.get(FIXED..).unwrap_or_default())
            .any(|attribute| attribute.type_ == type_ && attribute.payload == value.to_ne_bytes())
    };
    has(FRA_PRIORITY, WAYS_PRIORITY) && has(FRA_TABLE, TABLE)
}

/// Whether a message (`struct ifinfomsg`) says that a device has been put up.
fn is_put_up(message: &[u8]) -> bool {
    let word = |at: usize| message.get(at..at + 4)?.first_chunk().map(|b| u32::from_ne_bytes(*b));
    let up = libc::IFF_UP as u32;
    word(8).zip(word(12)).is_some_and(|(flags, changed)| flags & changed & up != 0)
}

/// The filter of [`Watch`], over `struct nlmsghdr` and `struct rtmsg`.
fn removed_routes() -> Vec<libc::sock_filter> {
    let mut program = Program::new();
    // The program loads in network byte order what the kernel has written in the machine's.
    program.load(Size::Half, 4).jump(libc::BPF_JEQ, libc::RTM_DELROUTE.to_be().into(), NEXT, "skip");
    program.load(Size::Byte, 16 + 4).jump(libc::BPF_JEQ, libc::RT_TABLE_COMPAT.into(), NEXT, "skip");
    program.ret(ALL).label("skip").ret(0);
    program.assemble()
}

/// Removes our rules and routes.
///
/// # Errors
/// The kernel's.
pub fn remove_all(bits: Bits) -> io::Result<()> {
    let gone = |done: io::Result<()>| match done {
        Err(e) if matches!(errno(&e), Some(libc::ENOENT | libc::ESRCH)) => Ok(()),
        done => done,
    };
    for number in 0..=bits.last_device() {
        gone(both(|family| device_rule(libc::RTM_DELRULE, 0, family, number, None)))?;
        gone(both(|family| rule(libc::RTM_DELRULE, 0, family, bits, number)))?;
        gone(both(|family| route(libc::RTM_DELROUTE, 0, family, number, None)))?;
    }
    for place in 0..PERHAPS_BOUND.len() {
        gone(both(|family| perhaps_bound_rule((libc::RTM_DELRULE, 0), family, bits, place)))?;
    }
    Ok(())
}

/// Packets that are routed to a device at once, without being marked first: a source and a destination prefix of one
/// family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrefixRule {
    /// Source prefix.
    pub source: (IpAddr, u8),
    /// Destination prefix.
    pub destination: (IpAddr, u8),
    /// The number of the device.
    pub number: u8,
}

impl PrefixRule {
    /// A rule for packets without a mark: our own packets have one.
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
            of_mark(a, 0, u32::MAX);
            a.u32(FRA_TABLE, table(self.number));
        });
        messages
    }
}

/// Rules that route packets to devices directly, which saves the second route lookup after marking. They are optional:
/// marks handle all other packets.
#[derive(Debug, Default)]
pub struct PrefixRules(BTreeSet<PrefixRule>);

impl PrefixRules {
    /// Whether exactly these rules are installed.
    pub fn are(&self, wanted: &BTreeSet<PrefixRule>) -> bool {
        self.0 == *wanted
    }

    /// Installs exactly these rules.
    ///
    /// # Errors
    /// The kernel's; it is then unknown which rules are installed.
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

    /// Removes all of these rules, including those of an earlier daemon; rules of others stay.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&mut self, bits: Bits) -> io::Result<()> {
        self.0.clear();
        let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
        for (family, number) in FAMILIES.into_iter().flat_map(|f| (1..=bits.last_device()).map(move |n| (f, n))) {
            let mut messages = Messages::new();
            push_rule(&mut messages, (libc::RTM_DELRULE, 0), family as u8, PREFIX_PRIORITY, number, |_| {});
            // Each message deletes one rule.
            while socket.transact(&messages).is_ok() {}
        }
        Ok(())
    }
}

/// The time for which a smaller path MTU is believed, as in the kernel (`mtu_expires`).
const NARROW_FOR: Duration = Duration::from_secs(600);
/// The most destinations that are remembered.
const MAX_NARROW: usize = 4096;
/// The most that are forgotten at a time, because callers with a new one wait for it.
const FORGET: usize = 64;

/// Destinations to which the kernel must fragment packets before they reach the TUN device: the sender's stack does not
/// know of the smaller path MTU, or forgets it when the packet is rerouted to this device.
#[derive(Debug)]
pub struct Narrow {
    numbers: ArrayVec<u8, 2>,
    device: u32,
    socket: Socket,
    known: HashMap<IpAddr, (u32, Instant)>,
}

impl Narrow {
    /// No destinations, for the TUN device with this number and index.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(number: u8, device: u32) -> io::Result<Self> {
        let numbers = [number].into_iter().collect();
        Ok(Narrow { numbers, device, socket: Socket::open(libc::NETLINK_ROUTE)?, known: HashMap::new() })
    }

    /// The same, also for packets that [`install_perhaps_bound`] leads to the device.
    #[must_use]
    pub fn and_perhaps_bound(mut self, bits: Bits) -> Self {
        self.numbers.push(bits.perhaps_bound_number());
        self
    }

    /// Limits packets to an address to `mtu` bytes.
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
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        let last = self.push(&mut messages, libc::RTM_NEWROUTE, flags, to, mtu);
        messages.acknowledge(last);
        self.socket.transact(&messages)
    }

    /// Forgets some expired destinations. Returns whether none are left.
    pub fn tidy(&mut self, now: Instant) -> bool {
        let old = self.known.extract_if(|_, known| now.duration_since(known.1) > NARROW_FOR);
        let old: ArrayVec<(IpAddr, (u32, Instant)), FORGET> = old.take(FORGET).collect();
        let mut messages = Messages::new();
        let mut last = 0;
        for (to, (mtu, _)) in &old {
            last = self.push(&mut messages, libc::RTM_DELROUTE, 0, *to, *mtu);
        }
        if !old.is_empty() {
            messages.acknowledge(last);
            // It is no error if a route is gone already.
            let _ = self.socket.transact(&messages);
        }
        !old.is_full()
    }

    /// Appends a message for each table. Returns where the last one begins.
    fn push(&self, messages: &mut Messages, type_: u16, flags: u16, to: IpAddr, mtu: u32) -> usize {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let (kind, scope) = (libc::RTN_UNICAST, libc::RT_SCOPE_UNIVERSE);
        let fixed = [family(to), bits, 0, 0, libc::RT_TABLE_UNSPEC, libc::RTPROT_STATIC, scope, kind, 0, 0, 0, 0];
        let mut last = 0;
        for number in &self.numbers {
            last = messages.bytes().len();
            messages.push(type_, flags, &fixed, |a| {
                a.u32(libc::RTA_TABLE, table(*number));
                a.ip(libc::RTA_DST, to);
                a.u32(libc::RTA_PRIORITY, 1);
                a.u32(libc::RTA_OIF, self.device);
                a.nest(libc::RTA_METRICS, |a| a.u32(RTAX_MTU, mtu));
            });
        }
        last
    }
}

/// The addresses of this host, kept up to date.
#[derive(Debug)]
pub struct Locals {
    socket: Socket,
    known: HashSet<IpAddr>,
}

impl Locals {
    /// The addresses in the calling thread's namespace.
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
        // On a socket of its own, because notifications and answers must not mix.
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

    /// Applies the changes since the last call.
    ///
    /// # Errors
    /// The kernel's.
    pub fn refresh(&mut self) -> io::Result<()> {
        // The dump includes changes whose notifications were lost.
        let _ = self.socket.receive(|_| {});
        match self.dump() {
            // If addresses keep changing, another notification follows.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            done => done,
        }
    }

    /// All addresses.
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

/// The time for which a route lookup is reused.
const BELIEVED: Duration = Duration::from_secs(1);
/// The same for one that has found no route. A route may come at any time, but not each burst of many can ask for it.
const NOWHERE_BELIEVED: Duration = Duration::from_millis(10);
/// The most lookups that are kept.
const MAX_PATHS: usize = 65_536;

/// The path to a destination.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// The path MTU in bytes; 0 if unknown.
    pub mtu: u32,
    /// The source address of packets on this path.
    pub source: IpAddr,
    /// Whether no route leads there, see [`PathTable::is_unreachable`].
    unreachable: bool,
    asked: Instant,
}

impl Path {
    fn believed_for(&self) -> Duration {
        if self.unreachable { NOWHERE_BELIEVED } else { BELIEVED }
    }
}

/// Paths of the calling thread's namespace, by destination.
#[derive(Debug)]
pub struct PathTable {
    mark: u32,
    /// By the VRF that they are in, or the device that they begin with, 0 for none.
    known: HashMap<(u32, IpAddr), Path>,
    /// By device, source and destination, whether no route leads from the one to the other, and when that was asked.
    nowhere: HashMap<(u32, IpAddr, IpAddr), (bool, Instant)>,
    /// By device and destination, the MTU that senders were told, and the path MTU at that time. The kernel applies the former
    /// also to encrypted packets with the same destination.
    told: HashMap<(u32, IpAddr), (u32, u32)>,
}

impl PathTable {
    /// No paths. `mark` is that of the packets on them.
    pub fn new(mark: u32) -> Self {
        PathTable { mark, known: HashMap::new(), nowhere: HashMap::new(), told: HashMap::new() }
    }

    /// The path to an address. The kernel determines it for a socket connected there, from its routes and from ICMP
    /// errors.
    pub fn to(&mut self, to: IpAddr, now: Instant) -> Path {
        self.by_device(0, to, now)
    }

    /// The path to an address in a VRF or by a device, 0 for none.
    pub fn by_device(&mut self, device: u32, to: IpAddr, now: Instant) -> Path {
        if let Some(path) = self.known.get(&(device, to))
            && now.duration_since(path.asked) < path.believed_for()
        {
            return *path;
        }
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let path = match ask(to, any, device, self.mark) {
            Ok((mtu, source)) => {
                let mtu = self.beyond_told(device, to, mtu);
                Path { mtu, source, unreachable: false, asked: now }
            }
            // Nothing is known to have changed.
            Err(e) if transient::count(&e) && self.known.contains_key(&(device, to)) => {
                Path { asked: now, ..self.known[&(device, to)] }
            }
            Err(e) => Path { mtu: 0, source: any, unreachable: is_without_route(to, &e), asked: now },
        };
        if self.known.len() >= MAX_PATHS {
            self.known.clear();
        }
        self.known.insert((device, to), path);
        path
    }

    /// Whether no route leads to an address, not even for packets from the address `from`: rules may have a route for these
    /// alone. False if it cannot be told, so that such packets are sent.
    pub fn is_unreachable(&mut self, device: u32, from: IpAddr, to: IpAddr, now: Instant) -> bool {
        if !self.by_device(device, to, now).unreachable {
            return false;
        }
        if let Some((unreachable, asked)) = self.nowhere.get(&(device, from, to))
            && now.duration_since(*asked) < NOWHERE_BELIEVED
        {
            return *unreachable;
        }
        let unreachable =
            from.is_unspecified() || ask(to, from, device, self.mark).is_err_and(|e| is_without_route(to, &e));
        if self.nowhere.len() >= MAX_PATHS {
            self.nowhere.clear();
        }
        self.nowhere.insert((device, from, to), (unreachable, now));
        unreachable
    }

    fn beyond_told(&mut self, device: u32, to: IpAddr, mtu: u32) -> u32 {
        match self.told.get(&(device, to)) {
            Some((told, carried)) if *told == mtu => *carried,
            // A router has reported a smaller MTU, or the kernel has forgotten the value.
            Some(_) => {
                self.told.remove(&(device, to));
                mtu
            }
            None => mtu,
        }
    }

    /// Notes that a sender was told to limit its packets to an address to `mtu` bytes before encryption.
    pub fn tell(&mut self, device: u32, to: IpAddr, mtu: u32, now: Instant) {
        if self.told.len() >= MAX_PATHS {
            self.told.clear();
        }
        let carried = self.by_device(device, to, now).mtu;
        self.told.insert((device, to), (mtu, carried));
    }

    /// Forgets the path to an address, so that it is looked up again.
    pub fn forget(&mut self, device: u32, to: IpAddr) {
        self.known.remove(&(device, to));
    }
}

/// The device by which packets without a mark leave for an address, as the kernel's routes have it; none where no route leads there.
///
/// # Errors
/// The kernel's.
pub fn device_to(to: IpAddr) -> io::Result<Option<u32>> {
    const RTMSG_LEN: usize = 12;
    let mut messages = Messages::new();
    let bits = if to.is_ipv4() { 32 } else { 128 };
    messages
        .push(libc::RTM_GETROUTE, 0, &[family(to), bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], |a| a.ip(libc::RTA_DST, to));
    let mut device = None;
    let done = Socket::open(libc::NETLINK_ROUTE)?.request(&messages, |message| {
        let mut attributes = nl::Attrs::new(message.payload.get(RTMSG_LEN..).unwrap_or_default());
        let found = attributes.find(|attribute| attribute.type_ == libc::RTA_OIF);
        device = found.and_then(|a| a.payload.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)));
    });
    match done {
        Err(e) if is_without_route(to, &e) => Ok(None),
        done => done.map(|()| device),
    }
}

/// The path MTU and the source address of packets from an address, or any, to another one, in a VRF or by a device unless that is 0.
fn ask(to: IpAddr, from: IpAddr, device: u32, mark: u32) -> io::Result<(u32, IpAddr)> {
    let socket = UdpSocket::bind((from, 0))?;
    if device != 0 {
        super::socket::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &device)?;
    }
    super::socket::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    socket.connect((to, 9))?;
    let mtu = if to.is_ipv4() { ip_mtu(&socket)? } else { ipv6_mtu(&socket)? };
    Ok((mtu, socket.local_addr()?.ip()))
}

/// Whether an error says that no route leads to an address, or one that leads nowhere: of kind `prohibit` (EACCES) or
/// `blackhole` (EINVAL). A broadcast address has EACCES, too, also for the packets themselves.
fn is_without_route(to: IpAddr, error: &io::Error) -> bool {
    match errno(error) {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES) => true,
        // Of addresses of a link it says that no interface was named.
        Some(libc::EINVAL) => !matches!(to, IpAddr::V6(to) if to.is_unicast_link_local() || to.is_multicast()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{link, testing};

    /// The number of routes in the table of a device.
    fn routes(number: u8) -> io::Result<usize> {
        let mut messages = Messages::new();
        messages.push(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, &[0; 12], |_| {});
        Socket::open(libc::NETLINK_ROUTE)?.dump(&messages, |ours: &mut usize, message| {
            let mut attributes = nl::Attrs::new(message.payload.get(12..).unwrap_or_default());
            let is = |a: nl::Attr<'_>| a.type_ == libc::RTA_TABLE && a.payload == table(number).to_ne_bytes();
            *ours += usize::from(attributes.any(is));
        })
    }

    #[test]
    fn narrow_paths_are_forgotten_some_at_a_time() {
        let Some((a, _b)) = testing::pair("sys::route::narrow") else { return };
        a.run(|| {
            let mut narrow = Narrow::new(1, link::index("a")?)?;
            let (start, more) = (Instant::now(), FORGET as u8 + 10);
            for last in 0..more {
                narrow.set([192, 0, 2, last].into(), 1300, start)?;
            }
            let later = start + NARROW_FOR / 2;
            narrow.set("fd78::1".parse().unwrap(), 1300, later)?;
            assert_eq!((routes(1)?, narrow.tidy(later)), (usize::from(more) + 1, true), "none is old");
            let old = start + NARROW_FOR + Duration::from_secs(1);
            assert_eq!((narrow.tidy(old), routes(1)?), (false, 11));
            assert_eq!((narrow.tidy(old), routes(1)?, narrow.known.len()), (true, 1, 1));
            // A forgotten destination is added again.
            narrow.set([192, 0, 2, 1].into(), 1300, old)?;
            assert_eq!(routes(1)?, 2);
            // Those of packets that may be bound to another device are in their table, too.
            let bits = Bits::new(0, 0);
            let bound = bits.perhaps_bound_number();
            let mut narrow = Narrow::new(2, link::index("a")?)?.and_perhaps_bound(bits);
            narrow.set("fd78::2".parse().unwrap(), 1300, start)?;
            assert_eq!((routes(2)?, routes(bound)?), (1, 1));
            assert_eq!((narrow.tidy(old), routes(2)?, routes(bound)?), (true, 0, 0));
            Ok(())
        })
        .expect("routes");
    }

    #[test]
    fn routes_that_lead_nowhere_are_none() {
        let Some(here) = testing::namespace("sys::route::nowhere") else { return };
        here.run(|| {
            let (mut paths, mut socket, now) = (PathTable::new(0), Socket::open(libc::NETLINK_ROUTE)?, Instant::now());
            for (last, kind) in (1..).zip([libc::RTN_UNREACHABLE, libc::RTN_BLACKHOLE, libc::RTN_PROHIBIT]) {
                let (v4, v6) =
                    (Ipv4Addr::new(192, 0, 2, last), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()));
                let ways: [(IpAddr, IpAddr, u8); 2] =
                    [(Ipv4Addr::LOCALHOST.into(), v4.into(), 32), (Ipv6Addr::LOCALHOST.into(), v6.into(), 128)];
                for (from, to, bits) in ways {
                    let mut messages = Messages::new();
                    let (table, scope) = (libc::RT_TABLE_MAIN, libc::RT_SCOPE_UNIVERSE);
                    let fixed = [family(to), bits, 0, 0, table, libc::RTPROT_STATIC, scope, kind, 0, 0, 0, 0];
                    let flags = nl::NLM_F_ACK | libc::NLM_F_CREATE as u16;
                    messages.push(libc::RTM_NEWROUTE, flags, &fixed, |a| a.ip(libc::RTA_DST, to));
                    socket.transact(&messages)?;
                    assert!(paths.is_unreachable(0, from, to, now), "{to}, by a route of kind {kind}");
                }
            }
            // The routes of links cannot be asked for by an address alone.
            let neighbours = ["fe80::1", "fe80::2"].map(|a| a.parse().expect("an address"));
            assert!(!paths.is_unreachable(0, neighbours[0], neighbours[1], now));
            Ok(())
        })
        .expect("routes");
    }

    #[test]
    fn no_route_is_told_from_one_for_a_source() {
        let Some((a, _b)) = testing::pair("sys::route::no_route") else { return };
        a.run(|| {
            let [here, neighbour, there] = [[10, 77, 0, 1], [10, 77, 0, 2], [192, 0, 2, 1]].map(IpAddr::from);
            let (mut paths, start) = (PathTable::new(0), Instant::now());
            assert!(!paths.is_unreachable(0, here, neighbour, start));
            assert!(paths.is_unreachable(0, here, there, start));
            Narrow::new(1, link::index("a")?)?.set(there, 1300, start)?;
            let rule = PrefixRule { source: (here, 32), destination: (there, 32), number: 1 };
            PrefixRules::default().set(BTreeSet::from([rule]))?;
            assert!(paths.is_unreachable(0, here, there, start), "it is not asked for at once");
            let later = start + NOWHERE_BELIEVED;
            assert!(!paths.is_unreachable(0, here, there, later));
            assert!(paths.is_unreachable(0, Ipv4Addr::UNSPECIFIED.into(), there, later), "the route is for one source");
            // An address that is not here.
            assert!(!paths.is_unreachable(0, neighbour, there, later));
            Ok(())
        })
        .expect("routes");
    }
}
