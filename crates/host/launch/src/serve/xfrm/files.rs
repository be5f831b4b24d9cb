//! Files of /proc that tell of IPsec and set it: `/proc/net/xfrm_stat`, and `/proc/sys/net/core/xfrm_*` where the kernel
//! does not have them. Calls that name other files are the kernel's.

use super::link::{self, may_administer, may_have_daemon, peer_netns, within};
use crate::serve::server::{Done, Server, Verdict};
use sealane_sys::netns::Netns;
use sealane_sys::peer::capabilities;
use sealane_sys::seccomp::Notification;
use sealane_sys::thread::{Span, Thread};
use sealane_sys::{mapping, runtime, stat, xfrm_settings};
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// A file of these, as a path names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// net/xfrm_stat of the network namespace of this thread (0), of this process (-1), or of the process named.
    Stat(i32),
    /// A setting of this thread's network namespace.
    Setting(&'static str),
}

/// The length of the longest path of theirs, with its end.
const MAX_PATH: usize = 48;

impl Named {
    fn of(path: &[u8]) -> Option<Named> {
        let rest = path.strip_prefix(b"/proc/")?;
        if let Some(name) = rest.strip_prefix(b"sys/net/core/xfrm_") {
            let setting = xfrm_settings::SETTINGS.iter().find(|(setting, _)| setting.as_bytes() == name);
            return setting.map(|(name, _)| Named::Setting(name));
        }
        match rest.strip_suffix(b"net/xfrm_stat")?.strip_suffix(b"/") {
            None if rest.starts_with(b"net/") => Some(Named::Stat(-1)),
            None => None,
            Some(b"self") => Some(Named::Stat(-1)),
            Some(b"thread-self") => Some(Named::Stat(0)),
            Some(pid) => core::str::from_utf8(pid).ok()?.parse().ok().filter(|pid| *pid > 0).map(Named::Stat),
        }
    }

    /// The network namespace whose file it is.
    fn netns(self, peer: &Thread) -> Option<Netns> {
        match self {
            // The program names a process by its number, as it does for /proc.
            Named::Stat(pid @ 1..) => Netns::open(&format!("/proc/{pid}/ns/net")).ok(),
            Named::Stat(-1) => {
                let process = peer.process()?;
                peer.ask(|_| Netns::open(&format!("/proc/{process}/ns/net")))?.ok()
            }
            Named::Stat(_) | Named::Setting(_) => peer_netns(peer).ok(),
        }
    }

    /// A file of the same kind that every kernel has, whose attributes are told.
    fn like(self) -> &'static CStr {
        match self {
            Named::Stat(_) => c"/proc/self/net/netstat",
            Named::Setting(_) => c"/proc/sys/net/core/somaxconn",
        }
    }
}

/// The place of a call's path among its arguments; `None` for calls that name no file.
fn path_argument(nr: i64) -> Option<usize> {
    match nr {
        libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2 => Some(1),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open | libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => Some(0),
        _ => None,
    }
}

/// Serves a call that names a file.
pub(super) fn serve(server: &Arc<Server>, n: &Notification, peer: &Thread) -> Option<Done> {
    let at = path_argument(n.nr)?;
    let named = peer.string::<MAX_PATH>(n.arg(at)).ok().as_deref().and_then(Named::of);
    Some(match named {
        Some(named) if !peer.secure() => on(server, n, peer, named, at),
        _ => Err(Verdict::Pass),
    })
}

