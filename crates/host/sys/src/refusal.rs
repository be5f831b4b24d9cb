//! The kernel's refusals of netlink requests, as errors.

use std::io;

/// The kernel's refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The number of the refused message in the request, from 0.
    pub message: u32,
    /// The errno.
    pub errno: i32,
    /// The kernel's explanation, often empty.
    pub hint: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.errno))?;
        if !self.hint.is_empty() {
            write!(f, ": {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        let kind = io::Error::from_raw_os_error(refusal.errno).kind();
        io::Error::new(kind, refusal)
    }
}

/// The errno in an error of this module or of a system call.
pub fn errno(error: &io::Error) -> Option<i32> {
    let refusal = error.get_ref().and_then(|e| e.downcast_ref::<Refusal>());
    refusal.map(|r| r.errno).or_else(|| error.raw_os_error())
}
