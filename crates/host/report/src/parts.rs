//! The parts of the report, a file each.

mod homes;
mod ipsec;
mod mac;
mod tcp_ao;

use crate::data::{Axis, Better, Chart, Figure, Outcome, Part, Point, Scale, Series, Source, Table, X};
use sealane_crypto::Registry;
use sealane_drivers::turns::Figures;
use std::time::{Duration, Instant};

/// How much time is given to figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Time for each rival of a row, over all rounds.
    pub each: Duration,
    /// Rounds.
    pub rounds: u32,
}

impl Effort {
    /// For a first look: all parts in less than two minutes.
    pub const QUICK: Effort = Effort { each: Duration::from_millis(20), rounds: 5 };
    /// For figures that are kept: all parts in less than 15 minutes.
    pub const FULL: Effort = Effort { each: Duration::from_millis(200), rounds: 15 };
}

/// What a part gets.
pub struct Context<'a> {
    /// Drivers, and the table that chooses among them.
    pub registry: &'a Registry,
    /// How much time figures get.
    pub effort: Effort,
    /// Whether somebody has asked to end. Parts ask between two rows, and return what they have.
    pub stop: &'a dyn Fn() -> bool,
    /// Told what is being measured.
    pub progress: &'a dyn Fn(&str),
}

/// A part of the report, and what measures it.
pub struct Entry {
    /// Its name on the command line.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What a reader learns from it.
    pub about: &'static str,
    /// Measures it.
    measure: fn(&Context<'_>) -> Measured,
}

/// What a part has measured.
struct Measured {
    method: String,
    outcome: Outcome,
    charts: Vec<Chart>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

/// All parts, in the order of the report, in which they are measured.
#[rustfmt::skip] // One a line.
pub const ALL: &[Entry] = &[
    tcp_ao::ENTRY,
    ipsec::ENTRY,
    mac::ENTRY,
    // The last one: it gives this process guarded memory, which every operation opens from then on.
    homes::ENTRY,
];

impl Entry {
    /// Measures the part.
    #[must_use]
    pub fn measure(&self, context: &Context<'_>) -> Part {
        let began = Instant::now();
        let measured = (self.measure)(context);
        self.part(measured, began.elapsed().as_secs_f64())
    }

    /// The part as one that was not measured.
    #[must_use]
    pub fn left_out(&self, why: &str) -> Part {
        let nothing = Measured {
            method: String::new(),
            outcome: Outcome::LeftOut(why.to_owned()),
            charts: Vec::new(),
            tables: Vec::new(),
            notes: Vec::new(),
        };
        self.part(nothing, 0.0)
    }

    fn part(&self, measured: Measured, took_s: f64) -> Part {
        let Measured { method, outcome, charts, tables, notes } = measured;
        let [id, title, about] = [self.id, self.title, self.about].map(str::to_owned);
        Part { id, title, about, method, outcome, took_s, charts, tables, notes }
    }
}

/// Why a part is not whole.
#[derive(Default)]
struct Reasons(Vec<String>);

impl Reasons {
    /// Adds a reason, once.
    fn add(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.0.contains(&why) {
            self.0.push(why);
        }
    }

    /// Whether somebody has asked to end, which is a reason then.
    fn stopped(&mut self, context: &Context<'_>) -> bool {
        let stopped = (context.stop)();
        if stopped {
            self.add("interrupted: figures that are not here were not measured");
        }
        stopped
    }

    fn outcome(self) -> Outcome {
        if self.0.is_empty() { Outcome::Measured } else { Outcome::Partly(self.0) }
    }
}

/// Measured figures, which come row by row, while a series goes through the rows.
#[derive(Default)]
struct Sheet(Vec<Series>);

impl Sheet {
    /// Adds the figure of a series at `x`.
    fn add(&mut self, series: &str, x: X, figure: Figure, remark: impl Into<String>) {
        let at = self.0.iter().position(|s| s.name == series).unwrap_or_else(|| {
            self.0.push(Series { name: series.to_owned(), source: Source::Here, points: Vec::new() });
            self.0.len() - 1
        });
        self.0[at].points.push(Point { x, figure, remark: remark.into() });
    }

