// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways of waiting for a disk that there are, on a file without a name.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;

use io_uring::IoUring;
use io_uring::opcode;
use io_uring::types::Fd;
use rustix::fs::Advice;
use rustix::fs::OFlags;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 2048;
/// Blocks side by side that are asked for at once, which the kernel makes one request of
/// as many bios.
const ADJACENT: usize = 64;

/// What direct reads want: memory that begins at a block's boundary.
#[repr(align(4096))]
#[derive(Clone)]
struct Page([u8; BLOCK as usize]);

/// `struct iocb` of include/uapi/linux/aio_abi.h, little endian.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event` of the same file.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    second: i64,
}

/// `IOCB_CMD_PREAD`.
const PREAD: u16 = 0;

/// The file.
pub(crate) struct Disk {
    cached: File,
    direct: File,
    page: Box<Page>,
    pages: Vec<Page>,
    aio: libc::c_ulong,
    random: u64,
}

impl Disk {
    /// In the checkout's target directory: memory has no block requests.
    pub(crate) fn new() -> Self {
        let cached = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // Not only allocated, which would be read without any request.
        let some = vec![0x5a; (BLOCK * BLOCKS) as usize];
        cached.write_all_at(&some, 0).unwrap();
        cached.sync_all().unwrap();
        // No block but the one that is asked for.
        rustix::fs::fadvise(&cached, 0, None, Advice::Random).unwrap();
        let direct = File::options()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(format!("/proc/self/fd/{}", cached.as_raw_fd()))
            .unwrap();
        let mut aio: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word there.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ADJACENT, &raw mut aio) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        Self {
            cached,
            direct,
            page: Box::new(Page([0; BLOCK as usize])),
            pages: vec![Page([0; BLOCK as usize]); ADJACENT],
            aio,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Where a block begins.
    fn any_block(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % BLOCKS * BLOCK
    }

    pub(crate) fn read_direct(&mut self) {
        let at = self.any_block();
        self.direct.read_exact_at(&mut self.page.0, at).unwrap();
    }

    pub(crate) fn read_buffered(&mut self) {
        let at = self.any_block();
        rustix::fs::fadvise(&self.cached, 0, None, Advice::DontNeed).unwrap();
        self.cached.read_exact_at(&mut self.page.0, at).unwrap();
    }

    pub(crate) fn write_through(&mut self) {
        let at = self.any_block();
        self.cached.write_all_at(&self.page.0, at).unwrap();
        self.cached.sync_all().unwrap();
    }

    pub(crate) fn read_by_ring(&mut self, ring: &mut IoUring) {
        let at = self.any_block();
        let fd = Fd(self.direct.as_raw_fd());
        let entry = opcode::Read::new(fd, self.page.0.as_mut_ptr(), BLOCK as u32).offset(at);
        // SAFETY: the page lives until the request is complete, which is waited for.
        unsafe { ring.submission().push(&entry.build()) }.unwrap();
        while ring.completion().is_empty() {
            // Interrupted: waits again.
            let _ = ring.submit_and_wait(1);
        }
        let read = ring.completion().next().unwrap().result();
        assert_eq!(read, BLOCK as i32);
    }

    pub(crate) fn read_by_aio(&mut self) {
        let at = self.any_block();
        let page: *mut Page = &raw mut *self.page;
        self.submit_and_wait(&mut [self.read_of(at, page)]);
    }

    /// One request of the disk, and [`ADJACENT`] of ours.
    pub(crate) fn read_adjacent(&mut self) {
        let first = self.any_block().min((BLOCKS - ADJACENT as u64) * BLOCK);
        let pages = self.pages.as_mut_ptr();
        let mut requests: Vec<_> = (0..ADJACENT)
            // SAFETY: there are as many pages.
            .map(|nth| self.read_of(first + nth as u64 * BLOCK, unsafe { pages.add(nth) }))
            .collect();
        self.submit_and_wait(&mut requests);
    }

    fn read_of(&self, at: u64, page: *mut Page) -> Iocb {
        Iocb {
            opcode: PREAD,
            fd: self.direct.as_raw_fd().unsigned_abs(),
            buffer: page as u64,
            length: BLOCK,
            offset: at.cast_signed(),
            ..Iocb::default()
        }
    }

    fn submit_and_wait(&mut self, requests: &mut [Iocb]) {
        let pointers: Vec<_> = requests.iter_mut().map(|r| &raw mut *r).collect();
        let all = pointers.len() as i64;
        // SAFETY: the requests and their pages, which are this file's, live until they are
        // complete, which is waited for below.
        let sent = unsafe { libc::syscall(libc::SYS_io_submit, self.aio, all, pointers.as_ptr()) };
        assert_eq!(sent, all, "{}", std::io::Error::last_os_error());
        let mut events = vec![IoEvent::default(); pointers.len()];
        let mut done = 0;
        while done < events.len() {
            let rest = &mut events[done..];
            // SAFETY: room for as many events as may come, and no timeout.
            let more = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.aio,
                    rest.len(),
                    rest.len(),
                    rest.as_mut_ptr(),
                    std::ptr::null::<libc::timespec>(),
                )
            };
            // Interrupted: waits again.
            done += usize::try_from(more).unwrap_or(0);
        }
        for event in events {
            assert_eq!(event.result, BLOCK.cast_signed());
        }
    }
}
