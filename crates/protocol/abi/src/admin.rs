//! The status of a running Sealane, which is queried over a Unix socket. No kernel interface provides it.
//!
//! The client sends one [`Query`] as a line of JSON. The answer, a [`Snapshot`] as JSON or a text for Prometheus,
//! ends with the connection. No type here ever holds a key. Fields may be added within a version; readers skip unknown
//! ones.

mod drop_count;
pub mod ipsec;

pub use drop_count::DropCount;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The version of [`Snapshot`]. It changes when fields change their meaning.
pub const VERSION: u32 = 1;

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Query {
    /// Asks for a [`Snapshot`].
    Snapshot,
    /// Asks for the same in Prometheus' text format.
    Metrics,
}

/// The kind of a running instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A launcher, `sealane run`.
    Run,
    /// `sealane daemon`.
    Daemon,
}

/// The status of one running instance at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of this structure, [`VERSION`].
    pub version: u32,
    /// The version of Sealane.
    pub release: String,
    /// The kind of the instance.
    pub role: Role,
    /// Its process id.
    pub pid: u32,
    /// The name of the program that it runs, without arguments. Empty for a daemon.
    #[serde(default)]
    pub program: String,
    /// The time at which it was started, in seconds since 1970.
    pub started_s: i64,
    /// The time of the snapshot, in seconds since 1970.
    pub taken_s: i64,
    /// Failures that the instance has recovered from.
    #[serde(default)]
    pub health: Health,
    /// TCP-AO in the network namespaces in which a key was ever added.
    pub namespaces: Vec<AoNamespace>,
    /// IPsec in the network namespaces of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipsec: Vec<ipsec::IpsecNamespace>,
}

/// Failures that an instance has recovered from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Health {
    /// The times that everything was started again since the boot, by reason: a thread panicked, ended with an error, or
    /// hung. Empty for a launcher.
    pub failures: Vec<Tally>,
    /// Errors of the kernel that pass by themselves, by their name in errno(3), since the process began.
    pub transient_errors: Vec<Tally>,
}

/// The number of events of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The kind.
    pub name: String,
    /// The number.
    pub count: u64,
}

/// TCP-AO in one network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AoNamespace {
    /// The inode number of the namespace, as shown by `readlink /proc/PID/ns/net`.
    pub inode: u64,
    /// The name of the namespace in /run/netns, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// The counters in /proc/net/netstat: TCPAOGood, TCPAOBad, TCPAOKeyNotFound, TCPAORequired, TCPAODroppedIcmps.
    pub counters: Counters,
    /// The number of dropped segments by reason.
    #[serde(default)]
    pub drops: Vec<DropCount>,
    /// The last dropped segment among those that belong to no socket with keys.
    #[serde(default)]
    pub last_drop: Option<Drop>,
    /// The path of segments between the kernel and Sealane.
    #[serde(default)]
    pub path: Option<Path>,
    /// The sockets that have keys.
    pub sockets: Vec<Socket>,
    /// The keys of the configuration that a keeper has, and by which no connection begins at present.
    #[serde(default)]
    pub missing_keys: Vec<MissingKey>,
}

/// A key of the configuration that a keeper has and that cannot be used at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingKey {
    /// The name of the peer.
    pub peer: String,
    /// The SendID.
    pub send_id: u8,
    /// The RecvID.
    pub recv_id: u8,
    /// The name of the key in the keeper.
    pub key: String,
    /// The reason.
    pub why: String,
}

/// The configured path of segments between the kernel and Sealane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataPath {
    /// Busy connections bypass the kernel's packet queues where the kernel and the device support it.
    #[default]
    Auto,
    /// All segments pass through the kernel's packet queues.
    Queue,
}

impl DataPath {
    /// All values with their names.
    pub const ALL: [(DataPath, &'static str); 2] = [(DataPath::Auto, "auto"), (DataPath::Queue, "queue")];

    /// The value of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<DataPath> {
        DataPath::ALL.into_iter().find(|(_, n)| *n == name).map(|(path, _)| path)
    }
}

/// The path of a namespace's segments, and its counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Path {
    /// The configured path.
    pub wanted: DataPath,
    /// The number of connections that use the fast path at present.
    pub connections: u64,
    /// Segments received by the fast path. All others are received by a queue.
    pub fast_in: u64,
    /// Segments sent by the fast path. All others are sent by a queue or a raw socket.
    pub fast_out: u64,
    /// Segments that the kernel did not accept, for want of a route or of buffer space.
    pub refused: u64,
    /// Segments lost because the ring of a device was full.
    pub ring_drops: u64,
    /// Packets lost because a queue was full: that of outbound segments, or that of known connections.
    pub queue_drops: u64,
    /// Packets lost because the queue for other segments from peers' addresses was full: of new connections, or forged.
    #[serde(default)]
    pub newcomer_drops: u64,
    /// The number of times that a worker took the place of one that had failed.
    #[serde(default)]
    pub restarts: u64,
    /// The devices that do not support the fast path.
    #[serde(default)]
    pub not_fast: Vec<NotFast>,
}

