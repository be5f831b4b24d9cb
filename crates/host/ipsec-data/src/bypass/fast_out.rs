//! The outbound fast path of ESP and AH: packets leave behind the link header that the stack gave to another packet of
//! their flow.
//!
//! Every [`FRESH`](sealane_packets::fast_path::FRESH) one packet of a flow goes through the stack, which finds route and
//! neighbour and applies filters; the kernel keeps a copy of its frame ([`Raw::keep_frames`]). Packets that follow
//! leave by the same device behind the same header, if that packet left unchanged. If not, and on devices that are not
//! Ethernet, all go through the stack.

use crate::counters::Counters;
use sealane_packets::fast_path::{LearntLink, MAX_LINKS};
use sealane_packets::frames::Frames;
use sealane_packets::raw::{Raw, Sent};
use sealane_packets::ring::LINK_HEADER_LEN;
use sealane_sys::link;
use sealane_sys::marks::Marks;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The stack is asked for a flow with at least this many packets within [`FRESH`](sealane_packets::fast_path::FRESH).
const WORTH_ASKING: u32 = 16;
/// Unused flows and sockets are looked for at this interval.
const TIDY: Duration = Duration::from_secs(10);

const ESP: u8 = 50;
const AH: u8 = 51;

/// The fields by which filters and routes can tell packets apart, beside their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct OuterFlow {
    /// Source and destination, IPv4's in the first four bytes of each.
    ends: [[u8; 16]; 2],
    v6: bool,
    protocol: u8,
    /// Traffic class without ECN.
    dscp: u8,
    spi: u32,
}

impl OuterFlow {
    /// Reads the flow of a packet. `None` for fragments, and for packets with IP options or extension headers.
    fn of(packet: &[u8]) -> Option<Self> {
        let mut ends = [[0; 16]; 2];
        let (v6, protocol, dscp, spi_at) = match packet.first()? {
            0x45 => {
                ends[0][..4].copy_from_slice(packet.get(12..16)?);
                ends[1][..4].copy_from_slice(packet.get(16..20)?);
                if packet[6] & 0x3f != 0 || packet[7] != 0 {
                    return None;
                }
                (false, packet[9], packet[1] & 0xfc, 20)
            }
            0x60..=0x6f => {
                ends[0].copy_from_slice(packet.get(8..24)?);
                ends[1].copy_from_slice(packet.get(24..40)?);
                (true, packet[6], (packet[0] << 4 | packet[1] >> 4) & 0xfc, 40)
            }
            _ => return None,
        };
        let spi_at = match protocol {
            ESP => spi_at,
            AH => spi_at + 4,
            _ => return None,
        };
        let spi = u32::from_be_bytes(*packet.get(spi_at..)?.first_chunk()?);
        Some(OuterFlow { ends, v6, protocol, dscp, spi })
    }
}

/// The front of a packet, which the stack must leave unchanged: headers, SPI, sequence number.
type PacketFront = [u8; 48];

/// Reads the front of a packet, without the fields that the stack writes itself: IPv4's identification and checksum.
fn read_front(packet: &[u8]) -> Option<PacketFront> {
    let mut front = [0; 48];
    if packet.first()? >> 4 == 4 {
        front[..32].copy_from_slice(packet.get(..32)?);
        front[4..6].fill(0);
        front[10..12].fill(0);
    } else {
        front.copy_from_slice(packet.get(..48)?);
    }
    Some(front)
}

/// The state of a flow.
struct FlowState {
    /// Packets since the link header was asked for, or could have been.
    packets: u32,
    /// The device and its link header.
    link: LearntLink<PacketFront, (u32, [u8; LINK_HEADER_LEN])>,
}

/// The outbound fast path of one worker.
pub(crate) struct FastOut {
    marks: Marks,
    flows: HashMap<OuterFlow, FlowState>,
    /// Devices with a socket; `None` where there cannot be one.
    devices: HashMap<u32, Option<Frames>>,
    tidied: Instant,
}

