//! `asm-generic/errno-base.h` and `asm-generic/errno.h`: error numbers, as far as the served interfaces use them.

use core::fmt;
use core::num::NonZeroU16;

/// An error number, 1 to 4095; the kernel returns it negated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(NonZeroU16);

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = concat!($text, " (", stringify!($number), ").")] pub const $name: Errno = Errno::from_const($number);)*

            /// Its kernel name (`"EINVAL"`), where it is one of the constants here.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0.get() {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The number of a kernel name (`"EINVAL"`; `"ENOTSUP"` is `EOPNOTSUPP`).
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($name) => Some(Errno::$name),)*
                    "ENOTSUP" => Some(Errno::EOPNOTSUPP),
                    "EWOULDBLOCK" => Some(Errno::EAGAIN),
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "I/O error";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file number";
    EAGAIN = 11, "Try again";
    ENOMEM = 12, "Out of memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    ENODEV = 19, "No such device";
    EINVAL = 22, "Invalid argument";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Not a typewriter";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EPIPE = 32, "Broken pipe";
    EDOM = 33, "Math argument out of domain of func";
    ERANGE = 34, "Math result not representable";
    ENAMETOOLONG = 36, "File name too long";
    ENOSYS = 38, "Invalid system call number";
    ELOOP = 40, "Too many symbolic links encountered";
    ENODATA = 61, "No data available";
    EBADMSG = 74, "Not a data message";
    EOVERFLOW = 75, "Value too large for defined data type";
    ELIBBAD = 80, "Accessing a corrupted shared library";
    ENOTSOCK = 88, "Socket operation on non-socket";
    EDESTADDRREQ = 89, "Destination address required";
    EMSGSIZE = 90, "Message too long";
    EPROTOTYPE = 91, "Protocol wrong type for socket";
    ENOPROTOOPT = 92, "Protocol not available";
    EPROTONOSUPPORT = 93, "Protocol not supported";
    ESOCKTNOSUPPORT = 94, "Socket type not supported";
    EOPNOTSUPP = 95, "Operation not supported on transport endpoint";
    EAFNOSUPPORT = 97, "Address family not supported by protocol";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETUNREACH = 101, "Network is unreachable";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ENOKEY = 126, "Required key not available";
    EKEYEXPIRED = 127, "Key has expired";
    EKEYREVOKED = 128, "Key has been revoked";
    EKEYREJECTED = 129, "Key was rejected by service";
    ENOTSUPP = 524, "Operation is not supported (a kernel-internal number that NETLINK_CRYPTO lets out)";
}

impl Errno {
    const fn from_const(number: u16) -> Self {
        match NonZeroU16::new(number) {
            Some(n) => Errno(n),
            None => panic!("an error number is not zero"),
        }
    }

    /// The error with this number; `None` outside 1 to 4095.
    #[must_use]
    pub fn new(number: i32) -> Option<Self> {
        let number = u16::try_from(number).ok().filter(|n| *n < 4096)?;
        NonZeroU16::new(number).map(Errno)
    }

    /// Its number, positive.
    #[must_use]
    pub fn number(self) -> i32 {
        i32::from(self.0.get())
    }
}

impl From<Errno> for i32 {
    fn from(errno: Errno) -> i32 {
        errno.number()
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(Errno::EINVAL.number(), 22);
        assert_eq!(Errno::new(95), Some(Errno::EOPNOTSUPP));
        assert_eq!(Errno::from_name("ENOTSUP"), Some(Errno::EOPNOTSUPP));
        assert_eq!(Errno::from_name("EBADMSG").and_then(Errno::name), Some("EBADMSG"));
        assert_eq!(Errno::new(4000).unwrap().to_string(), "errno 4000");
        for bad in [0, -1, 4096, i32::MAX, i32::MIN] {
            assert_eq!(Errno::new(bad), None);
        }
    }
}
