// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tree becomes an initramfs: the newc format of `cpio`, uncompressed.
//!
//! The same files give the same bytes, whenever and by whomever the tree was made: what it
//! has of the moment of its making (times, inode numbers, its maker's umask, the order of
//! its directories) is not packed.

use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::Timespec;
use rustix::fs::Timestamps;

use super::ImageError;
use super::command;
use super::image::io_at;

/// Packs `tree` into `to`, everything owned by root and of the same moment.
pub(super) fn pack(tree: &Path, to: &Path) -> Result<(), ImageError> {
    let mut names = String::new();
    list(tree, Path::new(""), &mut names)?;
    for name in names.lines() {
        make_timeless(&tree.join(name))?;
    }
    let list = to.with_extension("list");
    fs::write(&list, names).map_err(io_at(&list))?;
    let input = File::open(&list).map_err(io_at(&list))?;
    let output = File::create(to).map_err(io_at(to))?;
    let done = Command::new("cpio")
        .args(["--quiet", "--reproducible", "-H", "newc", "-R", "0:0", "-o"])
        .current_dir(tree)
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::piped())
        .output()
        .map_err(|err| command::start_error("cpio", "cpio", err))?;
    Ok(command::check("cpio", &done)?)
}

/// Leaves of a file's mode only whether it can be run or entered, and nothing of its times.
fn make_timeless(path: &Path) -> Result<(), ImageError> {
    let meta = fs::symlink_metadata(path).map_err(io_at(path))?;
    if !meta.is_symlink() {
        let runs = meta.is_dir() || meta.permissions().mode() & 0o100 != 0;
        let mode = if runs { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(io_at(path))?;
    }
    let then = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: then,
        last_modification: then,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| io_at(path)(error.into()))
}

/// Appends all paths below `tree/below`, parents first and in a fixed order.
fn list(tree: &Path, below: &Path, names: &mut String) -> Result<(), ImageError> {
    let dir = tree.join(below);
    let mut entries = Vec::new();
    for entry in fs::read_dir(&dir).map_err(io_at(&dir))? {
        let entry = entry.map_err(io_at(&dir))?;
        let is_dir = entry.file_type().map_err(io_at(&dir))?.is_dir();
        entries.push((below.join(entry.file_name()), is_dir));
    }
    entries.sort();
    for (path, is_dir) in entries {
        names.push_str(&path.to_string_lossy());
        names.push('\n');
        if is_dir {
            list(tree, &path, names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_packed_before_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::write(dir.path().join("b/c/d"), "").unwrap();
        fs::write(dir.path().join("a"), "").unwrap();
        let mut names = String::new();
        list(dir.path(), Path::new(""), &mut names).unwrap();
        assert_eq!(names, "a\nb\nb/c\nb/c/d\n");
    }

    /// The same tree, made in another order, at another time, with another umask.
    fn tree(dir: &Path, other: bool) -> Vec<u8> {
        let tree = dir.join(if other { "other" } else { "tree" });
        let mut files = [("bin/sh", 0o755, 0o700), ("etc/x", 0o644, 0o600)];
        if other {
            files.reverse();
        }
        for (name, mode, others) in files {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            let mode = if other { others } else { mode };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH
                + std::time::Duration::from_secs(if other { 1_000 } else { 2_000 });
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(time).unwrap();
        }
        if other {
            fs::set_permissions(tree.join("etc"), fs::Permissions::from_mode(0o700)).unwrap();
        }
        std::os::unix::fs::symlink("sh", tree.join("bin/link")).unwrap();
        let to = dir.join("packed");
        pack(&tree, &to).unwrap();
        fs::read(to).unwrap()
    }

    #[test]
    fn a_tree_of_another_moment_is_packed_to_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let first = tree(dir.path(), false);
        assert!(first == tree(dir.path(), true));
        // What is in it does count.
        fs::write(dir.path().join("tree/etc/x"), "etc/y").unwrap();
        pack(&dir.path().join("tree"), &dir.path().join("packed")).unwrap();
        assert!(first != fs::read(dir.path().join("packed")).unwrap());
    }
}
