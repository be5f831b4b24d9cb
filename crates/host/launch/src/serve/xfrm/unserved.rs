//! Network namespaces that no daemon serves.
//!
//! A program under `sealane run` does not get the kernel's IPsec there instead: where its ESP is blocked, policies would be
//! in force whose states are refused. The program hears what a kernel without `CONFIG_XFRM_USER` says, which key managers
//! know, and its user hears why.

use parking_lot::Mutex;
use sealane_sys::netns::{Netns, NetnsId};
use std::collections::HashSet;
use tracing::warn;

/// The most network namespaces that are remembered as told of. The user of a program that makes more hears of some again.
const MAX_TOLD: usize = 256;

/// The rule for NETLINK_XFRM where no daemon serves.
pub(super) struct Unserved {
    /// Whether the kernel serves there.
    kernels: bool,
    /// The namespaces of which the program's user has been told.
    told: Mutex<HashSet<NetnsId>>,
}

impl Unserved {
    /// With `kernels`, the kernel's own IPsec serves programs there; without, they are refused.
    pub(super) fn new(kernels: bool) -> Self {
        Unserved { kernels, told: Mutex::default() }
    }

    /// The errno for a new socket in a namespace, if that may be looked at. None: the kernel serves it.
    pub(super) fn refusal(&self, netns: Option<&Netns>) -> Option<i32> {
        if self.kernels {
            return None;
        }
        let id = netns.and_then(|netns| netns.id().ok());
        if id.is_none_or(|id| self.is_news(id)) {
            let place = match id.map(|id| (id.inode(), id.name())) {
                Some((_, Some(name))) => format!("the network namespace '{name}'"),
                Some((inode, None)) => format!("the network namespace net:[{inode}]"),
                None => "a network namespace that cannot be looked at".to_owned(),
            };
            warn!(
                "no daemon serves IPsec in {place}: NETLINK_XFRM is refused there. Start 'sealane daemon' with it in [ipsec], \
                 or use 'sealane run --kernel-ipsec' for the kernel's own IPsec"
            );
        }
        Some(libc::EPROTONOSUPPORT)
    }

    /// Whether the user has not been told of a namespace yet. From now on it counts as told of.
    fn is_news(&self, netns: NetnsId) -> bool {
        let mut told = self.told.lock();
        if told.len() >= MAX_TOLD {
            told.clear();
        }
        told.insert(netns)
    }
}
