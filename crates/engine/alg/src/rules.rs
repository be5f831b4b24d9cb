//! The rules of AF_ALG in which the imitated kernels differ.

use sealane_abi::Profile;

/// The rules of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// A receive that ends inside a block while more of the text remains.
    pub(crate) short: ShortRecv,
    /// Whether `CRYPTO_ALG_KERN_DRIVER_ONLY` in a bind selects algorithms; since 7.3 it is ignored.
    pub(crate) driver_only: bool,
    /// Whether splice lends its pages; since 7.3 it copies.
    pub(crate) splice_pages: bool,
    /// Whether `ALG_SET_KEY_BY_KEY_SERIAL` exists.
    pub(crate) key_by_serial: bool,
    /// Whether `ALG_SET_DRBG_ENTROPY` exists: distributions build kernels without it (`CONFIG_CRYPTO_USER_API_RNG_CAVP`).
    pub(crate) drbg_entropy: bool,
    /// Whether XTS leaves the IV as it was; since 7.3 what follows goes on with the tweak.
    pub(crate) xts_keeps_iv: bool,
    /// Whether CBC computes the whole blocks of a text before it refuses the rest; of later kernels the catalogue tells,
    /// by `lskcipher`.
    pub(crate) cbc_blocks_first: bool,
    /// Whether a hash takes what can be read of a piece of a message; later kernels take all of it or nothing.
    pub(crate) hash_to_fault: bool,
    /// Whether a request's result goes by pieces of up to 16 pages, the last of which may be longer than the receive buffer;
    /// later kernels end it there.
    pub(crate) whole_pieces: bool,
    /// Whether a bind hears the error of a template; 6.1 only says that there is no such algorithm.
    pub(crate) template_errors: bool,
    /// Whether an empty key of BLAKE2b is taken and means none; until 7.3 it is refused.
    pub(crate) empty_blake2b_key: bool,
}

/// The treatment of the bytes of a receive's buffer beyond the last whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShortRecv {
    /// 6.1: no whole block is an answer of 0 bytes; bytes beyond the last block are skipped.
    Nothing,
    /// 6.12: no whole block is `EINVAL`; bytes beyond the last block are skipped.
    Skip,
    /// 7.3: no whole block is `EINVAL`; bytes beyond the last block are used by what follows.
    Revert,
}

impl Rules {
    /// The rules of a profile's kernel.
    pub(crate) fn of(profile: Profile) -> Self {
        let short = match profile {
            Profile::Linux6_1 => ShortRecv::Nothing,
            Profile::Linux6_12 => ShortRecv::Skip,
            _ => ShortRecv::Revert,
        };
        let (old, new) = (short == ShortRecv::Nothing, short == ShortRecv::Revert);
        Rules {
            short,
            driver_only: !new,
            splice_pages: !new,
            key_by_serial: !old,
            drbg_entropy: profile == Profile::Open,
            xts_keeps_iv: !new,
            cbc_blocks_first: old,
            hash_to_fault: old,
            whole_pieces: old,
            template_errors: !old,
            empty_blake2b_key: new,
        }
    }
}
