//! TCP_AO_INFO (`tcp_ao_info_cmd`, `tcp_ao_get_sock_info`).

use crate::facts::{SocketFacts, SocketId};
use crate::namespace::Namespace;
use crate::user::{Answer, UserBytes};
use sealane_abi::Errno;
use sealane_abi::tcp::{State, TcpAoInfoOpt};
use sealane_net_ao::info::{AoInfo, Counters};
use sealane_net_ao::table::Ids;
use zerocopy::{FromZeros, IntoBytes};

impl Namespace {
    pub(crate) fn set_info(
        &mut self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        user: &UserBytes<'_>,
    ) -> Result<(), Errno> {
        let cmd: &TcpAoInfoOpt = user.whole()?;
        let flags = cmd.flags.get();
        let has = |flag| flags & flag != 0;
        let (set_current, set_rnext) = (has(TcpAoInfoOpt::SET_CURRENT), has(TcpAoInfoOpt::SET_RNEXT));
        if (set_current || set_rnext) && facts.state == State::Listen
            || has(TcpAoInfoOpt::RESERVED)
            || cmd.reserved2.get() != 0
        {
            return Err(Errno::EINVAL);
        }
        let known = self.sockets.get(&id);
        let info = known.and_then(|s| s.info.as_ref());
        if info.is_none() && !facts.unconnected() {
            return Err(Errno::EINVAL);
        }
        if has(TcpAoInfoOpt::AO_REQUIRED) && known.is_some_and(|s| !s.md5.is_empty()) {
            return Err(Errno::EKEYREJECTED);
        }
        let find = |wanted, ids| match wanted {
            true => info.and_then(|i| i.keys().by_ids(ids)).map(Some).ok_or(Errno::ENOENT),
            false => Ok(None),
        };
        let new_current = find(set_current, Ids::default().send(cmd.current_key))?;
        let new_rnext = find(set_rnext, Ids::default().recv(cmd.rnext))?;

        let info = self.socket(id).info.get_or_insert_with(AoInfo::new);
        if has(TcpAoInfoOpt::SET_COUNTERS) {
            info.counters = Counters {
                good: cmd.pkt_good.get(),
                bad: cmd.pkt_bad.get(),
                key_not_found: cmd.pkt_key_not_found.get(),
                required: cmd.pkt_ao_required.get(),
                dropped_icmp: cmd.pkt_dropped_icmp.get(),
            };
        }
        info.ao_required = has(TcpAoInfoOpt::AO_REQUIRED);
        info.accept_icmps = has(TcpAoInfoOpt::ACCEPT_ICMPS);
        if let Some(key) = new_current {
            info.set_current(key);
        }
        if let Some(key) = new_rnext {
            info.set_rnext(key);
        }
        Ok(())
    }

    pub(crate) fn ao_info(&self, id: SocketId, user: &UserBytes<'_>) -> Result<Answer, Errno> {
        if user.len() == 0 {
            return Err(Errno::EINVAL);
        }
        let asked: TcpAoInfoOpt = user.padded()?;
        if asked.flags.get() & TcpAoInfoOpt::RESERVED != 0 || asked.reserved2.get() != 0 {
            return Err(Errno::EINVAL);
        }
        let info = self.info(id).ok_or(Errno::ENOENT)?;
        let mut out = TcpAoInfoOpt::new_zeroed();
        let mut flags = 0;
        let mut set = |flag, on| flags |= if on { flag } else { 0 };
        set(TcpAoInfoOpt::AO_REQUIRED, info.ao_required);
        set(TcpAoInfoOpt::ACCEPT_ICMPS, info.accept_icmps);
        let current = info.current().and_then(|k| info.key(k));
        let rnext = info.rnext().and_then(|k| info.key(k));
        set(TcpAoInfoOpt::SET_CURRENT, current.is_some());
        set(TcpAoInfoOpt::SET_RNEXT, rnext.is_some());
        out.flags.set(flags);
        out.current_key = current.map_or(0, |k| k.mkt.send_id);
        out.rnext = rnext.map_or(0, |k| k.mkt.recv_id);
        out.pkt_good.set(info.counters.good);
        out.pkt_bad.set(info.counters.bad);
        out.pkt_key_not_found.set(info.counters.key_not_found);
        out.pkt_ao_required.set(info.counters.required);
        out.pkt_dropped_icmp.set(info.counters.dropped_icmp);
        Ok(Answer::front(out.as_bytes(), user.len()))
    }
}
