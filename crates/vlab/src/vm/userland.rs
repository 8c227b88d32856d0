// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of Debian with everything they need, unpacked and not installed.
//!
//! QEMU of this very version, fio and the rest then run here, on the emulated
//! host and in its guests alike, whatever this machine has installed: by the
//! dynamic loader that came with them. A guest's programs therefore do not
//! depend on the machine that built it.
//!
//! QEMU's version matters: 7.2 (Debian 12) loses guests with several vCPUs while
//! their kernel patches its own code, see docs/lab.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use super::Store;
use super::apt::Apt;
use super::image::Builder;
use super::store::Staged;

/// Where they come from. With QEMU 10.0 an emulated KVM host lost guests; whether
/// 11 loses fewer has not been measured (`--packages` is for that).
pub(crate) const RELEASE: &str = "trixie-backports";

/// A set of packages; apt adds what they depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packages {
    /// Its directory in the cache.
    pub(crate) name: &'static str,
    pub(crate) packages: &'static [&'static str],
}

const QEMU: Packages = Packages {
    name: "qemu",
    packages: &["qemu-system-x86"],
};

/// The emulator that guests run in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    pub(crate) program: String,
    /// Its first arguments.
    pub(crate) first: Vec<String>,
}

impl Qemu {
    /// QEMU 11 of Debian; fetched into the cache when it is not there.
    ///
    /// # Errors
    /// It cannot be fetched or unpacked.
    pub fn debian(store: &Store) -> anyhow::Result<Self> {
        let userland = Userland::open(store, RELEASE, QEMU)?;
        let mut words = userland.qemu_here();
        let program = words.remove(0);
        Ok(Self {
            program,
            first: words,
        })
    }
}

impl Qemu {
    /// Words that run QEMU in an image that has it, see [`Builder::qemu`].
    #[must_use]
    pub fn inside() -> String {
        Userland::qemu_inside().join(" ")
    }
}

impl Builder {
    /// The same QEMU, for guests of the guest's own; [`Qemu::inside`] runs it.
    ///
    /// # Errors
    /// It cannot be fetched or unpacked.
    pub fn qemu(self, store: &Store) -> anyhow::Result<Self> {
        self.qemu_of(&Userland::open(store, RELEASE, QEMU)?)
    }

    /// QEMU of this tree with its firmware.
    pub(crate) fn qemu_of(mut self, userland: &Userland) -> anyhow::Result<Self> {
        let files = userland.files(&["qemu-system-x86_64"])?;
        for (here, inside) in files.into_iter().chain(userland.firmware()) {
            self = self.file(here, inside);
        }
        Ok(self)
    }
}

/// Directories with libraries, below the root.
const LIBRARIES: [&str; 4] = [
    "usr/lib/x86_64-linux-gnu",
    "lib/x86_64-linux-gnu",
    // Outside the loader's usual path: what librados, a library of fio, needs.
    "usr/lib/x86_64-linux-gnu/ceph",
    "usr/lib/x86_64-linux-gnu/pulseaudio",
];

/// Where it is in the guests and on the emulated host.
const INSIDE: &str = "/debian";

/// An unpacked tree of packages.
#[derive(Debug, Clone)]
pub(crate) struct Userland {
    root: PathBuf,
}

impl Userland {
    /// The tree in the cache; fetched and unpacked when it is not there.
    pub(crate) fn open(store: &Store, release: &str, set: Packages) -> anyhow::Result<Self> {
        let Packages { name, packages } = set;
        let home = store
            .root()
            .join("userland")
            .join(format!("{release}-{name}"));
        let stamp = home.join("packages");
        let wanted = format!("{release} {}\n", packages.join(" "));
        let _lock = store.lock().context("cannot lock the cache")?;
        if fs::read_to_string(&stamp).unwrap_or_default() != wanted {
            let new = Staged::begin(&home)
                .with_context(|| format!("cannot make {}.new", home.display()))?;
            let (debs, root) = (new.path().join("debs"), new.path().join("root"));
            fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
            let apt = Apt::open(store)?;
            apt.update()?;
            for deb in apt.download_with_dependencies(release, packages, &debs)? {
                super::unpack(store, &deb, &root)?;
            }
            fs::remove_dir_all(&debs)?;
            fs::write(new.path().join("packages"), wanted)?;
            new.finish()
                .with_context(|| format!("cannot use {}", home.display()))?;
        }
        Ok(Self {
            root: home.join("root"),
        })
    }

    fn loader(&self) -> PathBuf {
        // Older releases have it in /lib64.
        let new = self.root.join("usr/lib64/ld-linux-x86-64.so.2");
        if new.exists() {
            new
        } else {
            self.root.join("lib64/ld-linux-x86-64.so.2")
        }
    }

    fn library_path(&self) -> String {
        LIBRARIES
            .map(|dir| self.root.join(dir).display().to_string())
            .join(":")
    }

