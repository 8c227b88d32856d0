// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal's file: its lock, its header, its space, its mapping.

use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

use super::record::WORDS;
use super::record::checksum;
use crate::act::task::Roots;

/// Why the journal cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is none.
    #[error("there is no journal {path}")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another process owns it.
    #[error(
        "journal {path} is in use by process {pid}: another daemon is running; stop it first \
         (systemctl stop vmigrater, or kill {pid})"
    )]
    Owned {
        /// The file.
        path: PathBuf,
        /// Its owner.
        pid: u64,
    },
    /// There is no room for it.
    #[error("no room for journal {path}: {bytes} bytes are needed; free some space there")]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file is something else, or of a version that we do not know.
    #[error(
        "{path} is not a journal of this version; let the version that wrote it restore the \
         tasks (vmigrater restore), then remove the file"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The machine does not say which boot this is.
    #[error("cannot read the boot id below {path}: {source}; mount /proc")]
    BootId {
        /// The root of the proc file system.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {action} journal {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// "vmigrjnl", read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"vmigrjnl");
/// Of the layout; changes with any word's meaning.
const FORMAT: u64 = 1;
/// Bytes before the first slot: one page, so that slots lie on their own.
const HEADER_BYTES: u64 = 4096;
const HEADER_WORDS: usize = HEADER_BYTES as usize / 8;
const SLOT_BYTES: u64 = WORDS as u64 * 8;

/// Header words: magic, format, boot id (two), slots, checksum of these, owner.
const CHECKED: usize = 5;
const OWNER: usize = 6;

/// The file, locked and mapped.
#[derive(Debug)]
pub(super) struct Map {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
    words: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the mapping stays where it is until drop, and is only reached as
// atomics.
unsafe impl Send for Map {}
// SAFETY: likewise.
unsafe impl Sync for Map {}

impl Map {
    /// Opens it, creates it if a capacity is given, drops what is of another boot.
    pub(super) fn open(
        path: &Path,
        roots: &Roots,
        capacity: Option<u32>,
    ) -> Result<Self, JournalError> {
        let io_error = |action, source| JournalError::Io {
            action,
            path: path.to_owned(),
            source,
        };
        let boot = boot_id(roots)?;
        let file = open_locked(path, capacity.is_some())?;
        let found = read_header(&file, path)?.filter(|header| header[2..4] == boot);
        let length = file.metadata().map_err(|e| io_error("look at", e))?.len();
        // A file with entries keeps its size: rewriting a header that counts
        // would be a moment in which a kill loses them.
        let slots = found
            .map(|header| header[4])
            .or(capacity.map(|n| u64::from(n.max(1))));
        let Some(slots) = slots else {
            // Of another boot, or never finished: nothing in it is of use.
            let _ = std::fs::remove_file(path);
            return Err(JournalError::Missing {
                path: path.to_owned(),
            });
        };
        if found.is_none() && length > 0 {
            file.set_len(0).map_err(|e| io_error("empty", e))?;
        }
        let bytes = HEADER_BYTES + slots * SLOT_BYTES;
        allocate(&file, bytes).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                if found.is_none() {
                    let _ = std::fs::remove_file(path);
                }
                JournalError::NoSpace {
                    path: path.to_owned(),
                    bytes,
                }
            }
            _ => io_error("allocate", source),
        })?;
        let len = usize::try_from(bytes / 8)
            .map_err(|e| io_error("map", io::Error::new(io::ErrorKind::OutOfMemory, e)))?;
        // SAFETY: a new shared mapping of a file that has just been extended
        // to this length; nobody shortens it, for we hold its lock and the
        // directory is the superuser's.
        let words = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len * 8,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file.as_fd(),
                0,
            )
        }
        .map_err(|e| io_error("map", e.into()))?;
        let words = NonNull::new(words.cast())
            .ok_or_else(|| io_error("map", io::Error::other("mapped at zero")))?;
        let map = Self {
            path: path.to_owned(),
            _file: file,
            words,
            len,
        };
        map.own(found.is_none().then_some((boot, slots)));
        Ok(map)
    }

    /// Says who owns it, and what it is if it is new.
    fn own(&self, new: Option<([u64; 2], u64)>) {
        let words = self.all();
        words[OWNER].store(u64::from(std::process::id()), Ordering::Relaxed);
        if let Some((boot, slots)) = new {
            let header = [MAGIC, FORMAT, boot[0], boot[1], slots];
            for (word, value) in words.iter().zip(header) {
                word.store(value, Ordering::Relaxed);
            }
            words[CHECKED].store(checksum(&header), Ordering::Release);
        }
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: `words` is the start of a mapping of `len` words that lives
        // as long as `self`; memory shared with other processes is reached
        // through atomics only.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }

    /// All slots, one after the other.
    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.all()[HEADER_WORDS..]
    }

    /// One slot.
    pub(super) fn slot(&self, index: usize) -> &[AtomicU64] {
        &self.words()[index * WORDS..(index + 1) * WORDS]
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.words().len() / WORDS
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the file's name away.
    pub(super) fn unlink(&self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "journal not removed");
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `open`, and nothing borrows it
        // any more. The result does not matter: the process is about to let go.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), self.len * 8) };
    }
}

