// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initramfs of a guest: busybox, modules, given files, one script.
//!
//! # Approach
//! A tree is staged in a temporary directory and packed by `cpio` in the newc
//! format, uncompressed: under TCG the guest would unpack far slower than the
//! host reads. Host programs bring their shared libraries along, as `ldd` lists
//! them. The kernel's own built-in initramfs supplies `/dev/console`, so no
//! device node has to be made and root is not needed.
//!
//! The same inputs give the same bytes (see `pack`).
//!
//! systemd can be the first process instead: [`Builder::systemd`].
//!
//! # Limits
//! The guest's root file system is memory: what is put in counts against the
//! guest's memory.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use thiserror::Error;

use super::Kernel;
use super::ToolError;
use super::command;
use super::modules;
use super::modules::ModulesError;
use super::pack::pack;
use crate::scratch::Scratch;

/// First process of the guest.
const INIT: &str = include_str!("init.sh");

/// What every guest needs for its ports and disks.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_console", "virtio_blk"];

/// Where Debian's busybox-static puts its only file.
const BUSYBOX: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];

/// An image could not be built.
#[derive(Debug, Error)]
pub enum ImageError {
    /// busybox is missing or needs libraries.
    #[error("no static busybox; fix: apt-get install busybox-static")]
    NoBusybox,
    /// A module is not there.
    #[error(transparent)]
    Modules(#[from] ModulesError),
    /// A program of the host needs a library that the host does not have.
    #[error("{binary} needs {library}, which is not installed here")]
    NoLibrary {
        /// The program.
        binary: PathBuf,
        /// Name of the library.
        library: String,
    },
    /// A path inside the guest was not absolute or left the tree.
    #[error("{path} is not an absolute path without ..")]
    GuestPath {
        /// The path that was given.
        path: PathBuf,
    },
    /// A tool is missing or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A file could not be read or written.
    #[error("cannot use {path}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A kernel and its initramfs, ready to boot. The initramfs goes on drop.
#[derive(Debug)]
pub struct Image {
    kernel: Kernel,
    dir: Scratch,
}

impl Image {
    /// Starts an image for `kernel`.
    pub fn builder(kernel: &Kernel) -> Builder {
        Builder {
            kernel: kernel.clone(),
            modules: Vec::new(),
            binaries: Vec::new(),
            files: Vec::new(),
            texts: Vec::new(),
            commands: Vec::new(),
            script: String::new(),
        }
    }

    /// The kernel that boots it.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The initramfs.
    pub fn initramfs(&self) -> PathBuf {
        self.dir.path().join("initramfs")
    }
}

/// What goes into an [`Image`].
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    modules: Vec<String>,
    binaries: Vec<PathBuf>,
    files: Vec<(PathBuf, PathBuf)>,
    texts: Vec<(PathBuf, String)>,
    /// As texts, executable.
    commands: Vec<(PathBuf, String)>,
    script: String,
}

impl Builder {
    /// A further kernel module to load before the script, by name.
    #[must_use]
    pub fn module(mut self, name: &str) -> Self {
        self.modules.push(name.to_owned());
        self
    }

    /// A program of the host; it becomes `/bin/NAME` and brings its libraries.
    #[must_use]
    pub fn binary(mut self, host: impl Into<PathBuf>) -> Self {
        self.binaries.push(host.into());
        self
    }

    /// A file of the host at the absolute path `guest`.
    #[must_use]
    pub fn file(mut self, host: impl Into<PathBuf>, guest: impl Into<PathBuf>) -> Self {
        self.files.push((host.into(), guest.into()));
        self
    }

    /// A file with this text at the absolute path `guest`.
    #[must_use]
    pub fn text(mut self, guest: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        self.texts.push((guest.into(), text.into()));
        self
    }

    /// A command at the absolute path `guest`: `words`, and then the arguments it is given.
    #[must_use]
    pub fn command(mut self, guest: impl Into<PathBuf>, words: &[String]) -> Self {
        let text = format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "));
        self.commands.push((guest.into(), text));
        self
    }

    /// What the guest runs, by `sh`, with its output going to the host.
    #[must_use]
    pub fn script(mut self, text: impl Into<String>) -> Self {
        self.script = text.into();
        self
    }

