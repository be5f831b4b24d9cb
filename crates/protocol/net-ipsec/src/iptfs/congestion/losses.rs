//! The receiving half: loss events, by the numbers of outer packets (RFC 5348 sections 5 and 6.3.1).

use super::equation;
use arrayvec::ArrayVec;

/// The numbers that are looked at, up to the highest one: what comes later than that many others does not count.
const WINDOW: u64 = 64;
/// A packet is lost once so many have come that were sent later.
const LATER: u32 = 3;
/// The loss intervals that count beside the open one, and their weights.
const INTERVALS: usize = 8;
const WEIGHTS: [f64; INTERVALS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// The least that is left of an interval's weight during a long time without losses.
const LEAST_DISCOUNT: f64 = 0.25;
/// The most loss events of packets of which one behind the other is lost; the last one is as long as they are. After an
/// interruption the sender has become slower already, because nothing has told it of its packets.
const EVENTS_OF_GAP: usize = 2;
/// The shortest time over which packets are counted, in nanoseconds.
const COUNTED_NS: u64 = 10_000_000;
const SECOND_NS: f64 = 1e9;

/// A packet that has come, or the first one of a loss event.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    number: u64,
    at_ns: u64,
}

/// The begin of a loss event.
#[derive(Debug, Clone, Copy)]
struct Event {
    place: Place,
    /// Whether the packet has come, with a mark.
    marked: bool,
}

/// From one loss event to the next.
#[derive(Debug, Clone, Copy)]
struct Interval {
    pkts: f64,
    /// The rest of its weight.
    discount: f64,
    marked: bool,
}

/// The packets that come from a peer, and those that do not.
#[derive(Debug, Clone)]
pub struct Losses {
    begun: bool,
    /// It is added to the numbers of an association, so that they go on from the last one's.
    offset: u64,
    highest: u64,
    first: u64,
    /// The numbers that have come, and those with a mark; that of `highest` is the lowest bit.
    seen: u64,
    marks: u64,
    times_ns: [u64; WINDOW as usize],
    /// It is known of all before this one whether they have come.
    judged: u64,
    /// The last one of those that has come.
    last: Place,
    rtt_ns: u64,
    event: Option<Event>,
    /// The newest first.
    intervals: ArrayVec<Interval, INTERVALS>,
    discount: f64,
    /// The highest rate of an RTT so far, in packets a second.
    peak: f64,
    counted: u64,
    counted_from_ns: u64,
}

impl Default for Losses {
    fn default() -> Self {
        Losses {
            begun: false,
            offset: 0,
            highest: 0,
            first: 0,
            seen: 0,
            marks: 0,
            times_ns: [0; WINDOW as usize],
            judged: 0,
            last: Place::default(),
            rtt_ns: 0,
            event: None,
            intervals: ArrayVec::new(),
            discount: 1.0,
            peak: 0.0,
            counted: 0,
            counted_from_ns: 0,
        }
    }
}

impl Losses {
    /// Sets the RTT that the sender knows of.
    pub fn set_rtt(&mut self, rtt_ns: u64) {
        self.rtt_ns = rtt_ns;
    }

    /// Numbers begin anew with this one: another association has taken over. What is open of the last one's is forgiven.
    pub fn renumber(&mut self, number: u64) {
        if self.begun {
            self.offset = self.highest.wrapping_add(1).wrapping_sub(number);
            (self.seen, self.judged) = (u64::MAX, self.highest.saturating_add(1));
            self.last = Place { number: self.highest, at_ns: self.times_ns[slot(self.highest)] };
        }
    }

    /// An authentic packet has come, with a mark of congestion or without; `is_probing` if others may be missing because they were
    /// too long. A number that was there already counts once.
    pub fn arrive(&mut self, number: u64, marked: bool, is_probing: bool, now_ns: u64) {
        // One less than there is, so that each has one behind it.
        let number = number.wrapping_add(self.offset).min(u64::MAX - 1);
        if !self.begun {
            (self.begun, self.highest, self.first, self.judged) = (true, number, number, number);
            (self.last, self.counted_from_ns) = (Place { number, at_ns: now_ns }, now_ns);
            self.see(number, marked, now_ns);
            return self.judge();
        }
        if number > self.highest {
            self.count(now_ns);
            self.open(number, is_probing, now_ns);
            self.see(number, marked, now_ns);
        } else if number >= self.judged && self.seen >> (self.highest - number) & 1 == 0 {
            self.count(now_ns);
            self.see(number, marked, now_ns);
        }
        self.judge();
    }

