//! NFQUEUE: packets of the stack that wait for a verdict (`linux/netfilter/nfnetlink_queue.h`).
//!
//! Packets are read and judged in batches: verdicts are collected into one message, and one verdict at its end drops
//! all packets without one. A superframe is queued once, before segmentation (`NFQA_CFG_F_GSO`). The kernel drops
//! packets that do not fit into the queue or the socket, and never lets them pass (no `FAIL_OPEN`).

use sealane_abi::netlink as nl;
use sealane_sys::netlink::{Messages, Socket, errno};
use sealane_sys::transient;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;
use zerocopy::FromBytes;

/// The most packets that one call reads.
pub const BATCH: usize = 16;

/// Size of a message buffer in bytes: the longest packet has 65,531 bytes, its other attributes a few hundred.
const SLOT_LEN: usize = 66 << 10;

/// The longest packet that fits into an attribute, in bytes.
const MAX_PAYLOAD: usize = u16::MAX as usize - nl::NLA_HDRLEN;

/// The most packets that may wait for a verdict. The kernel limits those of one connection to two superframes (TSQ).
pub const MAX_WAITING: u32 = 8192;

/// Memory for messages that wait to be read, in bytes; the kernel counts allocated memory.
const RECEIVE_BUFFER: i32 = 64 << 20;

/// The same two limits for a queue of packets that anybody may send: enough for a burst, and little memory.
const STRANGERS: Room = Room { packets: 256, bytes: 1 << 20 };

/// The number of queue numbers that are tried to find a free one.
const TRIES: u16 = 64;

/// The most times that verdicts are sent, and the pause in between.
const SENDS: u32 = 10;
const PAUSE: Duration = Duration::from_micros(200);

const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;

/// Limits of a queue.
#[derive(Clone, Copy)]
struct Room {
    /// The most packets that may wait for a verdict.
    packets: u32,
    /// Memory for messages that wait to be read, in bytes.
    bytes: i32,
}

/// A packet that waits for its verdict.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The packet's number in the queue.
    pub id: u32,
    /// The device that it arrived at; 0 for an outgoing packet.
    pub in_device: u32,
    /// The device that it will leave through; 0 for an incoming packet.
    pub out_device: u32,
    /// Whether this is a superframe, which the device would have segmented.
    pub superframe: bool,
    /// Whether its transport checksum holds only the sum of the pseudo-header.
    pub partial_checksum: bool,
    /// The packet from its IP header on. Shorter than the IP header says if the kernel could not hand over all of it.
    pub bytes: &'a mut [u8],
}

/// The verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It passes unchanged.
    Accept,
    /// It passes with these bytes instead.
    Replace(&'a [u8]),
}

/// A queue in the namespace of the thread that opened it.
pub struct Queue {
    socket: Socket,
    number: u16,
    slots: Vec<u8>,
    /// The most packets that the next read is for: a read for more than there are takes longer.
    room: usize,
    /// Whether nothing was left behind the last read.
    is_drained: bool,
    /// Length of the message in each slot of the last batch.
    lens: [usize; BATCH],
    count: usize,
    verdicts: Messages,
    /// The number of packets of the batch that have a verdict.
    judged: usize,
    /// Whether verdicts could not be sent, so that packets of an earlier batch still wait.
    missed: bool,
    /// Number of the last packet read.
    last: Option<u32>,
    overruns: u64,
}

/// A queue's number that is taken, so that nobody else gets it. It is free again when this is dropped, or our process ends.
#[derive(Debug)]
pub struct Claim {
    _socket: Socket,
}

/// Takes the number of a queue in the calling thread's namespace, for a queue that no rule uses.
///
/// # Errors
/// `AddrInUse` when somebody has it; otherwise the kernel's.
pub fn claim(number: u16) -> io::Result<Claim> {
    let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
    match bind(&mut socket, number) {
        Err(e) if matches!(errno(&e), Some(libc::EBUSY | libc::EPERM)) => Err(io::ErrorKind::AddrInUse.into()),
        bound => bound.map(|()| Claim { _socket: socket }),
    }
}

impl Queue {
    /// Opens the first free queue at or after `first`; with `gso`, superframes are queued without segmentation.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP` where it lacks NFQUEUE, `EBUSY` when no queue is
    /// free.
    pub fn open(first: u16, gso: bool) -> io::Result<Self> {
        Self::open_with(first, gso, Room { packets: MAX_WAITING, bytes: RECEIVE_BUFFER })
    }

