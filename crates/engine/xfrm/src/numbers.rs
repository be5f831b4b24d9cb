//! Sequence numbers that outlive this process: what has been leased is in stable storage before a packet uses it, so that no
//! number is sent twice under one key, whoever adds the key again after a crash.
//!
//! A series is the numbers of one key in one state: protocol, SPI, destination, mark, algorithms and keys name it. A state
//! for input only has none. Where a series goes on from is not told before a packet has used it: until then a key manager
//! hears the numbers that it said.

use super::offload::{is_inbound, packet_device};
use super::state::State;
use super::states::Serial;
use super::{Xfrm, convert, plain};
use core::time::Duration;
use sealane_abi::Errno;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::XFRM_SA_DIR_IN;
use sealane_net::ipsec::sa::{SaId, SaSpec};
use sealane_net::ipsec::sad::Sad;
use sealane_net::ipsec::seq::Lease;
use zeroize::Zeroizing;

/// The name of a series, which tells nothing of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Series(pub [u8; 16]);

/// What may be sent in a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    /// The series.
    pub series: Series,
    /// The last number that may have been used before.
    pub used: u64,
    /// Which numbers behind it may be used.
    pub lease: Lease,
}

/// Why there is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unleased {
    /// Another state uses the series.
    InUse,
    /// It cannot be written down.
    Storage,
}

/// Stable storage of sequence numbers.
pub trait Numbers: Send {
    /// Leases numbers of the series that `identity` makes, which holds keys, behind `used` and behind all that was leased
    /// before.
    ///
    /// # Errors
    /// [`Unleased`].
    fn lease(&mut self, identity: &[u8], used: u64) -> Result<Leased, Unleased>;

    /// Leases more of a series that has used the numbers up to `used`; `None` when that cannot be written down.
    fn renew(&mut self, series: Series, used: u64) -> Option<Lease>;

    /// A series is not in use any more, and has used the numbers up to `used` for certain; `None` when only the storage
    /// knows, by what was leased.
    fn end(&mut self, series: Series, used: Option<u64>);
}

/// How long it is waited until something that could not be written down is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What makes a series.
fn identity(state: &State) -> Zeroizing<Vec<u8>> {
    let info = &state.info;
    let mut bytes = Zeroizing::new(Vec::with_capacity(512));
    bytes.extend_from_slice(&[info.id.proto, info.family as u8]);
    bytes.extend_from_slice(&info.id.spi.get().to_be_bytes());
    bytes.extend_from_slice(&convert::key(&info.id.daddr, info.family));
    for word in [state.mark.v & state.mark.m, state.mark.m] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    let aead = state.aead.as_ref().map(|a| (a.name(), a.alg_key.expose()));
    let crypt = state.crypt.as_ref().map(|a| (a.name(), a.alg_key.expose()));
    let auth = state.auth.as_ref().map(|a| (a.name(), a.alg_key.expose()));
    for (name, key) in [aead, crypt, auth].into_iter().map(Option::unwrap_or_default) {
        for part in [name, key] {
            bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

fn lease(numbers: &mut dyn Numbers, identity: &[u8], used: u64) -> Result<Leased, Reject> {
    numbers.lease(identity, used).map_err(|why| match why {
        Unleased::InUse => plain(Errno::EEXIST),
        Unleased::Storage => plain(Errno::ENOSPC),
    })
}

impl Xfrm {
    /// Leases the numbers of a state that is to be added, where it needs any.
    pub(super) fn lease(&mut self, state: &mut State, spec: &mut SaSpec) -> Result<(), Reject> {
        // What a device has in packet offload is not sent from here.
        let none = state.dir == XFRM_SA_DIR_IN || packet_device(state.offload).is_some();
        let Some(numbers) = self.numbers.as_mut().filter(|_| !none) else { return Ok(()) };
        let leased = lease(&mut **numbers, &identity(state), spec.out_number)?;
        state.series = Some(leased.series);
        (spec.out_number, spec.lease) = (leased.used, leased.lease);
        Ok(())
    }

    /// What a device is to have in packet offload has no numbers until it has its place ([`Self::lease_of_device`]).
    pub(super) fn lease_later(&self, spec: &mut SaSpec) {
        if self.numbers.is_some() && spec.device.is_some() {
            spec.lease = Lease { end: spec.out_number, block: 0 };
        }
    }

    /// Leases the numbers of a state that a device in this process has in packet offload.
    pub(super) fn lease_of_device(&mut self, serial: Serial) -> Result<(), Reject> {
        let Some(state) = self.states.get(serial) else { return Ok(()) };
        if packet_device(state.offload).is_none() || self.numbers.is_none() {
            return Ok(());
        }
        let (incoming, identity) = (state.dir == XFRM_SA_DIR_IN || is_inbound(state.offload), identity(state));
        let out_number = self.in_device(state, |sad, sa| sad.out_number(sa)).flatten();
        let Some(out_number) = out_number.filter(|_| !incoming) else { return Ok(()) };
        let Some(numbers) = self.numbers.as_mut() else { return Ok(()) };
        let leased = lease(&mut **numbers, &identity, out_number)?;
        if let Some(state) = self.states.get_mut(serial) {
            state.series = Some(leased.series);
        }
        self.with_sad(serial, |sad, sa| {
            // Nothing has been sent and nothing goes back.
            let top = sad.get(sa).map_or(0, |sa| sa.window().top());
            let _ = sad.set_replay(sa, leased.used, top, []);
            sad.renew_lease(sa, leased.lease);
        });
        Ok(())
    }

    /// The last number that a state has used, which uses none any more.
    pub(super) fn last_number(&self, state: &State) -> Option<u64> {
        let stop = |sad: &mut Sad, sa: SaId| {
            let end = sad.out_number(sa)?;
            // Its device's thread goes on until it is taken out there.
            sad.renew_lease(sa, Lease { end, block: 0 });
            Some(end)
        };
        self.in_device(state, stop).unwrap_or_else(|| self.data.sad.out_number(state.sa?))
    }

    /// A state leaves the tables, or did not get there: it has used the numbers up to `used`.
    pub(super) fn end_lease(&mut self, state: &mut State, used: Option<u64>) {
        if let (Some(series), Some(numbers)) = (state.series.take(), self.numbers.as_mut()) {
            numbers.end(series, used);
        }
    }

    /// Leases more numbers for a state that has used most of its own.
    pub(super) fn renew_lease(&mut self, serial: Option<Serial>) {
        let Some(serial) = serial else { return };
        if !self.try_renew(serial) {
            self.starving.push(serial);
        }
    }

    fn try_renew(&mut self, serial: Serial) -> bool {
        let Some(state) = self.states.get(serial) else { return true };
        let used = self.see_sad(state, |sad, sa| sad.out_number(sa)).flatten().unwrap_or(u64::MAX);
        let (Some(series), Some(numbers)) = (state.series, self.numbers.as_mut()) else { return true };
        let Some(lease) = numbers.renew(series, used) else { return false };
        self.with_sad(serial, |sad, sa| sad.renew_lease(sa, lease));
        true
    }

    /// Tries again what could not be written down.
    pub(super) fn numbers_timeout(&mut self) {
        let starving = core::mem::take(&mut self.starving);
        let still = starving.into_iter().filter(|serial| !self.try_renew(*serial)).collect();
        self.starving = still;
    }

    /// In how long that is to be done.
    pub(super) fn numbers_poll_timeout(&self) -> Option<Duration> {
        (!self.starving.is_empty()).then_some(AGAIN)
    }
}
