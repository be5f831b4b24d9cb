//! The part of a namespace's data path that its threads share.

use crate::cores::{Cores, DeviceTables};
use crate::counters::Counters;
use crate::entrance::Entrances;
use crate::errand::Errand;
use crate::gates::Gates;
use crate::groups::Groups;
use crate::kernel_states::KernelStates;
use crate::lane::WorkerCounts;
use crate::late::LateWay;
use crate::sockets::{LentSockets, Sockets};
use crate::streams::Streams;
use parking_lot::{Mutex, MutexGuard};
use sealane_abi::admin::ipsec;
use sealane_config::Incoming;
use sealane_engine_xfrm::{Notice, Now, Xfrm};
use sealane_packets::udp_table;
use sealane_sys::clock;
use sealane_sys::found::OnFailure;
use sealane_sys::marks::Bits;
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use sealane_sys::route::Narrow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::debug;

/// The least pause between two looks at the sockets of key managers.
const LOOK: Duration = Duration::from_millis(20);
/// The pause after a look, in the time that it took.
const PAUSE: u32 = 19;

/// Sends notices to key managers.
pub type Publish = Box<dyn Fn(Vec<Notice>) + Send + Sync>;

/// The settings of a data path.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The number of the stack's workers.
    pub workers: u32,
    /// The interface by which opened packets come in.
    pub incoming: Incoming,
    /// Whether packets are sealed that policies cover only as they leave.
    pub late: bool,
}

impl Default for Settings {
    /// Those of a configuration that says nothing of them.
    fn default() -> Self {
        Settings { workers: 1, incoming: Incoming::Ours, late: false }
    }
}

/// The part of a namespace's data path that its threads share.
pub struct Shared {
    xfrm: Mutex<Xfrm>,
    publish: Publish,
    /// Called when the data path has ended by itself: nothing passes any more until it is started again.
    pub on_failure: OnFailure,
    pub(crate) stop: Arc<AtomicBool>,
    /// The waker and the counters of each of the stack's workers.
    pub(crate) workers: Vec<(Arc<Waker>, Arc<WorkerCounts>)>,
    pub(crate) cores: Cores,
    /// States of the kernel's own IPsec.
    pub kernel_states: KernelStates,
    /// The sockets of each worker.
    pub(crate) sockets: Vec<Sockets>,
    /// UDP sockets, and those of key managers beside them.
    pub(crate) groups: Mutex<Groups>,
    /// Sockets of other ports, each of which one of the stack's workers reads.
    pub(crate) ports: Mutex<LentSockets>,
    /// Connections for ESP in TCP.
    pub streams: Streams,
    /// The devices by which packets of xfrm interfaces go up to the stack.
    pub gates: Gates,
    /// The devices by which all others come in.
    pub entrances: Entrances,
    /// The late way of packets from the stack, if there is one.
    pub late: Option<LateWay>,
    /// Wakes the gateway's first thread, if there is a gateway.
    gateway: Mutex<Option<Arc<Waker>>>,
    has_gateway: AtomicBool,
    /// Whether rules of a daemon that died are in force, whose policies are not known.
    leftover: AtomicBool,
    /// Whether rules mark the packets of some states.
    marks: AtomicBool,
    /// Whether no state writes a header in front of what it opens.
    only_tunnels: AtomicBool,
    /// To look for sockets of key managers. The table that tells of them has a line for each socket of any user, and neither
    /// packets nor requests of others wait until it is read.
    look: Errand,
    /// One look at a time: the places of sockets are followed from one to the next.
    looks: Mutex<()>,
    has_looked: AtomicBool,
    pub(crate) counters: Counters,
    /// The bits and marks of packets.
    pub bits: Bits,
}

