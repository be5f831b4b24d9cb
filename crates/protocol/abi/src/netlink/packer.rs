//! The datagrams of a netlink dump.

use zeroize::Zeroizing;

/// Packs messages into datagrams of a maximum length; a longer message gets a datagram of its own. The contents are
/// wiped on drop.
pub struct Packer {
    room: usize,
    datagrams: Vec<Zeroizing<Vec<u8>>>,
}

impl Packer {
    /// A packer for datagrams of `room` bytes.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Packer { room, datagrams: Vec::new() }
    }

    /// Appends a message.
    pub fn push(&mut self, message: &[u8]) {
        match self.datagrams.last_mut() {
            Some(last) if last.len() + message.len() <= self.room => last.extend_from_slice(message),
            _ => {
                // The capacity is reserved at once: a vector that grows leaves copies of keys behind.
                let mut datagram = Zeroizing::new(Vec::with_capacity(self.room.max(message.len())));
                datagram.extend_from_slice(message);
                self.datagrams.push(datagram);
            }
        }
    }

    /// The datagrams, in their order.
    #[must_use]
    pub fn finish(self) -> Vec<Zeroizing<Vec<u8>>> {
        self.datagrams
    }
}
