//! The table of policies.

use crate::changes::Changes;
use crate::convert;
use crate::policy::PolicyRecord;
use crate::serial::Serial;
use crate::settings::Buckets;
use crate::timers::Timers;
use sealane_abi::xfrm::{LifetimeCur, Mark, Selector};
use sealane_net_ipsec::lifetime::Age;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Seconds until the event of a soft limit is sent again.
const KM_TIMEOUT_S: u64 = 30;

/// The fields that no two policies share: direction, bytes of the selector, mark and its mask, interface id.
type UniqueKey = (u8, [u8; 56], (u32, u32), u32);

pub(crate) fn key_of(dir: u8, sel: &Selector, mark: Mark, if_id: u32) -> UniqueKey {
    let mut bytes = [0; 56];
    bytes.copy_from_slice(sel.as_bytes());
    (dir, bytes, (mark.v, mark.m), if_id)
}

/// The table of policies, with their timers.
#[derive(Default)]
pub(crate) struct Policies {
    pub(crate) policies: BTreeMap<Serial, Box<PolicyRecord>>,
    pub(crate) by_key: BTreeMap<UniqueKey, Serial>,
    by_index: BTreeMap<u32, Serial>,
    by_place: BTreeMap<Serial, Serial>,
    timers: Timers,
    counts: [u32; 3],
    last: Serial,
    next_index: u32,
    buckets: Buckets,
    /// The places of policies that have changed since they were recorded last.
    pub(crate) changes: Changes,
}

impl Policies {
    /// Iterates over the policies, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Serial, &PolicyRecord)> {
        self.policies.iter().rev().map(|(serial, policy)| (*serial, &**policy))
    }

    pub(crate) fn get(&self, serial: Serial) -> Option<&PolicyRecord> {
        self.policies.get(&serial).map(|policy| &**policy)
    }

    /// Finds the policy with an index.
    pub(crate) fn of_index(&self, index: u32) -> Option<Serial> {
        self.by_index.get(&index).copied()
    }

    /// Finds the policy with a place.
    pub(crate) fn of_place(&self, place: Serial) -> Option<&PolicyRecord> {
        self.by_place.get(&place).and_then(|serial| self.get(*serial))
    }

    /// The numbers of inbound, outbound and forward policies.
    pub(crate) fn counts(&self) -> [u32; 3] {
        self.counts
    }

    pub(crate) fn buckets(&self) -> Buckets {
        self.buckets
    }

    /// Returns an index that no policy has: `wanted` if it is free and not 0 (`xfrm_gen_index`).
    pub(crate) fn free_index(&mut self, dir: u8, wanted: u32) -> u32 {
        let mut wanted = Some(wanted).filter(|index| *index != 0);
        loop {
            let index = wanted.take().unwrap_or_else(|| {
                let index = self.next_index | u32::from(dir);
                self.next_index = self.next_index.wrapping_add(8);
                index
            });
            let index = if index == 0 { 8 } else { index };
            if !self.by_index.contains_key(&index) {
                return index;
            }
        }
    }

    /// Adds a policy, behind all others of its priority unless it already has a place.
    pub(crate) fn add(&mut self, mut policy: PolicyRecord) -> Serial {
        self.last += 1;
        if policy.place == 0 {
            policy.place = self.last;
        }
        let info = policy.info;
        self.by_key.insert(key_of(info.dir, &info.sel, policy.mark, policy.if_id), self.last);
        self.by_index.insert(info.index, self.last);
        self.counts[usize::from(info.dir)] += 1;
        let (young, next) = age(&policy, &info.curlft, info.curlft.add_time);
        let first = if young == Age::Young { next } else { Some(info.curlft.add_time) };
        policy.timer = first.map(|at| self.timers.start(at, self.last));
        self.by_place.insert(policy.place, self.last);
        self.changes.note(policy.place);
        self.policies.insert(self.last, Box::new(policy));
        self.buckets.added(self.policies.len());
        self.last
    }

    pub(crate) fn remove(&mut self, serial: Serial) -> Option<Box<PolicyRecord>> {
        let policy = self.policies.remove(&serial)?;
        self.by_place.remove(&policy.place);
        self.changes.note(policy.place);
        let info = &policy.info;
        self.by_key.remove(&key_of(info.dir, &info.sel, policy.mark, policy.if_id));
        self.by_index.remove(&info.index);
        if let Some(timer) = policy.timer {
            self.timers.stop(timer, serial);
        }
        self.counts[usize::from(info.dir)] -= 1;
        Some(policy)
    }

    /// The time at which [`Xfrm::policies_timeout`](crate::Xfrm) is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.timers.first_s()
    }

    pub(crate) fn due(&mut self, now_s: u64) -> Option<Serial> {
        let serial = self.timers.due(now_s)?;
        if let Some(policy) = self.policies.get_mut(&serial) {
            policy.timer = None;
        }
        Some(serial)
    }

    /// Schedules the next check of a policy's limits.
    pub(crate) fn schedule_check(&mut self, serial: Serial, at: u64) {
        if let Some(policy) = self.policies.get_mut(&serial) {
            policy.timer = Some(self.timers.start(at, serial));
        }
    }

    /// Notes that the clock was set, by so many seconds.
    pub(crate) fn clock_was_set(&mut self, by_s: i64) {
        self.timers.clock_was_set(by_s);
    }
}

/// Returns the age of a policy and the time of the next check. The use time of an unused policy counts from its
/// addition. The event of a soft expiry is repeated (`XFRM_KM_TIMEOUT`).
pub(crate) fn age(policy: &PolicyRecord, used: &LifetimeCur, now_s: u64) -> (Age, Option<u64>) {
    let mut used = convert::usage(used);
    if used.use_time_s == 0 {
        used.use_time_s = used.add_time_s;
    }
    let (age, next) = convert::limits(&policy.info.lft).time(&used, false, now_s);
    let again = (age == Age::Soft).then(|| now_s.saturating_add(KM_TIMEOUT_S)).filter(|at| *at > now_s);
    (age, next.into_iter().chain(again).min())
}
