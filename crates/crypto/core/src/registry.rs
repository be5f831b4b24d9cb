//! The rows that `/proc/crypto` lists, and the look-up of drivers by name.
//!
//! Look-up follows the kernel (`crypto/api.c`): a driver name selects that driver; a generic name selects the best
//! driver of the algorithm. The best driver is the fastest measured one ([`crate::choice`]), or the one of highest
//! priority where nothing was measured; on a tie the later registration wins. No driver serves before its self-test has
//! passed.

use crate::aead::{self, AeadDriver, AeadStream, AeadTfm};
use crate::choice::{MeasuredDirection, Plan, STREAM_BYTES, Selection, Table};
use crate::error::{KeyError, LookupError, OpError};
use crate::hash::{HashDriver, HashState, HashTfm};
use crate::info::{AlgInfo, Kind};
use crate::key::RowDriver;
use crate::mac::{MacDriver, MacTfm, NonceMacDriver, NonceMacTfm};
use crate::rng::{Entropy, RngDriver, RngState};
use crate::skcipher::{SkcipherDriver, SkcipherTfm};
use crate::template::Name;
use once_cell::race::OnceBox;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// An implementation of one algorithm.
#[derive(Clone)]
pub enum Driver {
    /// Unkeyed hash.
    Hash(Arc<dyn HashDriver>),
    /// MAC, or a hash whose key is optional (then `prepare` takes an empty key).
    Mac(Arc<dyn MacDriver>),
    /// MAC with a nonce.
    NonceMac(Arc<dyn NonceMacDriver>),
    /// Cipher.
    Skcipher(Arc<dyn SkcipherDriver>),
    /// AEAD.
    Aead(Arc<dyn AeadDriver>),
    /// Generator.
    Rng(Arc<dyn RngDriver>),
}

impl Driver {
    fn hash(&self) -> Option<&Arc<dyn HashDriver>> {
        if let Driver::Hash(driver) = self { Some(driver) } else { None }
    }

    fn mac(&self) -> Option<&Arc<dyn MacDriver>> {
        if let Driver::Mac(driver) = self { Some(driver) } else { None }
    }

    fn nonce_mac(&self) -> Option<&Arc<dyn NonceMacDriver>> {
        if let Driver::NonceMac(driver) = self { Some(driver) } else { None }
    }

    fn skcipher(&self) -> Option<&Arc<dyn SkcipherDriver>> {
        if let Driver::Skcipher(driver) = self { Some(driver) } else { None }
    }

    fn aead(&self) -> Option<&Arc<dyn AeadDriver>> {
        if let Driver::Aead(driver) = self { Some(driver) } else { None }
    }
}

/// The state of a row's self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TestState {
    /// Its self-test has not run yet; it runs when the row is first looked up.
    Untested = 0,
    /// Passed.
    Passed = 1,
    /// Failed: the row is never selected.
    Failed = 2,
    /// Exempt, because it computes nothing on purpose (`null`); only its driver name selects it.
    Exempt = 3,
}

/// One driver for one algorithm: a line of `/proc/crypto`.
pub struct Row {
    /// The algorithm.
    pub info: AlgInfo,
    /// Driver name, `gcm-aes-awslc`.
    pub driver: String,
    /// The library or unit it comes from: `portable`, `awslc`, `ipsecmb`, `avx512`, `kernel`, ...
    pub module: &'static str,
    /// Priority, used where nothing was measured; higher is better.
    pub priority: u32,
    /// The depth of the stack, in bytes, to which its code leaves a key behind, or a part of one. Where keys are guarded, so much is
    /// overwritten after each operation, and registers, too.
    pub traces: usize,
    imp: Driver,
    state: AtomicU8,
}

impl Row {
    /// A row that has not been tested.
    #[must_use]
    pub fn new(info: AlgInfo, driver: &str, module: &'static str, priority: u32, imp: Driver) -> Self {
        let state = AtomicU8::new(TestState::Untested as u8);
        Row { info, driver: driver.to_owned(), module, priority, traces: 0, imp, state }
    }

