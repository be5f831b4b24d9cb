//! Seccomp user notification: the kernel hands us the calls that a filter selects, while their caller waits.

mod tables;

use super::cbpf::Size::Word;
use super::cbpf::{NEXT, Program};
use core::mem::MaybeUninit;
use rustix::event::{PollFd, PollFlags, poll};
use sealane_abi::sealane::{NETSTAT_QUERY, SETTLED_QUERY, Told, XFRM_STAT_QUERY};
use sealane_abi::socket::{IP_XFRM_POLICY, IPV6_XFRM_POLICY, TCP_ULP, UDP_ENCAP};
use sealane_abi::tcp;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use tables::{AF_ALG, AF_KEY, AF_NETLINK, NETLINK_CRYPTO, NETLINK_ROUTE, NETLINK_XFRM, arg};

pub use tables::ForeignCall;
pub(crate) use tables::{ARCH, ARCH_AT, NR};

/// Options of other sockets that the IPsec daemon handles: level and name.
pub const XFRM_OPTIONS: [(i32, i32); 3] =
    [(libc::IPPROTO_UDP, UDP_ENCAP), (libc::IPPROTO_IP, IP_XFRM_POLICY), (libc::IPPROTO_IPV6, IPV6_XFRM_POLICY)];

/// Calls that are ours if their first argument is a stand-in.
#[rustfmt::skip]
const BY_FIRST: &[i64] = &[
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_setsockopt, libc::SYS_getsockopt, libc::SYS_getsockname,
    libc::SYS_getpeername, libc::SYS_listen, libc::SYS_connect, libc::SYS_shutdown, libc::SYS_sendto, libc::SYS_sendmsg,
    libc::SYS_sendmmsg, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_recvmmsg, libc::SYS_read, libc::SYS_write,
    libc::SYS_readv, libc::SYS_writev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_sendfile, libc::SYS_splice,
    libc::SYS_dup, libc::SYS_dup3, libc::SYS_fcntl, libc::SYS_ioctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
];

/// The descriptor numbers for stand-ins.
#[derive(Debug, Clone)]
pub struct Numbers {
    /// A range with room for thousands, which the program itself seldom reaches.
    pub high: core::ops::Range<u32>,
    /// A few numbers for `select`, which is limited to 1,024; empty if `high` is below that too.
    pub low: core::ops::Range<u32>,
}

impl Numbers {
    /// The top quarter below a soft limit of descriptors, at most 4,096, and 64 below 1,024.
    pub fn below(limit: u32) -> Self {
        let count = (limit / 4).clamp(1, 4096);
        let high = limit.saturating_sub(count)..limit.saturating_sub(count) + count;
        let low = if high.start >= 1024 { 960..1024 } else { 0..0 };
        Numbers { high, low }
    }

    /// Whether calls on this number are ours.
    pub fn contains(&self, fd: u32) -> bool {
        self.high.contains(&fd) || self.low.contains(&fd)
    }
}

/// A filter that selects calls about sockets of AF_ALG, PF_KEY, NETLINK_CRYPTO, NETLINK_XFRM and NETLINK_ROUTE, about options of other
/// sockets that concern IPsec, and about descriptors in a range of numbers.
pub struct Filter {
    code: Vec<libc::sock_filter>,
    /// Whether the caller may install it without giving up set-user-id programs for good.
    privileged: bool,
}

