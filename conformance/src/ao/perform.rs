//! Makes the calls of a list and writes a line for each: the call, the facts about the socket before it, the answer.
//!
//! ```text
//! 7 connect s1 127.0.0.1:20001 @ 7 - - 0 0 - = -EINPROGRESS @ 2 127.0.0.1:41000 - 0 0 -
//! 8 get:INFO s1 48 (00*48) @ 2 127.0.0.1:41000 - 0 0 - = 48 01000000...
//! ```

use super::facts::Facts;
use super::plan::{Call, Opt, SLOTS};
use super::rle;
use crate::sys::tcp::{Guarded, as_root, listen, tcp_socket};
use crate::sys::{self, Ret};
use sealane_abi::Errno;
use sealane_abi::tcp::State;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

/// The addresses of dummy0.
const OWN: [&str; 2] = ["10.9.0.1", "2001:db8:9::1"];
const TCP_INFO: i32 = 11;
const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const SO_BINDTOIFINDEX: i32 = 62;

/// The descriptors of a running sequence.
pub struct Performer {
    slots: [Option<i32>; SLOTS],
    memory: Guarded,
    settle_ms: u32,
}

impl Drop for Performer {
    fn drop(&mut self) {
        for slot in 0..SLOTS {
            self.put(slot, None);
        }
    }
}

impl Performer {
    /// Starts without descriptors. A connect() to this machine is given `settle_ms` to make progress.
    #[must_use]
    pub fn new(settle_ms: u32) -> Self {
        Performer { slots: [None; SLOTS], memory: Guarded::new(1 << 16), settle_ms }
    }

    /// Makes a call and returns the rest of its line.
    pub fn perform(&mut self, call: &Call) -> String {
        let fd = self.slots[call.slot()].unwrap_or(-1);
        let before = self.facts_text(call.slot());
        let result = match call {
            Call::Socket { slot, v6 } => {
                let fd = tcp_socket(*v6);
                if let Ok(fd) = fd {
                    let _ = set_int(fd as i32, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
                    self.put(*slot, Some(fd as i32));
                }
                plain(fd.map(|_| 0))
            }
            Call::Close { slot } => {
                let open = self.slots[*slot].is_some();
                self.put(*slot, None);
                plain(if open { Ok(0) } else { Err(libc::EBADF) })
            }
            Call::V6only { on, .. } => plain(set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, i32::from(*on))),
            Call::Bind { addr, .. } => plain(sys::bind(fd, &sockaddr(*addr))),
            Call::Listen { .. } => plain(listen(fd, 8)),
            Call::Connect { addr, .. } => {
                let answer = plain(sys::connect(fd, &sockaddr(*addr)));
                if is_own(addr.ip()) {
                    self.settle(|| facts(fd).is_none_or(|f| f.state != State::SynSent as u8));
                }
                format!("{answer} @ {}", self.facts_text(call.slot()))
            }
            Call::Disconnect { .. } => plain(sys::connect(fd, &[0; 16])),
            Call::Accept { new, .. } => {
                let mut fd = sys::accept4(fd, libc::SOCK_NONBLOCK);
                self.settle(|| {
                    if fd == Err(libc::EAGAIN) {
                        fd = sys::accept4(self.slots[call.slot()].unwrap_or(-1), libc::SOCK_NONBLOCK);
                    }
                    fd != Err(libc::EAGAIN)
                });
                if let Ok(fd) = fd {
                    self.put(*new, Some(fd as i32));
                }
                format!("{} @ {}", plain(fd.map(|_| 0)), self.facts_text(*new))
            }
            Call::Repair { mode, .. } => plain(set_int(fd, libc::IPPROTO_TCP, TCP_REPAIR, *mode)),
            Call::QueueSeq { queue, seq, .. } => plain(
                set_int(fd, libc::IPPROTO_TCP, TCP_REPAIR_QUEUE, *queue)
                    .and_then(|_| set_int(fd, libc::IPPROTO_TCP, TCP_QUEUE_SEQ, *seq as i32)),
            ),
            Call::Set(o) => as_user(o, || plain(self.memory.setsockopt(fd, o.name, &o.memory, o.len))),
            Call::Get(o) => {
                let mut memory = o.memory.clone();
                let answer = as_user(o, || plain(self.memory.getsockopt(fd, o.name, &mut memory, o.len)));
                // The output of a failed call is not compared.
                if answer.starts_with('-') { answer } else { format!("{answer} {}", rle::encode(&memory)) }
            }
        };
        format!("@ {before} = {result}")
    }

