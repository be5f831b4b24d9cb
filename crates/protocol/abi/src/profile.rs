//! Which kernel is imitated.

use core::fmt;
use core::str::FromStr;

/// A kernel to imitate. They differ in the names that bind and in a few rules of AF_ALG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Profile {
    /// The rules of the newest kernel here, every algorithm of the crypto core, nothing restricted.
    #[default]
    Open,
    /// Linux 6.1.
    Linux6_1,
    /// Linux 6.12.
    Linux6_12,
    /// Linux 7.3 with `crypto.af_alg_restrict=0`.
    Linux7_3,
    /// Linux 7.3 as it comes, with `crypto.af_alg_restrict=1`: only the algorithms of its allowlist.
    Linux7_3Restricted,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 5] =
        [Profile::Open, Profile::Linux6_1, Profile::Linux6_12, Profile::Linux7_3, Profile::Linux7_3Restricted];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Profile::Open => "open",
            Profile::Linux6_1 => "linux-6.1",
            Profile::Linux6_12 => "linux-6.12",
            Profile::Linux7_3 => "linux-7.3",
            Profile::Linux7_3Restricted => "linux-7.3-restricted",
        }
    }

    pub(crate) fn rules(self) -> Rules {
        let short = match self {
            Profile::Linux6_1 => ShortRecv::Nothing,
            Profile::Linux6_12 => ShortRecv::Skip,
            _ => ShortRecv::Revert,
        };
        let new = short == ShortRecv::Revert;
        Rules {
            short,
            driver_only: !new,
            splice_pages: !new,
            key_by_serial: self != Profile::Linux6_1,
            xts_keeps_iv: !new,
            empty_blake2b_key: new,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownProfile(
    /// What was asked for.
    pub String,
);

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no profile '{}'; there are", self.0)?;
        for (i, p) in Profile::ALL.iter().enumerate() {
            write!(f, "{} {p}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownProfile {}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Profile::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}

/// The rules in which the kernels differ.
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
    /// Whether XTS leaves the IV as it was; since 7.3 what follows goes on with the tweak.
    pub(crate) xts_keeps_iv: bool,
    /// Whether an empty key of BLAKE2b is taken and means none; until 7.3 it is refused.
    pub(crate) empty_blake2b_key: bool,
}

/// What a receive does with the bytes of its buffer beyond the last whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShortRecv {
    /// 6.1: no whole block is an answer of 0 bytes; bytes beyond the last block are skipped.
    Nothing,
    /// 6.12: no whole block is `EINVAL`; bytes beyond the last block are skipped.
    Skip,
    /// 7.3: no whole block is `EINVAL`; bytes beyond the last block are used by what follows.
    Revert,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for p in Profile::ALL {
            assert_eq!(p.to_string().parse(), Ok(p));
        }
        let e = "linux-5".parse::<Profile>().unwrap_err();
        assert!(e.to_string().contains("open, linux-6.1, linux-6.12, linux-7.3, linux-7.3-restricted"), "{e}");
    }
}
