//! Measures how long an operation takes, for calibration, `sealane speed` and the benches.
//!
//! Every operation of a burst has its own key and buffer, as in real traffic. Texts go from one buffer to another, so
//! that opening finds the same ciphertext each time.

use crate::turns::{self, CpuOf, Figures};
use arrayvec::ArrayVec;
use inout::InOutBuf;
use sealane_crypto::aead::{self, AeadOp, AeadTfm};
use sealane_crypto::choice::MeasuredDirection;
use sealane_crypto::data::Data;
use sealane_crypto::hash::{HashOp, HashTfm};
use sealane_crypto::mac::{self, MacOp, MacTfm, NonceMacOp, NonceMacTfm};
use sealane_crypto::rng::RngState;
use sealane_crypto::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use sealane_crypto::{Alg, CipherMode, KeyFormat, KeyUse, Kind, Lengths, OpError, Status};
use std::time::Duration;

/// The largest burst that can be measured.
pub const MAX_BURST: usize = 64;

/// The shape of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Encrypt, seal, hash, sign; or decrypt, open.
    pub way: MeasuredDirection,
    /// Length of each message in bytes.
    pub bytes: usize,
    /// Operations in one call, 1 to [`MAX_BURST`].
    pub burst: usize,
}

/// Prepared keys and buffers, which can be run repeatedly.
pub struct Workload {
    shape: Shape,
    lanes: Lanes,
    src: Vec<Vec<u8>>,
    dst: Vec<Vec<u8>>,
    short: Vec<[u8; 64]>,
    tag_len: usize,
}

enum Lanes {
    Hash(HashTfm),
    Mac(Vec<MacTfm>),
    NonceMac(Vec<NonceMacTfm>),
    Skcipher(Vec<SkcipherTfm>),
    Aead(Vec<AeadTfm>),
    Rng(Box<dyn RngState>),
}

/// A key of a usual length, different for each lane.
fn key(alg: &Alg, lane: usize) -> Vec<u8> {
    let info = alg.info();
    let byte = |i: usize| (i * 7 + lane * 31 + 1) as u8;
    if let KeyFormat::Authenc { cipher_key_lens } = info.key_format {
        return authenc_key(cipher_key_lens, byte);
    }
    let len = match info.key_use {
        KeyUse::None => 0,
        // MACs with keys of any length: protocols use the digest's length.
        _ if info.kind == Kind::Hash && !info.key_lens.contains(16) => info.key_lens.max().min(32),
        _ if info.kind == Kind::Hash && info.key_lens.contains(info.digest_len) => info.digest_len,
        _ => usual_len(info.key_lens),
    };
    (0..len).map(byte).collect()
}

/// A key of `authenc`: the MAC's key has 32 bytes.
fn authenc_key(cipher_key_lens: Lengths, byte: impl Fn(usize) -> u8) -> Vec<u8> {
    let cipher_len = usual_len(cipher_key_lens);
    let mut key = vec![8, 0, 1, 0];
    key.extend_from_slice(&u32::try_from(cipher_len).expect("a small number").to_be_bytes());
    key.extend((0..32 + cipher_len).map(byte));
    key
}

/// The usual length of a key: 128 bits where the algorithm takes it, and the salt or nonce.
fn usual_len(lens: Lengths) -> usize {
    [16, 20, 32, 36, 19].into_iter().find(|n| lens.contains(*n)).unwrap_or(lens.min())
}

fn direction(way: MeasuredDirection) -> Direction {
    match way {
        MeasuredDirection::Forward => Direction::Encrypt,
        MeasuredDirection::Backward => Direction::Decrypt,
    }
}

