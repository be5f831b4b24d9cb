//! NAT keep-alives, sent when the engine asks for them.

use sealane_engine_xfrm::Keepalive;
use sealane_packets::raw::Raw;
use sealane_sys::marks::Marks;
use sealane_sys::netns::Netns;
use sealane_wire::ip::{Family, Layout, V6_HEADER_LEN, set_udp_checksum};
use std::io;
use std::net::IpAddr;

const V4_HEADER_LEN: usize = 20;
const UDP_LEN: usize = 8;
const UDP: u8 = 17;
/// The payload of a keep-alive (RFC 3948 section 2.3).
const PAYLOAD: u8 = 0xff;
const TTL: u8 = 64;

/// Sends keep-alives in a namespace.
#[derive(Debug, Default)]
pub(crate) struct Sender(Option<Raw>);

impl Sender {
    /// Sends the keep-alives that are due, with the mark that exempts them from policies.
    ///
    /// # Errors
    /// The kernel's, about the socket.
    pub(crate) fn send(&mut self, netns: &Netns, exempt: u32, due: &[Keepalive]) -> io::Result<()> {
        if due.is_empty() {
            return Ok(());
        }
        if self.0.is_none() {
            self.0 = Some(netns.run(|| Raw::open(Marks::new(exempt)))?);
        }
        if let Some(raw) = &self.0 {
            for keepalive in due {
                let mut buf = [0; V6_HEADER_LEN + UDP_LEN + 1];
                if let Some(len) = write(keepalive, &mut buf) {
                    // Without a route there is no NAT to be kept.
                    raw.send(&[&buf[..len]], 0, false);
                }
            }
        }
        Ok(())
    }
}

/// Writes the packet, and returns its length if both addresses are of one family.
fn write(keepalive: &Keepalive, buf: &mut [u8; V6_HEADER_LEN + UDP_LEN + 1]) -> Option<usize> {
    let at = match (keepalive.source, keepalive.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = &mut buf[..V4_HEADER_LEN];
            (ip[0], ip[3]) = (0x45, (V4_HEADER_LEN + UDP_LEN + 1) as u8);
            // DF; the kernel writes the checksum.
            (ip[6], ip[8], ip[9]) = (0x40, TTL, UDP);
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            V4_HEADER_LEN
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = &mut buf[..V6_HEADER_LEN];
            (ip[0], ip[5], ip[6], ip[7]) = (0x60, (UDP_LEN + 1) as u8, UDP, TTL);
            ip[8..24].copy_from_slice(&source.octets());
            ip[24..40].copy_from_slice(&destination.octets());
            V6_HEADER_LEN
        }
        _ => return None,
    };
    let len = at + UDP_LEN + 1;
    let udp = &mut buf[at..len];
    udp[..2].copy_from_slice(&keepalive.sport.to_be_bytes());
    udp[2..4].copy_from_slice(&keepalive.dport.to_be_bytes());
    (udp[5], udp[8]) = ((UDP_LEN + 1) as u8, PAYLOAD);
    if at == V6_HEADER_LEN {
        // IPv6 has no UDP without checksum.
        let layout = Layout { family: Family::V6, tcp_at: at, payload_at: at + UDP_LEN, end: len };
        set_udp_checksum(buf, &layout);
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_wire::ip::{finish, sum};

    #[test]
    fn packets() {
        let mut buf = [0; V6_HEADER_LEN + UDP_LEN + 1];
        let [source, destination] = ["192.0.2.1", "192.0.2.2"].map(|a| a.parse().expect("an address"));
        let v4 = Keepalive { source, destination, sport: 4500, dport: 4501 };
        assert_eq!(write(&v4, &mut buf), Some(29));
        assert_eq!(buf[20..29], [0x11, 0x94, 0x11, 0x95, 0, 9, 0, 0, 0xff]);
        let [source, destination] = ["2001:db8::1", "2001:db8::2"].map(|a| a.parse().expect("an address"));
        let v6 = Keepalive { source, destination, sport: 4500, dport: 4500 };
        let mut buf = [0; V6_HEADER_LEN + UDP_LEN + 1];
        assert_eq!(write(&v6, &mut buf), Some(49));
        let pseudo = sum(&buf[8..40], 9 + 17);
        assert_eq!(finish(sum(&buf[40..49], pseudo)), 0, "its checksum is right");
        assert_eq!(write(&Keepalive { source: v4.source, ..v6 }, &mut buf), None);
    }
}
