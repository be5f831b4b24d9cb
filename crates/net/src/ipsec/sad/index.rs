//! A hash table of slots: open addressing, 8 bytes an entry, nothing moved but by growing.

use core::net::IpAddr;

/// No entry was ever here.
const EMPTY: u32 = u32::MAX;
/// One was taken away.
const GONE: u32 = u32::MAX - 1;

/// Hashes to 32 bits; whoever does not know the seed cannot choose what collides.
#[derive(Clone)]
pub(crate) struct Hash {
    seed: u64,
}

impl Hash {
    pub(crate) fn new(seed: u64) -> Self {
        Hash { seed: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// Folded multiplication, as wyhash has it.
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

/// Slots by hash.
pub(crate) struct Index {
    /// Hash and slot.
    entries: Vec<(u32, u32)>,
    used: usize,
    gone: usize,
}

impl Index {
    pub(crate) fn new() -> Self {
        Index { entries: vec![(0, EMPTY); 16], used: 0, gone: 0 }
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        if (self.used + self.gone + 1) * 4 > self.entries.len() * 3 {
            // Grows, or only sweeps when there is much that has gone.
            let len = ((self.used + 1) * 2).next_power_of_two().max(16);
            let old = std::mem::replace(&mut self.entries, vec![(0, EMPTY); len]);
            (self.used, self.gone) = (0, 0);
            for (hash, slot) in old.into_iter().filter(|e| e.1 < GONE) {
                self.put(hash, slot);
            }
        }
        self.put(hash, slot);
    }

    fn put(&mut self, hash: u32, slot: u32) {
        let mut at = hash as usize & self.mask();
        while self.entries[at].1 < GONE {
            at = (at + 1) & self.mask();
        }
        if self.entries[at].1 == GONE {
            self.gone -= 1;
        }
        self.entries[at] = (hash, slot);
        self.used += 1;
    }

    /// The slots of a hash, and those of others that have the same.
    pub(crate) fn find(&self, hash: u32) -> impl Iterator<Item = u32> {
        let mut at = hash as usize & self.mask();
        std::iter::from_fn(move || {
            loop {
                let (found, slot) = self.entries[at];
                if slot == EMPTY {
                    return None;
                }
                at = (at + 1) & self.mask();
                if found == hash && slot != GONE {
                    return Some(slot);
                }
            }
        })
    }

    pub(crate) fn first(&self, hash: u32) -> Option<u32> {
        self.find(hash).next()
    }

    fn position(&self, hash: u32, slot: u32) -> Option<usize> {
        let mut at = hash as usize & self.mask();
        while self.entries[at].1 != EMPTY {
            if self.entries[at] == (hash, slot) {
                return Some(at);
            }
            at = (at + 1) & self.mask();
        }
        None
    }

    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        if let Some(at) = self.position(hash, slot) {
            self.entries[at] = (0, GONE);
            self.used -= 1;
            self.gone += 1;
        }
    }

    pub(crate) fn replace(&mut self, hash: u32, old: u32, new: u32) {
        if let Some(at) = self.position(hash, old) {
            self.entries[at].1 = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn like_a_map() {
        let mut index = Index::new();
        let mut plain: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut random = 88172645463325252u64;
        for slot in 0..20_000u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Few hashes, many collisions, clusters at the end of the table.
            let hash = ((random % 700) as u32 * 0x10001).wrapping_add(0xffff_fff0);
            let slots = plain.entry(hash).or_default();
            if random & 0x100_0000 != 0 {
                index.insert(hash, slot);
                slots.insert(slot);
            } else if let Some(old) = slots.pop_first() {
                index.remove(hash, old);
            }
            assert_eq!(index.find(hash).collect::<BTreeSet<_>>(), *slots);
        }
        assert_eq!(index.used, plain.values().map(BTreeSet::len).sum::<usize>());
    }
}
