// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole trees of /proc and /sys, and what doctor makes of them.

use std::fs;
use std::os::unix::fs::symlink;

use guest::disks::Completions;
use guest::report;
use units::Ns;
use units::Permille;
use units::Tid;
use units::VcpuId;

use super::*;

/// A machine of two vCPUs under KVM with one virtio disk of one queue, root.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        let types: String = machine::TRACEPOINTS
            .iter()
            .map(|name| format!("\0btf_trace_{name}"))
            .collect();
        tree.write("/sys/kernel/btf/vmlinux", &format!("{types}\0"));
        tree.write("/proc/sys/kernel/osrelease", "6.12.0-test\n");
        tree.write("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n");
        tree.write(
            "/sys/devices/system/clocksource/clocksource0/available_clocksource",
            "kvm-clock tsc \n",
        );
        tree.write("/sys/devices/system/cpu/online", "0-1\n");
        tree.write("/sys/devices/system/cpu/isolated", "\n");
        tree.write(
            "/proc/self/status",
            "Name:\tx\nCpus_allowed_list:\t0-1\nCapEff:\t000001ffffffffff\n",
        );
        tree.write(
            "/proc/stat",
            "cpu 0\ncpu0 50 0 0 0 0 0 0 50 0 0\ncpu1 100 0 0 0 0 0 0 0 0 0\n",
        );
        tree.write(
            "/proc/interrupts",
            "     CPU0 CPU1\n 35: 0 1 PCI-MSIX 0-edge virtio1-config\n 36: 5 9 PCI-MSIX 1-edge virtio1-req.0\nNMI: 0 0 Non-maskable\n",
        );
        tree.write("/proc/irq/36/effective_affinity_list", "1\n");
        tree.write("/sys/block/vda/mq/0/cpu_list", "0, 1\n");
        tree.link("/sys/block/vda/device", "../../../virtio1");
        tree.write("/sys/block/loop0/mq/0/cpu_list", "0, 1\n");
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        symlink(target, self.0.path().join(path.trim_start_matches('/'))).unwrap();
    }

    fn facts(&self) -> Facts {
        read(&Root::new(self.0.path()))
    }

    /// As if somebody had looked: this share seen stolen, this many tasks.
    fn looked(&self, seen_percent: f64, tasks: u32) -> Facts {
        let task = |tid| report::Task {
            tid: Tid(tid),
            tgid: tid,
            comm: "fio".into(),
            vcpu: VcpuId(0),
            load_permille: Permille::new(900),
            inactivity_ns: Ns::ZERO,
            moves: 0,
            wakeup: "off".into(),
            completion: "unknown".into(),
        };
        let mut facts = self.facts();
        facts.look = Some(Look {
            seen_percent,
            tasks: (0..tasks).map(task).collect(),
            ..Look::default()
        });
        facts
    }
}

#[test]
fn a_whole_tree_is_read() {
    let facts = Tree::new().facts();
    assert_eq!(facts.machine.kernel, "6.12.0-test");
    assert!(facts.machine.btf && facts.machine.kvm && facts.machine.virtual_machine);
    assert_eq!(facts.machine.missing_tracepoints, Vec::<String>::new());
    assert_eq!(facts.machine.usable(), 2);
    assert_eq!(facts.privileges.missing, Vec::<String>::new());
    assert_eq!(facts.stolen_since_boot_percent(), Some(25.0));
    let disk = Disk {
        name: "vda".into(),
        queues: 1,
        completions: Completions::On("1".parse().unwrap()),
    };
    assert_eq!(
        facts.disks,
        [disk],
        "loop devices have no completions of their own"
    );
}

#[test]
fn the_kernels_preferred_vcpus_are_shown_where_there_are_any() {
    let tree = Tree::new();
    let page = |facts: &Facts| page::render(facts, &verdict::verdict(facts));
    let facts = tree.facts();
    assert_eq!(facts.machine.preferred, None);
    assert!(!page(&facts).contains("prefers"));
    tree.write("/sys/devices/system/cpu/preferred", "0\n");
    let facts = tree.facts();
    assert_eq!(facts.machine.preferred, Some("0".parse().unwrap()));
    assert!(page(&facts).contains("the kernel prefers 0"));
}

#[test]
fn an_empty_tree_is_no_machine_but_no_panic_either() {
    let dir = tempfile::tempdir().unwrap();
    let facts = read(&Root::new(dir.path()));
    assert_eq!(facts.steal_since_boot, None);
    assert!(!page::render(&facts, &verdict::verdict(&facts)).is_empty());
    assert_ne!(verdict::verdict(&facts).exit, Exit::Ok);
}

#[test]
fn one_queue_per_vcpu_follows_the_task() {
    let tree = Tree::new();
    tree.write("/sys/block/nvme0n1/mq/0/cpu_list", "0\n");
    tree.write("/sys/block/nvme0n1/mq/1/cpu_list", "1\n");
    tree.link("/sys/block/nvme0n1/device", "../../nvme0");
    let disks = tree.facts().disks;
    assert_eq!(disks[0].completions, Completions::FollowsTask);
}

#[test]
fn a_disk_that_sends_completions_on_lives_by_the_vcpu_of_its_interrupt() {
    let tree = Tree::new();
    tree.write("/sys/block/vda/queue/rq_affinity", "2\n");
    let facts = tree.looked(30.0, 1);
    assert_eq!(
        facts.disks[0].completions,
        Completions::SentOnFrom(VcpuId(1))
    );
    let verdict = verdict::verdict(&facts);
    assert!(
        verdict.words.contains("on one vCPU only"),
        "{}",
        verdict.words
    );
    let text = page::render(&facts, &verdict);
    assert!(
        text.contains("by way of vCPU 1 only (rq_affinity)"),
        "{text}"
    );
}

