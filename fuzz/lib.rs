//! Shared parts of the targets: an engine over the portable drivers, without self-tests and without sleeping.

use sealane_crypto::rng::Entropy;
use sealane_crypto::{OpError, Registry, templates};
use sealane_crypto_portable as portable;
use sealane_engine_alg::{Caller, Errno, Host, KeyringKey, Profile, System, Task};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::segment::MAX_OPTIONS_LEN;
use sealane_wire::tcp::{Options, kind};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, LazyLock};
use zeroize::Zeroizing;

pub type Lock = parking_lot::RawMutex;
pub type Socket = sealane_engine_alg::Socket<Lock>;

pub const ROOT: Caller = Caller { privileged: true };

/// Entropy that is the same in every run, so that a crash can be reproduced.
struct Zeros;

impl Entropy for Zeros {
    fn fill(&self, out: &mut [u8]) -> Result<(), OpError> {
        out.fill(0);
        Ok(())
    }
}

/// A process and its only task, whose sleeps are interrupted at once.
pub struct Alone;

impl Host for Alone {
    fn wake(&self, _: &AtomicU32) {}
}

impl Task for Alone {
    fn wait(&self, _: &AtomicU32, _: u32) -> Result<(), Errno> {
        Err(Errno::EINTR)
    }

    /// Returns a key of N bytes for serial N; there are 64.
    fn keyring_key(&self, serial: i32, _: bool) -> Result<KeyringKey, Errno> {
        match usize::try_from(serial) {
            Ok(len @ 0..=64) => Ok(KeyringKey::Payload(Zeroizing::new(vec![serial as u8; len]))),
            _ => Err(Errno::ENOKEY),
        }
    }
}

pub fn registry() -> Registry {
    Registry::builder(|_| Ok(()))
        .rows(portable::rows())
        .templates(templates::all())
        .entropy(Arc::new(Zeros))
        .build()
}

/// The algorithms of TCP-AO.
pub fn algorithms() -> &'static Algorithms {
    static ALL: LazyLock<Algorithms> = LazyLock::new(|| Algorithms::new(&registry()));
    &ALL
}

const PROFILES: [Profile; 5] =
    [Profile::Open, Profile::Linux6_1, Profile::Linux6_12, Profile::Linux7_3, Profile::Linux7_3Restricted];

/// Returns a system with the kernel profile that `choice` selects.
pub fn system(choice: u8) -> &'static Arc<System> {
    static SYSTEMS: LazyLock<Vec<Arc<System>>> = LazyLock::new(|| {
        let registry = Arc::new(registry());
        PROFILES.iter().map(|&p| System::new(registry.clone(), p, Arc::new(Alone))).collect()
    });
    &SYSTEMS[usize::from(choice) % PROFILES.len()]
}

/// Takes numbers and bytes from the front of an input, and zeros from its end on.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&b, rest)) => {
                self.0 = rest;
                b
            }
            None => 0,
        }
    }

    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns at most `len` bytes of the input.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }

    /// Returns a length: mostly small, sometimes up to 64 KiB.
    pub fn len(&mut self) -> usize {
        match self.byte() {
            b @ 0..=199 => b.into(),
            b @ 200..=250 => usize::from(b - 200) * 16 + 200,
            _ => self.word().into(),
        }
    }
}

/// Returns these options as a signed segment has them whose own option takes `option_len` bytes: without SACK permitted
/// where no block would fit beside timestamps.
pub fn offered(options: &[u8], option_len: usize) -> Vec<u8> {
    let mut offered = options.to_vec();
    let all = || Options::new(options).map_while(Result::ok);
    let permitted = all().filter(|o| o.kind() == kind::SACK_PERMITTED).last();
    if let Some(permitted) = permitted
        && option_len + 24 > MAX_OPTIONS_LEN
        && all().any(|o| o.kind() == kind::TIMESTAMPS)
    {
        offered[permitted.at..permitted.at + permitted.bytes.len()].fill(kind::NOP);
    }
    offered
}
