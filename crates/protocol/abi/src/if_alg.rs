//! `linux/if_alg.h`: AF_ALG addresses, options, and the control messages of sendmsg.

use crate::Errno;
use crate::socket::SOL_ALG;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Socket option: the key.
pub const ALG_SET_KEY: i32 = 1;
/// Control message: the IV.
pub const ALG_SET_IV: i32 = 2;
/// Control message: the operation.
pub const ALG_SET_OP: i32 = 3;
/// Control message: length of the associated data in bytes.
pub const ALG_SET_AEAD_ASSOCLEN: i32 = 4;
/// Socket option: length of the tag in bytes, passed as the length of the option.
pub const ALG_SET_AEAD_AUTHSIZE: i32 = 5;
/// Socket option: entropy for CAVP tests.
pub const ALG_SET_DRBG_ENTROPY: i32 = 6;
/// Socket option: the key, by its serial number in the kernel's keyrings.
pub const ALG_SET_KEY_BY_KEY_SERIAL: i32 = 7;

/// Decrypt.
pub const ALG_OP_DECRYPT: u32 = 0;
/// Encrypt.
pub const ALG_OP_ENCRYPT: u32 = 1;

/// The only flag permitted in `salg_feat` and `salg_mask`.
pub const CRYPTO_ALG_KERN_DRIVER_ONLY: u32 = 0x0000_1000;

/// The fixed head of `struct sockaddr_alg`; the name follows.
///
/// ```text
/// 0      2                16      20      24
/// | family | type[14], NUL | feat  | mask  | name ... NUL |
/// ```
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SockaddrAlgHead {
    /// Address family, which the kernel ignores.
    pub salg_family: u16,
    /// Type of algorithm, NUL-terminated.
    pub salg_type: [u8; 14],
    /// Values of the flags to match.
    pub salg_feat: u32,
    /// Mask of the flags to match.
    pub salg_mask: u32,
}

const _: () = assert!(size_of::<SockaddrAlgHead>() == 24);

/// Length of the fixed head in bytes.
pub const SOCKADDR_ALG_HEAD_LEN: usize = size_of::<SockaddrAlgHead>();

/// A parsed address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlgAddress<'a> {
    /// Type of algorithm, up to its NUL; the 14th byte counts as NUL.
    pub type_: &'a [u8],
    /// Values of the flags to match.
    pub feat: u32,
    /// Mask of the flags to match.
    pub mask: u32,
    /// Name, up to its NUL; the last byte of the address counts as NUL.
    pub name: &'a [u8],
}

impl<'a> AlgAddress<'a> {
    /// Reads the address of a bind.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it is shorter than 25 bytes or has flags that are not permitted.
    pub fn parse(addr: &'a [u8]) -> Result<Self, Errno> {
        let (head, name) = SockaddrAlgHead::read_from_prefix(addr).map_err(|_| Errno::EINVAL)?;
        let (_, name) = name.split_last().ok_or(Errno::EINVAL)?;
        let allowed = CRYPTO_ALG_KERN_DRIVER_ONLY;
        if (head.salg_feat | head.salg_mask) & !allowed != 0 {
            return Err(Errno::EINVAL);
        }
        // Bytes 2..15 hold the type; the 14th, byte 15, is forced to NUL.
        Ok(AlgAddress {
            type_: until_nul(&addr[2..15]),
            feat: head.salg_feat,
            mask: head.salg_mask,
            name: until_nul(name),
        })
    }

    /// Writes an address for a bind.
    ///
    /// # Panics
    /// When the type is longer than 13 bytes.
    #[must_use]
    pub fn build(type_: &str, name: &str) -> Vec<u8> {
        let mut head = SockaddrAlgHead {
            salg_family: crate::socket::AF_ALG as u16,
            salg_type: [0; 14],
            salg_feat: 0,
            salg_mask: 0,
        };
        head.salg_type[..13][..type_.len()].copy_from_slice(type_.as_bytes());
        [head.as_bytes(), name.as_bytes(), &[0]].concat()
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or(bytes)
}

/// `struct cmsghdr`: the head of a control message. Its length counts the head, not the padding after the data.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cmsghdr {
    /// Length in bytes, this head included.
    pub cmsg_len: u64,
    /// Protocol.
    pub cmsg_level: i32,
    /// Type within the protocol.
    pub cmsg_type: i32,
}

const _: () = assert!(size_of::<Cmsghdr>() == 16);

/// Length of a control message's head in bytes.
pub const CMSG_HEAD_LEN: usize = size_of::<Cmsghdr>();

/// One control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cmsg<'a> {
    /// Protocol.
    pub level: i32,
    /// Type within the protocol.
    pub type_: i32,
    /// Its data.
    pub data: &'a [u8],
}

/// Iterates over the bytes of `msg_control` like the kernel's `for_each_cmsghdr` with `CMSG_OK`.
#[derive(Clone)]
pub struct Cmsgs<'a> {
    control: &'a [u8],
    at: usize,
}

impl<'a> Cmsgs<'a> {
    /// Iterates over all of `control`.
    #[must_use]
    pub fn new(control: &'a [u8]) -> Self {
        Cmsgs { control, at: 0 }
    }
}

impl<'a> Iterator for Cmsgs<'a> {
    type Item = Result<Cmsg<'a>, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.control.get(self.at..)?;
        // Fewer bytes than a head end the iteration without an error.
        let (head, _) = Cmsghdr::read_from_prefix(rest).ok()?;
        let len = usize::try_from(head.cmsg_len).unwrap_or(usize::MAX);
        if len < CMSG_HEAD_LEN || len > rest.len() {
            self.at = self.control.len();
            return Some(Err(Errno::EINVAL));
        }
        // A message ends on a multiple of 8; `len` is at most the length of a slice, so this cannot overflow.
        self.at += (len + 7) & !7;
        Some(Ok(Cmsg { level: head.cmsg_level, type_: head.cmsg_type, data: &rest[CMSG_HEAD_LEN..len] }))
    }
}

