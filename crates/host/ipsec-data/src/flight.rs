//! Bursts of a worker that are with a crypto offload core, and those that wait behind them.
//!
//! A burst that a core is to compute leaves the worker between its first and its last phase. The worker fills others
//! meanwhile, as many as the core's queue takes: then it does not read on, and what comes waits in the kernel. In each
//! direction bursts are ended in the order in which they were begun, those that needed no core too, so that no flow is
//! reordered.

use arrayvec::ArrayVec;
use sealane_engine_xfrm::Xfrm;
use sealane_engine_xfrm::data::BURST;
use sealane_engine_xfrm::device::crypto::{CryptoBurst, Direction, Polled, Queue, Slot, Status};
use sealane_net_ipsec::burst::{Job, Jobs, Keys, NOT_RUN};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::open::{Inbound, MAX_DEPTH, Opened};
use sealane_net_ipsec::packet::Packet;
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::seal::Outbound;
use sealane_rules::ingress::EspFlow;
use sealane_sys::poll::Waker;
use sealane_wire::outer::OuterHeader;
use std::collections::VecDeque;
use std::sync::Arc;

/// Room for the packets of one burst, headers and all.
pub(crate) const ARENA_LEN: usize = 512 << 10;

/// Room in front of an inbound packet: IP and UDP headers, and what BEET mode needs.
pub(crate) const ROOM: usize = 128;

/// Inbound packets begin at multiples of this.
const ALIGN: usize = 64;

/// The most bursts that a worker may have begun: as many as a queue takes, and one to fill.
const MOST: usize = 5;

/// The results of the first phase for an outbound packet.
#[derive(Clone, Copy)]
struct OutboundState {
    sa: SaId,
    outer: Option<OuterHeader>,
    status: Result<(), DropReason>,
    inner_mtu: u32,
    gathered: bool,
}

/// The results of the first phase for an inbound packet.
struct InboundState {
    /// The packet, if it is not in the burst's buffer.
    owned: Option<Packet<'static>>,
    outer: Option<OuterHeader>,
    mark: u32,
    device: u32,
    udp_encap: bool,
    path: ArrayVec<SaId, MAX_DEPTH>,
    if_id: u32,
    status: Result<Opened, DropReason>,
    flow: Option<EspFlow>,
}

/// The part of a burst's buffer that an inbound packet of `len` bytes takes, in bytes.
pub(crate) fn slot_len(len: usize) -> usize {
    (ROOM + len).next_multiple_of(ALIGN)
}

/// Copies the payload of these headers into a slot at the beginning of `rest`, which has room for it ([`slot_len`]).
pub(crate) fn described_copy<'b>(rest: &mut &'b mut [u8], payload: &[u8], outer: OuterHeader) -> Inbound<'b> {
    let (slot, others) = core::mem::take(rest).split_at_mut(slot_len(payload.len()));
    *rest = others;
    let end = ROOM + payload.len();
    slot[ROOM..end].copy_from_slice(payload);
    Inbound::described(Packet::new(slot, ROOM, end), outer)
}

/// The place of an inbound packet in its burst, and its flow.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// The start of its part of the burst's buffer.
    pub(crate) at: usize,
    /// Its flow, if that takes a ring or could.
    pub(crate) flow: Option<EspFlow>,
}

/// The origin of inbound packets.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// A socket.
    Socket,
    /// The ring of a device.
    Ring,
}

#[expect(clippy::large_enum_variant, reason = "a handful of them, moved once a burst")]
enum States {
    Out(ArrayVec<OutboundState, BURST>, u32),
    In(ArrayVec<InboundState, BURST>, Origin),
}

/// The whereabouts of a burst.
enum BurstLocation {
    /// With a core.
    Device(i32),
    /// Here, its jobs run.
    Here(Box<CryptoBurst>),
    /// Nowhere: its core has gone.
    Lost,
}

struct Flight {
    at: BurstLocation,
    states: States,
}

