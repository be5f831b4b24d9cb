//! The data path of one network namespace: what its threads ([`crate::data::worker`]) share, and the rules that target packets to them.

use super::policies::{self, Target, Targets, prefix_rules, wanted};
use crate::data::shared::{Publish, Shared};
use crate::data::worker::Worker;
use crate::device::mirror::Mirror;
use parking_lot::Mutex;
use sealane_config::DEVICE;
use sealane_engine_xfrm::{Now, Xfrm};
use sealane_net::ipsec::drop::{Counter, Stat};
use sealane_sys::cpu;
use sealane_sys::netns::Netns;
use sealane_sys::nft::ipsec::{Bits, PolicyTable, Refused, Wanted};
use sealane_sys::route::{self, PrefixRule, PrefixRules};
use sealane_sys::tun::Tun;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// The data path of a namespace. Rules and routes outlive it, unless it is ended by [`DataPath::stop`].
pub(crate) struct DataPath {
    netns: Netns,
    shared: Arc<Shared>,
    table: Mutex<PolicyTable>,
    targets: Mutex<Targets>,
    prefix_rules: Mutex<PrefixRules>,
    mirror: Arc<Mirror>,
    /// For who gives packets to the stack beside its threads.
    tun: Tun,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Ends all workers with the first of them that ends, however it does: nothing of what policies protect passes then.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
        self.0.wake();
    }
}

