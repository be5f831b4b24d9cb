//! A host and tasks made of threads, and shorthands for what a program would call.

use crate::home::FakeHome;
use sealane_abi::if_alg::{
    ALG_SET_AEAD_ASSOCLEN, ALG_SET_AEAD_AUTHSIZE, ALG_SET_IV, ALG_SET_KEY, ALG_SET_OP, AlgAddress, push_cmsg,
};
use sealane_abi::socket::{MSG_DONTWAIT, MSG_MORE, SOCK_SEQPACKET, SOL_ALG};
use sealane_crypto::home::KeyHome;
use sealane_engine_alg::{Caller, Errno, Host, KeyringKey, Profile, Received, SendMsg, System, Task};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use zeroize::Zeroizing;

pub(crate) type Socket = sealane_engine_alg::Socket<parking_lot::RawMutex>;

/// All sleepers of all tests: each looks at its own word when it is woken.
static SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

thread_local! {
    /// The sleeps of this thread that the alarm has ended.
    static INTERRUPTED: Cell<u32> = const { Cell::new(0) };
}

/// The sleeps of this thread that the alarm has ended since this was last asked.
pub(crate) fn interrupted() -> u32 {
    INTERRUPTED.take()
}

/// A task whose sleep the test's "alarm" interrupts after this time.
pub(crate) struct Sleeper(Duration);

/// A task that nobody wakes, as a rule: nothing will come, and a signal ends the call.
pub(crate) const TASK: &Sleeper = &Sleeper(Duration::from_millis(60));
/// A task that is woken by another thread, however late that runs.
pub(crate) const WOKEN: &Sleeper = &Sleeper(Duration::from_secs(60));

impl Task for Sleeper {
    fn wait(&self, word: &AtomicU32, seen: u32) -> Result<(), Errno> {
        let (lock, changed) = &SLEEPERS;
        let guard = lock.lock().unwrap();
        let (_guard, timeout) =
            changed.wait_timeout_while(guard, self.0, |()| word.load(Ordering::SeqCst) == seen).unwrap();
        if timeout.timed_out() {
            INTERRUPTED.set(INTERRUPTED.get() + 1);
            return Err(Errno::EINTR);
        }
        Ok(())
    }

    /// Serial 7 is a user key of 16 bytes 0, 1, 2, ...; 8 has 17 bytes; 9 is a keyring; 10 to 13 have descriptions that name
    /// keys of a home.
    fn keyring_key(&self, serial: i32, names: bool) -> Result<KeyringKey, Errno> {
        match serial {
            7 => Ok(KeyringKey::Payload(Zeroizing::new((0..16).collect()))),
            8 => Ok(KeyringKey::Payload(Zeroizing::new((0..17).collect()))),
            9 => Err(Errno::ENOPROTOOPT),
            10..=13 if names => {
                let name = ["known", "unknown", "no name", "unlisted"][serial as usize - 10];
                let description = format!("user;0;0;3f010000;sealane:{name}\0");
                Ok(KeyringKey::named_by(description.as_bytes()).expect("it names a key"))
            }
            10 => Ok(KeyringKey::Payload(Zeroizing::new(vec![7; 16]))),
            _ => Err(Errno::ENOKEY),
        }
    }
}

/// A host made of threads.
#[derive(Default)]
pub(crate) struct ThreadHost {
    home: Option<Arc<FakeHome>>,
    keys_are_guarded: bool,
}

impl Host for ThreadHost {
    fn wake(&self, _: &AtomicU32) {
        let _guard = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_all();
    }

    fn admits_name(&self, name: &str) -> bool {
        name != "unlisted"
    }

    fn keys_are_guarded(&self) -> bool {
        self.keys_are_guarded
    }

    fn key_home(&self) -> Option<&dyn KeyHome> {
        self.home.as_deref().map(|home| home as &dyn KeyHome)
    }
}

struct Counting;

impl sealane_crypto::rng::Entropy for Counting {
    fn fill(&self, out: &mut [u8]) -> Result<(), sealane_crypto::OpError> {
        for (i, b) in out.iter_mut().enumerate() {
            *b = (i * 7 + 1) as u8;
        }
        Ok(())
    }
}

pub(crate) fn system(profile: Profile) -> Arc<System> {
    system_with(profile, None)
}

