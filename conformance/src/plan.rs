//! A sequence is a list of calls, made from a seed alone and independent of their results.
//!
//! A slot stands for a descriptor. A call on an empty slot is made on descriptor -1, so that a list stays meaningful
//! when the shrinker drops calls from it.

use std::fmt;

/// Number of slots of a sequence.
pub const SLOTS: usize = 8;

/// Bytes that depend on `seed` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// Seed of [`crate::rng::bytes`].
    pub seed: u32,
    /// Length in bytes.
    pub len: usize,
}

/// The call that sends bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendBy {
    /// `send`
    Send,
    /// `sendmsg`
    Sendmsg,
    /// `write`
    Write,
    /// `writev`
    Writev,
    /// A pipe filled by `write`, then `splice`.
    Splice,
    /// A pipe filled by `vmsplice`, then `splice`.
    Vmsplice,
    /// A file in memory, then `sendfile`.
    Sendfile,
    /// `io_submit` of IOCB_CMD_PWRITE.
    Aio,
    /// `io_submit` of IOCB_CMD_PWRITEV.
    AioVec,
}

/// The call that receives bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvBy {
    /// `recv`
    Recv,
    /// `recvmsg`
    Recvmsg,
    /// `read`
    Read,
    /// `readv`
    Readv,
    /// `splice` into a pipe.
    Splice,
    /// `io_submit` of IOCB_CMD_PREAD.
    Aio,
    /// `io_submit` of IOCB_CMD_PREADV.
    AioVec,
}

/// One control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cmsg {
    /// Its contents.
    pub body: CmsgBody,
    /// Deviation from the right `cmsg_len`.
    pub skew: isize,
}

/// The contents of a control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CmsgBody {
    /// ALG_SET_OP.
    Op(u32),
    /// ALG_SET_IV: the stated length, and the bytes that follow.
    Iv(u32, Data),
    /// ALG_SET_AEAD_ASSOCLEN.
    Assoc(u32),
    /// Level, type, payload.
    Raw(i32, i32, Data),
}

/// The key that ALG_SET_KEY_BY_KEY_SERIAL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serial {
    /// A new key of type `user`.
    User,
    /// A new key of type `logon`.
    Logon,
    /// A new keyring.
    Keyring,
    /// A `user` key that has been revoked.
    Revoked,
    /// A serial number that no key has.
    Unknown,
}

/// An address at which no program has memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wild {
    /// The null pointer.
    Null,
    /// In the first page.
    Low,
    /// In the kernel's half.
    Kernel,
}

impl Wild {
    /// The address.
    #[must_use]
    pub fn address(self) -> usize {
        match self {
            Wild::Null => 0,
            Wild::Low => 24,
            Wild::Kernel => 0xffff_8000_0001_0000,
        }
    }
}

/// The wild pointer of a call: `good` valid bytes precede it, and `bad` bytes are behind it.
#[allow(missing_docs, reason = "lengths in bytes")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `send`: the buffer.
    Send { bad: usize, flags: i32 },
    /// `write`: the buffer.
    Write { bad: usize },
    /// `writev`: the second piece.
    Writev { good: usize, bad: usize },
    /// `writev`: the array.
    WriteArray,
    /// `sendmsg`: the second piece.
    Sendmsg { good: usize, bad: usize, flags: i32 },
    /// `sendmsg`: the control messages.
    SendControl { good: usize, bad: usize, flags: i32 },
    /// `sendmsg`: the message.
    SendHeader,
    /// `recv`: the buffer.
    Recv { bad: usize },
    /// `read`: the buffer.
    Read { bad: usize },
    /// `readv`: the second piece.
    Readv { good: usize, bad: usize },
    /// `recvmsg`: the second piece.
    Recvmsg { good: usize, bad: usize },
    /// `recvmsg`: the message.
    RecvHeader,
    /// `io_submit` of IOCB_CMD_PREAD: the buffer.
    AioRead { bad: usize },
    /// `io_submit` of IOCB_CMD_PWRITE: the buffer.
    AioWrite { bad: usize },
    /// `io_submit`: the iocb.
    Iocb,
    /// `bind`: the address.
    Bind { bad: usize },
    /// `setsockopt`: the value.
    Setsockopt { name: i32, bad: usize },
    /// `getsockopt(SO_TYPE)`: the value.
    Getsockopt,
    /// `getsockopt(SO_TYPE)`: its length.
    GetsockoptLen,
    /// `accept4`: the length of the address.
    AcceptLen,
}

/// Calls without arguments of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misc {
    /// `getsockname`
    Getsockname,
    /// `getpeername`
    Getpeername,
    /// `listen`
    Listen,
    /// `connect`
    Connect,
    /// `shutdown`
    Shutdown,
    /// `fstat`: the file type.
    Fstat,
    /// `lseek`
    Lseek,
    /// `ioctl(FIONREAD)`
    Fionread,
    /// `fcntl(F_GETFL)`
    Getfl,
    /// `fcntl(F_GETFD)`
    Getfd,
}

