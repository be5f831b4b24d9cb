//! The coordinator of a gateway, in its first thread: it opens interfaces, and updates the XDP program after policies
//! and states.

use super::common::Common;
use super::opening::{self, Program, ThreadPart, UpInterface};
use super::plan;
use super::state::State;
use crate::routes::Routes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tracing::warn;

/// The program's tables are left alone for so many times the time that it took to make them.
const REST: u32 = 8;

/// The state of the coordinator.
pub(super) struct Coordinator {
    names: Vec<String>,
    shown: Arc<Mutex<Vec<State>>>,
    /// The interfaces that existed at the last attempt to open them.
    tried: Option<Vec<UpInterface>>,
    /// The error of that attempt.
    refused: Option<String>,
    /// `None` while no interface can be served.
    program: Option<Program>,
    /// The change counts of policies and states, and whether rules of a former daemon were in force, when the tables
    /// were made.
    seen: Option<(u64, u64, bool)>,
    /// Whether something may have changed, and when the tables may be made again.
    changed: bool,
    rest: Instant,
}

impl Coordinator {
    /// Makes the coordinator of a gateway without open interfaces.
    pub(super) fn new(names: &[String], shown: &Arc<Mutex<Vec<State>>>) -> Self {
        Coordinator {
            names: names.to_vec(),
            shown: shown.clone(),
            tried: None,
            refused: None,
            program: None,
            seen: None,
            changed: true,
            rest: Instant::now(),
        }
    }

    /// Whether an update is due that has to wait.
    pub(super) fn has_delayed_update(&self, now: Instant) -> bool {
        self.changed && self.rest > now
    }

    /// Notes that policies or states may have changed, or addresses.
    pub(super) fn note_changes(&mut self, states: bool, addresses: bool) {
        if addresses {
            self.seen = None;
        }
        self.changed |= states || addresses;
    }

    /// Opens the interfaces again if they have changed, and checks everything that sends no notification.
    pub(super) fn look(&mut self, common: &Common, part: &mut Option<Box<ThreadPart>>, routes: &Routes) {
        common.forwards_v6.store(forwards_v6(), Ordering::Relaxed);
        let there = opening::present(&self.names);
        if self.tried.as_ref() != Some(&there) {
            self.reopen(there, common, part);
        }
        self.changed = true;
        self.update(common, part, routes);
    }

    /// Opens the interfaces that are there.
    fn reopen(&mut self, there: Vec<UpInterface>, common: &Common, part: &mut Option<Box<ThreadPart>>) {
        // One program at a time, and one socket for each queue.
        (self.program, self.seen) = (None, None);
        let others = common.posts.get(1..).unwrap_or_default();
        others.iter().for_each(|post| post.take());
        *part = None;
        others.iter().for_each(|post| post.wait(&common.stop));
        self.tried = Some(there.clone());
        let wakers: Vec<_> = common.posts.iter().map(|post| post.waker().clone()).collect();
        let opened = opening::open(there, &wakers).unwrap_or_else(|e| {
            // It is tried again each second, and reported once.
            let said = e.to_string();
            if self.refused.as_ref() != Some(&said) {
                warn!(error = %e, "xfrm: gateway: {e}; its packets go through the TUN device");
            }
            (self.refused, self.tried) = (Some(said), None);
            None
        });
        *self.shown.lock() = opened.as_ref().map(|(program, parts)| program.states(parts.len())).unwrap_or_default();
        let Some((program, parts)) = opened else { return };
        (self.refused, self.program) = (None, Some(program));
        let mut parts = parts.into_iter();
        *part = parts.next().map(Box::new);
        others.iter().zip(parts).for_each(|(post, part)| post.give(part));
    }

    /// Updates the program's tables after policies, states and addresses, if something has changed and it is time.
    pub(super) fn update(&mut self, common: &Common, part: &mut Option<Box<ThreadPart>>, routes: &Routes) {
        if !self.changed || routes.now() < self.rest {
            return;
        }
        let begun = Instant::now();
        self.changed = false;
        let Some(program) = &mut self.program else { return };
        let shared = &common.shared;
        let is_leftover = shared.is_leftover();
        let plan = {
            let xfrm = shared.xfrm();
            let seen = (xfrm.spd().changes(), xfrm.sad().changes(), is_leftover);
            if self.seen == Some(seen) {
                return;
            }
            self.seen = Some(seen);
            plan::plan(xfrm.spd(), xfrm.sad(), is_leftover || shared.kernel_states.any(), |address| routes.has(address))
        };
        let leaving = Arc::new(plan.leaving);
        for post in common.posts.get(1..).unwrap_or_default() {
            post.set_leaving(leaving.clone());
        }
        part.iter_mut().for_each(|part| part.leaving = leaving.clone());
        if let Err(e) = program.set(&plan.taken, routes.addresses(), plan.states) {
            warn!(error = %e, "xfrm: gateway: the tables of its program: {e}");
            self.seen = None;
        }
        let now = Instant::now();
        self.rest = now + (now - begun) * REST;
    }
}

/// Whether the calling thread's namespace forwards IPv6.
fn forwards_v6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding").is_ok_and(|text| text.trim() != "0")
}
