// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program whose threads the engine moves: this test binary once more, since
//! an engine leaves its own process alone. It is told what to do, and tells what
//! it did, through shared memory, so that neither side ever waits for the other.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use io_uring::IoUring;
use io_uring::opcode;
use io_uring::types::Timespec;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::thread::CpuSet;
use rustix::thread::futex;
use units::Tid;
use units::Time;
use units::VcpuId;

use crate::bed::eventually;
use crate::bed::now;
use crate::disk::Disk;

/// Names the shared file to the child.
const ENV: &str = "ENGINE_SUBJECT";
/// Device time of one request.
pub(crate) const DEVICE_US: u64 = 100;
const DEVICE_NS: u32 = DEVICE_US as u32 * 1000;
/// Requests one after another for so long, and the sleep after it, of [`Order::Bursts`].
pub(crate) const BURST: Duration = Duration::from_millis(10);
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Threads that a storm starts, one at a time, and how many of them stay.
pub(crate) const STORM: u64 = 10_000;
const STAY_EACH: u64 = 500;
/// Threads of a crowd and the device time of their requests: few enough requests
/// that all of them wait for most of their time.
pub(crate) const CROWD: u64 = 200;
const CROWD_DEVICE_NS: u32 = 20_000_000;
/// Mayflies in a swarm, how long each does requests, and what it has to free at its end:
/// some milliseconds of work.
const SWARM: u64 = 8;
const LIFE: Duration = Duration::from_millis(30);
const ESTATE: usize = 32 << 20;

/// The words of the shared memory; completed requests follow.
const TID: usize = 0;
const ORDER: usize = 1;
const DONE: usize = 2;
const STARTED: usize = 3;
const INHERITED: usize = 4;
const TAKEN: usize = 5;
const HEADER: usize = 8;
/// Room for 100 s; pages that stay unused cost nothing.
const RECORDS: usize = 1 << 20;
const WORDS: usize = HEADER + RECORDS;

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
#[allow(dead_code, reason = "not every program that has a subject orders all")]
pub(crate) enum Order {
    /// Sleeps, not on I/O.
    Sleep,
    /// One request after another.
    Io,
    /// Computes.
    Compute,
    /// One request after another, and a new thread after each few.
    Storm,
    /// One request after another, slow ones while its mask is narrow: stands for
    /// whatever is served worse in our hands.
    Wary,
    /// Requests in pairs, every other one completed by a kernel thread: it wakes
    /// whoever waits for a terminal's input.
    Terminal,
    /// Many threads, each with one request after another.
    Crowd,
    /// Reads of a file, past the page cache.
    Direct,
    /// Reads of a file of which no page is cached.
    Buffered,
    /// Writes that are durable before the next one.
    Fsync,
    /// Direct reads through an I/O ring.
    Uring,
    /// Direct reads by the kernel's older asynchronous interface.
    Aio,
    /// Requests for [`BURST`], then sleep for [`PAUSE`].
    Bursts,
    /// Threads with one request after another, one swarm after another, that end soon and
    /// take long to.
    Mayflies,
    /// Direct reads of many blocks side by side at once.
    Adjacent,
    /// Sleeps for a moment again and again, not on I/O.
    Naps,
}

/// A request that was completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) at: Time,
    pub(crate) cpu: VcpuId,
}

/// The shared memory, as both sides see it.
#[derive(Clone, Copy)]
struct Board(*const AtomicU64);

