//! Bursts of a worker that are with a crypto device, and what waits behind them.
//!
//! A burst that a device is to compute leaves the worker between its first and its last phase. The worker fills others meanwhile,
//! as many as the device's queue takes: then it does not read on, and what comes waits in the kernel. In each direction
//! bursts are ended in the order in which they were begun, those that needed no device too, so that no flow is reordered.

use crate::data::inbound::Source;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::Xfrm;
use sealane_engine_xfrm::data::BURST;
use sealane_engine_xfrm::device::crypto::{CryptoBurst, Direction, Polled, Queue, Slot};
use sealane_net::ipsec::burst::{Jobs, Keys, NOT_RUN};
use sealane_net::ipsec::drop::DropReason;
use sealane_net::ipsec::open::{Inbound, MAX_DEPTH, Opened};
use sealane_net::ipsec::packet::Packet;
use sealane_net::ipsec::sa::SaId;
use sealane_net::ipsec::seal::Outbound;
use sealane_sys::nft::ingress::EspWay;
use sealane_sys::poll::Waker;
use std::collections::VecDeque;
use std::sync::Arc;

/// Room for the packets of one burst, headers and all.
pub(crate) const ARENA_LEN: usize = 512 << 10;

/// How many bursts a worker may have begun: as many as a queue takes, and one to fill.
const MOST: usize = 5;

/// What the tables have said of a packet that leaves.
#[derive(Clone, Copy)]
struct KeptOut {
    sa: SaId,
    status: Result<(), DropReason>,
    inner_mtu: u32,
}

/// What they have said of one that came in.
#[derive(Clone)]
struct KeptIn {
    mark: u32,
    udp_encap: bool,
    path: ArrayVec<SaId, MAX_DEPTH>,
    if_id: u32,
    status: Result<Opened, DropReason>,
    way: Option<EspWay>,
}

/// Where packets came from.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// A socket.
    Socket(Source),
    /// The ring of a device.
    Ring,
}

#[expect(clippy::large_enum_variant, reason = "a handful of them, moved once a burst")]
enum Kept {
    Out(ArrayVec<KeptOut, BURST>),
    In(ArrayVec<KeptIn, BURST>, Origin),
}

/// Where a burst is.
enum At {
    /// With a device.
    Device(i32),
    /// Here, its jobs run.
    Here(Box<CryptoBurst>),
    /// Nowhere: its device has gone.
    Lost,
}

struct Flight {
    at: At,
    kept: Kept,
}

/// A burst that is to be ended.
#[expect(clippy::large_enum_variant, reason = "one at a time")]
pub(crate) enum Landed {
    /// It leaves.
    Out(LandedBurst<OutKept>),
    /// It came in, from there.
    In(LandedBurst<InKept>, Origin),
    /// A device took it with it: why each of its packets is dropped.
    Lost(ArrayVec<DropReason, BURST>),
}

/// What the tables have said of its packets.
pub(crate) struct OutKept(ArrayVec<KeptOut, BURST>);
/// What the tables have said of its packets.
pub(crate) struct InKept(ArrayVec<KeptIn, BURST>);

/// A burst with what the tables have said of its packets.
pub(crate) struct LandedBurst<K> {
    pub(crate) burst: Box<CryptoBurst>,
    kept: K,
}

type Parts<'b, P> = (ArrayVec<P, BURST>, &'b [sealane_net::ipsec::burst::Job], &'b [sealane_crypto::Status]);

impl LandedBurst<OutKept> {
    /// Its packets as they were, jobs, and what became of those.
    pub(crate) fn parts(&mut self) -> Parts<'_, Outbound<'_>> {
        let (packets, jobs, done) = self.burst.parts();
        let packets = packets.into_iter().zip(&self.kept.0).map(|(packet, kept)| {
            let KeptOut { sa, status, inner_mtu } = *kept;
            Outbound { status, inner_mtu, ..Outbound::new(sa, packet) }
        });
        (packets.collect(), jobs, done)
    }
}

impl LandedBurst<InKept> {
    /// Whose each packet is, of those that take a ring or could.
    pub(crate) fn ways(&self) -> ArrayVec<Option<EspWay>, BURST> {
        self.kept.0.iter().map(|kept| kept.way).collect()
    }

