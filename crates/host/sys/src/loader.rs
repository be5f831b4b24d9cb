//! The dynamic loader of this process, which is glibc's, and the programs that another one loads.

use core::ffi::CStr;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The same file for glibc's loader, and none for others.
///
/// glibc's loader puts the name of its folder of libraries, such as `lib/x86_64-linux-gnu`, in the place of `$LIB`; any other,
/// such as musl's, looks for a folder with that name. The root is above all folders, however many steps lead up to it.
const ONLY_GLIBC: &str = "/usr/$LIB/../../../../../../../..";

/// A path for LD_PRELOAD by which only glibc's loader finds a file. A loader that cannot load the file would end its program.
/// `None` where the loader of this process does not find files so: it has no folder of libraries in /usr.
#[must_use]
pub fn only_for_glibc(file: &Path) -> Option<OsString> {
    let at = |file: &OsStr| [ONLY_GLIBC.as_bytes(), file.as_bytes()].concat();
    let libc_itself = at(OsStr::from_bytes(libc_path()?.to_bytes()));
    let name = CString::new(libc_itself).ok()?;
    // SAFETY: a C string; nothing is loaded that is not loaded already.
    let found = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the handle that was just opened.
    unsafe { libc::dlclose(found) };
    Some(OsString::from_vec(at(file.as_os_str())))
}

/// The path of the C library in this process.
fn libc_path() -> Option<&'static CStr> {
    // SAFETY: an all-zero structure is valid, and is then filled in. The name stays as long as the library is loaded.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let found = libc::dladdr(libc::getpid as *const () as *const _, &raw mut info);
        (found != 0 && !info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname))
    }
    .filter(|path| path.to_bytes().starts_with(b"/"))
}

/// Whether a file is an executable of another architecture than this process's, or of another size of pointers: an i386 or an
/// x32 one on x86-64.
#[must_use]
pub fn is_foreign(program: &Path) -> bool {
    const CLASS: usize = 4;
    const MACHINE: usize = 18;
    const CLASS_64: u8 = 2;
    const OURS: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let mut header = [0; MACHINE + 2];
    if !program.is_file() {
        return false;
    }
    let read = File::open(program).and_then(|mut file| file.read_exact(&mut header));
    let machine = u16::from_le_bytes([header[MACHINE], header[MACHINE + 1]]);
    read.is_ok() && header.starts_with(b"\x7fELF") && (header[CLASS] != CLASS_64 || machine != OURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_of_other_architectures() {
        let folder = std::env::temp_dir().join(format!("sealane-loader-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let file = |bytes: &[u8]| {
            let path = folder.join("file");
            std::fs::write(&path, bytes).expect("a file");
            is_foreign(&path)
        };
        let elf = |class: u8, machine: u8| {
            let mut bytes = [0; 64];
            bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
            bytes[18] = machine;
            bytes
        };
        // i386, x32, 64-bit RISC-V.
        assert!(file(&elf(1, 3)) && file(&elf(1, 62)) && file(&elf(2, 243)));
        assert!(!file(b"#!/bin/sh\n") && !file(b"") && !file(&[0; 64]));
        std::fs::remove_dir_all(&folder).expect("it is removed");
        assert!(!is_foreign(&std::env::current_exe().expect("a path")) && !is_foreign(&folder));
    }
}
