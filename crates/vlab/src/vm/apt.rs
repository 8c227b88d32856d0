// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exact Debian packages through a private apt state.
//!
//! # Problem
//! The kernels come from suites that the machine's own sources do not list.
//! Editing `/etc/apt` would change the machine and could upgrade it by
//! accident.
//!
//! # Approach
//! The ordinary apt tools with `APT_CONFIG` pointing at a configuration whose
//! lists, cache and (empty) dpkg status are below the [`Store`]. Signatures are
//! checked against Debian's archive keyring as usual. Packages are downloaded
//! and unpacked, never installed.
//!
//! Rejected: plain downloads by URL, which need a hand-kept table of versions
//! and sums that is wrong after the next security upload.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use thiserror::Error;

use super::Store;
use super::ToolError;

/// Keyring of the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where packages come from: address and suite.
const SOURCES: [(&str, &str); 5] = [
    ("http://deb.debian.org/debian", "bookworm"),
    ("http://deb.debian.org/debian-security", "bookworm-security"),
    ("http://deb.debian.org/debian", "bookworm-backports"),
    ("http://deb.debian.org/debian", "trixie"),
    ("http://deb.debian.org/debian", "trixie-backports"),
];

/// A package could not be found or fetched.
#[derive(Debug, Error)]
pub enum AptError {
    /// The archive keyring is missing: apt could not check signatures.
    #[error("{KEYRING} is missing; fix: apt-get install debian-archive-keyring")]
    NoKeyring,
    /// The package lists could not be fetched.
    #[error(
        "cannot fetch the Debian package lists; fix: check network and proxy, or copy a filled {cache} from another machine"
    )]
    Lists {
        /// The cache that would make the network unnecessary.
        cache: String,
        /// What apt said.
        source: ToolError,
    },
    /// A package could not be downloaded.
    #[error(
        "cannot download {packages}; fix: check network and proxy, or copy a filled {cache} from another machine"
    )]
    Download {
        /// The packages, separated by blanks.
        packages: String,
        /// The cache that would make the network unnecessary.
        cache: String,
        /// What apt said.
        source: ToolError,
    },
    /// A tool is missing or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The cache could not be written.
    #[error("cannot write {path}")]
    Write {
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// apt with lists and cache of its own.
#[derive(Debug)]
pub struct Apt {
    root: PathBuf,
    store: Store,
}

impl Apt {
    /// Writes the private configuration below `store`. No network is used.
    ///
    /// # Errors
    /// The keyring is missing or the cache cannot be written.
    pub fn open(store: &Store) -> Result<Self, AptError> {
        if !Path::new(KEYRING).exists() {
            return Err(AptError::NoKeyring);
        }
        let root = store.root().join("apt");
        let write = |path: PathBuf, text: &str| {
            let made = match path.parent() {
                Some(parent) => fs::create_dir_all(parent),
                None => Ok(()),
            };
            made.and_then(|()| fs::write(&path, text))
                .map_err(|source| AptError::Write { path, source })
        };
        for dir in ["state/lists/partial", "cache/archives/partial"] {
            let path = root.join(dir);
            fs::create_dir_all(&path).map_err(|source| AptError::Write { path, source })?;
        }
        // An empty status: nothing is installed, so no dependency is in the way.
        write(root.join("state/status"), "")?;
        write(root.join("sources.list"), &sources())?;
        write(root.join("apt.conf"), &configuration(&root))?;
        Ok(Self {
            root,
            store: store.clone(),
        })
    }

    /// Fetches the package lists.
    ///
    /// # Errors
    /// No network, or a signature that does not fit.
    pub fn update(&self) -> Result<(), AptError> {
        // Without --error-on=any apt-get update reports success with no network.
        self.output(Command::new("apt-get").args(["update", "-q", "--error-on=any"]))
            .map_err(|source| AptError::Lists {
                cache: self.cache(),
                source,
            })?;
        Ok(())
    }

    /// Names of all packages that match the extended regular expression.
    ///
    /// # Errors
    /// apt-cache is missing or failed.
    pub fn names(&self, pattern: &str) -> Result<Vec<String>, AptError> {
        let out =
            self.output(Command::new("apt-cache").args(["search", "--names-only", pattern]))?;
        Ok(String::from_utf8_lossy(&out)
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect())
    }

    /// Downloads `packages` into `dir` and gives back the files.
    ///
    /// # Errors
    /// No network, or a package that the archive no longer has.
    pub fn download(&self, packages: &[String], dir: &Path) -> Result<Vec<PathBuf>, AptError> {
        let write = |source| AptError::Write {
            path: dir.to_owned(),
            source,
        };
        fs::create_dir_all(dir).map_err(write)?;
        self.output(
            Command::new("apt-get")
                .args(["download", "-q"])
                .args(packages)
                .current_dir(dir),
        )
        .map_err(|source| AptError::Download {
            packages: packages.join(" "),
            cache: self.cache(),
            source,
        })?;
        debs_in(dir)
    }

    /// Downloads `packages` of `release`, and of the other suites what they need,
    /// into `dir` and gives back the files. Nothing of this machine counts as
    /// installed, so they are complete, the C library included.
    ///
    /// # Errors
    /// No network, or a package that the archive does not have.
    pub fn download_with_dependencies(
        &self,
        release: &str,
        packages: &[&str],
        dir: &Path,
    ) -> Result<Vec<PathBuf>, AptError> {
        let partial = dir.join("partial");
        fs::create_dir_all(&partial).map_err(|source| AptError::Write {
            path: partial,
            source,
        })?;
        self.output(
            Command::new("apt-get")
                .args(["install", "-q", "-y", "--download-only"])
                .args(["--no-install-recommends", "-t", release])
                .arg("-o")
                .arg(format!("Dir::Cache::archives={}/", dir.display()))
                .args(packages),
        )
        .map_err(|source| AptError::Download {
            packages: packages.join(" "),
            cache: self.cache(),
            source,
        })?;
        debs_in(dir)
    }

    fn output(&self, command: &mut Command) -> Result<Vec<u8>, ToolError> {
        command.env("APT_CONFIG", self.root.join("apt.conf"));
        command.env("LC_ALL", "C");
        self.store.tool(command, "apt")
    }

    /// For errors.
    fn cache(&self) -> String {
        self.store.root().display().to_string()
    }
}

/// The packages in a directory, in a fixed order.
fn debs_in(dir: &Path) -> Result<Vec<PathBuf>, AptError> {
    let read = |source| AptError::Write {
        path: dir.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension().is_some_and(|ext| ext == "deb") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn sources() -> String {
    SOURCES
        .iter()
        .map(|(uri, suite)| format!("deb [arch=amd64 signed-by={KEYRING}] {uri} {suite} main\n"))
        .collect()
}

fn configuration(root: &Path) -> String {
    let root = root.display();
    // Sandbox::User: the cache of a checkout in /root cannot be entered by _apt.
    format!(
        "Dir::State \"{root}/state\";\n\
         Dir::State::status \"{root}/state/status\";\n\
         Dir::Cache \"{root}/cache\";\n\
         Dir::Etc::sourcelist \"{root}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_checked_against_the_keyring() {
        let text = sources();
        assert_eq!(text.lines().count(), SOURCES.len());
        assert!(
            text.lines()
                .all(|line| line.contains("signed-by=/usr/share"))
        );
    }

    #[test]
    fn nothing_but_the_machines_mirror_settings_is_shared() {
        let text = configuration(Path::new("/x"));
        for key in ["Dir::State ", "Dir::Cache ", "Dir::Etc::sourcelist "] {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap();
            assert!(line.contains("\"/x/"), "{line}");
        }
        assert!(text.contains("Dir::Etc::sourceparts \"/dev/null\""));
    }
}
