//! NETLINK_CRYPTO sockets (`crypto/crypto_user.c`).
//!
//! Requests are answered while they are sent; the answers wait in a queue as long as the receive buffer allows. A dump
//! goes on when its last answer has been read, as the kernel's does.

mod report;

use crate::alg::{Change, Received};
use crate::catalog::kind_named;
use crate::host::Task;
use crate::image::{Malformed, Reader, Writer};
use crate::options::Options;
use crate::system::System;
use lock_api::{Mutex, RawMutex};
use report::Entry;
use sealane_abi::cryptouser::{
    CRYPTO_MSG_DELALG, CRYPTO_MSG_DELRNG, CRYPTO_MSG_GETALG, CRYPTO_MSG_GETSTAT, CRYPTO_MSG_MAX, CRYPTO_MSG_NEWALG,
    CRYPTO_MSG_UPDATEALG, CRYPTOCFGA_PRIORITY_VAL, CryptoUserAlg, field_name,
};
use sealane_abi::netlink::answer::{AckOptions, ExtAck, ack, done};
use sealane_abi::netlink::packer::Packer;
use sealane_abi::netlink::{
    Attrs, Message, Messages, NETLINK_CAP_ACK, NETLINK_CRYPTO, NETLINK_EXT_ACK, NLM_F_ACK, NLM_F_DUMP, NLM_F_MULTI,
    NLM_F_REQUEST, NLMSG_MIN_TYPE, Nlmsghdr,
};
use sealane_abi::poll::PollMask;
use sealane_abi::socket::{
    AF_NETLINK, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, SOCK_DGRAM, SOCK_RAW, SOCK_TYPE_MASK, SOL_NETLINK, SOL_SOCKET,
};
use sealane_abi::{Caller, Errno};
use std::collections::VecDeque;
use std::sync::Arc;
use zerocopy::FromBytes;

/// The flag of an algorithm that a template made.
const CRYPTO_ALG_INSTANCE: u32 = 0x800;

/// The room that a dump reserves for an algorithm: `CRYPTO_REPORT_MAXSIZE`.
const REPORT_MAX_LEN: usize = 352;
/// The least that a dump reserves for one datagram: `NLMSG_GOODSIZE`.
const GOOD_LEN: usize = 3776;
/// The most that a dump reserves for one datagram.
const DUMP_MAX_LEN: usize = 65535;

/// One NETLINK_CRYPTO socket.
pub struct CryptoUser<L: RawMutex> {
    sys: Arc<System>,
    options: Options,
    change: Change,
    state: Mutex<L, State>,
}

#[derive(Default)]
struct State {
    port: u32,
    cap_ack: bool,
    ext_ack: bool,
    /// Answers, a datagram each.
    replies: VecDeque<Vec<u8>>,
    /// Bytes in `replies`.
    queued: usize,
    /// An answer was lost: the next receive says so.
    overrun: bool,
    /// Datagrams of a dump that are queued when those before have been read.
    dump: VecDeque<Vec<u8>>,
}

