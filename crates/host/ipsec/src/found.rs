//! Network namespaces that are served because their names match a pattern of the configuration. They come and go by themselves,
//! as containers do.
//!
//! A namespace whose name has gone is served as long as somebody lives in it: a process or a thread of another one. Then it
//! is given up, so that it can end: until then our own descriptors keep it.
//!
//! Whoever administers one of them must not trouble the others: where its threads fail, because its device was deleted for one,
//! it starts again alone.

use crate::control::numbers;
use crate::control::space::Space;
use crate::data::shared::OnFailure;
use crate::surroundings::Surroundings;
use sealane_config::Ipsec;
use sealane_sys::named_netns::{Named, Pattern, lived_in};
use sealane_sys::netns::{Netns, NetnsId};
use sealane_sys::poll::Waker;
use sealane_sys::presence;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The interval of looks at namespaces whose names have gone, and the pause before one that could not be served is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// The namespaces of patterns.
pub(crate) struct Found {
    /// Wakes whoever follows them.
    waker: Arc<Waker>,
    patterns: Vec<Pattern>,
    most: usize,
    workers: u32,
    served: BTreeMap<NetnsId, One>,
    failed: HashMap<NetnsId, Failed>,
    /// Whether it has been told that there are more than `most`.
    told_most: bool,
    /// Whether it has been told that other processes cannot be looked at.
    told_unseen: bool,
}

/// One that is served.
struct One {
    space: Arc<Space>,
    name: String,
    /// Whether the name has gone.
    has_lost_name: bool,
    /// Whether its threads have failed.
    has_failed: Arc<AtomicBool>,
}

impl One {
    /// Whether it still has its name.
    fn has_name(&self, id: NetnsId) -> bool {
        Netns::named(Some(&self.name)).and_then(|netns| netns.id()).is_ok_and(|there| there == id)
    }
}

/// One that could not be served, or whose threads have failed.
struct Failed {
    pause: Duration,
    again: Instant,
}

