//! The arguments and results of sendmsg and recvmsg.

/// The arguments of a sendmsg (send, write, splice, ...).
#[derive(Debug, Clone, Copy, Default)]
pub struct SendMsg<'a> {
    /// The data, in pieces.
    pub data: &'a [&'a [u8]],
    /// The number of bytes behind `data` that cannot be read. A send that reaches them fails.
    pub unreadable: usize,
    /// The bytes of `msg_control`.
    pub control: &'a [u8],
    /// `MSG_MORE` and `MSG_DONTWAIT`; other flags are ignored.
    pub flags: u32,
    /// Whether the data comes from a splice or a sendfile, whose pages older kernels lend instead of copying.
    pub spliced: bool,
}

/// The result of a recvmsg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// Bytes written.
    pub len: usize,
    /// `MSG_TRUNC` or nothing, for `msg_flags`.
    pub flags: u32,
}
