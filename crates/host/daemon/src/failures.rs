//! The failures that the daemon has recovered from since the boot: a count for each reason, in a file of the runtime
//! folder, because the process that failed is gone.

use sealane_abi::admin::Tally;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

/// The reason why everything is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A thread panicked.
    Panic,
    /// A thread ended with an error.
    Error,
    /// A thread hung.
    Hang,
}

impl Reason {
    const ALL: [Reason; 3] = [Reason::Panic, Reason::Error, Reason::Hang];

    /// Its name in the file and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Panic => "panic",
            Reason::Error => "error",
            Reason::Hang => "hang",
        }
    }
}

/// The failure that has happened, 0 if none has.
static HAPPENED: AtomicU8 = AtomicU8::new(0);

/// Notes a failure. Of several the first one is the reason.
pub(crate) fn note(reason: Reason) {
    let _ = HAPPENED.compare_exchange(0, reason as u8 + 1, Ordering::AcqRel, Ordering::Acquire);
}

/// The failure that was noted first.
pub(crate) fn noted() -> Option<Reason> {
    let at = HAPPENED.load(Ordering::Acquire).checked_sub(1)?;
    Reason::ALL.get(usize::from(at)).copied()
}

fn path(folder: &Path) -> PathBuf {
    folder.join("failures")
}

/// Reads the counts.
pub(crate) fn read(folder: &Path) -> Vec<Tally> {
    // It is no error if there have been none.
    let text = fs::read_to_string(path(folder)).unwrap_or_default();
    let count = |name: &str| {
        let line = text.lines().filter_map(|line| line.split_once(' ')).find(|(other, _)| *other == name);
        line.and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
    };
    Reason::ALL.map(|reason| Tally { name: reason.name().to_owned(), count: count(reason.name()) }).into()
}

/// Counts a failure.
pub(crate) fn count(folder: &Path, reason: Reason) {
    let mut counts = read(folder);
    counts[reason as usize].count += 1;
    let text: String = counts.iter().map(|tally| format!("{} {}\n", tally.name, tally.count)).collect();
    let new = path(folder).with_extension("new");
    // A failure that cannot be written is not counted: coming back matters more.
    let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, path(folder)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_outlive_the_process() {
        let folder = std::env::temp_dir().join(format!("sealane-failures-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let counts = || read(&folder).into_iter().map(|tally| tally.count).collect::<Vec<_>>();
        assert_eq!(counts(), [0, 0, 0]);
        for reason in [Reason::Hang, Reason::Panic, Reason::Hang] {
            count(&folder, reason);
        }
        assert_eq!(counts(), [1, 0, 2]);
        fs::write(path(&folder), "hang many\nwhat 7\n\npanic 3").unwrap();
        assert_eq!(counts(), [3, 0, 0]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
