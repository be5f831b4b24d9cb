//! `sealane daemon`: TCP-AO for programs that do not support it, and IPsec for programs that use NETLINK_XFRM,
//! according to a configuration.
//!
//! This crate composes the data paths and handles signals and reloads; it owns neither packets nor keys.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod failures;
mod starts;
mod watch;

use failures::Reason;
use parking_lot::Mutex;
use sealane_abi::Profile;
use sealane_abi::admin::{Health, Role, Snapshot, Tally, VERSION};
use sealane_admin::metrics::http;
use sealane_admin::{Source, socket};
use sealane_config::{Config, LoadError, Namespaces};
use sealane_crypto::home::KeepError;
use sealane_handover::Keeper;
use sealane_keeper_client::client::{self, ClientError};
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::key::Name;
use sealane_keeper_client::pool::Manner;
use sealane_keeper_client::reference::KeyRef;
use sealane_net_ao::alg::Algorithms;
use sealane_sys::clock::wall_ms;
use sealane_sys::life::{self, Kind};
use sealane_sys::named_netns::Mounts;
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use sealane_sys::process::{self, Signals, Successor};
use sealane_sys::{runtime, transient};
use sealane_tcp_ao::remote::server::Launchers;
use sealane_tcp_ao::{Configured, FoundKey, KeyHomes, Prepared, References, Spaces};
use starts::Starts;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, error, info, warn};
use watch::{Recovery, Transients};

/// The reason why the daemon does not start.
#[derive(Debug)]
pub enum Error {
    /// The configuration cannot be used.
    Config(LoadError),
    /// A peer of the configuration cannot be served here.
    TcpAo(sealane_tcp_ao::Error),
    /// A system call failed; with what it was for.
    System(String, io::Error),
    /// A thread has failed, and the service manager is to start everything again.
    Failed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(e) => e.fmt(f),
            Error::TcpAo(e) => e.fmt(f),
            Error::System(what, e) => write!(f, "{what}: {e}"),
            Error::Failed => f.write_str("a thread has failed: everything has to be started again"),
        }
    }
}

impl std::error::Error for Error {}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |e| Error::System(what, e)
}

/// The interval at which key chains are checked against the time of day.
const TICK: Duration = Duration::from_secs(1);

/// The longest time between two looks at the names of network namespaces.
const LONGEST: Duration = Duration::from_secs(60);

/// The shortest time between two starts after failures.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time that segments wait for a keeper. One that has not answered in time is not asked for a while: what it was asked for
/// fails at once meanwhile, so that other connections go on.
const PATIENCE_FOR_SEGMENTS: Duration = Duration::from_millis(100);

/// The longest time that a configuration waits for a keeper's answer about one key, at the start of the daemon for one. With all of them it
/// waits twice as long at most ([`Finder::find`](sealane_tcp_ao::Finder::find)).
const PATIENCE_FOR_NAMES: Duration = Duration::from_secs(1);

/// The signal by which the main thread learns of a failure ([`failures::noted`]).
const FAILURE: i32 = libc::SIGUSR2;

/// Notes that a thread has failed, so that packets or requests are not served any more.
fn fail(reason: Reason) {
    failures::note(reason);
    process::kill(std::process::id(), FAILURE);
}

/// Counts a panic of any thread as its failure: a daemon without one of them only looks alive.
fn fail_with_any_thread() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        fail(Reason::Panic);
    }));
}

/// The runtime folder of a user without one.
const FOLDER: &str = "/run/sealane";

/// The data paths that the daemon runs.
struct Host {
    tcp_ao: Configured,
    launchers: Launchers,
    ipsec: sealane_ipsec::Spaces,
    /// The socket of the keeper, as the configuration of the start names it.
    keeper_socket: Option<PathBuf>,
}

