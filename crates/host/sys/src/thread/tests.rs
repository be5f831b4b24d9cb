use super::super::seccomp::{Filter, Numbers};
use super::super::testing;
use super::*;
use std::io;
use std::os::fd::FromRawFd;

const PAGE: usize = 4096;
const AF_ALG: i64 = 38;

/// Memory at the same address in this process and in its children, with contents of its own in each of them.
struct Page(*mut u8);

impl Page {
    fn new(byte: u8) -> Self {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: two pages wherever there is room, the second of which is read-only.
        unsafe {
            let at = libc::mmap(core::ptr::null_mut(), 2 * PAGE, prot, flags, -1, 0).cast::<u8>();
            assert_ne!(at.cast(), libc::MAP_FAILED);
            at.write_bytes(byte, 2 * PAGE);
            assert_eq!(libc::mprotect(at.add(PAGE).cast(), PAGE, libc::PROT_READ), 0);
            Page(at)
        }
    }

    fn at(&self) -> u64 {
        self.0 as u64
    }

    /// The first byte of another process's page, by its number.
    fn of(&self, pid: i32) -> u8 {
        let mut byte = 0u8;
        let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let remote = libc::iovec { iov_base: self.0.cast(), iov_len: 1 };
        // SAFETY: one byte of a local.
        assert_eq!(unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) }, 1, "it may be read");
        byte
    }
}

/// A child that runs `body`; with this number, if it is not 0. It shares our descriptors.
fn child(number: i32, body: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: all-zero is valid.
    let mut args: libc::clone_args = unsafe { core::mem::zeroed() };
    args.flags = libc::CLONE_FILES as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if number != 0 {
        (args.set_tid, args.set_tid_size) = (&raw const number as u64, 1);
    }
    // SAFETY: a fork; the child makes async-signal-safe calls only, and ends.
    unsafe {
        match libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) {
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                body();
                libc::_exit(0)
            }
            pid if pid > 0 => Ok(pid as i32),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn end(pid: i32) {
    // SAFETY: our own child.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        assert_eq!(libc::waitpid(pid, core::ptr::null_mut(), 0), pid);
    }
}

/// A child that waits in a call, with its listener.
fn waiting(page: &Page) -> io::Result<(i32, Arc<Listener>, Notification)> {
    let filter = Filter::new(&Numbers::below(1024), false);
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let at = page.0;
    let pid = child(0, || {
        let listener = filter.install().unwrap_or(-1).to_ne_bytes();
        // SAFETY: plain calls, and our own page.
        unsafe {
            at.write(b'c');
            libc::write(pipe[1], listener.as_ptr().cast(), 4);
            libc::syscall(libc::SYS_socket, AF_ALG, 0, 0);
        }
    })?;
    let mut number = [0; 4];
    // SAFETY: four bytes; the descriptors are ours, as is the one that the child has opened for us.
    let listener = unsafe {
        assert_eq!(libc::read(pipe[0], number.as_mut_ptr().cast(), 4), 4);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        OwnedFd::from_raw_fd(i32::from_ne_bytes(number))
    };
    let listener = Arc::new(Listener::new(listener));
    let call = listener.next()?.expect("a call");
    assert_eq!(call.tid, pid as u32);
    Ok((pid, listener, call))
}

#[test]
fn no_other_process_of_the_same_number_is_touched() {
    let page = Page::new(b'p');
    let file = File::open("/proc/self/status").expect("a descriptor of ours, and so of theirs");
    let fd = file.as_raw_fd() as u32;
    let (pid, listener, call) = waiting(&page).expect("a child that waits");
    let span = |at| [Span { at, len: 1 }];
    // Its pidfd is kept for the next call.
    assert!(Thread::new(listener.clone(), &call).borrow(fd).is_ok());
    // One with all handles, and one that opens them too late.
    let (early, late) = (Thread::new(listener.clone(), &call), Thread::new(listener.clone(), &call));
    assert_eq!(early.bytes(page.at()), Ok([b'c']));
    assert_eq!(early.write(&span(page.at()), b"w"), Ok(()));
    assert_eq!(early.bytes(page.at()), Ok([b'w']));
    assert!(early.borrow(fd).is_ok() && early.has(fd) && early.namespace("net").is_ok());
    assert_eq!((early.process(), early.secure()), (Some(pid as u32), false));
    end(pid);
    let other = match child(pid, || {
        // SAFETY: a plain call.
        unsafe { libc::pause() };
    }) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            testing::skip("sys::thread", "no process of a chosen number can be made");
            return;
        }
        other => other.expect("a process of the same number"),
    };
    assert_eq!((other, page.of(other)), (pid, b'p'), "by its number it is found");
    for thread in [&early, &late] {
        assert!(!thread.waits());
        assert_eq!(thread.bytes::<1>(page.at()), Err(libc::ESRCH));
        let mut byte = [7];
        assert_eq!((thread.read(&span(page.at()), &mut byte), byte), (Err(libc::ESRCH), [0]), "nothing is left of it");
        assert!(thread.write(&span(page.at()), b"x").is_err());
        assert!(thread.borrow(fd).is_err() && !thread.has(fd) && thread.socket_inode(fd).is_none());
        assert!(thread.status().is_none() && thread.process().is_none() && thread.namespace("net").is_err());
        assert!(thread.secure(), "not to be served");
        assert!(thread.ask(Peer::status).is_none());
    }
    assert_eq!(page.of(other), b'p', "its memory is as it was");
    end(other);
}

