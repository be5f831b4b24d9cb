//! TCP_AO_REPAIR (`tcp_ao_set_repair`, `tcp_ao_get_repair`).

use crate::add::key_errno;
use crate::facts::{SocketFacts, SocketId};
use crate::isns::Isns;
use crate::namespace::{Namespace, Socket};
use crate::user::{Answer, UserBytes};
use sealane_abi::Errno;
use sealane_abi::tcp::TcpAoRepair;
use sealane_net_ao::info::Conn;
use sealane_net_ao::sne::Sne;
use zerocopy::IntoBytes;
use zerocopy::native_endian::U32;

impl Socket {
    fn isns(&self) -> Isns {
        self.info.as_ref().and_then(|i| i.conn()).map_or(self.isns, Isns::of)
    }

    /// Sets ISNs and SNEs, and with them the connection as far as its ends are known.
    ///
    /// # Errors
    /// When the driver cannot derive traffic keys.
    pub(crate) fn set_isns(&mut self, facts: &SocketFacts<'_>, isns: Isns) -> Result<(), Errno> {
        let Some(info) = &mut self.info else { return Ok(()) };
        self.isns = isns;
        let (Some(local), Some(peer)) = (facts.local, facts.peer) else { return Ok(()) };
        let old = info.conn().copied();
        let mut conn = Conn::new(local, peer, isns.lisn, isns.risn);
        // Repair mode tells the present sequence numbers; otherwise those of the connection are kept.
        let base = |seq: Option<u32>, old: Option<u32>, isn| seq.or(old).unwrap_or(isn);
        conn.snd =
            Sne { ext: isns.snd_sne, base: base(facts.repair.map(|r| r.send), old.map(|o| o.snd.base), isns.lisn) };
        conn.rcv =
            Sne { ext: isns.rcv_sne, base: base(facts.repair.map(|r| r.receive), old.map(|o| o.rcv.base), isns.risn) };
        info.set_conn(conn);
        info.derive().map_err(key_errno)
    }
}

impl Namespace {
    pub(crate) fn set_repair(
        &mut self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        user: &UserBytes<'_>,
    ) -> Result<(), Errno> {
        let cmd: &TcpAoRepair = user.whole()?;
        if facts.repair.is_none() {
            return Err(Errno::EPERM);
        }
        let socket = self.sockets.get_mut(id).filter(|s| s.info.is_some()).ok_or(Errno::ENOENT)?;
        let isns = Isns {
            lisn: cmd.snt_isn.get(),
            risn: cmd.rcv_isn.get(),
            snd_sne: cmd.snd_sne.get(),
            rcv_sne: cmd.rcv_sne.get(),
        };
        socket.set_isns(facts, isns)
    }

    pub(crate) fn repair(&self, id: SocketId, facts: &SocketFacts<'_>, user: &UserBytes<'_>) -> Result<Answer, Errno> {
        if user.len() == 0 {
            return Err(Errno::EINVAL);
        }
        if facts.repair.is_none() {
            return Err(Errno::EPERM);
        }
        let isns = self.sockets.get(&id).filter(|s| s.info.is_some()).ok_or(Errno::ENOENT)?.isns();
        let out = TcpAoRepair {
            snt_isn: isns.lisn.into(),
            rcv_isn: isns.risn.into(),
            snd_sne: U32::new(isns.snd_sne),
            rcv_sne: U32::new(isns.rcv_sne),
        };
        Ok(Answer::front(out.as_bytes(), user.len()))
    }
}
