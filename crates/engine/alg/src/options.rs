//! SOL_SOCKET options, as `net/core/sock.c` keeps them for sockets that ignore most of them.

use crate::host::NetDefaults;
use crate::image::{Malformed, Reader, Writer};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use sealane_abi::socket::{self as so, PAGE_SIZE};
use sealane_abi::{Caller, Errno};

/// `SOCK_MIN_SNDBUF` on 64-bit machines.
const MIN_SNDBUF: u32 = 4608;
/// `SOCK_MIN_RCVBUF` on 64-bit machines.
const MIN_RCVBUF: u32 = 2304;

/// The options of one socket.
pub(crate) struct Options {
    limits: NetDefaults,
    domain: i32,
    type_: i32,
    protocol: i32,
    sndbuf: AtomicU32,
    rcvbuf: AtomicU32,
    rcvlowat: AtomicI32,
    priority: AtomicI32,
    mark: AtomicU32,
    linger: [AtomicI32; 2],
    /// Timeouts as the caller gave them: seconds and microseconds for each of receive and send.
    timeouts: [AtomicU64; 4],
    /// The options that are a switch: a bit each.
    switches: AtomicU64,
}

const SWITCHES: [i32; 15] = [
    so::SO_DEBUG,
    so::SO_REUSEADDR,
    so::SO_DONTROUTE,
    so::SO_BROADCAST,
    so::SO_KEEPALIVE,
    so::SO_OOBINLINE,
    so::SO_NO_CHECK,
    so::SO_REUSEPORT,
    so::SO_TIMESTAMP,
    so::SO_TIMESTAMPNS,
    so::SO_RXQ_OVFL,
    so::SO_WIFI_STATUS,
    so::SO_NOFCS,
    so::SO_LOCK_FILTER,
    so::SO_SELECT_ERR_QUEUE,
];

/// Options that read the same on every such socket, as Linux 7.3 answers: `SO_BSDCOMPAT`, `SO_PASSCRED`, `SO_PEERCRED`
/// (no peer), `SO_BINDTODEVICE`, `SO_PEERNAME`, `SO_PEERSEC`, `SO_PASSSEC`, `SO_TIMESTAMPING`, `SO_PEEK_OFF`,
/// `SO_MAX_PACING_RATE` (none), `SO_BPF_EXTENSIONS`, `SO_INCOMING_CPU`, `SO_INCOMING_NAPI_ID`, `SO_PEERGROUPS`,
/// `SO_ZEROCOPY`, `SO_BINDTOIFINDEX`.
const ANSWERS: [(i32, Result<&[u8], Errno>); 16] = [
    (14, Ok(&[0; 4])),
    (16, Err(Errno::EOPNOTSUPP)),
    (17, Ok(&[0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255])),
    (25, Ok(&[])),
    (28, Err(Errno::ENOTCONN)),
    (31, Err(Errno::ENOPROTOOPT)),
    (34, Err(Errno::EOPNOTSUPP)),
    (37, Ok(&[0; 8])),
    (42, Err(Errno::EOPNOTSUPP)),
    (47, Ok(&[255; 8])),
    (48, Ok(&64u32.to_ne_bytes())),
    (49, Ok(&[255; 4])),
    (56, Ok(&[0; 4])),
    (59, Err(Errno::ENODATA)),
    (60, Ok(&[0; 4])),
    (62, Ok(&[0; 4])),
];

impl Options {
    pub(crate) fn new(limits: NetDefaults, domain: i32, type_: i32, protocol: i32) -> Self {
        Options {
            limits,
            domain,
            type_,
            protocol,
            sndbuf: AtomicU32::new(limits.wmem_default),
            rcvbuf: AtomicU32::new(limits.rmem_default),
            rcvlowat: AtomicI32::new(1),
            priority: AtomicI32::new(0),
            mark: AtomicU32::new(0),
            linger: Default::default(),
            timeouts: Default::default(),
            switches: AtomicU64::new(0),
        }
    }

