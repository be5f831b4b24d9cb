//! Names of the algorithms that several tables have, each with its object identifier, as the default provider has them.

use core::ffi::CStr;

pub(crate) const MD5: &CStr = c"MD5:SSL3-MD5:1.2.840.113549.2.5";
pub(crate) const SHA1: &CStr = c"SHA1:SHA-1:SSL3-SHA1:1.3.14.3.2.26";
pub(crate) const SHA2_224: &CStr = c"SHA2-224:SHA-224:SHA224:2.16.840.1.101.3.4.2.4";
pub(crate) const SHA2_256: &CStr = c"SHA2-256:SHA-256:SHA256:2.16.840.1.101.3.4.2.1";
pub(crate) const SHA2_384: &CStr = c"SHA2-384:SHA-384:SHA384:2.16.840.1.101.3.4.2.2";
pub(crate) const SHA2_512: &CStr = c"SHA2-512:SHA-512:SHA512:2.16.840.1.101.3.4.2.3";
pub(crate) const SHA2_512_224: &CStr = c"SHA2-512/224:SHA-512/224:SHA512-224:2.16.840.1.101.3.4.2.5";
pub(crate) const SHA2_512_256: &CStr = c"SHA2-512/256:SHA-512/256:SHA512-256:2.16.840.1.101.3.4.2.6";
pub(crate) const SHA3_224: &CStr = c"SHA3-224:2.16.840.1.101.3.4.2.7";
pub(crate) const SHA3_256: &CStr = c"SHA3-256:2.16.840.1.101.3.4.2.8";
pub(crate) const SHA3_384: &CStr = c"SHA3-384:2.16.840.1.101.3.4.2.9";
pub(crate) const SHA3_512: &CStr = c"SHA3-512:2.16.840.1.101.3.4.2.10";

pub(crate) const AES_128_CBC: &CStr = c"AES-128-CBC:AES128:2.16.840.1.101.3.4.1.2";
pub(crate) const AES_192_CBC: &CStr = c"AES-192-CBC:AES192:2.16.840.1.101.3.4.1.22";
pub(crate) const AES_256_CBC: &CStr = c"AES-256-CBC:AES256:2.16.840.1.101.3.4.1.42";
pub(crate) const AES_128_GCM: &CStr = c"AES-128-GCM:id-aes128-GCM:2.16.840.1.101.3.4.1.6";
pub(crate) const AES_192_GCM: &CStr = c"AES-192-GCM:id-aes192-GCM:2.16.840.1.101.3.4.1.26";
pub(crate) const AES_256_GCM: &CStr = c"AES-256-GCM:id-aes256-GCM:2.16.840.1.101.3.4.1.46";
pub(crate) const DES_EDE3_CBC: &CStr = c"DES-EDE3-CBC:DES3:1.2.840.113549.3.7";

pub(crate) const RSA: &CStr = c"RSA:rsaEncryption:1.2.840.113549.1.1.1";
pub(crate) const EC: &CStr = c"EC:id-ecPublicKey:1.2.840.10045.2.1";
pub(crate) const ED25519: &CStr = c"ED25519:1.3.101.112";
