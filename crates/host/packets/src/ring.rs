//! Incoming packets of one device: an `AF_PACKET` ring that the kernel fills and that is read without system calls.
//!
//! Version 2 of the ring wakes its reader at every packet. Version 3 waits for a full block or for a timer of a jiffy
//! (4 ms), which is too slow for request-response traffic. The kernel fills the ring before it runs the device's
//! `ingress` hook, so that a rule there (of the crate `rules`) can drop packets that the ring has seen.

use super::shard::Shard;
use rustix::net::sockopt::socket_error;
use sealane_sys::cbpf::Size::{Byte, Half, Word};
use sealane_sys::cbpf::{ALL, NEXT, Program, SKF_AD_MARK, SKF_AD_PKTTYPE, SKF_AD_PROTOCOL, SKF_AD_VLAN_TAG_PRESENT};
use sealane_sys::mapping::Mapping;
use sealane_sys::marks::Marks;
use sealane_sys::socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Frames in a ring: 10 ms of full segments at 5 Gbit/s.
const FRAMES: u32 = 4096;
/// The most frames of any ring.
pub const MAX_FRAMES: usize = FRAMES as usize;
/// The most memory of a ring in bytes: with jumbo frames it has fewer of them.
const MAX_RING: u32 = 16 << 20;

/// Bytes before the packet in a frame: `tpacket2_hdr`, `sockaddr_ll` and the link header, aligned, with some reserve.
const OVERHEAD: u32 = 128;

/// `tpacket2_hdr` without padding: the fields after it are read once and may then be overwritten.
const HEADER_LEN: usize = 32;

/// Writable bytes in front of a packet in a ring, where `sockaddr_ll` and the link header are.
pub const ROOM: usize = 40;

/// Length of an Ethernet header.
pub const LINK_HEADER_LEN: usize = 14;

/// Bytes kept of an outgoing packet of ours: enough for its headers.
const LEARN_LEN: u32 = 160;

/// `struct tpacket_req`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TpacketReq {
    block_size: u32,
    block_nr: u32,
    frame_size: u32,
    frame_nr: u32,
}

/// `struct tpacket2_hdr`, after its status.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tpacket2Hdr {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
}

const PACKET_RX_RING: i32 = 5;
const PACKET_STATISTICS: i32 = 6;
const PACKET_VERSION: i32 = 10;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const TPACKET_V2: i32 = 1;
const TP_STATUS_KERNEL: u32 = 0;
const TP_STATUS_USER: u32 = 1;
const TP_STATUS_CSUMNOTREADY: u32 = 1 << 3;
const PACKET_HOST: u32 = 0;
const PACKET_OUTGOING: u32 = 4;

/// A packet in the ring.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Its position, for [`Ring::bytes`]; increases without end.
    pub number: u64,
    /// Whether this is the start of an outgoing packet of ours, with mark [`Marks::learn`].
    pub leaves: bool,
    /// Whether its transport checksum holds only the sum of the pseudo-header.
    pub partial_checksum: bool,
    /// Whether the frame was too long for the ring and is cut off.
    pub truncated: bool,
    /// The link header.
    pub link: [u8; LINK_HEADER_LEN],
    /// The writable memory: the packet, and at least [`ROOM`] bytes in front of it.
    buffer: &'a mut [u8],
    packet: core::ops::Range<usize>,
}

impl<'a> Frame<'a> {
    /// The packet from its IP header on.
    pub fn packet(&self) -> &[u8] {
        &self.buffer[self.packet.clone()]
    }

    /// The packet from its IP header on.
    pub fn into_packet(self) -> &'a mut [u8] {
        &mut self.buffer[self.packet]
    }

    /// The packet with the writable memory around it, and its range in that.
    pub fn into_buffer(self) -> (&'a mut [u8], core::ops::Range<usize>) {
        (self.buffer, self.packet)
    }
}

/// The ring of one device.
pub struct Ring {
    fd: OwnedFd,
    device: u32,
    map: Mapping,
    frame_len: usize,
    /// The next frame to read.
    next: u64,
    /// The oldest frame that has not been released.
    held: u64,
    drops: u64,
}

