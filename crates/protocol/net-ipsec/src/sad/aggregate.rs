//! Associations of IP-TFS: the packets that wait in them, and their timers.

use super::Sad;
use crate::drop::DropReason;
use crate::id::{MAX_DEPTH, SaId};
use crate::iptfs::pace::Pace;
use crate::iptfs::receive::Received;
use crate::iptfs::{Aggregation, NS_IN_US, Origin, Rate};
use crate::mtu::iptfs_most;
use crate::packet::{HEADROOM, TAILROOM};
use crate::sa::Sa;
use arrayvec::ArrayVec;
use core::net::IpAddr;
use core::ops::Bound;

/// A payload that leaves, in its buffer.
pub struct Leaving {
    /// Its association.
    pub sa: SaId,
    /// The associations around that one, innermost first.
    pub around: ArrayVec<SaId, MAX_DEPTH>,
    /// The length of the part of the buffer that it needs: [`HEADROOM`], the payload, [`TAILROOM`].
    pub len: usize,
}

impl Sad {
    /// Sets the time for IP-TFS, in nanoseconds of a clock that never goes back.
    pub fn set_now(&mut self, now_ns: u64) {
        self.aggregations.now_ns = now_ns;
    }

    /// Sets the number of the calling thread: it has the timers of the associations of IP-TFS that it uses.
    pub fn set_thread(&mut self, thread: u32) {
        self.aggregations.thread = thread;
    }

    /// Takes the packets and faults that came out of payloads of IP-TFS since the last call.
    pub fn take_received(&mut self) -> Option<Received> {
        let received = &mut self.aggregations.received;
        (!received.is_empty()).then(|| core::mem::take(received))
    }

    /// Queues a packet that goes through an association of IP-TFS and then through those `around` it, over a path of `mtu`
    /// beneath it (0 where that is not known). The calling thread takes it out again ([`Self::next_leaving`]).
    ///
    /// # Errors
    /// [`DropReason::IptfsQueue`]; [`DropReason::IptfsTooBig`] and the MTU to report to the sender; [`DropReason::OutMode`] at a
    /// constant rate with others around it: padding that leaves before the first packet would not go through these.
    pub fn gather(&mut self, id: SaId, around: &[SaId], mtu: u32, packet: &[u8]) -> Result<(), (DropReason, u32)> {
        let now_ns = self.aggregations.now_ns;
        let most = self.iptfs_most(id, mtu);
        let Aggregation { config, sender, .. } = self.aggregation_mut(id).ok_or((DropReason::OutInvalid, 0))?;
        if config.rate.is_some() && !around.is_empty() {
            return Err((DropReason::OutMode, 0));
        }
        if config.dont_frag && packet.len() > most as usize {
            return Err((DropReason::IptfsTooBig, most));
        }
        sender.mtu = mtu;
        if sender.around[..] != *around {
            sender.around = around.iter().copied().collect();
        }
        sender.push(packet, config, now_ns).map_err(|reason| (reason, 0))?;
        self.start_timer(id);
        Ok(())
    }

    /// The most bytes of packets in one payload of an association over a path of `mtu`.
    fn iptfs_most(&self, id: SaId, mtu: u32) -> u32 {
        let Some(sa) = self.get(id) else { return 1 };
        let config = sa.aggregation.as_ref().map(|of| of.config).unwrap_or_default();
        // Where the path is not known its MTU may be any, and outer packets are not to become longer with it.
        let mtu = match config.rate {
            Some(rate) if mtu == 0 => rate.packet_len,
            Some(rate) => rate.packet_len.min(mtu),
            None => mtu,
        };
        let header_len = config.header_len();
        iptfs_most(sa, &self.hot[id.index as usize], config.pkt_size, mtu, header_len)
    }

