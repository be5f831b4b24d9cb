//! Status of running instances: the admin socket, metrics for Prometheus, and the client of the IPsec daemon.
//!
//! - [`socket`]: how `sealane tcp-ao show` asks a running launcher or daemon;
//! - [`metrics`]: a snapshot as text for Prometheus;
//! - [`xfrm`]: asking the IPsec daemon of a network namespace over its netlink port.
#![forbid(unsafe_code)]

pub mod metrics;
pub mod socket;
pub mod xfrm;

use sealane_abi::admin::Snapshot;
use std::sync::Arc;

/// Makes a snapshot whenever somebody asks.
pub type Source = Arc<dyn Fn() -> Snapshot + Send + Sync>;
