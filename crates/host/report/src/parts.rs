//! The parts of the report, a file each.

pub mod child;
pub mod run;

mod af_alg;
mod drivers;
mod frame;
mod homes;
mod ipsec;
pub(crate) mod mac;
mod openssl;
mod partial_mac;
mod tcp_ao;
mod temporary;

pub use frame::{Context, Effort, Entry};

/// All parts, in the order of the report, in which they are measured.
#[rustfmt::skip] // One a line.
pub const ALL: &[Entry] = &[
    tcp_ao::ENTRY,
    ipsec::ENTRY,
    mac::ENTRY,
    partial_mac::ENTRY,
    openssl::ENTRY,
    af_alg::ENTRY,
    drivers::ENTRY,
    // The last one: it gives this process guarded memory, which every operation opens from then on.
    homes::ENTRY,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Chart, Outcome, Part, Point, Series, Shape, Source, Table, X};
    use sealane_drivers::system_registry;
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::time::Duration;

    /// So little that a test of figures' order takes no time.
    const TINY: Effort = Effort { each: Duration::from_micros(20), rounds: 2 };

    pub(super) fn measure(entry: &Entry, stop: &dyn Fn() -> bool) -> Part {
        let registry = system_registry().0;
        let part = || entry.measure(&Context { registry: &registry, effort: TINY, stop, progress: &|_| () });
        // Another test of this process may have given it guarded memory, which has no room for the keys of all.
        if entry.id == homes::ENTRY.id { part() } else { sealane_guarded::unguarded(part) }
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

    /// Checks that figures can be drawn, and that words say where they are from.
    pub(super) fn check(part: &Part) {
        for chart in &part.charts {
            let at = |series: &Series| format!("{}, {}, {}", part.id, chart.id, series.name);
            let words: BTreeSet<&str> = chart
                .series
                .iter()
                .flat_map(|s| &s.points)
                .filter_map(|p| match &p.x {
                    X::Word(word) => Some(&**word),
                    X::Number(_) => None,
                })
                .collect();
            assert!(words.len() <= 12, "{}: {words:?}", chart.id);
            assert!(
                chart.series.len() <= 7 || chart.shape == Shape::Table,
                "{} in {}: nobody tells so many lines apart",
                chart.series.len(),
                chart.id
            );
            assert!(!chart.series.is_empty(), "{} of {} has no series", chart.id, part.id);
            for series in &chart.series {
                assert!(!series.points.is_empty(), "{}", at(series));
                match &series.source {
                    Source::Here => assert!(series.points.iter().all(|p| p.figure.rounds > 0), "{}", at(series)),
                    Source::Counted(from) | Source::Model(from) | Source::Published(from) => {
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
    fn a_part_that_is_stopped_between_rows_keeps_what_it_has() {
        // The rows of the others come from processes of the executable.
        for entry in ALL.iter().filter(|entry| !["openssl-speed", "af-alg"].contains(&entry.id)) {
            let asked = Cell::new(0);
            let part = measure(entry, &|| asked.replace(asked.get() + 1) >= 3);
            check(&part);
            assert!(!part.charts.is_empty(), "{}", part.id);
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
