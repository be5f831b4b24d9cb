//! Marks of packets, by which rules, routes and filters know them.

use super::random;

/// The marks (`SO_MARK`) of TCP-AO's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks(u32);

impl Marks {
    /// Draws marks that nobody can guess.
    pub fn draw() -> Self {
        let mut bytes = [0; 4];
        random::fill(&mut bytes);
        // Bits by which IPsec leads packets to its device stay clear, and no mark is 0.
        Marks::new(u32::from_ne_bytes(bytes) & 0x0fff_ffff | 0x4000_0000)
    }

    /// Three marks from `base`, whose two lower bits are ignored.
    pub const fn new(base: u32) -> Self {
        Marks(base & !3)
    }

    /// The mark of outgoing signed packets.
    pub const fn signed(self) -> u32 {
        self.0
    }

    /// The mark of outgoing signed packets from whose frames the link header is learnt.
    pub const fn learn(self) -> u32 {
        self.0 | 1
    }

    /// The mark of incoming verified packets.
    pub const fn verified(self) -> u32 {
        self.0 | 2
    }
}

/// Bits of the marks by which IPsec leads packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// Set in packets that must go to a TUN device.
    pub protect: u32,
    /// The number of that TUN device; 0 is the one of the stack's path.
    pub device: u32,
    /// The mark of our own packets, to which no policy applies; its two lower bits are ignored.
    pub exempt: u32,
    /// The mark of programs' sockets that policies of their own exempt; [`Bits::PROGRAM_IN`] and [`Bits::PROGRAM_OUT`] tell
    /// in which directions.
    pub programs: u32,
}

/// The marks and the priority by which rules know opened packets that come in by the device that they came by sealed.
///
/// Such a packet begins its way through the stack with one of these marks. Rules give it the mark that it would have in Linux, and the
/// priority (`skb->priority`) in the place of ours: nobody else sets that on a packet that has not been routed, and devices of others
/// clear it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The mark of a packet without one. That of a packet whose own is in its frame is [`Opened::marked`].
    pub plain: u32,
    /// The priority.
    pub priority: u32,
}

impl Opened {
    /// The bit in which the two marks differ.
    pub const MARKED: u32 = 1;

    /// Draws marks and a priority that nobody can guess.
    pub fn draw() -> Self {
        loop {
            let mut bytes = [0; 8];
            random::fill(&mut bytes);
            let [mark, priority] = [0, 4].map(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i])));
            // Packets of others have neither a mark nor a priority, or small ones.
            if mark.min(priority) > 0xffff {
                return Opened { plain: mark & !Opened::MARKED, priority };
            }
        }
    }

    /// The mark of a packet whose own is in its frame.
    pub const fn marked(self) -> u32 {
        self.plain | Opened::MARKED
    }
}

/// A bit that every exempt mark has: none is 0, which packets without a mark have.
const EXEMPT: u32 = 0x4000_0000;

impl Bits {
    /// Bits with exempt marks that were drawn.
    pub fn new(exempt: u32, programs: u32) -> Self {
        Bits { exempt: exempt & !3, programs: programs & !3, ..Bits::WITHOUT_EXEMPT }
    }

    /// In the mark of a program's socket: no policy covers what comes to it.
    pub const PROGRAM_IN: u32 = 1;
    /// In the mark of a program's socket: no policy covers what it sends.
    pub const PROGRAM_OUT: u32 = 2;

    /// Bits that exempt nothing.
    const WITHOUT_EXEMPT: Bits = Bits { protect: 0x2000_0000, device: 0x1c00_0000, exempt: 0, programs: 0 };

    /// Draws an exempt mark, which nobody can guess. It does not lead to a TUN device.
    pub fn draw() -> u32 {
        let mut bytes = [0; 4];
        random::fill(&mut bytes);
        u32::from_ne_bytes(bytes) & !Bits::WITHOUT_EXEMPT.protect | EXEMPT
    }

    /// Whether a number could have been drawn.
    pub fn is_drawn(mark: u32) -> bool {
        mark & (Bits::WITHOUT_EXEMPT.protect | EXEMPT) == EXEMPT
    }

    /// The highest device number. Those above it are of no device of their own ([`Bits::perhaps_bound`], [`Bits::nowhere`]).
    pub fn last_device(self) -> u8 {
        self.perhaps_bound_number() - 1
    }

    /// The number of [`Bits::perhaps_bound`].
    pub(crate) fn perhaps_bound_number(self) -> u8 {
        (self.device >> self.device.trailing_zeros()) as u8 - 1
    }

    /// The mark bits that lead to the device of the stack's path, or, where the sender has asked for another device, the way that the packet
    /// would take without them.
    pub fn perhaps_bound(self) -> u32 {
        self.to_device(self.perhaps_bound_number())
    }

    /// The mark bits with which no route leads to a device that is asked for by name.
    pub fn nowhere(self) -> u32 {
        self.protect | self.device
    }

    /// The priority of packets that are to be sealed as they leave. It is drawn with the mark of programs' sockets, which the next daemon
    /// has as well: packets may wait in the kernel meanwhile.
    pub fn late(self) -> u32 {
        self.programs | Bits::PROGRAM_IN | Bits::PROGRAM_OUT
    }

    /// The mark of a packet without the bits by which we lead it, which a mark of others loses on the way.
    pub fn without_way(self, mark: u32) -> u32 {
        mark & !(self.protect | self.device)
    }

    /// The mark bits that lead to a device.
    pub fn to_device(self, number: u8) -> u32 {
        self.protect | (u32::from(number) << self.device.trailing_zeros()) & self.device
    }
}
