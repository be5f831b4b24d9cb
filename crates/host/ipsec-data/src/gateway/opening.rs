//! Opening the interfaces of a gateway, in the best mode that their drivers support, all with the same memory.

use super::hops::{Egress, HopTable};
use super::plan::OutboundPrefixes;
use super::relay::Relay;
use super::selection::{Rule, Selection};
use super::state::State;
use sealane_abi::admin::ipsec::{XdpMemory, XdpMode};
use sealane_packets::xdp::{Attached, Mode, Tables};
use sealane_packets::xsk::{Copying, Lost, Memory, Queue, Sockets};
use sealane_sys::link::{self, Facts};
use sealane_sys::poll::Waker;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The most sockets.
pub(super) const MAX_SOCKETS: usize = 16;

/// An interface that is there and up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpInterface {
    name: String,
    index: u32,
    facts: Facts,
    queues: u32,
}

/// The program on the interfaces, with its tables.
pub(super) struct Program {
    interfaces: Vec<(UpInterface, Attached)>,
    tables: Tables,
    copying: Copying,
    taken: Selection,
    states: HashSet<(IpAddr, u32)>,
}

/// A thread's part of the open sockets.
pub(super) struct ThreadPart {
    pub(super) sockets: Sockets,
    pub(super) memory: Memory,
    /// The interface of each socket.
    pub(super) slots: Vec<u32>,
    /// The first socket of each device, and how many it has.
    queues: Vec<(usize, usize)>,
    pub(super) hops: HopTable,
    pub(super) relay: Relay,
    pub(super) leaving: Arc<OutboundPrefixes>,
}

/// Lists the interfaces that exist in the calling thread's namespace.
pub(super) fn present(names: &[String]) -> Vec<UpInterface> {
    let one = |name: &String| -> io::Result<Option<UpInterface>> {
        let index = link::index(name)?;
        let facts = link::facts(index)?;
        let fit = facts.ethernet && link::is_up(name)?;
        Ok(fit.then_some(UpInterface { name: name.clone(), index, facts, queues: link::queues(name)? }))
    };
    names.iter().filter_map(|name| one(name).ok().flatten()).collect()
}

/// The time that the kernel may take to release queues: it does that in a thread of its own.
const PATIENCE: Duration = Duration::from_millis(500);

