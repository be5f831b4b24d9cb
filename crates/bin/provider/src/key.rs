//! Keys of the keeper: the public part is here, the private one is in its process.

use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Kind as Type, Known, Params, Requests, Value};
use crate::instance::{Instance, is_named};
use crate::names;
use core::ffi::{CStr, c_int};
use sealane_crypto_awslc::public::{Curve, Parts, PublicKey};
use sealane_keeper_client::key::Name;
use sealane_keeper_client::message::{Answer, Operation};
use sealane_keeper_client::uri::Uri;
use std::sync::Arc;

/// The parts of a key that a caller means (`OSSL_KEYMGMT_SELECT_*`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection(pub(crate) c_int);

impl Selection {
    pub(crate) fn private(self) -> bool {
        self.0 & 1 != 0
    }

    pub(crate) fn public(self) -> bool {
        self.0 & 2 != 0
    }

    /// The curve.
    pub(crate) fn domain(self) -> bool {
        self.0 & 4 != 0
    }
}

/// The types of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Rsa,
    Ec,
    Ed25519,
}

/// The types of keys, each with its names.
pub(crate) static KINDS: [(Kind, &CStr); 3] =
    [(Kind::Rsa, names::RSA), (Kind::Ec, names::EC), (Kind::Ed25519, names::ED25519)];

impl Kind {
    /// The type's name where a key is passed on.
    pub(crate) fn data_type(self) -> &'static CStr {
        match self {
            Kind::Rsa => c"RSA",
            Kind::Ec => c"EC",
            Kind::Ed25519 => c"ED25519",
        }
    }

    fn of(parts: &Parts) -> Self {
        match parts {
            Parts::Rsa { .. } => Kind::Rsa,
            Parts::Ec(..) => Kind::Ec,
            Parts::Ed25519(_) => Kind::Ed25519,
        }
    }

    /// The values that can be asked of a key.
    pub(crate) fn gettable(self) -> &'static [Known] {
        static RSA: [Known; 7] = [
            Known::new(c"bits", Type::Int),
            Known::new(c"security-bits", Type::Int),
            Known::new(c"max-size", Type::Int),
            Known::new(c"default-digest", Type::Text),
            Known::new(c"n", Type::Unsigned),
            Known::new(c"e", Type::Unsigned),
            Known::END,
        ];
        static EC: [Known; 14] = [
            Known::new(c"bits", Type::Int),
            Known::new(c"security-bits", Type::Int),
            Known::new(c"max-size", Type::Int),
            Known::new(c"default-digest", Type::Text),
            Known::new(c"encoded-pub-key", Type::Octets),
            Known::new(c"decoded-from-explicit", Type::Int),
            Known::new(c"group", Type::Text),
            Known::new(c"encoding", Type::Text),
            Known::new(c"point-format", Type::Text),
            Known::new(c"field-type", Type::Text),
            Known::new(c"pub", Type::Octets),
            Known::new(c"qx", Type::Unsigned),
            Known::new(c"qy", Type::Unsigned),
            Known::END,
        ];
        static ED25519: [Known; 6] = [
            Known::new(c"bits", Type::Int),
            Known::new(c"security-bits", Type::Int),
            Known::new(c"max-size", Type::Int),
            Known::new(c"mandatory-digest", Type::Text),
            Known::new(c"pub", Type::Octets),
            Known::END,
        ];
        match self {
            Kind::Rsa => &RSA,
            Kind::Ec => &EC,
            Kind::Ed25519 => &ED25519,
        }
    }

    /// The values of a key that come in or go out: its public part. `None` where the selection has nothing of it.
    pub(crate) fn passed(self, selection: Selection) -> Option<&'static [Known]> {
        static RSA: [Known; 3] = [Known::new(c"n", Type::Unsigned), Known::new(c"e", Type::Unsigned), Known::END];
        static GROUP: [Known; 4] = [
            Known::new(c"group", Type::Text),
            Known::new(c"encoding", Type::Text),
            Known::new(c"point-format", Type::Text),
            Known::END,
        ];
        static EC: [Known; 5] = [
            Known::new(c"group", Type::Text),
            Known::new(c"encoding", Type::Text),
            Known::new(c"point-format", Type::Text),
            Known::new(c"pub", Type::Octets),
            Known::END,
        ];
        static ED25519: [Known; 2] = [Known::new(c"pub", Type::Octets), Known::END];
        match self {
            Kind::Rsa if selection.public() => Some(&RSA),
            Kind::Ec if selection.public() => Some(&EC),
            Kind::Ec if selection.domain() => Some(&GROUP),
            Kind::Ed25519 if selection.public() => Some(&ED25519),
            _ => None,
        }
    }
}