impl Host {
    /// Puts a configuration into force. Mistakes in it are found before anything changes. `keys` are those that it names of a keeper.
    ///
    /// # Errors
    /// Why it cannot be, and whether a part of it is in force.
    fn apply(&mut self, config: &Arc<Config>, keys: References) -> Result<(), (Error, bool)> {
        let of_ipsec = |(what, e)| Error::System(what, e);
        let prepared = self.tcp_ao.prepare(config, keys).map_err(|e| (Error::TcpAo(e), false))?;
        self.ipsec.check(config.ipsec.as_ref()).map_err(|e| (of_ipsec(e), false))?;
        self.commit(prepared, config).map_err(|e| (e, true))
    }

    fn commit(&mut self, prepared: Prepared, config: &Config) -> Result<(), Error> {
        // Before all else, which may fail: what is not allowed any more ends.
        self.ipsec.restrict(config.ipsec.as_ref());
        self.tcp_ao.commit(prepared).map_err(Error::TcpAo)?;
        self.launchers.find(&self.tcp_ao.namespaces_of_programs()).map_err(system("the socket for launchers"))?;
        self.ipsec.serve(config.ipsec.as_ref()).map_err(|(what, e)| Error::System(what, e))
    }

    /// Serves the namespaces that have come and match a pattern, and gives up those that have gone. Returns the time until the
    /// next look, if nothing is mounted before.
    fn follow(&mut self) -> Option<Duration> {
        let nexts = [self.tcp_ao.follow(), self.ipsec.follow()];
        let found = self.launchers.find(&self.tcp_ao.namespaces_of_programs()).inspect_err(|e| {
            if !transient::count(e) {
                warn!(error = %e, "the socket for launchers: {e}");
            }
        });
        nexts.into_iter().flatten().chain(found.is_err().then_some(TICK)).min()
    }
}

/// Runs until a signal ends it, and reports when all peers are protected.
///
/// Protection stays when it ends, for whatever reason: protected traffic is dropped until the daemon is back, or
/// [`clear_tcp_ao`] and [`clear_ipsec`] take it away.
///
/// # Errors
/// [`Error`], if it cannot start.
pub fn run(path: &Path) -> Result<(), Error> {
    let started = Instant::now();
    process::no_core_for_us();
    match process::lock_memory() {
        Ok(()) => debug!("keys are locked in memory"),
        Err(e) => info!(error = %e, "keys are not locked in memory, and can be written to swap: {e}"),
    }
    let signals = Signals::block();
    let folder = runtime::folder().unwrap_or_else(|| FOLDER.into());
    let keeper = Arc::new(Keeper::of_daemon(&folder));
    let is_managed = keeper.is_manager();
    let recovery = Arc::new(Recovery { successor: Successor::new(), is_managed, folder: folder.clone() });
    fail_with_any_thread();
    let starts = Starts::new(&folder, path);
    if is_managed && !starts.pause_for(&signals, &process::ENDS) {
        return Ok(());
    }
    let run = || {
        let started = Daemon::start(path, &folder, keeper, &recovery);
        match &started {
            Ok(_) => starts.forget(),
            Err(_) => starts.count(),
        }
        started?.serve(path, &signals)
    };
    // A panic of this thread is a failure like another.
    let failed = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(None)) => return Ok(()),
        Ok(Ok(Some(reason))) => reason,
        Ok(Err(e)) if is_managed || !process::is_successor() => return Err(e),
        // Whoever came back once comes back again: the reason may pass, and nobody else would start it.
        Ok(Err(e)) => {
            error!(error = %e, "{e}");
            Reason::Error
        }
        Err(_) => Reason::Panic,
    };
    error!(reason = failed.name(), "a thread has failed ({}): starting again", failed.name());
    failures::count(&recovery.folder, failed);
    // Whatever fails at once is not tried without a pause.
    while let Some(left) = PAUSE.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        if signals.wait_for(left).is_some_and(|signal| process::ENDS.contains(&signal.number())) {
            return Ok(());
        }
    }
    if is_managed {
        // The manager has the states, and gives them to the process that it starts.
        return Err(Error::Failed);
    }
    Err(system("starting again")(recovery.successor.take_over()))
}

