//! Marks that states give to what leaves through them (`XFRMA_SET_MARK`, `xfrm_smark_get`).

use crate::convert;
use crate::namespace::Xfrm;
use crate::state::State;
use core::net::IpAddr;
use sealane_abi::xfrm::TCP_ENCAP_ESPINTCP;
use sealane_net_ipsec::sa::Proto;

/// The mark of the sealed packets of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputMark {
    /// The state's destination.
    pub destination: IpAddr,
    /// ESP or AH.
    pub proto: Proto,
    /// Whether it is within UDP.
    pub udp: bool,
    /// The state's SPI.
    pub spi: u32,
    /// The mark, of packets that have none of their own.
    pub mark: u32,
}

impl Xfrm {
    /// Counts what may have changed [`Self::output_marks`].
    #[must_use]
    pub fn output_mark_changes(&self) -> u64 {
        self.states.mark_changes()
    }

    /// The marks of states that have one.
    pub fn output_marks(&self) -> impl Iterator<Item = OutputMark> {
        // A stream has no packets of a state.
        let in_stream = |state: &&State| state.encap.is_some_and(|encap| encap.encap_type == TCP_ENCAP_ESPINTCP);
        self.states.marked().filter(move |state| !in_stream(state)).filter_map(|state| {
            let (info, set) = (&state.info, state.set_mark);
            Some(OutputMark {
                destination: convert::ip(&info.id.daddr, info.family),
                // IPComp is within another.
                proto: convert::proto(info.id.proto).filter(|proto| matches!(proto, Proto::Esp | Proto::Ah))?,
                udp: state.encap.is_some(),
                spi: info.id.spi.get(),
                mark: set.v & set.m,
            })
        })
    }
}
