//! A gateway between interfaces, past the stack: frames that certainly need IPsec go from a driver to the daemon and to
//! a driver again.
//!
//! ```text
//!  lan ─ XDP program: policies' prefixes ─▶ AF_XDP ─▶ hop limit, seal ─▶ route, neighbour known ─▶ AF_XDP ─▶ wan
//!                                                                     └─ else: raw and UDP sockets ─▶ stack
//!  wan ─ XDP program: states of ours ────▶ AF_XDP ─▶ open, policies ─▶ nobody's policy, route, neighbour known ─▶ AF_XDP ─▶ lan
//!                                                                     └─ else: TUN ─▶ stack
//!  everything else ──────────────────────▶ stack, its rules, TUN (`sealane_ipsec`)
//! ```
//!
//! It pays for packets that come one by one, as cards deliver them: by the TUN device each of them passes the stack
//! twice and costs a read. A superframe pays that once for all of its packets, and is faster by the TUN device.
//!
//! It has as many threads as the stack, if each of its interfaces has so many queues. Sealed packets are opened by the
//! thread of their queue, which cards choose by addresses. Packets to be sealed go to the thread of their state
//! ([`relay`]), so that sequence numbers leave in order, by one queue for each state.
//!
//! States, policies, windows and counters are those of the stack's workers. The program takes only packets with a
//! policy that protects them ([`selection`]); if there is none when a thread looks, they are dropped: only packets that
//! came in sealed leave here unencrypted. When the daemon dies the program is gone, and the rules of the stack, which
//! stay, hold back unprotected packets.

mod common;
mod coordinator;
mod forward;
mod forwarder;
mod hops;
mod opening;
mod plan;
mod relay;
mod selection;
mod state;

use crate::ports::Ports;
use crate::receiver::most_udp;
use crate::routes::Routes;
use crate::shared::Shared;
use crate::sockets::Sockets;
use crate::stack::Stack;
use crate::tables::{Scope, Tables};
use crate::wire::Wire;
use common::{Common, GatewayCounts, Mailbox};
use coordinator::Coordinator;
use forwarder::Forwarder;
use parking_lot::Mutex;
use sealane_abi::admin::ipsec;
use sealane_packets::tun::Tun;
use sealane_sys::cpu;
use sealane_sys::life::{self, Kind};
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use state::State;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use tracing::{Span, error};

/// Ends all threads as soon as one of them ends, even by a panic: the stack has the interfaces again.
struct StopThreadsOnDrop(Arc<Common>);

impl Drop for StopThreadsOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The gateway of a namespace. Dropping it ends it.
pub struct Gateway {
    names: Vec<String>,
    common: Arc<Common>,
    shown: Arc<Mutex<Vec<State>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Gateway {
    /// Starts a gateway between interfaces of a namespace, some of which may come later. `tun` gives packets to the stack.
    ///
    /// # Errors
    /// The kernel's. An interface that cannot be served is reported, and left to the stack.
    pub fn start(netns: &Netns, shared: &Arc<Shared>, tun: Tun, names: &[String]) -> io::Result<Self> {
        let count = shared.sockets.len().max(1);
        let wakers: Vec<Arc<Waker>> = (0..count).map(|_| Waker::new().map(Arc::new)).collect::<io::Result<_>>()?;
        let (common, shown) = (
            Arc::new(Common {
                shared: shared.clone(),
                counts: GatewayCounts::default(),
                stop: AtomicBool::new(false),
                forwards_v6: AtomicBool::new(false),
                posts: wakers.iter().cloned().map(Mailbox::new).collect(),
            }),
            Arc::default(),
        );
        let mut coordinator = Some(Coordinator::new(names, &shown));
        let (exempt, context) = (shared.bits.exempt, Span::current());
        let workers = netns.run(|| {
            let _context = context.enter();
            let narrow = Arc::new(Mutex::new(shared.narrow(tun.index())?));
            let worker = |index| {
                // For sending any socket of the port will do.
                let sockets: Sockets = shared.sockets.get(index).cloned().unwrap_or_default();
                let ports = Ports::new(sockets.udp.clone(), most_udp(sockets.raw.len()), true);
                let tx = Wire::open(shared, &sockets, ports, false)?;
                let tables = Tables::new(Scope::Stack, Routes::new(Some(narrow.clone()), exempt)?, 0);
                Ok(Forwarder::new(&common, index, coordinator.take(), tx, Stack::new(tun.try_clone()?), tables))
            };
            let mut workers: Vec<Forwarder> = (0..count).map(worker).collect::<io::Result<_>>()?;
            workers.iter_mut().for_each(Forwarder::begin);
            Ok(workers)
        })?;
        shared.set_gateway(wakers.into_iter().next());
        // From here on dropping the gateway undoes that.
        let mut gateway = Gateway { names: names.to_vec(), common, shown, threads: Vec::new() };
        for (i, mut worker) in workers.into_iter().enumerate() {
            let (there, alarm, context) =
                (netns.try_clone()?, StopThreadsOnDrop(gateway.common.clone()), context.clone());
            let name = if i == 0 { "sealane-gateway".to_owned() } else { format!("sealane-gateway{i}") };
            // As with the stack's workers, pinning keeps the packets of a thread in order.
            let cpu = if count > 1 { cpu::nth(i as u32) } else { None };
            let failed = shared.on_failure.clone();
            // The coordinator's thread sets drivers up, which takes as long as they want.
            let kind = if i == 0 { Kind::Control } else { Kind::Data };
            let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
                let (alarm, _alive) = (alarm, life::begin(&name, kind));
                let _context = context.entered();
                // A thread that may not be pinned moves packets all the same.
                let _ = cpu.map(cpu::stay_on);
                if let Err(e) = there.enter().and_then(|()| worker.run()) {
                    error!(error = %e, "xfrm: the gateway has ended: {e}; the stack has its interfaces again");
                    failed();
                }
                drop(alarm);
            })?;
            gateway.threads.push(thread);
        }
        Ok(gateway)
    }

    /// The interfaces that it was started with.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The status of the gateway and of its interfaces.
    #[must_use]
    pub fn status(&self) -> ipsec::Gateway {
        let shown = self.shown.lock();
        let xdp = |(device, state): (usize, &State)| {
            let lost = self.common.posts.iter().map(|post| post.lost(device));
            let (full, dropped) = lost.fold((0, 0), |sum, lost| (sum.0 + lost.full, sum.1 + lost.dropped));
            ipsec::Xdp {
                mode: state.mode,
                memory: state.memory,
                queues: state.queues.into(),
                threads: state.threads as u64,
                received_full: full,
                received_dropped: dropped,
            }
        };
        let interface = |name: &String| ipsec::GatewayInterface {
            name: name.clone(),
            xdp: shown.iter().enumerate().find(|(_, state)| state.name == *name).map(xdp),
        };
        ipsec::Gateway { counters: self.common.counts.status(), interfaces: self.names.iter().map(interface).collect() }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.common.shared.set_gateway(None);
        self.common.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
