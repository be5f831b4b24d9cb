//! The rules of TCP-AO in which the imitated kernels differ.

use sealane_abi::Profile;

/// The rules of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether the kernel has TCP-AO (since 6.7).
    pub(crate) exists: bool,
    /// Whether bytes behind the known struct must be zero. Linux 6.12 means to check that and does not.
    pub(crate) tails_count: bool,
    /// Whether TCP_AO_DEL_KEY finds keys that are bound to a VRF. Linux 6.12 does not.
    pub(crate) deletes_in_vrfs: bool,
    /// The names of algorithms.
    pub(crate) names: Names,
}

/// The names of algorithms that are accepted, and the meaning of those of AES-CMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Linux 7.1 and later: SHA-1, SHA-256 and AES-128-CMAC; `cmac(aes)` is AES-128-CMAC with a key of 16 bytes.
    Three,
    /// Until Linux 7.0: those of its crypto API. `cmac(aes)` takes keys of AES, `cmac(aes128)` any key.
    Wide,
    /// All of our algorithms, otherwise like Linux 7.3.
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
