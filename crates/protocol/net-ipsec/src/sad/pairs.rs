//! Associations of IP-TFS with congestion control, in pairs: what comes in by one of them leaves in the headers of the other.

use super::Sad;
use super::aggregations::Pair;
use crate::id::SaId;
use crate::iptfs::PairKey;
use crate::iptfs::congestion::header::CcHeader;
use crate::sa::Sa;

/// The congestion control of a pair of associations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairView {
    /// The pair.
    pub key: PairKey,
    /// Nanoseconds from one packet to the next.
    pub interval_ns: u64,
    /// The same at the highest rate.
    pub least_interval_ns: u64,
    /// The estimate of the RTT in microseconds, 0 before there is one.
    pub rtt_us: u32,
    /// The mean number of packets from one loss event to the next, 0 without loss.
    pub loss_interval: u32,
    /// Whether the rate is the lowest one because the peer sends no feedback.
    pub is_silent: bool,
}

fn view(key: &PairKey, pair: &Pair) -> PairView {
    let sending = pair.congestion.sending();
    PairView {
        key: *key,
        interval_ns: sending.interval_ns(),
        least_interval_ns: sending.least_interval_ns(),
        rtt_us: sending.rtt_us(),
        loss_interval: sending.loss_interval(),
        is_silent: sending.is_silent(),
    }
}

fn outbound(sa: &Sa) -> PairKey {
    PairKey { local: sa.src, remote: sa.dst, reqid: sa.reqid, if_id: sa.if_id, cpu: sa.cpu }
}

fn inbound(sa: &Sa) -> PairKey {
    PairKey { local: sa.dst, remote: sa.src, ..outbound(sa) }
}

impl Sad {
    /// All pairs of associations of IP-TFS with congestion control.
    pub fn pairs(&self) -> impl Iterator<Item = PairView> {
        self.aggregations.pairs.iter().map(|(key, pair)| view(key, pair))
    }

    /// The pairs that have got no feedback for so long that their rate is the lowest one, each once until there is feedback again.
    pub fn take_silent(&mut self) -> Vec<PairView> {
        let silent = core::mem::take(&mut self.aggregations.silent);
        silent.iter().filter_map(|key| Some(view(key, self.aggregations.pairs.get(key)?))).collect()
    }

    /// Has an outbound association use the congestion control of its pair, or none, as its rate says.
    pub(super) fn join_pair(&mut self, id: SaId) {
        let Some(sa) = self.get(id) else { return };
        let Some(aggregation) = &sa.aggregation else { return };
        let rate = aggregation.config.rate.filter(|rate| rate.congestion_control);
        let (before, key) = (aggregation.pair, rate.map(|_| outbound(sa)));
        if let (Some(rate), Some(key)) = (&rate, key) {
            let pair = self.aggregations.pairs.entry(key).or_insert_with(|| Pair::new(rate));
            pair.congestion.set_rate(rate);
            pair.users += usize::from(before != Some(key));
        }
        if let Some(before) = before.filter(|before| Some(*before) != key) {
            self.leave_pair(&before);
        }
        if let Some(aggregation) = self.aggregation_mut(id) {
            aggregation.pair = key;
        }
    }

    /// An association does not use the congestion control of its pair any more. With the last one goes what is known of the path.
    pub(super) fn leave_pair(&mut self, key: &PairKey) {
        let pairs = &mut self.aggregations.pairs;
        if let Some(pair) = pairs.get_mut(key) {
            pair.users -= 1;
            if pair.users == 0 {
                pairs.remove(key);
                self.aggregations.silent.remove(key);
            }
        }
    }

    /// Tells the congestion control of a pair that an association from the peer is deleted.
    pub(super) fn forget_arrivals(&mut self, gone: &Sa) {
        if let Some(pair) = self.aggregations.pairs.get_mut(&inbound(gone)) {
            pair.congestion.forget(gone.serial);
        }
    }

    /// Tells the congestion control of a pair of the payload of an authentic packet that came in by it.
    pub(super) fn note_arrival(&mut self, id: SaId, number: u64, payload: &[u8], marked: bool) {
        if self.aggregations.pairs.is_empty() {
            return;
        }
        let Some((key, serial)) = self.get(id).map(|sa| (inbound(sa), sa.serial)) else { return };
        let now_ns = self.aggregations.now_ns;
        if let Some(pair) = self.aggregations.pairs.get_mut(&key) {
            pair.congestion.input(serial, number, payload, marked, now_ns);
        }
    }

    /// The interval behind a packet that leaves an association now, and its header, if it has congestion control.
    pub(super) fn congestion_output(&mut self, id: SaId, now_ns: u64) -> Option<(u64, CcHeader)> {
        let key = self.aggregation_mut(id)?.pair?;
        let pair = self.aggregations.pairs.get_mut(&key)?;
        let output = pair.congestion.output(now_ns);
        let is_silent = pair.congestion.sending().is_silent();
        if is_silent && !pair.is_noted {
            self.aggregations.silent.insert(key);
        }
        pair.is_noted = is_silent;
        Some(output)
    }
}