impl Filter {
    /// Creates a filter for stand-ins with these numbers, optionally with the calls of TCP-AO.
    pub fn new(numbers: &Numbers, tcp_ao: bool) -> Self {
        use libc::{BPF_JEQ, BPF_JGE, BPF_JGT};
        let mut c = Program::new();
        tables::select(&mut c, tcp_ao);
        c.load(Word, NR);
        c.jump(BPF_JEQ, libc::SYS_socket as u32, "socket", NEXT);
        c.jump(BPF_JEQ, libc::SYS_splice as u32, "third", NEXT);
        if tcp_ao {
            c.jump(BPF_JEQ, libc::SYS_connect as u32, "ask", NEXT);
        }
        c.jump(BPF_JEQ, libc::SYS_getsockopt as u32, "getsockopt", NEXT);
        c.jump(BPF_JEQ, libc::SYS_setsockopt as u32, "setsockopt", NEXT);
        // The port is in the caller's memory, which a filter cannot read.
        c.jump(BPF_JEQ, libc::SYS_bind as u32, "ask", NEXT);
        for (i, &nr) in BY_FIRST.iter().enumerate() {
            let last = i + 1 == BY_FIRST.len();
            c.jump(BPF_JEQ, nr as u32, "first", if last { "allow" } else { NEXT });
        }
        c.label("socket").load(Word, arg(0));
        c.jump(BPF_JEQ, AF_ALG, "ask", NEXT)
            .jump(BPF_JEQ, AF_KEY, "ask", NEXT)
            .jump(BPF_JEQ, AF_NETLINK, NEXT, "allow");
        c.load(Word, arg(2));
        c.jump(BPF_JEQ, NETLINK_XFRM, "ask", NEXT).jump(BPF_JEQ, NETLINK_ROUTE, "ask", NEXT);
        c.jump(BPF_JEQ, NETLINK_CRYPTO, "ask", "allow");
        c.label("setsockopt");
        c.load(Word, arg(1)).jump(BPF_JEQ, tcp::IPPROTO_TCP as u32, NEXT, "set not TCP");
        c.load(Word, arg(2)).jump(BPF_JEQ, TCP_ULP as u32, "ask", if tcp_ao { "TCP" } else { "first" });
        c.label("set not TCP");
        for ((level, name), other) in XFRM_OPTIONS.into_iter().zip(["not UDP", "not IP", "not IPv6"]) {
            c.load(Word, arg(1)).jump(BPF_JEQ, level as u32, NEXT, other);
            c.load(Word, arg(2)).jump(BPF_JEQ, name as u32, "ask", "first");
            c.label(other);
        }
        c.goto("first");
        c.label("getsockopt");
        c.load(Word, arg(1)).jump(BPF_JEQ, XFRM_STAT_QUERY.0 as u32, "ask", NEXT);
        c.jump(BPF_JEQ, tcp::IPPROTO_TCP as u32, NEXT, "first");
        c.load(Word, arg(2)).jump(BPF_JEQ, TCP_ULP as u32, "ask", NEXT);
        if !tcp_ao {
            c.goto("first");
        } else {
            c.label("TCP");
            // TCP-AO must coexist with TCP-MD5.
            for name in [tcp::TCP_MD5SIG, tcp::TCP_MD5SIG_EXT, NETSTAT_QUERY, SETTLED_QUERY] {
                c.jump(BPF_JEQ, name as u32, "ask", NEXT);
            }
            c.jump(BPF_JGT, tcp::TCP_AO_REPAIR as u32, "first", NEXT);
            c.jump(BPF_JGE, tcp::TCP_AO_ADD_KEY as u32, "ask", "first");
        }
        c.label("third").load(Word, arg(2));
        for range in [&numbers.high, &numbers.low] {
            c.jump(BPF_JGE, range.end, "first", NEXT).jump(BPF_JGE, range.start, "ask", NEXT);
        }
        c.label("first").load(Word, arg(0));
        for range in [&numbers.high, &numbers.low] {
            c.jump(BPF_JGE, range.end, "allow", NEXT).jump(BPF_JGE, range.start, "ask", NEXT);
        }
        c.goto("allow");
        c.label("ask").ret(libc::SECCOMP_RET_USER_NOTIF);
        c.label("allow").ret(libc::SECCOMP_RET_ALLOW);
        Filter { code: c.assemble(), privileged: effective_sys_admin() }
    }

    /// Puts the calling process and its future children under the filter, and returns the listener. Async-signal-safe.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` without seccomp, `EBUSY` if another listener exists.
    pub fn install(&self) -> io::Result<RawFd> {
        const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
        let program = libc::sock_fprog { len: self.code.len() as u16, filter: self.code.as_ptr().cast_mut() };
        // SAFETY: a valid program, which the kernel copies.
        unsafe {
            if !self.privileged {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            }
            let mut r = -1;
            // With the first set of flags, signals cannot interrupt a call while we serve it (Linux 5.19).
            for flags in
                [libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECV, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER]
            {
                r = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program);
                if r >= 0 {
                    break;
                }
            }
            if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r as RawFd) }
        }
    }
}

