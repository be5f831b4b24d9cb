//! The launcher: runs a program so that it and its children find AF_ALG.
//!
//! The program's exit status is ours. What goes wrong before it runs ends as a shell would: [`NOT_FOUND`],
//! [`NOT_EXECUTABLE`], and [`FAILED`] for failures of our own.

use crate::audit::{Ledger, Usage};
use crate::guard::{self, Duty, Guarded, Loss, Orphan, Side, status_of};
use crate::keys::Keys;
use crate::ready;
use crate::serve::{self, Engine, Home, KnownSockets, Server, Supervisor};
use sealane_abi::admin::{DataPath, Health, Role, Snapshot, Tally, VERSION};
use sealane_abi::sealane::{KEEPER_VARIABLE, KEY_NAMES_VARIABLE, KEYS_VARIABLE, NETSTAT_QUERY, XFRM_STAT_QUERY};
use sealane_admin::socket as admin;
use sealane_crypto::Registry;
use sealane_engine_alg::{Profile, System};
use sealane_net_ao::alg::Algorithms;
use sealane_sys::clock::wall_ms;
use sealane_sys::listening;
use sealane_sys::loader;
use sealane_sys::netns::Netns;
use sealane_sys::noted_calls::NotedCalls;
use sealane_sys::older_filters::{self, Probe};
use sealane_sys::process::{self, Change, Filtered, NotStarted, Program, Signal, Signals, Started};
use sealane_sys::seccomp::{Filter, Listener, Numbers, is_served};
use sealane_sys::transient;
use sealane_sys::{presence, runtime};
use sealane_tcp_ao::Spaces;
use sealane_tcp_ao::remote::client::Daemon;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::{env, io};
use tracing::{debug, error, warn};

/// Exit status when the program is not there.
pub const NOT_FOUND: i32 = 127;
/// Exit status when the program cannot be run.
pub const NOT_EXECUTABLE: i32 = 126;
/// Exit status when we failed before the program ran.
pub const FAILED: i32 = 125;

/// The way in which calls are intercepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Intercept {
    /// A preloaded library where the program takes one, seccomp for the rest.
    #[default]
    Auto,
    /// The preloaded library only: static programs get what the kernel has.
    Preload,
    /// Seccomp only: slower, and nothing of ours runs in the program.
    Seccomp,
}

/// A program to run, and the options for it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The program: a path, or a name to be found in PATH.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The kernel to imitate.
    pub profile: Profile,
    /// The way in which calls are intercepted.
    pub intercept: Intercept,
    /// Whether TCP-AO is served too.
    pub tcp_ao: bool,
    /// The data path of TCP-AO's segments.
    pub data_path: DataPath,
    /// Whether NETLINK_XFRM is the kernel's own in network namespaces that no daemon serves, instead of being refused there.
    pub kernel_ipsec: bool,
    /// The place where the program's keys are.
    pub keys: Keys,
    /// The names of the keeper's keys that the program may give in place of a key.
    pub key_names: Vec<String>,
    /// The library to preload; none to look for it beside the executable, in `../lib/sealane`, or by SEALANE_SHIM.
    pub shim: Option<PathBuf>,
}

/// Runs a program to its end. Returns its exit status, 128 and the signal's number if one ended it.
///
/// Messages of our own are events of `tracing`.
#[must_use]
pub fn run(options: &Options) -> i32 {
    launch(options, None).unwrap_or_else(|status| status)
}

/// Runs a program to its end as [`run`] does, and counts what it uses of AF_ALG: none if it did not start.
///
/// # Errors
/// When the counters cannot be made.
pub fn audit(options: &Options) -> io::Result<(i32, Option<Vec<Usage>>)> {
    let ledger = Ledger::new()?;
    Ok(match launch(options, Some(&ledger)) {
        Ok(status) => (status, Some(ledger.usage())),
        Err(status) => (status, None),
    })
}

