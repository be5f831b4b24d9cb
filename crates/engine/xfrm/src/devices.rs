//! The offload devices of a namespace.

use crate::device::{Device, StateKey};
use crate::serial::Serial;
use sealane_abi::xfrm::{UserOffload, XFRM_OFFLOAD_INBOUND, XFRM_OFFLOAD_PACKET};
use std::collections::BTreeMap;

/// The devices of a namespace, and what they have.
#[derive(Default)]
pub(crate) struct Devices {
    pub(crate) devices: BTreeMap<i32, Box<dyn Device>>,
    pub(crate) states: BTreeMap<StateKey, Serial>,
    last: u64,
}

impl Devices {
    pub(crate) fn next_key(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Notes that a device's state is in the table of states.
    pub(crate) fn placed(&mut self, key: Option<StateKey>, serial: Serial) {
        self.states.extend(key.map(|key| (key, serial)));
    }
}

/// Whether an offload is packet offload.
pub(crate) fn is_packet(offload: &UserOffload) -> bool {
    offload.flags & XFRM_OFFLOAD_PACKET != 0
}

/// Whether a device is to have a state for input.
pub(crate) fn is_inbound(offload: Option<UserOffload>) -> bool {
    offload.is_some_and(|offload| offload.flags & XFRM_OFFLOAD_INBOUND != 0)
}

/// The device of a state in packet offload.
pub(crate) fn packet_device(offload: Option<UserOffload>) -> Option<u32> {
    offload.filter(is_packet).map(|offload| offload.ifindex as u32)
}
