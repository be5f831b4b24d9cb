//! A report for a terminal: for each part its outcome, and a few figures of its main charts.
//!
//! The main charts of a part are its first one, and all that set figures of this machine beside published ones. The others are counted.

use crate::data::{Axis, Better, Chart, Outcome, Part, Report, Series, Shape, Source};
use crate::number::{self, duration, plain};

/// Columns of the terminal.
const WIDTH: usize = 100;
/// Columns of the names at the left at most.
const NAMES: usize = 44;
/// Columns of a head at most; it has lines enough.
const HEAD: usize = 16;
/// Places of a chart of lines at most, and words of one of bars.
const PLACES: usize = 6;
const WORDS: usize = 8;

/// The report for a terminal of 100 columns, in plain text.
#[must_use]
pub fn summary(report: &Report) -> String {
    let run = &report.run;
    let mut lines = vec![
        format!("Sealane {} on {}, {}", run.version, report.machine.cpu, number::date(run.began_s)),
        format!("Measured in {}", duration(run.took_s)),
    ];
    if run.quick {
        lines.push("A quick run, for a first look".to_owned());
    }
    if run.interrupted {
        lines.push("Interrupted: what was measured until then".to_owned());
    }
    let mut out: Vec<String> = lines.iter().flat_map(|line| wrap(line, 0)).collect();
    for part in &report.parts {
        out.push(String::new());
        self::part(part, &mut out);
    }
    out.push(String::new());
    out.join("\n")
}

fn part(part: &Part, out: &mut Vec<String>) {
    out.extend(wrap(&part.title, 0));
    match &part.outcome {
        Outcome::Measured => out.push(format!("  measured in {}", duration(part.took_s))),
        Outcome::Partly(reasons) => {
            out.push(format!("  measured in part, in {}:", duration(part.took_s)));
            out.extend(reasons.iter().flat_map(|reason| wrap(reason, 4)));
        }
        Outcome::LeftOut(why) => out.extend(wrap(&format!("left out: {why}"), 2)),
    }
    let (main, others): (Vec<_>, Vec<_>) =
        part.charts.iter().enumerate().partition(|(at, chart)| *at == 0 || sets_beside_published(chart));
    for (_, chart) in &main {
        out.push(String::new());
        self::chart(chart, out);
    }
    match others.len() {
        0 => {}
        1 => out.extend([String::new(), "  One more chart is in index.html.".to_owned()]),
        more => out.extend([String::new(), format!("  {more} more charts are in index.html.")]),
    }
}

/// Whether a chart has published figures beside others.
fn sets_beside_published(chart: &Chart) -> bool {
    let is_published = |series: &&Series| matches!(series.source, Source::Published(_));
    let published = chart.series.iter().filter(is_published).count();
    published > 0 && published < chart.series.len()
}

fn chart(chart: &Chart, out: &mut Vec<String>) {
    let places = number::places(chart);
    let most = if chart.shape == Shape::Bars { WORDS } else { PLACES };
    let chosen = shown(chart, &places, most);
    let mut title = format!("{} [{}]", chart.title, unit(&chart.y));
    if chosen.len() < places.len() {
        title.push_str(&format!(" ({} of {})", chosen.len(), places.len()));
    }
    out.extend(wrap(&title, 2));
    let names: Vec<String> = chart
        .series
        .iter()
        .map(|series| match series.source {
            Source::Here => short(&series.name, NAMES),
            Source::Counted(_) => marked(&series.name, " (counted)"),
            Source::Model(_) => marked(&series.name, " (modelled)"),
            Source::Published(_) => marked(&series.name, " (published)"),
        })
        .collect();
    let heads: Vec<String> = chosen.iter().map(|at| short(&places[*at], NAMES)).collect();
    let corner =
        if chart.x.unit.is_empty() { chart.x.name.clone() } else { format!("{} [{}]", chart.x.name, chart.x.unit) };
    let corner = short(&corner, NAMES);
    let cell = |series: usize, head: usize| {
        let series = &chart.series[series];
        let at = series.points.iter().find(|point| number::place(&point.x) == places[chosen[head]]);
        at.map_or(String::new(), |point| number::figure(point.figure.median, &series.source))
    };
    if names.is_empty() || heads.is_empty() {
        out.push("    no figures".to_owned());
    } else if chart.shape == Shape::Bars && heads.len() > names.len() {
        table(&corner, &heads, &names, |row, column| cell(column, row), out);
    } else {
        table(&corner, &names, &heads, cell, out);
    }
}