/// The program's exit status, or ours if it did not start.
fn launch(options: &Options, ledger: Option<&Ledger>) -> Result<i32, i32> {
    let Some(program) = find(&options.program, env::var_os("PATH").as_deref()) else {
        let program = options.program.display();
        error!(%program, "{program}: not found");
        return Err(NOT_FOUND);
    };
    let mut command = Command::new(&program);
    command.args(&options.args);
    // The service manager waits for a sign of life of this process's, by its id: the program gives it, which has another one.
    if process::watchdog().is_some() {
        command.env_remove("WATCHDOG_PID");
    }
    if !ready::is_ready(&options.keys) {
        return Err(FAILED);
    }
    command.env(KEYS_VARIABLE, options.keys.place().name());
    command.env_remove(KEY_NAMES_VARIABLE);
    if let Keys::Keeper(path) = &options.keys {
        command.env(KEEPER_VARIABLE, path);
        if !options.key_names.is_empty() {
            command.env(KEY_NAMES_VARIABLE, options.key_names.join(","));
        }
    }
    if options.keys != Keys::Process && options.intercept == Intercept::Preload {
        let and = options.keys.and_not_kept();
        warn!("a static program is not served (--intercept preload){and}");
    }
    let raised = raises_privilege(&program);
    let foreign = loader::is_foreign(&program);
    if raised {
        let program = program.display();
        let and = options.keys.and_not_kept();
        warn!(%program, "{program}: set-user-id or with capabilities of its own: runs without us{and}");
    } else if foreign && options.intercept == Intercept::Preload {
        let program = program.display();
        let and = options.keys.and_not_kept();
        warn!(
            %program,
            "{program}: a program of another architecture, which the library is not for: runs without us{and}"
        );
    } else if options.intercept != Intercept::Seccomp && !foreign {
        match preload(options) {
            Ok(list) => {
                command.env("LD_PRELOAD", list).env("SEALANE_PROFILE", options.profile.name());
                if let Some(ledger) = ledger {
                    command.env("SEALANE_AUDIT", ledger.path());
                }
            }
            Err(e) => {
                error!("{e}");
                return Err(FAILED);
            }
        }
    }
    let watched = !raised && options.intercept != Intercept::Preload;
    if watched {
        check_profile(options)?;
    }
    // A daemon serves programs by the rules of the open profile.
    let by_daemon = watched && options.tcp_ao && options.profile == Profile::Open;
    let daemon = if by_daemon { runtime::folder().and_then(|folder| Daemon::of(&folder)) } else { None };
    let is_listener = listening::is_listener();
    let launch = Launch { options, ledger, program, watched, is_listener, signals: Signals::block() };
    if !launch.watched {
        return launch.run(command, daemon, None);
    }
    match guard::split(launch.loss(daemon.is_some()), &launch.signals) {
        Ok(Side::Guard(guard)) => match guard.stand_by(&launch.signals) {
            Duty::Over { status, started: true } => Ok(status),
            Duty::Over { status, started: false } => Err(status),
            Duty::TakeOver(orphan) => Ok(launch.take_over(orphan, daemon)),
        },
        Ok(Side::Launcher(guarded)) => {
            let status = launch.run(command, daemon, Some(&guarded)).unwrap_or_else(|status| status);
            // The guard goes on with what comes after the program.
            process::end_at_once(status)
        }
        Err(e) if launch.loss(daemon.is_some()) == Loss::Ends => {
            let program = launch.program.display();
            error!(%program, error = %e, "{program} does not run: nobody would end it when its launcher is killed: {e}");
            Err(FAILED)
        }
        Err(e) => {
            warn!(error = %e, "nobody serves the program when its launcher is killed: {e}");
            launch.run(command, daemon, None)
        }
    }
}

/// A program that is about to run.
struct Launch<'a> {
    options: &'a Options,
    ledger: Option<&'a Ledger>,
    /// Its path.
    program: PathBuf,
    /// Whether calls are intercepted by seccomp.
    watched: bool,
    /// Whether the service manager's descriptors are for it.
    is_listener: bool,
    signals: Signals,
}

