//! Starting a program and waiting for it.

use super::listening;
use super::seccomp::Filter;
use super::unix;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::FdFlags;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Resource, WaitOptions};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::SplitAsciiWhitespace;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A change of the program's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// It was stopped.
    Stopped,
    /// It goes on.
    Continued,
}

/// Signals that are passed on to the program.
const FORWARDED: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGCONT,
    libc::SIGTSTP,
];

/// The signals that end a service.
pub const ENDS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT];

/// The signals that the launcher handles while its program runs; they stay blocked until it waits for them.
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The program's state has changed.
    Child,
    /// A process sent this signal.
    Sent {
        /// Its number.
        signal: i32,
        /// The process, by its id.
        from: u32,
    },
    /// The kernel sent this one: most come from the terminal, for the whole process group.
    Terminal(i32),
}

impl Signal {
    /// Its number, whoever sent it.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Signal::Child => libc::SIGCHLD,
            Signal::Sent { signal, .. } | Signal::Terminal(signal) => signal,
        }
    }

    fn of(signal: i32, info: &libc::siginfo_t) -> Self {
        match signal {
            libc::SIGCHLD => Signal::Child,
            // SAFETY: the kernel has filled it in for a signal of a process.
            signal if info.si_code <= 0 => Signal::Sent { signal, from: unsafe { info.si_pid() } as u32 },
            signal => Signal::Terminal(signal),
        }
    }
}

impl Signals {
    /// Blocks them in this thread and in those that it starts.
    pub fn block() -> Self {
        // SAFETY: all-zero sets are valid, and are then filled in by libc.
        unsafe {
            let mut signals = Signals { set: core::mem::zeroed(), before: core::mem::zeroed() };
            libc::sigemptyset(&mut signals.set);
            for signal in FORWARDED.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(&mut signals.set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &signals.set, &mut signals.before);
            signals
        }
    }

    /// Waits for the next signal, at most for `timeout`.
    pub fn wait_for(&self, timeout: Duration) -> Option<Signal> {
        let time = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // SAFETY: a valid set, a time, and a zeroed siginfo to be filled in.
        let (signal, info) = unsafe {
            let mut info: libc::siginfo_t = core::mem::zeroed();
            (libc::sigtimedwait(&self.set, &mut info, &time), info)
        };
        // EAGAIN: none came; EINTR: another signal.
        (signal > 0).then(|| Signal::of(signal, &info))
    }

    /// Waits for the next signal, or until `fd` has hung up.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait_beside(&self, fd: BorrowedFd<'_>) -> io::Result<Option<Signal>> {
        // SAFETY: a valid set; the new descriptor is ours.
        let ready = unsafe {
            let ready = libc::signalfd(-1, &self.set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if ready < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(ready)
        };
        loop {
            let mut fds = [PollFd::new(&ready, PollFlags::IN), PollFd::from_borrowed_fd(fd, PollFlags::empty())];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            if fds[1].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                return Ok(None);
            }
            if let Some(signal) = self.wait_for(Duration::ZERO) {
                return Ok(Some(signal));
            }
        }
    }

    /// Waits for the next signal.
    pub fn wait(&self) -> Signal {
        loop {
            // SAFETY: a valid set, and a zeroed siginfo to be filled in.
            let (signal, info) = unsafe {
                let mut info: libc::siginfo_t = core::mem::zeroed();
                (libc::sigwaitinfo(&self.set, &mut info), info)
            };
            // EINTR: another signal.
            if signal > 0 {
                return Signal::of(signal, &info);
            }
        }
    }
}

/// Stops this process, as its program was stopped, until it is continued.
pub fn stop_self() {
    // SAFETY: plain values.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Stops this process as Ctrl-Z stops one that does not handle it.
pub fn stop_from_keyboard() {
    // SAFETY: an all-zero set is valid, and is then filled in by libc.
    unsafe {
        let (mut stop, mut before): (libc::sigset_t, libc::sigset_t) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigemptyset(&mut stop);
        libc::sigaddset(&mut stop, libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &stop, &mut before);
        libc::raise(libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
    }
}

/// Sends a signal.
pub fn kill(pid: u32, signal: i32) {
    let signal = rustix::process::Signal::from_named_raw(signal);
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid as i32), signal) {
        // It is no error if the process is gone.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// This process's parent.
#[must_use]
pub fn parent() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid() as u32)
}

