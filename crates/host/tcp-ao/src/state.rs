//! Connections saved in a file in /run, which survive a restart of the daemon. It holds no secrets.

use sealane_engine_ao::SavedConnection;
use sealane_net_ao::info::Conn;
use sealane_net_ao::sne::Sne;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Version of the file's format. A file of another version is not read.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct StateFile {
    version: u32,
    connections: Vec<StateRow>,
}

#[derive(Serialize, Deserialize)]
struct StateRow {
    cookie: u64,
    peer: String,
    local: SocketAddr,
    remote: SocketAddr,
    lisn: u32,
    risn: u32,
    /// SNE and its base, of the sending and the receiving direction.
    snd: (u32, u32),
    rcv: (u32, u32),
    current: Option<u8>,
    rnext: Option<u8>,
    peer_mss: u16,
    /// The index of the VRF, 0 for none.
    #[serde(default)]
    vrf: i32,
}

/// The file for a network namespace.
pub(super) fn path(folder: &Path, inode: u64) -> PathBuf {
    folder.join(format!("tcp-ao.{inode}.json"))
}

/// Replaces the file atomically.
///
/// # Errors
/// The file system's.
pub(super) fn write(path: &Path, connections: &[SavedConnection]) -> io::Result<()> {
    let row = |c: &SavedConnection| StateRow {
        cookie: c.cookie,
        peer: c.peer.clone(),
        local: c.conn.local,
        remote: c.conn.remote,
        lisn: c.conn.lisn,
        risn: c.conn.risn,
        snd: (c.conn.snd.ext, c.conn.snd.base),
        rcv: (c.conn.rcv.ext, c.conn.rcv.base),
        current: c.current,
        rnext: c.rnext,
        peer_mss: c.peer_mss,
        vrf: c.vrf,
    };
    let file = StateFile { version: VERSION, connections: connections.iter().map(row).collect() };
    let text = serde_json::to_vec(&file)?;
    let new = path.with_extension("new");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    out.write_all(&text)?;
    drop(out);
    fs::rename(&new, path)
}

/// Reads the file; no connections if there is none.
///
/// # Errors
/// The file system's, and `InvalidData` for another format.
pub(super) fn read(path: &Path) -> io::Result<Vec<SavedConnection>> {
    let text = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let file: StateFile = serde_json::from_slice(&text)?;
    if file.version != VERSION {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("version {}", file.version)));
    }
    let sne = |(ext, base)| Sne { ext, base };
    let saved = |r: StateRow| SavedConnection {
        cookie: r.cookie,
        peer: r.peer,
        conn: Conn { snd: sne(r.snd), rcv: sne(r.rcv), ..Conn::new(r.local, r.remote, r.lisn, r.risn) },
        current: r.current,
        rnext: r.rnext,
        peer_mss: r.peer_mss,
        vrf: r.vrf,
    };
    Ok(file.connections.into_iter().map(saved).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let folder = std::env::temp_dir().join(format!("sealane-state-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = path(&folder, 7);
        assert_eq!(read(&path).unwrap(), []);
        let mut conn = Conn::new("10.0.0.1:179".parse().unwrap(), "[fe80::1]:40000".parse().unwrap(), 1, u32::MAX);
        conn.snd = Sne { ext: 3, base: 5 };
        let one = SavedConnection {
            cookie: u64::MAX,
            peer: "a \"peer\"".into(),
            conn,
            current: Some(1),
            rnext: None,
            peer_mss: 1460,
            vrf: 7,
        };
        write(&path, &[one.clone(), one.clone()]).unwrap();
        assert_eq!(read(&path).unwrap(), [one.clone(), one]);
        fs::write(&path, r#"{"version":2,"connections":[]}"#).unwrap();
        assert!(read(&path).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
