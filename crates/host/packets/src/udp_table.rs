//! The UDP sockets of a network namespace, by `/proc/net/udp`: unlike sock_diag for UDP it needs no module.
//!
//! Only those of our own user: others cannot share a port with us (`SO_REUSEPORT`), and may have any number of sockets. The
//! kernel takes the longer to list them all.

use sealane_sys::process;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket that is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Its address, unspecified where it is bound to all, and its port.
    pub at: SocketAddr,
    /// Its inode.
    pub inode: u64,
}

/// Our user's sockets in the calling thread's namespace; those that share a port in the order in which they were bound.
///
/// # Errors
/// The file's.
pub fn read() -> io::Result<Vec<Bound>> {
    let (mut found, user) = (Vec::new(), process::effective_user());
    for table in ["udp", "udp6"] {
        match std::fs::read_to_string(format!("/proc/thread-self/net/{table}")) {
            // IPv6 may be disabled.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            text => {
                let text = text?;
                let lines = text.lines().filter_map(|line| bound(line, user));
                // The kernel puts the latest in front, but sockets of IPv6 that share their port behind (`sk_add_node_rcu`).
                if table == "udp" { found.extend(lines.rev()) } else { found.extend(lines) }
            }
        }
    }
    Ok(found)
}

/// The socket of a line (`net/ipv4/udp.c`, `udp4_format_sock`), if it is this user's; the first line is a heading.
fn bound(line: &str, user: u32) -> Option<Bound> {
    let mut words = line.split_ascii_whitespace().skip(7);
    let (owner, inode) = (words.next()?.parse::<u32>().ok()?, words.nth(1)?.parse().ok()?);
    (owner == user).then(|| local(line).map(|at| Bound { at, inode })).flatten()
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
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::super::esp;
    use super::*;
    use sealane_sys::testing;

    #[test]
    fn sockets_with_their_inodes() {
        const PORT: u16 = 4500;
        let Some(netns) = testing::namespace("sys::udp_table") else { return };
        let found = netns.run(|| {
            let at: [SocketAddr; 4] = [
                (Ipv4Addr::new(127, 0, 0, 2), PORT).into(),
                (Ipv4Addr::LOCALHOST, PORT).into(),
                (Ipv6Addr::UNSPECIFIED, PORT).into(),
                (Ipv6Addr::LOCALHOST, PORT).into(),
            ];
            let sockets = at.map(|at| esp::bound(at).expect("a socket"));
            let wanted = at.iter().zip(&sockets).map(|(&at, socket)| {
                let inode = rustix::fs::fstat(socket).expect("an inode").st_ino;
                Bound { at, inode }
            });
            let (wanted, found): (Vec<_>, _) = (wanted.collect(), read()?);
            drop(sockets);
            Ok((wanted, found, read()?))
        });
        let (wanted, found, none) = found.expect("sockets");
        assert_eq!(found, wanted);
        assert!(none.is_empty());
    }

    #[test]
    fn of_one_user() {
        let line =
            "  7: 0100007F:1194 00000000:0000 07 00000000:00000000 00:00000000 00000000 1000        0 4711 2 0 0";
        let at = (Ipv4Addr::LOCALHOST, 4500).into();
        assert_eq!(bound(line, 1000), Some(Bound { at, inode: 4711 }));
        assert_eq!((bound(line, 0), bound("  sl  local_address", 0)), (None, None));
    }

    #[test]
    fn lines_that_are_none() {
        for line in ["", "1:", "1: 0100007F", "1: 0100007F:x 0", "1: 01:1194 0", "1: 0100007G:1194 0"] {
            assert_eq!(local(line), None, "{line}");
        }
    }
}
