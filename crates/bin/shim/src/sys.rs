//! System calls made by ourselves, past every interposed symbol, and errno.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use sealane_abi::Caller;

/// One raw system call. Returns the kernel's own value: `-errno` on failure.
///
/// # Safety
/// The arguments must be valid for call `n`.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn syscall6(n: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let ret: isize;
    // SAFETY: the x86-64 convention: the number in rax, arguments in rdi, rsi, rdx, r10, r8, r9; rcx and r11 are
    // overwritten. What the call itself does is the caller's affair.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") n as isize => ret, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// One raw system call. Returns the kernel's own value: `-errno` on failure.
///
/// # Safety
/// The arguments must be valid for call `n`.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn syscall6(n: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let ret: isize;
    // SAFETY: the AArch64 convention: the number in x8, arguments in x0 to x5. What the call itself does is the
    // caller's affair.
    unsafe {
        core::arch::asm!("svc 0", in("x8") n, inlateout("x0") a as isize => ret, in("x1") b, in("x2") c, in("x3") d,
            in("x4") e, in("x5") f, options(nostack));
    }
    ret
}

/// A raw system call with up to six arguments, each cast to a machine word.
macro_rules! raw {
    ($n:expr $(, $a:expr)* $(,)?) => { $crate::sys::raw!(@ $n; $($a as usize,)*) };
    (@ $n:expr;) => { $crate::sys::syscall6($n, 0, 0, 0, 0, 0, 0) };
    (@ $n:expr; $a:expr,) => { $crate::sys::syscall6($n, $a, 0, 0, 0, 0, 0) };
    (@ $n:expr; $a:expr, $b:expr,) => { $crate::sys::syscall6($n, $a, $b, 0, 0, 0, 0) };
    (@ $n:expr; $a:expr, $b:expr, $c:expr,) => { $crate::sys::syscall6($n, $a, $b, $c, 0, 0, 0) };
    (@ $n:expr; $a:expr, $b:expr, $c:expr, $d:expr,) => { $crate::sys::syscall6($n, $a, $b, $c, $d, 0, 0) };
    (@ $n:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr,) => { $crate::sys::syscall6($n, $a, $b, $c, $d, $e, 0) };
    (@ $n:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr,) => {
        $crate::sys::syscall6($n, $a, $b, $c, $d, $e, $f)
    };
}
pub(crate) use raw;

/// Turns the kernel's return value into a result.
pub(crate) fn check(ret: isize) -> Result<usize, i32> {
    if ret < 0 { Err(-ret as i32) } else { Ok(ret as usize) }
}

/// A raw result as libc gives it.
pub(crate) fn returned(ret: isize) -> isize {
    if (-4095..0).contains(&ret) {
        set_errno(-ret as i32);
        return -1;
    }
    ret
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: libc gives a pointer to this thread's errno, which is always writable.
    unsafe { *libc::__errno_location() = errno }
}

/// The calling thread's errno.
pub(crate) fn errno() -> i32 {
    // SAFETY: libc gives a pointer to this thread's errno, which is always readable.
    unsafe { *libc::__errno_location() }
}

/// The calling thread's id, asked of the kernel.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments.
    (unsafe { raw!(libc::SYS_gettid) }) as u32
}

/// The calling process's id, asked of the kernel.
pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments.
    (unsafe { raw!(libc::SYS_getpid) }) as u32
}

/// Sleeps while `*word == seen`, across processes. `timeout` in milliseconds, or none.
///
/// # Errors
/// The kernel's: `EAGAIN` when the word had changed, `EINTR`, `ETIMEDOUT`.
pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, timeout_ms: Option<u32>) -> Result<(), i32> {
    let time =
        timeout_ms.map(|ms| libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 });
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the word lives as long as the borrow; the timeout is null or a valid timespec.
    check(unsafe { raw!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, time) }).map(drop)
}

