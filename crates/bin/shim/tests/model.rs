//! A model of sockets that threads and processes share: the shim's own gate, locks, cells, mappings, ties, references and
//! calls (`src/{thread,lock,cell,mapping,tie,borrow,share}.rs`, as they are) on a machine whose every access to an atomic is
//! a point where another thread may run (`model/world.rs`). Shuttle chooses among the orders; the machine fails at an access
//! to memory that the process does not have, at a socket that is used after it was dropped, at two calls at once on a socket
//! that processes share, and at a wake-up that is lost, because nobody is left who could run.
//!
//! It has its own atomics, system calls, /proc, handles, homes and arena (`model/`), whose sockets only count messages. What
//! it does not have: weaker orders of memory than sequential consistency, signal handlers but for one that leaves work undone,
//! processes that are killed elsewhere than with a lock held, and time: a child that was never born is not struck off.
//!
//! Orders are chosen at random, so that a run proves nothing by itself: `a_former_protocol_...` is one of before, which the
//! model must find wrong.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "the shim's files are written for the shim")]

#[path = "model/arena.rs"]
mod arena;
#[path = "model/atomic.rs"]
mod atomic;
#[path = "../src/borrow.rs"]
mod borrow;
#[path = "../src/cell.rs"]
mod cell;
#[path = "model/handle.rs"]
mod handle;
#[path = "model/home.rs"]
mod home;
#[path = "model/limits.rs"]
mod limits;
#[path = "../src/lock.rs"]
mod lock;
#[path = "../src/mapping.rs"]
mod mapping;
#[path = "model/proc.rs"]
mod proc;
#[path = "../src/share.rs"]
mod share;
#[path = "model/sys.rs"]
mod sys;
#[path = "../src/thread.rs"]
mod thread;
#[path = "../src/tie.rs"]
mod tie;
#[path = "model/world.rs"]
mod world;

use arena::Arena;
use borrow::Borrow;
use cell::Cell;
use core::sync::atomic::Ordering::SeqCst;
use handle::{Handle, Object};
use share::Entered;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use std::cell::RefCell;
use std::collections::HashSet;
use world::must;

// What the threads are doing, for the checks.

#[derive(Default)]
struct Doing {
    /// Calls on sockets that processes share, by the cell's memory.
    calls: HashSet<(u64, usize)>,
    /// Processes and threads that are inside.
    inside: HashSet<(u32, u32)>,
    /// Processes whose gate is closed.
    closed: HashSet<u32>,
    /// The work that was left undone and has been done since.
    done: u32,
}

thread_local! {
    static DOING: RefCell<Doing> = RefCell::default();
}

fn doing<T>(f: impl FnOnce(&mut Doing) -> T) -> T {
    DOING.with_borrow_mut(f)
}

fn arena() -> &'static Arena {
    arena::existing().expect("there always is one")
}

/// The memory of the cell that a handle is tied to.
fn tied(handle: &Handle) -> Option<(u64, usize)> {
    handle.tie.tied().map(|cell| world::place(core::ptr::from_ref(cell) as usize))
}

fn begin_call(handle: &Handle) {
    let me = (world::pid(), world::tid());
    must(doing(|d| d.inside.insert(me) && !d.closed.contains(&me.0)), "is inside while the gate is closed");
    if let Some(cell) = tied(handle) {
        must(doing(|d| d.calls.insert(cell)), "two calls at once on a shared socket");
        let shared = handle.object().is_some_and(Object::is_shared);
        must(shared, "a socket that is tied does not know that it is shared");
    }
}

fn end_call(handle: &Handle) {
    let cell = tied(handle);
    doing(|d| {
        d.inside.remove(&(world::pid(), world::tid()));
        cell.map(|cell| d.calls.remove(&cell))
    });
}

/// The part of a call that may sleep.
pub(crate) fn outside(handle: &Handle, f: impl FnOnce()) {
    end_call(handle);
    f();
    begin_call(handle);
}

/// A call on a descriptor, as hooks make it.
fn call(fd: usize, f: impl FnOnce(&Object, &Borrow)) -> bool {
    let slot = thread::slot();
    must(slot.enter(), "a call from within");
    let mut open = false;
    if let Some(borrow) = arena().borrow(fd) {
        let within = thread::within(borrow.as_ptr().cast());
        let entered = Entered::new(&borrow);
        begin_call(&borrow);
        f(borrow.object(), &borrow);
        end_call(&borrow);
        drop(entered);
        drop(within);
        open = true;
    }
    slot.leave();
    open
}

fn join(all: impl IntoIterator<Item = shuttle::thread::JoinHandle<()>>) {
    all.into_iter().for_each(|thread| thread.join().expect("threads do not panic"));
}

