// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory where kernels, package lists and failure logs are kept.
//!
//! Everything the VM code downloads or leaves behind is below one directory
//! that the caller names, so deleting it undoes everything.

use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::FlockOperation;
use rustix::fs::flock;

/// A cache directory for virtual machines.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Opens the cache at `root` and creates it when it is not there.
    ///
    /// # Errors
    /// The directory cannot be created or its real path cannot be read.
    pub fn open(root: impl AsRef<Path>) -> io::Result<Self> {
        fs::create_dir_all(&root)?;
        // apt wants absolute paths, and a test may change its directory.
        let root = fs::canonicalize(root)?;
        Ok(Self { root })
    }

    /// Where the cache is, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A directory below the root, created when it is not there.
    pub(crate) fn dir(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Keeps other processes out while something is put into the cache.
    ///
    /// The lock goes with the returned file, also when its owner is killed.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let file = File::create(self.root.join("lock"))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_created_and_absolute() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("a/b")).unwrap();
        assert!(store.root().is_absolute() && store.root().is_dir());

        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Store::open(&file).is_err(), "a file is no cache");
    }

    #[test]
    fn a_second_holder_has_to_wait() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let held = store.lock().unwrap();
        let other = File::open(dir.path().join("lock")).unwrap();
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(held);
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}
