//! The audit log: a line for each use of a key and for each refusal, without secrets.
//!
//! An event that comes again within [`WINDOW_NS`] is counted, and told in one line when that is over, so that a client that floods the
//! keeper does not flood the log. Nothing goes uncounted: when too much is different, the rest shares one line.

use sealane_keeper_client::key::{Name, Peer};
use sealane_keeper_client::message::Code;
use std::collections::HashMap;
use tracing::{info, warn};

/// The time within which the same is told once, and counted: 10 s.
pub const WINDOW_NS: u64 = 10_000_000_000;
/// The most different events within that time.
pub const MAX_DIFFERENT: usize = 1024;

/// The reason why nothing has come of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It was refused.
    Refused(Code),
    /// Its client has gone away before the key was made.
    Gone,
}

impl Why {
    fn name(self) -> &'static str {
        match self {
            Why::Refused(code) => code.name(),
            Why::Gone => "gone",
        }
    }
}

/// An event; equal ones count as the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Event {
    user: u32,
    operation: &'static str,
    key: Option<Name>,
    refused: Option<Why>,
}

impl Event {
    /// The operation, and the key if it is about one.
    fn what(&self) -> String {
        let operation = self.operation;
        self.key.as_ref().map_or_else(|| operation.to_owned(), |name| format!("{operation} '{name}'"))
    }
}

/// The events of the current window.
#[derive(Default)]
pub struct Audit {
    since_ns: u64,
    /// The number of times that each came after the line about it.
    again: HashMap<Event, u64>,
    /// Those for which there was no room.
    others: u64,
    /// All of them, as they came.
    #[cfg(test)]
    pub(crate) noted: Vec<String>,
}

impl Audit {
    /// Notes an event. `version` is what the key was used by.
    pub fn note(
        &mut self,
        peer: &Peer,
        operation: &'static str,
        key: Option<&Name>,
        done: Result<Option<u32>, Why>,
        now_ns: u64,
    ) {
        self.note_all(peer, operation, key, done, 1, now_ns);
    }

    /// Notes an event that has come so many times at once, once at least.
    pub fn note_all(
        &mut self,
        peer: &Peer,
        operation: &'static str,
        key: Option<&Name>,
        done: Result<Option<u32>, Why>,
        times: u64,
        now_ns: u64,
    ) {
        self.follow(now_ns);
        let event = Event { user: peer.user, operation, key: key.cloned(), refused: done.err() };
        #[cfg(test)]
        for _ in 0..times {
            self.noted.push(format!("{} {}", event.what(), event.refused.map_or("", Why::name)));
        }
        if let Some(count) = self.again.get_mut(&event) {
            *count += times;
            return;
        }
        if self.again.len() >= MAX_DIFFERENT {
            self.others += times;
            return;
        }
        let (user, process, name) = (peer.user, peer.process, event.key.as_ref().map_or("", Name::as_str));
        let what = event.what();
        match event.refused {
            None => {
                let version = done.ok().flatten().unwrap_or(0);
                info!(user, process, key = name, version, operation, "audit: user {user}: {what}");
            }
            Some(why) => {
                let why = why.name();
                warn!(user, process, key = name, operation, why, "audit: user {user}: {what} refused: {why}");
            }
        }
        self.again.insert(event, times.saturating_sub(1));
    }

    /// Tells what was counted, when the window is over.
    pub fn follow(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.since_ns) >= WINDOW_NS {
            self.tell();
            self.since_ns = now_ns;
        }
    }

    /// Tells what was counted.
    pub fn tell(&mut self) {
        for (event, count) in self.again.drain().filter(|(_, count)| *count > 0) {
            let what = event.what();
            let Event { user, operation, key, refused } = event;
            let name = key.as_ref().map_or("", Name::as_str);
            let why = refused.map_or("", Why::name);
            let outcome = if refused.is_some() { " refused: " } else { "" };
            info!(
                user,
                key = name,
                operation,
                why,
                count,
                "audit: user {user}: {what}{outcome}{why}, {count} times more"
            );
        }
        let others = core::mem::take(&mut self.others);
        if others > 0 {
            warn!(count = others, "audit: {others} events of other users, keys or operations");
        }
    }

    /// Whether there is something to tell later.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.again.is_empty() || self.others > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_counted_and_nothing_is_lost() {
        let peer = |user| Peer { process: 1, user, groups: vec![] };
        let mut audit = Audit::default();
        for _ in 0..5 {
            audit.note(&peer(1), "mac", Name::new("k").as_ref(), Ok(Some(1)), WINDOW_NS);
        }
        audit.note(&peer(1), "mac", Name::new("k").as_ref(), Err(Why::Refused(Code::Rate)), WINDOW_NS);
        for _ in 0..2 {
            audit.note_all(&peer(1), "seal", None, Ok(Some(1)), 8, WINDOW_NS);
        }
        let mut counts: Vec<u64> = audit.again.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [0, 4, 15]);
        for user in 0..MAX_DIFFERENT as u32 + 10 {
            audit.note(&peer(user + 10), "mac", None, Ok(None), WINDOW_NS);
        }
        assert_eq!((audit.again.len(), audit.others), (MAX_DIFFERENT, 13));
        audit.follow(2 * WINDOW_NS - 1);
        assert!(audit.is_pending());
        audit.follow(2 * WINDOW_NS);
        assert!(!audit.is_pending());
    }
}
