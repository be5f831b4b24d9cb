//! Programs of the network namespaces that are served because their names match a pattern.

use super::served::{NewNamespace, Served};
use super::space::Spaces;
use parking_lot::Mutex;
use sealane_sys::clock::wall_ms;
use sealane_sys::found::{OnFailure, Service};
use sealane_sys::named_netns::Named;
use sealane_sys::netns::{Netns, NetnsId};
use sealane_sys::{named_netns, presence};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use tracing::warn;

/// The interval of looks at namespaces that are left alone.
const LOOK: Duration = Duration::from_secs(60);

/// TCP-AO in such namespaces.
pub(super) struct Patterns<'a> {
    pub(super) spaces: &'a Spaces,
    /// The daemon's runtime folder.
    pub(super) folder: &'a Path,
    /// Until then processes that still serve them may end. Whoever serves one for longer keeps nobody else waiting.
    pub(super) until: Instant,
    /// Those that have been handed back.
    pub(super) left: &'a Mutex<Left>,
}

/// Network namespaces that are not served any more. The owner of their rules, without whom anybody's `nft flush ruleset` would
/// remove these, is in the namespace and so keeps it, until it has neither a name nor a process.
#[derive(Default)]
pub(super) struct Left {
    namespaces: Vec<Netns>,
    looked: Option<Instant>,
}

impl Left {
    /// Lets go of those that have gone, which are none of `used`, and forgets those that are served again. Returns the time until
    /// the next look.
    pub(super) fn let_go(
        &mut self,
        is_served: impl Fn(NetnsId) -> bool,
        used: impl FnOnce(&[Netns]) -> io::Result<HashSet<NetnsId>>,
        disown: impl Fn(&Netns),
    ) -> Option<Duration> {
        // Whoever serves one has the owner of its rules.
        self.namespaces.retain(|netns| netns.id().is_ok_and(|id| !is_served(id)));
        if self.namespaces.is_empty() {
            return None;
        }
        let rest = self.looked.map_or(Duration::ZERO, |looked| LOOK.saturating_sub(looked.elapsed()));
        if rest > Duration::ZERO {
            return Some(rest);
        }
        self.looked = Some(Instant::now());
        // Where it cannot be seen which are used, all stay.
        if let Ok(used) = used(&self.namespaces) {
            let is_used = |netns: &Netns| netns.id().is_ok_and(|id| used.contains(&id));
            let (stay, gone): (Vec<_>, Vec<_>) = self.namespaces.drain(..).partition(is_used);
            self.namespaces = stay;
            gone.iter().for_each(disown);
        }
        (!self.namespaces.is_empty()).then_some(LOOK)
    }
}

/// Those of these namespaces that have a process, and all that have a name.
///
/// # Errors
/// As [`named_netns::lived_in`].
pub(super) fn used(namespaces: &[Netns]) -> io::Result<HashSet<NetnsId>> {
    let lived_in = named_netns::lived_in(namespaces.iter())?;
    Ok(named_netns::all()?.into_keys().chain(lived_in).collect())
}

impl Service for Patterns<'_> {
    type Space = Served;
    const NAME: &'static str = "TCP-AO";
    const SECTION: &'static str = presence::TCP_AO;

    /// Its threads go on when something fails, and a panic is the daemon's failure: `on_failure` is not needed.
    fn start(&self, found: Named, _: OnFailure) -> io::Result<Served> {
        let new = NewNamespace::find(self.spaces, self.folder, found.netns, true)?;
        let patience = self.until.saturating_duration_since(Instant::now());
        // Configured peers are those of namespaces that the configuration names.
        new.open(self.spaces, None, Vec::new(), wall_ms() / 1000, patience)
    }

    fn netns(served: &Served) -> &Netns {
        served.space.netns()
    }

    fn stop(&self, served: Served) {
        served.save();
        self.spaces.close(&served.space);
    }

    fn give_up(&self, served: Served) {
        served.give_up(self.spaces, self.folder);
    }

    fn hand_back(&self, served: Served) {
        let netns = served.space.netns().try_clone();
        served.end(self.spaces, self.folder);
        match netns {
            Ok(netns) => self.left.lock().namespaces.push(netns),
            Err(e) => warn!(error = %e, "TCP-AO: a network namespace will stay when it has gone: {e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_sys::testing;
    use std::cell::Cell;

    #[test]
    fn what_has_gone_is_let_go() {
        let Some(netns) = testing::namespace("ao::patterns::left") else { return };
        let id = netns.id().expect("an id");
        let disowned = Cell::new(0);
        let disown = |gone: &Netns| {
            assert_eq!(gone.id().expect("an id"), id);
            disowned.set(disowned.get() + 1);
        };
        let left = || Left { namespaces: vec![netns.try_clone().expect("a descriptor")], looked: None };
        let none = |_: &[Netns]| Ok(HashSet::new());
        let mut none_left = Left::default();
        assert_eq!(none_left.let_go(|_| false, |_| unreachable!("nobody is left"), disown), None);
        // One that is served again.
        let mut again = left();
        assert_eq!(again.let_go(|served| served == id, |_| unreachable!("it is served"), disown), None);
        assert_eq!((again.namespaces.len(), disowned.get()), (0, 0));
        // One that is used, and one of which nobody can tell.
        assert_eq!(left().let_go(|_| false, |_| Ok(HashSet::from([id])), disown), Some(LOOK));
        assert_eq!(left().let_go(|_| false, |_| Err(io::ErrorKind::PermissionDenied.into()), disown), Some(LOOK));
        assert_eq!(disowned.get(), 0);
        // It has gone, but was looked at a moment ago.
        let mut gone = left();
        gone.looked = Some(Instant::now());
        assert!(gone.let_go(|_| false, none, disown).is_some_and(|rest| rest <= LOOK));
        gone.looked = None;
        assert_eq!((gone.let_go(|_| false, none, disown), disowned.get()), (None, 1));
        // Nobody lives in it, and it has no name.
        assert!(!used(&[netns]).expect("nobody is hidden").contains(&id));
    }
}
