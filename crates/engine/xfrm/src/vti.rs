//! VTI devices, whose packets go by the policies that have the device's keys as marks, and no interface id. They are the
//! kernel's, which knows nothing of our policies: it drops the packets.

use sealane_net_ipsec::selector::Mark;
use sealane_net_ipsec::spd::Dir;

/// The keys of a VTI device; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VtiKeys {
    /// The mark of packets that come out of it.
    pub input: u32,
    /// The mark of packets that are routed to it.
    pub output: u32,
}

impl VtiKeys {
    /// Whether policies of a direction with a mark are for the packets of the device.
    #[must_use]
    pub fn fit(self, dir: Dir, mark: Mark) -> bool {
        let key = if dir == Dir::Out { self.output } else { self.input };
        key != 0 && mark.mask != 0 && mark.matches(key)
    }
}
