// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which Debian kernels there are, and how one gets into the cache.
//!
//! `docs/kernel-policy.md` says why these series and until when. A series is
//! resolved to the newest package of it when it is first fetched, and stays at
//! that release until the cache is deleted: a test must not change its kernel
//! between two runs.
//!
//! Packages are unpacked with `dpkg-deb -x`. Nothing is installed: an installed
//! kernel would appear in this machine's boot menu.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use thiserror::Error;

use super::Store;
use super::ToolError;
use super::apt::Apt;
use super::apt::AptError;
use super::store::Staged;

/// The kernel series of the test matrix, oldest first.
pub const SERIES: [&str; 3] = ["6.1", "6.12", "7.3"];

/// Those with sched_ext that the archive still has whole, oldest first: series, and builds of
/// the newest one for other machines (all drivers, real time).
pub const SCHED_EXT: [&str; 5] = ["6.18", "7.2", "7.3", "7.3-amd64", "7.3-rt"];

/// How Debian cuts a kernel into packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// One package `linux-image-RELEASE` with everything.
    Image,
    /// `linux-binary-`, `linux-modules-` and `linux-base-RELEASE` (from 7.2 on).
    Split,
}

/// One row of the kernel matrix.
#[derive(Debug, Clone, Copy)]
struct Series {
    /// Name of the row.
    name: &'static str,
    /// Extended regular expression that the release must match as a whole.
    release: &'static str,
    layout: Layout,
}

/// Those of [`SERIES`], then the other ones of [`SCHED_EXT`].
const TABLE: [Series; 7] = [
    Series {
        name: "6.1",
        release: r"6\.1\.0-[0-9]+-cloud-amd64",
        layout: Layout::Image,
    },
    Series {
        name: "6.12",
        release: r"6\.12\.[0-9]+\+deb12(\.[0-9]+)?-cloud-amd64",
        layout: Layout::Image,
    },
    Series {
        name: "7.3",
        release: r"7\.3\.[0-9]+\+deb13(\.[0-9]+)?-cloud-amd64",
        layout: Layout::Split,
    },
    Series {
        name: "6.18",
        release: r"6\.18\.[0-9]+\+deb13(\.[0-9]+)?-cloud-amd64",
        layout: Layout::Image,
    },
    Series {
        name: "7.2",
        release: r"7\.2\.[0-9]+\+deb13(\.[0-9]+)?-cloud-amd64",
        layout: Layout::Split,
    },
    Series {
        name: "7.3-amd64",
        release: r"7\.3\.[0-9]+\+deb13(\.[0-9]+)?-amd64",
        layout: Layout::Split,
    },
    Series {
        name: "7.3-rt",
        release: r"7\.3\.[0-9]+\+deb13(\.[0-9]+)?-rt-amd64",
        layout: Layout::Split,
    },
];

/// The values of an option that names a series.
pub(crate) fn names() -> clap::builder::PossibleValuesParser {
    TABLE.map(|row| row.name).into()
}

/// A kernel could not be had.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The series is not in the table.
    #[error("no kernel series {series}; there are {}", TABLE.map(|row| row.name).join(", "))]
    UnknownSeries {
        /// What was asked for.
        series: String,
    },
    /// The archive has no package of that series any more.
    #[error(
        "the Debian archive has no package for kernel {series} any more (pattern {pattern}); fix: update the table in vm/kernels.rs and docs/kernel-policy.md"
    )]
    Gone {
        /// Series that was asked for.
        series: &'static str,
        /// Package name pattern that matched nothing.
        pattern: String,
    },
    /// A package does not have the files that a kernel needs.
    #[error("package of kernel {release} has no {missing}")]
    Incomplete {
        /// Release that was unpacked.
        release: String,
        /// Path that was expected.
        missing: PathBuf,
    },
    /// Package lists or packages could not be fetched.
    #[error("kernel {series} is not in the cache and cannot be fetched")]
    Fetch {
        /// Series that was asked for.
        series: &'static str,
        /// What apt said.
        source: Box<AptError>,
    },
    /// A tool is missing or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The cache could not be read or written.
    #[error("cannot use {path}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A kernel that is unpacked in the cache.