/// The kernel's answer to the end of a process's parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentsEnd {
    /// Nothing.
    Ignored,
    /// It kills this process.
    Kills,
    /// It sends SIGCHLD, which [`Signals`] wait for.
    Told,
}

/// Chooses what happens to this process when its parent ends. A change of the user undoes it.
pub fn at_parents_end(what: ParentsEnd) {
    let signal = match what {
        ParentsEnd::Ignored => None,
        ParentsEnd::Kills => Some(rustix::process::Signal::KILL),
        ParentsEnd::Told => Some(rustix::process::Signal::CHILD),
    };
    // The kernel has nothing against it.
    let _ = rustix::process::set_parent_process_death_signal(signal);
}

/// Has the kernel kill the process of a command when the thread that starts it ends, however that comes.
pub fn ends_with_us(command: &mut Command) {
    let parent = std::process::id() as i32;
    // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            end_with(parent);
            Ok(())
        });
    }
}

/// Has the kernel kill this process, which is between fork and exec, when its parent's thread ends. Async-signal-safe.
fn end_with(parent: i32) {
    // SAFETY: these calls have no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            // The parent has died already.
            libc::_exit(1);
        }
    }
}

/// Whether this process leads its session: it alone is told that the terminal is gone.
#[must_use]
pub fn leads_session() -> bool {
    rustix::process::getsid(None) == Ok(rustix::process::getpid())
}

/// Closes descriptors that whoever started this process left open for the program: files stay locked, and pipes open, as
/// long as anybody has them. Standard input, output and error stay.
pub fn close_inherited() {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    for fd in numbers.filter(|fd| *fd > libc::STDERR_FILENO).collect::<Vec<_>>() {
        // SAFETY: what is not closed by exec is not ours: all that we open is.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                libc::close(fd);
            }
        }
    }
}

/// Leaves the terminal, its session, and the folder in which this process was started, as a program in the background does.
///
/// # Errors
/// The kernel's.
pub fn leave_foreground() -> io::Result<()> {
    // The leader of a process group cannot.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

/// Excludes all memory from core dumps of this process: the launcher holds keys of programs that it serves. Must be
/// called after the program has started, because it would inherit the filter.
pub fn no_core_for_us() {
    // Without /proc the filter cannot be set; that is acceptable.
    let _ = std::fs::write("/proc/self/coredump_filter", "0");
}

/// Keeps all memory of this process out of swap, what it gets later too. Pages are locked when they are first used, so
/// that reserved memory costs nothing. A program that is started later has no locked memory.
///
/// # Errors
/// `PermissionDenied` with a limit of locked memory (`RLIMIT_MEMLOCK`) that we may neither raise nor ignore
/// (CAP_IPC_LOCK): the process could not get memory any more as soon as it reaches the limit.
pub fn lock_memory() -> io::Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    use rustix::process::{Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities};
    let unlimited = Rlimit { current: None, maximum: None };
    if getrlimit(Resource::Memlock).current.is_some()
        && setrlimit(Resource::Memlock, unlimited).is_err()
        && !capabilities(None)?.effective.contains(CapabilitySet::IPC_LOCK)
    {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// Reports a state to the service manager, if there is one (`sd_notify(3)`).
pub fn notify(state: &str) {
    // It is no error if the manager does not listen.
    let _ = notify_with(state, None);
}

/// Reports a state to the service manager, with a descriptor that it is to keep (`sd_pid_notify_with_fds(3)`). Its socket
/// stays open, so that later reports need no descriptor.
///
/// # Errors
/// `NotFound` without a manager, otherwise the kernel's.
pub fn notify_with(state: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    static MANAGER: Mutex<Option<UnixDatagram>> = Mutex::new(None);
    let mut manager = MANAGER.lock();
    if let Some(socket) = manager.as_ref() {
        match unix::send_with(socket, state.as_bytes(), descriptor) {
            // The manager may have a new socket.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            done => return done.map(drop),
        }
    }
    let socket = manager_socket()?;
    let done = unix::send_with(&socket, state.as_bytes(), descriptor).map(drop);
    *manager = Some(socket);
    done
}

fn manager_socket() -> io::Result<UnixDatagram> {
    use std::os::linux::net::SocketAddrExt;
    let path = std::env::var_os("NOTIFY_SOCKET").ok_or(io::ErrorKind::NotFound)?;
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => std::os::unix::net::SocketAddr::from_abstract_name(name),
        None => std::os::unix::net::SocketAddr::from_pathname(&path),
    }?;
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// The time within which the service manager wants to be told again that this process lives (`sd_watchdog_enabled(3)`).
#[must_use]
pub fn watchdog() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|usec| ours && *usec > 0).map(Duration::from_micros)
}

