// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory shared with BPF: an array map, mapped into this process.

use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

/// An array map of `T`, mapped. The kernel writes to it at any moment, so there
/// is never a reference to its contents: entries are copied in and out with
/// volatile accesses.
pub(crate) struct Shared<T> {
    start: NonNull<T>,
    len: usize,
    bytes: usize,
    what: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only
// accessed by volatile copies, which may race with the kernel just as well.
unsafe impl<T: Copy + Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Copy + Send> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// Maps the `len` entries of an array map made with `BPF_F_MMAPABLE`. The
    /// generated types have sizes that are multiples of 8, as has the stride of
    /// the kernel's array.
    pub(crate) fn new(map: impl AsFd, len: usize) -> rustix::io::Result<Self> {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        // The kernel rounds it up to whole pages, here and in munmap.
        let bytes = len * size_of::<T>();
        // SAFETY: a fresh mapping at an address of the kernel's choice touches
        // no memory that exists.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self {
            start,
            len,
            bytes,
            what: PhantomData,
        })
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of an entry, for accesses to single fields.
    ///
    /// # Panics
    /// If `index` is not below [`Shared::len`].
    pub(crate) fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "entry {index} of {}", self.len);
        // SAFETY: the mapping holds `len` entries.
        unsafe { self.start.add(index) }.as_ptr()
    }

    /// A copy of an entry. Fields that the kernel writes meanwhile may be of
    /// different moments.
    pub(crate) fn get(&self, index: usize) -> T {
        // SAFETY: `at` gives an address inside the mapping, and any bytes are a
        // valid `T`: the generated types consist of integers only.
        unsafe { self.at(index).read_volatile() }
    }

    /// Writes an entry.
    pub(crate) fn set(&self, index: usize, value: T) {
        // SAFETY: `at` gives an address inside the mapping, which is writable.
        unsafe { self.at(index).write_volatile(value) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and nothing refers to it any more.
        let done = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        if let Err(error) = done {
            tracing::warn!(%error, "the freezer's shared memory stays mapped");
        }
    }
}
