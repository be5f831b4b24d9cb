//! Makes a list of calls from a seed.
//!
//! A small model of the probable state of each slot picks sensible calls, and sometimes nonsense on purpose. The model
//! may be wrong, for instance after a refused key; the sequence is then only less likely to reach deep states.

use crate::names::{Alg, CORE, EXTRA, ODD};
use crate::plan::{Call, Cmsg, CmsgBody, Data, Fault, Misc, RecvBy, SLOTS, SendBy, Serial, Wild};
use crate::rng::Rng;
use std::collections::VecDeque;

const SOL_ALG: i32 = 279;
const SET_KEY: i32 = 1;
const SET_AEAD_AUTHSIZE: i32 = 5;
const SET_DRBG_ENTROPY: i32 = 6;
const DONTWAIT: i32 = libc::MSG_DONTWAIT;
const MORE: i32 = libc::MSG_MORE;

/// The names that sequences draw from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameSet {
    /// [`CORE`] alone.
    Core,
    /// [`CORE`], and a share of [`ODD`].
    All,
    /// [`CORE`], and a share of [`ODD`] and of [`EXTRA`].
    Extra,
}

impl std::str::FromStr for NameSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "core" => Ok(NameSet::Core),
            "all" => Ok(NameSet::All),
            "extra" => Ok(NameSet::Extra),
            _ => Err(format!("name set {text:?}: expected core, all or extra")),
        }
    }
}

