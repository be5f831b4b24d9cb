//! The rules of TCP-AO in which the imitated kernels differ.

use sealane_abi::Profile;

/// The rules of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether there is TCP-AO at all: since 6.7.
    pub(crate) exists: bool,
    /// Whether bytes behind the struct that the kernel knows must be zero. Linux 6.12 means to and does not.
    pub(crate) tails_count: bool,
    /// Whether TCP_AO_DEL_KEY finds keys that are bound to a VRF. Linux 6.12 does not.
    pub(crate) deletes_in_vrfs: bool,
    /// The algorithms' names.
    pub(crate) names: Names,
}

/// Which algorithms' names are taken, and how AES-CMAC is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Linux 7.1 and later: SHA-1, SHA-256 and AES-128-CMAC; `cmac(aes)` is AES-128-CMAC with a key of 16 bytes.
    Three,
    /// Until Linux 7.0: what its crypto API has. `cmac(aes)` takes keys of AES, `cmac(aes128)` any key.
    Wide,
    /// All that we have, otherwise like Linux 7.3.
    All,
}

impl Rules {
    pub(crate) fn of(profile: Profile) -> Self {
        match profile {
            Profile::Linux6_1 => Rules { exists: false, ..Rules::of(Profile::Linux6_12) },
            Profile::Linux6_12 => {
                Rules { exists: true, tails_count: false, deletes_in_vrfs: false, names: Names::Wide }
            }
            Profile::Linux7_3 | Profile::Linux7_3Restricted => {
                Rules { exists: true, tails_count: true, deletes_in_vrfs: true, names: Names::Three }
            }
            Profile::Open => Rules { exists: true, tails_count: true, deletes_in_vrfs: true, names: Names::All },
        }
    }
}
