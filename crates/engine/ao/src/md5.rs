//! TCP_MD5SIG and TCP_MD5SIG_EXT. The kernel serves them, but a peer may have keys of one kind only, so their peers are
//! remembered, without the keys themselves (`tcp_v4_parse_md5_keys`, `tcp_v6_parse_md5_keys`).

use crate::facts::{Family, SocketFacts, SocketId};
use crate::md5_keys::Md5Key;
use crate::namespace::Namespace;
use crate::user::UserBytes;
use core::net::IpAddr;
use sealane_abi::Errno;
use sealane_abi::tcp::{
    AF_INET, AF_INET6, TCP_MD5SIG_EXT, TCP_MD5SIG_FLAG_IFINDEX, TCP_MD5SIG_FLAG_PREFIX, TCP_MD5SIG_MAXKEYLEN, TcpMd5sig,
};
use sealane_net_ao::mkt::{Prefix, unmapped};
use sealane_net_ao::table::Ids;

/// The key that a call sets; `None` when the call deletes one or the kernel will refuse it.
struct Command {
    key: Md5Key,
    /// The VRF in which TCP-AO keys are looked up: any, unless the call names one.
    asked_vrf: Option<i32>,
    delete: bool,
}

fn parse(facts: &SocketFacts<'_>, optname: i32, user: &UserBytes<'_>) -> Option<Command> {
    if user.len() < size_of::<TcpMd5sig>() {
        return None;
    }
    let cmd: &TcpMd5sig = user.whole().ok()?;
    let ext = optname == TCP_MD5SIG_EXT;
    let in_vrf = cmd.tcpm_flags & TCP_MD5SIG_FLAG_IFINDEX != 0;
    let addr = match (facts.family, cmd.tcpm_addr.family()) {
        (Family::V4, AF_INET) => IpAddr::V4(cmd.tcpm_addr.in4()),
        (Family::V6, AF_INET6) => unmapped(IpAddr::V6(cmd.tcpm_addr.in6())),
        _ => return None,
    };
    let width = if addr.is_ipv4() { 32 } else { 128 };
    let len = if ext && cmd.tcpm_flags & TCP_MD5SIG_FLAG_PREFIX != 0 { cmd.tcpm_prefixlen } else { width };
    let ifindex = if ext && in_vrf { cmd.tcpm_ifindex.get() } else { 0 };
    if len > width
        || ifindex != 0 && facts.interfaces.vrf(ifindex) != ifindex
        || usize::from(cmd.tcpm_keylen.get()) > TCP_MD5SIG_MAXKEYLEN
    {
        return None;
    }
    let ifindex = in_vrf.then_some(ifindex);
    Some(Command {
        key: Md5Key { peer: Prefix { addr, len }, ifindex },
        asked_vrf: ifindex,
        delete: cmd.tcpm_keylen.get() == 0,
    })
}

impl Namespace {
    /// setsockopt() with TCP_MD5SIG or TCP_MD5SIG_EXT, `optval` and `optlen` as for [`Namespace::setsockopt`]. Refuses
    /// a key for a peer that has a TCP-AO key; otherwise lets `kernel` make the call and remembers its result.
    ///
    /// # Errors
    /// [`Errno::EKEYREJECTED`], and the errors of `kernel`.
    pub fn md5_setsockopt(
        &mut self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        optname: i32,
        optval: &[u8],
        optlen: i32,
        kernel: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        // An `optlen` beyond the struct is no error here.
        let command = UserBytes::new(optval, optlen, false).ok().and_then(|user| parse(facts, optname, &user));
        let Some(Command { key, asked_vrf, delete }) = command else { return kernel() };
        let in_use = || {
            self.info(id).is_some_and(|info| {
                let ids = Ids { ifindex: asked_vrf, ..Ids::default() };
                info.ao_required || info.keys().lookup(key.peer.addr, ids).is_some()
            })
        };
        if !delete && in_use() {
            return Err(Errno::EKEYREJECTED);
        }
        kernel()?;
        let before = self.sockets.get(&id).map_or(0, |s| s.md5.memory());
        if !delete {
            self.socket(id).md5.set(key);
        } else if let Some(socket) = self.sockets.get_mut(id) {
            socket.md5.remove(&key);
        }
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.omem = (socket.omem + socket.md5.memory()).saturating_sub(before);
        }
        Ok(())
    }
}
