//! The rules that apply IPsec policies to packets, in a table of our own.
//!
//! ```text
//! table inet sealane-ipsec
//!   chain output      type route, hook output       ours, of a state with a mark: set it, accept
//!                                                   ours, exempt sockets': accept;  of users to our TUN device: drop;
//!                                                   to our TUN devices, loopback, IKE, ND: accept;  jump leaving
//!   chain prerouting  hook prerouting               ours, loopback:      accept;  jump leaving
//!   chain leaving     policies 'out' in their order    pass: accept;   protect: set the mark, accept;
//!                                                      block: jump out-block;   the default: jump out-rest
//!   chain out-block, out-rest        forwarded: set the mark, accept;   counter;   TCP's SYN: reject;   drop
//!   chain input       hook input                    from a TUN device of ours, loopback, ESP, AH, IKE, ND: accept
//!                     policies 'in' in their order     pass: accept; protect, block, the default: jump input-...
//!   chain forward     hook forward                  from our TUN devices: accept; policies 'fwd': jump refused-...
//!   chain input-template, input-block, input-rest            for a socket of ours or an exempt one, IPv6's later
//!                                                            fragments: accept;  jump refused-...
//!   chain before-nat  hook postrouting, first       as backstop
//!   chain backstop    hook postrouting, last        loopback, out by our TUN devices, ours, exempt sockets', IKE, ND:
//!                                                   accept
//!                     policies 'out' in their order    pass: accept; protect, block, the default: jump refused-escape
//!   chain refused-template, refused-block, refused-rest, refused-escape      counter, drop
//! ```
//!
//! Marked packets are routed to the TUN device, or to an unreachable route if that is gone ([`crate::route`]). For
//! policies in packet offload, the mark contains the device's number and leads to the TUN device of that offload
//! device. The engine checks the policies again there, so that a rule may match more than its policy, but never less.
//! Packets of a policy that the kernel itself applies, for an offload card, are not marked.
//!
//! As in Linux, policies see packets whose destination has been translated, whose answers have been translated back, and
//! that the mangle tables of others have marked: `output` and `prerouting` come behind all three. Source NAT comes later.
//!
//! The mark and the routing rule are the way to the TUN device, not the protection: others may overwrite a mark, flush
//! routing rules or put theirs before ours. Whatever they do, packets are judged twice more, by their addresses and by the
//! device that they leave by: `before-nat` sees the addresses that the policies are about, and `backstop` what leaves
//! when nothing comes after it any more.
//!
//! Marks that exempt are drawn at random, and only count on packets of our own user's or root's sockets: a container on the
//! host's network may be able to set marks, but not to find these.
//!
//! A later fragment has no ports. Where a policy selects ports, and protects or blocks, it takes all later fragments between
//! its addresses; the engine knows to which packet they belong. In IPv6 it may have no protocol either: where the fragment
//! header names an extension header, the protocol is in the first fragment. Every policy with a protocol that protects or
//! blocks takes those. Connection tracking reassembles packets before these rules see them.
//!
//! Rules change in one transaction and stay in place without the daemon. If the table is owned, only chains whose rules
//! change are rewritten, and counters continue.
//!
//! The socket that writes the table owns it: `nft flush ruleset` of others leaves it alone as long as somebody has that
//! socket open, which may be a process that keeps it for the next daemon. Before Linux 6.9 an owned table is removed with
//! its owner's socket, so that a second table without an owner, `sealane-ipsec-guard`, has the chains that drop. It takes
//! a flush and the end of everybody who has the socket to remove both.

use super::expr::{self, R1, Rule};
use super::write::{
    Base, Batch, NFT_TABLE_F_OWNER, NFT_TABLE_F_PERSIST, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE,
    delete_rules, delete_table, exists, write_chain, write_rule, write_table,
};
use super::{INET, Messages, Socket, Watch, errno, nl, told};
use crate::families::Families;
use crate::{mask, random, rights};
use arrayvec::ArrayVec;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The name of the table.
const TABLE: &str = "sealane-ipsec";
/// The name of the table without an owner, where [`TABLE`] would not outlive its owner.
const GUARD: &str = "sealane-ipsec-guard";

/// Bits of packet marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// Set in packets that must go to a TUN device.
    pub protect: u32,
    /// The number of that TUN device; 0 is the one of the stack's path.
    pub device: u32,
    /// The mark of our own packets, to which no policy applies; its two lower bits are ignored.
    pub exempt: u32,
    /// The mark of programs' sockets that policies of their own exempt; [`Bits::PROGRAM_IN`] and [`Bits::PROGRAM_OUT`] tell
    /// in which directions.
    pub programs: u32,
}

/// A bit that every exempt mark has: none is 0, which packets without a mark have.
const EXEMPT: u32 = 0x4000_0000;

impl Bits {
    /// Bits with exempt marks that were drawn.
    pub fn new(exempt: u32, programs: u32) -> Self {
        Bits { exempt: exempt & !3, programs: programs & !3, ..Bits::WITHOUT_EXEMPT }
    }

    /// In the mark of a program's socket: no policy covers what comes to it.
    pub const PROGRAM_IN: u32 = 1;
    /// In the mark of a program's socket: no policy covers what it sends.
    pub const PROGRAM_OUT: u32 = 2;

    /// Bits that exempt nothing.
    const WITHOUT_EXEMPT: Bits = Bits { protect: 0x2000_0000, device: 0x1c00_0000, exempt: 0, programs: 0 };

    /// Draws an exempt mark, which nobody can guess. It does not lead to a TUN device.
    pub fn draw() -> u32 {
        let mut bytes = [0; 4];
        random::fill(&mut bytes);
        u32::from_ne_bytes(bytes) & !Bits::WITHOUT_EXEMPT.protect | EXEMPT
    }

