//! Records of TLS 1.2 below ciphers with authentication (RFC 5246 section 6.2.3.3).

/// The parts of the nonce of AES-GCM and AES-CCM: one of the key, and one of the record.
pub(super) const FIXED_LEN: usize = 4;
pub(super) const EXPLICIT_LEN: usize = 8;

/// Associated data of a record: sequence number, type, version, length.
pub(super) const AAD_LEN: usize = 13;

/// The associated data of a record, and the length of its text. The length in `given` counts `extra` bytes that are no text.
/// `None`: the lengths are impossible.
pub(super) fn associated(given: &[u8], extra: usize) -> Option<([u8; AAD_LEN], usize)> {
    let mut aad: [u8; AAD_LEN] = given.try_into().ok()?;
    let len = u16::from_be_bytes([aad[AAD_LEN - 2], aad[AAD_LEN - 1]]).checked_sub(extra as u16)?;
    aad[AAD_LEN - 2..].copy_from_slice(&len.to_be_bytes());
    Some((aad, len.into()))
}