#[derive(Debug, Clone)]
pub struct Kernel {
    series: &'static str,
    release: String,
    root: PathBuf,
}

impl Kernel {
    /// The newest Debian kernel of `series`, from the cache if it is there.
    ///
    /// # Errors
    /// An unknown series, no network on the first call, a tool that is missing.
    pub fn debian(store: &Store, series: &str) -> Result<Self, KernelError> {
        let row = TABLE.iter().find(|row| row.name == series).ok_or_else(|| {
            KernelError::UnknownSeries {
                series: series.to_owned(),
            }
        })?;
        let home = store.dir("kernels").map_err(|source| KernelError::Io {
            path: store.root().join("kernels"),
            source,
        })?;
        let home = home.join(row.name);
        let _lock = store.lock().map_err(io_at(store.root()))?;
        if !home.join("release").exists() {
            fetch(store, row, &home)?;
        }
        let release = fs::read_to_string(home.join("release")).map_err(io_at(&home))?;
        let kernel = Self {
            series: row.name,
            release: release.trim().to_owned(),
            root: home.join("root"),
        };
        for missing in [kernel.vmlinuz(), kernel.modules().join("modules.dep")] {
            if !missing.exists() {
                return Err(KernelError::Incomplete {
                    release: kernel.release,
                    missing,
                });
            }
        }
        Ok(kernel)
    }

    /// The row of the matrix, such as `6.12`.
    pub fn series(&self) -> &'static str {
        self.series
    }

    /// What `uname -r` says under this kernel.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The image that QEMU boots.
    pub fn vmlinuz(&self) -> PathBuf {
        let in_boot = self.root.join(format!("boot/vmlinuz-{}", self.release));
        if in_boot.exists() {
            in_boot
        } else {
            self.modules().join("vmlinuz")
        }
    }

    /// The directory with the modules and `modules.dep`.
    pub fn modules(&self) -> PathBuf {
        self.root.join("lib/modules").join(&self.release)
    }
}

/// Downloads and unpacks the newest kernel of `row` into `home`, all or nothing.
fn fetch(store: &Store, row: &Series, home: &Path) -> Result<(), KernelError> {
    let apt_error = |source| KernelError::Fetch {
        series: row.name,
        source: Box::new(source),
    };
    let apt = Apt::open(store).map_err(apt_error)?;
    apt.update().map_err(apt_error)?;
    let prefix = match row.layout {
        Layout::Image => "linux-image-",
        Layout::Split => "linux-binary-",
    };
    let pattern = format!("^{prefix}{}$", row.release);
    let names = apt.names(&pattern).map_err(apt_error)?;
    let release = newest(names.iter().filter_map(|name| name.strip_prefix(prefix)))
        .ok_or(KernelError::Gone {
            series: row.name,
            pattern,
        })?
        .to_owned();

    let new = Staged::begin(home).map_err(io_at(home))?;
    let debs = new.path().join("debs");
    let root = new.path().join("root");
    let files = apt
        .download(&packages(row.layout, &release), &debs)
        .map_err(apt_error)?;
    fs::create_dir_all(&root).map_err(io_at(&root))?;
    for file in files {
        unpack(store, &file, &root)?;
    }
    fs::remove_dir_all(&debs).map_err(io_at(&debs))?;
    index(store, &root, &release)?;
    fs::write(new.path().join("release"), &release).map_err(io_at(new.path()))?;
    new.finish().map_err(io_at(home))
}

/// Unpacks a package below `root`, without any of its scripts.
pub(crate) fn unpack(store: &Store, package: &Path, root: &Path) -> Result<(), ToolError> {
    store.tool(
        Command::new("dpkg-deb").arg("-x").arg(package).arg(root),
        "dpkg",
    )?;
    Ok(())
}

