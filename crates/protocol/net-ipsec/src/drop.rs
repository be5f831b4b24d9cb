//! Reasons for drops and their counters in `/proc/net/xfrm_stat`, in one table.

use core::fmt;

macro_rules! counters {
    ($($variant:ident, $doc:literal;)*) => {
        /// Counters of a network namespace in `/proc/net/xfrm_stat` (`net/xfrm/xfrm_proc.c`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Counter {
            $(#[doc = $doc] $variant,)*
        }

        impl Counter {
            /// All counters, in the kernel's order.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant),*];

            /// The kernel's name without `Xfrm`.
            const fn suffix(self) -> &'static str {
                match self { $(Counter::$variant => stringify!($variant),)* }
            }

            /// A sentence that says what it counts.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Counter::$variant => $doc,)* }
            }
        }
    };
}

counters! {
    InError, "Any other inbound error.";
    InBufferError, "No buffer, or too many transformations.";
    InHdrError, "The IPsec header is cut short.";
    InNoStates, "No state for the SPI, destination and protocol.";
    InStateProtoError, "The transformation failed: integrity, padding, length.";
    InStateModeError, "The mode failed: the payload is not a packet of this mode.";
    InStateSeqError, "The sequence number was seen, or is behind the window.";
    InStateExpired, "The state has expired.";
    InStateMismatch, "Encapsulation or selector of the state do not match.";
    InStateInvalid, "The state is not valid.";
    InTmplMismatch, "The states used do not fit the policy's templates.";
    InNoPols, "No policy for a packet that states have opened.";
    InPolBlock, "The policy blocks.";
    InPolError, "The policy could not be evaluated.";
    OutError, "Any other outbound error.";
    OutBundleGenError, "The bundle cannot be made.";
    OutBundleCheckError, "The bundle is stale.";
    OutNoStates, "No state.";
    OutStateProtoError, "The transformation failed.";
    OutStateModeError, "The mode failed: too big, or not to be encapsulated.";
    OutStateSeqError, "The sequence numbers are used up.";
    OutStateExpired, "The state has expired.";
    OutPolBlock, "The policy blocks.";
    OutPolDead, "The policy is dead.";
    OutPolError, "The policy could not be evaluated.";
    FwdHdrError, "A forwarded packet has no good header.";
    OutStateInvalid, "The state is not valid.";
    AcquireError, "The state is still being acquired.";
    OutStateDirError, "The state is for the other direction.";
    InStateDirError, "The state is for the other direction.";
    InIptfsError, "IP-TFS failed.";
    OutNoQueueSpace, "No space in a queue.";
}

impl Counter {
    /// The kernel's name without its prefix `Xfrm`.
    #[must_use]
    pub const fn name_suffix(self) -> &'static str {
        self.suffix()
    }
}

/// The number of dropped packets of a network namespace or device by reason, and the traffic of its states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    drops: [u64; DropReason::ALL.len()],
    /// The traffic of the states, as far as the owner of this has taken it from them.
    pub traffic: TrafficCounters,
}

/// Packets and bytes of payload that states have protected. A packet that passes two states counts twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficCounters {
    /// Packets sealed.
    pub sealed_packets: u64,
    /// Bytes of payload in them.
    pub sealed_bytes: u64,
    /// Packets opened.
    pub opened_packets: u64,
    /// Bytes of payload in them.
    pub opened_bytes: u64,
}

impl TrafficCounters {
    /// Adds the traffic of other states.
    pub fn add(&mut self, other: &TrafficCounters) {
        self.sealed_packets += other.sealed_packets;
        self.sealed_bytes += other.sealed_bytes;
        self.opened_packets += other.opened_packets;
        self.opened_bytes += other.opened_bytes;
    }
}

impl Default for Stat {
    fn default() -> Self {
        Stat { drops: [0; DropReason::ALL.len()], traffic: TrafficCounters::default() }
    }
}

impl Stat {
    /// Counts a dropped packet.
    pub fn dropped(&mut self, reason: DropReason) {
        self.count(reason, 1);
    }

    /// Counts dropped packets.
    pub fn count(&mut self, reason: DropReason, packets: u64) {
        self.drops[reason as usize] += packets;
    }

    /// Adds the counters of another owner.
    pub fn add(&mut self, other: &Stat) {
        self.drops.iter_mut().zip(other.drops).for_each(|(ours, theirs)| *ours += theirs);
        self.traffic.add(&other.traffic);
    }

    /// The value of a kernel's counter: the packets dropped for one of its reasons.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        DropReason::ALL
            .iter()
            .filter(|reason| reason.counter() == Some(counter))
            .map(|reason| self.drops(*reason))
            .sum()
    }

    /// The number of packets dropped for one reason.
    #[must_use]
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }
}