    /// Whether a number could have been drawn.
    pub fn is_drawn(mark: u32) -> bool {
        mark & (Bits::WITHOUT_EXEMPT.protect | EXEMPT) == EXEMPT
    }

    /// The highest device number.
    pub fn last_device(self) -> u8 {
        (self.device >> self.device.trailing_zeros()) as u8
    }

    /// The mark bits that lead to a device.
    pub fn to_device(self, number: u8) -> u32 {
        self.protect | (u32::from(number) << self.device.trailing_zeros()) & self.device
    }
}

/// A packet selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Source prefix; its family is that of the packets.
    pub source: (IpAddr, u8),
    /// Destination prefix.
    pub destination: (IpAddr, u8),
    /// Protocol; 0 for all.
    pub proto: u8,
    /// Source port and its mask.
    pub sport: (u16, u16),
    /// Destination port and its mask.
    pub dport: (u16, u16),
    /// Mark and its mask.
    pub mark: (u32, u32),
}

/// The treatment of matching packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// They pass unchanged, or the kernel's own policy applies.
    Pass,
    /// They require protection: outgoing packets go to the TUN device with this number, where the engine decides;
    /// incoming unprotected ones are dropped.
    Protect(u8),
    /// They are dropped, incoming ones even if they were protected. The sender of an outgoing one gets an error.
    Block,
}

/// Reasons for which the rules drop unprotected packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A policy requires protection.
    Template,
    /// A policy blocks.
    Block,
    /// There is no policy, and the default blocks.
    Rest,
    /// A packet that a policy protects or blocks was about to leave by another device than ours.
    Escape,
    /// A policy keeps a packet of this host from leaving.
    OutBlock,
    /// The same where there is no policy, and the default blocks.
    OutRest,
}

impl Refused {
    /// All reasons.
    pub const ALL: [Refused; 6] =
        [Refused::Template, Refused::Block, Refused::Rest, Refused::Escape, Refused::OutBlock, Refused::OutRest];

    /// The reasons for packets to this host, with chains that exempt ESP in UDP on ports other than the IKE daemon's.
    const INPUT: [(Refused, &'static str); 3] =
        [(Refused::Template, "input-template"), (Refused::Block, "input-block"), (Refused::Rest, "input-rest")];

    /// The chain for packets to this host.
    fn input(self) -> &'static str {
        Refused::INPUT.iter().find(|(why, _)| *why == self).map_or(self.chain(), |(_, name)| name)
    }

    /// The chain that counts and drops packets.
    fn chain(self) -> &'static str {
        match self {
            Refused::Template => "refused-template",
            Refused::Block => "refused-block",
            Refused::Rest => "refused-rest",
            Refused::Escape => "refused-escape",
            Refused::OutBlock => "out-block",
            Refused::OutRest => "out-rest",
        }
    }
}

/// The rules of one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// In the order of the policies.
    pub list: Vec<(Match, Then)>,
    /// Whether packets without a policy are blocked.
    pub block_rest: bool,
}

impl Rules {
    fn of_family(&self, is_v4: bool) -> impl Iterator<Item = &(Match, Then)> {
        self.list.iter().filter(move |(of, _)| of.source.0.is_ipv4() == is_v4)
    }
}

/// The rules of all directions, with the devices and states that they depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Packets for this host.
    pub input: Rules,
    /// Outgoing packets.
    pub output: Rules,
    /// Forwarded packets.
    pub forward: Rules,
    /// The TUN devices of packet offload. Packets from them were protected, like those from the TUN device of the
    /// stack's path.
    pub devices: Vec<String>,
    /// Xfrm interfaces. Packets from them have passed their policies; encrypted packets must not enter them again.
    pub interfaces: Vec<String>,
    /// States whose encrypted packets get a mark, by which they are rerouted.
    pub marks: Vec<StateMark>,
}

/// The mark for encrypted packets of a state (`XFRMA_SET_MARK`), by which they are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateMark {
    /// The state's destination.
    pub destination: IpAddr,
    /// The protocol after the IP header: ESP, AH, or UDP for ESP in UDP.
    pub proto: u8,
    /// The state's SPI.
    pub spi: u32,
    /// The mark.
    pub mark: u32,
}

/// The table in the namespace of the thread that made it.
#[derive(Debug)]
pub struct PolicyTable {
    socket: Socket,
    device: String,
    bits: Bits,
    /// The user of our own sockets as rules see it, where they can tell.
    user: Option<u32>,
    flags: u32,
    there: bool,
    /// Whether this kernel's rules support socket lookups and counters.
    sockets: bool,
    counts: bool,
    /// Whether this process has written the table, and the numbers of packets that its rules had dropped at the last
    /// look, in the order of [`Refused::ALL`].
    ours: bool,
    dropped: [u64; Refused::ALL.len()],
    /// Whether this kernel's rules can answer with an ICMP error.
    rejects: bool,
    /// The rules in the table, if this process has written it.
    written: Wanted,
}

