//! The admin socket, over which `sealane tcp-ao show` queries running launchers and daemons (`abi::admin`).
//!
//! Each instance listens on `PID.sock` in the runtime folder, /run/sealane for root, $XDG_RUNTIME_DIR/sealane for
//! others. It answers only root and the user that the instance runs as, regardless of file modes.

use crate::{Source, metrics};
use sealane_abi::admin::{Query, Snapshot, Socket};
use sealane_sys::life::{self, Kind};
use sealane_sys::{process, runtime, transient, unix};
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time limit of each read and write.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum length of a request in bytes.
const MAX_REQUEST: u64 = 256;

/// A listening admin socket. Its file is removed on drop.
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `PID.sock` in `folder`, which is created if necessary, and answers with snapshots of `source`.
    ///
    /// # Errors
    /// If the folder belongs to another user or is writable for others, or the socket cannot be created.
    pub fn start(folder: &Path, source: Source) -> io::Result<Server> {
        runtime::make_private(folder)?;
        let path = folder.join(format!("{}.sock", std::process::id()));
        // An earlier process with the same id may have left its socket behind.
        runtime::remove(&path)?;
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("sealane-admin".into()).spawn(move || {
            let _alive = life::begin("sealane-admin", Kind::Control);
            loop {
                let wait = life::wait();
                let stream = listener.accept();
                drop(wait);
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    // A failure with one client does not concern the others.
                    Ok((stream, _)) => drop(answer(stream, &source)),
                    // The process is probably out of descriptors, which takes time to change.
                    Err(e) => {
                        transient::count(&e);
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        })?;
        Ok(Server { path, stop, thread: Some(thread) })
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Connecting wakes the thread. If it fails, the thread does not listen any more and is not waited for.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn answer(stream: UnixStream, source: &Source) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let user = unix::peer_user(&stream)?;
    if user != 0 && user != process::effective_user() {
        return Ok(());
    }
    let mut line = Vec::new();
    BufReader::new((&stream).take(MAX_REQUEST)).read_until(b'\n', &mut line)?;
    let text = match serde_json::from_slice(&line)? {
        Query::Snapshot => serde_json::to_string(&source())?,
        Query::Metrics => metrics::render(&source()),
    };
    (&stream).write_all(text.as_bytes())
}

/// A running instance.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The path of its admin socket.
    pub path: PathBuf,
    /// Its process id.
    pub pid: u32,
}

/// The instances that this user may query, ordered by process id. Some may have ended without removing their socket.
///
/// # Errors
/// If a runtime folder exists and cannot be read.
pub fn instances() -> io::Result<Vec<Instance>> {
    let mut folders: Vec<PathBuf> = runtime::folder().into_iter().collect();
    if std::env::var_os("SEALANE_RUNTIME_DIR").is_none() && process::effective_user() != 0 {
        folders.push("/run/sealane".into());
    }
    let mut list = Vec::new();
    for folder in folders {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Other users cannot read the folder of root.
            Err(e) if [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&e.kind()) => continue,
            Err(e) => return Err(e),
        };
        for entry in entries {
            let path = entry?.path();
            let pid = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".sock")?.parse().ok());
            list.extend(pid.map(|pid| Instance { path, pid }));
        }
    }
    list.sort_by_key(|i| i.pid);
    Ok(list)
}

/// Sends a request to an instance. `None` if it has ended.
///
/// # Errors
/// If it does not answer in time, or does not answer this user.
pub fn ask(instance: &Instance, request: Query) -> io::Result<Option<String>> {
    let mut stream = match UnixStream::connect(&instance.path) {
        Ok(stream) => stream,
        Err(e) if [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound].contains(&e.kind()) => return Ok(None),
        Err(e) => return Err(e),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{}\n", serde_json::to_string(&request)?).as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    if text.is_empty() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it does not answer this user"));
    }
    Ok(Some(text))
}

/// Requests the snapshot of an instance. `None` if it has ended.
///
/// # Errors
/// As [`ask`]; `InvalidData` if the instance has another [`VERSION`](sealane_abi::admin::VERSION).
pub fn snapshot(instance: &Instance) -> io::Result<Option<Snapshot>> {
    let Some(text) = ask(instance, Query::Snapshot)? else { return Ok(None) };
    let mut snapshot: Snapshot = serde_json::from_str(&text)?;
    if snapshot.version != sealane_abi::admin::VERSION {
        let what = format!("it speaks version {} of the admin interface", snapshot.version);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    name_programs(&mut snapshot);
    Ok(Some(snapshot))
}

/// Finds the processes that have the sockets open, as far as the caller is allowed to see them.
fn name_programs(snapshot: &mut Snapshot) {
    let mut sockets: HashMap<u64, Vec<&mut Socket>> = HashMap::new();
    for socket in snapshot.namespaces.iter_mut().flat_map(|n| &mut n.sockets) {
        if let Some(inode) = socket.inode {
            sockets.entry(inode).or_default().push(socket);
        }
    }
    if sockets.is_empty() {
        return;
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        for fd in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(fd.path()) else { continue };
            let inode = target.to_str().and_then(|t| t.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            // The lowest process id is usually that of the process that forked the others.
            for socket in inode.and_then(|inode: u64| sockets.remove(&inode)).into_iter().flatten() {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
                (socket.pid, socket.program) = (Some(pid), name.map(|n| n.trim_end().to_owned()));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
