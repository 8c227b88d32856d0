// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::fs;

use tempfile::TempDir;

use super::*;

const TAIL: &str = "0 -1 4194560 1 2 3 4 5 6 7 8 20 -5 3 0 123456 1 2 18446744073709551615 \
                    1 2 3 4 5 0 0 0 0 0 0 0 17 1 0 6 0 0 0";

fn line(comm: &str) -> String {
    format!("77 ({comm}) S 42 43 44 {TAIL}\n")
}

/// A `/proc` and a `/sys` with one thread in them.
fn fake(stat: &str, status: &str) -> (TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        proc: dir.path().join("proc"),
        sys: dir.path().join("sys"),
    };
    let task = roots.proc.join("77");
    fs::create_dir_all(&task).unwrap();
    fs::write(task.join("stat"), stat).unwrap();
    fs::write(task.join("status"), status).unwrap();
    fs::write(task.join("cgroup"), "0::/pods/one\n").unwrap();
    fs::create_dir_all(roots.sys.join("devices/system/cpu")).unwrap();
    fs::write(roots.sys.join("devices/system/cpu/online"), "0-3\n").unwrap();
    (dir, roots)
}

const STATUS: &str = "Name:\tx\nTgid:\t70\nCpus_allowed:\tff\nCpus_allowed_list:\t0-5,9\n";

#[test]
fn names_with_blanks_and_parentheses_do_not_shift_the_fields() {
    for comm in ["fio", "a b", ") R 1 2 (", "((", "))", ""] {
        let stat = Stat::parse(&line(comm)).unwrap();
        assert_eq!(stat.comm, comm);
        assert_eq!((stat.ppid, stat.group, stat.session), (42, 43, 44));
        assert_eq!(stat.start_ticks, 123_456);
        assert_eq!(stat.policy, 6);
        assert_eq!(stat.flags, 4_194_560);
    }
}

#[test]
fn a_thread_that_is_being_taken_apart_has_no_group_but_a_line() {
    let stat = Stat::parse(&line("x").replace("S 42 43 44", "X 0 -1 -1")).unwrap();
    assert_eq!((stat.ppid, stat.group, stat.session), (0, 0, 0));
    assert_eq!(stat.start_ticks, 123_456);
}

#[test]
fn a_line_cut_short_anywhere_is_refused_not_misread() {
    let whole = line("a) b");
    for end in 0..whole.len() - 8 {
        assert_eq!(Stat::parse(&whole[..end]), None, "cut at {end}");
    }
}

#[test]
fn facts_are_those_of_the_key_and_of_no_other() {
    let (_dir, roots) = fake(&line("fio"), STATUS);
    let key = TaskKey {
        tid: Tid(77),
        start_ticks: 123_456,
    };
    let (_, facts) = roots.facts(key).unwrap();
    assert_eq!(facts.tgid, 70);
    assert_eq!(facts.mask.to_string(), "0-5,9");
    assert!(!facts.is_kernel_thread());
    let reused = TaskKey {
        start_ticks: 123_455,
        ..key
    };
    assert!(matches!(roots.facts(reused), Err(TaskError::Gone { key }) if key == reused));
    let absent = TaskKey {
        tid: Tid(78),
        start_ticks: 1,
    };
    assert!(matches!(roots.facts(absent), Err(TaskError::Gone { .. })));
}

#[test]
fn kernel_threads_and_fixed_masks_show_in_the_flags() {
    let kernel = line("kworker/0:1").replace("4194560", "2129984");
    let (_dir, roots) = fake(&kernel, STATUS);
    let facts = TaskDir::open(&roots, Tid(77)).unwrap().facts().unwrap();
    assert!(facts.is_kernel_thread());
    assert!(!facts.is_immovable());
    let fixed = line("x").replace("4194560", "67108864");
    let (_dir, roots) = fake(&fixed, STATUS);
    assert!(
        TaskDir::open(&roots, Tid(77))
            .unwrap()
            .facts()
            .unwrap()
            .is_immovable()
    );
}

#[test]
fn a_missing_field_is_named() {
    let (_dir, roots) = fake(&line("x"), "Name:\tx\nTgid:\t70\n");
    let error = TaskDir::open(&roots, Tid(77)).unwrap().facts().unwrap_err();
    assert!(error.to_string().contains("Cpus_allowed_list"), "{error}");
}

