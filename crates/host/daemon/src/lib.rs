//! The host of the engine: what opens descriptors, reads clocks and starts threads.
//!
//! - [`run`]: the launcher, `sealane run -- PROGRAM`;
//! - [`config`]: the configuration of the daemon, and which key is used when;
//! - [`admin`], [`metrics`]: what runs here, for `sealane tcp-ao show` and for Prometheus;
//! - [`capture`]: pcap and pcapng;
//! - [`audit`]: the counters that a launched program and its children share;
//! - `xfrm`: IPsec, for programs that speak NETLINK_XFRM;
//! - `serve`: the engine in the launcher, for programs that no preloaded library reaches;
//! - `transport`: system calls. The only place with `unsafe`.
#![deny(unsafe_code)]

pub mod admin;
mod ao;
pub mod audit;
pub mod capture;
pub mod config;
pub mod metrics;
pub mod run;
mod serve;
mod transport;
pub mod xfrm;

pub use ao::host;
