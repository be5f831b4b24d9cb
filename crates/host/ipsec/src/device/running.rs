//! The part of an offload device that stays with the daemon while its interface is down.

use super::mirror::Mirror;
use crate::data::shared::Shared;
use sealane_engine_xfrm::device as engine;
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread that has a CPU for itself looks for work before it sleeps: waking it costs the stack's core several
/// microseconds for each superframe.
pub(super) const DEDICATED_SPIN: Duration = Duration::from_millis(1);

/// Where a device is.
pub(crate) struct Place<'a> {
    /// Its network namespace.
    pub(crate) netns: &'a Netns,
    /// What the data path's threads share: the engine, its clock, what tells key managers.
    pub(crate) shared: &'a Arc<Shared>,
    /// To be woken when [`engine::Device::events`] has something.
    pub(crate) waker: &'a Arc<Waker>,
    /// The kernel's policies that stand for ours.
    pub(crate) mirror: &'a Arc<Mirror>,
    /// The number that leads packets to its TUN device, for packet offload; otherwise 0.
    pub(crate) number: u8,
}

/// The half of a device that stays here. It goes, and what it has, with its value.
pub(crate) trait Running: Send {
    /// The index of its interface.
    fn ifindex(&self) -> u32;

    /// Its interface is up: the half for the engine, without states and policies. The one before it is gone.
    ///
    /// # Errors
    /// Why it cannot work; it is as if it were down then.
    fn up(&mut self) -> io::Result<Box<dyn engine::Device>>;

    /// Its interface is down, and the engine has dropped its half.
    fn down(&mut self) {}

    /// What it has counted, each by its name, a word, in the order in which it is shown.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
