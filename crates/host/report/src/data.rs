//! The types of a report, as `data.json` has them.

use serde::{Deserialize, Deserializer, Serialize};

/// The format of `data.json` that this build writes and reads.
pub const FORMAT: u32 = 1;

/// A run of `sealane bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`]; any other value means that the rest may be something else.
    pub format: u32,
    /// The run that made it.
    pub run: Run,
    /// The machine that was measured.
    pub machine: Machine,
    /// The parts in their order, those too that were left out.
    pub parts: Vec<Part>,
}

/// The circumstances of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// The version of Sealane.
    pub version: String,
    /// Its beginning: seconds since 1970, UTC.
    pub began_s: u64,
    /// Its length, seconds.
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
    /// The behaviour of the CPU's frequency: governor and limits, what the counter counts, whether a hypervisor hides it. Sentences; one that
    /// begins with `measured: ` has figures of this run.
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
    /// The question that it answers: a sentence or two.
    pub about: String,
    /// The way in which it was measured: sentences.
    pub method: String,
    /// Whether it was measured.
    pub outcome: Outcome,
    /// Seconds that it took.
    pub took_s: f64,
    /// The figures.
    pub charts: Vec<Chart>,
    /// Words in rows and columns that belong to no axis: strength, needs.
    pub tables: Vec<Table>,
    /// Conclusions from the figures, and what cannot be concluded: sentences. They name the rows in which Sealane loses.
    pub notes: Vec<String>,
}

/// The extent to which a part was measured.
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
    /// The kind of picture.
    pub shape: Shape,
    /// The axis of [`Point::x`].
    pub x: Axis,
    /// The axis of the figures.
    pub y: Axis,
    /// One line, or one bar of each group, for each thing that is compared.
    pub series: Vec<Series>,
}

/// The kind of picture of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Lines over numbers.
    Lines,
    /// Groups of bars over words.
    Bars,
    /// No picture: its figures are in the table alone.
    Table,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity along it.
    pub name: String,
    /// The unit of its numbers; empty where it has words.
    pub unit: String,
    /// The spacing of its numbers.
    pub scale: Scale,
    /// The direction of better figures. For an axis of figures only.
    pub better: Option<Better>,
}

/// The spacing of numbers along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By their logarithm.
    Log,
}

/// The better of two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
}

/// The figures of one of the things that a chart compares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The origin of its figures.
    pub source: Source,
    /// Its figures, by ascending x where x is a number.
    pub points: Vec<Point>,
}

/// The origin of figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "of")]
pub enum Source {
    /// Measured in this run.
    Here,
    /// Counted in this run; the text says what of. The ends of a figure are those of an interval, and the text says which.
    Counted(String),
    /// Computed from measured figures, in the way that the text says.
    Model(String),
    /// Published; the text says by whom, when, and for which machine.
    Published(String),
}

/// A figure and its place on the x axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place.
    pub x: X,
    /// The figure.
    pub figure: Figure,
    /// A remark on this figure alone, such as the driver; often empty.
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
    /// Rounds; 0 for counted, published and computed figures.
    pub rounds: u32,
    /// CPU time for the same work, in the unit of the y axis, if that is a time.
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
    /// The origin of its words.
    pub source: Source,
}

/// Reads null as NaN, because JSON has no NaN, and serde writes null for it.
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
