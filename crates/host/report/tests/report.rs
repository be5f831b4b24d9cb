//! The page, the summary and the comparison of a report in which every oddity occurs.

mod sample;

use roxmltree::{Document, Node};
use sealane_report::compare::{FULL, QUICK, Verdict, compare};
use sealane_report::data::{Better, Chart, Figure, Outcome, Part, Report, Scale, Shape, Source, X};
use sealane_report::page::page;
use sealane_report::summary::summary;

/// The page as XML. It has all that XML asks for but for a few elements without content, whose tags HTML does not close.
fn parsed(html: &str) -> String {
    let mut xml = html.strip_prefix("<!DOCTYPE html>").expect("it is HTML 5").to_owned();
    for element in ["meta", "link"] {
        let mut rest = xml.as_str();
        let mut closed = String::new();
        while let Some((before, tag)) = rest.split_once(&format!("<{element} ")) {
            let (attributes, after) = tag.split_once('>').expect("the tag has an end");
            closed.push_str(&format!("{before}<{element} {attributes}/>"));
            rest = after;
        }
        closed.push_str(rest);
        xml = closed;
    }
    xml
}

fn class<'a>(node: &Node<'a, '_>) -> &'a str {
    node.attribute("class").unwrap_or("")
}

fn has_class(node: &Node<'_, '_>, name: &str) -> bool {
    class(node).split(' ').any(|class| class == name)
}

/// All text inside of a node, with the thin spaces of numbers gone.
fn text(node: Node<'_, '_>) -> String {
    node.descendants()
        .filter_map(|node| node.is_text().then(|| node.text()).flatten())
        .collect::<String>()
        .replace('\u{202f}', "")
}

fn find<'a, 'b>(under: Node<'a, 'b>, name: &'static str) -> impl Iterator<Item = Node<'a, 'b>> {
    under.descendants().filter(move |node| node.has_tag_name(name) || node.tag_name().name() == name)
}

fn charts(report: &Report) -> impl Iterator<Item = (&Part, &Chart)> {
    report.parts.iter().flat_map(|part| part.charts.iter().map(move |chart| (part, chart)))
}

/// A number as a reader expects it: to six digits if it was published, and to three if not.
fn expected(value: f64, source: &Source) -> f64 {
    let text = match source {
        Source::Published(_) => format!("{value:.5e}"),
        Source::Here | Source::Counted(_) | Source::Model(_) => format!("{value:.2e}"),
    };
    text.parse().expect("a number")
}

fn read(text: &str) -> f64 {
    text.trim().replace('−', "-").parse().unwrap_or(f64::NAN)
}

#[test]
fn every_chart_has_titles_with_units_and_a_table_with_every_figure() {
    let report = sample::report();
    let xml = parsed(&page(&report));
    let document = Document::parse(&xml).expect("the page is well-formed");
    let figures: Vec<Node<'_, '_>> = find(document.root(), "figure").filter(|node| has_class(node, "chart")).collect();
    assert_eq!(figures.len(), charts(&report).count());
    for (figure, (part, chart)) in figures.into_iter().zip(charts(&report)) {
        let name = format!("{} {}", part.id, chart.id);
        let plots: Vec<Node<'_, '_>> = find(figure, "svg").filter(|node| has_class(node, "plot")).collect();
        let expected: &[&str] = if chart.shape == Shape::Table { &[] } else { &["plot wide", "plot narrow"] };
        assert_eq!(plots.iter().map(|plot| class(plot)).collect::<Vec<_>>(), expected, "{name}");
        for plot in plots {
            let child = |name| plot.children().find(|node: &Node<'_, '_>| node.tag_name().name() == name).map(text);
            assert_eq!(child("title").as_deref(), Some(chart.title.as_str()), "{name}");
            assert!(child("desc").is_some_and(|desc| desc.len() > 20), "{name}");
            let titles: Vec<String> =
                find(plot, "text").filter(|node| has_class(node, "axis-title")).map(text).collect();
            let titles = titles.join(" ");
            for axis in [&chart.x, &chart.y] {
                let title =
                    if axis.unit.is_empty() { axis.name.clone() } else { format!("{}, {}", axis.name, axis.unit) };
                assert!(titles.contains(&title), "{name} lacks {title}: {titles}");
            }
            if let Some(better) = chart.y.better {
                let word = if better == Better::Lower { "lower is better" } else { "higher is better" };
                assert!(titles.contains(word), "{name}: {titles}");
            }
        }
        let table = find(figure, "table").next().unwrap_or_else(|| panic!("{name} has no table"));
        every_figure_is_in(table, chart, &name);
        let origins: Vec<String> = find(figure, "p").filter(|node| has_class(node, "origin")).map(text).collect();
        let mut expected = Vec::new();
        for series in &chart.series {
            let of = match &series.source {
                Source::Here => continue,
                Source::Counted(of) => format!("ounted: {of}"),
                Source::Model(of) => format!("odelled: {of}"),
                Source::Published(of) => format!("ublished: {of}"),
            };
            assert!(origins.iter().any(|origin| origin.ends_with(&of)), "{name} lacks {of}: {origins:?}");
            if !expected.contains(&of) {
                expected.push(of);
            }
        }
        assert_eq!(origins.len(), expected.len(), "{name}: {origins:?}");
    }
}

