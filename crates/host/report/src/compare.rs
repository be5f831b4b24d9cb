//! The changes between two reports, and whether they are beyond noise.
//!
//! A figure is the median of rounds that took turns, with the lowest and the highest of them. It has changed if both are true:
//!
//! 1. The medians differ by more than [`FULL`], or [`QUICK`] where one of the runs was quick or a figure had less than three rounds.
//!    Rounds of the same run share what is fixed while it lasts: where pages lie, the frequency, neighbours on the machine. Their
//!    spread does not show that, and a second run of the same program differs by one or two percent.
//! 2. The better halves of their rounds do not overlap. Noise only adds to a time: an interrupt or a neighbour makes a round slower,
//!    and nothing makes it faster than the code allows. So the worst rounds tell of the machine, one of them may be many times as long
//!    as the others, and they do not count. For times, the half is from the lowest round to the median; for rates it is from the median
//!    to the highest round. If the axis does not say which figures are better, no side is known to be noise, and all rounds count.
//!
//! The second condition assumes no shape of a distribution. At equal speeds it holds by chance if the median of one run is beyond every
//! round of the other. With 15 rounds each, the eight best of the 30 are then of the same run: C(15, 8) of C(30, 8) ways to choose
//! them, for either run, which is one in 455 figures. With the five rounds of a quick run it is one in six, so that there the first
//! condition decides.
//!
//! If the first condition is true and the second is not, the rounds are too noisy to tell: the figure is listed and counted as such,
//! and needs more rounds or a quieter machine. Counted, published and modelled figures are not compared: the first are the same on every
//! machine, the second do not change, the last follow from others.

use crate::data::{Better, Figure, Machine, Outcome, Report, Run, Source, X};
use crate::number::{self, plain};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Medians of full runs that differ by this share or less are equal.
pub const FULL: f64 = 0.03;
/// The same for quick runs.
pub const QUICK: f64 = 0.10;
/// Figures of fewer rounds have no spread that counts.
const ROUNDS: u32 = 3;
/// The beginning of those sentences in [`Machine::frequency`] that give a measurement of this run.
const MEASURED: &str = "measured: ";

/// The differences of two reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Reasons why figures may differ although nothing of Sealane has changed: sentences.
    pub warnings: Vec<String>,
    /// Figures that changed beyond noise, in the order of the first report.
    pub changed: Vec<Change>,
    /// Figures whose medians differ as much, but whose rounds overlap: the sign of the change is not known.
    pub too_noisy: Vec<Change>,
    /// Number of figures that did not change.
    pub unchanged: usize,
    /// Figures whose median is not a finite number in one of the reports.
    pub unclear: Vec<Place>,
    /// Figures that only the first report has.
    pub only_in_first: Vec<Place>,
    /// Figures that only the second report has.
    pub only_in_second: Vec<Place>,
}

/// The place of a figure in a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Place {
    /// [`crate::data::Part::id`].
    pub part: String,
    /// [`crate::data::Chart::id`].
    pub chart: String,
    /// [`crate::data::Series::name`].
    pub series: String,
    /// [`crate::data::Point::x`].
    pub x: X,
    /// The unit of x.
    pub x_unit: String,
    /// The unit of the figure.
    pub unit: String,
}

/// A figure that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The place of both figures.
    pub place: Place,
    /// The figure of the first report.
    pub first: Figure,
    /// The figure of the second report.
    pub second: Figure,
    /// The second median divided by the first one; none if one of them is 0 or less.
    pub ratio: Option<f64>,
    /// The direction of the change.
    pub verdict: Verdict,
}

/// The direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second figure is better, by the chart's axis.
    Better,
    /// The second figure is worse, by the chart's axis.
    Worse,
    /// The axis does not say which figures are better.
    Different,
    /// The rounds overlap.
    TooNoisy,
}

/// Identifies a figure in both reports: part, chart, series, place, unit, and a number that counts figures for which all of these are
/// equal.
type Key = (String, String, String, String, String, usize);

/// A figure that was measured.
struct Measured {
    order: usize,
    place: Place,
    figure: Figure,
    better: Option<Better>,
}

