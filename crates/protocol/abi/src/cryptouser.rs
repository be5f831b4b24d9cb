//! `linux/cryptouser.h`: the crypto configuration over netlink, as libkcapi uses it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First message type.
pub const CRYPTO_MSG_BASE: u16 = 0x10;
/// Instantiate an algorithm.
pub const CRYPTO_MSG_NEWALG: u16 = 0x10;
/// Remove an instance.
pub const CRYPTO_MSG_DELALG: u16 = 0x11;
/// Change a priority.
pub const CRYPTO_MSG_UPDATEALG: u16 = 0x12;
/// Report one algorithm, or all of them.
pub const CRYPTO_MSG_GETALG: u16 = 0x13;
/// Drop the default generator.
pub const CRYPTO_MSG_DELRNG: u16 = 0x14;
/// Statistics; no longer served.
pub const CRYPTO_MSG_GETSTAT: u16 = 0x15;
/// Last message type.
pub const CRYPTO_MSG_MAX: u16 = CRYPTO_MSG_GETSTAT;

/// Attribute: priority, `u32`.
pub const CRYPTOCFGA_PRIORITY_VAL: u16 = 1;
/// Attribute: [`ReportHash`].
pub const CRYPTOCFGA_REPORT_HASH: u16 = 3;
/// Attribute: [`ReportBlkcipher`].
pub const CRYPTOCFGA_REPORT_BLKCIPHER: u16 = 4;
/// Attribute: [`ReportAead`].
pub const CRYPTOCFGA_REPORT_AEAD: u16 = 5;
/// Attribute: [`ReportType`] of a compression.
pub const CRYPTOCFGA_REPORT_COMPRESS: u16 = 6;
/// Attribute: [`ReportRng`].
pub const CRYPTOCFGA_REPORT_RNG: u16 = 7;
/// Attribute: [`ReportCipher`].
pub const CRYPTOCFGA_REPORT_CIPHER: u16 = 8;
/// Attribute: [`ReportType`] of a public-key cipher.
pub const CRYPTOCFGA_REPORT_AKCIPHER: u16 = 9;
/// Attribute: [`ReportType`] of a key agreement.
pub const CRYPTOCFGA_REPORT_KPP: u16 = 10;
/// Attribute: [`ReportType`] of an asynchronous compression.
pub const CRYPTOCFGA_REPORT_ACOMP: u16 = 11;
/// Attribute: [`ReportType`] of a signature.
pub const CRYPTOCFGA_REPORT_SIG: u16 = 22;

/// Length of the name fields: names are shorter and NUL-terminated.
pub const CRYPTO_MAX_NAME: usize = 64;

/// A name in a fixed field, padded with NUL.
pub type NameField = [u8; CRYPTO_MAX_NAME];

/// Writes `name` into a field, truncated to 63 bytes like the kernel's `strscpy`.
#[must_use]
pub fn name_field(name: &str) -> NameField {
    let mut field = [0; CRYPTO_MAX_NAME];
    let len = name.len().min(CRYPTO_MAX_NAME - 1);
    field[..len].copy_from_slice(&name.as_bytes()[..len]);
    field
}

/// The name in a field, up to its NUL; `None` without a NUL.
#[must_use]
pub fn field_name(field: &NameField) -> Option<&[u8]> {
    let end = field.iter().position(|b| *b == 0)?;
    Some(&field[..end])
}

/// `struct crypto_user_alg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CryptoUserAlg {
    /// Name.
    pub cru_name: NameField,
    /// Driver name.
    pub cru_driver_name: NameField,
    /// Module.
    pub cru_module_name: NameField,
    /// Type flags wanted.
    pub cru_type: u32,
    /// Type flags that are compared.
    pub cru_mask: u32,
    /// The number of references.
    pub cru_refcnt: u32,
    /// Flags.
    pub cru_flags: u32,
}

const _: () = assert!(size_of::<CryptoUserAlg>() == 208);

/// `struct crypto_report_hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReportHash {
    /// `shash` or `ahash`.
    pub type_: NameField,
    /// Block size in bytes.
    pub blocksize: u32,
    /// Digest size in bytes.
    pub digestsize: u32,
}

const _: () = assert!(size_of::<ReportHash>() == 72);

/// `struct crypto_report_cipher`: a single block cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReportCipher {
    /// `cipher`.
    pub type_: NameField,
    /// Block size in bytes.
    pub blocksize: u32,
    /// Shortest key in bytes.
    pub min_keysize: u32,
    /// Longest key in bytes.
    pub max_keysize: u32,
}

const _: () = assert!(size_of::<ReportCipher>() == 76);

/// `struct crypto_report_blkcipher`: a cipher mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReportBlkcipher {
    /// `skcipher` or `lskcipher`.
    pub type_: NameField,
    /// IV generator: `<none>`.
    pub geniv: NameField,
    /// Block size in bytes.
    pub blocksize: u32,
    /// Shortest key in bytes.
    pub min_keysize: u32,
    /// Longest key in bytes.
    pub max_keysize: u32,
    /// IV size in bytes.
    pub ivsize: u32,
}

const _: () = assert!(size_of::<ReportBlkcipher>() == 144);

/// `struct crypto_report_aead`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReportAead {
    /// `aead`.
    pub type_: NameField,
    /// IV generator: `<none>`.
    pub geniv: NameField,
    /// Block size in bytes.
    pub blocksize: u32,
    /// Largest tag in bytes.
    pub maxauthsize: u32,
    /// IV size in bytes.
    pub ivsize: u32,
}

const _: () = assert!(size_of::<ReportAead>() == 140);

/// `struct crypto_report_rng`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReportRng {
    /// `rng`.
    pub type_: NameField,
    /// Seed size in bytes.
    pub seedsize: u32,
}

const _: () = assert!(size_of::<ReportRng>() == 68);

/// A report that contains only a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReportType {
    /// `akcipher`, `kpp`, `acomp`, `scomp`, `sig`, ...
    pub type_: NameField,
}

const _: () = assert!(size_of::<ReportType>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_their_fields() {
        assert_eq!(field_name(&name_field("sha256")), Some(&b"sha256"[..]));
        assert_eq!(field_name(&name_field(&"x".repeat(80))).unwrap().len(), 63);
        assert_eq!(field_name(&[b'x'; 64]), None);
    }
}
