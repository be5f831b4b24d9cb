//! The data path: threads that move packets between a TUN device and the wire.

pub(crate) mod cores;
pub(crate) mod counters;
pub(crate) mod doorbell;
pub(crate) mod flight;
pub(crate) mod gates;
pub(crate) mod groups;
pub(crate) mod inbound;
pub(crate) mod join;
pub(crate) mod kernel_states;
pub(crate) mod lane;
pub(crate) mod outbound;
pub(crate) mod ports;
pub(crate) mod ready;
pub(crate) mod receiver;
pub(crate) mod routes;
pub(crate) mod run;
pub(crate) mod shared;
pub(crate) mod sockets;
pub(crate) mod stack;
pub(crate) mod streams;
pub(crate) mod tables;
pub(crate) mod wire;
pub(crate) mod worker;