fn every_figure_is_in(table: Node<'_, '_>, chart: &Chart, name: &str) {
    let heads: Vec<String> = find(find(table, "thead").next().expect("a head"), "th").map(text).collect();
    let rows: Vec<Vec<Node<'_, '_>>> = find(find(table, "tbody").next().expect("a body"), "tr")
        .map(|row| row.children().filter(Node::is_element).collect())
        .collect();
    assert_eq!(heads.len(), chart.series.len() + 1, "{name}");
    for (column, series) in chart.series.iter().enumerate() {
        assert!(heads[column + 1].contains(&series.name), "{name}");
        match &series.source {
            Source::Here => {}
            Source::Counted(_) => assert!(heads[column + 1].contains("counted"), "{name}"),
            Source::Model(_) => assert!(heads[column + 1].contains("modelled"), "{name}"),
            Source::Published(_) => assert!(heads[column + 1].contains("published"), "{name}"),
        }
        for point in &series.points {
            let place = match &point.x {
                X::Number(number) => number.to_string(),
                X::Word(word) => word.clone(),
            };
            let row =
                rows.iter().find(|row| text(row[0]) == place).unwrap_or_else(|| panic!("{name} lacks the row {place}"));
            let cell = row[column + 1];
            let medians: Vec<f64> = find(cell, "b").map(|node| read(&text(node))).collect();
            let Figure { median, low, high, rounds, cpu } = point.figure;
            let say = |value: f64| expected(value, &series.source);
            // What is no finite number is a dash, which `read` gives as no number.
            let same = |shown: f64, value: f64| shown == say(value) || shown.is_nan() && !value.is_finite();
            assert!(
                medians.iter().any(|shown| same(*shown, median)),
                "{name}, {}, {place}: {median} in {medians:?}",
                series.name
            );
            let cell = text(cell);
            if low != high && low.is_finite() && high.is_finite() {
                let spread = cell.split(" to ").count();
                assert!(spread > 1, "{name}, {place}: no spread in {cell}");
            }
            assert_eq!(cell.contains("CPU "), cpu.is_some(), "{name}, {place}: {cell}");
            assert!(cell.contains(&point.remark), "{name}, {place}: {cell}");
            let shown = format!("{cell} {}", heads[column + 1]);
            assert_eq!(shown.contains(" round") || shown.contains("rounds"), rounds > 0, "{name}, {place}: {shown}");
        }
    }
}