/// Takes over the descriptors that the service manager has kept for this process, with their names
/// (`sd_listen_fds_with_names(3)`). Only the first call returns any.
pub fn take_kept_descriptors() -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    /// The first descriptor that a service manager passes (`SD_LISTEN_FDS_START`).
    const FIRST: RawFd = 3;
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::AcqRel) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).min(descriptor_limit());
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(core::iter::repeat(""));
    let take = |(fd, name): (RawFd, &str)| {
        // SAFETY: the manager opened these descriptors for this process, and nobody else here knows of them: they are
        // taken once. One that is not open is left alone.
        let descriptor = unsafe {
            if libc::fcntl(fd, libc::F_GETFD) < 0 {
                return None;
            }
            OwnedFd::from_raw_fd(fd)
        };
        rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC).ok()?;
        Some((name.to_owned(), descriptor))
    };
    (FIRST..FIRST + count as RawFd).zip(names).filter_map(take).collect()
}

/// The path of the executable of this process, also after another one has taken its place.
pub fn this_program() -> PathBuf {
    let same = PathBuf::from("/proc/self/exe");
    // By its own path its processes keep their name.
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or(same)
}

/// The variable by which a process learns that it has taken the place of one that failed.
const SUCCESSOR: &str = "SEALANE_STARTED_AGAIN";

/// Whether this process has taken the place of one that failed ([`Successor`]).
#[must_use]
pub fn is_successor() -> bool {
    std::env::var_os(SUCCESSOR).is_some()
}

/// A new process of the same executable, with the same arguments and the same id, that can take the place of this one at
/// any time: everything that this needs was prepared, so that no lock of another thread is in the way.
pub struct Successor {
    /// The paths of the executable that are tried.
    programs: Vec<CString>,
    /// Null-terminated lists of pointers into `strings`.
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    /// Owns what the pointers point to.
    _strings: Vec<CString>,
}

// SAFETY: nothing changes the strings that the pointers point to, and they live as long as the value.
unsafe impl Send for Successor {}
// SAFETY: as above.
unsafe impl Sync for Successor {}

impl Successor {
    /// Prepares it with the arguments and the environment of now.
    #[must_use]
    pub fn new() -> Self {
        let mark = [(OsString::from(SUCCESSOR), OsString::from("1"))];
        let others = std::env::vars_os().filter(|(name, _)| name != SUCCESSOR);
        let text = |bytes: Vec<u8>| CString::new(bytes).ok();
        let mut strings: Vec<CString> = std::env::args_os().filter_map(|one| text(one.into_vec())).collect();
        let count = strings.len();
        let pair = |(name, value): (OsString, OsString)| text([name.as_bytes(), b"=", value.as_bytes()].concat());
        strings.extend(others.chain(mark).filter_map(pair));
        let list = |of: &[CString]| of.iter().map(|s| s.as_ptr()).chain([core::ptr::null()]).collect();
        let (arguments, environment) = (list(&strings[..count]), list(&strings[count..]));
        let programs = [this_program(), PathBuf::from("/proc/self/exe")];
        let programs = programs.into_iter().filter_map(|path| text(path.into_os_string().into_vec())).collect();
        Successor { programs, arguments, environment, _strings: strings }
    }