#[test]
fn a_disk_without_a_known_interrupt_stays_unknown() {
    let tree = Tree::new();
    tree.write("/proc/interrupts", "     CPU0 CPU1\n");
    assert_eq!(tree.facts().disks[0].completions, Completions::Unknown);
}

#[test]
fn the_verdict_names_the_first_obstacle() {
    let judge = |tree: &Tree| {
        let verdict = verdict::verdict(&tree.looked(30.0, 1));
        (verdict.exit, verdict.words)
    };
    let one_vcpu = Tree::new();
    one_vcpu.write("/sys/devices/system/cpu/online", "0\n");
    one_vcpu.write("/sys/kernel/btf/vmlinux", "");
    let (exit, words) = judge(&one_vcpu);
    assert_eq!(exit, Exit::NothingToGain);
    assert!(words.contains("one vCPU"), "{words}");

    let narrow = Tree::new();
    narrow.write(
        "/proc/self/status",
        "Cpus_allowed_list:\t1\nCapEff:\tffffffffff\n",
    );
    assert!(judge(&narrow).1.contains("cpuset"));

    let no_btf = Tree::new();
    no_btf.write("/sys/kernel/btf/vmlinux", "");
    let (exit, words) = judge(&no_btf);
    assert_eq!(exit, Exit::Kernel);
    assert!(words.contains("CONFIG_DEBUG_INFO_BTF"), "{words}");

    let no_block = Tree::new();
    no_block.write(
        "/sys/kernel/btf/vmlinux",
        "\0btf_trace_sched_switch\0btf_trace_sched_wakeup_new\0",
    );
    let (exit, words) = judge(&no_block);
    assert_eq!(exit, Exit::Kernel);
    assert!(
        words.contains("sched_wakeup,") && words.contains("block_bio_queue"),
        "{words}"
    );
    assert!(!words.contains("sched_switch"), "{words}");

    let user = Tree::new();
    user.write("/proc/self/status", "Cpus_allowed_list:\t0-1\nCapEff:\t0\n");
    let (exit, words) = judge(&user);
    assert_eq!(exit, Exit::Permission);
    assert!(
        words.contains("CAP_BPF, CAP_PERFMON, CAP_SYS_NICE"),
        "{words}"
    );
}

#[test]
fn the_verdict_weighs_steal_and_tasks() {
    let tree = Tree::new();
    let judge = |seen, tasks| verdict::verdict(&tree.looked(seen, tasks));

    let good = judge(50.0, 1);
    assert_eq!(good.exit, Exit::Ok);
    assert!(
        good.words.contains("1 I/O-bound task suffers"),
        "{}",
        good.words
    );
    assert!(good.words.contains("1.5 times"), "{}", good.words);
    assert!(
        good.words.contains("completes on one vCPU only"),
        "{}",
        good.words
    );

    let idle = judge(50.0, 0);
    assert_eq!(idle.exit, Exit::NothingToGain);
    assert!(
        idle.words.contains("no task lived on I/O"),
        "{}",
        idle.words
    );

    let was = judge(0.0, 3);
    assert_eq!(was.exit, Exit::NothingToGain);
    assert!(
        was.words.contains("25.0 % of the time since boot"),
        "{}",
        was.words
    );

    tree.write("/proc/stat", "cpu0 50 0 0 0 0 0 0 0 0 0\n");
    let never = verdict::verdict(&tree.looked(0.0, 3));
    assert!(
        never.words.contains("has its CPUs for itself"),
        "{}",
        never.words
    );
}

#[test]
fn an_engine_that_cannot_start_is_the_verdict() {
    let mut facts = Tree::new().looked(50.0, 1);
    facts.engine_problem = Some(Problem {
        words: "no such thing".into(),
        exit: Exit::Kernel,
    });
    let verdict = verdict::verdict(&facts);
    assert_eq!(verdict.exit, Exit::Kernel);
    assert!(verdict.words.contains("no such thing"));
}

#[test]
fn the_real_time_trap_is_found() {
    let tree = Tree::new();
    tree.write(
        "/proc/self/cgroup",
        "2:cpuset:/\n1:cpu,cpuacct:/user.slice\n0::/\n",
    );
    tree.write(
        "/sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.rt_runtime_us",
        "0\n",
    );
    let mut facts = tree.facts();
    assert_eq!(facts.privileges.rt_runtime_us, Some(0));
    facts.scheduling = Some(Scheduling {
        eevdf_slice_ns: None,
        fifo: false,
    });
    let page = page::render(&facts, &verdict::verdict(&facts));
    assert!(page.contains("no real-time budget"), "{page}");
}

#[test]
fn both_forms_carry_the_verdict() {
    let facts = Tree::new().looked(50.0, 1);
    let verdict = verdict::verdict(&facts);
    assert!(page::render(&facts, &verdict).ends_with(&format!("{}\n", verdict.words)));
    let json = serde_json::to_value(Document {
        verdict: &verdict,
        facts: &facts,
    })
    .unwrap();
    assert_eq!(json["verdict"]["exit_code"], 0);
    assert_eq!(json["look"]["tasks"][0]["comm"], "fio");
}
