//! TCP_AO_GET_KEYS (`tcp_ao_copy_mkts_to_user`).

use crate::add::checked_prefix;
use crate::facts::SocketId;
use crate::namespace::Namespace;
use crate::user::{Answer, UserBytes, Write};
use core::net::IpAddr;
use sealane_abi::Errno;
use sealane_abi::tcp::{
    AF_INET, AF_INET6, SockaddrStorage, TCP_AO_KEYF_EXCLUDE_OPT, TCP_AO_KEYF_IFINDEX, TcpAoGetsockopt,
};
use sealane_net_ao::info::AoInfo;
use sealane_net_ao::mkt::unmapped;
use sealane_net_ao::table::{Ids, Key, KeyRef};
use zerocopy::FromBytes;
use zeroize::Zeroizing;

/// Length of an entry as the kernel knows it, in bytes.
const ENTRY: usize = size_of::<TcpAoGetsockopt>();

/// The keys that are asked for.
enum Filter {
    All,
    /// The current key, the rnext key, or both.
    InUse {
        current: bool,
        rnext: bool,
    },
    /// The keys for these peers with these ids.
    Of {
        peer: IpAddr,
        bits: u8,
        ids: Ids,
    },
}

impl Filter {
    fn parse(asked: &TcpAoGetsockopt) -> Result<Self, Errno> {
        let flags = asked.flags.get();
        let in_vrf = asked.keyflags & TCP_AO_KEYF_IFINDEX != 0;
        if asked.pkt_good.get() != 0
            || asked.pkt_bad.get() != 0
            || asked.keyflags & !TCP_AO_KEYF_IFINDEX != 0
            || asked.ifindex.get() != 0 && !in_vrf
            || flags & TcpAoGetsockopt::RESERVED != 0
        {
            return Err(Errno::EINVAL);
        }
        let all = flags & TcpAoGetsockopt::GET_ALL != 0;
        let current = flags & TcpAoGetsockopt::IS_CURRENT != 0;
        let rnext = flags & TcpAoGetsockopt::IS_RNEXT != 0;
        if all && (current || rnext) {
            return Err(Errno::EINVAL);
        }
        let by_address = !(all || current || rnext);
        let addr = match asked.addr.family() {
            AF_INET => IpAddr::V4(asked.addr.in4()),
            AF_INET6 => IpAddr::V6(asked.addr.in6()),
            0 if !by_address => {
                // There is no address, and no other filter may be set either.
                if asked.prefix != 0 || asked.sndid != 0 || asked.rcvid != 0 {
                    return Err(Errno::EINVAL);
                }
                return Ok(if all { Filter::All } else { Filter::InUse { current, rnext } });
            }
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        if checked_prefix(addr, asked.prefix).is_none() || !by_address {
            return Err(Errno::EINVAL);
        }
        let ids = Ids { ifindex: in_vrf.then_some(asked.ifindex.get()), ..Ids::default() };
        let ids = ids.send(asked.sndid).recv(asked.rcvid);
        Ok(Filter::Of { peer: unmapped(addr), bits: asked.prefix, ids })
    }

    fn takes(&self, info: &AoInfo, key: KeyRef, k: &Key) -> bool {
        match self {
            Filter::All => true,
            Filter::InUse { current, rnext } => {
                *current && info.current() == Some(key) || *rnext && info.rnext() == Some(key)
            }
            Filter::Of { peer, bits, ids } => ids.matches(&k.mkt) && k.mkt.peer.equal_in(*peer, *bits),
        }
    }
}

impl Namespace {
    pub(crate) fn keys(&self, id: SocketId, user: &UserBytes<'_>) -> Result<Answer, Errno> {
        let info = self.info(id).ok_or(Errno::ENOENT)?;
        let stride = user.len();
        if stride == 0 {
            return Err(Errno::EINVAL);
        }
        let asked: TcpAoGetsockopt = user.padded()?;
        let filter = Filter::parse(&asked)?;
        let room = asked.nkeys.get() as usize;
        let written = stride.min(ENTRY);
        let matched = || info.keys().iter().filter(|(r, k)| filter.takes(info, *r, k));
        let count = matched().count();

        let mut answer = Answer { optlen: Some(ENTRY as i32), ..Answer::default() };
        // Entries follow each other in the program's stride; bytes between them are left alone.
        let mut bytes = Zeroizing::new(Vec::with_capacity(count.min(room) * written));
        let mut entry = Zeroizing::new([0; ENTRY]);
        for (n, (r, k)) in matched().take(room).enumerate() {
            fill(&mut entry, info, r, k);
            bytes.extend_from_slice(&entry[..written]);
            if stride > ENTRY {
                let offset = n.checked_mul(stride).ok_or(Errno::EFAULT)?;
                answer.writes.push(Write { offset, bytes: core::mem::take(&mut bytes) });
            }
        }
        if !bytes.is_empty() {
            answer.writes.push(Write { offset: 0, bytes });
        }
        // This is written even where the program's entry is too short for this field.
        let count = u32::try_from(count).unwrap_or(u32::MAX).to_ne_bytes();
        let bytes = Zeroizing::new(count.to_vec());
        answer.last = Some(Write { offset: TcpAoGetsockopt::NKEYS_AT, bytes });
        Ok(answer)
    }
}

/// Writes one key.
fn fill(entry: &mut [u8; ENTRY], info: &AoInfo, r: KeyRef, k: &Key) {
    entry.fill(0);
    let Ok(out) = TcpAoGetsockopt::mut_from_bytes(entry) else { return };
    let mkt = &k.mkt;
    out.addr = SockaddrStorage::new(mkt.peer.addr);
    // Linux reports AES-128-CMAC by the name that older programs know.
    let name = if mkt.algorithm.name == "cmac(aes128)" { "cmac(aes)" } else { mkt.algorithm.name };
    out.alg_name[..name.len()].copy_from_slice(name.as_bytes());
    out.key[..mkt.key().len()].copy_from_slice(mkt.key());
    let flag = |on, flag| if on { flag } else { 0 };
    out.flags.set(
        flag(info.current() == Some(r), TcpAoGetsockopt::IS_CURRENT)
            | flag(info.rnext() == Some(r), TcpAoGetsockopt::IS_RNEXT),
    );
    out.sndid = mkt.send_id;
    out.rcvid = mkt.recv_id;
    out.prefix = mkt.peer.len;
    out.maclen = mkt.mac_len as u8;
    out.keyflags = if mkt.exclude_options { TCP_AO_KEYF_EXCLUDE_OPT } else { 0 }
        | if mkt.ifindex.is_some() { TCP_AO_KEYF_IFINDEX } else { 0 };
    out.keylen = mkt.key().len() as u8;
    out.ifindex.set(mkt.ifindex.unwrap_or(0));
    out.pkt_good.set(k.pkt_good);
    out.pkt_bad.set(k.pkt_bad);
}
