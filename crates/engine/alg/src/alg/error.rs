//! The errno of a failure of the crypto core, or of a home of keys.

use sealane_abi::Errno;
use sealane_crypto::home::KeepError;
use sealane_crypto::{KeyError, OpError};

/// The errno of a refused key.
pub(super) fn key_errno(e: KeyError) -> Errno {
    match e {
        KeyError::NotKeyed => Errno::ENOSYS,
        KeyError::Length | KeyError::Weak | KeyError::Malformed => Errno::EINVAL,
        KeyError::Driver => Errno::ENOMEM,
    }
}

/// The errno of a key that its home did not keep, or does not give: those of the kernel's keyrings, and of a device that does
/// not answer.
pub(super) fn keep_errno(e: KeepError) -> Errno {
    match e {
        KeepError::Unreachable(_) => Errno::EIO,
        KeepError::NoKey(_) => Errno::ENOKEY,
        KeepError::Denied(_) => Errno::EACCES,
        KeepError::Expired(_) => Errno::EKEYEXPIRED,
        KeepError::Revoked(_) => Errno::EKEYREVOKED,
        KeepError::Algorithm(_) => Errno::EINVAL,
        KeepError::Refused(_) => Errno::EKEYREJECTED,
    }
}

/// The errno of a failed operation.
pub(super) fn op_errno(e: OpError) -> Errno {
    match e {
        OpError::Length | OpError::Nonce | OpError::AssocLen | OpError::TagLen => Errno::EINVAL,
        OpError::TooLong => Errno::EOVERFLOW,
        OpError::Auth => Errno::EBADMSG,
        OpError::Driver => Errno::EIO,
    }
}
