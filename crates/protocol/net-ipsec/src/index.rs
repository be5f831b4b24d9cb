//! A hash table of slots with open addressing: 9 bytes an entry, and entries move only when it grows.

use core::net::IpAddr;
use sealane_cpu::prefetch;

/// The tag of a place that has never held an entry.
const EMPTY: u8 = 0xff;
/// The tag of a removed entry.
const GONE: u8 = 0x80;

/// The lowest bit of each byte.
const LOWS: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// A seeded hash function with 32-bit results: without the seed nobody can construct collisions.
#[derive(Clone)]
pub(crate) struct Hash {
    seed: u64,
}

impl Hash {
    pub(crate) fn new(seed: u64) -> Self {
        Hash { seed: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// Folded multiplication, as in wyhash.
    pub(crate) fn mix(&self, a: u64, b: u64) -> u64 {
        let product = u128::from(a ^ self.seed) * u128::from(b ^ self.seed.rotate_left(32) ^ 0xe703_7ed1_a0b4_28db);
        product as u64 ^ (product >> 64) as u64
    }

    pub(crate) fn addr(&self, addr: IpAddr, with: u64) -> u64 {
        match addr {
            IpAddr::V4(addr) => self.mix(addr.to_bits().into(), with),
            IpAddr::V6(addr) => {
                let bits = addr.to_bits();
                self.mix(bits as u64, self.mix((bits >> 64) as u64, with))
            }
        }
    }

    pub(crate) fn of_spi(&self, spi: u32) -> u32 {
        (self.mix(spi.into(), 1) >> 32) as u32
    }

    pub(crate) fn of_pair(&self, src: IpAddr, dst: IpAddr, reqid: u32) -> u32 {
        (self.addr(src, self.addr(dst, reqid.into())) >> 32) as u32
    }
}

/// A table of slots by hash.
pub(crate) struct HashIndex {
    /// One byte per entry, eight in a word: [`EMPTY`], [`GONE`], or seven bits of its hash. Most failed look-ups touch
    /// no entry.
    tags: Vec<u64>,
    /// Hash and slot.
    entries: Vec<[(u32, u32); 8]>,
    used: usize,
    gone: usize,
}

/// The tag of a hash in all eight bytes. The hash's low bits select the word.
fn tag(hash: u32) -> u64 {
    u64::from(hash >> 25) * LOWS
}

/// Sets the high bit of each byte that equals `tag`, and rarely of the byte above it if that differs only in its lowest
/// bit. Empty and removed entries never match, as no tag has the high bit set.
fn equal(tags: u64, tag: u64) -> u64 {
    let x = tags ^ tag;
    x.wrapping_sub(LOWS) & !x & HIGHS
}

/// Sets the high bit of each byte that is [`EMPTY`].
fn empty(tags: u64) -> u64 {
    tags & tags << 1 & HIGHS
}

fn set(tags: &mut u64, i: usize, byte: u8) {
    *tags = *tags & !(0xff << (8 * i)) | u64::from(byte) << (8 * i);
}

impl HashIndex {
    pub(crate) fn new() -> Self {
        HashIndex { tags: vec![u64::MAX; 2], entries: vec![[(0, 0); 8]; 2], used: 0, gone: 0 }
    }

    fn mask(&self) -> usize {
        self.tags.len() - 1
    }

    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        if (self.used + self.gone + 1) * 4 > self.tags.len() * 8 * 3 {
            // Grows the table, or only sweeps out removed entries if there are many.
            let len = ((self.used + 1) * 2).next_power_of_two().max(16) / 8;
            let tags = std::mem::replace(&mut self.tags, vec![u64::MAX; len]);
            let old = std::mem::replace(&mut self.entries, vec![[(0, 0); 8]; len]);
            (self.used, self.gone) = (0, 0);
            for (tags, entries) in tags.into_iter().zip(old) {
                for (i, (hash, slot)) in entries.into_iter().enumerate() {
                    if tags >> (8 * i) & 0x80 == 0 {
                        self.put(hash, slot);
                    }
                }
            }
        }
        self.put(hash, slot);
    }

    fn put(&mut self, hash: u32, slot: u32) {
        let mut at = hash as usize & self.mask();
        while self.tags[at] & HIGHS == 0 {
            at = (at + 1) & self.mask();
        }
        let i = (self.tags[at] & HIGHS).trailing_zeros() as usize / 8;
        if self.tags[at] >> (8 * i) & 0xff == u64::from(GONE) {
            self.gone -= 1;
        }
        set(&mut self.tags[at], i, (hash >> 25) as u8);
        self.entries[at][i] = (hash, slot);
        self.used += 1;
    }

    /// Iterates over the slots with this hash, which may belong to different keys.
    pub(crate) fn find(&self, hash: u32) -> impl Iterator<Item = u32> {
        let (mut at, tag) = (hash as usize & self.mask(), tag(hash));
        let mut left = equal(self.tags[at], tag);
        std::iter::from_fn(move || {
            loop {
                while left != 0 {
                    let i = left.trailing_zeros() as usize / 8;
                    left &= left - 1;
                    let (found, slot) = self.entries[at][i];
                    if found == hash {
                        return Some(slot);
                    }
                }
                if empty(self.tags[at]) != 0 {
                    return None;
                }
                at = (at + 1) & self.mask();
                left = equal(self.tags[at], tag);
            }
        })
    }

    /// Prefetches the tags of a hash.
    pub(crate) fn warm_tags(&self, hash: u32) {
        prefetch(&self.tags[hash as usize & self.mask()], 1);
    }

    /// Prefetches the entry of a hash, whose tags were prefetched before.
    pub(crate) fn warm_entry(&self, hash: u32) {
        let at = hash as usize & self.mask();
        let left = equal(self.tags[at], tag(hash));
        if left != 0 {
            prefetch(&self.entries[at][left.trailing_zeros() as usize / 8], 1);
        }
    }

    pub(crate) fn first(&self, hash: u32) -> Option<u32> {
        self.find(hash).next()
    }

    fn position(&self, hash: u32, slot: u32) -> Option<(usize, usize)> {
        let (mut at, tag) = (hash as usize & self.mask(), tag(hash));
        loop {
            let mut left = equal(self.tags[at], tag);
            while left != 0 {
                let i = left.trailing_zeros() as usize / 8;
                left &= left - 1;
                if self.entries[at][i] == (hash, slot) {
                    return Some((at, i));
                }
            }
            if empty(self.tags[at]) != 0 {
                return None;
            }
            at = (at + 1) & self.mask();
        }
    }

    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        if let Some((at, i)) = self.position(hash, slot) {
            // No search continues past a word with an empty byte.
            let goes = empty(self.tags[at]) == 0;
            set(&mut self.tags[at], i, if goes { GONE } else { EMPTY });
            self.used -= 1;
            self.gone += usize::from(goes);
        }
    }

    pub(crate) fn replace(&mut self, hash: u32, old: u32, new: u32) {
        if let Some((at, i)) = self.position(hash, old) {
            self.entries[at][i].1 = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn like_a_map() {
        let mut index = HashIndex::new();
        let mut plain: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut random = 88172645463325252u64;
        for slot in 0..20_000u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Few hashes, many collisions, and clusters at the end of the table.
            let hash = ((random % 700) as u32 * 0x10001).wrapping_add(0xffff_fff0);
            let slots = plain.entry(hash).or_default();
            if random & 0x100_0000 != 0 {
                index.insert(hash, slot);
                slots.insert(slot);
            } else if let Some(old) = slots.pop_first() {
                index.remove(hash, old);
                index.remove(hash, old);
            }
            assert_eq!(index.find(hash).collect::<BTreeSet<_>>(), *slots);
        }
        assert_eq!(index.used, plain.values().map(BTreeSet::len).sum::<usize>());
    }
}
