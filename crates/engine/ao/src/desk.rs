//! The desk at which traffic keys are asked for whose master keys are elsewhere.
//!
//! Whoever has the master keys may be slow, hang or say no, and anybody may send segments for which a key is wanted. So
//! - asking has a budget of time, by which segments wait, for each kind of asking: a flood of one kind leaves the others theirs;
//! - a key of which somebody said no is not asked for again at once;
//! - what forgers, programs of this host and readers of our segments may ask for is limited for each master key, and one that is not
//!   attacked has some time of its own while others spend that of its kind;
//! - answers are kept for a moment, because the segments of a handshake ask for the same keys one after another.
//!
//! A segment without its key is dropped, and TCP repeats it.

use core::time::Duration;
use sealane_crypto::mac::MacTfm;
use sealane_net_ao::mkt::Mkt;
use sealane_net_ao::traffic::{Origin, Wanted};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The time in which there are the budgets of [`Lane::waiting`].
const WINDOW: Duration = Duration::from_secs(2);
/// The number of [lanes](Lane).
const LANES: usize = 6;
/// The answers in a [`WINDOW`] for which a master key may use [`Lane::Spare`], for each origin.
const SPARED: u32 = 2;
/// The time in which a key of which somebody said no is not asked for.
const REST: Duration = Duration::from_secs(2);
/// The answers for each master key that may be asked for at once by each of those who can ask for any number, and the time in which
/// there is one more: 16 in a second.
const AT_ONCE: u32 = 64;
const ONE_MORE: Duration = Duration::from_micros(62_500);
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

/// Askers that have their own budget of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Connections whose numbers are known, and a segment waits.
    Known,
    /// Connections of which no segment waits yet.
    Later,
    /// Segments that nobody has verified.
    Forged,
    /// First segments of this host's programs.
    Begun,
    /// Answers to these that nobody has verified.
    Answer,
    /// Master keys for which hardly anything was asked, when the lane of its origin is spent by others.
    Spare,
}

impl Lane {
    fn of(origin: Origin, hurry: Hurry) -> Self {
        match (hurry, origin) {
            (Hurry::Later, _) => Lane::Later,
            (Hurry::Segment, Origin::Known) => Lane::Known,
            (Hurry::Segment, Origin::Forged) => Lane::Forged,
            (Hurry::Segment, Origin::Begun) => Lane::Begun,
            (Hurry::Segment, Origin::Answer) => Lane::Answer,
        }
    }

    /// The time for which it may wait in a [`WINDOW`] before nobody is asked any more for it. The last answer may come later than that.
    /// It is a tenth of a second for all of them.
    const fn waiting(self) -> Duration {
        Duration::from_millis(match self {
            Lane::Known => 30,
            Lane::Later | Lane::Forged => 20,
            Lane::Begun | Lane::Answer | Lane::Spare => 10,
        })
    }
}

/// The master keys that are not asked for at a moment.
pub struct Resting(HashSet<usize>);

impl Resting {
    /// Whether the master key of `wanted` is one of them.
    #[must_use]
    pub fn has(&self, wanted: &Wanted) -> bool {
        self.0.contains(&Arc::as_ptr(&wanted.mkt).addr())
    }
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
    /// The answers that may be asked for by those who can ask for any number, by the origin of what is wanted.
    forged: Bucket,
    begun: Bucket,
    answers: Bucket,
    /// Until when it is not asked for.
    rests_until: Duration,
    /// The reason why it was refused when it was last asked for, and when that was.
    trouble: Option<(String, Duration)>,
    /// Whether [`Desk::news`] has told of the trouble.
    is_told: bool,
}

/// A number of answers that may still be asked for.
struct Bucket {
    left: u32,
    /// The moment up to which it has become more.
    refilled: Duration,
    /// The end of the window in which answers were last asked for, and their number in it.
    window_end: Duration,
    asked: u32,
}