    /// Builds the image.
    ///
    /// # Errors
    /// A missing tool, module, library or file.
    pub fn build(self) -> Result<Image, ImageError> {
        let dir = Scratch::new().map_err(io_at(&std::env::temp_dir()))?;
        let tree = dir.path().join("tree");
        self.stage_base(&tree)?;
        self.stage_modules(&tree)?;
        for host in &self.binaries {
            stage_binary(&tree, host)?;
        }
        for (host, guest) in &self.files {
            copy(host, &inside(&tree, guest)?)?;
        }
        let texts = self.texts.iter().map(|text| (text, 0o644));
        let commands = self.commands.iter().map(|text| (text, 0o755));
        for ((guest, text), mode) in texts.chain(commands) {
            let path = inside(&tree, guest)?;
            make_parent(&path)?;
            fs::write(&path, text)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
                .map_err(io_at(&path))?;
        }
        pack(&tree, &dir.path().join("initramfs"))?;
        fs::remove_dir_all(&tree).map_err(io_at(&tree))?;
        Ok(Image {
            kernel: self.kernel,
            dir,
        })
    }

    fn stage_base(&self, tree: &Path) -> Result<(), ImageError> {
        let busybox = BUSYBOX
            .iter()
            .map(Path::new)
            .find(|path| path.exists() && libraries(path).is_ok_and(|libs| libs.is_empty()))
            .ok_or(ImageError::NoBusybox)?;
        copy(busybox, &tree.join("bin/busybox"))?;
        let init = tree.join("init");
        fs::write(&init, INIT).map_err(io_at(&init))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(io_at(&init))?;
        let script = tree.join("vlab/script");
        make_parent(&script)?;
        fs::write(&script, &self.script).map_err(io_at(&script))
    }

    fn stage_modules(&self, tree: &Path) -> Result<(), ImageError> {
        let wanted: Vec<&str> = MODULES
            .into_iter()
            .chain(self.modules.iter().map(String::as_str))
            .collect();
        let mut list = String::new();
        for file in modules::load_order(&self.kernel.modules(), &wanted)? {
            let name = format!("{}.ko", modules::name_of(&file.to_string_lossy()));
            let target = tree.join("vlab/modules").join(&name);
            make_parent(&target)?;
            // Unpacked here: not every kernel or insmod can.
            let unpacked = match file.extension().and_then(|ext| ext.to_str()) {
                Some("xz") => {
                    command::output(Command::new("xz").arg("-dc").arg(&file), "xz-utils")?
                }
                Some("zst") => {
                    command::output(Command::new("zstd").arg("-dcq").arg(&file), "zstd")?
                }
                _ => fs::read(&file).map_err(io_at(&file))?,
            };
            fs::write(&target, unpacked).map_err(io_at(&target))?;
            list.push_str(&name);
            list.push('\n');
        }
        let path = tree.join("vlab/modules.list");
        make_parent(&path)?;
        fs::write(&path, list).map_err(io_at(&path))
    }
}

fn stage_binary(tree: &Path, host: &Path) -> Result<(), ImageError> {
    for library in libraries(host)? {
        let target = inside(tree, &library)?;
        if !target.exists() {
            copy(&library, &target)?;
        }
    }
    let name = host.file_name().ok_or_else(|| ImageError::GuestPath {
        path: host.to_owned(),
    })?;
    let target = tree.join("bin").join(name);
    make_parent(&target)?;
    // Debug sections are most of a test build and would fill the guest's memory.
    command::output(
        Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(&target)
            .arg(host),
        "binutils",
    )?;
    Ok(())
}

/// The shared libraries of a program, the loader among them; none if static.
fn libraries(binary: &Path) -> Result<BTreeSet<PathBuf>, ImageError> {
    if !binary.exists() {
        return Err(io_at(binary)(io::Error::from(io::ErrorKind::NotFound)));
    }
    let out = match command::output(
        Command::new("ldd").arg(binary).env("LC_ALL", "C"),
        "libc-bin",
    ) {
        Ok(out) => out,
        // ldd reports a static program as a failure.
        Err(ToolError::Failed { stderr, .. }) if stderr.contains("not a dynamic executable") => {
            return Ok(BTreeSet::new());
        }
        Err(err) => return Err(err.into()),
    };
    parse_ldd(&String::from_utf8_lossy(&out)).map_err(|library| ImageError::NoLibrary {
        binary: binary.to_owned(),
        library,
    })
}

/// Paths in the output of ldd, or the name of the library that was not found.
fn parse_ldd(text: &str) -> Result<BTreeSet<PathBuf>, String> {
    let mut paths = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if let Some((name, _)) = line.split_once(" => not found") {
            return Err(name.to_owned());
        }
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        // Lines without a path are the vDSO, which the kernel brings itself.
        if let Some((path, _)) = place.split_once(" (")
            && path.starts_with('/')
        {
            paths.insert(PathBuf::from(path));
        }
    }
    Ok(paths)
}

/// Place of an absolute guest path in the staged tree.
fn inside(tree: &Path, guest: &Path) -> Result<PathBuf, ImageError> {
    let mut target = tree.to_owned();
    let mut parts = guest.components();
    if parts.next() != Some(std::path::Component::RootDir) {
        return Err(ImageError::GuestPath {
            path: guest.to_owned(),
        });
    }
    for part in parts {
        match part {
            std::path::Component::Normal(name) => target.push(name),
            _ => {
                return Err(ImageError::GuestPath {
                    path: guest.to_owned(),
                });
            }
        }
    }
    Ok(target)
}

