//! Network namespaces that have names: files, by which others find them as long as they are mounted.
//!
//! `ip netns` mounts them in /run/netns, container engines in folders of their own. The kernel tells of every mount, so that
//! nobody has to look again and again ([`Mounts`]).

use super::netns::{Netns, NetnsId};
use super::poll::Waker;
use super::{life, transient};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::statfs;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of `ip netns`.
const FOLDER: &str = "/run/netns";
/// `NSFS_MAGIC` of `linux/magic.h`: the file system of namespaces.
const NSFS_MAGIC: i128 = 0x6e73_6673;
/// The pause after the kernel could not wait.
const FAILED: Duration = Duration::from_millis(100);

/// Names of namespaces: a folder, and a name in it in which `*` stands for any text and `?` for one character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    folder: PathBuf,
    name: String,
}

impl Pattern {
    /// Reads a text: a pattern of names of `ip netns`, or one with a folder before it, in which the characters stand for
    /// themselves.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let (folder, name) = text.rsplit_once('/').unwrap_or((FOLDER, text));
        Pattern { folder: folder.into(), name: name.to_owned() }
    }

    /// The namespaces that have such names now, in the order of these.
    #[must_use]
    pub fn find(&self) -> Vec<Named> {
        // Without the folder, which comes with the first name, there are none.
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let named = entries.filter_map(|e| e.file_name().into_string().ok());
        let mut found: Vec<Named> =
            named.filter(|name| matches(&self.name, name)).filter_map(|name| self.named(&name)).collect();
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The namespace of this file; none if it is not, or not yet, one of a network namespace.
    fn named(&self, name: &str) -> Option<Named> {
        let path = self.folder.join(name);
        let is_of_namespace = statfs(&path).is_ok_and(|fs| i128::from(fs.f_type) == NSFS_MAGIC);
        let netns = is_of_namespace.then(|| Netns::open(path.to_str()?).ok()).flatten()?;
        // Other kinds of namespaces have such files, too.
        let id = netns.id().ok().filter(|_| netns.is_one())?;
        let name = if self.folder == Path::new(FOLDER) { name.to_owned() } else { path.to_str()?.to_owned() };
        Some(Named { name, id, netns })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folder.join(&self.name).display().fmt(f)
    }
}

/// Whether a name is of a pattern. The time is that of the product of their lengths at most.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut to) = (0, 0);
    // The last star, and the place in the name up to which it stands for text.
    let mut star = None;
    while to < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, to));
                at += 1;
            }
            Some(&c) if c == '?' || c == name[to] => (at, to) = (at + 1, to + 1),
            _ => match &mut star {
                None => return false,
                Some((star, end)) => {
                    *end += 1;
                    (at, to) = (*star + 1, *end);
                }
            },
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// The network namespaces that have names somewhere in this mount namespace, and those of processes that may be looked at.
///
/// # Errors
/// The file system's.
pub fn all() -> io::Result<HashMap<NetnsId, Netns>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let named = mounts.lines().filter_map(mounted).map(PathBuf::from);
    let is_process = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let processes = fs::read_dir("/proc")?.flatten().filter(is_process).map(|process| process.path().join("ns/net"));
    let mut found = HashMap::new();
    for path in named.chain(processes) {
        // Some have gone, and some are not to be looked at.
        let netns = path.to_str().and_then(|path| Netns::open(path).ok()).filter(Netns::is_one);
        found.extend(netns.and_then(|netns| Some((netns.id().ok()?, netns))));
    }
    Ok(found)
}

/// The file of a network namespace that a line of `mountinfo` tells of (proc_pid_mountinfo(5)).
fn mounted(line: &str) -> Option<&str> {
    let mut words = line.split(' ').skip(3);
    let (root, path) = (words.next()?, words.next()?);
    // Blanks in a path are written as others.
    (root.starts_with("net:[") && !path.contains('\\')).then_some(path)
}

/// A network namespace with a name.
#[derive(Debug)]
pub struct Named {
    /// The name of `ip netns`, or a path.
    pub name: String,
    /// Its identity.
    pub id: NetnsId,
    /// The namespace.
    pub netns: Netns,
}

/// Tells when something is mounted or unmounted where this process sees it.
#[derive(Debug)]
pub struct Mounts(File);

impl Mounts {
    /// Tells from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch() -> io::Result<Self> {
        Ok(Mounts(File::open("/proc/self/mountinfo")?))
    }

    /// Waits until there is a change since the last call that told of one, or until it is woken, at most `longest`.
    pub fn wait(&self, waker: &Waker, longest: Duration) {
        let mut list = [PollFd::new(&self.0, PollFlags::PRI), PollFd::new(waker, PollFlags::IN)];
        let _wait = life::wait();
        match poll(&mut list, Timespec::try_from(longest).ok().as_ref()) {
            Ok(_) => waker.drain(),
            Err(Errno::INTR) => {}
            Err(e) => {
                transient::count(&e.into());
                std::thread::sleep(FAILED);
            }
        }
    }
}

