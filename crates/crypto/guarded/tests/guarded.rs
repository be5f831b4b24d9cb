//! Guarded memory as a program has it. Each case is a process of its own, because a process has one guarded memory.

mod common;

use common::{child, refuse_memfd_secret};
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};
use sealane_guarded::{Held, Lack, Lock, NoRoom, Plan, Typed, establish, open, renew, unguarded};
use std::process::Command;

/// Runs a case in a process of its own, and checks that it ends well.
fn alone(name: &str, case: impl FnOnce()) {
    alone_as(name, "", case);
}

/// Runs one of several cases of a test.
fn alone_as(name: &str, which: &str, case: impl FnOnce()) {
    const CASE: &str = "SEALANE_GUARDED_CASE";
    match std::env::var(CASE) {
        Ok(now) if now == which => return case(),
        Ok(_) => return,
        Err(_) => {}
    }
    let me = std::env::current_exe().expect("the test has a path");
    let done = Command::new(me).args(["--exact", name, "--nocapture"]).env(CASE, which).output().expect("it starts");
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("1 passed"), "{name} {which}: {}\n{text}", done.status);
}

fn plan(lock: Lock) -> Plan {
    Plan { len: 256 << 10, or_less: false, lock, ..Plan::default() }
}

/// Whether the kernel can read memory of this process for `write`, as the program itself can now.
fn readable(at: *const u8) -> bool {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written; the kernel checks the address that it reads; both are closed.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let written = libc::write(ends[1], at.cast(), 1);
        libc::close(ends[0]);
        libc::close(ends[1]);
        written == 1
    }
}

trait Says: Send + Sync {
    fn says(&self) -> u64;
}

struct Word(u64, [u8; 100]);

impl Says for Word {
    fn says(&self) -> u64 {
        self.0 + u64::from(self.1[99])
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        assert_eq!(self.1[99], 7);
    }
}

#[test]
fn without_it_values_are_in_boxes() {
    alone("without_it_values_are_in_boxes", || {
        assert!(renew().expect("nothing to do").is_none());
        let held: Held<dyn Says> = Held::new(Box::new(Word(3, [7; 100])) as Box<dyn Says>).expect("a box");
        assert!(held.is_here() && readable(held.address().cast()));
        assert_eq!(held.get().says(), 10);
    });
}

#[test]
fn values_of_all_kinds_move_and_come_back() {
    alone("values_of_all_kinds_move_and_come_back", || {
        let memory = establish(plan(Lock::Mprotect)).expect("memory");
        let inside = |at: *const u8| (at as usize).wrapping_sub(memory.address()) < memory.len();
        let sized: Held<[u8; 32]> = Held::new(Box::new([5; 32])).expect("room");
        let mut slice: Held<[u16]> = Held::new(vec![1u16, 2, 3].into_boxed_slice()).expect("room");
        let object: Held<dyn Says> = Held::new(Box::new(Word(3, [7; 100])) as Box<dyn Says>).expect("room");
        let nothing: Held<()> = Held::new(Box::new(())).expect("no room needed");
        assert!(inside(sized.address().cast()) && inside(slice.address().cast()) && inside(object.address().cast()));
        let opened = open();
        slice.get_mut()[2] = 9;
        assert_eq!((*sized.get(), slice.get(), object.get().says()), ([5; 32], &[1, 2, 9][..], 10));
        assert_eq!(*nothing.get(), ());
        drop(opened);
        let used = memory.used();
        assert!(used >= 3 * 64, "{used}");
        drop((sized, slice, object, nothing));
        assert!(memory.is_empty());
        // What was dropped is wiped: the next value finds zeros around it.
        let after: Held<[u8; 1]> = Held::new(Box::new([1])).expect("room");
        let _open = open();
        // SAFETY: cells of the memory, which is open.
        let cells = unsafe { core::slice::from_raw_parts(memory.address() as *const u8, 1024) };
        assert_eq!(cells.iter().filter(|byte| **byte != 0).count(), 1);
        drop(after);
    });
}

/// A value of any type.
trait Anything: Any + Send + Sync {}

impl<T: Any + Send + Sync> Anything for T {}

