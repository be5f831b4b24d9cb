//! The inline device: a name for what the thread of the stack does anyway.
//!
//! A state that names it is sealed and opened as one that names none. It takes states in crypto offload alone: nothing
//! here owns a packet.

use super::running::{Place, Running};
use sealane_engine_xfrm::device::{Caps, Device, Mode, Offered, Refusal, StateKey};
use sealane_sys::tun::Tun;
use std::io;

/// The interface. What somebody routes to it goes nowhere.
pub(super) struct Inline {
    tun: Tun,
}

impl Inline {
    /// Makes the interface.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(name: &str, place: &Place<'_>) -> io::Result<Self> {
        Ok(Inline { tun: place.netns.run(|| Tun::open(name))? })
    }
}

impl Running for Inline {
    fn ifindex(&self) -> u32 {
        self.tun.index()
    }

    fn up(&mut self) -> io::Result<Box<dyn Device>> {
        Ok(Box::new(Half))
    }
}

/// The engine's half.
struct Half;

impl Device for Half {
    fn caps(&self) -> Caps {
        Caps { states: true, esn: true, policies: false }
    }

    fn state_add(&mut self, state: Offered<'_>) -> Result<(), Refusal> {
        if state.mode == Mode::Packet { Err(Refusal::CRYPTO_ONLY) } else { Ok(()) }
    }

    fn state_del(&mut self, _: StateKey) {}
}
