//! The arguments and results of a part, and the tools that all parts share.

use crate::data::{Axis, Better, Chart, Figure, Outcome, Part, Point, Scale, Series, Source, Table, X};
use sealane_crypto::Registry;
use sealane_drivers::turns::Figures;
use std::time::{Duration, Instant};

/// The time that is given to figures.
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

/// The arguments of a part.
pub struct Context<'a> {
    /// Drivers, and the table that chooses among them.
    pub registry: &'a Registry,
    /// The time that figures get.
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
    /// A sentence or two for its reader.
    pub about: &'static str,
    /// Measures it.
    pub(super) measure: fn(&Context<'_>) -> Measured,
}

/// The results of a part.
pub(super) struct Measured {
    pub(super) method: String,
    pub(super) outcome: Outcome,
    pub(super) charts: Vec<Chart>,
    pub(super) tables: Vec<Table>,
    pub(super) notes: Vec<String>,
}

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

/// The reason in a part that somebody has ended.
pub(super) const INTERRUPTED: &str = "interrupted: figures that are not here were not measured";

/// Why a part is not whole.
#[derive(Default)]
pub(super) struct Reasons(pub(super) Vec<String>);

impl Reasons {
    /// Adds a reason, once.
    pub(super) fn add(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.0.contains(&why) {
            self.0.push(why);
        }
    }

    /// Whether somebody has asked to end, which is a reason then.
    pub(super) fn stopped(&mut self, context: &Context<'_>) -> bool {
        let stopped = (context.stop)();
        if stopped {
            self.add(INTERRUPTED);
        }
        stopped
    }

    pub(super) fn outcome(self) -> Outcome {
        if self.0.is_empty() { Outcome::Measured } else { Outcome::Partly(self.0) }
    }
}

/// Measured figures, which come row by row, while a series goes through the rows.
#[derive(Default)]
pub(super) struct Sheet(pub(super) Vec<Series>);

impl Sheet {
    /// Adds the figure of a series at `x`.
    pub(super) fn add(&mut self, series: &str, x: X, figure: Figure, remark: impl Into<String>) {
        let at = self.0.iter().position(|s| s.name == series).unwrap_or_else(|| {
            self.0.push(Series { name: series.to_owned(), source: Source::Here, points: Vec::new() });
            self.0.len() - 1
        });
        self.0[at].points.push(Point { x, figure, remark: remark.into() });
    }

    /// Marks the series of these names, or all if there are none, as computed, and says from what: the figures behind them are in the report already.
    pub(super) fn computed(mut self, names: &[&str], from: &str) -> Self {
        for series in self.0.iter_mut().filter(|series| names.is_empty() || names.contains(&&*series.name)) {
            series.source = Source::Model(from.to_owned());
            series.points.iter_mut().for_each(|point| point.figure.rounds = 0);
        }
        self
    }

    /// A chart of these figures in front of the series that it has; none where nothing was measured.
    pub(super) fn onto(self, chart: Chart) -> Option<Chart> {
        let Sheet(mut series) = self;
        if series.is_empty() {
            return None;
        }
        series.extend(chart.series);
        Some(Chart { series, ..chart })
    }
}

/// An axis of words.
pub(super) fn words(name: &str) -> Axis {
    Axis { name: name.to_owned(), unit: String::new(), scale: Scale::Linear, better: None }
}

/// An axis of numbers, spread by their logarithm.
pub(super) fn numbers(name: &str, unit: &str) -> Axis {
    Axis { name: name.to_owned(), unit: unit.to_owned(), scale: Scale::Log, better: None }
}

/// An axis of figures.
pub(super) fn figures(name: &str, unit: &str, scale: Scale, better: Better) -> Axis {
    Axis { name: name.to_owned(), unit: unit.to_owned(), scale, better: Some(better) }
}

/// A word on an axis.
pub(super) fn word(of: &str) -> X {
    X::Word(of.to_owned())
}

impl Figure {
    /// Whether its best round is worse than a rival's worst one, which notes call losing in every round.
    pub(super) fn loses_to(&self, rival: &Figure, better: Better) -> bool {
        match better {
            Better::Lower => self.low > rival.high,
            Better::Higher => self.high < rival.low,
        }
    }

    /// The time of one of `units` that a call does, in nanoseconds.
    pub(super) fn ns(f: &Figures, units: f64, rounds: u32) -> Self {
        let [median, low, high, cpu] = [f.median_ns, f.min_ns, f.max_ns, f.cpu_ns].map(|ns| ns / units);
        Figure { median, low, high, rounds, cpu: Some(cpu) }
    }

    /// The same in ticks of the time-stamp counter; none on a CPU without one. It counts evenly, so a round's ticks follow from its time.
    pub(super) fn ticks(f: &Figures, units: f64, rounds: u32) -> Option<Self> {
        (f.median_ticks > 0.0)
            .then(|| Figure { cpu: None, ..Figure::ns(f, units * f.median_ns / f.median_ticks, rounds) })
    }
}
