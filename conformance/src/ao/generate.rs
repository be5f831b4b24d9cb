//! Random sequences of calls on TCP sockets, mostly valid: a call that fails the first check tests nothing behind it.

use super::plan::{Call, Opt, SLOTS};
use crate::rng::Rng;
use sealane_abi::tcp::{
    SockaddrStorage, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY, TCP_AO_GET_KEYS, TCP_AO_INFO, TCP_AO_REPAIR, TCP_MD5SIG,
    TCP_MD5SIG_EXT, TcpAoAdd, TcpAoDel, TcpAoGetsockopt, TcpAoInfoOpt, TcpMd5sig,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use zerocopy::{FromZeros, IntoBytes};

/// Peers that answer (this machine's addresses), and peers behind an interface that drops everything.
const V4: [(&str, u8); 12] = [
    ("127.0.0.1", 32),
    ("127.0.0.1", 32),
    ("127.0.0.0", 8),
    ("10.9.0.1", 32),
    ("10.9.0.7", 32),
    ("10.9.0.7", 32),
    ("10.9.0.0", 24),
    ("10.9.0.4", 30),
    ("0.0.0.0", 0),
    ("10.0.0.0", 8),
    ("192.0.2.1", 32),
    ("128.0.0.0", 1),
];
const V6: [(&str, u8); 7] = [
    ("::1", 128),
    ("::1", 128),
    ("2001:db8:9::1", 128),
    ("2001:db8:9::7", 128),
    ("2001:db8:9::", 64),
    ("::", 0),
    ("2001:db8::", 32),
];
/// Names of algorithms, most used first.
const ALGS: [&str; 13] = [
    "hmac(sha1)",
    "hmac(sha1)",
    "hmac(sha1)",
    "hmac(sha256)",
    "cmac(aes128)",
    "cmac(aes)",
    "hmac(md5)",
    "hmac(sha224)",
    "hmac(sha384)",
    "hmac(sha512)",
    "nonsense",
    "cmac(aes128",
    "",
];

struct Generator {
    rng: Rng,
    /// Number of the sequence, which its ports depend on.
    number: u64,
    /// The intended state of each slot: IPv6, listening, connected to a listener.
    slots: [Option<Slot>; SLOTS],
    calls: Vec<Call>,
}

#[derive(Clone, Copy)]
struct Slot {
    v6: bool,
    /// Part of a connection over loopback. It is not closed, because the other end's reaction depends on time.
    paired: bool,
}

/// Returns the `n` calls of sequence `number`.
#[must_use]
pub fn generate(seed: u64, number: u64, n: usize) -> Vec<Call> {
    let mut start = Rng::new(seed);
    let rng = Rng::new(start.next_u64() ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut g = Generator { rng, number, slots: [None; SLOTS], calls: Vec::new() };
    while g.calls.len() < n {
        g.step();
    }
    g.calls.truncate(n);
    g.calls
}

impl Generator {
    fn step(&mut self) {
        let free = self.slots.iter().position(Option::is_none);
        let used: Vec<usize> = (0..SLOTS).filter(|s| self.slots[*s].is_some()).collect();
        if used.is_empty() || self.rng.chance(8) && free.is_some() {
            if let Some(slot) = free {
                let v6 = self.rng.chance(45);
                self.open(slot, v6);
            }
            return;
        }
        let slot = *self.rng.of(&used);
        match self.rng.weighted(&[30, 11, 9, 14, 8, 6, 8, 3, 2, 3, 2, 6, 1, 2, 1, 3, 1]) {
            0 => self.add(slot),
            1 => self.del(slot),
            2 => self.info(slot),
            3 => self.keys(slot),
            4 => self.get_info(slot),
            5 => self.ao_repair(slot),
            6 => self.md5(slot),
            7 => {
                // Switching it off with 0 sends a probe, and the peer's answer may change the current key.
                let quiet = self.slots[slot].is_none_or(|s| s.paired);
                let mode = *self.rng.of(if quiet { &[1, 1, 1, -1, -1] } else { &[1, 1, 1, -1, 0] });
                self.calls.push(Call::Repair { slot, mode });
            }
            8 => {
                let (queue, seq) = (*self.rng.of(&[1, 2]), *self.rng.of(&[5, 0x8000_0000, u32::MAX]));
                self.calls.push(Call::QueueSeq { slot, queue, seq });
            }
            9 => self.bind(slot),
            10 => self.calls.push(Call::Listen { slot }),
            11 => self.connect(slot),
            // A reset from a peer may change the current key, too.
            12 if self.slots[slot].is_some_and(|s| s.paired) => {}
            12 => self.calls.push(Call::Disconnect { slot }),
            13 => {
                if let Some(new) = free {
                    self.accept(slot, new);
                }
            }
            14 => {
                let on = self.rng.chance(60);
                self.calls.push(Call::V6only { slot, on });
            }
            15 => self.pair(),
            _ => {
                if self.slots[slot].is_some_and(|s| !s.paired) {
                    self.calls.push(Call::Close { slot });
                    self.slots[slot] = None;
                }
            }
        }
    }

    fn open(&mut self, slot: usize, v6: bool) {
        self.slots[slot] = Some(Slot { v6, paired: false });
        self.calls.push(Call::Socket { slot, v6 });
    }

    fn v6(&self, slot: usize) -> bool {
        self.slots[slot].is_some_and(|s| s.v6)
    }

    /// Returns the port that a slot of this sequence listens on.
    fn port(&self, slot: usize) -> u16 {
        20_000 + ((self.number % 4000) * 8) as u16 + slot as u16
    }

    /// Returns a peer in the form of this socket's family.
    fn peer(&mut self, v6: bool) -> (IpAddr, u8) {
        let (addr, len) = if v6 && self.rng.chance(65) { *self.rng.of(&V6) } else { *self.rng.of(&V4) };
        let addr: IpAddr = addr.parse().expect("a literal address");
        match addr {
            IpAddr::V4(a) if v6 => (a.to_ipv6_mapped().into(), len),
            _ => (addr, len),
        }
    }

    fn bind(&mut self, slot: usize) {
        let addr = if self.v6(slot) {
            *self.rng.of(&["::", "::1", "2001:db8:9::1", "::ffff:127.0.0.1", "::ffff:10.9.0.1"])
        } else {
            *self.rng.of(&["0.0.0.0", "127.0.0.1", "10.9.0.1"])
        };
        let port = self.port(slot);
        self.calls.push(Call::Bind { slot, addr: SocketAddr::new(addr.parse().expect("a literal address"), port) });
    }

    fn connect(&mut self, slot: usize) {
        let (mut addr, prefix) = self.peer(self.v6(slot));
        if prefix < 32 && !(addr.is_unspecified() && self.rng.chance(50)) {
            // A host of the network, because its first address may be a broadcast address.
            addr = match addr {
                IpAddr::V4(a) => IpAddr::V4((a.to_bits() | 7).into()),
                IpAddr::V6(a) => IpAddr::V6((a.to_bits() | 7).into()),
            };
        }
        if self.rng.chance(5) {
            addr =
                if addr.is_ipv4() { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { "127.0.0.1".parse().expect("a literal") };
        }
        // A listener's port, or one without a listener.
        let to = self.rng.below(SLOTS);
        let port = if self.rng.chance(40) { self.port(to) } else { 9 };
        // The listener's answer changes the client in one way only; the effect of closing either end depends on time.
        for s in [slot, to] {
            if let Some(s) = self.slots[s].as_mut().filter(|_| port != 9) {
                s.paired = true;
            }
        }
        self.calls.push(Call::Connect { slot, addr: SocketAddr::new(addr, port) });
    }

    fn accept(&mut self, slot: usize, new: usize) {
        let v6 = self.v6(slot);
        self.slots[new] = Some(Slot { v6, paired: true });
        self.calls.push(Call::Accept { slot, new });
    }

    /// Connects a client to a listener, with matching keys.
    fn pair(&mut self) {
        let free: Vec<usize> = (0..SLOTS).filter(|s| self.slots[*s].is_none()).collect();
        let [listener, client, child, ..] = free[..] else { return };
        let v6 = self.rng.chance(50);
        let mapped = v6 && self.rng.chance(40);
        let own = match (v6, mapped) {
            (false, _) => *self.rng.of(&["127.0.0.1", "10.9.0.1"]),
            (true, true) => *self.rng.of(&["::ffff:127.0.0.1", "::ffff:10.9.0.1"]),
            (true, false) => *self.rng.of(&["::1", "2001:db8:9::1"]),
        };
        let own: IpAddr = own.parse().expect("a literal address");
        self.open(listener, v6);
        let client_v6 = v6 && (!mapped || self.rng.chance(50));
        self.open(client, client_v6);
        let client_addr = if client_v6 { own } else { own.to_canonical() };
        let count = 1 + self.rng.below(3);
        for n in 0..count {
            let full = if own.is_ipv4() || mapped { 32 } else { 128 };
            let mut key = self.key(own, full);
            (key.sndid, key.rcvid) = (n as u8 * 2 + self.rng.below(2) as u8, n as u8 * 2 + self.rng.below(2) as u8);
            key.flags.set(0);
            let mut other = TcpAoAdd::new_zeroed();
            other.as_mut_bytes().copy_from_slice(key.as_bytes());
            (other.sndid, other.rcvid) = (key.rcvid, key.sndid);
            other.addr = SockaddrStorage::new(client_addr);
            if self.rng.chance(30) {
                other.flags.set(1 + self.rng.below(3) as u32);
            }
            if self.rng.chance(30) && !mapped {
                // A key for all peers, on the listener.
                (key.prefix, key.addr) =
                    (0, SockaddrStorage::new(if v6 { V6[5].0 } else { V4[8].0 }.parse().expect("any")));
            }
            self.push_set(listener, TCP_AO_ADD_KEY, key.as_bytes());
            self.push_set(client, TCP_AO_ADD_KEY, other.as_bytes());
        }
        if self.rng.chance(30) {
            self.info(listener);
        }
        let port = self.port(listener);
        self.calls.push(Call::Bind { slot: listener, addr: SocketAddr::new(own, port) });
        self.calls.push(Call::Listen { slot: listener });
        self.calls.push(Call::Connect { slot: client, addr: SocketAddr::new(client_addr, port) });
        self.accept(listener, child);
        for slot in [listener, client, child] {
            if let Some(s) = &mut self.slots[slot] {
                s.paired = true;
            }
        }
        self.all_keys(child);
        self.get_info(child);
        self.all_keys(client);
    }

    /// Returns a valid key.
    fn key(&mut self, addr: IpAddr, prefix: u8) -> TcpAoAdd {
        let mut a = TcpAoAdd::new_zeroed();
        a.addr = SockaddrStorage::new(addr);
        let name = *self.rng.of(&ALGS[..5]);
        a.alg_name[..name.len()].copy_from_slice(name.as_bytes());
        a.prefix = prefix;
        (a.sndid, a.rcvid) = (self.rng.below(5) as u8, self.rng.below(5) as u8);
        a.maclen = *self.rng.of(&[0, 12, 16, 4]);
        a.keyflags = *self.rng.of(&[0, 0, 2]);
        a.keylen = *self.rng.of(&[16, 8, 20, 80]);
        let seed = self.rng.below(4) as u8;
        for (i, b) in a.key[..usize::from(a.keylen)].iter_mut().enumerate() {
            *b = seed.wrapping_add(i as u8);
        }
        a
    }

    fn add(&mut self, slot: usize) {
        let v6 = self.v6(slot);
        let (addr, prefix) = self.peer(v6);
        let mut a = self.key(addr, prefix);
        if self.rng.chance(15) {
            a.flags.set(1 + self.rng.below(3) as u32);
        }
        if self.rng.chance(10) {
            a.keyflags |= 1;
        }
        if self.rng.chance(20) {
            self.alg_name(&mut a);
        }
        for _ in 0..self.rng.weighted(&[70, 22, 8]) {
            self.spoil_add(&mut a, v6);
        }
        self.push_set(slot, TCP_AO_ADD_KEY, a.as_bytes());
    }

    fn alg_name(&mut self, a: &mut TcpAoAdd) {
        let name = *self.rng.of(&ALGS);
        a.alg_name = [0; 64];
        a.alg_name[..name.len()].copy_from_slice(name.as_bytes());
        if self.rng.chance(5) {
            a.alg_name = [b'a'; 64];
        }
        // AES-192 and AES-256 under this name are a known difference before Linux 7.1.
        if name == "cmac(aes)" && matches!(a.keylen, 24 | 32) {
            a.keylen = 16;
        }
    }

    fn spoil_add(&mut self, a: &mut TcpAoAdd, v6: bool) {
        match self.rng.below(14) {
            0 => a.keylen = *self.rng.of(&[0, 1, 15, 17, 79, 81, 255]),
            1 => a.maclen = *self.rng.of(&[1, 3, 5, 15, 17, 20, 32, 255]),
            2 => a.keyflags = *self.rng.of(&[4, 1, 3, 0x80, 0xff]),
            3 => a.ifindex.set(*self.rng.of(&[1, -1, 99, i32::MAX])),
            4 => (a.keyflags, _) = (a.keyflags | 1, a.ifindex.set(*self.rng.of(&[1, 2, -1, 99]))),
            5 => a.prefix = *self.rng.of(&[0, 1, 31, 32, 33, 96, 127, 128, 129, 255]),
            6 => a.addr = a.addr.with_port(179),
            7 => {
                let (addr, prefix) = self.peer(!v6);
                (a.addr, a.prefix) = (SockaddrStorage::new(addr), prefix);
            }
            8 => a.addr.0[..2].copy_from_slice(&[*self.rng.of(&[0, 1, 2, 10, 255]), 0]),
            9 => a.flags.set(*self.rng.of(&[4, 0x8000_0000, 7])),
            10 => a.reserved2.set(1),
            11 => a.addr.0[4 + self.rng.below(20)] ^= 1,
            12 => a.flags.set(a.flags.get() ^ 3),
            _ => (a.sndid, a.rcvid) = (255, self.rng.below(3) as u8),
        }
    }

    fn del(&mut self, slot: usize) {
        let v6 = self.v6(slot);
        let (addr, prefix) = self.peer(v6);
        let mut d = TcpAoDel::new_zeroed();
        d.addr = SockaddrStorage::new(addr);
        d.prefix = prefix;
        (d.sndid, d.rcvid) = (self.rng.below(5) as u8, self.rng.below(5) as u8);
        // Often a key that may be there.
        let added: Vec<&Opt> = self.calls.iter().filter_map(|c| own_key(c, slot)).collect();
        if !added.is_empty() && self.rng.chance(75) {
            let key = added[self.rng.below(added.len())];
            if let Ok(key) = zerocopy::FromBytes::ref_from_bytes(key.memory.get(..288).unwrap_or_default()) {
                let key: &TcpAoAdd = key;
                (d.addr, d.prefix, d.sndid, d.rcvid) = (key.addr, key.prefix, key.sndid, key.rcvid);
                (d.keyflags, d.ifindex) = (key.keyflags & 1, key.ifindex);
            }
        }
        if self.rng.chance(35) {
            d.flags.set(1 + self.rng.below(7) as u32);
            (d.current_key, d.rnext) = (self.rng.below(5) as u8, self.rng.below(5) as u8);
        }
        if self.rng.chance(15) {
            match self.rng.below(7) {
                0 => d.flags.set(8),
                1 => d.reserved2.set(256),
                2 => d.keyflags = *self.rng.of(&[1, 2, 3]),
                3 => d.ifindex.set(*self.rng.of(&[1, -1])),
                4 => d.addr = d.addr.with_port(1),
                5 => d.addr.0[0] ^= 8,
                _ => d.prefix ^= 1,
            }
        }
        self.push_set(slot, TCP_AO_DEL_KEY, d.as_bytes());
    }

    fn info(&mut self, slot: usize) {
        let mut i = TcpAoInfoOpt::new_zeroed();
        i.flags.set(*self.rng.of(&[0, 1, 2, 3, 4, 8, 16, 3, 1, 2, 12, 24, 31]));
        (i.current_key, i.rnext) = (self.rng.below(5) as u8, self.rng.below(5) as u8);
        for c in [&mut i.pkt_good, &mut i.pkt_bad, &mut i.pkt_key_not_found, &mut i.pkt_ao_required] {
            c.set(*self.rng.of(&[0, 7, u64::MAX]));
        }
        i.pkt_dropped_icmp.set(3);
        if self.rng.chance(8) {
            i.flags.set(i.flags.get() | *self.rng.of(&[32, 0x8000_0000]));
        }
        if self.rng.chance(4) {
            i.reserved2.set(1);
        }
        self.push_set(slot, TCP_AO_INFO, i.as_bytes());
    }

    fn get_info(&mut self, slot: usize) {
        let mut memory = vec![0; 48];
        if self.rng.chance(15) {
            memory[self.rng.below(12)] = *self.rng.of(&[1, 16, 32, 0x80]);
        }
        let len = *self.rng.of(&[48, 48, 48, 48, 16, 1, 7, 47, 0, -1, 49, 56]);
        self.push_get(slot, TCP_AO_INFO, memory, len);
    }

    fn ao_repair(&mut self, slot: usize) {
        let mut memory = vec![0; 16];
        for word in memory.chunks_mut(4) {
            word.copy_from_slice(&self.rng.of(&[0u32, 5, 0xffff_fff0, 0x1234_5678]).to_be_bytes());
        }
        if self.rng.chance(50) {
            self.push_set(slot, TCP_AO_REPAIR, &memory);
        } else {
            let len = *self.rng.of(&[16, 16, 16, 4, 1, 15, 0, -1, 17, 100]);
            self.push_get(slot, TCP_AO_REPAIR, memory, len);
        }
        if self.rng.chance(5) {
            // Options that can only be read, or only set.
            self.push_set(slot, TCP_AO_GET_KEYS, &[0; 304]);
            self.push_get(slot, TCP_AO_ADD_KEY, vec![0; 288], 288);
        }
    }

    fn all_keys(&mut self, slot: usize) {
        let mut g = TcpAoGetsockopt::new_zeroed();
        g.flags.set(TcpAoGetsockopt::GET_ALL);
        g.nkeys.set(8);
        let mut memory = g.as_bytes().to_vec();
        memory.resize(304 * 8, 0xee);
        self.push_get_exact(slot, TCP_AO_GET_KEYS, memory, 304);
    }

    fn keys(&mut self, slot: usize) {
        let v6 = self.v6(slot);
        let mut g = TcpAoGetsockopt::new_zeroed();
        match self.rng.weighted(&[30, 20, 45, 5]) {
            0 => g.flags.set(TcpAoGetsockopt::GET_ALL),
            1 => g.flags.set(1 + self.rng.below(3) as u16),
            2 => {
                let v6 = v6 ^ self.rng.chance(20);
                let (addr, prefix) = self.peer(v6);
                (g.addr, g.prefix) = (SockaddrStorage::new(addr), prefix);
                (g.sndid, g.rcvid) = (self.rng.below(5) as u8, self.rng.below(5) as u8);
                if self.rng.chance(50) {
                    // The key ids that are used most.
                    g.rcvid = g.sndid;
                }
                if self.rng.chance(10) {
                    g.keyflags = 1;
                }
            }
            _ => {}
        }
        g.nkeys.set(*self.rng.of(&[8, 8, 8, 1, 0, 2, 9, 1000]));
        if self.rng.chance(20) {
            match self.rng.below(9) {
                0 => g.pkt_good.set(1),
                1 => g.pkt_bad.set(1 << 40),
                2 => g.keyflags = *self.rng.of(&[2, 3, 128]),
                3 => g.ifindex.set(*self.rng.of(&[1, -1])),
                4 => g.flags.set(*self.rng.of(&[5, 6, 7, 8, 12, 0x8004])),
                5 => (g.keyflags, _) = (1, g.ifindex.set(*self.rng.of(&[1, -1, 0]))),
                6 => g.addr.0[self.rng.below(24)] ^= 1,
                7 => g.prefix = *self.rng.of(&[0, 1, 32, 33, 128, 129]),
                _ => g.sndid = 9,
            }
        }
        // Output fields, which are no input.
        if self.rng.chance(20) {
            (g.maclen, g.keylen, g.key[3]) = (9, 9, 9);
        }
        let len =
            *self.rng.of(&[304, 304, 304, 304, 304, 304, 303, 279, 276, 272, 200, 129, 8, 1, 305, 312, 400, 0, -5]);
        let mut memory = g.as_bytes().to_vec();
        if len > 304 {
            memory.resize(len as usize, 0);
        }
        memory.resize(memory.len() + len.max(0) as usize * 8, 0xee);
        self.push_get_exact(slot, TCP_AO_GET_KEYS, memory, len);
    }

    fn md5(&mut self, slot: usize) {
        let v6 = self.v6(slot) ^ self.rng.chance(3);
        let (addr, prefix) = self.peer(v6);
        let mut m = TcpMd5sig::new_zeroed();
        m.tcpm_addr = SockaddrStorage::new(addr);
        m.tcpm_keylen.set(*self.rng.of(&[5, 5, 5, 80, 0, 0, 81]));
        m.tcpm_key[0] = 1;
        let ext = self.rng.chance(60);
        if ext {
            (m.tcpm_flags, m.tcpm_prefixlen) = (1, prefix);
            match self.rng.below(20) {
                0 => m.tcpm_flags = 2,
                1 => m.tcpm_flags = 3,
                2 => (m.tcpm_flags, _) = (3, m.tcpm_ifindex.set(*self.rng.of(&[1, 99]))),
                3 => m.tcpm_prefixlen = *self.rng.of(&[0, 33, 64, 129]),
                4 => m.tcpm_flags = 0x41,
                _ => {}
            }
        }
        self.push_set(slot, if ext { TCP_MD5SIG_EXT } else { TCP_MD5SIG }, m.as_bytes());
    }

    /// Returns a setsockopt with a struct, mostly of the right length.
    fn push_set(&mut self, slot: usize, name: i32, value: &[u8]) {
        let mut memory = value.to_vec();
        let full = value.len() as i32;
        let mut len = full;
        if self.rng.chance(6) {
            len = *self.rng.of(&[0, 1, 3, 4, full - 1, full + 1, full + 8, full + 64, -1, 5000, i32::MAX]);
            let tail = (len.max(full) - full).min(64) as usize;
            memory.resize(memory.len() + tail, 0);
            if tail > 0 && self.rng.chance(40) {
                let at = value.len() + self.rng.below(tail);
                memory[at] = 1;
            }
        }
        if self.rng.chance(2) {
            memory.truncate(self.rng.below(memory.len() + 1));
        }
        let as_user = self.rng.chance(4);
        self.calls.push(Call::Set(Opt { slot, name, memory, len, as_user }));
    }

    fn push_get(&mut self, slot: usize, name: i32, mut memory: Vec<u8>, len: i32) {
        if len > memory.len() as i32 {
            let tail = if self.rng.chance(30) { 1 } else { 0 };
            memory.resize(len as usize, tail);
        }
        memory.extend_from_slice(&[0xee; 8]);
        if self.rng.chance(4) {
            memory.truncate(self.rng.below(memory.len() + 1));
        }
        self.push_get_exact(slot, name, memory, len);
    }

    fn push_get_exact(&mut self, slot: usize, name: i32, mut memory: Vec<u8>, len: i32) {
        if self.rng.chance(2) {
            memory.truncate(self.rng.below(memory.len() + 1));
        }
        let as_user = self.rng.chance(4);
        self.calls.push(Call::Get(Opt { slot, name, memory, len, as_user }));
    }
}

/// Returns the struct of a key that `slot` was given.
fn own_key(call: &Call, slot: usize) -> Option<&Opt> {
    match call {
        Call::Set(o) if o.slot == slot && o.name == TCP_AO_ADD_KEY => Some(o),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_a_sequence() {
        assert_eq!(generate(1, 2, 60), generate(1, 2, 60));
        assert_ne!(generate(1, 2, 60), generate(1, 3, 60));
        let calls: Vec<Call> = (0..50).flat_map(|n| generate(7, n, 60)).collect();
        let has = |f: fn(&Call) -> bool| calls.iter().any(f);
        assert!(has(|c| matches!(c, Call::Accept { .. })));
        assert!(has(|c| matches!(c, Call::Set(o) if o.name == TCP_AO_DEL_KEY && o.len == 144)));
        // The kernel must not write past the closed page behind the memory.
        let strides = calls.iter().filter_map(|c| match c {
            Call::Get(o) if o.name == TCP_AO_GET_KEYS => Some(o.len),
            _ => None,
        });
        assert!(strides.max().is_some_and(|l| l < 4096));
    }
}
