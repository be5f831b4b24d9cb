//! The packet offload core: a thread with states and policies of its own, between its TUN device and the wire.
//!
//! ```text
//!  stack ─ mark (nft) ─ rule ─ TUN sealane0 ─▶ the thread: policy, length, headers, crypto ─▶ wire
//!  stack ◀──────────────────── TUN sealane0 ◀─ the thread: crypto, window, policy ◀─────────── wire
//! ```
//!
//! As long as it has inbound states it reads all packets from the wire, as a card does. Packets of other states are
//! opened with the tables that have these (`sealane_ipsec_data`).

use super::running::{DEDICATED_SPIN, DeviceContext, Running};
use sealane_abi::admin::ipsec::{self, DeviceKind};
use sealane_engine_xfrm::device::Device;
use sealane_engine_xfrm::packet::PacketDevice;
use sealane_ipsec_data::{CoreCounts, DeviceTables, Shared, Worker, WorkerHandle};
use sealane_packets::tun::Tun;
use sealane_sys::cpu;
use sealane_sys::life::{self, Kind};
use sealane_sys::link;
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use sealane_sys::random;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tracing::{Span, error, warn};

/// The interface, and the thread while it is up.
pub(super) struct Packet {
    name: String,
    ifindex: u32,
    number: u8,
    cpu: Option<u32>,
    netns: Netns,
    shared: Arc<Shared>,
    events: Arc<Waker>,
    counts: Arc<CoreCounts>,
    post: WorkerHandle,
    /// The thread's worker, while there is no thread.
    idle: Option<Worker>,
    thread: Option<JoinHandle<Option<Worker>>>,
}

impl Packet {
    /// Makes the interface. The thread is pinned to a CPU, if one is given.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(name: &str, cpu: Option<u32>, place: &DeviceContext<'_>) -> io::Result<Self> {
        let post = WorkerHandle { waker: Arc::new(Waker::new()?), stop: Arc::default() };
        let mut worker =
            place.netns.run(|| Worker::open_core(place.shared, Tun::open(name)?, place.number, post.clone()))?;
        if cpu.is_some() && cpu::has_others(cpu) {
            worker.set_spin(DEDICATED_SPIN);
        }
        Ok(Packet {
            name: name.to_owned(),
            ifindex: worker.device(),
            number: place.number,
            cpu,
            netns: place.netns.try_clone()?,
            shared: place.shared.clone(),
            events: place.waker.clone(),
            counts: Arc::default(),
            post,
            idle: Some(worker),
            thread: None,
        })
    }

    fn stop_thread(&mut self) {
        self.shared.remove_core(self.number);
        self.post.stop.store(true, Ordering::Release);
        self.post.waker.wake();
        if let Some(thread) = self.thread.take() {
            self.idle = thread.join().ok().flatten();
        }
    }
}

impl Running for Packet {
    fn ifindex(&self) -> u32 {
        self.ifindex
    }

    fn up(&mut self) -> io::Result<Box<dyn Device>> {
        self.stop_thread();
        let there = self.netns.try_clone()?;
        let gone = || io::Error::other("its thread has ended with an error");
        let mut worker = self.idle.take().ok_or_else(gone)?;
        let device = PacketDevice::new(|| {
            let mut bytes = [0; 8];
            random::fill(&mut bytes);
            u64::from_ne_bytes(bytes)
        });
        let tables = DeviceTables {
            core: device.core(),
            counts: self.counts.clone(),
            number: self.number,
            events: self.events.clone(),
            thread: self.post.waker.clone(),
        };
        worker.set_tables(tables.clone());
        self.post.stop.store(false, Ordering::Release);
        let (name, cpu, context) = (self.name.clone(), self.cpu, Span::current());
        let failed = self.shared.on_failure.clone();
        let thread = std::thread::Builder::new().name(self.name.clone()).spawn(move || {
            let _context = context.entered();
            let _alive = life::begin(&name, Kind::Data);
            if let Some(cpu) = cpu
                && let Err(e) = cpu::stay_on(cpu)
            {
                warn!(device = name, cpu, error = %e, "xfrm: {name}: its thread does not stay on CPU {cpu}: {e}");
            }
            match there.enter().and_then(|()| worker.run()) {
                Ok(()) => Some(worker),
                Err(e) => {
                    // The interface goes with it, so packets led there are dropped.
                    error!(device = name, error = %e, "xfrm: {name}: the device has ended: {e}");
                    // Unless somebody has deleted it.
                    if link::index(&name).is_ok() {
                        failed();
                    }
                    None
                }
            }
        })?;
        self.thread = Some(thread);
        self.shared.add_core(tables);
        Ok(Box::new(device))
    }

    fn down(&mut self) {
        self.stop_thread();
    }

    fn status(&self) -> DeviceKind {
        let CoreCounts { sealed, opened, dropped, asked } = &*self.counts;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceKind::Packet(ipsec::PacketOffload {
            sealed: value(sealed),
            opened: value(opened),
            dropped: value(dropped),
            asked: value(asked),
        })
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.stop_thread();
    }
}
