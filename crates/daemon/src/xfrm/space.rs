//! What one network namespace has: an engine, its clock, and the thread that answers who asks at [`super::PORT`].

use super::mark;
use super::socket::{Server, Socket};
use crate::transport::netns::Netns;
use crate::transport::poll::Waker;
use parking_lot::{Mutex, MutexGuard};
use sealane_crypto::Registry;
use sealane_engine::xfrm::{Notice, Now, Setup, Xfrm};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How long the thread sleeps at most: what changes the engine elsewhere wakes it.
const LONGEST: Duration = Duration::from_secs(60);

/// One of them.
#[allow(dead_code, reason = "the data path needs more of it than who asks")]
pub(crate) struct Space {
    netns: Netns,
    engine: Mutex<Xfrm>,
    socket: Socket,
    waker: Waker,
    start: Instant,
    stop: AtomicBool,
    /// Says that we serve, also when we have died.
    mark: mark::Mark,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[allow(dead_code, reason = "the data path needs more of it than who asks")]
impl Space {
    /// Serves a namespace. `folder` is where it says so.
    ///
    /// # Errors
    /// `AddrInUse` when another daemon does; otherwise the kernel's.
    pub(crate) fn start(netns: Netns, registry: Arc<Registry>, folder: &Path) -> io::Result<Arc<Self>> {
        let random = |bytes: &mut [u8]| {
            use sealane_crypto::rng::Entropy;
            sealane_drivers::SystemEntropy.fill(bytes).expect("the system has random bytes")
        };
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let engine = Mutex::new(Xfrm::new(Setup { registry, random: Box::new(random), cpus }));
        let socket = Socket::open(&netns)?;
        let mark = mark::Mark::write(folder, &netns)?;
        let space = Arc::new(Space {
            netns,
            engine,
            socket,
            waker: Waker::new()?,
            start: Instant::now(),
            stop: AtomicBool::new(false),
            mark,
            thread: Mutex::default(),
        });
        let shared = space.clone();
        let thread = std::thread::Builder::new().name("sealane-xfrm".into()).spawn(move || shared.work())?;
        *space.thread.lock() = Some(thread);
        Ok(space)
    }

    fn work(&self) {
        let mut server = Server::new(&self.socket);
        while !self.stop.load(Ordering::Acquire) {
            let timeout = self.engine.lock().poll_timeout(self.now()).unwrap_or(LONGEST).min(LONGEST);
            server.turn(timeout, &self.waker, |datagram, from| self.engine.lock().call(datagram, from, self.now()));
            let events = {
                let mut engine = self.engine.lock();
                let now = self.now();
                if engine.poll_timeout(now).is_some_and(|t| t.is_zero()) {
                    engine.handle_timeout(now)
                } else {
                    Vec::new()
                }
            };
            self.publish(&events);
        }
    }

    /// The engine. Who brings a timer forward calls [`Space::changed`] afterwards.
    pub(crate) fn engine(&self) -> MutexGuard<'_, Xfrm> {
        self.engine.lock()
    }

    /// The kernel's namespace.
    pub(crate) fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The time, as the engine counts it here.
    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { monotonic_ns: self.start.elapsed().as_nanos() as u64, wall_s: wall.as_secs() }
    }

    /// Tells events to those who listen.
    pub(crate) fn publish(&self, events: &[Notice]) {
        self.socket.publish(events);
    }

    /// Looks anew when the engine's next timer is due.
    pub(crate) fn changed(&self) {
        self.waker.wake();
    }

    /// Names the devices that can do crypto or whole packets: launchers tell programs that ask (`esp-hw-offload`).
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn set_devices(&self, names: &[String]) -> io::Result<()> {
        self.mark.set_devices(names)
    }

    /// Ends it: in this namespace the kernel's own IPsec is asked from now on.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.mark.remove();
    }
}
