//! VTI devices beside the policies.

use sealane_engine_xfrm::VtiKeys;
use sealane_net_ipsec::spd::{Dir, Spd};
use sealane_sys::vti::Vti;

/// The keys of a device.
pub(crate) fn keys(vti: &Vti) -> VtiKeys {
    VtiKeys { input: vti.input_key, output: vti.output_key }
}

/// Whether there are policies for the packets of a device.
pub(crate) fn has_policies(vti: &Vti, spd: &Spd) -> bool {
    let directions = [Dir::In, Dir::Out, Dir::Fwd];
    let mut policies = directions.into_iter().flat_map(|dir| spd.ordered(dir)).filter(|policy| policy.if_id == 0);
    policies.any(|policy| keys(vti).fit(policy.dir, policy.mark))
}
