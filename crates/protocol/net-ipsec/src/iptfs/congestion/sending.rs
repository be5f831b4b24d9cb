//! The sending half: the rate by the RTT and the loss event rate (RFC 5348 section 4).

use super::equation;
use super::header::CcHeader;
use crate::iptfs::config::{NS_IN_US, Rate};

/// Packets a second before anything is known of the path.
const FIRST: f64 = 1.0;
/// The lowest rate, in packets a second, unless the highest one is lower. A header does not tell of longer delays.
const LOWEST: f64 = 0.5;
/// Nanoseconds without feedback after which the rate is halved, before there is an RTT.
const FIRST_WAIT_NS: u64 = 2_000_000_000;
/// The same at least, whatever the RTT: a thread of the peer that is woken late is no interruption.
const LEAST_WAIT_NS: u64 = 100_000_000;
/// The packets of the first RTT have this many bytes together, and there are two to four of them.
const FIRST_BYTES: f64 = 4380.0;
const FIRST_PKTS: [f64; 2] = [2.0, 4.0];
/// The part that an RTT's estimate keeps when another sample comes.
const KEPT: f64 = 0.9;
/// The packets over which the time from one to the next is a mean while some are lost: as many as the loss intervals have together
/// when the equation gives one or two packets an RTT. It then stays what it is while these find the loss event rate.
const GAPS: f64 = 64.0;
/// The least and the most that a delay which differs from the mean multiplies the rate by.
const DAMPING: [f64; 2] = [0.5, 2.0];
/// An echo that comes back after so many microseconds is of nothing that was sent.
const LONGEST_US: u32 = 300_000_000;

const SECOND_NS: f64 = 1e9;
const SECOND_US: f64 = 1e6;

/// The rate at which packets leave to a peer.
#[derive(Debug, Clone)]
pub struct Sending {
    /// Packets a second.
    highest: f64,
    first_pkts: f64,
    rate: f64,
    /// The mean delay of the path there and back, in seconds, and the mean of its square root; `None` before the first sample.
    path: Option<(f64, f64)>,
    /// The last sample's part in the rate, so that a queue that fills is not filled further (section 4.5).
    damping: f64,
    /// The mean time from one packet to the next, of both ends together, in seconds.
    gaps_s: f64,
    rtt_s: f64,
    loss_interval: u32,
    /// When the rate may rise, and when it is halved without feedback.
    rises_ns: u64,
    quiet_ns: Option<u64>,
    /// When the packet left that the last feedback was about, in microseconds.
    echoed_us: u64,
    is_silent: bool,
}

impl Sending {
    /// One that knows nothing of its path.
    #[must_use]
    pub fn new(rate: &Rate) -> Self {
        let mut sending = Sending {
            highest: FIRST,
            first_pkts: FIRST_PKTS[0],
            rate: FIRST,
            path: None,
            damping: 1.0,
            gaps_s: 0.0,
            rtt_s: 0.0,
            loss_interval: 0,
            rises_ns: 0,
            quiet_ns: None,
            echoed_us: 0,
            is_silent: false,
        };
        sending.set_rate(rate);
        sending
    }

    /// Changes the highest rate.
    pub fn set_rate(&mut self, rate: &Rate) {
        self.highest = SECOND_NS / rate.interval_ns.max(1) as f64;
        self.first_pkts = (FIRST_BYTES / f64::from(rate.packet_len.max(1))).clamp(FIRST_PKTS[0], FIRST_PKTS[1]);
        self.rate = self.within(self.rate);
    }

    /// Takes what a peer says of the packets that it gets. It is feedback where it answers a packet that none before has answered:
    /// a peer to which nothing comes repeats the last one.
    pub fn feedback(&mut self, header: &CcHeader, now_ns: u64) {
        let now_us = now_ns / NS_IN_US;
        let elapsed_us = time(now_ns).wrapping_sub(header.echo);
        let sent_us = now_us.saturating_sub(elapsed_us.into());
        if header.echo == 0 || elapsed_us > LONGEST_US || self.path.is_some() && sent_us <= self.echoed_us {
            return;
        }
        self.echoed_us = sent_us;
        let sample_s = f64::from(elapsed_us.saturating_sub(header.echo_delay_us).max(1)) / SECOND_US;
        let root = sample_s.sqrt();
        let smooth = |of: f64, sample: f64| KEPT * of + (1.0 - KEPT) * sample;
        let (path_s, mean_root) =
            self.path.map_or((sample_s, root), |(path_s, mean)| (smooth(path_s, sample_s), smooth(mean, root)));
        let is_first = self.path.replace((path_s, mean_root)).is_none();
        // Nothing is known sooner than the next packets of both ends say it (RFC 9347 section 3). While the rate follows from the RTT
        // that is the mean: on a short path a lower rate would else make it lower again, and a higher one higher, at the same losses.
        let gaps_s = 1.0 / self.rate + f64::from(header.transmit_delay_us) / SECOND_US;
        let part = if is_first || header.loss_interval == 0 { 1.0 } else { 1.0 / GAPS };
        self.gaps_s += (gaps_s - self.gaps_s) * part;
        self.rtt_s = path_s.max(self.gaps_s);
        let is_worse =
            header.loss_interval != 0 && (self.loss_interval == 0 || header.loss_interval < self.loss_interval);
        self.loss_interval = header.loss_interval;
        if is_first || now_ns >= self.rises_ns {
            // Twice as much as the peer gets, which is not told: it gets what is sent (RFC 9347 appendix B).
            let most = 2.0 * self.rate;
            self.rate = match self.by_equation() {
                Some(rate) => self.within(rate.min(most)),
                None if is_first => self.within(self.first_rate()),
                None => self.within(self.first_rate().max(most)),
            };
            self.rises_ns = now_ns.saturating_add((self.rtt_s * SECOND_NS) as u64);
        } else if is_worse && let Some(rate) = self.by_equation() {
            self.rate = self.within(rate.min(self.rate));
        }
        let is_lossy = self.loss_interval != 0;
        self.damping = if is_lossy { (mean_root / root).clamp(DAMPING[0], DAMPING[1]) } else { 1.0 };
        self.quiet_ns = Some(now_ns.saturating_add(self.wait_ns()));
        self.is_silent = false;
    }

