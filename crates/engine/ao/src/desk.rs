//! The desk at which traffic keys are asked for whose master keys are elsewhere.
//!
//! Whoever has the master keys may be slow, hang or say no, and anybody may send segments for which a key is wanted. So
//! - all asking together has a budget of time, by which segments wait; when it is spent there is no key for a while;
//! - a key of which somebody said no is not asked for again at once;
//! - what forgers may ask for is limited for each master key;
//! - answers are kept for a moment, because the segments of a handshake ask for the same keys one after another.
//!
//! A segment without its key is dropped, and TCP repeats it.

use core::time::Duration;
use sealane_crypto::mac::MacTfm;
use sealane_net::ao::mkt::Mkt;
use sealane_net::ao::traffic::Wanted;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The time in which there is a budget of [`WAITING`].
const WINDOW: Duration = Duration::from_secs(2);
/// The time for which segments may wait in a [`WINDOW`], all together, before nobody is asked any more in it. The last answer may come
/// later than that. What is not urgent, or may be asked for by forgers, has half of it: handshakes that have begun go on.
const WAITING: Duration = Duration::from_millis(100);
/// The time in which a key of which somebody said no is not asked for.
const REST: Duration = Duration::from_secs(2);
/// The answers that segments which nobody has verified may ask for at once, for each master key, and how fast there are more.
const FORGEABLE: u32 = 64;
const FORGEABLE_PER_S: u32 = 16;
/// The most answers that are kept, and for how long. A handshake is done within it.
const MAX_RECENT: usize = 1024;
const RECENT: Duration = Duration::from_secs(10);

/// The reason for asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hurry {
    /// A segment waits.
    Segment,
    /// A connection will need it, and no segment waits yet.
    Later,
}

/// A master key by which no traffic key is derived at present.
pub struct Failing {
    /// The key.
    pub mkt: Arc<Mkt>,
    /// The reason.
    pub why: String,
    /// The time since somebody asked last.
    pub ago: Duration,
}

/// An answer that is kept.
struct Recent {
    tfm: Arc<MacTfm>,
    until: Duration,
}

/// A master key.
struct Asked {
    mkt: Weak<Mkt>,
    /// The number of answers that forgers may still ask for, and when it last became more.
    left: u32,
    refilled: Duration,
    /// Until when it is not asked for.
    rests_until: Duration,
    /// The reason why it was refused when it was last asked for, and when that was.
    trouble: Option<(String, Duration)>,
    /// Whether [`Desk::news`] has told of the trouble.
    is_told: bool,
}

#[derive(Default)]
struct State {
    /// The end of the window, and how long segments have waited in it.
    window_end: Duration,
    waited: Duration,
    recent: HashMap<Wanted, Recent>,
    /// The keys of `recent`, the oldest first.
    order: VecDeque<Wanted>,
    /// By the address of the master key, which nothing else can have as long as there is a weak reference.
    asked: HashMap<usize, Asked>,
    /// The number of master keys at which those that are gone are looked for.
    tidy_at: usize,
}

/// The desk. Its clock is what its callers say: the time since some moment of the process.
pub struct Desk {
    state: Mutex<State>,
    /// Tells why the last answer of this thread was none.
    why: Box<dyn Fn() -> String + Send + Sync>,
}

impl Default for Desk {
    fn default() -> Self {
        Desk::new(Box::new(String::new))
    }
}

