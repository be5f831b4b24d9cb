//! Drivers with one defect each, none of which may pass.

use sealane_crypto::Kind;
use sealane_crypto::aead::{AeadDriver, FlatAeadOp};
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::hash::{HashDriver, HashOp, HashState};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::{Alg, Driver, Registry, Row};
use sealane_crypto::skcipher::{FlatSkcipherOp, SkcipherDriver};
use sealane_crypto_portable::{self as portable, self_test};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Defect {
    None,
    /// Texts from 500 bytes on are wrong, which no published vector shows.
    LongTexts,
    /// The sixth operation of a burst is wrong.
    SixthOfBurst,
    /// A fork starts at the beginning.
    Fork,
    /// `finish` does not start the next message.
    Finish,
    /// Shorter tags are not the front of the full one.
    Truncation,
    /// The IV on return is unchanged.
    Iv,
    /// Separate input and output are handled as if they were the same buffer.
    Apart,
    /// A forged text is delivered with its error.
    NotWiped,
    /// Forged texts are accepted.
    Accepts,
    /// The key is refused.
    Key,
}

/// A portable driver with a defect.
struct Sham<D: ?Sized> {
    inner: Arc<D>,
    digest_len: usize,
    defect: Defect,
}

struct ShamState(Box<dyn HashState>, Box<dyn HashState>, Defect);

impl HashState for ShamState {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        if self.2 == Defect::Finish { self.0.fork().finish(out) } else { self.0.finish(out) }
    }

    fn reset(&mut self) {
        self.0 = self.1.fork();
    }

    fn fork(&self) -> Box<dyn HashState> {
        let running = if self.2 == Defect::Fork { self.1.fork() } else { self.0.fork() };
        Box::new(ShamState(running, self.1.fork(), self.2))
    }
}

impl<D: ?Sized> Sham<D> {
    fn state(&self, start: impl Fn() -> Box<dyn HashState>) -> Box<dyn HashState> {
        Box::new(ShamState(start(), start(), self.defect))
    }

    fn spoil(&self, at: usize, len: usize, out: &mut [u8]) {
        let spoiled = match self.defect {
            Defect::LongTexts => len >= 500,
            Defect::SixthOfBurst => at == 5,
            Defect::Truncation => out.len() < self.digest_len,
            _ => false,
        };
        if let Some(last) = out.last_mut().filter(|_| spoiled) {
            *last ^= 1;
        }
    }
}

impl HashDriver for Sham<dyn HashDriver> {
    fn start(&self) -> Box<dyn HashState> {
        self.state(|| self.inner.start())
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        self.inner.burst(ops);
        for (at, op) in ops.iter_mut().enumerate() {
            let len = op.data.iter().map(|d| d.len()).sum();
            self.spoil(at, len, op.digest);
        }
    }
}

impl MacDriver for Sham<dyn MacDriver> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        if self.defect == Defect::Key { Err(KeyError::Driver) } else { self.inner.prepare(key) }
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        self.state(|| self.inner.start(key))
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        self.inner.burst(slot, ops);
        for (at, op) in ops.iter_mut().enumerate() {
            let len = op.len();
            self.spoil(at, len, op.tag);
        }
    }
}

impl SkcipherDriver for Sham<dyn SkcipherDriver> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.inner.prepare(key)
    }

    fn one(&self, slot: usize, mut op: FlatSkcipherOp<'_, '_>) -> Status {
        let iv_before = op.iv.to_vec();
        let FlatSkcipherOp { dir, tfm, .. } = op;
        let apart = op.data.get_in().as_ptr() != op.data.get_out().as_ptr();
        let done = self.inner.one(slot, FlatSkcipherOp { dir, tfm, iv: op.iv, data: op.data.reborrow() });
        match self.defect {
            Defect::Iv => op.iv.copy_from_slice(&iv_before),
            Defect::Apart if apart => op.data.get_out().fill(0),
            Defect::LongTexts if op.data.len() >= 500 => op.data.get_out()[499] ^= 1,
            _ => {}
        }
        done
    }
}

