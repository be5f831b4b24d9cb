//! Associations of IP-TFS: the packets that wait in them, and their timers.

use super::Sad;
use crate::ipsec::drop::DropReason;
use crate::ipsec::id::{MAX_DEPTH, SaId};
use crate::ipsec::iptfs::receive::Received;
use crate::ipsec::iptfs::{Aggregation, HEADER_LEN, Origin};
use crate::ipsec::mtu::iptfs_most;
use crate::ipsec::packet::{HEADROOM, TAILROOM};
use crate::ipsec::sa::Sa;
use arrayvec::ArrayVec;

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
    /// [`DropReason::IptfsQueue`]; [`DropReason::IptfsTooBig`] and the MTU to report to the sender.
    pub fn gather(&mut self, id: SaId, around: &[SaId], mtu: u32, packet: &[u8]) -> Result<(), (DropReason, u32)> {
        let now_ns = self.aggregations.now_ns;
        let most = self.iptfs_most(id, mtu);
        let Aggregation { config, sender, .. } = self.aggregation_mut(id).ok_or((DropReason::OutInvalid, 0))?;
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
        let pkt_size = sa.aggregation.as_ref().map_or(0, |of| of.config.pkt_size);
        iptfs_most(sa, &self.hot[id.index as usize], pkt_size, mtu)
    }

    /// Takes the payload of an authentic packet. Its packets, and those that waited for it, are then in
    /// [`Self::take_received`].
    pub(crate) fn take_apart(&mut self, id: SaId, number: u64, payload: &[u8], origin: &Origin) {
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
        let thread = self.aggregations.thread;
        let least = (thread, 0, SaId { index: 0, generation: 0 });
        let first = self.aggregations.timers.range(least..).next()?;
        (first.0 == thread).then_some((first.1, first.2))
    }

    /// Handles timers of IP-TFS that are due, until one has a payload to send: that is written into `buffer` behind
    /// [`HEADROOM`]. `None` if nothing leaves now, or if there is no room for it.
    pub fn next_leaving(&mut self, buffer: &mut [u8]) -> Option<Leaving> {
        let now_ns = self.aggregations.now_ns;
        while let Some((_, id)) = self.first_timer().filter(|(at, _)| *at <= now_ns) {
            let mut received = core::mem::take(&mut self.aggregations.received);
            let leaving = self.work_off(id, now_ns, buffer, &mut received);
            self.aggregations.received = received;
            match leaving {
                Ok(Some(leaving)) => {
                    self.start_timer(id);
                    return Some(leaving);
                }
                // What is due stays so.
                Err(NoRoom) => return None,
                Ok(None) => self.start_timer(id),
            }
        }
        None
    }

    /// Handles what is due of an association, up to the next payload.
    fn work_off(
        &mut self,
        id: SaId,
        now_ns: u64,
        buffer: &mut [u8],
        received: &mut Received,
    ) -> Result<Option<Leaving>, NoRoom> {
        let Some(aggregation) = self.aggregation_mut(id) else { return Ok(None) };
        aggregation.receiver.handle_timeout(now_ns, received);
        aggregation.sender.handle_timeout(now_ns);
        if aggregation.sender.poll_timeout() != Some(0) {
            return Ok(None);
        }
        let (mtu, dont_frag) = (aggregation.sender.mtu, aggregation.config.dont_frag);
        let most = self.iptfs_most(id, mtu) as usize;
        let Some(aggregation) = self.aggregation_mut(id) else { return Ok(None) };
        let to = buffer.get_mut(HEADROOM..).filter(|to| to.len() >= HEADER_LEN + most + TAILROOM).ok_or(NoRoom)?;
        let len = aggregation.sender.next_payload(most, dont_frag, to, &mut received.faults);
        let around = aggregation.sender.around.clone();
        Ok(len.map(|len| Leaving { sa: id, around, len: HEADROOM + len + TAILROOM }))
    }

    /// An association is deleted, with what waits in it.
    pub(super) fn forget_gathered(&mut self, id: SaId, gone: &Sa) {
        if let Some((of, at)) = gone.aggregation.as_ref().and_then(|aggregation| aggregation.timer) {
            self.aggregations.timers.remove(&(of, at, id));
        }
    }

    fn aggregation_mut(&mut self, id: SaId) -> Option<&mut Aggregation> {
        self.pair_mut(id)?.1.aggregation.as_deref_mut()
    }

    /// Sets the timer of an association anew.
    fn start_timer(&mut self, id: SaId) {
        let thread = self.aggregations.thread;
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
