//! Network namespaces that no daemon serves.
//!
//! A program under `sealane run` does not get the kernel's own IPsec there: where its ESP is blocked it takes policies and
//! refuses their states. The program is told what a kernel without `CONFIG_XFRM_USER` tells it, before it has done anything,
//! and its user is told why.

use parking_lot::Mutex;
use sealane_sys::netns::{Netns, NetnsId};
use std::collections::HashSet;
use tracing::warn;

/// The most network namespaces that are remembered as told of. The user of a program that makes more is told of some again.
const MAX_TOLD: usize = 256;

/// The rule for NETLINK_XFRM where no daemon serves.
pub(super) struct Unserved {
    /// Whether the kernel serves programs there.
    by_kernel: bool,
    /// The namespaces of which the program's user has been told. None stands for all that cannot be looked at.
    told: Mutex<HashSet<Option<NetnsId>>>,
}

impl Unserved {
    /// With `by_kernel`, the kernel's own IPsec serves programs there; without, they are refused.
    pub(super) fn new(by_kernel: bool) -> Self {
        Unserved { by_kernel, told: Mutex::default() }
    }

    /// Returns the errno for a new socket in a namespace (`None`: it cannot be looked at), and tells the user. None: the
    /// kernel serves the program.
    pub(super) fn refusal(&self, netns: Option<&Netns>) -> Option<i32> {
        if self.by_kernel {
            return None;
        }
        let id = netns.and_then(|netns| netns.id().ok());
        if self.is_news(id) {
            let (name, inode) = (id.and_then(NetnsId::name), id.map(NetnsId::inode));
            let place = match (&name, inode) {
                (Some(name), _) => format!("the network namespace '{name}'"),
                (None, Some(inode)) => format!("the network namespace net:[{inode}]"),
                (None, None) => "a network namespace that cannot be looked at".to_owned(),
            };
            warn!(
                netns = name,
                netns_inode = inode,
                "no daemon serves IPsec in {place}: NETLINK_XFRM is refused there. Start 'sealane daemon' with it in [ipsec], \
                 or use 'sealane run --kernel-ipsec' for the kernel's own IPsec"
            );
        }
        Some(libc::EPROTONOSUPPORT)
    }

    /// Whether the user has not been told of a namespace yet. From now on it counts as told of.
    fn is_news(&self, netns: Option<NetnsId>) -> bool {
        let mut told = self.told.lock();
        if told.len() >= MAX_TOLD {
            told.clear();
        }
        told.insert(netns)
    }
}