impl Workload {
    /// Prepares keys and buffers, and runs a call.
    ///
    /// # Errors
    /// A text, when the algorithm cannot be run at this length (ECB of 20 bytes), a key was refused, or a first call fails.
    ///
    /// # Panics
    /// When `shape.burst` is 0 or more than [`MAX_BURST`].
    pub fn new(alg: &Alg, shape: Shape) -> Result<Self, String> {
        assert!((1..=MAX_BURST).contains(&shape.burst), "bursts of 1 to {MAX_BURST}");
        let info = alg.info();
        if info.kind == Kind::Skcipher && !shape.bytes.is_multiple_of(info.block_len) && info.block_len > 1 {
            return Err(format!("{} takes whole blocks of {} bytes", info.name, info.block_len));
        }
        let wrong = |e| format!("{}: {e}", info.name);
        let failed = |e: &OpError| format!("{}: its driver fails at {} bytes: {e}", info.name, shape.bytes);
        let each = 0..shape.burst;
        let lanes = match info.kind {
            Kind::Hash if info.key_use == KeyUse::None => Lanes::Hash(alg.hash()),
            Kind::Hash => Lanes::Mac(each.map(|i| alg.mac(&key(alg, i))).collect::<Result<_, _>>().map_err(wrong)?),
            Kind::NonceMac => {
                Lanes::NonceMac(each.map(|i| alg.nonce_mac(&key(alg, i))).collect::<Result<_, _>>().map_err(wrong)?)
            }
            Kind::Skcipher => {
                Lanes::Skcipher(each.map(|i| alg.skcipher(&key(alg, i))).collect::<Result<_, _>>().map_err(wrong)?)
            }
            Kind::Aead => Lanes::Aead(each.map(|i| alg.aead(&key(alg, i))).collect::<Result<_, _>>().map_err(wrong)?),
            Kind::Rng => {
                let mut rng = alg.rng();
                rng.seed(&vec![1; alg.rng_seed_len()]).map_err(wrong)?;
                Lanes::Rng(rng)
            }
        };
        let buffers = || (0..shape.burst).map(|i| vec![i as u8; shape.bytes]).collect::<Vec<_>>();
        let mut load = Workload {
            shape: Shape { way: MeasuredDirection::Forward, ..shape },
            lanes,
            src: buffers(),
            dst: buffers(),
            short: vec![[0; 64]; shape.burst],
            tag_len: info.digest_len,
        };
        if shape.way == MeasuredDirection::Backward && matches!(load.lanes, Lanes::Skcipher(_) | Lanes::Aead(_)) {
            // Ciphertexts for opening are sealed once.
            load.attempt().map_err(|e| failed(&e))?;
            std::mem::swap(&mut load.src, &mut load.dst);
            load.shape.way = MeasuredDirection::Backward;
        }
        load.attempt().map_err(|e| failed(&e))?;
        Ok(load)
    }

    /// Operations in one call.
    #[must_use]
    pub fn burst(&self) -> usize {
        self.shape.burst
    }

    /// Runs one call: a single operation, or one burst.
    ///
    /// # Panics
    /// When an operation fails: it succeeded when this was made, so it is a bug in the driver.
    pub fn run(&mut self) {
        self.attempt().expect("it succeeded when this was made");
    }

