//! A cache of the kernel's answers: the interface of the gateway by which a packet leaves, and its link header.

use sealane_sys::hops::{Asked, Asker, Change, Route};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The time after which an answer is asked for again. Neighbours are confirmed as often.
const BELIEVED: Duration = Duration::from_secs(1);
/// The most answers that are kept.
const MAX_KNOWN: usize = 65_536;
/// The most questions a second: strangers can make up addresses.
const MAX_QUESTIONS: u32 = 20_000;

/// An interface of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Egress {
    /// Its index.
    pub(super) ifindex: u32,
    /// Its hardware address.
    pub(super) address: [u8; 6],
    /// Its MTU in bytes.
    pub(super) mtu: u32,
}

/// The next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    /// The index of the interface in the gateway's list.
    pub(super) device: usize,
    /// The link header's addresses: destination, then source.
    pub(super) link: [u8; 12],
    /// The longest packet in bytes.
    pub(super) mtu: u32,
}

/// Answers, with the times at which they were given.
type CachedAnswers<K, A> = HashMap<K, (A, Instant)>;

/// The table of hops.
pub(super) struct HopTable {
    asker: Asker,
    devices: Vec<Egress>,
    routes: CachedAnswers<Asked, Option<Route>>,
    neighbours: CachedAnswers<(u32, IpAddr), Option<[u8; 6]>>,
    /// Whether packets from an address may come by an interface.
    admitted: CachedAnswers<(u32, IpAddr), bool>,
    /// The last answer: packets of a burst often have the same hop.
    last: Option<(Asked, Option<Hop>)>,
    questions: u32,
    since: Instant,
}

impl HopTable {
    /// Starts without answers, for these interfaces of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(devices: Vec<Egress>) -> io::Result<Self> {
        Ok(HopTable {
            asker: Asker::new()?,
            devices,
            routes: HashMap::new(),
            neighbours: HashMap::new(),
            admitted: HashMap::new(),
            last: None,
            questions: 0,
            since: Instant::now(),
        })
    }

    /// Finds the next hop of a packet. `None` if the stack has to send it.
    pub(super) fn hop(&mut self, asked: Asked, now: Instant) -> Option<Hop> {
        if let Some((before, hop)) = self.last
            && before == asked
        {
            return hop;
        }
        let hop = self.find(asked, now);
        self.last = Some((asked, hop));
        hop
    }

    fn find(&mut self, asked: Asked, now: Instant) -> Option<Hop> {
        let route = self.route(asked, now)?;
        let device = self.devices.iter().position(|device| device.ifindex == route.oif)?;
        let Egress { address, mtu, .. } = self.devices[device];
        let to = self.neighbour(route, now)?;
        let mut link = [0; 12];
        link[..6].copy_from_slice(&to);
        link[6..].copy_from_slice(&address);
        Some(Hop { device, link, mtu: if route.mtu == 0 { mtu } else { mtu.min(route.mtu) } })
    }

    /// Whether the stack would forward a packet that came by an interface and is marked to go to the TUN device:
    /// forwarding may be off there, or `rp_filter` may reject the source. The destination makes no difference.
    pub(super) fn admits(&mut self, asked: Asked, now: Instant) -> bool {
        let key = (asked.iif, asked.source);
        if let Some((admitted, at)) = self.admitted.get(&key)
            && now.duration_since(*at) < BELIEVED
        {
            return *admitted;
        }
        let admitted = self.may_ask(now) && self.asker.route(&asked).is_some();
        if self.admitted.len() >= MAX_KNOWN {
            self.admitted.clear();
        }
        self.admitted.insert(key, (admitted, now));
        admitted
    }

    /// The route of a packet.
    fn route(&mut self, asked: Asked, now: Instant) -> Option<Route> {
        if let Some((route, at)) = self.routes.get(&asked)
            && now.duration_since(*at) < BELIEVED
        {
            return *route;
        }
        if !self.may_ask(now) {
            return None;
        }
        let route = self.asker.route(&asked);
        if self.routes.len() >= MAX_KNOWN {
            self.routes.clear();
        }
        self.routes.insert(asked, (route, now));
        route
    }

    fn neighbour(&mut self, Route { oif, via, .. }: Route, now: Instant) -> Option<[u8; 6]> {
        if let Some((hardware, at)) = self.neighbours.get(&(oif, via))
            && now.duration_since(*at) < BELIEVED
        {
            return *hardware;
        }
        if !self.may_ask(now) {
            return None;
        }
        let hardware = self.asker.neighbour(oif, via);
        if self.neighbours.len() >= MAX_KNOWN {
            self.neighbours.clear();
        }
        self.neighbours.insert((oif, via), (hardware, now));
        hardware
    }

    fn may_ask(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) > Duration::from_secs(1) {
            (self.since, self.questions) = (now, 0);
        }
        self.questions += 1;
        self.questions <= MAX_QUESTIONS
    }

    /// Begins a burst: the last answer of the one before may be old.
    pub(super) fn begin(&mut self) {
        self.last = None;
    }

    /// Reads notifications of changes.
    pub(super) fn refresh(&mut self) {
        let HopTable { asker, routes, neighbours, admitted, last, .. } = self;
        *last = None;
        let told = asker.changes(|change| match change {
            Change::Routes => {
                routes.clear();
                admitted.clear();
            }
            Change::Neighbour(ifindex, to, hardware) => {
                if let Some(known) = neighbours.get_mut(&(ifindex, to)) {
                    known.0 = hardware;
                }
            }
        });
        if told.is_err() {
            routes.clear();
            neighbours.clear();
            admitted.clear();
        }
    }
}

impl AsFd for HopTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.asker.as_fd()
    }
}