impl State {
    /// The switch behind a netlink option.
    fn switch(&mut self, level: i32, name: i32) -> Result<&mut bool, Errno> {
        match (level, name) {
            (SOL_NETLINK, NETLINK_CAP_ACK) => Ok(&mut self.cap_ack),
            (SOL_NETLINK, NETLINK_EXT_ACK) => Ok(&mut self.ext_ack),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn push(&mut self, reply: Vec<u8>, limit: usize) {
        if self.queued + reply.len() > limit {
            self.overrun = true;
        } else {
            self.queued += reply.len();
            self.replies.push_back(reply);
        }
    }
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
        Ok(Arc::new(CryptoUser {
            sys: sys.clone(),
            options,
            change: Change::new(),
            state: Mutex::new(State::default()),
        }))
    }

    /// Writes its state into an image.
    pub fn save(&self, image: &mut Writer) {
        self.options.save(image);
        let state = self.state.lock();
        image.number(u64::from(state.port));
        for flag in [state.cap_ack, state.ext_ack, state.overrun] {
            image.flag(flag);
        }
        for queue in [&state.replies, &state.dump] {
            image.number(queue.len() as u64);
            queue.iter().for_each(|datagram| image.bytes(datagram));
        }
    }

    /// Takes its state from an image of a copy that another process has.
    ///
    /// # Errors
    /// [`Malformed`]; the state is then partly that of the image.
    pub fn load(&self, image: &mut Reader<'_>) -> Result<(), Malformed> {
        self.options.load(image)?;
        let mut state = State { port: image.word()?, ..State::default() };
        for flag in [&mut state.cap_ack, &mut state.ext_ack, &mut state.overrun] {
            *flag = image.flag()?;
        }
        for queue in [&mut state.replies, &mut state.dump] {
            for _ in 0..image.number()? {
                queue.push_back(image.bytes()?.to_vec());
            }
        }
        state.queued = state.replies.iter().map(Vec::len).sum();
        *self.state.lock() = state;
        Ok(())
    }

    /// Sets the port that replies carry: from bind, or the host's choice (the process id) before the first send.
    pub fn set_port(&self, port: u32) {
        self.state.lock().port = port;
    }

    /// The port; 0 until it is set.
    pub fn port(&self) -> u32 {
        self.state.lock().port
    }

    /// Sends one datagram of requests; the replies are queued before it returns. Returns how many bytes were taken:
    /// all.
    ///
    /// # Errors
    /// [`Errno::EMSGSIZE`] for a datagram that is larger than the send buffer.
    pub fn send(&self, bytes: &[u8], caller: Caller) -> Result<usize, Errno> {
        if bytes.len() > self.options.sndbuf().saturating_sub(32) {
            return Err(Errno::EMSGSIZE);
        }
        let limit = self.options.rcvbuf();
        let mut state = self.state.lock();
        for message in Messages::new(bytes) {
            let flags = message.header.nlmsg_flags;
            let mut outcome = Ok(());
            if flags & NLM_F_REQUEST != 0 && message.header.nlmsg_type >= NLMSG_MIN_TYPE {
                if message.header.nlmsg_type == CRYPTO_MSG_GETALG && flags & NLM_F_DUMP != 0 {
                    outcome = self.dump(&mut state, &message.header, limit);
                    // A dump that has begun is its own acknowledgement.
                    if outcome.is_ok() {
                        continue;
                    }
                } else {
                    outcome = self.request(&mut state, &message, caller, limit);
                }
            }
            if outcome.is_err() || flags & NLM_F_ACK != 0 {
                let options = AckOptions { cap: state.cap_ack, ext: state.ext_ack };
                let ack = ack(&message, state.port, outcome, options, &ExtAck::default());
                state.push(ack, limit);
            }
        }
        self.change.tell(self.sys.host());
        Ok(bytes.len())
    }

    /// Receives one datagram of replies into `buf`.
    ///
    /// Bytes that do not fit are lost, and `MSG_TRUNC` is set in the flags. With `MSG_PEEK` the datagram stays; with
    /// `MSG_TRUNC` its full length is returned.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] with `MSG_DONTWAIT` when there is none, [`Errno::ENOBUFS`] when replies were lost,
    /// [`Errno::EINTR`].
    pub fn recv(&self, task: &dyn Task, buf: &mut [u8], flags: u32) -> Result<Received, Errno> {
        let limit = self.options.rcvbuf();
        let mut state = self.state.lock();
        if state.overrun {
            state.overrun = false;
            return Err(Errno::ENOBUFS);
        }
        if state.replies.is_empty() {
            if flags & MSG_DONTWAIT != 0 {
                return Err(Errno::EAGAIN);
            }
            self.change.wait_until(task, &mut state, |s| !s.replies.is_empty())?;
        }
        let Some(reply) = state.replies.front() else { return Err(Errno::EAGAIN) };
        let full = reply.len();
        let len = full.min(buf.len());
        buf[..len].copy_from_slice(&reply[..len]);
        if flags & MSG_PEEK == 0 {
            state.replies.pop_front();
            state.queued -= full;
            if state.queued <= limit / 2
                && let Some(next) = state.dump.pop_front()
            {
                state.push(next, limit);
                self.change.tell(self.sys.host());
            }
        }
        let truncated = if len < full { MSG_TRUNC } else { 0 };
        Ok(Received { len: if flags & MSG_TRUNC != 0 { full } else { len }, flags: truncated })
    }

    /// The events that poll reports.
    pub fn poll(&self) -> PollMask {
        let state = self.state.lock();
        let mut mask = PollMask::OUT | PollMask::WRNORM | PollMask::WRBAND;
        if !state.replies.is_empty() {
            mask |= PollMask::IN | PollMask::RDNORM;
        }
        if state.overrun {
            mask |= PollMask::ERR;
        }
        mask
    }

    /// Watches for changes of what [`Self::poll`] reports, as [`crate::Socket::watch`].
    pub fn watch(&self) -> crate::alg::Watch<'_> {
        self.change.watch()
    }

