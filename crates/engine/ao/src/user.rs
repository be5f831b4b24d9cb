//! Bytes from and to a program, copied as the kernel does, and the memory that the kernel counts for a key.

use sealane_abi::Errno;
use sealane_net_ao::alg::Algorithm;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zeroize::Zeroizing;

/// `optval` and `optlen` of a call.
pub(crate) struct UserBytes<'a> {
    readable: &'a [u8],
    len: usize,
    tails_count: bool,
}

impl<'a> UserBytes<'a> {
    /// The arguments of a call; `readable` may be shorter where the program's memory ends.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a negative length.
    pub(crate) fn new(readable: &'a [u8], len: i32, tails_count: bool) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
        Ok(UserBytes { readable: &readable[..readable.len().min(len)], len, tails_count })
    }

    /// The length that the program gave.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first `n` bytes.
    ///
    /// # Errors
    /// [`Errno::EFAULT`] when they cannot be read.
    pub(crate) fn prefix(&self, n: usize) -> Result<&'a [u8], Errno> {
        self.readable.get(..n).ok_or(Errno::EFAULT)
    }

    /// A struct that must be complete, in place (`copy_struct_from_user`).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when it is shorter, [`Errno::E2BIG`] when other bytes than zeros follow, [`Errno::EFAULT`].
    pub(crate) fn whole<T: FromBytes + Immutable + KnownLayout + Unaligned>(&self) -> Result<&'a T, Errno> {
        if self.len < size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        self.check_tail(size_of::<T>())?;
        T::ref_from_bytes(self.prefix(size_of::<T>())?).map_err(|_| Errno::EINVAL)
    }

    /// A struct whose missing rest counts as zeros (`copy_struct_from_user`). Not for structs with secrets in them.
    ///
    /// # Errors
    /// [`Errno::E2BIG`] when other bytes than zeros follow, [`Errno::EFAULT`].
    pub(crate) fn padded<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        self.check_tail(size_of::<T>())?;
        let given = self.prefix(self.len.min(size_of::<T>()))?;
        let mut value = T::new_zeroed();
        value.as_mut_bytes()[..given.len()].copy_from_slice(given);
        Ok(value)
    }

    fn check_tail(&self, known: usize) -> Result<(), Errno> {
        if !self.tails_count || self.len <= known {
            return Ok(());
        }
        if self.readable.iter().skip(known).any(|b| *b != 0) {
            return Err(Errno::E2BIG);
        }
        if self.readable.len() < self.len { Err(Errno::EFAULT) } else { Ok(()) }
    }
}

/// Bytes to be written to a program. May hold keys: wiped on drop, no `Debug`.
pub struct Write {
    /// Offset from the program's `optval` in bytes.
    pub offset: usize,
    /// The bytes.
    pub bytes: Zeroizing<Vec<u8>>,
}

/// The writes of getsockopt(), in this order. When a write fails, the answer is [`Errno::EFAULT`] and the rest is not
/// done.
#[derive(Default)]
pub struct Answer {
    /// Writes to `optval`, before `optlen`.
    pub writes: Vec<Write>,
    /// The value for `*optlen`; `None` leaves it as it is.
    pub optlen: Option<i32>,
    /// A write to `optval`, after `optlen`.
    pub last: Option<Write>,
}

impl Answer {
    /// An answer with as much of `bytes` as the program's buffer holds, at its start.
    pub(crate) fn front(bytes: &[u8], len: usize) -> Self {
        let bytes = Zeroizing::new(bytes[..bytes.len().min(len)].to_vec());
        Answer { writes: vec![Write { offset: 0, bytes }], ..Answer::default() }
    }

    /// All writes to `optval`, in order.
    pub fn optval(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter().chain(&self.last)
    }
}

/// `struct tcp_ao_key` without its traffic keys, in bytes (64-bit kernels).
const KEY_STRUCT: usize = 168;

/// The memory that the kernel counts for a key of `algorithm`: the struct and two traffic keys.
pub(crate) fn key_memory(algorithm: &Algorithm) -> usize {
    KEY_STRUCT + 2 * algorithm.digest_len
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_abi::tcp::{TcpAoDel, TcpAoRepair};

    #[test]
    fn tails() {
        fn user(bytes: &[u8], len: i32) -> UserBytes<'_> {
            UserBytes::new(bytes, len, true).unwrap()
        }
        let mut bytes = [0; 160];
        assert_eq!(user(&bytes, 143).whole::<TcpAoDel>().err(), Some(Errno::EINVAL));
        assert!(user(&bytes, 160).whole::<TcpAoDel>().is_ok());
        assert_eq!(user(&bytes, 161).whole::<TcpAoDel>().err(), Some(Errno::EFAULT), "a tail that cannot be read");
        assert_eq!(user(&bytes[..100], 144).whole::<TcpAoDel>().err(), Some(Errno::EFAULT));
        bytes[150] = 1;
        assert_eq!(user(&bytes, 160).whole::<TcpAoDel>().err(), Some(Errno::E2BIG));
        assert_eq!(user(&bytes, 200).whole::<TcpAoDel>().err(), Some(Errno::E2BIG), "found before memory ends");
        assert!(user(&bytes, 150).whole::<TcpAoDel>().is_ok());
        assert!(UserBytes::new(&bytes, 160, false).unwrap().whole::<TcpAoDel>().is_ok());
        assert_eq!(UserBytes::new(&bytes, -1, true).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn missing_bytes_are_zeros() {
        let bytes = [0xff; 16];
        let short: TcpAoRepair = UserBytes::new(&bytes, 5, true).unwrap().padded().unwrap();
        assert_eq!(short.as_bytes(), [255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
