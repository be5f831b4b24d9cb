//! Keys of the kernel's keyrings.

use std::io;
use zeroize::Zeroizing;

/// Runs a keyctl operation that fills a buffer.
fn fill(operation: i32, serial: i32) -> Result<Zeroizing<Vec<u8>>, i32> {
    let mut buf = Zeroizing::new(Vec::<u8>::new());
    loop {
        // SAFETY: the buffer has `len` writable bytes.
        let n = unsafe { libc::syscall(libc::SYS_keyctl, operation, serial, buf.as_mut_ptr(), buf.len(), 0) };
        match usize::try_from(n) {
            Err(_) => return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
            Ok(n) if n <= buf.len() => {
                buf.truncate(n);
                return Ok(buf);
            }
            Ok(n) => buf = Zeroizing::new(vec![0; n]),
        }
    }
}

/// The payload of a key that the launcher may read. A `logon` key cannot be read by anyone in user space.
///
/// # Errors
/// `EACCES` for a `logon` key, `ENOPROTOOPT` for other types without a usable payload; otherwise the kernel's.
pub fn payload(serial: i32) -> Result<Zeroizing<Vec<u8>>, i32> {
    const DESCRIBE: i32 = 6;
    const READ: i32 = 11;
    let description = fill(DESCRIBE, serial)?;
    match description.split(|&b| b == b';').next().unwrap_or_default() {
        b"user" | b"encrypted" | b"trusted" => fill(READ, serial),
        b"logon" => Err(libc::EACCES),
        _ => Err(libc::ENOPROTOOPT),
    }
}