/// The type, hook and priority of a base chain.
type Hook = (&'static str, i32, i32);
/// The chains whose rules depend on policies, states and devices.
const CHANGING: [(&str, Option<Hook>); 7] = [
    ("leaving", None),
    ("output", Some(("route", libc::NF_INET_LOCAL_OUT, BEHIND_NAT))),
    ("prerouting", Some(("filter", libc::NF_INET_PRE_ROUTING, BEHIND_NAT))),
    ("input", Some(("filter", libc::NF_INET_LOCAL_IN, PRIORITY))),
    ("forward", Some(("filter", libc::NF_INET_FORWARD, PRIORITY))),
    ("before-nat", Some(("filter", libc::NF_INET_POST_ROUTING, i32::MIN + 1))),
    ("backstop", Some(("filter", libc::NF_INET_POST_ROUTING, i32::MAX - 2))),
];
/// The chains of the table without an owner, which judge packets after those of [`CHANGING`].
const GUARDING: [(&str, Option<Hook>); 4] = [
    ("input", Some(("filter", libc::NF_INET_LOCAL_IN, PRIORITY + 1))),
    ("forward", Some(("filter", libc::NF_INET_FORWARD, PRIORITY + 1))),
    ("before-nat", Some(("filter", libc::NF_INET_POST_ROUTING, i32::MIN + 2))),
    ("backstop", Some(("filter", libc::NF_INET_POST_ROUTING, i32::MAX - 1))),
];
/// The chains of what leaves; the last two judge whether it may.
const LEAVES: [&str; 3] = ["output", "before-nat", "backstop"];
const LAST: [&str; 2] = [LEAVES[1], LEAVES[2]];
/// Before the filters of others.
const PRIORITY: i32 = -150;
/// Behind the translation of destinations and back (NF_IP_PRI_NAT_DST), and behind the mangle tables of others.
const BEHIND_NAT: i32 = -99;
/// ICMPv6 types of neighbour discovery (RFC 4861).
const ND_FIRST: u8 = 133;
const ND_LAST: u8 = 137;
/// Their hop limit, and its place in the header.
const ND_HOP_LIMIT: u8 = 255;
const IPV6_HOP_LIMIT: u32 = 7;
/// The last number of an extension header of IPv6 that may stand behind a fragment header and before another header, and the
/// ranges of protocols below it: what is left are hop-by-hop options (0), routing and fragment header (43, 44), and
/// destination options (60).
const V6_LAST_HEADER: u8 = libc::IPPROTO_DSTOPTS as u8;
const V6_PROTOCOLS: [(u8, u8); 2] =
    [(1, libc::IPPROTO_ROUTING as u8 - 1), (libc::IPPROTO_FRAGMENT as u8 + 1, V6_LAST_HEADER - 1)];
const IKE_PORTS: [u16; 2] = [500, 4500];
/// Type and code of the errors by which a host says that it does not know a protocol (RFC 792, RFC 4443).
const ICMP_UNKNOWN_PROTOCOL: [u8; 2] = [3, 2];
const ICMPV6_UNKNOWN_HEADER: [u8; 2] = [4, 1];
/// The place of the flags in a TCP header; of SYN, RST and ACK, those that the first segment of a connection has.
const TCP_FLAGS: u32 = 13;
const TCP_OPENING: (u8, u8) = (0x16, 0x02);
/// The length of the header of both before the packet that they quote, and where that packet has its protocol.
const ICMP_LEN: u32 = 8;
const IPV4_PROTOCOL: u32 = 9;
const IPV6_NEXT_HEADER: u32 = 6;

impl PolicyTable {
    /// Creates a table, which the first rules write. `device` is the TUN device's name, and `owner` the socket that owns
    /// the table of a predecessor, if somebody has kept it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(device: &str, bits: Bits, owner: Option<OwnedFd>) -> io::Result<Self> {
        let socket = owner.map_or_else(|| Socket::open(libc::NETLINK_NETFILTER), Socket::adopt)?;
        let mut table = PolicyTable {
            socket,
            device: device.to_owned(),
            bits,
            user: rights::user_in_rules()?,
            flags: NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST,
            there: false,
            sockets: true,
            counts: true,
            ours: false,
            dropped: [0; Refused::ALL.len()],
            rejects: true,
            written: Wanted::default(),
        };
        table.there = table.exists()?.contains(&true);
        Ok(table)
    }

    /// Whether there are tables of ours: with and without an owner.
    fn exists(&mut self) -> io::Result<[bool; 2]> {
        Ok([exists(&mut self.socket, INET, TABLE)?, exists(&mut self.socket, INET, GUARD)?])
    }

    /// The socket that owns the table. As long as somebody has it open, others cannot remove the rules.
    pub fn owner(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Watches for changes of the table by others.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self) -> io::Result<Watch> {
        // Tables of [`super::ingress`] have the same name in another family, and sockets of their own.
        Watch::over(&[TABLE, GUARD], &[INET], self.socket.port()?)
    }

    /// Writes the last rules again, whatever is there. Nothing happens if this process has written none.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn restore(&mut self) -> io::Result<()> {
        if !self.ours {
            return Ok(());
        }
        let wanted = self.written.clone();
        self.replace(wanted)
    }

    /// Whether a table exists, ours or that of a predecessor that died.
    pub fn is_there(&self) -> bool {
        self.there
    }

    /// The number of packets that the rules have dropped since this table was created, in the order of
    /// [`Refused::ALL`]; the last known numbers if the kernel does not answer.
    pub fn dropped(&mut self) -> [u64; Refused::ALL.len()] {
        if self.ours && self.counts {
            for (at, why) in Refused::ALL.into_iter().enumerate() {
                if let Ok(Some(packets)) = self.counted(why.chain()) {
                    self.dropped[at] = packets.max(self.dropped[at]);
                }
            }
        }
        self.dropped
    }

    /// The number of packets that a chain's rule has counted.
    fn counted(&mut self, chain: &str) -> io::Result<Option<u64>> {
        let mut messages = Messages::new();
        let type_ = (libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_GETRULE) as u16;
        messages.push(type_, nl::NLM_F_DUMP, &[INET, 0, 0, 0], |a| {
            a.str(NFTA_RULE_TABLE, TABLE);
            a.str(NFTA_RULE_CHAIN, chain);
        });
        let mut packets = None;
        self.socket.request(&messages, |message| {
            let of = |bytes, type_| nl::Attrs::new(bytes).find(|a| a.type_ == type_).map(|a| a.payload);
            let attributes = message.payload.get(4..).unwrap_or_default();
            // Older kernels do not filter by chain.
            let is_it =
                of(attributes, NFTA_RULE_CHAIN).and_then(|name| name.strip_suffix(&[0])) == Some(chain.as_bytes());
            if let (true, Some(list)) = (is_it, of(attributes, NFTA_RULE_EXPRESSIONS)) {
                packets = packets.or_else(|| nl::Attrs::new(list).find_map(|element| expr::counted(element.payload)));
            }
        })?;
        Ok(packets)
    }

    /// The names of the chains whose rules, as the kernel has them, are not these.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unlike(&mut self, wanted: &Wanted) -> io::Result<BTreeSet<String>> {
        let mut batch = Batch::new();
        self.write_all(&mut batch, wanted);
        told::unlike(&mut self.socket, TABLE, &batch)
    }

    /// Writes these rules in one transaction. Returns the families for whose packets they are others than before.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn write(&mut self, wanted: Wanted) -> io::Result<Families> {
        let families = if self.ours { self.written.families(&wanted) } else { Families::ALL };
        // A table without an owner may have been changed by others.
        if self.ours && self.flags != 0 {
            let mut batch = Batch::new();
            let stale: ArrayVec<&str, { CHANGING.len() }> = self.written.differ(&wanted).collect();
            stale.iter().for_each(|name| delete_rules(&mut batch, (INET, TABLE), name));
            self.write_rules(&mut Chains { batch: &mut batch, table: TABLE, names: &stale }, &wanted);
            let guard = !stale.is_empty() && self.flags == NFT_TABLE_F_OWNER;
            if guard {
                if exists(&mut self.socket, INET, GUARD)? {
                    delete_table(&mut batch, INET, GUARD);
                }
                self.write_guard(&mut batch, &wanted);
            }
            if batch.commit(&mut self.socket).is_ok() {
                self.written = wanted;
                return Ok(families);
            }
        }
        self.replace(wanted)?;
        Ok(families)
    }

    /// Writes all tables, in place of those that are there.
    fn replace(&mut self, wanted: Wanted) -> io::Result<()> {
        // The new counters continue from the old ones; packets dropped in between are not counted.
        self.dropped();
        loop {
            let mut batch = Batch::new();
            let there = self.exists()?;
            for (name, _) in [TABLE, GUARD].into_iter().zip(there).filter(|(_, there)| *there) {
                delete_table(&mut batch, INET, name);
            }
            self.write_all(&mut batch, &wanted);
            if self.flags == NFT_TABLE_F_OWNER {
                self.write_guard(&mut batch, &wanted);
            }
            match batch.replace(&mut self.socket, TABLE) {
                // This kernel's tables do not outlive their owners, or have none. Only the first write can show that.
                Err(e)
                    if matches!(errno(&e), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE))
                        && self.flags != 0
                        && !self.ours =>
                {
                    self.flags = if self.flags == NFT_TABLE_F_OWNER { 0 } else { NFT_TABLE_F_OWNER };
                }
                // Before Linux 5.9 rules that forwarded packets get to cannot answer. Only rules that block show that.
                Err(e) if errno(&e) == Some(libc::EOPNOTSUPP) && self.rejects => self.rejects = false,
                Err(e) if errno(&e) == Some(libc::ENOENT) && self.do_without() => {}
                Ok(()) => {
                    (self.there, self.ours, self.written) = (true, true, wanted);
                    return Ok(());
                }
                failed => return failed,
            }
        }
    }

    /// Chooses the next best rules where the kernel does not know all that there were in the last ones. Returns whether there
    /// are any: rules that drop more or in silence, or do not count, are better than none.
    fn do_without(&mut self) -> bool {
        match (self.rejects, self.sockets, self.counts) {
            (true, ..) => self.rejects = false,
            (false, true, _) => (self.rejects, self.sockets) = (true, false),
            (false, false, true) => (self.rejects, self.counts) = (true, false),
            (false, false, false) => return false,
        }
        true
    }

    /// Deletes all rules.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete(&mut self) -> io::Result<()> {
        let mut batch = Batch::new();
        for (name, _) in [TABLE, GUARD].into_iter().zip(self.exists()?).filter(|(_, there)| *there) {
            delete_table(&mut batch, INET, name);
        }
        self.dropped();
        (self.there, self.ours) = (false, false);
        batch.commit(&mut self.socket)
    }

    fn write_all(&self, batch: &mut Batch, wanted: &Wanted) {
        self.write_one(batch, (TABLE, self.flags), &CHANGING, wanted);
    }

    fn write_guard(&self, batch: &mut Batch, wanted: &Wanted) {
        self.write_one(batch, (GUARD, 0), &GUARDING, wanted);
    }

    /// Writes a table with these base chains, and the chains that they jump to.
    fn write_one(
        &self,
        batch: &mut Batch,
        (table, flags): (&str, u32),
        chains: &[(&'static str, Option<Hook>)],
        wanted: &Wanted,
    ) {
        write_table(batch, INET, table, flags);
        for (why, dropped) in Refused::ALL.into_iter().zip(self.dropped) {
            chain(batch, table, why.chain(), None);
            if matches!(why, Refused::OutBlock | Refused::OutRest) {
                self.write_blocked(batch, table, why, dropped);
                continue;
            }
            write_rule(batch, (INET, table), why.chain(), |r| {
                if self.counts {
                    r.counter(dropped);
                }
                r.drop();
            });
        }
        for (why, input) in Refused::INPUT {
            chain(batch, table, input, None);
            if self.sockets {
                write_rule(batch, (INET, table), input, |r| {
                    r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_UDP as u8]);
                    r.socket_mark(R1).cmp(R1, libc::NFT_CMP_EQ, &self.bits.exempt.to_ne_bytes()).accept();
                });
                write_rule(batch, (INET, table), input, |r| {
                    self.program(r.socket_mark(R1), Bits::PROGRAM_IN).accept();
                });
            }
            // IPv6 fragments are reassembled after this hook. Later fragments are useless without the first one, which
            // is checked.
            write_rule(batch, (INET, table), input, |r| {
                r.meta(libc::NFT_META_NFPROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::NFPROTO_IPV6 as u8]);
                r.v6_fragment(R1).and(R1, &0xfff8u16.to_be_bytes()).cmp(R1, libc::NFT_CMP_NEQ, &[0, 0]).accept();
            });
            write_rule(batch, (INET, table), input, |r| r.jump(why.chain()));
        }
        chains.iter().for_each(|(name, base)| chain(batch, table, name, *base));
        let names: ArrayVec<&str, { CHANGING.len() }> = chains.iter().map(|(name, _)| *name).collect();
        self.write_rules(&mut Chains { batch, table, names: &names }, wanted);
    }

    /// Writes the rules for packets that a policy keeps from leaving. A packet that is dropped on its way out of this host
    /// fails the call that sends it with EPERM, as in Linux, but the one that begins a TCP connection: that would be sent
    /// again and again.
    fn write_blocked(&self, batch: &mut Batch, table: &str, why: Refused, dropped: u64) {
        let name = why.chain();
        // The engine drops and counts what is forwarded. Linux does not tell its sender either.
        write_rule(batch, (INET, table), name, |r| {
            r.meta(libc::NFT_META_IIF, R1).cmp(R1, libc::NFT_CMP_NEQ, &0u32.to_ne_bytes());
            self.protect(r, 0);
        });
        if self.counts {
            write_rule(batch, (INET, table), name, |r| {
                r.counter(dropped);
            });
        }
        if self.rejects {
            write_rule(batch, (INET, table), name, |r| {
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_TCP as u8]);
                r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, TCP_FLAGS, 1, R1).and(R1, &[TCP_OPENING.0]);
                r.cmp(R1, libc::NFT_CMP_EQ, &[TCP_OPENING.1]).reject();
            });
        }
        write_rule(batch, (INET, table), name, |r| r.drop());
    }

    /// Leads packets to the TUN device with a number.
    fn protect(&self, r: &mut Rule<'_, '_>, number: u8) {
        // A mark set by a program must not lead to another device.
        r.meta(libc::NFT_META_MARK, R1).and(R1, &(!self.bits.device).to_ne_bytes());
        r.or(R1, self.bits.to_device(number)).set_mark(R1).accept();
    }

    /// Writes the rules that depend on policies, states and devices.
    fn write_rules(&self, to: &mut Chains<'_>, wanted: &Wanted) {
        // Without a daemon nobody reads ESP, and the kernel would tell the peer that this host does not know it.
        for (icmp, unknown, quoted) in [
            (libc::IPPROTO_ICMP, ICMP_UNKNOWN_PROTOCOL, ICMP_LEN + IPV4_PROTOCOL),
            (libc::IPPROTO_ICMPV6, ICMPV6_UNKNOWN_HEADER, ICMP_LEN + IPV6_NEXT_HEADER),
        ] {
            to.rule("output", |r| {
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[icmp as u8]);
                r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2, R1).cmp(R1, libc::NFT_CMP_EQ, &unknown);
                r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, quoted, 1, R1);
                r.cmp(R1, libc::NFT_CMP_GTE, &[libc::IPPROTO_ESP as u8]);
                r.cmp(R1, libc::NFT_CMP_LTE, &[libc::IPPROTO_AH as u8]).drop();
            });
        }
        for of in &wanted.marks {
            to.rule("output", |r| self.write_mark(r, of));
        }
        // If the route to the peer led through its own tunnel, packets would be encrypted endlessly.
        for of in &wanted.interfaces {
            to.rule("output", |r| {
                r.meta(libc::NFT_META_OIFNAME, R1).cmp(R1, libc::NFT_CMP_EQ, &padded(of));
                self.ours(r).drop();
            });
        }
        for name in ["prerouting", "input"].into_iter().chain(LEAVES) {
            let leaves = LEAVES.contains(&name);
            let key = if leaves { libc::NFT_META_OIF } else { libc::NFT_META_IIF };
            to.rule(name, |r| {
                r.meta(key, R1).cmp(R1, libc::NFT_CMP_EQ, &1u32.to_ne_bytes()).accept();
            });
            to.rule(name, |r| {
                // Nobody can set the mark of a packet that comes from elsewhere. One that leaves has a socket.
                self.ours(r).of_user(self.user.filter(|_| leaves)).accept();
            });
            if name == "output" && self.sockets {
                // The mangle tables of others may have given them another mark.
                to.rule(name, |r| self.exempt(r.socket_mark(R1)).of_user(self.user).accept());
                to.rule(name, |r| {
                    self.program(r.socket_mark(R1), Bits::PROGRAM_OUT).of_user(Some(0)).accept();
                });
            }
            if leaves {
                to.rule(name, |r| {
                    self.program(r.meta(libc::NFT_META_MARK, R1), Bits::PROGRAM_OUT).of_user(Some(0)).accept();
                });
            }
        }
        // Every user may bind a socket to a device. What no policy protects would leave as a packet of ours.
        to.rule("output", |r| {
            r.meta(libc::NFT_META_OIFNAME, R1).cmp(R1, libc::NFT_CMP_EQ, &padded(&self.device));
            r.meta(libc::NFT_META_SKUID, R1).cmp(R1, libc::NFT_CMP_NEQ, &0u32.to_ne_bytes());
            r.jump(Refused::Escape.chain());
        });
        for of in core::iter::once(&self.device).chain(&wanted.devices) {
            let device = padded(of);
            for name in ["input", "forward"] {
                to.rule(name, |r| {
                    r.meta(libc::NFT_META_IIFNAME, R1).cmp(R1, libc::NFT_CMP_EQ, &device).accept();
                });
            }
            // The engine checks these packets there.
            for name in LEAVES {
                to.rule(name, |r| {
                    r.meta(libc::NFT_META_OIFNAME, R1).cmp(R1, libc::NFT_CMP_EQ, &device).accept();
                });
            }
        }
        for of in &wanted.interfaces {
            for name in ["input", "forward"] {
                to.rule(name, |r| {
                    r.meta(libc::NFT_META_IIFNAME, R1).cmp(R1, libc::NFT_CMP_EQ, &padded(of)).accept();
                });
            }
            for name in LAST {
                to.rule(name, |r| {
                    r.meta(libc::NFT_META_OIFNAME, R1).cmp(R1, libc::NFT_CMP_EQ, &padded(of)).accept();
                });
            }
        }
        // It was on its way to a TUN device. Policies that select marks do not match it any more.
        for name in LAST {
            to.rule(name, |r| {
                r.meta(libc::NFT_META_MARK, R1).and(R1, &self.bits.protect.to_ne_bytes());
                r.cmp(R1, libc::NFT_CMP_NEQ, &[0; 4]).jump(Refused::Escape.chain());
            });
        }
        for protocol in [libc::IPPROTO_ESP, libc::IPPROTO_AH] {
            to.rule("input", |r| {
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[protocol as u8]).accept();
            });
            // Ours, where others have overwritten its mark.
            for name in LAST.into_iter().chain((!self.sockets).then_some("output")) {
                to.rule(name, |r| {
                    r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[protocol as u8]);
                    r.of_user(Some(0)).accept();
                });
            }
        }
        // ESP in UDP whose mark we have replaced by that of its state.
        for of in &wanted.marks {
            for name in LAST {
                to.rule(name, |r| {
                    r.of_user(Some(0));
                    write_state_match(r, of);
                    r.accept();
                });
            }
        }
        // Neighbour discovery works on the link, whatever the policies say about hosts; messages from the TUN device
        // would be useless for it.
        for name in ["input"].into_iter().chain(LEAVES) {
            to.rule(name, |r| {
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_ICMPV6 as u8]);
                r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1, R1);
                r.cmp(R1, libc::NFT_CMP_GTE, &[ND_FIRST]).cmp(R1, libc::NFT_CMP_LTE, &[ND_LAST]);
                // No router has forwarded it, and none is going to.
                r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, IPV6_HOP_LIMIT, 1, R1);
                r.cmp(R1, libc::NFT_CMP_EQ, &[ND_HOP_LIMIT]).accept();
            });
        }
        // An IKE daemon creates the policies, so none applies to its own messages.
        for port in IKE_PORTS {
            to.rule("input", |r| {
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_UDP as u8]);
                r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, R1);
                r.cmp(R1, libc::NFT_CMP_EQ, &port.to_be_bytes()).accept();
            });
            for name in LEAVES {
                to.rule(name, |r| {
                    r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_UDP as u8]);
                    r.of_user(Some(0));
                    r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2, R1);
                    r.cmp(R1, libc::NFT_CMP_EQ, &port.to_be_bytes()).accept();
                });
            }
        }
        for name in ["output", "prerouting"] {
            to.rule(name, |r| r.jump("leaving"));
        }
        let refuse = |why: Refused| move |r: &mut Rule<'_, '_>| r.jump(why.chain());
        let (block, rest) = (refuse(Refused::OutBlock), refuse(Refused::OutRest));
        self.policies(to, "leaving", &wanted.output, |r, number| self.protect(r, number), block, rest);
        let ways = [
            ("input", &wanted.input, Refused::input as fn(Refused) -> &'static str),
            ("forward", &wanted.forward, Refused::chain),
            ("before-nat", &wanted.output, |_| Refused::Escape.chain()),
            ("backstop", &wanted.output, |_| Refused::Escape.chain()),
        ];
        for (name, rules, way) in ways {
            let refuse = |why: Refused| move |r: &mut Rule<'_, '_>| r.jump(way(why));
            let protect = |r: &mut Rule<'_, '_>, _| refuse(Refused::Template)(r);
            self.policies(to, name, rules, protect, refuse(Refused::Block), refuse(Refused::Rest));
        }
    }

    /// Continues only for packets with our own mark.
    fn ours<'r, 'a, 'b>(&self, r: &'r mut Rule<'a, 'b>) -> &'r mut Rule<'a, 'b> {
        self.exempt(r.meta(libc::NFT_META_MARK, R1))
    }

    /// Continues only where the mark in the register is that of a socket of ours.
    fn exempt<'r, 'a, 'b>(&self, r: &'r mut Rule<'a, 'b>) -> &'r mut Rule<'a, 'b> {
        r.and(R1, &(!3u32).to_ne_bytes()).cmp(R1, libc::NFT_CMP_EQ, &self.bits.exempt.to_ne_bytes())
    }

    /// Continues only where the mark in the register is that of a program's socket that is exempt in a direction.
    fn program<'r, 'a, 'b>(&self, r: &'r mut Rule<'a, 'b>, direction: u32) -> &'r mut Rule<'a, 'b> {
        let either = Bits::PROGRAM_IN | Bits::PROGRAM_OUT;
        r.and(R1, &(!either | direction).to_ne_bytes());
        r.cmp(R1, libc::NFT_CMP_EQ, &(self.bits.programs | direction).to_ne_bytes())
    }

    /// Sets a state's mark on packets that we send through it, except for the bits that select our devices.
    fn write_mark(&self, r: &mut Rule<'_, '_>, of: &StateMark) {
        self.ours(r);
        write_state_match(r, of);
        let ours = self.bits.protect | self.bits.device;
        r.meta(libc::NFT_META_MARK, R1).and(R1, &[0; 4]).or(R1, of.mark & !ours).set_mark(R1).accept();
    }

    fn policies(
        &self,
        to: &mut Chains<'_>,
        chain: &str,
        rules: &Rules,
        protect: impl Fn(&mut Rule<'_, '_>, u8),
        block: impl Fn(&mut Rule<'_, '_>),
        rest: impl Fn(&mut Rule<'_, '_>),
    ) {
        for (of, then) in &rules.list {
            let verdict = |r: &mut Rule<'_, '_>| match then {
                Then::Pass => r.accept(),
                Then::Protect(number) => protect(r, *number),
                Then::Block => block(r),
            };
            // A fragment that leaves may belong to another policy's packet: the engine knows.
            let fragment = |r: &mut Rule<'_, '_>| match then {
                Then::Block if chain == "leaving" => protect(r, 0),
                _ => verdict(r),
            };
            // Packets to this host are complete when they get to its rules, or useless without the first fragment.
            if *then != Then::Pass && of.selects_ports() && chain != "input" {
                to.rule(chain, |r| {
                    write_later_fragments(r, of);
                    fragment(r);
                });
            }
            if *then != Then::Pass && of.proto != 0 && of.source.0.is_ipv6() && chain != "input" {
                to.rule(chain, |r| {
                    write_nameless_fragments(r, of);
                    fragment(r);
                });
            }
            if of.selects_key() {
                for shape in gre::shapes(of.key()) {
                    to.rule(chain, |r| {
                        // Debian 12's nft aborts where it is to show masked bits of a header behind GRE's number.
                        shape.write(r, of.key());
                        write_match(r, of);
                        verdict(r);
                    });
                }
                continue;
            }
            to.rule(chain, |r| {
                write_match(r, of);
                verdict(r);
            });
        }
        if rules.block_rest {
            to.rule(chain, rest);
        }
    }
}

