//! Why a packet is dropped, and which counter of `/proc/net/xfrm_stat` that moves: one table for all of it.

use core::fmt;

macro_rules! counters {
    ($($variant:ident, $doc:literal;)*) => {
        /// Counters of a network namespace, in `/proc/net/xfrm_stat` (`net/xfrm/xfrm_proc.c`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Counter {
            $(#[doc = $doc] $variant,)*
        }

        impl Counter {
            /// All of them, in the kernel's order.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant),*];

            /// What the kernel's name says behind `Xfrm`.
            const fn suffix(self) -> &'static str {
                match self { $(Counter::$variant => stringify!($variant),)* }
            }

            /// What it counts, in a sentence.
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
    InStateModeError, "The mode failed: what is inside is no packet of this mode.";
    InStateSeqError, "The sequence number was seen, or is behind the window.";
    InStateExpired, "The state has expired.";
    InStateMismatch, "Encapsulation or selector of the state do not match.";
    InStateInvalid, "The state is not valid.";
    InTmplMismatch, "The states used do not fit the policy's templates.";
    InNoPols, "No policy for what states have transformed.";
    InPolBlock, "The policy blocks.";
    InPolError, "The policy cannot be judged.";
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
    OutPolError, "The policy cannot be judged.";
    FwdHdrError, "A forwarded packet has no good header.";
    OutStateInvalid, "The state is not valid.";
    AcquireError, "The state is still being acquired.";
    OutStateDirError, "The state is for the other direction.";
    InStateDirError, "The state is for the other direction.";
    InIptfsError, "IP-TFS failed.";
    OutNoQueueSpace, "No place in a queue.";
}

impl Counter {
    /// The kernel's name is this behind `Xfrm`.
    #[must_use]
    pub const fn name_suffix(self) -> &'static str {
        self.suffix()
    }
}

/// The counters of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat([u64; Counter::ALL.len()]);

impl Default for Stat {
    fn default() -> Self {
        Stat([0; Counter::ALL.len()])
    }
}

impl Stat {
    /// Adds one where `reason` has a counter.
    pub fn dropped(&mut self, reason: DropReason) {
        if let Some(counter) = reason.counter() {
            self.0[counter as usize] += 1;
        }
    }

    /// Adds packets of one counter that others have counted.
    pub fn count(&mut self, counter: Counter, packets: u64) {
        self.0[counter as usize] += packets;
    }

