//! What changed between two reports, beyond noise.
//!
//! A figure is the median of rounds that took turns, with the lowest and the highest of them. It has changed if both are true:
//!
//! 1. The spreads of the two do not overlap: every round of one run was below every round of the other. With five rounds each, equal
//!    speeds do so by chance once in 126 figures; with fifteen, once in 77 million. No shape of the distribution is assumed: times
//!    have long tails, so that standard deviations say little of them.
//! 2. The medians differ by more than [`FULL`], or [`QUICK`] where one of the runs was quick or a figure had less than three rounds.
//!    Rounds of the same run share what is fixed while it lasts: where pages lie, the frequency, neighbours on the machine. Their
//!    spread does not show that, and a second run of the same program differs by one or two percent.
//!
//! So a change that is reported is one; a small change under a wide spread is not found, and needs a quieter machine. Published and
//! modelled figures are not compared: the former do not change, the latter follow from others.

use crate::data::{Better, Figure, Machine, Outcome, Report, Run, Source, X};
use crate::number::{self, plain};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// By how much medians of full runs differ at least if something has changed.
pub const FULL: f64 = 0.03;
/// By how much those of quick runs do.
pub const QUICK: f64 = 0.10;
/// Rounds from which on a spread says something.
const ROUNDS: u32 = 3;

/// What two reports say of each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Why figures may differ although nothing of Sealane has changed: sentences.
    pub warnings: Vec<String>,
    /// Figures that changed beyond noise, in the order of the first report.
    pub changed: Vec<Change>,
    /// Figures that did not.
    pub unchanged: usize,
    /// Figures that are no numbers in one of the reports.
    pub unclear: Vec<Place>,
    /// Figures that only the first report has.
    pub only_in_first: Vec<Place>,
    /// Figures that only the second report has.
    pub only_in_second: Vec<Place>,
}

/// Where a figure is in a report.
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

/// A figure that changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Where it is.
    pub place: Place,
    /// The figure of the first report.
    pub first: Figure,
    /// The figure of the second report.
    pub second: Figure,
    /// The second median by the first one; none if one of them is 0 or less.
    pub ratio: Option<f64>,
    /// Whether that is good.
    pub verdict: Verdict,
}

/// Whether a change is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is, by the chart's axis.
    Better,
    /// It is not.
    Worse,
    /// The axis does not say which figures are better.
    Different,
}

/// By what two figures are the same one: part, chart, series, place, unit, and the how-manieth of these.
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
        match changed(&figure, &other.figure, quick) {
            None => comparison.unclear.push(place),
            Some(false) => comparison.unchanged += 1,
            Some(true) => {
                let both = figure.median > 0.0 && other.figure.median > 0.0;
                let ratio = both.then(|| other.figure.median / figure.median);
                let verdict = match better {
                    None => Verdict::Different,
                    Some(Better::Lower) if other.figure.median < figure.median => Verdict::Better,
                    Some(Better::Higher) if other.figure.median > figure.median => Verdict::Better,
                    Some(_) => Verdict::Worse,
                };
                comparison.changed.push(Change { place, first: figure, second: other.figure, ratio, verdict });
            }
        }
    }
    let mut rest: Vec<Measured> = others.into_values().collect();
    rest.sort_by_key(|measured| measured.order);
    comparison.only_in_second = rest.into_iter().map(|measured| measured.place).collect();
    comparison
}

/// Whether a figure changed beyond noise; none if one of the two is no number.
fn changed(a: &Figure, b: &Figure, quick: bool) -> Option<bool> {
    if !a.median.is_finite() || !b.median.is_finite() {
        return None;
    }
    let (a_low, a_high) = spread(a);
    let (b_low, b_high) = spread(b);
    if a_low <= b_high && b_low <= a_high {
        return Some(false);
    }
    let few = a.rounds < ROUNDS || b.rounds < ROUNDS;
    let least = if quick || few { QUICK } else { FULL };
    let (small, large) = (a.median.min(b.median), a.median.max(b.median));
    // There is no ratio to 0, nor to the other side of it: spreads that are apart decide.
    Some(if small > 0.0 { large / small > 1.0 + least } else { large != small })
}