    /// Replaces this process, from any thread; the others end. Returns only if that fails.
    pub fn take_over(&self) -> io::Error {
        for program in &self.programs {
            // SAFETY: strings and null-terminated lists of strings, which live until the call returns.
            unsafe { libc::execve(program.as_ptr(), self.arguments.as_ptr(), self.environment.as_ptr()) };
        }
        io::Error::last_os_error()
    }
}

impl Default for Successor {
    fn default() -> Self {
        Successor::new()
    }
}

/// Ends this process at once, without anything that another thread could be in the way of.
pub fn end_at_once(status: i32) -> ! {
    // SAFETY: a plain value.
    unsafe { libc::_exit(status) }
}

/// Leaves the terminal's session and this network namespace, drops all capabilities, and allows no core dump: for a
/// process that only keeps what others gave it.
///
/// # Errors
/// The kernel's.
pub fn seclude() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
    // Signals that the parent waits for would stay blocked.
    // SAFETY: an all-zero set is valid, and is then made empty by libc.
    unsafe {
        let mut none: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, core::ptr::null_mut());
    }
    // A leader of a process group cannot, and has left its session already.
    let _ = rustix::process::setsid();
    // A process keeps its network namespace alive. Without the right to, it stays.
    // SAFETY: no other thread runs, and no code here depends on the namespace.
    let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_name(c"sealane-holder")?;
    rustix::thread::set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    std::env::set_current_dir("/")
}

/// Whether a file has file capabilities.
pub fn has_capabilities(file: &Path) -> bool {
    rustix::fs::getxattr_query(file, c"security.capability").is_ok_and(|len| len > 0)
}

/// Makes the program's orphans our children: under Yama, a process may only inspect its own descendants.
pub fn become_subreaper() {
    // The kernel asks only whether the value is zero.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// A process that is not our child, safe against reuse of its id.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Watches the process `pid`, if it exists.
    pub fn new(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok().map(Watch)
    }

    /// Whether the process has not ended.
    pub fn lives(&self) -> bool {
        !super::peer::readable(std::os::fd::AsFd::as_fd(&self.0), 0)
    }
}

/// The effective user.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The soft limit of open descriptors.
pub fn descriptor_limit() -> u32 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(1 << 20) as u32
}

/// The change of state of `pid`, if there is one. Does not wait.
pub fn changed(pid: u32) -> Option<Change> {
    changed_of(&[pid]).map(|(_, change)| change)
}

/// The process among `pids` whose state has changed, if there is one. Does not wait.
pub fn changed_of(pids: &[u32]) -> Option<(u32, Change)> {
    loop {
        // Orphans that became our children are reaped on the way.
        let (who, status) =
            rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED).ok()??;
        let who = who.as_raw_pid() as u32;
        if pids.contains(&who) {
            let exited = status.exit_status().map(Change::Exited);
            let killed = status.terminating_signal().map(Change::Killed);
            let other = if status.continued() { Change::Continued } else { Change::Stopped };
            let change = exited.or(killed).unwrap_or(other);
            return Some((who, change));
        }
    }
}

/// Forgets children that have ended.
pub fn reap() {
    let _ = changed_of(&[]);
}

/// The children of this process.
fn children() -> io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        match std::fs::read_to_string(task.join("children")) {
            Ok(list) => all.extend(list.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok())),
            // The thread has ended, and another one has its children.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) || !task.exists() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// Kills the children of this process, and then those that these leave to it, until there are none. Returns the number of
