//! The decisions about segments, as tables: by what is known of a connection, by the segment, and by what the kernel has.
//!
//! ```text
//!  inbound      │ first SYN   unsigned    other    │ the kernel has     first SYN    unsigned      signed   malformed
//!  ─────────────┼──────────────────────────────────┼──────────────────────────────────────────────────────────────────
//!  nothing      │ ask         ask         ask      │ nothing            as others    pass          drop     drop
//!  SYN is sent  │ connection  connection  its      │  no answer         as others    drop          drop     drop
//!  half open    │ connection, or its listener      │  a peer's          as others    drop          drop     drop
//!  open         │ ask         connection  its      │ TIME_WAIT          its listener pass (or MD5) drop     drop
//!  gone         │ ask         ask         its      │ a connection       the known open one, or join
//!                                                  │ other sockets      join
//! ```

use sealane_abi::tcp::State as KernelState;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::endpoint::EndpointState;
use sealane_wire::tcp::{Auth, Flags, Segment};

/// The knowledge about the connection between a segment's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Nothing,
    /// Our SYN was sent, or both SYNs have crossed each other.
    Connecting,
    /// A SYN was verified for a listener; the segment may be of that handshake.
    Half(Handshake),
    Open,
    /// Its socket is gone.
    Gone,
}

/// The handshake that a segment of a half-open connection is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handshake {
    /// The one in progress.
    Its,
    /// Another one. The kernel has a socket between these ends, has none, or has a half-open connection or no answer.
    Other { has_socket: Option<bool> },
}

/// The kind of an authentication option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    None,
    Md5,
    Ao,
    /// The options are malformed.
    Malformed,
}

/// The kind of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// Whether it opens a connection.
    pub(super) first_syn: bool,
    pub(super) signature: Signature,
}

impl Kind {
    pub(super) fn of(segment: &Segment<'_>) -> Self {
        let flags = segment.flags();
        let signature = match segment.auth() {
            Ok(None) => Signature::None,
            Ok(Some(Auth::Md5 { .. })) => Signature::Md5,
            Ok(Some(Auth::Ao(_))) => Signature::Ao,
            Err(_) => Signature::Malformed,
        };
        Kind { first_syn: flags.syn() && !flags.ack(), signature }
    }

    /// Whether it has neither kind of signature, not even a broken one.
    pub(super) fn is_unsigned(self) -> bool {
        self.signature == Signature::None
    }
}

/// The way to the target of an inbound segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The connection that is known.
    Connection,
    /// The listener of the half-open connection, as if that were not there.
    Listener,
    /// The kernel knows.
    Ask,
}

/// The way of an inbound segment, by what is known.
pub(super) fn way(known: Known, kind: Kind) -> Way {
    match (known, kind.first_syn) {
        (Known::Nothing, _) => Way::Ask,
        (Known::Connecting | Known::Half(Handshake::Its), _) => Way::Connection,
        // A replayed SYN, or a SYN after the kernel has given that handshake up.
        (Known::Half(Handshake::Other { has_socket: Some(_) }), true) => Way::Listener,
        // The answer to a SYN cookie, for which the kernel keeps no state.
        (Known::Half(Handshake::Other { has_socket: Some(false) }), false) => Way::Listener,
        (Known::Half(Handshake::Other { .. }), _) => Way::Connection,
        // A new connection between the same ends, or a replayed SYN.
        (Known::Open | Known::Gone, true) => Way::Ask,
        (Known::Open, false) => Way::Connection,
        // The kernel verifies no MAC in TIME_WAIT. Here a signed segment still has to verify. Without a socket in
        // TIME_WAIT a listener gets it, for which an ACK may be the answer to a SYN cookie.
        (Known::Gone, false) if kind.signature == Signature::None => Way::Ask,
        (Known::Gone, false) => Way::Connection,
    }
}