fn on(server: &Arc<Server>, n: &Notification, peer: &Thread, named: Named, path_at: usize) -> Done {
    let netns = named.netns(peer).filter(|netns| may_have_daemon(peer, netns)).ok_or(Verdict::Pass)?;
    // The daemon may be slow to answer.
    server.leave_listening()?;
    let rest = |i: usize| n.arg(path_at + i);
    match n.nr {
        libc::SYS_openat2 => {
            let flags = u64::from_ne_bytes(peer.bytes(rest(1))?);
            open(server, n, peer, named, &netns, i32::try_from(flags).map_err(|_| Verdict::Pass)?)
        }
        libc::SYS_openat => open(server, n, peer, named, &netns, rest(1) as i32),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => open(server, n, peer, named, &netns, rest(1) as i32),
        _ if !is_only_ours(named, &netns) => Err(Verdict::Pass),
        libc::SYS_statx => {
            let told = stat::statx(named.like(), rest(1) as i32, rest(2) as u32).map_err(errno)?;
            peer.write(&[Span { at: rest(3), len: told.len() }], &told)?;
            Ok(0)
        }
        libc::SYS_newfstatat => tell(peer, named, rest(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat => tell(peer, named, rest(1)),
        _ => access(peer, named, &netns, rest(1) as i32),
    }
}

/// stat(2) of a file that the kernel does not have.
fn tell(peer: &Thread, named: Named, at: u64) -> Done {
    let told = stat::stat(named.like()).map_err(errno)?;
    peer.write(&[Span { at, len: told.len() }], &told)?;
    Ok(0)
}

/// access(2) of a file that the kernel does not have.
fn access(peer: &Thread, named: Named, netns: &Netns, mode: i32) -> Done {
    if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
        return Err(libc::EINVAL.into());
    }
    const CAP_DAC_OVERRIDE: u64 = 1 << 1;
    let may_write = || match named {
        Named::Stat(_) => peer.status().is_some_and(|status| capabilities(&status) & CAP_DAC_OVERRIDE != 0),
        Named::Setting(_) => may_administer(peer, netns),
    };
    if mode & libc::X_OK != 0 || mode & libc::W_OK != 0 && !may_write() { Err(libc::EACCES.into()) } else { Ok(0) }
}

/// Whether a daemon has it and the kernel does not.
fn is_only_ours(named: Named, netns: &Netns) -> bool {
    let asked = within(netns, || {
        let kernel_has = match named {
            Named::Stat(_) => Path::new("/proc/thread-self/net/xfrm_stat").exists(),
            Named::Setting(name) => xfrm_settings::of_kernel(name).exists(),
        };
        Ok(!kernel_has && link::is_served()?)
    });
    asked.unwrap_or(false)
}

/// open(2). The counters are those of the time at which they are opened.
fn open(server: &Server, n: &Notification, peer: &Thread, named: Named, netns: &Netns, flags: i32) -> Done {
    let mode = flags & libc::O_ACCMODE;
    if flags & libc::O_PATH != 0 {
        return Err(Verdict::Pass);
    }
    let file = match named {
        // Nothing can be written to the kernel's.
        Named::Stat(_) if mode != libc::O_RDONLY => return Err(Verdict::Pass),
        Named::Setting(_) if !is_only_ours(named, netns) => return Err(Verdict::Pass),
        _ if flags & libc::O_DIRECTORY != 0 => return Err(libc::ENOTDIR.into()),
        Named::Stat(_) => {
            let text = within(netns, link::counters).ok().flatten().ok_or(Verdict::Pass)?;
            mapping::text_file("xfrm_stat", &text).map_err(errno)?
        }
        Named::Setting(_) if mode != libc::O_RDONLY && !may_administer(peer, netns) => return Err(libc::EACCES.into()),
        Named::Setting(name) => {
            let cookie = netns.cookie().map_err(errno)?;
            let (read, write) = (mode != libc::O_WRONLY, mode != libc::O_RDONLY);
            xfrm_settings::open(&runtime::folders(), cookie, name, read, write).map_err(errno)?
        }
    };
    let cloexec = flags & libc::O_CLOEXEC != 0;
    server.listener.hand_over_lowest(n.id, file.as_fd(), cloexec).map_err(errno)?;
    Err(Verdict::Answered)
}

fn errno(e: std::io::Error) -> Verdict {
    match e.raw_os_error() {
        // The daemon has ended in good order meanwhile.
        Some(libc::ENOENT) => Verdict::Pass,
        number => Verdict::Fail(number.unwrap_or(libc::EIO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (path, named) in [
            ("/proc/net/xfrm_stat", Some(Named::Stat(-1))),
            ("/proc/self/net/xfrm_stat", Some(Named::Stat(-1))),
            ("/proc/thread-self/net/xfrm_stat", Some(Named::Stat(0))),
            ("/proc/4194304/net/xfrm_stat", Some(Named::Stat(4_194_304))),
            ("/proc/0/net/xfrm_stat", None),
            ("/proc/-1/net/xfrm_stat", None),
            ("/proc/net/net/xfrm_stat", None),
            ("/proc/xnet/xfrm_stat", None),
            ("/proc/net/xfrm_stats", None),
            ("/proc/net/netstat", None),
            ("/proc/sys/net/core/xfrm_acq_expires", Some(Named::Setting("acq_expires"))),
            ("/proc/sys/net/core/xfrm_aevent_rseqth", Some(Named::Setting("aevent_rseqth"))),
            ("/proc/sys/net/core/xfrm_", None),
            ("/proc/sys/net/core/somaxconn", None),
            ("proc/net/xfrm_stat", None),
            ("", None),
        ] {
            assert_eq!(Named::of(path.as_bytes()), named, "{path}");
            assert!(named.is_none() || path.len() < MAX_PATH, "{path}");
        }
    }
}
