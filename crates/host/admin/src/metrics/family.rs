//! Metrics in Prometheus' text format.

use std::fmt::{self, Write};

/// Pairs of the name and the value of a label.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A metric, whose samples stand together under one head.
pub(super) struct Family<'o> {
    out: &'o mut String,
    name: &'static str,
}

impl<'o> Family<'o> {
    pub(super) fn new(out: &'o mut String, name: &'static str, kind: &str, help: &str) -> Self {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { out, name }
    }

    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl fmt::Display) {
        self.out.push_str(self.name);
        for (i, (name, value)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{name}=\"", if i == 0 { '{' } else { ',' });
            for c in value.chars() {
                match c {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}
