//! Changes of credentials, before which a process parts from those that it shares its sockets with (detach.rs).
//!
//! A change that fails has the same effect: nobody can tell beforehand.

use crate::detach::detach;
use crate::entry::real;
use crate::sys::raw;
use core::ffi::{c_char, c_int, c_ulong, c_void};
use libc::{gid_t, uid_t};

/// The real, effective and saved ids of the thread, of users or of groups.
fn ids(number: i64) -> Option<[u32; 3]> {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: pointers to three words.
    let done = unsafe { raw!(number, &raw mut *real, &raw mut *effective, &raw mut *saved) };
    (done == 0).then_some(ids)
}

/// Parts, unless each of the ids to be set is what all of them are already.
fn before(number: i64, wanted: &[u32]) {
    let same = ids(number).is_some_and(|have| wanted.iter().all(|id| *id == u32::MAX || have.iter().all(|h| h == id)));
    if !same {
        detach();
    }
}

/// Parts before a call by number that changes credentials: `syscall(2)` itself.
pub(crate) fn before_call(number: i64, args: [usize; 4]) {
    let [a, b, ..] = args;
    match number {
        libc::SYS_prctl => before_prctl(a as c_int, b as c_ulong),
        libc::SYS_setns | libc::SYS_unshare if !changes_rights(if number == libc::SYS_setns { b } else { a }) => {}
        _ => detach(),
    }
}

/// Whether flags of clone(2) name a namespace that rights or process ids depend on; those of setns(2) may name none.
fn changes_rights(flags: usize) -> bool {
    flags == 0 || flags & (libc::CLONE_NEWUSER | libc::CLONE_NEWPID) as usize != 0
}

fn before_prctl(option: c_int, _arg: c_ulong) {
    if matches!(option, libc::PR_SET_SECCOMP | libc::PR_CAPBSET_DROP) {
        detach();
    }
}

macro_rules! changes {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $before:expr;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
            if crate::table::active() {
                $before;
            }
            real!($name($($arg: $ty),*) -> c_int)
        }
    )+};
}

changes! {
    /// `setuid(2)`.
    fn setuid(id: uid_t) before(libc::SYS_getresuid, &[id]);
    /// `seteuid(3)`.
    fn seteuid(id: uid_t) before(libc::SYS_getresuid, &[id]);
    /// `setreuid(2)`.
    fn setreuid(real: uid_t, effective: uid_t) before(libc::SYS_getresuid, &[real, effective]);
    /// `setresuid(2)`.
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) before(libc::SYS_getresuid, &[real, effective, saved]);
    /// `setgid(2)`.
    fn setgid(id: gid_t) before(libc::SYS_getresgid, &[id]);
    /// `setegid(3)`.
    fn setegid(id: gid_t) before(libc::SYS_getresgid, &[id]);
    /// `setregid(2)`.
    fn setregid(real: gid_t, effective: gid_t) before(libc::SYS_getresgid, &[real, effective]);
    /// `setresgid(2)`.
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) before(libc::SYS_getresgid, &[real, effective, saved]);
    /// `setgroups(2)`.
    fn setgroups(n: usize, groups: *const gid_t) detach();
    /// `initgroups(3)`.
    fn initgroups(user: *const c_char, group: gid_t) detach();
    /// `setfsuid(2)`, which changes nothing that we look at, but what files can be reached.
    fn setfsuid(id: uid_t) before(libc::SYS_getresuid, &[id]);
    /// `setfsgid(2)`.
    fn setfsgid(id: gid_t) before(libc::SYS_getresgid, &[id]);
    /// `capset(2)`.
    fn capset(header: *mut c_void, sets: *const c_void) detach();
    /// `chroot(2)`.
    fn chroot(path: *const c_char) detach();
    /// `setns(2)`.
    fn setns(fd: c_int, kind: c_int) if changes_rights(kind as usize) { detach() };
    /// `unshare(2)`.
    fn unshare(flags: c_int) if changes_rights(flags as usize) { detach() };
    /// `prctl(2)`.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) before_prctl(option, a);
}
