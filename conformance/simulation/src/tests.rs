//! Orders of events by the seeds from 0 on.

use crate::faults::Fault;
use crate::situations::Reached;
use crate::transition::{Transition, order};
use crate::world::{Violation, World};
use sealane_conformance::shrink::shrink;
use sealane_rules::table::Owned;
use std::sync::atomic::{AtomicU64, Ordering};

/// The events of an order, beside those that it begins with.
const EVENTS: usize = 40;

/// The kernel of a seed: tables outlive their owners (Linux 6.9), or have a guard beside them.
fn kernel(seed: u64) -> Owned {
    if seed.is_multiple_of(2) { Owned::Persists } else { Owned::Goes }
}

/// The first violation of an order, and the event that led to it.
fn run(owned: Owned, fault: Option<Fault>, events: &[Transition], reached: &mut Reached) -> Option<(usize, Violation)> {
    let mut world = World::new(owned, fault);
    let failed = events.iter().enumerate().find_map(|(at, event)| Some((at, world.apply(*event).err()?)));
    reached.add(&world.reached);
    failed
}

/// The least part of an order that still fails, printed so that it can be read.
fn least(owned: Owned, fault: Option<Fault>, events: &[Transition]) -> String {
    let part = |keep: &[usize]| keep.iter().map(|at| events[*at]).collect::<Vec<_>>();
    let fails = |keep: &Vec<usize>| run(owned, fault, &part(keep), &mut Reached::default()).is_some();
    let keep = shrink((0..events.len()).collect(), |all| all.iter().map(fails).collect());
    let mut text: String = part(&keep).iter().map(|event| format!("    {event:?}\n")).collect();
    if let Some((at, violation)) = run(owned, fault, &part(&keep), &mut Reached::default()) {
        text += &format!("  at event {}: {violation}", at + 1);
    }
    text
}

/// Runs orders until one fails; returns the first seed that does, and the situations.
fn first_failure(fault: Option<Fault>, seeds: u64) -> (Option<u64>, Reached) {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let work = || {
        let mut reached = Reached::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || seed > failed.load(Ordering::Relaxed) {
                return reached;
            }
            if run(kernel(seed), fault, &order(seed, EVENTS), &mut reached).is_some() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reached = Reached::default();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().for_each(|thread| reached.add(&thread.join().expect("it does not panic")));
    });
    (Some(failed.into_inner()).filter(|seed| *seed < seeds), reached)
}

/// The number of orders in `make test`; SIMULATION_ORDERS says another one.
fn orders() -> u64 {
    std::env::var("SIMULATION_ORDERS").ok().and_then(|text| text.parse().ok()).unwrap_or(50_000)
}

#[test]
fn nothing_that_must_not_happen_happens_in_any_order() {
    let (failed, reached) = first_failure(None, orders());
    println!("{} orders, and the situations that they got into:\n{reached}", orders());
    if let Some(seed) = failed {
        let events = order(seed, EVENTS);
        panic!("seed {seed}, {:?}:\n{}", kernel(seed), least(kernel(seed), None, &events));
    }
    let missing = reached.missing();
    assert!(missing.is_empty(), "no order got into {missing:?}");
}

#[test]
fn faults_that_are_put_back_are_found() {
    const MOST: u64 = 20_000;
    let missed: Vec<_> = Fault::ALL
        .into_iter()
        .filter(|fault| {
            let (found, _) = first_failure(Some(*fault), MOST);
            if let Some(seed) = found {
                let events = order(seed, EVENTS);
                println!("{fault:?}: seed {seed}\n{}", least(kernel(seed), Some(*fault), &events));
            }
            found.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "no order finds {missed:?}");
}

#[test]
fn a_seed_means_the_same_each_time() {
    let once = |seed| {
        let mut reached = Reached::default();
        let failed = run(kernel(seed), None, &order(seed, EVENTS), &mut reached);
        (failed, reached)
    };
    (0..50).for_each(|seed| assert_eq!(once(seed), once(seed), "seed {seed}"));
}