/// Wakes up to `count` sleepers on `word`, in any process.
pub(crate) fn futex_wake(word: &AtomicU32, count: i32) {
    // SAFETY: the word lives as long as the borrow.
    unsafe { raw!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Whether a thread or process with this id exists (in our PID namespace).
pub(crate) fn alive(tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let r = unsafe { raw!(libc::SYS_kill, tid, 0) };
    r != -(libc::ESRCH as isize)
}

/// Whether this process may send signals to a thread or process that exists.
pub(crate) fn may_signal(tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { raw!(libc::SYS_kill, tid, 0) == 0 }
}

/// Whether this process has no thread with this id.
pub(crate) fn is_no_thread(tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { raw!(libc::SYS_tgkill, getpid(), tid, 0) == -(libc::ESRCH as isize) }
}

/// Lets other threads run for a moment.
pub(crate) fn pause() {
    let moment = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    // SAFETY: a valid timespec.
    unsafe { raw!(libc::SYS_nanosleep, &raw const moment, 0) };
}

/// Makes every other thread of this process pass a memory barrier.
pub(crate) fn barrier() {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    // SAFETY: plain values.
    let done = unsafe {
        raw!(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0) == 0
            && raw!(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0) == 0
    };
    if !done {
        // A store is seen by others long before this ends.
        (0..100).for_each(|_| pause());
    }
}

/// Makes `to` another name for the file of `from`; whether it is closed on exec stays as it is.
pub(crate) fn replace(from: c_int, to: c_int) {
    // SAFETY: plain values.
    unsafe {
        let flags = raw!(libc::SYS_fcntl, to, libc::F_GETFD, 0);
        let cloexec = if flags & libc::FD_CLOEXEC as isize != 0 { libc::O_CLOEXEC } else { 0 };
        raw!(libc::SYS_dup3, from, to, cloexec);
    }
}

/// Gives the contents of private memory back to the kernel; it reads as zeros afterwards. False: the kernel cannot.
pub(crate) fn discard(at: usize, len: usize) -> bool {
    // SAFETY: the caller's memory, in the private mapping.
    unsafe { raw!(libc::SYS_madvise, at, len, libc::MADV_DONTNEED) == 0 }
}

/// Gives the contents of shared memory back to the kernel; it reads as zeros afterwards, in every process that has it.
/// It stays on a kernel that cannot do so.
pub(crate) fn discard_shared(at: usize, len: usize) {
    // SAFETY: the caller's memory, in a shared mapping.
    unsafe { raw!(libc::SYS_madvise, at, len, libc::MADV_REMOVE) };
}

/// Private memory of zeros, of which only what is touched costs anything.
pub(crate) fn map_private(len: usize) -> Option<*mut u8> {
    map(len, libc::MAP_PRIVATE)
}

/// Memory of zeros that is shared with the children of this process, of which only what is touched costs anything.
pub(crate) fn map_shared(len: usize) -> Option<*mut u8> {
    map(len, libc::MAP_SHARED)
}

fn map(len: usize, kind: c_int) -> Option<*mut u8> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = check(unsafe { raw!(libc::SYS_mmap, 0, len, prot, flags, -1isize, 0) }).ok()?;
    // Keys and plaintexts live here: no core dump shows them. On a kernel that refuses, nothing is lost but that.
    // SAFETY: the mapping just made.
    unsafe { raw!(libc::SYS_madvise, at, len, libc::MADV_DONTDUMP) };
    Some(at as *mut u8)
}

/// Puts a private copy in the place of shared memory, with what is in it. False: the kernel gives no memory.
///
/// # Safety
/// The memory must be ours, and its users must bear the change.
pub(crate) unsafe fn make_private(at: *mut u8, len: usize) -> bool {
    let Some(copy) = map_private(len) else { return false };
    // SAFETY: both are mapped with this length, and the caller's.
    unsafe {
        core::ptr::copy_nonoverlapping(at, copy, len);
        put_in_place(copy, at, len)
    }
}

/// Moves the memory at `new` to `at`, in the place of what is there. False: the kernel gives no memory; `new` is then given
/// back.
///
/// # Safety
/// Both must be ours, and the users of what is at `at` must bear the change.
pub(crate) unsafe fn put_in_place(new: *mut u8, at: *mut u8, len: usize) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller's.
    let done = check(unsafe { raw!(libc::SYS_mremap, new, len, len, flags, at) }).is_ok();
    if !done {
        // SAFETY: nobody has seen it.
        unsafe { unmap(new, len) };
    }
    done
}

/// Closes a descriptor of our own.
pub(crate) fn close(fd: c_int) {
    // SAFETY: plain value.
    unsafe { raw!(libc::SYS_close, fd) };
}

/// Gives a mapping back.
///
/// # Safety
/// Nothing may use it any more.
pub(crate) unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { raw!(libc::SYS_munmap, at, len) };
}

