//! Charts of lines over numbers.

use super::axis::{self, Ruler};
use super::mark::{Look, RADIUS, px};
use super::plot::{self, Size, described};
use super::text::{self, LINE};
use crate::data::{Chart, Point, Series, X};
use maud::{Markup, html};

/// More lines than this have no labels at their ends.
const LABELLED: usize = 9;

/// A line with the points that its axes can show.
struct Line<'a> {
    series: &'a Series,
    look: Look,
    /// Each with its place, and the ends of its spread, pixels.
    points: Vec<Placed<'a>>,
}

struct Placed<'a> {
    point: &'a Point,
    x: f64,
    y: f64,
    spread: Option<(f64, f64)>,
}

/// A label at the end of a line: where it is, and where it ought to be.
struct Label<'a> {
    line: &'a Line<'a>,
    y: f64,
    end: (f64, f64),
    early: bool,
}

/// Draws it.
pub(super) fn draw(chart: &Chart, id: &str, size: Size) -> Markup {
    let width = size.width();
    let height = if size == Size::Wide { 400.0 } else { 320.0 };
    let figures = || chart.series.iter().flat_map(|series| &series.points).map(|point| &point.figure);
    let down =
        Ruler::new(chart.y.scale, figures().flat_map(|figure| [figure.median, figure.low, figure.high]), 7, true);
    let head = text::wrap(&axis::title(&chart.y), width);
    let left = down.ticks.iter().map(|tick| text::width(&tick.text)).fold(0.0, f64::max) + 12.0;
    let longest = chart.series.iter().map(|series| text::width(&series.name)).fold(0.0, f64::max);
    let labelled = size == Size::Wide && chart.series.len() <= LABELLED && longest < 230.0;
    let right = if labelled { longest + 22.0 } else { 16.0 };
    let (x0, x1) = (left, width - right);
    let foot = text::wrap(&axis::title(&chart.x), x1 - x0);
    let (y0, y1) = (head.len() as f64 * LINE + 14.0, height - foot.len() as f64 * LINE - 30.0);
    let places = || chart.series.iter().flat_map(|series| &series.points).filter_map(|point| number(&point.x));
    // As many as have room, by the longest of the numbers at this axis.
    let wide = places().map(|x| text::width(&crate::number::exact(x))).fold(14.0, f64::max) + 10.0;
    let across = Ruler::new(chart.x.scale, places(), ((x1 - x0) / wide) as usize, false);
    // Markers at the first and the last place do not touch the frame.
    let inset = RADIUS + 6.0;
    let at_x = |at: f64| x0 + inset + at * (x1 - x0 - 2.0 * inset);
    let at_y = |at: f64| y1 - at * (y1 - y0);
    let place = |point| place(point, &across, &down, &at_x, &at_y);
    let lines: Vec<Line<'_>> = chart
        .series
        .iter()
        .enumerate()
        .map(|(at, series)| Line {
            series,
            look: Look::new(at, series),
            points: series.points.iter().filter_map(place).collect(),
        })
        .collect();
    let labels = if labelled { labels(&lines, x1 - 40.0, y0, y1) } else { Vec::new() };
    let body = html! {
        (text::lines("axis-title", 0.0, 12.0, &head))
        @for tick in &down.ticks {
            @let y = at_y(tick.at);
            path.grid d=(format!("M{} {}H{}", px(x0), px(y), px(x1))) {}
            text x=(px(x0 - 8.0)) y=(px(y + 4.0)) text-anchor="end" { (tick.text) }
        }
        path.base d=(format!("M{} {}H{}", px(x0), px(at_y(down.zero())), px(x1))) {}
        @for tick in &across.ticks {
            @let x = at_x(tick.at);
            path.base d=(format!("M{} {}v5", px(x), px(y1))) {}
        }
        (text::along(across.ticks.iter().map(|tick| (at_x(tick.at), tick.text.as_str())), y1 + 19.0, width))
        @for (at, line) in foot.iter().enumerate() {
            text.axis-title x=(px(f64::midpoint(x0, x1))) y=(px(y1 + 40.0 + at as f64 * LINE)) text-anchor="middle" { (line) }
        }
        @if lines.iter().all(|line| line.points.is_empty()) {
            text.value x=(px(f64::midpoint(x0, x1))) y=(px(f64::midpoint(y0, y1))) text-anchor="middle" { "no figures" }
        }
        @for line in &lines { (curve(chart, line)) }
        @for label in &labels { (ended(label, x1)) }
    };
    described(chart, id, size, height, &body)
}

