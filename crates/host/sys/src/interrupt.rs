//! Ending in good order: the first signal that would end a program is noted, and the next one ends it.

use std::sync::atomic::{AtomicI32, Ordering};

/// The signals: Ctrl-C, a service manager's or `kill`'s, and the end of the terminal.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static NOTED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    if NOTED.swap(signal, Ordering::Relaxed) != 0 {
        // SAFETY: a plain value; _exit may be called in a signal handler.
        unsafe { libc::_exit(128 + signal) };
    }
}

/// From now on the first of SIGINT, SIGTERM and SIGHUP is noted ([`noted`]), and system calls that it interrupts go on. The second one ends
/// the process at once. Signals that this process was started to ignore stay ignored. Programs that it starts have none of this.
pub fn defer() {
    for signal in SIGNALS {
        // SAFETY: all-zero sigactions are valid, and libc fills the first one in. The handler stores a word and may exit, both of which a
        // handler may do.
        unsafe {
            let mut before: libc::sigaction = core::mem::zeroed();
            if libc::sigaction(signal, core::ptr::null(), &mut before) != 0 || before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = note as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, core::ptr::null_mut());
        }
    }
}

/// The signal that has arrived since [`defer`], by its number.
#[must_use]
pub fn noted() -> Option<i32> {
    Some(NOTED.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_noted() {
        defer();
        assert_eq!(noted(), None);
        // SAFETY: a plain value. The handler runs in this thread before the call returns.
        unsafe { libc::raise(libc::SIGHUP) };
        assert_eq!(noted(), Some(libc::SIGHUP));
    }
}
