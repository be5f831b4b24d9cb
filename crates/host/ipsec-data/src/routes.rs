//! A thread's cache of the kernel's routes: this host's addresses, paths and their MTUs.

use parking_lot::Mutex;
use sealane_engine_xfrm::data::Paths;
use sealane_net_ipsec::icmp;
use sealane_net_ipsec::mtu::V6_MIN_MTU;
use sealane_sys::route::{Locals, Narrow, Path, PathTable};
use sealane_sys::transient;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// Answers of the kernel about routes.
pub(crate) struct Routes {
    table: PathTable,
    locals: Locals,
    /// Whether the addresses of this host could not be read, and have to be read again.
    stale: bool,
    narrow: Option<Arc<Mutex<Narrow>>>,
    /// The device that paths are to begin with, unless it is 0.
    device: u32,
    now: Instant,
}

impl Routes {
    /// Starts empty. `narrow` tells the kernel about narrow paths, if it is to be told.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(narrow: Option<Arc<Mutex<Narrow>>>, exempt: u32) -> io::Result<Self> {
        let (table, locals, now) = (PathTable::new(exempt), Locals::new()?, Instant::now());
        Ok(Routes { table, locals, stale: false, narrow, device: 0, now })
    }

    /// The descriptor that becomes readable when addresses change.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.locals.as_fd()
    }

    /// Reads the addresses of this host, because they have changed. Those of before stay while the kernel lacks memory
    /// or descriptors.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        match self.locals.refresh() {
            Err(e) if transient::is(&e) => self.stale = true,
            done => {
                done?;
                self.stale = false;
            }
        }
        Ok(())
    }

    /// Reads the addresses again where that has failed.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn catch_up(&mut self) -> io::Result<()> {
        if self.stale { self.refresh() } else { Ok(()) }
    }

    /// Reads the clock, as another burst begins.
    pub(crate) fn tick(&mut self) -> Instant {
        self.now = Instant::now();
        self.now
    }

    /// The time at which the current burst began.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Forgets some old narrow paths. Returns whether none are left.
    pub(crate) fn forget_narrow_paths(&mut self) -> bool {
        self.narrow.as_ref().is_none_or(|narrow| narrow.lock().tidy(self.now))
    }

    /// Whether packets to an address are for this host.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.locals.has(address)
    }

    /// The addresses of this host.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.locals.iter()
    }

    /// Has paths begin with a device, or with the one of their route if that is 0.
    pub(crate) fn set_device(&mut self, device: u32) {
        self.device = device;
    }

    /// The device that paths begin with, or 0.
    pub(crate) fn device(&self) -> u32 {
        self.device
    }

    /// The path to an address.
    pub(crate) fn path(&mut self, to: IpAddr) -> Path {
        self.table.by_device(self.device, to, self.now)
    }

    /// Notes that a sender was told the MTU of its packets to an address. With `narrow` the kernel is to cut packets
    /// that ignore it.
    pub(crate) fn note_mtu(&mut self, to: IpAddr, mtu: u32, narrow: bool) {
        self.table.tell(self.device, to, mtu, self.now);
        let Some(to_tell) = self.narrow.as_ref().filter(|_| narrow) else { return };
        let least = if to.is_ipv6() { V6_MIN_MTU } else { icmp::V4_MIN_MTU };
        // If this fails the sender is told again.
        let _ = to_tell.lock().set(to, mtu.max(least), self.now);
    }

    /// Forgets an outdated path to an address.
    pub(crate) fn forget(&mut self, to: IpAddr) {
        self.table.forget(self.device, to);
    }
}

impl Paths for Routes {
    fn mtu(&mut self, to: IpAddr) -> u32 {
        self.path(to).mtu
    }

    fn is_unreachable(&mut self, from: IpAddr, to: IpAddr) -> bool {
        self.table.is_unreachable(self.device, from, to, self.now)
    }

    fn source(&mut self, to: IpAddr) -> IpAddr {
        self.path(to).source
    }

    fn is_local(&mut self, to: IpAddr) -> bool {
        self.locals.has(to)
    }
}
