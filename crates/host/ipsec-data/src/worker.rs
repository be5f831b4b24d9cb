//! A worker: a thread that moves packets between a TUN device and the wire, and the parts that it owns.

use crate::bypass::fast_in::FastIn;
use crate::cores::DeviceTables;
use crate::flight::InFlight;
use crate::lane::Lane;
use crate::late::{LateWay, Source};
use crate::ports::Ports;
use crate::receiver::{Receiver, most_udp};
use crate::routes::Routes;
use crate::shared::Shared;
use crate::sockets::Sockets;
use crate::stack::Stack;
use crate::streams::StreamReader;
use crate::tables::{Scope, Tables};
use crate::wire::Wire;
use parking_lot::Mutex;
use sealane_config::DEVICE;
use sealane_packets::shard::Shard;
use sealane_packets::tun::Tun;
use sealane_sys::marks::Marks;
use sealane_sys::poll::Waker;
use sealane_sys::route::Narrow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A worker. The modules `outbound` and `inbound` move its bursts, `run` is its loop.
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) post: WorkerHandle,
    /// The receiver: sockets, rings, and the queue of the TUN device.
    pub(crate) rx: Receiver,
    /// The transmitter: sealed packets leave by it.
    pub(crate) tx: Wire,
    /// The way up to the stack for opened packets.
    pub(crate) stack: Stack,
    /// States, policies and routes.
    pub(crate) tables: Tables,
    /// The bursts that it has begun.
    pub(crate) flights: InFlight,
    /// The time that it looks for packets before it sleeps.
    spin: Duration,
    /// Whether it opens sockets beside those of key managers.
    pub(crate) joins: bool,
    /// The reader of connections for ESP in TCP, if it is this worker.
    pub(crate) streams: Option<StreamReader>,
}

/// The numbers of the threads of packet cores, of the late way, and of xfrm interfaces; the stack's workers have the first ones.
const CORES: u32 = 1 << 30;
const LATE: u32 = 1 << 29;
const INTERFACES: u32 = 1 << 31;

/// The differences between workers of the stack, packet cores, the late way and xfrm interfaces.
struct Role {
    scope: Scope,
    /// The states whose packets it reads from rings, if it does.
    shard: Option<Shard>,
    /// Its rings to the other workers, if there are any.
    lane: Option<Lane>,
    /// Whether it shares UDP sockets of other ports with the stack's workers.
    lends: bool,
    /// Its number among all threads.
    thread: u32,
}

/// A thread's waker, and the flag that ends it.
#[derive(Clone)]
pub struct WorkerHandle {
    /// Wakes it.
    pub waker: Arc<Waker>,
    /// Ends it, once it is woken.
    pub stop: Arc<AtomicBool>,
}

