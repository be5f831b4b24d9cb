//! The common part of both shapes of charts: sizes, and a frame with title and description.

use super::axis;
use super::mark::px;
use crate::data::{Chart, Point, Series};
use crate::number;
use maud::{Markup, html};

/// The windows for which a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Desktops and paper.
    Wide,
    /// Phones.
    Narrow,
}

impl Size {
    /// Of the picture, pixels.
    pub(super) fn width(self) -> f64 {
        match self {
            Size::Wide => 820.0,
            Size::Narrow => 358.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Size::Wide => "wide",
            Size::Narrow => "narrow",
        }
    }
}

/// A picture with its title and description, of that height.
pub(super) fn described(chart: &Chart, id: &str, size: Size, height: f64, body: &Markup) -> Markup {
    let class = size.class();
    let names: Vec<&str> = chart.series.iter().map(|series| series.name.as_str()).collect();
    html! {
        svg class={ "plot " (class) } viewBox={ "0 0 " (px(size.width())) " " (px(height)) } role="img"
            aria-labelledby={ (id) "-" (class) "-title " (id) "-" (class) "-desc" } {
            title id={ (id) "-" (class) "-title" } { (chart.title) }
            desc id={ (id) "-" (class) "-desc" } {
                (axis::title(&chart.y)) " by " (axis::title(&chart.x)) ": " (names.join("; ")) ". The table under the chart has all figures."
            }
            (body)
        }
    }
}

/// A figure in words, as the title that a pointer shows. Pictures for phones, which have no pointer, go without.
pub(super) fn said(chart: &Chart, series: &Series, point: &Point) -> Markup {
    let say = |value| number::figure(value, &series.source);
    let figure = &point.figure;
    let with = |text: String, unit: &str| if unit.is_empty() { text } else { format!("{text} {unit}") };
    let mut text = format!(
        "{}, {}: {}",
        series.name,
        with(number::place(&point.x), &chart.x.unit),
        with(say(figure.median), &chart.y.unit)
    );
    if figure.low < figure.high {
        text.push_str(&format!(", {} to {}", say(figure.low), say(figure.high)));
    }
    if !point.remark.is_empty() {
        text.push_str(", ");
        text.push_str(&point.remark);
    }
    html! { title { (text) } }
}
