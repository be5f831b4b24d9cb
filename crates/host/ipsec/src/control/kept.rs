//! The policies of a network namespace in a file of the runtime folder, from which the next daemon takes them: after a
//! crash, a stop or an upgrade every one of them is in force as before, and only its own removal takes it away.
//!
//! The file has the requests that make the policies again (`XFRM_MSG_NEWPOLICY`, `XFRM_MSG_SETDEFAULT`), and nothing
//! secret. It is replaced as a whole before the rules change, and belongs to one boot. Where it cannot be written it is
//! removed, and the next daemon finds only the rules, which it leaves in place.

use sealane_engine_xfrm::{Now, Xfrm};
use sealane_sys::netns::Netns;
use sealane_sys::presence::boot;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tracing::warn;

const MAGIC: &str = "sealane policies 1";

/// The file of one namespace.
#[derive(Debug)]
pub(crate) struct KeptPolicies {
    path: PathBuf,
    /// Whether the last write failed, which is told once.
    failed: bool,
}

impl KeptPolicies {
    /// The file of this namespace, which need not exist.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn of(folder: &Path, netns: &Netns) -> io::Result<Self> {
        Ok(KeptPolicies { path: folder.join(format!("policies.{}", netns.cookie()?)), failed: false })
    }

    /// Adds the policies in the file to an engine without any. Returns how many; `None` without a file of this boot.
    ///
    /// # Errors
    /// The file system's, `InvalidData` for a file that is damaged or that the engine refuses. The engine may have some
    /// of the policies then.
    pub(crate) fn restore(&self, xfrm: &mut Xfrm, now: Now) -> io::Result<Option<usize>> {
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let Some(requests) = parse(&bytes, &boot())? else { return Ok(None) };
        xfrm.restore_policies(requests, now).map(Some).ok_or_else(|| damaged("a policy is refused"))
    }

    /// Replaces the file. An error is told, and the file removed: it would not say what is in force.
    pub(crate) fn write(&mut self, requests: &[u8]) {
        let done = self.replace(requests);
        if let Err(e) = &done {
            let _ = std::fs::remove_file(&self.path);
            if !self.failed {
                let file = self.path.display();
                warn!(%file, error = %e, "xfrm: {file}: {e}: policies would not survive us, their rules would");
            }
        }
        self.failed = done.is_err();
    }

    fn replace(&self, requests: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let head = format!("{MAGIC}\n{}\n{}\n", boot(), requests.len());
        file.write_all(head.as_bytes())?;
        file.write_all(requests)?;
        std::fs::rename(&new, &self.path)
    }

    /// Removes the file.
    pub(crate) fn remove(&self) {
        // It is no error if the file is gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged: {what}"))
}

/// Returns the requests in a file; `None` for one of another boot.
fn parse<'a>(bytes: &'a [u8], boot: &str) -> io::Result<Option<&'a [u8]>> {
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().ok_or_else(|| damaged("cut short"));
    let (magic, of, len, rest) = (line()?, line()?, line()?, line()?);
    if magic != MAGIC.as_bytes() {
        return Err(damaged("not a file of this version"));
    }
    if core::str::from_utf8(len).ok().and_then(|len| len.parse().ok()) != Some(rest.len()) {
        return Err(damaged("its length"));
    }
    Ok((of == boot.as_bytes()).then_some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written_or_not_at_all() {
        let whole = format!("{MAGIC}\nthis boot\n3\nabc");
        assert_eq!(parse(whole.as_bytes(), "this boot").unwrap(), Some(&b"abc"[..]));
        assert_eq!(parse(whole.as_bytes(), "another").unwrap(), None);
        for len in 0..whole.len() {
            assert!(parse(&whole.as_bytes()[..len], "this boot").is_err(), "the first {len} bytes");
        }
        assert!(parse(format!("{whole}d").as_bytes(), "this boot").is_err(), "more than it says");
        assert!(parse(b"sealane policies 2\nthis boot\n3\nabc", "this boot").is_err(), "another version");
    }
}