/// Compares two reports.
#[must_use]
pub fn compare(first: &Report, second: &Report) -> Comparison {
    let quick = first.run.quick || second.run.quick;
    let mut others = measured(second);
    let mut ours: Vec<(Key, Measured)> = measured(first).into_iter().collect();
    ours.sort_by_key(|(_, measured)| measured.order);
    let mut comparison = Comparison {
        warnings: warnings(first, second),
        changed: Vec::new(),
        too_noisy: Vec::new(),
        unchanged: 0,
        unclear: Vec::new(),
        only_in_first: Vec::new(),
        only_in_second: Vec::new(),
    };
    for (key, Measured { place, figure, better, .. }) in ours {
        let Some(other) = others.remove(&key) else {
            comparison.only_in_first.push(place);
            continue;
        };
        let Some(difference) = difference(&figure, &other.figure, better, quick) else {
            comparison.unclear.push(place);
            continue;
        };
        let verdict = match better {
            _ if difference == Difference::TooNoisy => Verdict::TooNoisy,
            None => Verdict::Different,
            Some(Better::Lower) if other.figure.median < figure.median => Verdict::Better,
            Some(Better::Higher) if other.figure.median > figure.median => Verdict::Better,
            Some(_) => Verdict::Worse,
        };
        let both = figure.median > 0.0 && other.figure.median > 0.0;
        let ratio = both.then(|| other.figure.median / figure.median);
        let change = Change { place, first: figure, second: other.figure, ratio, verdict };
        match difference {
            Difference::None => comparison.unchanged += 1,
            Difference::TooNoisy => comparison.too_noisy.push(change),
            Difference::Clear => comparison.changed.push(change),
        }
    }
    let mut rest: Vec<Measured> = others.into_values().collect();
    rest.sort_by_key(|measured| measured.order);
    comparison.only_in_second = rest.into_iter().map(|measured| measured.place).collect();
    comparison
}

/// The outcome of comparing two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// The medians are too near to each other.
    None,
    /// The medians are apart, and the rounds overlap.
    TooNoisy,
    /// The rounds are apart, too.
    Clear,
}

/// Compares two figures; none if one of the medians is not a finite number.
fn difference(a: &Figure, b: &Figure, better: Option<Better>, quick: bool) -> Option<Difference> {
    if !a.median.is_finite() || !b.median.is_finite() {
        return None;
    }
    let few = a.rounds < ROUNDS || b.rounds < ROUNDS;
    let least = if quick || few { QUICK } else { FULL };
    let (small, large) = (a.median.min(b.median), a.median.max(b.median));
    // There is no ratio to 0, nor to the other side of it: the rounds decide.
    let is_near = if small > 0.0 { large / small <= 1.0 + least } else { large == small };
    if is_near {
        return Some(Difference::None);
    }
    let (a_from, a_to) = reliable(a, better);
    let (b_from, b_to) = reliable(b, better);
    Some(if a_from <= b_to && b_from <= a_to { Difference::TooNoisy } else { Difference::Clear })
}

/// The ends of those rounds that noise does not explain, around the median even if a file has its ends the wrong way round.
fn reliable(figure: &Figure, better: Option<Better>) -> (f64, f64) {
    // min and max ignore NaN.
    let all = [figure.median, figure.low, figure.high];
    let low = all.into_iter().fold(figure.median, f64::min);
    let high = all.into_iter().fold(figure.median, f64::max);
    match better {
        Some(Better::Lower) => (low, figure.median),
        Some(Better::Higher) => (figure.median, high),
        None => (low, high),
    }
}

/// The figures of a report that were measured in its run.
fn measured(report: &Report) -> BTreeMap<Key, Measured> {
    let mut all = BTreeMap::new();
    for part in &report.parts {
        for chart in &part.charts {
            for series in chart.series.iter().filter(|series| series.source == Source::Here) {
                for point in &series.points {
                    let place = Place {
                        part: part.id.clone(),
                        chart: chart.id.clone(),
                        series: series.name.clone(),
                        x: point.x.clone(),
                        x_unit: chart.x.unit.clone(),
                        unit: chart.y.unit.clone(),
                    };
                    let x = number::place(&point.x);
                    let mut key = (part.id.clone(), chart.id.clone(), series.name.clone(), x, chart.y.unit.clone(), 0);
                    while all.contains_key(&key) {
                        key.5 += 1;
                    }
                    all.insert(key, Measured { order: all.len(), place, figure: point.figure, better: chart.y.better });
                }
            }
        }
    }
    all
}

