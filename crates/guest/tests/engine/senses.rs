// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where slices are seen, and when anything ticks at all.

use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Instant;

use freezer::Event;
use guest::act::task::Roots;
use guest::disks::Completions;
use guest::disks::Disks;
use guest::report::Mode;
use guest::report::Report;
use guest::settings::Settings;
use guest::settings::SourceChoice;
use procfs::CurrentSI;
use procfs::KernelStats;
use units::CpuSet;
use units::Ns;
use units::VcpuId;

use crate::Bed;
use crate::Order;
use crate::SECOND;
use crate::Subject;
use crate::bed::CPUS;
use crate::bed::SLICE;
use crate::bed::becomes;
use crate::bed::eventually;
use crate::bed::moves;
use crate::bed::moving;
use crate::bed::throughout;
use crate::in_three_tries;
use crate::io_bound;

/// Wake-ups between two reports of the causes named.
fn wakeups(before: &Report, after: &Report, causes: &[&str]) -> u64 {
    causes
        .iter()
        .map(|cause| after.wakeups[*cause] - before.wakeups[*cause])
        .sum()
}

/// What the kernel says of each timer of this process, and so of the engine's threads.
fn timers() -> Vec<PathBuf> {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let timers = fds.filter(|fd| {
        // The directory's own descriptor is gone by then.
        std::fs::read_link(fd.path()).is_ok_and(|to| to == Path::new("anon_inode:[timerfd]"))
    });
    let infos = timers.map(|fd| Path::new("/proc/self/fdinfo").join(fd.file_name()));
    infos.collect()
}

/// Will this timer go off?
fn is_armed(timer: &PathBuf) -> bool {
    let info = std::fs::read_to_string(timer).unwrap();
    let left = info.lines().find_map(|line| line.strip_prefix("it_value:"));
    left.expect("a timer says what is left of it").trim() != "(0, 0)"
}

#[test]
fn root_nothing_is_armed_without_io_bound_tasks() {
    let bed = Bed::new();
    let engine = bed.engine(bed.settings());
    eventually(5 * SECOND, "watching", || {
        engine.report().mode == Mode::Watching
    });
    let timers = timers();
    assert!(timers.len() >= CPUS as usize, "{timers:?}");
    // Whatever else lives on this machine may do some I/O: the control thread then
    // attaches the detector, and the mover wakes up once to see that it must leave it
    // alone. So one silent second of five.
    let mut seen = Vec::new();
    let silent = (0..5).any(|_| {
        let before = engine.report();
        throughout(SECOND, || {
            let report = engine.report();
            assert_eq!(report.mode, Mode::Watching);
            assert_eq!(report.timers_armed, 0);
            assert!(!timers.iter().any(is_armed), "a timer that nobody counts");
        });
        let after = engine.report();
        assert_eq!(wakeups(&before, &after, &["slice-timer", "heartbeat"]), 0);
        seen.push(after.wakeups.clone());
        wakeups(&before, &after, &["mover", "bell", "control"]) == 0
    });
    assert!(silent, "{seen:#?}");
    // And it was awake: a task that needs it is served.
    let subject = io_bound();
    moving(&engine, 10);
    let armed = || engine.report().timers_armed > 0 && timers.iter().any(is_armed);
    assert!(becomes(SECOND, armed));
    drop(subject);
    eventually(2 * SECOND, "nothing is armed again", || {
        let report = engine.report();
        report.mode == Mode::Watching && report.timers_armed == 0 && !timers.iter().any(is_armed)
    });
    engine.stop();
}