#[test]
fn a_typed_value_is_given_as_its_own_type_only() {
    alone("a_typed_value_is_given_as_its_own_type_only", || {
        let typed = || Typed::new(Box::new([7u8; 48]) as Box<dyn Anything>, |value| value).expect("room");
        let boxed = typed();
        assert!(!boxed.is_guarded());
        let memory = establish(plan(Lock::Mprotect)).expect("memory");
        let held = typed();
        assert!(held.is_guarded() && memory.used() > 0);
        let _open = open();
        for typed in [&boxed, &held] {
            assert_eq!(typed.get_as::<[u8; 48]>(), Some(&[7; 48]));
            assert!(typed.get_as::<[u8; 47]>().is_none() && typed.get_as::<Box<dyn Anything>>().is_none());
        }
        let other = || Typed::new(Box::new([7u8; 48]) as Box<dyn Anything>, |_| &OTHER);
        static OTHER: [u8; 64] = [0; 64];
        assert!(std::panic::catch_unwind(other).is_err(), "the type of something else");
    });
}

#[test]
fn closed_memory_cannot_be_read() {
    alone("closed_memory_cannot_be_read", || {
        let memory = establish(plan(Lock::Mprotect)).expect("memory");
        let held: Held<[u8; 32]> = Held::new(Box::new([5; 32])).expect("room");
        let at = held.address().cast();
        assert!(!readable(at));
        {
            let _outer = open();
            assert!(readable(at));
            drop(open());
            assert!(readable(at), "the inner end does not close it");
        }
        assert!(!readable(at));
        // Nobody can read the pages beside it, open or not.
        let _open = open();
        assert!(readable((memory.address() + memory.len() - 1) as *const u8));
        assert!(!readable((memory.address() - 1) as *const u8));
        assert!(!readable((memory.address() + memory.len()) as *const u8));
    });
}

#[test]
fn a_protection_key_closes_memory_for_each_thread() {
    alone("a_protection_key_closes_memory_for_each_thread", || {
        let memory = establish(plan(Lock::ProtectionKey)).expect("memory");
        let held: Held<[u8; 32]> = Held::new(Box::new([5; 32])).expect("room");
        let at = held.address() as usize;
        let lacks = memory.lacks().iter().any(|lack| matches!(lack, Lack::ProtectionKey(_)));
        println!("protection key: {}", if lacks { "none here" } else { "yes" });
        assert_eq!(readable(at as *const u8), lacks);
        let opened = open();
        assert!(readable(at as *const u8));
        drop(opened);
        assert_eq!(readable(at as *const u8), lacks);
        let other = std::thread::spawn(move || {
            let before = readable(at as *const u8);
            let opened = open();
            let between = readable(at as *const u8);
            drop(opened);
            (before, between, readable(at as *const u8))
        });
        assert_eq!(other.join().expect("no panic"), (lacks, true, lacks));
    });
}

#[test]
fn a_child_has_none_of_its_parents_values_and_makes_its_own() {
    for lock in [Lock::Mprotect, Lock::ProtectionKey, Lock::None] {
        alone_as("a_child_has_none_of_its_parents_values_and_makes_its_own", &format!("{lock:?}"), || {
            let memory = establish(plan(lock)).expect("memory");
            let held: Held<[u8; 32]> = Held::new(Box::new([5; 32])).expect("room");
            let done = child(|| {
                if held.is_here() || readable(memory.address() as *const u8) {
                    return 1;
                }
                let own: Held<[u8; 32]> = Held::new(Box::new([6; 32])).expect("memory of its own");
                let opened = open();
                if !own.is_here() || *own.get() != [6; 32] || held.is_here() {
                    return 2;
                }
                drop(opened);
                // It neither reads nor frees what is not here.
                // SAFETY: the child ends before its copy could be dropped again.
                drop(unsafe { core::ptr::read(&raw const held) });
                let renewed = renew().expect("it has memory").expect("it has memory");
                if renewed.used() != 64 || core::ptr::eq(renewed, memory) {
                    return 3;
                }
                drop(own);
                i32::from(!renewed.is_empty()) * 4
            });
            assert_eq!(done, 0);
            assert!(held.is_here());
            let _open = open();
            assert_eq!(*held.get(), [5; 32]);
        });
    }
}