/// A call on `slot`; `to` is the slot that receives a descriptor. The other fields are arguments under their usual
/// names.
#[allow(missing_docs, reason = "arguments of system calls, under their usual names")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `socket(AF_ALG, ty, proto)`
    Socket { to: usize, ty: i32, proto: i32 },
    /// `bind` with `cut` bytes less at the end of the address, or `pad` zeroes more.
    Bind { slot: usize, family: u16, ty: String, name: String, feat: u32, mask: u32, cut: usize, pad: usize },
    /// `setsockopt` with a value.
    Setsockopt { slot: usize, level: i32, name: i32, val: Data },
    /// `setsockopt` with a null pointer and a length.
    SetsockoptNull { slot: usize, level: i32, name: i32, len: usize },
    /// `setsockopt(ALG_SET_KEY_BY_KEY_SERIAL)`, `optlen` bytes of the serial.
    SetSerial { slot: usize, key: Serial, payload: Data, optlen: usize },
    /// `getsockopt`
    Getsockopt { slot: usize, level: i32, name: i32, len: usize },
    /// `accept4`
    Accept { slot: usize, to: usize, flags: i32 },
    /// `dup`
    Dup { slot: usize, to: usize },
    /// `close`
    Close { slot: usize },
    /// `fcntl(F_SETFL)`
    Nonblock { slot: usize, on: bool },
    /// A call that sends, in these pieces, with `cut` bytes less at the end of the control buffer.
    Send { slot: usize, by: SendBy, seed: u32, pieces: Vec<usize>, flags: i32, control: Option<Vec<Cmsg>>, cut: usize },
    /// A call that receives.
    Recv { slot: usize, by: RecvBy, pieces: Vec<usize>, flags: i32 },
    /// `poll` without waiting.
    Poll { slot: usize },
    /// One of [`Misc`].
    Misc { slot: usize, what: Misc },
    /// A call with a wild pointer, never one that waits.
    Fault { slot: usize, what: Fault, at: Wild },
    /// `io_submit` of one odd iocb with a buffer of `len` bytes.
    Iocb { slot: usize, opcode: u16, len: usize, offset: i64, resfd: Option<i32> },
    /// The call, made by a child process.
    Forked(Box<Call>),
}

/// Returns the names of the flags that sequences use, and the others in hexadecimal.
#[must_use]
pub fn flag_names(flags: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::MSG_DONTWAIT, "DONTWAIT"),
        (libc::MSG_MORE, "MORE"),
        (libc::MSG_PEEK, "PEEK"),
        (libc::MSG_TRUNC, "TRUNC"),
        (libc::MSG_CTRUNC, "CTRUNC"),
        (libc::MSG_WAITALL, "WAITALL"),
        (libc::MSG_OOB, "OOB"),
        (libc::MSG_EOR, "EOR"),
        (libc::MSG_NOSIGNAL, "NOSIGNAL"),
        (libc::MSG_ERRQUEUE, "ERRQUEUE"),
        (libc::MSG_DONTROUTE, "DONTROUTE"),
    ];
    let mut left = flags;
    let mut out: Vec<String> = Vec::new();
    for &(bit, name) in NAMES {
        if left & bit != 0 {
            left &= !bit;
            out.push(name.to_owned());
        }
    }
    if left != 0 || out.is_empty() {
        out.push(format!("{left:#x}"));
    }
    out.join("|")
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:x}", self.len, self.seed)
    }
}

impl fmt::Display for Cmsg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            CmsgBody::Op(op) => write!(f, "op={op}")?,
            CmsgBody::Iv(claim, data) => write!(f, "iv={claim}:{data}")?,
            CmsgBody::Assoc(n) => write!(f, "assoc={n}")?,
            CmsgBody::Raw(level, ty, data) => write!(f, "raw={level},{ty}:{data}")?,
        }
        if self.skew != 0 {
            write!(f, "(len{:+})", self.skew)?;
        }
        Ok(())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Socket { to, ty, proto } => write!(f, "socket type={ty} proto={proto} -> s{to}"),
            Call::Bind { slot, family, ty, name, feat, mask, cut, pad } => {
                write!(f, "bind s{slot} {ty:?} {name:?}")?;
                if (*feat, *mask, *cut, *pad, *family) != (0, 0, 0, 0, 38) {
                    write!(f, " family={family} feat={feat:#x} mask={mask:#x} cut={cut} pad={pad}")?;
                }
                Ok(())
            }
            Call::Setsockopt { slot, level, name, val } => write!(f, "setsockopt s{slot} {level},{name} {val}"),
            Call::SetsockoptNull { slot, level, name, len } => {
                write!(f, "setsockopt s{slot} {level},{name} null len={len}")
            }
            Call::SetSerial { slot, key, payload, optlen } => {
                write!(f, "setserial s{slot} {key:?} {payload} optlen={optlen}")
            }
            Call::Getsockopt { slot, level, name, len } => write!(f, "getsockopt s{slot} {level},{name} len={len}"),
            Call::Accept { slot, to, flags } => write!(f, "accept s{slot} flags={flags:#x} -> s{to}"),
            Call::Dup { slot, to } => write!(f, "dup s{slot} -> s{to}"),
            Call::Close { slot } => write!(f, "close s{slot}"),
            Call::Nonblock { slot, on } => write!(f, "nonblock s{slot} {on}"),
            Call::Send { slot, by, seed, pieces, flags, control, cut } => {
                write!(f, "send:{by:?} s{slot} {pieces:?}#{seed:x} {}", flag_names(*flags))?;
                if let Some(list) = control {
                    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
                    write!(f, " [{}]", list.join(" "))?;
                }
                if *cut != 0 {
                    write!(f, " cut={cut}")?;
                }
                Ok(())
            }
            Call::Recv { slot, by, pieces, flags } => {
                write!(f, "recv:{by:?} s{slot} {pieces:?} {}", flag_names(*flags))
            }
            Call::Poll { slot } => write!(f, "poll s{slot}"),
            Call::Misc { slot, what } => write!(f, "{what:?} s{slot}"),
            Call::Fault { slot, what, at } => write!(f, "fault s{slot} {what:?} at {at:?}"),
            Call::Iocb { slot, opcode, len, offset, resfd } => {
                write!(f, "iocb s{slot} opcode={opcode} len={len} offset={offset} resfd={resfd:?}")
            }
            Call::Forked(call) => write!(f, "in a child: {call}"),
        }
    }
}