/// The running daemon.
struct Daemon {
    host: Arc<Mutex<Host>>,
    /// Listens as long as the daemon runs.
    _server: socket::Server,
}

impl Daemon {
    /// Starts everything.
    fn start(path: &Path, folder: &Path, keeper: Arc<Keeper>, recovery: &Arc<Recovery>) -> Result<Self, Error> {
        let config = Arc::new(Config::load(path).map_err(Error::Config)?);
        runtime::make_private(folder).map_err(system(folder.display().to_string()))?;
        let (registry, error) = sealane_drivers::system_registry();
        if let Some(e) = error {
            warn!(error = %e, "calibration: {e}; using the shipped table");
        }
        let registry = Arc::new(registry);
        let spaces = Spaces::new(Profile::Open, Algorithms::new(&registry), config.daemon.data_path)
            .with_workers(config.daemon.workers)
            .with_keeper(keeper.clone())
            .with_key_home(key_homes(config.daemon.keeper.clone()));
        let surroundings = sealane_ipsec::Surroundings {
            registry,
            folder: folder.to_owned(),
            keeper: keeper.clone(),
            on_failure: Arc::new(|| fail(Reason::Error)),
        };
        let waker = Arc::new(Waker::new().map_err(system("a descriptor"))?);
        let ipsec = sealane_ipsec::Spaces::new(surroundings, waker.clone());
        let spaces = Arc::new(spaces);
        let launchers = Launchers::new(folder, spaces.clone());
        let tcp_ao = Configured::new(spaces, folder.to_owned(), waker.clone());
        let mut host = Host { tcp_ao, launchers, ipsec, keeper_socket: config.daemon.keeper.clone() };
        let keys = host.tcp_ao.finder().find(&config);
        host.apply(&config, keys).map_err(|(e, _)| e)?;
        let host = Arc::new(Mutex::new(host));
        let source = source(&host, failures::read(folder));
        let server = socket::Server::start(folder, source.clone()).map_err(system("the admin socket"))?;
        let mut told = format!("{} peers protected", config.peers().len());
        if !config.programs.is_empty() {
            told = format!("{told}, programs with TCP-AO in {}", in_words(&config.programs));
        }
        if let Some(ipsec) = &config.ipsec {
            told = format!("{told}, IPsec in {}", in_words(&ipsec.spaces));
            if !ipsec.devices.is_empty() {
                told = format!("{told} with {} offload devices", ipsec.devices.len());
            }
        }
        if let Some(addr) = config.daemon.metrics {
            match http::serve(addr, source).map_err(system("the thread for metrics"))? {
                Some(addr) => told = format!("{told}, metrics on http://{addr}/metrics"),
                None => told = format!("{told}, no metrics on {addr} yet"),
            }
        }
        for warning in config.warnings(wall_ms() / 1000) {
            warn!(file = %path.display(), "warning: {warning}");
        }
        watch::start(recovery.clone()).map_err(system("a thread that watches over the others"))?;
        process::notify("READY=1");
        info!(peers = config.peers().len(), "{told}");
        let clock = host.clone();
        std::thread::Builder::new()
            .name("sealane-keys".into())
            .spawn(move || {
                let _alive = life::begin("sealane-keys", Kind::Control);
                let mut transients = Transients::new();
                loop {
                    let wait = life::wait();
                    std::thread::sleep(TICK);
                    drop(wait);
                    transients.look();
                    clock.lock().tcp_ao.follow_the_time();
                    keeper.renew();
                }
            })
            .map_err(system("a thread for key chains"))?;
        follow_keys(host.clone()).map_err(system("a thread for keys of the keeper"))?;
        follow_namespaces(host.clone(), waker).map_err(system("a thread for network namespaces"))?;
        Ok(Daemon { host, _server: server })
    }