/// Lowest and highest of the rounds, around the median whatever a file says.
fn spread(figure: &Figure) -> (f64, f64) {
    // min and max leave out what is not a number.
    let all = [figure.median, figure.low, figure.high];
    (all.into_iter().fold(figure.median, f64::min), all.into_iter().fold(figure.median, f64::max))
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
    differ("the frequency's behaviour", &a.frequency.join("; "), &b.frequency.join("; "));
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
        for change in &self.changed {
            let place = &change.place;
            let here = (&place.part, &place.chart);
            if under != Some(here) {
                writeln!(f, "{}, {} [{}]", plain(&place.part), plain(&place.chart), plain(&place.unit))?;
                under = Some(here);
            }
            writeln!(f, "  {change}")?;
        }
        for (which, places) in [
            ("only in the first", &self.only_in_first),
            ("only in the second", &self.only_in_second),
            ("no number in one of them", &self.unclear),
        ] {
            for (name, count) in by_series(places) {
                writeln!(f, "{which}: {} ({count})", plain(&name))?;
            }
        }
        write!(
            f,
            "{} better, {} worse, {} different, {} unchanged, {} only in the first, {} only in the second",
            self.count(Verdict::Better),
            self.count(Verdict::Worse),
            self.count(Verdict::Different),
            self.unchanged,
            self.only_in_first.len(),
            self.only_in_second.len()
        )?;
        if !self.unclear.is_empty() {
            write!(f, ", {} no number", self.unclear.len())?;
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
        };
        let ratio = self.ratio.map_or(number::NONE.to_owned(), |ratio| format!("×{}", number::about(ratio)));
        let x = number::place(&self.place.x);
        let x = if self.place.x_unit.is_empty() { x } else { format!("{x} {}", self.place.x_unit) };
        let name = plain(&format!("{}, {x}", self.place.series));
        write!(f, "{word:<9}  {ratio:>7}  {:>9} → {:<9}  {name}", say(&self.first), say(&self.second))
    }
}

/// How many figures of each series are among these places.
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
        let nan = f64::NAN;
        let full = |low, median, high| figure(low, median, high, 15);
        for (name, a, b, quick, expected) in [
            ("equal", full(99.0, 100.0, 101.0), full(99.0, 100.0, 101.0), false, Some(false)),
            ("far, and spreads overlap", full(90.0, 100.0, 130.0), full(120.0, 150.0, 160.0), false, Some(false)),
            ("spreads touch", full(99.0, 100.0, 110.0), full(110.0, 120.0, 121.0), false, Some(false)),
            ("apart by 2 %", full(99.9, 100.0, 100.1), full(101.9, 102.0, 102.1), false, Some(false)),
            ("apart by 4 %", full(99.9, 100.0, 100.1), full(103.9, 104.0, 104.1), false, Some(true)),
            ("the same down", full(103.9, 104.0, 104.1), full(99.9, 100.0, 100.1), false, Some(true)),
            ("apart by 4 %, quick", full(99.9, 100.0, 100.1), full(103.9, 104.0, 104.1), true, Some(false)),
            ("apart by 12 %, quick", full(99.9, 100.0, 100.1), full(111.9, 112.0, 112.1), true, Some(true)),
            (
                "apart by 4 %, one round",
                figure(100.0, 100.0, 100.0, 1),
                figure(104.0, 104.0, 104.0, 1),
                false,
                Some(false),
            ),
            (
                "apart by 12 %, one round",
                figure(100.0, 100.0, 100.0, 1),
                figure(112.0, 112.0, 112.0, 1),
                false,
                Some(true),
            ),
            ("both 0", full(0.0, 0.0, 0.0), full(0.0, 0.0, 0.0), false, Some(false)),
            ("from 0", full(0.0, 0.0, 0.0), full(0.9, 1.0, 1.1), false, Some(true)),
            ("to 0", full(0.9, 1.0, 1.1), full(0.0, 0.0, 0.0), false, Some(true)),
            ("over 0", full(-1.1, -1.0, -0.9), full(0.9, 1.0, 1.1), false, Some(true)),
            ("no number", full(nan, nan, nan), full(0.9, 1.0, 1.1), false, None),
            ("infinite", full(0.9, 1.0, 1.1), full(1.0, f64::INFINITY, f64::INFINITY), false, None),
            ("no spread", full(nan, 100.0, nan), full(nan, 104.0, nan), false, Some(true)),
            ("ends the wrong way round", full(130.0, 100.0, 90.0), full(160.0, 150.0, 120.0), false, Some(false)),
        ] {
            assert_eq!(changed(&a, &b, quick), expected, "{name}");
            assert_eq!(changed(&b, &a, quick), expected, "{name}, the other way round");
        }
    }
}
