//! What a thread of a data path knows of the kernel's routes: this host's addresses, paths, narrow ones.

use parking_lot::Mutex;
use sealane_engine_xfrm::data::Paths;
use sealane_net::ipsec::icmp;
use sealane_net::ipsec::mtu::V6_MIN_MTU;
use sealane_sys::route::{Locals, Narrow, Path, PathTable};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// What the kernel's routes say, as far as it is remembered.
pub(crate) struct Routes {
    table: PathTable,
    locals: Locals,
    narrow: Option<Arc<Mutex<Narrow>>>,
    now: Instant,
}

impl Routes {
    /// Nothing known yet. Where the kernel is to be told of narrow paths, `narrow` is who does it.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(narrow: Option<Arc<Mutex<Narrow>>>, exempt: u32) -> io::Result<Self> {
        Ok(Routes { table: PathTable::new(exempt), locals: Locals::new()?, narrow, now: Instant::now() })
    }

    /// What becomes readable when addresses change.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.locals.as_fd()
    }

    /// What the kernel says of them.
    pub(crate) fn locals(&mut self) -> &mut Locals {
        &mut self.locals
    }

    /// Another burst begins.
    pub(crate) fn tick(&mut self) -> Instant {
        self.now = Instant::now();
        self.now
    }

    /// When the burst at hand began.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Forgets some narrow paths that are old; whether there are no more of them.
    pub(crate) fn tidy(&mut self) -> bool {
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

    /// The path to an address.
    pub(crate) fn path(&mut self, to: IpAddr) -> Path {
        self.table.to(to, self.now)
    }

    /// A sender was told that its packets to an address may have `mtu` bytes; `narrow`: the kernel is to cut those that do not
    /// heed it.
    pub(crate) fn tell(&mut self, to: IpAddr, mtu: u32, narrow: bool) {
        self.table.tell(to, mtu, self.now);
        let Some(to_tell) = self.narrow.as_ref().filter(|_| narrow) else { return };
        let least = if to.is_ipv6() { V6_MIN_MTU } else { icmp::V4_MIN_MTU };
        // Without it the sender is told again.
        let _ = to_tell.lock().set(to, mtu.max(least), self.now);
    }

    /// What was said about an address is not so any more.
    pub(crate) fn forget(&mut self, to: IpAddr) {
        self.table.forget(to);
    }
}

impl Paths for Routes {
    fn mtu(&mut self, to: IpAddr) -> u32 {
        self.path(to).mtu
    }

    fn source(&mut self, to: IpAddr) -> IpAddr {
        self.path(to).source
    }

    fn is_local(&mut self, to: IpAddr) -> bool {
        self.locals.has(to)
    }
}
