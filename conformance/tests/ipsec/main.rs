//! IPsec: NETLINK_XFRM, and packets on the wire.

mod xfrm;
mod xfrm_aevents;
mod xfrm_ah6;
mod xfrm_attacks;
mod xfrm_beside;
mod xfrm_devices;
mod xfrm_encap;
mod xfrm_fast;
mod xfrm_faults;
mod xfrm_firewall;
mod xfrm_gateway;
mod xfrm_history;
mod xfrm_interface;
mod xfrm_ipcomp;
mod xfrm_iptfs;
mod xfrm_keepalive;

mod xfrm_never;
mod xfrm_output_mark;
mod xfrm_packet;
mod xfrm_partial;
mod xfrm_path;
mod xfrm_pmtu;
mod xfrm_restart;
mod xfrm_spaces;
mod xfrm_tcp;
mod xfrm_workers;
