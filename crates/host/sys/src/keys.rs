//! Keys of the kernel's keyrings.

use super::peer::Ids;
use std::io;
use zeroize::Zeroizing;

/// The error of [`payload`] for a key whose payload this process, or any, cannot have.
pub const NOT_READABLE: i32 = libc::EACCES;
/// The error of [`payload`] for a key of another type, as of a keyring, which holds no secret for an algorithm.
pub const NO_PAYLOAD: i32 = libc::ENOPROTOOPT;

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

/// The payload of a key that the launcher may read. A `logon` key cannot be read by anyone in user space; and of an `encrypted` or a
/// `trusted` key the kernel gives the form in which it may be stored, sealed under another key, and never the payload by which it computes.
///
/// `caller` is the thread for which it is read, where the launcher has other ids: the kernel would let it use the key only
/// if it finds it (`alg_setkey_by_key_serial`). Whether it possesses the key, so that further permissions count, cannot
/// be told.
///
/// # Errors
/// `EACCES` for these, and for a key that the caller may not find; `ENOPROTOOPT` for other types without a usable payload;
/// otherwise the kernel's.
pub fn payload(serial: i32, caller: Option<&Ids>) -> Result<Zeroizing<Vec<u8>>, i32> {
    const READ: i32 = 11;
    match description(serial, caller)?.split(|&b| b == b';').next().unwrap_or_default() {
        b"user" => fill(READ, serial),
        b"logon" | b"encrypted" | b"trusted" => Err(libc::EACCES),
        _ => Err(libc::ENOPROTOOPT),
    }
}

/// The description of a key (type;uid;gid;permissions;name), for a caller as [`payload`] has it.
///
/// # Errors
/// `EACCES` for a key that the caller may not find; otherwise the kernel's.
pub fn description(serial: i32, caller: Option<&Ids>) -> Result<Zeroizing<Vec<u8>>, i32> {
    const DESCRIBE: i32 = 6;
    let description = fill(DESCRIBE, serial)?;
    match caller {
        Some(caller) if !finds(caller, &description) => Err(libc::EACCES),
        _ => Ok(description),
    }
}

/// Whether a thread with these ids may search for a key of this description (type;uid;gid;permissions;name), as
/// `key_task_permission` decides: the permissions of its user count, or else those of its group, or else those of others.
fn finds(caller: &Ids, description: &[u8]) -> bool {
    const SEARCH: u32 = 8;
    const GROUP: u32 = 0x3f00;
    let text = String::from_utf8_lossy(description);
    let [_, user, group, permissions, ..] = text.split(';').collect::<Vec<_>>()[..] else { return false };
    // A key without a group has -1.
    let (user, group) = (user.parse::<u32>().ok(), group.parse::<u32>().ok());
    let Ok(permissions) = u32::from_str_radix(permissions, 16) else { return false };
    let in_group = group.is_some_and(|group| caller.group == group || caller.groups.contains(&group));
    let shift = match user == Some(caller.user) {
        true => 16,
        false if in_group && permissions & GROUP != 0 => 8,
        false => 0,
    };
    permissions >> shift & SEARCH != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_user_its_group_or_others() {
        let caller = |user, group, groups: &[u32]| Ids { user, group, groups: groups.to_vec() };
        let (root, nobody, member) = (caller(0, 0, &[]), caller(65534, 65534, &[]), caller(1000, 1000, &[4, 50]));
        for (description, found) in [
            // The permissions of a new key: all for who possesses it, and its user may see it.
            ("user;0;0;3f010000;k", [false, false, false]),
            ("user;0;0;3f090000;k", [true, false, false]),
            ("user;0;0;3f010008;k", [false, true, true]),
            ("user;0;50;3f010800;k", [false, false, true]),
            ("user;0;1000;3f010800;k", [false, false, true]),
            // Its group may only see it: what others may does not count.
            ("user;0;50;3f010108;k", [false, true, false]),
            // Its group may do nothing: what others may counts.
            ("user;0;50;3f010008;k", [false, true, true]),
            ("user;65534;-1;3f080000;k;of;parts", [false, true, false]),
            ("user;1000;-1;00010808;k", [true, true, false]),
            ("user;0;0", [false, false, false]),
        ] {
            let may = [&root, &nobody, &member].map(|caller| finds(caller, description.as_bytes()));
            assert_eq!(may, found, "{description}");
        }
    }
}