    fn attempt(&mut self) -> Status {
        const AAD: [u8; 16] = [0xad; 16];
        const NONCE: [u8; 32] =
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let dir = direction(self.shape.way);
        let tag_len = self.tag_len;
        match &mut self.lanes {
            Lanes::Hash(tfm) => {
                if let [src] = &self.src[..] {
                    return tfm.one(&[src], &mut self.short[0][..tag_len]);
                }
                let data: ArrayVec<[&[u8]; 1], MAX_BURST> = self.src.iter().map(|s| [&s[..]]).collect();
                let mut ops: ArrayVec<HashOp<'_>, MAX_BURST> =
                    data.iter().zip(&mut self.short).map(|(d, out)| HashOp::new(d, &mut out[..tag_len])).collect();
                tfm.burst(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
            Lanes::Mac(tfms) => {
                if let [tfm] = &tfms[..] {
                    return tfm.sign(&[&self.src[0]], &mut self.short[0][..tag_len]);
                }
                // Filled in place: `collect` would copy all of them once more.
                let mut data: ArrayVec<[&[u8]; 1], MAX_BURST> = ArrayVec::new();
                data.extend(self.src.iter().map(|s| [&s[..]]));
                let mut ops: ArrayVec<MacOp<'_>, MAX_BURST> = ArrayVec::new();
                ops.extend(
                    tfms.iter()
                        .zip(&data)
                        .zip(&mut self.short)
                        .map(|((tfm, d), tag)| MacOp::new(tfm, d, &mut tag[..tag_len])),
                );
                mac::sign(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
            Lanes::NonceMac(tfms) => {
                let data: ArrayVec<[&[u8]; 1], MAX_BURST> = self.src.iter().map(|s| [&s[..]]).collect();
                let mut ops: ArrayVec<NonceMacOp<'_>, MAX_BURST> = tfms
                    .iter()
                    .zip(&data)
                    .zip(&mut self.short)
                    .map(|((tfm, d), tag)| NonceMacOp {
                        tfm,
                        nonce: &NONCE[..tfm.info().iv_len],
                        data: d,
                        tag: &mut tag[..tag_len],
                        status: Ok(()),
                    })
                    .collect();
                mac::nonce_sign(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
            Lanes::Skcipher(tfms) => {
                let iv_len = tfms[0].info().iv_len;
                let flat = |src, dst| InOutBuf::new(src, dst).expect("buffers of one length");
                if let [tfm] = &tfms[..] {
                    let data = Data::Flat(flat(&self.src[0], &mut self.dst[0]));
                    let mut iv = NONCE;
                    return tfm.one(dir, &mut iv[..iv_len], data);
                }
                // Filled only for bursts, because these two kilobytes would cost a single operation too much.
                let mut ivs = [NONCE; MAX_BURST];
                let mut ops: ArrayVec<SkcipherOp<'_>, MAX_BURST> = tfms
                    .iter()
                    .zip(self.src.iter().zip(&mut self.dst))
                    .zip(&mut ivs)
                    .map(|((tfm, (src, dst)), iv)| SkcipherOp {
                        tfm,
                        dir,
                        iv: &mut iv[..iv_len],
                        data: flat(src, dst),
                        status: Ok(()),
                    })
                    .collect();
                skcipher::crypt(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
            Lanes::Aead(tfms) => {
                let info = tfms[0].info();
                let nonce = if info.mode == CipherMode::Ccm { &CCM_IV } else { &NONCE };
                let nonce = &nonce[..info.iv_len];
                let flat = |src, dst| InOutBuf::new(src, dst).expect("buffers of one length");
                let aad: &[&[u8]] = &[&AAD];
                if let [tfm] = &tfms[..] {
                    let data = Data::Flat(flat(&self.src[0], &mut self.dst[0]));
                    return tfm.one(dir, nonce, aad, data, &mut self.short[0][..tag_len]);
                }
                let mut ops: ArrayVec<AeadOp<'_>, MAX_BURST> = tfms
                    .iter()
                    .zip(self.src.iter().zip(&mut self.dst).zip(&mut self.short))
                    .map(|(tfm, ((src, dst), tag))| AeadOp {
                        tfm,
                        dir,
                        nonce,
                        aad,
                        data: flat(src, dst),
                        tag: &mut tag[..tag_len],
                        status: Ok(()),
                    })
                    .collect();
                aead::crypt(&mut ops);
                ops.iter().try_for_each(|op| op.status)
            }
            Lanes::Rng(rng) => self.dst.iter_mut().try_for_each(|out| rng.generate(&[], out)),
        }
    }
}

/// CCM's IV block in Linux carries L - 1 in its first byte.
const CCM_IV: [u8; 32] = {
    let mut iv = [5; 32];
    iv[0] = 3;
    iv
};

/// The figures of one workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Median of the rounds, nanoseconds per operation.
    pub median_ns: f64,
    /// Fastest round, nanoseconds per operation.
    pub min_ns: f64,
    /// Slowest round, nanoseconds per operation.
    pub max_ns: f64,
    /// Time-stamp counter ticks per operation in the median round; 0 where there is no counter.
    pub median_ticks: f64,
    /// CPU time of this thread for each operation, over all rounds, in nanoseconds.
    pub cpu_ns: f64,
    /// Operations measured in all.
    pub ops: u64,
}

/// Measures all of `loads` in turns: `rounds` rounds, each of which gives every workload `budget / rounds`.
pub fn in_turns(loads: &mut [Workload], budget: Duration, rounds: u32) -> Vec<Measured> {
    let figures = turns::in_turns(loads, Workload::run, CpuOf::Thread, budget, rounds);
    let per_op = |(load, f): (&Workload, Figures)| {
        let burst = load.burst() as f64;
        Measured {
            median_ns: f.median_ns / burst,
            min_ns: f.min_ns / burst,
            max_ns: f.max_ns / burst,
            median_ticks: f.median_ticks / burst,
            cpu_ns: f.cpu_ns / burst,
            ops: f.calls * load.burst() as u64,
        }
    };
    loads.iter().zip(figures).map(per_op).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemEntropy;
    use sealane_crypto::hash::HashState;
    use sealane_crypto::key::PreparedKey;
    use sealane_crypto::mac::MacDriver;
    use sealane_crypto::registry::Driver;
    use sealane_crypto::rng::Entropy;
    use sealane_crypto::{AlgInfo, KeyError, Row};
    use std::sync::Arc;

    /// Computes no tag.
    struct Broken;

    impl MacDriver for Broken {
        fn prepare(&self, _: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
            Ok(Box::new(()))
        }

        fn start(&self, _: &dyn PreparedKey) -> Box<dyn HashState> {
            unreachable!("messages are whole")
        }

        fn burst(&self, _: usize, ops: &mut [MacOp<'_>]) {
            ops.iter_mut().for_each(|op| op.status = Err(OpError::Driver));
        }
    }

    #[test]
    fn a_driver_that_fails_is_an_error_and_no_panic() {
        let info = AlgInfo::mac("hmac(sha1)", 64, 20, Lengths::Range(0, usize::MAX));
        let row = Arc::new(Row::new(info, "broken", "test", 1, Driver::Mac(Arc::new(Broken))));
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let alg = Alg::of_row(&row, &entropy);
        for burst in [1, 2] {
            let shape = Shape { way: MeasuredDirection::Forward, bytes: 16, burst };
            let why = Workload::new(&alg, shape).err().expect("an error");
            assert!(why.starts_with("hmac(sha1): its driver fails at 16 bytes: "), "{why}");
        }
    }
}