fn look(fd: usize) -> bool {
    call(fd, |_, _| {})
}

fn send(fd: usize) {
    call(fd, |object, _| object.send());
}

fn receive(fd: usize) -> bool {
    call(fd, |object, borrow| object.receive(borrow))
}

fn close(fd: usize) {
    let slot = thread::slot();
    must(slot.enter(), "a call from within");
    arena().close(fd);
    slot.leave();
}

fn with_gate_closed<T>(f: impl FnOnce() -> T) -> T {
    let pid = world::pid();
    must(doing(|d| !d.inside.iter().any(|(p, _)| *p == pid)), "the gate is closed while another thread is inside");
    must(doing(|d| d.closed.insert(pid)), "the gate is closed twice");
    let value = f();
    doing(|d| d.closed.remove(&pid));
    value
}

/// As fork.rs and table.rs do.
fn fork(f: impl FnOnce() + Send + 'static) -> shuttle::thread::JoinHandle<()> {
    must(thread::close_gate(), "a fork from within");
    let child = with_gate_closed(|| {
        share::before_fork(arena());
        world::fork(move || {
            share::child(true);
            thread::open_gate();
            f();
        })
    });
    thread::open_gate();
    child
}

/// As detach.rs does.
fn part_from_all() {
    with_gate_closed(|| {
        share::part_from_all(arena(), |_| {});
        must(Cell::make_all_private() && !world::has_shared_memory(), "memory is still shared");
    });
    doing(|d| d.done += 1);
}

/// Closes all descriptors; nothing is left then.
fn end() {
    (0..4).for_each(close);
    must(!tie::any(), "handles are still tied");
    must(world::mappings() == 0, "a mapping is left");
}

/// A transform at descriptor 0.
fn begin() {
    world::begin();
    doing(|d| *d = Doing::default());
    arena().open(2, 0, 0);
}

/// An operation of it at descriptors 1 and 2.
fn accept() {
    arena().open(3, 2, 1);
    arena().duplicate(1, 2);
}

fn run(scheduler: impl Scheduler + 'static, scenario: fn()) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 17;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::FailAfter(200_000);
    shuttle::Runner::new(scheduler, config).run(scenario);
}

/// Runs it in many orders: at random, and with few changes between threads. SEALANE_MODEL_RUNS says how many of each.
fn check(scenario: fn()) {
    let times = std::env::var("SEALANE_MODEL_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let both = || {
        run(RandomScheduler::new_from_seed(1, times), scenario);
        run(PctScheduler::new_from_seed(2, 4, times), scenario);
    };
    if let Err(panic) = std::panic::catch_unwind(both) {
        panic!("{}", world::failure().unwrap_or_else(|| format!("{:?}", panic.downcast_ref::<String>())));
    }
}

#[test]
fn threads_part_when_a_child_is_gone() {
    check(|| {
        begin();
        let child = fork(|| _ = look(0));
        let threads = [0; 2].map(|_| {
            world::thread(|| {
                for _ in 0..3 {
                    look(0);
                }
            })
        });
        look(0);
        join([child]);
        look(0);
        join(threads);
        end();
    });
}

#[test]
fn a_call_waits_while_others_part() {
    check(|| {
        begin();
        let waiter = world::thread(|| _ = receive(0));
        let child = fork(|| {});
        let other = world::thread(|| (0..3).for_each(|_| _ = look(0)));
        join([child]);
        (0..3).for_each(|_| _ = look(0));
        send(0);
        join([waiter]);
        join([other]);
        end();
    });
}

#[test]
fn a_child_wakes_a_call_that_waits() {
    check(|| {
        begin();
        let waiter = world::thread(|| _ = receive(0));
        let child = fork(|| send(0));
        let other = fork(|| _ = look(0));
        look(0);
        join([waiter]);
        join([child]);
        join([other]);
        end();
    });
}

#[test]
fn a_descriptor_is_closed_while_others_wait() {
    check(|| {
        begin();
        accept();
        let waiter = world::thread(|| {
            if !receive(1) {
                receive(2);
            }
        });
        let child = fork(|| {
            send(2);
            (0..4).for_each(close);
            must(!tie::any() && world::mappings() == 0, "something is left in the child");
        });
        let closer = world::thread(|| {
            close(0);
            close(1);
        });
        let other = fork(|| {});
        join([waiter]);
        join([closer]);
        join([child]);
        join([other]);
        end();
    });
}

#[test]
fn a_child_ends_a_handle_that_a_call_of_its_parent_had() {
    check(|| {
        begin();
        let first = fork(|| send(0));
        let waiter = world::thread(|| _ = receive(0));
        let closer = world::thread(|| close(0));
        let second = fork(|| {
            close(0);
            must(!tie::any() && world::mappings() == 0, "something is left in the child");
        });
        join([first, waiter, closer, second]);
        end();
    });
}

