//! The engine's system inside a program, made at the first socket.

use crate::arena::Arena;
use crate::audit;
use crate::fork;
use crate::home::WIPING;
use crate::place::{self, Place};
use crate::{keeper, key_memory, sys, thread};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use sealane_crypto::home::KeyHome;
use sealane_crypto::wipe::{STACK_LEN, wipe_traces};
use sealane_engine_alg::{Host, NetDefaults, Profile, System};
use sealane_keeper_client::home::KeeperHome;
use std::sync::Arc;

/// The system, made now if need be.
///
/// # Errors
/// `ENOMEM`; those of [`place::of_keys`] and [`key_memory::make`].
pub(crate) fn get() -> Result<Arc<System>, i32> {
    let arena = fork::ensure()?;
    let known = arena.system.load(Ordering::Acquire);
    let known = if known.is_null() { make(arena)? } else { known };
    // SAFETY: the pointer came from Arc::into_raw and its own count is never given back.
    unsafe {
        Arc::increment_strong_count(known);
        Ok(Arc::from_raw(known))
    }
}

#[cold]
fn make(arena: &Arena) -> Result<*mut System, i32> {
    let _commons = thread::within(core::ptr::null_mut());
    let _making = arena.making.lock();
    let known = arena.system.load(Ordering::Acquire);
    if !known.is_null() {
        return Ok(known);
    }
    crate::entry::name_panics();
    let (mut home, mut keys_are_guarded) = (None, false);
    match place::of_keys()? {
        Place::Process => {}
        Place::Guarded { is_strict } => {
            key_memory::make(is_strict)?;
            keys_are_guarded = true;
        }
        Place::Keeper(path) => home = Some(keeper::home(path)),
    }
    let profile = match sys::env(c"SEALANE_PROFILE") {
        None => Profile::default(),
        Some(name) => name.parse().unwrap_or_else(|_| {
            sys::complain(format_args!("SEALANE_PROFILE: no profile of this name; using the default"));
            Profile::default()
        }),
    };
    let table = match sealane_drivers::tables::load() {
        Ok((table, _)) => table,
        Err(e) => {
            sys::complain(format_args!("calibration: {e}; using the shipped table"));
            sealane_drivers::tables::shipped().0
        }
    };
    let registry = sealane_drivers::registry(table, Arc::new(sealane_drivers::SystemEntropy));
    let host = Arc::new(ProcessHost { net: net_defaults(), home, keys_are_guarded });
    audit::begin();
    let system = System::new(Arc::new(registry), profile, host);
    let made = Arc::into_raw(system).cast_mut();
    arena.system.store(made, Ordering::Release);
    Ok(made)
}

/// The host inside a program.
struct ProcessHost {
    net: NetDefaults,
    home: Option<KeeperHome>,
    keys_are_guarded: bool,
}

impl Host for ProcessHost {
    fn wake(&self, word: &AtomicU32) {
        sys::futex_wake(word, i32::MAX);
    }

    fn without_traces(&self, f: &mut dyn FnMut()) {
        // Of all threads: that costs little, and harms nothing.
        WIPING.fetch_add(1, Ordering::Relaxed);
        f();
        WIPING.fetch_sub(1, Ordering::Relaxed);
        wipe_traces(sys::stack_room(STACK_LEN));
    }

    fn admits_name(&self, name: &str) -> bool {
        crate::environment::taken().admits(name)
    }

    fn keys_are_guarded(&self) -> bool {
        self.keys_are_guarded
    }

    fn key_home(&self) -> Option<&dyn KeyHome> {
        self.home.as_ref().map(|home| home as &dyn KeyHome)
    }

    fn common(&self, f: &mut dyn FnMut()) {
        // Outside of every socket's home.
        let _commons = thread::within(core::ptr::null_mut());
        let _making = crate::arena::existing().map(|arena| arena.making.lock());
        f();
    }

    fn words(&self, n: usize) -> &'static [AtomicU32] {
        let len = n * size_of::<AtomicU32>();
        match sys::map_shared(len) {
            None => (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>().leak(),
            Some(at) => {
                WORDS_LEN.store(len, Ordering::Relaxed);
                WORDS.store(at, Ordering::Release);
                // SAFETY: mapped for good, and zeros are atomics.
                unsafe { core::slice::from_raw_parts(at.cast(), n) }
            }
        }
    }

    fn net_defaults(&self) -> NetDefaults {
        self.net
    }
}

/// The words of the imitated kernel's list of algorithms, which this process shares with its children.
static WORDS: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static WORDS_LEN: AtomicUsize = AtomicUsize::new(0);

/// Makes what the system shares with other processes this process's own. False: there is no memory.
pub(crate) fn part() -> bool {
    let at = WORDS.swap(core::ptr::null_mut(), Ordering::Acquire);
    // SAFETY: our mapping, of atomics that bear any change.
    at.is_null() || unsafe { sys::make_private(at, WORDS_LEN.load(Ordering::Relaxed)) }
}

/// The sizes that the machine's administrator has set.
fn net_defaults() -> NetDefaults {
    let word = |path: &core::ffi::CStr| -> Option<u32> {
        let mut buf = [0u8; 16];
        let text = crate::proc::slurp(path, &mut buf, |_| true)?;
        core::str::from_utf8(text).ok()?.trim().parse().ok()
    };
    let usual = NetDefaults::default();
    NetDefaults {
        wmem_default: word(c"/proc/sys/net/core/wmem_default").unwrap_or(usual.wmem_default),
        wmem_max: word(c"/proc/sys/net/core/wmem_max").unwrap_or(usual.wmem_max),
        rmem_default: word(c"/proc/sys/net/core/rmem_default").unwrap_or(usual.rmem_default),
        rmem_max: word(c"/proc/sys/net/core/rmem_max").unwrap_or(usual.rmem_max),
        optmem_max: word(c"/proc/sys/net/core/optmem_max").unwrap_or(usual.optmem_max),
    }
}