#[test]
fn a_value_of_the_parent_is_not_to_be_had() {
    alone("a_value_of_the_parent_is_not_to_be_had", || {
        establish(plan(Lock::None)).expect("memory");
        let held: Held<[u8; 32]> = Held::new(Box::new([5; 32])).expect("room");
        std::panic::set_hook(Box::new(|_| {}));
        let done = child(|| {
            let got = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| held.get()[0]));
            i32::from(got.is_ok())
        });
        assert_eq!(done, 0);
    });
}

#[test]
fn where_there_is_no_room_nothing_is_put_elsewhere() {
    alone("where_there_is_no_room_nothing_is_put_elsewhere", || {
        let memory = establish(plan(Lock::None)).expect("memory");
        let mut held: Vec<Held<[u8; 4096]>> = Vec::new();
        let full = loop {
            match Held::new(Box::new([9; 4096])) {
                Ok(one) => held.push(one),
                Err(full) => break full,
            }
        };
        assert_eq!((full, held.len()), (NoRoom, memory.len() / 4096));
        held.pop();
        assert!(Held::new(Box::new([9u8; 4096])).is_ok());
        assert_eq!(Held::new(Box::new(Aligned([1; 128]))).err(), Some(NoRoom));
    });
}

#[repr(align(128))]
struct Aligned(#[expect(dead_code, reason = "only its alignment matters")] [u8; 128]);

#[test]
fn it_takes_less_where_it_may_not_lock_more() {
    alone("it_takes_less_where_it_may_not_lock_more", || {
        const LIMIT: usize = 300 << 10;
        let is_root = unlimited();
        if is_root {
            // SAFETY: no pointers; as another user the limit holds.
            unsafe { assert_eq!(libc::setresuid(65_534, 65_534, 65_534), 0) };
        }
        let limit = libc::rlimit { rlim_cur: LIMIT as u64, rlim_max: LIMIT as u64 };
        // SAFETY: it reads a struct of ours.
        unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0) };
        let exact = establish(Plan { len: 1 << 20, or_less: false, lock: Lock::None, ..Plan::default() });
        if let Ok(memory) = exact {
            // Without memfd_secret it is not locked, and says so.
            assert!(memory.lacks().iter().any(|lack| matches!(lack, Lack::Locked(_))), "{:?}", memory.lacks());
            return;
        }
        assert_eq!(exact.err().and_then(|error| error.raw_os_error()), Some(libc::EAGAIN));
        // Later kernels have one limit for all processes of a user, of which other tests may have any part. Nobody else is user 65534.
        let least = if is_root { 64 << 10 } else { 4096 };
        match establish(Plan { len: 1 << 20, or_less: true, lock: Lock::None, ..Plan::default() }) {
            Err(error) if !is_root => return assert_eq!(error.raw_os_error(), Some(libc::EAGAIN)),
            made => made.expect("a part"),
        };
        // The kernel counts when memory is mapped, or when it is used: it ends with an error in both.
        let held: Vec<Held<[u8; 1024]>> =
            core::iter::repeat_with(|| Held::new(Box::new([9; 1024]))).map_while(Result::ok).collect();
        assert!((least..=LIMIT).contains(&(held.len() * 1024)), "{} KiB", held.len());
        drop(held);
        assert!(Held::new(Box::new([9u8; 1024])).is_ok());
    });
}

fn unlimited() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn what_is_not_there_is_said() {
    alone("what_is_not_there_is_said", || {
        let memory = establish(plan(Lock::None)).expect("memory");
        let texts: Vec<String> = memory.lacks().iter().map(ToString::to_string).collect();
        assert!(texts.iter().any(|text| text.contains("protection key")), "{texts:?}");
        // memfd_secret is there or said not to be: a read of it as a file tells which.
        let held: Held<[u8; 32]> = Held::new(Box::new([5; 32])).expect("room");
        let mem = std::fs::File::open("/proc/self/mem").expect("it is ours");
        let mut seen = [0; 32];
        let read = std::os::unix::fs::FileExt::read_at(&mem, &mut seen, held.address() as u64);
        let lacks = memory.lacks().iter().any(|lack| matches!(lack, Lack::Secret(_)));
        assert_eq!(read.is_ok(), lacks, "{texts:?}");
    });
}

