//! Failures, with the numbers that OpenSSL's own providers give them (`openssl/proverr.h`).

use core::ffi::CStr;
use sealane_keeper_client::uri::NotAUri;
use std::borrow::Cow;

/// Marks reasons that only this provider has. They stand under the number that libcrypto has given it as a library, with
/// [`OWN_REASONS`] as texts.
pub(crate) const OWN: u32 = 1 << 31;

/// The reason of a failure: a number of `openssl/proverr.h`, for which libcrypto has the text, or one of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    BadDecrypt = 100,
    CipherOperationFailed = 102,
    FailedToGetParameter = 103,
    FailedToSetParameter = 104,
    InvalidKeyLength = 105,
    OutputBufferTooSmall = 106,
    WrongFinalBlockLength = 107,
    InvalidAad = 108,
    InvalidIvLength = 109,
    InvalidTag = 110,
    InvalidCustomLength = 111,
    InvalidSaltLength = 112,
    NoKeySet = 114,
    InvalidData = 115,
    InvalidTagLength = 118,
    TagNotSet = 119,
    TagNotNeeded = 120,
    FailedToGenerateKey = 121,
    InvalidDigest = 122,
    InvalidMode = 125,
    TooManyRecords = 126,
    MissingKey = 128,
    NotSupported = 136,
    BadLength = 142,
    MissingCipher = 155,
    BadTlsClientVersion = 161,
    FailedToDecrypt = 162,
    IllegalPaddingMode = 165,
    InvalidDigestLength = 166,
    InvalidMgf1Digest = 167,
    DigestNotAllowed = 174,
    ErrorRetrievingEntropy = 189,
    InvalidConfigData = 211,
    InvalidOutputLength = 217,
    NotAPrivateKey = 221,
    XtsDataUnitIsTooLarge = 148,
    XtsDuplicatedKeys = 149,
    /// `ERR_R_INTERNAL_ERROR`, which every library has.
    Internal = 0xc_0103,
    /// No driver of the algorithm passed its self-test.
    NoDriver = OWN | 1,
    /// The provider panicked.
    Defect = OWN | 2,
    /// The keeper of keys cannot be reached, or does not answer.
    NoKeeper = OWN | 3,
    /// The keeper of keys has no such key, or this client may not know of it.
    NoSuchKey = OWN | 4,
    /// The keeper of keys does not let this client do this.
    NotPermitted = OWN | 5,
    /// The keeper of keys refuses for another reason.
    KeeperRefuses = OWN | 6,
    /// The answer of the keeper of keys is none to what was asked.
    KeeperWrong = OWN | 7,
    /// The text after `sealane://` is no name of a key.
    InvalidUri = OWN | 8,
    /// Keys are not offered to this program.
    KeysNotOffered = OWN | 9,
    /// There is no guarded memory as the configuration wants it.
    NoGuardedMemory = OWN | 10,
    /// Guarded memory has no room for another key.
    NoRoom = OWN | 11,
    /// The key lies in the guarded memory of the process that has forked this one.
    KeyOfParent = OWN | 12,
}

/// The texts of this provider's own reasons, which libcrypto does not know.
pub(crate) const OWN_REASONS: [(Reason, &CStr); 12] = [
    (Reason::NoDriver, c"no driver of this algorithm passed its self-test"),
    (Reason::Defect, c"defect of the provider"),
    (Reason::NoKeeper, c"no answer of the keeper of keys"),
    (Reason::NoSuchKey, c"no such key"),
    (Reason::NotPermitted, c"not permitted"),
    (Reason::KeeperRefuses, c"refused by the keeper of keys"),
    (Reason::KeeperWrong, c"wrong answer of the keeper of keys"),
    (Reason::InvalidUri, c"not the name of a key"),
    (Reason::KeysNotOffered, c"keys are not offered"),
    (Reason::NoGuardedMemory, c"no guarded memory"),
    (Reason::NoRoom, c"guarded memory is full"),
    (Reason::KeyOfParent, c"the key is in the guarded memory of the parent process"),
];

/// A call that failed: its reason, and what else there is to say.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) reason: Option<Reason>,
    pub(crate) text: Cow<'static, str>,
}

/// The outcome of a call that returns nothing else.
pub(crate) type Done = Result<(), Failure>;

impl Failure {
    pub(crate) const fn new(reason: Reason) -> Self {
        Failure { reason: Some(reason), text: Cow::Borrowed("") }
    }

    pub(crate) fn text(reason: Reason, text: String) -> Self {
        Failure { reason: Some(reason), text: Cow::Owned(text) }
    }

    /// A failure for which the default provider raises no error either.
    pub(crate) const SILENT: Failure = Failure { reason: None, text: Cow::Borrowed("") };

    /// This failure, with `reason` if it has none.
    pub(crate) fn or(self, reason: Reason) -> Self {
        if self.reason.is_some() { self } else { reason.into() }
    }
}

impl From<NotAUri> for Failure {
    fn from(why: NotAUri) -> Self {
        Failure::text(Reason::InvalidUri, why.to_string())
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Failure::new(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_keeper_client::uri::Uri;

    #[test]
    fn texts_that_are_no_uri_have_a_reason_of_their_own() {
        let why = Uri::parse("sealane://two words").expect_err("a name has no spaces");
        let text = why.to_string();
        let failure = Failure::from(why);
        assert_eq!(failure.reason, Some(Reason::InvalidUri));
        assert_eq!(failure.text, text);
    }
}
