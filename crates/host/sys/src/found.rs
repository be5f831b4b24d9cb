//! Network namespaces that are served because their names match a pattern of the configuration. They come and go by themselves,
//! as containers do.
//!
//! A namespace whose name has gone is served as long as somebody lives in it: a process or a thread of another one. Then it
//! is given up, so that it can end: until then our own descriptors keep it.
//!
//! Whoever administers one of them must not trouble the others: where its threads fail, because its device was deleted for one,
//! it starts again alone.

use super::named_netns::{Named, Pattern, lived_in};
use super::netns::{Netns, NetnsId};
use super::poll::Waker;
use super::presence;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The interval of looks at namespaces whose names have gone, and the pause before one that could not be served is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// Called when the threads of a namespace have failed.
pub type OnFailure = Arc<dyn Fn() + Send + Sync>;

/// A service of network namespaces.
pub trait Service {
    /// The server of one namespace.
    type Space;
    /// Its name in messages.
    const NAME: &'static str;
    /// The section of the configuration that has its patterns.
    const SECTION: &'static str;

    /// Starts to serve a namespace that has been found.
    ///
    /// # Errors
    /// Why it cannot be served; it is tried again.
    fn start(&self, found: Named, on_failure: OnFailure) -> io::Result<Self::Space>;

    /// The namespace that is served.
    fn netns(space: &Self::Space) -> &Netns;

    /// Ends the service of a namespace, for the next daemon to go on.
    fn stop(&self, space: Self::Space);

    /// Ends the service of a namespace that nobody lives in any more: its keys are wiped, and nothing is kept for a next daemon.
    fn give_up(&self, space: Self::Space);

    /// Ends the service of a namespace that the configuration no longer asks for.
    fn hand_back(&self, space: Self::Space);
}

/// The namespaces of patterns, each served by a `T`.
pub struct Found<T> {
    /// Wakes whoever follows them.
    waker: Arc<Waker>,
    patterns: Vec<Pattern>,
    most: usize,
    served: BTreeMap<NetnsId, One<T>>,
    failed: HashMap<NetnsId, Failed>,
    /// Whether it has been told that there are more than `most`.
    told_most: bool,
    /// Whether it has been told that other processes cannot be looked at.
    told_unseen: bool,
}

/// One that is served.
struct One<T> {
    space: T,
    name: String,
    /// Whether the name has gone.
    has_lost_name: bool,
    /// Whether its threads have failed.
    has_failed: Arc<AtomicBool>,
}

impl<T> One<T> {
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

/// The namespaces that match patterns now. Our own is none of them.
pub fn find(patterns: &[Pattern]) -> BTreeMap<NetnsId, Named> {
    let ours = Netns::current().and_then(|netns| netns.id()).ok();
    let all = patterns.iter().flat_map(Pattern::find).filter(|found| Some(found.id) != ours);
    all.map(|found| (found.id, found)).collect()
}

impl<T> Found<T> {
    /// No patterns.
    #[must_use]
    pub fn new(waker: Arc<Waker>) -> Self {
        Found {
            waker,
            patterns: Vec::new(),
            most: 0,
            served: BTreeMap::new(),
            failed: HashMap::new(),
            told_most: false,
            told_unseen: false,
        }
    }

    /// Serves patterns from now on, `most` namespaces at once, and tells launchers of them, who wait for that. A namespace
    /// that has a name, matches none of them any more and is not one of `named`, which the configuration names, is handed back.
    ///
    /// # Errors
    /// The file system's.
    pub fn set<S: Service<Space = T>>(
        &mut self,
        service: &S,
        folder: &Path,
        (patterns, most): (&[String], u32),
        named: &HashSet<NetnsId>,
    ) -> io::Result<()> {
        self.patterns = patterns.iter().map(|text| Pattern::new(text)).collect();
        self.most = most as usize;
        (self.failed, self.told_most) = (HashMap::new(), false);
        let all = self.find();
        let is_unwanted =
            |id: &NetnsId, one: &mut One<T>| !all.contains_key(id) && !named.contains(id) && one.has_name(*id);
        for (_, one) in self.served.extract_if(.., is_unwanted) {
            service.hand_back(one.space);
        }
        presence::set_patterns(folder, S::SECTION, patterns)
    }

    /// The namespaces that match now.
    fn find(&self) -> BTreeMap<NetnsId, Named> {
        find(&self.patterns)
    }

    /// Whether a namespace is served.
    #[must_use]
    pub fn has(&self, id: NetnsId) -> bool {
        self.served.contains_key(&id)
    }

    /// Takes one out that the configuration names from now on.
    pub fn take(&mut self, id: NetnsId) -> Option<T> {
        self.served.remove(&id).map(|one| one.space)
    }