/// One row for each reason: variant, documentation, name, counter, help.
macro_rules! reasons {
    ($($variant:ident, $doc:literal, $name:literal, $counter:expr, $help:literal;)*) => {
        /// The reason why a packet is dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum DropReason {
            $(#[doc = $doc] $variant,)*
        }

        impl DropReason {
            /// All reasons.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),*];

            /// One word, for columns and labels.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// The kernel's counter that it increments.
            #[must_use]
            pub const fn counter(self) -> Option<Counter> {
                match self { $(DropReason::$variant => $counter,)* }
            }

            /// A sentence about its cause.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(DropReason::$variant => $help,)* }
            }
        }
    };
}

use Counter as C;

reasons! {
    Malformed, "Not a well-formed IP packet.", "malformed", None, "the packet is cut short or its lengths contradict each other";
    Fragment, "A fragment of an ESP or AH packet, which the stack should have reassembled.", "fragment", None,
        "fragments must be reassembled before they are opened";
    Header, "The ESP or AH header is cut short.", "header", Some(C::InHdrError), "the packet ends before its sequence number";
    NoState, "No state has this SPI, destination and protocol.", "no-state", Some(C::InNoStates),
        "the peer uses an SPI that is not, or no longer, installed";
    InDirection, "The state is for output only.", "in-direction", Some(C::InStateDirError), "the state was added with 'dir out'";
    InInvalid, "The state is not valid.", "in-invalid", Some(C::InStateInvalid), "the state has expired or is being deleted";
    Acquiring, "The state is still being acquired.", "acquiring", Some(C::AcquireError), "the key manager has not installed keys yet";
    Encap, "Encapsulation in UDP or TCP where the state has none or the other, or the reverse.", "encap", Some(C::InStateMismatch),
        "one end uses ESP in UDP, or in TCP, and the other does not";
    StreamMessage, "A message of ESP in TCP is neither ESP nor IKE.", "stream-message", Some(C::InHdrError),
        "the peer writes something else into the connection";
    Unread, "An IKE message in TCP that the key manager does not read.", "unread", Some(C::InError),
        "the key manager is too slow, or the peer sends too many messages";
    Replayed, "The sequence number has been seen.", "replayed", Some(C::InStateSeqError), "the packet arrived twice";
    BehindWindow, "The sequence number is behind the window.", "behind-window", Some(C::InStateSeqError),
        "the packet is late, or old: a larger window permits more reordering";
    SeqZero, "The sequence number is 0, which is never sent.", "seq-zero", Some(C::InStateSeqError), "the peer sent sequence number 0";
    SeqHigh, "Other packets of its burst moved the window, so that another high half is inferred.", "seq-high", Some(C::InStateSeqError),
        "the packet is too old for its extended sequence number";
    InExpired, "The state has reached its hard limit.", "in-expired", Some(C::InStateExpired), "the state's hard limit is reached";
    Short, "Too short for IV and ICV, or not whole blocks.", "short", Some(C::InStateProtoError),
        "the packet is cut short, or the peer uses another algorithm";
    InDriver, "The crypto driver or device failed.", "in-driver", Some(C::InStateProtoError), "the crypto device was removed, or has no key for the state";
    Icv, "The integrity check value does not match.", "icv", Some(C::InStateProtoError),
        "wrong key, other algorithm or truncation, another extended sequence number, or a changed packet";
    Padding, "The pad length is longer than the payload.", "padding", Some(C::InStateProtoError), "the peer pads wrongly";
    Dummy, "A dummy packet (next header 59), dropped as intended.", "dummy", Some(C::InStateProtoError),
        "the peer sends dummy packets to hide its traffic";
    AhLen, "The AH header has another length than the algorithm's.", "ah-length", Some(C::InStateProtoError),
        "the ends differ in algorithm, truncation or alignment of AH";
    Inflate, "The payload cannot be decompressed, or to more than 65400 bytes.", "inflate", Some(C::InStateProtoError),
        "the peer compresses by another algorithm, or the packet is made to fill memory";
    InMode, "The payload is not a packet of this mode.", "in-mode", Some(C::InStateModeError),
        "the ends differ in mode, or the inner packet is cut short";
    IptfsHeader, "The header of an IP-TFS payload, or of a packet in it, is not one.", "iptfs-header", Some(C::InHdrError),
        "the peer sends IP-TFS of another kind, or no IP-TFS";
    IptfsBlock, "An IP-TFS payload is cut short, or has something else than IP packets and padding.", "iptfs-block",
        Some(C::InBufferError), "the peer sends IP-TFS of another kind";
    IptfsFragment, "The rest of a packet that began in an IP-TFS payload has not come.", "iptfs-fragment", Some(C::InIptfsError),
        "packets of the tunnel were lost, or came later than the reorder window permits";
    IptfsFull, "Too many bytes of IP-TFS payloads wait for earlier ones.", "iptfs-full", Some(C::InBufferError),
        "packets of the tunnel were lost, and the reorder window is large";
    Depth, "More than six transformations of one packet.", "depth", Some(C::InBufferError), "the packet has too many layers of IPsec";
    Selector, "The opened packet does not match the state's selector.", "selector", Some(C::InStateMismatch),
        "the peer sends traffic that the state was not negotiated for";
    Template, "The states used do not fit the policy's templates.", "template", Some(C::InTmplMismatch),
        "the packet was not protected, or not by the state that the policy requires";
    InNoPolicy, "No policy, and the default blocks or a tunnel was used.", "in-no-policy", Some(C::InNoPols),
        "there is no policy of this direction for the packet that came out of the tunnel";
    InBlock, "The policy blocks.", "in-block", Some(C::InPolBlock), "a policy blocks this traffic";
    OutBlock, "The policy blocks.", "out-block", Some(C::OutPolBlock), "a policy blocks this traffic";
    OutRest, "No policy, and the default blocks.", "out-rest", None,
        "there is no outbound policy for the packet, and the default blocks";
    OutNoState, "The policy requires a state, and there is none.", "out-no-state", Some(C::OutNoStates),
        "no state for the policy's template: the key manager has been asked for one";
    NoPath, "No route leads to the state's destination.", "no-path", Some(C::OutBundleGenError),
        "there is no route to the other end of the tunnel";
    NoWay, "No policy of the xfrm interface protects the packet.", "no-way", None,
        "no outbound policy with the interface's id and a template matches this traffic";
    Ambiguous, "Policies for other marks or interfaces would send the packet another way.", "ambiguous", Some(C::OutPolError),
        "outbound policies that differ by mark or interface alone are for this packet, which came without either";
    OutDirection, "The state is for input only.", "out-direction", Some(C::OutStateDirError), "the state was added with 'dir in'";
    OutInvalid, "The state is not valid.", "out-invalid", Some(C::OutStateInvalid), "the state has expired or is being deleted";
    OutExpired, "The state has reached its hard limit.", "out-expired", Some(C::OutStateExpired), "the state's hard limit is reached";
    OutSeq, "The sequence numbers are used up.", "out-seq", Some(C::OutStateSeqError), "the state needs a new key, or extended sequence numbers";
    OutLease, "No sequence number has been leased.", "out-lease", Some(C::OutStateSeqError),
        "stable storage did not lease sequence numbers in time";
    NoStream, "The key manager has no TCP connection for the state.", "no-stream", Some(C::OutStateProtoError),
        "the connection has ended, or has other addresses or ports than the state";
    OutMode, "The packet cannot be encapsulated in this mode.", "out-mode", Some(C::OutStateModeError),
        "an inner fragment in BEET mode, or a header that does not suit the mode";
    TooBig, "The sealed packet would exceed the path's MTU, so the sender must be told a smaller one.", "too-big", Some(C::OutStateModeError),
        "the sender must use smaller packets, as path MTU discovery tells it";
    TooLong, "The sealed packet would exceed the maximum length of an IP packet.", "too-long", Some(C::OutStateProtoError), "the sealed packet exceeds 65535 bytes";
    IptfsQueue, "The queue of an IP-TFS state is full.", "iptfs-queue", Some(C::OutNoQueueSpace),
        "more packets come than the state sends: see its max-queue-size and init-delay";
    IptfsTooBig, "The packet does not fit one outer packet, and the IP-TFS state does not cut any.", "iptfs-too-big",
        Some(C::OutError), "the sender must use smaller packets, as path MTU discovery tells it";
    NoRoom, "The buffer has no room for headers or trailer.", "no-room", Some(C::OutError), "an error of the caller";
    Driver, "The crypto driver or device failed.", "driver", Some(C::OutStateProtoError), "the crypto driver failed, or the crypto device was removed";
    Escape, "A policy's packet was about to leave unprotected, or is a fragment without the ports that the policy selects.", "escape",
        Some(C::OutPolError), "a routing rule, a route or a mark was changed by others, or packets are forwarded in fragments";
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.help())
    }
}

impl core::error::Error for DropReason {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_helpful() {
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            assert!(!reason.help().is_empty());
            assert!(DropReason::ALL[..i].iter().all(|other| other.name() != reason.name()));
        }
        assert_eq!(Counter::ALL.len(), 32);
        assert_eq!(Counter::InNoStates.name_suffix(), "InNoStates");
        let mut stat = Stat::default();
        stat.dropped(DropReason::Icv);
        stat.dropped(DropReason::Short);
        stat.dropped(DropReason::Malformed);
        assert_eq!(stat.value(Counter::InStateProtoError), 2);
        assert_eq!(Counter::ALL.iter().map(|c| stat.value(*c)).sum::<u64>(), 2);
        assert_eq!((stat.drops(DropReason::Icv), stat.drops(DropReason::Malformed)), (1, 1));
    }
}
