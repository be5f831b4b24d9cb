//! Programs of another architecture than this process's, such as i386 and x32 on x86-64: they are told that they are not served,
//! and the kernel is not asked for what they were to find here.

use super::server::{Done, Server, Verdict};
use super::xfrm;
use sealane_abi::netlink::{NETLINK_CRYPTO, NETLINK_XFRM};
use sealane_abi::tcp;
use sealane_sys::seccomp::{ForeignCall, Notification};
use sealane_sys::thread::Thread;
use std::sync::Arc;

/// The name of the interface that daemons serve.
const XFRM: &str = "NETLINK_XFRM";

/// Refuses what is not served to such programs, as a kernel does that does not have it.
pub(super) fn refuse(server: &Arc<Server>, call: ForeignCall, n: &Notification, peer: &Thread) -> Done {
    let call = match call {
        ForeignCall::InMemory { at, .. } => {
            let bytes = peer.bytes::<12>(at).map_err(|_| Verdict::Pass)?;
            call.with_arguments([0, 4, 8].map(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]))))
        }
        known => known,
    };
    let (what, errno) = match call {
        ForeignCall::Socket { family: libc::AF_ALG, .. } => ("AF_ALG", libc::EAFNOSUPPORT),
        ForeignCall::Socket { family: libc::AF_NETLINK, protocol: NETLINK_CRYPTO } => {
            ("NETLINK_CRYPTO", libc::EPROTONOSUPPORT)
        }
        ForeignCall::Socket { family: libc::AF_NETLINK, protocol: NETLINK_XFRM } => (XFRM, libc::EPROTONOSUPPORT),
        ForeignCall::Socket { family: libc::AF_KEY, .. } => return xfrm::refuse_pf_key(server, peer, n),
        ForeignCall::Option { level: libc::IPPROTO_TCP, name: tcp::TCP_AO_ADD_KEY..=tcp::TCP_AO_REPAIR } => {
            ("TCP-AO", libc::ENOPROTOOPT)
        }
        _ => return Err(Verdict::Pass),
    };
    // A program with more rights than its user is left alone.
    if peer.secure() {
        return Err(Verdict::Pass);
    }
    if what == XFRM {
        xfrm::only_served(server, peer)?;
    }
    let sentence = format!(
        "is a 32-bit program, and {what} is served to 64-bit programs only: it is refused; run a 64-bit build of it"
    );
    server.tell_of_program(what, n, peer, &sentence);
    Err(errno.into())
}
