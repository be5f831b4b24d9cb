//! Output as plain tables and as JSON. Renderers take a `Write`, so that tests can read their output.

use serde::Serialize;
use std::io::Write;

/// Prints `value` as indented JSON with a closing newline.
pub(crate) fn json(out: &mut impl Write, value: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table of text columns, separated by two blanks.
pub(crate) struct Table {
    heads: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[(&'static str, Align)]) -> Self {
        Table { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len());
        self.rows.push(cells);
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let width = |i: usize| {
            self.rows.iter().map(|r| r[i].chars().count()).chain([self.heads[i].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let heads: Vec<String> = self.heads.iter().map(|h| h.0.to_owned()).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.heads) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                match align {
                    Align::Left => line.push_str(&format!("{cell:<width$}")),
                    Align::Right => line.push_str(&format!("{cell:>width$}")),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_have_no_tail() {
        let mut table = Table::new(&[("name", Align::Left), ("ns", Align::Right), ("why", Align::Left)]);
        table.row(vec!["a".into(), "100.0".into(), String::new()]);
        table.row(vec!["longer".into(), "2.5".into(), "fast".into()]);
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name       ns  why\na       100.0\nlonger    2.5  fast\n");
    }
}
