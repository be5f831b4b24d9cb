//! The engine's host, the task that makes a call, and reports for an audit.

use core::sync::atomic::AtomicU32;
use sealane_abi::{Errno, Profile};
use sealane_crypto::Kind;
use sealane_crypto::home::{KeepError, KeyHome};
use zeroize::Zeroizing;

/// The task that makes a call (`current` in the kernel): the services that the engine needs on behalf of it.
pub trait Task {
    /// Sleeps while `*word == seen`. It may return early; the engine looks again.
    ///
    /// # Errors
    /// [`Errno::EINTR`] when a signal came. Whether the system call is then restarted (`ERESTARTSYS`, `SA_RESTART`) is not the
    /// engine's business.
    fn wait(&self, word: &AtomicU32, seen: u32) -> Result<(), Errno>;
    /// The key with this serial number in the kernel's keyrings (types user and logon). With `names`, one
    /// whose description begins with [`NAME_IN_KEYRING`] is a name, and its payload is not read.
    ///
    /// # Errors
    /// The errors of the kernel's `ALG_SET_KEY_BY_KEY_SERIAL`: `ENOKEY`, `EACCES`, `EKEYREVOKED`, `EKEYEXPIRED`, and
    /// `ENOPROTOOPT` for keys of other types.
    fn keyring_key(&self, serial: i32, names: bool) -> Result<KeyringKey, Errno>;
    /// Whether the task may give a key to the home of keys, or name one there: it is of the user whom the home sees.
    ///
    /// # Errors
    /// [`KeepError::Denied`].
    fn may_use_home(&self) -> Result<(), KeepError> {
        Ok(())
    }
    /// The observer of its calls, where they are audited.
    fn observer(&self) -> Option<&dyn Observer> {
        None
    }
}

/// The services that the engine needs from its host.
pub trait Host: Send + Sync {
    /// Wakes all threads that sleep on `word`.
    fn wake(&self, word: &AtomicU32);
    /// Runs `f`, which has a key that is not to stay in this process or in its ordinary memory, and overwrites what it has left: on
    /// the stack and in registers, and where that can be done in memory that it has given back.
    fn without_traces(&self, f: &mut dyn FnMut()) {
        f();
        sealane_crypto::wipe::wipe_traces(sealane_crypto::wipe::STACK_LEN);
    }
    /// Whether a key is to be in the memory alone that its process guards, for good. A process then tells a key to no other one that has
    /// the socket, too.
    fn keys_are_guarded(&self) -> bool {
        false
    }
    /// The home of keys, where they are not to stay in this process.
    fn key_home(&self) -> Option<&dyn KeyHome> {
        None
    }
    /// Whether a key may be given by this name of a key of the home. A service that takes its clients' keys would otherwise use
    /// whatever key its clients name.
    fn admits_name(&self, _name: &str) -> bool {
        false
    }
    /// Runs `f`, which changes what all sockets share: the memory that it takes belongs to none of them.
    fn common(&self, f: &mut dyn FnMut()) {
        f();
    }
    /// Words that begin as zeros, for what every process that has copies of the sockets sees the same of. Anything may
    /// be in them later.
    fn words(&self, n: usize) -> &'static [AtomicU32] {
        (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>().leak()
    }
    /// Sizes of buffers.
    fn net_defaults(&self) -> NetDefaults {
        NetDefaults::default()
    }
}

/// A key of the kernel's keyrings.
pub enum KeyringKey {
    /// Its payload.
    Payload(Zeroizing<Vec<u8>>),
    /// The rest of a description that names a key of the home.
    Named(Vec<u8>),
}

impl KeyringKey {
    /// The key whose description is `text`, in the form of `keyctl_describe` (type;uid;gid;permissions;description), if it
    /// names a key of the home.
    #[must_use]
    pub fn named_by(text: &[u8]) -> Option<Self> {
        let description = text.splitn(5, |&b| b == b';').nth(4)?;
        let name = description.strip_prefix(NAME_IN_KEYRING)?;
        Some(KeyringKey::Named(name.split(|&b| b == 0).next().unwrap_or_default().to_vec()))
    }
}

/// The beginning of the description of a key in the kernel's keyrings that stands for a key of the home.
pub const NAME_IN_KEYRING: &[u8] = b"sealane:";
/// The beginning of a name of a key of the home in place of a key. No key begins so.
pub const NAME_AS_KEY: &[u8] = b"sealane://";

/// Sizes of buffers, from `/proc/sys/net/core`. The default is that of Linux 7.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetDefaults {
    /// Send buffer in bytes (`wmem_default`).
    pub wmem_default: u32,
    /// Largest send buffer that can be asked for, in bytes before doubling (`wmem_max`).
    pub wmem_max: u32,
    /// Receive buffer in bytes (`rmem_default`).
    pub rmem_default: u32,
    /// Largest receive buffer that can be asked for, in bytes before doubling (`rmem_max`).
    pub rmem_max: u32,
    /// Largest option or control data in bytes (`optmem_max`).
    pub optmem_max: u32,
}

impl NetDefaults {
    /// The sizes of a profile's kernel. 6.1 as it comes has an `optmem_max` of 20,480, which distributions raise; here
    /// it has that of the others, so that keys of the same length are taken.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        let limit = match profile {
            Profile::Linux6_1 | Profile::Linux6_12 => 212_992,
            _ => 4_194_304,
        };
        NetDefaults { wmem_max: limit, rmem_max: limit, ..NetDefaults::default() }
    }
}

impl Default for NetDefaults {
    fn default() -> Self {
        NetDefaults {
            wmem_default: 212_992,
            wmem_max: 4_194_304,
            rmem_default: 212_992,
            rmem_max: 4_194_304,
            optmem_max: 131_072,
        }
    }
}

/// Observes calls for an audit. It gets no key, no text and no digest.
pub trait Observer {
    /// One call that has ended.
    fn event(&self, event: &Event<'_>);
}

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// bind of an AF_ALG socket.
    Bind,
    /// Setting a key or a seed.
    SetKey,
    /// Accepting an operation.
    Accept,
    /// Sending data.
    Send,
    /// Receiving a result.
    Recv,
}

/// One call that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// The kind of the call.
    pub call: Call,
    /// Type, where the socket is bound to one or the address names one.
    pub kind: Option<Kind>,
    /// Algorithm as the caller named it.
    pub name: &'a str,
    /// Driver that serves it, empty where there is none; of several, the first candidate.
    pub driver: &'a str,
    /// Bytes moved, or the length of the key.
    pub bytes: usize,
    /// The error, if it failed.
    pub errno: Option<Errno>,
}