/// Launchers take it for the number of a process, of which there is none; for the kernel it is no descriptor.
const NOBODY: i32 = i32::MAX;

/// Whether a launcher that this process runs under answers questions about a process such as [`XFRM_STAT_QUERY`] (level and name of
/// an option) by `ENOENT`, as there is no such process: it serves the interface, then.
#[must_use]
pub fn is_served((level, name): (i32, i32)) -> bool {
    let mut len: libc::socklen_t = 0;
    // SAFETY: no room for an answer.
    let r = unsafe { libc::getsockopt(NOBODY, level, name, core::ptr::null_mut(), &mut len) };
    r != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT)
}

/// Asks the launcher that this process runs under for a text of at most 16 KiB, such as that of `KEYS_QUERY`.
///
/// # Errors
/// The launcher's.
pub fn ask_launcher((level, name): (i32, i32)) -> io::Result<Told> {
    let mut text = vec![0u8; 1 << 14];
    let mut len = text.len() as libc::socklen_t;
    // SAFETY: room of that length.
    let r = unsafe { libc::getsockopt(NOBODY, level, name, text.as_mut_ptr().cast(), &raw mut len) };
    let answer = match r {
        0 => {
            text.truncate(len as usize);
            Ok(text)
        }
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    };
    Told::of(answer).map_err(io::Error::from_raw_os_error)
}

/// Whether this process may install filters without PR_SET_NO_NEW_PRIVS.
fn effective_sys_admin() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    super::peer::capabilities(&status) & 1 << 21 != 0
}

/// A call that waits for our answer.
#[derive(Debug, Clone, Copy)]
pub struct Notification {
    /// The notification's id.
    pub id: u64,
    /// The thread that made it.
    pub tid: u32,
    /// The system call's number, in the table of its architecture.
    pub nr: i64,
    /// The architecture by which it was made (`AUDIT_ARCH_*`); see [`Self::foreign`].
    pub arch: u32,
    /// The arguments.
    pub args: [u64; 6],
}

/// The words of the kernel's `struct seccomp_notif`.
pub(super) const CALL: usize = size_of::<libc::seccomp_notif>() / size_of::<u64>();
const _: () = assert!(size_of::<libc::seccomp_notif>() == CALL * size_of::<u64>());

impl Notification {
    fn of(n: &libc::seccomp_notif) -> Self {
        Notification { id: n.id, tid: n.pid, nr: i64::from(n.data.nr), arch: n.data.arch, args: n.data.args }
    }

    /// The words of the kernel's structure.
    pub(super) fn to_words(self) -> [u64; CALL] {
        let data = libc::seccomp_data { nr: self.nr as i32, arch: self.arch, instruction_pointer: 0, args: self.args };
        let n = libc::seccomp_notif { id: self.id, pid: self.tid, flags: 0, data };
        // SAFETY: integers without padding, of the same size.
        unsafe { core::mem::transmute::<libc::seccomp_notif, [u64; CALL]>(n) }
    }

    /// The call that the words of the kernel's structure describe.
    pub(super) fn from_words(words: [u64; CALL]) -> Self {
        // SAFETY: integers without padding, of the same size.
        Notification::of(&unsafe { core::mem::transmute::<[u64; CALL], libc::seccomp_notif>(words) })
    }

    /// The call, if it was made by the table of another architecture than this process's.
    #[must_use]
    pub fn foreign(&self) -> Option<ForeignCall> {
        tables::foreign(self.arch, self.nr as u32, &self.args)
    }

    /// An argument, unchanged.
    pub fn arg(&self, i: usize) -> u64 {
        self.args[i]
    }

    /// An argument of type `int`.
    pub fn int(&self, i: usize) -> i32 {
        self.args[i] as i32
    }
}

/// The descriptor from which notifications are read.
#[derive(Debug)]
pub struct Listener(OwnedFd);

const fn iowr(nr: u64, size: usize, direction: u64) -> libc::Ioctl {
    (direction << 30 | (size as u64) << 16 | (b'!' as u64) << 8 | nr) as libc::Ioctl
}