/// Its owner has bound the reader to the vCPU where its disk completes: none of its requests
/// ever completes elsewhere than it was submitted, and nothing else tells.
#[test]
fn root_what_linux_says_of_a_disk_is_believed_before_a_request_proves_it() {
    let dev = std::fs::metadata(env!("CARGO_TARGET_TMPDIR"))
        .unwrap()
        .dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let said = Disks::of(&Roots::default()).by_number(major << 20 | minor);
    let (home, expected) = match (&said, said.vcpu()) {
        (_, Some(vcpu)) => (vcpu, format!("vcpu {vcpu}")),
        (Completions::FollowsTask, None) => (VcpuId(0), "follows-task".to_owned()),
        _ => panic!(
            "Linux says nothing of where disk {major}:{minor} completes ({said:?}): put the \
             target directory on one with a single interrupt, or a queue for each vCPU"
        ),
    };
    // Somebody else may read that disk from another vCPU, and then it is known by that.
    in_three_tries(|| {
        let bed = Bed::new();
        let subject = Subject::start();
        subject.set_mask(&CpuSet::only(home));
        subject.order(Order::Direct);
        let engine = bed.engine(bed.settings());
        let number = format!("{major}:{minor}");
        eventually(6 * SECOND, "Linux is believed", || {
            let disks = engine.report().disks;
            let disk = disks.iter().find(|disk| disk.dev == number);
            disk.is_some_and(|disk| disk.completion == expected && !disk.learnt)
        });
        engine.stop();
    });
}

/// The test's own threads are the engine's process: on the first vCPU one of them computes,
/// and on the other a process of its own does.
#[test]
fn root_gaps_under_its_own_threads_are_told_from_others() {
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = |t: rustix::time::Timespec| t.tv_sec as f64 + t.tv_nsec as f64 / 1e9;
    let bed = Bed::computing_on(&CpuSet::only(VcpuId(0)));
    let subject = Subject::start();
    subject.set_mask(&CpuSet::only(VcpuId(1)));
    subject.order(Order::Compute);
    let engine = bed.engine(bed.settings());
    let (begin, before) = (Instant::now(), used());
    eventually(5 * SECOND, "a hundred gaps of each", || {
        let vcpus = engine.report().vcpus;
        vcpus.len() == CPUS as usize && vcpus.iter().all(|vcpu| vcpu.gaps >= 100)
    });
    let report = engine.report();
    // 1 on a quiet machine: whatever else is on the first vCPU is current in some gaps.
    let current = (seconds(used()) - seconds(before)) / begin.elapsed().as_secs_f64();
    let (ours, others) = (report.vcpus[0].stolen_ns, report.vcpus[1].stolen_ns);
    let stopped = report.stopped_ns.unwrap();
    println!(
        "stopped for {stopped}; away: {ours} under us, {others} under another; current for {current:.2} of the time"
    );
    let least = ours.as_secs_f64() * current / 2.0;
    // And our monitor is current in some of the other's.
    assert!(
        stopped.as_secs_f64() > least && stopped < ours + others / 4,
        "{report:#?}"
    );
    engine.stop();
}

#[test]
fn root_asleep_without_sharing() {
    let mut bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(Settings {
        quiet_after: Ns::from_secs(1),
        ..bed.settings()
    });
    moving(&engine, 10);
    // Its threads have made them by now.
    let timers = timers();
    assert!(timers.len() >= CPUS as usize, "{timers:?}");
    bed.freezer.stop();
    eventually(4 * SECOND, "asleep", || {
        engine.report().mode == Mode::Asleep
    });
    eventually(SECOND, "released", || subject.mask() == CpuSet::first(CPUS));
    // It goes on with its I/O, and nobody cares. The threads need a moment to
    // lie down.
    let (mut before, mut done) = (engine.report(), subject.done());
    let silent = becomes(6 * SECOND, || {
        let report = engine.report();
        if report.wakeups == before.wakeups {
            return report.uptime_ns - before.uptime_ns >= Ns::from_secs(2);
        }
        (before, done) = (report, subject.done());
        false
    });
    let after = engine.report();
    assert!(silent, "{:?}", after.wakeups);
    assert_eq!((after.mode, after.timers_armed), (Mode::Asleep, 0));
    assert!(!timers.iter().any(is_armed), "a timer that nobody counts");
    assert!(subject.done() > done + 2000, "it did its I/O meanwhile");
    engine.stop();
}

