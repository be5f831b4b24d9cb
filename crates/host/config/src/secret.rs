//! Secrets of keys, from the configuration itself or from a file that only its owner can read.

use super::section::{At, Mistakes, Section, Span, kind};
use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER_PERMISSIVE};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use toml::de::DeValue;
use zeroize::Zeroizing;

/// The longest master key, in bytes (TCP_AO_MAXKEYLEN).
pub const MAX_KEY_LEN: usize = 80;

/// A function that reads key files. It gets the path as written in the configuration.
pub type ReadKeyFile<'r> = &'r mut dyn FnMut(&Path) -> io::Result<Zeroizing<Vec<u8>>>;

/// The reader of key files, and the position of a secret in the configuration itself, if any.
pub(super) struct KeyFiles<'r> {
    pub(super) read: ReadKeyFile<'r>,
    pub(super) inline: Option<Span>,
}

/// The longest key file in bytes; a secret of 80 bytes as hexadecimal digits with white space fits easily.
const MAX_FILE_LEN: u64 = 4096;

/// The longest name of a key of the keeper's in bytes.
const MAX_NAME_LEN: usize = 64;

/// Reads a file that only its owner can read; the owner must be this user or root. Pipes and other files without
/// meaningful permissions are accepted: they are the responsibility of whoever created them.
///
/// # Errors
/// The kernel's; `PermissionDenied` when others could read or change the file; `InvalidData` when it is over `max`
/// bytes.
pub fn read_private(path: &Path, max: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    check_private(&file)?;
    // Allocated at full size: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(max).unwrap_or(usize::MAX).min(1 << 16) + 1));
    let mut limited = file.take(max + 1);
    let mut chunk = Zeroizing::new([0u8; 4096]);
    loop {
        let n = match limited.read(&mut chunk[..]) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if bytes.len() + n > bytes.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity((bytes.capacity() + n) * 2));
            larger.extend_from_slice(&bytes);
            bytes = larger;
        }
        bytes.extend_from_slice(&chunk[..n]);
    }
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {max} bytes")));
    }
    Ok(bytes)
}

/// Checks that nobody but the owner, who must be this user or root, can read or change `file`.
///
/// # Errors
/// `PermissionDenied`, with the reason; the kernel's.
pub(super) fn check_private(file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Ok(());
    }
    let us = rustix::process::geteuid().as_raw();
    let refuse = |what: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    match meta.mode() & 0o777 {
        mode if mode & 0o077 != 0 => refuse(format!("its mode is {mode:04o}, so that others can use it: make it 0600")),
        _ if meta.uid() != us && meta.uid() != 0 => refuse(format!("it belongs to user {}, not to us", meta.uid())),
        _ => Ok(()),
    }
}

/// Reads the key file `path`, relative to `folder`.
///
/// # Errors
/// As [`read_private`].
pub(super) fn key_file(folder: &Path, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    read_private(&folder.join(path), MAX_FILE_LEN)
}

/// The secret of a key. It has no `Debug`, and is wiped on drop.
pub enum Secret {
    /// Its bytes.
    Bytes(Zeroizing<Vec<u8>>),
    /// A key of `sealane keeper`, which computes with it.
    Kept {
        /// Its name.
        name: String,
        /// Its version; `None` for the newest one of the moment when the configuration is read.
        version: Option<u32>,
    },
}

impl Secret {
    /// Its length in bytes; `None` if it is not here.
    #[must_use]
    pub fn known_len(&self) -> Option<usize> {
        match self {
            Secret::Bytes(bytes) => Some(bytes.len()),
            Secret::Kept { .. } => None,
        }
    }

    /// The name and version of a key of the keeper's.
    #[must_use]
    pub fn kept(&self) -> Option<(&str, Option<u32>)> {
        match self {
            Secret::Bytes(_) => None,
            Secret::Kept { name, version } => Some((name, *version)),
        }
    }
}

/// Reads the setting `secret`: a string, `{ text | hex | base64 = ... }`, `{ file = ..., encoding = ... }`, or
/// `{ keeper = NAME, version = NUMBER }`.
pub(super) fn read(section: &mut Section<'_>, files: &mut KeyFiles<'_>, mistakes: &mut Mistakes<'_>) -> Option<Secret> {
    let Some(at) = section.value("secret") else {
        section.missing("secret", mistakes);
        return None;
    };
    let secret = match at.value {
        DeValue::String(text) => {
            files.inline.get_or_insert(at.span.clone());
            Some(Secret::Bytes(Zeroizing::new(text.as_bytes().to_vec())))
        }
        DeValue::Table(table) => from_table(Section::new(table, at.span.clone()), files, mistakes),
        other => {
            mistakes
                .at(&at.span, format!("a secret is text or a table such as {{ file = \"...\" }}, not {}", kind(other)));
            None
        }
    }?;
    match secret.known_len() {
        Some(0) => mistakes.at(&at.span, "the secret is empty"),
        None | Some(1..=MAX_KEY_LEN) => return Some(secret),
        Some(n) => mistakes.at(&at.span, format!("the secret has {n} bytes; {MAX_KEY_LEN} are the most")),
    }
    None
}

