//! Events for the key manager: the messages that the kernel multicasts of its own accord (`XFRM_MSG_...`).

use crate::id::SaId;
use crate::selector::{Flow, Mark};
use core::net::IpAddr;

/// An event. Further fields of the message come from the named state or policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A state reached a soft limit (`XFRM_MSG_EXPIRE`, not hard).
    SoftExpire(SaId),
    /// A state reached a hard limit (`XFRM_MSG_EXPIRE`, hard) and cannot be used any more. The receiver of the event
    /// deletes it.
    HardExpire(SaId),
    /// A policy wants a state that does not exist (`XFRM_MSG_ACQUIRE`).
    Acquire {
        /// The larval state that takes its place until the key manager has answered.
        state: SaId,
        /// The policy's index.
        policy: u32,
        /// The flow of the packet that needs it.
        flow: Flow,
        /// The policy's mark.
        mark: Mark,
    },
    /// Packets of the state came from another address or port than before (`XFRM_MSG_MAPPING`): its NAT has changed.
    Mapping {
        /// The state.
        state: SaId,
        /// The new source address.
        address: IpAddr,
        /// The new UDP port.
        port: u16,
    },
    /// The last number sent or the highest one received reached the value set by
    /// [`Sad::watch_numbers`](crate::sad::Sad::watch_numbers). There is no further event until it is set again.
    Numbers(SaId),
    /// Most of the leased sequence numbers are used: lease more, see [`crate::seq`].
    LeaseLow(SaId),
}
