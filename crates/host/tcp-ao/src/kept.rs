//! Sockets with keys of their programs, in memory that somebody else keeps while no daemon runs.
//!
//! There is a journal for each network namespace, with a record for each socket. It holds keys, and is never on a disk.

use sealane_engine_ao::{Change, KeptConnect, KeptSocket, Keys, Namespace};
use sealane_handover::journal::MAX_LEN;
use sealane_handover::{Journal, Keeper};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::info::Conn;
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::sne::Sne;
use sealane_sys::clock::boot_ns;
use sealane_sys::mapping::memory_file;
use sealane_sys::presence::boot;
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tracing::{error, warn};
use zeroize::Zeroizing;

/// The kind of the journal. It has a version: a record of another layout needs another one.
const KIND: &str = "tcp-ao sockets 1";

/// The place of one namespace's sockets.
#[derive(Clone)]
pub(super) struct Store {
    keeper: Arc<Keeper>,
    name: String,
}

/// The sockets that a predecessor left.
pub(super) enum Left {
    /// Nobody left anything.
    Nothing,
    /// The sockets that had keys.
    Sockets(Vec<KeptSocket>),
    /// It cannot be read. Connections of before cannot be told from those that never had keys.
    Unreadable,
}

impl Store {
    /// The place for the namespace with this cookie.
    pub(super) fn new(keeper: Arc<Keeper>, cookie: u64) -> Self {
        Store { keeper, name: format!("tcp-ao-sockets.{cookie}") }
    }

    /// Reads what a predecessor left.
    pub(super) fn read(&self, algorithms: &Algorithms) -> Left {
        let read = self.keeper.take(&self.name).and_then(|file| match file {
            Some(file) => Journal::read(&file, KIND, &boot()),
            None => Ok(None),
        });
        let records = match read {
            Ok(None) => return Left::Nothing,
            Ok(Some(read)) => read.records,
            Err(e) => {
                error!(error = %e, "TCP-AO: the keys of programs of before: {e}");
                return Left::Unreadable;
            }
        };
        let decoded: Option<Vec<_>> = records.values().map(|record| decode(record, algorithms)).collect();
        decoded.map_or_else(
            || {
                error!("TCP-AO: the keys of programs of before: a record is not one of this version");
                Left::Unreadable
            },
            |sockets| Left::Sockets(once(sockets)),
        )
    }

    /// Begins a journal with all that the engine has, in the place of the one of before.
    pub(super) fn begin(self, engine: &mut Namespace) -> KeptSockets {
        engine.note_changes();
        let mut kept = KeptSockets { store: self, journal: None, told: false };
        kept.write(engine.take_changes());
        kept
    }

    /// Wipes what is kept, because nobody needs it any more.
    pub(super) fn clear(&self) -> io::Result<()> {
        if let Some(file) = self.keeper.take(&self.name)? {
            Journal::wipe(&file)?;
        }
        self.keeper.remove(&self.name)
    }
}

/// The journal of a namespace that is served.
pub(super) struct KeptSockets {
    store: Store,
    /// `None` if it could not be made, or a change is missing in it.
    journal: Option<Journal>,
    /// Whether a failure has been told.
    told: bool,
}

impl KeptSockets {
    /// Whether the journal has all changes so far. Otherwise the next write has to be of all sockets.
    pub(super) fn is_whole(&self) -> bool {
        self.journal.is_some()
    }

    /// Writes changes; they have to be all sockets if the journal is not whole.
    pub(super) fn write(&mut self, changes: Vec<Change>) {
        if changes.is_empty() && self.is_whole() {
            return;
        }
        let done = match &mut self.journal {
            Some(journal) => put(journal, changes),
            None => self.replace(changes),
        };
        match done {
            Ok(()) => self.told = false,
            Err(e) => {
                self.journal = None;
                // The next daemon would take sockets for unprotected that are not in it. A damaged one makes it cut them off.
                let kept = self.store.keeper.take(&self.store.name);
                let wiped = kept.and_then(|file| file.map_or(Ok(()), |file| Journal::wipe(&file)));
                if !core::mem::replace(&mut self.told, true) {
                    if let Err(e) = wiped {
                        error!(error = %e, "TCP-AO: the keys of programs that are kept are not those of now: {e}");
                    }
                    warn!(error = %e, "TCP-AO: nobody keeps the keys of programs for the next daemon yet: {e}");
                }
            }
        }
    }

