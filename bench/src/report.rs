//! Reports: a readable table on standard output, and CSV in the file that `--csv FILE` names.

use std::io::Write;
use std::path::PathBuf;

/// Returns the value of `--NAME VALUE` or `--NAME=VALUE`.
#[must_use]
pub fn option(name: &str) -> Option<String> {
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if let Some(rest) = arg.strip_prefix("--").and_then(|a| a.strip_prefix(name)) {
            return match rest.strip_prefix('=') {
                Some(value) => Some(value.to_owned()),
                None => args.next(),
            };
        }
    }
    None
}

/// Returns the seconds for each rival and row, from `--seconds S`.
#[must_use]
pub fn seconds(default: f64) -> std::time::Duration {
    std::time::Duration::from_secs_f64(option("seconds").and_then(|s| s.parse().ok()).unwrap_or(default))
}

/// The rows of a bench.
pub struct Csv {
    path: Option<PathBuf>,
    text: String,
}

impl Csv {
    /// Starts with the line of column names.
    #[must_use]
    pub fn new(columns: &str) -> Self {
        Csv { path: option("csv").map(PathBuf::from), text: format!("{columns}\n") }
    }

    /// Adds a row.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Writes the file, if one was asked for.
    ///
    /// # Errors
    /// The error of writing.
    pub fn write(self) -> std::io::Result<()> {
        match self.path {
            Some(path) => std::fs::File::create(path)?.write_all(self.text.as_bytes()),
            None => Ok(()),
        }
    }
}