impl Shared {
    /// Makes the shared part of a namespace. `programs` is the mark of programs' sockets whose packets no policy covers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(
        netns: &Netns,
        xfrm: Xfrm,
        publish: Publish,
        on_failure: OnFailure,
        settings: Settings,
        programs: u32,
    ) -> io::Result<Self> {
        let Settings { workers, incoming, late } = settings;
        let bits = Bits::new(Bits::draw(), programs);
        let worker = |_| Ok((Arc::new(Waker::new()?), Arc::default()));
        let mut groups = Groups::default();
        netns.run(|| groups.look(bits.exempt, udp_table::read()?))?;
        Ok(Shared {
            xfrm: Mutex::new(xfrm),
            publish,
            on_failure,
            stop: Arc::default(),
            sockets: netns.run(|| Sockets::open(&mut groups, bits.exempt, workers))?,
            groups: Mutex::new(groups),
            ports: Mutex::default(),
            streams: Streams::new(bits.programs | Bits::PROGRAM_IN | Bits::PROGRAM_OUT)?,
            workers: (0..workers).map(worker).collect::<io::Result<_>>()?,
            cores: Cores::default(),
            kernel_states: KernelStates::default(),
            gates: Gates::default(),
            entrances: netns.run(|| Entrances::open(incoming))?,
            late: netns.run(|| LateWay::open(bits, late))?,
            gateway: Mutex::default(),
            has_gateway: AtomicBool::new(false),
            leftover: AtomicBool::new(false),
            marks: AtomicBool::new(false),
            only_tunnels: AtomicBool::new(true),
            look: Errand::default(),
            looks: Mutex::default(),
            has_looked: AtomicBool::new(false),
            counters: Counters::default(),
            bits,
        })
    }

    /// The engine.
    pub fn xfrm(&self) -> MutexGuard<'_, Xfrm> {
        self.xfrm.lock()
    }

    /// Locks the engine for a worker, and counts if it had to wait for another.
    pub(crate) fn contended(&self) -> MutexGuard<'_, Xfrm> {
        self.xfrm.try_lock().unwrap_or_else(|| {
            self.counters.lock_waits.fetch_add(1, Ordering::Relaxed);
            self.xfrm.lock()
        })
    }

    /// Whether the stack has more than one worker.
    #[must_use]
    pub fn has_several(&self) -> bool {
        self.workers.len() > 1
    }

    /// Whether several threads have packets for the stack's tables. A stale answer only makes a worker hold them longer
    /// for one burst.
    pub(crate) fn is_contended(&self) -> bool {
        self.has_several() || self.has_gateway.load(Ordering::Relaxed) || self.gates.any()
    }

    /// Sets or removes the waker of the gateway's first thread.
    pub(crate) fn set_gateway(&self, waker: Option<Arc<Waker>>) {
        let mut gateway = self.gateway.lock();
        self.has_gateway.store(waker.is_some(), Ordering::Relaxed);
        *gateway = waker;
    }

    /// Wakes the gateway's thread, if there is one.
    pub fn wake_gateway(&self) {
        self.gateway.lock().iter().for_each(|gateway| gateway.wake());
    }

    /// Notes whether rules mark the packets of some states: those of different ones must not come as one superframe.
    pub fn set_marks(&self, marks: bool) {
        self.marks.store(marks, Ordering::Release);
    }

    /// Whether rules mark the packets of some states.
    pub(crate) fn has_marks(&self) -> bool {
        self.marks.load(Ordering::Acquire)
    }

    /// Notes whether rules of a former daemon are in force.
    pub fn set_leftover(&self, leftover: bool) {
        self.leftover.store(leftover, Ordering::Release);
    }

    /// Whether no state writes a header in front of what it opens, so that packets need no room there.
    pub(crate) fn has_only_tunnels(&self) -> bool {
        self.only_tunnels.load(Ordering::Relaxed)
    }

    /// Notes whether there are states in other modes than tunnel, as states may have come or gone.
    pub fn note_modes(&self, xfrm: &Xfrm) {
        self.only_tunnels.store(xfrm.sad().has_only_tunnels(), Ordering::Relaxed);
    }

    /// Notes that a key manager has asked for something: its sockets are looked for before packets of a new state come.
    pub fn note_request(&self) {
        self.look.ask();
    }

    /// Looks for sockets of key managers in the calling thread's namespace, and has the first worker read those that are beside
    /// them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look_for_key_managers(&self) -> io::Result<()> {
        let _one = self.looks.lock();
        let mut opened = self.groups.lock().opened();
        loop {
            // Nobody waits while the kernel lists sockets.
            let table = udp_table::read()?;
            let mut groups = self.groups.lock();
            let before = core::mem::replace(&mut opened, groups.opened());
            if before == opened {
                let swaps = groups.look(self.bits.exempt, table)?;
                self.counters.port_swaps.fetch_add(swaps, Ordering::Relaxed);
                break;
            }
        }
        self.has_looked.store(true, Ordering::Release);
        if let Some((first, _)) = self.workers.first() {
            first.wake();
        }
        Ok(())
    }

    /// Does so whenever a key manager has asked for something, in the calling thread, until the data path ends.
    pub fn look_when_asked(&self) {
        self.look.work(
            |took| LOOK.max(took * PAUSE),
            || {
                if let Err(e) = self.look_for_key_managers() {
                    debug!("xfrm: sockets of key managers: {e}");
                }
            },
        );
    }

    /// Whether they have been looked for since the last call.
    pub(crate) fn has_looked(&self) -> bool {
        self.has_looked.swap(false, Ordering::AcqRel)
    }

    /// Ends all threads of the data path. Returns whether that had been done before.
    pub fn end(&self) -> bool {
        let was_stopped = self.stop.swap(true, Ordering::AcqRel);
        self.wake();
        self.look.end();
        was_stopped
    }

    /// Wakes the stack's workers.
    pub fn wake(&self) {
        self.workers.iter().for_each(|(waker, _)| waker.wake());
        self.late.iter().for_each(|late| late.waker.wake());
    }

    /// Chooses the thread that reads what comes from the wire: states may have come or gone.
    pub fn choose_reader(&self) {
        if self.cores.choose_reader() {
            self.wake();
        }
    }

    /// No destinations with narrow paths yet, of the packets that are led to the stack's TUN device with this index.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn narrow(&self, device: u32) -> io::Result<Narrow> {
        let narrow = Narrow::new(0, device)?;
        Ok(if self.late.is_some() { narrow.and_perhaps_bound(self.bits) } else { narrow })
    }

    /// The number of the stack's workers.
    #[must_use]
    pub fn worker_count(&self) -> u32 {
        self.workers.len() as u32
    }

    /// Has threads look packets up in a packet core, too.
    pub fn add_core(&self, tables: DeviceTables) {
        self.cores.add(tables);
    }

    /// The packet core with this number is not there any more.
    pub fn remove_core(&self, number: u8) {
        self.cores.remove(number);
        self.choose_reader();
    }

    /// The counters of packets between the daemon and the kernel.
    #[must_use]
    pub fn path_status(&self) -> ipsec::Path {
        self.counters.status()
    }

    /// The counters of each of the stack's workers.
    #[must_use]
    pub fn worker_status(&self) -> Vec<ipsec::Worker> {
        self.workers.iter().map(|(_, counts)| counts.status()).collect()
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { monotonic_ns: clock::boot_ns(), wall_s: clock::wall_s() }
    }

    /// Whether rules of a former daemon are in force.
    #[must_use]
    pub fn is_leftover(&self) -> bool {
        self.leftover.load(Ordering::Acquire)
    }

    /// Sends notices to key managers.
    pub fn send_notices(&self, notices: Vec<Notice>) {
        if !notices.is_empty() {
            (self.publish)(notices);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{Threads, shared};
    use sealane_packets::udp_group::UdpGroup;
    use std::net::UdpSocket;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    /// Two key managers overlap between two looks, which the table of sockets does not tell: the second one's IKE comes to us,
    /// until that is noticed, counted and put right.
    #[test]
    fn a_swap_of_sockets_is_counted() {
        const PORT: &str = "127.0.0.1:4500";
        let Some(netns) = sealane_sys::testing::namespace("xfrm::shared") else { return };
        let manager = || {
            let open = || UdpGroup::open(([0; 4], 4500).into(), 0, 1, &[]).map(|(_, sockets)| sockets);
            netns.run(open).expect("a key manager's socket")
        };
        let first = manager();
        let shared = shared(&netns);
        let _threads = Threads::start(&netns, &shared);
        let second = {
            let _no_look = shared.looks.lock();
            let second = manager();
            drop(first);
            second
        };
        let swaps = || shared.path_status().port_swaps;
        let before = netns.run(|| shared.look_for_key_managers()).map(|()| swaps()).expect("a look");
        let until = Instant::now() + Duration::from_secs(30);
        let told = netns.run(|| {
            let ike = UdpSocket::bind("127.0.0.1:0")?;
            // What comes soon after a program has been attached may have been steered by the one before it.
            while swaps() == 0 && Instant::now() < until {
                ike.send_to(&[0; 32], PORT)?;
                sleep(Duration::from_millis(10));
            }
            ike.send_to(&[0; 33], PORT)?;
            while Instant::now() < until {
                if let Some(read) = second[0].receive(&mut [0; 64])? {
                    return Ok(Some(read.len));
                }
                sleep(Duration::from_millis(10));
            }
            Ok(None)
        });
        assert_eq!((before, swaps(), told.expect("sockets")), (0, 1, Some(33)));
    }
}