/// The contents of the SOL_ALG control messages of one sendmsg. Messages of other levels are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Control<'a> {
    /// IV; the last one wins.
    pub iv: Option<&'a [u8]>,
    /// Operation, decrypt by default.
    pub op: u32,
    /// Length of the associated data in bytes.
    pub assoc_len: u32,
}

impl<'a> Control<'a> {
    /// Reads control messages.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a malformed message, an unknown SOL_ALG type, or an associated length of 2^31 or more.
    pub fn parse(control: &'a [u8]) -> Result<Self, Errno> {
        let mut parsed = Control::default();
        for cmsg in Cmsgs::new(control) {
            let cmsg = cmsg?;
            if cmsg.level != SOL_ALG {
                continue;
            }
            // All three begin with a word. An unknown type is refused with the same error as a short one.
            let (word, rest) = u32::read_from_prefix(cmsg.data).map_err(|_| Errno::EINVAL)?;
            match cmsg.type_ {
                ALG_SET_IV => parsed.iv = Some(rest.get(..word as usize).ok_or(Errno::EINVAL)?),
                ALG_SET_OP => parsed.op = word,
                ALG_SET_AEAD_ASSOCLEN if word < 0x8000_0000 => parsed.assoc_len = word,
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(parsed)
    }
}

/// Writes one control message, padded to a multiple of 8 bytes.
pub fn push_cmsg(control: &mut Vec<u8>, level: i32, type_: i32, data: &[&[u8]]) {
    let len: usize = CMSG_HEAD_LEN + data.iter().map(|d| d.len()).sum::<usize>();
    let head = Cmsghdr { cmsg_len: len as u64, cmsg_level: level, cmsg_type: type_ };
    control.extend_from_slice(head.as_bytes());
    for piece in data {
        control.extend_from_slice(piece);
    }
    control.resize(control.len().next_multiple_of(8), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_does() {
        let addr = AlgAddress::build("hash", "sha256");
        assert_eq!(addr.len(), 24 + 7);
        let a = AlgAddress::parse(&addr).unwrap();
        assert_eq!((a.type_, a.name), (&b"hash"[..], &b"sha256"[..]));
        assert_eq!(AlgAddress::parse(&addr[..24]), Err(Errno::EINVAL));
        assert_eq!(AlgAddress::parse(&addr[..25]).unwrap().name, b"", "the last byte counts as NUL");
        assert_eq!(AlgAddress::parse(&addr[..29]).unwrap().name, b"sha2");
        let mut bad = addr.clone();
        bad[16] = 1;
        assert_eq!(AlgAddress::parse(&bad), Err(Errno::EINVAL));
        bad[16..20].copy_from_slice(&CRYPTO_ALG_KERN_DRIVER_ONLY.to_ne_bytes());
        assert!(AlgAddress::parse(&bad).is_ok());
        let mut full = addr;
        full[2..16].fill(b'x');
        assert_eq!(AlgAddress::parse(&full).unwrap().type_, b"xxxxxxxxxxxxx");
    }

    #[test]
    fn control_messages() {
        let mut c = Vec::new();
        push_cmsg(&mut c, SOL_ALG, ALG_SET_OP, &[&1u32.to_ne_bytes()]);
        push_cmsg(&mut c, 0, 77, &[b"x"]);
        push_cmsg(&mut c, SOL_ALG, ALG_SET_IV, &[&4u32.to_ne_bytes(), b"abcd"]);
        push_cmsg(&mut c, SOL_ALG, ALG_SET_AEAD_ASSOCLEN, &[&7u32.to_ne_bytes()]);
        let want = Control { iv: Some(b"abcd"), op: 1, assoc_len: 7 };
        assert_eq!(Control::parse(&c), Ok(want));
        c.extend_from_slice(&[0xff; 15]);
        assert_eq!(Control::parse(&c), Ok(want), "fewer bytes than a head end the walk");
        c.push(0xff);
        assert_eq!(Control::parse(&c), Err(Errno::EINVAL), "a head with a length beyond the end");
    }

    #[test]
    fn malformed_control_messages() {
        let one = |type_, data: &[u8]| {
            let mut c = Vec::new();
            push_cmsg(&mut c, SOL_ALG, type_, &[data]);
            Control::parse(&c).map(|c| (c.iv.map(<[u8]>::to_vec), c.op, c.assoc_len))
        };
        assert_eq!(one(ALG_SET_OP, b"ab"), Err(Errno::EINVAL));
        assert_eq!(one(77, b"abcd"), Err(Errno::EINVAL));
        assert_eq!(one(77, b""), Err(Errno::EINVAL));
        assert_eq!(one(ALG_SET_AEAD_ASSOCLEN, &0x8000_0000u32.to_ne_bytes()), Err(Errno::EINVAL));
        assert_eq!(one(ALG_SET_IV, &[16, 0, 0, 0, 1, 2]), Err(Errno::EINVAL));
        assert_eq!(one(ALG_SET_IV, &u32::MAX.to_ne_bytes()), Err(Errno::EINVAL));
        assert_eq!(one(ALG_SET_IV, &0u32.to_ne_bytes()), Ok((Some(vec![]), 0, 0)));
        for len in [0u64, 15, 17, u64::MAX, u64::MAX - 7, 1 << 63] {
            let head = Cmsghdr { cmsg_len: len, cmsg_level: SOL_ALG, cmsg_type: ALG_SET_OP };
            assert_eq!(Control::parse(head.as_bytes()), Err(Errno::EINVAL), "{len}");
        }
    }
}