/// An interface's name, padded as rules compare it.
fn padded(name: &str) -> [u8; libc::IFNAMSIZ] {
    let mut padded = [0; libc::IFNAMSIZ];
    for (to, from) in padded[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    padded
}

/// Continues only for packets of a state.
fn write_state_match(r: &mut Rule<'_, '_>, of: &StateMark) {
    let any = match of.destination {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let spi_at = match i32::from(of.proto) {
        libc::IPPROTO_UDP => 8,
        libc::IPPROTO_AH => 4,
        _ => 0,
    };
    let bits = if of.destination.is_ipv4() { 32 } else { 128 };
    let to = Match {
        source: (any, 0),
        destination: (of.destination, bits),
        proto: of.proto,
        sport: (0, 0),
        dport: (0, 0),
        mark: (0, 0),
    };
    write_match(r, &to);
    r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, spi_at, 4, R1);
    r.cmp(R1, libc::NFT_CMP_EQ, &of.spi.to_be_bytes());
}

/// Continues only for the fragments of IPv6 behind the first, between the addresses and with the mark, whose fragment header
/// names an extension header: nobody can tell their protocol, and for rules they have none.
fn write_nameless_fragments(r: &mut Rule<'_, '_>, of: &Match) {
    write_match(r, &Match { proto: 0, sport: (0, 0), dport: (0, 0), ..*of });
    r.v6_fragment(R1).and(R1, &0xfff8u16.to_be_bytes()).cmp(R1, libc::NFT_CMP_NEQ, &[0, 0]);
    r.v6_fragment_next(R1).cmp(R1, libc::NFT_CMP_LTE, &[V6_LAST_HEADER]);
    let authenticated = libc::IPPROTO_AH as u8;
    for (first, last) in V6_PROTOCOLS {
        // AH counts as a protocol, and as one that rules cannot see here.
        if i32::from(of.proto) == libc::IPPROTO_AH && (first..=last).contains(&authenticated) {
            r.outside(R1, (&[first], &[authenticated - 1])).outside(R1, (&[authenticated + 1], &[last]));
        } else {
            r.outside(R1, (&[first], &[last]));
        }
    }
}

/// Continues only for the fragments behind the first between the addresses, with the protocol and the mark.
fn write_later_fragments(r: &mut Rule<'_, '_>, of: &Match) {
    write_match(r, &Match { sport: (0, 0), dport: (0, 0), ..*of });
    match of.source.0 {
        IpAddr::V4(_) => {
            r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, 6, 2, R1).and(R1, &0x1fffu16.to_be_bytes());
        }
        IpAddr::V6(_) => {
            r.v6_fragment(R1).and(R1, &0xfff8u16.to_be_bytes());
        }
    }
    r.cmp(R1, libc::NFT_CMP_NEQ, &[0, 0]);
}