    /// Its packets as they were, jobs, and what became of those.
    pub(crate) fn parts(&mut self) -> Parts<'_, Inbound<'_>> {
        let (packets, jobs, done) = self.burst.parts();
        let packets = packets.into_iter().zip(&self.kept.0).map(|(packet, kept)| {
            let KeptIn { mark, udp_encap, path, if_id, status, .. } = kept.clone();
            Inbound { mark, udp_encap, path, if_id, status, ..Inbound::new(packet) }
        });
        (packets.collect(), jobs, done)
    }
}

/// A burst whose first phase is over: what borrowed its buffer is kept.
pub(crate) struct Begun {
    slots: ArrayVec<Slot, BURST>,
    kept: Kept,
}

fn slots<'p, 'b: 'p>(packets: impl Iterator<Item = &'p Packet<'b>>) -> ArrayVec<Slot, BURST> {
    let mut at = 0;
    packets
        .map(|packet| {
            let slot = Slot::new(at, packet);
            at += slot.len;
            slot
        })
        .collect()
}

impl Begun {
    /// Of packets that leave, which lie one behind another.
    pub(crate) fn out(packets: &[Outbound<'_>]) -> Self {
        let kept = |out: &Outbound<'_>| KeptOut { sa: out.sa, status: out.status, inner_mtu: out.inner_mtu };
        Begun {
            slots: slots(packets.iter().map(|out| &out.packet)),
            kept: Kept::Out(packets.iter().map(kept).collect()),
        }
    }

    /// Of packets that came in, which lie one behind another; whose each of them is, of those that take a ring or could.
    pub(crate) fn inn(packets: &[Inbound<'_>], ways: &[Option<EspWay>], origin: Origin) -> Self {
        Begun { slots: slots(packets.iter().map(|inn| &inn.packet)), kept: kept_in(packets, ways, origin) }
    }

    /// The same of packets that lie elsewhere: they are copied into the burst, each as far into its part as it was. `None` where
    /// they do not fit.
    pub(crate) fn copied(
        packets: &[Inbound<'_>],
        ways: &[Option<EspWay>],
        origin: Origin,
        burst: &mut CryptoBurst,
    ) -> Option<Self> {
        let mut rest = &mut burst.buffer[..];
        let (mut at, mut slots) = (0, ArrayVec::new());
        for Inbound { packet, .. } in packets {
            let (start, end) = (packet.start(), packet.end());
            let (slot, others) = core::mem::take(&mut rest).split_at_mut_checked(end)?;
            slot[start..].copy_from_slice(packet.bytes());
            slots.push(Slot { at, len: end, start, end });
            (rest, at) = (others, at + end);
        }
        Some(Begun { slots, kept: kept_in(packets, ways, origin) })
    }
}

fn kept_in(packets: &[Inbound<'_>], ways: &[Option<EspWay>], origin: Origin) -> Kept {
    let kept = |(inn, way): (&Inbound<'_>, &Option<EspWay>)| {
        let Inbound { mark, udp_encap, path, if_id, status, .. } = inn;
        let (mark, udp_encap, if_id, status) = (*mark, *udp_encap, *if_id, *status);
        KeptIn { mark, udp_encap, path: path.clone(), if_id, status, way: *way }
    };
    Kept::In(packets.iter().zip(ways).map(kept).collect(), origin)
}

/// What a worker has begun.
pub(crate) struct Flights {
    idle: Vec<Box<CryptoBurst>>,
    made: usize,
    queues: Vec<(i32, Box<dyn Queue>)>,
    /// Those that leave, and those that came in.
    both: [VecDeque<Flight>; 2],
    /// Whether it was counted that there is no room.
    told_full: bool,
    waker: Arc<Waker>,
    keys: Keys,
}

impl Flights {
    /// None. `waker` is what the worker is woken by.
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        let (idle, both) = (Vec::with_capacity(MOST), Default::default());
        Flights { idle, made: 0, queues: Vec::new(), both, told_full: false, waker, keys: Keys::default() }
    }

    /// Whether another burst may be begun. Counts when not, once for each time.
    pub(crate) fn has_room(&mut self) -> bool {
        let free = (!self.idle.is_empty() || self.made < MOST) && self.queues.iter().all(|(_, queue)| queue.room() > 0);
        if !free && !self.told_full {
            self.queues.iter_mut().for_each(|(_, queue)| queue.count_full());
        }
        self.told_full = !free;
        free
    }

    /// An empty burst to fill, where [`Self::has_room`].
    pub(crate) fn empty(&mut self) -> Option<Box<CryptoBurst>> {
        let burst = self.idle.pop();
        if burst.is_none() && self.made < MOST {
            self.made += 1;
            return Some(Box::new(CryptoBurst::new(ARENA_LEN)));
        }
        burst
    }

    /// Takes a burst back that is done with.
    pub(crate) fn put(&mut self, mut burst: Box<CryptoBurst>) {
        burst.clear();
        self.idle.push(burst);
    }

    /// Whether nothing waits in a direction.
    pub(crate) fn is_empty(&self, dir: Direction) -> bool {
        self.both[way(dir)].is_empty()
    }

    /// A burst that has no jobs left waits for those before it.
    pub(crate) fn follow(&mut self, mut burst: Box<CryptoBurst>, dir: Direction, begun: Begun) {
        burst.dir = dir;
        burst.slots = begun.slots;
        self.both[way(dir)].push_back(Flight { at: At::Here(burst), kept: begun.kept });
    }

    /// Hands a burst to the device that has the state of its first job that has one, or computes it here where that is none.
    /// Where the device does not work its jobs stay failures.
    ///
    /// This is to be called in the same breath as its first phase: a state that is deleted afterwards still is there for what has
    /// been handed over, and for nothing later.
    pub(crate) fn depart(
        &mut self,
        mut burst: Box<CryptoBurst>,
        dir: Direction,
        begun: Begun,
        jobs: Jobs,
        xfrm: &Xfrm,
    ) {
        let Begun { slots, kept } = begun;
        (burst.dir, burst.slots) = (dir, slots);
        let device = xfrm.crypto_names(&jobs, &mut burst.keys);
        burst.done.extend(jobs.iter().map(|_| NOT_RUN));
        burst.jobs = jobs;
        if burst.keys.iter().any(Option::is_none) {
            xfrm.sad().keys(&burst.jobs, &mut self.keys);
            burst.run_here(&self.keys);
            self.keys.clear();
        }
        let mut at = At::Here(burst);
        if let Some(ifindex) = device
            && let Some(queue) = self.queue(ifindex, xfrm)
            && let At::Here(burst) = at
        {
            at = queue.submit(burst).map_or_else(At::Here, |()| At::Device(ifindex));
        }
        self.both[way(dir)].push_back(Flight { at, kept });
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

    /// Takes up what the devices have done.
    fn poll(&mut self) {
        let Flights { queues, both, made, .. } = self;
        queues.retain_mut(|(ifindex, queue)| {
            loop {
                match queue.poll() {
                    Polled::Nothing => return true,
                    Polled::Burst(burst) => {
                        let mut away = both[way(burst.dir)].iter_mut();
                        let first = away.find(|flight| matches!(flight.at, At::Device(of) if of == *ifindex));
                        if let Some(first) = first {
                            first.at = At::Here(burst);
                        }
                    }
                    Polled::Gone => {
                        let all = both.iter_mut().flatten();
                        for flight in all.filter(|flight| matches!(flight.at, At::Device(of) if of == *ifindex)) {
                            flight.at = At::Lost;
                            *made -= 1;
                        }
                        return false;
                    }
                }
            }
        });
    }

    /// The next burst that is to be ended.
    pub(crate) fn land(&mut self) -> Option<Landed> {
        self.poll();
        let queue = self.both.iter_mut().find(|list| list.front().is_some_and(|f| !matches!(f.at, At::Device(_))))?;
        let Flight { at, kept } = queue.pop_front()?;
        Some(match (at, kept) {
            (At::Here(burst), Kept::Out(kept)) => Landed::Out(LandedBurst { burst, kept: OutKept(kept) }),
            (At::Here(burst), Kept::In(kept, origin)) => Landed::In(LandedBurst { burst, kept: InKept(kept) }, origin),
            (_, Kept::Out(kept)) => Landed::Lost(kept.iter().filter_map(|kept| kept.status.err()).collect()),
            (_, Kept::In(kept, _)) => {
                let reason = |kept: &KeptIn| match kept.status {
                    Ok(Opened::Waiting) => Some(DropReason::InDriver),
                    status => status.err(),
                };
                Landed::Lost(kept.iter().filter_map(reason).collect())
            }
        })
    }

    /// Whether there is something to wait for, which from now on wakes. What was done before is to be landed once more.
    pub(crate) fn arm(&mut self) -> bool {
        let away = self.both.iter().any(|list| !list.is_empty());
        if away {
            self.queues.iter_mut().for_each(|(_, queue)| queue.arm());
        }
        away
    }
}

fn way(dir: Direction) -> usize {
    usize::from(dir == Direction::Decrypt)
}
