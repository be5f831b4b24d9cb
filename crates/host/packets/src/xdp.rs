//! The XDP program that decides in the driver which frames of a gateway's interface bypass the stack.
//!
//! Only frames that are certainly ours do. Everything else (ARP, neighbour discovery, IKE, fragments, options, packets
//! for this host) goes to the stack as if the program were not there:
//!
//! ```text
//!  to our hardware address, IPv4 without options or IPv6 without extension headers, no fragment
//!    ESP, or UDP to 4500, whose (destination, SPI) is in `states`     ─▶ the queue's AF_XDP socket
//!    hop limit > 1, destination's prefix in `to`, source's in `from`  ─▶ the queue's AF_XDP socket
//!  else                                                               ─▶ the stack
//! ```
//!
//! Prefixes are stored so that two lookups decide. `to` maps the longest destination prefix of any policy to a number.
//! `from` tells for this number and the longest source prefix whether the first policy that matches both protects (the
//! gateway of the crate `ipsec`). Program and sockets go with their descriptors: if the daemon dies, the stack and its
//! rules get all frames again.

mod prefix;

pub use prefix::Prefix;

use super::bpf::map::{Kind as MapKind, Map};
use super::bpf::program::{If, Insn, Kind, Program, Size, bpf, load};
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The longest frame that is accepted, in bytes: more than an MTU of 3,000, less than a chunk without its headroom.
pub const MAX_FRAME: usize = 3200;
/// The most states; the same limit applies to prefixes.
pub const MAX_STATES: u32 = 131_072;
const MAX_PREFIXES: u32 = 131_072;

/// The lookup tables of the programs on a namespace's interfaces.
#[derive(Debug)]
pub struct Tables {
    states: Map,
    to: Map,
    from: Map,
}

fn to_key(prefix: Prefix) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&u32::from(prefix.prefix_len()).to_ne_bytes());
    key[4..].copy_from_slice(&prefix.bytes());
    key
}

fn from_key(number: u32, prefix: Prefix) -> [u8; 24] {
    let mut key = [0; 24];
    key[..4].copy_from_slice(&(u32::from(prefix.prefix_len()) + 32).to_ne_bytes());
    key[4..8].copy_from_slice(&number.to_ne_bytes());
    key[8..].copy_from_slice(&prefix.bytes());
    key
}

fn state_key(destination: IpAddr, spi: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&prefix::wide(destination).to_be_bytes());
    key[16..].copy_from_slice(&spi.to_be_bytes());
    key
}

impl Tables {
    /// Empty tables, with which the program takes no frames.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`.
    pub fn new() -> io::Result<Self> {
        Ok(Tables {
            states: Map::new(MapKind::Hash, 20, 1, MAX_STATES)?,
            to: Map::new(MapKind::LpmTrie, 20, 4, MAX_PREFIXES)?,
            from: Map::new(MapKind::LpmTrie, 24, 4, MAX_PREFIXES)?,
        })
    }

    /// Starts or stops to take an inbound state's packets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn state(&self, destination: IpAddr, spi: u32, taken: bool) -> io::Result<()> {
        let key = state_key(destination, spi);
        if taken { self.states.set(&key, &[1]) } else { self.states.remove(&key) }
    }

    /// Maps a destination prefix to a number; 0 leaves its packets to the stack, `None` removes the prefix.
    ///
    /// # Errors
    /// The kernel's.
    pub fn to(&self, prefix: Prefix, number: Option<u32>) -> io::Result<()> {
        let key = to_key(prefix);
        match number {
            Some(number) => self.to.set(&key, &number.to_ne_bytes()),
            None => self.to.remove(&key),
        }
    }

    /// Sets whether packets from a source prefix to the destination prefix with this number are taken; `None` removes
    /// the entry.
    ///
    /// # Errors
    /// The kernel's.
    pub fn from(&self, number: u32, prefix: Prefix, taken: Option<bool>) -> io::Result<()> {
        let key = from_key(number, prefix);
        match taken {
            Some(taken) => self.from.set(&key, &u32::from(taken).to_ne_bytes()),
            None => self.from.remove(&key),
        }
    }
}

