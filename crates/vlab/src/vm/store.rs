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
use std::process::Command;
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::fs::flock;
use rustix::io::Errno;
use units::Ns;

use super::ToolError;
use super::command;
use crate::run::interrupt::Interrupt;

/// How often somebody who waits for the lock looks whether it is free.
const LOOK: Ns = Ns::from_ms(100);

/// A cache directory for virtual machines.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    interrupt: Option<Arc<Interrupt>>,
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
        Ok(Self {
            root,
            interrupt: None,
        })
    }

    /// The same cache; what waits for it or fills it ends when a signal arrives.
    #[must_use]
    pub(crate) fn interruptible(self, interrupt: Arc<Interrupt>) -> Self {
        Self {
            interrupt: Some(interrupt),
            ..self
        }
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
        let Some(interrupt) = &self.interrupt else {
            flock(&file, FlockOperation::LockExclusive)?;
            return Ok(file);
        };
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => interrupt.sleep(LOOK).map_err(io::Error::other)?,
                done => return Ok(done.map(|()| file)?),
            }
        }
    }

    /// Runs a tool that fills the cache; `package` is the Debian package that has it.
    pub(crate) fn tool(
        &self,
        command: &mut Command,
        package: &'static str,
    ) -> Result<Vec<u8>, ToolError> {
        match &self.interrupt {
            None => command::output(command, package),
            Some(interrupt) => command::output_or_interrupt(command, package, interrupt),
        }
    }
}

/// A directory that is being filled beside its place: whatever happens meanwhile leaves
/// nothing half-done that a later run would believe, and an error nothing at all.
#[derive(Debug)]
pub(crate) struct Staged {
    new: PathBuf,
    home: PathBuf,
}

impl Staged {
    /// Begins anew what is to be `home`. The cache is locked meanwhile.
    pub(crate) fn begin(home: &Path) -> io::Result<Self> {
        let mut new = home.as_os_str().to_owned();
        new.push(".new");
        let staged = Self {
            new: PathBuf::from(new),
            home: home.to_owned(),
        };
        // Of somebody who was killed.
        remove(&staged.new)?;
        fs::create_dir_all(&staged.new)?;
        Ok(staged)
    }

    /// Where to fill it.
    pub(crate) fn path(&self) -> &Path {
        &self.new
    }

    /// It is whole: puts it in its place.
    pub(crate) fn finish(self) -> io::Result<()> {
        remove(&self.home)?;
        fs::rename(&self.new, &self.home)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = remove(&self.new);
    }
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
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

    #[test]
    fn what_is_not_finished_leaves_nothing_and_keeps_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("6.12");
        let names = || {
            let entries = fs::read_dir(dir.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let first = Staged::begin(&home).unwrap();
        fs::write(first.path().join("a"), "").unwrap();
        assert_eq!(names(), ["6.12.new"]);
        first.finish().unwrap();
        assert_eq!(names(), ["6.12"]);
        let given_up = Staged::begin(&home).unwrap();
        fs::create_dir(given_up.path().join("debs")).unwrap();
        drop(given_up);
        assert_eq!(names(), ["6.12"]);
        assert!(home.join("a").exists());
        // Somebody was killed.
        fs::create_dir_all(dir.path().join("6.12.new/half")).unwrap();
        let second = Staged::begin(&home).unwrap();
        assert!(!second.path().join("half").exists());
        fs::write(second.path().join("b"), "").unwrap();
        second.finish().unwrap();
        assert!(home.join("b").exists() && !home.join("a").exists());
    }
}