    /// The inverse of the loss event rate, 0 without loss (section 5.4), and whether marks are a part of it.
    pub fn loss_interval(&mut self) -> (u32, bool) {
        let Some(event) = self.event else { return (0, false) };
        // What is missing among the last ones may be lost: it is no part of a time without losses.
        let open = self.judged.saturating_sub(event.place.number) as f64;
        let mut mean = self.mean(open, 1.0);
        // A long time without losses weighs more than what was before it (section 5.5).
        self.discount = 1.0;
        if open > 2.0 * mean {
            self.discount = (2.0 * mean / open).max(LEAST_DISCOUNT);
            mean = mean.max(self.mean(open, self.discount));
        }
        let marked = event.marked || self.intervals.iter().any(|interval| interval.marked);
        (mean.round().clamp(1.0, u32::MAX.into()) as u32, marked)
    }

    /// The weighted mean of the intervals, with the open one or without it, whichever is longer.
    fn mean(&self, open: f64, discount: f64) -> f64 {
        let (mut with, mut without) = ((open, 1.0), (0.0, 0.0));
        for (at, interval) in self.intervals.iter().enumerate() {
            let weight = WEIGHTS[at] * interval.discount;
            without = (without.0 + interval.pkts * weight, without.1 + weight);
            if let Some(weight) = WEIGHTS.get(at + 1) {
                let weight = weight * interval.discount * discount;
                with = (with.0 + interval.pkts * weight, with.1 + weight);
            }
        }
        (with.0 / with.1).max(without.0 / without.1)
    }

    /// Counts a packet before the first loss event, and knows the rate after an RTT.
    fn count(&mut self, now_ns: u64) {
        if self.event.is_some() {
            return;
        }
        self.counted += 1;
        let over_ns = now_ns.saturating_sub(self.counted_from_ns);
        if over_ns >= self.rtt_ns.max(COUNTED_NS) {
            self.peak = self.peak.max(self.counted as f64 * SECOND_NS / over_ns as f64);
            (self.counted, self.counted_from_ns) = (0, now_ns);
        }
    }

    /// Moves the window up to a number that is higher than all before.
    fn open(&mut self, number: u64, is_probing: bool, now_ns: u64) {
        let step = number - self.highest;
        if step < WINDOW {
            self.judge_before(number.saturating_sub(WINDOW - 1));
            (self.seen, self.marks) = (self.seen << step, self.marks << step);
            if is_probing {
                self.skip(step);
            }
        } else {
            self.judge_before(self.highest + 1);
            if !is_probing {
                self.lose(self.judged, number, Place { number, at_ns: now_ns });
            }
            (self.seen, self.marks, self.judged) = (0, 0, number);
        }
        self.highest = number;
    }

    /// Takes what is missing between the highest number and the next one, `step` after it, as if it had come with it.
    fn skip(&mut self, step: u64) {
        for back in 1..step {
            self.seen |= 1 << back;
            let number = self.highest + step - back;
            self.times_ns[slot(number)] = self.times_ns[slot(self.highest)];
        }
    }

    fn see(&mut self, number: u64, marked: bool, now_ns: u64) {
        let back = self.highest - number;
        self.seen |= 1 << back;
        self.marks |= u64::from(marked) << back;
        self.times_ns[slot(number)] = now_ns;
    }

    /// Judges what is known by now.
    fn judge(&mut self) {
        while self.judged <= self.highest && (self.passed() || self.later().count_ones() >= LATER) {
            self.step(self.highest);
        }
    }

    /// Judges all before this number, none of which is higher than the highest one.
    fn judge_before(&mut self, number: u64) {
        while self.judged < number {
            self.step(number - 1);
        }
    }

    /// Whether the next number to be judged has come.
    fn passed(&self) -> bool {
        self.seen >> (self.highest - self.judged) & 1 != 0
    }

    /// Those that have come behind the next number to be judged.
    fn later(&self) -> u64 {
        self.seen & ((1 << (self.highest - self.judged)) - 1)
    }

    /// Judges the next number that has come, or all that are lost before the one behind them, up to `most`.
    fn step(&mut self, most: u64) {
        let number = self.judged;
        if self.passed() {
            let place = Place { number, at_ns: self.times_ns[slot(number)] };
            self.last = place;
            if self.marks >> (self.highest - number) & 1 != 0 && self.is_apart(place.at_ns) {
                self.begin_event(Event { place, marked: true });
            }
            self.judged += 1;
        } else {
            // The highest one has come.
            let back = u64::from(63 - (self.later() | 1).leading_zeros());
            let next = self.highest - back;
            let end = next.min(most + 1);
            self.lose(number, end, Place { number: next, at_ns: self.times_ns[slot(next)] });
            self.judged = end;
        }
    }