    /// Puts a new journal into the place of the one of before.
    fn replace(&mut self, all: Vec<Change>) -> io::Result<()> {
        let mut journal = Journal::create(memory_file("sealane-ao-keys")?, KIND, &boot(), boot_ns())?;
        put(&mut journal, all)?;
        let before = self.store.keeper.take(&self.store.name)?;
        self.store.keeper.put(&self.store.name, journal.file())?;
        if let Some(before) = before {
            Journal::wipe(&before)?;
        }
        self.journal = Some(journal);
        Ok(())
    }
}

/// Writes changes, one after another: we may be killed in between. A connection whose program is seen for the first time gets
/// another number, and is never missing under both.
fn put(journal: &mut Journal, mut changes: Vec<Change>) -> io::Result<()> {
    changes.sort_by_key(|change| change.socket.is_none());
    changes.into_iter().try_for_each(|Change { number, socket }| {
        let Some(socket) = socket else { return journal.remove(number) };
        let record = encode(&socket);
        if record.len() <= MAX_LEN {
            return journal.put(number, &record);
        }
        let keys = socket.keys.len();
        warn!(keys, "TCP-AO: a socket with {keys} keys is too large to be kept: a restart of the daemon cuts it off");
        // Nothing passes without keys where they are required.
        let cut_off = KeptSocket { keys: Vec::new(), current: None, rnext: None, ao_required: true, ..socket };
        journal.put(number, &encode(&cut_off))
    })
}

/// Takes connections out that are there twice: once with the cookie of their socket, and under the number of before.
fn once(sockets: Vec<KeptSocket>) -> Vec<KeptSocket> {
    let ends = |socket: &KeptSocket| socket.conn.map(|conn| (conn.local, conn.remote));
    let known: HashSet<_> = sockets.iter().filter(|socket| socket.cookie != 0).filter_map(ends).collect();
    let is_left = |socket: &KeptSocket| socket.cookie == 0 && ends(socket).is_some_and(|ends| known.contains(&ends));
    sockets.into_iter().filter(|socket| !is_left(socket)).collect()
}

/// Bit flags of a record, and of a key.
const AO_REQUIRED: u8 = 1;
const ACCEPT_ICMPS: u8 = 2;
const LISTENING: u8 = 4;
/// The connection is in a VRF.
const VRF: u8 = 16;
const CONNECTED: u8 = 32;
const CONNECTING: u8 = 64;
const KEYED: u8 = 128;
const EXCLUDE_OPTIONS: u8 = 1;
const IN_VRF: u8 = 2;

/// A port that is none.
const NO_PORT: u32 = u32::MAX;
/// A place among the keys that is none.
const NO_KEY: u32 = u32::MAX;

/// Writes a record: numbers are little-endian, and addresses are IPv6, v4-mapped where they are IPv4.
struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        // A vector that grows leaves copies of secrets behind.
        debug_assert!(self.0.len() + bytes.len() <= self.0.capacity());
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, bytes: &[u8]) {
        self.bytes(&[bytes.len() as u8]);
        self.bytes(bytes);
    }

    fn ip(&mut self, addr: IpAddr) {
        let addr = match addr {
            IpAddr::V4(addr) => addr.to_ipv6_mapped(),
            IpAddr::V6(addr) => addr,
        };
        self.bytes(&addr.octets());
    }

    /// An address with a port that may not be known.
    fn remembered(&mut self, remembered: Option<(IpAddr, Option<u16>)>) {
        let Some((addr, port)) = remembered else { return self.bytes(&[0]) };
        self.bytes(&[if addr.is_ipv4() { 4 } else { 6 }]);
        self.ip(addr);
        self.bytes(&port.map_or(NO_PORT, u32::from).to_le_bytes());
    }

    fn addr(&mut self, addr: SocketAddr) {
        self.ip(addr.ip());
        self.bytes(&addr.port().to_le_bytes());
    }
}