fn write_match(r: &mut Rule<'_, '_>, of: &Match) {
    let (protocol, source_at, destination_at, len) = match of.source.0 {
        IpAddr::V4(_) => (libc::NFPROTO_IPV4, 12, 16, 4),
        IpAddr::V6(_) => (libc::NFPROTO_IPV6, 8, 24, 16),
    };
    r.meta(libc::NFT_META_NFPROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[protocol as u8]);
    for ((address, bits), at) in [(of.source, source_at), (of.destination, destination_at)] {
        if bits == 0 {
            continue;
        }
        let mut bytes = [0; 16];
        match address {
            IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => bytes.copy_from_slice(&v6.octets()),
        }
        let mask = mask(bits).to_be_bytes();
        bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
        r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, at, len, R1);
        if u32::from(bits) < len * 8 {
            r.and(R1, &mask[..len as usize]);
        }
        r.cmp(R1, libc::NFT_CMP_EQ, &bytes[..len as usize]);
    }
    if of.proto != 0 {
        r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[of.proto]);
    }
    if of.mark.1 != 0 {
        r.meta(libc::NFT_META_MARK, R1).and(R1, &of.mark.1.to_ne_bytes());
        r.cmp(R1, libc::NFT_CMP_EQ, &of.mark.0.to_ne_bytes());
    }
    const PORTS: [i32; 5] =
        [libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_UDPLITE, libc::IPPROTO_SCTP, libc::IPPROTO_DCCP];
    let icmp = [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6].contains(&i32::from(of.proto));
    for ((port, mask), at) in [(of.sport, 0), (of.dport, 2)] {
        if mask == 0 {
        } else if icmp && mask == u16::MAX {
            // Type and code are one byte each.
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, at / 2, 1, R1);
            r.cmp(R1, libc::NFT_CMP_EQ, &[port as u8]);
        } else if i32::from(of.proto) == libc::IPPROTO_MH && at == 0 && mask == u16::MAX {
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 1, R1);
            r.cmp(R1, libc::NFT_CMP_EQ, &[port as u8]);
        } else if PORTS.contains(&i32::from(of.proto)) {
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, at, 2, R1);
            r.and(R1, &mask.to_be_bytes()).cmp(R1, libc::NFT_CMP_EQ, &(port & mask).to_be_bytes());
        }
    }
}

