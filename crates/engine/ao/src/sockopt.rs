//! setsockopt() and getsockopt() (`do_tcp_setsockopt`, `do_tcp_getsockopt` of `net/ipv4/tcp.c`).

use crate::facts::{SocketFacts, SocketId};
use crate::namespace::Namespace;
use crate::user::{Answer, UserBytes};
use sealane_abi::Errno;
use sealane_abi::tcp::{self, State};

impl Namespace {
    /// setsockopt() at level `IPPROTO_TCP` with one of the options 38 to 42. `optval` holds the program's bytes from
    /// its pointer on, up to `optlen` or to the first that cannot be read.
    ///
    /// # Errors
    /// The error of the imitated kernel.
    pub fn setsockopt(
        &mut self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        optname: i32,
        optval: &[u8],
        optlen: i32,
    ) -> Result<(), Errno> {
        let user = UserBytes::new(optval, optlen, self.rules().tails_count)?;
        // do_tcp_setsockopt reads an int before it checks the option.
        if optlen < 4 {
            return Err(Errno::EINVAL);
        }
        user.prefix(4)?;
        if !self.rules().exists {
            return Err(Errno::ENOPROTOOPT);
        }
        let done = match optname {
            tcp::TCP_AO_REPAIR if !facts.can_repair() => Err(Errno::EPERM),
            tcp::TCP_AO_REPAIR => self.set_repair(id, facts, &user),
            tcp::TCP_AO_ADD_KEY | tcp::TCP_AO_DEL_KEY | tcp::TCP_AO_INFO => {
                // The SYN decides whether a connection uses TCP-AO.
                if !facts.unconnected() && self.info(id).is_none() && facts.repair.is_none() {
                    return Err(Errno::EISCONN);
                }
                match optname {
                    tcp::TCP_AO_ADD_KEY => self.add_key(id, facts, &user),
                    tcp::TCP_AO_DEL_KEY => self.del_key(id, facts, &user),
                    _ => self.set_info(id, facts, &user),
                }
            }
            _ => Err(Errno::ENOPROTOOPT),
        };
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.listening = facts.state == State::Listen;
        }
        if done.is_ok() && facts.repair.is_some() {
            self.repaired(id, facts);
        }
        done
    }

    /// getsockopt() at level `IPPROTO_TCP` with one of the options 38 to 42. `optval` as for [`Namespace::setsockopt`];
    /// `optlen` is the number that the program's pointer pointed to.
    ///
    /// # Errors
    /// The error of the imitated kernel.
    pub fn getsockopt(
        &self,
        id: SocketId,
        facts: &SocketFacts<'_>,
        optname: i32,
        optval: &[u8],
        optlen: i32,
    ) -> Result<Answer, Errno> {
        let user = UserBytes::new(optval, optlen, self.rules().tails_count)?;
        if !self.rules().exists {
            return Err(Errno::ENOPROTOOPT);
        }
        match optname {
            tcp::TCP_AO_REPAIR if !facts.can_repair() => Err(Errno::EPERM),
            tcp::TCP_AO_REPAIR => self.repair(id, facts, &user),
            tcp::TCP_AO_GET_KEYS => self.keys(id, &user),
            tcp::TCP_AO_INFO => self.ao_info(id, &user),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}
