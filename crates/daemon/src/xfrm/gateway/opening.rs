//! The interfaces of a gateway: opened in the best way that their drivers know, all with the same memory.

use super::MAX_SOCKETS;
use super::taken::{Rule, Taken};
use super::ways::{Device, Ways};
use crate::transport::link::{self, Facts};
use crate::transport::xdp::{Attached, Mode, Tables};
use crate::transport::xsk::{Copying, Lost, Memory, Queue, Sockets};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// An interface that is there and up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Present {
    name: String,
    index: u32,
    facts: Facts,
    queues: u32,
}

/// How an interface is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) name: String,
    native: bool,
    zero_copy: bool,
    pub(super) queues: u32,
    pub(super) lost: Lost,
}

impl State {
    /// In a word.
    pub(super) fn how(&self) -> String {
        let mode = if self.native { "native" } else { "generic" };
        let copying = if self.zero_copy { "zero-copy" } else { "copied" };
        format!("gateway-{mode}-{copying}")
    }
}

/// What is open. Programs go before the sockets that they give frames to.
pub(super) struct Opened {
    interfaces: Vec<(Present, Attached)>,
    tables: Tables,
    pub(super) sockets: Sockets,
    pub(super) memory: Memory,
    copying: Copying,
    /// The interface of each socket.
    pub(super) slots: Vec<u32>,
    /// The first socket of each device, and how many it has.
    pub(super) queues: Vec<(usize, usize)>,
    pub(super) ways: Ways,
    taken: Taken,
    states: HashSet<(IpAddr, u32)>,
}

/// Which of the interfaces are there, in the calling thread's namespace.
pub(super) fn present(names: &[String]) -> Vec<Present> {
    let one = |name: &String| -> io::Result<Option<Present>> {
        let index = link::index(name)?;
        let facts = link::facts(index)?;
        let fit = facts.ethernet && link::is_up(name)?;
        Ok(fit.then_some(Present { name: name.clone(), index, facts, queues: link::queues(name)? }))
    };
    names.iter().filter_map(|name| one(name).ok().flatten()).collect()
}

/// For how long the kernel may still have queues that were given back: it does that in a thread of its own.
const PATIENCE: Duration = Duration::from_millis(500);

/// Opens sockets for queues that may have been others' just now.
fn sockets(queues: &[Queue], copying: Copying) -> io::Result<Sockets> {
    let begun = Instant::now();
    loop {
        match Sockets::open(queues, copying) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// Opens those that are there; none, and said so, where no driver can.
///
/// # Errors
/// The kernel's, of what they have in common: later it may be otherwise.
pub(super) fn open(there: Vec<Present>) -> io::Result<Option<Opened>> {
    if there.is_empty() { Ok(None) } else { try_open(there) }
}

fn try_open(there: Vec<Present>) -> io::Result<Option<Opened>> {
    let tables = Tables::new()?;
    let mut interfaces: Vec<(Present, Attached)> = Vec::new();
    let mut free = MAX_SOCKETS as u32;
    for mut present in there {
        // Frames of queues without a socket go to the stack.
        present.queues = present.queues.min(free);
        let Present { name, index, facts, queues } = &present;
        let attach = |mode| Attached::new(*index, facts.address, *queues, &tables, mode);
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
                eprintln!("sealane: xfrm: gateway: {name}: there are {MAX_SOCKETS} queues in all: it is the stack's")
            }
            Err(e) => eprintln!("sealane: xfrm: gateway: {name}: no XDP: {e}: it is the stack's"),
        }
    }
    if interfaces.is_empty() {
        return Ok(None);
    }
    let queues: Vec<Queue> = interfaces.iter().flat_map(|(p, _)| (0..p.queues).map(|queue| (p.index, queue))).collect();
    let native = interfaces.iter().all(|(_, attached)| attached.mode == Mode::Native);
    let zero = if native { sockets(&queues, Copying::Zero).ok() } else { None };
    let (open, copying) = match zero {
        Some(sockets) => (sockets, Copying::Zero),
        None => (sockets(&queues, Copying::Once)?, Copying::Once),
    };
    let (mut slots, mut first) = (Vec::new(), Vec::new());
    for (present, attached) in &interfaces {
        first.push((slots.len(), present.queues as usize));
        for queue in 0..present.queues {
            attached.give(queue, open.fd(slots.len()))?;
            slots.push(present.index);
        }
    }
    let device = |p: &Present| Device { ifindex: p.index, address: p.facts.address, mtu: p.facts.mtu };
    let devices = interfaces.iter().map(|(present, _)| device(present)).collect();
    let (memory, sockets) = (open.memory(), open);
    let (ways, queues) = (Ways::new(devices)?, first);
    let (taken, states) = (Taken::default(), HashSet::new());
    let opened = Opened { interfaces, tables, sockets, memory, copying, slots, queues, ways, taken, states };
    for state in opened.states() {
        let (name, how, queues) = (&state.name, state.how(), state.queues);
        eprintln!("sealane: xfrm: {name}: {how}, {queues} queues");
    }
    Ok(Some(opened))
}

impl Opened {
    /// How they are served, and what was lost.
    pub(super) fn states(&self) -> Vec<State> {
        let state = |((present, attached), (first, queues)): (&(Present, Attached), &(usize, usize))| {
            let mut lost = Lost::default();
            for i in *first..first + queues {
                let one = self.sockets.lost(i);
                (lost.full, lost.dropped) = (lost.full + one.full, lost.dropped + one.dropped);
            }
            let (native, zero_copy) = (attached.mode == Mode::Native, self.copying == Copying::Zero);
            State { name: present.name.clone(), native, zero_copy, queues: present.queues, lost }
        };
        self.interfaces.iter().zip(&self.queues).map(state).collect()
    }

    /// Makes the program's tables say what rules do, and take the packets of these states.
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

    /// The socket that a frame for a device leaves by, which came by another one.
    pub(super) fn leaving(&self, device: usize, came: usize) -> usize {
        let (first, count) = self.queues[device];
        first + came % count
    }
}