    /// The same row, whose code leaves traces of keys to this depth of the stack.
    #[must_use]
    pub fn leaving_traces(self, depth: usize) -> Self {
        Row { traces: depth, ..self }
    }

    /// The same row, exempt from self-tests and never selected by its generic name.
    #[must_use]
    pub fn exempt(self) -> Self {
        self.state.store(TestState::Exempt as u8, Ordering::Relaxed);
        self
    }

    /// The state of its self-test.
    #[must_use]
    pub fn test_state(&self) -> TestState {
        match self.state.load(Ordering::Acquire) {
            0 => TestState::Untested,
            1 => TestState::Passed,
            2 => TestState::Failed,
            _ => TestState::Exempt,
        }
    }

    /// Seed length of a generator in bytes, 0 for everything else.
    #[must_use]
    pub fn seed_len(&self) -> usize {
        match &self.imp {
            Driver::Rng(d) => d.seed_len(),
            _ => 0,
        }
    }

    /// The implementation, for a driver that wraps another one.
    #[must_use]
    pub fn imp(&self) -> &Driver {
        &self.imp
    }
}

/// A self-test: checks one row through an [`Alg`] of just that row. The error says what differed.
pub type SelfTest = fn(&Alg) -> Result<(), String>;

struct AlgInner {
    selection: Selection,
    rows: Vec<Arc<Row>>,
    entropy: Arc<dyn Entropy>,
}

/// An algorithm with the drivers that may serve it. Cheap to clone.
#[derive(Clone)]
pub struct Alg(Arc<AlgInner>);

impl Alg {
    /// An algorithm of one driver, tested or not, for self-tests and measurements.
    #[must_use]
    pub fn of_row(row: &Arc<Row>, entropy: &Arc<dyn Entropy>) -> Self {
        let null = row.test_state() == TestState::Exempt;
        Alg(Arc::new(AlgInner {
            selection: Selection::single(row.info.clone(), null),
            rows: vec![row.clone()],
            entropy: entropy.clone(),
        }))
    }

    /// The same algorithm, served by another row alone, tested or not.
    #[must_use]
    pub fn served_by(&self, row: Row) -> Self {
        Alg::of_row(&Arc::new(row), &self.0.entropy)
    }

    /// Its properties, the same for all its drivers.
    #[must_use]
    pub fn info(&self) -> &AlgInfo {
        self.0.selection.info()
    }

    /// The rows that may serve it, most preferred first where nothing was measured.
    #[must_use]
    pub fn rows(&self) -> &[Arc<Row>] {
        &self.0.rows
    }

    /// The row that serves this length and burst.
    #[must_use]
    pub fn row_for(&self, way: MeasuredDirection, bytes: usize, burst: usize) -> &Row {
        &self.0.rows[self.0.selection.pick(way, bytes, burst)]
    }

    fn wrong_kind(&self) -> ! {
        panic!("{} is of type {}", self.info().name, self.info().kind.name())
    }

    /// The drivers of all rows, which are of one kind.
    fn drivers<'a, D: ?Sized + 'a>(
        &'a self,
        of: fn(&'a Driver) -> Option<&'a Arc<D>>,
    ) -> impl ExactSizeIterator<Item = RowDriver<'a, D>> {
        self.0.rows.iter().map(move |row| self.driver(row, of))
    }

