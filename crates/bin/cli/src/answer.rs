//! The outcomes of commands.

/// The outcome of a command that ran without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// The exit status of a program, or of `ip` in the same case.
    Status(u8),
}
