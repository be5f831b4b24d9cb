//! Offload devices (`struct xfrmdev_ops`): a device takes states and policies, counts, and reports limits.
//!
//! In crypto offload the device does only the crypto. In packet offload the device owns a state or policy: it adds and
//! removes headers, counts, and enforces the limits; the stack hands it plaintext packets. The transport of packets
//! between device and data path is not defined here.
//!
//! [`crypto`] moves bursts to a device in crypto offload and back. Anything that takes keys and computes over a buffer
//! can be such a device, a thread on another core as well as a GPU.

use core::net::IpAddr;
use sealane_abi::Errno;
use sealane_abi::xfrm::XfrmMessage;
use sealane_net_ipsec::drop::Stat;
use sealane_net_ipsec::lifetime::Usage;
use sealane_net_ipsec::sa::{SaId, SaSpec, SaStat};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::spd::Policy;
use std::sync::Arc;

pub mod crypto;
mod key;

pub use key::{PolicyKey, StateKey};

/// The kind of offload of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The crypto (`XFRM_DEV_OFFLOAD_CRYPTO`).
    Crypto,
    /// All of it (`XFRM_DEV_OFFLOAD_PACKET`).
    Packet,
}

/// The capabilities of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// States at all (`xdo_dev_state_add`); which of them is up to [`Device::state_add`].
    pub states: bool,
    /// Extended sequence numbers in crypto offload (`xdo_dev_state_advance_esn`).
    pub esn: bool,
    /// Policies (`xdo_dev_policy_add`).
    pub policies: bool,
}

/// A state that a device is to take.
pub struct OffloadRequest<'a> {
    /// Its key in the device.
    pub key: StateKey,
    /// The kind of offload.
    pub mode: Mode,
    /// Whether its packets come in.
    pub inbound: bool,
    /// The association that packets use; `None` while there are no keys yet (an acquire).
    pub spec: Option<SaSpec>,
    /// The state as a key manager would be told of it, keys included: for a device that is another kernel's.
    pub message: &'a XfrmMessage,
}

/// Why a device does not take something. `EOPNOTSUPP` in crypto offload means that the stack goes on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The errno of the request.
    pub errno: Errno,
    /// The text of an extended acknowledgement.
    pub text: Option<&'static str>,
}

impl Refusal {
    /// The refusal of anything but crypto offload.
    pub const CRYPTO_ONLY: Refusal =
        Refusal { errno: Errno::EINVAL, text: Some("The device does crypto offload only") };
}

/// An event of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A state in packet offload has reached a soft limit.
    Soft(StateKey),
    /// A state in packet offload has reached a hard limit: the device drops its packets.
    Hard(StateKey),
    /// A state in packet offload has used most of its leased numbers ([`Device::with_sad`]).
    LeaseLow(StateKey),
    /// The peer of a state in packet offload sends from another address or port than before.
    Mapping {
        /// The state.
        key: StateKey,
        /// The address.
        address: IpAddr,
        /// The port of UDP.
        port: u16,
    },
}

/// An offload device.
pub trait Device: Send {
    /// Its capabilities.
    fn caps(&self) -> Caps;

    /// Whether another stack is behind the device, to which packets of its states go past this stack. Such a device
    /// owns its states in crypto offload as well as those in packet offload.
    fn is_stack(&self) -> bool {
        false
    }

    /// Takes a state.
    ///
    /// # Errors
    /// [`Refusal`].
    fn state_add(&mut self, state: OffloadRequest<'_>) -> Result<(), Refusal>;

    /// Gives a state back: no packet that is begun from now on goes through it. It does not wait for those from before.
    fn state_del(&mut self, key: StateKey);

    /// The high half of the sequence numbers of a state in crypto offload has changed: for a device that does not see
    /// them.
    fn advance_esn(&mut self, _key: StateKey, _high: u32) {}

    /// Takes a policy in packet offload. A device without that has nothing to say of policies.
    ///
    /// # Errors
    /// [`Refusal`].
    fn policy_add(&mut self, _key: PolicyKey, _policy: &Policy, _message: &XfrmMessage) -> Result<(), Refusal> {
        Err(Refusal::CRYPTO_ONLY)
    }

    /// Gives a policy back.
    fn policy_del(&mut self, _key: PolicyKey) {}

    /// Usage and error counters of a state in packet offload; `None` if the stack keeps them.
    fn counters(&self, _key: StateKey) -> Option<(Usage, SaStat)> {
        None
    }

    /// Its crypto, for states in crypto offload; `None` where the stack's own thread does it in its place.
    fn crypto(&self) -> Option<Arc<dyn crypto::Crypto>> {
        None
    }

    /// Appends the events since the last call.
    fn events(&mut self, _events: &mut Vec<DeviceEvent>) {}

    /// Calls `look` with the association of a state in packet offload, if the device keeps it in this process. The
    /// association holds numbers, window and counters, and is told of changed limits.
    fn with_sad(&self, _key: StateKey, _look: &mut dyn FnMut(&mut Sad, SaId)) {}

    /// When a policy was used last, in seconds of wall time; `None` where the stack knows.
    fn policy_used_s(&self, _key: PolicyKey) -> Option<u64> {
        None
    }

    /// The device's own counters of packets, if it counts by reason.
    fn stat(&self) -> Option<Stat> {
        None
    }
}