impl Desk {
    /// A desk at which nobody has asked yet. `why` tells why a derivation in the calling thread has just failed.
    #[must_use]
    pub fn new(why: Box<dyn Fn() -> String + Send + Sync>) -> Self {
        Desk { state: Mutex::default(), why }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a traffic key derived, or finds it among the last answers. No lock may be held: this waits. `clock` tells the time.
    pub fn derive(&self, wanted: &Wanted, hurry: Hurry, clock: &dyn Fn() -> Duration) -> Option<Arc<MacTfm>> {
        let now = clock();
        {
            let mut state = self.state();
            if let Some(recent) = state.recent.get(wanted).filter(|recent| now < recent.until) {
                return Some(recent.tfm.clone());
            }
            if !state.may_ask(wanted, hurry, now) {
                return None;
            }
        }
        let answer = wanted.derive();
        let done = clock();
        let mut state = self.state();
        state.waited += done.saturating_sub(now);
        match answer {
            Ok(tfm) => {
                state.asked(&wanted.mkt, done).trouble = None;
                state.keep(wanted, &tfm, done);
                Some(tfm)
            }
            Err(_) => {
                let asked = state.asked(&wanted.mkt, done);
                asked.rests_until = done + REST;
                asked.trouble = Some(((self.why)(), done));
                None
            }
        }
    }

    /// Whether a key may be asked for now, as far as it alone is concerned.
    #[must_use]
    pub fn is_asked(&self, wanted: &Wanted, now: Duration) -> bool {
        self.state().asked(&wanted.mkt, now).rests_until <= now
    }

    /// Forgets answers that are not needed any more. To be called about once a second.
    pub fn tidy(&self, now: Duration) {
        let mut state = self.state();
        while let Some(oldest) = state.order.front()
            && state.recent.get(oldest).is_none_or(|recent| recent.until <= now)
        {
            state.forget_oldest();
        }
    }

    /// The master keys by which nothing is derived at present.
    #[must_use]
    pub fn failing(&self, now: Duration) -> Vec<Failing> {
        let of = |asked: &Asked| {
            let (why, at) = asked.trouble.clone()?;
            Some(Failing { mkt: asked.mkt.upgrade()?, why, ago: now.saturating_sub(at) })
        };
        self.state().asked.values().filter_map(of).collect()
    }

    /// The master keys whose trouble has begun since the last call, with the reason, and those whose trouble has ended.
    pub fn news(&self) -> Vec<(Arc<Mkt>, Option<String>)> {
        let mut state = self.state();
        let changed = state.asked.values_mut().filter(|asked| asked.is_told != asked.trouble.is_some());
        let told = changed.filter_map(|asked| {
            asked.is_told = asked.trouble.is_some();
            Some((asked.mkt.upgrade()?, asked.trouble.as_ref().map(|(why, _)| why.clone())))
        });
        told.collect()
    }
}

impl State {
    fn asked(&mut self, mkt: &Arc<Mkt>, now: Duration) -> &mut Asked {
        if self.asked.len() >= self.tidy_at {
            self.asked.retain(|_, asked| asked.mkt.strong_count() > 0);
            self.tidy_at = 2 * self.asked.len() + 64;
        }
        self.asked.entry(Arc::as_ptr(mkt).addr()).or_insert_with(|| Asked {
            mkt: Arc::downgrade(mkt),
            left: FORGEABLE,
            refilled: now,
            rests_until: Duration::ZERO,
            trouble: None,
            is_told: false,
        })
    }

    fn may_ask(&mut self, wanted: &Wanted, hurry: Hurry, now: Duration) -> bool {
        if now >= self.window_end {
            (self.window_end, self.waited) = (now + WINDOW, Duration::ZERO);
        }
        let is_first = hurry == Hurry::Segment && !wanted.is_forgeable;
        let budget = if is_first { WAITING } else { WAITING / 2 };
        if self.waited >= budget {
            return false;
        }
        let asked = self.asked(&wanted.mkt, now);
        asked.rests_until <= now && (!wanted.is_forgeable || asked.take_forgeable(now))
    }

    fn keep(&mut self, wanted: &Wanted, tfm: &Arc<MacTfm>, now: Duration) {
        let recent = Recent { tfm: tfm.clone(), until: now + RECENT };
        if self.recent.insert(wanted.clone(), recent).is_none() {
            self.order.push_back(wanted.clone());
        }
        while self.order.len() > MAX_RECENT {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.recent.remove(&oldest);
        }
    }
}

impl Asked {
    /// Takes one of what forgers may ask for, if there is one.
    fn take_forgeable(&mut self, now: Duration) -> bool {
        let more = now.saturating_sub(self.refilled).as_millis() * u128::from(FORGEABLE_PER_S) / 1000;
        if more > 0 {
            self.left = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(self.left).min(FORGEABLE);
            self.refilled = now;
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}