    /// Takes the payload of an authentic packet, with a mark of congestion or without. Its packets, and those that waited for it,
    /// are then in [`Self::take_received`].
    pub(crate) fn take_apart(&mut self, id: SaId, number: u64, payload: &[u8], origin: &Origin, marked: bool) {
        self.note_arrival(id, number, payload, marked);
        let now_ns = self.aggregations.now_ns;
        let mut received = core::mem::take(&mut self.aggregations.received);
        if let Some(aggregation) = self.aggregation_mut(id) {
            aggregation.receiver.input(number, payload, origin, now_ns, &mut received);
        }
        self.aggregations.received = received;
        self.start_timer(id);
    }

    /// When [`Self::next_leaving`] is to be called by the calling thread, in nanoseconds.
    #[must_use]
    pub fn poll_aggregations(&self) -> Option<u64> {
        self.first_timer().map(|(at, _)| at)
    }

    fn first_timer(&self) -> Option<(u64, SaId)> {
        self.timer_behind(None)
    }

    /// The first timer of the calling thread, behind this one.
    fn timer_behind(&self, before: Option<(u64, SaId)>) -> Option<(u64, SaId)> {
        let thread = self.aggregations.thread;
        let from = match before {
            Some((at, id)) => Bound::Excluded((thread, at, id)),
            None => Bound::Included((thread, 0, SaId { index: 0, generation: 0 })),
        };
        let first = self.aggregations.timers.range((from, Bound::Unbounded)).next()?;
        (first.0 == thread).then_some((first.1, first.2))
    }

    /// Handles timers of IP-TFS that are due, until one has a payload to send: that is written into `buffer` behind
    /// [`HEADROOM`]. `None` if nothing leaves now, or if there is no room for it. With `more` packets at hand that follow at once,
    /// payloads that these may fill wait for them. An association that sends at a constant rate does so without a packet that tells
    /// the MTU of its path: `path_mtu` knows it by the address at the other end, 0 if it does not.
    pub fn next_leaving(
        &mut self,
        buffer: &mut [u8],
        more: bool,
        mut path_mtu: impl FnMut(IpAddr) -> u32,
    ) -> Option<Leaving> {
        let now_ns = self.aggregations.now_ns;
        let mut waiting = None;
        while let Some((due, id)) = self.timer_behind(waiting).filter(|(at, _)| *at <= now_ns) {
            let mut received = core::mem::take(&mut self.aggregations.received);
            let leaving = self.work_off(id, buffer, more, &mut path_mtu, &mut received);
            self.aggregations.received = received;
            match leaving {
                Ok(leaving) => {
                    self.start_timer(id);
                    if leaving.is_some() {
                        return leaving;
                    }
                }
                // What is due stays so.
                Err(NoRoom) => return None,
            }
            // What has not moved waits for packets that follow.
            let timer = self.aggregation_mut(id).and_then(|of| of.timer);
            if timer.is_some_and(|(_, at)| at == due) {
                waiting = Some((due, id));
            }
        }
        None
    }

    /// Handles what is due of an association, up to the next payload.
    fn work_off(
        &mut self,
        id: SaId,
        buffer: &mut [u8],
        more: bool,
        path_mtu: &mut impl FnMut(IpAddr) -> u32,
        received: &mut Received,
    ) -> Result<Option<Leaving>, NoRoom> {
        let now_ns = self.aggregations.now_ns;
        let Some(aggregation) = self.aggregation_mut(id) else { return Ok(None) };
        aggregation.receiver.handle_timeout(now_ns, received);
        aggregation.sender.handle_timeout(now_ns);
        let is_due = match aggregation.pace {
            Some(pace) => pace.due_ns() <= now_ns,
            None => aggregation.sender.poll_timeout() == Some(0),
        };
        if !is_due {
            return Ok(None);
        }
        let (mtu, config, is_paced) = (aggregation.sender.mtu, aggregation.config, aggregation.pace.is_some());
        let mtu = self.get(id).filter(|_| is_paced).map_or(mtu, |sa| path_mtu(sa.dst));
        let header_len = config.header_len();
        let (most, dont_frag) = (self.iptfs_most(id, mtu) as usize, config.dont_frag);
        let to = buffer.get_mut(HEADROOM..).filter(|to| to.len() >= header_len + most + TAILROOM).ok_or(NoRoom)?;
        let pads = is_paced && !self.has_newer(id);
        let congestion = self.congestion_output(id, now_ns);
        let Some(Aggregation { sender, pace, .. }) = self.aggregation_mut(id) else { return Ok(None) };
        let faults = &mut received.faults;
        let len = match pace {
            Some(pace) => {
                if let Some((interval_ns, header)) = congestion {
                    pace.set_interval(interval_ns, u64::from(header.rtt_us) * NS_IN_US);
                }
                pace.take(now_ns);
                let header = congestion.as_ref().map(|(_, header)| header);
                sender.next_constant(most, dont_frag, pads, header, to, faults)
            }
            None if more && !sender.is_full(most, dont_frag) => None,
            None => sender.next_payload(most, dont_frag, to, faults),
        };
        let around = sender.around.clone();
        Ok(len.map(|len| Leaving { sa: id, around, len: HEADROOM + len + TAILROOM }))
    }

