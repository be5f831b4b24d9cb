//! A simulation of IPsec's daemon in a host, with a reference model beside it. All of it is tests.
//!
//! ```text
//!  order of events (transition) ──▶ world ──▶ model: what Linux would let pass
//!      by a seed                      │
//!                                     ├──▶ daemon: engine-xfrm, the rules that it asks for, records; one step at a time
//!                                     ├──▶ kernel: hooks, NAT, routes, marks, flowtables; rules are evaluated as data
//!                                     └──▶ peers: the other ends of tunnels
//! ```
//!
//! **Real** are the engine with its journal's records, windows and leases, `net`, the rules that follow from policies
//! (`sealane_ipsec::rules_of`), their tables, and the choice of the chains that are written again. **Pretended** are the
//! kernel, the wire, the clock, randomness, the disk, the memory that outlives a daemon, and the order of the daemon's steps
//! (`DataPath::with_kept`, `DataPath::start`, `PolicyTable::write`), which `daemon` says once more, because those make system
//! calls.
//!
//! An **event** is one thing that happens: a key manager asks; the next step of a request, or of a daemon's start, is done; a
//! packet is sent from either side, in clear or by a tunnel, or sent again; the daemon ends, crashes, starts, puts back what
//! others have changed; others mark, translate, route, offload, flush; links and clocks change. So packets, crashes and others
//! come between any two steps. An event means something in every state of the world, so that each part of an order is one, too:
//! what fails is made shorter, and printed with its seed.
//!
//! The **model** keeps policies as a list and states as a map. During a request, and after a crash in one until the next daemon
//! runs, both what was before and what comes after may be in force. It is judged
//!
//! - that no flow that a policy covers leaves in clear, by its addresses before source NAT or behind it, whoever has changed
//!   marks, rules, routes or flows, and whether there is a daemon or not;
//! - that no such flow comes in or through in clear, and by no tunnel but that of its policy;
//! - that a flow without a policy passes, with a daemon or without;
//! - that a covered flow gets through its tunnel when nobody disturbs it;
//! - that no number is sent twice with a key, and no packet comes out of a tunnel twice;
//! - that the next daemon has the policies and states that were acknowledged.
//!
//! **Situations** that orders are meant to get into are counted; a run fails that has not reached one of them. **Faults** that
//! there have been are put back on purpose, in the tables as data or in the order of the daemon's steps, and have to be found.
//!
//! IPv4 in tunnels of ESP is simulated, with one thread for packets: no fragments, no IPv6, no offload devices, no TCP-AO.
#![forbid(unsafe_code)]

#[cfg(test)]
mod daemon;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod flow;
#[cfg(test)]
mod kernel;
#[cfg(test)]
mod model;
#[cfg(test)]
mod net;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod situations;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transition;
#[cfg(test)]
mod world;