#[test]
fn what_is_no_secret_needs_no_room() {
    alone("what_is_no_secret_needs_no_room", || {
        let memory = establish(plan(Lock::Mprotect)).expect("guarded memory");
        let all = Held::new(Box::new([0u8; 256 << 10])).expect("room");
        assert_eq!(Held::new(Box::new(1u64)).err(), Some(NoRoom));
        let public = unguarded(|| Held::new(Box::new(7u64))).expect("ordinary memory");
        assert!(!public.is_guarded() && all.is_guarded());
        assert_eq!(*public.get(), 7);
        let after = std::panic::catch_unwind(|| unguarded(|| panic!("a test that fails")));
        assert!(after.is_err());
        assert_eq!(Held::new(Box::new(1u64)).err(), Some(NoRoom));
        drop(all);
        assert!(memory.is_empty() && Held::new(Box::new(1u64)).expect("room").is_guarded());
    });
}

#[test]
fn what_lasts_is_made_where_the_plan_says() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    alone("what_lasts_is_made_where_the_plan_says", || {
        let lasting = |f: &mut dyn FnMut()| {
            ASKED.fetch_add(1, Ordering::SeqCst);
            f();
        };
        establish(Plan { lasting, ..plan(Lock::None) }).expect("guarded memory");
        assert_eq!(ASKED.load(Ordering::SeqCst), 1);
        let asked = child(|| match Held::new(Box::new(7u64)) {
            Ok(_) => ASKED.load(Ordering::SeqCst) as i32,
            Err(_) => 0,
        });
        assert_eq!(asked, 2, "for the child's own");
    });
}

#[test]
fn a_childs_memory_is_not_weaker_than_its_parents() {
    alone("a_childs_memory_is_not_weaker_than_its_parents", || {
        let memory = establish(plan(Lock::None)).expect("memory");
        let lacks = memory.lacks().iter().any(|lack| matches!(lack, Lack::Secret(_)));
        refuse_memfd_secret(libc::EPERM);
        let made = child(|| i32::from(Held::new(Box::new(7u64)).is_ok()));
        assert_eq!(made == 1, lacks, "it has none rather than another kind");
        assert!(Held::new(Box::new(7u64)).is_ok());
    });
}

#[test]
fn a_process_without_descriptors_gets_an_error_and_no_other_memory() {
    alone("a_process_without_descriptors_gets_an_error_and_no_other_memory", || {
        let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: it reads a struct of ours.
        unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0) };
        match establish(plan(Lock::None)) {
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE)),
            // A kernel without memfd_secret says so before it looks for a descriptor.
            Ok(memory) => assert!(memory.lacks().iter().any(|lack| matches!(lack, Lack::Secret(_)))),
        }
    });
}

#[test]
fn threads_of_a_child_get_one_memory() {
    alone("threads_of_a_child_get_one_memory", || {
        establish(plan(Lock::ProtectionKey)).expect("memory");
        let done = child(|| {
            let at = |i: u64| {
                let held = Held::new(Box::new(i)).expect("memory");
                let right = held.open().is_some_and(|_open| *held.get() == i);
                (right, renew().expect("memory").map(|memory| memory.address()))
            };
            let threads: Vec<_> = (0..8).map(|i| std::thread::spawn(move || at(i))).collect();
            let all: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            i32::from(!all.iter().all(|one| one.0 && one.1 == all[0].1))
        });
        assert_eq!(done, 0);
    });
}

#[test]
fn what_finds_no_room_is_wiped() {
    alone("what_finds_no_room_is_wiped", || {
        establish(plan(Lock::None)).expect("memory");
        let all = Held::new(Box::new([0u8; 256 << 10])).expect("room");
        let small: Box<[u8]> = vec![0xc5; 200].into_boxed_slice();
        let at = small.as_ptr();
        assert_eq!(Held::new(small).err(), Some(NoRoom));
        // SAFETY: memory of the heap's, which was freed, and which nobody has taken since; the allocator writes to its front only.
        let left = (32..200).filter(|i| unsafe { at.add(*i).read_volatile() } == 0xc5).count();
        assert_eq!(left, 0);
        drop(all);
    });
}