    /// Words that run a program of the tree on this machine.
    pub(crate) fn here(&self, program: &str) -> Vec<String> {
        vec![
            self.loader().display().to_string(),
            "--library-path".to_owned(),
            self.library_path(),
            self.root.join(program).display().to_string(),
        ]
    }

    /// Words that run QEMU on this machine, with its firmware.
    pub(crate) fn qemu_here(&self) -> Vec<String> {
        let mut words = self.here("usr/bin/qemu-system-x86_64");
        for dir in ["usr/share/seabios", "usr/share/qemu"] {
            words.extend(["-L".to_owned(), self.root.join(dir).display().to_string()]);
        }
        words
    }

    /// Words that run QEMU inside, with its firmware.
    pub(crate) fn qemu_inside() -> Vec<String> {
        let mut words = inside("qemu-system-x86_64");
        words.extend(["-L".to_owned(), format!("{INSIDE}/share")]);
        words
    }

    /// Files of programs with their libraries: on this machine, and inside.
    pub(crate) fn files(&self, programs: &[&str]) -> anyhow::Result<BTreeMap<PathBuf, PathBuf>> {
        let mut files = BTreeMap::new();
        for program in programs {
            let dirs = ["usr/bin", "usr/sbin"].map(|dir| self.root.join(dir).join(program));
            let [first, second] = dirs;
            let path = if first.exists() { first } else { second };
            self.add(&path, &place("bin", &path), &mut files)?;
        }
        Ok(files)
    }

    /// A library that a program loads by its name, at the path that it has in Debian.
    pub(crate) fn plugin(&self, path: &str) -> anyhow::Result<BTreeMap<PathBuf, PathBuf>> {
        let mut files = BTreeMap::new();
        self.add(
            &self.root.join(path),
            &Path::new("/").join(path),
            &mut files,
        )?;
        Ok(files)
    }

    /// The files of a directory, at the paths that they have in Debian.
    pub(crate) fn data(&self, dir: &str) -> anyhow::Result<BTreeMap<PathBuf, PathBuf>> {
        let here = self.root.join(dir);
        let read = || format!("cannot read {}", here.display());
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&here).with_context(read)? {
            let entry = entry.with_context(read)?;
            let inside = Path::new("/").join(dir).join(entry.file_name());
            files.insert(entry.path(), inside);
        }
        Ok(files)
    }

    /// A file with its libraries and their loader.
    fn add(
        &self,
        path: &Path,
        inside: &Path,
        files: &mut BTreeMap<PathBuf, PathBuf>,
    ) -> anyhow::Result<()> {
        for library in self.libraries(path)? {
            let inside = place("lib", &library);
            files.insert(library, inside);
        }
        files.insert(path.to_owned(), inside.to_owned());
        // Last: it is among the libraries too.
        files.insert(self.loader(), PathBuf::from(format!("{INSIDE}/loader")));
        Ok(())
    }

    /// QEMU's firmware: on this machine, and inside.
    fn firmware(&self) -> Vec<(PathBuf, PathBuf)> {
        [
            "usr/share/seabios/bios-256k.bin",
            "usr/share/qemu/kvmvapic.bin",
            "usr/share/qemu/linuxboot_dma.bin",
        ]
        .iter()
        .map(|file| {
            let name = Path::new(file).file_name().unwrap_or_default();
            (
                self.root.join(file),
                Path::new(INSIDE).join("share").join(name),
            )
        })
        .collect()
    }

    fn libraries(&self, program: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let done = Command::new(self.loader())
            .args(["--library-path", &self.library_path(), "--list"])
            .arg(program)
            .env("LC_ALL", "C")
            .output()
            .with_context(|| format!("cannot run {}", self.loader().display()))?;
        anyhow::ensure!(
            done.status.success(),
            "{} lacks a library: {}; fix: delete {} and run again",
            program.display(),
            String::from_utf8_lossy(&done.stderr).trim(),
            self.root.display()
        );
        // "name => path (address)"; the loader has no arrow.
        let text = String::from_utf8_lossy(&done.stdout);
        Ok(text
            .lines()
            .filter_map(|line| line.split_once(" => ")?.1.split_once(" ("))
            .map(|(path, _)| PathBuf::from(path))
            // One of this machine would be of another version.
            .filter(|path| path.starts_with(&self.root))
            .collect())
    }
}

/// Where a file is inside, by its kind.
fn place(kind: &str, path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    Path::new(INSIDE).join(kind).join(name)
}

/// Words that run a program inside.
pub(crate) fn inside(program: &str) -> Vec<String> {
    vec![
        format!("{INSIDE}/loader"),
        "--library-path".to_owned(),
        format!("{INSIDE}/lib"),
        format!("{INSIDE}/bin/{program}"),
    ]
}
