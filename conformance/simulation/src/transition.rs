//! Events, and orders of them that a seed makes. An event means something in every state of the world, so that any part of an
//! order is an order.

use crate::model::{Action, Dir, Policy, Selected, Selector};
use crate::net::{FAR, NEAR, Peer};
use sealane_conformance::rng::Rng;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    /// A key manager asks, and so many steps of the request are done at once.
    Ask(Asked, u8),
    /// The next step of whatever is not done.
    Step,
    /// A packet is sent.
    Send(Sent),
    /// Somebody sends a packet of ESP again: the last one, or one before it.
    Replay(u8),
    Ends {
        by_crash: bool,
    },
    /// A daemon starts, and so many steps of that are done at once.
    Starts(u8),
    /// The daemon looks after what others have changed.
    Repair,
    /// Time passes, and timers are handled.
    Wait {
        seconds: u16,
    },
    /// Somebody sets the clock.
    SetClock {
        by_s: i32,
    },
    /// Others change tables, routing rules, routes and links.
    Mangle(Option<(i32, u32)>),
    Masquerade(bool),
    Translate(bool),
    Flowtable(bool),
    RuleOfOthers(bool),
    DeleteOurRule,
    DeleteDevice,
    Flush,
    Wan(bool),
}

/// A change that is asked for. Numbers choose among what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Add(Policy),
    Update(Policy),
    /// The same selector gets another action.
    Change(u8, Action),
    Delete(u8),
    FlushPolicies,
    AddState(Peer, bool),
    /// One that sends and was deleted comes again, with its key.
    AddAgain(u8),
    DeleteState(u8),
}

/// A packet in clear, or in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) by: By,
    pub(crate) near: Near,
    /// A number of [`crate::net::REMOTE`].
    pub(crate) far: u8,
    pub(crate) kind: Kind,
}

/// The sender of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// This host, or its client.
    Near,
    /// The far side, in clear.
    Far,
    /// The far side, through a tunnel: by the newest state, or one before it.
    Tunnel(Peer, u8),
}

/// The end of a flow on this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Near {
    Client,
    Host,
    /// The host's address with a port of the client's, as masquerading has it.
    Masqueraded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Udp(u16),
    Tcp(u16),
    Gre(u32),
}

/// Priorities of chains of others: before all, mangle's, ours and the usual one behind.
const PRIORITIES: [i32; 5] = [i32::MIN, -150, -140, -99, 0];

/// An order of events.
pub(crate) fn order(seed: u64, events: usize) -> Vec<Transition> {
    let mut rng = Rng::new(seed);
    let mut all = vec![Transition::Starts(8)];
    // An ordinary tunnel, as most orders begin with.
    if rng.chance(80) {
        let peer = Peer::ALL[rng.below(2)];
        for dir in [Dir::Out, Dir::In, Dir::Fwd] {
            if rng.chance(80) {
                all.push(Transition::Ask(Asked::Add(tunnel(dir, peer)), 8));
            }
        }
        for inward in [false, true] {
            all.push(Transition::Ask(Asked::AddState(peer, inward), 8));
        }
    }
    all.extend((0..events).map(|_| event(&mut rng)));
    all
}

fn tunnel(dir: Dir, peer: Peer) -> Policy {
    let (near, far) = (NEAR[0], FAR[peer as usize]);
    let (source, destination) = if dir == Dir::Out { (near, far) } else { (far, near) };
    let selector = Selector { source, destination, upper: Selected::Any };
    Policy { dir, selector, priority: 1, action: Action::Protect(peer) }
}

fn event(rng: &mut Rng) -> Transition {
    match rng.weighted(&[440, 60, 170, 90, 30, 30, 30, 15, 10, 30, 15, 10, 20, 10, 8, 4, 10, 8]) {
        0 => Transition::Send(sent(rng)),
        1 => Transition::Replay(rng.below(4) as u8),
        2 => Transition::Ask(asked(rng), steps(rng)),
        3 => Transition::Step,
        4 => Transition::Ends { by_crash: rng.chance(70) },
        5 => Transition::Starts(steps(rng)),
        6 => Transition::Repair,
        7 => Transition::Wait { seconds: *rng.of(&[1, 31, 3600]) },
        8 => Transition::SetClock { by_s: *rng.of(&[-86_400, -5, 5, 86_400]) },
        9 => Transition::Mangle(rng.chance(70).then(|| (*rng.of(&PRIORITIES), *rng.of(&[0, 10])))),
        10 => Transition::Masquerade(rng.chance(70)),
        11 => Transition::Translate(rng.chance(70)),
        12 => Transition::Flowtable(rng.chance(80)),
        13 => Transition::RuleOfOthers(rng.chance(50)),
        14 => Transition::DeleteOurRule,
        15 => Transition::DeleteDevice,
        16 => Transition::Flush,
        _ => Transition::Wan(rng.chance(70)),
    }
}

/// Most of the time all of them.
fn steps(rng: &mut Rng) -> u8 {
    if rng.chance(70) { 8 } else { rng.below(5) as u8 }
}

fn sent(rng: &mut Rng) -> Sent {
    let peer = Peer::ALL[rng.below(2)];
    let by = match rng.weighted(&[50, 25, 25]) {
        0 => By::Near,
        1 => By::Far,
        _ => By::Tunnel(peer, u8::from(rng.chance(20))),
    };
    let near = [Near::Client, Near::Host, Near::Masqueraded][rng.weighted(&[60, 30, 10])];
    let kind =
        [Kind::Udp(7), Kind::Udp(9), Kind::Tcp(7), Kind::Gre(5), Kind::Gre(6)][rng.weighted(&[50, 10, 20, 10, 5])];
    Sent { by, near, far: rng.weighted(&[50, 10, 15, 15, 10]) as u8, kind }
}

fn action(rng: &mut Rng) -> Action {
    [Action::Protect(Peer::A), Action::Protect(Peer::B), Action::Pass, Action::Block][rng.weighted(&[45, 15, 25, 15])]
}

fn policy(rng: &mut Rng) -> Policy {
    let dir = [Dir::Out, Dir::In, Dir::Fwd][rng.weighted(&[60, 20, 20])];
    let near = NEAR[rng.weighted(&[50, 20, 20, 10])];
    let far = FAR[rng.weighted(&[40, 15, 15, 15, 10, 5])];
    let (source, destination) = if dir == Dir::Out { (near, far) } else { (far, near) };
    let port = if dir == Dir::Out { Selected::UdpTo(7) } else { Selected::UdpFrom(7) };
    let upper = [Selected::Any, port, Selected::Gre(5)][rng.weighted(&[70, 20, 10])];
    let selector = Selector { source, destination, upper };
    Policy { dir, selector, priority: [1, 0, 2][rng.weighted(&[70, 20, 10])], action: action(rng) }
}

fn asked(rng: &mut Rng) -> Asked {
    match rng.weighted(&[35, 10, 15, 12, 2, 12, 6, 8]) {
        0 => Asked::Add(policy(rng)),
        1 => Asked::Update(policy(rng)),
        2 => Asked::Change(rng.below(8) as u8, action(rng)),
        3 => Asked::Delete(rng.below(8) as u8),
        4 => Asked::FlushPolicies,
        5 => Asked::AddState(Peer::ALL[rng.weighted(&[70, 30])], rng.chance(50)),
        6 => Asked::AddAgain(rng.below(4) as u8),
        _ => Asked::DeleteState(rng.below(8) as u8),
    }
}