    /// Adds what others have counted.
    pub fn add(&mut self, others: &Stat) {
        self.0.iter_mut().zip(others.0).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// The value of one counter.
    #[must_use]
    pub fn value(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

/// One row each: variant, its documentation, name, counter, help.
macro_rules! reasons {
    ($($variant:ident, $doc:literal, $name:literal, $counter:expr, $help:literal;)*) => {
        /// Why a packet is dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum DropReason {
            $(#[doc = $doc] $variant,)*
        }

        impl DropReason {
            /// All of them.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),*];

            /// One word, for columns and labels.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// The counter that it moves.
            #[must_use]
            pub const fn counter(self) -> Option<Counter> {
                match self { $(DropReason::$variant => $counter,)* }
            }

            /// What it means and what to look at, in one sentence.
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
    Fragment, "A fragment with ESP or AH in it: the stack puts packets together first.", "fragment", None,
        "a fragment must be put together before it is opened";
    Header, "The ESP or AH header is cut short.", "header", Some(C::InHdrError), "the packet ends before its sequence number";
    NoState, "No state has this SPI, destination and protocol.", "no-state", Some(C::InNoStates),
        "the peer uses an SPI that is not, or no longer, installed";
    InDirection, "The state is for output only.", "in-direction", Some(C::InStateDirError), "the state was added with 'dir out'";
    InInvalid, "The state is not valid.", "in-invalid", Some(C::InStateInvalid), "the state has expired or is being deleted";
    Acquiring, "The state is still being acquired.", "acquiring", Some(C::AcquireError), "the key manager has not installed keys yet";
    Encap, "UDP encapsulation where the state has none, or the reverse.", "encap", Some(C::InStateMismatch),
        "one end uses ESP in UDP and the other does not";
    Replayed, "The sequence number has been seen.", "replayed", Some(C::InStateSeqError), "the packet came twice";
    BehindWindow, "The sequence number is behind the window.", "behind-window", Some(C::InStateSeqError),
        "the packet is late, or old: a larger window admits more reordering";
    SeqZero, "The sequence number is 0, which nobody sends.", "seq-zero", Some(C::InStateSeqError), "the peer did not count";
    SeqHigh, "Others of its burst moved the window on, so that its high half is another one.", "seq-high", Some(C::InStateSeqError),
        "the packet is too old for its extended sequence number";
    InExpired, "The state has reached its hard limit.", "in-expired", Some(C::InStateExpired), "the state's hard limit is reached";
    Short, "Too short for IV and ICV, or not whole blocks.", "short", Some(C::InStateProtoError),
        "the packet is cut short, or the peer uses another algorithm";
    InDriver, "The crypto driver or device failed.", "in-driver", Some(C::InStateProtoError), "the crypto device has gone, or has no key for the state";
    Icv, "The integrity check value does not match.", "icv", Some(C::InStateProtoError),
        "wrong key, other algorithm or truncation, another extended sequence number, or a changed packet";
    Padding, "The pad length is longer than the payload.", "padding", Some(C::InStateProtoError), "the peer pads wrongly";
    Dummy, "A dummy packet (next header 59), which is dropped as it should be.", "dummy", Some(C::InStateProtoError),
        "the peer sends dummy packets to hide its traffic";
    AhLen, "The AH header has another length than the algorithm's.", "ah-length", Some(C::InStateProtoError),
        "the ends differ in algorithm, truncation or alignment of AH";
    InMode, "What is inside is no packet of this mode.", "in-mode", Some(C::InStateModeError),
        "the ends differ in mode, or the inner packet is cut short";
    Depth, "More than six transformations of one packet.", "depth", Some(C::InBufferError), "the packet is wrapped too often";
    Selector, "What came out does not match the state's selector.", "selector", Some(C::InStateMismatch),
        "the peer sends what the state was not negotiated for";
    Template, "The states used do not fit the policy's templates.", "template", Some(C::InTmplMismatch),
        "the packet came in clear, or by another state than the policy asks for";
    InNoPolicy, "No policy, and the default blocks or a tunnel was used.", "in-no-policy", Some(C::InNoPols),
        "there is no policy of this direction for what came out of the tunnel";
    InBlock, "The policy blocks.", "in-block", Some(C::InPolBlock), "a policy blocks this traffic";
    OutBlock, "The policy blocks.", "out-block", Some(C::OutPolBlock), "a policy blocks this traffic";
    OutNoState, "The policy wants a state, and there is none.", "out-no-state", Some(C::OutNoStates),
        "no state for the policy's template: the key manager was asked";
    NoWay, "An xfrm interface has no policy that protects it.", "no-way", None,
        "no outbound policy with the interface's id and a template is for this traffic";
    OutDirection, "The state is for input only.", "out-direction", Some(C::OutStateDirError), "the state was added with 'dir in'";
    OutInvalid, "The state is not valid.", "out-invalid", Some(C::OutStateInvalid), "the state has expired or is being deleted";
    OutExpired, "The state has reached its hard limit.", "out-expired", Some(C::OutStateExpired), "the state's hard limit is reached";
    OutSeq, "The sequence numbers are used up.", "out-seq", Some(C::OutStateSeqError), "the state needs a new key, or extended sequence numbers";
    OutLease, "No sequence number has been leased.", "out-lease", Some(C::OutStateSeqError),
        "stable storage did not lease sequence numbers in time";
    OutMode, "The packet cannot be encapsulated in this mode.", "out-mode", Some(C::OutStateModeError),
        "an inner fragment in BEET mode, or a header that does not suit the mode";
    TooBig, "It would not fit the path's MTU once sealed; the sender must be told the smaller one.", "too-big", Some(C::OutStateModeError),
        "the sender must use smaller packets: path MTU discovery tells it";
    TooLong, "It would be longer than an IP packet can be.", "too-long", Some(C::OutStateProtoError), "the sealed packet exceeds 65535 bytes";
    NoRoom, "The buffer has no room for headers or trailer.", "no-room", Some(C::OutError), "a fault of the caller";
    Driver, "The crypto driver or device failed.", "driver", Some(C::OutStateProtoError), "the crypto driver could not seal, or the crypto device has gone";
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
    }
}