    /// Writes them into an image.
    pub(crate) fn save(&self, image: &mut Writer) {
        for word in [&self.sndbuf, &self.rcvbuf, &self.mark] {
            image.number(u64::from(word.load(Relaxed)));
        }
        for word in [&self.rcvlowat, &self.priority, &self.linger[0], &self.linger[1]] {
            image.number(u64::from(word.load(Relaxed) as u32));
        }
        self.timeouts.iter().for_each(|word| image.number(word.load(Relaxed)));
        image.number(self.switches.load(Relaxed));
    }

    /// Takes them from an image.
    pub(crate) fn load(&self, image: &mut Reader<'_>) -> Result<(), Malformed> {
        for word in [&self.sndbuf, &self.rcvbuf, &self.mark] {
            word.store(image.word()?, Relaxed);
        }
        for word in [&self.rcvlowat, &self.priority, &self.linger[0], &self.linger[1]] {
            word.store(image.word()? as i32, Relaxed);
        }
        for word in &self.timeouts {
            word.store(image.number()?, Relaxed);
        }
        self.switches.store(image.number()? & ((1 << SWITCHES.len()) - 1), Relaxed);
        Ok(())
    }

    pub(crate) fn limits(&self) -> &NetDefaults {
        &self.limits
    }

    /// Send buffer in bytes.
    pub(crate) fn sndbuf(&self) -> usize {
        self.sndbuf.load(Relaxed) as usize
    }

    /// Receive buffer in bytes.
    pub(crate) fn rcvbuf(&self) -> usize {
        self.rcvbuf.load(Relaxed) as usize
    }

    /// The limit of queued bytes in AF_ALG: the send buffer in whole pages, at least one.
    pub(crate) fn snd_pages_len(&self) -> usize {
        (self.sndbuf() & !(PAGE_SIZE - 1)).max(PAGE_SIZE)
    }

    /// The limit of one request's result in AF_ALG: the receive buffer in whole pages, at least one.
    pub(crate) fn rcv_pages_len(&self) -> usize {
        (self.rcvbuf() & !(PAGE_SIZE - 1)).max(PAGE_SIZE)
    }

    /// getsockopt at SOL_SOCKET: writes at most `out.len()` bytes, returns how many.
    pub(crate) fn get(&self, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        let word = match name {
            so::SO_TYPE => self.type_,
            so::SO_DOMAIN => self.domain,
            so::SO_PROTOCOL => self.protocol,
            so::SO_ERROR | so::SO_ACCEPTCONN => 0,
            so::SO_SNDBUF => self.sndbuf.load(Relaxed) as i32,
            so::SO_RCVBUF => self.rcvbuf.load(Relaxed) as i32,
            so::SO_RCVLOWAT => self.rcvlowat.load(Relaxed),
            so::SO_SNDLOWAT => 1,
            so::SO_PRIORITY => self.priority.load(Relaxed),
            so::SO_MARK => self.mark.load(Relaxed) as i32,
            so::SO_LINGER => {
                let mut bytes = [0; 8];
                for (half, word) in bytes.chunks_exact_mut(4).zip(&self.linger) {
                    half.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
                }
                return Ok(copy(out, &bytes));
            }
            so::SO_RCVTIMEO | so::SO_SNDTIMEO => {
                let mut bytes = [0; 16];
                for (half, word) in bytes.chunks_exact_mut(8).zip(&self.timeouts[timeout_at(name)..]) {
                    half.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
                }
                return Ok(copy(out, &bytes));
            }
            _ => match SWITCHES.iter().position(|s| *s == name) {
                Some(bit) => (self.switches.load(Relaxed) >> bit & 1) as i32,
                None => {
                    let (_, answer) = ANSWERS.iter().find(|(n, _)| *n == name).ok_or(Errno::ENOPROTOOPT)?;
                    return answer.map(|bytes| copy(out, bytes));
                }
            },
        };
        Ok(copy(out, &word.to_ne_bytes()))
    }