    /// Halves the rate where no feedback has come in time. To be called before packets leave.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let wait_ns = self.wait_ns();
        let quiet_ns = *self.quiet_ns.get_or_insert_with(|| now_ns.saturating_add(wait_ns));
        if now_ns >= quiet_ns {
            self.is_silent |= self.rate <= self.lowest();
            self.rate = self.within(self.rate / 2.0);
            self.damping = 1.0;
            self.quiet_ns = Some(now_ns.saturating_add(self.wait_ns()));
        }
    }

    /// Nanoseconds from one packet to the next.
    #[must_use]
    pub fn interval_ns(&self) -> u64 {
        ((SECOND_NS / self.within(self.rate * self.damping)) as u64).max(1)
    }

    /// The shortest interval, in nanoseconds.
    #[must_use]
    pub fn least_interval_ns(&self) -> u64 {
        (SECOND_NS / self.highest) as u64
    }

    /// The estimate of the RTT in microseconds, 0 before there is one.
    #[must_use]
    pub fn rtt_us(&self) -> u32 {
        (self.rtt_s * SECOND_US).round() as u32
    }

    /// The mean number of packets from one loss event to the next, as the peer says; 0 without loss.
    #[must_use]
    pub fn loss_interval(&self) -> u32 {
        self.loss_interval
    }

    /// Whether the rate is the lowest one because no feedback comes.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The rate of the first RTT.
    fn first_rate(&self) -> f64 {
        self.first_pkts / self.rtt_s
    }

    /// The rate with the losses that there are; `None` without any.
    fn by_equation(&self) -> Option<f64> {
        (self.loss_interval != 0).then(|| equation::rate(self.rtt_s, self.loss_interval.into()))
    }

    fn lowest(&self) -> f64 {
        LOWEST.min(self.highest)
    }

    fn within(&self, rate: f64) -> f64 {
        rate.max(self.lowest()).min(self.highest)
    }

    /// The time after which there should have been feedback: four RTTs, or that of two packets.
    fn wait_ns(&self) -> u64 {
        match self.path {
            Some(_) => (((4.0 * self.rtt_s).max(2.0 / self.rate) * SECOND_NS) as u64).max(LEAST_WAIT_NS),
            None => FIRST_WAIT_NS,
        }
    }
}