    fn driver<'a, D: ?Sized>(&self, row: &'a Row, of: fn(&'a Driver) -> Option<&'a Arc<D>>) -> RowDriver<'a, D> {
        RowDriver { driver: of(&row.imp).unwrap_or_else(|| self.wrong_kind()), traces: row.traces }
    }

    /// A hash, ready for use.
    ///
    /// # Panics
    /// When this is not an unkeyed hash ([`KeyUse::None`](crate::KeyUse::None)).
    #[must_use]
    pub fn hash(&self) -> HashTfm {
        HashTfm::new(self.0.selection.clone(), self.drivers(Driver::hash).map(|row| row.driver))
    }

    /// A message of a hash whose pieces are not known yet, as [`HashTfm::start`] begins it.
    ///
    /// # Panics
    /// When this is not an unkeyed hash ([`KeyUse::None`](crate::KeyUse::None)).
    #[must_use]
    pub fn hash_state(&self) -> Box<dyn HashState> {
        let row = self.row_for(MeasuredDirection::Forward, STREAM_BYTES, 1);
        row.imp.hash().unwrap_or_else(|| self.wrong_kind()).start()
    }

    /// A MAC under `key`; for [`KeyUse::Optional`](crate::KeyUse::Optional) the empty key is the unkeyed hash.
    ///
    /// # Errors
    /// [`KeyError`] when the algorithm refuses the key.
    ///
    /// # Panics
    /// When this is not a MAC.
    pub fn mac(&self, key: &[u8]) -> Result<MacTfm, KeyError> {
        if let Driver::Hash(_) = self.0.rows[0].imp {
            return Err(KeyError::NotKeyed);
        }
        MacTfm::new(self.0.selection.clone(), self.drivers(Driver::mac), key)
    }

    /// A nonce MAC under `key`.
    ///
    /// # Errors
    /// [`KeyError`] when the algorithm refuses the key.
    ///
    /// # Panics
    /// When this is not a nonce MAC.
    pub fn nonce_mac(&self, key: &[u8]) -> Result<NonceMacTfm, KeyError> {
        NonceMacTfm::new(self.0.selection.clone(), self.drivers(Driver::nonce_mac), key)
    }

    /// A cipher under `key`.
    ///
    /// # Errors
    /// [`KeyError`] when the algorithm refuses the key.
    ///
    /// # Panics
    /// When this is not a cipher.
    pub fn skcipher(&self, key: &[u8]) -> Result<SkcipherTfm, KeyError> {
        SkcipherTfm::new(self.0.selection.clone(), self.drivers(Driver::skcipher), key)
    }

    /// An AEAD under `key`.
    ///
    /// # Errors
    /// [`KeyError`] when the algorithm refuses the key.
    ///
    /// # Panics
    /// When this is not an AEAD.
    pub fn aead(&self, key: &[u8]) -> Result<AeadTfm, KeyError> {
        AeadTfm::new(self.0.selection.clone(), self.drivers(Driver::aead), key)
    }

    /// A key for messages in pieces, of the fastest driver if it takes them, or else of the most preferred one that does; `None` where
    /// each driver takes whole messages only.
    ///
    /// # Panics
    /// When this is not an AEAD.
    #[must_use]
    pub fn aead_stream(&self, key: &[u8]) -> Option<Result<Box<dyn AeadStream>, KeyError>> {
        let Ok(_open) = sealane_guarded::begin() else { return Some(Err(KeyError::Driver)) };
        let fastest = self.row_for(MeasuredDirection::Forward, STREAM_BYTES, 1);
        let mut rows = core::iter::once(self.driver(fastest, Driver::aead)).chain(self.drivers(Driver::aead));
        rows.find_map(|RowDriver { driver, traces }| {
            driver.stream(key).map(|made| made.and_then(|stream| aead::hold(stream, traces)))
        })
    }

    /// A generator that has not been seeded.
    ///
    /// # Panics
    /// When this is not a generator.
    #[must_use]
    pub fn rng(&self) -> Box<dyn RngState> {
        match &self.0.rows[0].imp {
            Driver::Rng(d) => d.start(self.0.entropy.clone()),
            _ => self.wrong_kind(),
        }
    }

    /// Seed length of a generator in bytes, 0 for everything else.
    #[must_use]
    pub fn rng_seed_len(&self) -> usize {
        self.0.rows[0].seed_len()
    }
}