/// A burst that is to be ended.
#[expect(clippy::large_enum_variant, reason = "one at a time")]
pub(crate) enum Completed {
    /// It leaves.
    Out(OutboundDone),
    /// It came in from this origin.
    In(InboundDone, Origin),
    /// It went away with its core: the reasons for which its packets are dropped.
    Lost(ArrayVec<DropReason, BURST>),
}

/// An outbound burst whose crypto is done.
pub(crate) struct OutboundDone {
    pub(crate) burst: Box<CryptoBurst>,
    /// The device that it leaves by, or 0.
    pub(crate) device: u32,
    states: ArrayVec<OutboundState, BURST>,
}

/// An inbound burst whose crypto is done.
pub(crate) struct InboundDone {
    pub(crate) burst: Box<CryptoBurst>,
    states: ArrayVec<InboundState, BURST>,
}

/// Packets as they were, their jobs, and what became of those.
type BurstParts<'b, P> = (ArrayVec<P, BURST>, &'b [Job], &'b [Status]);

impl OutboundDone {
    /// Its packets as they were, jobs, and what became of those.
    pub(crate) fn parts(&mut self) -> BurstParts<'_, Outbound<'_>> {
        let (packets, jobs, done) = self.burst.parts();
        let packets = packets.into_iter().zip(&self.states).map(|(packet, state)| {
            let OutboundState { sa, outer, status, inner_mtu, gathered } = *state;
            Outbound { outer, status, inner_mtu, gathered, ..Outbound::new(sa, packet) }
        });
        (packets.collect(), jobs, done)
    }
}

impl InboundDone {
    /// The flow of each packet, of those that take a ring or could.
    pub(crate) fn flows(&self) -> ArrayVec<Option<EspFlow>, BURST> {
        self.states.iter().map(|state| state.flow).collect()
    }

    /// Its packets as they were, jobs, and what became of those.
    pub(crate) fn parts(&mut self) -> BurstParts<'_, Inbound<'_>> {
        let (packets, jobs, done) = self.burst.parts();
        let packets = packets.into_iter().zip(&mut self.states).map(|(packet, state)| {
            let packet = state.owned.take().unwrap_or(packet);
            let InboundState { outer, mark, device, udp_encap, ref path, if_id, status, .. } = *state;
            Inbound { packet, outer, mark, device, udp_encap, path: path.clone(), if_id, status }
        });
        (packets.collect(), jobs, done)
    }
}

/// A burst whose first phase is over, without what borrowed its buffer.
pub(crate) struct BegunBurst {
    slots: ArrayVec<Slot, BURST>,
    states: States,
}

impl BegunBurst {
    /// Describes outbound packets, which lie one behind another and leave by this device, unless it is 0.
    pub(crate) fn outbound(packets: &[Outbound<'_>], device: u32) -> Self {
        let mut at = 0;
        let slots = packets.iter().map(|out| {
            let slot = Slot::new(at, &out.packet);
            at += slot.len;
            slot
        });
        let state = |out: &Outbound<'_>| OutboundState {
            sa: out.sa,
            outer: out.outer,
            status: out.status,
            inner_mtu: out.inner_mtu,
            gathered: out.gathered,
        };
        BegunBurst { slots: slots.collect(), states: States::Out(packets.iter().map(state).collect(), device) }
    }