impl Launch<'_> {
    /// The fate of the program without its launcher. It outlives it where a daemon serves it; what it has of this process
    /// would be lost.
    fn loss(&self, has_daemon: bool) -> Loss {
        let served = || runtime::folder().is_some_and(|folder| presence::any(&[folder]));
        match self.options.tcp_ao {
            _ if has_daemon => Loss::TakenOver,
            // Keys in this process would be gone with it, and the program's connections hang.
            true => Loss::Ends,
            false if served() => Loss::TakenOver,
            false => Loss::GoesOn,
        }
    }

    /// Whether the program is not to run unless its calls are watched: it would reach the kernel's own TCP-AO or IPsec, which
    /// has none of the keys, or nothing at all would be served. A launcher that this process runs under may do it.
    fn needs_filter(&self) -> bool {
        let only_by_it = || self.options.intercept == Intercept::Seccomp || has_ipsec();
        let (tcp_ao, others) = ((libc::IPPROTO_TCP, NETSTAT_QUERY), XFRM_STAT_QUERY);
        self.options.tcp_ao && !is_served(tcp_ao) || only_by_it() && !is_served(others)
    }

    /// Runs the program to its end.
    fn run(&self, command: Command, daemon: Option<Daemon>, guarded: Option<&Guarded>) -> Result<i32, i32> {
        let options = self.options;
        let numbers = Numbers::below(process::descriptor_limit());
        let required = self.watched && self.needs_filter();
        let filter = self.watched.then(|| Filtered { filter: Filter::new(&numbers, options.tcp_ao), required });
        if self.watched && yama_restricts() {
            process::become_subreaper();
        }
        let dies_with_us = self.loss(daemon.is_some()) == Loss::Ends;
        let program = Program { command, name: options.program.as_ref(), is_listener: self.is_listener };
        let started = process::spawn(program, &self.signals, filter, dies_with_us, guarded.map(Guarded::witness));
        let program = self.program.display();
        let Started { pid, listener } = started.map_err(|e| match e {
            NotStarted::Exec(e) => {
                error!(%program, error = %e, "{program}: {e}");
                if e.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
            }
            NotStarted::Filter(e) => {
                let why = refused(&e);
                error!(%program, error = %e, "{program} does not run: its calls cannot be watched (seccomp): {why}");
                FAILED
            }
        })?;
        debug!(%program, pid, watched = matches!(listener, Some(Ok(_))), "the program has started");
        process::no_core_for_us();
        process::close_inherited();
        let mut supervisor = None;
        match listener {
            Some(Ok(listener)) => {
                let known = KnownSockets::none();
                let calls = guarded.and_then(Guarded::calls);
                let listener = Listener::new(listener);
                supervisor = Some(self.supervisor(listener, numbers, daemon.map(|daemon| (daemon, known)), calls));
            }
            Some(Err(e)) if is_served(XFRM_STAT_QUERY) => {
                debug!(error = %e, "a launcher serves this program already: {e}");
            }
            Some(Err(e)) => {
                let why = refused(&e);
                warn!(
                    error = %e,
                    "a static program finds the kernel's AF_ALG{}, and all its NETLINK_XFRM: calls cannot be watched (seccomp): {why}",
                    if options.keys == Keys::Process { String::new() } else { format!(" ({})", options.keys.not_kept()) }
                );
            }
            None => {}
        }
        if let Some(supervisor) = &supervisor {
            supervisor.start();
        }
        Ok(self.wait(pid, supervisor.as_ref(), guarded))
    }

    /// Serves a program whose launcher was killed, to its end.
    fn take_over(&self, orphan: Orphan, daemon: Option<Daemon>) -> i32 {
        if let Some(status) = orphan.ended {
            return status;
        }
        let Orphan { pid, listener, calls, .. } = orphan;
        let waiting = calls.all();
        // Those that the launcher had received and had no place for are interrupted: nobody knows what they asked for.
        for id in calls.nearby().filter(|id| waiting.iter().all(|(call, _)| call.id != *id)) {
            if listener.valid(id) {
                listener.answer(id, Err(libc::EINTR));
            }
        }
        calls.clear();
        let numbers = Numbers::below(process::descriptor_limit());
        let daemon = daemon.map(|daemon| (daemon, KnownSockets::any()));
        let supervisor = self.supervisor(listener, numbers, daemon, Some(calls));
        supervisor.server.adopt_sockets();
        for (call, result) in waiting {
            match result {
                _ if !supervisor.listener.valid(call.id) => {}
                Some(value) => supervisor.listener.answer(call.id, Ok(value)),
                None => supervisor.answer_again(call),
            }
        }
        supervisor.start();
        self.wait(pid, Some(&supervisor), None)
    }

    /// The supervisor of what comes around the preloaded library, and of TCP-AO. `daemon` serves TCP-AO, if it is there.
    fn supervisor(
        &self,
        listener: Listener,
        numbers: Numbers,
        daemon: Option<(Daemon, KnownSockets)>,
        calls: Option<Arc<NotedCalls>>,
    ) -> Arc<Supervisor> {
        // Users have a small limit as a rule.
        if let Err(e) = process::lock_memory() {
            debug!(error = %e, "keys are not locked in memory: {e}");
        }
        let options = self.options;
        let profile = options.profile;
        let registry = LazyLock::new(registry as fn() -> Arc<Registry>);
        let engine = match daemon {
            Some((daemon, known)) => Some(Engine::Daemon(daemon, known)),
            None if options.tcp_ao => {
                Some(Engine::Own(Spaces::new(profile, Algorithms::new(&registry), options.data_path).into()))
            }
            None => None,
        };
        let make = move |host| System::new(registry.clone(), profile, host);
        // An audit looks at what a program does, and changes nothing about it.
        let kernel_ipsec = options.kernel_ipsec || self.ledger.is_some();
        let home = Home::new(&options.keys, &options.key_names);
        let audit = self.ledger.map(Ledger::words);
        serve::supervisor(listener, numbers, engine, kernel_ipsec, calls, home, audit, make)
    }

    /// Waits for the program's end, and behind a guard for that of all processes which it has left.
    fn wait(&self, pid: u32, supervisor: Option<&Arc<Supervisor>>, guarded: Option<&Guarded>) -> i32 {
        let server = supervisor.map(|supervisor| &supervisor.server);
        let admin = server.filter(|s| own(s).is_some()).and_then(|s| admin(s, &self.program));
        let status = wait(pid, &self.signals, server.is_some(), guarded);
        debug!(pid, status, "the program has ended");
        if let (Some(supervisor), Some(guarded)) = (supervisor, guarded)
            && supervisor.listener.is_used()
        {
            debug!("processes that it has left are served on");
            guarded.tell_end(status);
            self.serve_the_others(&supervisor.listener, guarded);
        }
        if let Some(spaces) = server.and_then(own) {
            spaces.stop(|time| self.signals.wait_for(time).is_some_and(ends));
        }
        drop(admin);
        status
    }

    /// Serves processes of the program in the background until the last one has ended.
    fn serve_the_others(&self, listener: &Listener, guarded: &Guarded) {
        if let Err(e) = process::leave_foreground() {
            debug!(error = %e, "the terminal and the folder stay in use: {e}");
        }
        // Signals are for the program, or for those processes themselves: without us they would be left alone.
        while let Ok(Some(signal)) = self.signals.wait_beside(listener.as_fd()) {
            if signal == Signal::Child {
                guarded.end_without_reaper();
                process::reap();
            }
        }
    }
}

