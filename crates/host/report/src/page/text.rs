//! Text in pictures, where nothing wraps by itself.

use super::mark::px;
use maud::{Markup, html};

/// Width of an average character of 12 pixels in a wide font, pixels. Fonts differ.
const CHARACTER: f64 = 7.1;
/// The same for a bold one.
const BOLD: f64 = 8.2;
/// Between texts beside each other, pixels.
const GAP: f64 = 5.0;
/// From line to line, pixels.
pub(super) const LINE: f64 = 16.0;

/// Width of a text, pixels.
pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Width of a bold text, pixels.
pub(super) fn bold(text: &str) -> f64 {
    text.chars().count() as f64 * BOLD
}

/// A text in lines of at most so many pixels. A word that is too long for one is cut.
pub(super) fn wrap(text: &str, most: f64) -> Vec<String> {
    wrapped(text, most / CHARACTER)
}

/// A bold text in lines of at most so many pixels.
pub(super) fn wrap_bold(text: &str, most: f64) -> Vec<String> {
    wrapped(text, most / BOLD)
}

fn wrapped(text: &str, characters: f64) -> Vec<String> {
    // A text has room in its own width, however that was rounded.
    let most = ((characters + 0.01) as usize).max(4);
    let mut lines = vec![String::new()];
    // Spaces inside of numbers, which are not of ASCII, are none.
    for word in text.split_ascii_whitespace() {
        let mut word: String = word.to_owned();
        let mut line = lines.pop().unwrap_or_default();
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > most {
            lines.push(std::mem::take(&mut line));
        }
        while word.chars().count() > most {
            let rest = word.chars().skip(most - 1).collect();
            lines.push(word.chars().take(most - 1).chain(['-']).collect());
            word = rest;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
        lines.push(line);
    }
    lines
}

/// Lines of text, the first one's base at y.
pub(super) fn lines(class: &str, x: f64, y: f64, lines: &[String]) -> Markup {
    html! {
        @for (at, line) in lines.iter().enumerate() {
            text class=(class) x=(px(x)) y=(px(y + at as f64 * LINE)) { (line) }
        }
    }
}

/// Texts along a line, each around its place if it has room there in a picture of that width. Those that would touch the one before are
/// left out.
pub(super) fn along<'a>(texts: impl Iterator<Item = (f64, &'a str)>, y: f64, most: f64) -> Markup {
    let mut free = f64::NEG_INFINITY;
    let mut placed = Vec::new();
    for (x, text) in texts {
        let half = width(text) / 2.0;
        let x = x.min(most - half).max(half);
        if x - half >= free {
            placed.push((x, text));
            free = x + half + GAP;
        }
    }
    html! {
        @for (x, text) in placed { text x=(px(x)) y=(px(y)) text-anchor="middle" { (text) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_along_a_line_do_not_touch() {
        let texts = [(0.0, "0"), (10.0, "10 000"), (30.0, "20 000"), (60.0, "30 000"), (100.0, "40 000")];
        let shown = along(texts.into_iter(), 5.0, 100.0).into_string();
        let places: Vec<&str> = shown.split("x=\"").skip(1).filter_map(|part| part.split('"').next()).collect();
        assert_eq!(places, ["3.5", "60"], "{shown}");
    }

    #[test]
    fn lines_are_short_enough_and_lose_nothing() {
        for (text, most, expected) in [
            ("", 100.0, vec![""]),
            ("one two", 100.0, vec!["one two"]),
            ("one two three", 60.0, vec!["one two", "three"]),
            ("authenc(hmac(sha256))", 72.0, vec!["authenc(h-", "mac(sha25-", "6))"]),
        ] {
            assert_eq!(wrap(text, most), expected, "{text}");
        }
    }
}
