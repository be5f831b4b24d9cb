//! The facts about a segment's socket on which the choice of a key depends.

use crate::info::AoInfo;

/// The state of the socket, as far as keys depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndpointState {
    /// CLOSE: nothing arrives.
    Closed,
    /// LISTEN, with or without an [`Endpoint::request`].
    Listen,
    /// SYN_SENT.
    SynSent,
    /// SYN_RECV of a simultaneous open (both SYNs crossed); a listener's half-open connections are requests.
    SynReceived,
    /// ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, CLOSING, LAST_ACK: traffic keys are at hand.
    Established,
    /// TIME_WAIT: treated as established. The kernel itself verifies nothing in this state.
    TimeWait,
}

/// A half-open connection of a listener (NEW_SYN_RECV), as its SYN announced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// Whether the SYN was signed. All other segments of the handshake have to be as the SYN was.
    pub used_ao: bool,
    /// The peer's initial sequence number.
    pub rcv_isn: u32,
    /// Our initial sequence number; 0 until the SYN-ACK is known.
    pub snt_isn: u32,
    /// KeyID of the SYN; our SYN-ACK carries it as RNextKeyID.
    pub key_id: u8,
    /// RNextKeyID of the SYN; it is the SendID of the key for our SYN-ACK.
    pub rnext_key_id: u8,
}

/// The socket of a segment.
#[derive(Clone, Copy)]
pub struct Endpoint<'a> {
    /// Its keys; `None` when the program gave it none.
    pub info: Option<&'a AoInfo>,
    /// Its state; with a request, the state of the listener.
    pub state: EndpointState,
    /// The half-open connection that the segment belongs to.
    pub request: Option<&'a Request>,
    /// The VRF that the segment came through, 0 for none.
    pub ifindex: i32,
    /// Whether the socket has a TCP-MD5 key for the peer.
    pub md5: bool,
}
