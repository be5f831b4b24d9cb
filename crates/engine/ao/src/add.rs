//! TCP_AO_ADD_KEY (`tcp_ao_add_cmd`).

use crate::facts::{Family, SocketFacts, SocketId};
use crate::namespace::Namespace;
use crate::rules::Names;
use crate::user::{UserBytes, key_memory};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use sealane_abi::Errno;
use sealane_abi::tcp::{
    AF_INET, AF_INET6, State, TCP_AO_KEYF_EXCLUDE_OPT, TCP_AO_KEYF_IFINDEX, TCP_AO_MAXKEYLEN, TcpAoAdd,
};
use sealane_crypto::KeyError;
use sealane_net_ao::alg::Algorithm;
use sealane_net_ao::info::AoInfo;
use sealane_net_ao::mkt::{Mkt, MktError, MktSpec, Prefix};
use sealane_net_ao::table::Ids;
use std::sync::Arc;

/// Length of an AES-128 key in bytes.
const AES_128: u8 = 16;

impl Namespace {
    pub(crate) fn add_key(&mut self, id: SocketId, facts: &SocketFacts<'_>, user: &UserBytes<'_>) -> Result<(), Errno> {
        let cmd: &TcpAoAdd = user.whole()?;
        let flags = cmd.flags.get();
        let set_current = flags & TcpAoAdd::SET_CURRENT != 0;
        let set_rnext = flags & TcpAoAdd::SET_RNEXT != 0;
        if usize::from(cmd.keylen) > TCP_AO_MAXKEYLEN || flags & TcpAoAdd::RESERVED != 0 || cmd.reserved2.get() != 0 {
            return Err(Errno::EINVAL);
        }
        let known = self.sockets.get(&id);
        let socket_peer = known.map_or_else(|| facts.peer.map(|p| p.ip()), |s| s.peer(facts));
        let peer = peer_prefix(cmd, facts.family, socket_peer)?;
        if cmd.keyflags & !(TCP_AO_KEYF_IFINDEX | TCP_AO_KEYF_EXCLUDE_OPT) != 0
            || (set_current || set_rnext) && facts.state == State::Listen
        {
            return Err(Errno::EINVAL);
        }
        let in_vrf = cmd.keyflags & TCP_AO_KEYF_IFINDEX != 0;
        let ifindex = cmd.ifindex.get();
        if ifindex != 0 {
            // A key of another VRF would never match the connection's peer.
            let foreign = !facts.unconnected() && facts.bound_ifindex != ifindex;
            if !in_vrf || facts.interfaces.vrf(ifindex) != ifindex || foreign {
                return Err(Errno::EINVAL);
            }
        }
        if known.is_some_and(|s| s.md5.lookup(peer.addr, in_vrf.then_some(ifindex)).is_some()) {
            return Err(Errno::EKEYREJECTED);
        }
        // A key without a VRF counts as one of the default VRF here: it may share its ids with keys of other VRFs.
        let ids = Ids::any(ifindex);
        if let Some(info) = known.and_then(|s| s.info.as_ref())
            && (info.keys().overlapping(&peer, ids.recv(cmd.rcvid)).is_some()
                || info.keys().overlapping(&peer, ids.send(cmd.sndid)).is_some())
        {
            return Err(Errno::EEXIST);
        }
        let (algorithm, key_fits) = self.algorithm(cmd.alg_name(), cmd.keylen)?;
        let spec = MktSpec {
            algorithm,
            key: &cmd.key[..usize::from(cmd.keylen)],
            send_id: cmd.sndid,
            recv_id: cmd.rcvid,
            mac_len: usize::from(cmd.maclen),
            exclude_options: cmd.keyflags & TCP_AO_KEYF_EXCLUDE_OPT != 0,
            peer,
            ifindex: in_vrf.then_some(ifindex),
        };
        // The kernel allocates memory before it checks the lengths.
        let memory = key_memory(algorithm);
        if known.map_or(0, |s| s.omem).saturating_add(memory) >= self.optmem_max {
            return Err(Errno::ENOMEM);
        }
        let mkt = Mkt::new(&spec).map_err(mkt_errno)?;
        if !key_fits {
            return Err(Errno::EINVAL);
        }

        let socket = self.socket(id);
        let first = socket.info.is_none();
        let info = socket.info.get_or_insert_with(AoInfo::new);
        let key = match info.add_key(Arc::new(mkt)) {
            Ok(key) => key,
            Err(e) => {
                if first {
                    socket.info = None;
                }
                return Err(key_errno(e));
            }
        };
        if set_current || first && !facts.unconnected() {
            info.set_current(key);
        }
        if set_rnext || first && !facts.unconnected() {
            info.set_rnext(key);
        }
        socket.omem += memory;
        Ok(())
    }

