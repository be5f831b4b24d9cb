//! The UDP sockets of a network namespace that are bound to one address, by `/proc/net/udp`: unlike sock_diag for UDP it
//! needs no module.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of each socket at `port` in the calling thread's namespace, apart from sockets that are bound to all
/// addresses.
///
/// # Errors
/// The file's.
pub fn bound_at(port: u16) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    for table in ["udp", "udp6"] {
        match std::fs::read_to_string(format!("/proc/thread-self/net/{table}")) {
            // IPv6 may be disabled.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            text => found.extend(
                text?
                    .lines()
                    .skip(1)
                    .filter_map(local)
                    .filter_map(|at| (at.port() == port && !at.ip().is_unspecified()).then_some(at.ip())),
            ),
        }
    }
    Ok(found)
}

/// The local address of a line: `NUMBER: ADDRESS:PORT ...`, words of the address as they lie in memory.
fn local(line: &str) -> Option<SocketAddr> {
    let (address, port) = line.split_ascii_whitespace().nth(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (i, octets) in octets.as_chunks_mut().0.iter_mut().enumerate() {
                *octets = word(i * 8)?;
            }
            // A socket of IPv6 for an address of IPv4.
            let ip = Ipv6Addr::from(octets);
            ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn addresses_with_a_socket() {
        const PORT: u16 = 4500;
        let Some(netns) = testing::namespace("sys::udp_table") else { return };
        let found = netns.run(|| {
            let all = UdpSocket::bind(("::", PORT + 1))?;
            let one = UdpSocket::bind(("127.0.0.1", PORT))?;
            let six = UdpSocket::bind(("::1", PORT))?;
            let found = [bound_at(PORT)?, bound_at(PORT + 1)?];
            drop((all, one, six));
            Ok((found, bound_at(PORT)?))
        });
        let (found, none) = found.expect("sockets");
        assert_eq!(found, [vec![IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()], vec![]]);
        assert!(none.is_empty());
    }

    #[test]
    fn lines_that_are_none() {
        for line in ["", "1:", "1: 0100007F", "1: 0100007F:x 0", "1: 01:1194 0", "1: 0100007G:1194 0"] {
            assert_eq!(local(line), None, "{line}");
        }
    }
}
