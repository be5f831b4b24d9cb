//! Questions about what the kernel offers here. Nothing is changed by asking.

use super::netlink::{Messages, Socket};
use super::{option, socket};
use sealane_abi::netlink as nl;
use sealane_abi::tcp::{TCP_AO_INFO, TcpAoInfoOpt};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

const NFTA_TABLE_NAME: u16 = 1;

/// Whether this process can open `/dev/net/tun`.
///
/// # Errors
/// The kernel's: why not.
pub fn tun() -> io::Result<()> {
    File::options().read(true).write(true).open("/dev/net/tun").map(drop)
}

/// Whether this process can make sockets of AF_XDP.
///
/// # Errors
/// The kernel's: why not.
pub fn af_xdp() -> io::Result<()> {
    socket(libc::AF_XDP, libc::SOCK_RAW, 0).map(drop)
}

/// Whether the kernel itself has TCP-AO.
///
/// # Errors
/// The kernel's, for a reason other than that it has not.
pub fn tcp_ao() -> io::Result<bool> {
    let fd = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    match option::<TcpAoInfoOpt>(fd.as_fd(), libc::IPPROTO_TCP, TCP_AO_INFO) {
        // A socket without keys has no information.
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The names of the tables of nftables in this network namespace.
///
/// # Errors
/// The kernel's: it has no nftables, or this process lacks the right.
pub fn tables() -> io::Result<Vec<String>> {
    let mut messages = Messages::new();
    let type_ = (libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_GETTABLE) as u16;
    messages.push(type_, nl::NLM_F_DUMP, &[libc::AF_UNSPEC as u8, 0, 0, 0], |_| {});
    Socket::open(libc::NETLINK_NETFILTER)?.dump(&messages, |names: &mut Vec<String>, message| {
        let attributes = message.payload.get(4..).unwrap_or_default();
        let name = nl::Attrs::new(attributes).find(|a: &nl::Attr<'_>| a.type_ == NFTA_TABLE_NAME);
        let text = name.and_then(|a| core::str::from_utf8(a.payload).ok()).map(|s| s.trim_end_matches('\0').to_owned());
        names.extend(text);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_fresh_namespace_has_no_tables() {
        let Some(netns) = testing::namespace("sys::probe") else { return };
        assert_eq!(netns.run(tables).expect("nftables"), Vec::<String>::new());
        assert!(tcp_ao().is_ok());
    }
}