/// The unit of an axis, and the direction of better figures.
fn unit(axis: &Axis) -> String {
    let unit = if axis.unit.is_empty() { &axis.name } else { &axis.unit };
    match axis.better {
        Some(Better::Lower) => format!("{unit}, lower is better"),
        Some(Better::Higher) => format!("{unit}, higher is better"),
        None => unit.clone(),
    }
}

/// So many places of a chart, as they stand in `places`: those first at which figures of this run are beside published ones, then
/// those with a figure of this run.
fn shown(chart: &Chart, places: &[String], most: usize) -> Vec<usize> {
    if places.len() <= most {
        return (0..places.len()).collect();
    }
    let has = |place: &String, wanted: fn(&Source) -> bool| {
        let series = chart.series.iter().filter(|series| wanted(&series.source));
        series.flat_map(|series| &series.points).any(|point| number::place(&point.x) == *place)
    };
    let rank = |at: &usize| match &places[*at] {
        place if !has(place, |source| *source == Source::Here) => 2,
        place => usize::from(!has(place, |source| matches!(source, Source::Published(_)))),
    };
    let mut ranked = [Vec::new(), Vec::new(), Vec::new()];
    (0..places.len()).for_each(|at| ranked[rank(&at)].push(at));
    let mut shown = Vec::new();
    for all in &ranked {
        shown.extend(chosen(all, most - shown.len()));
    }
    shown.sort_unstable();
    shown
}

/// So many of all: the first, the last, and evenly between. One alone is the last.
fn chosen(all: &[usize], most: usize) -> Vec<usize> {
    if all.len() <= most {
        return all.to_vec();
    }
    let last = all.len() - 1;
    // Rounded: half of the divisor is added first.
    (0..most).map(|at| if most == 1 { all[last] } else { all[(at * last * 2 + most - 1) / (2 * (most - 1))] }).collect()
}

/// Rows and columns, aligned. Columns that have no room go on below. The corner is in the line of the heads.
fn table(
    corner: &str,
    rows: &[String],
    columns: &[String],
    cell: impl Fn(usize, usize) -> String,
    out: &mut Vec<String>,
) {
    let left = rows.iter().map(|row| columns_of(row)).chain([columns_of(corner)]).max().unwrap_or(0);
    let heads: Vec<Vec<String>> = columns.iter().map(|column| lines(column, HEAD)).collect();
    let widths: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(at, head)| {
            let figures = (0..rows.len()).map(|row| columns_of(&cell(row, at)));
            head.iter().map(|line| columns_of(line)).chain(figures).max().unwrap_or(0)
        })
        .collect();
    let mut from = 0;
    while from < columns.len() {
        let mut to = from;
        let mut room = WIDTH - 4 - left;
        while to < columns.len() && (to == from || widths[to] + 2 <= room) {
            room = room.saturating_sub(widths[to] + 2);
            to += 1;
        }
        let high = heads[from..to].iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..high {
            // Heads stand on their figures.
            let text = |at: usize| (heads[at].len() + line).checked_sub(high).map_or("", |line| &heads[at][line]);
            let corner = if line + 1 == high { corner } else { "" };
            out.push(aligned(corner, left, (from..to).map(|at| (text(at).to_owned(), widths[at]))));
        }
        for (row, name) in rows.iter().enumerate() {
            out.push(aligned(name, left, (from..to).map(|at| (cell(row, at), widths[at]))));
        }
        from = to;
    }
}

fn aligned(name: &str, left: usize, cells: impl Iterator<Item = (String, usize)>) -> String {
    let mut line = format!("    {name}{}", " ".repeat(left - columns_of(name)));
    for (text, width) in cells {
        line.push_str(&" ".repeat(2 + width.saturating_sub(columns_of(&text))));
        line.push_str(&text);
    }
    line.trim_end().to_owned()
}

