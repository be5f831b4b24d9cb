//! What choosing a key needs to know of the socket that a segment belongs to.

use crate::ao::info::AoInfo;

/// The state of the socket, as far as keys depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
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
    /// TIME_WAIT: as established. The kernel does not verify there at all.
    TimeWait,
}

/// A half-open connection of a listener (NEW_SYN_RECV): what its SYN said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// Whether the SYN was signed; then every segment of the handshake is, and none otherwise.
    pub used_ao: bool,
    /// The peer's initial sequence number.
    pub rcv_isn: u32,
    /// Our initial sequence number; 0 until the SYN-ACK is known.
    pub snt_isn: u32,
    /// KeyID of the SYN: what our SYN-ACK carries as RNextKeyID.
    pub key_id: u8,
    /// RNextKeyID of the SYN: SendID of the key for our SYN-ACK.
    pub rnext_key_id: u8,
}

/// The socket of a segment.
#[derive(Clone, Copy)]
pub struct Endpoint<'a> {
    /// Its keys; `None` when the program gave it none.
    pub info: Option<&'a AoInfo>,
    /// Its state. With a request: that of the listener.
    pub state: State,
    /// The half-open connection that the segment belongs to.
    pub request: Option<&'a Request>,
    /// The VRF that the segment came through, 0 for none.
    pub ifindex: i32,
    /// Whether the socket has a TCP-MD5 key for the peer.
    pub md5: bool,
}
