//! What a key manager must hear of (the `XFRM_MSG_`s that the kernel multicasts by itself).

use crate::ipsec::id::SaId;
use crate::ipsec::selector::{Flow, Mark};
use core::net::IpAddr;

/// An event. Messages need more than this says; the state or policy named has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A state reached a soft limit (`XFRM_MSG_EXPIRE`, not hard).
    SoftExpire(SaId),
    /// A state reached a hard limit (`XFRM_MSG_EXPIRE`, hard). It is of no use any more; who is told deletes it.
    HardExpire(SaId),
    /// A policy wants a state that does not exist (`XFRM_MSG_ACQUIRE`).
    Acquire {
        /// The larval state that stands for it until the key manager has answered.
        state: SaId,
        /// The policy's index.
        policy: u32,
        /// The packet that asked.
        flow: Flow,
        /// The policy's mark.
        mark: Mark,
    },
    /// Packets of the state came from another address or port than before (`XFRM_MSG_MAPPING`): its NAT has changed.
    Mapping {
        /// The state.
        state: SaId,
        /// The address that they come from now.
        address: IpAddr,
        /// The UDP port.
        port: u16,
    },
    /// The last number sent or the highest one received has come to where it is to be told
    /// ([`Sad::watch_numbers`](crate::ipsec::sad::Sad::watch_numbers)); nothing more is said until that is set anew.
    Numbers(SaId),
    /// Most of the leased sequence numbers are used: lease more, see [`crate::ipsec::seq`].
    LeaseLow(SaId),
}