/// The way in which a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver (`XDP_FLAGS_DRV_MODE`).
    Native = 1 << 2,
    /// Before the stack, for drivers without XDP support (`XDP_FLAGS_SKB_MODE`).
    Generic = 1 << 1,
}

/// The program on an interface, with the map of its sockets. It is detached with this value.
#[derive(Debug)]
pub struct Attached {
    sockets: Map,
    /// The way in which it is attached.
    pub mode: Mode,
    _link: OwnedFd,
}

impl Attached {
    /// Attaches the program to an interface of the calling thread's namespace with this hardware address. Queues
    /// without a socket leave everything to the stack.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` where another program is attached, `EOPNOTSUPP` or `EINVAL` where the driver does not
    /// support this mode, `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`.
    pub fn new(ifindex: u32, address: [u8; 6], queues: u32, tables: &Tables, mode: Mode) -> io::Result<Self> {
        #[repr(C)]
        struct LinkAttr {
            prog_fd: u32,
            target_ifindex: u32,
            attach_type: u32,
            flags: u32,
        }
        const BPF_LINK_CREATE: i32 = 28;
        const BPF_XDP: u32 = 37;
        use std::os::fd::AsRawFd;
        let sockets = Map::new(MapKind::Xsk, 4, 4, queues)?;
        let program = load(Kind::Xdp, "sealane_gateway", &program(address, tables, &sockets))?;
        let prog_fd = program.as_raw_fd() as u32;
        let attr = LinkAttr { prog_fd, target_ifindex: ifindex, attach_type: BPF_XDP, flags: mode as u32 };
        // SAFETY: plain values.
        let link = unsafe { bpf(BPF_LINK_CREATE, &attr)? };
        Ok(Attached { sockets, mode, _link: link })
    }

    /// Delivers a queue's frames to this socket from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set_socket(queue, socket)
    }
}

