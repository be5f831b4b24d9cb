//! The side of a client.

use crate::codec::Wiped;
use crate::listener;
use crate::message::{Answer, Operation, Refusal, Reply, Request};
use sealane_sys::{keys, process, unix};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The socket of a keeper that is configured for no other.
pub const SOCKET: &str = "/run/sealane-keeper/socket";
/// The time that a client waits for a keeper, in each call.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The time that it waits for a new key: RSA's take seconds to make, and some may be made before it.
pub const PATIENCE_FOR_KEYS: Duration = Duration::from_secs(180);

/// A failure of a request.
#[derive(Debug)]
pub enum ClientError {
    /// The keeper refuses it.
    Refused(Refusal),
    /// The keeper cannot be reached, or has ended or hung meanwhile: whether the request was served is not known.
    Io(PathBuf, io::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Refused(refusal) => refusal.fmt(f),
            ClientError::Io(path, e) => write!(f, "keeper at {}: {e}", path.display()),
        }
    }
}

impl std::error::Error for ClientError {}

/// A connection to a keeper. The keeper may end one without a request, to give its place to another client: the next request then
/// fails with [`ClientError::Io`].
pub struct Client {
    path: PathBuf,
    socket: OwnedFd,
    next: u64,
}

/// The socket of the keeper: `$SEALANE_KEEPER`, or [`SOCKET`] if that is absent or empty.
#[must_use]
pub fn default_socket() -> PathBuf {
    std::env::var_os("SEALANE_KEEPER").filter(|path| !path.is_empty()).map_or_else(|| SOCKET.into(), PathBuf::from)
}

/// The user that keys of this process's making are for if it names none.
#[must_use]
pub fn this_user() -> u32 {
    process::effective_user()
}

/// Reads the first `most` bytes of a file into memory that is wiped, and no other.
///
/// # Errors
/// The file system's.
pub fn read_secret(path: &Path, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut file = File::open(path)?;
    let mut bytes = Zeroizing::new(vec![0u8; most]);
    let mut len = 0;
    while len < bytes.len() {
        match file.read(&mut bytes[len..])? {
            0 => break,
            n => len += n,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// A secret from a file; `/dev/fd/N` is a descriptor.
///
/// # Errors
/// The file system's; `InvalidData` if it has more than `most` bytes.
pub fn secret_of_file(path: &Path, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    check_len(read_secret(path, most + 1)?, most)
}

fn check_len(secret: Zeroizing<Vec<u8>>, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    if secret.len() > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {most} bytes")));
    }
    Ok(secret)
}

/// A secret from the kernel's keyrings: the payload of a key of type user.
///
/// # Errors
/// The kernel's; `PermissionDenied` for a key whose payload user space cannot have; `InvalidData` if it has more than `most` bytes.
pub fn secret_of_keyring(serial: i32, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let secret = keys::payload(serial, None).map_err(|errno| {
        let why = match errno {
            keys::NOT_READABLE => {
                "no program can read its payload, or not this user: that of a key of type 'user' can be read"
            }
            keys::NO_PAYLOAD => "keys of its type are not taken: a secret is in a key of type 'user'",
            errno => return io::Error::from_raw_os_error(errno),
        };
        io::Error::new(io::Error::from_raw_os_error(errno).kind(), why)
    })?;
    check_len(secret, most)
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let connect = || {
            let socket = unix::connect_for_packets(path, PATIENCE)?;
            // New keys come this way.
            listener::check(path, &socket, process::effective_user())?;
            Ok(socket)
        };
        let socket = connect().map_err(|e| ClientError::Io(path.to_owned(), e))?;
        Ok(Client { path: path.to_owned(), socket, next: 1 })
    }

    /// Asks for an operation, and waits for its answer, which is not [`Answer::Refused`].
    ///
    /// # Errors
    /// [`ClientError`]. After [`ClientError::Io`] the connection is of no use any more.
    pub fn ask(&mut self, operation: Operation) -> Result<Answer, ClientError> {
        let request = Request { id: self.next, operation };
        self.next += 1;
        let makes = matches!(request.operation, Operation::Generate { .. } | Operation::Rotate { .. });
        let patience = |time| if makes { unix::wait_at_most(self.socket.as_fd(), time) } else { Ok(()) };
        let exchange = || {
            patience(PATIENCE_FOR_KEYS)?;
            let reply = self.exchange(&request, if makes { PATIENCE_FOR_KEYS } else { PATIENCE })?;
            patience(PATIENCE)?;
            Ok(reply)
        };
        let answer = exchange().map_err(|e: io::Error| {
            let e = if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e };
            ClientError::Io(self.path.clone(), e)
        })?;
        match answer {
            Answer::Refused(refusal) => Err(ClientError::Refused(refusal)),
            answer => Ok(answer),
        }
    }

    fn exchange(&self, request: &Request, patience: Duration) -> io::Result<Answer> {
        let until = Instant::now() + patience;
        let message = request.encode();
        let sent = whole(until, || unix::send_packet(self.socket.as_fd(), &message));
        let mut bytes = Wiped::from(vec![0u8; request.operation.reply_len()]);
        let receive = || whole(until, || unix::receive_packet(self.socket.as_fd(), &mut bytes[..]));
        let len = receive_reply(sent, receive)?;
        let answer = Reply::answer_to(request.id, &bytes[..len]);
        answer.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("its reply is {e}")))
    }
}

/// Receives the reply to a request, or to one that could not be sent: if the keeper refuses the connection and closes it, its reason
/// can still be read. Returns the length of the reply.
pub(crate) fn receive_reply(sent: io::Result<()>, mut receive: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let mut received = receive();
    if received.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset) {
        // It has not read the request. What it said before it closed comes behind this error.
        received = receive();
    }
    match (received, sent) {
        (Ok(len), _) if len > 0 => Ok(len),
        (_, Err(e)) | (Err(e), _) => Err(e),
        (Ok(_), Ok(())) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Makes a call again that a signal of the program's has interrupted, until there is no time left.
fn whole<T>(until: Instant, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted && Instant::now() < until => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Err(io::ErrorKind::TimedOut.into()),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_no_failure_and_no_end_of_time() {
        let mut calls = 0;
        let mut interrupted = |until| {
            whole(until, || {
                calls += 1;
                if calls % 3 == 0 { Ok(calls) } else { Err(io::ErrorKind::Interrupted.into()) }
            })
        };
        let now = Instant::now();
        assert!(interrupted(now + PATIENCE_FOR_KEYS).is_ok_and(|calls| calls == 3));
        assert!(interrupted(now).is_err_and(|e| e.kind() == io::ErrorKind::TimedOut));
        let other: io::Result<()> = whole(now, || Err(io::ErrorKind::BrokenPipe.into()));
        assert!(other.is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe));
    }
}
