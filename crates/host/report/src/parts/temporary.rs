//! Files and folders that nobody finds after this process, however it ends.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A path at which nothing is: the number in it is random.
fn fresh() -> PathBuf {
    let number = RandomState::new().hash_one(std::process::id());
    std::env::temp_dir().join(format!("sealane-bench-{number:016x}"))
}

/// An error that names a path.
fn at(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

/// A folder that nobody else can enter. It is removed when this is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> io::Result<Self> {
        let path = fresh();
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| at(&path, &e))?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file without a name, for programs that this process starts.
pub(super) struct Nameless(File);

impl Nameless {
    /// The path by which a program opens its standard input anew.
    pub(super) const PATH: &'static str = "/proc/self/fd/0";

    pub(super) fn new(text: &str) -> io::Result<Self> {
        let path = fresh();
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let mut file = made.map_err(|e| at(&path, &e))?;
        fs::remove_file(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(Nameless(file))
    }

    /// Gives it to a program as its standard input. By [`Self::PATH`] the program reads it from its beginning.
    pub(super) fn give(&self, command: &mut Command) -> io::Result<()> {
        command.stdin(Stdio::from(self.0.try_clone()?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_read_a_file_without_a_name_from_its_beginning() {
        let file = Nameless::new("a = 1\n").unwrap();
        for _ in 0..2 {
            let mut command = Command::new("cat");
            file.give(command.arg(Nameless::PATH)).unwrap();
            assert_eq!(command.output().unwrap().stdout, b"a = 1\n");
        }
    }

    #[test]
    fn folders_differ_and_are_removed() {
        let (a, b) = (Folder::new().unwrap(), Folder::new().unwrap());
        assert_ne!(a.path(), b.path());
        fs::write(a.path().join("file"), "").unwrap();
        let path = a.path().to_owned();
        drop(a);
        assert!(!path.exists() && b.path().exists());
    }
}