    fn put(&mut self, slot: usize, fd: Option<i32>) {
        if let Some(old) = std::mem::replace(&mut self.slots[slot], fd) {
            // Neither FIN nor TIME_WAIT, because the ports are used again.
            let _ = sys::setsockopt(old, libc::SOL_SOCKET, libc::SO_LINGER, Some(&[1, 0, 0, 0, 0, 0, 0, 0]), 8);
            let _ = sys::close(old);
        }
    }

    /// Waits until a condition holds, or the time to settle is over.
    fn settle(&self, mut done: impl FnMut() -> bool) {
        for _ in 0..self.settle_ms {
            if done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn facts_text(&self, slot: usize) -> String {
        self.slots[slot].and_then(facts).map_or("-".to_owned(), |f| f.to_string())
    }
}

fn as_user(o: &Opt, call: impl FnOnce() -> String) -> String {
    if !o.as_user {
        return call();
    }
    as_root(false);
    let answer = call();
    as_root(true);
    answer
}

/// Shows a number, or an errno by name.
fn plain(r: Ret) -> String {
    match r {
        Ok(n) => n.to_string(),
        Err(e) => Errno::new(e).map_or("-?".to_owned(), |e| format!("-{e}")),
    }
}

fn set_int(fd: i32, level: i32, name: i32, value: i32) -> Ret {
    sys::setsockopt(fd, level, name, Some(&value.to_ne_bytes()), 4)
}

fn get_int(fd: i32, level: i32, name: i32) -> Option<i32> {
    let mut out = [0; 4];
    sys::getsockopt(fd, level, name, &mut out).ok().map(|_| i32::from_ne_bytes(out))
}

fn facts(fd: i32) -> Option<Facts> {
    let mut state = [0; 1];
    sys::getsockopt(fd, libc::IPPROTO_TCP, TCP_INFO, &mut state).ok()?;
    let name = |peer| {
        let mut out = [0; 128];
        sys::name(fd, peer, &mut out).ok()?;
        parse_sockaddr(&out)
    };
    let local = name(false).filter(|a| a.port() != 0 || !a.ip().to_canonical().is_unspecified());
    let repair = get_int(fd, libc::IPPROTO_TCP, TCP_REPAIR).filter(|on| *on != 0).map(|_| {
        let queue = get_int(fd, libc::IPPROTO_TCP, TCP_REPAIR_QUEUE).unwrap_or(0);
        let seq = |queue| {
            let _ = set_int(fd, libc::IPPROTO_TCP, TCP_REPAIR_QUEUE, queue);
            get_int(fd, libc::IPPROTO_TCP, TCP_QUEUE_SEQ).unwrap_or(0) as u32
        };
        let seqs = (seq(2), seq(1));
        let _ = set_int(fd, libc::IPPROTO_TCP, TCP_REPAIR_QUEUE, queue);
        seqs
    });
    Some(Facts {
        state: state[0],
        local,
        peer: name(true),
        v6only: get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).unwrap_or(0) != 0,
        ifindex: get_int(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX).unwrap_or(0),
        repair,
    })
}

/// Whether an address is this machine's, so that connections are answered.
fn is_own(addr: IpAddr) -> bool {
    let addr = addr.to_canonical();
    addr.is_loopback() || addr.is_unspecified() || OWN.iter().any(|own| own.parse() == Ok(addr))
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn sockaddr(addr: SocketAddr) -> Vec<u8> {
    let storage = sealane_abi::tcp::SockaddrStorage::new(addr.ip()).with_port(addr.port());
    storage.0[..if addr.is_ipv4() { 16 } else { 28 }].to_vec()
}

fn parse_sockaddr(bytes: &[u8; 128]) -> Option<SocketAddr> {
    let storage = sealane_abi::tcp::SockaddrStorage(*bytes);
    match storage.family() {
        sealane_abi::tcp::AF_INET => Some(SocketAddr::new(IpAddr::V4(storage.in4()), storage.port())),
        sealane_abi::tcp::AF_INET6 => Some(SocketAddrV6::new(storage.in6(), storage.port(), 0, 0).into()),
        _ => None,
    }
}