impl Match {
    /// Whether it selects ports, types and codes of ICMP, or keys of GRE, which later fragments lack.
    fn selects_ports(&self) -> bool {
        self.sport.1 != 0 || self.dport.1 != 0
    }

    /// Whether it selects GRE by a key other than 0, which a header without a key counts as.
    fn selects_key(&self) -> bool {
        let (key, mask) = self.key();
        i32::from(self.proto) == libc::IPPROTO_GRE && key & mask != 0
    }

    /// A GRE key and its mask.
    fn key(&self) -> (u32, u32) {
        let whole = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        (whole(self.sport.0, self.dport.0), whole(self.sport.1, self.dport.1))
    }

    /// Whether a rule can express this exactly. Ports of other protocols are left to the engine.
    pub fn is_exact(&self) -> bool {
        let ports = self.selects_ports();
        let whole = [self.sport.1, self.dport.1].iter().all(|mask| [0, u16::MAX].contains(mask));
        match i32::from(self.proto) {
            libc::IPPROTO_TCP | libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE | libc::IPPROTO_SCTP | libc::IPPROTO_DCCP => {
                true
            }
            libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6 => whole,
            libc::IPPROTO_GRE => !ports || self.selects_key(),
            libc::IPPROTO_MH => whole && self.dport.1 == 0,
            _ => !ports,
        }
    }
}

