//! The keys of a socket: a list, newest first, as in the kernel, with an index over prefixes once it is long.
//!
//! The kernel walks its list and takes the first key that matches. Keys whose peers overlap never share a SendID or a
//! RecvID, so where an id is given there is at most one match, whatever the order; without one the newest match wins.
//! The index gives the same answers (a lookup for each prefix length in use).

use crate::mkt::{Mkt, Prefix, unmapped};
use crate::traffic::Traffic;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of keys above which an index is kept; below that a walk is as fast.
const INDEX_FROM: usize = 16;

/// The end of a list of slots.
const NONE: u32 = u32::MAX;

/// The MACs of a key on one connection.
pub struct TrafficKeys {
    /// The MAC for sending (`Send_other_traffic_key`).
    pub send: Traffic,
    /// The MAC for receiving (`Receive_other_traffic_key`).
    pub receive: Traffic,
}

/// A key of a socket.
pub struct Key {
    /// The master key tuple.
    pub mkt: Arc<Mkt>,
    /// Segments that verified with it.
    pub pkt_good: u64,
    /// Segments that did not.
    pub pkt_bad: u64,
    /// Its traffic keys, once both ISNs are known.
    pub traffic: Option<TrafficKeys>,
}

impl Key {
    /// Whether a traffic key of the connection is still to be derived where its master key is.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let is = |traffic: &TrafficKeys| traffic.send.wanted().is_some() || traffic.receive.wanted().is_some();
        self.traffic.as_ref().is_some_and(is)
    }
}

/// A reference to a key in one [`KeyTable`], valid until that key is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyRef {
    slot: u32,
    generation: u32,
}

/// A filter for keys. `None` matches everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ids {
    /// The VRF (0 is the default one); a key that is not bound to a VRF matches each.
    pub ifindex: Option<i32>,
    /// SendID.
    pub send_id: Option<u8>,
    /// RecvID.
    pub recv_id: Option<u8>,
}

impl Ids {
    /// Matches all ids in VRF `ifindex`.
    #[must_use]
    pub fn any(ifindex: i32) -> Self {
        Ids { ifindex: Some(ifindex), ..Ids::default() }
    }

    /// Restricts the filter to this SendID.
    #[must_use]
    pub fn send(self, id: u8) -> Self {
        Ids { send_id: Some(id), ..self }
    }

    /// Restricts the filter to this RecvID.
    #[must_use]
    pub fn recv(self, id: u8) -> Self {
        Ids { recv_id: Some(id), ..self }
    }

    /// Whether `mkt` matches.
    #[must_use]
    pub fn matches(&self, mkt: &Mkt) -> bool {
        self.send_id.is_none_or(|id| id == mkt.send_id)
            && self.recv_id.is_none_or(|id| id == mkt.recv_id)
            && match (self.ifindex, mkt.ifindex) {
                (Some(asked), Some(bound)) => asked == bound,
                _ => true,
            }
    }
}

struct KeySlot {
    key: Option<Key>,
    generation: u32,
    /// Grows from the oldest to the newest key.
    order: u64,
    newer: u32,
    /// The next older key, or the next free slot.
    older: u32,
}

/// The keys of a socket.
#[derive(Default)]
pub struct KeyTable {
    slots: Vec<KeySlot>,
    len: usize,
    next_order: u64,
    newest: Option<u32>,
    free: Option<u32>,
    index: Option<Box<PrefixIndex>>,
}