/// The socket to which the kernel would hand a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// None, or the kernel could not be asked. `is_configured` for the ends of a configured peer, where that is asked for: of unsigned
    /// segments, and of resets that leave.
    Nothing { is_answered: bool, is_configured: bool },
    /// A connection in TIME_WAIT.
    TimeWait,
    /// A connection whose handshake is done.
    Connection,
    /// A listener, a handshake, or one that is closed.
    Other,
}

impl Answer {
    /// The answer that is a socket in this state.
    pub(super) fn socket(state: KernelState) -> Self {
        match state {
            KernelState::TimeWait => Answer::TimeWait,
            state if is_synchronized(state) => Answer::Connection,
            _ => Answer::Other,
        }
    }
}

/// Whether a socket in this state has both initial sequence numbers.
pub(super) fn is_synchronized(state: KernelState) -> bool {
    !matches!(
        state,
        KernelState::Close
            | KernelState::Listen
            | KernelState::SynSent
            | KernelState::NewSynRecv
            | KernelState::TimeWait
            | KernelState::BoundInactive
    )
}

/// The decision about a segment, by the kernel's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Drop(DropReason),
    /// It is for the connection that is known.
    Connection,
    /// It is for the socket that the kernel has found.
    Join,
    /// The kernel is asked for a listener.
    AskListener,
}

/// The decision about an inbound segment for which the kernel was asked.
pub(super) fn inbound(known: Known, kind: Kind, answer: Answer) -> Verdict {
    use Signature::{Ao, Malformed, Md5, None};
    match (answer, kind.signature) {
        // The kernel has a listener accept a new connection between the same ends (TCP_TW_SYN).
        (Answer::TimeWait, _) if kind.first_syn => Verdict::AskListener,
        // Nobody knows the keys of a signed one's connection any more: an answer to it would leave unsigned.
        (Answer::TimeWait, Ao) => Verdict::Drop(DropReason::NoSocket),
        (Answer::TimeWait, None | Md5) => Verdict::Pass,
        (Answer::TimeWait | Answer::Nothing { .. }, Malformed) => Verdict::Drop(DropReason::BadHeader),
        // Without a socket, an unsigned segment is answered by the kernel's RST, a signed one is not
        // (`tcp_v4_send_reset`).
        (Answer::Nothing { .. }, Ao | Md5) => Verdict::Drop(DropReason::NoSocket),
        // Its socket may be a listener with keys, which must not get it.
        (Answer::Nothing { is_answered: false, .. }, None) => Verdict::Drop(DropReason::NoSocket),
        (Answer::Nothing { is_configured: true, .. }, None) => Verdict::Drop(DropReason::Required),
        (Answer::Nothing { .. }, None) => Verdict::Pass,
        (Answer::Connection, _) if known == Known::Open => Verdict::Connection,
        (Answer::Connection | Answer::Other, _) => Verdict::Join,
    }
}

/// The decision about an outbound segment, other than a SYN, of a connection of which nothing is known.
pub(super) fn outbound(is_rst: bool, answer: Answer) -> Verdict {
    match answer {
        // A RST for a segment without a socket, which was unsigned, because signed ones are dropped.
        Answer::Nothing { is_answered: true, is_configured: false } if is_rst => Verdict::Pass,
        // The socket of any other segment was closed while that waited for us, and may have had keys.
        Answer::Nothing { .. } => Verdict::Drop(DropReason::NoSendKey),
        Answer::TimeWait | Answer::Connection | Answer::Other => Verdict::Join,
    }
}

/// The state of the end of a connection whose socket is in this state, and has keys or had.
pub(super) fn endpoint(state: KernelState) -> EndpointState {
    match state {
        KernelState::Listen | KernelState::NewSynRecv => EndpointState::Listen,
        KernelState::SynSent => EndpointState::SynSent,
        KernelState::SynRecv => EndpointState::SynReceived,
        KernelState::Close | KernelState::BoundInactive => EndpointState::Closed,
        _ => EndpointState::Established,
    }
}