/// Whether a signal is to end us.
fn ends(signal: Signal) -> bool {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal.number())
}

/// Whether a daemon serves IPsec in this network namespace, or did until it died.
fn has_ipsec() -> bool {
    let folders = runtime::folders();
    let here = Netns::current().and_then(|netns| netns.cookie());
    here.map_or_else(|_| presence::any(&folders), |cookie| presence::devices(&folders, cookie).is_some())
}

/// Says what programs will not find because of filters that this process is under already, a container's or a service
/// manager's: where they answer a call, the launcher does not see it.
fn check_profile(options: &Options) -> Result<(), i32> {
    let filter = || Filter::new(&Numbers::below(process::descriptor_limit()), options.tcp_ao);
    let answers = match older_filters::answers(filter, &[Probe::Alg, Probe::Xfrm]) {
        Ok(answers) => answers,
        // It says so itself where it matters.
        Err(e) => {
            debug!(error = %e, "seccomp profile: {e}");
            return Ok(());
        }
    };
    let only_by_it = options.intercept == Intercept::Seccomp;
    let serves_xfrm = || has_ipsec() && answers.iter().all(|(probe, _)| *probe != Probe::Xfrm);
    for (probe, answer) in &answers {
        match probe {
            Probe::Alg if only_by_it && !options.tcp_ao && !serves_xfrm() => {
                error!(
                    "nothing could be served: the seccomp profile that this process runs under {answer} \
                     socket(AF_ALG): allow it there, or leave out --intercept seccomp"
                );
                return Err(FAILED);
            }
            Probe::Alg if only_by_it => warn!(
                "the seccomp profile that this process runs under {answer} socket(AF_ALG): no program here finds \
                 AF_ALG, unless the profile allows it"
            ),
            Probe::Alg => warn!(
                "the seccomp profile that this process runs under {answer} socket(AF_ALG): dynamic programs are served \
                 by the library; static ones, Go and musl are not, unless the profile allows AF_ALG"
            ),
            Probe::Xfrm if has_ipsec() => warn!(
                "the seccomp profile that this process runs under {answer} socket(AF_NETLINK, ..., NETLINK_XFRM): no \
                 program here finds the daemon's IPsec, unless the profile allows it"
            ),
            Probe::Xfrm => {}
        }
    }
    Ok(())
}

/// The reason for which the kernel refuses a filter, for people.
fn refused(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EBUSY) => "a container's manager or another `sealane run` watches them already".to_owned(),
        _ => e.to_string(),
    }
}

/// The engine of TCP-AO in this process.
fn own(server: &Arc<Server>) -> Option<&Spaces> {
    server.tcp_ao.as_ref()?.own()
}