/// A device without the fast path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotFast {
    /// The name of the device.
    pub device: String,
    /// The reason.
    pub why: String,
}

/// The counters of received segments by the result of the TCP-AO check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// The MAC is correct.
    pub good: u64,
    /// The MAC is wrong.
    pub bad: u64,
    /// There is no key with the KeyID of the segment.
    pub key_not_found: u64,
    /// The segment has no TCP-AO option, although one is required.
    pub required: u64,
    /// ICMP errors for protected connections, which were ignored.
    pub dropped_icmps: u64,
}

/// The state of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketState {
    /// Not connected and not listening.
    Closed,
    /// Listening.
    Listen,
    /// The handshake is not complete.
    Handshake,
    /// Connected, or about to be closed.
    Established,
    /// Closed, in the state TIME-WAIT.
    TimeWait,
}

impl SocketState {
    /// All states.
    pub const ALL: [SocketState; 5] = [
        SocketState::Closed,
        SocketState::Listen,
        SocketState::Handshake,
        SocketState::Established,
        SocketState::TimeWait,
    ];

    /// The name of the state.
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
    /// The kernel's cookie of the socket (SO_COOKIE).
    pub cookie: u64,
    /// The state of the socket.
    pub state: SocketState,
    /// The inode of the socket, as in /proc/PID/fd. `None` if no program has the socket open.
    #[serde(default)]
    pub inode: Option<u64>,
    /// A process that has the socket open. The client fills this in, because an instance in a sandbox could not.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The name of that process.
    #[serde(default)]
    pub program: Option<String>,
    /// The local address.
    #[serde(default)]
    pub local: Option<SocketAddr>,
    /// The peer's address.
    #[serde(default)]
    pub remote: Option<SocketAddr>,
    /// The index of the VRF in which these addresses are meant. `None` without one.
    #[serde(default)]
    pub vrf: Option<i32>,
    /// The name of that VRF.
    #[serde(default)]
    pub vrf_name: Option<String>,
    /// The peer of the configuration whose keys it has. `None` if the program sets the keys itself.
    #[serde(default)]
    pub configured: Option<String>,
    /// Whether segments without a TCP-AO option are dropped regardless of the keys (`ao_required`).
    pub ao_required: bool,
    /// Whether ICMP errors are accepted.
    pub accept_icmps: bool,
    /// The counters of the socket.
    pub counters: Counters,
    /// The SendID of the key that signs sent segments.
    #[serde(default)]
    pub current: Option<u8>,
    /// The RecvID of the key that the peer is asked to use.
    #[serde(default)]
    pub rnext: Option<u8>,
    /// The keys, newest first.
    pub keys: Vec<KeyStatus>,
    /// The last dropped segment.
    #[serde(default)]
    pub last_drop: Option<Drop>,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStatus {
    /// The prefix of the peers that it applies to.
    pub peer: String,
    /// The interface index of the VRF that it is bound to, 0 for none.
    #[serde(default)]
    pub ifindex: Option<i32>,
    /// The KeyID of segments sent with it.
    pub send_id: u8,
    /// The KeyID of segments that the peer sends with it.
    pub recv_id: u8,
    /// The kernel's name of the algorithm.
    pub algorithm: String,
    /// The length of the MAC in bytes.
    pub mac_len: u8,
    /// Whether the MAC excludes TCP options other than TCP-AO.
    pub exclude_options: bool,
    /// Whether it signs sent segments.
    pub current: bool,
    /// Whether the peer is asked to use it.
    pub rnext: bool,
    /// Received segments with a correct MAC of this key.
    pub good: u64,
    /// Received segments with a wrong MAC.
    pub bad: u64,
}

/// A dropped segment, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drop {
    /// The time of the drop, in milliseconds since 1970.
    pub at_ms: i64,
    /// The source of the segment.
    pub source: SocketAddr,
    /// The destination of the segment.
    pub destination: SocketAddr,
    /// The KeyID, if the segment had a TCP-AO option.
    #[serde(default)]
    pub key_id: Option<u8>,
    /// The reason in one word.
    pub reason: String,
    /// The meaning of the reason.
    pub help: String,
    /// The probable cause, if one was found.
    #[serde(default)]
    pub hint: Option<String>,
}
