//! A process that keeps descriptors while no daemon runs. It knows nothing of what is in them.
//!
//! It listens at a socket in the runtime folder, for its own user only. Each connection has one request and one answer:
//! a request is a frame of [`FRAME_LEN`] bytes (version, verb, length of a name, name), with a descriptor for
//! [`PUT`]; an answer is one byte, with a descriptor for [`TAKE`]. The process ends when it keeps nothing, or when its
//! socket is gone from the folder. When the daemon has ended and no other has asked for ten minutes, it wipes the memory that
//! it has, and keeps only sockets: those by which rules have an owner.

use crate::journal::Journal;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sealane_sys::process::{Watch, effective_user, lock_memory, seclude};
use sealane_sys::unix::{peer_process, peer_user, receive_with, send_with};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The version of the frames. A daemon may be newer or older than its holder.
const VERSION: u8 = 1;
/// The length of a request.
pub(crate) const FRAME_LEN: usize = 128;
/// The longest name in bytes.
const NAME_LEN: usize = FRAME_LEN - 3;

/// Keeps a descriptor under a name, instead of the one that had it.
const PUT: u8 = 1;
/// Returns a copy of the descriptor of a name.
const TAKE: u8 = 2;
/// Closes the descriptor of a name.
const REMOVE: u8 = 3;
/// Only asks whether the holder is there.
const ASK: u8 = 4;

pub(crate) const DONE: u8 = 0;
const MISSING: u8 = 1;
const FULL: u8 = 2;
const REFUSED: u8 = 3;

/// The most descriptors that are kept.
const MAX: usize = 256;
/// The longest time for one request. A loaded machine takes its time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The interval at which the holder looks for its socket in the folder.
const LOOK: Duration = Duration::from_secs(1);
/// The time in which the first descriptor has to come.
const FIRST: Duration = Duration::from_secs(10);
/// The looks without any daemon, each of which asks once a second, after which nobody wants to go on with these states: ten
/// minutes. Time by a clock does not count: daemon and holder may have been stopped together. Nor do looks while the daemon
/// lives, which may be stopped alone: the memory is that of its states.
const ALONE: u32 = 600;

/// The path of the socket.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("holder")
}