fn boot_id(roots: &Roots) -> Result<[u64; 2], JournalError> {
    roots.boot_id().map_err(|source| JournalError::BootId {
        path: roots.proc.clone(),
        source,
    })
}

/// Opens and locks the file that has this name when the lock is ours: its
/// former owner may remove the name while we wait for nothing but the open.
fn open_locked(path: &Path, create: bool) -> Result<File, JournalError> {
    let io_error = |action, source| JournalError::Io {
        action,
        path: path.to_owned(),
        source,
    };
    if let Some(parent) = path.parent().filter(|_| create) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)
            .map_err(|e| io_error("make the directory of", e))?;
    }
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => JournalError::Missing {
                    path: path.to_owned(),
                },
                _ => io_error("open", source),
            })?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = read_header(&file, path)
                    .ok()
                    .flatten()
                    .map_or(0, |h| h[OWNER]);
                return Err(JournalError::Owned {
                    path: path.to_owned(),
                    pid,
                });
            }
            Err(error) => return Err(io_error("lock", error.into())),
        }
        let ours = file.metadata().map_err(|e| io_error("look at", e))?;
        if !ours.is_file() {
            return Err(JournalError::Foreign {
                path: path.to_owned(),
            });
        }
        match std::fs::metadata(path) {
            Ok(named) if named.ino() == ours.ino() && named.dev() == ours.dev() => {
                return Ok(file);
            }
            _ => {}
        }
    }
}

/// The header, if it is whole. `None` if the file was never finished: the
/// checksum is written before the first slot is. Anything that is not ours is
/// an error: a mistyped path must not cost a user a file.
fn read_header(file: &File, path: &Path) -> Result<Option<[u64; HEADER_WORDS]>, JournalError> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(source) => {
                return Err(JournalError::Io {
                    action: "read",
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
    let mut header = [0; HEADER_WORDS];
    for (word, bytes) in header.iter_mut().zip(words_of(&bytes)) {
        *word = bytes;
    }
    // The magic word is stored first and the checksum last.
    if (header[0] == 0 || header[0] == MAGIC) && header[CHECKED] == 0 {
        return Ok(None);
    }
    let whole = length == bytes.len()
        && header[0] == MAGIC
        && header[1] == FORMAT
        && header[CHECKED] == checksum(&header[..CHECKED]);
    if whole {
        Ok(Some(header))
    } else {
        Err(JournalError::Foreign {
            path: path.to_owned(),
        })
    }
}

/// All slots of a file that may belong to another process.
pub(super) fn read_slots(path: &Path, roots: &Roots) -> Result<Vec<u64>, JournalError> {
    let io_error = |action, source| JournalError::Io {
        action,
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("open", error)),
    };
    let boot = boot_id(roots)?;
    if read_header(&file, path)?.is_none_or(|header| header[2..4] != boot) {
        return Ok(Vec::new());
    }
    let length = file.metadata().map_err(|e| io_error("look at", e))?.len();
    let mut bytes = vec![0; usize::try_from(length - HEADER_BYTES).unwrap_or(0)];
    file.read_exact_at(&mut bytes, HEADER_BYTES)
        .map_err(|e| io_error("read", e))?;
    Ok(words_of(&bytes).collect())
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    })
}

/// Makes the file `bytes` long with every block of it allocated. A file system
/// without fallocate gets zeros written past the present end instead.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let length = file.metadata()?.len();
            let missing = usize::try_from(bytes.saturating_sub(length)).unwrap_or(0);
            file.write_all_at(&vec![0; missing], length)
        }
        Err(error) => Err(error.into()),
    }
}
