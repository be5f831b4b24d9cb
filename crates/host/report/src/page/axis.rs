//! Numbers along an axis: their places, and those that are written beside it.

use crate::data::{Axis, Better, Scale};
use crate::number;

/// A number beside the axis.
pub(super) struct Tick {
    /// From 0, the beginning of the axis, to 1.
    pub(super) at: f64,
    /// As it is written.
    pub(super) text: String,
}

/// An axis with its limits.
pub(super) struct Ruler {
    from: f64,
    to: f64,
    log: bool,
    /// The numbers beside it, ascending.
    pub(super) ticks: Vec<Tick>,
}

impl Ruler {
    /// An axis for these values with at most so many ticks. `whole`: its ends are ticks.
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>, most: usize, whole: bool) -> Self {
        let log = scale == Scale::Log;
        let values: Vec<f64> = values.filter(|value| drawable(scale, *value)).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let most = most.max(2);
        match (values.is_empty(), log) {
            (true, true) => Ruler::log(1.0, 10.0, most, whole, &[]),
            (true, false) => Ruler::linear(0.0, 1.0, most, whole),
            (false, true) => Ruler::log(low, high, most, whole, &values),
            (false, false) => Ruler::linear(low.min(0.0), high.max(0.0), most, whole),
        }
    }

    fn linear(low: f64, high: f64, most: usize, whole: bool) -> Self {
        let high = if high - low < 1e-100 { low + 1.0 } else { high };
        let mut step = step(high - low, most);
        let (mut first, mut last) = ends(low, high, step, whole);
        // Ends that are ticks need more of them.
        while last - first >= most as f64 {
            step = self::step(step * most as f64 * 1.01, most);
            (first, last) = ends(low, high, step, whole);
        }
        let (from, to) = if whole { (first * step, last * step) } else { (low, high) };
        let mut ruler = Ruler { from, to, log: false, ticks: Vec::new() };
        let mut at = first;
        while at <= last {
            ruler.tick(at * step);
            at += 1.0;
        }
        ruler
    }

    fn log(low: f64, high: f64, most: usize, whole: bool, values: &[f64]) -> Self {
        let (low, high) = if low == high { (low / 2.0, high * 2.0) } else { (low, high) };
        if !whole && values.iter().all(|value| value.log2().fract() == 0.0) && values.len() > 1 {
            return Ruler::powers_of_two(low, high, most);
        }
        // The finest of these that is not too fine.
        for within in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]] {
            let ticks = decades(low, high, within, whole);
            let inside = ticks.iter().filter(|tick| (low..=high).contains(*tick)).count();
            if ticks.len() <= most && (inside >= 2 || within.len() == 1 && ticks.len() >= 2) {
                let (from, to) = if whole { (ticks[0], *ticks.last().unwrap_or(&high)) } else { (low, high) };
                return Ruler::with(from, to, ticks.into_iter().filter(|tick| (from..=to).contains(tick)));
            }
        }
        let all = decades(low, high, &[1.0], whole);
        if all.len() > most {
            let every = all.len().div_ceil(most);
            let (from, to) = if whole { (all[0], *all.last().unwrap_or(&high)) } else { (low, high) };
            return Ruler::with(from, to, all.into_iter().step_by(every));
        }
        // Less than a decade, with no such number in it: even steps.
        let step = step(high - low, most);
        let (first, last) = ends(low, high, step, false);
        let count = (last - first).max(0.0) as usize;
        Ruler::with(low, high, (0..=count).map(|at| (first + at as f64) * step))
    }

    fn powers_of_two(low: f64, high: f64, most: usize) -> Self {
        let (first, last) = (low.log2().round() as i32, high.log2().round() as i32);
        let every = usize::try_from(last - first).unwrap_or(0) / most + 1;
        Ruler::with(low, high, (first..=last).step_by(every).map(|power| f64::from(power).exp2()))
    }

    fn with(from: f64, to: f64, ticks: impl Iterator<Item = f64>) -> Self {
        let mut ruler = Ruler { from, to, log: true, ticks: Vec::new() };
        ticks.for_each(|value| ruler.tick(value));
        ruler
    }

    /// Has these values beside it, and no others.
    pub(super) fn mark(&mut self, values: &[f64]) {
        self.ticks.clear();
        values.iter().for_each(|value| self.tick(*value));
    }

    fn tick(&mut self, value: f64) {
        if let Some(at) = self.at(value) {
            // Steps are added up, and a sum may be no tenth any more.
            let text = number::exact(value);
            self.ticks.push(Tick { at, text });
        }
    }

    /// The place of a value, from 0 to 1; none if the axis cannot show it. A value beyond an end is at that end.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let scale = if self.log { Scale::Log } else { Scale::Linear };
        if !drawable(scale, value) {
            return None;
        }
        let at = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        Some(at.clamp(0.0, 1.0))
    }

    /// The place of 0, or the lower end of an axis without it.
    pub(super) fn zero(&self) -> f64 {
        self.at(0.0).unwrap_or(0.0)
    }
}

/// Whether an axis can show a value. Beyond 10^100, differences might be infinite.
pub(super) fn drawable(scale: Scale, value: f64) -> bool {
    value.abs() <= 1e100 && (scale == Scale::Linear || value >= 1e-100)
}

