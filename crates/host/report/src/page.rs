//! A report as one HTML file, which loads nothing: style and pictures are in it, and there is no script.
//!
//! Each chart is drawn twice, for wide and for narrow windows, because text in a picture shrinks with it; the style sheet shows one of
//! them. All figures of a chart are in the table under it; some charts are this table only.

mod axis;
mod bars;
mod lines;
mod mark;
mod plot;
mod style;
mod table;
mod text;

use crate::data::{Chart, Outcome, Part, Point, Report, Run, Scale, Series, Shape, Source, X};
use crate::number;
use mark::{Look, kind, origin};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use plot::Size;

/// The report as an HTML file.
#[must_use]
pub fn page(report: &Report) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Browsers hold the page to its promise to load nothing.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                link rel="icon" href="data:,";
                title { "Sealane bench, " (number::date(report.run.began_s)) }
                style { (PreEscaped(style::sheet())) }
            }
            body {
                div.sheet {
                    header { (head(report)) (contents(&report.parts)) }
                    main { @for part in &report.parts { (section(part)) } }
                    footer { p { "Made by Sealane " (report.run.version) ". The same figures, for programs, are in data.json beside this file." } }
                }
            }
        }
    }
    .into_string()
}

fn head(report: &Report) -> Markup {
    let Run { command, version, began_s, took_s, quick, interrupted } = &report.run;
    let machine = &report.machine;
    html! {
        h1 { "What network cryptography costs here" }
        p.lead { "Sealane " (version) ", measured on " span.short { (number::date(*began_s)) } " in " (number::duration(*took_s)) }
        @if *interrupted { p.notice { "Interrupted: somebody ended this run before its end. What was measured until then is here." } }
        @if *quick { p.notice { "A quick run, for a first look: few and short rounds, so that spreads are wide." } }
        dl.facts {
            (fact("Machine", &[&machine.cpu]))
            (fact("CPUs", &[&machine.cpus.to_string()]))
            (fact("Instructions", &[&machine.flags.join(", ")]))
            (fact("Frequency", &machine.frequency))
            (fact("Kernel", &[&machine.kernel]))
            (fact("Versions", &machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>()))
            (fact("Drivers chosen by", &[&machine.table]))
            dt { "Command" }
            dd { code { (command) } }
        }
    }
}

fn fact<T: AsRef<str>>(name: &str, values: &[T]) -> Markup {
    let values: Vec<&str> = values.iter().map(AsRef::as_ref).filter(|value| !value.is_empty()).collect();
    html! {
        @if !values.is_empty() {
            dt { (name) }
            dd { @for value in values { span { (value) } } }
        }
    }
}

fn contents(parts: &[Part]) -> Markup {
    html! {
        @if !parts.is_empty() {
            nav aria-label="Parts" {
                ol {
                    @for part in parts {
                        li {
                            a href={ "#" (anchor(&part.id)) } { (part.title) }
                            @match &part.outcome {
                                Outcome::Measured => {}
                                Outcome::Partly(_) => { " " small { "– partly measured" } }
                                Outcome::LeftOut(_) => { " " small { "– left out" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn section(part: &Part) -> Markup {
    html! {
        section id=(anchor(&part.id)) {
            h2 { (part.title) }
            @if !part.about.is_empty() { p { (part.about) } }
            @match &part.outcome {
                Outcome::Measured => {}
                Outcome::Partly(reasons) => {
                    div.notice { "Measured in part:" ul.notes { @for reason in reasons { li { (reason) } } } }
                }
                Outcome::LeftOut(why) => { p.notice { "Left out: " (why) } }
            }
            @if !part.notes.is_empty() { ul.notes { @for note in &part.notes { li { (note) } } } }
            @for chart in &part.charts { (figure(part, chart)) }
            @for table in &part.tables { (table::words(table)) }
            @if !part.method.is_empty() {
                h4 { "How it was measured" }
                p.method { (part.method) " It took " (number::duration(part.took_s)) "." }
            }
        }
    }
}

fn figure(part: &Part, chart: &Chart) -> Markup {
    let id = anchor(&format!("{}-{}", part.id, chart.id));
    // Bars also for words in a chart of lines: they have no place on an axis of numbers.
    let words = chart.series.iter().flat_map(|series| &series.points).any(|point| matches!(point.x, X::Word(_)));
    let lines = chart.shape == Shape::Lines && !words;
    let drawn = chart.shape != Shape::Table;
    html! {
        figure.chart.bare[!drawn] id=(id) {
            figcaption { h3 { (chart.title) } }
            @if drawn {
                (legend(chart, lines))
                @for size in [Size::Wide, Size::Narrow] {
                    @if lines { (lines::draw(chart, &id, size)) } @else { (bars::draw(chart, &id, size)) }
                }
                @if let Some(hint) = hint(chart, lines) { p.hint { (hint) } }
            }
            @for origin in origins(chart) { p.hint.origin { (origin) } }
            (table::figures(chart))
        }
    }
}

fn legend(chart: &Chart, lines: bool) -> Markup {
    let known = |series: &Series| series.source == Source::Here;
    html! {
        @if chart.series.len() > 1 || !chart.series.iter().all(known) {
            ul.legend {
                @for (at, series) in chart.series.iter().enumerate() {
                    li {
                        (Look::new(at, series).sign(lines))
                        span {
                            (series.name)
                            @if let Some(kind) = kind(&series.source) { " " small { (kind) } }
                        }
                    }
                }
            }
        }
    }
}

/// The origins of a chart's figures, each once, with the names of its series if there are several origins.
fn origins(chart: &Chart) -> Vec<String> {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for series in &chart.series {
        let Some(origin) = origin(&series.source) else { continue };
        match all.iter_mut().find(|(known, _)| *known == origin) {
            Some((_, names)) => names.push(&series.name),
            None => all.push((origin, vec![&series.name])),
        }
    }
    let several = all.len() > 1;
    let say = |(origin, names): (String, Vec<&str>)| {
        let mut text = if several { format!("{}, {origin}", names.join("; ")) } else { origin };
        if let Some(first) = text.get(..1).map(str::to_uppercase).filter(|_| !several) {
            text.replace_range(..1, &first);
        }
        text
    };
    all.into_iter().map(say).collect()
}

/// Explains the thin strokes of a picture, and names what it does not show.
fn hint(chart: &Chart, lines: bool) -> Option<String> {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let mut hints = Vec::new();
    // The origin of counted figures says what their ends are.
    let timed = chart.series.iter().filter(|series| !matches!(series.source, Source::Counted(_)));
    if timed.flat_map(|series| &series.points).any(|point| point.figure.low < point.figure.high) {
        hints.push("Thin strokes reach from the lowest to the highest round.".to_owned());
    }
    let off = points()
        .filter(|point| !axis::drawable(chart.y.scale, point.figure.median) || lines && off_axis(chart, point))
        .count();
    if off > 0 {
        let figures = if off == 1 { "One figure has".to_owned() } else { format!("{off} figures have") };
        let lacks = if lines { "no place on these axes, and stand in the table only" } else { "no bar" };
        let why = if chart.y.scale == Scale::Log || lines && chart.x.scale == Scale::Log {
            ": a logarithmic axis has none for 0 and less"
        } else {
            ""
        };
        hints.push(format!("{figures} {lacks}{why}."));
    }
    (!hints.is_empty()).then(|| hints.join(" "))
}

fn off_axis(chart: &Chart, point: &Point) -> bool {
    matches!(point.x, X::Number(x) if !axis::drawable(chart.x.scale, x))
}

/// A name as an anchor: without characters that a link would have to escape.
fn anchor(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
