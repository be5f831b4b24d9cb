//! Leases of sequence numbers for states.

use crate::convert;
use crate::devices::{is_inbound, packet_device};
use crate::namespace::Xfrm;
use crate::numbers::{FOR_GOOD, LeaseError, Leased, Numbers};
use crate::reply::plain;
use crate::serial::Serial;
use crate::state::{Km, State};
use crate::time::Now;
use core::time::Duration;
use sealane_abi::Errno;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::netlink::{Message, Messages, NLM_F_REQUEST};
use sealane_abi::xfrm::{
    Body, IPPROTO_AH, IPPROTO_ESP, Request, UsersaInfo, XFRM_MSG_NEWSA, XFRM_MSG_UPDSA, XFRM_SA_DIR_IN,
};
use sealane_net_ipsec::sa::{SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seq::Lease;
use zeroize::Zeroizing;

/// The pause before a failed write to stable storage is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The time after which somebody looks whether a lease is written down, if no packets come that do.
const SOON: Duration = Duration::from_millis(20);

/// The identity of a state's series: protocol, SPI, destination, mark, algorithms and keys.
///
/// Of a partial MAC it is the MAC's key alone. A number that was used twice under it would select twice, and be GMAC's nonce twice:
/// whatever else a state is made with, its fraction, cipher or SPI, the numbers of the key go on.
fn identity(state: &State) -> Zeroizing<Vec<u8>> {
    let info = &state.info;
    let mut bytes = Zeroizing::new(Vec::with_capacity(512));
    if let Some((_, key)) = state.partial_mac() {
        // No protocol has this number.
        bytes.push(FOR_GOOD);
        bytes.extend_from_slice(b"partial MAC");
        bytes.extend_from_slice(key);
        return bytes;
    }
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

/// Whether the packets of a state have sequence numbers.
fn has_numbers(info: &UsersaInfo) -> bool {
    matches!(info.id.proto, IPPROTO_AH | IPPROTO_ESP)
}

fn adds_state(message: &Message<'_>) -> bool {
    let header = message.header;
    matches!(header.nlmsg_type, XFRM_MSG_NEWSA | XFRM_MSG_UPDSA) && header.nlmsg_flags & NLM_F_REQUEST != 0
}

fn lease(numbers: &mut dyn Numbers, identity: &[u8], used: u64) -> Result<Leased, Reject> {
    numbers.lease(identity, used).map_err(refusal)
}

fn refusal(why: LeaseError) -> Reject {
    match why {
        LeaseError::InUse => plain(Errno::EEXIST),
        LeaseError::Storage => plain(Errno::ENOSPC),
        LeaseError::Volatile | LeaseError::Nameless => Reject::message(Errno::ENOSYS, why.text()),
        LeaseError::Full => Reject::message(Errno::ENOSPC, why.text()),
    }
}

impl Xfrm {
    /// Checks that the numbers of a state that may send can be kept as they have to be.
    pub(crate) fn check_numbers(&self, state: &State) -> Result<(), Reject> {
        match &self.numbers {
            Some(numbers) if state.dir != XFRM_SA_DIR_IN => numbers.check(&identity(state)).map_err(refusal),
            _ => Ok(()),
        }
    }

    /// Leases the numbers of a state that is to be added, where it needs any.
    pub(crate) fn lease(&mut self, state: &mut State, spec: &mut SaSpec) -> Result<(), Reject> {
        // A state in packet offload sends from its device.
        let none = state.dir == XFRM_SA_DIR_IN || packet_device(state.offload).is_some() || !has_numbers(&state.info);
        let Some(numbers) = self.numbers.as_mut().filter(|_| !none) else { return Ok(()) };
        let leased = lease(&mut **numbers, &identity(state), spec.out_number)?;
        state.series = Some(leased.series);
        (spec.out_number, spec.lease) = (leased.used, leased.lease);
        Ok(())
    }

    /// Gives a state in packet offload an empty lease; it gets numbers once it is in the table
    /// ([`Self::lease_of_device`]).
    pub(crate) fn lease_later(&self, spec: &mut SaSpec) {
        if self.numbers.is_some() && spec.device.is_some() {
            spec.lease = Lease { end: spec.out_number, block: 0 };
        }
    }

    /// Leases the numbers of a state that a device in this process has in packet offload.
    pub(crate) fn lease_of_device(&mut self, serial: Serial) -> Result<(), Reject> {
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
    pub(crate) fn last_number(&self, state: &State) -> Option<u64> {
        let stop = |sad: &mut Sad, sa: SaId| {
            let end = sad.out_number(sa)?;
            // Its device's thread goes on until it is taken out there.
            sad.renew_lease(sa, Lease { end, block: 0 });
            Some(end)
        };
        self.in_device(state, stop).unwrap_or_else(|| self.data.sad.out_number(state.sa?))
    }

    /// A state leaves the tables, or did not get there: it has used the numbers up to `used`.
    pub(crate) fn end_lease(&mut self, state: &mut State, used: Option<u64>) {
        if let (Some(series), Some(numbers)) = (state.series.take(), self.numbers.as_mut()) {
            self.renewing.remove(&series);
            numbers.end(series, used);
        }
    }

    /// Asks for more numbers for a state that has used many of its own. It goes on with what it has.
    pub(crate) fn renew_lease(&mut self, serial: Option<Serial>) {
        let Some(serial) = serial else { return };
        let Some(state) = self.states.get(serial) else { return };
        let used = self.see_sad(state, |sad, sa| sad.out_number(sa)).flatten().unwrap_or(u64::MAX);
        let (Some(series), Some(numbers)) = (state.series, self.numbers.as_mut()) else { return };
        self.renewing.insert(series, serial);
        numbers.renew(series, used);
    }

    /// Takes over the leases that have been written down since they were asked for.
    pub(crate) fn take_leases(&mut self) {
        if self.renewing.is_empty() {
            return;
        }
        let written = self.numbers.as_mut().map(|numbers| numbers.written()).unwrap_or_default();
        for (series, lease) in written {
            // Its state may be gone.
            let Some(serial) = self.renewing.remove(&series) else { continue };
            match lease {
                Some(lease) => {
                    self.with_sad(serial, |sad, sa| sad.renew_lease(sa, lease));
                }
                None => self.starving.push(serial),
            }
        }
    }

    /// Tries again what could not be written down, with a pause after each time, and takes over what has been.
    pub fn look_after_leases(&mut self, now: Now) {
        self.take_leases();
        if self.starving.is_empty() || now.monotonic_ns < self.leased_again_ns {
            return;
        }
        self.leased_again_ns = now.monotonic_ns + AGAIN.as_nanos() as u64;
        for serial in core::mem::take(&mut self.starving) {
            self.renew_lease(Some(serial));
        }
        self.take_leases();
    }

    /// In how long that is to be done.
    pub(crate) fn numbers_poll_timeout(&self, now: Now) -> Option<Duration> {
        let again = Duration::from_nanos(self.leased_again_ns.saturating_sub(now.monotonic_ns));
        let (soon, again) = (SOON, again.max(SOON));
        match (self.renewing.is_empty(), self.starving.is_empty()) {
            (false, _) => Some(soon),
            (true, false) => Some(again),
            (true, true) => None,
        }
    }

    /// Whether a request may add states.
    #[must_use]
    pub fn adds_states(datagram: &[u8]) -> bool {
        Messages::new(datagram).any(|message| adds_state(&message))
    }

    /// The identities of the series that the states need which a request adds: their numbers may be leased before the request is
    /// served ([`Self::call`]), while packets go on. A state that is not added after all needs none.
    pub fn series_of(&mut self, datagram: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
        let messages = Messages::new(datagram).filter(adds_state);
        messages.filter_map(|message| self.series_of_message(&message).ok().flatten()).collect()
    }

    fn series_of_message(&mut self, message: &Message<'_>) -> Result<Option<Zeroizing<Vec<u8>>>, Reject> {
        let request = Request::decode(message)?;
        let (Body::NewSa(info) | Body::UpdSa(info)) = request.body else { return Ok(None) };
        let mut state = State::new(info, Km::Valid);
        self.attach(&mut state, &request.attrs)?;
        state.mark = request.attrs.mark()?.unwrap_or_default();
        let is_inbound = request.attrs.sa_dir()? == Some(XFRM_SA_DIR_IN);
        Ok((!is_inbound && has_numbers(&state.info)).then(|| identity(&state)))
    }
}