/// processes that have ended. Only a process that takes orphans ([`become_subreaper`]) gets all of them.
///
/// # Errors
/// The kernel's, also where it has no lists of children (CONFIG_PROC_CHILDREN), and when one may not be killed: the others have
/// ended then.
pub fn end_children() -> io::Result<usize> {
    let (mut ended, mut refused, mut why) = (0, Vec::new(), None);
    loop {
        let next = children()?.into_iter().filter(|pid| !refused.contains(pid)).collect::<Vec<_>>();
        if next.is_empty() {
            return why.map_or(Ok(ended), Err);
        }
        for pid in next {
            let Some(child) = Pid::from_raw(pid as i32) else { continue };
            // One that has ended already waits for us, too.
            if let Err(e @ rustix::io::Errno::PERM) =
                rustix::process::kill_process(child, rustix::process::Signal::KILL)
            {
                refused.push(pid);
                why = Some(e.into());
                continue;
            }
            while let Err(rustix::io::Errno::INTR) = rustix::process::waitpid(Some(child), WaitOptions::empty()) {}
            ended += 1;
        }
    }
}

/// Whether a process has a seccomp filter. True where it cannot be told.
pub fn has_filter(pid: u32) -> bool {
    let status = super::peer::Peer(pid).status();
    status.as_deref().and_then(|text| super::peer::field(text, "Seccomp:")).is_none_or(|mode| mode.trim() == "2")
}

/// Splits this process in two, both of which go on from here. Returns the child's id to the parent, and `None` to the
/// child.
///
/// # Errors
/// `Unsupported` in a process with several threads, of which the child would have one only; otherwise the kernel's.
pub fn split() -> io::Result<Option<u32>> {
    let mut threads = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        threads += usize::from(runs(&task?.path()));
    }
    if threads != 1 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: there is no other thread, so that the child has all that the parent has, and no lock is held in it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some(child as u32)),
    }
}

/// Whether a thread of `/proc/self/task` runs code of its process. The kernel lists it for a moment after it has been joined.
fn runs(task: &Path) -> bool {
    /// `PF_EXITING` of `include/linux/sched.h`: set before the kernel wakes whoever joins the thread.
    const EXITING: u64 = 0x4;
    let Ok(stat) = std::fs::read_to_string(task.join("stat")) else { return task.exists() };
    // State, parent, group, session, terminal, its foreground group, flags.
    let flags = behind_name(&stat).and_then(|mut words| words.nth(6)?.parse::<u64>().ok());
    flags.is_none_or(|flags| flags & EXITING == 0)
}

/// The words of a `stat` of proc(5) from the state on, which is behind the name in parentheses. That may contain anything.
pub(crate) fn behind_name(stat: &str) -> Option<SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

/// A socket by which another process learns of a program before it runs: the tag, the program's id, and the filter's listener.
#[derive(Debug, Clone, Copy)]
pub struct Witness<'a> {
    /// The socket.
    pub socket: BorrowedFd<'a>,
    /// The first byte of the message, before the id (little endian).
    pub tag: u8,
}

/// A program that is to be started.
pub struct Program<'a> {
    /// Its command.
    pub command: Command,
    /// Its argument 0.
    pub name: &'a OsStr,
    /// Whether the service manager's descriptors are for it ([`listening::is_listener`], asked by the process that the manager has
    /// started).
    pub is_listener: bool,
}

/// A filter that a program starts under.
pub struct Filtered {
    /// The filter.
    pub filter: Filter,
    /// Whether the program is not to run without it.
    pub required: bool,
}

/// A program that has started.
pub struct Started {
    /// Its id.
    pub pid: u32,
    /// The listener of its filter, if it has one, or why the kernel refuses it.
    pub listener: Option<io::Result<OwnedFd>>,
}

/// Why a program has not started.
#[derive(Debug)]
pub enum NotStarted {
    /// The kernel refuses the filter that it is not to run without.
    Filter(io::Error),
    /// Exec fails.
    Exec(io::Error),
}

