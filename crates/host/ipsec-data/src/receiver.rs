//! The receiving end of a worker: frames of the stack from the queue of its device, datagrams of the wire from
//! sockets. Packets of rings are read in [`crate::bypass::fast_in`].

use crate::bypass::fast_in::{FastIn, MAX_DEVICES, RawVerdict};
use crate::flight::{Arrival, ROOM, described_copy, slot_len};
use crate::lane::{Frame, Intake, Lane, NextFrame, Parcel};
use crate::late::Source;
use crate::ports::Ports;
use crate::shared::Shared;
use crate::sockets::SocketId;
use crate::tables::Tables;
use crate::wire::superframe;
use arrayvec::ArrayVec;
use core::ops::Range;
use sealane_engine_xfrm::data::{BURST, Run};
use sealane_net_ipsec::open::Inbound;
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::seal::Outbound;
use sealane_packets::esp::{RawEsp, Received};
use sealane_packets::outgoing::Origin;
use sealane_wire::gso::Cutter;
use sealane_wire::outer::OuterHeader;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most descriptors that a worker waits for: those of a packet core, which reads what all workers of a stack do
/// otherwise, and some.
pub(crate) const FDS: usize = 128;
/// Room for an outbound packet at least: short ones may be padded.
const LEAST: usize = 1536;
/// The longest superframe or packet that a socket gives, in bytes.
const READ_LEN: usize = 65_536;
const ESP: u8 = 50;

/// The most UDP sockets that a thread with so many raw ones can wait for, beside its waker, its queue, addresses,
/// connections for ESP in TCP and rings.
pub(crate) fn most_udp(raw: usize) -> usize {
    FDS.saturating_sub(4 + MAX_DEVICES + raw)
}

/// A burst of packets of the stack.
pub(crate) struct Frames {
    /// The CPU of their queue.
    pub(crate) cpu: u32,
    /// The device that they were about to leave by; 0 for those that were routed here.
    pub(crate) device: u32,
    /// Whether there may be more.
    pub(crate) more: bool,
}

/// The receiving end of a worker.
pub(crate) struct Receiver {
    source: Source,
    intake: Intake,
    /// The frame that is being cut into packets, and where it comes from.
    cutting: Option<(Range<usize>, Cutter, Origin)>,
    raw: Vec<Arc<RawEsp>>,
    /// Datagrams that a socket gave and that the burst had no room for, or that are to be copied.
    received: Box<[u8]>,
    pending: Option<(SocketId, Received, usize)>,
    /// The rings of devices, where the kernel can have them.
    pub(crate) fast: Option<FastIn>,
}

impl Receiver {
    /// Reads a queue of a device, parcels of the other workers by `lane`, and raw sockets; and rings, if there are any.
    pub(crate) fn new(source: Source, lane: Option<Lane>, raw: Vec<Arc<RawEsp>>, fast: Option<FastIn>) -> Self {
        let (received, intake) = (vec![0; READ_LEN].into(), Intake::new(lane));
        Receiver { source, intake, cutting: None, raw, received, pending: None, fast }
    }

    /// The raw sockets.
    pub(crate) fn raw(&self) -> &[Arc<RawEsp>] {
        &self.raw
    }