/// The change that an authentic segment makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// There is a half-open connection.
    HalfOpen,
    /// The answer to a SYN cookie, or a replayed end of a handshake, opens a connection.
    OpenByCookie,
    /// The half-open connection is open.
    OpenHalf,
    /// The half-open connection is no more.
    Forget,
    /// Both SYNs have crossed each other.
    Cross,
    /// Our connection is open.
    Open,
}

/// The change that an authentic segment makes at an end in this state, with or without a half-open connection. A reset opens nothing,
/// whatever other flags it has (`tcp_rcv_state_process`, `tcp_rcv_synsent_state_process`).
pub(super) fn change(state: EndpointState, is_half_open: bool, flags: Flags) -> Change {
    use EndpointState::{Listen, SynReceived, SynSent};
    match (state, is_half_open, flags.rst(), flags.syn(), flags.ack()) {
        (Listen, true, true, ..) => Change::Forget,
        (_, _, true, ..) => Change::Nothing,
        (Listen, false, _, true, false) => Change::HalfOpen,
        (Listen, false, _, false, true) => Change::OpenByCookie,
        (Listen, true, _, false, true) => Change::OpenHalf,
        (SynSent | SynReceived, _, _, true, false) => Change::Cross,
        (SynSent | SynReceived, _, _, _, true) => Change::Open,
        _ => Change::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURES: [Signature; 4] = [Signature::None, Signature::Md5, Signature::Ao, Signature::Malformed];

    fn kinds(first_syn: bool) -> [Kind; 4] {
        SIGNATURES.map(|signature| Kind { first_syn, signature })
    }

    #[test]
    fn each_segment_has_a_way_by_what_is_known() {
        use Way::{Ask, Connection, Listener};
        let other = |has_socket| Known::Half(Handshake::Other { has_socket });
        // Of first SYNs; of other segments without a signature, by MD5, by TCP-AO, malformed.
        let table = [
            (Known::Nothing, [Ask; 4], [Ask; 4]),
            (Known::Connecting, [Connection; 4], [Connection; 4]),
            (Known::Half(Handshake::Its), [Connection; 4], [Connection; 4]),
            (other(None), [Connection; 4], [Connection; 4]),
            (other(Some(false)), [Listener; 4], [Listener; 4]),
            (other(Some(true)), [Listener; 4], [Connection; 4]),
            (Known::Open, [Ask; 4], [Connection; 4]),
            (Known::Gone, [Ask; 4], [Ask, Connection, Connection, Connection]),
        ];
        for (known, first, others) in table {
            assert_eq!(kinds(true).map(|kind| way(known, kind)), first, "{known:?}, the first SYN");
            assert_eq!(kinds(false).map(|kind| way(known, kind)), others, "{known:?}");
        }
    }

    #[test]
    fn each_answer_of_the_kernel_gives_a_verdict() {
        use Verdict::{AskListener, Connection, Drop, Join, Pass};
        let nothing = |is_answered, is_configured| Answer::Nothing { is_answered, is_configured };
        let [socket, header, required] = [DropReason::NoSocket, DropReason::BadHeader, DropReason::Required].map(Drop);
        let no_socket = |unsigned| [unsigned, socket, socket, header];
        // The same for first SYNs and others, and whatever is known.
        let table = [
            (nothing(true, false), no_socket(Pass)),
            (nothing(true, true), no_socket(required)),
            (nothing(false, false), no_socket(socket)),
            (nothing(false, true), no_socket(socket)),
            (Answer::Other, [Join; 4]),
        ];
        let all = [Known::Nothing, Known::Connecting, Known::Half(Handshake::Its), Known::Open, Known::Gone];
        for known in all {
            for first_syn in [false, true] {
                let verdicts = |answer| kinds(first_syn).map(|kind| inbound(known, kind, answer));
                for (answer, wanted) in table {
                    assert_eq!(verdicts(answer), wanted, "{known:?}, {first_syn}, {answer:?}");
                }
                let connection = if known == Known::Open { Connection } else { Join };
                assert_eq!(verdicts(Answer::Connection), [connection; 4], "{known:?}, {first_syn}");
                let time_wait = if first_syn { [AskListener; 4] } else { [Pass, Pass, socket, header] };
                assert_eq!(verdicts(Answer::TimeWait), time_wait, "{known:?}, {first_syn}");
            }
        }
    }

    #[test]
    fn each_outbound_segment_of_an_unknown_connection_has_a_verdict() {
        use Verdict::{Drop, Join, Pass};
        let nothing = |is_answered, is_configured| Answer::Nothing { is_answered, is_configured };
        let drop = Drop(DropReason::NoSendKey);
        // Of a RST, and of another one.
        let table = [
            (nothing(true, false), [Pass, drop]),
            (nothing(true, true), [drop; 2]),
            (nothing(false, false), [drop; 2]),
            (nothing(false, true), [drop; 2]),
            (Answer::TimeWait, [Join; 2]),
            (Answer::Connection, [Join; 2]),
            (Answer::Other, [Join; 2]),
        ];
        for (answer, wanted) in table {
            assert_eq!([true, false].map(|is_rst| outbound(is_rst, answer)), wanted, "{answer:?}");
        }
    }

    #[test]
    fn each_state_of_the_kernel_is_an_answer_and_an_end() {
        use EndpointState::{Closed, Established, Listen, SynReceived, SynSent};
        let table = [
            (KernelState::Established, Answer::Connection, Established),
            (KernelState::SynSent, Answer::Other, SynSent),
            (KernelState::SynRecv, Answer::Connection, SynReceived),
            (KernelState::FinWait1, Answer::Connection, Established),
            (KernelState::FinWait2, Answer::Connection, Established),
            (KernelState::TimeWait, Answer::TimeWait, Established),
            (KernelState::Close, Answer::Other, Closed),
            (KernelState::CloseWait, Answer::Connection, Established),
            (KernelState::LastAck, Answer::Connection, Established),
            (KernelState::Listen, Answer::Other, Listen),
            (KernelState::Closing, Answer::Connection, Established),
            (KernelState::NewSynRecv, Answer::Other, Listen),
            (KernelState::BoundInactive, Answer::Other, Closed),
        ];
        for (state, answer, end) in table {
            assert_eq!((Answer::socket(state), endpoint(state)), (answer, end), "{state:?}");
            assert_eq!(is_synchronized(state), answer == Answer::Connection, "{state:?}");
        }
    }

    #[test]
    fn each_authentic_segment_makes_its_change() {
        use Change::{Cross, Forget, HalfOpen, Nothing, Open, OpenByCookie, OpenHalf};
        use EndpointState::{Closed, Established, Listen, SynReceived, SynSent, TimeWait};
        // Without SYN and ACK, with ACK, with SYN, with both.
        let flags = [0, Flags::ACK, Flags::SYN, Flags::SYN | Flags::ACK];
        // Ends without a half-open connection and with one; of segments without RST, and with it.
        let table = [
            (Listen, false, [Nothing, OpenByCookie, HalfOpen, Nothing], Nothing),
            (Listen, true, [Nothing, OpenHalf, Nothing, Nothing], Forget),
            (SynSent, false, [Nothing, Open, Cross, Open], Nothing),
            (SynReceived, false, [Nothing, Open, Cross, Open], Nothing),
            (Established, false, [Nothing; 4], Nothing),
            (TimeWait, false, [Nothing; 4], Nothing),
            (Closed, false, [Nothing; 4], Nothing),
        ];
        for (state, is_half_open, wanted, reset) in table {
            let by = |more: u8| flags.map(|flags| change(state, is_half_open, Flags(flags | more)));
            assert_eq!(by(0), wanted, "{state:?}, {is_half_open}");
            assert_eq!(by(Flags::FIN | Flags::PSH), wanted, "{state:?}, {is_half_open}");
            assert_eq!(by(Flags::RST), [reset; 4], "{state:?}, {is_half_open}");
        }
    }
}
