// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory that stands for `/`, so that every reader can be tested on a tree
//! of one's own.

use std::path::PathBuf;

use guest::act::task::Roots;

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

    /// The same for the daemon's readers.
    pub(crate) fn roots(&self) -> Roots {
        Roots {
            proc: self.path("/proc"),
            sys: self.path("/sys"),
        }
    }
}
