//! Objects that the data paths of all namespaces need from their daemon.

use sealane_crypto::Registry;
use sealane_handover::Keeper;
use sealane_ipsec_data::Settings as PathSettings;
use sealane_sys::found::OnFailure;
use std::path::PathBuf;
use std::sync::Arc;

/// Objects that a daemon provides to all namespaces.
pub struct Surroundings {
    /// Algorithms.
    pub registry: Arc<Registry>,
    /// The runtime folder, in which served namespaces and their policies are noted.
    pub folder: PathBuf,
    /// Keeps states for the next daemon.
    pub keeper: Arc<Keeper>,
    /// Called when the data path of a namespace has ended by itself. Traffic covered by policies is dropped until
    /// everything is started again.
    pub on_failure: OnFailure,
}

/// The settings of all namespaces.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// Of their data paths.
    pub(crate) path: PathSettings,
    /// Whether states may have partial MACs, those too that are taken over from a former daemon.
    pub(crate) partial_macs: bool,
}

impl Surroundings {
    /// The same for a namespace that fails alone.
    pub(crate) fn with_failures_for(&self, on_failure: OnFailure) -> Self {
        let Surroundings { registry, folder, keeper, .. } = self;
        Surroundings { registry: registry.clone(), folder: folder.clone(), keeper: keeper.clone(), on_failure }
    }
}