    /// Handles signals until one of them ends the daemon, or a thread has failed.
    fn serve(self, path: &Path, signals: &Signals) -> Result<Option<Reason>, Error> {
        let _alive = life::begin("main", Kind::Control);
        loop {
            let wait = life::wait();
            let signal = signals.wait();
            drop(wait);
            match signal.number() {
                libc::SIGHUP => reload(path, &self.host),
                FAILURE => {
                    if let Some(reason) = failures::noted() {
                        if let Some(host) = self.host.try_lock_for(PAUSE) {
                            host.tcp_ao.save();
                        }
                        // Its threads serve until the last moment, and whatever they hold is never waited for.
                        core::mem::forget(self);
                        return Ok(Some(reason));
                    }
                }
                libc::SIGTSTP => process::stop_from_keyboard(),
                number if process::ENDS.contains(&number) => break,
                // The size of a terminal is nothing to it.
                _ => {}
            }
        }
        watch::end();
        process::notify("STOPPING=1");
        let mut host = self.host.lock();
        host.tcp_ao.save();
        host.ipsec.stop();
        Ok(None)
    }
}

thread_local! {
    /// The failure of this thread's last request to a keeper.
    static FAILED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The keeper that has keys of the configuration's.
fn key_homes(socket: Option<PathBuf>) -> KeyHomes {
    let socket = socket.unwrap_or_else(|| client::SOCKET.into());
    let failed = |error: &ClientError| FAILED.with_borrow_mut(|failed| *failed = error.to_string());
    let home = |patience| KeeperHome::new(socket.clone(), Manner { patience, failed, ..Manner::default() });
    let by_name = home(PATIENCE_FOR_NAMES);
    KeyHomes {
        finds: Box::new(move |info, name, version| {
            let text = || KeepError::NoKey(format!("'{}' is no name of a key", name.escape_default()));
            let (shortest, longest) = (info.key_lens.min(), info.key_lens.max());
            let secret_len = if shortest == longest { shortest as u32 } else { 0 };
            let reference = by_name.reference(info, &Name::new(name).ok_or_else(text)?, version, secret_len)?;
            match KeyRef::decode(&reference) {
                Ok(KeyRef::Named { version, .. }) => Ok(FoundKey { version, reference }),
                _ => Err(KeepError::NoKey("the keeper gives another key".to_owned())),
            }
        }),
        derives: Box::new(home(PATIENCE_FOR_SEGMENTS)),
        why: Box::new(|| FAILED.with_borrow(String::clone)),
    }
}

/// Asks once a second for keys of a keeper that were not there, in a thread of its own: keys change by the time of day whatever it does.
fn follow_keys(host: Arc<Mutex<Host>>) -> io::Result<()> {
    let follow = move || {
        let _alive = life::begin("sealane-keeper", Kind::Control);
        loop {
            let wait = life::wait();
            std::thread::sleep(TICK);
            drop(wait);
            find_missing_keys(&host);
        }
    };
    std::thread::Builder::new().name("sealane-keeper".into()).spawn(follow).map(drop)
}

/// Asks again for keys of a keeper that were not there. A keeper may take its time: nobody waits for it with a lock.
fn find_missing_keys(host: &Mutex<Host>) {
    let (missing, finder) = {
        let tcp_ao = &host.lock().tcp_ao;
        let missing = tcp_ao.missing();
        if missing.is_empty() {
            return;
        }
        (missing, tcp_ao.finder())
    };
    let wait = life::wait();
    let found = finder.find_missing(&missing);
    drop(wait);
    host.lock().tcp_ao.found(found);
}

/// The number of network namespaces in words.
fn in_words(spaces: &Namespaces) -> String {
    let named = format!("{} network namespaces", spaces.netns.len());
    match spaces.patterns.len() {
        0 => named,
        patterns => format!("{named} and in those of {patterns} patterns"),
    }
}

/// Follows the network namespaces that come and go, in a thread of its own. Whatever is mounted or unmounted may be one.
fn follow_namespaces(host: Arc<Mutex<Host>>, waker: Arc<Waker>) -> io::Result<()> {
    let mounts = Mounts::watch()?;
    let follow = move || {
        let _alive = life::begin("sealane-spaces", Kind::Control);
        let mut next = None;
        loop {
            mounts.wait(&waker, next.unwrap_or(LONGEST));
            next = host.lock().follow();
        }
    };
    std::thread::Builder::new().name("sealane-spaces".into()).spawn(follow).map(drop)
}

/// Rereads the configuration; one with a mistake changes nothing.
fn reload(path: &Path, host: &Mutex<Host>) {
    process::notify("RELOADING=1");
    let loaded = Config::load(path).map_err(|e| (Error::Config(e), false));
    let done = loaded.and_then(|config| {
        // A keeper may take its time: nobody waits for it with a lock.
        let finder = host.lock().tcp_ao.finder();
        let wait = life::wait();
        let keys = finder.find(&config);
        drop(wait);
        let mut host = host.lock();
        let is_same_keeper = host.keeper_socket == config.daemon.keeper;
        host.apply(&Arc::new(config), keys).map(|()| is_same_keeper)
    });
    let file = path.display();
    match done {
        Ok(is_same_keeper) => {
            if !is_same_keeper {
                warn!(%file, "{file}: another 'keeper' in [daemon]: the one of before is asked until the daemon starts again");
            }
            info!(%file, "{file}: read again");
        }
        Err((e, false)) => error!(%file, error = %e, "{e}; everything stays as it was"),
        Err((e, true)) => error!(%file, error = %e, "{e}; a part of it is in force"),
    }
    process::notify("READY=1");
}

fn source(host: &Arc<Mutex<Host>>, failures: Vec<Tally>) -> Source {
    let host = host.clone();
    let transient = || transient::counts().map(|(name, count)| Tally { name: name.to_owned(), count }).collect();
    let started_s = wall_ms() / 1000;
    Arc::new(move || {
        let host = host.lock();
        Snapshot {
            version: VERSION,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            role: Role::Daemon,
            pid: std::process::id(),
            program: String::new(),
            started_s,
            taken_s: wall_ms() / 1000,
            health: Health { failures: failures.clone(), transient_errors: transient() },
            namespaces: host.tcp_ao.describe(),
            ipsec: host.ipsec.status(),
        }
    })
}

/// Keeps what outlives the daemon of a runtime folder, until there is nothing any more. `listener` is bound in it.
///
/// # Errors
/// The kernel's.
pub fn hold(listener: UnixListener, folder: &Path) -> Result<(), Error> {
    sealane_handover::holder::hold(&listener, folder).map_err(system("the holder"))
}

/// Takes the protection of TCP-AO away that an ended instance left in a network namespace: segments pass unsigned.
///
/// # Errors
/// `AddrInUse` while an instance runs; otherwise the kernel's.
pub fn clear_tcp_ao(netns: Option<&str>) -> Result<(), Error> {
    let folder = runtime::folder().unwrap_or_else(|| FOLDER.into());
    named(netns)?.run(|| sealane_tcp_ao::clear(&folder)).map_err(system("the rules of TCP-AO"))
}

/// Takes the protection of IPsec away that an ended daemon left in a network namespace: its policies, rules and routes.
/// Packets that they covered pass unencrypted, and programs find nobody who serves them.
///
/// # Errors
/// `AddrInUse` while a daemon runs; otherwise the kernel's.
pub fn clear_ipsec(netns: Option<&str>) -> Result<(), Error> {
    let folder = runtime::folder().unwrap_or_else(|| FOLDER.into());
    sealane_ipsec::clear(&named(netns)?, &folder).map_err(system("the policies and rules of IPsec"))
}

fn named(netns: Option<&str>) -> Result<Netns, Error> {
    Netns::named(netns).map_err(system(netns.unwrap_or("this network namespace")))
}
