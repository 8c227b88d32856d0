// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use tempfile::TempDir;
use units::TaskKey;
use units::Tid;

use super::*;

fn original(tid: u32) -> Original {
    Original {
        key: TaskKey {
            tid: Tid(tid),
            start_ticks: 1 << 40,
        },
        tgid: tid + 1,
        comm: "a (b) c\u{e9}".into(),
        mask: "0-3,7,1023".parse().unwrap(),
        whole_cpuset: true,
        policy: 3,
        priority: 0,
        nice: -7,
        reset_on_fork: true,
        slice_ns: 3_000_000,
        adopted_ticks: 77,
    }
}

fn open(dir: &TempDir) -> Result<Journal, JournalError> {
    Journal::open(&dir.path().join("run/journal"), &Roots::default(), 4)
}

/// Slots outlive the journal here as they do when a process is killed.
fn filled(dir: &TempDir, tids: std::ops::Range<u32>) {
    let journal = Arc::new(open(dir).unwrap());
    let slots: Vec<Slot> = tids
        .map(|tid| journal.insert(&original(tid)).unwrap())
        .collect();
    slots[0].touch(VcpuId(5));
    let position = slots[0].position();
    slots[0]
        .change(position, position.take_off(VcpuId(5)).unwrap())
        .unwrap();
    slots[0].set_lever(Lever::Fifo);
}

#[test]
fn entries_survive_their_writer() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir, 10..13);
    let journal = open(&dir).unwrap();
    let entries = journal.entries();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[0].original, original(10));
    assert_eq!(entries[0].lever, Lever::Fifo);
    assert_eq!(entries[0].touched, CpuSet::only(VcpuId(5)));
    assert_eq!(entries[0].at, None);
    assert!(Position(entries[0].position).owns(&CpuSet::only(VcpuId(5))));
    assert!(!entries[0].released);
    assert_eq!(journal.torn(), 0);
}

#[test]
fn slots_are_reused_and_a_full_journal_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Arc::new(open(&dir).unwrap());
    let size = std::fs::metadata(journal.path()).unwrap().len();
    for round in 0..100 {
        let slots: Vec<Slot> = (0..4)
            .map(|n| journal.insert(&original(n)).unwrap())
            .collect();
        assert!(journal.insert(&original(9)).is_none(), "round {round}");
        slots.iter().for_each(Slot::erase);
        // Still held by this process, so not free yet.
        assert!(journal.insert(&original(9)).is_none(), "round {round}");
    }
    assert_eq!(std::fs::metadata(journal.path()).unwrap().len(), size);
    assert!(journal.entries().is_empty());
}

#[test]
fn leftovers_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir, 10..13);
    let journal = Arc::new(open(&dir).unwrap());
    let _last = journal.insert(&original(20)).unwrap();
    assert!(journal.insert(&original(21)).is_none());
    assert_eq!(journal.entries().len(), 4);
}

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    let dir = tempfile::tempdir().unwrap();
    let _first = open(&dir).unwrap();
    let error = open(&dir).unwrap_err();
    let pid = u64::from(std::process::id());
    assert!(
        matches!(error, JournalError::Owned { pid: owner, .. } if owner == pid),
        "{error}"
    );
    assert!(error.to_string().contains(&pid.to_string()));
}

#[test]
fn a_torn_tail_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir, 10..13);
    let path = dir.path().join("run/journal");
    // In the middle of the third slot's body.
    let cut = 4096 + 2 * 512 + 30 * 8;
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(cut)
        .unwrap();
    assert_eq!(Journal::list(&path, &Roots::default()).unwrap().len(), 2);
    let journal = open(&dir).unwrap();
    assert_eq!(journal.entries().len(), 2);
    assert_eq!(journal.torn(), 1);
    assert_eq!(journal.erase_torn(), 1);
    assert_eq!(journal.torn(), 0);
}

#[test]
fn a_flipped_bit_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir, 10..13);
    let file = OpenOptions::new()
        .write(true)
        .open(dir.path().join("run/journal"))
        .unwrap();
    // A word of the first entry's mask.
    file.write_all_at(&[0xff], 4096 + 30 * 8).unwrap();
    let journal = open(&dir).unwrap();
    assert_eq!(journal.torn(), 1);
    assert_eq!(journal.entries().len(), 2);
}