/// Bars and lines show as many figures as have a place, and the hint counts the others.
#[test]
fn figures_without_a_place_are_counted() {
    let report = sample::report();
    let xml = parsed(&page(&report));
    let document = Document::parse(&xml).expect("the page is well-formed");
    for (figure, (part, chart)) in
        find(document.root(), "figure").filter(|node| has_class(node, "chart")).zip(charts(&report))
    {
        let name = format!("{} {}", part.id, chart.id);
        let words = chart.series.iter().flat_map(|series| &series.points).any(|point| matches!(point.x, X::Word(_)));
        let lines = chart.shape == Shape::Lines && !words;
        let shown = |value: f64, scale| value.is_finite() && (scale == Scale::Linear || value > 0.0);
        let fits = chart
            .series
            .iter()
            .flat_map(|series| &series.points)
            .filter(|point| shown(point.figure.median, chart.y.scale))
            .filter(|point| !lines || matches!(point.x, X::Number(x) if shown(x, chart.x.scale)))
            .count();
        let off = chart.series.iter().map(|series| series.points.len()).sum::<usize>() - fits;
        for plot in find(figure, "svg").filter(|node| has_class(node, "plot")) {
            let drawn = if lines || chart.y.scale == Scale::Log { "mark" } else { "bar" };
            let shapes = plot.descendants().filter(|node| has_class(node, drawn)).count();
            // Bars of several series begin with a marker; a point of a logarithmic axis has the same class.
            let markers = if drawn == "mark" && !lines && chart.series.len() > 1 { fits + off } else { 0 };
            assert_eq!(shapes - markers, fits, "{name}");
        }
        let hints: String = find(figure, "p").filter(|node| has_class(node, "hint")).map(text).collect();
        match off {
            0 => assert!(!hints.contains("axes") && !hints.contains("no bar"), "{name}: {hints}"),
            off => assert!(hints.contains(&format!("{off} figures have")), "{name}: {hints}"),
        }
    }
}

/// Coordinates are numbers inside of the picture, whatever the figures are.
#[test]
fn pictures_stay_inside_of_themselves() {
    let xml = parsed(&page(&sample::report()));
    let document = Document::parse(&xml).expect("the page is well-formed");
    for plot in find(document.root(), "svg") {
        let size: Vec<f64> =
            plot.attribute("viewBox").expect("a size").split(' ').map(|part| part.parse().expect("a number")).collect();
        for node in plot.descendants().filter(Node::is_element) {
            for (name, limit) in [
                ("x", size[0] + size[2]),
                ("cx", size[0] + size[2]),
                ("width", size[2]),
                ("y", size[3]),
                ("cy", size[3]),
            ] {
                let Some(value) = node.attribute(name) else { continue };
                let value: f64 = value.parse().unwrap_or_else(|_| panic!("{name} is {value}"));
                assert!((0.0..=limit).contains(&value), "{name} is {value}, beyond {limit}, in {}", class(&plot));
            }
            for numbers in [node.attribute("d"), node.attribute("points")].into_iter().flatten() {
                assert!(!numbers.contains("NaN") && !numbers.contains("inf"), "{numbers}");
            }
        }
    }
}

#[test]
fn lines_and_markers_tell_sources_apart() {
    let report = sample::report();
    let xml = parsed(&page(&report));
    let document = Document::parse(&xml).expect("the page is well-formed");
    for (figure, (_, chart)) in
        find(document.root(), "figure").filter(|node| has_class(node, "chart")).zip(charts(&report))
    {
        let Some(legend) = find(figure, "ul").next() else { continue };
        let entries: Vec<Node<'_, '_>> = find(legend, "li").collect();
        assert_eq!(entries.len(), chart.series.len());
        let mut looks = Vec::new();
        for (entry, series) in entries.iter().zip(&chart.series) {
            let sign = find(*entry, "svg").next().expect("a sign");
            let kind = match series.source {
                Source::Here | Source::Counted(_) => "here",
                Source::Model(_) => "model",
                Source::Published(_) => "published",
            };
            assert!(has_class(&sign, kind));
            assert!(text(*entry).contains(&series.name));
            let word = match series.source {
                Source::Here => "",
                Source::Counted(_) => "counted",
                Source::Model(_) => "modelled",
                Source::Published(_) => "published",
            };
            assert!(text(*entry).contains(word));
            let marker = sign.descendants().find(|node| has_class(node, "mark")).expect("a marker");
            let dashes = sign.descendants().find_map(|node| node.attribute("stroke-dasharray")).unwrap_or("");
            looks.push((class(&sign), marker.attribute("points").unwrap_or("circle"), dashes));
        }
        let count = looks.len();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), count, "two series of {} look alike", chart.title);
    }
}

#[test]
fn strokes_are_rounds_where_figures_are_times() {
    let report = sample::report();
    let xml = parsed(&page(&report));
    let document = Document::parse(&xml).expect("the page is well-formed");
    let hints = |id: &str| -> String {
        let figure = find(document.root(), "figure").find(|node| node.attribute("id") == Some(id)).expect("a chart");
        find(figure, "p").map(text).collect()
    };
    let counted = hints("moving-escapes");
    assert!(counted.contains("intervals of 99 %") && !counted.contains("round"), "{counted}");
    assert!(hints("moving-ipsec").contains("Thin strokes reach from the lowest to the highest round."));
}

