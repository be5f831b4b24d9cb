//! Traffic keys, and those that are still to be derived because their master key is elsewhere.
//!
//! Whoever has such a master key has to be asked, and may take its time or not answer. So nothing here derives by it: the choice of a
//! key for a segment, and a connection that begins, give a [`Wanted`] in place of the key. Its owner has it derived where nobody waits
//! for a lock, and puts it into the connection ([`crate::ao::info::AoInfo::learn`]). Without it the segment is dropped.

use crate::ao::kdf::Context;
use crate::ao::mkt::Mkt;
use core::hash::{Hash, Hasher};
use sealane_crypto::KeyError;
use sealane_crypto::mac::MacTfm;
use std::sync::Arc;

/// The MAC under a traffic key.
#[derive(Clone)]
pub enum Traffic {
    /// It is here.
    Here(Arc<MacTfm>),
    /// The key is still to be derived.
    Wanted(Wanted),
}

/// A traffic key that is to be derived where its master key is. Two are equal if they are the same key.
#[derive(Clone)]
pub struct Wanted {
    /// The master key tuple.
    pub mkt: Arc<Mkt>,
    /// The direction of a connection.
    pub context: Context,
    /// Whether a segment that nobody has verified yet chose the numbers of the context: whoever forges segments may ask for any number
    /// of such keys.
    pub is_forgeable: bool,
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mkt, &other.mkt) && self.context == other.context
    }
}

impl Eq for Wanted {}

impl Hash for Wanted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.mkt).hash(state);
        self.context.hash(state);
    }
}

impl Wanted {
    /// Has the key derived. This waits for whoever has the master key: no lock may be held.
    ///
    /// # Errors
    /// [`KeyError::Driver`] if there is no answer, or no key.
    pub fn derive(&self) -> Result<Arc<MacTfm>, KeyError> {
        self.mkt.traffic_mac_elsewhere(&self.context).map(Arc::new)
    }
}

impl Traffic {
    /// The key of a direction, derived now unless the master key is elsewhere.
    ///
    /// # Errors
    /// [`KeyError`] when a driver fails; software drivers do not.
    pub fn of(mkt: &Arc<Mkt>, context: &Context) -> Result<Self, KeyError> {
        if mkt.reference().is_some() {
            return Ok(Self::later(mkt, context));
        }
        mkt.traffic_mac(context).map(Arc::new).map(Traffic::Here)
    }

    /// The key of a direction, to be derived later.
    #[must_use]
    pub fn later(mkt: &Arc<Mkt>, context: &Context) -> Self {
        Traffic::Wanted(Wanted { mkt: mkt.clone(), context: *context, is_forgeable: false })
    }

    /// The same, with the numbers of a segment that nobody has verified.
    #[must_use]
    pub fn forgeable(self) -> Self {
        match self {
            Traffic::Wanted(wanted) => Traffic::Wanted(Wanted { is_forgeable: true, ..wanted }),
            here @ Traffic::Here(_) => here,
        }
    }

    /// The MAC, if it is here.
    #[must_use]
    pub fn here(&self) -> Option<&Arc<MacTfm>> {
        match self {
            Traffic::Here(tfm) => Some(tfm),
            Traffic::Wanted(_) => None,
        }
    }

    /// The key that is still to be derived.
    #[must_use]
    pub fn wanted(&self) -> Option<&Wanted> {
        match self {
            Traffic::Here(_) => None,
            Traffic::Wanted(wanted) => Some(wanted),
        }
    }

    /// Whether both are the same prepared key, or the same one that is to be derived.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Traffic::Here(one), Traffic::Here(other)) => Arc::ptr_eq(one, other),
            (Traffic::Wanted(one), Traffic::Wanted(other)) => one == other,
            _ => false,
        }
    }
}
