//! The kernels that can be imitated.

use core::fmt;
use core::str::FromStr;

/// A kernel to imitate. Each engine knows the rules in which they differ.
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
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownProfile(
    /// The requested name.
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