#[test]
fn text_is_escaped_and_nothing_is_loaded() {
    let html = page(&sample::report());
    assert!(html.contains("&lt;script&gt;alert(") && html.contains("words that &lt;no&gt; part gives"));
    let lower = html.to_lowercase();
    assert!(!lower.contains("<script") && !lower.contains("<no>"));
    // The name of SVG's namespace is no address that is opened.
    let without = lower.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for part in ["http:", "https:", "url(", "@import", "src=", " on", "javascript:"] {
        let found = without.match_indices(part).map(|(at, _)| &without[at..(at + 40).min(without.len())]);
        let found: Vec<&str> = found
            .filter(|found| part != " on" || found.split_once('=').is_some_and(|(name, _)| !name.trim().contains(' ')))
            .collect();
        assert!(found.is_empty(), "{part}: {found:?}");
    }
    assert!(without.contains("default-src 'none'"));
}

#[test]
fn parts_say_what_is_missing() {
    let mut report = sample::report();
    let html = page(&report);
    for part in &report.parts {
        match &part.outcome {
            Outcome::Measured => {}
            Outcome::Partly(reasons) => assert!(reasons.iter().all(|reason| html.contains(reason))),
            Outcome::LeftOut(why) => assert!(html.contains(why)),
        }
    }
    assert!(html.contains("Interrupted:") && html.contains("A quick run"));
    report.run.interrupted = false;
    report.run.quick = false;
    let html = page(&report);
    assert!(!html.contains("Interrupted:") && !html.contains("A quick run"));
}

#[test]
fn a_report_of_nothing_is_a_page() {
    let mut report = sample::report();
    report.parts.clear();
    report.machine.versions.clear();
    report.machine.flags.clear();
    Document::parse(&parsed(&page(&report))).expect("the page is well-formed");
    assert!(summary(&report).lines().count() >= 2);
}

#[test]
fn the_summary_fits_a_terminal() {
    let report = sample::report();
    let summary = summary(&report);
    for line in summary.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    for part in &report.parts {
        assert!(summary.contains(&part.title));
        match &part.outcome {
            Outcome::Measured => {}
            Outcome::Partly(reasons) => assert!(reasons.iter().all(|reason| summary.contains(reason))),
            Outcome::LeftOut(why) => assert!(summary.contains(why)),
        }
    }
    // The main charts of each part are there, and the others are counted.
    let main = |(at, chart): (usize, &Chart)| {
        let published = chart.series.iter().filter(|series| matches!(series.source, Source::Published(_))).count();
        at == 0 || published > 0 && published < chart.series.len()
    };
    let mut counted = 0;
    for part in &report.parts {
        for (at, chart) in part.charts.iter().enumerate() {
            let is_main = main((at, chart));
            let shown = summary.contains(&format!("  {} [", chart.title));
            assert_eq!(shown, is_main, "{} {}", part.id, chart.id);
            counted += usize::from(!is_main);
        }
    }
    let said = summary.lines().filter_map(|line| line.trim().split_once(" more chart"));
    let said: usize = said.map(|(count, _)| count.parse().unwrap_or(1)).sum();
    assert_eq!(said, counted, "{summary}");
    assert!(counted > 0);
    // Published figures are there as they were published, and those of ends of lines.
    for words in [
        "3\u{202f}319",
        "(published)",
        "(modelled)",
        "Block size [B]",
        "16\u{202f}384",
        "MB/s, higher is better",
        "8.20",
    ] {
        assert!(summary.contains(words), "{words} in\n{summary}");
    }
}

#[test]
fn data_json_gives_the_report_back() {
    let mut report = sample::report();
    // A figure that is no number is none after it, too, and equal to nothing.
    report.parts.retain(|part| part.id != "odd");
    let json = serde_json::to_string_pretty(&report).expect("a report can be written");
    assert_eq!(serde_json::from_str::<Report>(&json).expect("and read"), report);
    let odd = sample::report();
    let json = serde_json::to_string(&odd).expect("no numbers can be written");
    let again: Report = serde_json::from_str(&json).expect("and read");
    assert_eq!(charts(&again).count(), charts(&odd).count());
    assert!(
        charts(&again).any(|(_, chart)| chart
            .series
            .iter()
            .flat_map(|series| &series.points)
            .any(|p| p.figure.median.is_nan()))
    );
    assert_eq!(serde_json::to_string(&again).expect("it can be written again"), json);
}

