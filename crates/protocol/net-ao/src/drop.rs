//! Drop reasons and counters, in one table.

use core::fmt;

/// Counters of a network namespace, in `/proc/net/netstat`, line `TcpExt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Unsigned segments where a signature was required.
    Required,
    /// Segments whose MAC, MAC length or use of the option was wrong.
    Bad,
    /// Segments with a KeyID for which there is no key.
    KeyNotFound,
    /// Segments that verified.
    Good,
    /// ICMP errors that were ignored.
    DroppedIcmps,
    /// Segments with TCP-MD5 for which no socket has an MD5 key. The kernel counts those that reach it; these are
    /// dropped before.
    Md5Unexpected,
}

impl Counter {
    /// All counters, in the kernel's order.
    pub const ALL: [Counter; 6] = [
        Counter::Required,
        Counter::Bad,
        Counter::KeyNotFound,
        Counter::Good,
        Counter::DroppedIcmps,
        Counter::Md5Unexpected,
    ];

    /// The kernel's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Counter::Required => "TCPAORequired",
            Counter::Bad => "TCPAOBad",
            Counter::KeyNotFound => "TCPAOKeyNotFound",
            Counter::Good => "TCPAOGood",
            Counter::DroppedIcmps => "TCPAODroppedIcmps",
            Counter::Md5Unexpected => "TCPMD5Unexpected",
        }
    }
}

/// The counters of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Netstat([u64; 6]);

impl Netstat {
    /// Adds one.
    pub fn bump(&mut self, counter: Counter) {
        self.0[counter as usize] += 1;
    }

    /// Adds one where `reason` has a counter.
    pub fn dropped(&mut self, reason: DropReason) {
        if let Some(counter) = reason.counter() {
            self.bump(counter);
        }
    }

    /// The value of one counter.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

/// One row each: variant, its documentation, name, counter of the namespace, whether the socket counts it as well, the
/// kernel's `SKB_DROP_REASON_`, help.
macro_rules! reasons {
    ($($variant:ident, $doc:literal, $name:literal, $counter:expr, $socket:literal, $kernel:literal, $help:literal;)*) => {
        /// Why a segment is dropped.
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

            /// The counter of the network namespace that it increments, if any.
            #[must_use]
            pub const fn counter(self) -> Option<Counter> {
                match self { $(DropReason::$variant => $counter,)* }
            }

            /// Whether the socket's own counter of the same kind is incremented as well.
            #[must_use]
            pub const fn counted_on_socket(self) -> bool {
                match self { $(DropReason::$variant => $socket,)* }
            }

            /// The kernel's name (`SKB_DROP_REASON_...`, without that prefix); empty where it has none.
            #[must_use]
            pub const fn kernel_name(self) -> &'static str {
                match self { $(DropReason::$variant => $kernel,)* }
            }

            /// One sentence for operators: the meaning, and what to check.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(DropReason::$variant => $help,)* }
            }
        }
    };
}

reasons! {
    BadHeader, "Malformed option, an authentication option twice, or TCP-MD5 and TCP-AO together.", "bad-header",
        None, false, "TCP_AUTH_HDR", "the TCP options are malformed, or hold more than one authentication option";
    Handshake, "The SYN used TCP-AO and this segment of its handshake does not, or the reverse.", "handshake",
        Some(Counter::Bad), false, "TCP_AOFAILURE", "the SYN and a later segment of the handshake differ in whether they are signed";
    Required, "No authentication option, and the socket wants one from this peer.", "required",
        Some(Counter::Required), true, "TCP_AONOTFOUND", "the peer sent an unsigned segment: has it a key for us at all?";
    Unexpected, "The option on a segment for a socket that has no TCP-AO keys.", "unexpected",
        Some(Counter::KeyNotFound), false, "TCP_AOUNEXPECTED", "the peer signs, and the local socket has no TCP-AO key";
    KeyNotFound, "No key of the socket has this KeyID for this peer.", "key-not-found",
        Some(Counter::KeyNotFound), true, "TCP_AOKEYNOTFOUND", "no local key has the peer's KeyID as its RecvID: compare the ids of both ends";
    MacLen, "The MAC has another length than the key asks for.", "mac-length",
        Some(Counter::Bad), true, "TCP_AOFAILURE", "the MAC lengths of the two ends differ";
    Mac, "The MAC does not match.", "mac",
        Some(Counter::Bad), true, "TCP_AOFAILURE", "wrong key, other algorithm, TCP options covered on one side only, or a changed packet";
    Md5Unexpected, "TCP-MD5 from a peer for which the socket has TCP-AO keys only.", "md5-unexpected",
        Some(Counter::Md5Unexpected), false, "TCP_MD5UNEXPECTED", "the peer signs with TCP-MD5, and the local socket has TCP-AO keys for it";
    IsnUnknown, "Neither SYN nor ACK on a listening socket: the initial sequence numbers cannot be known.", "isn-unknown",
        None, false, "TCP_FLAGS", "a segment without a connection: the initial sequence numbers are not known";
    Closed, "The socket is closed.", "closed",
        None, false, "TCP_CLOSE", "the socket is closed";
    NoSocket, "A signed segment for which there is no socket.", "no-socket",
        None, false, "NO_SOCKET", "nobody listens there, or the connection is over: no answer is sent, because its key is gone";
    Icmp, "An ICMP error that could tear down a signed connection.", "icmp",
        Some(Counter::DroppedIcmps), true, "", "an unauthenticated ICMP error was ignored";
    Fragment, "An IP fragment of a protected flow: its MAC cannot be checked before it is whole.", "fragment",
        None, false, "", "IP fragments of a signed connection: lower the MTU, or the MSS";
    Malformed, "Not a well-formed IP packet with a TCP segment.", "malformed",
        None, false, "", "the packet is cut short or its headers contradict each other";
    NoSendKey, "An outgoing segment for which there is no key: the kernel sends nothing either.", "no-send-key",
        None, false, "", "no key has the SendID that the peer asked for by RNextKeyID";
    NoRoom, "An outgoing segment whose TCP header has no room for the option.", "no-room",
        None, false, "", "the TCP header has no room for the option: use a shorter MAC";
    Overload, "More came than can be handled.", "overload",
        None, false, "", "more segments than this machine can sign or verify";
    Driver, "The crypto driver failed.", "driver",
        None, false, "", "the crypto driver could not compute the MAC";
    NoTrafficKey, "The keeper has the master key, and has not derived the traffic key.", "no-traffic-key",
        None, false, "", "the keeper has not derived the traffic key: it is away, slow, or says no, or too many segments ask for keys";
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
            // Each counter of a socket exists for the namespace as well.
            assert!(reason.counter().is_some() || !reason.counted_on_socket());
        }
    }

    #[test]
    fn counting() {
        let mut stat = Netstat::default();
        stat.dropped(DropReason::Mac);
        stat.dropped(DropReason::MacLen);
        stat.dropped(DropReason::Closed);
        stat.bump(Counter::Good);
        let values = Counter::ALL.map(|c| stat.value(c));
        assert_eq!(values, [0, 2, 0, 1, 0, 0]);
    }
}