    /// These numbers are lost, before one that has come. Their times lie between that one's and the last one's before them
    /// (section 5.2).
    fn lose(&mut self, from: u64, to: u64, next: Place) {
        let last = self.last;
        let steps = next.number.saturating_sub(last.number).max(1);
        let step_ns = next.at_ns.saturating_sub(last.at_ns) / steps;
        let at_ns = |number: u64| last.at_ns.saturating_add(step_ns.saturating_mul(number - last.number));
        let mut number = from;
        for _ in 0..EVENTS_OF_GAP {
            if !self.is_apart(at_ns(number)) {
                let over_ns = self.event.map_or(0, |event| event.place.at_ns.saturating_add(self.rtt_ns));
                let Some(steps) = over_ns.saturating_sub(last.at_ns).checked_div(step_ns) else { return };
                number = last.number.saturating_add(steps).saturating_add(1).max(number);
            }
            if number >= to {
                return;
            }
            self.begin_event(Event { place: Place { number, at_ns: at_ns(number) }, marked: false });
            number += 1;
        }
        if number < to
            && self.is_apart(at_ns(to - 1))
            && let Some(event) = &mut self.event
        {
            // What is lost is no part of the interval that follows.
            event.place = Place { number: to - 1, at_ns: at_ns(to - 1) };
        }
    }

    /// Whether what was lost at this time is no part of the last loss event.
    fn is_apart(&self, at_ns: u64) -> bool {
        self.event.is_none_or(|event| at_ns > event.place.at_ns.saturating_add(self.rtt_ns))
    }

    fn begin_event(&mut self, event: Event) {
        let (pkts, marked) = match self.event {
            None => (self.first_interval(event.place.number), false),
            Some(before) => (event.place.number.saturating_sub(before.place.number) as f64, before.marked),
        };
        self.intervals.iter_mut().for_each(|interval| interval.discount *= self.discount);
        self.intervals.truncate(INTERVALS - 1);
        self.intervals.insert(0, Interval { pkts: pkts.max(1.0), discount: 1.0, marked });
        self.discount = 1.0;
        self.event = Some(event);
    }

    /// The interval before the first loss event: the one that goes with the highest rate at which packets came, because the sender
    /// has been looking for the limit.
    fn first_interval(&self, number: u64) -> f64 {
        if self.peak > 0.0 && self.rtt_ns > 0 {
            equation::loss_interval(self.rtt_ns as f64 / SECOND_NS, self.peak)
        } else {
            number.saturating_sub(self.first) as f64
        }
    }
}

