//! The cache of sockets by key, one cache for each thread.

use crate::sys::{Op, Tfm};
use std::cell::RefCell;
use std::io::{self, Read};

/// The number of keys whose sockets a thread keeps. The oldest is closed first.
const SLOTS: usize = 128;

/// An identifier of a key, unique across processes: a key may be made in one process and used in another, so a counter
/// could give two keys the same number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyId([u8; 16]);

impl KeyId {
    pub(crate) fn new() -> io::Result<Self> {
        let mut id = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
        Ok(KeyId(id))
    }
}

/// The algorithm and key that a socket is opened for.
pub(crate) struct Wanted<'a> {
    pub(crate) id: KeyId,
    pub(crate) kind: &'static str,
    pub(crate) name: &'a str,
    pub(crate) key: Option<&'a [u8]>,
    /// AEADs only; 0 for others.
    pub(crate) authsize: usize,
}

struct Entry {
    id: KeyId,
    authsize: usize,
    op: Op,
    _tfm: Tfm,
}

/// The cache, an array in thread-local memory: none of it lies on a heap that processes could share.
struct Sockets {
    pid: u32,
    next: usize,
    slots: [Option<Entry>; SLOTS],
}

thread_local! {
    static SOCKETS: RefCell<Sockets> = const { RefCell::new(Sockets { pid: 0, next: 0, slots: [const { None }; SLOTS] }) };
}

fn open(wanted: &Wanted<'_>) -> io::Result<Entry> {
    let tfm = Tfm::bind(wanted.kind, wanted.name)?;
    if wanted.authsize > 0 {
        tfm.set_authsize(wanted.authsize)?;
    }
    if let Some(key) = wanted.key {
        tfm.set_key(key)?;
    }
    Ok(Entry { id: wanted.id, authsize: wanted.authsize, op: tfm.accept()?, _tfm: tfm })
}

/// Runs `f` with the socket of a key. After an error the socket is closed, because it may still hold unread results.
pub(crate) fn with<T>(wanted: &Wanted<'_>, f: impl FnOnce(&Op) -> io::Result<T>) -> io::Result<T> {
    SOCKETS
        .try_with(|sockets| {
            let mut sockets = sockets.borrow_mut();
            let pid = std::process::id();
            if sockets.pid != pid {
                // After fork, the child shares its parent's descriptors, and the requests of the two would mix.
                sockets.slots = [const { None }; SLOTS];
                sockets.pid = pid;
            }
            let mine = |e: &Option<Entry>| matches!(e, Some(e) if e.id == wanted.id && e.authsize == wanted.authsize);
            let at = match sockets.slots.iter().position(mine) {
                Some(at) => at,
                None => {
                    let at = sockets.next;
                    sockets.next = (at + 1) % SLOTS;
                    sockets.slots[at] = Some(open(wanted)?);
                    at
                }
            };
            let done = f(&sockets.slots[at].as_ref().expect("found or opened above").op);
            if done.is_err() {
                sockets.slots[at] = None;
            }
            done
        })
        .unwrap_or_else(|_| Err(io::Error::other("the thread is ending")))
}
