//! Facts about packets that a worker asks the kernel for: their sockets, and the MTU of their device.

use super::path::Shared;
use sealane_abi::tcp::State;
use sealane_engine_ao::{Ends, Found, Kernel, SocketId};
use sealane_sys::link;
use sealane_sys::marks::Marks;
use sealane_sys::route::PathTable;
use sealane_sys::sock_diag::{Entry, SockDiag};
use sealane_sys::transient;
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// The smallest MTU that IPv6 allows, used when the device's is not known.
const MIN_MTU: usize = 1280;

/// The tables of one worker.
pub(super) struct Tables {
    /// The kernel's sockets, for the engine.
    pub(super) sockets: Sockets,
    mtus: HashMap<u32, usize>,
    paths: PathTable,
    /// Whether the sockets of connections are bound to their device.
    bound: HashMap<Ends, bool>,
}

impl Tables {
    /// Opens the tables of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(shared: Arc<Shared>, marks: Marks) -> io::Result<Self> {
        let sockets = Sockets {
            diag: SockDiag::open()?,
            shared,
            asked: SocketQuestions::default(),
            absent: Absent::default(),
            is_unanswered: false,
        };
        Ok(Tables { sockets, mtus: HashMap::new(), paths: PathTable::new(marks.signed()), bound: HashMap::new() })
    }

    /// The MTU of a device; of a VRF, by which nothing leaves and whose own is the highest there is, the smallest one in it.
    pub(super) fn mtu(&mut self, device: u32) -> usize {
        if let Some(mtu) = self.mtus.get(&device) {
            return *mtu;
        }
        let of = |device| link::facts(device).map_or(MIN_MTU, |f| f.mtu as usize);
        let in_vrf = self.sockets.bound_in_vrf(device).filter(|devices| devices.first() == Some(&device));
        let members = in_vrf.iter().flatten().skip(1);
        let mtu = members.map(|member| of(*member)).min().unwrap_or_else(|| of(device));
        self.mtus.insert(device, mtu);
        mtu
    }

    /// The MTU for packets of a connection that leave by a device: that of their path, where it is smaller than the device's.
    /// The kernel's own segments fit into it, and become longer by the option.
    pub(super) fn mtu_to(&mut self, device: u32, ends: &Ends) -> usize {
        let of_device = self.mtu(device);
        let (vrf, remote) = (ends.vrf.cast_unsigned(), ends.remote.ip().to_canonical());
        match self.paths.by_device(vrf, remote, Instant::now()).mtu {
            // A link-local address is not known without its device.
            0 => of_device,
            of_path => of_device.min(of_path as usize),
        }
    }

    /// Whether the socket of a connection leaves by no other device than `device`.
    pub(super) fn is_bound(&mut self, ends: Ends, device: u32) -> bool {
        let diag = &mut self.sockets.diag;
        *self.bound.entry(ends).or_insert_with(|| {
            let link_local = matches!(ends.remote.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local());
            let mut found = || diag.find(ends.local, ends.remote, device);
            link_local || found().is_ok_and(|f| f.is_some_and(|f| f.ifindex != 0))
        })
    }

    /// Forgets answers that may have changed. To be called about once a second.
    pub(super) fn forget(&mut self) {
        self.mtus.clear();
        self.bound.clear();
        self.sockets.absent.forget();
    }
}

/// The kernel's sockets.
pub(super) struct Sockets {
    pub(super) diag: SockDiag,
    shared: Arc<Shared>,
    asked: SocketQuestions,
    absent: Absent,
    /// Whether the last answer was none: see [`Kernel::is_unanswered`].
    is_unanswered: bool,
}

/// An answer of the kernel about the socket of a segment; an error if it could not be asked.
type Answer = Result<Option<Found>, Unanswered>;

/// The kernel could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unanswered;

/// The most remembered pairs of ends without a socket.
const MAX_ABSENT: usize = 4096;