/// A step of 1, 2 or 5, and zeros, with which a length has at most so many steps.
fn step(length: f64, most: usize) -> f64 {
    let least = length / most as f64;
    let decade = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|digit| digit * decade)
        .into_iter()
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(10.0 * decade)
}

/// The first and the last multiple of a step: around the values, or between them.
fn ends(low: f64, high: f64, step: f64, around: bool) -> (f64, f64) {
    // What a sum of steps lacks for a whole number is no step.
    const NEAR: f64 = 1e-9;
    if around {
        ((low / step + NEAR).floor(), (high / step - NEAR).ceil())
    } else {
        ((low / step - NEAR).ceil(), (high / step + NEAR).floor())
    }
}

/// These digits in each decade from low to high; `around`: and the ones before and after.
fn decades(low: f64, high: f64, digits: &[f64], around: bool) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().floor() as i32);
    let all: Vec<f64> = (first - 1..=last + 1)
        .flat_map(|power| digits.iter().map(move |digit| format!("{digit}e{power}").parse().unwrap_or(f64::NAN)))
        .collect();
    let from = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let to = all.iter().position(|tick| *tick >= high).unwrap_or(all.len() - 1);
    if around {
        return all[from..=to].to_vec();
    }
    all.into_iter().filter(|tick| (low..=high).contains(tick)).collect()
}

/// The title of an axis, with its unit.
pub(super) fn title(axis: &Axis) -> String {
    let mut title = axis.name.clone();
    if !axis.unit.is_empty() {
        title.push_str(", ");
        title.push_str(&axis.unit);
    }
    match axis.better {
        Some(Better::Lower) => title.push_str(" (lower is better)"),
        Some(Better::Higher) => title.push_str(" (higher is better)"),
        None => {}
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale, values: &[f64], most: usize, whole: bool) -> String {
        let ruler = Ruler::new(scale, values.iter().copied(), most, whole);
        for pair in ruler.ticks.windows(2) {
            assert!(pair[0].at < pair[1].at);
        }
        ruler.ticks.iter().map(|tick| tick.text.replace('\u{202f}', "")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn steps_are_round_and_the_axis_begins_at_zero() {
        for (values, most, expected) in [
            (&[3_319.0, 1_256.0][..], 6, "0 1000 2000 3000 4000"),
            (&[0.56, 0.41], 7, "0 0.1 0.2 0.3 0.4 0.5 0.6"),
            (&[0.7], 4, "0 0.5 1"),
            (&[-3.0, 5.0], 6, "−4 −2 0 2 4 6"),
            (&[0.0, 0.0], 6, "0 0.2 0.4 0.6 0.8 1"),
            (&[], 6, "0 0.2 0.4 0.6 0.8 1"),
            (&[f64::NAN, f64::INFINITY, 2.0], 5, "0 0.5 1 1.5 2"),
            (&[f64::MAX], 6, "0 0.2 0.4 0.6 0.8 1"),
            (&[1.0, 2.0, 3.0], 4, "0 1 2 3"),
        ] {
            assert_eq!(ticks(Scale::Linear, values, most, true), expected, "{values:?}");
        }
    }

    #[test]
    fn logarithms_have_decades_or_powers_of_two() {
        for (values, most, whole, expected) in [
            (
                &[16.0, 64.0, 256.0, 1_024.0, 8_192.0, 16_384.0][..],
                12,
                false,
                "16 32 64 128 256 512 1024 2048 4096 8192 16384",
            ),
            (&[16.0, 64.0, 256.0, 1_024.0, 8_192.0, 16_384.0], 6, false, "16 64 256 1024 4096 16384"),
            (&[10.0, 100.0, 1_000.0], 6, false, "10 30 100 300 1000"),
            (&[10.0, 100.0, 1_000.0], 8, false, "10 20 50 100 200 500 1000"),
            (&[0.3, 40.0], 8, true, "0.2 0.5 1 2 5 10 20 50"),
            (&[1.0, 1e9], 5, true, "1 100 10000 1000000 100000000"),
            (&[2.2, 4.4], 5, false, "2.5 3 3.5 4"),
            (&[0.0, -3.0, 5.0, 50.0], 6, true, "5 10 20 50"),
            (&[7.0], 5, true, "2 5 10 20"),
            (&[], 5, true, "1 2 5 10"),
        ] {
            assert_eq!(ticks(Scale::Log, values, most, whole), expected, "{values:?}");
        }
    }

    #[test]
    fn what_an_axis_cannot_show_has_no_place() {
        let ruler = Ruler::new(Scale::Log, [1.0, 100.0].into_iter(), 5, false);
        assert_eq!(ruler.at(0.0), None);
        assert_eq!(ruler.at(-1.0), None);
        assert_eq!(ruler.at(f64::NAN), None);
        assert_eq!(ruler.at(0.1), Some(0.0), "an end of a spread is drawn to the edge");
        assert!((ruler.at(10.0).expect("it has a place") - 0.5).abs() < 1e-9);
        assert_eq!(Ruler::new(Scale::Linear, [4.0].into_iter(), 5, true).zero(), 0.0);
    }

    #[test]
    fn titles_have_units() {
        let axis = |better| Axis { name: "Time".into(), unit: "ns".into(), scale: Scale::Linear, better };
        assert_eq!(title(&axis(Some(Better::Lower))), "Time, ns (lower is better)");
        assert_eq!(title(&axis(None)), "Time, ns");
    }
}
