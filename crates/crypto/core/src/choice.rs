//! The calibrated table, which says which driver is fastest for a length and a burst.
//!
//! A table holds nanoseconds per operation for each driver, algorithm, direction, length point and burst point,
//! measured on one CPU model. It is text, so that it can be read, compared and shipped:
//!
//! ```text
//! sealane-calibration 1
//! cpu AMD EPYC 9965 192-Core Processor
//! bytes 16 64 144 256 576 1420 4096 16384 65536
//! bursts 1 2 4 8 16 32 64
//! hmac(sha1) forward hmac-sha1-awslc 151.0 150.2 ...   one number for each length, and within it for each burst
//! ```

use crate::info::AlgInfo;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The message lengths that are measured, in bytes.
pub const LEN_POINTS: [usize; 9] = [16, 64, 144, 256, 576, 1420, 4096, 16384, 65536];
/// The burst sizes that are measured, in operations.
pub const BURST_POINTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The length for which a driver is picked when a message arrives in pieces and its length is not known.
pub const STREAM_BYTES: usize = 4096;

/// The smallest number that one digit after the point can write; anything smaller is no measurement.
const SMALLEST_NS: f32 = 0.05;

const CELLS: usize = LEN_POINTS.len() * BURST_POINTS.len();

/// The direction that is measured: one direction of a cipher can be much slower than the other (CBC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MeasuredDirection {
    /// Encrypt, seal, hash, sign.
    Forward,
    /// Decrypt, open.
    Backward,
}

impl MeasuredDirection {
    /// Both directions.
    pub const ALL: [MeasuredDirection; 2] = [MeasuredDirection::Forward, MeasuredDirection::Backward];

    /// The word used in tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MeasuredDirection::Forward => "forward",
            MeasuredDirection::Backward => "backward",
        }
    }
}

/// Index into [`LEN_POINTS`] of the point nearest to `bytes` on a logarithmic scale.
#[inline]
#[must_use]
pub fn len_class(bytes: usize) -> usize {
    // It is asked for each message, of which the short ones notice.
    match SHORT_CLASSES.get(step(bytes)) {
        Some(class) => usize::from(*class),
        None => long_class(bytes),
    }
}

/// The number of a length in steps of 8 bytes, from 0 for 1 to 8 bytes; that of 0 bytes is behind the end of [`SHORT_CLASSES`].
#[inline]
const fn step(bytes: usize) -> usize {
    bytes.wrapping_sub(1) / 8
}

/// The largest messages of each class but the last: the geometric means of neighbouring points, rounded down.
const BORDERS: [usize; 8] = [32, 96, 192, 384, 904, 2411, 8192, 32768];

#[inline(never)]
const fn long_class(bytes: usize) -> usize {
    let mut class = 0;
    while class < BORDERS.len() && bytes > BORDERS[class] {
        class += 1;
    }
    class
}

/// The steps up to 904 bytes. The borders up to there are multiples of 8.
const SHORT: usize = 113;

/// The classes of all lengths up to 904, by steps.
const SHORT_CLASSES: [u8; SHORT] = {
    let mut classes = [0; SHORT];
    let mut i = 0;
    while i < classes.len() {
        classes[i] = long_class(8 * (i + 1)) as u8;
        i += 1;
    }
    classes
};

/// Index into [`BURST_POINTS`] of the largest point that `burst` reaches.
#[inline]
#[must_use]
pub fn burst_class(burst: usize) -> usize {
    (burst.max(1).ilog2() as usize).min(BURST_POINTS.len() - 1)
}

/// Measured nanoseconds per operation of one driver, by length class and burst class. `NaN`: not measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid(pub [[f32; BURST_POINTS.len()]; LEN_POINTS.len()]);

impl Default for Grid {
    fn default() -> Self {
        Grid([[f32::NAN; BURST_POINTS.len()]; LEN_POINTS.len()])
    }
}

/// A calibrated table: measurements of many drivers on one machine.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The CPU model that was measured, as /proc/cpuinfo names it.
    pub cpu: String,
    grids: BTreeMap<(String, MeasuredDirection), BTreeMap<String, Grid>>,
}

/// A table that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableError {
    /// Line number, from 1.
    pub line: usize,
    /// The mistake.
    pub what: &'static str,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "calibration table, line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for TableError {}

const MAGIC: &str = "sealane-calibration 1";

impl Table {
    /// An empty table for a CPU model.
    #[must_use]
    pub fn new(cpu: &str) -> Self {
        Table { cpu: cpu.to_owned(), grids: BTreeMap::new() }
    }