/// The time that a header has, in microseconds, never 0.
#[must_use]
pub(super) fn time(now_ns: u64) -> u32 {
    ((now_ns / NS_IN_US) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START_NS: u64 = 5_000_000_000_000;

    fn sending() -> Sending {
        Sending::new(&Rate { interval_ns: MS, packet_len: 1460, congestion_control: true })
    }

    /// Feedback that comes now for a packet that has left so long ago.
    fn hear(sending: &mut Sending, loss_interval: u32, rtt_ms: u64, now_ns: u64) {
        let echo = time(now_ns - rtt_ms * MS - 3 * MS);
        let header =
            CcHeader { loss_interval, echo, echo_delay_us: 3000, transmit_delay_us: 1000, ..CcHeader::default() };
        sending.feedback(&header, now_ns);
    }

    fn pkts_per_second(sending: &Sending) -> u64 {
        1_000_000_000 / sending.interval_ns()
    }

    #[test]
    fn it_begins_slowly() {
        let mut sending = sending();
        sending.handle_timeout(START_NS);
        assert_eq!((sending.interval_ns(), sending.rtt_us()), (1000 * MS, 0));
        // Two intervals are longer than the path.
        hear(&mut sending, 0, 50, START_NS + MS);
        assert_eq!((sending.rtt_us(), pkts_per_second(&sending)), (1_001_000, 2));
        let mut now_ns = START_NS + MS;
        let mut rates = Vec::new();
        for _ in 0..4000 {
            now_ns += 5 * MS;
            hear(&mut sending, 0, 50, now_ns);
            if rates.last() != Some(&pkts_per_second(&sending)) {
                rates.push(pkts_per_second(&sending));
            }
        }
        assert!(rates.windows(2).all(|pair| pair[1] > pair[0] && pair[1] <= 5 * pair[0]), "{rates:?}");
        assert_eq!((rates.last(), sending.rtt_us()), (Some(&1000), 50_000), "the highest one");
    }

    #[test]
    fn losses_lower_it() {
        let mut sending = sending();
        (0..1000).for_each(|turn| hear(&mut sending, 0, 50, START_NS + turn * 50 * MS));
        assert_eq!(pkts_per_second(&sending), 1000);
        // The equation's: 11.23 packets an RTT at a loss event rate of 1 %.
        let now_ns = START_NS + 50_001 * MS;
        hear(&mut sending, 100, 50, now_ns);
        assert_eq!(pkts_per_second(&sending), 224);
        // What repeats an answer is none.
        let before = sending.clone();
        hear(&mut sending, 10, 51, now_ns + MS);
        assert_eq!(pkts_per_second(&sending), pkts_per_second(&before));
        // Twice as much each RTT, up to what the losses permit.
        hear(&mut sending, 10_000, 50, now_ns + 2 * MS);
        assert_eq!(pkts_per_second(&sending), 224);
        hear(&mut sending, 10_000, 50, now_ns + 60 * MS);
        assert_eq!(pkts_per_second(&sending), 449);
        hear(&mut sending, 1000, 50, now_ns + 120 * MS);
        assert_eq!(pkts_per_second(&sending), 767, "38.38 packets an RTT");
    }

    #[test]
    fn a_delay_that_grows_lowers_it() {
        let mut sending = sending();
        (0..1000).for_each(|turn| hear(&mut sending, 1000, 50, START_NS + turn * 50 * MS));
        let before = pkts_per_second(&sending);
        hear(&mut sending, 1000, 100, START_NS + 50_100 * MS);
        let after = pkts_per_second(&sending);
        assert!(before == 767 && (450..600).contains(&after), "{before}, then {after}");
    }

    #[test]
    fn silence_lowers_it() {
        let mut sending = sending();
        (0..1000).for_each(|turn| hear(&mut sending, 0, 50, START_NS + turn * 50 * MS));
        let last_ns = START_NS + 999 * 50 * MS;
        sending.handle_timeout(last_ns + 199 * MS);
        assert_eq!(pkts_per_second(&sending), 1000);
        sending.handle_timeout(last_ns + 200 * MS);
        assert_eq!(pkts_per_second(&sending), 500);
        let mut now_ns = last_ns;
        while !sending.is_silent() {
            now_ns += MS;
            sending.handle_timeout(now_ns);
        }
        assert_eq!(sending.interval_ns(), 2000 * MS);
        let silent_ms = (now_ns - last_ns) / MS;
        assert!((8_000..20_000).contains(&silent_ms), "{silent_ms} ms");
        hear(&mut sending, 0, 50, now_ns);
        assert!(!sending.is_silent());
    }

    /// A peer that never answers.
    #[test]
    fn silence_from_the_start() {
        let mut sending = sending();
        for (at_s, interval_s, is_silent) in [(0, 1, false), (1, 1, false), (2, 2, false), (3, 2, false), (4, 2, true)]
        {
            sending.handle_timeout(START_NS + at_s * 1000 * MS);
            assert_eq!((sending.interval_ns(), sending.is_silent()), (interval_s * 1000 * MS, is_silent), "{at_s}");
        }
        let mut slow = Sending::new(&Rate { interval_ns: 10_000 * MS, packet_len: 100, congestion_control: true });
        slow.handle_timeout(START_NS);
        slow.handle_timeout(START_NS + 2000 * MS);
        assert_eq!((slow.interval_ns(), slow.is_silent()), (10_000 * MS, true), "not higher than the highest one");
    }

    #[test]
    fn what_cannot_be_is_no_feedback() {
        let mut sending = sending();
        let now_ns = START_NS;
        for echo in [0, time(now_ns).wrapping_add(1), time(now_ns).wrapping_sub(LONGEST_US + 1)] {
            sending.feedback(&CcHeader { echo, ..CcHeader::default() }, now_ns);
        }
        assert_eq!(sending.rtt_us(), 0);
        // A delay that is longer than the time since then counts as none.
        let late = CcHeader { echo: time(now_ns - MS), echo_delay_us: 5000, ..CcHeader::default() };
        sending.feedback(&late, now_ns);
        assert_eq!(sending.rtt_us(), 1_000_000);
    }

    #[test]
    fn another_highest_rate() {
        let mut sending = sending();
        (0..1000).for_each(|turn| hear(&mut sending, 0, 50, START_NS + turn * 50 * MS));
        sending.set_rate(&Rate { interval_ns: 10 * MS, packet_len: 1460, congestion_control: true });
        assert_eq!((sending.interval_ns(), sending.least_interval_ns()), (10 * MS, 10 * MS));
    }
}