#[test]
fn root_the_steal_source_agrees_with_the_freezer() {
    let bed = Bed::new();
    // What was stolen before the engine's time is none of its gaps.
    eventually(4 * SECOND, "gaps before the engine", || {
        bed.freezer.counters().iter().all(|cpu| cpu.gaps >= 30)
    });
    let first = bed.freezer.counters();
    let engine = bed.engine(bed.settings());
    eventually(5 * SECOND, "watching", || {
        engine.report().mode == Mode::Watching
    });
    // Each number of the engine lies between two looks at the truth. A gap that
    // has just ended may not have been noticed yet, at either look.
    let sandwich = || {
        let before = bed.freezer.counters();
        let seen = engine.report().vcpus;
        (before, seen, bed.freezer.counters())
    };
    let (low0, seen0, high0) = sandwich();
    let one_gap = SLICE * 2;
    for round in 1..=10 {
        eventually(2 * SECOND, "ten more gaps", || {
            let now = bed.freezer.counters();
            now.iter()
                .zip(&high0)
                .all(|(now, then)| now.gaps >= then.gaps + 10 * round)
        });
        let (low, seen, high) = sandwich();
        for cpu in 0..CPUS as usize {
            let gaps = seen[cpu].gaps - seen0[cpu].gaps;
            let least = low[cpu].gaps - high0[cpu].gaps;
            let most = high[cpu].gaps - low0[cpu].gaps;
            assert!(
                least <= gaps + 1 && gaps <= most + 1,
                "{least} <= {gaps} <= {most}"
            );
            let in_all = seen[cpu].stolen_ns;
            let most = high[cpu].frozen - first[cpu].frozen;
            assert!(
                in_all <= most + one_gap,
                "{in_all} <= {most}, since the start"
            );
            let stolen = seen[cpu].stolen_ns - seen0[cpu].stolen_ns;
            let least = low[cpu].frozen - high0[cpu].frozen;
            let most = high[cpu].frozen - low0[cpu].frozen;
            assert!(
                least <= stolen + one_gap && stolen <= most + one_gap,
                "{least} <= {stolen} <= {most}"
            );
        }
    }
    for vcpu in engine.report().vcpus.iter().take(CPUS as usize) {
        let slice = vcpu.slice_ns.unwrap();
        assert!(slice.abs_diff(SLICE) < SLICE.scaled(1, 5), "{vcpu:?}");
    }
    engine.stop();
}

#[test]
fn root_the_heartbeat_source_finds_the_slices() {
    let bed = Bed::new();
    let subject = io_bound();
    let engine = bed.engine(Settings {
        source: SourceChoice::Heartbeat,
        steal_map_id: None,
        ..bed.settings()
    });
    assert_eq!(engine.report().source, "heartbeat");
    assert_eq!(engine.report().stopped_ns, None);
    let good = becomes(10 * SECOND, || {
        let report = engine.report();
        moves(&report) >= 20
            && report.vcpus.iter().take(CPUS as usize).all(|vcpu| {
                vcpu.slice_ns
                    .is_some_and(|slice| slice.abs_diff(SLICE) < SLICE.scaled(1, 5))
            })
    });
    assert!(
        good,
        "{:#?}, failed: {:?}",
        engine.report(),
        engine.failed()
    );
    assert!(subject.done() > 0);
    engine.stop();
}

/// Not only in sum: what was stolen between two reports that are one gap apart is the
/// length of that gap to the nanosecond, since both come from the same counter.
#[test]
fn root_each_gap_of_the_steal_source_is_as_long_as_the_freezers() {
    let bed = Bed::new();
    let engine = bed.engine(bed.settings());
    let mut last = engine.report().vcpus;
    let mut seen = [const { Vec::new() }; CPUS as usize];
    eventually(10 * SECOND, "forty single gaps of each CPU", || {
        let now = engine.report().vcpus;
        for (seen, (now, last)) in seen.iter_mut().zip(now.iter().zip(&last)) {
            if now.gaps == last.gaps + 1 {
                seen.push(now.stolen_ns - last.stolen_ns);
            }
        }
        last = now;
        seen.iter().all(|seen| seen.len() >= 40)
    });
    engine.stop();
    let log = bed.freezer.log();
    for (cpu, seen) in seen.iter().enumerate() {
        let gaps = log.iter().filter(|gap| gap.cpu.index() == cpu);
        let gaps: Vec<Ns> = gaps.map(Event::gap).collect();
        let mut rest = &gaps[..];
        let mut exact = 0;
        for length in seen {
            if let Some(at) = rest.iter().position(|gap| gap == length) {
                exact += 1;
                rest = &rest[at + 1..];
            }
        }
        println!("CPU {cpu}: {exact} of {} gaps", seen.len());
        // A report that is itself interrupted by a gap may be torn.
        assert!(exact * 10 >= seen.len() * 9, "{seen:?} against {gaps:?}");
    }
}

