//! The part of an offload device that stays with the daemon while its interface is down.

use super::mirror::Mirror;
use sealane_abi::admin::ipsec::DeviceKind;
use sealane_engine_xfrm::device as engine;
use sealane_ipsec_data::Shared;
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The time that a thread with a CPU of its own spins before it sleeps: waking it costs the stack's CPU several
/// microseconds for each superframe.
pub(super) const DEDICATED_SPIN: Duration = Duration::from_millis(1);

/// The surroundings of a device.
pub(crate) struct DeviceContext<'a> {
    /// Its network namespace.
    pub(crate) netns: &'a Netns,
    /// The shared part of the data path: the engine, its clock, the way to key managers.
    pub(crate) shared: &'a Arc<Shared>,
    /// Woken when there are [`engine::Device::events`].
    pub(crate) waker: &'a Arc<Waker>,
    /// The policies that are mirrored into the kernel.
    pub(crate) mirror: &'a Arc<Mirror>,
    /// The number that leads packets to its TUN device, for packet offload; otherwise 0.
    pub(crate) number: u8,
}

/// The half of a device that stays here. Dropping it removes the device.
pub(crate) trait Running: Send {
    /// The index of its interface.
    fn ifindex(&self) -> u32;

    /// Makes the half for the engine, without states and policies, as the interface is up. The one before it is gone.
    ///
    /// # Errors
    /// The reason why it cannot work; it counts as down then.
    fn up(&mut self) -> io::Result<Box<dyn engine::Device>>;

    /// Called when its interface is down and the engine has dropped its half.
    fn down(&mut self) {}

    /// The kind of the device, with its counters.
    fn status(&self) -> DeviceKind;
}