/// A system whose keys are in `home`, if there is one.
pub(crate) fn system_with(profile: Profile, home: Option<Arc<FakeHome>>) -> Arc<System> {
    system_of(profile, ThreadHost { home, ..ThreadHost::default() })
}

/// A system whose keys are not told to other processes.
pub(crate) fn guarded_system(profile: Profile) -> Arc<System> {
    system_of(profile, ThreadHost { keys_are_guarded: true, ..ThreadHost::default() })
}

fn system_of(profile: Profile, host: ThreadHost) -> Arc<System> {
    let registry = sealane_crypto::Registry::builder(sealane_crypto_portable::self_test)
        .rows(sealane_crypto_portable::rows())
        .templates(sealane_crypto::templates::all())
        .entropy(Arc::new(Counting))
        .build();
    System::new(Arc::new(registry), profile, Arc::new(host))
}

pub(crate) const PRIVILEGED: Caller = Caller { privileged: true };
pub(crate) const MORE: u32 = MSG_MORE;
pub(crate) const DONTWAIT: u32 = MSG_DONTWAIT;

/// A new socket.
pub(crate) fn socket(sys: &Arc<System>) -> Arc<Socket> {
    Socket::create(sys, SOCK_SEQPACKET, 0).unwrap()
}

/// A bound socket.
pub(crate) fn bound(sys: &Arc<System>, kind: &str, name: &str) -> Result<Arc<Socket>, Errno> {
    let s = socket(sys);
    s.bind(TASK, &AlgAddress::build(kind, name), PRIVILEGED)?;
    Ok(s)
}

pub(crate) fn set_key(s: &Socket, key: &[u8]) -> Result<(), Errno> {
    s.setsockopt(TASK, SOL_ALG, ALG_SET_KEY, Some(key), key.len(), PRIVILEGED)
}

pub(crate) fn set_tag_len(s: &Socket, len: usize) -> Result<(), Errno> {
    s.setsockopt(TASK, SOL_ALG, ALG_SET_AEAD_AUTHSIZE, None, len, PRIVILEGED)
}

/// A bound socket with a key.
pub(crate) fn keyed(sys: &Arc<System>, kind: &str, name: &str, key: &[u8]) -> Arc<Socket> {
    let s = bound(sys, kind, name).unwrap();
    set_key(&s, key).unwrap();
    s
}

/// Control messages: operation, IV, length of the associated data.
pub(crate) fn control(op: Option<u32>, iv: Option<&[u8]>, assoc: Option<u32>) -> Vec<u8> {
    let mut c = Vec::new();
    if let Some(op) = op {
        push_cmsg(&mut c, SOL_ALG, ALG_SET_OP, &[&op.to_ne_bytes()]);
    }
    if let Some(iv) = iv {
        push_cmsg(&mut c, SOL_ALG, ALG_SET_IV, &[&(iv.len() as u32).to_ne_bytes(), iv]);
    }
    if let Some(assoc) = assoc {
        push_cmsg(&mut c, SOL_ALG, ALG_SET_AEAD_ASSOCLEN, &[&assoc.to_ne_bytes()]);
    }
    c
}

pub(crate) fn send(s: &Socket, data: &[u8], flags: u32) -> Result<usize, Errno> {
    send_by(TASK, s, data, flags)
}

pub(crate) fn send_by(task: &Sleeper, s: &Socket, data: &[u8], flags: u32) -> Result<usize, Errno> {
    s.sendmsg(task, &SendMsg { data: &[data], flags, ..SendMsg::default() })
}

pub(crate) fn sendmsg(s: &Socket, data: &[u8], control: &[u8], flags: u32) -> Result<usize, Errno> {
    s.sendmsg(TASK, &SendMsg { data: &[data], control, flags, ..SendMsg::default() })
}

pub(crate) fn recv(s: &Socket, len: usize, flags: u32) -> Result<Vec<u8>, Errno> {
    recvmsg(s, len, flags).map(|(data, _)| data)
}

pub(crate) fn recvmsg(s: &Socket, len: usize, flags: u32) -> Result<(Vec<u8>, Received), Errno> {
    recvmsg_by(TASK, s, len, flags)
}

pub(crate) fn recvmsg_by(task: &Sleeper, s: &Socket, len: usize, flags: u32) -> Result<(Vec<u8>, Received), Errno> {
    let mut out = vec![0; len];
    let got = s.recvmsg(task, &mut [&mut out], flags)?;
    out.truncate(got.len);
    Ok((out, got))
}