/// The keys of a connect(), by their numbers in a record.
const CONNECT_KEYS: [Keys; 4] = [Keys::None, Keys::Ao, Keys::Md5, Keys::Rejected];

/// The lengths of a record's parts at most, in bytes.
const FRONT_LEN: usize = 192;
const KEY_LEN: usize = 320;

/// The record of a socket.
#[must_use]
pub fn encode(socket: &KeptSocket) -> Zeroizing<Vec<u8>> {
    let mut to = Writer(Zeroizing::new(Vec::with_capacity(FRONT_LEN + KEY_LEN * socket.keys.len())));
    let flag = |on: bool, flag: u8| if on { flag } else { 0 };
    to.bytes(&[flag(socket.ao_required, AO_REQUIRED)
        | flag(socket.accept_icmps, ACCEPT_ICMPS)
        | flag(socket.listening, LISTENING)
        | flag(socket.connecting.is_some(), CONNECTING)
        | flag(socket.conn.is_some(), CONNECTED)
        | flag(socket.vrf != 0, VRF)
        | flag(socket.keyed, KEYED)]);
    to.bytes(&socket.cookie.to_le_bytes());
    to.bytes(&socket.peer_mss.to_le_bytes());
    for place in [socket.current, socket.rnext] {
        to.bytes(&place.map_or(NO_KEY, |place| place as u32).to_le_bytes());
    }
    to.remembered(socket.remembered);
    if let Some(connect) = &socket.connecting {
        let keys = CONNECT_KEYS.iter().position(|keys| *keys == connect.keys).unwrap_or(0);
        to.bytes(&[keys as u8, u8::from(connect.sent)]);
        to.bytes(&connect.vrf.to_le_bytes());
        to.remembered(Some((connect.peer, None)));
        to.remembered(connect.before);
    }
    if let Some(conn) = &socket.conn {
        to.addr(conn.local);
        to.addr(conn.remote);
        for word in [conn.lisn, conn.risn, conn.snd.ext, conn.snd.base, conn.rcv.ext, conn.rcv.base] {
            to.bytes(&word.to_le_bytes());
        }
        to.bytes(&conn.snd_nxt.to_le_bytes());
    }
    if socket.vrf != 0 {
        to.bytes(&socket.vrf.to_le_bytes());
    }
    to.bytes(&(socket.keys.len() as u32).to_le_bytes());
    for mkt in &socket.keys {
        let flags = flag(mkt.exclude_options, EXCLUDE_OPTIONS) | flag(mkt.ifindex.is_some(), IN_VRF);
        to.bytes(&[
            flags,
            mkt.send_id,
            mkt.recv_id,
            mkt.mac_len as u8,
            mkt.peer.len,
            u8::from(mkt.peer.addr.is_ipv4()),
        ]);
        to.ip(mkt.peer.addr);
        to.bytes(&mkt.ifindex.unwrap_or(0).to_le_bytes());
        to.text(mkt.algorithm.name.as_bytes());
        to.text(mkt.key());
    }
    to.0
}

/// Reads a record.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.byte()?;
        self.bytes(usize::from(len))
    }

    fn ip(&mut self) -> Option<Ipv6Addr> {
        self.array::<16>().map(Ipv6Addr::from)
    }

    /// An address with a port that may not be known.
    fn remembered(&mut self) -> Option<Option<(IpAddr, Option<u16>)>> {
        let is_v4 = match self.byte()? {
            0 => return Some(None),
            4 => true,
            6 => false,
            _ => return None,
        };
        let addr = written(self.ip()?, is_v4)?;
        let port = match self.word()? {
            NO_PORT => None,
            port => Some(u16::try_from(port).ok()?),
        };
        Some(Some((addr, port)))
    }

    fn addr(&mut self) -> Option<SocketAddr> {
        let ip = self.ip()?;
        Some(SocketAddr::new(ip.to_canonical(), self.array().map(u16::from_le_bytes)?))
    }
}