fn full() -> Report {
    let mut report = sample::report();
    report.run.quick = false;
    report.run.interrupted = false;
    report.parts.retain(|part| part.outcome == Outcome::Measured && part.id != "odd");
    report
}

fn chart_mut<'a>(report: &'a mut Report, id: &str) -> &'a mut Chart {
    report.parts.iter_mut().flat_map(|part| &mut part.charts).find(|chart| chart.id == id).expect("the sample has it")
}

fn times(figure: &mut Figure, by: f64) {
    for value in [&mut figure.median, &mut figure.low, &mut figure.high] {
        *value *= by;
    }
}

#[test]
fn a_report_equals_itself() {
    let report = full();
    let same = compare(&report, &report);
    let measured: usize = charts(&report)
        .flat_map(|(_, chart)| &chart.series)
        .filter(|series| series.source == Source::Here)
        .map(|series| series.points.len())
        .sum();
    assert_eq!((same.unchanged, same.changed.len(), same.warnings.len()), (measured, 0, 0));
    assert!(same.only_in_first.is_empty() && same.only_in_second.is_empty() && same.unclear.is_empty());
    assert_eq!(
        same.to_string(),
        format!(
            "0 better, 0 worse, 0 different, 0 too noisy to tell, {measured} unchanged, 0 only in the first, 0 only in the second\n"
        )
    );
}

#[test]
fn changes_have_a_direction_and_noise_has_none() {
    for (chart, by, expected) in [
        // Cycles: lower is better. The spread reaches 4 % down and 8 % up.
        ("cycles", 1.5, Some((Verdict::Worse, 1.5))),
        ("cycles", 0.5, Some((Verdict::Better, 0.5))),
        ("cycles", 1.05, Some((Verdict::Worse, 1.05))),
        ("cycles", 1.035, Some((Verdict::TooNoisy, 1.035))),
        ("cycles", 1.02, None),
        // MB/s: higher is better. The spread reaches 10 % up.
        ("aes-128-cbc", 1.08, Some((Verdict::TooNoisy, 1.08))),
        ("aes-128-cbc", 1.5, Some((Verdict::Better, 1.5))),
        ("aes-128-cbc", 0.5, Some((Verdict::Worse, 0.5))),
    ] {
        let first = full();
        let mut second = full();
        times(&mut chart_mut(&mut second, chart).series[0].points[0].figure, by);
        let found = compare(&first, &second);
        let differing: Vec<_> = found.changed.iter().chain(&found.too_noisy).collect();
        let seen = differing.first().map(|change| (change.verdict, change.ratio.expect("a ratio")));
        match (seen, expected) {
            (None, None) => {}
            (Some((verdict, ratio)), Some((wanted, about))) => {
                assert_eq!(verdict, wanted, "{chart} {by}");
                assert!((ratio - about).abs() < 1e-9, "{chart} {by}: {ratio}");
                assert_eq!(differing.len(), 1);
                assert_eq!(found.too_noisy.len(), usize::from(wanted == Verdict::TooNoisy), "{chart} {by}");
                assert_eq!(differing[0].place.chart, chart);
                let said = found.to_string();
                assert!(said.contains(&differing[0].place.series), "{said}");
                assert!(said.contains(&format!("{} too noisy to tell", found.too_noisy.len())), "{said}");
            }
            (seen, expected) => panic!("{chart} {by}: {seen:?}, and {expected:?} was expected"),
        }
    }
}

#[test]
fn quick_runs_need_larger_changes() {
    // Without a spread, the limit alone decides.
    let exact = |quick: bool, by: f64| {
        let mut report = full();
        report.run.quick = quick;
        let figure = &mut chart_mut(&mut report, "cycles").series[0].points[0].figure;
        *figure = Figure { median: 1_000.0 * by, low: 1_000.0 * by, high: 1_000.0 * by, rounds: 15, cpu: None };
        report
    };
    let between = 1.0 + f64::midpoint(FULL, QUICK);
    for (quick, by, changed) in
        [(false, between, 1), (true, between, 0), (true, 1.0 + 2.0 * QUICK, 1), (false, 1.0 + FULL / 2.0, 0)]
    {
        assert_eq!(compare(&exact(quick, 1.0), &exact(quick, by)).changed.len(), changed, "quick: {quick}, by {by}");
    }
    let mixed = compare(&exact(false, 1.0), &exact(true, between));
    assert!(mixed.changed.is_empty());
    assert!(mixed.warnings.iter().any(|warning| warning.contains("the length of the run")), "{:?}", mixed.warnings);
}