/// Opens sockets for queues that may have been released just now.
fn sockets(shares: &[Vec<Queue>], copying: Copying) -> io::Result<Vec<Sockets>> {
    let begun = Instant::now();
    loop {
        match Sockets::open(shares, copying) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// Opens existing interfaces for threads that are woken by `wakers`. The number of threads with a part is that of the
/// queues that each interface has. `None`, with a message, if no driver can do it.
///
/// # Errors
/// The kernel's, about what the interfaces have in common; another attempt may succeed.
pub(super) fn open(there: Vec<UpInterface>, wakers: &[Arc<Waker>]) -> io::Result<Option<(Program, Vec<ThreadPart>)>> {
    if there.is_empty() {
        return Ok(None);
    }
    let tables = Tables::new()?;
    let interfaces = attach(there, &tables);
    if interfaces.is_empty() {
        return Ok(None);
    }
    let native = interfaces.iter().all(|(_, attached)| attached.mode == Mode::Native);
    let least = interfaces.iter().map(|(present, _)| present.queues as usize).min().unwrap_or(1);
    let threads = wakers.len().min(least).max(1);
    // Each thread has a queue of each interface, or several.
    let of = |thread: usize| {
        let queues = move |p: &UpInterface| (0..p.queues).skip(thread).step_by(threads);
        interfaces.iter().map(move |(p, _)| (p.index, queues(p)))
    };
    let queues = |thread| of(thread).flat_map(|(index, queues)| queues.map(move |queue| (index, queue))).collect();
    let shares: Vec<Vec<Queue>> = (0..threads).map(queues).collect();
    let zero = if native { sockets(&shares, Copying::Zero).ok() } else { None };
    let (all, copying) = match zero {
        Some(all) => (all, Copying::Zero),
        None => (sockets(&shares, Copying::Once)?, Copying::Once),
    };
    let devices = interfaces.iter().map(|(p, _)| {
        let UpInterface { index, facts, .. } = p;
        Egress { ifindex: *index, address: facts.address, mtu: facts.mtu }
    });
    let devices: Vec<Egress> = devices.collect();
    let relays = Relay::all(&wakers[..threads], &all);
    let mut parts = Vec::with_capacity(threads);
    for (thread, (sockets, relay)) in all.into_iter().zip(relays).enumerate() {
        let (mut slots, mut queues) = (Vec::new(), Vec::new());
        for ((_, attached), (index, numbers)) in interfaces.iter().zip(of(thread)) {
            queues.push((slots.len(), numbers.len()));
            for queue in numbers {
                attached.give(queue, sockets.fd(slots.len()))?;
                slots.push(index);
            }
        }
        let (memory, hops) = (sockets.memory(), HopTable::new(devices.clone())?);
        parts.push(ThreadPart { sockets, memory, slots, queues, hops, relay, leaving: Arc::default() });
    }
    let (taken, states) = (Selection::default(), HashSet::new());
    let program = Program { interfaces, tables, copying, taken, states };
    for state in program.states(threads) {
        let State { name, mode, memory, queues, .. } = &state;
        let (mode, memory) = (mode.name(), memory.name());
        info!(
            interface = name,
            mode, memory, queues, threads, "xfrm: {name}: gateway-{mode}-{memory}, {queues} queues, {threads} threads"
        );
    }
    Ok(Some((program, parts)))
}

/// Attaches the program to interfaces, in the best mode that each supports. Those that support none are left to the
/// stack.
fn attach(there: Vec<UpInterface>, tables: &Tables) -> Vec<(UpInterface, Attached)> {
    let mut interfaces: Vec<(UpInterface, Attached)> = Vec::new();
    let mut free = MAX_SOCKETS as u32;
    for mut present in there {
        // Frames of queues without a socket go to the stack.
        present.queues = present.queues.min(free);
        let UpInterface { name, index, facts, queues } = &present;
        let attach = |mode| Attached::new(*index, facts.address, *queues, tables, mode);
        let refused = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EPERM | libc::EACCES));
        let attached = match attach(Mode::Native) {
            Err(e) if !refused(&e) => attach(Mode::Generic),
            done => done,
        };
        match attached {
            Ok(attached) if *queues > 0 => {
                free -= queues;
                interfaces.push((present, attached));
            }
            Ok(_) => {
                warn!(
                    interface = name,
                    "xfrm: gateway: {name}: all {MAX_SOCKETS} queues are in use: it is left to the stack"
                );
            }
            Err(e) => {
                warn!(interface = name, error = %e, "xfrm: gateway: {name}: no XDP: {e}: it is left to the stack");
            }
        }
    }
    interfaces
}

impl Program {
    /// The states of the interfaces, when served by so many threads.
    pub(super) fn states(&self, threads: usize) -> Vec<State> {
        let state = |(present, attached): &(UpInterface, Attached)| {
            let mode = match attached.mode {
                Mode::Native => XdpMode::Native,
                Mode::Generic => XdpMode::Generic,
            };
            let memory = match self.copying {
                Copying::Zero => XdpMemory::ZeroCopy,
                Copying::Once => XdpMemory::Copied,
            };
            State { name: present.name.clone(), mode, memory, queues: present.queues, threads }
        };
        self.interfaces.iter().map(state).collect()
    }

    /// Fills the program's tables from rules, and has it take the packets of these states.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn set(
        &mut self,
        rules: &[Rule],
        locals: impl Iterator<Item = IpAddr>,
        states: HashSet<(IpAddr, u32)>,
    ) -> io::Result<()> {
        self.states.difference(&states).try_for_each(|(dst, spi)| self.tables.state(*dst, *spi, false))?;
        states.difference(&self.states).try_for_each(|(dst, spi)| self.tables.state(*dst, *spi, true))?;
        self.states = states;
        self.taken.set(&self.tables, rules, locals)
    }
}

impl ThreadPart {
    /// The frames lost on each interface.
    pub(super) fn lost(&self) -> Vec<Lost> {
        let of = |(first, count): &(usize, usize)| {
            let all = (*first..first + count).map(|i| self.sockets.lost(i));
            all.fold(Lost::default(), |sum, one| Lost { full: sum.full + one.full, dropped: sum.dropped + one.dropped })
        };
        self.queues.iter().map(of).collect()
    }

    /// The socket by which a packet leaves: the same for all packets of an interface with the same number.
    pub(super) fn leaving_by(&self, device: usize, number: u32) -> usize {
        let (first, count) = self.queues[device];
        first + number as usize % count
    }
}