#[repr(C)]
struct AddFd {
    id: u64,
    flags: u32,
    src: u32,
    new: u32,
    new_flags: u32,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// Wraps the descriptor that installing the filter returned.
    pub fn new(fd: OwnedFd) -> Self {
        // The caller waits while its call is served, so that one CPU is enough for both. Waking another one takes longer than most
        // calls. Kernels before 6.6 refuse it.
        const SYNC_WAKE_UP: libc::c_ulong = 1;
        // SAFETY: a plain value.
        unsafe { libc::ioctl(fd.as_raw_fd(), iowr(4, size_of::<u64>(), 1), SYNC_WAKE_UP) };
        Listener(fd)
    }

    /// The next call; `None` when no process is under the filter any more.
    ///
    /// # Errors
    /// The kernel's, when the listener can no longer be used.
    pub fn next(&self) -> io::Result<Option<Notification>> {
        let mut room = MaybeUninit::<libc::seccomp_notif>::zeroed();
        // SAFETY: zeros, and ours. The kernel writes there once.
        unsafe { self.next_into(|| room.as_mut_ptr()) }
    }

    /// The same, written by the kernel where `memory` says.
    ///
    /// # Errors
    /// As [`Self::next`].
    ///
    /// # Safety
    /// `memory` returns a pointer to zeros, which the kernel requires, that nobody else writes to meanwhile.
    pub(super) unsafe fn next_into(
        &self,
        mut memory: impl FnMut() -> *mut libc::seccomp_notif,
    ) -> io::Result<Option<Notification>> {
        loop {
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            if poll(&mut fds, None).is_ok() && !fds[0].revents().contains(PollFlags::IN) {
                return Ok(None);
            }
            let (memory, recv) = (memory(), iowr(0, size_of::<libc::seccomp_notif>(), 3));
            // SAFETY: zeros of that size, as the caller has promised.
            if unsafe { libc::ioctl(self.0.as_raw_fd(), recv, memory) } == 0 {
                // SAFETY: the kernel has filled it in.
                let call = unsafe { memory.read() };
                return Ok(Some(Notification::of(&call)));
            }
            match io::Error::last_os_error() {
                // The caller was killed in between, or another of our threads has taken the call.
                e if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {}
                e => return Err(e),
            }
        }
    }

    /// Whether there are still processes whose calls come here.
    pub fn is_used(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).is_err()
            || !fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Whether the caller still waits.
    pub fn valid(&self, id: u64) -> bool {
        // SAFETY: a pointer to the cookie.
        unsafe { libc::ioctl(self.0.as_raw_fd(), iowr(2, size_of::<u64>(), 1), &raw const id) == 0 }
    }

    fn respond(&self, response: &libc::seccomp_notif_resp) {
        let send = iowr(1, size_of::<libc::seccomp_notif_resp>(), 3);
        // SAFETY: a valid response. If the caller is gone, none is needed.
        unsafe { libc::ioctl(self.0.as_raw_fd(), send, core::ptr::from_ref(response)) };
    }

    /// Answers a call with its result or errno.
    pub fn answer(&self, id: u64, result: Result<i64, i32>) {
        let (val, error) = match result {
            Ok(val) => (val, 0),
            Err(errno) => (0, -errno),
        };
        self.respond(&libc::seccomp_notif_resp { id, val, error, flags: 0 });
    }

    /// Lets the kernel perform the call itself.
    pub fn pass(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        self.respond(&libc::seccomp_notif_resp { id, val: 0, error: 0, flags });
    }

    /// Installs a copy of `fd` in the caller under the number `new`. With `answers` that also becomes the call's result.
    ///
    /// If this process is killed meanwhile and another one has the listener, the result may be 0 with `answers`, and nothing is
    /// installed: the kernel notes that there is a result before there is one (`seccomp_notify_addfd`).
    ///
    /// # Errors
    /// The kernel's.
    pub fn install(&self, id: u64, fd: BorrowedFd<'_>, new: u32, cloexec: bool, answers: bool) -> io::Result<()> {
        const SETFD: u32 = 1;
        const SEND: u32 = 2;
        let new_flags = if cloexec { libc::O_CLOEXEC as u32 } else { 0 };
        let flags = if answers { SETFD | SEND } else { SETFD };
        let add = AddFd { id, flags, src: fd.as_raw_fd() as u32, new, new_flags };
        // SAFETY: a valid structure.
        let r = unsafe { libc::ioctl(self.0.as_raw_fd(), iowr(3, size_of::<AddFd>(), 1), &raw const add) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
