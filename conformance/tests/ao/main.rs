//! TCP-AO: the socket options, and segments on the wire.

mod hosts;
mod run_guard;
mod run_life;
mod tcp_ao;
mod tcp_ao_clear;
mod tcp_ao_daemon;
mod tcp_ao_fast;
mod tcp_ao_faults;
mod tcp_ao_interop;
mod tcp_ao_keeper;
mod tcp_ao_programs;
mod tcp_ao_scale;
mod tcp_ao_spaces;
mod tcp_ao_vrf;
mod tcp_ao_wire;
mod two_ends;
