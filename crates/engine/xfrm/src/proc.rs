//! The text of `/proc/net/xfrm_stat` (`net/xfrm/xfrm_proc.c`).

use core::fmt::Write as _;
use sealane_net_ipsec::drop::{Counter, Stat};

/// `/proc/net/xfrm_stat` of a network namespace with these counters.
#[must_use]
pub fn proc_xfrm_stat(stat: &Stat) -> String {
    let mut text = String::new();
    for counter in Counter::ALL {
        let name = counter.name_suffix();
        // Writing to a string does not fail.
        let _ = writeln!(text, "Xfrm{name:<20}\t{}", stat.value(*counter));
    }
    text
}