#[test]
fn a_handle_alone_does_not_reach_another_process() {
    let page = Page::new(b'p');
    let (pid, listener, call) = waiting(&page).expect("a child that waits");
    let thread = Thread::new(listener.clone(), &call);
    assert_eq!(thread.write(&[Span { at: page.at(), len: 1 }], b"w"), Ok(()));
    end(pid);
    let other = match child(pid, || {
        // SAFETY: a plain call.
        unsafe { libc::pause() };
    }) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            testing::skip("sys::thread", "no process of a chosen number can be made");
            return;
        }
        other => other.expect("a process of the same number"),
    };
    // The process may die between the question and the write: the descriptor has to be safe without the question.
    let memory = thread.memory.get().expect("it has been written to");
    assert_eq!(rustix::io::pwrite(memory, b"x", page.at()), Ok(0), "memory without users");
    assert_eq!(page.of(other), b'p');
    end(other);
}

#[test]
fn only_memory_that_the_program_may_write_is_written() {
    let page = Page::new(b'p');
    let (pid, listener, call) = waiting(&page).expect("a child that waits");
    let thread = Thread::new(listener.clone(), &call);
    let read_only = page.at() + PAGE as u64;
    let write = |at, len: usize| thread.write(&[Span { at, len }], &vec![b'w'; len]);
    assert_eq!(write(page.at(), PAGE), Ok(()));
    assert_eq!(write(read_only, 1), Err(libc::EFAULT));
    assert_eq!(write(read_only - 8, 16), Err(libc::EFAULT));
    assert_eq!(write(0, 1), Err(libc::EFAULT));
    assert_eq!(write(u64::MAX, 1), Err(libc::EFAULT));
    assert_eq!(thread.bytes(read_only), Ok([b'p']));
    // The same by the text, which is what older kernels have.
    let text = thread.text("maps").expect("a text");
    assert!(covers(&text, page.at(), read_only));
    assert!(!covers(&text, page.at(), read_only + 1) && !covers(&text, read_only, read_only + 1));
    assert!(!covers(&text, 0, 1) && !covers(b"", 0, 1));
    end(pid);
}

#[test]
fn adjacent_mappings_are_one() {
    let maps = b"1000-2000 rw-p 0 00:00 0\n2000-3000 rw-s 0 00:00 0 /x y\n3000-4000 r--p 0 00:00 0\n";
    for (at, end, covered) in [(0x1000, 0x2000, true), (0x1800, 0x3000, true), (0x2fff, 0x3001, false), (0, 1, false)] {
        assert_eq!(covers(maps, at, end), covered, "{at:x}-{end:x}");
    }
}

/// Nothing else tells of a stop.
#[test]
fn a_thread_that_is_to_stop_is_interrupted() {
    let page = Page::new(b'p');
    let (pid, listener, call) = waiting(&page).expect("a child that waits");
    let thread = Thread::new(listener.clone(), &call);
    assert!(!thread.interrupted());
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    while !thread.interrupted() {
        assert!(thread.waits(), "without the flag of the filter (before Linux 5.19) the kernel interrupts it itself");
        std::thread::yield_now();
    }
    end(pid);
}

#[test]
fn privileges_of_programs_with_long_and_short_words() {
    let long =
        |entries: &[[u64; 2]]| entries.as_flattened().iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let short =
        |entries: &[[u32; 2]]| entries.as_flattened().iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    // The vDSO, the size of a page, AT_SECURE, the random bytes, the end.
    let of = |secure: u64| [[33, 0x7ffd_0000_1000], [6, 4096], [23, secure], [25, 0x7ffd_0000_2000], [0, 0]];
    assert!(is_secure(&long(&of(1))) && !is_secure(&long(&of(0))));
    for first in [vec![], vec![[32, 0xf7f0_0000]], vec![[32, 0xf7f0_0000], [33, 0xf7f0_1000]]] {
        let of = |secure: u32| [&first[..], &[[6, 4096], [23, secure], [25, 0xff80_0000], [0, 0]]].concat();
        assert!(is_secure(&short(&of(1))) && !is_secure(&short(&of(0))));
    }
    let own = std::fs::read("/proc/self/auxv").expect("procfs");
    assert!(!is_secure(&own));
}