fn warnings(first: &Report, second: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            warnings.push(format!("{what} differs: {} and {}", quoted(a), quoted(b)));
        }
    };
    let (a, b): (&Run, &Run) = (&first.run, &second.run);
    differ("the version of Sealane", &a.version, &b.version);
    let effort = |run: &Run| if run.quick { "quick" } else { "full" };
    differ("the length of the run", effort(a), effort(b));
    let (a, b): (&Machine, &Machine) = (&first.machine, &second.machine);
    differ("the CPU", &a.cpu, &b.cpu);
    differ("the number of CPUs", &a.cpus.to_string(), &b.cpus.to_string());
    let sorted = |flags: &[String]| {
        let mut flags = flags.to_vec();
        flags.sort();
        flags.join(" ")
    };
    differ("the CPU's instructions", &sorted(&a.flags), &sorted(&b.flags));
    // Sentences of measurements differ from run to run.
    let fixed = |machine: &Machine| {
        let sentences = machine.frequency.iter().filter(|sentence| !sentence.starts_with(MEASURED));
        sentences.map(String::as_str).collect::<Vec<_>>().join("; ")
    };
    differ("the frequency's behaviour", &fixed(a), &fixed(b));
    differ("the kernel", &a.kernel, &b.kernel);
    differ("the table of drivers", &a.table, &b.table);
    let version = |machine: &Machine, name: &str| {
        let of: Vec<&str> =
            machine.versions.iter().filter(|(known, _)| known == name).map(|(_, version)| version.as_str()).collect();
        of.join(", ")
    };
    let mut names: Vec<&String> = a.versions.iter().chain(&b.versions).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    for name in names {
        differ(&format!("the version of {name}"), &version(a, name), &version(b, name));
    }
    for (which, report) in [("first", first), ("second", second)] {
        if report.run.interrupted {
            warnings.push(format!("the {which} run was interrupted"));
        }
        for part in &report.parts {
            match &part.outcome {
                Outcome::Measured => {}
                Outcome::Partly(reasons) => {
                    warnings.push(format!("the {which} run measured {} in part: {}", part.id, reasons.join("; ")));
                }
                Outcome::LeftOut(why) => warnings.push(format!("the {which} run left {} out: {why}", part.id)),
            }
        }
    }
    warnings
}

fn quoted(text: &str) -> &str {
    if text.is_empty() { "(none)" } else { text }
}

impl Comparison {
    fn count(&self, verdict: Verdict) -> usize {
        self.changed.iter().filter(|change| change.verdict == verdict).count()
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {}", plain(warning))?;
        }
        let mut under = None;
        for change in self.changed.iter().chain(&self.too_noisy) {
            let place = &change.place;
            let here = (&place.part, &place.chart, change.verdict == Verdict::TooNoisy);
            if under != Some(here) {
                let why = if here.2 { ": the medians differ, and the rounds overlap" } else { "" };
                writeln!(f, "{}, {} [{}]{why}", plain(&place.part), plain(&place.chart), plain(&place.unit))?;
                under = Some(here);
            }
            writeln!(f, "  {change}")?;
        }
        for (which, places) in [
            ("only in the first", &self.only_in_first),
            ("only in the second", &self.only_in_second),
            ("not a number in one of them", &self.unclear),
        ] {
            for (name, count) in by_series(places) {
                writeln!(f, "{which}: {} ({count})", plain(&name))?;
            }
        }
        write!(
            f,
            "{} better, {} worse, {} different, {} too noisy to tell, {} unchanged, {} only in the first, {} only in the second",
            self.count(Verdict::Better),
            self.count(Verdict::Worse),
            self.count(Verdict::Different),
            self.too_noisy.len(),
            self.unchanged,
            self.only_in_first.len(),
            self.only_in_second.len()
        )?;
        if !self.unclear.is_empty() {
            write!(f, ", {} not a number", self.unclear.len())?;
        }
        writeln!(f)
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let say = |figure: &Figure| number::about(figure.median);
        let word = match self.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Different => "different",
            Verdict::TooNoisy => "too noisy",
        };
        let ratio = self.ratio.map_or(number::NONE.to_owned(), |ratio| format!("×{}", number::about(ratio)));
        let x = number::place(&self.place.x);
        let x = if self.place.x_unit.is_empty() { x } else { format!("{x} {}", self.place.x_unit) };
        let name = plain(&format!("{}, {x}", self.place.series));
        write!(f, "{word:<9}  {ratio:>7}  {:>9} → {:<9}  {name}", say(&self.first), say(&self.second))
    }
}