fn slot(number: u64) -> usize {
    (number % WINDOW) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// One packet each millisecond, but for those that are lost.
    fn sent(losses: &mut Losses, numbers: core::ops::Range<u64>, is_lost: impl Fn(u64) -> bool) {
        for number in numbers.filter(|number| !is_lost(*number)) {
            losses.arrive(number, false, false, number * MS);
        }
    }

    fn with_rtt(rtt_ms: u64) -> Losses {
        let mut losses = Losses::default();
        losses.set_rtt(rtt_ms * MS);
        losses
    }

    #[test]
    fn without_loss_there_is_none() {
        let mut losses = with_rtt(10);
        for number in (2..1000).map(|number| number ^ 1) {
            losses.arrive(number, false, false, number * MS);
            losses.arrive(number, false, false, number * MS);
        }
        assert_eq!(losses.loss_interval(), (0, false), "they come in another order, and twice");
    }

    #[test]
    fn losses_within_an_rtt_are_one_event() {
        let mut losses = with_rtt(20);
        sent(&mut losses, 1..5000, |number| number % 100 < 7);
        assert_eq!(losses.loss_interval(), (100, false));
        let mut losses = with_rtt(4);
        sent(&mut losses, 1..5000, |number| number % 100 < 7);
        // The fifth is more than an RTT behind the first: two events each time, 5 and 95 packets from one to the next.
        let (found, _) = losses.loss_interval();
        assert!((45..=60).contains(&found), "{found}");
    }

    #[test]
    fn a_packet_is_late_before_it_is_lost() {
        let mut losses = with_rtt(10);
        for number in [1, 2, 4, 5, 3, 6, 7, 8, 9, 11, 12, 10] {
            losses.arrive(number, false, false, number * MS);
        }
        assert_eq!(losses.loss_interval().0, 0, "by two packets");
        for number in [14, 15, 16, 13] {
            losses.arrive(number, false, false, number * MS);
        }
        assert_ne!(losses.loss_interval().0, 0, "by three packets");
    }

    /// Without an RTT nothing is known of the rate that would fit.
    #[test]
    fn the_first_interval_without_an_rtt() {
        let mut losses = Losses::default();
        sent(&mut losses, 1..60, |number| number == 41);
        assert_eq!(losses.loss_interval().0, 40);
    }

    /// One that fits the rate that there was: 1,000 packets a second.
    #[test]
    fn the_first_interval() {
        let mut losses = with_rtt(100);
        sent(&mut losses, 1..2000, |number| number == 1900);
        let (found, _) = losses.loss_interval();
        let rate = equation::rate(0.1, found.into());
        assert!((950.0..1050.0).contains(&rate), "{found}: {rate}");
    }

    #[test]
    fn marks_count_as_losses() {
        let mut losses = with_rtt(20);
        for number in 1..3000 {
            losses.arrive(number, number % 100 < 3, false, number * MS);
        }
        assert_eq!(losses.loss_interval(), (100, true));
        // A long time afterwards none is left.
        sent(&mut losses, 3000..6000, |number| number % 100 == 0);
        assert_eq!(losses.loss_interval(), (100, false));
    }

    #[test]
    fn what_is_lost_by_probing_is_not_lost() {
        let mut losses = with_rtt(10);
        for number in (1..100).filter(|number| number % 10 != 0) {
            losses.arrive(number, false, number % 10 == 1, number * MS);
        }
        losses.arrive(1000, false, true, 1000 * MS);
        assert_eq!(losses.loss_interval().0, 0);
    }

    /// A long time without losses counts soon, and the more the longer it is.
    #[test]
    fn losses_are_forgotten() {
        let mut losses = with_rtt(5);
        sent(&mut losses, 1..1000, |number| number % 20 == 0);
        assert_eq!(losses.loss_interval().0, 20);
        sent(&mut losses, 1000..1200, |_| false);
        let (soon, _) = losses.loss_interval();
        sent(&mut losses, 1200..10_000, |_| false);
        let (late, _) = losses.loss_interval();
        assert!(soon > 50 && late > 3000, "{soon}, {late}");
    }

    /// Of fifty packets one comes: three that are later take a long time, in which nothing is forgotten.
    #[test]
    fn most_are_lost() {
        let mut losses = with_rtt(2);
        sent(&mut losses, 1..1000, |_| false);
        for number in (1000..10_000).step_by(50) {
            losses.arrive(number, false, false, number * MS);
            assert!(number < 2000 || losses.loss_interval().0 <= 25, "{number}: {}", losses.loss_interval().0);
        }
    }

    #[test]
    fn an_interruption_is_few_events() {
        let mut losses = with_rtt(5);
        sent(&mut losses, 1..1000, |number| number % 50 == 0);
        let before = losses.loss_interval().0;
        sent(&mut losses, 1000..3000, |number| number < 2900);
        let after = losses.loss_interval().0;
        assert!(before == 50 && (40..=60).contains(&after), "{before}, then {after}");
    }

    #[test]
    fn other_keys_change_nothing() {
        let mut losses = with_rtt(5);
        sent(&mut losses, 1..1010, |number| number % 100 == 0);
        let before = losses.loss_interval();
        losses.renumber(1);
        for number in 1..50 {
            losses.arrive(number, false, false, (1010 + number) * MS);
        }
        assert_eq!((before, losses.loss_interval()), ((100, false), (100, false)));
        let mut empty = Losses::default();
        empty.renumber(u64::MAX);
        empty.arrive(u64::MAX, true, true, u64::MAX);
        empty.arrive(u64::MAX, true, true, 0);
        assert_eq!(empty.loss_interval().0, 1, "a mark on the first one");
    }

    /// Any numbers at any times are taken.
    #[test]
    fn nothing_is_too_strange() {
        let mut seed = 7u64;
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            seed >> 33
        };
        for _ in 0..200 {
            let mut losses = Losses::default();
            let mut number = [0, 1, u64::MAX - 500][next() as usize % 3];
            for _ in 0..300 {
                match next() % 16 {
                    0 => number = number.saturating_add(next() << (next() % 24)),
                    1 => number = number.saturating_sub(next() % 90),
                    2 => losses.renumber(number),
                    3 => losses.set_rtt(next()),
                    _ => number = number.saturating_add(next() % 3),
                }
                losses.arrive(number, next() % 9 == 0, next() % 9 == 0, next() << (next() % 30));
                let _ = losses.loss_interval();
            }
        }
    }
}