#[test]
fn the_cpuset_of_either_hierarchy_limits_what_is_permitted() {
    let (_dir, roots) = fake(&line("x"), STATUS);
    let task = TaskDir::open(&roots, Tid(77)).unwrap();
    let permitted = || roots.permitted(&task).unwrap().to_string();
    let group = |path: &str, file: &str, cpus: &str| {
        let group = roots.sys.join("fs/cgroup").join(path);
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join(file), cpus).unwrap();
    };
    assert_eq!(permitted(), "0-3");
    // A group without a cpuset of its own has that of the next one above.
    group("", "cpuset.cpus.effective", "0-3\n");
    group("pods", "cpuset.cpus.effective", "0,2-9\n");
    assert_eq!(permitted(), "0,2-3");
    group("pods/one", "cpuset.cpus.effective", "3\n");
    assert_eq!(permitted(), "3");
    // Another hierarchy's groups of the same name say nothing, and where cpusets belong
    // to v1, what v2 says does not apply.
    group("cpuset/pods/one", "cpuset.effective_cpus", "1-2,7\n");
    assert_eq!(permitted(), "3");
    let lines = "4:memory:/pods/two\n3:cpu,cpuset:/pods/one\n1:name=systemd:/\n0::/pods/one\n";
    fs::write(roots.proc.join("77/cgroup"), lines).unwrap();
    assert_eq!(permitted(), "1-2");
    fs::write(roots.proc.join("77/cgroup"), "5:cpusets:/pods/one\n").unwrap();
    assert_eq!(permitted(), "0-3");
}

#[test]
fn a_cpuset_is_found_where_v2_is_mounted_beside_v1() {
    let (_dir, roots) = fake(&line("x"), STATUS);
    let task = TaskDir::open(&roots, Tid(77)).unwrap();
    let unified = roots.sys.join("fs/cgroup/unified/pods");
    fs::create_dir_all(&unified).unwrap();
    fs::write(unified.join("cpuset.cpus.effective"), "1\n").unwrap();
    assert_eq!(roots.permitted(&task).unwrap().to_string(), "1");
}

/// Whoever looks may still run on the very CPU that goes: that one is on its way all the
/// same, and the others are up.
#[test]
fn a_cpu_that_goes_is_not_up_for_a_thread_that_still_runs_there() {
    let (_dir, roots) = fake("", "");
    let all = CpuSet::first(4);
    let cpu = roots.sys.join("devices/system/cpu");
    let set_state = |n: u32, state: &str| {
        let dir = cpu.join(format!("cpu{n}/hotplug"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("state"), state).unwrap();
    };
    let not_up = || roots.not_up(&all);
    assert_eq!(not_up(), CpuSet::default(), "no state is known");
    for n in 0..4 {
        set_state(n, "236\n");
    }
    assert_eq!(not_up(), CpuSet::default());
    for goes in 0..4 {
        set_state(goes, "234\n");
        assert_eq!(not_up(), CpuSet::only(VcpuId(goes)));
        set_state(goes, "236\n");
    }
    fs::write(cpu.join("online"), "0-2\n").unwrap();
    set_state(1, "234\n");
    assert_eq!(not_up(), [1, 3].map(VcpuId).into_iter().collect());
}

#[test]
fn an_open_thread_stays_the_same_when_its_id_is_reused() {
    // The fake `/proc` cannot show ESRCH, but it does show that nothing is
    // looked up by number again.
    let (_dir, roots) = fake(&line("first"), STATUS);
    let task = TaskDir::open(&roots, Tid(77)).unwrap();
    fs::rename(roots.proc.join("77"), roots.proc.join("old")).unwrap();
    fs::create_dir_all(roots.proc.join("77")).unwrap();
    fs::write(roots.proc.join("77/stat"), line("second")).unwrap();
    assert_eq!(task.stat().unwrap().comm, "first");
}

#[test]
fn the_real_proc_agrees_with_the_system_calls() {
    let roots = Roots::default();
    let tid = crate::act::testing::this_tid();
    let facts = TaskDir::open(&roots, tid).unwrap().facts().unwrap();
    assert_eq!(facts.tgid, std::process::id());
    let online = roots.online().unwrap();
    assert_eq!(
        facts.mask.and(&online),
        crate::act::sched::affinity(tid).unwrap()
    );
    assert_eq!(facts.policy, crate::act::sched::attr(tid).unwrap().policy);
}