impl AeadDriver for Sham<dyn AeadDriver> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        self.inner.prepare(key)
    }

    fn one(&self, slot: usize, mut op: FlatAeadOp<'_, '_>) -> Status {
        let FlatAeadOp { dir, tfm, nonce, aad, .. } = op;
        let (data, tag) = (op.data.reborrow(), &mut *op.tag);
        let done = self.inner.one(slot, FlatAeadOp { dir, tfm, nonce, aad, data, tag });
        match (self.defect, done) {
            (Defect::NotWiped, Err(OpError::Auth)) => op.data.get_out().fill(1),
            (Defect::Accepts, Err(OpError::Auth)) => return Ok(()),
            _ => {}
        }
        done
    }
}

fn outcome(kind: Kind, name: &str, defect: Defect) -> Result<(), String> {
    let registry = Registry::builder(self_test).rows(portable::rows()).build();
    let good = registry.rows().iter().find(|r| r.info.kind == kind && r.info.name == name).expect("a portable row");
    let row = Arc::new(sham(good, defect, 1));
    self_test(&Alg::of_row(&row, registry.entropy()))
}

/// A row like `good`, except for the defect.
fn sham(good: &Row, defect: Defect, priority: u32) -> Row {
    fn with<D: ?Sized>(inner: &Arc<D>, digest_len: usize, defect: Defect) -> Arc<Sham<D>> {
        Arc::new(Sham { inner: inner.clone(), digest_len, defect })
    }
    let len = good.info.digest_len;
    let imp = match good.imp() {
        Driver::Hash(inner) => Driver::Hash(with(inner, len, defect)),
        Driver::Mac(inner) => Driver::Mac(with(inner, len, defect)),
        Driver::Skcipher(inner) => Driver::Skcipher(with(inner, len, defect)),
        Driver::Aead(inner) => Driver::Aead(with(inner, len, defect)),
        Driver::NonceMac(_) | Driver::Rng(_) => panic!("no sham of this type"),
    };
    Row::new(good.info.clone(), "sham", "sham", priority, imp)
}

#[test]
fn defects_are_found() {
    use Defect::{Accepts, Apart, Finish, Fork, Iv, Key, LongTexts, None, NotWiped, SixthOfBurst, Truncation};
    for (kind, name, defects) in [
        (Kind::Hash, "sha256", &[None, LongTexts, SixthOfBurst, Fork, Finish, Truncation][..]),
        (Kind::Hash, "hmac(sha256)", &[None, LongTexts, SixthOfBurst, Fork, Finish, Truncation, Key]),
        (Kind::Hash, "blake2b-256", &[None, LongTexts, Fork, Key]),
        (Kind::Skcipher, "cbc(aes)", &[None, LongTexts, Iv, Apart]),
        (Kind::Skcipher, "ctr(aes)", &[None, LongTexts, Iv, Apart]),
        (Kind::Aead, "gcm(aes)", &[None, NotWiped, Accepts]),
    ] {
        for defect in defects {
            let found = outcome(kind, name, *defect);
            assert_eq!(found.is_ok(), *defect == None, "{name} with {defect:?}: {found:?}");
        }
    }
}

#[test]
fn a_row_that_fails_is_never_selected() {
    let good = Registry::builder(self_test).rows(portable::rows()).build();
    let good = good.rows().iter().find(|r| r.info.name == "sha256").expect("a portable row");
    let bad = sham(good, Defect::LongTexts, 900);
    let registry = Registry::builder(self_test).rows(portable::rows()).rows([bad]).build();
    let alg = registry.lookup(Kind::Hash, "sha256").expect("the portable row is left");
    assert_eq!(alg.rows()[0].driver, "sha256-portable");
    assert!(registry.lookup(Kind::Hash, "sham").is_err());
}
