//! Programs for which a service manager has opened descriptors (`sd_listen_fds(3)`).

use core::ffi::c_char;
use core::ptr;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// The process that the descriptors are for: no other takes them.
const PID: &str = "LISTEN_PID";
/// The same by the inode of its pidfd; a program that finds none goes by the number.
const PIDFD_ID: &str = "LISTEN_PIDFDID";

/// Whether a service manager has opened descriptors for this process.
#[must_use]
pub fn is_listener() -> bool {
    std::env::var(PID).is_ok_and(|pid| pid.parse() == Ok(std::process::id()))
}

/// The exec of a program that is to take descriptors over: the environment names the process that the exec happens in. Its
/// id is known only after the fork, when nothing may be allocated any more, so that all else is made before.
pub(crate) struct Exec {
    path: CString,
    /// What `argv` and `envp` point at.
    _strings: Vec<CString>,
    argv: Vec<*const c_char>,
    /// The one before the last is of the variable that names the process.
    envp: Vec<*const c_char>,
    pid: [u8; 32],
}

// SAFETY: the pointers are to strings that it owns and that nobody changes.
unsafe impl Send for Exec {}
// SAFETY: as above; by a shared reference nothing can be done with it.
unsafe impl Sync for Exec {}

impl Exec {
    /// That of a command. `name`: the program's argument 0.
    pub(crate) fn new(command: &Command, name: &OsStr) -> io::Result<Self> {
        let arguments: Vec<_> = core::iter::once(name).chain(command.get_args()).map(text).collect::<Result<_, _>>()?;
        let variables: Vec<_> =
            environment(command).iter().map(|(name, value)| variable(name, value)).collect::<Result<_, _>>()?;
        let pointers = |strings: &[CString]| strings.iter().map(|string| string.as_ptr()).collect::<Vec<_>>();
        let (mut argv, mut envp) = (pointers(&arguments), pointers(&variables));
        argv.push(ptr::null());
        envp.extend([ptr::null(), ptr::null()]);
        let strings = arguments.into_iter().chain(variables).collect();
        Ok(Self { path: text(command.get_program())?, _strings: strings, argv, envp, pid: [0; 32] })
    }

    /// Returns only if exec fails. Async-signal-safe.
    pub(crate) fn exec(&mut self) -> io::Error {
        if let Err(e) = write!(&mut self.pid[..], "{PID}={}\0", std::process::id()) {
            return e;
        }
        let last = self.envp.len() - 2;
        self.envp[last] = self.pid.as_ptr().cast();
        // SAFETY: strings with an end, and arrays of pointers to such with a null pointer at theirs; all live on.
        unsafe { libc::execvpe(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// The variables of a command, but for those that name the process.
fn environment(command: &Command) -> BTreeMap<OsString, OsString> {
    let mut all: BTreeMap<_, _> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => all.insert(name.to_owned(), value.to_owned()),
            None => all.remove(name),
        };
    }
    all.retain(|name, _| name != PID && name != PIDFD_ID);
    all
}

fn variable(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    Ok(CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?)
}

fn text(of: &OsStr) -> io::Result<CString> {
    Ok(CString::new(of.as_bytes())?)
}