/// Columns that a text takes: all of ours are of one column a character.
fn columns_of(text: &str) -> usize {
    text.chars().count()
}

/// A name with a mark behind it, in as many columns as names have. The mark stays whole.
fn marked(name: &str, mark: &str) -> String {
    format!("{}{mark}", short(name, NAMES - columns_of(mark)))
}

/// A name of one line.
fn short(text: &str, most: usize) -> String {
    let text = plain(text);
    if columns_of(&text) <= most {
        return text;
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// A text in lines of at most so many columns; a word that is too long is cut.
fn lines(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // Spaces inside of numbers, which are not of ASCII, are none.
    for word in plain(text).split_ascii_whitespace() {
        let mut letters: Vec<char> = word.chars().collect();
        while !letters.is_empty() {
            let rest = letters.split_off(letters.len().min(most));
            let piece: String = letters.into_iter().collect();
            match lines.last_mut() {
                Some(line) if columns_of(line) + 1 + columns_of(&piece) <= most => {
                    line.push(' ');
                    line.push_str(&piece);
                }
                _ => lines.push(piece),
            }
            letters = rest;
        }
    }
    lines
}

/// Lines of the terminal that begin so far to the right.
fn wrap(text: &str, indent: usize) -> Vec<String> {
    lines(text, WIDTH - indent).into_iter().map(|line| format!("{}{line}", " ".repeat(indent))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Figure, Point, Scale, X};

    #[test]
    fn first_last_and_evenly_between() {
        for (count, most, expected) in [
            (0, 6, vec![]),
            (5, 0, vec![]),
            (5, 1, vec![4]),
            (1, 6, vec![0]),
            (6, 6, vec![0, 1, 2, 3, 4, 5]),
            (7, 6, vec![0, 1, 2, 4, 5, 6]),
            (11, 6, vec![0, 2, 4, 6, 8, 10]),
            (12, 8, vec![0, 2, 3, 5, 6, 8, 9, 11]),
        ] {
            let all: Vec<usize> = (0..count).collect();
            assert_eq!(chosen(&all, most), expected, "{most} of {count}");
        }
    }

    #[test]
    fn places_with_published_figures_are_shown_first() {
        let points = |from: u32, to: u32| {
            (from..=to)
                .map(|x| Point { x: X::Number(f64::from(x)), figure: Figure::stated(1.0), remark: String::new() })
                .collect()
        };
        let axis = || Axis { name: "axis".into(), unit: String::new(), scale: Scale::Linear, better: None };
        let series = |source, points| Series { name: "name".into(), source, points };
        let chart = Chart {
            id: "chart".into(),
            title: "A chart".into(),
            shape: Shape::Bars,
            x: axis(),
            y: axis(),
            series: vec![series(Source::Here, points(0, 9)), series(Source::Published(String::new()), points(8, 12))],
        };
        let places = number::places(&chart);
        assert_eq!(shown(&chart, &places, 2), [8, 9]);
        assert_eq!(shown(&chart, &places, 4), [0, 7, 8, 9]);
        assert_eq!(shown(&chart, &places, 11), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12]);
    }

    #[test]
    fn columns_that_have_no_room_go_on_below() {
        let long = "a name that is much too long for the left side of the table";
        let rows = ["one".to_owned(), marked(long, " (published)")];
        let columns: Vec<String> = (0..9).map(|at| format!("{at} head of two")).collect();
        let mut out = Vec::new();
        table("corner", &rows, &columns, |row, column| (row * 100 + column).to_string(), &mut out);
        assert!(out.iter().all(|line| columns_of(line) <= WIDTH), "{out:#?}");
        let all = out.join("\n");
        for row in 0..2 {
            for column in 0..9 {
                let figure = (row * 100 + column).to_string();
                assert!(all.split_whitespace().any(|word| word == figure), "{figure} in\n{all}");
            }
        }
        assert!(all.contains("    a name that is much too long fo… (published)  "), "{all}");
        assert!(out[0].starts_with("    corner  "), "{all}");
    }
}