#[test]
fn a_journal_of_another_boot_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    filled(&dir, 10..13);
    let path = dir.path().join("run/journal");
    let fake = dir.path().join("proc/sys/kernel/random");
    std::fs::create_dir_all(&fake).unwrap();
    std::fs::write(
        fake.join("boot_id"),
        "12345678-1234-1234-1234-123456789abc\n",
    )
    .unwrap();
    let roots = Roots {
        proc: dir.path().join("proc"),
        ..Roots::default()
    };
    assert!(Journal::list(&path, &roots).unwrap().is_empty());
    assert!(Journal::open_existing(&path, &roots).unwrap().is_none());
    assert!(!path.exists());

    filled(&dir, 10..13);
    let journal = Journal::open(&path, &roots, 4).unwrap();
    assert!(journal.entries().is_empty());
    assert_eq!(journal.torn(), 0);
}

#[test]
fn no_journal_is_no_error_and_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    assert!(
        Journal::open_existing(&path, &Roots::default())
            .unwrap()
            .is_none()
    );
    assert!(Journal::list(&path, &Roots::default()).unwrap().is_empty());
    assert!(!path.exists());
}

#[test]
fn somebody_elses_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("passwd");
    for text in ["root:x:0:0::/root:/bin/sh\n".to_owned(), "x".repeat(9000)] {
        std::fs::write(&path, &text).unwrap();
        let error = Journal::open(&path, &Roots::default(), 4).unwrap_err();
        assert!(matches!(error, JournalError::Foreign { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_writer_killed_before_its_header_leaves_an_empty_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/journal");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, [0; 4096 + 512]).unwrap();
    let journal = open(&dir).unwrap();
    assert!(journal.entries().is_empty());
    assert_eq!(journal.capacity(), 4);
}

/// A file system of a few pages, gone with the value.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
        // SAFETY: all arguments are C strings that outlive the call.
        let result = unsafe {
            libc::mount(
                c"none".as_ptr(),
                path.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"size=16k".as_ptr().cast(),
            )
        };
        assert_eq!(result, 0, "mount: {}", std::io::Error::last_os_error());
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.0.path().to_str().unwrap()).unwrap();
        // SAFETY: the argument is a C string that outlives the call.
        assert_eq!(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }, 0);
    }
}

#[test]
fn root_a_full_disk_is_one_error_at_start_and_leaves_nothing() {
    let disk = SmallDisk::new();
    let path = disk.0.path().join("journal");
    let error = Journal::open(&path, &Roots::default(), 1024).unwrap_err();
    assert!(
        matches!(error, JournalError::NoSpace { bytes: 528_384, .. }),
        "{error}"
    );
    assert!(!path.exists());
    // And one that fits does fit.
    Journal::open(&path, &Roots::default(), 16).unwrap();
}

proptest! {
    #[test]
    fn bodies_come_back_as_they_were(
        tid in 1u32.., start in any::<u64>(), nice in -20i32..20, words in any::<[u64; 16]>(),
        flags in any::<(bool, bool)>(), comm in "[a-z() ]{0,15}",
    ) {
        let original = Original {
            key: TaskKey { tid: Tid(tid), start_ticks: start },
            nice,
            comm,
            mask: CpuSet::from_words(&words),
            whole_cpuset: flags.0,
            reset_on_fork: flags.1,
            ..original(1)
        };
        prop_assert_eq!(Original::decode(&original.encode()), original);
    }

    /// Whatever movers do, a mask that one of them has set or may still set is
    /// known as ours, and no other is.
    #[test]
    fn a_position_owns_what_may_still_be_set(
        steps in proptest::collection::vec((0u32..1024, any::<bool>()), 0..60),
    ) {
        let mut position = Position::START;
        let mut at = None;
        let mut flying: Vec<u32> = Vec::new();
        for (cpu, depart) in steps {
            let before = position;
            if depart {
                match position.take_off(VcpuId(cpu)) {
                    Some(next) => { position = next; flying.push(cpu); }
                    None => prop_assert_eq!(flying.len(), 3),
                }
            } else if let Some(cpu) = flying.pop() {
                position = position.land(VcpuId(cpu), Some(VcpuId(cpu)));
                at = Some(cpu);
            }
            prop_assert!(position != before || flying.len() == 3 || flying.is_empty());
            for cpu in 0..1024 {
                let ours = at == Some(cpu) || flying.contains(&cpu);
                prop_assert_eq!(position.owns(&CpuSet::only(VcpuId(cpu))), ours);
            }
            prop_assert_eq!(position.in_flight(), !flying.is_empty());
            prop_assert!(!position.ended());
            prop_assert!(position.end().ended());
            prop_assert_eq!(position.end().cpus(), position.cpus());
        }
        prop_assert!(!position.owns(&"0-1".parse().unwrap()));
    }
}