/// Writes one line to standard error, prefixed with our name. Formats on the stack: usable where allocation is not.
pub(crate) fn complain(what: core::fmt::Arguments<'_>) {
    struct Line {
        buf: [u8; 400],
        len: usize,
    }
    impl core::fmt::Write for Line {
        fn write_str(&mut self, s: &str) -> core::fmt::Result {
            let n = s.len().min(self.buf.len() - 1 - self.len);
            self.buf[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
            self.len += n;
            Ok(())
        }
    }
    let mut line = Line { buf: [0; 400], len: 0 };
    // Line's write_str never fails.
    let _ = core::fmt::write(&mut line, format_args!("sealane: {what}"));
    line.buf[line.len] = b'\n';
    // SAFETY: the buffer is ours and `len + 1` bytes of it are initialised.
    unsafe { raw!(libc::SYS_write, 2, line.buf.as_ptr(), line.len + 1) };
}

/// The next definition of a libc function after ours, which is looked up when the library is loaded: dlsym(3) takes the
/// dynamic loader's lock, which the program's own dlopen(3) may hold while it waits for us.
///
/// Each is a static in the section `sealane_real`, and used, so that the compiler leaves it whole. The address comes first:
/// assembly reads it there.
#[repr(C)]
pub(crate) struct Real(AtomicPtr<c_void>, &'static core::ffi::CStr);

/// Whether [`Real::find_all`] has ended.
static FOUND: AtomicBool = AtomicBool::new(false);

impl Real {
    /// Names the function.
    pub(crate) const fn new(name: &'static core::ffi::CStr) -> Self {
        Real(AtomicPtr::new(core::ptr::null_mut()), name)
    }

    /// Its address, or null where no library has it.
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.0.load(Relaxed);
        // Constructors of other libraries may run, and call us, before ours.
        if known.is_null() && !FOUND.load(Acquire) { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: a valid C string; racing threads find the same address.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr()) };
        self.0.store(found, Relaxed);
        found
    }

    /// Looks all of them up.
    pub(crate) fn find_all() {
        unsafe extern "C" {
            // The linker's own names for the ends of the section.
            static __start_sealane_real: [usize; 0];
            static __stop_sealane_real: [usize; 0];
        }
        let start = (&raw const __start_sealane_real).cast::<Real>();
        let end = (&raw const __stop_sealane_real).cast::<Real>();
        // SAFETY: nothing but statics of this type is in the section, one behind the other.
        let all = unsafe { core::slice::from_raw_parts(start, end.offset_from_unsigned(start)) };
        for real in all {
            real.find();
        }
        FOUND.store(true, Release);
    }
}

/// The room of the calling thread's stack below this call, in bytes: at most `most`. None on another stack than the thread's own, such
/// as one for signals.
pub(crate) fn stack_room(most: usize) -> usize {
    /// The bytes that are left for calls of others, signals among them.
    const RESERVE: usize = 4096;
    let here = 0u8;
    let here = core::hint::black_box(&raw const here) as usize;
    let mut attributes = core::mem::MaybeUninit::uninit();
    let (mut low, mut len) = (core::ptr::null_mut(), 0);
    // SAFETY: the attributes are initialised by the first call if it succeeds, and destroyed once.
    let known = unsafe {
        libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0 && {
            let got = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut len);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            got == 0
        }
    };
    match here.checked_sub(low as usize) {
        Some(room) if known && room < len => room.saturating_sub(RESERVE).min(most),
        _ => 0,
    }
}

/// Whether the program has rights that its caller lacks (set-user-ID, file capabilities): its environment is the caller's.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: getauxval reads what the kernel has left for the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A variable of the program's environment.
pub(crate) fn env(name: &core::ffi::CStr) -> Option<&'static str> {
    // SAFETY: a C string. Programs that change their environment while another thread reads it are wrong already.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: getenv returned a C string.
    unsafe { core::ffi::CStr::from_ptr(value) }.to_str().ok()
}

/// Whether this process may do what the kernel asks CAP_NET_ADMIN or CAP_SYS_ADMIN for, in the initial user namespace.
pub(crate) fn caller() -> Caller {
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_SYS_ADMIN: u32 = 21;
    // Version 3, this thread.
    let mut header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    // SAFETY: the header and two sets of three words, as version 3 has them.
    let got = check(unsafe { raw!(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) });
    let capable = got.is_ok() && sets[0] & (1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN) != 0;
    Caller { privileged: capable && is_in_initial_user_namespace() }
}

/// Whether this process is in the initial user namespace, whose number is the same in every kernel. True where it cannot be
/// told: without /proc, or where the kernel has no others.
fn is_in_initial_user_namespace() -> bool {
    const PROC_USER_INIT_INO: u64 = 0xefff_fffd;
    // SAFETY: all zero is a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let path = c"/proc/self/ns/user".as_ptr();
    // SAFETY: a C string, and a valid pointer.
    let got = check(unsafe { raw!(libc::SYS_newfstatat, libc::AT_FDCWD, path, &raw mut stat, 0) });
    got.is_err() || stat.st_ino == PROC_USER_INIT_INO
}
