//! The generator behind every random choice: SplitMix64, so that a seed means the same sequence everywhere.

/// A generator with 64 bits of state.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Starts from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`.
    ///
    /// # Panics
    /// When `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n as u64) as usize
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.next_u64() % 100 < u64::from(percent)
    }

    /// One of `list`.
    ///
    /// # Panics
    /// When `list` is empty.
    pub fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// An index of `weights`, each as likely as its weight says.
    ///
    /// # Panics
    /// When all weights are 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u32 = weights.iter().sum();
        let mut at = self.below(total as usize) as u32;
        weights
            .iter()
            .position(|&w| {
                let here = at < w;
                at = at.wrapping_sub(w);
                here
            })
            .expect("the point lies below the total")
    }
}

/// `len` bytes that depend on `seed` alone.
#[must_use]
pub fn bytes(seed: u32, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(seed));
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// FNV-1a, 64 bits: names a long result in a transcript.
#[must_use]
pub fn fnv(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
