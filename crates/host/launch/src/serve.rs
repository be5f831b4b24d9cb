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
//! Threads take calls from the listener in turn. One that has to wait makes sure that another is listening.

mod caller;
mod calls;
mod engine;
mod foreign;
mod keys;
mod rights;
mod route;
mod server;
mod tcp_ao;
mod xfrm;

use sealane_engine_alg::{Host, System};
use sealane_sys::noted_calls::NotedCalls;
use sealane_sys::seccomp::{Listener, Numbers};
use std::sync::Arc;
use xfrm::sockets::Sockets;

pub(crate) use engine::{Engine, KnownSockets};
pub(crate) use keys::{Home, Keeper};
pub(crate) use server::{AuditObserver, Server};

/// A server for calls from `listener` on stand-ins of these numbers, with the program's keys at `home`. With `kernel_ipsec`, NETLINK_XFRM
/// is the kernel's own where no daemon serves.
pub(crate) fn server(
    listener: Listener,
    numbers: Numbers,
    tcp_ao: Option<Engine>,
    kernel_ipsec: bool,
    calls: Option<Arc<NotedCalls>>,
    home: Home,
    make: impl Fn(Arc<dyn Host>) -> Arc<System> + Send + Sync + 'static,
) -> Arc<Server> {
    Server::new(calls::serve, listener, numbers, tcp_ao, Sockets::new(kernel_ipsec), calls, home, make)
}