    /// Whether nothing has been measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.grids.is_empty()
    }

    /// Records one measurement, in nanoseconds per operation.
    pub fn set(
        &mut self,
        alg: &str,
        way: MeasuredDirection,
        driver: &str,
        len_class: usize,
        burst_class: usize,
        ns: f32,
    ) {
        let grid = self.grids.entry((alg.to_owned(), way)).or_default().entry(driver.to_owned()).or_default();
        grid.0[len_class][burst_class] = ns;
    }

    /// The measurements of all drivers of one algorithm.
    pub fn drivers(&self, alg: &str, way: MeasuredDirection) -> impl Iterator<Item = (&str, &Grid)> {
        self.grids.get(&(alg.to_owned(), way)).into_iter().flatten().map(|(d, g)| (d.as_str(), g))
    }

    /// The algorithms and ways that have measurements.
    pub fn algs(&self) -> impl Iterator<Item = (&str, MeasuredDirection)> {
        self.grids.keys().map(|(a, w)| (a.as_str(), *w))
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut table = Table::default();
        for (index, line) in text.lines().enumerate() {
            let fail = |what| TableError { line: index + 1, what };
            let line = line.trim_end();
            if index == 0 {
                if line != MAGIC {
                    return Err(fail("expected 'sealane-calibration 1'"));
                }
                continue;
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(cpu) = line.strip_prefix("cpu ") {
                cpu.clone_into(&mut table.cpu);
                continue;
            }
            for (word, points) in [("bytes ", &LEN_POINTS[..]), ("bursts ", &BURST_POINTS[..])] {
                if let Some(rest) = line.strip_prefix(word)
                    && !rest.split(' ').map(|n| n.parse::<usize>().ok()).eq(points.iter().map(|p| Some(*p)))
                {
                    return Err(fail("the table was measured at other points than this version uses"));
                }
            }
            if line.starts_with("bytes ") || line.starts_with("bursts ") {
                continue;
            }
            let mut words = line.split(' ');
            let alg = words.next().ok_or_else(|| fail("expected an algorithm"))?;
            let way = match words.next() {
                Some("forward") => MeasuredDirection::Forward,
                Some("backward") => MeasuredDirection::Backward,
                _ => return Err(fail("expected 'forward' or 'backward' after the algorithm")),
            };
            let driver = words.next().ok_or_else(|| fail("expected a driver"))?;
            let mut grid = Grid::default();
            let mut cells = grid.0.as_flattened_mut().iter_mut();
            for word in words {
                let cell = cells.next().ok_or_else(|| fail("too many numbers"))?;
                *cell = if word == "-" {
                    f32::NAN
                } else {
                    word.parse()
                        .ok()
                        .filter(|ns: &f32| ns.is_finite() && *ns >= SMALLEST_NS)
                        .ok_or_else(|| fail("expected nanoseconds or '-'"))?
                };
            }
            if cells.next().is_some() {
                return Err(fail("too few numbers"));
            }
            table.grids.entry((alg.to_owned(), way)).or_default().insert(driver.to_owned(), grid);
        }
        Ok(table)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |points: &[usize]| points.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        writeln!(f, "{MAGIC}")?;
        if !self.cpu.is_empty() {
            writeln!(f, "cpu {}", self.cpu)?;
        }
        writeln!(f, "bytes {}\nbursts {}", join(&LEN_POINTS), join(&BURST_POINTS))?;
        for ((alg, way), drivers) in &self.grids {
            for (driver, grid) in drivers {
                write!(f, "{alg} {} {driver}", way.name())?;
                for ns in grid.0.as_flattened() {
                    if ns.is_nan() {
                        f.write_str(" -")?;
                    } else {
                        write!(f, " {ns:.1}")?;
                    }
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// The index of the driver to use for each length class and burst class.
#[derive(Clone)]
pub(crate) struct Plan([[u8; BURST_POINTS.len()]; LEN_POINTS.len()]);

impl Plan {
    /// The plan that always picks the first driver.
    pub(crate) const FIRST: Plan = Plan([[0; BURST_POINTS.len()]; LEN_POINTS.len()]);

    /// The fastest measured driver for each cell; `drivers` are in order of preference where nothing was measured.
    pub(crate) fn new(table: &Table, alg: &str, way: MeasuredDirection, drivers: &[&str]) -> Self {
        let grids: Vec<Option<&Grid>> =
            drivers.iter().map(|name| table.drivers(alg, way).find(|(d, _)| d == name).map(|(_, g)| g)).collect();
        let mut plan = Plan::FIRST;
        for (cell, slot) in plan.0.as_flattened_mut().iter_mut().enumerate() {
            let ns = |grid: &Option<&Grid>| grid.map_or(f32::NAN, |g| g.0.as_flattened()[cell]);
            let best = grids
                .iter()
                .map(ns)
                .enumerate()
                .filter(|(_, ns)| !ns.is_nan())
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .map_or(0, |(i, _)| i);
            *slot = u8::try_from(best).expect("fewer than 256 drivers for one algorithm");
        }
        debug_assert_eq!(plan.0.as_flattened().len(), CELLS);
        plan
    }

    #[inline]
    pub(crate) fn pick(&self, bytes: usize, burst: usize) -> usize {
        usize::from(self.0[len_class(bytes)][burst_class(burst)])
    }

    /// The slots that win at least one cell.
    pub(crate) fn winners(&self) -> impl Iterator<Item = usize> {
        let mut seen: Vec<u8> = self.0.as_flattened().to_vec();
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter().map(usize::from)
    }
}

struct SelectionInner {
    info: AlgInfo,
    plans: [Plan; 2],
    /// The slots for one text by steps of its length, up to 904 bytes.
    ones: [[u8; SHORT]; 2],
    single: bool,
    null: bool,
}

/// An algorithm and the choice between its drivers, shared by its transforms under all keys. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Selection(Arc<SelectionInner>);

impl Selection {
    /// A choice between several drivers, by a plan for each [`MeasuredDirection`].
    pub(crate) fn new(info: AlgInfo, plans: [Plan; 2]) -> Self {
        let single = plans.iter().all(|plan| plan.winners().eq([0]));
        let ones = [0, 1].map(|way: usize| SHORT_CLASSES.map(|class| plans[way].0[usize::from(class)][0]));
        Selection(Arc::new(SelectionInner { info, plans, ones, single, null: false }))
    }

    /// One driver alone; `null` when it computes nothing.
    pub(crate) fn single(info: AlgInfo, null: bool) -> Self {
        let (plans, ones) = ([Plan::FIRST, Plan::FIRST], [[0; SHORT]; 2]);
        Selection(Arc::new(SelectionInner { info, plans, ones, single: true, null }))
    }

    #[inline]
    pub(crate) fn info(&self) -> &AlgInfo {
        &self.0.info
    }

    /// The slot of the driver that serves this length and burst.
    #[inline]
    pub(crate) fn pick(&self, way: MeasuredDirection, bytes: usize, burst: usize) -> usize {
        if self.0.single { 0 } else { self.0.plans[way as usize].pick(bytes, burst) }
    }

    /// The same for a single operation.
    #[inline]
    pub(crate) fn pick_one(&self, way: MeasuredDirection, bytes: usize) -> usize {
        match self.0.ones[way as usize].get(step(bytes)) {
            Some(slot) => usize::from(*slot),
            None => self.pick(way, bytes, 1),
        }
    }

    /// Whether the driver is a null one. Its MAC leaves buffers as they are, so no tag may ever match.
    pub(crate) fn computes_nothing(&self) -> bool {
        self.0.null
    }

    /// Whether both come from one look-up, so that operations under keys of both may share a burst.
    #[inline]
    pub(crate) fn same(&self, other: &Selection) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_all_sizes() {
        for (i, point) in LEN_POINTS.iter().enumerate() {
            assert_eq!(len_class(*point), i);
        }
        assert_eq!(len_class(0), 0);
        for border in BORDERS {
            assert_eq!(len_class(border) + 1, len_class(border + 1), "{border}");
        }
        assert!((0..4000).all(|bytes| len_class(bytes) == long_class(bytes)));
        assert_eq!(len_class(8 * SHORT), len_class(8 * SHORT - 1));
        assert_eq!(len_class(usize::MAX), LEN_POINTS.len() - 1);
        for (i, point) in BURST_POINTS.iter().enumerate() {
            assert_eq!(burst_class(*point), i);
        }
        assert_eq!(burst_class(0), 0);
        assert_eq!(burst_class(63), 5);
        assert_eq!(burst_class(10_000), 6);
    }

    #[test]
    fn one_operation_gets_what_a_burst_of_one_gets() {
        // Plans that differ by direction, by length and by burst, of as many slots as fit.
        let plan = |way: u8| {
            let cell = |len: usize, burst: usize| 100 * way + 10 * len as u8 + burst as u8;
            Plan(core::array::from_fn(|len| core::array::from_fn(|burst| cell(len, burst))))
        };
        let selection = Selection::new(AlgInfo::hash("some", 64, 32), [plan(0), plan(1)]);
        for way in MeasuredDirection::ALL {
            for bytes in (0..2000).chain([usize::MAX - 1, usize::MAX]) {
                assert_eq!(selection.pick_one(way, bytes), selection.pick(way, bytes, 1), "{bytes} {}", way.name());
            }
        }
    }

    #[test]
    fn table_round_trips_and_the_fastest_wins() {
        let mut table = Table::new("Some CPU");
        table.set("hmac(sha1)", MeasuredDirection::Forward, "slow", 2, 6, 900.0);
        table.set("hmac(sha1)", MeasuredDirection::Forward, "fast", 2, 6, 100.0);
        let again = Table::parse(&table.to_string()).unwrap();
        assert_eq!(again.to_string(), table.to_string());
        let plan = Plan::new(&again, "hmac(sha1)", MeasuredDirection::Forward, &["slow", "fast"]);
        assert_eq!(plan.pick(144, 64), 1);
        assert_eq!(plan.pick(144, 1), 0, "the preferred driver serves where nothing was measured");
    }

    #[test]
    fn bad_tables_name_the_line() {
        let good = Table::new("x").to_string();
        assert_eq!(Table::parse("nonsense").unwrap_err().line, 1);
        assert_eq!(Table::parse(&format!("{good}cbc(aes) sideways d 1")).unwrap_err().line, 5);
        assert_eq!(Table::parse(&format!("{good}cbc(aes) forward d 1 2")).unwrap_err().what, "too few numbers");
    }
}
