//! MACs that Linux does not offer: keyed BLAKE3, SipHash-2-4 and KMAC256 of three output lengths.

use super::driver::{self, Mac};
use core::hash::Hasher;
use keccak::Keccak;
use sealane_crypto::error::KeyError;
use sealane_crypto::mac::MAX_TAG_LEN;
use sealane_crypto::registry::Row;
use sealane_crypto::{AlgInfo, Lengths};
use siphasher::sip::SipHasher24;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// `blake3`: the keyed mode, 32 bytes of output.
struct Blake3;

/// The hasher, wiped on drop.
#[derive(Clone)]
struct Blake3State(blake3::Hasher);

impl Drop for Blake3State {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Mac for Blake3 {
    type Key = Blake3State;
    type Running = Blake3State;

    fn prepare(key: &[u8]) -> Result<Blake3State, KeyError> {
        let key: &[u8; 32] = key.try_into().map_err(|_| KeyError::Length)?;
        Ok(Blake3State(blake3::Hasher::new_keyed(key)))
    }

    fn begin(key: &Blake3State) -> Blake3State {
        key.clone()
    }

    fn update(_: &Blake3State, running: &mut Blake3State, data: &[u8]) {
        running.0.update(data);
    }

    fn end(_: &Blake3State, running: Blake3State, tag: &mut [u8; MAX_TAG_LEN]) {
        tag[..32].copy_from_slice(running.0.finalize().as_bytes());
    }
}

/// `siphash24`: 8 bytes in little endian, as the reference code writes them. The tag is short: it suits hash tables and
/// accidental errors, but not protocols in which an attacker can try often.
struct SipHash24;

/// The key, from which a state is made in a few additions.
#[derive(Zeroize, ZeroizeOnDrop)]
struct SipKey([u8; 16]);

#[derive(Clone)]
struct SipState(SipHasher24);

impl Drop for SipState {
    fn drop(&mut self) {
        // Overwrites the key with another one; `black_box` keeps the store.
        self.0 = core::hint::black_box(SipHasher24::new());
        core::hint::black_box(&self.0);
    }
}

impl Mac for SipHash24 {
    type Key = SipKey;
    type Running = SipState;

    fn prepare(key: &[u8]) -> Result<SipKey, KeyError> {
        key.try_into().map(SipKey).map_err(|_| KeyError::Length)
    }

    fn begin(key: &SipKey) -> SipState {
        SipState(SipHasher24::new_with_key(&key.0))
    }

    fn update(_: &SipKey, running: &mut SipState, data: &[u8]) {
        running.0.write(data);
    }

    fn end(_: &SipKey, running: SipState, tag: &mut [u8; MAX_TAG_LEN]) {
        tag[..8].copy_from_slice(&running.0.finish().to_le_bytes());
    }
}

/// KMAC256 (SP 800-185, section 4) of one output length. A truncated tag is the front of that output, not KMAC256 of a
/// shorter output length.
trait Kmac: 'static {
    /// Output in bytes.
    const LEN: usize;
    /// Customization string.
    const CUSTOM: &'static [u8];
    /// `right_encode` of the output length in bits (section 2.3.1).
    const ENCODED_LEN: &'static [u8];
}

struct Kmac256<P>(core::marker::PhantomData<P>);

/// `kmac256`: 64 bytes, the output length of NIST's samples.
struct Full;

impl Kmac for Full {
    const LEN: usize = 64;
    const CUSTOM: &'static [u8] = b"";
    const ENCODED_LEN: &'static [u8] = &[2, 0, 2];
}

/// `kmac256-128`: 16 bytes, for TCP-AO (draft-ietf-tcpm-tcp-ao-algs-07, section 3.2.2).
struct Bits128;

impl Kmac for Bits128 {
    const LEN: usize = 16;
    const CUSTOM: &'static [u8] = b"";
    const ENCODED_LEN: &'static [u8] = &[128, 1];
}

/// `kmac256-kdf`: 32 bytes, with the customization string for key derivation of SP 800-56C section 4.1.
struct Derivation;