/// A file of which every network namespace has one with an inode of its own, whoever may look at the namespace itself.
const OWN: &str = "net/dev";

/// Those of `namespaces` in which a thread of another process lives.
///
/// # Errors
/// `PermissionDenied` where processes of others are hidden (`hidepid` of /proc); otherwise the kernel's.
pub fn lived_in<'a>(namespaces: impl Iterator<Item = &'a Netns>) -> io::Result<HashSet<NetnsId>> {
    if !Path::new("/proc/1").exists() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let inode = |path: &Path| fs::metadata(path.join(OWN)).map(|file| file.ino());
    let mut by_inode = HashMap::new();
    for netns in namespaces {
        by_inode.insert(netns.run(|| inode("/proc/thread-self".as_ref()))?, netns.id()?);
    }
    let us = std::process::id().to_string();
    let is_other = |process: &fs::DirEntry| {
        let name = process.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit) && name.as_encoded_bytes() != us.as_bytes()
    };
    let mut lived_in = HashSet::new();
    for process in fs::read_dir("/proc")?.flatten().filter(is_other) {
        for thread in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            // Those that have ended have no such file.
            lived_in.extend(inode(&thread.path()).ok().and_then(|inode| by_inode.get(&inode)));
        }
    }
    Ok(lived_in)
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn names_of_patterns() {
        for (pattern, name) in [
            ("*", "a"),
            ("*", ""),
            ("a*", "a"),
            ("a*c", "abc"),
            ("a*c", "acbc"),
            ("*b*", "abc"),
            ("a?c", "abc"),
            ("**a", "a"),
            ("cni-*-?", "cni-1-2-3"),
            ("ü?", "üx"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("", "a"), ("a", ""), ("a*c", "ab"), ("?", ""), ("?", "ab"), ("*a", "ab"), ("a*b*c", "acb"), ("a", "A")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        // No pattern takes for ever.
        assert!(!matches(&"*a".repeat(2_000), &"a".repeat(1_999)));
    }

    #[test]
    fn files_of_namespaces_among_mounts() {
        let line = "604 29 0:4 net:[4026532286] /run/netns/blue rw shared:5 - nsfs nsfs rw";
        assert_eq!(mounted(line), Some("/run/netns/blue"));
        for line in ["", "604 29 0:4 / /run rw - tmpfs tmpfs rw", "604 29 0:4 mnt:[402] /run/x rw - nsfs nsfs rw"] {
            assert_eq!(mounted(line), None, "{line}");
        }
    }

    #[test]
    fn namespaces_are_found_by_their_names() {
        let Some(netns) = testing::namespace("sys::named_netns") else { return };
        let folder = std::env::temp_dir().join(format!("sealane-named-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let pattern = Pattern::new(&format!("{}/b*", folder.display()));
        assert!(pattern.find().is_empty());
        let file = folder.join("blue");
        fs::write(&file, "").expect("a file");
        assert!(pattern.find().is_empty(), "no namespace yet");
        let (changes, nobody) = (Mounts::watch().expect("they can be watched"), Waker::new().expect("a descriptor"));
        let mounted = testing::Mounted::new(&netns, &file);
        // It has happened already: this would wait for ever otherwise.
        changes.wait(&nobody, Duration::MAX);
        let id = netns.id().expect("an id");
        let found = pattern.find();
        let [named] = &found[..] else { panic!("{found:?}") };
        assert!(all().expect("mounts").contains_key(&id));
        assert_eq!((Path::new(&named.name), named.id), (&*file, id));
        assert!(Pattern::new(&format!("{}/c*", folder.display())).find().is_empty());
        drop(mounted);
        changes.wait(&nobody, Duration::MAX);
        assert!(pattern.find().is_empty());
        fs::remove_dir_all(&folder).expect("it was there");
    }

    #[test]
    fn a_namespace_with_a_process_is_lived_in() {
        let Some(netns) = testing::namespace("sys::named_netns::lived_in") else { return };
        let lived_in = || lived_in(std::iter::once(&netns)).expect("nobody is hidden");
        assert!(lived_in().is_empty());
        // Threads of ours do not count.
        assert!(netns.run(|| Ok(lived_in())).expect("it can be entered").is_empty());
        let mut other = netns.run(|| std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn());
        let other = other.as_mut().expect("a process");
        assert_eq!(lived_in(), [netns.id().expect("an id")].into());
        drop(other.stdin.take());
        other.wait().expect("it ends with its input");
        assert!(lived_in().is_empty());
    }
}