/// A request to a holder.
pub(crate) enum Request<'a> {
    /// [`PUT`].
    Put(&'a str, &'a OwnedFd),
    /// [`TAKE`].
    Take(&'a str),
    /// [`REMOVE`].
    Remove(&'a str),
    /// [`ASK`].
    Ask,
}

/// Connects to a holder. Enough connections may wait for one that is stopped that there is no room for another.
fn connection(folder: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::from(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?);
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    connect(&stream, &SocketAddrUnix::new(path(folder))?)?;
    Ok(stream)
}

/// Asks the holder of a folder, and waits for so long at most until it takes the connection, and for its answer.
///
/// # Errors
/// `NotFound` and `ConnectionRefused` without a holder, and if it ends meanwhile; `NotFound` for a name that it does not know;
/// `StorageFull`; `WouldBlock` if it does not answer.
pub(crate) fn ask(folder: &Path, request: &Request<'_>, patience: Duration) -> io::Result<Option<OwnedFd>> {
    let (verb, name, descriptor) = match request {
        Request::Put(name, descriptor) => (PUT, *name, Some(descriptor.as_fd())),
        Request::Take(name) => (TAKE, *name, None),
        Request::Remove(name) => (REMOVE, *name, None),
        Request::Ask => (ASK, "", None),
    };
    if name.len() > NAME_LEN {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut frame = [0; FRAME_LEN];
    frame[..3].copy_from_slice(&[VERSION, verb, name.len() as u8]);
    frame[3..3 + name.len()].copy_from_slice(name.as_bytes());
    let stream = connection(folder, patience)?;
    // A holder without descriptors may end after it was found.
    let ended = |e: io::Error| match e.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => io::ErrorKind::ConnectionRefused.into(),
        _ => e,
    };
    if send_with(&stream, &frame, descriptor).map_err(ended)? != frame.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let mut answer = [REFUSED];
    let (len, descriptor) = receive_with(&stream, &mut answer).map_err(ended)?;
    match (len, answer[0]) {
        (0, _) => Err(io::ErrorKind::ConnectionRefused.into()),
        (1, DONE) => Ok(descriptor),
        (1, MISSING) => Err(io::ErrorKind::NotFound.into()),
        (1, FULL) => Err(io::ErrorKind::StorageFull.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the holder refuses, it may be of another version")),
    }
}

/// The descriptors of one holder.
#[derive(Default)]
struct Kept {
    by_name: BTreeMap<String, OwnedFd>,
    /// The daemon from which the last one came. `None` if it cannot be watched.
    daemon: Option<Watch>,
    /// The looks since somebody asked, or the daemon was seen to live.
    alone: u32,
}

/// The result of a look at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Somebody asked, and has an answer.
    Answered,
    /// Nobody did for the length of [`LOOK`].
    Nobody,
    /// Somebody asked in a wrong way, and has no answer; or the kernel refused.
    Refused,
}

impl Kept {
    /// Serves a frame: the answer, and its descriptor.
    fn serve(&mut self, frame: &[u8; FRAME_LEN], descriptor: Option<OwnedFd>) -> (u8, Option<OwnedFd>) {
        let [version, verb, len, rest @ ..] = frame;
        let name = rest.get(..usize::from(*len)).and_then(|name| core::str::from_utf8(name).ok());
        let Some(name) = name.filter(|_| *version == VERSION) else { return (REFUSED, None) };
        match (*verb, descriptor) {
            (PUT, Some(_)) if self.by_name.len() >= MAX && !self.by_name.contains_key(name) => (FULL, None),
            (PUT, Some(descriptor)) => {
                self.by_name.insert(name.to_owned(), descriptor);
                (DONE, None)
            }
            (TAKE, None) => match self.by_name.get(name).map(OwnedFd::try_clone) {
                Some(Ok(descriptor)) => (DONE, Some(descriptor)),
                Some(Err(_)) => (FULL, None),
                None => (MISSING, None),
            },
            (REMOVE, None) => (if self.by_name.remove(name).is_some() { DONE } else { MISSING }, None),
            (ASK, None) => (DONE, None),
            _ => (REFUSED, None),
        }
    }

    /// Wipes and closes files of memory. Others stay.
    fn wipe_files(&mut self) {
        let kept = core::mem::take(&mut self.by_name).into_iter().map(|(name, fd)| (name, File::from(fd)));
        let (files, others): (Vec<_>, Vec<_>) = kept.partition(|(_, file)| file.metadata().is_ok_and(|m| m.is_file()));
        files.into_iter().for_each(|(_, file)| drop(Journal::wipe(&file)));
        self.by_name = others.into_iter().map(|(name, file)| (name, file.into())).collect();
    }

    fn answer(&mut self, stream: &UnixStream) -> io::Result<()> {
        if peer_user(stream)? != effective_user() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut frame = [0; FRAME_LEN];
        let (len, descriptor) = receive_with(stream, &mut frame)?;
        if len != frame.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let puts = descriptor.is_some();
        let (answer, descriptor) = self.serve(&frame, descriptor);
        // It waits for the answer: its number is nobody else's.
        let process = if puts { peer_process(stream)?.and_then(Watch::new) } else { None };
        send_with(stream, &[answer], descriptor.as_ref().map(AsFd::as_fd))?;
        if puts {
            self.daemon = process;
        }
        Ok(())
    }

    /// Wipes files of memory when nobody can want them any more, judged after each look.
    fn judge(&mut self, look: Look) {
        match look {
            Look::Answered => self.alone = 0,
            Look::Nobody if self.daemon.as_ref().is_some_and(Watch::lives) => self.alone = 0,
            Look::Nobody => self.alone += 1,
            Look::Refused => {}
        }
        if self.alone > ALONE {
            self.wipe_files();
        }
    }
}

/// Keeps descriptors until it has none any more. `listener` is bound in `folder`.
///
/// # Errors
/// The kernel's.
pub fn hold(listener: &UnixListener, folder: &Path) -> io::Result<()> {
    let path = path(folder);
    let identity = |path: &Path| fs::symlink_metadata(path).map(|data| (data.dev(), data.ino())).ok();
    let ours = identity(&path);
    seclude()?;
    // It has no rights any more, but the daemon's limit.
    let _ = lock_memory();
    set_socket_timeout(listener, Timeout::Recv, Some(LOOK))?;
    let mut kept = Kept::default();
    let started = Instant::now();
    while ours.is_some() && identity(&path) == ours {
        let look = match listener.accept() {
            // Whoever asks in a wrong way gets no answer.
            Ok((stream, _)) if kept.answer(&stream).is_ok() => Look::Answered,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Look::Nobody,
            _ => Look::Refused,
        };
        if kept.by_name.is_empty() && started.elapsed() > FIRST {
            let _ = fs::remove_file(&path);
            break;
        }
        kept.judge(look);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_ends_is_none() {
        let folder = std::env::temp_dir().join(format!("sealane-holder-ends-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(path(&folder)).unwrap();
        // It closes a connection with the request unread, and one after it has read it.
        let ending = std::thread::spawn(move || {
            drop(listener.accept().unwrap());
            let (stream, _) = listener.accept().unwrap();
            receive_with(&stream, &mut [0; FRAME_LEN]).unwrap();
        });
        for request in [Request::Take("x"), Request::Ask] {
            let kind = ask(&folder, &request, PATIENCE).map(drop).map_err(|e| e.kind());
            assert_eq!(kind, Err(io::ErrorKind::ConnectionRefused));
        }
        ending.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    fn frame(version: u8, verb: u8, name: &str) -> [u8; FRAME_LEN] {
        let mut frame = [0; FRAME_LEN];
        frame[..3].copy_from_slice(&[version, verb, name.len() as u8]);
        frame[3..3 + name.len()].copy_from_slice(name.as_bytes());
        frame
    }

    /// A file of memory with a secret.
    fn secret() -> File {
        let memory = sealane_sys::mapping::memory_file("test").unwrap();
        io::Write::write_all(&mut &memory, b"secret").unwrap();
        memory
    }

    fn is_wiped(memory: &File) -> bool {
        let mut bytes = [0; 6];
        let _ = std::os::unix::fs::FileExt::read_at(memory, &mut bytes, 0);
        assert!([*b"secret", [0; 6]].contains(&bytes), "{bytes:?}");
        bytes == [0; 6]
    }

    #[test]
    fn files_are_wiped_and_sockets_stay() {
        let mut kept = Kept::default();
        let memory = secret();
        kept.by_name.insert("file".into(), memory.try_clone().unwrap().into());
        kept.by_name.insert("socket".into(), UnixStream::pair().unwrap().0.into());
        kept.wipe_files();
        assert_eq!(kept.by_name.keys().collect::<Vec<_>>(), ["socket"]);
        assert!(is_wiped(&memory));
    }

    /// A holder that was stopped with its daemon has one look behind it, however long that was.
    #[test]
    fn looks_are_counted_and_not_the_time() {
        let mut kept = Kept::default();
        let memory = secret();
        kept.by_name.insert("file".into(), memory.try_clone().unwrap().into());
        for last in [Look::Answered, Look::Refused] {
            (0..ALONE).for_each(|_| kept.judge(Look::Nobody));
            kept.judge(last);
            assert!(!is_wiped(&memory) && kept.by_name.contains_key("file"), "{last:?}");
        }
        kept.judge(Look::Nobody);
        assert!(is_wiped(&memory) && kept.by_name.is_empty());
    }

    /// A daemon that is stopped, in a debugger or by SIGSTOP, does not ask, and goes on with its states later.
    #[test]
    fn a_daemon_that_lives_keeps_its_states() {
        let mut kept = Kept::default();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let memory = secret();
        send_with(&ours, &frame(VERSION, PUT, "file"), Some(memory.as_fd())).unwrap();
        kept.answer(&theirs).unwrap();
        let alone = |kept: &mut Kept| (0..=ALONE).for_each(|_| kept.judge(Look::Nobody));
        alone(&mut kept);
        assert!(!is_wiped(&memory) && kept.by_name.contains_key("file"));
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        kept.daemon = Watch::new(ended.id());
        assert!(kept.daemon.is_some());
        ended.wait().unwrap();
        alone(&mut kept);
        assert!(is_wiped(&memory) && kept.by_name.is_empty());
    }

    #[test]
    fn descriptors_are_kept_by_name() {
        let mut kept = Kept::default();
        let descriptor = || Some(OwnedFd::from(File::open("/dev/null").unwrap()));
        let mut serve = |frame, descriptor| {
            let (answer, descriptor) = kept.serve(&frame, descriptor);
            (answer, descriptor.is_some())
        };
        assert_eq!(serve(frame(1, TAKE, "a"), None), (MISSING, false));
        assert_eq!(serve(frame(1, PUT, "a"), descriptor()), (DONE, false));
        assert_eq!(serve(frame(1, TAKE, "a"), None), (DONE, true));
        assert_eq!(serve(frame(1, TAKE, "a"), None), (DONE, true), "a copy");
        assert_eq!(serve(frame(1, REMOVE, "a"), None), (DONE, false));
        assert_eq!(serve(frame(1, REMOVE, "a"), None), (MISSING, false));
        for (frame, descriptor) in [
            (frame(2, PUT, "a"), descriptor()),
            (frame(1, PUT, "a"), None),
            (frame(1, TAKE, "a"), descriptor()),
            (frame(1, 9, "a"), None),
        ] {
            assert_eq!(serve(frame, descriptor), (REFUSED, false));
        }
        let mut long = frame(1, TAKE, "a");
        long[2] = 255;
        assert_eq!(serve(long, None), (REFUSED, false));
        for i in 0..MAX {
            assert_eq!(serve(frame(1, PUT, &i.to_string()), descriptor()), (DONE, false));
        }
        assert_eq!(serve(frame(1, PUT, "one more"), descriptor()), (FULL, false));
        assert_eq!(serve(frame(1, PUT, "7"), descriptor()), (DONE, false), "in the place of another");
    }
}
