//! TCP-AO and IPsec without I/O: vectors of the RFCs, limits, and two ends.

mod common;
mod decisions;
mod extension;
mod ipsec_burst;
mod ipsec_congestion;
mod ipsec_ends;
mod ipsec_iptfs;
mod ipsec_linux;
mod ipsec_outer;
mod ipsec_partial;
mod ipsec_phases;
mod ipsec_sad;
mod ipsec_spd;
mod macs;
mod observe;
mod segments;
mod table;
mod two_ends;
mod vectors;
