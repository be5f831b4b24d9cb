//! Access to a TOML document: typed values, and mistakes with their positions.
//!
//! Written by hand rather than with serde for three reasons: all mistakes of a file are reported at once, each with its
//! line, and no message ever contains a value that might be a secret.

use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// A description, which never contains a value that might be a secret.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.what)
    }
}

/// The byte range of a value in the document.
pub(super) type Span = Range<usize>;

/// The most mistakes that are reported.
const MAX_MISTAKES: usize = 1000;

/// The mistakes found so far.
pub(super) struct Mistakes<'t> {
    text: &'t str,
    list: Vec<Mistake>,
}

impl<'t> Mistakes<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Mistakes { text, list: Vec::new() }
    }

    /// Adds a mistake at the start of `span`.
    pub(super) fn at(&mut self, span: &Span, what: impl Into<String>) {
        if self.list.len() == MAX_MISTAKES {
            return;
        }
        let (line, column) = place(self.text, span.start);
        self.list.push(Mistake { line, column, what: what.into() });
    }

    /// The mistakes in the order of the text.
    pub(super) fn into_sorted(mut self) -> Vec<Mistake> {
        self.list.sort();
        self.list
    }
}

/// Line and column of a byte, both counted from 1.
pub(super) fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[start..]).chars().count() + 1)
}

/// A value and its position.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// A table of the document. Settings that have not been read by [`finish`](Section::finish) are mistakes.
pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    pub(super) span: Span,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(super) fn new(table: &'a DeTable<'a>, span: Span) -> Self {
        Section { table, span, known: Vec::new() }
    }

    /// The value named `name`, of any type.
    pub(super) fn value(&mut self, name: &'static str) -> Option<At<&'a DeValue<'a>>> {
        self.known.push(name);
        self.table.get(name).map(|v| At { value: v.get_ref(), span: v.span() })
    }

    pub(super) fn string(&mut self, name: &'static str, mistakes: &mut Mistakes<'_>) -> Option<At<&'a str>> {
        let At { value, span } = self.value(name)?;
        match value {
            DeValue::String(s) => Some(At { value: s.as_ref(), span }),
            other => {
                mistakes.at(&span, format!("'{name}' has to be a string, not {}", kind(other)));
                None
            }
        }
    }

    /// A whole number in `range`.
    pub(super) fn integer<T: TryFrom<i64>>(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<i64>,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<At<T>> {
        let at = self.value(name)?;
        let (from, to) = (range.start(), range.end());
        match as_integer(at.value).filter(|n| range.contains(n)).and_then(|n| T::try_from(n).ok()) {
            Some(value) => Some(At { value, span: at.span }),
            None => {
                mistakes.at(&at.span, format!("'{name}' has to be a whole number from {from} to {to}"));
                None
            }
        }
    }

    pub(super) fn boolean(&mut self, name: &'static str, mistakes: &mut Mistakes<'_>) -> Option<bool> {
        let At { value, span } = self.value(name)?;
        if value.as_bool().is_none() {
            mistakes.at(&span, format!("'{name}' has to be true or false, not {}", kind(value)));
        }
        value.as_bool()
    }

    /// A single value or the values of an array.
    pub(super) fn one_or_many(&mut self, name: &'static str) -> Vec<At<&'a DeValue<'a>>> {
        match self.value(name) {
            None => Vec::new(),
            Some(At { value: DeValue::Array(list), .. }) => {
                list.iter().map(|v| At { value: v.get_ref(), span: v.span() }).collect()
            }
            Some(one) => vec![one],
        }
    }

    /// The table named `name`.
    pub(super) fn section(&mut self, name: &'static str, mistakes: &mut Mistakes<'_>) -> Option<Section<'a>> {
        let at = self.value(name)?;
        match at.value.as_table() {
            Some(table) => Some(Section::new(table, at.span)),
            None => {
                mistakes
                    .at(&at.span, format!("'{name}' has to be a table, [{name}] or {{ ... }}, not {}", kind(at.value)));
                None
            }
        }
    }

    /// The tables named `name` (`[[name]]`), each with its position.
    pub(super) fn sections(&mut self, name: &'static str, mistakes: &mut Mistakes<'_>) -> Vec<Section<'a>> {
        let Some(at) = self.value(name) else { return Vec::new() };
        let Some(list) = at.value.as_array() else {
            mistakes.at(&at.span, format!("'{name}' has to be an array of tables, [[{name}]], not {}", kind(at.value)));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for value in list.iter() {
            match value.get_ref().as_table() {
                Some(table) => sections.push(Section::new(table, value.span())),
                None => mistakes.at(&value.span(), format!("'{name}' has to be an array of tables, [[{name}]]")),
            }
        }
        sections
    }

    /// Reports that `name` is missing, at the head of the section.
    pub(super) fn missing(&self, name: &str, mistakes: &mut Mistakes<'_>) {
        mistakes.at(&self.span, format!("'{name}' is missing"));
    }

    /// Reports every setting that has not been read.
    pub(super) fn finish(self, mistakes: &mut Mistakes<'_>) {
        for name in self.table.keys().filter(|k| !self.known.contains(&k.get_ref().as_ref())) {
            let hint = match near(self.known.iter().copied(), name.get_ref()) {
                Some(known) => format!("; did you mean '{known}'?"),
                None if self.known.is_empty() => String::new(),
                _ => format!("; known here: {}", self.known.join(", ")),
            };
            mistakes.at(&name.span(), format!("there is no setting '{}'{hint}", name.get_ref().escape_debug()));
        }
    }
}

/// The one of `known` that `name` is probably a misspelling of.
pub(super) fn near<'k>(known: impl Iterator<Item = &'k str>, name: &str) -> Option<&'k str> {
    let nearest = known.map(|k| (strsim::osa_distance(k, name), k)).min()?;
    (nearest.0 <= 2).then_some(nearest.1)
}

/// The type of a value, for messages, which must not contain the value itself.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// The value of a whole number, decimal or with the prefix 0x, 0o or 0b.
pub(super) fn as_integer(value: &DeValue<'_>) -> Option<i64> {
    value.as_integer().and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok())
}

/// Parses the document's root table; syntax errors become mistakes.
pub(super) fn document<'t>(text: &'t str, mistakes: &mut Mistakes<'_>) -> Spanned<DeTable<'t>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        mistakes.at(&error.span().unwrap_or_default(), error.message());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters() {
        let text = "a\nüb c\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 1), (1, 2));
        assert_eq!(place(text, 2), (2, 1));
        assert_eq!(place(text, text.find('b').unwrap()), (2, 2));
        assert_eq!(place(text, 999), (3, 1));
    }
}
