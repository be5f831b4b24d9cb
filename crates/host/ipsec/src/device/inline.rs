//! The inline device: a name for the work that the stack's workers do anyway.
//!
//! A state that names it is used like one without a device. It takes states in crypto offload only, because it never
//! has whole packets.

use super::running::{DeviceContext, Running};
use sealane_abi::admin::ipsec::DeviceKind;
use sealane_engine_xfrm::device::{Caps, Device, Mode, OffloadRequest, Refusal, StateKey};
use sealane_packets::tun::Tun;
use std::io;

/// The interface. Packets routed to it are dropped.
pub(super) struct Inline {
    tun: Tun,
}

impl Inline {
    /// Makes the interface.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(name: &str, place: &DeviceContext<'_>) -> io::Result<Self> {
        Ok(Inline { tun: place.netns.run(|| Tun::open(name))? })
    }
}

impl Running for Inline {
    fn ifindex(&self) -> u32 {
        self.tun.index()
    }

    fn up(&mut self) -> io::Result<Box<dyn Device>> {
        Ok(Box::new(InlineOps))
    }

    fn status(&self) -> DeviceKind {
        DeviceKind::Inline
    }
}

/// The engine's half.
struct InlineOps;

impl Device for InlineOps {
    fn caps(&self) -> Caps {
        Caps { states: true, esn: true, policies: false }
    }

    fn state_add(&mut self, state: OffloadRequest<'_>) -> Result<(), Refusal> {
        if state.mode == Mode::Packet { Err(Refusal::CRYPTO_ONLY) } else { Ok(()) }
    }

    fn state_del(&mut self, _: StateKey) {}
}