impl KeyTable {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        KeyTable::default()
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a key in front. The caller checks whether it may be added, see [`KeyTable::overlapping`].
    ///
    /// # Panics
    /// With 2^32 - 1 keys.
    pub fn add(&mut self, mkt: Arc<Mkt>, traffic: Option<TrafficKeys>) -> KeyRef {
        let key = Key { mkt, pkt_good: 0, pkt_bad: 0, traffic };
        let slot = match self.free {
            Some(slot) => {
                let s = &mut self.slots[slot as usize];
                self.free = (s.older != NONE).then_some(s.older);
                s.key = Some(key);
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).ok().filter(|s| *s != NONE).expect("fewer than 2^32 keys");
                self.slots.push(KeySlot { key: Some(key), generation: 0, order: 0, newer: NONE, older: NONE });
                slot
            }
        };
        self.len += 1;
        self.link(slot);
        self.reindex(slot);
        KeyRef { slot, generation: self.slots[slot as usize].generation }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: KeyRef) -> Option<Key> {
        self.get(key)?;
        self.unlink(key.slot);
        let prefix = self.prefix(key.slot);
        if let Some(index) = &mut self.index {
            index.remove(prefix, key.slot);
        }
        let slot = &mut self.slots[key.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.older = self.free.unwrap_or(NONE);
        self.free = Some(key.slot);
        self.len -= 1;
        slot.key.take()
    }

    /// Makes a key the newest one.
    pub fn move_to_front(&mut self, key: KeyRef) {
        if self.get(key).is_some() {
            self.unlink(key.slot);
            self.link(key.slot);
        }
    }

    /// A key.
    #[must_use]
    pub fn get(&self, key: KeyRef) -> Option<&Key> {
        self.slots.get(key.slot as usize).filter(|s| s.generation == key.generation)?.key.as_ref()
    }

    /// A key, mutable.
    pub fn get_mut(&mut self, key: KeyRef) -> Option<&mut Key> {
        self.slots.get_mut(key.slot as usize).filter(|s| s.generation == key.generation)?.key.as_mut()
    }

    /// All keys, newest first.
    pub fn iter(&self) -> impl Iterator<Item = (KeyRef, &Key)> {
        let mut at = self.newest.unwrap_or(NONE);
        core::iter::from_fn(move || {
            let slot = self.slots.get(at as usize)?;
            let key = KeyRef { slot: at, generation: slot.generation };
            at = slot.older;
            slot.key.as_ref().map(|k| (key, k))
        })
    }

    /// All keys, mutable, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Key> {
        self.slots.iter_mut().filter_map(|s| s.key.as_mut())
    }

    /// The newest key with these ids, whatever its peers (`tcp_ao_established_key`). It serves connections, all of
    /// whose keys match their peer.
    #[must_use]
    pub fn by_ids(&self, ids: Ids) -> Option<KeyRef> {
        self.iter().find(|(_, k)| ids.matches(&k.mkt)).map(|(r, _)| r)
    }

    /// The newest key for `peer` with these ids (`tcp_ao_do_lookup`). The unspecified address matches every key of its
    /// family.
    #[must_use]
    pub fn lookup(&self, peer: IpAddr, ids: Ids) -> Option<KeyRef> {
        let peer = unmapped(peer);
        match &self.index {
            Some(index) if !peer.is_unspecified() => self.newest_of(index.covering(Prefix::host(peer)), ids),
            _ => self.iter().find(|(_, k)| ids.matches(&k.mkt) && k.mkt.peer.contains(peer)).map(|(r, _)| r),
        }
    }

    /// All keys for `peer` with these ids, newest first.
    #[must_use]
    pub fn matching(&self, peer: IpAddr, ids: Ids) -> Vec<KeyRef> {
        let peer = unmapped(peer);
        let Some(index) = self.index.as_ref().filter(|_| !peer.is_unspecified()) else {
            let matching = self.iter().filter(|(_, k)| ids.matches(&k.mkt) && k.mkt.peer.contains(peer));
            return matching.map(|(r, _)| r).collect();
        };
        let slots = index.covering(Prefix::host(peer));
        self.newest_first(slots.filter(|s| self.slots[*s as usize].key.as_ref().is_some_and(|k| ids.matches(&k.mkt))))
    }

    /// The length in bytes, with padding, of the longest option of all keys for `peer`; 0 without one.
    #[must_use]
    pub fn option_room(&self, peer: IpAddr) -> usize {
        let peer = unmapped(peer);
        let room = |key: &Key| key.mkt.option_len();
        match self.index.as_ref().filter(|_| !peer.is_unspecified()) {
            Some(index) => {
                let slots = index.covering(Prefix::host(peer));
                slots.filter_map(|slot| self.slots[slot as usize].key.as_ref()).map(room).max()
            }
            None => self.iter().filter(|(_, k)| k.mkt.peer.contains(peer)).map(|(_, k)| room(k)).max(),
        }
        .unwrap_or(0)
    }

    /// The newest key with these ids that shares peers with `prefix`. None may exist when a key is added (RFC 5925
    /// section 3.1: "The IDs of MKTs MUST NOT overlap where their TCP connection identifiers overlap").
    #[must_use]
    pub fn overlapping(&self, prefix: &Prefix, ids: Ids) -> Option<KeyRef> {
        match &self.index {
            Some(index) => self.newest_of(index.covering(*prefix).chain(index.within(*prefix)), ids),
            None => self.iter().find(|(_, k)| ids.matches(&k.mkt) && k.mkt.peer.overlaps(prefix)).map(|(r, _)| r),
        }
    }

    /// The keys for exactly these peers and this binding, with these ids, newest first.
    pub fn exact(
        &self,
        prefix: Prefix,
        ifindex: Option<i32>,
        send_id: u8,
        recv_id: u8,
    ) -> impl Iterator<Item = KeyRef> {
        let wanted = |key: &Key| {
            let mkt = &key.mkt;
            (mkt.peer, mkt.ifindex, mkt.send_id, mkt.recv_id) == (prefix, ifindex, send_id, recv_id)
        };
        let found = match &self.index {
            Some(index) => {
                let slots = index.bucket(prefix).iter().copied();
                self.newest_first(slots.filter(|s| self.slots[*s as usize].key.as_ref().is_some_and(wanted)))
            }
            None => self.iter().filter(|(_, k)| wanted(k)).map(|(r, _)| r).collect(),
        };
        found.into_iter()
    }

    fn newest_first(&self, slots: impl Iterator<Item = u32>) -> Vec<KeyRef> {
        let mut slots: Vec<u32> = slots.collect();
        slots.sort_by_key(|s| core::cmp::Reverse(self.slots[*s as usize].order));
        slots.into_iter().map(|slot| KeyRef { slot, generation: self.slots[slot as usize].generation }).collect()
    }

    fn newest_of(&self, slots: impl Iterator<Item = u32>, ids: Ids) -> Option<KeyRef> {
        slots
            .map(|slot| (slot, &self.slots[slot as usize]))
            .filter(|(_, s)| s.key.as_ref().is_some_and(|k| ids.matches(&k.mkt)))
            .max_by_key(|(_, s)| s.order)
            .map(|(slot, s)| KeyRef { slot, generation: s.generation })
    }

    fn prefix(&self, slot: u32) -> Prefix {
        self.slots[slot as usize].key.as_ref().map_or(Prefix::ANY_V4, |k| k.mkt.peer)
    }

    fn link(&mut self, slot: u32) {
        let older = self.newest.unwrap_or(NONE);
        let s = &mut self.slots[slot as usize];
        (s.newer, s.older, s.order) = (NONE, older, self.next_order);
        self.next_order += 1;
        if let Some(older) = self.slots.get_mut(older as usize) {
            older.newer = slot;
        }
        self.newest = Some(slot);
    }

    fn unlink(&mut self, slot: u32) {
        let KeySlot { newer, older, .. } = self.slots[slot as usize];
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = (older != NONE).then_some(older),
        }
        if let Some(older) = self.slots.get_mut(older as usize) {
            older.newer = newer;
        }
    }

    fn reindex(&mut self, added: u32) {
        let prefix = self.prefix(added);
        match &mut self.index {
            Some(index) => index.add(prefix, added),
            None if self.len > INDEX_FROM => {
                let mut index = Box::<PrefixIndex>::default();
                for (r, key) in self.iter() {
                    index.add(key.mkt.peer, r.slot);
                }
                self.index = Some(index);
            }
            None => {}
        }
    }
}

