//! TCP_AO_DEL_KEY (`tcp_ao_del_cmd`).

use crate::facts::{Family, SocketFacts, SocketId};
use crate::namespace::Namespace;
use crate::user::{UserBytes, key_memory};
use core::net::IpAddr;
use sealane_abi::Errno;
use sealane_abi::tcp::{State, TCP_AO_KEYF_IFINDEX, TcpAoDel};
use sealane_net_ao::mkt::{Prefix, unmapped};
use sealane_net_ao::table::Ids;

impl Namespace {
    pub(crate) fn del_key(&mut self, id: SocketId, facts: &SocketFacts<'_>, user: &UserBytes<'_>) -> Result<(), Errno> {
        let cmd: &TcpAoDel = user.whole()?;
        let flags = cmd.flags.get();
        let set_current = flags & TcpAoDel::SET_CURRENT != 0;
        let set_rnext = flags & TcpAoDel::SET_RNEXT != 0;
        let del_async = flags & TcpAoDel::DEL_ASYNC != 0;
        let in_vrf = cmd.keyflags & TCP_AO_KEYF_IFINDEX != 0;
        if flags & TcpAoDel::RESERVED != 0
            || cmd.reserved2.get() != 0
            || (set_current || set_rnext) && facts.state == State::Listen
            || cmd.keyflags & !TCP_AO_KEYF_IFINDEX != 0
            || cmd.ifindex.get() != 0 && !in_vrf
        {
            return Err(Errno::EINVAL);
        }
        let ifindex = if self.rules().deletes_in_vrfs { cmd.ifindex.get() } else { 0 };
        let socket = self.sockets.get_mut(id).ok_or(Errno::ENOENT)?;
        let info = socket.info.as_mut().ok_or(Errno::ENOENT)?;
        let find = |wanted, ids| match wanted {
            true => info.keys().by_ids(ids).map(Some).ok_or(Errno::ENOENT),
            false => Ok(None),
        };
        let new_current = find(set_current, Ids::default().send(cmd.current_key))?;
        let new_rnext = find(set_rnext, Ids::default().recv(cmd.rnext))?;
        if del_async && facts.state != State::Listen {
            return Err(Errno::EINVAL);
        }
        let addr = match facts.family {
            Family::V4 => IpAddr::V4(cmd.addr.in4()),
            Family::V6 => unmapped(IpAddr::V6(cmd.addr.in6())),
        };
        if cmd.addr.port() != 0 {
            return Err(Errno::EINVAL);
        }
        // A key that is to take over is never the one to delete.
        let key = info
            .keys()
            .exact(Prefix { addr, len: cmd.prefix }, in_vrf.then_some(ifindex), cmd.sndid, cmd.rcvid)
            .find(|k| Some(*k) != new_current && Some(*k) != new_rnext)
            .ok_or(Errno::ENOENT)?;
        let memory = info.key(key).map_or(0, |k| key_memory(&k.mkt.algorithm));
        if del_async {
            info.remove_key_async(key);
        } else {
            info.remove_key(key, new_current, new_rnext).map_err(|_| Errno::EBUSY)?;
        }
        socket.omem = socket.omem.saturating_sub(memory);
        Ok(())
    }
}
