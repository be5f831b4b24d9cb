//! Charts of lines over numbers.

use super::axis::{self, Ruler};
use super::mark::{Look, RADIUS, px};
use super::plot::{self, Size, described};
use super::text::{self, LINE};
use crate::data::{Chart, Point, Series, X};
use maud::{Markup, html};

/// More lines than this have no labels at their ends.
const LABELLED: usize = 9;
/// So many places at most are all written along the axis, if they have room.
const PLACES: usize = 12;
/// A line whose last point is so far left of the others', pixels, has its label beside that point.
const EARLY: f64 = 40.0;

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

/// A label: the name of a line.
struct Label<'a> {
    line: &'a Line<'a>,
    /// The beginning of the text, in the middle of its height.
    at: (f64, f64),
    /// The end of the line, if a stroke leads from there to the text.
    from: Option<(f64, f64)>,
}

/// The place of something drawn, pixels.
#[derive(Clone, Copy)]
struct Rect {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
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
    let mut across = Ruler::new(chart.x.scale, places(), ((x1 - x0) / wide) as usize, false);
    let mut all: Vec<f64> = places().filter(|x| x.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    if (2..=PLACES).contains(&all.len()) {
        across.mark(&all);
    }
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
    let labels = if labelled { labels(&lines, x1, (y0, y1), width) } else { Vec::new() };
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
        @for line in &lines { (curve(chart, line, size)) }
        @for label in &labels { (ended(label)) }
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

fn curve(chart: &Chart, line: &Line<'_>, size: Size) -> Markup {
    let way: Vec<String> = line.points.iter().map(|placed| format!("{} {}", px(placed.x), px(placed.y))).collect();
    // One path for all spreads of a line keeps the page small.
    let spread = |at: &Placed<'_>| {
        let (low, high) = at.spread?;
        Some(format!("M{} {}h6m-3 0V{}m-3 0h6", px(at.x - 3.0), px(low), px(high)))
    };
    let spreads: String = line.points.iter().filter_map(spread).collect();
    html! {
        g class=(line.look.class()) {
            @if way.len() > 1 { path.curve d=(format!("M{}", way.join("L"))) stroke-dasharray=(line.look.dashes()) {} }
            @if !spreads.is_empty() { path.spread d=(spreads) {} }
            @for Placed { point, x, y, .. } in &line.points {
                @let marker = line.look.marker(*x, *y);
                // A title belongs to what is in its group.
                @if size == Size::Wide { g { (plot::said(chart, line.series, point)) (marker) } } @else { (marker) }
            }
        }
    }
}

/// Labels of lines. Those of lines that reach the frame's right end are beside it, apart from each other, between these two heights. One
/// whose line ends long before is beside that end if nothing else is drawn there; if there is, the legend alone has its name.
fn labels<'a>(lines: &'a [Line<'a>], right: f64, (top, bottom): (f64, f64), width: f64) -> Vec<Label<'a>> {
    let ends = lines.iter().filter_map(|line| line.points.last().map(|last| (line, (last.x, last.y))));
    let (early, mut late): (Vec<_>, Vec<_>) = ends.partition(|(_, end)| end.0 < right - EARLY);
    late.sort_by(|(_, a), (_, b)| a.1.total_cmp(&b.1));
    let mut labels: Vec<Label<'_>> =
        late.into_iter().map(|(line, end)| Label { line, at: (right + 16.0, end.1), from: Some(end) }).collect();
    let mut least = top;
    for label in &mut labels {
        label.at.1 = label.at.1.max(least);
        least = label.at.1 + LINE;
    }
    let mut most = bottom;
    for label in labels.iter_mut().rev() {
        label.at.1 = label.at.1.min(most);
        most = label.at.1 - LINE;
    }
    let mut texts: Vec<Rect> = labels.iter().map(|label| rect(label.line, label.at)).collect();
    // Strokes end before their texts.
    let leaders = labels.iter().filter_map(|label| Some((label.from?, (right + 12.0, label.at.1))));
    let strokes: Vec<_> = lines.iter().flat_map(strokes).chain(leaders).collect();
    for (line, (x, y)) in early {
        for down in [0.0, -LINE / 2.0, LINE / 2.0] {
            let at = (x + RADIUS + 7.0, y + down);
            let text = rect(line, at);
            let free = text.right <= width
                && texts.iter().all(|other| !text.touches(other))
                && strokes.iter().all(|(a, b)| !text.is_crossed(*a, *b))
                && lines.iter().flat_map(|line| &line.points).all(|point| !text.touches(&marker(point)));
            if free {
                texts.push(text);
                labels.push(Label { line, at, from: None });
                break;
            }
        }
    }
    labels
}

/// The place of a line's label that begins there.
fn rect(line: &Line<'_>, (x, y): (f64, f64)) -> Rect {
    let half = LINE / 2.0;
    Rect { left: x, top: y - half, right: x + text::width(&line.series.name), bottom: y + half }
}

fn marker(point: &Placed<'_>) -> Rect {
    let reach = RADIUS + 1.0;
    Rect { left: point.x - reach, top: point.y - reach, right: point.x + reach, bottom: point.y + reach }
}

/// The straight strokes of a line: from point to point, and its spreads.
fn strokes<'a>(line: &'a Line<'a>) -> impl Iterator<Item = ((f64, f64), (f64, f64))> {
    let way = line.points.windows(2).map(|pair| ((pair[0].x, pair[0].y), (pair[1].x, pair[1].y)));
    let spreads = line.points.iter().filter_map(|at| at.spread.map(|(low, high)| ((at.x, low), (at.x, high))));
    way.chain(spreads)
}

impl Rect {
    fn touches(&self, other: &Rect) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    /// Whether a straight stroke is inside somewhere. It is looked at every two pixels.
    fn is_crossed(&self, a: (f64, f64), b: (f64, f64)) -> bool {
        let steps = ((a.0 - b.0).hypot(a.1 - b.1) / 2.0).ceil().max(1.0);
        (0..=steps as usize).any(|step| {
            let part = step as f64 / steps;
            let (x, y) = (a.0 + part * (b.0 - a.0), a.1 + part * (b.1 - a.1));
            self.left < x && x < self.right && self.top < y && y < self.bottom
        })
    }
}

fn ended(label: &Label<'_>) -> Markup {
    let (x, y) = label.at;
    html! {
        g class=(label.line.look.class()) {
            @if let Some((end_x, end_y)) = label.from {
                path.spread d=(format!("M{} {}L{} {}H{}", px(end_x + RADIUS + 3.0), px(end_y), px(x - 10.0), px(y), px(x - 4.0))) {}
            }
            text.label x=(px(x)) y=(px(y + 4.0)) { (label.line.series.name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Axis, Better, Figure, Scale, Shape, Source};

    /// A chart of lines with these names and points.
    fn chart(lines: &[(&str, &[(f64, f64)])]) -> Chart {
        let axis = |better| Axis { name: "axis".into(), unit: "B".into(), scale: Scale::Linear, better };
        let point = |(x, y): &(f64, f64)| Point { x: X::Number(*x), figure: Figure::stated(*y), remark: String::new() };
        Chart {
            id: "chart".into(),
            title: "A chart".into(),
            shape: Shape::Lines,
            x: axis(None),
            y: axis(Some(Better::Lower)),
            series: lines
                .iter()
                .map(|(name, points)| Series {
                    name: (*name).into(),
                    source: Source::Here,
                    points: points.iter().map(point).collect(),
                })
                .collect(),
        }
    }

    #[test]
    fn a_label_has_a_free_place_or_none() {
        let labels = |early: &[(f64, f64)]| {
            let others: [(&str, &[(f64, f64)]); 2] =
                [("a", &[(0.0, 48.0), (9.0, 48.0)]), ("b", &[(0.0, 52.0), (9.0, 52.0)])];
            let svg = draw(&chart(&[others[0], others[1], ("early", early)]), "id", Size::Wide);
            svg.into_string().matches("class=\"label\"").count()
        };
        assert_eq!(labels(&[(0.0, 10.0), (3.0, 10.0)]), 3, "nothing is there");
        assert_eq!(labels(&[(0.0, 47.0), (3.0, 47.0)]), 3, "it is free a little lower");
        assert_eq!(labels(&[(0.0, 90.0), (3.0, 50.0)]), 2, "the other lines are there");
    }

    #[test]
    fn strokes_through_a_text_are_seen() {
        let text = Rect { left: 10.0, top: 10.0, right: 50.0, bottom: 26.0 };
        for (a, b, expected) in [
            ((0.0, 0.0), (60.0, 36.0), true),
            ((30.0, 0.0), (30.0, 100.0), true),
            ((20.0, 20.0), (20.0, 20.0), true),
            ((0.0, 27.0), (60.0, 27.0), false),
            ((0.0, 0.0), (9.0, 30.0), false),
        ] {
            assert_eq!(text.is_crossed(a, b), expected, "{a:?} to {b:?}");
        }
    }

    #[test]
    fn measured_places_are_written_along_the_axis() {
        let svg = draw(&chart(&[("line", &[(16.0, 1.0), (576.0, 2.0), (1_420.0, 3.0)])]), "id", Size::Wide);
        let svg = svg.into_string().replace('\u{202f}', "");
        for place in [">16<", ">576<", ">1420<"] {
            assert!(svg.contains(place), "{place} in {svg}");
        }
    }
}