impl Kmac for Derivation {
    const LEN: usize = 32;
    const CUSTOM: &'static [u8] = b"KDF";
    const ENCODED_LEN: &'static [u8] = &[1, 0, 2];
}

/// Bytes absorbed between two permutations: 1600 bits less twice the strength.
const RATE: usize = 136;

/// The sponge of cSHAKE256: `pos` bytes of the current block have been added.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
struct Sponge {
    state: [u64; 25],
    pos: usize,
}

impl Sponge {
    fn permute(&mut self) {
        Keccak::new().with_f1600(|f1600| f1600(&mut self.state));
        self.pos = 0;
    }

    fn absorb(&mut self, data: &[u8]) {
        let mut rest = data;
        while !rest.is_empty() {
            if self.pos == 0 && rest.len() >= RATE {
                let (block, tail) = rest.split_at(RATE);
                for (word, bytes) in self.state.iter_mut().zip(block.as_chunks::<8>().0) {
                    *word ^= u64::from_le_bytes(*bytes);
                }
                rest = tail;
                self.permute();
            } else {
                self.absorb_byte(rest[0]);
                rest = &rest[1..];
            }
        }
    }

    fn absorb_byte(&mut self, byte: u8) {
        self.state[self.pos / 8] ^= u64::from(byte) << (8 * (self.pos % 8));
        self.pos += 1;
        if self.pos == RATE {
            self.permute();
        }
    }

    /// `bytepad` (section 2.3.3): zeros up to a whole block.
    fn fill_block(&mut self) {
        if self.pos != 0 {
            self.permute();
        }
    }

    /// `left_encode` (section 2.3.1).
    fn left_encode(&mut self, value: usize) {
        let bytes = value.to_be_bytes();
        let zeros = bytes.iter().take_while(|b| **b == 0).count().min(bytes.len() - 1);
        self.absorb_byte((bytes.len() - zeros) as u8);
        self.absorb(&bytes[zeros..]);
    }

    /// `encode_string` (section 2.3.2).
    fn encode_string(&mut self, text: &[u8]) {
        self.left_encode(text.len() * 8);
        self.absorb(text);
    }
}

impl<P: Kmac> Mac for Kmac256<P> {
    type Key = Sponge;
    type Running = Sponge;

    fn prepare(key: &[u8]) -> Result<Sponge, KeyError> {
        let mut sponge = Sponge::default();
        sponge.left_encode(RATE);
        sponge.encode_string(b"KMAC");
        sponge.encode_string(P::CUSTOM);
        sponge.fill_block();
        sponge.left_encode(RATE);
        sponge.encode_string(key);
        sponge.fill_block();
        Ok(sponge)
    }

    fn begin(key: &Sponge) -> Sponge {
        key.clone()
    }

    fn update(_: &Sponge, running: &mut Sponge, data: &[u8]) {
        running.absorb(data);
    }

    fn end(_: &Sponge, mut running: Sponge, tag: &mut [u8; MAX_TAG_LEN]) {
        // The padding of cSHAKE follows: 00, 1, zeros, 1.
        running.absorb(P::ENCODED_LEN);
        running.state[running.pos / 8] ^= 0x04 << (8 * (running.pos % 8));
        running.state[RATE / 8 - 1] ^= 1 << 63;
        running.permute();
        for (bytes, word) in tag[..P::LEN].as_chunks_mut::<8>().0.iter_mut().zip(&running.state) {
            *bytes = word.to_le_bytes();
        }
    }
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        driver::row::<Blake3>(AlgInfo::mac("blake3", 64, 32, Lengths::Of(&[32]))),
        driver::row::<SipHash24>(AlgInfo::mac("siphash24", 8, 8, Lengths::Of(&[16]))),
        kmac_row::<Full>("kmac256"),
        kmac_row::<Bits128>("kmac256-128"),
        kmac_row::<Derivation>("kmac256-kdf"),
    ]
}

fn kmac_row<P: Kmac>(name: &str) -> Row {
    driver::row::<Kmac256<P>>(AlgInfo::mac(name, RATE, P::LEN, Lengths::Range(0, usize::MAX)))
}