impl DataPath {
    /// Starts one with so many workers. From now on what the policies protect goes through it, or nowhere.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without its privileges, `ENOENT` without `/dev/net/tun`.
    pub(crate) fn start(netns: Netns, xfrm: Xfrm, publish: Publish, workers: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(&netns, xfrm, publish, workers)?);
        let bits = shared.bits;
        shared.xfrm().look_elsewhere();
        let (workers, mut table) = netns.run(|| Ok((Worker::open_all(&shared)?, PolicyTable::new(DEVICE, bits)?)))?;
        // What policies protected before a crash stays protected until somebody says what is so now.
        if table.is_there() {
            shared.set_leftover(true);
        } else {
            table.write(wanted(shared.xfrm().spd(), Vec::new(), &Targets::new(), &BTreeSet::new()))?;
        }
        let tun = workers.first().ok_or(io::ErrorKind::InvalidInput)?.stack.tun()?;
        let index = tun.index();
        let mut prefix_rules = PrefixRules::default();
        netns.run(|| {
            // Devices may have other numbers now; what these led, marks do.
            prefix_rules.clear(bits)?;
            route::install(bits, 0, index)
        })?;
        let data = DataPath {
            netns,
            shared,
            table: Mutex::new(table),
            targets: Mutex::default(),
            prefix_rules: Mutex::new(prefix_rules),
            mirror: Arc::default(),
            tun,
            threads: Mutex::default(),
        };
        match data.spawn(workers) {
            Ok(()) => Ok(data),
            Err(e) => {
                data.halt();
                Err(e)
            }
        }
    }

    fn spawn(&self, workers: Vec<Worker>) -> io::Result<()> {
        for (i, mut worker) in workers.into_iter().enumerate() {
            let there = self.netns.try_clone()?;
            let name = if i == 0 { DEVICE.to_owned() } else { format!("{DEVICE}{i}") };
            let alarm = Alarm(self.shared.clone());
            // What a thread that moves from one CPU to another has sent before may arrive behind what it sends then: the kernel has
            // a queue for each. Where several send that happens all the time.
            let cpu = if self.shared.has_several() { cpu::nth(i as u32) } else { None };
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                let alarm = alarm;
                // Where it may not stay it moves packets nevertheless.
                let _ = cpu.map(cpu::stay_on);
                // Paths and sockets of new ports are looked for from here.
                if let Err(e) = there.enter().and_then(|()| worker.run()) {
                    eprintln!(
                        "sealane: the data path of IPsec ended: {e}; what policies protect is dropped from now on"
                    );
                }
                drop(alarm);
            })?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Its TUN device, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn tun(&self) -> io::Result<Tun> {
        self.tun.try_clone()
    }

    /// How many threads it has.
    pub(crate) fn workers(&self) -> u32 {
        self.shared.workers.len() as u32
    }

    /// Whether all of its threads have ended.
    #[cfg(test)]
    pub(crate) fn has_ended(&self) -> bool {
        self.threads.lock().iter().all(JoinHandle::is_finished)
    }

    /// Does what a thread that ends does last.
    #[cfg(test)]
    pub(crate) fn end_one(&self) {
        drop(Alarm(self.shared.clone()));
    }

    /// What its threads share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Does something with the engine and makes the rules follow before it returns: what a policy says is in force when
    /// its sender hears of it.
    ///
    /// # Errors
    /// The kernel's, when the rules could not be changed: nothing of what they protect passes then.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Xfrm, Now) -> R) -> io::Result<R> {
        let mut table = self.table.lock();
        let now = self.shared.now();
        let (result, rules) = {
            let mut xfrm = self.shared.xfrm();
            let before = (xfrm.spd().changes(), xfrm.output_mark_changes());
            let result = f(&mut xfrm, now);
            self.shared.note_modes(&xfrm);
            // Rules of a daemon before this one stay until somebody says what policies there are now.
            let remarked = xfrm.output_mark_changes() != before.1 && !self.shared.is_leftover();
            let changed = xfrm.spd().changes() != before.0 || remarked || self.mirror.has_changed();
            let targets = self.targets.lock();
            let rules = || (self.wanted(&xfrm, &targets), prefix_rules(xfrm.spd(), &targets));
            (result, changed.then(rules))
        };
        if let Some((rules, prefix_rules)) = rules {
            table.write(rules)?;
            self.set_prefix_rules(prefix_rules);
            self.mirror.settle();
            self.shared.set_leftover(false);
        }
        self.shared.choose_reader();
        self.shared.wake();
        self.shared.wake_gateway();
        Ok(result)
    }

    /// Has engine and rules follow the xfrm interfaces.
    ///
    /// # Errors
    /// The kernel's, when the rules could not be changed.
    pub(crate) fn follow_interfaces(&self) -> io::Result<()> {
        let mut table = self.table.lock();
        let rules = {
            let mut xfrm = self.shared.xfrm();
            xfrm.set_interfaces(self.shared.gates.if_ids());
            self.wanted(&xfrm, &self.targets.lock())
        };
        // Rules of a daemon before this one stay until somebody says what policies there are now.
        if self.shared.is_leftover() { Ok(()) } else { table.write(rules) }
    }

    /// What the rules have to say.
    fn wanted(&self, xfrm: &Xfrm, targets: &Targets) -> Wanted {
        let marks = policies::marks(xfrm);
        self.shared.marks.store(!marks.is_empty(), Ordering::Release);
        let interfaces = self.shared.gates.names();
        Wanted { interfaces, ..wanted(xfrm.spd(), marks, targets, &self.mirror.put(xfrm)) }
    }

    /// What became of packets: those that the engine has judged, and those that the rules have dropped.
    pub(crate) fn stat(&self) -> Stat {
        let mut stat = self.shared.xfrm().stat();
        let dropped = self.table.lock().dropped();
        for (why, packets) in Refused::ALL.into_iter().zip(dropped) {
            let counter = match why {
                Refused::Template => Counter::InTmplMismatch,
                Refused::Block => Counter::InPolBlock,
                Refused::Rest => Counter::InNoPols,
            };
            stat.count(counter, packets);
        }
        stat
    }

    /// Leads packets to their devices without a mark. Where that fails marks do it.
    fn set_prefix_rules(&self, wanted: BTreeSet<PrefixRule>) {
        let prefix_rules = &mut *self.prefix_rules.lock();
        if !prefix_rules.are(&wanted)
            && let Err(e) = self.netns.run(|| prefix_rules.set(wanted))
        {
            eprintln!("sealane: the routing rules of offload devices: {e}");
            let _ = self.netns.run(|| prefix_rules.clear(self.shared.bits));
        }
    }

    /// The policies that the kernel has in our place.
    pub(crate) fn mirror(&self) -> &Arc<Mirror> {
        &self.mirror
    }

    /// The number of a TUN device that has none yet, for packet offload; `None` when there are too many.
    pub(crate) fn free_number(&self) -> Option<u8> {
        let targets = self.targets.lock();
        let taken = |n: u8| targets.values().any(|target| matches!(target, Target::Tun(number, _) if *number == n));
        (1..=self.shared.bits.last_device()).find(|n| !taken(*n))
    }

    /// Leads what the policies of an offload device protect there, from now on: to a TUN device, or nowhere when that is gone.
    /// `None` when it has no policies any more.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn set_target(&self, ifindex: u32, target: Option<Target>) -> io::Result<()> {
        if let Some(Target::Tun(number, _)) = target {
            self.netns.run(|| route::install(self.shared.bits, number, ifindex))?;
        }
        let mut table = self.table.lock();
        let (before, after) = {
            let mut targets = self.targets.lock();
            let before = targets.clone();
            match target {
                Some(target) => targets.insert(ifindex, target),
                None => targets.remove(&ifindex),
            };
            (before, targets.clone())
        };
        // Rules of a daemon before this one stay until somebody says what is so now.
        if before == after || self.shared.is_leftover() {
            return Ok(());
        }
        let (rules, prefix_rules) = {
            let xfrm = self.shared.xfrm();
            (self.wanted(&xfrm, &after), prefix_rules(xfrm.spd(), &after))
        };
        table.write(rules)?;
        self.set_prefix_rules(prefix_rules);
        self.mirror.settle();
        Ok(())
    }

    /// Ends it in good order: rules and routes go, and what was protected passes in clear.
    pub(crate) fn stop(&self) {
        self.halt();
        let done = self.table.lock().delete().and_then(|()| {
            self.netns.run(|| {
                self.prefix_rules.lock().clear(self.shared.bits)?;
                route::remove_all(self.shared.bits)
            })
        });
        if let Err(e) = done {
            eprintln!("sealane: taking the rules of IPsec away: {e}");
        }
    }

    /// Ends its threads alone: nothing of what policies protect passes any more.
    pub(crate) fn halt(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        for thread in core::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }
}

/// Takes rules and routes of a daemon that has ended away, in the calling thread's namespace: what was protected passes in
/// clear.
///
/// # Errors
/// When a running daemon owns them, or the kernel's.
pub fn clear() -> io::Result<()> {
    let bits = Bits::default();
    PolicyTable::new(DEVICE, bits)?.delete()?;
    PrefixRules::default().clear(bits)?;
    route::remove_all(bits)
}
