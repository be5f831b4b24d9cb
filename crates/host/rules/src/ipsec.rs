//! The rules that apply IPsec policies to packets, in a table of our own. Where policies protect
//! what goes to 192.0.2.0/24 and 198.18.0.0/15 and comes from the first, and one blocks TCP to port 23 there, it is this:
//!
//! ```text
#![doc = include_str!("ipsec/picture.txt")]
//! ```
//!
//! Marked packets are routed to the TUN device, or to an unreachable route if that is gone ([`sealane_sys::route`]). For
//! policies in packet offload, the mark contains the device's number and leads to the TUN device of that offload
//! device. The engine checks the policies again there, so that a rule may match more than its policy, but never less.
//! Packets of a policy that the kernel itself applies, for an offload card, are not marked.
//!
//! As in Linux, policies see packets whose destination has been translated, whose answers have been translated back, and
//! that the mangle tables of others have marked: `output` and `prerouting` come behind all three. Source NAT comes later.
//!
//! The mark and the routing rule are the way to the TUN device, not the protection: others may overwrite a mark, flush
//! routing rules or put theirs before ours. Whatever they do, packets are judged again behind it, by their addresses
//! and by the device that they leave by: `before-nat` sees the addresses that the policies are about, `backstop` what leaves
//! when nothing comes after it any more, and `onward` what is forwarded, while no rule of others has had a flowtable
//! take over its flow, whose packets no rule sees. Most packets are for no policy, so that `escaping` has all other rules.
//!
//! Marks that exempt are drawn at random, and only count on packets of our own user's or root's sockets: a container on the
//! host's network may be able to set marks, but not to find these.
//!
//! A later fragment has no ports. Where a policy selects ports, and protects or blocks, it takes all later fragments between
//! its addresses; the engine knows to which packet they belong. In IPv6 it may have no protocol either: where the fragment
//! header names an extension header, the protocol is in the first fragment. Every policy with a protocol that protects or
//! blocks takes those. Connection tracking reassembles packets before these rules see them.
//!
//! Policies that differ by their addresses only have one rule together, with a set: packets take as long for dozens of tunnels as for one.
//! The kernel fills such a set only after it has put the rules of the same transaction into force, so that they are written without sets
//! first, and get them when nothing has changed for a while ([`PolicyTable::settle`]).
//!
//! Rules change in one transaction and stay in place without the daemon. If the table is owned, only chains whose rules
//! change are rewritten, and counters continue.
//!
//! The socket that writes the table owns it: `nft flush ruleset` of others leaves it alone as long as somebody has that
//! socket open, which may be a process that keeps it for the next daemon. Before Linux 6.9 an owned table is removed with
//! its owner's socket, so that a second table without an owner, `sealane-ipsec-guard`, has the chains that drop. It takes
//! a flush and the end of everybody who has the socket to remove both.

mod chains;
mod gre;
mod group;
mod leaving_late;
mod policies;
mod policy_table;
mod refused;
mod select;
mod tables;
#[cfg(feature = "testing")]
pub mod values;
mod wanted;

pub use policy_table::PolicyTable;
pub use refused::Refused;
pub use wanted::{Match, Rules, StateMark, Then, Wanted};

#[cfg(test)]
mod examples;
#[cfg(test)]
mod judged;
#[cfg(test)]
mod tests;