    /// getsockopt, as [`crate::Socket::getsockopt`].
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`] for an option that is not there, [`Errno::EINVAL`] for a buffer that is too short.
    pub fn getsockopt(&self, level: i32, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        if level == SOL_SOCKET {
            return self.options.get(name, out);
        }
        let word = u32::from(*self.state.lock().switch(level, name)?).to_ne_bytes();
        out.get_mut(..4).ok_or(Errno::EINVAL)?.copy_from_slice(&word);
        Ok(4)
    }

    /// setsockopt, as [`crate::Socket::setsockopt`].
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`] for an option that is not there, [`Errno::EFAULT`] for a missing value.
    pub fn setsockopt(
        &self,
        level: i32,
        name: i32,
        val: Option<&[u8]>,
        len: usize,
        caller: Caller,
    ) -> Result<(), Errno> {
        if level == SOL_SOCKET {
            return self.options.set(name, val, len, caller);
        }
        // Netlink reads the value as 0 when there are fewer than four bytes of it.
        let on = match val {
            Some(val) if len >= 4 => *val.first_chunk::<4>().ok_or(Errno::EFAULT)? != [0; 4],
            None if len >= 4 => return Err(Errno::EFAULT),
            _ => false,
        };
        *self.state.lock().switch(level, name)? = on;
        Ok(())
    }

    fn entries(&self) -> Vec<Entry<'_>> {
        report::entries(&self.sys)
    }

    fn dump(&self, state: &mut State, request: &Nlmsghdr, limit: usize) -> Result<(), Errno> {
        if !state.dump.is_empty() {
            return Err(Errno::EBUSY);
        }
        let entries = self.entries();
        let room = (entries.len() * REPORT_MAX_LEN).clamp(GOOD_LEN, DUMP_MAX_LEN);
        let mut packer = Packer::new(room);
        for entry in &entries {
            packer.push(&entry.message(request.nlmsg_seq, state.port, NLM_F_MULTI, 0));
        }
        let mut datagrams: VecDeque<Vec<u8>> = packer.finish().iter_mut().map(|d| core::mem::take(&mut **d)).collect();
        // Nothing is told beside the numbers: no request of this protocol gets a text.
        let (options, ext) = (AckOptions::default(), ExtAck::default());
        datagrams.push_back(done(request.nlmsg_seq, state.port, 0, Ok(()), options, &ext));
        if let Some(first) = datagrams.pop_front() {
            state.push(first, limit);
        }
        state.dump = datagrams;
        Ok(())
    }

    fn request(&self, state: &mut State, message: &Message<'_>, caller: Caller, limit: usize) -> Result<(), Errno> {
        let type_ = message.header.nlmsg_type;
        if type_ > CRYPTO_MSG_MAX {
            return Err(Errno::EINVAL);
        }
        if type_ == CRYPTO_MSG_DELRNG {
            priority(message.payload)?;
            return if caller.privileged { Ok(()) } else { Err(Errno::EPERM) };
        }
        let (alg, attrs) = CryptoUserAlg::read_from_prefix(message.payload).map_err(|_| Errno::EINVAL)?;
        let priority = priority(attrs)?;
        if type_ == CRYPTO_MSG_GETSTAT {
            return Err(Errno::ENOTSUPP);
        }
        if type_ != CRYPTO_MSG_GETALG && !caller.privileged {
            return Err(Errno::EPERM);
        }
        let name = field_name(&alg.cru_name).ok_or(Errno::EINVAL)?;
        let driver = field_name(&alg.cru_driver_name).ok_or(Errno::EINVAL)?;
        let entries = self.entries();
        let find = |exact: bool| {
            entries.iter().find(|e| {
                (e.flags() ^ alg.cru_type) & alg.cru_mask == 0
                    && if driver.is_empty() { !exact && e.name() == name } else { e.driver() == driver }
            })
        };
        match type_ {
            CRYPTO_MSG_GETALG => {
                let entry = find(false).ok_or(Errno::ENOENT)?;
                let reply = entry.message(message.header.nlmsg_seq, state.port, 0, 1);
                state.push(reply, limit);
                Ok(())
            }
            CRYPTO_MSG_NEWALG => {
                let exact = !driver.is_empty();
                if priority.is_some() && !exact {
                    return Err(Errno::EINVAL);
                }
                if find(exact).is_some() {
                    return Err(Errno::EEXIST);
                }
                let wanted = core::str::from_utf8(if exact { driver } else { name }).map_err(|_| Errno::ENOENT)?;
                ["hash", "skcipher", "aead", "rng"]
                    .iter()
                    .filter_map(|kind| kind_named(kind.as_bytes()))
                    .find_map(|kind| self.sys.instantiate(kind, wanted))
                    .ok_or(Errno::ENOENT)
            }
            CRYPTO_MSG_DELALG => {
                let entry = find(true).ok_or(Errno::ENOENT)?;
                match entry {
                    Entry::Kernel(row) if entry.flags() & CRYPTO_ALG_INSTANCE != 0 => {
                        row.set_since(0);
                        Ok(())
                    }
                    _ => Err(Errno::EINVAL),
                }
            }
            CRYPTO_MSG_UPDATEALG => {
                if priority.is_some() && driver.is_empty() {
                    return Err(Errno::EINVAL);
                }
                let entry = find(true).ok_or(Errno::ENOENT)?;
                if let (Entry::Kernel(row), Some(priority)) = (entry, priority) {
                    row.set_priority(priority as i32);
                }
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The priority among the attributes.
fn priority(attrs: &[u8]) -> Result<Option<u32>, Errno> {
    let mut found = None;
    for attr in Attrs::new(attrs).filter(|a| a.type_ == CRYPTOCFGA_PRIORITY_VAL) {
        found = Some(u32::from_ne_bytes(*attr.payload.first_chunk().ok_or(Errno::ERANGE)?));
    }
    Ok(found)
}