fn number(x: &X) -> Option<f64> {
    match x {
        X::Number(number) => Some(*number),
        X::Word(_) => None,
    }
}

fn place<'a>(
    point: &'a Point,
    across: &Ruler,
    down: &Ruler,
    at_x: &impl Fn(f64) -> f64,
    at_y: &impl Fn(f64) -> f64,
) -> Option<Placed<'a>> {
    let x = at_x(across.at(number(&point.x)?)?);
    let figure = &point.figure;
    let y = at_y(down.at(figure.median)?);
    // A spread that reaches below a logarithmic axis is drawn to its end.
    let ends = (down.at(figure.low).unwrap_or(0.0), down.at(figure.high));
    let spread = match ends {
        (low, Some(high)) if figure.low < figure.high => Some((at_y(low), at_y(high))),
        _ => None,
    };
    Some(Placed { point, x, y, spread })
}

fn curve(chart: &Chart, line: &Line<'_>) -> Markup {
    let way: Vec<String> = line.points.iter().map(|placed| format!("{} {}", px(placed.x), px(placed.y))).collect();
    html! {
        g class=(line.look.class()) {
            @if way.len() > 1 { path.curve d=(format!("M{}", way.join("L"))) stroke-dasharray=(line.look.dashes()) {} }
            @for Placed { point, x, y, spread } in &line.points {
                g {
                    title { (plot::said(chart, line.series, point)) }
                    @if let Some((low, high)) = spread {
                        path.spread d=(format!("M{} {}h6m-3 0V{}m-3 0h6", px(x - 3.0), px(*low), px(*high))) {}
                    }
                    (line.look.marker(*x, *y))
                }
            }
        }
    }
}

/// Labels at the ends of lines, apart from each other, between these two heights. One whose line ends long before the others is
/// beside that end.
fn labels<'a>(lines: &'a [Line<'a>], right: f64, top: f64, bottom: f64) -> Vec<Label<'a>> {
    let mut labels: Vec<Label<'_>> = lines
        .iter()
        .filter_map(|line| {
            line.points.last().map(|last| Label { line, y: last.y, end: (last.x, last.y), early: last.x < right })
        })
        .collect();
    labels.sort_by(|a, b| a.y.total_cmp(&b.y));
    let mut least = top;
    for label in labels.iter_mut().filter(|label| !label.early) {
        label.y = label.y.max(least);
        least = label.y + LINE;
    }
    let mut most = bottom;
    for label in labels.iter_mut().filter(|label| !label.early).rev() {
        label.y = label.y.min(most);
        most = label.y - LINE;
    }
    labels
}

fn ended(label: &Label<'_>, x: f64) -> Markup {
    let (end_x, end_y) = label.end;
    html! {
        g class=(label.line.look.class()) {
            @if label.early {
                text.label x=(px(end_x + RADIUS + 7.0)) y=(px(end_y + 4.0)) { (label.line.series.name) }
            } @else {
                path.spread d=(format!("M{} {}L{} {}H{}", px(end_x + RADIUS + 3.0), px(end_y), px(x + 6.0), px(label.y), px(x + 12.0))) {}
                text.label x=(px(x + 16.0)) y=(px(label.y + 4.0)) { (label.line.series.name) }
            }
        }
    }
}