/// Family, first address, length: sorted so that all prefixes within another one follow it.
type Place = (bool, u128, u8);

/// Slots by prefix.
#[derive(Default)]
struct PrefixIndex {
    buckets: BTreeMap<Place, Vec<u32>>,
    /// The number of buckets of each prefix length, IPv4 then IPv6.
    lens: [BTreeMap<u8, u32>; 2],
}

/// The place of `prefix` in the index, and its last address.
fn place(prefix: Prefix) -> (Place, u128) {
    let (v6, bits, width) = match prefix.addr {
        IpAddr::V4(a) => (false, u128::from(a.to_bits()), 32),
        IpAddr::V6(a) => (true, a.to_bits(), 128),
    };
    let len = u32::from(prefix.len).min(width);
    let all = u128::MAX >> (128 - width);
    let host_bits = all.checked_shr(len).unwrap_or(0);
    let first = bits & !host_bits;
    ((v6, first, len as u8), first | host_bits)
}

impl PrefixIndex {
    fn add(&mut self, prefix: Prefix, slot: u32) {
        let (at, _) = place(prefix);
        let bucket = self.buckets.entry(at).or_default();
        if bucket.is_empty() {
            *self.lens[usize::from(at.0)].entry(at.2).or_default() += 1;
        }
        bucket.push(slot);
    }

    fn remove(&mut self, prefix: Prefix, slot: u32) {
        let (at, _) = place(prefix);
        let Some(bucket) = self.buckets.get_mut(&at) else { return };
        bucket.retain(|s| *s != slot);
        if !bucket.is_empty() {
            return;
        }
        self.buckets.remove(&at);
        let lens = &mut self.lens[usize::from(at.0)];
        if let Some(n) = lens.get_mut(&at.2) {
            *n -= 1;
            if *n == 0 {
                lens.remove(&at.2);
            }
        }
    }

    fn bucket(&self, prefix: Prefix) -> &[u32] {
        self.buckets.get(&place(prefix).0).map_or(&[], Vec::as_slice)
    }

    /// The slots of all prefixes that contain `prefix`, itself among them.
    fn covering(&self, prefix: Prefix) -> impl Iterator<Item = u32> {
        let lens = self.lens[usize::from(prefix.addr.is_ipv6())].range(..=prefix.len);
        lens.flat_map(move |(len, _)| self.bucket(Prefix { addr: prefix.addr, len: *len }).iter().copied())
    }

    /// The slots of all prefixes that `prefix` contains.
    fn within(&self, prefix: Prefix) -> impl Iterator<Item = u32> {
        let ((v6, first, len), last) = place(prefix);
        self.buckets.range((v6, first, len)..=(v6, last, u8::MAX)).flat_map(|(_, slots)| slots.iter().copied())
    }
}
