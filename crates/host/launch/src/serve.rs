//! The engine in the launcher, for programs that no preloaded library reaches: static and Go executables, inline system
//! calls.
//!
//! A seccomp filter hands us their `socket(AF_ALG)`. They get one end of a socket pair, placed in a range of descriptor
//! numbers that the filter watches; it is recognised by its inode, so that fork and dup share it as they should. Our
//! end reports when the last descriptor of theirs is closed.
//!
//! NETLINK_XFRM is served by the daemon of the program's network namespace (`xfrm`), and refused where there is none.
//!
//! NETLINK_ROUTE stays the kernel's, but for devices of kind `xfrm`, which the daemon makes (`route`).
//!
//! ```text
//! kernel ─ notification ─▶ supervisor::receive ─ CallContext ─▶ calls::dispatch ─▶ perform of the interface:
//!    ▲                                                            calls, tcp_ao, xfrm, xfrm::stream, route
//!    └── answer ◀──────────── supervisor::answer ◀─ Done ────────────┘
//! ```
//!
//! Threads receive calls from the listener in turn. The state of a call is in its context (`supervisor::CallContext`), which goes
//! down with it. A call that has to wait makes sure that another thread is listening, and only the context lets it wait.

mod calls;
mod engine;
mod foreign;
mod keys;
mod rights;
mod route;
mod server;
mod supervisor;
mod tcp_ao;
mod xfrm;

use core::sync::atomic::AtomicU64;
use sealane_engine_alg::{Host, System};
use sealane_sys::noted_calls::NotedCalls;
use sealane_sys::seccomp::{Listener, Numbers};
use std::sync::Arc;
use xfrm::sockets::Sockets;

pub(crate) use engine::{Engine, KnownSockets};
pub(crate) use keys::{Home, Keeper};
pub(crate) use server::Server;
pub(crate) use supervisor::Supervisor;

/// A supervisor of calls from `listener` on stand-ins of these numbers, with the program's keys at `home`. With `kernel_ipsec`,
/// NETLINK_XFRM is the kernel's own where no daemon serves. AF_ALG's use is counted in `audit`.
pub(crate) fn supervisor(
    listener: Listener,
    numbers: Numbers,
    tcp_ao: Option<Engine>,
    kernel_ipsec: bool,
    calls: Option<Arc<NotedCalls>>,
    home: Home,
    audit: Option<&'static [AtomicU64]>,
    make: impl Fn(Arc<dyn Host>) -> Arc<System> + Send + Sync + 'static,
) -> Arc<Supervisor> {
    let server = Server::new(numbers, tcp_ao, Sockets::new(kernel_ipsec), audit, home, make);
    Supervisor::new(listener, server, calls::dispatch, calls)
}
