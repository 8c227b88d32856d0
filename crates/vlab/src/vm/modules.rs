// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which kernel modules an image needs, in the order in which they load.
//!
//! Reads `modules.dep` and `modules.builtin` (format: kmod's depmod(8)). Each
//! line of the first names a module file and all that it needs, direct or not;
//! the last one named loads first.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use thiserror::Error;

/// The modules of a kernel could not be found out.
#[derive(Debug, Error)]
pub enum ModulesError {
    /// Neither a module of that name nor built in.
    #[error("kernel in {dir} has no module {module}, built in or not")]
    Missing {
        /// Module name as modprobe would take it.
        module: String,
        /// Module directory of the kernel.
        dir: PathBuf,
    },
    /// A list could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The list.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Files to load, in load order, so that all of `wanted` are there.
///
/// Built-in ones need no file and are left out. `dir` is the kernel's module
/// directory; the paths that come back are absolute.
///
/// # Errors
/// A list that cannot be read, or a module that the kernel does not have.
pub fn load_order(dir: &Path, wanted: &[&str]) -> Result<Vec<PathBuf>, ModulesError> {
    let dep = read(&dir.join("modules.dep"))?;
    let builtin = read(&dir.join("modules.builtin"))?;
    let mut order: Vec<PathBuf> = Vec::new();
    for module in wanted {
        let line = dep
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(file, _)| name_of(file) == *module);
        let Some((file, needs)) = line else {
            if builtin.lines().any(|file| name_of(file) == *module) {
                continue;
            }
            return Err(ModulesError::Missing {
                module: (*module).to_owned(),
                dir: dir.to_owned(),
            });
        };
        let in_order = needs.split_whitespace().rev().chain([file]);
        for path in in_order.map(|file| dir.join(file)) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Ok(order)
}

/// Module name of a file: no directory, no `.ko` or `.ko.xz`, `_` for `-`.
pub fn name_of(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    base.split('.').next().unwrap_or(base).replace('-', "_")
}

fn read(path: &Path) -> Result<String, ModulesError> {
    fs::read_to_string(path).map_err(|source| ModulesError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("modules.dep"),
            "kernel/a/ring.ko.xz:\n\
             kernel/a/core.ko.xz: kernel/a/ring.ko.xz\n\
             kernel/b/virtio-disk.ko.xz: kernel/a/core.ko.xz kernel/a/ring.ko.xz\n\
             kernel/b/net.ko.xz: kernel/a/ring.ko.xz\n",
        )
        .unwrap();
        fs::write(dir.path().join("modules.builtin"), "kernel/c/hvc.ko\n").unwrap();
        dir
    }

    fn names(dir: &Path, wanted: &[&str]) -> Vec<String> {
        load_order(dir, wanted)
            .unwrap()
            .iter()
            .map(|path| name_of(&path.to_string_lossy()))
            .collect()
    }

    #[test]
    fn what_a_module_needs_loads_before_it() {
        let dir = kernel();
        assert_eq!(
            names(dir.path(), &["virtio_disk"]),
            ["ring", "core", "virtio_disk"]
        );
    }

    #[test]
    fn a_shared_need_loads_once_and_a_builtin_not_at_all() {
        let dir = kernel();
        assert_eq!(
            names(dir.path(), &["core", "hvc", "net"]),
            ["ring", "core", "net"]
        );
    }

    #[test]
    fn an_absent_module_is_named() {
        let dir = kernel();
        let err = load_order(dir.path(), &["kvm"]).unwrap_err();
        assert!(
            matches!(&err, ModulesError::Missing { module, .. } if module == "kvm"),
            "{err}"
        );
    }
}
