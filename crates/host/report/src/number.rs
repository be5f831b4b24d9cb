//! Numbers, places and dates as people read them, on the page and on the terminal.

use crate::data::{Chart, Source, X};

/// Between groups of three digits: narrow, and no line breaks there.
const THOUSANDS: char = '\u{202f}';
/// Stands for a figure that is not a finite number.
pub(crate) const NONE: &str = "–";
/// Digits of a figure that was measured or computed. More would be noise.
const DIGITS: i32 = 3;
/// Numbers from here on have an exponent, and so have those below `1e3 / LARGE`.
const LARGE: f64 = 1e15;

/// A figure: with three digits, but a published one as it was published.
#[must_use]
pub(crate) fn figure(value: f64, source: &Source) -> String {
    match source {
        Source::Published(_) => exact(value),
        Source::Here | Source::Counted(_) | Source::Model(_) => rounded(value, DIGITS),
    }
}

/// A ratio, a time or a size, with three digits.
#[must_use]
pub(crate) fn about(value: f64) -> String {
    rounded(value, DIGITS)
}

/// A number without loss that matters to a reader: whole numbers with all digits, others with six.
#[must_use]
pub(crate) fn exact(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < LARGE {
        return grouped(&format!("{:.0}", value.abs()), value < 0.0);
    }
    let text = rounded(value, 6);
    match text.split_once('.') {
        Some((whole, part)) if part.chars().all(|c| c.is_ascii_digit()) => {
            let part = part.trim_end_matches('0');
            if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") }
        }
        _ => text,
    }
}

/// A place on the x axis.
#[must_use]
pub(crate) fn place(x: &X) -> String {
    match x {
        X::Number(number) => exact(*number),
        X::Word(word) => word.clone(),
    }
}

/// The places of a chart as they are written: numbers ascend, words are as series have them.
#[must_use]
pub(crate) fn places(chart: &Chart) -> Vec<String> {
    let mut places: Vec<(f64, String)> = Vec::new();
    for point in chart.series.iter().flat_map(|series| &series.points) {
        let text = place(&point.x);
        if !places.iter().any(|(_, known)| *known == text) {
            // Words are behind all numbers, and stay in their order, since sorting keeps that of equals.
            places.push((if let X::Number(number) = point.x { number } else { f64::INFINITY }, text));
        }
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.into_iter().map(|(_, text)| text).collect()
}

fn rounded(value: f64, digits: i32) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // The exponent after rounding: 9.996 with three digits is 10.0.
    let scientific = format!("{:.*e}", usize::try_from(digits - 1).unwrap_or(0), value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let rounded: f64 = scientific.parse().unwrap_or(value.abs());
    if !(1e3 / LARGE..LARGE).contains(&rounded) {
        let sign = if value < 0.0 { "−" } else { "" };
        return format!("{sign}{mantissa}×10{}", exponent.chars().map(raised).collect::<String>());
    }
    let decimals = usize::try_from(digits - 1 - power).unwrap_or(0);
    grouped(&format!("{rounded:.decimals$}"), value < 0.0)
}

/// Digits without a sign, with their thousands apart.
fn grouped(digits: &str, negative: bool) -> String {
    let (whole, part) = digits.split_once('.').map_or((digits, None), |(whole, part)| (whole, Some(part)));
    let mut text = if negative { "−".to_owned() } else { String::new() };
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(THOUSANDS);
        }
        text.push(digit);
    }
    if let Some(part) = part {
        text.push('.');
        text.push_str(part);
    }
    text
}

fn raised(digit: char) -> char {
    match digit {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0'..='9' => char::from_u32('⁰' as u32 + digit as u32 - '0' as u32).unwrap_or(digit),
        other => other,
    }
}

/// The date and time of that many seconds since 1970, UTC.
#[must_use]
pub(crate) fn date(seconds: u64) -> String {
    // A year here begins with 1 March, so that its leap day is its last day; an era is the 400 years after which the calendar
    // repeats itself (146,097 days). 719,468 days lie between 0000-03-01 and 1970-01-01.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on, and from August on, have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Seconds as a reader says them.
#[must_use]
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 120.0 || !seconds.is_finite() {
        return format!("{} s", about(seconds));
    }
    let whole = seconds.round();
    format!("{:.0} min {:.0} s", (whole / 60.0).floor(), whole % 60.0)
}

/// A text in which no character moves the cursor or changes colours: names come from files and programs of others.
#[must_use]
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1.00"),
            (9.996, "10.0"),
            (99.96, "100"),
            (999.6, "1 000"),
            (1_234.0, "1 230"),
            (12_345_678.0, "12 300 000"),
            (0.056_78, "0.0568"),
            (-2.5, "−2.50"),
            (-12_345.0, "−12 300"),
            (1.234e-13, "1.23×10⁻¹³"),
            (-4.5e20, "−4.50×10²⁰"),
            (f64::MAX, "1.80×10³⁰⁸"),
            (f64::NAN, NONE),
            (f64::INFINITY, NONE),
        ] {
            assert_eq!(about(value), text.replace(' ', "\u{202f}"), "{value}");
        }
    }

    #[test]
    fn published_figures_and_places_keep_their_digits() {
        for (value, text) in [
            (3_319.0, "3 319"),
            (16_384.0, "16 384"),
            (0.0, "0"),
            (-7.0, "−7"),
            (0.56, "0.56"),
            (1_024.5, "1 024.5"),
            (0.1 + 0.2, "0.3"),
            (1e20, "1.00000×10²⁰"),
            (f64::NAN, NONE),
        ] {
            assert_eq!(exact(value), text.replace(' ', "\u{202f}"), "{value}");
        }
        let published = Source::Published("somewhere".to_owned());
        assert_eq!(figure(1_256.0, &published), "1\u{202f}256");
        assert_eq!(figure(1_256.0, &Source::Here), "1\u{202f}260");
    }

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_709_164_800, "2024-02-29 00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration(1.234), "1.23 s");
        assert_eq!(duration(119.9), "120 s");
        assert_eq!(duration(659.7), "11 min 0 s");
    }

    #[test]
    fn nothing_reaches_the_terminal_but_text() {
        assert_eq!(plain("a\u{1b}[31mb\nc\u{9b}d"), "a [31mb c d");
    }
}
