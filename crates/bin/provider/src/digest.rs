//! Digests: MD5, SHA-1, SHA-2, SHA-3 and SHAKE.

mod sponge;
mod truncated;

use crate::failure::{Done, Failure};
use crate::ffi::Params;
use crate::instance::{AlgId, Instance};
use crate::names;
use core::ffi::CStr;
use sealane_crypto::hash::HashState;

pub(crate) use sponge::Sponge;
pub(crate) use truncated::{sha512_224, sha512_256};

/// A digest that is offered.
pub(crate) struct DigestRow {
    /// Its names and its object identifier, as the default provider has them.
    pub(crate) names: &'static CStr,
    /// Bytes that are compressed at a time.
    pub(crate) block_len: usize,
    /// Length in bytes; of an extendable output the one that it has where none is asked for.
    pub(crate) len: usize,
    /// Whether the output has any length.
    pub(crate) xof: bool,
    /// Whether an AlgorithmIdentifier of it has no parameters.
    pub(crate) algid_absent: bool,
    start: Start,
}

/// The way a message is started.
enum Start {
    /// An algorithm of the core.
    Core(AlgId),
    /// An algorithm that the core lacks, because Linux does.
    Here(fn() -> Box<dyn HashState>),
    /// One of them with an extendable output, by the length of its block.
    Shake(usize),
}

const fn row(names: &'static CStr, block_len: usize, len: usize, start: Start) -> DigestRow {
    DigestRow { names, block_len, len, xof: false, algid_absent: true, start }
}

const fn core(names: &'static CStr, block_len: usize, len: usize, name: &str) -> DigestRow {
    row(names, block_len, len, Start::Core(AlgId::of(name)))
}

const fn shake(names: &'static CStr, block_len: usize, len: usize) -> DigestRow {
    DigestRow { xof: true, ..row(names, block_len, len, Start::Shake(block_len)) }
}

/// The digests that are offered.
pub(crate) static DIGESTS: [DigestRow; 14] = [
    DigestRow { algid_absent: false, ..core(names::MD5, 64, 16, "md5") },
    core(names::SHA1, 64, 20, "sha1"),
    core(names::SHA2_224, 64, 28, "sha224"),
    core(names::SHA2_256, 64, 32, "sha256"),
    core(names::SHA2_384, 128, 48, "sha384"),
    core(names::SHA2_512, 128, 64, "sha512"),
    row(names::SHA2_512_224, 128, 28, Start::Here(sha512_224)),
    row(names::SHA2_512_256, 128, 32, Start::Here(sha512_256)),
    core(names::SHA3_224, 144, 28, "sha3-224"),
    core(names::SHA3_256, 136, 32, "sha3-256"),
    core(names::SHA3_384, 104, 48, "sha3-384"),
    core(names::SHA3_512, 72, 64, "sha3-512"),
    shake(c"SHAKE-128:SHAKE128:2.16.840.1.101.3.4.2.11", 168, 16),
    shake(c"SHAKE-256:SHAKE256:2.16.840.1.101.3.4.2.12", 136, 32),
];

/// A running digest.
pub(crate) struct Digest {
    state: State,
    len: usize,
    /// Whether nothing of a message has come since the last reset, so that there is nothing to forget.
    is_fresh: bool,
}

enum State {
    Fixed(Box<dyn HashState>),
    /// In a box, so that the others are small.
    Extendable(Box<Sponge>),
    /// An extendable output that has been asked for as a whole; the sponge is that of an empty message.
    Ended(Box<Sponge>),
}

impl Digest {
    pub(crate) fn new(row: &DigestRow, instance: &Instance) -> Result<Self, Failure> {
        let state = match row.start {
            Start::Core(id) => State::Fixed(instance.alg(id)?.hash_state()),
            Start::Here(start) => State::Fixed(start()),
            Start::Shake(rate) => State::Extendable(Box::new(Sponge::shake(rate))),
        };
        Ok(Digest { state, len: row.len, is_fresh: true })
    }

    pub(crate) fn duplicate(&self) -> Self {
        let state = match &self.state {
            State::Fixed(hash) => State::Fixed(hash.fork()),
            State::Extendable(sponge) => State::Extendable(sponge.clone()),
            State::Ended(sponge) => State::Ended(sponge.clone()),
        };
        Digest { state, len: self.len, is_fresh: self.is_fresh }
    }

    pub(crate) fn reset(&mut self) {
        if self.is_fresh {
            return;
        }
        match &mut self.state {
            State::Fixed(hash) => hash.reset(),
            State::Extendable(sponge) => sponge.reset(),
            State::Ended(sponge) => self.state = State::Extendable(sponge.clone()),
        }
        self.is_fresh = true;
    }

    /// Is as a new one, and has nothing of a message.
    pub(crate) fn renew(&mut self, row: &DigestRow) {
        self.reset();
        self.len = row.len;
    }

    /// Takes more of the message, whose output has not begun.
    pub(crate) fn update(&mut self, data: &[u8]) -> Done {
        self.is_fresh = false;
        match &mut self.state {
            State::Fixed(hash) => hash.update(data),
            State::Extendable(sponge) if !sponge.is_squeezed() => sponge.absorb(data),
            State::Extendable(_) | State::Ended(_) => return Err(Failure::SILENT),
        }
        Ok(())
    }

    /// The length of the output in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Ends the message; `out` has [`Self::len`] bytes.
    pub(crate) fn finish(&mut self, out: &mut [u8]) -> Done {
        // A hash that starts the next message may have bytes of this one: only `reset` wipes them.
        self.is_fresh = false;
        match &mut self.state {
            State::Fixed(hash) => hash.finish(out).map_err(|_| Failure::SILENT)?,
            State::Extendable(sponge) if !sponge.is_squeezed() => {
                sponge.finish(out);
                self.state = State::Ended(sponge.clone());
            }
            State::Extendable(_) | State::Ended(_) => return Err(Failure::SILENT),
        }
        Ok(())
    }

    /// The next bytes of an extendable output.
    pub(crate) fn squeeze(&mut self, out: &mut [u8]) -> Done {
        self.is_fresh = false;
        match &mut self.state {
            _ if out.is_empty() => Ok(()),
            State::Extendable(sponge) => {
                sponge.squeeze(out);
                Ok(())
            }
            State::Fixed(_) | State::Ended(_) => Err(Failure::SILENT),
        }
    }

    /// Sets the length of an extendable output.
    pub(crate) fn set(&mut self, params: Params<'_>) -> Done {
        let xof = !matches!(self.state, State::Fixed(_));
        if let Some(len) = params.get(c"xoflen").filter(|_| xof) {
            self.len = len.size()?;
        }
        Ok(())
    }
}