/// Builds a composite algorithm (`rfc4106(gcm(aes))`) from parts that the registry resolves.
/// `None`: not a name of this template, or its parts do not exist.
pub type Template = fn(&Registry, &Name<'_>) -> Option<Row>;

/// All drivers of this build.
pub struct Registry {
    rows: Vec<Arc<Row>>,
    templates: Vec<Template>,
    table: Table,
    self_test: SelfTest,
    entropy: Arc<dyn Entropy>,
    instances: OnceBox<Instance>,
}

/// A row that a template has made, in a list that only grows. The list has no lock: the registry is shared between
/// processes after `fork`, and a lock might be held by another process.
struct Instance {
    /// The name that was asked for: the generic one, or one with drivers' names in it.
    asked: String,
    row: Arc<Row>,
    next: OnceBox<Instance>,
}

/// The most instances that are kept. Further ones are made and tested at each look-up.
const MAX_INSTANCES: usize = 256;

/// Collects rows; see [`Registry::builder`].
pub struct Builder {
    registry: Registry,
}

struct NoEntropy;

impl Entropy for NoEntropy {
    fn fill(&self, _: &mut [u8]) -> Result<(), OpError> {
        Err(OpError::Driver)
    }
}

impl Registry {
    /// An empty registry whose self-test is `self_test`.
    #[must_use]
    pub fn builder(self_test: SelfTest) -> Builder {
        Builder {
            registry: Registry {
                rows: Vec::new(),
                templates: Vec::new(),
                table: Table::default(),
                self_test,
                entropy: Arc::new(NoEntropy),
                instances: OnceBox::new(),
            },
        }
    }

    /// All rows, in order of registration.
    #[must_use]
    pub fn rows(&self) -> &[Arc<Row>] {
        &self.rows
    }

    /// The table that decides between drivers.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The entropy source of the host.
    #[must_use]
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// Runs a row's self-test unless it has run.
    ///
    /// # Errors
    /// A text that says what differed.
    pub fn self_test(&self, row: &Arc<Row>) -> Result<(), String> {
        match row.test_state() {
            TestState::Passed | TestState::Exempt => Ok(()),
            // A failed row is tested again, because the caller wants the reason.
            TestState::Untested | TestState::Failed => {
                // Two threads may test the same row at once, which costs time but needs no lock.
                // Its keys are known to everybody, and it is not to fail for want of room.
                let result = sealane_guarded::unguarded(|| (self.self_test)(&Alg::of_row(row, &self.entropy)));
                let state = if result.is_ok() { TestState::Passed } else { TestState::Failed };
                row.state.store(state as u8, Ordering::Release);
                result
            }
        }
    }

    fn usable(&self, row: &Arc<Row>) -> bool {
        row.test_state() != TestState::Failed && self.self_test(row).is_ok()
    }

    /// Resolves a driver name or a generic name.
    ///
    /// # Errors
    /// [`LookupError::NotFound`], [`LookupError::Name`], or [`LookupError::SelfTest`] when the only rows with this name
    /// failed their self-test.
    pub fn lookup(&self, kind: Kind, name: &str) -> Result<Alg, LookupError> {
        if let Some(row) = self.rows.iter().rev().find(|r| r.info.kind == kind && r.driver == name) {
            return if self.usable(row) {
                Ok(Alg::of_row(row, &self.entropy))
            } else {
                Err(LookupError::SelfTest(row.driver.clone()))
            };
        }
        let mut rows: Vec<&Arc<Row>> = self
            .rows
            .iter()
            .rev()
            .filter(|r| r.info.kind == kind && r.info.name == name && r.test_state() != TestState::Exempt)
            .collect();
        if rows.is_empty() {
            return self.instantiate(kind, name);
        }
        // The sort is stable and the rows come latest first, so on a tie the later registration wins.
        rows.sort_by_key(|r| std::cmp::Reverse(r.priority));
        // Only rows that win somewhere are tested and keyed. A row that fails is removed, and the others are compared
        // again.
        loop {
            let Some(first) = rows.first() else {
                return Err(LookupError::SelfTest(name.to_owned()));
            };
            let names: Vec<&str> = rows.iter().map(|r| r.driver.as_str()).collect();
            let plans = MeasuredDirection::ALL.map(|way| Plan::new(&self.table, name, way, &names));
            let mut winners: Vec<usize> = plans.iter().flat_map(Plan::winners).collect();
            winners.sort_unstable();
            winners.dedup();
            if let Some(bad) = winners.iter().find(|i| !self.usable(rows[**i])) {
                rows.remove(*bad);
                continue;
            }
            let winner_names: Vec<&str> = winners.iter().map(|i| names[*i]).collect();
            let plans = MeasuredDirection::ALL.map(|way| Plan::new(&self.table, name, way, &winner_names));
            return Ok(Alg(Arc::new(AlgInner {
                selection: Selection::new(first.info.clone(), plans),
                rows: winners.iter().map(|i| rows[*i].clone()).collect(),
                entropy: self.entropy.clone(),
            })));
        }
    }

    /// The rows that templates have made so far, oldest first.
    pub fn instances(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.kept().map(|instance| &instance.row)
    }

    fn kept(&self) -> impl Iterator<Item = &Instance> {
        core::iter::successors(self.instances.get(), |instance| instance.next.get())
    }

    fn keep(&self, asked: &str, row: &Arc<Row>) {
        let mut instance = Box::new(Instance { asked: asked.to_owned(), row: row.clone(), next: OnceBox::new() });
        let mut slot = &self.instances;
        for _ in 0..MAX_INSTANCES {
            match slot.get() {
                Some(taken) => slot = &taken.next,
                None => match slot.set(instance) {
                    Ok(()) => return,
                    // Another thread has just appended: go on behind its instance.
                    Err(back) => {
                        instance = back;
                        slot = &slot.get().expect("an occupied slot refuses").next;
                    }
                },
            }
        }
    }

    fn instantiate(&self, kind: Kind, name: &str) -> Result<Alg, LookupError> {
        if let Some(known) = self.kept().find(|i| i.row.info.kind == kind && i.asked == name) {
            return Ok(Alg::of_row(&known.row, &self.entropy));
        }
        let parsed = Name::parse(name)?;
        let row = self
            .templates
            .iter()
            .find_map(|template| template(self, &parsed))
            // A name that mixes generic and driver names equals neither name of the row that it makes.
            .filter(|row| row.info.kind == kind && (row.info.name == name || row.driver == name))
            .map(Arc::new)
            .ok_or(LookupError::NotFound)?;
        if self.usable(&row) {
            self.keep(name, &row);
            Ok(Alg::of_row(&row, &self.entropy))
        } else {
            Err(LookupError::SelfTest(row.driver.clone()))
        }
    }
}

impl Builder {
    /// Adds rows; a later row wins a tie of priorities.
    #[must_use]
    pub fn rows(mut self, rows: impl IntoIterator<Item = Row>) -> Self {
        self.registry.rows.extend(rows.into_iter().map(Arc::new));
        self
    }

    /// Adds templates; the first one that makes a row from a name is used.
    #[must_use]
    pub fn templates(mut self, templates: impl IntoIterator<Item = Template>) -> Self {
        self.registry.templates.extend(templates);
        self
    }

    /// Sets the table that decides between drivers.
    #[must_use]
    pub fn table(mut self, table: Table) -> Self {
        self.registry.table = table;
        self
    }

    /// Sets the entropy source.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.registry.entropy = entropy;
        self
    }

    /// Builds the registry, which is read-only from now on.
    #[must_use]
    pub fn build(self) -> Registry {
        self.registry
    }
}