/// Writes `modules.dep`, which Debian's packages leave to their installation.
fn index(store: &Store, root: &Path, release: &str) -> Result<(), KernelError> {
    let lib = root.join("lib");
    if !lib.exists() {
        // depmod looks below lib/modules only; newer packages use usr/lib.
        std::os::unix::fs::symlink("usr/lib", &lib).map_err(io_at(&lib))?;
    }
    // By path: /sbin is not on every user's PATH.
    store.tool(
        Command::new("/sbin/depmod")
            .arg("-b")
            .arg(root)
            .arg(release),
        "kmod",
    )?;
    Ok(())
}

fn packages(layout: Layout, release: &str) -> Vec<String> {
    let prefixes: &[&str] = match layout {
        Layout::Image => &["linux-image-"],
        Layout::Split => &["linux-binary-", "linux-modules-", "linux-base-"],
    };
    prefixes
        .iter()
        .map(|prefix| format!("{prefix}{release}"))
        .collect()
}

/// The newest of several releases: the numbers in the name decide, in order.
fn newest<'a>(releases: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    releases.max_by_key(|release| {
        release
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|digits| digits.parse::<u64>().ok())
            .collect::<Vec<_>>()
    })
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> KernelError + use<> {
    let path = path.to_owned();
    move |source| KernelError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_lists_are_the_table() {
        let mut listed = SERIES.to_vec();
        listed.extend(SCHED_EXT.iter().filter(|name| !SERIES.contains(name)));
        assert_eq!(listed, TABLE.map(|row| row.name).to_vec());
    }

    #[test]
    fn an_unknown_series_lists_the_known_ones() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let err = Kernel::debian(&store, "5.10").unwrap_err();
        assert_eq!(
            err.to_string(),
            "no kernel series 5.10; there are 6.1, 6.12, 7.3, 6.18, 7.2, 7.3-amd64, 7.3-rt"
        );
    }

    #[test]
    fn releases_are_ordered_by_number_and_not_by_letter() {
        let all = [
            "6.12.9+deb12-cloud-amd64",
            "6.12.117+deb12-cloud-amd64",
            "6.12.90+deb12.1-cloud-amd64",
        ];
        assert_eq!(newest(all.into_iter()), Some("6.12.117+deb12-cloud-amd64"));
        assert_eq!(newest(std::iter::empty()), None);
    }

    #[test]
    fn a_split_kernel_needs_three_packages_of_one_release() {
        let names = packages(Layout::Split, "7.3.4+deb13-cloud-amd64");
        assert_eq!(names.len(), 3);
        assert!(
            names
                .iter()
                .all(|name| name.ends_with("-7.3.4+deb13-cloud-amd64"))
        );
    }

    /// A kernel as it lies in the cache, without its packages.
    fn cached(dir: &Path) -> Store {
        let store = Store::open(dir).unwrap();
        let home = dir.join("kernels/6.12");
        fs::create_dir_all(home.join("root/boot")).unwrap();
        fs::create_dir_all(home.join("root/lib/modules/6.12.1-x")).unwrap();
        fs::write(home.join("release"), "6.12.1-x\n").unwrap();
        fs::write(home.join("root/boot/vmlinuz-6.12.1-x"), "").unwrap();
        store
    }

    #[test]
    fn a_cached_kernel_needs_no_network() {
        let dir = tempfile::tempdir().unwrap();
        let store = cached(dir.path());
        fs::write(
            dir.path()
                .join("kernels/6.12/root/lib/modules/6.12.1-x/modules.dep"),
            "",
        )
        .unwrap();
        let kernel = Kernel::debian(&store, "6.12").unwrap();
        assert_eq!((kernel.series(), kernel.release()), ("6.12", "6.12.1-x"));
        assert!(!dir.path().join("apt").exists());
    }

    #[test]
    fn a_damaged_cache_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let err = Kernel::debian(&cached(dir.path()), "6.12").unwrap_err();
        assert!(
            matches!(&err, KernelError::Incomplete { missing, .. } if missing.ends_with("modules.dep")),
            "{err}"
        );
    }
}