    /// Describes inbound packets in the burst's buffer.
    pub(crate) fn inbound(packets: &mut [Inbound<'_>], arrivals: &[Arrival], origin: Origin) -> Self {
        let states = inbound_states(packets, arrivals, origin);
        let slots = packets.iter().zip(arrivals).map(|(inbound, arrival)| Slot::new(arrival.at, &inbound.packet));
        BegunBurst { slots: slots.collect(), states }
    }

    /// Describes inbound packets that lie elsewhere, and copies them into the burst, each with the room in front that
    /// it had. `None` if they do not fit.
    pub(crate) fn copied(
        packets: &mut [Inbound<'_>],
        arrivals: &[Arrival],
        origin: Origin,
        burst: &mut CryptoBurst,
    ) -> Option<Self> {
        let states = inbound_states(packets, arrivals, origin);
        let mut rest = &mut burst.buffer[..];
        let (mut at, mut slots) = (0, ArrayVec::new());
        for Inbound { packet, .. } in &*packets {
            let (start, end) = (packet.start(), packet.end());
            let (slot, others) = core::mem::take(&mut rest).split_at_mut_checked(end)?;
            slot[start..].copy_from_slice(packet.bytes());
            slots.push(Slot { at, len: end, start, end });
            (rest, at) = (others, at + end);
        }
        Some(BegunBurst { slots, states })
    }
}

fn inbound_states(packets: &mut [Inbound<'_>], arrivals: &[Arrival], origin: Origin) -> States {
    let state = |(inbound, arrival): (&mut Inbound<'_>, &Arrival)| {
        let Inbound { packet, outer, mark, device, udp_encap, path, if_id, status } = inbound;
        let (outer, mark, device, udp_encap, if_id, status) = (*outer, *mark, *device, *udp_encap, *if_id, *status);
        let (owned, path) = (packet.take_owned(), path.clone());
        InboundState { owned, outer, mark, device, udp_encap, path, if_id, status, flow: arrival.flow }
    };
    States::In(packets.iter_mut().zip(arrivals).map(state).collect(), origin)
}

/// The bursts that a worker has begun.
pub(crate) struct InFlight {
    idle: Vec<Box<CryptoBurst>>,
    made: usize,
    queues: Vec<(i32, Box<dyn Queue>)>,
    /// Outbound ones, and inbound ones.
    both: [VecDeque<Flight>; 2],
    /// Whether the current lack of room has been counted.
    told_full: bool,
    waker: Arc<Waker>,
    keys: Keys,
}

impl InFlight {
    /// Starts without any. `waker` wakes the worker.
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        let (idle, both) = (Vec::with_capacity(MOST), Default::default());
        InFlight { idle, made: 0, queues: Vec::new(), both, told_full: false, waker, keys: Keys::default() }
    }

    /// Whether another burst may be begun. Each lack of room is counted once.
    pub(crate) fn has_room(&mut self) -> bool {
        let free = (!self.idle.is_empty() || self.made < MOST) && self.queues.iter().all(|(_, queue)| queue.room() > 0);
        if !free && !self.told_full {
            self.queues.iter_mut().for_each(|(_, queue)| queue.count_full());
        }
        self.told_full = !free;
        free
    }

    /// An empty burst to fill, where [`Self::has_room`].
    fn empty(&mut self) -> Option<Box<CryptoBurst>> {
        let burst = self.idle.pop();
        if burst.is_none() && self.made < MOST {
            self.made += 1;
            return Some(Box::new(CryptoBurst::new(ARENA_LEN)));
        }
        burst
    }

    /// Begins a burst, where there is room for one.
    pub(crate) fn begin(&mut self) -> Option<Box<CryptoBurst>> {
        if self.has_room() { self.empty() } else { None }
    }

    /// Takes a burst back that is done with.
    pub(crate) fn put(&mut self, mut burst: Box<CryptoBurst>) {
        burst.clear();
        self.idle.push(burst);
    }

    /// Whether nothing waits in a direction.
    pub(crate) fn is_empty(&self, dir: Direction) -> bool {
        self.both[index(dir)].is_empty()
    }

    /// Lets a burst that has no jobs left wait for those before it.
    pub(crate) fn enqueue(&mut self, mut burst: Box<CryptoBurst>, dir: Direction, begun: BegunBurst) {
        burst.dir = dir;
        burst.slots = begun.slots;
        self.both[index(dir)].push_back(Flight { at: BurstLocation::Here(burst), states: begun.states });
    }

    /// Hands a burst to the core that has the state of its first job that is for one, or computes it here where there
    /// is none. If the core does not work its jobs stay failures.
    ///
    /// The engine must not have been unlocked since the first phase: a state that is deleted afterwards is still there
    /// for what has been handed over, and for nothing later.
    pub(crate) fn submit(
        &mut self,
        mut burst: Box<CryptoBurst>,
        dir: Direction,
        begun: BegunBurst,
        jobs: Jobs,
        xfrm: &Xfrm,
    ) {
        let BegunBurst { slots, states } = begun;
        (burst.dir, burst.slots) = (dir, slots);
        let device = xfrm.crypto_names(&jobs, &mut burst.keys);
        burst.done.extend(jobs.iter().map(|_| NOT_RUN));
        burst.jobs = jobs;
        if burst.keys.iter().any(Option::is_none) {
            xfrm.sad().keys(&burst.jobs, &mut self.keys);
            burst.run_here(&self.keys);
            self.keys.clear();
        }
        let mut at = BurstLocation::Here(burst);
        if let Some(ifindex) = device
            && let Some(queue) = self.queue(ifindex, xfrm)
            && let BurstLocation::Here(burst) = at
        {
            at = queue.submit(burst).map_or_else(BurstLocation::Here, |()| BurstLocation::Device(ifindex));
        }
        self.both[index(dir)].push_back(Flight { at, states });
    }

    fn queue(&mut self, ifindex: i32, xfrm: &Xfrm) -> Option<&mut Box<dyn Queue>> {
        let at = match self.queues.iter().position(|(of, _)| *of == ifindex) {
            Some(at) => at,
            None => {
                let waker = self.waker.clone();
                let queue = xfrm.device_crypto(ifindex)?.queue(Box::new(move || waker.wake()))?;
                self.queues.push((ifindex, queue));
                self.queues.len() - 1
            }
        };
        Some(&mut self.queues[at].1)
    }

    /// Takes up what the cores have done.
    fn poll(&mut self) {
        let InFlight { queues, both, made, .. } = self;
        queues.retain_mut(|(ifindex, queue)| {
            loop {
                match queue.poll() {
                    Polled::Nothing => return true,
                    Polled::Burst(burst) => {
                        let mut away = both[index(burst.dir)].iter_mut();
                        let first =
                            away.find(|flight| matches!(flight.at, BurstLocation::Device(of) if of == *ifindex));
                        if let Some(first) = first {
                            first.at = BurstLocation::Here(burst);
                        }
                    }
                    Polled::Gone => {
                        let all = both.iter_mut().flatten();
                        for flight in
                            all.filter(|flight| matches!(flight.at, BurstLocation::Device(of) if of == *ifindex))
                        {
                            flight.at = BurstLocation::Lost;
                            *made -= 1;
                        }
                        return false;
                    }
                }
            }
        });
    }

    /// The next burst that is to be ended.
    pub(crate) fn next_done(&mut self) -> Option<Completed> {
        self.poll();
        let queue = self
            .both
            .iter_mut()
            .find(|list| list.front().is_some_and(|f| !matches!(f.at, BurstLocation::Device(_))))?;
        let Flight { at, states } = queue.pop_front()?;
        Some(match (at, states) {
            (BurstLocation::Here(burst), States::Out(states, device)) => {
                Completed::Out(OutboundDone { burst, device, states })
            }
            (BurstLocation::Here(burst), States::In(states, origin)) => {
                Completed::In(InboundDone { burst, states }, origin)
            }
            (_, States::Out(states, _)) => {
                let lost = states.iter().filter(|state| !state.gathered);
                Completed::Lost(lost.filter_map(|state| state.status.err()).collect())
            }
            (_, States::In(states, _)) => {
                let reason = |state: &InboundState| match state.status {
                    Ok(Opened::Waiting) => Some(DropReason::InDriver),
                    status => status.err(),
                };
                Completed::Lost(states.iter().filter_map(reason).collect())
            }
        })
    }

    /// Whether there are bursts to wait for. From now on they wake the worker; what was done before is to be looked for
    /// once more.
    pub(crate) fn arm(&mut self) -> bool {
        let away = self.both.iter().any(|list| !list.is_empty());
        if away {
            self.queues.iter_mut().for_each(|(_, queue)| queue.arm());
        }
        away
    }
}

fn index(dir: Direction) -> usize {
    usize::from(dir == Direction::Decrypt)
}
