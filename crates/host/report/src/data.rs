//! The types of a report: what `data.json` holds.

use serde::{Deserialize, Deserializer, Serialize};

/// The format of `data.json` that this build writes and reads.
pub const FORMAT: u32 = 1;

/// A run of `sealane bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// How it came about.
    pub run: Run,
    /// The machine that was measured.
    pub machine: Machine,
    /// The parts in their order, those too that were left out.
    pub parts: Vec<Part>,
}

/// How a report came about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// The version of Sealane.
    pub version: String,
    /// When it began: seconds since 1970, UTC.
    pub began_s: u64,
    /// How long it took, seconds.
    pub took_s: f64,
    /// Whether it was a quick run, whose figures are for a first look.
    pub quick: bool,
    /// Whether somebody ended it before its end.
    pub interrupted: bool,
}

/// The machine of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model, family and stepping of the CPU.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The CPU's instructions that drivers use.
    pub flags: Vec<String>,
    /// How the CPU's frequency behaves: governor and limits, what the counter counts, whether a hypervisor hides it.
    pub frequency: Vec<String>,
    /// The kernel's release.
    pub kernel: String,
    /// Name and version of each library and program that was measured.
    pub versions: Vec<(String, String)>,
    /// The table by which drivers are chosen.
    pub table: String,
}

/// A part of the report: one question, and its answer in charts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its name on the command line.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What a reader learns from it: a sentence or two.
    pub about: String,
    /// How it was measured: sentences.
    pub method: String,
    /// Whether it was measured.
    pub outcome: Outcome,
    /// Seconds that it took.
    pub took_s: f64,
    /// The figures.
    pub charts: Vec<Chart>,
    /// Words in rows and columns that belong to no axis: strength, needs.
    pub tables: Vec<Table>,
    /// What the figures say or do not say, as sentences. Losing rows are named here.
    pub notes: Vec<String>,
}

/// How far a part was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "why")]
pub enum Outcome {
    /// All of it.
    Measured,
    /// All but what the reasons name.
    Partly(Vec<String>),
    /// Nothing, because of this.
    LeftOut(String),
}

/// Figures that one picture shows and one table lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Its name within the part.
    pub id: String,
    /// Its title.
    pub title: String,
    /// How it is drawn.
    pub shape: Shape,
    /// The axis of [`Point::x`].
    pub x: Axis,
    /// The axis of the figures.
    pub y: Axis,
    /// Rivals.
    pub series: Vec<Series>,
}

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Lines over numbers.
    Lines,
    /// Groups of bars over words.
    Bars,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// What it counts.
    pub name: String,
    /// The unit of its numbers; empty where it has words.
    pub unit: String,
    /// How numbers are spread over it.
    pub scale: Scale,
    /// Which figures are better. For an axis of figures only.
    pub better: Option<Better>,
}

/// How numbers are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By their logarithm.
    Log,
}

/// Which of two figures is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
}

/// The figures of one rival.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Where its figures are from.
    pub source: Source,
    /// Its figures, by ascending x where x is a number.
    pub points: Vec<Point>,
}

/// Where figures are from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "of")]
pub enum Source {
    /// Measured in this run.
    Here,
    /// Computed from what was measured: how.
    Model(String),
    /// Published: where, when, on which machine.
    Published(String),
}

/// A figure and its place on the x axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place.
    pub x: X,
    /// The figure.
    pub figure: Figure,
    /// What is to be said of this figure alone, such as the driver; often empty.
    pub remark: String,
}

/// A place on the x axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A number, in the unit of the axis.
    Number(f64),
    /// A word.
    Word(String),
}

/// A figure with its spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The median of the rounds, in the unit of the chart's y axis.
    #[serde(deserialize_with = "number_or_null")]
    pub median: f64,
    /// The lowest of the rounds; the median again where there was one.
    #[serde(deserialize_with = "number_or_null")]
    pub low: f64,
    /// The highest.
    #[serde(deserialize_with = "number_or_null")]
    pub high: f64,
    /// Rounds; 0 for published and computed figures.
    pub rounds: u32,
    /// CPU time for the same, in the unit of the axis, where that is a time.
    pub cpu: Option<f64>,
}

/// Words in rows and columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// The heads of its columns.
    pub columns: Vec<String>,
    /// Its rows, each as long as `columns`.
    pub rows: Vec<Vec<String>>,
    /// Where its words are from.
    pub source: Source,
}

/// JSON has no number that is none, and serde writes null for it. A report with one stays readable.
fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Figure {
    /// A figure without rounds: published, or computed.
    #[must_use]
    pub fn stated(value: f64) -> Self {
        Figure { median: value, low: value, high: value, rounds: 0, cpu: None }
    }
}
