//! Starts that have failed one after the other: a service manager starts the daemon again at once, because after a crash every
//! moment counts, and would do so for ever where the reason does not pass. Each such start waits longer than the one before,
//! until the configuration is another one.
//!
//! They are counted in a file of the runtime folder, which a boot empties.

use sealane_sys::process::Signals;
use sealane_sys::runtime;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::info;

/// The pause after one failed start; each further one doubles it.
const FIRST: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(10);
/// The interval of looks at the configuration.
const LOOK: Duration = Duration::from_millis(200);

/// The starts of one daemon.
pub(crate) struct Starts<'a> {
    folder: &'a Path,
    config: &'a Path,
}

/// The failed starts with one and the same configuration.
#[derive(Debug, PartialEq, Eq)]
struct Failed {
    count: u32,
    /// That of the configuration ([`stamp_of`]).
    stamp: String,
}

impl<'a> Starts<'a> {
    pub(crate) fn new(folder: &'a Path, config: &'a Path) -> Self {
        Starts { folder, config }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("failed-starts")
    }

    /// The failed starts with the present configuration; none if nobody has counted any.
    fn failed(&self) -> Option<Failed> {
        let text = fs::read_to_string(self.path()).ok()?;
        let (count, stamp) = text.trim_end().split_once(' ')?;
        let failed = Failed { count: count.parse().ok()?, stamp: stamp.to_owned() };
        (failed.stamp == stamp_of(self.config)).then_some(failed)
    }

    /// Counts one that has failed.
    pub(crate) fn count(&self) {
        let count = self.failed().map_or(0, |failed| failed.count).saturating_add(1);
        let new = self.path().with_extension("new");
        let text = format!("{count} {}\n", stamp_of(self.config));
        // What cannot be counted costs a pause, and the reason is told in any case.
        let _ = runtime::make_private(self.folder)
            .and_then(|()| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, self.path()));
    }

    /// Forgets them: one has succeeded.
    pub(crate) fn forget(&self) {
        // Usually there is no file.
        let _ = fs::remove_file(self.path());
    }

    /// Waits as long as the failed ones call for. `wait` waits for so long at most, and tells whether to give up. Returns
    /// whether to go on.
    fn pause(&self, mut wait: impl FnMut(Duration) -> bool) -> bool {
        let Some(failed) = self.failed() else { return true };
        let pause = length(failed.count);
        let (times, file) = (failed.count, self.config.display());
        info!(times, "{times} starts have failed: waiting for {pause:?}, or until {file} changes");
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || failed.stamp != stamp_of(self.config) {
                return true;
            }
            if wait(left.min(LOOK)) {
                return false;
            }
        }
    }

    /// Waits as long as the failed ones call for; false if a signal of `ends` came.
    pub(crate) fn pause_for(&self, signals: &Signals, ends: &[i32]) -> bool {
        self.pause(|time| signals.wait_for(time).is_some_and(|signal| ends.contains(&signal.number())))
    }
}

/// The pause before a start, after so many that failed.
fn length(count: u32) -> Duration {
    FIRST.saturating_mul(1 << count.saturating_sub(1).min(16)).min(LONGEST)
}

/// Another text for each content of a file, and one for a file that cannot be found.
fn stamp_of(config: &Path) -> String {
    fs::metadata(config).map_or_else(
        |_| "none".to_owned(),
        |file| format!("{} {} {}.{:09}", file.ino(), file.size(), file.ctime(), file.ctime_nsec()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_an_end() {
        let ms = |count| length(count).as_millis();
        assert_eq!([1, 2, 3, 6, 7, 100, u32::MAX].map(ms), [200, 400, 800, 6_400, 10_000, 10_000, 10_000]);
    }

    #[test]
    fn failed_starts_are_counted_until_the_configuration_changes() {
        let folder = std::env::temp_dir().join(format!("sealane-starts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let config = folder.join("sealane.toml");
        let starts = Starts::new(&folder, &config);
        let count = || starts.failed().map(|failed| failed.count);
        assert!(starts.pause(|_| unreachable!("nothing has failed")));
        // A file that is not there is one configuration, too.
        starts.count();
        assert_eq!(count(), Some(1));
        fs::write(&config, "one").unwrap();
        assert_eq!(count(), None);
        starts.count();
        starts.count();
        assert_eq!(count(), Some(2));
        // Whoever is told to end does so in the middle of a pause.
        assert!(!starts.pause(|_| true));
        // Another configuration ends it.
        let mut looks = 0;
        assert!(starts.pause(|_| {
            looks += 1;
            fs::write(&config, "another one").unwrap();
            false
        }));
        assert_eq!((looks, count()), (1, None));
        starts.count();
        starts.forget();
        assert_eq!(count(), None);
        fs::write(starts.path(), "what\n").unwrap();
        assert_eq!(count(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