/// The ends and devices for which the kernel had no socket, kept for about a second. They are for segments of strangers
/// only: a segment of a peer is never judged by an old answer.
#[derive(Default)]
struct Absent {
    used: bool,
    list: HashSet<(SocketAddr, SocketAddr, u32)>,
}

impl Absent {
    fn has(&self, key: &(SocketAddr, SocketAddr, u32)) -> bool {
        self.used && self.list.contains(key)
    }

    fn add(&mut self, key: (SocketAddr, SocketAddr, u32)) {
        if self.used {
            if self.list.len() >= MAX_ABSENT {
                self.list.clear();
            }
            self.list.insert(key);
        }
    }

    fn forget(&mut self) {
        self.list.clear();
    }
}

/// Questions about the packets of a burst, and the kernel's answers.
#[derive(Default)]
struct SocketQuestions {
    /// Whether only known answers are given, and other questions are noted.
    deferred: bool,
    found: HashMap<(SocketAddr, SocketAddr, u32), Answer>,
    has: HashMap<(Ends, u32), Option<bool>>,
    open_find: Vec<(SocketAddr, SocketAddr, u32)>,
    open_has: Vec<(Ends, u32)>,
    /// All listeners that are bound to a device.
    bound: Option<Vec<Entry>>,
    /// The devices to which sockets are bound.
    devices: Option<HashSet<u32>>,
}

impl SocketQuestions {
    fn forget(&mut self) {
        self.found.clear();
        self.has.clear();
        (self.bound, self.devices) = (None, None);
    }
}

/// The most attempts to begin a burst with answers of the kernel. An answer may lead to another question; the last ones are asked
/// with the lock.
const MAX_ATTEMPTS: usize = 4;

impl Sockets {
    /// Sets whether it is remembered for a while that there is no socket, and whether that is looked at.
    pub(super) fn keeps_absence(&mut self, keeps: bool) {
        self.absent.used = keeps;
    }

    /// Calls `begin`, which takes the lock of the engine, and asks the kernel its questions without that lock. `begin` is called
    /// again with the answers, so that it may have no effect as long as an answer is missing. The answers are forgotten then.
    pub(super) fn ask_unlocked<R>(&mut self, mut begin: impl FnMut(&mut Self) -> R) -> R {
        self.asked.forget();
        for _ in 0..MAX_ATTEMPTS {
            self.asked.deferred = true;
            let begun = begin(self);
            self.asked.deferred = false;
            if self.asked.open_find.is_empty() && self.asked.open_has.is_empty() {
                self.asked.forget();
                return begun;
            }
            for key in core::mem::take(&mut self.asked.open_find) {
                let found = self.ask_find(key);
                self.asked.found.insert(key, found);
            }
            for (ends, device) in core::mem::take(&mut self.asked.open_has) {
                let has = self.ask_has(&ends, device);
                self.asked.has.insert((ends, device), has);
            }
        }
        let begun = begin(self);
        self.asked.forget();
        begun
    }

    fn ask_find(&mut self, key: (SocketAddr, SocketAddr, u32)) -> Answer {
        let (local, remote, device) = key;
        let vrf = self.shared.vrf_of(device);
        let found = |e: Entry| Found { id: SocketId(e.cookie), state: e.state, vrf };
        let Some(entry) = answered(self.socket(local, remote, device))? else {
            self.absent.add(key);
            return Ok(None);
        };
        if !entry.is_half_open() {
            return Ok(Some(found(entry)));
        }
        // A half-open connection has the listener's keys. No connection has a peer with port 0.
        Ok(answered(self.socket(local, SocketAddr::new(remote.ip(), 0), device))?.map(found))
    }

