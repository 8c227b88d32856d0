// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory that stands for `/`, so that every reader can be tested on a tree
//! of one's own.

use std::io;
use std::path::Path;
use std::path::PathBuf;

/// Where `/proc` and `/sys` are looked for.
#[derive(Clone, Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// The machine itself is `/`.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// `path` is absolute, as on the real machine.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A file's text without its last line break; `None` if there is none.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = || -> io::Result<Vec<String>> {
            std::fs::read_dir(self.path(path))?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        };
        let mut names = entries().unwrap_or_default();
        names.sort();
        names
    }

    /// The last part of where a symbolic link points.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(
            Path::new(&target)
                .file_name()?
                .to_string_lossy()
                .into_owned(),
        )
    }
}
