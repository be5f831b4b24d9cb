//! Features of a device, as `ethtool -k` reads them.

use super::link;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub use super::link::SIOCETHTOOL;

/// The command that reads which features a device has, and which are enabled.
pub const GFEATURES: u32 = 0x3a;
const GSSET_INFO: u32 = 0x37;
const GSTRINGS: u32 = 0x1b;
const SET_FEATURES: u32 = 4;
const STRING_LEN: usize = 32;

fn ask(fd: BorrowedFd<'_>, name: &[u8], command: &mut [u8]) -> Result<(), i32> {
    let errno = |e: io::Error| e.raw_os_error().unwrap_or(libc::EIO);
    let mut request = link::request(name).map_err(errno)?;
    request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
    // SAFETY: a structure of the kernel's layout, and a buffer that is as long as the command in it says.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(SIOCETHTOOL), &raw mut request) };
    if r < 0 { Err(errno(io::Error::last_os_error())) } else { Ok(()) }
}

fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*bytes[at..].first_chunk().expect("inside the answer"))
}

/// The bit of a feature in this kernel's list.
fn position(fd: BorrowedFd<'_>, name: &[u8], feature: &str) -> Result<Option<usize>, i32> {
    // Command, reserved, mask of sets (64 bits), then the count of each.
    let mut info = words(&[GSSET_INFO, 0, 1 << SET_FEATURES, 0, 0]);
    ask(fd, name, &mut info)?;
    let count = word(&info, 16) as usize;
    let mut strings = words(&[GSTRINGS, SET_FEATURES, count as u32]);
    strings.resize(12 + count * STRING_LEN, 0);
    ask(fd, name, &mut strings)?;
    let is = |s: &[u8]| s.split(|b| *b == 0).next() == Some(feature.as_bytes());
    Ok(strings[12..].chunks_exact(STRING_LEN).position(is))
}

/// The answer to GFEATURES for `blocks` blocks of 32 features, with `feature` added as available and enabled.
///
/// # Errors
/// The kernel's errno.
pub fn features(fd: BorrowedFd<'_>, name: &[u8], blocks: u32, feature: &str) -> Result<Vec<u8>, i32> {
    let mut answer = words(&[GFEATURES, blocks]);
    // Of each block: available, requested, active, never changed.
    answer.resize(8 + blocks as usize * 16, 0);
    ask(fd, name, &mut answer)?;
    let blocks = word(&answer, 4) as usize;
    if let Some(bit) = position(fd, name, feature)?.filter(|bit| bit / 32 < blocks) {
        for field in [0, 4, 8] {
            let at = 8 + bit / 32 * 16 + field;
            let value = word(&answer, at) | 1 << (bit % 32);
            answer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_feature_is_added_to_those_of_the_device() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_fd();
        let Ok(Some(bit)) = position(fd, b"lo", "esp-hw-offload") else {
            return super::super::testing::skip("sys::ethtool", "this kernel has no feature esp-hw-offload");
        };
        let plain = features(fd, b"lo", 4, "no such feature").unwrap();
        let with = features(fd, b"lo", 4, "esp-hw-offload").unwrap();
        let active = |a: &[u8]| word(a, 8 + bit / 32 * 16 + 8) >> (bit % 32) & 1;
        assert_eq!((active(&plain), active(&with)), (0, 1));
        assert_eq!(features(fd, b"no device", 4, "x"), Err(libc::ENODEV));
    }
}