/// Starts a program under `filter`, if any.
///
/// # Errors
/// Those of exec, and the kernel's about a filter that is required.
pub fn spawn(
    program: Program<'_>,
    signals: &Signals,
    filter: Option<Filtered>,
    dies_with_us: bool,
    witness: Option<Witness<'_>>,
) -> Result<Started, NotStarted> {
    let Program { mut command, name, is_listener } = program;
    command.arg0(name);
    let mut exec = is_listener.then(|| listening::Exec::new(&command, name)).transpose().map_err(NotStarted::Exec)?;
    let (ours, theirs) = UnixDatagram::pair().map_err(NotStarted::Exec)?;
    let channel = theirs.as_raw_fd();
    let mask = signals.before;
    let parent = std::process::id() as i32;
    let witness = witness.map(|witness| (witness.socket.as_raw_fd(), witness.tag));
    let (watched, required) = (filter.is_some(), filter.as_ref().is_some_and(|filter| filter.required));
    // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut());
            if dies_with_us {
                end_with(parent);
            }
            if let Some(filtered) = &filter {
                install(filtered, channel, witness)?;
            }
            exec.as_mut().map_or(Ok(()), |exec| Err(exec.exec()))
        });
    }
    let child = command.spawn();
    drop(theirs);
    let mut errno = [0; 4];
    let told = ours.set_nonblocking(true).and_then(|()| unix::receive_with(&ours, &mut errno));
    let (listener, is_refused) = match told {
        Ok((_, Some(listener))) => (Ok(listener), false),
        Ok((4, None)) => (Err(io::Error::from_raw_os_error(i32::from_le_bytes(errno))), true),
        // It was lost on the way, or nothing came to that.
        _ => (Err(io::Error::from_raw_os_error(libc::EINVAL)), false),
    };
    match (child, listener) {
        (Ok(child), listener) => Ok(Started { pid: child.id(), listener: watched.then_some(listener) }),
        // Exec was not reached.
        (Err(_), Err(e)) if required && is_refused => Err(NotStarted::Filter(e)),
        (Err(e), _) => Err(NotStarted::Exec(e)),
    }
}

/// Installs the filter of the program that this process is about to become, and tells of its listener, or of the kernel's errno.
/// Async-signal-safe.
fn install(filtered: &Filtered, channel: RawFd, witness: Option<(RawFd, u8)>) -> io::Result<()> {
    match filtered.filter.install() {
        Ok(listener) => {
            send_fd(channel, &[0], listener);
            if let Some((socket, tag)) = witness {
                let [a, b, c, d] = std::process::id().to_le_bytes();
                send_fd(socket, &[tag, a, b, c, d], listener);
            }
            // SAFETY: nobody else here has it.
            unsafe { libc::close(listener) };
            Ok(())
        }
        Err(e) => {
            let errno = e.raw_os_error().unwrap_or(libc::EINVAL).to_le_bytes();
            // SAFETY: bytes that live until the call has ended.
            unsafe { libc::send(channel, errno.as_ptr().cast(), errno.len(), 0) };
            if filtered.required { Err(e) } else { Ok(()) }
        }
    }
}

/// Sends bytes with one descriptor over a socket. Async-signal-safe.
fn send_fd(socket: RawFd, bytes: &[u8], fd: RawFd) {
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 4];
    // SAFETY: one control message in a buffer that holds it, aligned; all pointers are to locals.
    unsafe {
        let mut msg: libc::msghdr = core::mem::zeroed();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
        let head = libc::CMSG_FIRSTHDR(&msg);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(socket, &msg, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_process_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            ends_with_us(command.arg("1000"));
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_thread_that_was_joined_does_not_run() {
        for _ in 0..1000 {
            let task = || PathBuf::from(format!("/proc/self/task/{}", rustix::thread::gettid()));
            let thread = std::thread::spawn(move || (runs(&task()), task()));
            let (ran, task) = thread.join().unwrap();
            assert!(ran && !runs(&task), "{}", task.display());
        }
    }
}