    /// setsockopt at SOL_SOCKET. `val` is `None` for a NULL pointer; `len` is the length that was passed.
    pub(crate) fn set(&self, name: i32, val: Option<&[u8]>, len: usize, caller: Caller) -> Result<(), Errno> {
        if len < 4 {
            return Err(Errno::EINVAL);
        }
        let val = val.ok_or(Errno::EFAULT)?;
        let word = i32::from_ne_bytes(*val.first_chunk().ok_or(Errno::EFAULT)?);
        // The kernel takes the number as unsigned, limits it, doubles it and keeps it above a minimum.
        let doubled = |max: u32, min: u32| (word as u32).min(max).min(i32::MAX as u32 / 2).saturating_mul(2).max(min);
        match name {
            so::SO_SNDBUF => self.sndbuf.store(doubled(self.limits.wmem_max, MIN_SNDBUF), Relaxed),
            so::SO_RCVBUF => self.rcvbuf.store(doubled(self.limits.rmem_max, MIN_RCVBUF), Relaxed),
            so::SO_SNDBUFFORCE | so::SO_RCVBUFFORCE if !caller.privileged => return Err(Errno::EPERM),
            so::SO_SNDBUFFORCE => self.sndbuf.store(forced(word).max(MIN_SNDBUF), Relaxed),
            so::SO_RCVBUFFORCE => self.rcvbuf.store(forced(word).max(MIN_RCVBUF), Relaxed),
            so::SO_RCVLOWAT => self.rcvlowat.store(if word < 0 { i32::MAX } else { word.max(1) }, Relaxed),
            so::SO_PRIORITY if (0..=6).contains(&word) || caller.privileged => self.priority.store(word, Relaxed),
            so::SO_PRIORITY => return Err(Errno::EPERM),
            so::SO_MARK if caller.privileged => self.mark.store(word as u32, Relaxed),
            so::SO_MARK => return Err(Errno::EPERM),
            so::SO_LINGER => {
                let seconds = i32::from_ne_bytes(*val.get(4..).and_then(|v| v.first_chunk()).ok_or(Errno::EINVAL)?);
                self.linger[0].store(i32::from(word != 0), Relaxed);
                if word != 0 {
                    self.linger[1].store(seconds, Relaxed);
                }
            }
            so::SO_RCVTIMEO | so::SO_SNDTIMEO => {
                let val: &[u8; 16] = val.first_chunk().ok_or(Errno::EINVAL)?;
                for (half, to) in val.chunks_exact(8).zip(&self.timeouts[timeout_at(name)..]) {
                    to.store(u64::from_ne_bytes(*half.first_chunk().expect("a chunk of 8 bytes")), Relaxed);
                }
            }
            // Only Internet sockets share ports.
            so::SO_REUSEPORT if word != 0 => return Err(Errno::EOPNOTSUPP),
            so::SO_DEBUG if word != 0 && !caller.privileged => return Err(Errno::EACCES),
            so::SO_TYPE | so::SO_PROTOCOL | so::SO_DOMAIN | so::SO_ERROR => return Err(Errno::ENOPROTOOPT),
            _ => {
                let bit = SWITCHES.iter().position(|s| *s == name).ok_or(Errno::ENOPROTOOPT)?;
                if word != 0 {
                    self.switches.fetch_or(1 << bit, Relaxed);
                } else {
                    self.switches.fetch_and(!(1 << bit), Relaxed);
                }
            }
        }
        Ok(())
    }
}

fn forced(word: i32) -> u32 {
    (word.max(0) as u32).min(i32::MAX as u32 / 2) * 2
}

fn timeout_at(name: i32) -> usize {
    if name == so::SO_RCVTIMEO { 0 } else { 2 }
}

fn copy(out: &mut [u8], bytes: &[u8]) -> usize {
    let n = out.len().min(bytes.len());
    out[..n].copy_from_slice(&bytes[..n]);
    n
}
