//! The answer of a look at a machine.

use crate::facts::Facts;
use crate::finding::{Fact, Finding, Level};
use crate::rules;
use serde::Serialize;

/// A look at a machine: what it has, and what follows from that.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The kernel's release.
    pub release: String,
    /// The parts that were looked at.
    pub facts: Vec<Fact>,
    /// The conclusions, the most urgent first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Judges facts.
    #[must_use]
    pub fn new(facts: &Facts) -> Self {
        Report { release: facts.release.clone(), facts: facts.list(), findings: rules::judge(facts) }
    }

    /// Whether there is a finding of a level.
    #[must_use]
    pub fn has(&self, level: Level) -> bool {
        self.findings.iter().any(|finding| finding.level == level)
    }
}