    /// The queue, unless other workers have no room for what is theirs: then nothing is read.
    pub(crate) fn queue(&self) -> Option<BorrowedFd<'_>> {
        (!self.intake.is_held()).then(|| self.source.as_fd())
    }

    /// Parcels of other workers, and parcels that wait to be handed over to them.
    pub(crate) fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Whether a frame is being cut.
    pub(crate) fn is_cutting(&self) -> bool {
        self.cutting.is_some()
    }

    /// The socket whose datagrams wait to be taken up, which goes first.
    pub(crate) fn pending(&self) -> Option<SocketId> {
        self.pending.map(|(socket, ..)| socket)
    }

    /// Fills a burst with packets of the stack, cut to their length. `runs` says which of them, one behind another, are
    /// of one frame. Returns what they have in common.
    ///
    /// # Errors
    /// The device's, which is gone then.
    pub(crate) fn frames<'b>(
        &mut self,
        shared: &Shared,
        tables: &mut Tables,
        buffer: &'b mut [u8],
        packets: &mut ArrayVec<Outbound<'b>, BURST>,
        runs: &mut ArrayVec<Run, BURST>,
    ) -> io::Result<Frames> {
        let Receiver { source, intake, cutting, .. } = self;
        let mut rest = buffer;
        let mut fresh = true;
        let mut more = true;
        let mut cpu = intake.cpu();
        let mut device = cutting.as_ref().map_or(0, |(.., origin)| origin.device);
        let mut most = BURST;
        while packets.len() < most {
            if cutting.is_none() {
                let begun = (!packets.is_empty()).then_some((cpu, device));
                let owners =
                    |lane: &Lane, parcel: &Parcel| tables.owners(shared, lane.index(), lane.of(), parcel.packets());
                let Frame { range, offload, origin } = match intake.next(source, begun, owners)? {
                    NextFrame::Frame(frame) => frame,
                    NextFrame::Other => break,
                    NextFrame::Nothing => {
                        more = false;
                        break;
                    }
                };
                (cpu, device) = (intake.cpu(), origin.device);
                fresh = true;
                match Cutter::new(&mut intake.buffer()[range.clone()], &offload) {
                    Ok(cutter) => *cutting = Some((range, cutter, origin)),
                    Err(_) => {
                        shared.counters.malformed.fetch_add(1, Relaxed);
                        continue;
                    }
                }
            }
            let Some((range, cutter, origin)) = cutting else { break };
            let Some(len) = cutter.next_len() else {
                *cutting = None;
                continue;
            };
            let need = HEADROOM + len.max(LEAST) + TAILROOM;
            if need > rest.len() {
                break;
            }
            let (slot, others) = core::mem::take(&mut rest).split_at_mut(need);
            rest = others;
            if packets.is_empty() {
                // Further packets would leave as a small superframe of their own.
                most = superframe(len).clamp(1, BURST);
            }
            cutter.next(&intake.buffer()[range.clone()], &mut slot[HEADROOM..HEADROOM + len]);
            let packet = Packet::new(slot, HEADROOM, HEADROOM + len);
            packets.push(Outbound { by_socket: true, ..Outbound::new(SaId::NONE, packet) });
            if core::mem::take(&mut fresh) {
                let mark = shared.bits.without_way(origin.mark);
                runs.push(Run { packets: 1, mark, ifindex: origin.device as i32 });
            } else if let Some(run) = runs.last_mut() {
                run.packets += 1;
            }
        }
        Ok(Frames { cpu, device, more })
    }

    /// Fills a burst with packets of a socket, and returns whether there may be more. Pending datagrams of another
    /// socket go first.
    ///
    /// They are opened where they were received: a superframe of UDP is cut into the datagrams that it has, without
    /// headers. Where there are states that write a header in front of what they open, its datagrams are copied, with
    /// room between them.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn datagrams<'b>(
        &mut self,
        shared: &Shared,
        ports: &Ports,
        socket: SocketId,
        buffer: &'b mut [u8],
        packets: &mut ArrayVec<Inbound<'b>, BURST>,
        arrivals: &mut ArrayVec<Arrival, BURST>,
    ) -> io::Result<bool> {
        let len = buffer.len();
        let mut rest = buffer;
        let in_place = matches!(socket, SocketId::Raw(_)) || shared.has_only_tunnels();
        while !packets.is_full() {
            let count = match self.pending {
                Some((of, ..)) if of != socket => return Ok(false),
                Some((_, read, at)) => {
                    let at = self.copy(shared, ports, read, at, (&mut rest, len), packets, arrivals);
                    self.pending = (at < read.len).then_some((socket, read, at));
                    if self.pending.is_some() {
                        return Ok(true);
                    }
                    read.len.div_ceil(read.segment)
                }
                None if in_place && rest.len() < ROOM + READ_LEN => return Ok(true),
                None => {
                    let to = if in_place { &mut rest[ROOM..ROOM + READ_LEN] } else { &mut self.received };
                    let read = match socket {
                        SocketId::Udp(i) => ports.own()[i].receive(to)?,
                        SocketId::Raw(i) => self.raw[i].receive(to)?,
                    };
                    let Some(read) = read else { return Ok(false) };
                    if let SocketId::Udp(i) = socket
                        && to.starts_with(&[0; 4])
                        && read.len >= 4
                    {
                        // A key manager has come, or gone. What the kernel joined behind a first datagram says nothing of
                        // the kind: it looks at the first alone.
                        shared.groups.lock().note_ike(&ports.own()[i]);
                        shared.note_request();
                    }
                    if !in_place {
                        self.pending = Some((socket, read, 0));
                        continue;
                    }
                    let at = len - rest.len();
                    let used = slot_len(read.len).min(rest.len());
                    let (part, others) = core::mem::take(&mut rest).split_at_mut(used);
                    rest = others;
                    match socket {
                        SocketId::Udp(i) => {
                            let ports = (read.port, ports.own()[i].port());
                            let outer = OuterHeader { ports: Some(ports), ..read.outer };
                            self.cut(shared, socket, read, outer, (part, at), packets, arrivals);
                        }
                        SocketId::Raw(i) => self.put_raw(shared, i, read, (part, at), packets, arrivals),
                    }
                    read.len.div_ceil(read.segment)
                }
            };
            // The next superframe is probably as long. If this burst had room for a part of it only, it would go up to
            // the stack as two.
            if packets.len() + count > BURST {
                break;
            }
        }
        Ok(true)
    }

    /// Cuts a superframe of UDP into its datagrams where it lies, at [`ROOM`] in `part`, which begins at `at` of the
    /// burst's buffer. Those that the burst has no room for are copied, and wait for the next one.
    fn cut<'b>(
        &mut self,
        shared: &Shared,
        socket: SocketId,
        read: Received,
        outer: OuterHeader,
        (mut part, mut at): (&'b mut [u8], usize),
        packets: &mut ArrayVec<Inbound<'b>, BURST>,
        arrivals: &mut ArrayVec<Arrival, BURST>,
    ) {
        let (mut room, mut left) = (ROOM, read.len);
        // A packet may be empty: it is counted.
        loop {
            if packets.is_full() {
                self.received[..left].copy_from_slice(&part[room..room + left]);
                self.pending = Some((socket, Received { len: left, ..read }, 0));
                return;
            }
            let datagram = left.min(read.segment);
            let (slot, others) = part.split_at_mut(room + datagram);
            let arrival = Arrival { at, flow: None };
            let packet = Inbound::described(Packet::new(slot, room, room + datagram), outer);
            let packet = Inbound { mark: read.mark, device: read.device, ..packet };
            push(shared, packet, arrival, packets, arrivals);
            (part, at, left, room) = (others, at + room + datagram, left - datagram, 0);
            if left == 0 {
                return;
            }
        }
    }

    /// Takes up datagrams of UDP that were read before, from `at` on, into slots of their own. Returns how far it came.
    fn copy<'b>(
        &mut self,
        shared: &Shared,
        ports: &Ports,
        read: Received,
        mut at: usize,
        (rest, len): (&mut &'b mut [u8], usize),
        packets: &mut ArrayVec<Inbound<'b>, BURST>,
        arrivals: &mut ArrayVec<Arrival, BURST>,
    ) -> usize {
        let Some((SocketId::Udp(i), ..)) = self.pending else { return read.len };
        let outer = OuterHeader { ports: Some((read.port, ports.own()[i].port())), ..read.outer };
        loop {
            let datagram = &self.received[at..read.len.min(at + read.segment)];
            if packets.is_full() || slot_len(datagram.len()) > rest.len() {
                return at;
            }
            at += datagram.len();
            let arrival = Arrival { at: len - rest.len(), flow: None };
            let packet = described_copy(rest, datagram, outer);
            let packet = Inbound { mark: read.mark, device: read.device, ..packet };
            push(shared, packet, arrival, packets, arrivals);
            if at >= read.len {
                return at;
            }
        }
    }

    /// Takes up a packet of a raw socket, which lies at [`ROOM`] in `part`.
    fn put_raw<'b>(
        &mut self,
        shared: &Shared,
        index: usize,
        read: Received,
        (part, at): (&'b mut [u8], usize),
        packets: &mut ArrayVec<Inbound<'b>, BURST>,
        arrivals: &mut ArrayVec<Arrival, BURST>,
    ) {
        let (v6, protocol) = (self.raw[index].is_v6(), self.raw[index].protocol());
        let end = ROOM + read.len;
        let mut flow = None;
        if let (ESP, Some(fast)) = (protocol, self.fast.as_mut()) {
            // Sockets of IPv4 give the header too.
            let header_len = if v6 { 0 } else { usize::from(part[ROOM] & 0xf) * 4 };
            match fast.judge_raw(&read, part[ROOM..end].get(header_len..).unwrap_or_default()) {
                RawVerdict::Had => return,
                RawVerdict::Open(of) => flow = of,
            }
        }
        let packet = match (v6, protocol) {
            (false, _) => Inbound::new(Packet::new(part, ROOM, end)),
            (true, ESP) => Inbound::described(Packet::new(part, ROOM, end), read.outer),
            // AH covers the header.
            (true, _) => {
                let start = ROOM - read.outer.ip_len();
                if read.outer.write_ip(&mut part[start..end], read.first.unwrap_or(protocol)).is_err() {
                    return;
                }
                Inbound::new(Packet::new(part, start, end))
            }
        };
        let packet = Inbound { mark: read.mark, device: read.device, ..packet };
        push(shared, packet, Arrival { at, flow }, packets, arrivals);
    }
}

/// Puts a packet into a burst, unless it is for a state of the kernel's own IPsec: our sockets see those too.
fn push<'b>(
    shared: &Shared,
    packet: Inbound<'b>,
    arrival: Arrival,
    packets: &mut ArrayVec<Inbound<'b>, BURST>,
    arrivals: &mut ArrayVec<Arrival, BURST>,
) {
    let foreign = match packet.outer {
        Some(OuterHeader { ports: Some(_), .. }) => false,
        Some(OuterHeader { destination, .. }) => shared.kernel_states.has_payload(destination, packet.packet.bytes()),
        None => shared.kernel_states.has(packet.packet.bytes()),
    };
    if !foreign {
        packets.push(packet);
        arrivals.push(arrival);
    }
}
