//! The privileges of a process that makes a call.

/// The caller of a socket's operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// Whether it has CAP_NET_ADMIN or CAP_SYS_ADMIN in the initial user namespace.
    pub privileged: bool,
}