    /// Opens the first free queue at or after `first`, for packets that anybody may send: it is short.
    ///
    /// # Errors
    /// As [`Queue::open`].
    pub fn open_for_strangers(first: u16) -> io::Result<Self> {
        Self::open_with(first, false, STRANGERS)
    }

    fn open_with(first: u16, gso: bool, room: Room) -> io::Result<Self> {
        let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
        let mut number = first;
        while let Err(error) = bind(&mut socket, number) {
            let taken = matches!(errno(&error), Some(libc::EBUSY | libc::EPERM));
            if !taken || number - first == TRIES {
                return Err(error);
            }
            number = number.checked_add(1).ok_or(error)?;
        }
        let mut messages = Messages::new();
        configure(&mut messages, number, |a| {
            // struct nfqnl_msg_config_params: copy_range, copy_mode.
            let mut params = [0; 5];
            params[..4].copy_from_slice(&0xffffu32.to_be_bytes());
            params[4] = libc::NFQNL_COPY_PACKET as u8;
            a.put(libc::NFQA_CFG_PARAMS as u16, &params);
            a.be32(libc::NFQA_CFG_QUEUE_MAXLEN as u16, room.packets);
            if gso {
                a.be32(libc::NFQA_CFG_MASK as u16, libc::NFQA_CFG_F_GSO as u32);
                a.be32(libc::NFQA_CFG_FLAGS as u16, libc::NFQA_CFG_F_GSO as u32);
            }
        });
        socket.transact(&messages)?;
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, room.bytes)?;
        // Losses are counted by gaps in packet numbers; an error would only delay the packets that are there.
        socket.set(libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, 1)?;
        let (slots, lens) = (vec![0; BATCH * SLOT_LEN], [0; BATCH]);
        Ok(Queue {
            socket,
            number,
            slots,
            room: 1,
            is_drained: true,
            lens,
            count: 0,
            judged: 0,
            missed: false,
            verdicts: Messages::new(),
            last: None,
            overruns: 0,
        })
    }

    /// Returns the queue if it has this number, the first that was tried.
    ///
    /// # Errors
    /// `EBUSY` where somebody else has that queue.
    pub fn exactly(self, number: u16) -> io::Result<Self> {
        if self.number == number { Ok(self) } else { Err(io::Error::from_raw_os_error(libc::EBUSY)) }
    }

    /// Opens `count` free queues with consecutive numbers, the first at or after `first`.
    ///
    /// # Errors
    /// As [`Queue::open`].
    pub fn open_many(first: u16, count: usize, gso: bool) -> io::Result<Vec<Self>> {
        let mut queues: Vec<Queue> = Vec::with_capacity(count);
        let mut next = first;
        while queues.len() < count {
            let queue = Queue::open(next, gso)?;
            // The number in between is taken: start over after it.
            if queues.last().is_some_and(|last| last.number() + 1 != queue.number()) {
                queues.clear();
            }
            next = queue.number().checked_add(1).ok_or(io::ErrorKind::AddrNotAvailable)?;
            queues.push(queue);
        }
        Ok(queues)
    }

    /// Its number, for rules.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The number of packets that the kernel dropped because the socket was full.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Sets the memory for messages that wait to be read, in bytes.
    ///
    /// # Errors
    /// The kernel's.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_receive_buffer(&self, len: i32) -> io::Result<()> {
        self.socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, len)
    }

    /// Reads waiting packets, at most [`BATCH`], and returns their number; does not wait. More may wait: after a read of few it
    /// reads few, and the double of that when there were as many. The previous batch must have been judged.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&mut self) -> io::Result<usize> {
        (self.count, self.judged, self.is_drained) = (0, 0, true);
        self.verdicts.clear();
        let mut iovecs = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; BATCH];
        // SAFETY: all-zero is a valid `mmsghdr`.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { core::mem::zeroed() };
        for ((slot, iovec), header) in self.slots.chunks_exact_mut(SLOT_LEN).zip(&mut iovecs).zip(&mut headers) {
            *iovec = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT_LEN };
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each header points to one iovec over a slot of its own; all of them live until the call returns.
        let n = unsafe {
            libc::recvmmsg(
                self.socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                self.room as u32,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
            )
        };
        let Ok(n) = usize::try_from(n) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(0),
                _ => transient::counted(Err(error)),
            };
        };
        self.is_drained = n < self.room;
        self.room = room_after(self.room, n);
        // A message that is not a packet is an error about a late verdict: the packet is gone anyway.
        for (i, header) in headers.iter().enumerate().take(n) {
            let (start, len) = (i * SLOT_LEN, header.msg_len as usize);
            let Some(id) = packet_id(&self.slots[start..start + len.min(SLOT_LEN)]) else { continue };
            self.overruns += self.last.map_or(0, |last| u64::from(id.wrapping_sub(last).wrapping_sub(1)));
            self.last = Some(id);
            if self.count != i {
                self.slots.copy_within(start..start + len, self.count * SLOT_LEN);
            }
            self.lens[self.count] = len;
            self.count += 1;
        }
        Ok(self.count)
    }

    /// Whether nothing was left behind the last read; it may have been read up to the last packet without that.
    pub fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// The packets of the batch in order, and the collector of their verdicts.
    pub fn split(&mut self) -> (impl Iterator<Item = Packet<'_>>, Verdicts<'_>) {
        let slots = self.slots.chunks_exact_mut(SLOT_LEN).zip(self.lens).take(self.count);
        let verdicts = Verdicts {
            socket: &self.socket,
            messages: &mut self.verdicts,
            judged: &mut self.judged,
            missed: &mut self.missed,
            number: self.number,
        };
        (slots.filter_map(|(slot, len)| packet(&mut slot[..len])), verdicts)
    }

    /// Sends the verdicts, and drops all packets of the batch without one, and those of earlier batches whose verdicts could not be
    /// sent. To be called now and then without a batch, too: TCP repeats nothing that waits in a queue (`skb_still_in_host_queue` in
    /// `net/ipv4/tcp_output.c`), so no other packet may come.
    ///
    /// # Errors
    /// The kernel's.
    pub fn finish(&mut self) -> io::Result<()> {
        let (count, missed) = (core::mem::take(&mut self.count), core::mem::take(&mut self.missed));
        let Some(last) = self.last.filter(|_| count > 0 || missed) else { return Ok(()) };
        // The kernel reports an error if there is nothing to drop.
        if self.judged < count || missed {
            let type_ = (libc::NFNL_SUBSYS_QUEUE << 8 | libc::NFQNL_MSG_VERDICT_BATCH) as u16;
            self.verdicts.push(type_, 0, &head(self.number), |a| {
                a.put(libc::NFQA_VERDICT_HDR as u16, &verdict_header(NF_DROP, last));
            });
        }
        self.judged = 0;
        if self.verdicts.is_empty() {
            return Ok(());
        }
        give_verdicts(&self.socket, &mut self.verdicts, &mut self.missed)
    }
}