    fn ask_has(&mut self, ends: &Ends, device: u32) -> Option<bool> {
        let vrf = ends.vrf.cast_unsigned();
        let found = match vrf {
            // Its device may have come into a VRF since.
            0 => self.diag.find(ends.local, ends.remote, device),
            vrf => self.socket(ends.local, ends.remote, vrf),
        };
        match found.ok()? {
            Some(entry) if entry.is_half_open() => None,
            Some(entry) if entry.state != State::Listen => Some(true),
            // One without a VRF between the same ends hides it.
            _ if vrf != 0 => {
                let found = self.diag.find(ends.local, ends.remote, vrf).ok()?;
                found.is_none_or(|entry| entry.ifindex != 0 || entry.state == State::Listen).then_some(false)
            }
            _ => Some(false),
        }
    }

    /// The socket for a segment that passes `device`: a connection, else a listener.
    fn socket(&mut self, local: SocketAddr, remote: SocketAddr, device: u32) -> io::Result<Option<Entry>> {
        let Some(mut devices) = self.bound_in_vrf(device) else { return self.diag.find(local, remote, device) };
        if devices.len() > MOST_ASKED {
            self.retain_bound(&mut devices)?;
        }
        // The setting is read once for all of them, if one is found without a device.
        let takes_all = LazyCell::new(takes_all_vrfs);
        let is_in_vrfs = |entry: &Entry| entry.ifindex != 0 || *takes_all;
        let (mut listener, mut is_hidden): (Option<Entry>, bool) = (None, false);
        for &device in &devices {
            // Asked about a device, the kernel also finds sockets without one, whatever they take.
            let mut found = self.diag.find(local, remote, device)?;
            if found.is_some_and(|entry| entry.state != State::Listen && !is_in_vrfs(&entry)) {
                found = self.diag.listener(local, remote, device)?;
            }
            match found {
                Some(entry) if !is_in_vrfs(&entry) => is_hidden = true,
                Some(entry) if entry.state != State::Listen => return Ok(Some(entry)),
                Some(entry) if listener.is_none_or(|known| known.ifindex == 0) => listener = Some(entry),
                _ => {}
            }
        }
        if is_hidden && listener.is_none() { self.hidden_listener(local, &devices) } else { Ok(listener) }
    }

    /// The listener for segments to `local` that is bound to one of these devices. Asked about one of them, the kernel prefers a
    /// listener without a device on this very address to one that is bound and listens on all. If that one were not found, an
    /// unsigned SYN would reach it.
    fn hidden_listener(&mut self, local: SocketAddr, devices: &[u32]) -> io::Result<Option<Entry>> {
        // They are looked at once for all segments of a burst, which anybody may forge.
        let bound = match self.asked.bound.take() {
            Some(bound) => bound,
            None => {
                let mut bound = Vec::new();
                self.diag.listeners(|entry| bound.extend(Some(entry).filter(|entry| entry.ifindex != 0)))?;
                bound
            }
        };
        let (ip, is_v4) = (local.ip(), local.is_ipv4());
        let listens = |at: SocketAddr| {
            at.port() == local.port() && (at.ip() == ip || at.ip().is_unspecified() && (is_v4 || at.is_ipv6()))
        };
        let all = bound.iter().filter(|entry| devices.contains(&entry.ifindex) && listens(entry.local));
        let found = all.max_by_key(|entry| (entry.local.ip() == ip, entry.local.is_ipv4() == is_v4)).copied();
        self.asked.bound = Some(bound);
        Ok(found)
    }

    /// The devices to which the socket for a segment in a VRF may be bound; `None` for a segment without one. Of one that comes
    /// in, the kernel tells the VRF only.
    fn bound_in_vrf(&self, device: u32) -> Option<Vec<u32>> {
        let vrfs = self.shared.vrfs.lock();
        let vrf = Some(vrfs.of(device)).filter(|vrf| *vrf != 0)?;
        let members = vrfs.members(vrf).filter(|member| device == vrf || device == *member);
        Some(std::iter::once(vrf).chain(members).collect())
    }

