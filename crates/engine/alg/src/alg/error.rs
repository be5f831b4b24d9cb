//! The errno of a failure of the crypto core.

use sealane_abi::Errno;
use sealane_crypto::{KeyError, OpError};

/// The errno of a refused key.
pub(super) fn key_errno(e: KeyError) -> Errno {
    match e {
        KeyError::NotKeyed => Errno::ENOSYS,
        KeyError::Length | KeyError::Weak | KeyError::Malformed => Errno::EINVAL,
        KeyError::Driver => Errno::ENOMEM,
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