/// The socket over which `sealane tcp-ao show` asks. Without it the program runs all the same.
fn admin(server: &Arc<Server>, program: &Path) -> Option<admin::Server> {
    let folder = runtime::folder()?;
    let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let started_s = wall_ms() / 1000;
    let server = server.clone();
    let source = move || Snapshot {
        version: VERSION,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        role: Role::Run,
        pid: std::process::id(),
        program: program.clone(),
        started_s,
        taken_s: wall_ms() / 1000,
        health: Health { failures: Vec::new(), transient_errors: transient_errors() },
        namespaces: own(&server).map(Spaces::describe).unwrap_or_default(),
        ipsec: Vec::new(),
    };
    let started = admin::Server::start(&folder, Arc::new(source));
    let report = |e: &io::Error| {
        let folder = folder.display();
        warn!(%folder, error = %e, "tcp-ao show will not find us: {folder}: {e}");
    };
    started.inspect_err(report).ok()
}

/// The errors of the kernel that pass by themselves.
fn transient_errors() -> Vec<Tally> {
    transient::counts().map(|(name, count)| Tally { name: name.to_owned(), count }).collect()
}

/// Every driver of this build, with this machine's table; says so where that cannot be used.
pub(crate) fn registry() -> Arc<Registry> {
    let (registry, error) = sealane_drivers::system_registry();
    if let Some(e) = error {
        warn!(error = %e, "calibration: {e}; using the shipped table");
    }
    Arc::new(registry)
}

/// Passes signals on until the program has ended.
fn wait(pid: u32, signals: &Signals, serves: bool, guarded: Option<&Guarded>) -> i32 {
    loop {
        match signals.wait() {
            Signal::Child => {
                guarded.inspect(|guarded| guarded.end_without_reaper());
                while let Some(change) = process::changed(pid) {
                    match (status_of(change), guarded) {
                        (Some(status), guarded) => {
                            // It may have been killed while it was stopped.
                            guarded.inspect(|guarded| guarded.follow(false));
                            return status;
                        }
                        (None, Some(guarded)) => guarded.follow(change == Change::Stopped),
                        // Stopped from the keyboard: our shell has to see it too. Continued, we continue it.
                        (None, None) if change == Change::Stopped && !serves => {
                            process::stop_self();
                            process::kill(pid, libc::SIGCONT);
                        }
                        // Whoever is served would wait for us.
                        (None, None) => {}
                    }
                }
            }
            Signal::Sent { signal, .. } => process::kill(pid, signal),
            // The program is not told by the kernel.
            Signal::Terminal(libc::SIGHUP) if process::leads_session() => process::kill(pid, libc::SIGHUP),
            Signal::Terminal(_) => {}
        }
    }
}

/// The program's path: as given if it has a slash, else the first executable file of its name in `path`.
fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let runs = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0);
    env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin"))).map(|dir| dir.join(program)).find(runs)
}

/// Whether the kernel would run it with more rights than its user has.
fn raises_privilege(program: &Path) -> bool {
    let Ok(meta) = program.metadata() else { return false };
    let set_group_id = meta.mode() & 0o2010 == 0o2010;
    meta.mode() & 0o4000 != 0 || set_group_id || process::has_capabilities(program)
}

/// The value of LD_PRELOAD.
fn preload(options: &Options) -> Result<OsString, String> {
    let shim = match options.shim.clone().or_else(|| env::var_os("SEALANE_SHIM").map(PathBuf::from)) {
        Some(given) => given,
        None => {
            let here = env::current_exe().map_err(|e| format!("cannot find our own executable: {e}"))?;
            let beside = here.parent().unwrap_or(Path::new("/"));
            let places = [beside.join(SHIM), beside.join("../lib/sealane").join(SHIM), beside.join("..").join(SHIM)];
            places.into_iter().find(|p| p.is_file()).ok_or_else(|| {
                format!("{SHIM} is neither beside the executable nor in ../lib/sealane; SEALANE_SHIM can name it")
            })?
        }
    };
    let shim = shim.canonicalize().map_err(|e| format!("{}: {e}", shim.display()))?;
    // The loader splits the list at spaces and colons, and puts other words in the place of some that begin with a dollar sign.
    if shim.as_os_str().as_encoded_bytes().iter().any(|b| b" :$".contains(b)) {
        return Err(format!("{}: a path with spaces, colons or dollar signs cannot be preloaded", shim.display()));
    }
    // Children get the list, too, and nobody asks us what loader they have.
    let mut list = loader::only_for_glibc(&shim).unwrap_or_else(|| {
        debug!("programs whose loader is not glibc's find a library that they cannot load");
        shim.into_os_string()
    });
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        list.push(":");
        list.push(others);
    }
    Ok(list)
}

const SHIM: &str = "libsealane_shim.so";

/// Whether Yama lets a process look only into its own descendants.
fn yama_restricts() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|s| s.trim() != "0")
}
