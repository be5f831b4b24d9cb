//! The result of sending packets.

/// The result of sending a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Packets that the kernel took.
    pub taken: usize,
    /// Packets that it refused: no route, too long for the device, or no room.
    pub refused: usize,
}
