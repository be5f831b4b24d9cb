//! Sums of words for the Internet checksum (RFC 1071), with the widest vectors that the CPU has.

/// Sums `bytes` as words of 32 bits in the machine's byte order. The last word is padded with zeros.
///
/// The result holds the sum of up to 16 GiB.
#[must_use]
#[inline]
pub fn words(bytes: &[u8]) -> u64 {
    // For a header, asking what the CPU has would take longer than the sum.
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= 128 {
        return wide(bytes);
    }
    plain(bytes)
}

#[inline(always)]
fn plain(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    sum + u64::from(u32::from_ne_bytes(last))
}

#[cfg(target_arch = "x86_64")]
fn wide(bytes: &[u8]) -> u64 {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has AVX-512F, which the function was compiled for.
        unsafe { avx512(bytes) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, which the function was compiled for.
        unsafe { avx2(bytes) }
    } else {
        plain(bytes)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(bytes: &[u8]) -> u64 {
    plain(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(bytes: &[u8]) -> u64 {
    plain(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_give_the_same() {
        let bytes: Vec<u8> = (0..2100usize).map(|i| (i * 167 % 251) as u8 | (i % 3) as u8).collect();
        for from in 0..5 {
            for len in (0..200).chain([1386, 1387, 1500, 2047]) {
                let bytes = &bytes[from..from + len];
                let word =
                    |chunk: &[u8]| u64::from(u32::from_ne_bytes(core::array::from_fn(|i| *chunk.get(i).unwrap_or(&0))));
                let slow: u64 = bytes.chunks(4).map(word).sum();
                assert_eq!(words(bytes), slow, "{len} bytes");
                assert_eq!(plain(bytes), slow, "{len} bytes");
                #[cfg(target_arch = "x86_64")]
                {
                    if is_x86_feature_detected!("avx2") {
                        // SAFETY: the CPU has it.
                        assert_eq!(unsafe { avx2(bytes) }, slow, "{len} bytes");
                    }
                    if is_x86_feature_detected!("avx512f") {
                        // SAFETY: the CPU has it.
                        assert_eq!(unsafe { avx512(bytes) }, slow, "{len} bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_overflows() {
        assert_eq!(words(&[0xff; 65_536]), 16_384 * u64::from(u32::MAX));
    }
}