#[test]
fn operations_and_their_transform_are_closed_while_others_lean_on_them() {
    check(|| {
        begin();
        accept();
        // What the child changes is to be taken over.
        let child = fork(|| {
            for fd in [0, 1, 0, 1] {
                send(fd);
            }
        });
        let threads = [
            world::thread(|| (0..2).for_each(|_| _ = look(1))),
            world::thread(|| [1, 2].map(close).into_iter().collect()),
            world::thread(|| (0..2).for_each(|_| _ = call(0, |_, borrow| share::refresh_operations(borrow)))),
            world::thread(|| close(0)),
        ];
        join(threads);
        join([child]);
        end();
    });
}

#[test]
fn operations_are_closed_while_others_look_at_them() {
    check(|| {
        begin();
        accept();
        // What the child has changed is to be taken over.
        join([fork(|| send(1))]);
        let threads = [
            world::thread(|| _ = call(0, |_, borrow| share::refresh_operations(borrow))),
            world::thread(|| [1, 2].map(close).into_iter().collect()),
        ];
        join(threads);
        end();
    });
}

#[test]
fn rights_change_while_others_wait_and_fork() {
    check(|| {
        begin();
        let waiter = world::thread(|| _ = receive(0));
        let first = fork(|| _ = look(0));
        let changer = world::thread(|| thread::alone(part_from_all));
        let second = fork(|| {});
        join([changer]);
        // Images are the one thing that lies in real memory, which the machine has once for each address.
        join([first, second]);
        // What is private now is shared again.
        let third = fork(|| send(0));
        join([waiter]);
        join([third]);
        end();
    });
}

#[test]
fn work_that_falls_due_is_done_once_and_alone() {
    check(|| {
        begin();
        let threads = [
            // A signal handler that interrupted a call.
            world::thread(|| _ = call(0, |_, _| thread::alone(part_from_all))),
            world::thread(|| thread::alone(part_from_all)),
            world::thread(|| _ = look(0)),
        ];
        let child = fork(|| {});
        join(threads);
        join([child]);
        look(0);
        must(doing(|d| d.done) >= 2, "work was left undone");
        end();
    });
}

#[test]
fn a_child_is_killed_in_a_call() {
    check(|| {
        begin();
        world::let_time_pass();
        let child = fork(|| {
            let slot = thread::slot();
            slot.enter();
            let borrow = arena().borrow(0).expect("a descriptor");
            share::enter(&borrow);
            core::mem::forget(borrow);
        });
        let other = world::thread(|| send(0));
        receive(0);
        join([other]);
        join([child]);
        look(0);
        end();
    });
}

// A protocol of before, on the same gate, locks and cells.

/// The former way in which `enter` found its cell and parted from it: whoever finds itself alone gives the memory back at once.
mod former {
    use super::*;

    /// The cell, which is locked, unless this call has parted.
    pub(super) fn enter(handle: &Handle) -> Option<&'static Cell> {
        let cell = handle.tie.cell()?;
        cell.lock();
        let own = handle.tie.place.load(SeqCst);
        cell.sweep(own);
        if cell.is_alone(own) {
            cell.unlock();
            part(handle);
            return None;
        }
        Some(cell)
    }

    fn part(handle: &Handle) {
        let Some(cell) = handle.tie.cell() else { return };
        cell.lock();
        handle.tie.untie(cell);
        cell.unlock();
        handle.tie.end();
    }
}

/// The failure of a scenario that must fail.
fn found(scenario: fn()) -> String {
    let both = || {
        run(RandomScheduler::new_from_seed(1, 5_000), scenario);
        run(PctScheduler::new_from_seed(2, 4, 5_000), scenario);
    };
    std::panic::catch_unwind(both).expect_err("the model does not find what is wrong");
    world::failure().unwrap_or_else(|| "deadlock".to_owned())
}

#[test]
fn a_former_protocol_unmapped_what_others_were_about_to_lock() {
    let failure = found(|| {
        begin();
        let child = fork(|| _ = look(0));
        join([child]);
        let threads = [0; 2].map(|_| {
            world::thread(|| {
                let slot = thread::slot();
                slot.enter();
                let borrow = arena().borrow(0).expect("a descriptor");
                if let Some(cell) = former::enter(&borrow) {
                    cell.unlock();
                }
                drop(borrow);
                slot.leave();
            })
        });
        join(threads);
    });
    assert!(failure.contains("touches memory that is not mapped"), "{failure}");
}
