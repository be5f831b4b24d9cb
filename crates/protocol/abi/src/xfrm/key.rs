//! Algorithms with their keys, and the other attributes of variable length.

use super::payload::Payload;
use super::reason::Reason;
use crate::cryptouser::NameField;
use crate::netlink::rules::Reject;
use subtle::ConstantTimeEq;
use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroizing;

/// The bytes of a key: wiped on drop, compared in constant time, never printed.
#[derive(Clone)]
pub struct Key(Zeroizing<Vec<u8>>);

impl Key {
    /// A copy of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Key(Zeroizing::new(bytes.to_vec()))
    }

    /// The bytes.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

/// The number of bytes that hold `bits` bits of a key.
fn key_bytes(bits: u32) -> usize {
    (bits as usize).div_ceil(8)
}

/// Reads a name, `N` numbers and a key, whose length in bits is the first number.
fn read<const N: usize>(attr: u16, bytes: &[u8], reason: Reason) -> Result<(NameField, [u32; N], Key), Reject> {
    let short = reason.of(attr);
    let (name, rest) = bytes.split_first_chunk().ok_or(short)?;
    let (numbers, rest) = <[u32; N]>::read_from_prefix(rest).map_err(|_| short)?;
    let key = rest.get(..key_bytes(numbers[0])).ok_or(short)?;
    Ok((*name, numbers, Key::new(key)))
}

/// The name up to its NUL; the last byte of the field always counts as NUL.
fn name(field: &NameField) -> &[u8] {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len() - 1);
    &field[..end]
}

macro_rules! algorithms {
    ($($(#[$doc:meta])* $name:ident, $reason:ident, $($(#[$fdoc:meta])* $field:ident),*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $name {
            /// Name, NUL-terminated.
            pub alg_name: NameField,
            /// Length of the key in bits.
            pub alg_key_len: u32,
            $($(#[$fdoc])* pub $field: u32,)*
            /// The key: [`Self::alg_key_len`] bits, rounded up to bytes.
            pub alg_key: Key,
        }

        impl $name {
            /// The name up to its NUL; the last byte of the field always counts as NUL.
            #[must_use]
            pub fn name(&self) -> &[u8] {
                name(&self.alg_name)
            }
        }

        impl Payload for $name {
            fn read(attr: u16, bytes: &[u8]) -> Result<Self, Reject> {
                let (alg_name, [alg_key_len, $($field),*], alg_key) = read(attr, bytes, Reason::$reason)?;
                Ok($name { alg_name, alg_key_len, $($field,)* alg_key })
            }

            fn len(&self) -> usize {
                self.alg_name.len() + size_of_val(&[self.alg_key_len, $(self.$field),*]) + self.alg_key.expose().len()
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.alg_name);
                out.extend_from_slice([self.alg_key_len, $(self.$field),*].as_bytes());
                out.extend_from_slice(self.alg_key.expose());
            }
        }
    )*};
}

algorithms! {
    /// `struct xfrm_algo`: an algorithm and its key.
    Algo, AlgLength,;
    /// `struct xfrm_algo_auth`: a MAC with its truncation.
    AlgoAuth, AuthTruncLength,
    /// Length of the ICV in bits; 0 is the algorithm's default.
    alg_trunc_len;
    /// `struct xfrm_algo_aead`.
    AlgoAead, AeadLength,
    /// Length of the ICV in bits.
    alg_icv_len;
}

/// The largest bitmap of [`ReplayStateEsn`], in bits.
pub const XFRMA_REPLAY_ESN_MAX: usize = 4096;

/// `struct xfrm_replay_state_esn`: sequence numbers of 64 bits and a window of any size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayStateEsn {
    /// Words of the bitmap. The attribute may omit them all; then they are zeros.
    pub bmp_len: u32,
    /// Last number sent, low half.
    pub oseq: u32,
    /// Highest number received, low half.
    pub seq: u32,
    /// Last number sent, high half.
    pub oseq_hi: u32,
    /// Highest number received, high half.
    pub seq_hi: u32,
    /// Window in packets.
    pub replay_window: u32,
    /// Bitmap: `bmp_len` words, or none.
    pub bmp: Vec<u32>,
}

impl Payload for ReplayStateEsn {
    fn read(attr: u16, bytes: &[u8]) -> Result<Self, Reject> {
        let short = Reason::EsnBitmapShort.of(attr);
        let (head, rest) = <[u32; 6]>::read_from_prefix(bytes).map_err(|_| short)?;
        let [bmp_len, oseq, seq, oseq_hi, seq_hi, replay_window] = head;
        let words = bmp_len as usize;
        if words > XFRMA_REPLAY_ESN_MAX / 32 {
            return Err(Reason::EsnBitmapTooLong.of(attr));
        }
        let bmp = match rest.get(..4 * words) {
            Some(bytes) => bytes.chunks_exact(4).map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]])).collect(),
            None if rest.is_empty() => Vec::new(),
            None => return Err(short),
        };
        Ok(ReplayStateEsn { bmp_len, oseq, seq, oseq_hi, seq_hi, replay_window, bmp })
    }

    fn len(&self) -> usize {
        24 + 4 * self.bmp.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        let head = [self.bmp_len, self.oseq, self.seq, self.oseq_hi, self.seq_hi, self.replay_window];
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(self.bmp.as_bytes());
    }
}

/// Domain of interpretation of a security context: the security module.
pub const XFRM_SC_DOI_LSM: u8 = 1;
/// Algorithm of a security context: SELinux.
pub const XFRM_SC_ALG_SELINUX: u8 = 1;

/// `struct xfrm_user_sec_ctx` and the context behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecCtx {
    /// Number of the attribute.
    pub exttype: u16,
    /// `XFRM_SC_ALG_...`.
    pub ctx_alg: u8,
    /// `XFRM_SC_DOI_...`.
    pub ctx_doi: u8,
    /// The context.
    pub ctx: Vec<u8>,
}

impl Payload for SecCtx {
    fn read(attr: u16, bytes: &[u8]) -> Result<Self, Reject> {
        let short = Reason::SecCtxLength.of(attr);
        let (len, rest) = u16::read_from_prefix(bytes).map_err(|_| short)?;
        let (exttype, rest) = u16::read_from_prefix(rest).map_err(|_| short)?;
        let ([ctx_alg, ctx_doi], rest) = <[u8; 2]>::read_from_prefix(rest).map_err(|_| short)?;
        let (ctx_len, rest) = u16::read_from_prefix(rest).map_err(|_| short)?;
        // The sum may exceed 16 bits; then it differs from `len`, too.
        if usize::from(len) != 8 + usize::from(ctx_len) {
            return Err(short);
        }
        let ctx = rest.get(..usize::from(ctx_len)).ok_or(short)?;
        Ok(SecCtx { exttype, ctx_alg, ctx_doi, ctx: ctx.to_vec() })
    }

    fn len(&self) -> usize {
        8 + self.ctx.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        // `read` never returns a context that is too long for the format; one made otherwise is truncated, so that the
        // length is correct.
        let ctx = &self.ctx[..self.ctx.len().min(usize::from(u16::MAX) - 12)];
        let ctx_len = ctx.len() as u16;
        out.extend_from_slice([8 + ctx_len, self.exttype].as_bytes());
        out.extend_from_slice(&[self.ctx_alg, self.ctx_doi]);
        out.extend_from_slice(&ctx_len.to_ne_bytes());
        out.extend_from_slice(ctx);
    }
}
