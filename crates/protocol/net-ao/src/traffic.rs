//! Traffic keys, and those that are still to be derived because their master key is elsewhere.
//!
//! Whoever has such a master key has to be asked, and may take its time or not answer. So nothing here derives by it: the choice of a
//! key for a segment, and a connection that begins, give a [`Wanted`] in place of the key. Its owner has it derived where nobody waits
//! for a lock, and puts it into the connection ([`crate::info::AoInfo::learn`]). Without it the segment is dropped.

use crate::kdf::Context;
use crate::mkt::Mkt;
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

/// The reason why a traffic key is wanted: it tells who can have any number of keys derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A connection whose numbers are known, or an answer to a verified segment.
    Known,
    /// A segment that nobody has verified chose the numbers: anybody who can send it.
    Forged,
    /// The first segment of a connection that begins here: the programs of this host.
    Begun,
    /// A segment that nobody has verified answers our first one and knows its ISN: whoever reads what we send.
    Answer,
}

/// A traffic key that is to be derived where its master key is. Two are equal if they are the same key, whatever their origin.
#[derive(Clone)]
pub struct Wanted {
    /// The master key tuple.
    pub mkt: Arc<Mkt>,
    /// The direction of a connection.
    pub context: Context,
    /// The reason why it is wanted.
    pub origin: Origin,
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
        Traffic::Wanted(Wanted { mkt: mkt.clone(), context: *context, origin: Origin::Known })
    }

    /// The same, wanted for another reason.
    #[must_use]
    pub fn wanted_by(self, origin: Origin) -> Self {
        match self {
            Traffic::Wanted(wanted) => Traffic::Wanted(Wanted { origin, ..wanted }),
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

    /// The MAC, which is `derived` where the master key is elsewhere.
    #[must_use]
    pub fn tfm<'t>(&'t self, derived: Option<&'t Arc<MacTfm>>) -> Option<&'t Arc<MacTfm>> {
        match self {
            Traffic::Here(tfm) => Some(tfm),
            Traffic::Wanted(_) => derived,
        }
    }

    /// The key that was still to be derived, with the MAC that is `derived`.
    #[must_use]
    pub fn learnt<'t>(&'t self, derived: Option<&'t Arc<MacTfm>>) -> Option<(&'t Wanted, &'t Arc<MacTfm>)> {
        self.wanted().zip(derived)
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
