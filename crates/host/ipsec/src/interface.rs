//! Xfrm interfaces: packets routed to one go through the policies and states with its interface id (`if_id`), or are
//! dropped; packets opened by states with that id come out of the interface.
//!
//! ```text
//!  stack ─ route ─▶ TUN ipsec0 ─▶ its thread: policies, states with the id ─▶ wire
//!  stack ◀───────── TUN ipsec0 ◀─ stack's threads: policies with the id ◀──── wire
//! ```
//!
//! The interface stays when the daemon dies, so that packets routed to it are dropped.
//!
//! The configuration names interfaces, and programs make them (`ip link add type xfrm`, which launchers pass on). Those of
//! programs are in no file: the alias of the device says what it is, and the next daemon looks for such devices. They live
//! until somebody deletes them, or their network namespace ends.
//!
//! A device may be moved to another namespace, such as a container's. As in Linux (`xi->net` in net/xfrm/xfrm_interface_core.c) its
//! packets go through the policies of the namespace that it was made in, and sealed packets leave from there: the descriptor of
//! the device stays here. Rules of nftables know devices by name, so that those that are elsewhere, or renamed, are followed.

use crate::control::path::DataPath;
use sealane_abi::Errno;
use sealane_abi::admin::ipsec;
use sealane_abi::sealane::Interface as Made;
use sealane_config::XfrmInterface;
use sealane_ipsec_data::{Gate, Worker, WorkerHandle};
use sealane_packets::tun::Tun;
use sealane_sys::life::{self, Kind};
use sealane_sys::netns::{Netns, NetnsId};
use sealane_sys::poll::Waker;
use sealane_sys::{named_netns, presence, transient};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use tracing::{Span, debug, error, warn};

/// The most interfaces that programs can make in a namespace: each has a thread and a queue.
const MAX_MADE: usize = 1024;

