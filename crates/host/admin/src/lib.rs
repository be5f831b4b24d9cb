//! The status of running instances: the admin socket, metrics for Prometheus, and the client of the IPsec daemon.
//!
//! - [`socket`] is the admin socket, over which `sealane tcp-ao show` queries launchers and daemons;
//! - [`metrics`] renders a snapshot as text for Prometheus;
//! - [`xfrm`] is the client of the netlink port of the IPsec daemon of a network namespace.
//!
//! The types of the status are in `sealane_abi::admin`, which needs no system calls.
#![forbid(unsafe_code)]

pub mod metrics;
pub mod socket;
pub mod xfrm;

use sealane_abi::admin::Snapshot;
use std::sync::Arc;

/// A function that makes a snapshot.
pub type Source = Arc<dyn Fn() -> Snapshot + Send + Sync>;
