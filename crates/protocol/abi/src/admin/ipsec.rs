//! The status of IPsec. It is a part of [`Snapshot`](super::Snapshot), and the answer to a question on the netlink port
//! of the daemon, as JSON in both cases.

use super::drop_count::DropCount;
use serde::{Deserialize, Serialize};

/// A structure of counters, which are also available as rows.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            /// All counters with their names.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

/// IPsec in one network namespace, as a snapshot names it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IpsecNamespace {
    /// The inode number of the namespace, as shown by `readlink /proc/PID/ns/net`.
    pub inode: u64,
    /// The name of the namespace in /run/netns, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// The status of the namespace.
    pub status: Status,
}

/// The status of IPsec in one network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The number of states (SAs).
    pub states: u64,
    /// The number of policies.
    pub policies: Policies,
    /// Packets and bytes protected by the states.
    pub traffic: Traffic,
    /// The counters in /proc/net/xfrm_stat, in the kernel's order.
    pub counters: Vec<Counter>,
    /// The number of dropped packets by reason.
    pub drops: Vec<DropCount>,
    /// Packets between the daemon and the kernel.
    pub path: Path,
    /// The threads that serve the TUN device of the namespace.
    pub workers: Vec<Worker>,
    /// The offload devices.
    pub devices: Vec<Device>,
    /// The xfrm interfaces.
    pub interfaces: Vec<Interface>,
    /// The gateway.
    pub gateway: Option<Gateway>,
    /// The rates of IP-TFS that follow congestion, at most 256 of them.
    pub rates: Vec<ControlledRate>,
    /// The tables `[[ipsec.iptfs]]` of the configuration that decide about no state now, at most 256 of them.
    pub unused_rates: Vec<RateTable>,
}

counters! {
    /// The number of policies by direction.
    Policies {
        /// Inbound policies.
        input,
        /// Outbound policies.
        output,
        /// Policies of forwarded packets.
        forward,
    }
}

counters! {
    /// The traffic of all states, including those of packet offload cores. A packet that passes two states counts
    /// twice.
    Traffic {
        /// Packets sealed: encrypted, authenticated, or both.
        sealed_packets,
        /// Bytes of payload in them.
        sealed_bytes,
        /// Packets opened: authentic and inside the replay window.
        opened_packets,
        /// Bytes of payload in them.
        opened_bytes,
    }
}

/// A counter of /proc/net/xfrm_stat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The kernel's name, which begins with `Xfrm`.
    pub name: String,
    /// The number of packets.
    pub packets: u64,
    /// The meaning of the counter in one sentence.
    pub help: String,
}

counters! {
    /// The counters of packets between the daemon and the kernel.
    Path {
        /// Packets that the kernel accepted for the wire.
        sent,
        /// Those of `sent` that bypassed the stack.
        sent_past_stack,
        /// Packets that the kernel did not accept for the wire.
        not_sent,
        /// Authentic packets that were received past the stack.
        received_past_stack,
        /// Packets lost because a receive ring was full.
        ring_full,
        /// Opened packets or superframes that the stack did not accept.
        not_given_to_stack,
        /// Packets sent unencrypted because a policy allows it.
        clear,
        /// Packets dropped by the rules of an earlier daemon, because no policy has been set since.
        held,
        /// Frames of the stack that are not IP packets.
        malformed,
        /// The number of times that a worker had to wait for the lock of the tables.
        tables_waited_for,
        /// The number of times that IKE came to the daemon's socket of a port, and was steered to the key manager's again.
        port_swaps,
    }
}

counters! {
    /// The counters of a worker, a thread that serves a queue of the TUN device.
    Worker {
        /// Frames read from its queue.
        read,
        /// Those of `read` that were handed over to the worker of their state.
        handed_over,
        /// Frames handed over to it by other workers.
        taken_over,
        /// The number of times that it had to wait because the ring of another worker was full.
        full,
    }
}

/// An offload device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The name of its interface.
    pub name: String,
    /// Whether the interface is up.
    pub up: bool,
    /// The kind of the device, with its counters.
    pub kind: DeviceKind,
}

/// The kinds of offload devices, with the counters of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// The stack's thread does the work.
    Inline,
    /// A crypto offload core.
    Crypto(CryptoOffload),
    /// A packet offload core.
    Packet(PacketOffload),
    /// The kernel's own IPsec on an interface.
    Kernel(KernelOffload),
}

impl DeviceKind {
    /// The name of the kind, as in the configuration.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            DeviceKind::Inline => "inline",
            DeviceKind::Crypto(_) => "crypto",
            DeviceKind::Packet(_) => "packet",
            DeviceKind::Kernel(_) => "kernel",
        }
    }

    /// All counters with their names.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        match self {
            DeviceKind::Inline => Vec::new(),
            DeviceKind::Crypto(counters) => counters.rows().collect(),
            DeviceKind::Packet(counters) => counters.rows().collect(),
            DeviceKind::Kernel(counters) => counters.rows().collect(),
        }
    }
}