/// Sends verdicts; a few times, where the kernel has no memory for them. Packets whose verdicts could not be sent are
/// dropped by the next [`Queue::finish`].
fn give_verdicts(socket: &Socket, verdicts: &mut Messages, missed: &mut bool) -> io::Result<()> {
    let mut sent = socket.send(verdicts);
    for _ in 1..SENDS {
        match &sent {
            Err(e) if transient::is(e) => std::thread::sleep(PAUSE),
            _ => break,
        }
        sent = socket.send(verdicts);
    }
    *missed |= sent.is_err();
    verdicts.clear();
    sent
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("number", &self.number).field("overruns", &self.overruns).finish_non_exhaustive()
    }
}

/// Collects verdicts of a batch while its packets are borrowed.
pub struct Verdicts<'a> {
    socket: &'a Socket,
    messages: &'a mut Messages,
    judged: &'a mut usize,
    missed: &'a mut bool,
    number: u16,
}

impl Verdicts<'_> {
    /// Sends the verdicts so far, so that packets sent in other ways next come after these.
    ///
    /// # Errors
    /// The kernel's.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.messages.is_empty() {
            return Ok(());
        }
        give_verdicts(self.socket, self.messages, self.missed)
    }

    /// Sets the verdict of a packet of the batch, once. Verdicts take effect with [`Queue::finish`], in the order in
    /// which they were given.
    pub fn judge(&mut self, id: u32, verdict: Verdict<'_>) {
        // A packet that does not fit into an attribute is lost, like one that does not fit into the queue.
        if matches!(verdict, Verdict::Replace(bytes) if bytes.len() > MAX_PAYLOAD) {
            return;
        }
        *self.judged += 1;
        let type_ = (libc::NFNL_SUBSYS_QUEUE << 8 | libc::NFQNL_MSG_VERDICT) as u16;
        self.messages.push(type_, 0, &head(self.number), |a| {
            a.put(libc::NFQA_VERDICT_HDR as u16, &verdict_header(NF_ACCEPT, id));
            if let Verdict::Replace(bytes) = verdict {
                a.put(libc::NFQA_PAYLOAD as u16, bytes);
            }
        });
    }
}