/// Where no program can look at the timer interrupt, /proc/stat says when vCPUs are
/// taken away, and when they are not any more.
#[test]
fn root_proc_stat_wakes_it_where_no_program_sees_the_timer() {
    let bed = Bed::new();
    let subject = io_bound();
    let stat = tempfile::NamedTempFile::new().unwrap();
    let mut ticks = 0;
    let mut steal = |more| {
        ticks += more;
        let line = format!("cpu  1 2 3 4 5 6 7 {ticks:08} 0 0\n");
        stat.as_file().write_all_at(line.as_bytes(), 0).unwrap();
    };
    steal(1000);
    let engine = bed.engine(Settings {
        steal_stat: Some(stat.path().to_owned()),
        quiet_after: Ns::from_secs(4),
        ..bed.settings()
    });
    // The machine is shared all along, but nothing else may notice.
    throughout(SECOND * 3 / 2, || {
        let report = engine.report();
        assert_eq!(report.mode, Mode::Asleep);
        assert!(!report.detector_attached);
    });
    let looks = engine.report().wakeups["control"];
    assert!((1..=2).contains(&looks), "{looks} looks in 1.5 s");
    eventually(8 * SECOND, "awake, and the task is found", || {
        steal(1);
        engine.report().mode == Mode::Active
    });
    assert!(engine.report().detector_attached);
    let still = Instant::now();
    eventually(8 * SECOND, "asleep again", || {
        engine.report().mode == Mode::Asleep
    });
    // The last look that saw steal may have been one before it stood still; without
    // the wait that was asked for it would be two later at most.
    assert!(still.elapsed() > SECOND * 5 / 2, "{:?}", still.elapsed());
    eventually(SECOND, "detached and released", || {
        !engine.report().detector_attached && subject.mask() == CpuSet::first(CPUS)
    });
    engine.stop();
}

/// A beat that comes late says that its vCPU was away, unless that vCPU slept: then it
/// may have been woken late. One CPU always computes, and of the other a gap now and
/// then meets the task at work.
#[test]
fn root_the_heartbeat_finds_the_gaps_of_a_busy_vcpu_and_not_an_idle_ones() {
    in_three_tries(|| {
        let bed = Bed::computing_on(&CpuSet::only(VcpuId(0)));
        let _subject = io_bound();
        let engine = bed.engine(Settings {
            source: SourceChoice::Heartbeat,
            steal_map_id: None,
            ..bed.settings()
        });
        eventually(8 * SECOND, "active", || {
            engine.report().mode == Mode::Active
        });
        let look = || {
            let made = bed.freezer.counters();
            let found = engine.report().vcpus;
            [0, 1].map(|cpu| (made[cpu].gaps, found[cpu].gaps))
        };
        let idle_ticks = || {
            let cpu = &KernelStats::current().unwrap().cpu_time[1];
            cpu.idle + cpu.iowait.unwrap_or(0)
        };
        let first = look();
        let idle_before = idle_ticks();
        eventually(8 * SECOND, "eighty gaps of each CPU", || {
            let mut both = look().into_iter().zip(first);
            both.all(|(now, then)| now.0 >= then.0 + 80)
        });
        let last = look();
        let idle_for = idle_ticks() - idle_before;
        engine.stop();
        let seen = [0, 1].map(|cpu| (last[cpu].0 - first[cpu].0, last[cpu].1 - first[cpu].1));
        println!("gaps made and found: {seen:?}, CPU 1 idle for {idle_for} ticks");
        let [busy, idle] = seen;
        // The host of this machine makes some, too.
        assert!(busy.1 * 100 >= busy.0 * 85, "{seen:?}");
        assert!(busy.1 * 100 <= busy.0 * 130, "{seen:?}");
        assert!(
            idle.1 * 100 <= idle.0 * 60,
            "{seen:?}; CPU 1 was idle for {idle_for} ticks: if few, somebody else computes there"
        );
    });
}
