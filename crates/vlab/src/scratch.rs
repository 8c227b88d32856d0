// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Temporary directories that do not outlive their owner for long.
//!
//! A directory is removed when its [`Scratch`] goes. After SIGKILL nobody is left
//! to do that, so whoever makes the next one removes those whose owner is dead.
//! Who lives is decided by a lock on the directory, which the kernel drops with
//! its owner. Rejected: the owner's pid in the name, because a number can be in
//! use again, and means nothing in another container that shares `/tmp`; and
//! files without a name (`O_TMPFILE`), because QEMU and fio want paths.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::fs::flock;
use tempfile::TempDir;

/// No user would call a directory that.
const PREFIX: &str = "vlab-scratch-";

/// More collisions with somebody who cleans up than this are no coincidence.
const TRIES: u32 = 64;

/// A temporary directory.
#[derive(Debug)]
pub(crate) struct Scratch {
    // In this order: removed while still locked.
    dir: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes one in the directory for temporary files, and removes those whose
    /// owners were killed.
    ///
    /// # Errors
    /// If it cannot be made. What cannot be removed stays.
    pub(crate) fn new() -> io::Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        for _ in 0..TRIES {
            let dir = TempDir::with_prefix_in(PREFIX, parent)?;
            // Until it is locked it looks like one without an owner.
            let lock = match open(dir.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            flock(&lock, FlockOperation::LockExclusive)?;
            if is_at(&lock, dir.path()) {
                return Ok(Self { dir, _lock: lock });
            }
        }
        Err(io::Error::other(format!(
            "somebody keeps removing {}/{PREFIX}*",
            parent.display()
        )))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes our directories below `parent` that nobody has locked.
fn sweep(parent: &Path) {
    let me = rustix::process::geteuid().as_raw();
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let Ok(dir) = open(&path) else {
            continue;
        };
        let ours = dir.metadata().is_ok_and(|dir| dir.uid() == me);
        if ours
            && flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_at(&dir, &path)
        {
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::debug!(path = %path.display(), "removed: its owner is gone"),
                Err(error) => tracing::debug!(path = %path.display(), %error, "not removed"),
            }
        }
    }
}

/// A directory, and not what a link with its name leads to.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
}

/// Is this still the directory with that name?
fn is_at(dir: &File, path: &Path) -> bool {
    match (dir.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_its_owner() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::below(parent.path()).unwrap();
        fs::write(scratch.path().join("file"), "x").unwrap();
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn the_next_one_removes_what_the_dead_left_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let living = Scratch::below(parent.path()).unwrap();
        let left = parent.path().join(format!("{PREFIX}dead"));
        fs::create_dir_all(left.join("deep")).unwrap();
        fs::write(left.join("deep/file"), "x").unwrap();
        let others = parent.path().join("vlab-results");
        fs::create_dir(&others).unwrap();
        let file = parent.path().join(format!("{PREFIX}file"));
        fs::write(&file, "x").unwrap();
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&others, &link).unwrap();

        let next = Scratch::below(parent.path()).unwrap();
        assert!(!left.exists());
        for stays in [living.path(), next.path(), &others, &file, &link] {
            assert!(stays.exists(), "{}", stays.display());
        }
    }

    #[test]
    fn many_at_once_do_not_remove_each_others() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let scratch = Scratch::below(parent.path()).unwrap();
                        fs::write(scratch.path().join("file"), "x").unwrap();
                        assert!(scratch.path().join("file").exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