/// Names of a curve, the one of the default provider first.
fn names_of(curve: Curve) -> (&'static CStr, &'static CStr) {
    match curve {
        Curve::P256 => (c"prime256v1", c"prime256v1:P-256:secp256r1:1.2.840.10045.3.1.7"),
        Curve::P384 => (c"secp384r1", c"secp384r1:P-384:1.3.132.0.34"),
    }
}

/// A public key, and its numbers.
pub(crate) struct Public {
    pub(crate) key: PublicKey,
    pub(crate) parts: Parts,
}

impl Public {
    fn of_parts(parts: &Parts) -> Option<Self> {
        let key = PublicKey::from_parts(parts)?;
        // As the library has them: a point may have come compressed.
        let parts = key.parts()?;
        Some(Public { key, parts })
    }

    /// The length of the modulus, or of the curve's order, in bits.
    pub(crate) fn bits(&self) -> usize {
        match &self.parts {
            Parts::Rsa { n, .. } => 8 * n.len() - n.first().map_or(0, |first| first.leading_zeros() as usize),
            Parts::Ec(curve, _) => 8 * curve.coordinate_len(),
            Parts::Ed25519(_) => 256,
        }
    }

    /// The strength in bits (SP 800-57, and the formula of FIPS 140-2's implementation guidance 7.5 for moduli that are not there).
    fn security_bits(&self) -> usize {
        match &self.parts {
            Parts::Ec(curve, _) => 4 * curve.coordinate_len(),
            Parts::Ed25519(_) => 128,
            Parts::Rsa { .. } => match self.bits() {
                ..8 => 0,
                15360 => 256,
                bits => {
                    let ln2 = core::f64::consts::LN_2;
                    let x = bits as f64 * ln2;
                    let y = ((1.923 * (x * x.ln() * x.ln()).cbrt() - 4.69) / ln2).max(0.0);
                    let rounded = (y as usize + 4) & !7;
                    rounded.min(if bits <= 7680 {
                        192
                    } else if bits <= 15360 {
                        256
                    } else {
                        1200
                    })
                }
            },
        }
    }

    /// The length of the longest signature in bytes.
    pub(crate) fn signature_len(&self) -> usize {
        match &self.parts {
            Parts::Rsa { n, .. } => n.len(),
            // Two numbers in DER, each with a zero before it, and the sequence around them.
            Parts::Ec(curve, _) => 2 * (curve.coordinate_len() + 3) + 2,
            Parts::Ed25519(_) => 64,
        }
    }
}

/// The place of a private key: which version of which key of the keeper it is.
pub(crate) struct Home {
    pub(crate) name: Name,
    pub(crate) version: u32,
}

/// A key. An empty one waits for its public part.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    public: Option<Arc<Public>>,
    home: Option<Arc<Home>>,
}

impl Key {
    pub(crate) fn empty(kind: Kind) -> Self {
        Key { kind, public: None, home: None }
    }

    /// Asks the keeper for a key. The version stays the same from then on: a server goes on with the one that its certificate is
    /// for.
    pub(crate) fn of_keeper(uri: &Uri, instance: &Instance) -> Result<Self, Failure> {
        let asked = Operation::Public { name: uri.name.clone(), version: uri.version };
        let Answer::Public { version, spki, .. } = instance.keeper().ask(asked)? else {
            return Err(Reason::KeeperWrong.into());
        };
        let key = PublicKey::from_spki(&spki);
        let public = key.and_then(|key| key.parts().map(|parts| Public { key, parts }));
        let Some(public) = public else {
            let text = format!("sealane: the keeper's public part of {} is no key", uri.name);
            return Err(Failure::text(Reason::KeeperWrong, text));
        };
        let home = Home { name: uri.name.clone(), version };
        Ok(Key { kind: Kind::of(&public.parts), public: Some(Arc::new(public)), home: Some(Arc::new(home)) })
    }

    /// This key with what is selected of it.
    pub(crate) fn duplicate(&self, selection: Selection) -> Self {
        let home = self.home.clone().filter(|_| selection.private());
        // A private part without a public one is of no use to anybody.
        let is_public = selection.public() || selection.private();
        Key { kind: self.kind, public: self.public.clone().filter(|_| is_public), home }
    }

    pub(crate) fn public(&self) -> Result<&Public, Failure> {
        self.public.as_deref().ok_or_else(|| Reason::MissingKey.into())
    }

    pub(crate) fn home(&self) -> Result<&Home, Failure> {
        self.home.as_deref().ok_or_else(|| Reason::NotAPrivateKey.into())
    }

    /// Whether all that is selected is there. Nothing is no more than nothing.
    pub(crate) fn has(&self, selection: Selection) -> bool {
        (!selection.private() || self.home.is_some())
            && (!(selection.public() || (selection.domain() && self.kind == Kind::Ec)) || self.public.is_some())
    }