    /// Goes on with one that the configuration does not name any more. Returns it if no pattern matches.
    pub fn adopt<S: Service<Space = T>>(&mut self, space: T) -> Option<T> {
        let Some(named) = S::netns(&space).id().ok().and_then(|id| self.find().remove(&id)) else { return Some(space) };
        // A failure of its threads is one of the daemon, as before, until that starts again.
        let has_failed = Arc::default();
        self.served.insert(named.id, One { space, name: named.name, has_lost_name: false, has_failed });
        None
    }

    /// Serves those that have come, and gives up those that have gone. `named` are those that the configuration names. Returns the
    /// time until the next look, if there is no news before.
    pub fn follow<S: Service<Space = T>>(&mut self, service: &S, named: &HashSet<NetnsId>) -> Option<Duration> {
        let all = self.find();
        self.leave(service, &all);
        self.end_failed(service);
        self.failed.retain(|id, _| all.contains_key(id));
        for (id, found) in all {
            if named.contains(&id) || self.served.contains_key(&id) {
                continue;
            }
            if self.failed.get(&id).is_some_and(|failed| failed.again > Instant::now()) {
                continue;
            }
            if self.served.len() >= self.most {
                if !core::mem::replace(&mut self.told_most, true) {
                    let (what, section, name, most) = (S::NAME, S::SECTION, &found.name, self.most);
                    warn!(
                        netns = name,
                        "{what} in {name}: not served, because {most} network namespaces of patterns are ('max-found' of [{section}])"
                    );
                }
                break;
            }
            self.start(service, found);
        }
        let waiting = self.failed.iter().filter(|(id, _)| !self.served.contains_key(id));
        let again = waiting.map(|(_, failed)| failed.again.saturating_duration_since(Instant::now())).min();
        let has_lost = self.served.values().any(|one| one.has_lost_name);
        again.into_iter().chain(has_lost.then_some(AGAIN)).min()
    }

    fn start<S: Service<Space = T>>(&mut self, service: &S, found: Named) {
        let (what, name, id) = (S::NAME, found.name.clone(), found.id);
        let has_failed = Arc::new(AtomicBool::new(false));
        let on_failure: OnFailure = {
            let (has_failed, waker) = (has_failed.clone(), self.waker.clone());
            Arc::new(move || {
                has_failed.store(true, Ordering::Release);
                waker.wake();
            })
        };
        match service.start(found, on_failure) {
            Ok(space) => {
                info!(netns = name, "{what} in {name}: served, because its name matches a pattern");
                self.served.insert(id, One { space, name, has_lost_name: false, has_failed });
            }
            Err(e) => {
                if !self.failed.contains_key(&id) {
                    warn!(netns = name, error = %e, "{what} in {name}: {e}; it is tried again");
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
    fn end_failed<S: Service<Space = T>>(&mut self, service: &S) {
        let failed: Vec<_> = self.served.extract_if(.., |_, one| one.has_failed.load(Ordering::Acquire)).collect();
        for (id, One { space, name, .. }) in failed {
            service.stop(space);
            warn!(netns = name, "{} in {name}: its threads have failed; it starts again", S::NAME);
            // What fails again and again is not tried without a pause.
            self.pause(id);
        }
    }

    /// Gives up those that have gone.
    fn leave<S: Service<Space = T>>(&mut self, service: &S, all: &BTreeMap<NetnsId, Named>) {
        for (id, one) in &mut self.served {
            one.has_lost_name = !all.contains_key(id);
        }
        let lost: HashSet<_> = self.served.iter().filter(|(_, one)| one.has_lost_name).map(|(id, _)| *id).collect();
        if lost.is_empty() {
            return;
        }
        let there = self.served.values().filter(|one| one.has_lost_name).map(|one| S::netns(&one.space));
        let lived_in = lived_in(there).unwrap_or_else(|e| {
            if !core::mem::replace(&mut self.told_unseen, true) {
                let what = S::NAME;
                warn!(error = %e, "{what}: network namespaces without names stay: who lives in them cannot be seen: {e}");
            }
            lost.clone()
        });
        for (_, one) in self.served.extract_if(.., |id, _| lost.contains(id) && !lived_in.contains(id)) {
            let name = one.name;
            info!(netns = name, "{} in {name}: it has gone", S::NAME);
            service.give_up(one.space);
            self.told_most = false;
        }
    }

    /// Those that are served.
    pub fn spaces(&self) -> impl Iterator<Item = &T> {
        self.served.values().map(|one| &one.space)
    }

    /// Ends all of them, for the next daemon to go on.
    pub fn stop<S: Service<Space = T>>(&mut self, service: &S) {
        // Nobody starts one from here on.
        self.patterns.clear();
        for one in core::mem::take(&mut self.served).into_values() {
            service.stop(one.space);
        }
    }
}