/// Assembles the program for an interface.
fn program(address: [u8; 6], tables: &Tables, sockets: &Map) -> Vec<Insn> {
    const CTX: u8 = 6;
    const DATA: u8 = 7;
    const END: u8 = 8;
    /// The register for the hop limit.
    const HOPS: u8 = 9;
    const FP: u8 = 10;
    const XDP_PASS: i32 = 2;
    const LOOKUP: i32 = 1;
    const REDIRECT_MAP: i32 = 51;
    // Fields of `struct xdp_md`.
    const MD_DATA: i16 = 0;
    const MD_END: i16 = 4;
    const MD_QUEUE: i16 = 16;
    // Offsets on the program's stack: keys of `to` (20 bytes), `from` (24), `states` (20).
    const TO: i16 = -24;
    const FROM: i16 = -48;
    const STATE: i16 = -72;
    const ETH: i16 = 14;
    let be16 = |value: u16| i32::from(value.to_be());
    let mut p = Program::new();
    // Jumps to "pass" unless the frame has `n` bytes.
    let have = |p: &mut Program, n: i16| {
        p.copy(2, DATA).add(2, i32::from(n)).jump_by(If::Gt, 2, END, "pass");
    };
    p.copy(CTX, 1).load(Size::Word, DATA, CTX, MD_DATA).load(Size::Word, END, CTX, MD_END);
    have(&mut p, ETH + 20 + 8);
    p.copy(2, DATA).add(2, MAX_FRAME as i32 + 1).jump_by(If::Le, 2, END, "pass");
    p.load(Size::Word, 2, DATA, 0).jump_unless_word(
        2,
        u32::from_ne_bytes([address[0], address[1], address[2], address[3]]),
        "pass",
    );
    p.load(Size::Half, 2, DATA, 4).jump(If::Ne, 2, i32::from(u16::from_ne_bytes([address[4], address[5]])), "pass");
    p.load(Size::Half, 2, DATA, 12).jump(If::Eq, 2, be16(0x86dd), "v6").jump(If::Ne, 2, be16(0x0800), "pass");

    // IPv4: no options, not a fragment.
    p.load(Size::Byte, 2, DATA, ETH).jump(If::Ne, 2, 0x45, "pass");
    p.load(Size::Half, 2, DATA, ETH + 6).jump(If::Set, 2, be16(0x3fff), "pass");
    p.load(Size::Byte, HOPS, DATA, ETH + 8);
    for (from, key) in [(ETH + 16, TO + 4), (ETH + 12, FROM + 8)] {
        p.load(Size::Word, 2, DATA, from).store(Size::Word, FP, key + 12, 2);
        p.store_value(Size::Word, FP, key, 0).store_value(Size::Word, FP, key + 4, 0);
        p.store_value(Size::Word, FP, key + 8, 0xffff_u32.to_be());
    }
    p.load(Size::Byte, 3, DATA, ETH + 9).jump(If::Eq, 3, 50, "esp4").jump(If::Ne, 3, 17, "forward");
    p.load(Size::Half, 2, DATA, ETH + 22).jump(If::Ne, 2, be16(4500), "forward");
    have(&mut p, ETH + 20 + 16);
    p.load(Size::Word, 4, DATA, ETH + 28).goto("state");
    p.label("esp4").load(Size::Word, 4, DATA, ETH + 20).goto("state");

    // IPv6: no extension headers that routers must process or that mean fragments.
    p.label("v6");
    have(&mut p, ETH + 40 + 8);
    p.load(Size::Byte, 2, DATA, ETH).and(2, 0xf0).jump(If::Ne, 2, 0x60, "pass");
    p.load(Size::Byte, HOPS, DATA, ETH + 7);
    for (from, key) in [(ETH + 24, TO + 4), (ETH + 8, FROM + 8)] {
        for word in [0, 4, 8, 12] {
            p.load(Size::Word, 2, DATA, from + word).store(Size::Word, FP, key + word, 2);
        }
    }
    p.load(Size::Byte, 3, DATA, ETH + 6);
    for header in [0, 43, 44, 60, 135] {
        p.jump(If::Eq, 3, header, "pass");
    }
    p.jump(If::Eq, 3, 50, "esp6").jump(If::Ne, 3, 17, "forward");
    p.load(Size::Half, 2, DATA, ETH + 42).jump(If::Ne, 2, be16(4500), "forward");
    have(&mut p, ETH + 40 + 16);
    p.load(Size::Word, 4, DATA, ETH + 48).goto("state");
    p.label("esp6").load(Size::Word, 4, DATA, ETH + 40);

    // Look up the state.
    p.label("state").store(Size::Word, FP, STATE + 16, 4);
    for word in [0, 4, 8, 12] {
        p.load(Size::Word, 2, FP, TO + 4 + word).store(Size::Word, FP, STATE + word, 2);
    }
    p.map(1, tables.states.fd()).copy(2, FP).add(2, i32::from(STATE)).call(LOOKUP).jump(If::Ne, 0, 0, "take");

    // Look up the destination. Packets whose hop limit ends here are left to the stack, which reports them.
    p.label("forward").jump(If::Le, HOPS, 1, "pass");
    p.store_value(Size::Word, FP, TO, 128);
    p.map(1, tables.to.fd()).copy(2, FP).add(2, i32::from(TO)).call(LOOKUP).jump(If::Eq, 0, 0, "pass");
    p.load(Size::Word, 2, 0, 0).jump(If::Eq, 2, 0, "pass").store(Size::Word, FP, FROM + 4, 2);
    p.store_value(Size::Word, FP, FROM, 32 + 128);
    p.map(1, tables.from.fd()).copy(2, FP).add(2, i32::from(FROM)).call(LOOKUP).jump(If::Eq, 0, 0, "pass");
    p.load(Size::Word, 2, 0, 0).jump(If::Eq, 2, 0, "pass");

    p.label("take").load(Size::Word, 2, CTX, MD_QUEUE).map(1, sockets.fd()).set(3, XDP_PASS).call(REDIRECT_MAP).exit();
    p.label("pass").set(0, XDP_PASS).exit();
    p.assemble()
}

#[cfg(test)]
mod tests;