    /// Whether both are the same key, as far as it is selected. Private parts are the same if the public ones are.
    pub(crate) fn is_same(&self, other: &Self, selection: Selection) -> bool {
        let (Some(ours), Some(theirs)) = (&self.public, &other.public) else {
            return self.public.is_none() && other.public.is_none();
        };
        if selection.private() || selection.public() {
            return ours.parts == theirs.parts;
        }
        match (&ours.parts, &theirs.parts) {
            (Parts::Ec(ours, _), Parts::Ec(theirs, _)) if selection.domain() => ours == theirs,
            (ours, theirs) => Kind::of(ours) == Kind::of(theirs),
        }
    }

    /// Answers what is asked of the key.
    pub(crate) fn answer(&self, asked: &mut Requests<'_>) -> Done {
        match self.kind {
            Kind::Rsa | Kind::Ec => asked.answer(c"default-digest", |p| p.text(c"SHA256"))?,
            Kind::Ed25519 => asked.answer(c"mandatory-digest", |p| p.text(c""))?,
        }
        let public = self.public()?;
        let int = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
        asked.answer(c"bits", |p| p.int(int(public.bits())))?;
        asked.answer(c"security-bits", |p| p.int(int(public.security_bits())))?;
        asked.answer(c"max-size", |p| p.int(int(public.signature_len())))?;
        match &public.parts {
            Parts::Rsa { n, e } => {
                asked.answer(c"n", |p| p.number(n))?;
                asked.answer(c"e", |p| p.number(e))
            }
            Parts::Ec(curve, point) => {
                asked.answer(c"encoded-pub-key", |p| p.octets(point))?;
                asked.answer(c"decoded-from-explicit", |p| p.int(0))?;
                asked.answer(c"group", |p| p.text(names_of(*curve).0))?;
                asked.answer(c"encoding", |p| p.text(c"named_curve"))?;
                asked.answer(c"point-format", |p| p.text(c"uncompressed"))?;
                asked.answer(c"field-type", |p| p.text(c"prime-field"))?;
                asked.answer(c"pub", |p| p.octets(point))?;
                let (x, y) = point[1..].split_at(curve.coordinate_len());
                asked.answer(c"qx", |p| p.number(significant(x)))?;
                asked.answer(c"qy", |p| p.number(significant(y)))
            }
            Parts::Ed25519(bytes) => asked.answer(c"pub", |p| p.octets(bytes)),
        }
    }

    /// The values of what is selected, for another provider. The private part stays where it is; a key without one is passed on
    /// whatever is selected, as the default provider does.
    pub(crate) fn export(&self, selection: Selection) -> Result<Vec<(&'static CStr, Value)>, Failure> {
        // libcrypto tries this before it signs, and goes on to us if we refuse: that is no error.
        if (selection.private() && self.home.is_some()) || self.kind.passed(selection).is_none() {
            return Err(Failure::SILENT);
        }
        let mut values = Vec::new();
        match &self.public()?.parts {
            Parts::Rsa { n, e } => {
                values.push((c"n", Value::Number(n.clone())));
                values.push((c"e", Value::Number(e.clone())));
            }
            Parts::Ec(curve, point) => {
                values.push((c"group", Value::Text(names_of(*curve).0)));
                values.push((c"encoding", Value::Text(c"named_curve")));
                values.push((c"point-format", Value::Text(c"uncompressed")));
                if selection.public() {
                    values.push((c"pub", Value::Octets(point.clone())));
                }
            }
            Parts::Ed25519(bytes) => values.push((c"pub", Value::Octets(bytes.to_vec()))),
        }
        Ok(values)
    }

    /// Takes the public part of a key of another provider. One that comes with its private part is refused: such keys stay with
    /// the provider that has them.
    pub(crate) fn import(&mut self, params: Params<'_>) -> Done {
        if self.public.is_some() || params.get(c"d").is_some() || params.get(c"priv").is_some() {
            return Err(Failure::SILENT);
        }
        let of = |key: &CStr| params.get(key).ok_or(Failure::SILENT);
        let parts = match self.kind {
            Kind::Rsa => Parts::Rsa { n: of(c"n")?.number()?, e: of(c"e")?.number()? },
            Kind::Ec => {
                let group = of(c"group")?.text()?;
                let curve = [Curve::P256, Curve::P384].into_iter().find(|curve| is_named(names_of(*curve).1, group));
                let point = of(c"pub")?.octets()?.unwrap_or_default();
                Parts::Ec(curve.ok_or(Failure::SILENT)?, point.to_vec())
            }
            Kind::Ed25519 => {
                let bytes = of(c"pub")?.octets()?.unwrap_or_default();
                Parts::Ed25519(bytes.try_into().map_err(|_| Failure::SILENT)?)
            }
        };
        self.public = Some(Arc::new(Public::of_parts(&parts).ok_or(Failure::SILENT)?));
        Ok(())
    }
}

/// A number without zeros before it.
fn significant(number: &[u8]) -> &[u8] {
    &number[number.iter().position(|byte| *byte != 0).unwrap_or(number.len())..]
}