fn chain(batch: &mut Batch, table: &str, name: &str, base: Option<Hook>) {
    let base = base.map(|(kind, hook, priority)| Base { kind, hook, priority, device: None });
    write_chain(batch, (INET, table), name, base);
}

/// The chains of a table that are written; all others keep their rules.
struct Chains<'a> {
    batch: &'a mut Batch,
    table: &'a str,
    names: &'a [&'a str],
}

impl Chains<'_> {
    fn rule(&mut self, chain: &str, expressions: impl FnOnce(&mut Rule<'_, '_>)) {
        if self.names.contains(&chain) {
            write_rule(self.batch, (INET, self.table), chain, expressions);
        }
    }
}

impl Wanted {
    /// The families for whose outgoing and forwarded packets the policies of `that` are others.
    fn families(&self, that: &Wanted) -> Families {
        let differ = |is_v4| {
            let pairs = [(&self.output, &that.output), (&self.forward, &that.forward)];
            pairs.into_iter().any(|(one, other)| {
                one.block_rest != other.block_rest || !one.of_family(is_v4).eq(other.of_family(is_v4))
            })
        };
        Families { v4: differ(true), v6: differ(false) }
    }

    /// The chains whose rules differ from those of `that`.
    fn differ<'a>(&'a self, that: &'a Wanted) -> impl Iterator<Item = &'static str> + 'a {
        let devices = self.devices != that.devices || self.interfaces != that.interfaces;
        CHANGING.into_iter().map(|(name, _)| name).filter(move |name| match *name {
            "leaving" => self.output != that.output,
            "output" => devices || self.marks != that.marks,
            "input" => devices || self.input != that.input,
            "forward" => devices || self.forward != that.forward,
            "before-nat" | "backstop" => devices || self.marks != that.marks || self.output != that.output,
            // These chains never change.
            _ => false,
        })
    }
}

mod gre;
#[cfg(test)]
mod tests;
