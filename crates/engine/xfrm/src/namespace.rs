//! The state of one network namespace.

use crate::policies::Policies;
use crate::states::States;
use crate::timers::ClockWatch;
use crate::{aevents, data, devices, keepalive, numbers, rates, serial, settings, tunnel_spis, vti};
use sealane_crypto::Registry;
use sealane_net_ipsec::transform::Transforms;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fills a buffer with random bytes.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// The parts from which an [`Xfrm`] is made.
pub struct Setup {
    /// Algorithms.
    pub registry: Arc<Registry>,
    /// Unpredictable random bytes: SPIs, salts of IVs, seeds of hash tables.
    pub random: Random,
    /// The number of possible CPUs: the limit of `XFRMA_SA_PCPU`.
    pub cpus: u32,
    /// Stable storage from which sequence numbers are leased. With `None`, a key that is added again starts at 0, and
    /// whoever allows partial MACs has to see to it that none is.
    pub numbers: Option<Box<dyn numbers::Numbers>>,
}

/// The XFRM of one network namespace.
pub struct Xfrm {
    /// States and policies as packets need them.
    pub(crate) data: data::Databases,
    /// States as key managers gave them.
    pub(crate) states: States,
    /// Policies as key managers gave them.
    pub(crate) policies: Policies,
    pub(crate) tunnel_spis: tunnel_spis::TunnelSpis,
    pub(crate) transforms: Transforms,
    pub(crate) random: Random,
    pub(crate) cpus: u32,
    pub(crate) settings: settings::Settings,
    pub(crate) aevents: aevents::Aevents,
    pub(crate) keepalives: keepalive::Keepalives,
    pub(crate) clock: ClockWatch,
    pub(crate) devices: devices::Devices,
    pub(crate) vtis: Vec<vti::VtiKeys>,
    /// The states that send at a constant rate.
    pub(crate) rates: Vec<rates::RateRule>,
    pub(crate) numbers: Option<Box<dyn numbers::Numbers>>,
    /// States that have asked for more numbers, until it is known what has become of that.
    pub(crate) renewing: BTreeMap<numbers::Series, serial::Serial>,
    /// States whose numbers could not be leased when they asked.
    pub(crate) starving: Vec<serial::Serial>,
    /// When they may ask again, by the monotonic clock.
    pub(crate) leased_again_ns: u64,
    /// Whether states may have partial MACs.
    pub(crate) partial_macs: bool,
}

impl Xfrm {
    /// An empty namespace, which lets all traffic pass.
    #[must_use]
    pub fn new(mut setup: Setup) -> Self {
        let mut seed = || {
            let mut bytes = [0; 8];
            (setup.random)(&mut bytes);
            u64::from_ne_bytes(bytes)
        };
        Xfrm {
            data: data::Databases::of(data::Owner::Alone, &mut seed),
            states: States::default(),
            policies: Policies::default(),
            tunnel_spis: tunnel_spis::TunnelSpis::default(),
            transforms: Transforms::new(setup.registry),
            random: setup.random,
            cpus: setup.cpus,
            settings: settings::Settings::default(),
            aevents: aevents::Aevents::default(),
            keepalives: keepalive::Keepalives::default(),
            clock: ClockWatch::default(),
            devices: devices::Devices::default(),
            vtis: Vec::new(),
            rates: Vec::new(),
            numbers: setup.numbers,
            renewing: BTreeMap::new(),
            starving: Vec::new(),
            leased_again_ns: 0,
            partial_macs: false,
        }
    }

    /// Random bytes.
    pub(crate) fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }
}