/// An interface that is there.
struct Interface {
    config: XfrmInterface,
    /// The properties of one that a program has made.
    made: Option<Made>,
    /// The namespace that its device is in, with its cookie, unless that is the one that it was made in.
    elsewhere: Option<(NetnsId, u64)>,
    gate: Arc<Gate>,
    post: WorkerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Interface {
    /// Starts one of `netns`, whose device is there or `elsewhere`.
    fn start(
        config: &XfrmInterface,
        made: Option<Made>,
        netns: &Netns,
        elsewhere: Option<&Netns>,
        data: &DataPath,
    ) -> io::Result<Self> {
        let post = WorkerHandle { waker: Arc::new(Waker::new()?), stop: Arc::default() };
        let tun = elsewhere.unwrap_or(netns).run(|| match made {
            Some(made) => Tun::open_made(&config.name, made),
            None => Tun::open_kept(&config.name),
        })?;
        let name = Some(config.name.clone()).filter(|_| elsewhere.is_none());
        let elsewhere = elsewhere.map(|there| io::Result::Ok((there.id()?, there.cookie()?))).transpose()?;
        let gate = Arc::new(Gate::new(name, config.if_id, tun.try_clone()?));
        let mut worker = netns.run(|| Worker::open_interface(data.shared(), tun, config.if_id, post.clone()))?;
        let (there, name, context) = (netns.try_clone()?, config.name.clone(), Span::current());
        let (failed, tun) = (data.shared().on_failure.clone(), gate.tun().try_clone()?);
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            let _context = context.entered();
            let _alive = life::begin(&name, Kind::Data);
            if let Err(e) = there.enter().and_then(|()| worker.run()) {
                if made.is_some() && !tun.is_there() {
                    debug!(interface = name, "xfrm: the interface {name} has been deleted");
                    return;
                }
                error!(
                    interface = name,
                    error = %e,
                    "xfrm: the interface {name} has ended: {e}; packets routed to it are dropped"
                );
                // An interface that somebody has deleted is made again when the configuration is read again.
                if tun.is_there() {
                    failed();
                }
            }
        })?;
        debug!(interface = config.name, if_id = config.if_id, "xfrm: the interface {} is up", config.name);
        Ok(Interface { config: config.clone(), made, elsewhere, gate, post, thread: Some(thread) })
    }

    /// Whether its device is in the namespace of its policies, with this name.
    fn is_named(&self, name: &str) -> bool {
        self.gate.name.lock().as_deref() == Some(name)
    }

    /// Notes the name and the place that its device has now. Returns whether the rules have to know.
    fn follow(&mut self, home: NetnsId) -> io::Result<bool> {
        let tun = self.gate.tun();
        let Ok(name) = tun.name() else {
            // It has been deleted: the rules must not know another device by its name.
            return Ok(self.gate.name.lock().take().is_some());
        };
        let place = match tun.netns() {
            Err(e) if !transient::is(&e) => {
                // It is where it cannot be followed to, and the rules must not know another device by its name.
                debug!(interface = self.config.name, error = %e, "xfrm: the interface {name} is in a namespace that cannot be had: {e}");
                let was_elsewhere = self.elsewhere.take().is_some();
                return Ok(self.gate.name.lock().take().is_some() || was_elsewhere);
            }
            place => place?,
        };
        let id = place.id()?;
        let is_here = id == home;
        let has_moved = self.elsewhere.map_or(home, |(id, _)| id) != id;
        let now = is_here.then(|| name.clone());
        let is_changed = has_moved || *self.gate.name.lock() != now;
        if is_changed {
            debug!(interface = self.config.name, is_here, "xfrm: the interface {} is now {name}", self.config.name);
        }
        if has_moved {
            self.elsewhere = if is_here { None } else { Some((id, place.cookie()?)) };
            if let Err(e) = place.run(|| tun.settle()) {
                warn!(interface = name, error = %e, "xfrm: the interface {name}, which was moved to another namespace: {e}");
            }
        }
        if self.made.is_some() {
            self.config.name = name;
        }
        *self.gate.name.lock() = now;
        Ok(is_changed)
    }

    fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the interface and its device.
    fn end(self) {
        // It may be gone already.
        let _ = self.gate.tun().let_go();
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        self.post.stop.store(true, Ordering::Release);
        self.post.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The xfrm interfaces of a namespace.
pub(super) struct Interfaces {
    netns: Netns,
    id: NetnsId,
    cookie: u64,
    /// The runtime folder, in which the next daemon finds whether some of them are elsewhere.
    folder: PathBuf,
    list: Vec<Interface>,
}

impl Interfaces {
    /// None yet.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(netns: Netns, folder: &Path) -> io::Result<Self> {
        let (id, cookie) = (netns.id()?, netns.cookie()?);
        Ok(Interfaces { netns, id, cookie, folder: folder.to_owned(), list: Vec::new() })
    }

    /// Takes over the interfaces that programs made while earlier daemons served.
    ///
    /// # Errors
    /// The name of the one that failed, and why; those before it are in place.
    pub(super) fn adopt(&mut self, data: &DataPath) -> Result<(), (String, io::Error)> {
        let found = self.netns.run(Tun::made).map_err(|e| ("their devices".to_owned(), e))?;
        for (name, made) in found {
            if made.is_of(self.cookie) && !self.list.iter().any(|there| there.is_named(&name)) {
                self.start_made(&name, made, None, data).map_err(|e| (name, e))?;
            }
        }
        let moved = presence::moved(&self.folder, self.cookie);
        if !moved.is_empty()
            && let Err(e) = self.adopt_elsewhere(&moved, data)
        {
            warn!(error = %e, "xfrm: interfaces that were moved to other namespaces: {e}; packets routed to them are dropped");
        }
        Ok(())
    }

    /// Takes over those that were moved to other namespaces. One that cannot be had drops what is routed to it.
    fn adopt_elsewhere(&mut self, moved: &[presence::Moved], data: &DataPath) -> io::Result<()> {
        for (id, netns) in named_netns::all()? {
            if id == self.id {
                continue;
            }
            // Some end now, and some are not to be entered.
            let found = netns.cookie().and_then(|cookie| Ok((cookie, netns.run(Tun::made)?)));
            let Ok((cookie, found)) = found else { continue };
            for (name, made) in found {
                let is_ours = made.home == self.cookie && moved.contains(&(cookie, made.if_id));
                if !is_ours || self.list.iter().any(|there| there.config.if_id == made.if_id) {
                    continue;
                }
                match self.start_made(&name, made, Some(&netns), data) {
                    Ok(()) => debug!(interface = name, "xfrm: the interface {name} in another namespace is taken over"),
                    Err(e) => {
                        warn!(interface = name, error = %e, "xfrm: the interface {name} in another namespace: {e}")
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes an interface for a program, or changes the one that a program has made with this name.
    ///
    /// # Errors
    /// `EEXIST` when another interface has the id, or another device the name; `EOPNOTSUPP` for an interface of the
    /// configuration; `ENOBUFS` when there are too many; otherwise the kernel's.
    pub(super) fn make(&mut self, name: &str, made: Made, data: &DataPath) -> io::Result<()> {
        self.follow(data)?;
        let made = Made { home: self.cookie, ..made };
        let refused = |e: Errno| Err(io::Error::from_raw_os_error(e.number()));
        // One of the configuration that somebody has deleted comes back when that is read again.
        let is_configured =
            |there: &Interface| there.made.is_none() && there.elsewhere.is_none() && there.config.name == name;
        let is_it = |there: &Interface| there.is_named(name) || is_configured(there);
        if self.list.iter().any(|there| there.config.if_id == made.if_id && !is_it(there)) {
            return refused(Errno::EEXIST);
        }
        match self.list.iter().position(is_it) {
            Some(at) if self.list[at].made.is_none() => return refused(Errno::EOPNOTSUPP),
            Some(at) if self.list[at].made == Some(made) && self.list[at].is_running() => return Ok(()),
            Some(at) => {
                let before = self.list.remove(at);
                // The device has one queue, which the next one opens.
                self.announce(data)?;
                drop(before);
            }
            None if self.list.iter().filter(|there| there.made.is_some()).count() >= MAX_MADE => {
                return refused(Errno::ENOBUFS);
            }
            None => {}
        }
        self.start_made(name, made, None, data)
    }

    fn start_made(&mut self, name: &str, made: Made, elsewhere: Option<&Netns>, data: &DataPath) -> io::Result<()> {
        let config = XfrmInterface { name: name.to_owned(), if_id: made.if_id, netns: None };
        self.list.push(Interface::start(&config, Some(made), &self.netns, elsewhere, data)?);
        self.announce(data)
    }

    /// Follows what others have done to the devices: forgets the interfaces of programs whose devices somebody has deleted, and
    /// notes those that were renamed or moved to another namespace.
    ///
    /// # Errors
    /// The kernel's, when the rules cannot be written.
    pub(super) fn follow(&mut self, data: &DataPath) -> io::Result<()> {
        let before = self.list.len();
        self.list.retain(|there| there.made.is_none() || there.gate.tun().is_there());
        let mut is_changed = self.list.len() < before;
        for there in &mut self.list {
            // Somebody may delete it at this moment.
            is_changed |= there.follow(self.id).unwrap_or(false);
        }
        if !is_changed {
            return Ok(());
        }
        self.note_moved();
        self.announce(data)
    }

    /// Notes for the next daemon which of them are in what other namespaces.
    fn note_moved(&self) {
        let moved = |there: &Interface| Some((there.elsewhere?.1, there.config.if_id)).filter(|_| there.made.is_some());
        let moved: Vec<_> = self.list.iter().filter_map(moved).collect();
        if let Err(e) = presence::set_moved(&self.folder, self.cookie, &moved) {
            warn!(error = %e, "xfrm: the next daemon will not find interfaces that were moved to other namespaces: {e}");
        }
    }

    /// Replaces those of the configuration by these.
    ///
    /// # Errors
    /// The name of the one that failed, and why; those before it are in place.
    pub(super) fn set(&mut self, wanted: &[XfrmInterface], data: &DataPath) -> Result<(), (String, io::Error)> {
        let (stay, gone): (Vec<_>, Vec<_>) = self
            .list
            .drain(..)
            .partition(|there| there.made.is_some() || wanted.contains(&there.config) && there.is_running());
        self.list = stay;
        if !gone.is_empty() {
            // Packets stop coming out of them before they are removed.
            let told = self.announce(data);
            gone.into_iter().for_each(Interface::end);
            told.map_err(|e| ("the rules".to_owned(), e))?;
        }
        for config in wanted {
            if self.list.iter().any(|there| there.config == *config) {
                continue;
            }
            let started = Interface::start(config, None, &self.netns, None, data);
            self.list.push(started.map_err(|e| (config.name.clone(), e))?);
            self.announce(data).map_err(|e| (config.name.clone(), e))?;
        }
        Ok(())
    }

    fn announce(&self, data: &DataPath) -> io::Result<()> {
        data.shared().gates.set(self.list.iter().map(|there| there.gate.clone()).collect());
        data.update_interfaces()
    }

    /// The status of each interface.
    pub(super) fn status(&self) -> Vec<ipsec::Interface> {
        let status = |there: &Interface| ipsec::Interface {
            name: there.config.name.clone(),
            up: there.is_running(),
            if_id: there.config.if_id,
        };
        self.list.iter().map(status).collect()
    }

    /// Ends their threads. The devices stay for the next daemon, and drop what is routed to them.
    pub(super) fn leave(&mut self, data: &DataPath) {
        // Nobody tells of a move from one other namespace to the next.
        let mut has_moved = false;
        for there in self.list.iter_mut().filter(|there| there.elsewhere.is_some()) {
            has_moved |= there.follow(self.id).unwrap_or(false);
        }
        if has_moved {
            self.note_moved();
        }
        data.shared().gates.set(Vec::new());
        self.list.clear();
    }

    /// Ends their threads because the namespace ends, and removes those that are elsewhere, as the kernel does with its own.
    pub(super) fn give_up(&mut self, data: &DataPath) {
        data.shared().gates.set(Vec::new());
        self.list.drain(..).filter(|there| there.elsewhere.is_some()).for_each(Interface::end);
        // The folder may be full, or gone.
        let _ = presence::set_moved(&self.folder, self.cookie, &[]);
    }

    /// Ends and removes all of them.
    pub(super) fn stop(&mut self, data: &DataPath) {
        data.shared().gates.set(Vec::new());
        self.list.drain(..).for_each(Interface::end);
    }
}
