//! Groups of bars over words. Bars lie, so that words and figures have room on a phone.

use super::axis::{self, Ruler};
use super::mark::{Look, RADIUS, px};
use super::plot::{self, Size, described};
use super::text::{self, LINE};
use crate::data::{Chart, Point, Scale, Series};
use crate::number;
use maud::{Markup, html};

/// From bar to bar, pixels.
const ROW: f64 = 20.0;
const THICK: f64 = 11.0;
/// Between groups.
const GAP: f64 = 14.0;

/// Bars of the same word.
struct Group<'a> {
    word: String,
    bars: Vec<(usize, &'a Series, &'a Point)>,
}

/// Draws them.
pub(super) fn draw(chart: &Chart, id: &str, size: Size) -> Markup {
    let width = size.width();
    let groups = groups(chart);
    let alone = chart.series.len() <= 1;
    let longest = |texts: &mut dyn Iterator<Item = f64>, most: f64| texts.fold(0.0, f64::max).min(most);
    // A column for words, unless they stand over their groups, and one for the names of series where it leaves room for bars. Each
    // bar begins with the marker of its series, too.
    let beside = alone || size == Size::Wide;
    // As wide as its title, too, if that is not too long.
    let titled = text::width(&axis::title(&chart.x)).min(width * 0.26);
    let most = if alone { width * 0.42 } else { width * 0.26 };
    let words = longest(&mut groups.iter().map(|group| text::bold(&group.word)), most).max(titled) + 18.0;
    let names = longest(&mut chart.series.iter().map(|series| text::width(&series.name)), f64::INFINITY) + 12.0;
    let named = !alone && names < width * 0.36;
    let x_name = if beside { words } else { 0.0 };
    let x_mark = x_name + if named { names } else { 0.0 };
    let x0 = x_mark + if alone { 0.0 } else { 2.0 * RADIUS + 10.0 };
    let value = longest(
        &mut bars(&groups).map(|(_, series, point)| text::width(&number::figure(point.figure.median, &series.source))),
        120.0,
    );
    let x1 = width - value - 14.0;
    let ends = bars(&groups).flat_map(|(_, _, point)| [point.figure.median, point.figure.low, point.figure.high]);
    // A number and a gap.
    let tick = 56.0;
    let ruler = Ruler::new(chart.y.scale, ends, ((x1 - x0) / tick).clamp(2.0, 9.0) as usize, true);
    let at_x = |at: f64| x0 + at * (x1 - x0);
    let head = text::wrap(&axis::title(&chart.y), width);
    let side = text::wrap(&axis::title(&chart.x), if beside { words } else { width });
    // The title of words is in the line of the ticks, if it has a column.
    let y_ticks = (head.len() + if beside { side.len().max(1) } else { side.len() + 1 }) as f64 * LINE + 12.0;
    let y_side = y_ticks - if beside { (side.len() - 1) as f64 * LINE } else { LINE * side.len() as f64 };
    let y0 = y_ticks + 10.0;
    let mut y = y0;
    let mut drawn = Vec::new();
    for group in &groups {
        y += GAP / 2.0;
        let over = text::wrap_bold(&group.word, if beside { words - 18.0 } else { width });
        let high = over.len() as f64 * LINE;
        let mut rows = group.bars.len() as f64 * ROW;
        let y_bars = if beside { y } else { y + high + 4.0 };
        if beside {
            rows = rows.max(high + 4.0);
        }
        drawn.push(html! {
            (text::lines("word", 0.0, y + 14.0, &over))
            @for (at, (index, series, point)) in group.bars.iter().enumerate() {
                @let look = Look::new(*index, series);
                @let middle = y_bars + (at as f64 + 0.5) * ROW;
                g class=(look.class()) {
                    @if size == Size::Wide { (plot::said(chart, series, point)) }
                    @if named { text x=(px(x_name)) y=(px(middle + 4.0)) { (series.name) } }
                    @if !alone { (look.marker(x_mark + RADIUS + 1.0, middle)) }
                    (bar(chart, &ruler, series, point, &at_x, middle))
                }
            }
        });
        y = y_bars + rows + GAP / 2.0;
    }
    let bottom = y;
    let body = html! {
        (text::lines("axis-title", 0.0, 12.0, &head))
        (text::lines("axis-title", 0.0, y_side, &side))
        @for tick in &ruler.ticks {
            path.grid d=(format!("M{} {}V{}", px(at_x(tick.at)), px(y0), px(bottom))) {}
        }
        (text::along(ruler.ticks.iter().map(|tick| (at_x(tick.at), tick.text.as_str())), y_ticks, width))
        path.base d=(format!("M{} {}V{}", px(at_x(ruler.zero())), px(y0), px(bottom))) {}
        g.bars { @for group in &drawn { (group) } }
        @if groups.is_empty() { text.value x=(px(x0 + 12.0)) y=(px(bottom + 18.0)) { "no figures" } }
    };
    described(chart, id, size, bottom + if groups.is_empty() { 30.0 } else { 6.0 }, &body)
}

/// The words in the order in which series have them.
fn groups(chart: &Chart) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for word in number::places(chart) {
        let of = chart.series.iter().enumerate();
        let bars = of.flat_map(|(index, series)| series.points.iter().map(move |point| (index, series, point)));
        let bars = bars.filter(|(_, _, point)| number::place(&point.x) == word).collect();
        groups.push(Group { word, bars });
    }
    groups
}

fn bars<'a>(groups: &'a [Group<'a>]) -> impl Iterator<Item = (usize, &'a Series, &'a Point)> {
    groups.iter().flat_map(|group| group.bars.iter().copied())
}

fn bar(
    chart: &Chart,
    ruler: &Ruler,
    series: &Series,
    point: &Point,
    at_x: &impl Fn(f64) -> f64,
    middle: f64,
) -> Markup {
    let figure = &point.figure;
    let zero = at_x(ruler.zero());
    let Some(end) = ruler.at(figure.median).map(at_x) else {
        let text = number::figure(figure.median, &series.source);
        return html! { text.value x=(px(zero + 8.0)) y=(px(middle + 4.0)) { (text) } };
    };
    let spread = (figure.low < figure.high)
        .then(|| ruler.at(figure.high).map(|high| (at_x(ruler.at(figure.low).unwrap_or(0.0)), at_x(high))))
        .flatten();
    let beyond = spread.map_or(end, |(_, high)| end.max(high)).max(zero);
    let (left, length) = (end.min(zero), (end - zero).abs());
    // A logarithmic axis has no 0 from which a length could count: a point there.
    let stem = chart.y.scale == Scale::Log;
    html! {
        @if stem {
            path.curve d=(format!("M{} {}H{}", px(zero), px(middle), px(end))) {}
            circle.mark cx=(px(end)) cy=(px(middle)) r=(px(RADIUS)) {}
        } @else {
            rect.bar x=(px(left)) y=(px(middle - THICK / 2.0)) width=(px(length)) height=(px(THICK)) rx="1" {}
        }
        @if let Some((low, high)) = spread {
            path.spread d=(format!("M{} {}v6m0 -3H{}m0 -3v6", px(low), px(middle - 3.0), px(high))) {}
        }
        text.value x=(px(beyond + if stem { 10.0 } else { 6.0 })) y=(px(middle + 4.0)) { (number::figure(figure.median, &series.source)) }
    }
}
