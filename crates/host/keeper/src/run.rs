//! `sealane keeper`: the process.

use crate::config::{self, Config, ConfigError};
use crate::private::Maker;
use crate::seal::{Cost, Sealer};
use crate::server::{self, Bounds};
use crate::service::Service;
use crate::store::{Store, StoreError};
use crate::wrapped::Wrapping;
use sealane_keeper_client::client::Client;
use sealane_sys::poll::Waker;
use sealane_sys::process::{self, Signals};
use sealane_sys::{confine, runtime, unix};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tracing::{debug, error, info, warn};

/// The reason why a keeper does not start, or ends.
#[derive(Debug)]
pub enum Error {
    /// The configuration cannot be used.
    Config(ConfigError),
    /// The keys cannot be read.
    Store(StoreError),
    /// An algorithm that seals the store is missing.
    Crypto(sealane_crypto::LookupError),
    /// A system call failed; with what it was for.
    System(String, io::Error),
    /// A keeper serves this socket.
    Taken(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(e) => e.fmt(f),
            Error::Store(e) => e.fmt(f),
            Error::Crypto(e) => e.fmt(f),
            Error::System(what, e) => write!(f, "{what}: {e}"),
            Error::Taken(socket) => write!(f, "{socket}: another keeper serves it"),
        }
    }
}

impl std::error::Error for Error {}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |e| Error::System(what, e)
}

/// Runs until a signal ends it.
///
/// # Errors
/// [`Error`].
pub fn run(path: &Path) -> Result<(), Error> {
    process::no_core_for_us();
    match process::lock_memory() {
        Ok(()) => debug!("keys are locked in memory"),
        Err(e) => info!(error = %e, "keys are not locked in memory, and can be written to swap: {e}"),
    }
    let signals = Signals::block();
    let config = Config::load(path).map_err(Error::Config)?;
    let socket = config.socket.display().to_string();
    if Client::connect(&config.socket).is_ok() {
        return Err(Error::Taken(socket));
    }
    let (registry, e) = sealane_drivers::system_registry();
    if let Some(e) = e {
        warn!(error = %e, "calibration: {e}; using the shipped table");
    }
    let store = match (&config.store, config.protection().map_err(Error::Config)?) {
        (Some(folder), Some(protection)) => {
            if let Some(file) = &config.passphrase_file
                && config::is_open_to_others(file).map_err(system(file.display().to_string()))?
            {
                warn!(file = %file.display(), "{}: others than its owner can read the passphrase", file.display());
            }
            let sealer = Sealer::new(&registry).map_err(Error::Crypto)?;
            Store::open(folder, &protection, Cost::RECOMMENDED, sealer).map_err(Error::Store)?
        }
        _ => Store::in_memory(),
    };
    for (name, why) in store.broken() {
        error!(key = name.as_str(), "key '{name}' cannot be read, and stays as it is: {why}");
    }
    if let Some(why) = store.lost_counters() {
        warn!("the counters of keys are too high: those that the keeper before has left cannot be read: {why}");
    }
    let keys = store.len();
    let wrapping = if config.wrapped_keys {
        let sealer = Sealer::new(&registry).map_err(Error::Crypto)?;
        let key = store.wrapping_key().map_err(|e| system("the key for keys of programs")(io::Error::other(e)))?;
        Some(Wrapping::new(sealer, key, config.wrapping_users()))
    } else {
        None
    };
    let mut service = Service::new(registry, store, config.admins());
    if let Some(wrapping) = wrapping {
        service = service.with_wrapping(wrapping);
    }
    runtime::remove(&config.socket).map_err(system(socket.clone()))?;
    let listener = unix::listen_for_packets(&config.socket).map_err(system(socket.clone()))?;
    let waker = Arc::new(Waker::new().map_err(system("a descriptor"))?);
    let end = waker.clone();
    let (begun, begins) = std::sync::mpsc::channel();
    let wait = move || {
        let _ = begun.send(());
        while !process::ENDS.contains(&signals.wait().number()) {}
        end.wake();
    };
    std::thread::Builder::new().name("keeper-signals".into()).spawn(wait).map_err(system("a thread for signals"))?;
    // What a thread does to begin is not among the calls of a confined process. Without the thread there is nothing to wait for.
    let _ = begins.recv();
    // The same holds for what AWS-LC does once in each thread.
    sealane_crypto_awslc::pkey::self_test().map_err(|e| system("private keys")(io::Error::other(e)))?;
    let maker = Maker::start().map_err(system("a thread for new keys"))?;
    process::notify("READY=1");
    info!(keys, %socket, "{keys} keys, clients at {socket}");
    confine::confine().map_err(system("seccomp"))?;
    service.store().take_counters().map_err(Error::Store)?;
    let bounds = Bounds { clients: config.clients, per_user: config.clients_per_user };
    let served = server::serve(&listener, &mut service, bounds, &maker, &waker).map_err(system("waiting for clients"));
    service.end();
    let _ = runtime::remove(&config.socket);
    served
}
