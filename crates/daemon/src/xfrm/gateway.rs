//! A gateway between interfaces, past the stack: frames that are surely ours go from the driver to us and back to a driver.
//!
//! ```text
//!  lan ─ XDP program: policies' prefixes ─▶ AF_XDP ─▶ hop limit, seal ─▶ route, neighbour known ─▶ AF_XDP ─▶ wan
//!                                                                     └─ else: raw and UDP sockets ─▶ stack
//!  wan ─ XDP program: states of ours ────▶ AF_XDP ─▶ open, policies ─▶ nobody's policy, route, neighbour known ─▶ AF_XDP ─▶ lan
//!                                                                     └─ else: TUN ─▶ stack
//!  everything else ──────────────────────▶ stack, its rules, TUN ([`super::path`])
//! ```
//!
//! It is worth it for packets that come one by one, as cards deliver them: the TUN device costs each of them a way through the stack, a
//! read, and another way through the stack. A superframe pays that once for all of its packets, and is faster there.
//!
//! States, policies, windows and counters are those of the stack's thread. What the program takes has a policy that protects it
//! ([`taken`]); if none is there when we look, it is dropped: in clear nothing leaves here but what came sealed. Without us the
//! program is gone, and the rules of the stack, which outlive us, hold back what it sees.

mod forward;
mod opening;
mod taken;
mod ways;

use super::NAT_T;
use super::join::Kept;
use super::path::Shared;
use super::routes::Routes;
use crate::transport::esp::{RawEsp, UdpEsp};
use crate::transport::netns::Netns;
use crate::transport::nft::Marks;
use crate::transport::poll::{Waker, ready, sleep_precisely};
use crate::transport::raw::Raw;
use crate::transport::route::Narrow;
use crate::transport::tun::Tun;
use crate::transport::xdp;
use opening::{Opened, Present, State};
use parking_lot::Mutex;
use sealane_engine::xfrm::data::BURST;
use sealane_net::ipsec::sa::{self, Proto, SaDir};
use sealane_net::ipsec::spd::{Action, Dir};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use taken::Rule;

/// How often it is looked at what nobody told of.
const TICK: Duration = Duration::from_secs(1);
/// How long frames are given that are expected.
const NAP: Duration = Duration::from_micros(30);
/// Bursts of a socket before others have their turn.
const TURN: usize = 4;
/// Frames of one round from which on more are expected.
const MANY: usize = 8;
/// The most sockets.
const MAX_SOCKETS: usize = 16;
/// Descriptors that are waited for: those, the waker, addresses, routes.
const FDS: usize = MAX_SOCKETS + 3;
/// So many times longer than it took the tables of the program are left alone.
const REST: u32 = 8;

/// What it has done to packets.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Packets sealed, packets opened and let pass.
    pub(super) sealed: AtomicU64,
    pub(super) opened: AtomicU64,
    /// Those of both that left past the stack, and those that it was given.
    pub(super) sent: AtomicU64,
    pub(super) to_stack: AtomicU64,
    /// Packets dropped for what policies and states say, or that nobody may send so.
    pub(super) dropped: AtomicU64,
    /// Packets dropped because the interface that they were to leave by took no more.
    pub(super) full: AtomicU64,
}