    /// A chart of these figures in front of the series that it has; none where nothing was measured.
    fn onto(self, chart: Chart) -> Option<Chart> {
        let Sheet(mut series) = self;
        if series.is_empty() {
            return None;
        }
        series.extend(chart.series);
        Some(Chart { series, ..chart })
    }
}

/// An axis of words.
fn words(name: &str) -> Axis {
    Axis { name: name.to_owned(), unit: String::new(), scale: Scale::Linear, better: None }
}

/// An axis of numbers, spread by their logarithm.
fn numbers(name: &str, unit: &str) -> Axis {
    Axis { name: name.to_owned(), unit: unit.to_owned(), scale: Scale::Log, better: None }
}

/// An axis of figures.
fn figures(name: &str, unit: &str, scale: Scale, better: Better) -> Axis {
    Axis { name: name.to_owned(), unit: unit.to_owned(), scale, better: Some(better) }
}

fn word(of: &str) -> X {
    X::Word(of.to_owned())
}

impl Figure {
    /// The time of one of `units` that a call does, in nanoseconds.
    fn ns(f: &Figures, units: f64, rounds: u32) -> Self {
        let [median, low, high, cpu] = [f.median_ns, f.min_ns, f.max_ns, f.cpu_ns].map(|ns| ns / units);
        Figure { median, low, high, rounds, cpu: Some(cpu) }
    }

    /// The same in ticks of the time-stamp counter; none on a CPU without one. It counts evenly, so a round's ticks follow from its time.
    fn ticks(f: &Figures, units: f64, rounds: u32) -> Option<Self> {
        (f.median_ticks > 0.0)
            .then(|| Figure { cpu: None, ..Figure::ns(f, units * f.median_ns / f.median_ticks, rounds) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_drivers::system_registry;

    /// So little that a test of figures' order takes no time.
    const TINY: Effort = Effort { each: Duration::from_micros(20), rounds: 2 };

    pub(super) fn measure(entry: &Entry, stop: &dyn Fn() -> bool) -> Part {
        let registry = system_registry().0;
        entry.measure(&Context { registry: &registry, effort: TINY, stop, progress: &|_| () })
    }

    pub(super) fn chart<'a>(part: &'a Part, id: &str) -> &'a Chart {
        part.charts.iter().find(|chart| chart.id == id).unwrap_or_else(|| panic!("no chart {id}: {:?}", part.outcome))
    }

    pub(super) fn series<'a>(chart: &'a Chart, name: &str) -> &'a Series {
        chart
            .series
            .iter()
            .find(|series| series.name == name)
            .unwrap_or_else(|| panic!("no series {name} in {}", chart.id))
    }

    /// What holds for every part: figures that can be drawn, and words that say where they are from.
    pub(super) fn check(part: &Part) {
        for chart in &part.charts {
            let at = |series: &Series| format!("{}, {}, {}", part.id, chart.id, series.name);
            assert!(
                chart.series.len() <= 7,
                "{} in {}: nobody tells so many lines apart",
                chart.series.len(),
                chart.id
            );
            assert!(chart.series.iter().any(|series| series.source != Source::Here || !series.points.is_empty()));
            for series in &chart.series {
                assert!(!series.points.is_empty(), "{}", at(series));
                match &series.source {
                    Source::Here => assert!(series.points.iter().all(|p| p.figure.rounds > 0), "{}", at(series)),
                    Source::Model(from) | Source::Published(from) => {
                        assert!(from.len() > 20, "{}: from where?", at(series));
                        assert!(series.points.iter().all(|p| p.figure.rounds == 0), "{}", at(series));
                    }
                }
                for Point { figure: f, .. } in &series.points {
                    assert!(
                        f.low > 0.0 && f.low <= f.median && f.median <= f.high && f.high.is_finite(),
                        "{}",
                        at(series)
                    );
                    assert!(f.cpu.is_none_or(|cpu| cpu > 0.0), "{}", at(series));
                }
                let numbers = |p: &Point| match p.x {
                    X::Number(n) => Some(n),
                    X::Word(_) => None,
                };
                let numbers: Vec<f64> = series.points.iter().filter_map(numbers).collect();
                assert!(numbers.is_sorted_by(|a, b| a < b), "{}: {numbers:?}", at(series));
                assert!(numbers.is_empty() || numbers.len() == series.points.len(), "{}", at(series));
            }
        }
        for Table { title, columns, rows, .. } in &part.tables {
            assert!(rows.iter().all(|row| row.len() == columns.len()), "{title}");
        }
    }

    #[test]
    fn a_part_that_is_stopped_at_once_has_no_figures() {
        for entry in ALL {
            let part = measure(entry, &|| true);
            assert!(part.charts.is_empty(), "{}", part.id);
            let Outcome::Partly(why) = &part.outcome else { panic!("{}: {:?}", part.id, part.outcome) };
            assert!(why.iter().any(|why| why.starts_with("interrupted")), "{}: {why:?}", part.id);
        }
    }

    #[test]
    fn names_of_parts_differ() {
        let mut ids: Vec<&str> = ALL.iter().map(|entry| entry.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ALL.len());
    }
}