counters! {
    /// The counters of a crypto offload core.
    CryptoOffload {
        /// Bursts processed.
        bursts,
        /// Packets processed.
        packets,
        /// Bytes processed.
        bytes,
        /// Nanoseconds that its thread has worked.
        busy_ns,
        /// Packets of states that had been deleted.
        no_key,
        /// Bursts that had to wait because its ring was full.
        full,
    }
}

counters! {
    /// The counters of a packet offload core.
    PacketOffload {
        /// Packets sealed.
        sealed,
        /// Packets opened and allowed by the policies.
        opened,
        /// Packets dropped.
        dropped,
        /// Outbound packets without a policy or state in the core, which the stack was asked about.
        asked,
    }
}

counters! {
    /// The counters of the kernel's own IPsec as a device.
    KernelOffload {
        /// States in the kernel.
        kernel_states,
        /// Policies in the kernel.
        kernel_policies,
        /// States and policies that the kernel refused.
        refused,
    }
}

/// An xfrm interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The name of the interface.
    pub name: String,
    /// Whether its thread runs.
    pub up: bool,
    /// The interface id.
    pub if_id: u32,
}

/// A pair of states of IP-TFS with a peer, in both directions, and the rate at which packets leave to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlledRate {
    /// The outer address of this end.
    pub local: String,
    /// The outer address of the peer.
    pub remote: String,
    /// The request id of the states.
    pub reqid: u32,
    /// The interface id of the states.
    pub if_id: u32,
    /// The CPU whose packets the states are for.
    #[serde(default)]
    pub cpu: Option<u32>,
    /// Microseconds from one outer packet to the next.
    pub interval_us: u64,
    /// The same at the highest rate.
    pub least_interval_us: u64,
    /// The estimate of the RTT in microseconds; 0 before there is one.
    pub rtt_us: u64,
    /// The mean number of packets from one loss event to the next; 0 without loss.
    pub loss_interval: u64,
    /// Whether the peer tells how packets come to it. Without that the rate is the lowest one.
    pub has_feedback: bool,
}

/// The states that a table `[[ipsec.iptfs]]` of the configuration is about; `None` for all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RateTable {
    /// Their peer's address.
    pub remote: Option<String>,
    /// Their request id.
    pub reqid: Option<u32>,
    /// Their interface id.
    pub if_id: Option<u32>,
}

/// A gateway: packets are forwarded between interfaces past the stack.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gateway {
    /// The counters of all interfaces and threads together.
    pub counters: GatewayCounters,
    /// The interfaces of the configuration.
    pub interfaces: Vec<GatewayInterface>,
}

counters! {
    /// The counters of a gateway.
    GatewayCounters {
        /// Packets sealed.
        sealed,
        /// Packets opened and allowed by the policies.
        opened,
        /// Packets sent past the stack.
        sent,
        /// Packets given to the stack.
        to_stack,
        /// Packets dropped by policies, states or forwarding rules.
        dropped,
        /// Packets dropped because the interface to send them on was full.
        not_sent_full,
        /// Packets handed over to the thread of their state.
        handed_over,
        /// Packets dropped because the ring of that thread was full.
        not_handed_over_full,
    }
}

/// An interface of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayInterface {
    /// The name of the interface.
    pub name: String,
    /// The service of the gateway. `None` if the stack serves the interface instead.
    #[serde(default)]
    pub xdp: Option<Xdp>,
}

impl GatewayInterface {
    /// The kind of interface in one word: `gateway-native-zero-copy`, `gateway-generic-copied`, ...; `gateway` if it is
    /// not served.
    #[must_use]
    pub fn kind(&self) -> String {
        match &self.xdp {
            None => "gateway".to_owned(),
            Some(xdp) => format!("gateway-{}-{}", xdp.mode.name(), xdp.memory.name()),
        }
    }
}

/// An interface that is served by XDP and AF_XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xdp {
    /// The place of the XDP program.
    pub mode: XdpMode,
    /// The memory of received frames.
    pub memory: XdpMemory,
    /// The number of queues.
    pub queues: u64,
    /// The number of threads that serve the queues.
    pub threads: u64,
    /// Frames lost because a receive ring was full.
    pub received_full: u64,
    /// Frames that the kernel dropped for another reason.
    pub received_dropped: u64,
}

/// The place of an XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In front of the stack.
    Generic,
}

impl XdpMode {
    /// The mode in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        }
    }
}

/// The memory of frames received by AF_XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMemory {
    /// The device writes frames to the memory of the socket.
    ZeroCopy,
    /// The kernel copies frames.
    Copied,
}

impl XdpMemory {
    /// The kind of memory in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            XdpMemory::ZeroCopy => "zero-copy",
            XdpMemory::Copied => "copied",
        }
    }
}