impl Counts {
    fn all(&self) -> [(&'static str, u64); 6] {
        let Counts { sealed, opened, sent, to_stack, dropped, full } = self;
        let all = [
            ("sealed", sealed),
            ("opened", opened),
            ("sent", sent),
            ("to_stack", to_stack),
            ("dropped", dropped),
            ("not_sent_full", full),
        ];
        all.map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

/// The gateway of a namespace. It ends with its value.
pub(crate) struct Gateway {
    names: Vec<String>,
    counts: Arc<Counts>,
    shown: Arc<Mutex<Vec<State>>>,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Starts one between interfaces of a namespace, some of which may come later. `tun` gives packets to the stack.
    ///
    /// # Errors
    /// The kernel's; an interface that cannot be done like this is told, and the stack's.
    pub(super) fn start(netns: &Netns, shared: &Arc<Shared>, tun: Tun, names: &[String]) -> io::Result<Self> {
        let (waker, stop): (_, Arc<AtomicBool>) = (Arc::new(Waker::new()?), Arc::default());
        let (counts, shown): (Arc<Counts>, Arc<Mutex<Vec<State>>>) = (Arc::default(), Arc::default());
        let exempt = shared.bits.exempt;
        let mut worker = netns.run(|| {
            let out = Raw::open(Marks::new(exempt))?;
            out.ignore_learnt_mtu()?;
            // Any worker's will do for sending.
            let sockets = shared.sockets.first().cloned().unwrap_or_default();
            let mut worker = Worker {
                shared: shared.clone(),
                counts: counts.clone(),
                shown: shown.clone(),
                stop: stop.clone(),
                waker: waker.clone(),
                names: names.to_vec(),
                udp: sockets.udp,
                raw: sockets.raw,
                out,
                routes: Routes::new(Arc::new(Mutex::new(Narrow::new(0, tun.index())?)), exempt)?,
                tun,
                kept: Kept::new(),
                tried: Vec::new(),
                refused: None,
                open: None,
                forwards_v6: false,
                prefixes: (0, Vec::new()),
                seen: None,
                rest: Instant::now(),
            };
            worker.forwards_v6 = forwards_v6();
            worker.reopen();
            Ok(worker)
        })?;
        let there = netns.try_clone()?;
        shared.set_gateway(Some(waker.clone()));
        // From here on its end undoes that.
        let mut gateway =
            Gateway { names: names.to_vec(), counts, shown, stop, waker, shared: shared.clone(), thread: None };
        let thread = std::thread::Builder::new().name("sealane-gateway".into()).spawn(move || {
            if let Err(e) = there.enter().and_then(|()| worker.run()) {
                eprintln!("sealane: xfrm: the gateway has ended: {e}; the stack has its interfaces again");
            }
        })?;
        gateway.thread = Some(thread);
        Ok(gateway)
    }

    /// The interfaces that it was started with.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// A line for each interface: its name, how it is served, whether it is, and what was counted. The gateway's own numbers
    /// stand with the first one.
    pub(crate) fn describe(&self) -> String {
        let shown = self.shown.lock();
        let mut text = String::new();
        for (i, name) in self.names.iter().enumerate() {
            let state = shown.iter().find(|state| state.name == *name);
            let (how, up) = state.map_or(("gateway".to_owned(), "down"), |state| (state.how(), "up"));
            text += &format!("{name} {how} {up}");
            if let Some(state) = state {
                let lost = state.lost;
                text +=
                    &format!(" queues {} received_full {} received_dropped {}", state.queues, lost.full, lost.dropped);
            }
            if i == 0 {
                self.counts.all().iter().for_each(|(name, count)| text += &format!(" {name} {count}"));
            }
            text.push('\n');
        }
        text
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.set_gateway(None);
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Worker {
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    shown: Arc<Mutex<Vec<State>>>,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    names: Vec<String>,
    udp: Vec<Arc<UdpEsp>>,
    raw: Vec<Arc<RawEsp>>,
    out: Raw,
    routes: Routes,
    tun: Tun,
    kept: Kept,
    /// The interfaces that were there when it was last tried to open them.
    tried: Vec<Present>,
    /// Why they could not be.
    refused: Option<String>,
    /// None while no interface can be served.
    open: Option<Box<Opened>>,
    /// Whether this host forwards IPv6, which routes do not say.
    forwards_v6: bool,
    /// Outbound policies, as far as addresses say what they are for, and the changes of policies that they are of.
    prefixes: (u64, Vec<Rule>),
    /// Changes of policies and states, and whether there were rules of before, when the tables were made.
    seen: Option<(u64, u64, bool)>,
    /// When the tables may be made again.
    rest: Instant,
}

impl Worker {
    /// Opens the interfaces that are there.
    fn reopen(&mut self) {
        // One program at a time.
        (self.open, self.seen) = (None, None);
        self.tried = opening::present(&self.names);
        let opened = opening::open(self.tried.clone()).unwrap_or_else(|e| {
            // It is tried again each second, and said once.
            let said = e.to_string();
            if self.refused.as_ref() != Some(&said) {
                eprintln!("sealane: xfrm: gateway: {e}; its packets go through the TUN device");
            }
            (self.refused, self.tried) = (Some(said), Vec::new());
            None
        });
        if opened.is_some() {
            self.refused = None;
        }
        *self.shown.lock() = opened.as_ref().map(|opened| opened.states()).unwrap_or_default();
        self.open = opened.map(Box::new);
        self.follow();
    }

    /// Moves packets until it is told to stop.
    fn run(&mut self) -> io::Result<()> {
        sleep_precisely();
        let mut looked = Instant::now();
        let mut changed = true;
        let mut busy = false;
        while !self.stop.load(Ordering::Acquire) {
            let count = self.open.as_ref().map_or(0, |open| open.slots.len());
            let rests = changed && self.rest > self.routes.now();
            let wait = match busy {
                true => Duration::ZERO,
                false if rests => Duration::from_millis(1),
                false => TICK,
            };
            let woken = {
                let open = self.open.iter();
                let sockets = open.flat_map(|open| (0..open.slots.len()).map(|i| open.sockets.fd(i)));
                let ways = self.open.iter().map(|open| open.ways.as_fd());
                let fds = [self.waker.as_fd(), self.routes.as_fd()].into_iter().chain(ways).chain(sockets);
                ready::<FDS>(fds, wait)
            };
            let is = |i: usize| woken.get(i).copied().unwrap_or(false);
            let now = self.routes.tick();
            if is(0) {
                self.waker.drain();
                changed = true;
            }
            if is(1) {
                self.routes.locals().refresh()?;
                (self.seen, changed) = (None, true);
            }
            if is(2)
                && let Some(open) = &mut self.open
            {
                open.ways.refresh();
            }
            if changed && now >= self.rest {
                changed = false;
                self.follow();
            }
            let mut got = 0;
            for i in 0..count {
                for _ in 0..TURN {
                    let read = self.turn(i);
                    got += read;
                    if read < BURST {
                        break;
                    }
                }
            }
            if let Some(open) = &mut self.open {
                open.sockets.flush();
                busy = got >= MANY || open.sockets.is_sending();
            }
            // A socket that is readable for nothing has lost its interface.
            let lost = got == 0 && (3..3 + count).any(is);
            if lost || now.duration_since(looked) >= TICK {
                looked = now;
                changed = true;
                self.look();
            }
            if busy && got < BURST {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// Opens interfaces anew that are others than before, and notes what sockets have lost.
    fn look(&mut self) {
        self.forwards_v6 = forwards_v6();
        if opening::present(&self.names) != self.tried {
            self.reopen();
        }
        if let Some(open) = &self.open {
            *self.shown.lock() = open.states();
        }
    }

    /// Makes the tables of the program follow policies, states and addresses.
    fn follow(&mut self) {
        let Some(open) = &mut self.open else { return };
        let begun = Instant::now();
        let is_leftover = self.shared.is_leftover();
        let (seen, [arrived, leaving], states) = {
            let xfrm = self.shared.xfrm();
            let seen = (xfrm.spd().changes(), xfrm.sad().changes(), is_leftover);
            if self.seen == Some(seen) {
                return;
            }
            self.seen = Some(seen);
            let blocks = |dir| xfrm.spd().default_action(dir) == Action::Block;
            // While the kernel has policies in our place, and while rules are in force whose policies nobody knows, it is all
            // the stack's.
            let few = xfrm.spd().len() <= taken::MAX_POLICIES;
            let simple = few && !is_leftover && !blocks(Dir::Out) && !blocks(Dir::Fwd) && !self.shared.elsewhere.any();
            let sad = xfrm.sad();
            // ESP in UDP of another port of ours has a socket that a thread of the stack opens and reads.
            let elsewhere = |sa: &sa::Sa| sa.encap.is_some_and(|e| e.sport != NAT_T) && self.routes.has(sa.src);
            let simple = simple && !sad.iter().any(|(_, sa)| elsewhere(sa));
            let rules = [taken::arrived, taken::leaving].map(|of| if simple { of(xfrm.spd()) } else { Vec::new() });
            let ours = sad.iter().filter(|(id, sa)| {
                sa.proto == Proto::Esp
                    && sa.dir != Some(SaDir::Out)
                    && sa.mark.mask == 0
                    && sa.spi != 0
                    && sad.state(*id) == sa::State::Valid
                    && sad.crypto_device(*id).is_none()
            });
            let here = |dst: IpAddr| self.routes.has(dst) && !dst.is_multicast();
            let ours = ours.filter(|(_, sa)| here(sa.dst)).map(|(_, sa)| (sa.dst, sa.spi));
            let most = if simple { xdp::MAX_STATES as usize } else { 0 };
            let states: HashSet<(IpAddr, u32)> = ours.take(most).collect();
            (seen, rules, states)
        };
        let taken: Vec<Rule> = arrived.into_iter().chain(leaving.iter().copied()).collect();
        self.prefixes = (seen.0, leaving);
        let locals: Vec<IpAddr> = self.routes.locals().iter().collect();
        if let Err(e) = open.set(&taken, locals.into_iter(), states) {
            eprintln!("sealane: xfrm: gateway: the tables of its program: {e}");
            self.seen = None;
        }
        let now = Instant::now();
        self.rest = now + (now - begun) * REST;
    }
}

/// Whether the calling thread's namespace forwards IPv6.
fn forwards_v6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding").is_ok_and(|text| text.trim() != "0")
}