impl Worker {
    /// Opens the workers of the stack, in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_all(shared: &Arc<Shared>) -> io::Result<Vec<Self>> {
        let queues = Tun::open_stack(DEVICE, shared.workers.len())?;
        let index = queues.first().map_or(0, Tun::index);
        let narrow = Some(Arc::new(Mutex::new(shared.narrow(index)?)));
        let lanes = Lane::all(&shared.workers).into_iter().map(|lane| Some(lane).filter(|_| shared.has_several()));
        let each = lanes.zip(queues).zip(shared.workers.iter().zip(&shared.sockets));
        each.map(|((lane, tun), ((waker, _), sockets))| {
            let shard = lane.as_ref().map_or(Shard::ALL, |lane| Shard { index: lane.index(), of: lane.of() });
            let post = WorkerHandle { waker: waker.clone(), stop: shared.stop.clone() };
            let role = Role { scope: Scope::Stack, shard: Some(shard), lane, lends: true, thread: shard.index };
            Worker::open(shared, routed(tun)?, narrow.clone(), post, sockets.clone(), role)
        })
        .collect()
    }

    /// Opens the worker of a packet core, between its TUN device and the wire, in the calling thread's namespace. Packets are
    /// led to that device by `number`. Its tables are set later.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_core(shared: &Arc<Shared>, tun: Tun, number: u8, post: WorkerHandle) -> io::Result<Self> {
        let narrow = Some(Arc::new(Mutex::new(Narrow::new(number, tun.index())?)));
        let sockets = Sockets::all(&shared.sockets);
        let thread = CORES | u32::from(number);
        let role = Role { scope: Scope::Stack, shard: Some(Shard::ALL), lane: None, lends: false, thread };
        Worker::open(shared, routed(tun)?, narrow, post, sockets, role)
    }

    /// Opens the worker of the late way, between its device and the wire, in the calling thread's namespace. Errors go up to the stack by `up`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_late(shared: &Arc<Shared>, late: &LateWay, up: Tun) -> io::Result<Self> {
        let post = WorkerHandle { waker: late.waker.clone(), stop: shared.stop.clone() };
        // For sending any socket of the port will do.
        let sockets = shared.sockets.first().cloned().unwrap_or_default();
        let role = Role { scope: Scope::Late, shard: None, lane: None, lends: true, thread: LATE };
        Worker::open(shared, (Source::Late(late.device.try_clone()?), up), None, post, sockets, role)
    }

    /// Opens the worker of an xfrm interface, between its TUN device and the wire, in the calling thread's namespace. Inbound
    /// packets are opened by the stack's workers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_interface(shared: &Arc<Shared>, tun: Tun, if_id: u32, post: WorkerHandle) -> io::Result<Self> {
        // For sending any socket of the port will do.
        let sockets = shared.sockets.first().cloned().unwrap_or_default();
        let thread = INTERFACES | tun.index();
        let role = Role { scope: Scope::Interface(if_id), shard: None, lane: None, lends: true, thread };
        Worker::open(shared, routed(tun)?, None, post, sockets, role)
    }

    fn open(
        shared: &Arc<Shared>,
        (source, up): (Source, Tun),
        narrow: Option<Arc<Mutex<Narrow>>>,
        post: WorkerHandle,
        sockets: Sockets,
        role: Role,
    ) -> io::Result<Self> {
        let Role { scope, shard, lane, lends, thread } = role;
        let exempt = shared.bits.exempt;
        let joins = lends && shard.is_some_and(|shard| shard.index == 0);
        let ports = Ports::new(sockets.udp.clone(), most_udp(sockets.raw.len()), lends);
        let fast_in = shard.and_then(|shard| FastIn::new(&sockets.raw, Marks::new(exempt).verified(), shard));
        // Past the stack nobody would see to it that a packet leaves by the device of the packet in it.
        let tx = Wire::open(shared, &sockets, ports, !matches!(scope, Scope::Late))?;
        Ok(Worker {
            shared: shared.clone(),
            flights: InFlight::new(post.waker.clone()),
            post,
            stack: Stack::new(up),
            rx: Receiver::new(source, lane, sockets.raw, fast_in),
            tx,
            tables: Tables::new(scope, Routes::new(narrow, exempt)?, thread),
            spin: Duration::ZERO,
            joins,
            streams: joins.then(StreamReader::new),
        })
    }

    /// The index of its TUN device.
    #[must_use]
    pub fn device(&self) -> u32 {
        self.stack.index()
    }

    /// Its TUN device, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tun(&self) -> io::Result<Tun> {
        self.stack.tun()
    }

    /// Has its packets go by the tables of a packet core first.
    pub fn set_tables(&mut self, tables: DeviceTables) {
        self.tables.set_scope(Scope::Device(tables));
    }

    /// Has it look for packets for so long before it sleeps.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// The time that it looks for packets before it sleeps.
    pub(crate) fn spin(&self) -> Duration {
        self.spin
    }
}

/// A TUN device, from which a worker reads and by which it gives packets to the stack.
fn routed(tun: Tun) -> io::Result<(Source, Tun)> {
    let up = tun.try_clone()?;
    Ok((Source::Routed(tun), up))
}
