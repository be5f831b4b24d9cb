//! Programs of another architecture than this process's, such as i386 and x32 on x86-64: they are told that they are not served,
//! and the kernel is not asked for what they were to find here.

use super::server::{Done, Verdict};
use super::supervisor::CallContext;
use super::xfrm;
use sealane_abi::netlink::{NETLINK_CRYPTO, NETLINK_XFRM};
use sealane_abi::tcp;
use sealane_sys::seccomp::ForeignCall;

/// The name of the interface that daemons serve.
const XFRM: &str = "NETLINK_XFRM";

/// Refuses what is not served to such programs, as a kernel does that does not have it.
pub(super) fn refuse(call: &CallContext<'_>, foreign: ForeignCall) -> Done {
    let peer = call.peer;
    let foreign = match foreign {
        ForeignCall::InMemory { at, .. } => {
            let bytes = peer.bytes::<12>(at).map_err(|_| Verdict::Pass)?;
            foreign.with_arguments([0, 4, 8].map(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]))))
        }
        known => known,
    };
    let (what, errno) = match foreign {
        ForeignCall::Socket { family: libc::AF_ALG, .. } => ("AF_ALG", libc::EAFNOSUPPORT),
        ForeignCall::Socket { family: libc::AF_NETLINK, protocol: NETLINK_CRYPTO } => {
            ("NETLINK_CRYPTO", libc::EPROTONOSUPPORT)
        }
        ForeignCall::Socket { family: libc::AF_NETLINK, protocol: NETLINK_XFRM } => (XFRM, libc::EPROTONOSUPPORT),
        ForeignCall::Socket { family: libc::AF_KEY, .. } => return xfrm::refuse_pf_key(call),
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
        xfrm::only_served(call)?;
    }
    let sentence = format!(
        "is a 32-bit program, and {what} is served to 64-bit programs only: it is refused; run a 64-bit build of it"
    );
    call.tell_of_program(what, &sentence);
    Err(errno.into())
}