#[test]
fn only_what_was_measured_is_compared() {
    let first = full();
    let mut second = full();
    for part in &mut second.parts {
        for series in
            part.charts.iter_mut().flat_map(|chart| &mut chart.series).filter(|series| series.source != Source::Here)
        {
            series.points.iter_mut().for_each(|point| times(&mut point.figure, 9.0));
        }
    }
    assert!(compare(&first, &second).changed.is_empty());
}

#[test]
fn figures_of_one_report_only_are_named() {
    let first = full();
    let mut second = full();
    chart_mut(&mut second, "cycles").series[0].points.remove(0);
    chart_mut(&mut second, "time").y.unit = "µs".to_owned();
    chart_mut(&mut second, "aes-128-cbc").series[1].name = "provider".to_owned();
    let found = compare(&first, &second);
    let in_ns = first.parts[0].charts[1].series.iter().filter(|series| series.source == Source::Here).count() * 3;
    assert_eq!(found.only_in_first.len(), 1 + in_ns + 6);
    assert_eq!(found.only_in_second.len(), in_ns + 6);
    assert!(found.changed.is_empty());
    let text = found.to_string();
    for words in [
        "only in the first: tcp-ao, cycles, single [cycles] (1)",
        "only in the second: tcp-ao, time, single [µs] (3)",
        "provider [MB/s] (6)",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn no_number_and_zero_are_no_changes_of_a_known_size() {
    let first = full();
    let mut second = full();
    chart_mut(&mut second, "cycles").series[0].points[0].figure.median = f64::NAN;
    chart_mut(&mut second, "cycles").series[1].points[0].figure =
        Figure { median: 0.0, low: 0.0, high: 0.0, rounds: 15, cpu: None };
    let found = compare(&first, &second);
    assert_eq!(found.unclear.len(), 1);
    assert_eq!(found.changed.len(), 1);
    assert_eq!((found.changed[0].ratio, found.changed[0].verdict), (None, Verdict::Better));
    let json = serde_json::to_value(&found).expect("it can be written");
    assert_eq!(json["changed"][0]["verdict"], "better");
    assert_eq!(json["changed"][0]["ratio"], serde_json::Value::Null);
}

#[test]
fn what_differs_about_the_machine_is_told() {
    type Change = (&'static str, fn(&mut Report));
    let changes: [Change; 10] = [
        ("the CPU differs", |report| report.machine.cpu = "another".to_owned()),
        ("the number of CPUs differs", |report| report.machine.cpus = 64),
        ("the CPU's instructions differ", |report| report.machine.flags.truncate(3)),
        ("the frequency's behaviour differs", |report| report.machine.frequency.clear()),
        ("the kernel differs", |report| report.machine.kernel = "7.3.0".to_owned()),
        ("the version of OpenSSL differs: 3.0.0 sample and 3.5.0", |report| {
            report.machine.versions[0].1 = "3.5.0".to_owned()
        }),
        ("the version of libkcapi differs: 1.4.0 sample and (none)", |report| drop(report.machine.versions.pop())),
        ("the table of drivers differs", |report| report.machine.table = "measured".to_owned()),
        ("the second run was interrupted", |report| report.run.interrupted = true),
        ("the second run left macs out: too long", |report| {
            report.parts[2].outcome = Outcome::LeftOut("too long".to_owned())
        }),
    ];
    for (expected, change) in changes {
        let first = full();
        let mut second = full();
        change(&mut second);
        let warnings = compare(&first, &second).warnings;
        assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{expected}: {warnings:?}");
    }
    // Measurements of the frequency differ from run to run, which says nothing.
    let steady = |percent: &str| {
        let mut report = full();
        report.machine.frequency.push(format!("measured: the slowest loop took {percent} % longer"));
        report
    };
    assert!(compare(&steady("3"), &steady("900")).warnings.is_empty());
    // The order of flags says nothing.
    let mut second = full();
    second.machine.flags.reverse();
    assert!(compare(&full(), &second).warnings.is_empty());
}