impl FastOut {
    /// Starts without any flows. Packets go through the stack by `raw`. `None` where the kernel is too old.
    pub(crate) fn new(raw: &Raw, marks: Marks) -> Option<Self> {
        raw.keep_frames().ok()?;
        Some(FastOut { marks, flows: HashMap::new(), devices: HashMap::new(), tidied: Instant::now() })
    }

    /// Sends packets of one family in their order.
    pub(crate) fn send(&mut self, raw: &Raw, packets: &[&[u8]], counters: &Counters, now: Instant) -> Sent {
        let mut sent = Sent::default();
        let mut rest = packets;
        while let Some(first) = rest.first() {
            let flow = OuterFlow::of(first);
            let len = 1 + rest[1..].iter().take_while(|packet| OuterFlow::of(packet) == flow).count();
            let (group, others) = rest.split_at(len);
            rest = others;
            let one = match flow {
                Some(flow) => self.send_flow(flow, raw, group, counters, now),
                None => raw.send(group, 0, false),
            };
            sent.taken += one.taken;
            sent.refused += one.refused;
        }
        if now.duration_since(self.tidied) > TIDY {
            self.tidied = now;
            self.flows.retain(|_, known| now.duration_since(known.link.since()) < TIDY);
            let flows = &self.flows;
            self.devices
                .retain(|device, _| flows.values().any(|f| f.link.header().is_some_and(|link| link.0 == *device)));
        }
        sent
    }

    fn send_flow(&mut self, flow: OuterFlow, raw: &Raw, packets: &[&[u8]], counters: &Counters, now: Instant) -> Sent {
        if self.flows.len() >= MAX_LINKS && !self.flows.contains_key(&flow) {
            return raw.send(packets, 0, false);
        }
        let new = |asked| FlowState { packets: 0, link: LearntLink::new(asked, now) };
        let known = self.flows.entry(flow).or_insert_with(|| new(None));
        let mut rest = packets;
        let mut sent = Sent::default();
        if known.link.is_stale(now) {
            let asked = if known.packets >= WORTH_ASKING { read_front(packets[0]) } else { None };
            // The old header is not used any more while the new one is asked for: a new answer, or none.
            *known = new(asked);
            if asked.is_some() {
                let (first, others) = packets.split_at(1);
                sent = raw.send(first, 0, true);
                rest = others;
                raw.frames(flow.v6, |device, frame| self.learn(device, frame));
            }
        }
        let Some(known) = self.flows.get_mut(&flow) else { return sent };
        known.packets = known.packets.saturating_add(packets.len() as u32);
        let by = known.link.header().and_then(|(device, header)| Some((self.devices.get(device)?.as_ref()?, header)));
        let more = match by {
            Some((frames, header)) => {
                let more = frames.send(header, rest);
                if more.refused > 0 {
                    // The device may be gone, or carry less.
                    known.link.forget();
                }
                counters.fast_out.fetch_add(more.taken as u64, Relaxed);
                more
            }
            None => raw.send(rest, 0, false),
        };
        Sent { taken: sent.taken + more.taken, refused: sent.refused + more.refused }
    }

    /// Learns the link header of a frame that the stack handed to a device, if its packet is unchanged: rules may
    /// translate or change it, and then every packet has to pass them.
    fn learn(&mut self, device: u32, frame: &[u8]) {
        let Some((header, packet)) = frame.split_first_chunk::<LINK_HEADER_LEN>() else { return };
        let protocol = match packet.first().map(|b| b >> 4) {
            Some(4) => libc::ETH_P_IP,
            Some(6) => libc::ETH_P_IPV6,
            _ => return,
        };
        if header[12..] != (protocol as u16).to_be_bytes() || device == 0 {
            return;
        }
        let Some(known) = OuterFlow::of(packet).and_then(|flow| self.flows.get_mut(&flow)) else { return };
        if !read_front(packet).is_some_and(|front| known.link.is_answered_by(&front)) {
            return;
        }
        let marks = self.marks;
        let open = || link::facts(device).is_ok_and(|f| f.ethernet).then(|| Frames::open(device, marks).ok()).flatten();
        if self.devices.entry(device).or_insert_with(open).is_some() {
            known.link.learn((device, *header));
        }
    }
}

#[cfg(test)]
mod tests;