/// The probable state of a slot.
#[derive(Clone)]
enum Slot {
    Empty,
    Tfm { alg: Option<&'static Alg>, tag: usize },
    Op { alg: &'static Alg, tag: usize, more: bool, nonblock: bool, pending: usize, assoc: usize, enc: bool },
}

struct Generator {
    rng: Rng,
    set: NameSet,
    slots: Vec<Slot>,
    queue: VecDeque<Call>,
}

/// Returns the `calls` calls of sequence `index` under `seed`.
#[must_use]
pub fn generate(seed: u64, index: u64, calls: usize, set: NameSet) -> Vec<Call> {
    let rng = Rng::new(seed ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut g = Generator { rng, set, slots: vec![Slot::Empty; SLOTS], queue: VecDeque::new() };
    // Neighbouring seeds start far apart.
    g.rng.next_u64();
    (0..calls).map(|_| g.next_call()).collect()
}

impl Generator {
    fn next_call(&mut self) -> Call {
        let call = match self.queue.pop_front() {
            Some(call) if !self.rng.chance(4) => call,
            _ if self.rng.chance(7) => self.nonsense(),
            _ => self.sensible(),
        };
        self.note(&call);
        // What a child accepts, its parent does not have; and some calls need the parent's address space.
        let forks = matches!(
            call,
            Call::Send { .. }
                | Call::Recv { .. }
                | Call::Close { .. }
                | Call::Setsockopt { .. }
                | Call::SetsockoptNull { .. }
                | Call::Getsockopt { .. }
                | Call::Nonblock { .. }
                | Call::Poll { .. }
        );
        // Whoever binds a generator knows that its bytes are not to be compared.
        let forks = forks || matches!(&call, Call::Bind { ty, .. } if ty != "rng");
        if forks && self.rng.chance(4) {
            return Call::Forked(Box::new(call));
        }
        call
    }

    /// Updates the model after a call.
    fn note(&mut self, call: &Call) {
        match call {
            Call::Socket { to, .. } => self.slots[*to] = Slot::Tfm { alg: None, tag: 0 },
            Call::Bind { slot, ty, name, .. } => {
                let found = CORE.iter().chain(ODD).chain(EXTRA).find(|a| a.ty == ty && a.name == name);
                if let Slot::Tfm { alg, .. } = &mut self.slots[*slot] {
                    *alg = found;
                }
            }
            Call::SetsockoptNull { slot, name: SET_AEAD_AUTHSIZE, len, .. } => {
                if let Slot::Tfm { tag, .. } = &mut self.slots[*slot] {
                    *tag = *len;
                }
            }
            Call::Accept { slot, to, flags } => {
                let nonblock = flags & libc::SOCK_NONBLOCK != 0;
                self.slots[*to] = match self.slots[*slot].clone() {
                    Slot::Tfm { alg: Some(alg), tag } | Slot::Op { alg, tag, .. } => {
                        Slot::Op { alg, tag, more: false, nonblock, pending: 0, assoc: 0, enc: false }
                    }
                    _ => Slot::Empty,
                };
            }
            Call::Dup { slot, to } => self.slots[*to] = self.slots[*slot].clone(),
            Call::Close { slot } => self.slots[*slot] = Slot::Empty,
            Call::Nonblock { slot, on } => {
                if let Slot::Op { nonblock, .. } = &mut self.slots[*slot] {
                    *nonblock = *on;
                }
            }
            Call::Send { slot, pieces, flags, control, .. } => {
                if let Slot::Op { more, pending, assoc, enc, .. } = &mut self.slots[*slot] {
                    *more = flags & MORE != 0;
                    *pending += pieces.iter().sum::<usize>();
                    for c in control.iter().flatten() {
                        match c.body {
                            CmsgBody::Op(op) => *enc = op == 1,
                            CmsgBody::Assoc(n) => *assoc = (n as usize).min(1000),
                            _ => {}
                        }
                    }
                }
            }
            Call::Recv { slot, pieces, .. } => {
                if let Slot::Op { alg, pending, .. } = &mut self.slots[*slot] {
                    let n: usize = pieces.iter().sum();
                    *pending = if alg.ty == "skcipher" { pending.saturating_sub(n) } else { 0 };
                }
            }
            _ => {}
        }
    }

    fn free_slot(&mut self) -> usize {
        let free: Vec<usize> = (0..SLOTS).filter(|&i| matches!(self.slots[i], Slot::Empty)).collect();
        if free.is_empty() { self.rng.below(SLOTS) } else { *self.rng.of(&free) }
    }

    fn alg(&mut self) -> &'static Alg {
        match self.set {
            NameSet::All | NameSet::Extra if self.rng.chance(12) => self.rng.of(ODD),
            NameSet::Extra if self.rng.chance(25) => self.rng.of(EXTRA),
            _ => self.rng.of(CORE),
        }
    }

    fn data(&mut self, len: usize) -> Data {
        // Few seeds, so that keys and messages repeat, and results can be compared by eye.
        Data { seed: self.rng.below(16) as u32, len }
    }

    fn sensible(&mut self) -> Call {
        let ops: Vec<usize> = (0..SLOTS).filter(|&i| matches!(self.slots[i], Slot::Op { .. })).collect();
        let tfms: Vec<usize> =
            (0..SLOTS).filter(|&i| matches!(self.slots[i], Slot::Tfm { alg: Some(_), .. })).collect();
        // Several sockets at once, because the first may be refused.
        if ops.len() < 2 || self.rng.chance(if ops.len() < 4 { 10 } else { 3 }) {
            if !tfms.is_empty() && self.rng.chance(40) {
                let slot = *self.rng.of(&tfms);
                return self.tfm_call(slot);
            }
            self.start();
            return self.queue.pop_front().expect("a start is several calls");
        }
        if !tfms.is_empty() && self.rng.chance(7) {
            let slot = *self.rng.of(&tfms);
            return self.tfm_call(slot);
        }
        let slot = *self.rng.of(&ops);
        self.op_call(slot)
    }

    /// Queues socket, bind, key, tag length, accept.
    fn start(&mut self) {
        let alg = self.alg();
        let slot = self.free_slot();
        self.queue.push_back(Call::Socket { to: slot, ty: libc::SOCK_SEQPACKET, proto: 0 });
        let bind = self.bind(slot, alg);
        self.queue.push_back(bind);
        let accept_first = self.rng.chance(6);
        if !alg.keys.is_empty() && !accept_first {
            let key = self.set_key(slot, alg);
            self.queue.push_back(key);
        }
        if alg.ty == "aead" && self.rng.chance(90) {
            let len = *self.rng.of(alg.tags);
            self.queue.push_back(Call::SetsockoptNull { slot, level: SOL_ALG, name: SET_AEAD_AUTHSIZE, len });
        }
        if alg.ty == "rng" && self.rng.chance(30) {
            let val = self.data(48);
            self.queue.push_back(Call::Setsockopt { slot, level: SOL_ALG, name: SET_KEY, val });
        }
        // The slot is taken from now on; the model learns of it when the queue is played.
        let mut to = self.free_slot();
        if to == slot {
            to = (slot + 1) % SLOTS;
        }
        let flags = if self.rng.chance(85) { libc::SOCK_NONBLOCK } else { 0 };
        self.queue.push_back(Call::Accept { slot, to, flags });
        if accept_first && !alg.keys.is_empty() {
            let key = self.set_key(slot, alg);
            self.queue.push_back(key);
        }
        if self.rng.chance(12) {
            self.queue.push_back(Call::Close { slot });
        }
    }

    fn bind(&mut self, slot: usize, alg: &Alg) -> Call {
        let (mut feat, mut mask, mut cut, mut pad, mut family) = (0, 0, 0, 0, 38);
        if self.rng.chance(4) {
            match self.rng.below(6) {
                0 => feat = 0x1000,
                1 => mask = 0x1000,
                2 => feat = 1 << self.rng.below(32),
                3 => cut = self.rng.below(24),
                4 => pad = 1 + self.rng.below(200),
                _ => family = self.rng.below(50) as u16,
            }
        }
        Call::Bind { slot, family, ty: alg.ty.to_owned(), name: alg.name.to_owned(), feat, mask, cut, pad }
    }

    fn set_key(&mut self, slot: usize, alg: &Alg) -> Call {
        let right = if alg.keys.is_empty() { 16 } else { *self.rng.of(alg.keys) };
        let len = if self.rng.chance(92) {
            right
        } else {
            *self.rng.of(&[0, 1, right - 1, right + 1, right * 2, 15, 17, 64, 4096, 30000])
        };
        let payload = self.data(len);
        if self.rng.chance(6) {
            let key = *self.rng.of(&[Serial::User, Serial::User, Serial::Revoked, Serial::Keyring, Serial::Unknown]);
            let optlen = if self.rng.chance(90) { 4 } else { *self.rng.of(&[0, 3, 5, 8]) };
            return Call::SetSerial { slot, key, payload, optlen };
        }
        Call::Setsockopt { slot, level: SOL_ALG, name: SET_KEY, val: payload }
    }

    fn tfm_call(&mut self, slot: usize) -> Call {
        let Slot::Tfm { alg: Some(alg), .. } = self.slots[slot].clone() else { return Call::Poll { slot } };
        let to = self.free_slot();
        match self.rng.weighted(&[10, 4, 3, 2, 2, 1, 1, 1]) {
            0 => {
                let flags = if self.rng.chance(85) { libc::SOCK_NONBLOCK } else { 0 };
                Call::Accept { slot, to, flags }
            }
            1 => self.set_key(slot, alg),
            2 => {
                let len = if self.rng.chance(60) && !alg.tags.is_empty() {
                    *self.rng.of(alg.tags)
                } else {
                    self.rng.below(20)
                };
                Call::SetsockoptNull { slot, level: SOL_ALG, name: SET_AEAD_AUTHSIZE, len }
            }
            3 => {
                let alg = self.alg();
                self.bind(slot, alg)
            }
            4 => Call::Close { slot },
            5 => Call::Dup { slot, to },
            6 => self.misc(slot),
            _ => self.fault(slot),
        }
    }

    fn op_call(&mut self, slot: usize) -> Call {
        let Slot::Op { alg, tag, more, nonblock, pending, assoc, enc } = self.slots[slot].clone() else {
            return Call::Poll { slot };
        };
        // Rare calls, which each type answers differently.
        if self.rng.chance(14) {
            let to = self.free_slot();
            return match self.rng.weighted(&[8, 4, 3, 3, 1, 2, 1, 4, 1]) {
                0 => Call::Poll { slot },
                1 => Call::Accept { slot, to, flags: libc::SOCK_NONBLOCK },
                2 => Call::Dup { slot, to },
                3 => Call::Close { slot },
                4 => Call::Nonblock { slot, on: self.rng.chance(90) },
                5 => self.misc(slot),
                6 => self.set_key(slot, alg),
                7 => self.fault(slot),
                _ => self.iocb(slot),
            };
        }
        let receive = match alg.ty {
            "rng" => self.rng.chance(90),
            "hash" => self.rng.chance(if pending > 0 && !more { 80 } else { 25 }),
            _ => self.rng.chance(if pending == 0 {
                6
            } else if more {
                30
            } else {
                92
            }),
        };
        if receive {
            let tag = if tag == 0 { alg.tags.first().copied().unwrap_or(0) } else { tag };
            let exact = match alg.ty {
                "hash" => tag,
                "rng" => self.rng.below(140),
                "aead" if enc => pending + tag,
                "aead" => pending.saturating_sub(tag).max(assoc),
                _ => pending,
            };
            self.receive(slot, exact, alg.block, nonblock)
        } else {
            self.send(slot, alg, pending, nonblock)
        }
    }

    fn receive(&mut self, slot: usize, exact: usize, block: usize, nonblock: bool) -> Call {
        let len = match self.rng.weighted(&[60, 10, 8, 8, 5, 4, 2]) {
            0 => exact,
            1 => exact + 1 + self.rng.below(64),
            2 => exact - exact.min(1 + self.rng.below(20)),
            3 => block * (1 + self.rng.below(4)),
            4 => exact / 2,
            5 => self.rng.below(64),
            _ => 70_000,
        };
        let mut flags = if !nonblock && self.rng.chance(97) { DONTWAIT } else { 0 };
        if self.rng.chance(5) {
            flags |=
                self.rng.of(&[libc::MSG_PEEK, libc::MSG_TRUNC, libc::MSG_WAITALL, libc::MSG_OOB, libc::MSG_ERRQUEUE]);
        }
        let by = match self.rng.weighted(&[30, 30, 10, 8, 1, 6, 4]) {
            0 => RecvBy::Recv,
            1 => RecvBy::Recvmsg,
            2 if nonblock => RecvBy::Read,
            3 if nonblock => RecvBy::Readv,
            4 => RecvBy::Splice,
            5 if nonblock => RecvBy::Aio,
            6 if nonblock => RecvBy::AioVec,
            _ => RecvBy::Recvmsg,
        };
        // Beyond a page the result is random: the kernel splices as many pages as its allocator has at hand.
        let len = if matches!(by, RecvBy::Splice) { len.min(4096) } else { len };
        let scattered = matches!(by, RecvBy::Recvmsg | RecvBy::Readv | RecvBy::AioVec);
        let pieces = if scattered { self.split(len) } else { vec![len] };
        Call::Recv { slot, by, pieces, flags }
    }

    fn split(&mut self, len: usize) -> Vec<usize> {
        if self.rng.chance(65) {
            return vec![len];
        }
        let mut left = len;
        let mut out = Vec::new();
        for _ in 0..self.rng.below(4) {
            let n = match self.rng.below(4) {
                0 => 0,
                1 => left.min(16),
                2 => left.min(7),
                _ => self.rng.below(left + 1),
            };
            out.push(n);
            left -= n;
        }
        out.push(left);
        out
    }

    fn text_len(&mut self, block: usize) -> usize {
        const ODD: &[usize] = &[0, 1, 7, 8, 15, 17, 20, 31, 33, 55, 56, 63, 65, 100, 127, 129, 1000, 4095, 4097];
        match self.rng.weighted(&[50, 30, 15, 3, 1]) {
            0 => block.max(1) * (1 + self.rng.below(12)),
            1 if block > 1 && self.rng.chance(70) => block * self.rng.below(70),
            1 => *self.rng.of(ODD),
            2 => 16 * self.rng.below(300),
            3 => *self.rng.of(&[4096, 8192, 16384, 32768, 65536]),
            _ => *self.rng.of(&[65535, 65537, 70000, 212_992, 213_000, 300_000]),
        }
    }

    fn send(&mut self, slot: usize, alg: &Alg, pending: usize, nonblock: bool) -> Call {
        let mut flags = if !nonblock && self.rng.chance(98) { DONTWAIT } else { 0 };
        if self.rng.chance(if alg.ty == "hash" { 40 } else { 22 }) {
            flags |= MORE;
        }
        if self.rng.chance(3) {
            flags |= self.rng.of(&[libc::MSG_OOB, libc::MSG_EOR, libc::MSG_NOSIGNAL, libc::MSG_DONTROUTE]);
        }
        let seed = self.rng.below(16) as u32;
        let wants_control = matches!(alg.ty, "skcipher" | "aead");
        let fresh = pending == 0;
        let percent = if !wants_control {
            3
        } else if fresh {
            85
        } else {
            15
        };
        let enc = self.rng.chance(65);
        let mut len = self.text_len(alg.block);
        let assoc = if alg.assoc > 0 && self.rng.chance(85) {
            alg.assoc + 4 * self.rng.below(2)
        } else {
            *self.rng.of(&[0, 0, 4, 8, 13, 16, 20, 40])
        };
        if alg.ty == "aead" {
            len = len.min(20_000) + if self.rng.chance(95) { assoc } else { 0 };
        }
        if self.rng.chance(percent) {
            let (control, cut) = self.control(alg, enc, assoc);
            if self.rng.chance(8) {
                // Control messages first, the text later.
                len = 0;
                flags |= MORE;
            }
            let pieces = self.split(len);
            return Call::Send { slot, by: SendBy::Sendmsg, seed, pieces, flags, control: Some(control), cut };
        }
        let by = match self.rng.weighted(&[30, 15, 10, 8, 4, 4, 3, 4, 3]) {
            0 => SendBy::Send,
            1 => SendBy::Sendmsg,
            2 if nonblock => SendBy::Write,
            3 if nonblock => SendBy::Writev,
            4 => SendBy::Splice,
            5 => SendBy::Vmsplice,
            6 => SendBy::Sendfile,
            7 if nonblock => SendBy::Aio,
            8 if nonblock => SendBy::AioVec,
            _ => SendBy::Send,
        };
        let pieces = match by {
            SendBy::Sendmsg | SendBy::Writev | SendBy::AioVec => self.split(len),
            SendBy::Splice | SendBy::Vmsplice | SendBy::Sendfile => vec![len.min(60_000)],
            _ => vec![len],
        };
        Call::Send { slot, by, seed, pieces, flags, control: None, cut: 0 }
    }

    fn control(&mut self, alg: &Alg, enc: bool, assoc: usize) -> (Vec<Cmsg>, usize) {
        let fit = |body| Cmsg { body, skew: 0 };
        let mut list = Vec::new();
        if self.rng.chance(95) {
            list.push(fit(CmsgBody::Op(u32::from(enc))));
        }
        if alg.iv > 0 && self.rng.chance(90) {
            let iv = self.iv(alg);
            list.push(fit(CmsgBody::Iv(alg.iv as u32, iv)));
        }
        if alg.ty == "aead" && self.rng.chance(95) {
            list.push(fit(CmsgBody::Assoc(assoc as u32)));
        }
        let mut cut = 0;
        if self.rng.chance(9) {
            match self.rng.below(9) {
                0 => list.push(fit(CmsgBody::Op(*self.rng.of(&[0, 1, 2, 3, u32::MAX])))),
                1 => {
                    let claim = *self.rng.of(&[0, 8, 12, 15, 16, 17, 32, 1000, u32::MAX]);
                    let iv = self.iv(alg);
                    list.push(fit(CmsgBody::Iv(claim, iv)));
                }
                2 => list.push(fit(CmsgBody::Assoc(*self.rng.of(&[0, 1, 16, 100_000, 0x7fff_ffff, 0x8000_0000])))),
                3 => {
                    let (level, ty) =
                        *self.rng.of(&[(SOL_ALG, 77), (SOL_ALG, 0), (SOL_ALG, 1), (0, 3), (1, 77), (1, 1)]);
                    let data = self.data(4);
                    list.push(fit(CmsgBody::Raw(level, ty, data)));
                }
                4 => cut = 1 + self.rng.below(30),
                5 => {
                    if let Some(c) = list.last_mut() {
                        c.skew = *self.rng.of(&[-30, -20, -4, -2, -1, 1, 2, 8, 100]);
                    }
                }
                6 => list.reverse(),
                7 => list.clear(),
                _ => {
                    let data = self.data(2);
                    list.push(fit(CmsgBody::Raw(SOL_ALG, 3, data)));
                }
            }
        }
        (list, cut)
    }

    fn iv(&mut self, alg: &Alg) -> Data {
        // CCM takes the length of its length field from the first byte, which is often valid with these seeds.
        let mut data = self.data(alg.iv);
        if alg.name == "ccm(aes)" && self.rng.chance(85) {
            data.seed |= CCM_IV;
        }
        data
    }

    fn misc(&mut self, slot: usize) -> Call {
        const ALL: &[Misc] = &[
            Misc::Getsockname,
            Misc::Getpeername,
            Misc::Listen,
            Misc::Connect,
            Misc::Shutdown,
            Misc::Fstat,
            Misc::Lseek,
            Misc::Fionread,
            Misc::Getfl,
            Misc::Getfd,
        ];
        match self.rng.below(3) {
            0 => {
                let (level, name) = *self.rng.of(&[
                    (1, libc::SO_TYPE),
                    (1, libc::SO_DOMAIN),
                    (1, libc::SO_PROTOCOL),
                    (1, libc::SO_ERROR),
                    (1, libc::SO_SNDBUF),
                    (1, libc::SO_RCVBUF),
                    (1, libc::SO_ACCEPTCONN),
                    (1, libc::SO_REUSEADDR),
                    (1, libc::SO_LINGER),
                    (1, 999),
                    (SOL_ALG, 1),
                    (SOL_ALG, 99),
                ]);
                Call::Getsockopt { slot, level, name, len: *self.rng.of(&[4, 4, 4, 8, 2, 0, 16]) }
            }
            _ => Call::Misc { slot, what: *self.rng.of(ALL) },
        }
    }

    fn nonsense(&mut self) -> Call {
        let slot = self.rng.below(SLOTS);
        let to = self.rng.below(SLOTS);
        let alg = self.alg();
        match self.rng.below(17) {
            0 => Call::Socket { to, ty: *self.rng.of(&[1, 2, 3, 5, 5, 0, 99]), proto: *self.rng.of(&[0, 0, 1, 6, -1]) },
            1 => self.bind(slot, alg),
            2 => self.set_key(slot, alg),
            3 => {
                let val = self.data(*[0, 4, 16, 48].get(to % 4).unwrap_or(&4));
                let (level, name) = *self.rng.of(&[
                    (SOL_ALG, 99),
                    (SOL_ALG, 0),
                    (SOL_ALG, 2),
                    (SOL_ALG, 3),
                    (SOL_ALG, 4),
                    (SOL_ALG, SET_AEAD_AUTHSIZE),
                    (SOL_ALG, SET_DRBG_ENTROPY),
                    (1, 999),
                    (0, 1),
                    (6, 1),
                ]);
                Call::Setsockopt { slot, level, name, val }
            }
            4 => Call::SetsockoptNull {
                slot,
                level: SOL_ALG,
                name: SET_AEAD_AUTHSIZE,
                len: *self.rng.of(&[0, 1, 3, 4, 12, 15, 16, 17, 1000]),
            },
            5 => Call::Accept { slot, to, flags: *self.rng.of(&[0, 0, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC, 1]) },
            6 => Call::Dup { slot, to },
            7 => Call::Close { slot },
            8 | 9 => self.send(slot, alg, 0, false),
            10 | 11 => {
                let len = self.rng.below(100);
                self.receive(slot, len, 16, false)
            }
            12 => Call::Poll { slot },
            13 => self.misc(slot),
            14 => self.iocb(slot),
            _ => self.fault(slot),
        }
    }

    /// Returns a call with a wild pointer.
    fn fault(&mut self, slot: usize) -> Call {
        let at = *self.rng.of(&[Wild::Null, Wild::Low, Wild::Kernel]);
        let good = *self.rng.of(&[0, 1, 16, 16, 32, 100, 4096]);
        let bad = *self.rng.of(&[0, 1, 16, 16, 32, 1000, 70_000]);
        let flags = if self.rng.chance(30) { MORE } else { 0 };
        let name = *self.rng.of(&[SET_KEY, SET_KEY, SET_AEAD_AUTHSIZE, SET_DRBG_ENTROPY, 7]);
        let what = match self.rng.below(20) {
            0 => Fault::Send { bad, flags },
            1 => Fault::Write { bad },
            2 => Fault::Writev { good, bad },
            3 => Fault::WriteArray,
            4 => Fault::Sendmsg { good, bad, flags },
            5 => Fault::SendControl { good, bad: bad.min(1000), flags },
            6 => Fault::SendHeader,
            7 => Fault::Recv { bad },
            8 => Fault::Read { bad },
            9 => Fault::Readv { good, bad },
            10 => Fault::Recvmsg { good, bad },
            11 => Fault::RecvHeader,
            12 => Fault::AioRead { bad },
            13 => Fault::AioWrite { bad },
            14 => Fault::Iocb,
            15 => Fault::Bind { bad: bad.min(120) },
            16 => Fault::Setsockopt { name, bad },
            17 => Fault::Getsockopt,
            18 => Fault::GetsockoptLen,
            _ => Fault::AcceptLen,
        };
        Call::Fault { slot, what, at }
    }

    /// Returns an odd operation for io_submit that refers to valid memory.
    fn iocb(&mut self, slot: usize) -> Call {
        Call::Iocb {
            slot,
            // Reads, writes, FSYNC, NOOP and meaningless numbers; not POLL, which may never end.
            opcode: *self.rng.of(&[0, 0, 1, 1, 2, 6, 9, 99]),
            len: *self.rng.of(&[0, 1, 16, 48, 64]),
            offset: *self.rng.of(&[0, 0, 1, -1, i64::MIN, 4096]),
            resfd: *self.rng.of(&[None, None, None, Some(-1), Some(1_000_000)]),
        }
    }
}

/// Marks the seed of an IV whose first byte is valid for CCM.
pub const CCM_IV: u32 = 0x100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_calls() {
        assert_eq!(generate(7, 3, 60, NameSet::All), generate(7, 3, 60, NameSet::All));
        assert_ne!(generate(7, 3, 60, NameSet::All), generate(7, 4, 60, NameSet::All));
        assert_ne!(generate(7, 3, 60, NameSet::All), generate(8, 3, 60, NameSet::All));
    }

    #[test]
    fn sequences_reach_data() {
        let calls: Vec<Call> = (0..100).flat_map(|i| generate(1, i, 40, NameSet::Core)).collect();
        let count = |f: fn(&Call) -> bool| calls.iter().filter(|c| f(c)).count();
        assert!(count(|c| matches!(c, Call::Recv { .. })) > 300);
        assert!(count(|c| matches!(c, Call::Send { control: Some(_), .. })) > 200);
        assert!(count(|c| matches!(c, Call::Accept { .. })) > 200);
    }
}