// SAFETY: only atomics, in a mapping that is never taken away.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    fn map(file: &File) -> Self {
        // SAFETY: a new mapping of a file that is as long as this; the kernel
        // chooses the address, and it stays until the process ends.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                WORDS * 8,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        Self(address.unwrap().cast())
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        // SAFETY: inside the mapping, aligned, and zero is a valid value.
        unsafe { &*self.0.add(index) }
    }

    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// The half of the order that both sides' futex is: there are fewer than 2^32.
    fn order(&self) -> &AtomicU32 {
        let word = self.word(ORDER).as_ptr().cast();
        // SAFETY: the first half of an aligned word of the mapping, which is the low one on
        // x86-64; it is only ever used as an atomic.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

/// A running program. Dropping it ends it.
pub(crate) struct Subject {
    child: Child,
    board: Board,
    _file: tempfile::NamedTempFile,
}

impl Subject {
    /// Starts one that sleeps.
    pub(crate) fn start() -> Self {
        // Memory, so that the records are no I/O themselves.
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        file.as_file().set_len(WORDS as u64 * 8).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "subject_program",
                "--ignored",
                "--test-threads=1",
            ])
            .env(ENV, file.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let board = Board::map(file.as_file());
        let subject = Self {
            child,
            board,
            _file: file,
        };
        eventually(Duration::from_secs(5), "the subject has started", || {
            subject.board.get(TID) != 0
        });
        subject
    }

    pub(crate) fn order(&self, order: Order) {
        self.board
            .word(ORDER)
            .store(order as u64, Ordering::Release);
        futex::wake(self.board.order(), futex::Flags::empty(), 1).unwrap();
    }

    /// Has it begun with this order? Not before its last request is complete, however
    /// long the disk takes for that.
    #[allow(dead_code, reason = "not every program that has a subject asks")]
    pub(crate) fn has_taken(&self, order: Order) -> bool {
        self.board.get(TAKEN) == order as u64
    }

    pub(crate) fn tid(&self) -> Tid {
        Tid(self.board.get(TID) as u32)
    }

    /// Requests completed so far.
    pub(crate) fn done(&self) -> u64 {
        self.board.get(DONE)
    }

    /// Threads that the storm has started, and those among them that had been
    /// born with a narrowed mask.
    pub(crate) fn storm(&self) -> (u64, u64) {
        (self.board.get(STARTED), self.board.get(INHERITED))
    }

    /// Mayflies that have ended.
    pub(crate) fn mayflies(&self) -> u64 {
        self.board.get(STARTED)
    }

    /// The completed requests of a time, in their order.
    pub(crate) fn between(&self, from: Time, to: Time) -> Vec<Done> {
        let done = (self.done() as usize).min(RECORDS);
        (0..done)
            .map(|i| self.board.get(HEADER + i))
            .map(|word| Done {
                at: Time(word >> 8),
                cpu: VcpuId((word & 0xff) as u32),
            })
            .filter(|done| from <= done.at && done.at < to)
            .collect()
    }

    /// Its threads.
    pub(crate) fn threads(&self) -> Vec<Tid> {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.child.id())) else {
            return Vec::new();
        };
        tasks
            .filter_map(|task| Some(Tid(task.ok()?.file_name().to_str()?.parse().ok()?)))
            .collect()
    }

    /// The mask of its I/O thread.
    pub(crate) fn mask(&self) -> units::CpuSet {
        mask(self.tid()).unwrap()
    }

    /// Sets the mask of its I/O thread, as its owner would.
    pub(crate) fn set_mask(&self, mask: &units::CpuSet) {
        let mut set = CpuSet::new();
        mask.iter().for_each(|cpu| set.set(cpu.index()));
        rustix::thread::sched_setaffinity(Some(pid(self.tid())), &set).unwrap();
    }

    /// Policy, nice value, priority and slice of its I/O thread, as the kernel
    /// has them.
    pub(crate) fn scheduling(&self) -> [u8; 48] {
        let mut attr = [0u8; 48];
        // SAFETY: the buffer is as long as it says.
        let done = unsafe {
            libc::syscall(
                libc::SYS_sched_getattr,
                self.tid().0,
                attr.as_mut_ptr(),
                attr.len(),
                0,
            )
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        attr
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(tid: Tid) -> Pid {
    Pid::from_raw(tid.0.cast_signed()).unwrap()
}

/// The mask of a thread; none if it is gone.
pub(crate) fn mask(tid: Tid) -> Option<units::CpuSet> {
    let set = rustix::thread::sched_getaffinity(Some(pid(tid))).ok()?;
    Some(
        (0..64)
            .filter(|i| set.is_set(*i))
            .map(|i| VcpuId(i as u32))
            .collect(),
    )
}

/// The program itself: runs until it is killed, or its starter dies.
pub(crate) fn run() {
    let Some(path) = std::env::var_os(ENV) else {
        return;
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let board = Board::map(&open(path.as_ref()));
    let mut ring = IoUring::new(2).unwrap();
    let mut terminal = None;
    let mut disk = None;
    let mut crowd = false;
    rustix::thread::set_name(crate::bed::COMM).unwrap();
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    board
        .word(TID)
        .store(u64::from(tid.unsigned_abs()), Ordering::Release);
    loop {
        let order = board.get(ORDER);
        board.word(TAKEN).store(order, Ordering::Release);
        match order {
            // Until there is another order. Naps of a millisecond, which use next to no CPU,
            // end a phase by four windows with 0.5 ms of it in each: after 0.7 to 1.1 s.
            0 => drop(futex::wait(board.order(), futex::Flags::empty(), 0, None)),
            1 => request(&board, &mut ring, DEVICE_NS),
            2 => compute(),
            3 => {
                request(&board, &mut ring, DEVICE_NS);
                one_more_thread(&board);
            }
            4 => request(
                &board,
                &mut ring,
                DEVICE_NS * if is_narrow() { 20 } else { 1 },
            ),
            12 => {
                let end = Instant::now() + BURST;
                while Instant::now() < end {
                    request(&board, &mut ring, DEVICE_NS);
                }
                std::thread::sleep(PAUSE);
            }
            13 => swarm(&board),
            15 => std::thread::sleep(Duration::from_millis(1)),
            6 => {
                if !std::mem::replace(&mut crowd, true) {
                    (0..CROWD).for_each(|_| one_of_a_crowd());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            5 => {
                request(&board, &mut ring, DEVICE_NS);
                let (far, near) = terminal.get_or_insert_with(open_terminal);
                rustix::io::write(&*far, b"x").unwrap();
                let mut byte = [0u8; 1];
                let fd = io_uring::types::Fd(near.as_raw_fd());
                let entry = opcode::Read::new(fd, byte.as_mut_ptr(), 1).build();
                wait_for(&mut ring, &entry);
                take_down(&board);
            }
            _ => {
                let disk = disk.get_or_insert_with(Disk::new);
                match order {
                    7 => disk.read_direct(),
                    8 => disk.read_buffered(),
                    9 => disk.write_through(),
                    10 => disk.read_by_ring(&mut ring),
                    14 => disk.read_adjacent(),
                    _ => disk.read_by_aio(),
                }
                take_down(&board);
            }
        }
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// A request is a timeout on an I/O ring: completed by an interrupt on the CPU
/// that submitted it, and waited for as the kernel waits for I/O.
fn request(board: &Board, ring: &mut IoUring, device_ns: u32) {
    wait_for_timeout(ring, device_ns);
    take_down(board);
}

/// The same, which nobody takes down.
fn wait_for_timeout(ring: &mut IoUring, ns: u32) {
    let length = Timespec::new().nsec(ns);
    wait_for(ring, &opcode::Timeout::new(&length).build());
}

/// Both ends of a terminal that passes on every byte as it is.
fn open_terminal() -> (OwnedFd, OwnedFd) {
    use rustix::pty::OpenptFlags;
    let far = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&far).unwrap();
    rustix::pty::unlockpt(&far).unwrap();
    let near = rustix::pty::ioctl_tiocgptpeer(&far, OpenptFlags::RDWR | OpenptFlags::NOCTTY);
    let near = near.unwrap();
    let mut raw = rustix::termios::tcgetattr(&near).unwrap();
    raw.make_raw();
    rustix::termios::tcsetattr(&near, rustix::termios::OptionalActions::Now, &raw).unwrap();
    (far, near)
}

/// Waits for one request, whose memory is the caller's.
fn wait_for(ring: &mut IoUring, entry: &io_uring::squeue::Entry) {
    // SAFETY: what it points to lives in the caller until the request is complete.
    unsafe { ring.submission().push(entry) }.unwrap();
    while ring.completion().is_empty() {
        // Interrupted: waits again.
        let _ = ring.submit_and_wait(1);
    }
    ring.completion().for_each(drop);
}

/// One more request was completed, here and now.
fn take_down(board: &Board) {
    let done = board.get(DONE);
    if (done as usize) < RECORDS {
        let cpu = rustix::thread::sched_getcpu() as u64;
        board
            .word(HEADER + done as usize)
            .store(now().as_ns() << 8 | cpu & 0xff, Ordering::Relaxed);
    }
    board.word(DONE).store(done + 1, Ordering::Release);
}

/// May the calling thread run on one CPU only?
fn is_narrow() -> bool {
    let tid = rustix::thread::gettid();
    let mask = rustix::thread::sched_getaffinity(Some(tid)).unwrap();
    mask.count() == 1
}

fn compute() {
    let until = now() + units::Ns::from_ms(1);
    while now() < until {
        std::hint::spin_loop();
    }
}

/// Starts a thread that does one request after another, for good.
fn one_of_a_crowd() {
    let small = std::thread::Builder::new().stack_size(64 << 10);
    let thread = small.spawn(|| {
        let mut ring = IoUring::new(2).unwrap();
        loop {
            wait_for_timeout(&mut ring, CROWD_DEVICE_NS);
        }
    });
    drop(thread.unwrap());
}

/// One swarm of mayflies, from its beginning to its end.
fn swarm(board: &Board) {
    let mayfly = || {
        // Files of its own: the last of them is closed, and its memory freed, when the
        // thread ends, after it has said so.
        // SAFETY: takes nothing from anybody.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let estate = File::from(rustix::fs::memfd_create("estate", flags).unwrap());
        rustix::fs::fallocate(
            &estate,
            rustix::fs::FallocateFlags::empty(),
            0,
            ESTATE as u64,
        )
        .unwrap();
        std::mem::forget(estate);
        let mut ring = IoUring::new(2).unwrap();
        let end = Instant::now() + LIFE;
        while Instant::now() < end {
            wait_for_timeout(&mut ring, DEVICE_NS);
        }
    };
    let swarm: Vec<_> = (0..SWARM).map(|_| std::thread::spawn(mayfly)).collect();
    for mayfly in swarm {
        mayfly.join().unwrap();
        board.word(STARTED).fetch_add(1, Ordering::AcqRel);
    }
}

/// Starts a thread that ends at once, or, now and then, stays.
fn one_more_thread(board: &Board) {
    let nth = board.get(STARTED);
    if nth >= STORM {
        return;
    }
    let board = *board;
    let thread = std::thread::spawn(move || {
        if is_narrow() {
            board.word(INHERITED).fetch_add(1, Ordering::AcqRel);
        }
        if nth.is_multiple_of(STAY_EACH) {
            loop {
                std::thread::park();
            }
        }
    });
    board.word(STARTED).store(nth + 1, Ordering::Release);
    // Nobody waits for it.
    drop(thread);
}