fn copy(from: &Path, to: &Path) -> Result<(), ImageError> {
    make_parent(to)?;
    fs::copy(from, to).map_err(io_at(from))?;
    Ok(())
}

fn make_parent(path: &Path) -> Result<(), ImageError> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(io_at(parent)),
        None => Ok(()),
    }
}

pub(super) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> ImageError + use<> {
    let path = path.to_owned();
    move |source| ImageError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::*;

    const LDD: &str = "\tlinux-vdso.so.1 (0x00007ffd)\n\
        \tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f1)\n\
        \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0)\n\
        \t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n";

    #[test]
    fn ldd_gives_libraries_and_loader_but_not_the_vdso() {
        let paths = parse_ldd(LDD).unwrap();
        let names: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib/x86_64-linux-gnu/libelf.so.1",
                "/lib64/ld-linux-x86-64.so.2",
            ]
        );
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        assert_eq!(
            parse_ldd("\tlibfoo.so.3 => not found\n").unwrap_err(),
            "libfoo.so.3"
        );
    }

    /// What a guest would hand to insmod, one parameter per line.
    fn parameters(module: &str, command_line: &str) -> String {
        let from = INIT.find("parameters() {").unwrap();
        let length = INIT[from..].find("\n}\n").unwrap() + 3;
        let function = &INIT[from..from + length];
        let script = format!("{function}echo '{command_line}' | parameters {module}");
        let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&shell.stderr), "");
        String::from_utf8(shell.stdout).unwrap()
    }

    #[test]
    fn a_module_gets_its_parameters_from_the_kernels_command_line() {
        let line = "quiet kvm_amd.npt=0 kvm.tdp_mmu=0  kvm-amd.vgif=0 x=kvm_amd.y kvm_amd.npt=1";
        // The last one counts for the kernel.
        assert_eq!(parameters("kvm_amd", line), "npt=0\nvgif=0\nnpt=1\n");
        assert_eq!(parameters("kvm", line), "tdp_mmu=0\n");
        assert_eq!(parameters("null_blk", line), "");
        assert_eq!(
            parameters("kvm", "kvm.dump_invalid_vmcb"),
            "dump_invalid_vmcb\n"
        );
    }

    #[test]
    fn a_guest_path_cannot_leave_the_tree() {
        let tree = Path::new("/t");
        assert_eq!(
            inside(tree, Path::new("/etc/x")).unwrap(),
            Path::new("/t/etc/x")
        );
        for bad in ["etc/x", "/a/../../x", ""] {
            assert!(inside(tree, Path::new(bad)).is_err(), "{bad}");
        }
    }

    /// A kernel as it lies in the cache, of which only the names are right.
    fn kernel(cache: &Path) -> Kernel {
        let home = cache.join("kernels/6.12");
        let modules = home.join("root/lib/modules/6.12.1-x");
        let mut dep = String::new();
        for module in MODULES {
            let file = modules.join(format!("kernel/{module}.ko"));
            make_parent(&file).unwrap();
            fs::write(file, module).unwrap();
            dep.push_str(&format!("kernel/{module}.ko:\n"));
        }
        fs::write(modules.join("modules.dep"), dep).unwrap();
        fs::write(modules.join("modules.builtin"), "").unwrap();
        fs::create_dir_all(home.join("root/boot")).unwrap();
        fs::write(home.join("root/boot/vmlinuz-6.12.1-x"), "").unwrap();
        fs::write(home.join("release"), "6.12.1-x\n").unwrap();
        Kernel::debian(&Store::open(cache).unwrap(), "6.12").unwrap()
    }

    #[test]
    fn the_same_inputs_give_the_same_initramfs() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = kernel(dir.path());
        let build = |script: &str| {
            let image = Image::builder(&kernel)
                .binary("/bin/ls")
                .file("/bin/cat", "/opt/cat")
                .text("/etc/motd", "hello")
                .script(script);
            image.build().unwrap()
        };
        // All at once: a file that has gone leaves its number to the next one.
        let images = ["uname -r", "uname -r", "uname -a"].map(build);
        let [first, second, other] = images
            .each_ref()
            .map(|image| fs::read(image.initramfs()).unwrap());
        assert!(first == second);
        assert!(first != other);
    }

    #[test]
    fn a_binary_that_does_not_exist_is_an_error_with_its_path() {
        let err = libraries(Path::new("/no/such/program")).unwrap_err();
        assert_eq!(err.to_string(), "cannot use /no/such/program");
    }
}