/// Counts the figures of each series among these places.
fn by_series(places: &[Place]) -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> = Vec::new();
    for place in places {
        let name = format!("{}, {}, {} [{}]", place.part, place.chart, place.series, place.unit);
        match all.last_mut() {
            Some((last, count)) if *last == name => *count += 1,
            _ => all.push((name, 1)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(low: f64, median: f64, high: f64, rounds: u32) -> Figure {
        Figure { median, low, high, rounds, cpu: None }
    }

    #[test]
    fn noise() {
        use Difference::{Clear, TooNoisy};
        const SAME: Option<Difference> = Some(Difference::None);
        let nan = f64::NAN;
        let full = |low, median, high| figure(low, median, high, 15);
        let one = |median| figure(median, median, median, 1);
        for (name, a, b, quick, expected) in [
            ("equal", full(99.0, 100.0, 101.0), full(99.0, 100.0, 101.0), false, SAME),
            ("one slow round", full(99.0, 100.0, 170.0), full(148.0, 150.0, 152.0), false, Some(Clear)),
            ("a slow round each", full(99.0, 100.0, 900.0), full(148.0, 150.0, 900.0), false, Some(Clear)),
            ("a fast round of the slow one", full(99.0, 100.0, 101.0), full(98.0, 150.0, 152.0), false, Some(TooNoisy)),
            ("halves touch", full(99.0, 100.0, 101.0), full(100.0, 120.0, 121.0), false, Some(TooNoisy)),
            ("near, and halves overlap", full(90.0, 100.0, 101.0), full(95.0, 102.0, 121.0), false, SAME),
            ("apart by 2 %", full(99.9, 100.0, 100.1), full(101.9, 102.0, 102.1), false, SAME),
            ("apart by 4 %", full(99.9, 100.0, 100.1), full(103.9, 104.0, 104.1), false, Some(Clear)),
            ("apart by 4 %, quick", full(99.9, 100.0, 100.1), full(103.9, 104.0, 104.1), true, SAME),
            ("apart by 12 %, quick", full(99.9, 100.0, 100.1), full(111.9, 112.0, 112.1), true, Some(Clear)),
            ("apart by 4 %, one round", one(100.0), one(104.0), false, SAME),
            ("apart by 12 %, one round", one(100.0), one(112.0), false, Some(Clear)),
            ("both 0", full(0.0, 0.0, 0.0), full(0.0, 0.0, 0.0), false, SAME),
            ("from 0", full(0.0, 0.0, 0.0), full(0.9, 1.0, 1.1), false, Some(Clear)),
            ("over 0", full(-1.1, -1.0, -0.9), full(0.9, 1.0, 1.1), false, Some(Clear)),
            ("not a number", full(nan, nan, nan), full(0.9, 1.0, 1.1), false, None),
            ("infinite", full(0.9, 1.0, 1.1), full(1.0, f64::INFINITY, f64::INFINITY), false, None),
            ("no spread", full(nan, 100.0, nan), full(nan, 104.0, nan), false, Some(Clear)),
            ("ends the wrong way round", full(101.0, 100.0, 99.0), full(160.0, 150.0, 98.0), false, Some(TooNoisy)),
        ] {
            let times = Some(Better::Lower);
            assert_eq!(difference(&a, &b, times, quick), expected, "{name}");
            assert_eq!(difference(&b, &a, times, quick), expected, "{name}, the other way round");
        }
    }

    #[test]
    fn the_better_half_of_rounds_counts() {
        // 100 with one bad round for rates, and 150 with one bad round for times.
        let (a, b) = (figure(99.0, 100.0, 160.0, 15), figure(140.0, 150.0, 151.0, 15));
        let (c, d) = (figure(99.0, 100.0, 101.0, 15), figure(90.0, 150.0, 151.0, 15));
        for (better, of_ab, of_cd) in [
            (Some(Better::Lower), Difference::Clear, Difference::TooNoisy),
            (Some(Better::Higher), Difference::TooNoisy, Difference::Clear),
            (None, Difference::TooNoisy, Difference::TooNoisy),
        ] {
            assert_eq!(difference(&a, &b, better, false), Some(of_ab), "{better:?}");
            assert_eq!(difference(&c, &d, better, false), Some(of_cd), "{better:?}");
        }
    }

    /// The module's number: all ways in which 15 rounds of either run can lie among 30.
    #[test]
    fn equal_speeds_differ_by_chance_once_in_455_figures() {
        let ways = |of: u64, some: u64| (0..some).fold(1, |product, at| product * (of - at) / (at + 1));
        assert_eq!(ways(30, 8) / (2 * ways(15, 8)), 454);
        assert_eq!(ways(10, 3) / (2 * ways(5, 3)), 6);
    }
}