    /// Whether packets leave by another association than this one from now on: the rate of both is that of one.
    fn has_newer(&self, id: SaId) -> bool {
        let Some(sa) = self.get(id) else { return true };
        let has_pace = |other: &Sa| other.aggregation.as_ref().is_some_and(|of| of.pace.is_some());
        let mut newer = sa.newer;
        while let Some(other) = newer.and_then(|index| self.cold.get(index as usize)?.as_ref()) {
            if (other.if_id, other.cpu) == (sa.if_id, sa.cpu) && has_pace(other) {
                return true;
            }
            newer = other.newer;
        }
        false
    }

    /// Has an association of IP-TFS send at a constant rate from now on, or when there is something to send.
    pub fn set_rate(&mut self, id: SaId, rate: Option<Rate>) {
        let Some(aggregation) = self.aggregation_mut(id).filter(|aggregation| aggregation.config.rate != rate) else {
            return;
        };
        aggregation.config.rate = rate;
        aggregation.pace = rate.map(|rate| Pace::new(rate.interval_ns));
        if rate.is_none() {
            aggregation.sender.let_all_leave();
        }
        self.join_pair(id);
        let Some(aggregation) = self.aggregation_mut(id) else { return };
        let thread = aggregation.timer.map_or(0, |(thread, _)| thread);
        self.start_timer_of(thread, id);
    }

    /// An association has been added: at a constant rate packets leave from now on. The first thread has its timer, until another one
    /// uses it.
    pub(super) fn begin_pace(&mut self, id: SaId) {
        self.join_pair(id);
        if self.aggregation_mut(id).is_some_and(|aggregation| aggregation.pace.is_some()) {
            self.start_timer_of(0, id);
        }
    }

    /// An association is deleted, with what waits in it.
    pub(super) fn forget_gathered(&mut self, id: SaId, gone: &Sa) {
        let Some(aggregation) = &gone.aggregation else { return };
        self.forget_arrivals(gone);
        if let Some((of, at)) = aggregation.timer {
            self.aggregations.timers.remove(&(of, at, id));
        }
        if let Some(pair) = &aggregation.pair {
            self.leave_pair(pair);
        }
    }

    pub(super) fn aggregation_mut(&mut self, id: SaId) -> Option<&mut Aggregation> {
        self.pair_mut(id)?.1.aggregation.as_deref_mut()
    }

    /// Sets the timer of an association anew, for the calling thread.
    fn start_timer(&mut self, id: SaId) {
        self.start_timer_of(self.aggregations.thread, id);
    }

    /// Sets the timer of an association anew, for this thread.
    fn start_timer_of(&mut self, thread: u32, id: SaId) {
        let Some(aggregation) = self.aggregation_mut(id) else { return };
        let timer = aggregation.due_ns().map(|at| (thread, at));
        let before = core::mem::replace(&mut aggregation.timer, timer);
        if before != timer {
            let timers = &mut self.aggregations.timers;
            if let Some((of, at)) = before {
                timers.remove(&(of, at, id));
            }
            timers.extend(timer.map(|(of, at)| (of, at, id)));
        }
    }
}

/// The buffer has no room for the next payload.
struct NoRoom;
