//! The parts of the report, a file each.

use crate::data::{Outcome, Part};
use sealane_crypto::Registry;
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
    charts: Vec<crate::data::Chart>,
    tables: Vec<crate::data::Table>,
    notes: Vec<String>,
}

/// All parts, in the order of the report.
pub const ALL: &[Entry] = &[];

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