    /// The algorithm of a name, by the rules of the profile, and whether it takes a key of this length.
    fn algorithm(&self, name: &[u8], keylen: u8) -> Result<(&Arc<Algorithm>, bool), Errno> {
        let name = core::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let aes_128 = keylen == AES_128;
        let (name, key_fits) = match (self.rules().names, name) {
            // Until 7.0 this is AES-CMAC with a key of any AES length. It is AES-128-CMAC for 16 bytes only; see
            // LIMITATIONS.md for the others.
            (Names::Wide, "cmac(aes)") => ("cmac(aes128)", aes_128),
            (_, "cmac(aes)") if aes_128 => ("cmac(aes128)", true),
            (_, "cmac(aes)") => return Err(Errno::ENOENT),
            (Names::Three, "hmac(sha1)" | "hmac(sha256)" | "cmac(aes128)") | (Names::All, _) => (name, true),
            // The drafts' algorithms have no kernel names; the names that we use have no parentheses.
            (Names::Wide, _) if name.ends_with(')') => (name, true),
            (Names::Three | Names::Wide, _) => return Err(Errno::ENOENT),
        };
        Ok((self.algorithms.get(name).ok_or(Errno::ENOENT)?, key_fits))
    }
}

fn mkt_errno(e: MktError) -> Errno {
    match e {
        MktError::OptionSpace => Errno::EMSGSIZE,
        MktError::KeyLen | MktError::MacLen => Errno::EINVAL,
        MktError::Key(e) => key_errno(e),
    }
}

pub(crate) fn key_errno(e: KeyError) -> Errno {
    match e {
        KeyError::Driver => Errno::ENOMEM,
        _ => Errno::EINVAL,
    }
}

/// The peers of a new key, if they are valid and match the peer of the socket.
fn peer_prefix(cmd: &TcpAoAdd, family: Family, connected: Option<IpAddr>) -> Result<Prefix, Errno> {
    let addr = &cmd.addr;
    if addr.family() != (if family == Family::V4 { AF_INET } else { AF_INET6 }) || addr.port() != 0 {
        return Err(Errno::EINVAL);
    }
    let addr = match family {
        Family::V4 => IpAddr::V4(addr.in4()),
        Family::V6 => IpAddr::V6(addr.in6()),
    };
    let prefix = checked_prefix(addr, cmd.prefix).ok_or(Errno::EINVAL)?;
    // The key has to match the peer, unless it is for all peers. A v4-mapped peer is compared as IPv6 with an IPv6
    // prefix.
    let matches = |peer| match prefix.addr {
        IpAddr::V4(_) => prefix.contains(peer),
        IpAddr::V6(_) => prefix.equal_in(peer, prefix.len),
    };
    if prefix.len == 0 || connected.is_none_or(matches) { Ok(prefix) } else { Err(Errno::EINVAL) }
}

/// The prefix `addr`/`len`, if the length is valid for the family, no host bits are set, and the unspecified address
/// comes with length 0 only. A v4-mapped address becomes an IPv4 one, except with length 0.
pub(crate) fn checked_prefix(addr: IpAddr, len: u8) -> Option<Prefix> {
    if len == 0 {
        return addr.is_unspecified().then_some(Prefix { addr, len });
    }
    let addr = addr.to_canonical();
    (!addr.is_unspecified() && masked(addr, len)? == addr).then_some(Prefix { addr, len })
}

/// The first `len` bits of `addr`; `None` when it has fewer.
fn masked(addr: IpAddr, len: u8) -> Option<IpAddr> {
    let len = u32::from(len);
    Some(match addr {
        IpAddr::V4(a) => {
            let host = 32u32.checked_sub(len)?;
            Ipv4Addr::from_bits(a.to_bits() & u32::MAX.checked_shl(host).unwrap_or(0)).into()
        }
        IpAddr::V6(a) => {
            let host = 128u32.checked_sub(len)?;
            Ipv6Addr::from_bits(a.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0)).into()
        }
    })
}
