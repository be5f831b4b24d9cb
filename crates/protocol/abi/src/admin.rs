//! What no kernel interface can say: the state of a running Sealane, asked for over a Unix socket.
//!
//! The client sends one [`Request`] as a line of JSON; the answer, a [`Snapshot`] as JSON or text for Prometheus, ends
//! with the connection. Nothing here ever holds a key. Fields may be added within a version; readers skip those that they
//! do not know.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The version of [`Snapshot`]: another one means that fields have changed their meaning.
pub const VERSION: u32 = 1;

/// What a client may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// A [`Snapshot`].
    Snapshot,
    /// The same in Prometheus' text format.
    Metrics,
}

/// What hosts the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A launcher, `sealane run`.
    Run,
    /// `sealane daemon`.
    Daemon,
}

/// One running Sealane at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// Sealane's own version.
    pub release: String,
    /// What it is.
    pub role: Role,
    /// Its process id.
    pub pid: u32,
    /// The name of the program that it runs, without arguments; empty for a daemon.
    #[serde(default)]
    pub program: String,
    /// When it was started: seconds since 1970.
    pub started_s: i64,
    /// When this was written: seconds since 1970.
    pub taken_s: i64,
    /// The network namespaces in which a key was ever added.
    pub namespaces: Vec<Namespace>,
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Namespace {
    /// Its inode number, as `readlink /proc/PID/ns/net` shows it.
    pub inode: u64,
    /// Its name in /run/netns, where it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// Its counters in /proc/net/netstat (TCPAOGood, TCPAOBad, TCPAOKeyNotFound, TCPAORequired, TCPAODroppedIcmps).
    pub counters: Counters,
    /// Segments dropped, by reason.
    #[serde(default)]
    pub drops: Vec<DropCount>,
    /// The segment that was dropped last of those that belong to no socket with keys.
    #[serde(default)]
    pub last_drop: Option<Drop>,
    /// How its segments get from the kernel to us and back.
    #[serde(default)]
    pub path: Option<Path>,
    /// Sockets that have keys.
    pub sockets: Vec<Socket>,
}

/// Which way segments may take between the kernel and us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataPath {
    /// Connections that are worth it go past the kernel's queues, where the kernel and the device can do that.
    #[default]
    Auto,
    /// All segments go by the kernel's queues.
    Queue,
}

impl DataPath {
    /// All of them, and how they are written.
    pub const ALL: [(DataPath, &'static str); 2] = [(DataPath::Auto, "auto"), (DataPath::Queue, "queue")];

    /// The one that is written like this.
    #[must_use]
    pub fn named(name: &str) -> Option<DataPath> {
        DataPath::ALL.into_iter().find(|(_, n)| *n == name).map(|(path, _)| path)
    }
}

/// The way of a namespace's segments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Path {
    /// What it may be.
    pub wanted: DataPath,
    /// Connections that take the fast path now.
    pub connections: u64,
    /// Segments that came in by the fast path; the others came by the queue.
    pub fast_in: u64,
    /// Segments that left by the fast path; the others left by the queue or a raw socket.
    pub fast_out: u64,
    /// Segments that the kernel did not take from us: no route, no room.
    pub refused: u64,
    /// Segments that did not fit into a device's ring.
    pub ring_drops: u64,
    /// Packets that did not fit into a queue.
    pub queue_drops: u64,
    /// Devices that cannot have the fast path.
    #[serde(default)]
    pub not_fast: Vec<NotFast>,
}

/// A device whose segments go by the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotFast {
    /// Its name.
    pub device: String,
    /// Why.
    pub why: String,
}

/// The counters of TCP-AO, in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Verified.
    pub good: u64,
    /// Did not verify.
    pub bad: u64,
    /// No key has the KeyID.
    pub key_not_found: u64,
    /// Unsigned, although a signature is required.
    pub required: u64,
    /// ICMP errors that were ignored.
    pub dropped_icmps: u64,
}

/// How often one reason has made us drop a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    /// The reason, one word.
    pub reason: String,
    /// Segments.
    pub count: u64,
}

/// The state of a socket, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketState {
    /// Not connected and not listening.
    Closed,
    /// Listening.
    Listen,
    /// In the middle of the handshake.
    Handshake,
    /// Connected, or on the way to be closed.
    Established,
    /// Closed, waiting for what may still arrive.
    TimeWait,
}

impl SocketState {
    /// All of them.
    pub const ALL: [SocketState; 5] = [
        SocketState::Closed,
        SocketState::Listen,
        SocketState::Handshake,
        SocketState::Established,
        SocketState::TimeWait,
    ];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SocketState::Closed => "closed",
            SocketState::Listen => "listen",
            SocketState::Handshake => "handshake",
            SocketState::Established => "established",
            SocketState::TimeWait => "time-wait",
        }
    }
}

/// A socket with keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// The kernel's cookie of it (SO_COOKIE).
    pub cookie: u64,
    /// Its state.
    pub state: SocketState,
    /// Its inode, which /proc/PID/fd names; none when no program has it any more, or never had.
    #[serde(default)]
    pub inode: Option<u64>,
    /// A process that has it open. Who asks fills it in: an instance in a sandbox could not.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The name of that process.
    #[serde(default)]
    pub program: Option<String>,
    /// Our end.
    #[serde(default)]
    pub local: Option<SocketAddr>,
    /// The peer's end.
    #[serde(default)]
    pub remote: Option<SocketAddr>,
    /// The peer in the configuration whose keys it has; none when the program set them itself.
    #[serde(default)]
    pub configured: Option<String>,
    /// Whether unsigned segments are dropped whatever the keys are (`ao_required`).
    pub ao_required: bool,
    /// Whether ICMP errors are heeded.
    pub accept_icmps: bool,
    /// Its counters.
    pub counters: Counters,
    /// SendID of the key that it sends with.
    #[serde(default)]
    pub current: Option<u8>,
    /// RecvID of the key that it asks the peer to send with.
    #[serde(default)]
    pub rnext: Option<u8>,
    /// Its keys, newest first.
    pub keys: Vec<Key>,
    /// The segment that was dropped last.
    #[serde(default)]
    pub last_drop: Option<Drop>,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The peers that it is for, as prefix.
    pub peer: String,
    /// The VRF that it is bound to: index of its device, 0 for none.
    #[serde(default)]
    pub ifindex: Option<i32>,
    /// KeyID of what we send with it.
    pub send_id: u8,
    /// KeyID of what the peer sends with it.
    pub recv_id: u8,
    /// Its algorithm, by the kernel's name.
    pub algorithm: String,
    /// Length of the MAC in bytes.
    pub mac_len: u8,
    /// Whether TCP options other than TCP-AO are left out of the MAC.
    pub exclude_options: bool,
    /// Whether it signs what we send.
    pub current: bool,
    /// Whether we ask the peer to send with it.
    pub rnext: bool,
    /// Segments that verified with it.
    pub good: u64,
    /// Segments that did not.
    pub bad: u64,
}

/// A segment that was dropped, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drop {
    /// When: milliseconds since 1970.
    pub at_ms: i64,
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// Its KeyID, if it was signed.
    #[serde(default)]
    pub key_id: Option<u8>,
    /// The reason, one word.
    pub reason: String,
    /// What the reason means.
    pub help: String,
    /// What was found out by looking closer.
    #[serde(default)]
    pub hint: Option<String>,
}