fn from_table(mut section: Section<'_>, files: &mut KeyFiles<'_>, mistakes: &mut Mistakes<'_>) -> Option<Secret> {
    let mut given: Vec<(&str, At<&str>)> = Vec::new();
    for name in ["text", "hex", "base64", "file", "keeper"] {
        given.extend(section.string(name, mistakes).map(|at| (name, at)));
    }
    let encoding = section.string("encoding", mistakes);
    let version = section.integer::<u32>("version", 1..=u32::MAX.into(), mistakes);
    let span = section.span.clone();
    section.finish(mistakes);
    let [(form, at)] = &given[..] else {
        mistakes.at(&span, "a secret has exactly one of text, hex, base64, file and keeper");
        return None;
    };
    if *form == "keeper" {
        if let Some(encoding) = encoding {
            mistakes.at(&encoding.span, "'encoding' goes with 'file'");
        }
        if !is_name(at.value) {
            let name = at.value.escape_default();
            let form = "letters, digits, '.', '_' and '-', of which the first is a letter or a digit";
            mistakes.at(&at.span, format!("'{name}' is no name of a key: {form}; {MAX_NAME_LEN} at most"));
        }
        return Some(Secret::Kept { name: at.value.to_owned(), version: version.map(|at| at.value) });
    }
    if let Some(version) = version {
        mistakes.at(&version.span, "'version' goes with 'keeper'");
    }
    let (bytes, encoding) = if *form == "file" {
        let encoding = encoding.map_or("text", |e| e.value);
        match (files.read)(Path::new(at.value)) {
            Ok(bytes) => (bytes, encoding),
            Err(e) => {
                mistakes.at(&at.span, format!("key file {}: {e}", PathBuf::from(at.value).display()));
                return None;
            }
        }
    } else {
        if let Some(encoding) = encoding {
            mistakes.at(&encoding.span, "'encoding' goes with 'file'");
        }
        files.inline.get_or_insert(at.span.clone());
        (Zeroizing::new(at.value.as_bytes().to_vec()), *form)
    };
    decode(bytes, encoding, *form == "file").map(Secret::Bytes).map_err(|what| mistakes.at(&at.span, what)).ok()
}

/// Whether the keeper takes this for the name of a key.
fn is_name(text: &str) -> bool {
    let all = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && all && text.len() <= MAX_NAME_LEN
}

/// Decodes a secret into the key. A text file may end with a newline, which is not part of the key.
fn decode(written: Zeroizing<Vec<u8>>, encoding: &str, is_file: bool) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut compact = Zeroizing::new(Vec::with_capacity(written.len()));
    compact.extend(written.iter().filter(|b| !b.is_ascii_whitespace()));
    let specification = match encoding {
        "raw" if is_file => return Ok(written),
        "text" => {
            let mut text = written;
            if is_file && text.ends_with(b"\n") {
                text.pop();
                if text.ends_with(b"\r") {
                    text.pop();
                }
            }
            return Ok(text);
        }
        "hex" => HEXLOWER_PERMISSIVE,
        "base64" if compact.ends_with(b"=") => BASE64,
        "base64" => BASE64_NOPAD,
        _ => return Err("'encoding' is \"text\", \"hex\", \"base64\" or \"raw\"".to_owned()),
    };
    let valid = |_| format!("this is not {encoding}");
    let len = specification.decode_len(compact.len()).map_err(valid)?;
    let mut out = Zeroizing::new(vec![0; len]);
    let n = specification.decode_mut(&compact, &mut out).map_err(|_| format!("this is not {encoding}"))?;
    out.truncate(n);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn decoded(written: &str, encoding: &str, is_file: bool) -> Result<Vec<u8>, String> {
        decode(Zeroizing::new(written.as_bytes().to_vec()), encoding, is_file).map(|b| b.to_vec())
    }

    #[test]
    fn secrets_decode() {
        assert_eq!(decoded("abc\n", "text", true), Ok(b"abc".to_vec()));
        assert_eq!(decoded("abc\r\n", "text", true), Ok(b"abc".to_vec()));
        assert_eq!(decoded("abc\n", "text", false), Ok(b"abc\n".to_vec()));
        assert_eq!(decoded("abc\n", "raw", true), Ok(b"abc\n".to_vec()));
        assert!(decoded("abc", "raw", false).is_err());
        assert_eq!(decoded("00 fF\n10\n", "hex", true), Ok(vec![0, 255, 16]));
        assert!(decoded("0", "hex", false).is_err() && decoded("zz", "hex", false).is_err());
        assert_eq!(decoded("AAEC/w==", "base64", false), Ok(vec![0, 1, 2, 255]));
        assert_eq!(decoded("AAEC/w", "base64", false), Ok(vec![0, 1, 2, 255]));
        assert!(decoded("A", "base64", false).is_err() && decoded("!!!!", "base64", false).is_err());
        assert!(decoded("x", "rot13", true).is_err());
    }

    #[test]
    fn files_of_others_are_refused() {
        let folder = std::env::temp_dir().join(format!("sealane-secret-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("key");
        std::fs::write(&path, "secret\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        assert_eq!(*key_file(&folder, Path::new("key")).unwrap(), b"secret\n");
        for open in [0o640, 0o604, 0o620, 0o601] {
            mode(open);
            let e = key_file(&folder, Path::new("key")).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{open:o}");
            assert!(e.to_string().contains(&format!("{open:04o}")), "{e}");
        }
        mode(0o400);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, vec![b'x'; 5000]).unwrap();
        assert_eq!(key_file(&folder, Path::new("key")).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_private(&path, 5000).unwrap().len(), 5000);
        assert_eq!(key_file(&folder, Path::new("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