/// The address as it was written: a v4-mapped one may be an IPv6 prefix.
fn written(addr: Ipv6Addr, is_v4: bool) -> Option<IpAddr> {
    if is_v4 { addr.to_ipv4_mapped().map(IpAddr::V4) } else { Some(IpAddr::V6(addr)) }
}

/// A socket from its record; `None` if it is not one of this version, or has an algorithm that this build does not have.
#[must_use]
pub fn decode(record: &[u8], algorithms: &Algorithms) -> Option<KeptSocket> {
    let mut from = Reader(record);
    let flags = from.byte()?;
    let cookie = from.array().map(u64::from_le_bytes)?;
    let peer_mss = from.array().map(u16::from_le_bytes)?;
    let places = [from.word()?, from.word()?];
    let remembered = from.remembered()?;
    let connecting = match flags & CONNECTING {
        0 => None,
        _ => {
            let [keys, sent] = from.array()?;
            let keys = *CONNECT_KEYS.get(usize::from(keys))?;
            let vrf = from.array().map(i32::from_le_bytes)?;
            let (peer, before) = (from.remembered()??.0, from.remembered()?);
            Some(KeptConnect { peer, vrf, keys, before, sent: sent != 0 })
        }
    };
    let conn = match flags & CONNECTED {
        0 => None,
        _ => {
            let (local, remote) = (from.addr()?, from.addr()?);
            let conn = Conn::new(local, remote, from.word()?, from.word()?);
            let snd = Sne { ext: from.word()?, base: from.word()? };
            let rcv = Sne { ext: from.word()?, base: from.word()? };
            Some(Conn { snd, rcv, snd_nxt: from.array().map(u64::from_le_bytes)?, ..conn })
        }
    };
    let vrf = if flags & VRF == 0 { 0 } else { from.array().map(i32::from_le_bytes)? };
    let count = from.word()?;
    let mut keys = Vec::new();
    for _ in 0..count {
        let [flags, send_id, recv_id, mac_len, len, is_v4] = from.array()?;
        let addr = written(from.ip()?, is_v4 != 0).filter(|addr| len <= if addr.is_ipv4() { 32 } else { 128 })?;
        let ifindex = from.array().map(i32::from_le_bytes)?;
        let algorithm = algorithms.get(core::str::from_utf8(from.text()?).ok()?)?;
        let spec = MktSpec {
            algorithm,
            key: from.text()?,
            send_id,
            recv_id,
            mac_len: usize::from(mac_len),
            exclude_options: flags & EXCLUDE_OPTIONS != 0,
            peer: Prefix { addr, len },
            ifindex: (flags & IN_VRF != 0).then_some(ifindex),
        };
        keys.push(Arc::new(Mkt::new(&spec).ok()?));
    }
    let place = |place: u32| match place {
        NO_KEY => Some(None),
        place => Some(Some(place as usize)).filter(|_| place < count),
    };
    from.0.is_empty().then_some(())?;
    Some(KeptSocket {
        cookie,
        keys,
        current: place(places[0])?,
        rnext: place(places[1])?,
        ao_required: flags & AO_REQUIRED != 0,
        accept_icmps: flags & ACCEPT_ICMPS != 0,
        listening: flags & LISTENING != 0,
        remembered,
        connecting,
        conn,
        keyed: flags & KEYED != 0 && conn.is_some(),
        peer_mss,
        vrf,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn algorithms() -> Algorithms {
        Algorithms::new(&sealane_drivers::system_registry().0)
    }

    fn key(algorithms: &Algorithms, name: &str, peer: &str, len: u8, key: &[u8]) -> Arc<Mkt> {
        let spec = MktSpec {
            algorithm: algorithms.get(name).expect("in every build"),
            key,
            send_id: 3,
            recv_id: 255,
            mac_len: 12,
            exclude_options: len == 64,
            peer: Prefix { addr: peer.parse().expect("an address"), len },
            ifindex: (len == 64).then_some(7),
        };
        Arc::new(Mkt::new(&spec).expect("a key"))
    }

    fn example(algorithms: &Algorithms) -> KeptSocket {
        let conn = Conn::new("[2001:db8::1]:179".parse().unwrap(), "192.0.2.7:4000".parse().unwrap(), 5, 6);
        KeptSocket {
            cookie: 0x1122_3344_5566,
            keys: vec![
                key(algorithms, "hmac(sha1)", "192.0.2.0", 24, b"secret"),
                key(algorithms, "cmac(aes128)", "2001:db8::", 64, &[9; 80]),
                key(algorithms, "hmac(sha256)", "::", 0, b""),
            ],
            current: Some(2),
            rnext: None,
            ao_required: true,
            accept_icmps: false,
            listening: true,
            remembered: Some(("::ffff:192.0.2.7".parse().unwrap(), Some(9))),
            connecting: Some(KeptConnect {
                peer: "2001:db8::7".parse().unwrap(),
                vrf: 3,
                keys: Keys::Md5,
                before: Some(("192.0.2.8".parse().unwrap(), None)),
                sent: true,
            }),
            conn: Some(Conn { snd: Sne { ext: 1, base: 2 }, rcv: Sne { ext: 3, base: 4 }, snd_nxt: 1 << 40, ..conn }),
            keyed: true,
            peer_mss: 1460,
            vrf: 11,
        }
    }

    #[test]
    fn a_connection_under_two_numbers_is_one() {
        let algorithms = algorithms();
        let known = example(&algorithms);
        let twin = KeptSocket { cookie: 0, ..known.clone() };
        let ends = |port: u16| Conn::new(known.conn.unwrap().local, ([192, 0, 2, 7], port).into(), 5, 6);
        let other = KeptSocket { conn: Some(ends(4001)), ..twin.clone() };
        let neither = KeptSocket { conn: None, ..twin.clone() };
        let left = once(vec![twin.clone(), other.clone(), known.clone(), neither.clone(), twin]);
        let whole = |socket: &KeptSocket| (socket.cookie, socket.conn);
        assert_eq!(left.iter().map(whole).collect::<Vec<_>>(), [&other, &known, &neither].map(whole));
    }

    fn same(a: &KeptSocket, b: &KeptSocket) {
        let mkt = |k: &Arc<Mkt>| {
            (k.algorithm.name, k.key().to_vec(), k.send_id, k.recv_id, k.mac_len, k.exclude_options, k.peer, k.ifindex)
        };
        let keys = |k: &KeptSocket| k.keys.iter().map(mkt).collect::<Vec<_>>();
        assert_eq!(keys(a), keys(b));
        let rest = |k: &KeptSocket| {
            let flags = (k.ao_required, k.accept_icmps, k.listening);
            (k.cookie, k.current, k.rnext, flags, k.remembered, k.connecting, k.conn, k.keyed, k.peer_mss, k.vrf)
        };
        assert_eq!(rest(a), rest(b));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let algorithms = algorithms();
        let whole = example(&algorithms);
        same(&decode(&encode(&whole), &algorithms).expect("a record"), &whole);
        let bare = KeptSocket {
            keys: Vec::new(),
            current: None,
            remembered: Some(("192.0.2.7".parse().unwrap(), None)),
            connecting: None,
            conn: None,
            keyed: false,
            vrf: 0,
            ..whole
        };
        same(&decode(&encode(&bare), &algorithms).expect("a record"), &bare);
    }

    #[test]
    fn damaged_records_are_refused() {
        let algorithms = algorithms();
        let record = encode(&example(&algorithms));
        for len in 0..record.len() {
            assert!(decode(&record[..len], &algorithms).is_none(), "cut at {len}");
        }
        let mut longer = record.to_vec();
        longer.push(0);
        assert!(decode(&longer, &algorithms).is_none());
        for at in 0..record.len() {
            let mut other = record.to_vec();
            other[at] ^= 0x81;
            // Whatever it says, it is judged without a panic.
            let _ = decode(&other, &algorithms);
        }
    }
}
