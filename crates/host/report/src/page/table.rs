//! Figures and words as tables.

use super::axis;
use super::mark::{kind, origin};
use crate::data::{Chart, Point, Series, Table};
use crate::number;
use maud::{Markup, html};

/// All figures of a chart: a row for each place, a column for each series.
pub(super) fn figures(chart: &Chart) -> Markup {
    html! {
        details {
            summary { "Figures of this chart" }
            div.scroll tabindex="0" role="region" aria-label={ "Figures: " (chart.title) } {
                table.figures {
                    thead {
                        tr {
                            th scope="col" { (axis::title(&chart.x)) }
                            @for series in &chart.series {
                                th scope="col" {
                                    (series.name)
                                    small { @if chart.y.unit.is_empty() { (chart.y.name) } @else { (chart.y.unit) } }
                                    @if let Some(kind) = kind(&series.source) { small { (kind) } }
                                    @if let Some(rounds) = same_rounds(series) { small { (self::rounds(rounds)) } }
                                }
                            }
                        }
                    }
                    tbody {
                        @for place in number::places(chart) {
                            tr {
                                th scope="row" { (place) }
                                @for series in &chart.series {
                                    td {
                                        @let here: Vec<&Point> = series.points.iter().filter(|p| number::place(&p.x) == place).collect();
                                        @for point in &here { (cell(series, point)) }
                                        @if here.is_empty() { small { "not measured" } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(series: &Series, point: &Point) -> Markup {
    let figure = &point.figure;
    let say = |value| number::figure(value, &series.source);
    html! {
        b { (say(figure.median)) }
        @if figure.low != figure.high { small { (say(figure.low)) " to " (say(figure.high)) } }
        @if let Some(cpu) = figure.cpu {
            small { "CPU " (say(cpu)) }
        }
        @if figure.rounds > 0 && same_rounds(series).is_none() { small { (rounds(figure.rounds)) } }
        @if !point.remark.is_empty() { small.remark { (point.remark) } }
    }
}

/// The rounds of all its figures, if they have the same.
fn same_rounds(series: &Series) -> Option<u32> {
    let first = series.points.first()?.figure.rounds;
    (first > 0 && series.points.iter().all(|point| point.figure.rounds == first)).then_some(first)
}

fn rounds(rounds: u32) -> String {
    if rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", number::exact(f64::from(rounds))) }
}

/// A column with a text of more characters than this is wide.
const LONG: usize = 40;

/// Words in rows and columns.
pub(super) fn words(table: &Table) -> Markup {
    let long = |at: usize| table.rows.iter().filter_map(|row| row.get(at)).any(|word| word.chars().count() > LONG);
    html! {
        figure.words {
            h3 { (table.title) }
            @if let Some(origin) = origin(&table.source) { p.hint { (origin) } }
            div.scroll tabindex="0" role="region" aria-label=(table.title) {
                table {
                    thead { tr { @for (at, column) in table.columns.iter().enumerate() { th.long[long(at)] scope="col" { (column) } } } }
                    tbody {
                        @for row in &table.rows {
                            tr { @for (at, word) in row.iter().enumerate() { @if at == 0 { th scope="row" { (word) } } @else { td { (word) } } } }
                        }
                    }
                }
            }
        }
    }
}