impl Found {
    /// No patterns.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Found {
            waker: Arc::new(Waker::new()?),
            patterns: Vec::new(),
            most: 0,
            workers: 1,
            served: BTreeMap::new(),
            failed: HashMap::new(),
            told_most: false,
            told_unseen: false,
        })
    }

    /// Wakes whoever is to call [`Found::follow`].
    pub(crate) fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Serves the patterns of a configuration from now on, which launchers wait for. What has a name, matches none of them any
    /// more and is not one of `named`, which the configuration names, is handed back.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn set(&mut self, config: &Ipsec, place: &Surroundings, named: &HashSet<NetnsId>) -> io::Result<()> {
        self.patterns = config.patterns.iter().map(|text| Pattern::new(text)).collect();
        (self.most, self.workers) = (config.max_found as usize, config.workers);
        (self.failed, self.told_most) = (HashMap::new(), false);
        let all = self.find();
        let is_unwanted =
            |id: &NetnsId, one: &mut One| !all.contains_key(id) && !named.contains(id) && one.has_name(*id);
        for (_, one) in self.served.extract_if(.., is_unwanted) {
            one.space.hand_back();
        }
        presence::set_patterns(&place.folder, &config.patterns)
    }

    /// The namespaces that match now.
    fn find(&self) -> BTreeMap<NetnsId, Named> {
        self.patterns.iter().flat_map(Pattern::find).map(|found| (found.id, found)).collect()
    }

    /// Takes one out that the configuration names from now on.
    pub(crate) fn take(&mut self, id: NetnsId) -> Option<Arc<Space>> {
        self.served.remove(&id).map(|one| one.space)
    }

    /// Goes on with one that the configuration does not name any more. Returns it if no pattern matches.
    pub(crate) fn adopt(&mut self, space: Arc<Space>) -> Option<Arc<Space>> {
        let Some(named) = space.netns().id().ok().and_then(|id| self.find().remove(&id)) else { return Some(space) };
        // A failure of its threads is one of the daemon, as before, until that starts again.
        let has_failed = Arc::default();
        self.served.insert(named.id, One { space, name: named.name, has_lost_name: false, has_failed });
        None
    }

    /// Serves those that have come, and gives up those that have gone. `named` are those that the configuration names. Returns the
    /// time until the next look, if there is no news before.
    pub(crate) fn follow(&mut self, place: &Surroundings, named: &HashSet<NetnsId>) -> Option<Duration> {
        let all = self.find();
        self.leave(place, &all);
        self.end_failed();
        let ours = Netns::current().and_then(|netns| netns.id()).ok();
        self.failed.retain(|id, _| all.contains_key(id));
        for (id, found) in all {
            if named.contains(&id) || Some(id) == ours || self.served.contains_key(&id) {
                continue;
            }
            if self.failed.get(&id).is_some_and(|failed| failed.again > Instant::now()) {
                continue;
            }
            if self.served.len() >= self.most {
                if !core::mem::replace(&mut self.told_most, true) {
                    let (name, most) = (&found.name, self.most);
                    warn!(
                        netns = name,
                        "IPsec in {name}: not served, because {most} network namespaces of patterns are ('max-found' of [ipsec])"
                    );
                }
                break;
            }
            self.start(found, place);
        }
        let waiting = self.failed.iter().filter(|(id, _)| !self.served.contains_key(id));
        let again = waiting.map(|(_, failed)| failed.again.saturating_duration_since(Instant::now())).min();
        let has_lost = self.served.values().any(|one| one.has_lost_name);
        again.into_iter().chain(has_lost.then_some(AGAIN)).min()
    }

    fn start(&mut self, found: Named, place: &Surroundings) {
        let Named { name, id, netns } = found;
        let has_failed = Arc::new(AtomicBool::new(false));
        let on_failure: OnFailure = {
            let (has_failed, waker) = (has_failed.clone(), self.waker.clone());
            Arc::new(move || {
                has_failed.store(true, Ordering::Release);
                waker.wake();
            })
        };
        match Space::start(netns, Some(&numbers::found(&name)), &place.with_failures_for(on_failure), self.workers) {
            Ok(space) => {
                // Programs may have made interfaces there while an earlier daemon served.
                if let Err((part, e)) = space.put_in_place(&[], &[], &[]) {
                    warn!(netns = name, error = %e, "IPsec in {name}: {part}: {e}");
                }
                info!(netns = name, "IPsec in {name}: served, because its name matches a pattern");
                self.served.insert(id, One { space, name, has_lost_name: false, has_failed });
            }
            Err(e) => {
                if !self.failed.contains_key(&id) {
                    warn!(netns = name, error = %e, "IPsec in {name}: {e}; it is tried again");
                }
                self.pause(id);
            }
        }
    }

    /// Has a namespace that has failed wait before it is tried again: the first time not at all, and then each time twice as
    /// long.
    fn pause(&mut self, id: NetnsId) {
        let pause = match self.failed.get(&id) {
            Some(before) if before.again.elapsed() < LONGEST => (before.pause * 2).clamp(AGAIN, LONGEST),
            _ => Duration::ZERO,
        };
        self.failed.insert(id, Failed { pause, again: Instant::now() + pause });
    }

    /// Ends those whose threads have failed, to start them again as the next daemon would.
    fn end_failed(&mut self) {
        let failed: Vec<_> = self.served.extract_if(.., |_, one| one.has_failed.load(Ordering::Acquire)).collect();
        for (id, one) in failed {
            one.space.stop();
            warn!(netns = one.name, "IPsec in {}: its threads have failed; it starts again", one.name);
            // What fails again and again is not tried without a pause.
            self.pause(id);
        }
    }

    /// Gives up those that have gone.
    fn leave(&mut self, place: &Surroundings, all: &BTreeMap<NetnsId, Named>) {
        for (id, one) in &mut self.served {
            one.has_lost_name = !all.contains_key(id);
        }
        let lost: HashSet<_> = self.served.iter().filter(|(_, one)| one.has_lost_name).map(|(id, _)| *id).collect();
        if lost.is_empty() {
            return;
        }
        let there = self.served.values().filter(|one| one.has_lost_name).map(|one| one.space.netns());
        let lived_in = lived_in(there).unwrap_or_else(|e| {
            if !core::mem::replace(&mut self.told_unseen, true) {
                warn!(error = %e, "xfrm: network namespaces without names stay: who lives in them cannot be seen: {e}");
            }
            lost.clone()
        });
        for (_, one) in self.served.extract_if(.., |id, _| lost.contains(id) && !lived_in.contains(id)) {
            info!(netns = one.name, "IPsec in {}: it has gone", one.name);
            one.space.give_up();
            drop(one);
            if let Err(e) = numbers::tidy(&numbers::folder(&place.folder)) {
                warn!(error = %e, "xfrm: the numbers of network namespaces that have gone: {e}");
            }
            self.told_most = false;
        }
    }

    /// Those that are served.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.served.values().map(|one| &one.space)
    }

    /// Ends all of them, for the next daemon to go on.
    pub(crate) fn stop(&mut self) {
        // Nobody starts one from here on.
        self.patterns.clear();
        for one in core::mem::take(&mut self.served).into_values() {
            one.space.stop();
        }
    }
}