#[derive(Default)]
struct State {
    /// The end of the window, and how long each [`Lane`] has waited in it.
    window_end: Duration,
    waited: [Duration; LANES],
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
        let lane = {
            let mut state = self.state();
            if let Some(recent) = state.recent.get(wanted).filter(|recent| now < recent.until) {
                return Some(recent.tfm.clone());
            }
            state.may_ask(wanted, hurry, now)?
        };
        let answer = wanted.derive();
        let done = clock();
        let mut state = self.state();
        state.waited[lane as usize] += done.saturating_sub(now);
        match answer {
            Ok(tfm) => {
                state.asked(&wanted.mkt, done).trouble = None;
                state.keep(wanted, &tfm, done);
                Some(tfm)
            }
            Err(_) => {
                let is_elsewhere = wanted.mkt.reference().is_some();
                let why = if is_elsewhere { (self.why)() } else { "a driver has failed".to_owned() };
                let asked = state.asked(&wanted.mkt, done);
                asked.rests_until = done + REST;
                asked.trouble = Some((why, done));
                None
            }
        }
    }

    /// The master keys that are not asked for now, because somebody has said no.
    #[must_use]
    pub fn resting(&self, now: Duration) -> Resting {
        let state = self.state();
        let resting = state.asked.iter().filter(|(_, asked)| asked.rests_until > now);
        Resting(resting.map(|(address, _)| *address).collect())
    }

    /// Whether there is time now for what is not urgent.
    #[must_use]
    pub fn has_time(&self, now: Duration) -> bool {
        let mut state = self.state();
        state.begin_window(now);
        state.has_time(Lane::Later)
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
            forged: Bucket::full(now),
            begun: Bucket::full(now),
            answers: Bucket::full(now),
            rests_until: Duration::ZERO,
            trouble: None,
            is_told: false,
        })
    }

    fn begin_window(&mut self, now: Duration) {
        if now >= self.window_end {
            (self.window_end, self.waited) = (now + WINDOW, [Duration::ZERO; LANES]);
        }
    }

    fn has_time(&self, lane: Lane) -> bool {
        self.waited[lane as usize] < lane.waiting()
    }

    /// The lane in which a key may be asked for now.
    fn may_ask(&mut self, wanted: &Wanted, hurry: Hurry, now: Duration) -> Option<Lane> {
        self.begin_window(now);
        let lane = Lane::of(wanted.origin, hurry);
        let (has_time, has_spare, window_end) = (self.has_time(lane), self.has_time(Lane::Spare), self.window_end);
        let asked = self.asked(&wanted.mkt, now);
        if asked.rests_until > now {
            return None;
        }
        let Some(bucket) = asked.bucket(wanted.origin) else { return has_time.then_some(lane) };
        let asked_before = if bucket.window_end == window_end { bucket.asked } else { 0 };
        let is_spared = !has_time && has_spare && asked_before < SPARED;
        if !(has_time || is_spared) || !bucket.take(now) {
            return None;
        }
        (bucket.window_end, bucket.asked) = (window_end, asked_before + 1);
        Some(if is_spared { Lane::Spare } else { lane })
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
    /// The answers that may be taken for an origin; `None` if that is not limited.
    fn bucket(&mut self, origin: Origin) -> Option<&mut Bucket> {
        match origin {
            Origin::Known => None,
            Origin::Forged => Some(&mut self.forged),
            Origin::Begun => Some(&mut self.begun),
            Origin::Answer => Some(&mut self.answers),
        }
    }
}

impl Bucket {
    fn full(now: Duration) -> Self {
        Bucket { left: AT_ONCE, refilled: now, window_end: Duration::ZERO, asked: 0 }
    }

    /// Takes one, if there is one.
    fn take(&mut self, now: Duration) -> bool {
        let more = now.saturating_sub(self.refilled).as_nanos() / ONE_MORE.as_nanos();
        let missing = AT_ONCE - self.left;
        match u32::try_from(more).ok().filter(|more| *more < missing) {
            // What is left of the time counts for the next one.
            Some(more) => (self.left, self.refilled) = (self.left + more, self.refilled + ONE_MORE * more),
            None => (self.left, self.refilled) = (AT_ONCE, now),
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}
