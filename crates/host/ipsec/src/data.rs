//! The data path: threads that move packets between a TUN device and the wire.

pub(crate) mod counters;
pub(crate) mod flight;
pub(crate) mod inbound;
pub(crate) mod join;
pub(crate) mod lane;
pub(crate) mod outbound;
pub(crate) mod ports;
pub(crate) mod routes;
pub(crate) mod seat;
pub(crate) mod tables;
pub(crate) mod wire;
pub(crate) mod worker;
