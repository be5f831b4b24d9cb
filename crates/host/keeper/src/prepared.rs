//! Symmetric keys that are ready for use.

use sealane_crypto::aead::{AeadStream, AeadTfm};
use sealane_crypto::mac::MacTfm;
use sealane_crypto::registry::TestState;
use sealane_crypto::skcipher::SkcipherTfm;
use sealane_crypto::template::Name;
use sealane_crypto::{Alg, Kind, LookupError, Registry, Row};
use std::cmp::Reverse;
use std::sync::Arc;

/// A key of one algorithm.
pub(crate) enum Prepared {
    Aead {
        tfm: AeadTfm,
        /// The key for messages in pieces, none of which has begun: each is a fork of it. `None` where the algorithm takes whole messages
        /// only.
        pieces: Option<Box<dyn AeadStream>>,
    },
    Skcipher(SkcipherTfm),
    Mac(MacTfm),
}

impl Prepared {
    /// Prepares a key. An empty one is a key only where the algorithm always takes one (HMAC).
    ///
    /// # Errors
    /// A text that says why it is none.
    pub(crate) fn new(registry: &Registry, alg: &Alg, secret: &[u8]) -> Result<Self, String> {
        use sealane_crypto::KeyUse;
        let info = alg.info();
        match info.key_use {
            KeyUse::None => return Err("it takes no key".to_owned()),
            KeyUse::Optional if secret.is_empty() => return Err("the secret is empty".to_owned()),
            KeyUse::Optional | KeyUse::Required => {}
        }
        let prepared = match info.kind {
            Kind::Aead => alg.aead(secret).map(|tfm| Prepared::Aead { tfm, pieces: pieces(registry, alg, secret) }),
            Kind::Skcipher => alg.skcipher(secret).map(Prepared::Skcipher),
            Kind::Hash => alg.mac(secret).map(Prepared::Mac),
            Kind::NonceMac | Kind::Rng => return Err("the keeper has no keys of its type".to_owned()),
        };
        prepared.map_err(|e| e.to_string())
    }

    /// The registry's type of its algorithm.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Prepared::Aead { .. } => Kind::Aead,
            Prepared::Skcipher(_) => Kind::Skcipher,
            Prepared::Mac(_) => Kind::Hash,
        }
    }
}

/// A key for messages in pieces, by the drivers that serve whole messages or, if none of them does, by the most preferred other one.
fn pieces(registry: &Registry, alg: &Alg, secret: &[u8]) -> Option<Box<dyn AeadStream>> {
    alg.aead_stream(secret).and_then(Result::ok).or_else(|| {
        let is_one = |row: &&Arc<Row>| {
            row.info.kind == Kind::Aead && row.info.name == alg.info().name && row.test_state() != TestState::Exempt
        };
        let mut rows: Vec<&Arc<Row>> = registry.rows().iter().filter(is_one).collect();
        rows.sort_by_key(|row| Reverse(row.priority));
        rows.into_iter().find_map(|row| registry.lookup(Kind::Aead, &row.driver).ok()?.aead_stream(secret)?.ok())
    })
}

/// The algorithm of a generic name.
///
/// # Errors
/// A text that says why there is none.
pub(crate) fn algorithm(registry: &Registry, kind: Kind, name: &str) -> Result<Alg, String> {
    let shown = name.escape_default();
    let failed = |e: LookupError| format!("algorithm {shown} of type {}: {e}", kind.name());
    // Before the look-up, which makes an instance of each spelling.
    if !is_generic(registry, &Name::parse(name).map_err(failed)?) {
        let text = match registry.rows().iter().find(|row| row.info.kind == kind && row.driver == name) {
            Some(row) => format!("{name} is a driver: name its algorithm, {}", row.info.name),
            None => format!("algorithm {shown}: there is none of this name, or it names a driver"),
        };
        return Err(text);
    }
    registry.lookup(kind, name).map_err(failed)
}

/// Whether a name is one of an algorithm, or is composed of such names alone.
fn is_generic(registry: &Registry, name: &Name<'_>) -> bool {
    registry.rows().iter().any(|row| row.info.name == name.text)
        || (!name.args.is_empty() && name.args.iter().all(|part| is_generic(registry, part)))
}