/// The number of packets that a read should be for, after one for `room` that found `n`.
fn room_after(room: usize, n: usize) -> usize {
    if n < room { n.max(1) } else { BATCH.min(2 * room) }
}

/// `struct nfgenmsg`: its resource is the queue.
fn head(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [libc::AF_UNSPEC as u8, 0, high, low]
}

/// `struct nfqnl_msg_verdict_hdr`.
fn verdict_header(verdict: u32, id: u32) -> [u8; 8] {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&verdict.to_be_bytes());
    header[4..].copy_from_slice(&id.to_be_bytes());
    header
}

fn configure(messages: &mut Messages, number: u16, attributes: impl FnOnce(&mut sealane_sys::netlink::Attributes<'_>)) {
    let type_ = (libc::NFNL_SUBSYS_QUEUE << 8 | libc::NFQNL_MSG_CONFIG) as u16;
    messages.push(type_, nl::NLM_F_ACK, &head(number), attributes);
}

/// Binds the queue `number` to this socket.
fn bind(socket: &mut Socket, number: u16) -> io::Result<()> {
    let mut messages = Messages::new();
    configure(&mut messages, number, |a| {
        // struct nfqnl_msg_config_cmd: command, padding, pf.
        a.put(libc::NFQA_CFG_CMD as u16, &[libc::NFQNL_CFG_CMD_BIND as u8, 0, 0, 0]);
    });
    socket.transact(&messages)
}

/// The attributes of a packet's message: their types and the ranges of their payloads.
fn attributes(message: &[u8]) -> impl Iterator<Item = (i32, core::ops::Range<usize>)> + use<'_> {
    let mut at = nl::NLMSG_HDRLEN + 4;
    core::iter::from_fn(move || {
        let (head, _) = nl::Nlattr::read_from_prefix(message.get(at..)?).ok()?;
        let (start, end) = (at + nl::NLA_HDRLEN, at + usize::from(head.nla_len));
        if end < start || end > message.len() {
            return None;
        }
        at += nl::align(usize::from(head.nla_len));
        Some((i32::from(head.nla_type & nl::NLA_TYPE_MASK), start..end))
    })
}

/// The number of the packet in a message; `None` for other kinds of messages.
fn packet_id(message: &[u8]) -> Option<u32> {
    let (header, _) = nl::Nlmsghdr::read_from_prefix(message).ok()?;
    if i32::from(header.nlmsg_type) != libc::NFNL_SUBSYS_QUEUE << 8 | libc::NFQNL_MSG_PACKET {
        return None;
    }
    let (_, range) = attributes(message).find(|(type_, _)| *type_ == libc::NFQA_PACKET_HDR)?;
    be32(&message[range])
}

fn be32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Parses a packet's message.
fn packet(message: &mut [u8]) -> Option<Packet<'_>> {
    let id = packet_id(message)?;
    let (mut in_device, mut out_device, mut info, mut payload) = (0, 0, 0, 0..0);
    for (type_, range) in attributes(message) {
        let number = || be32(&message[range.clone()]).unwrap_or(0);
        match type_ {
            libc::NFQA_IFINDEX_INDEV => in_device = number(),
            libc::NFQA_IFINDEX_OUTDEV => out_device = number(),
            libc::NFQA_SKB_INFO => info = number() as i32,
            libc::NFQA_PAYLOAD => payload = range,
            _ => {}
        }
    }
    let (superframe, partial_checksum) = (info & libc::NFQA_SKB_GSO != 0, info & libc::NFQA_SKB_CSUMNOTREADY != 0);
    Some(Packet { id, in_device, out_device, superframe, partial_checksum, bytes: &mut message[payload] })
}

#[cfg(test)]
mod tests;
