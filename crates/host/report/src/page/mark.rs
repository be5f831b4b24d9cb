//! The look of a series: its colour, its marker, its dashes; hollow if it was neither measured nor counted here.

use super::style::COLOURS;
use crate::data::{Series, Source};
use maud::{Markup, html};

/// Markers, as paths around 0, 0 that reach about one unit from it.
const MARKERS: [&[(f64, f64)]; 6] = [
    &[],
    &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    &[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)],
    &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
    &[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)],
    &[
        (-1.2, -0.45),
        (-0.45, -0.45),
        (-0.45, -1.2),
        (0.45, -1.2),
        (0.45, -0.45),
        (1.2, -0.45),
        (1.2, 0.45),
        (0.45, 0.45),
        (0.45, 1.2),
        (-0.45, 1.2),
        (-0.45, 0.45),
        (-1.2, 0.45),
    ],
];
/// Dashes of measured lines. Published ones are dotted, computed ones have short dashes.
const DASHES: [&str; 5] = ["none", "11 4", "16 4 3 4", "7 4 7 4 2 4", "22 5"];
/// Radius of a marker, pixels.
pub(super) const RADIUS: f64 = 4.0;

/// The look of a series.
pub(super) struct Look {
    index: usize,
    kind: &'static str,
}

impl Look {
    /// The look of the series at this place of its chart.
    pub(super) fn new(index: usize, series: &Series) -> Self {
        let kind = match series.source {
            Source::Here | Source::Counted(_) => "here",
            Source::Model(_) => "model",
            Source::Published(_) => "published",
        };
        Look { index, kind }
    }

    /// The classes of everything that belongs to it.
    pub(super) fn class(&self) -> String {
        format!("c{} {}", self.index % COLOURS, self.kind)
    }

    /// Its dashes.
    pub(super) fn dashes(&self) -> &'static str {
        DASHES[self.index % DASHES.len()]
    }

    /// Its marker around a point.
    pub(super) fn marker(&self, x: f64, y: f64) -> Markup {
        // Another marker for the same colour, when colours begin again.
        let corners = MARKERS[(self.index + self.index / COLOURS) % MARKERS.len()];
        if corners.is_empty() {
            return html! { circle.mark cx=(px(x)) cy=(px(y)) r=(px(RADIUS)) {} };
        }
        let corners: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{},{}", px(x + dx * RADIUS), px(y + dy * RADIUS))).collect();
        html! { polygon.mark points=(corners.join(" ")) {} }
    }

    /// The sign of the legend: a piece of its line for charts of lines.
    pub(super) fn sign(&self, line: bool) -> Markup {
        html! {
            svg class=(self.class()) width=(if line { "34" } else { "12" }) height="18" viewBox=(if line { "0 0 34 18" } else { "11 0 12 18" })
                aria-hidden="true" {
                @if line { path.curve d="M1 9H33" stroke-dasharray=(self.dashes()) {} }
                (self.marker(17.0, 9.0))
            }
        }
    }
}

/// The kind of figures that are no times of this run.
pub(super) fn kind(source: &Source) -> Option<&'static str> {
    match source {
        Source::Here => None,
        Source::Counted(_) => Some("counted"),
        Source::Model(_) => Some("modelled"),
        Source::Published(_) => Some("published"),
    }
}

/// The origin of figures that are no times of this run.
pub(super) fn origin(source: &Source) -> Option<String> {
    let (Source::Counted(of) | Source::Model(of) | Source::Published(of)) = source else { return None };
    let kind = kind(source)?;
    Some(if of.is_empty() { kind.to_owned() } else { format!("{kind}: {of}") })
}

/// A coordinate, to a tenth of a pixel.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
