//! A folder of a process or thread in procfs, as the mount namespace of another process shows it: what that one has mounted
//! over files of it is not looked at.

use super::netns::Netns;
use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstatfs, openat, openat2};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// `NSFS_MAGIC` of `linux/magic.h`: the file system of namespaces.
const NSFS_MAGIC: i64 = 0x6e73_6673;

/// The longest text in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// An open folder.
#[derive(Debug)]
pub struct ProcFolder(OwnedFd);

impl ProcFolder {
    /// Opens the folder of the process that is `pid` in the /proc below `root`.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` where no procfs is mounted there, or it has no such process.
    pub(super) fn below(root: &OwnedFd, pid: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat2(root, format!("proc/{pid}"), flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
        let is_proc = fstatfs(&folder)?.f_type == PROC_SUPER_MAGIC;
        is_proc.then_some(ProcFolder(folder)).ok_or(io::Error::from_raw_os_error(libc::ENOENT))
    }

    /// Takes an open folder of this process's own /proc.
    pub(super) fn own(folder: OwnedFd) -> Self {
        ProcFolder(folder)
    }

    /// Opens a file of procfs itself: neither what is mounted over it, nor what a link in it names.
    fn open(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.0, name, flags | OFlags::CLOEXEC, Mode::empty(), within)?)
    }

    /// Returns the network namespace of the process.
    ///
    /// # Errors
    /// The kernel's; `ENOENT` where the file is no namespace's.
    pub fn netns(&self) -> io::Result<Netns> {
        let namespaces = self.open("ns", OFlags::PATH | OFlags::DIRECTORY)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let netns = openat(&namespaces, "net", flags, Mode::empty())?;
        let is_namespace = fstatfs(&netns)?.f_type == NSFS_MAGIC;
        is_namespace.then(|| Netns::from(netns)).ok_or(io::Error::from_raw_os_error(libc::ENOENT))
    }

    /// Reads a file of the folder, such as `net/netstat`.
    ///
    /// # Errors
    /// The kernel's, and `InvalidData` for text that is not UTF-8.
    pub fn text(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        File::from(self.open(name, OFlags::RDONLY)?).take(MAX_TEXT).read_to_string(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn root(path: &str) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect(path)
    }

    #[test]
    fn a_process_by_its_number() {
        let pid = std::process::id();
        let ours = ProcFolder::below(&root("/"), pid).expect("our own");
        let here = Netns::current().and_then(|netns| netns.id()).expect("our own");
        assert_eq!(ours.netns().and_then(|netns| netns.id()).expect("a namespace"), here);
        assert!(ours.text("status").expect("text").contains(&format!("\nPid:\t{pid}\n")));
        assert!(ours.text("net/netstat").expect("text").starts_with("TcpExt:"));
        let nobody = ProcFolder::below(&root("/"), i32::MAX as u32).map(drop).map_err(|e| e.raw_os_error());
        assert_eq!(nobody, Err(Some(libc::ENOENT)));
    }

    /// A folder that is no procfs, and leads to one by a link only, is not read with our rights.
    #[test]
    fn a_folder_that_only_looks_like_one() {
        let folder = std::env::temp_dir().join(format!("sealane-proc-folder-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("proc/7")).unwrap();
        symlink(format!("/proc/{}", std::process::id()), folder.join("proc/8")).unwrap();
        let root = root(folder.to_str().unwrap());
        for pid in [7, 8, 9] {
            let opened = ProcFolder::below(&root, pid).map(drop).map_err(|e| e.raw_os_error());
            assert_eq!(opened, Err(Some(libc::ENOENT)), "{pid}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