    /// Leaves the VRF, which is the first, and those of its devices to which sockets are bound. All sockets are looked at for that,
    /// once for all segments of a burst.
    fn retain_bound(&mut self, devices: &mut Vec<u32>) -> io::Result<()> {
        let bound = match self.asked.devices.take() {
            Some(bound) => bound,
            None => {
                let mut bound: HashSet<u32> = HashSet::new();
                self.diag.listeners(|entry| bound.extend(Some(entry.ifindex)))?;
                self.diag.connections(|entry| bound.extend(Some(entry.ifindex)))?;
                bound
            }
        };
        retain(devices, &bound);
        self.asked.devices = Some(bound);
        Ok(())
    }
}

/// Leaves the VRF, which is the first, and those of its devices that are `bound`.
fn retain(devices: &mut Vec<u32>, bound: &HashSet<u32>) {
    let vrf = devices.first().copied();
    devices.retain(|device| Some(*device) == vrf || bound.contains(device));
}

/// The most devices of a VRF about each of which the kernel is asked: of more, only about those to which a socket is bound.
const MOST_ASKED: usize = 64;

/// The kernel's answer. An error of it passes by itself: it had no memory.
fn answered(said: io::Result<Option<Entry>>) -> Result<Option<Entry>, Unanswered> {
    said.map_err(|e| {
        transient::count(&e);
        Unanswered
    })
}

/// Whether sockets that are bound to no device take segments of all VRFs in the calling thread's namespace.
fn takes_all_vrfs() -> bool {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_l3mdev_accept");
    text.is_ok_and(|text| text.trim() == "1")
}

impl Kernel for Sockets {
    fn find(&mut self, local: SocketAddr, remote: SocketAddr, device: u32) -> Option<Found> {
        let key = (local, remote, device);
        let answer = match self.asked.found.get(&key) {
            Some(found) => *found,
            None if self.absent.has(&key) => Ok(None),
            None if self.asked.deferred => {
                self.asked.open_find.push(key);
                Ok(None)
            }
            None => self.ask_find(key),
        };
        self.is_unanswered = answer.is_err();
        answer.unwrap_or_default()
    }

    fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }

    fn configured(&mut self, ends: &Ends) -> Option<u32> {
        self.shared.peer_lookup.read().as_ref()?(ends)
    }

    fn has(&mut self, ends: &Ends, device: u32) -> Option<bool> {
        match self.asked.has.get(&(*ends, device)) {
            Some(has) => *has,
            None if self.asked.deferred => {
                self.asked.open_has.push((*ends, device));
                None
            }
            None => self.ask_has(ends, device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_device_of_a_vrf_may_have_a_socket() {
        let mut devices: Vec<u32> = std::iter::once(5).chain(1000..1100).collect();
        retain(&mut devices, &HashSet::from([0, 7, 1003, 1099]));
        assert_eq!(devices, [5, 1003, 1099]);
        retain(&mut devices, &HashSet::new());
        assert_eq!(devices, [5], "sockets without a device take what passes the VRF");
    }

    #[test]
    fn an_error_is_no_answer() {
        let error = |errno| answered(Err(io::Error::from_raw_os_error(errno)));
        assert_eq!((error(libc::ENOMEM), error(libc::ENOBUFS)), (Err(Unanswered), Err(Unanswered)));
        assert_eq!(answered(Ok(None)), Ok(None));
    }

    #[test]
    fn absence_is_remembered_for_strangers_within_bounds() {
        let key = |port: u16| ("10.0.0.1:179".parse().expect("ends"), SocketAddr::from(([10, 0, 0, 2], port)), 1);
        let mut absent = Absent::default();
        absent.add(key(1));
        assert!(absent.list.is_empty(), "an answer about a peer is not kept");
        absent.used = true;
        absent.add(key(1));
        assert!(absent.has(&key(1)) && !absent.has(&key(2)));
        absent.used = false;
        assert!(!absent.has(&key(1)), "nor looked at");
        absent.used = true;
        for port in 0..=u16::MAX {
            absent.add(key(port));
            assert!(absent.list.len() <= MAX_ABSENT && absent.has(&key(port)));
        }
        absent.forget();
        assert!(absent.list.is_empty());
    }
}
