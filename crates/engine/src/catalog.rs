//! What each kernel calls its algorithms, and which of them it lets out.

use crate::Errno;
use crate::host::Caller;
use crate::profile::Profile;
use sealane_crypto::{Alg, Kind, LookupError, Registry};

/// The names that bind under a profile.
pub struct Catalog {
    profile: Profile,
}

/// The allowlist of Linux 7.3 (`af_alg_restrict=1`): type, name, and whether callers without privilege get it too.
const ALLOWLIST: [(Kind, &str, bool); 29] = [
    (Kind::Hash, "cmac(aes)", false),
    (Kind::Hash, "hmac(md5)", false),
    (Kind::Hash, "hmac(sha1)", false),
    (Kind::Hash, "hmac(sha224)", false),
    (Kind::Hash, "hmac(sha256)", false),
    (Kind::Hash, "hmac(sha384)", false),
    (Kind::Hash, "hmac(sha512)", false),
    (Kind::Hash, "md4", false),
    (Kind::Hash, "md5", false),
    (Kind::Hash, "sha1", true),
    (Kind::Hash, "sha224", false),
    (Kind::Hash, "sha256", false),
    (Kind::Hash, "sha384", false),
    (Kind::Hash, "sha512", false),
    (Kind::Skcipher, "adiantum(xchacha12,aes)", true),
    (Kind::Skcipher, "adiantum(xchacha20,aes)", true),
    (Kind::Skcipher, "cbc(aes)", false),
    (Kind::Skcipher, "cbc(des)", false),
    (Kind::Skcipher, "cbc(des3_ede)", false),
    (Kind::Skcipher, "cbc(paes)", false),
    (Kind::Skcipher, "ctr(aes)", false),
    (Kind::Skcipher, "ecb(aes)", false),
    (Kind::Skcipher, "ecb(des)", false),
    (Kind::Skcipher, "hctr2(aes)", true),
    (Kind::Skcipher, "xts(aes)", true),
    (Kind::Skcipher, "xts(camellia)", true),
    (Kind::Skcipher, "xts(serpent)", true),
    (Kind::Skcipher, "xts(twofish)", true),
    (Kind::Aead, "ccm(aes)", false),
];

impl Catalog {
    /// The names of `profile`.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Catalog { profile }
    }

    pub(crate) fn resolve(&self, registry: &Registry, kind: Kind, name: &str, caller: Caller) -> Result<Alg, Errno> {
        if self.profile == Profile::Linux7_3Restricted && !allowed(kind, name, caller) {
            return Err(Errno::ENOENT);
        }
        registry.lookup(kind, name).map_err(|e| match e {
            LookupError::Name { .. } | LookupError::NotFound => Errno::ENOENT,
            LookupError::SelfTest(_) => Errno::ELIBBAD,
        })
    }
}

fn allowed(kind: Kind, name: &str, caller: Caller) -> bool {
    ALLOWLIST.iter().any(|(k, n, open)| *k == kind && *n == name && (*open || caller.privileged))
}