impl Ring {
    /// Opens the ring of an Ethernet device in the calling thread's namespace, for packets up to `mtu` bytes. It
    /// receives unfragmented TCP segments whose first option is TCP-AO's, if they are for this host or are outgoing
    /// ones of ours with mark [`Marks::learn`].
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_RAW`, `ENOMEM`, `ENODEV`.
    pub fn open(device: u32, mtu: u32, marks: Marks) -> io::Result<Self> {
        Ring::filtered(device, mtu, &filter(marks.learn()), false)
    }

    /// Opens the ring of an Ethernet device for ESP packets to this host, of up to `mtu` bytes, unfragmented and
    /// without IP options or extension headers, for the states of one worker.
    ///
    /// # Errors
    /// As [`Ring::open`]; `ENOPROTOOPT` before Linux 4.20.
    pub fn open_esp(device: u32, mtu: u32, shard: Shard) -> io::Result<Self> {
        Ring::filtered(device, mtu, &esp_filter(shard), true)
    }

    /// Opens a ring; with `only_in`, outgoing packets are not even filtered.
    fn filtered(device: u32, mtu: u32, filter: &[libc::sock_filter], only_in: bool) -> io::Result<Self> {
        // With protocol 0 the socket does not receive yet.
        let fd = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        socket::set_option(fd.as_fd(), libc::SOL_PACKET, PACKET_VERSION, &TPACKET_V2)?;
        if only_in {
            socket::set_option(fd.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32)?;
        }
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        let frame_len = (mtu + OVERHEAD).next_power_of_two().max(2048);
        let block = frame_len.max(1 << 16);
        let frames = FRAMES.min(MAX_RING / frame_len);
        let request = TpacketReq {
            block_size: block,
            block_nr: frames / (block / frame_len),
            frame_size: frame_len,
            frame_nr: frames,
        };
        socket::set_option(fd.as_fd(), libc::SOL_PACKET, PACKET_RX_RING, &request)?;
        let map = Mapping::of(&fd, 0, frames as usize * frame_len as usize)?;
        socket::bind_to_device(fd.as_fd(), libc::ETH_P_ALL as u16, device)?;
        Ok(Ring { fd, device, map, frame_len: frame_len as usize, next: 0, held: 0, drops: 0 })
    }

    /// The index of the device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// The longest packet that fits into a frame, in bytes.
    pub fn max_packet(&self) -> u32 {
        self.frame_len as u32 - OVERHEAD
    }

    /// Length of a frame including everything before the packet, in bytes.
    pub fn frame_len(&self) -> usize {
        self.frame_len
    }

    /// Hands the next packets, at most `max`, to `each` and returns their number. Their frames stay ours until
    /// [`Ring::release`]. Does not wait.
    pub fn read<'a>(&'a mut self, max: usize, mut each: impl FnMut(Frame<'a>)) -> usize {
        let frames = (self.map.len() / self.frame_len) as u64;
        let mut count = 0;
        while count < max && self.next - self.held < frames {
            let at = (self.next % frames) as usize * self.frame_len;
            // SAFETY: a frame within the mapping, aligned to its own length; the status is shared with the kernel.
            let status =
                unsafe { AtomicU32::from_ptr(self.map.start().as_ptr().add(at).cast()) }.load(Ordering::Acquire);
            if status & TP_STATUS_USER == 0 {
                break;
            }
            // SAFETY: as above. The kernel has handed this frame to us and does not touch it before it is released, and
            // each frame is handed out once until then: the slices do not overlap, and live no longer than the mapping.
            let frame: &'a mut [u8] =
                unsafe { core::slice::from_raw_parts_mut(self.map.start().as_ptr().add(at), self.frame_len) };
            if let Some(frame) = parse(self.next, status, frame) {
                each(frame);
            }
            self.next += 1;
            count += 1;
        }
        count
    }

    /// Bytes of a packet that has been read and not released.
    ///
    /// # Panics
    /// When it has been released, or is shorter.
    pub fn bytes(&self, number: u64, range: core::ops::Range<usize>) -> &[u8] {
        assert!((self.held..self.next).contains(&number), "the frame is ours");
        let frames = (self.map.len() / self.frame_len) as u64;
        let at = (number % frames) as usize * self.frame_len;
        // SAFETY: the frame is ours until it is released, which needs `&mut self`.
        let frame = unsafe { core::slice::from_raw_parts(self.map.start().as_ptr().add(at), self.frame_len) };
        let net = usize::from(u16::from_ne_bytes([frame[14], frame[15]]));
        &frame[net..][range]
    }

    /// Releases the frames before `number` to the kernel; later ones of [`Ring::read`] stay ours.
    ///
    /// # Panics
    /// When `number` has not been read.
    pub fn release(&mut self, number: u64) {
        assert!(number <= self.next, "only what has been read is given back");
        let frames = (self.map.len() / self.frame_len) as u64;
        while self.held < number {
            let at = (self.held % frames) as usize * self.frame_len;
            // SAFETY: as in `read`; no slice of the frame is alive, because this needs `&mut self`.
            let status = unsafe { AtomicU32::from_ptr(self.map.start().as_ptr().add(at).cast()) };
            status.store(TP_STATUS_KERNEL, Ordering::Release);
            self.held += 1;
        }
    }

    /// The number of the next packet.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The number of packets that did not fit into the ring since it was opened.
    pub fn drops(&mut self) -> u64 {
        // `struct tpacket_stats`. Reading resets the counters.
        let stats = socket::option(self.fd.as_fd(), libc::SOL_PACKET, PACKET_STATISTICS);
        let [_packets, drops]: [u32; 2] = stats.unwrap_or_default();
        self.drops += u64::from(drops);
        self.drops
    }

    /// Whether the device is gone or down. The socket reports that only once.
    pub fn failed(&self) -> bool {
        socket_error(&self.fd) != Ok(Ok(()))
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Parses a frame; `None` if it does not hold a packet.
fn parse(number: u64, status: u32, frame: &mut [u8]) -> Option<Frame<'_>> {
    // SAFETY: plain numbers, at the front of a frame that is longer.
    let header = unsafe { frame.as_ptr().cast::<Tpacket2Hdr>().read() };
    let (mac, net, snaplen) = (usize::from(header.mac), usize::from(header.net), header.snaplen as usize);
    // `sockaddr_ll` follows the header at the next multiple of 16 bytes; its packet type is at 10.
    const PKTTYPE_AT: usize = HEADER_LEN + 10;
    let leaves = u32::from(*frame.get(PKTTYPE_AT)?) == PACKET_OUTGOING;
    let link = frame.get(mac..net)?.first_chunk().copied()?;
    let end = mac + snaplen;
    if net < HEADER_LEN + ROOM || end < net || end > frame.len() {
        return None;
    }
    let buffer = &mut frame[HEADER_LEN..];
    Some(Frame {
        number,
        leaves,
        partial_checksum: status & TP_STATUS_CSUMNOTREADY != 0,
        truncated: !leaves && header.len > header.snaplen,
        link,
        buffer,
        packet: net - HEADER_LEN..end - HEADER_LEN,
    })
}

/// The filter of a TCP ring: the conditions of a device's chain in the rules of TCP-AO, and those for outgoing packets
/// of ours.
fn filter(learn: u32) -> Vec<libc::sock_filter> {
    use libc::{BPF_AND, BPF_JEQ, BPF_JGE, BPF_JSET, BPF_LSH};
    /// The scratch word for the number of bytes kept of the packet.
    const KEPT: u32 = 0;
    let mut program = Program::new();
    program.set(ALL).store(KEPT);
    program.load(Word, SKF_AD_PKTTYPE);
    program.jump(BPF_JEQ, PACKET_HOST, "tagged", NEXT).jump(BPF_JEQ, PACKET_OUTGOING, NEXT, "no");
    program.load(Word, SKF_AD_MARK).jump(BPF_JEQ, learn, NEXT, "no");
    program.set(LEARN_LEN).store(KEPT);
    // A packet with a VLAN tag belongs to another device, which sees it without the tag.
    program.label("tagged").load(Word, SKF_AD_VLAN_TAG_PRESENT).jump(BPF_JEQ, 0, NEXT, "no");
    program.load(Word, SKF_AD_PROTOCOL).jump(BPF_JEQ, libc::ETH_P_IP as u32, NEXT, "v6");
    program.load_net(Half, 6).jump(BPF_JSET, 0x3fff, "no", NEXT);
    program.load_net(Byte, 9).jump(BPF_JEQ, libc::IPPROTO_TCP as u32, NEXT, "no");
    program.load_net(Byte, 0).alu(BPF_AND, 0xf).alu(BPF_LSH, 2).copy_to_x();
    // Always jumps: the length of a header is not 0.
    program.jump(BPF_JEQ, 0, "no", "tcp");
    program.label("v6").jump(BPF_JEQ, libc::ETH_P_IPV6 as u32, NEXT, "no");
    program.load_net(Byte, 6).jump(BPF_JEQ, libc::IPPROTO_TCP as u32, NEXT, "no").set_x(40);
    program.label("tcp").load_net_at_x(Byte, 12).jump(BPF_JGE, 0x60, NEXT, "no");
    program.load_net_at_x(Byte, 20).jump(BPF_JEQ, 29, NEXT, "no");
    program.recall(KEPT).ret_a();
    program.label("no").ret(0);
    program.assemble()
}

/// The filter of an ESP ring: the packet conditions of the rules at ingress, for any address.
fn esp_filter(shard: Shard) -> Vec<libc::sock_filter> {
    use libc::{BPF_JEQ, BPF_JSET};
    let mut program = Program::new();
    program.load(Word, SKF_AD_PKTTYPE).jump(BPF_JEQ, PACKET_HOST, NEXT, "no");
    program.load(Word, SKF_AD_VLAN_TAG_PRESENT).jump(BPF_JEQ, 0, NEXT, "no");
    program.load(Word, SKF_AD_PROTOCOL).jump(BPF_JEQ, libc::ETH_P_IP as u32, NEXT, "v6");
    program.load_net(Byte, 0).jump(BPF_JEQ, 0x45, NEXT, "no");
    program.load_net(Half, 6).jump(BPF_JSET, 0x3fff, "no", NEXT);
    program.load_net(Byte, 9).jump(BPF_JEQ, libc::IPPROTO_ESP as u32, NEXT, "no");
    program.load_net(Word, 20).goto("spi");
    program.label("v6").jump(BPF_JEQ, libc::ETH_P_IPV6 as u32, NEXT, "no");
    program.load_net(Byte, 6).jump(BPF_JEQ, libc::IPPROTO_ESP as u32, NEXT, "no");
    program.load_net(Word, 40).goto("spi");
    program.label("no").ret(0);
    program.label("spi");
    shard.keep(&mut program);
    program.assemble()
}

#[cfg(test)]
mod tests;
