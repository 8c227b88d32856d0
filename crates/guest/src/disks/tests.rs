// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trees of /proc and /sys, as real machines have them.

use std::os::unix::fs::symlink;

use super::*;

/// Two vCPUs that share a cache, no disk yet.
struct Tree {
    dir: tempfile::TempDir,
    roots: Roots,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: dir.path().join("proc"),
            sys: dir.path().join("sys"),
        };
        let tree = Self { dir, roots };
        tree.write("sys/devices/system/cpu/online", "0-1\n");
        tree.caches("0-1", "0-1");
        tree.interrupts(&[]);
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A link; `to` is a path in this tree, too.
    fn link(&self, path: &str, to: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.dir.path().join(to), path).unwrap();
    }

    /// Who shares the third level with vCPU 0 and 1; nobody shares the others.
    fn caches(&self, of_0: &str, of_1: &str) {
        for (cpu, third) in [("0", of_0), ("1", of_1)] {
            let cache = format!("sys/devices/system/cpu/cpu{cpu}/cache");
            for (index, level, shared) in [("0", "1", cpu), ("2", "2", cpu), ("3", "3", third)] {
                self.write(
                    &format!("{cache}/index{index}/level"),
                    &format!("{level}\n"),
                );
                self.write(
                    &format!("{cache}/index{index}/shared_cpu_list"),
                    &format!("{shared}\n"),
                );
            }
        }
    }

    /// Number, name and effective vCPUs.
    fn interrupts(&self, rows: &[(u32, &str, &str)]) {
        let mut table = "           CPU0       CPU1\n".to_owned();
        for (number, name, vcpus) in rows {
            table.push_str(&format!(
                "  {number}:  5  9  PCI-MSIX-0000:00:02.0  1-edge  {name}\n"
            ));
            self.write(
                &format!("proc/irq/{number}/effective_affinity_list"),
                &format!("{vcpus}\n"),
            );
        }
        table.push_str("NMI:          0          0   Non-maskable interrupts\n");
        self.write("proc/interrupts", &table);
    }

    /// A disk on a device of a PCI function with these interrupts, with these queues.
    fn disk(&self, name: &str, number: &str, device: &str, irqs: &[u32], queues: &[&str]) {
        let function = "sys/devices/pci0000:00/0000:00:02.0";
        self.write(&format!("{function}/irq"), "0\n");
        for irq in irqs {
            self.write(&format!("{function}/msi_irqs/{irq}"), "msix\n");
        }
        let block = format!("{function}/{device}/block/{name}");
        for (queue, cpus) in queues.iter().enumerate() {
            self.write(
                &format!("{block}/mq/{queue}/cpu_list"),
                &format!("{cpus}\n"),
            );
        }
        self.write(&format!("{block}/queue/rq_affinity"), "1\n");
        self.link(&format!("{block}/device"), &format!("{function}/{device}"));
        self.link(&format!("sys/block/{name}"), &block);
        self.link(&format!("sys/dev/block/{number}"), &block);
    }

    /// virtio-blk with one queue, whose interrupt arrives at vCPU 1.
    fn with_vda() -> Self {
        let tree = Self::new();
        tree.disk("vda", "254:0", "virtio1", &[35, 36], &["0, 1"]);
        tree.interrupts(&[(35, "virtio1-config", "0"), (36, "virtio1-req.0", "1")]);
        tree
    }

    /// A disk of device-mapper on these: links into `sys`.
    fn mapped(&self, minor: u32, below: &[&str]) {
        let block = format!("sys/devices/virtual/block/dm-{minor}");
        self.write(&format!("{block}/dm/name"), "root\n");
        for slave in below {
            let name = slave.rsplit('/').next().unwrap();
            self.link(&format!("{block}/slaves/{name}"), slave);
        }
        self.link(&format!("sys/dev/block/253:{minor}"), &block);
    }

    fn by_number(&self, major: u32, minor: u32) -> Completions {
        Disks::of(&self.roots).by_number(major << 20 | minor)
    }
}

const VDA: &str = "sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda";

fn on(vcpu: u32) -> Completions {
    Completions::On(CpuSet::only(VcpuId(vcpu)))
}

#[test]
fn a_disk_with_one_queue_completes_where_its_interrupt_arrives() {
    let tree = Tree::with_vda();
    assert_eq!(tree.by_number(254, 0), on(1));
    assert_eq!(on(1).prior(), Prior::At(VcpuId(1)));
    // Not where the configuration's does.
    tree.interrupts(&[(35, "virtio1-config", "1"), (36, "virtio1-req.0", "0")]);
    assert_eq!(tree.by_number(254, 0), on(0));
    let disks = Disks::of(&tree.roots).all();
    let vda = Disk {
        name: "vda".into(),
        queues: 1,
        completions: on(0),
    };
    assert_eq!(disks, [vda]);
}

#[test]
fn a_partition_is_its_disk() {
    let tree = Tree::with_vda();
    tree.write(&format!("{VDA}/vda1/partition"), "1\n");
    tree.link("sys/dev/block/254:1", &format!("{VDA}/vda1"));
    assert_eq!(tree.by_number(254, 1), on(1));
    assert_eq!(tree.by_number(254, 9), Completions::Unknown, "no such disk");
}

#[test]
fn a_queue_for_each_vcpu_follows_the_task() {
    let tree = Tree::new();
    let irqs = [40, 41, 42];
    tree.disk("nvme0n1", "259:0", "nvme/nvme0", &irqs, &["0", "1"]);
    let rows = [
        (40, "nvme0q0", "0"),
        (41, "nvme0q1", "0"),
        (42, "nvme0q2", "1"),
    ];
    tree.interrupts(&rows);
    assert_eq!(tree.by_number(259, 0), Completions::FollowsTask);
    assert_eq!(Completions::FollowsTask.prior(), Prior::Follows);
    // The administration queue alone is no reason to believe anything else.
    tree.interrupts(&rows[..1]);
    assert_eq!(tree.by_number(259, 0), Completions::FollowsTask);
    // A vCPU more, which shares the second queue.
    tree.interrupts(&rows);
    tree.write("sys/devices/system/cpu/online", "0-2\n");
    let block = "sys/devices/pci0000:00/0000:00:02.0/nvme/nvme0/block/nvme0n1";
    tree.write(&format!("{block}/mq/1/cpu_list"), "1, 2\n");
    let mixed = tree.by_number(259, 0);
    assert_eq!(mixed, Completions::On(CpuSet::first(2)));
    assert_eq!((mixed.prior(), mixed.vcpu()), (Prior::None, None));
    // It is offline.
    tree.write("sys/devices/system/cpu/online", "0-1\n");
    assert_eq!(tree.by_number(259, 0), Completions::FollowsTask);
}

#[test]
fn queues_that_share_one_interrupt_complete_there() {
    let tree = Tree::new();
    tree.disk("vda", "254:0", "virtio1", &[35, 36], &["0", "1"]);
    tree.interrupts(&[(35, "virtio1-config", "0"), (36, "virtio1-virtqueues", "1")]);
    assert_eq!(tree.by_number(254, 0), on(1));
}

#[test]
fn a_disk_of_a_host_adapter_has_the_adapters_interrupts() {
    let tree = Tree::new();
    let target = "virtio2/host0/target0:0:0/0:0:0:0";
    tree.disk("sda", "8:0", target, &[50, 51, 52, 53], &["0, 1"]);
    tree.interrupts(&[
        (50, "virtio2-config", "0"),
        (51, "virtio2-control", "0"),
        (52, "virtio2-event", "0"),
        (53, "virtio2-request", "1"),
        (54, "virtio3-request", "0"),
    ]);
    assert_eq!(tree.by_number(8, 0), on(1));
}

#[test]
fn without_pci_the_name_of_the_interrupt_says_whose_it_is() {
    let tree = Tree::new();
    let block = "sys/devices/platform/a000000.virtio_mmio/virtio0/block/vda";
    tree.write(&format!("{block}/mq/0/cpu_list"), "0, 1\n");
    tree.link(
        &format!("{block}/device"),
        "sys/devices/platform/a000000.virtio_mmio/virtio0",
    );
    tree.link("sys/dev/block/254:0", block);
    tree.interrupts(&[(12, "virtio0", "0"), (13, "virtio01", "1")]);
    assert_eq!(tree.by_number(254, 0), on(0));
    tree.interrupts(&[]);
    assert_eq!(tree.by_number(254, 0), Completions::Unknown);
}

#[test]
fn rq_affinity_says_who_is_sent_a_completion() {
    let tree = Tree::with_vda();
    let set = |value: &str| tree.write(&format!("{VDA}/queue/rq_affinity"), value);
    let sent_on = Completions::SentOnFrom(VcpuId(1));
    set("0\n");
    assert_eq!(tree.by_number(254, 0), on(1));
    set("2\n");
    assert_eq!(tree.by_number(254, 0), sent_on);
    assert_eq!(sent_on.prior(), Prior::SentOnFrom(VcpuId(1)));
    assert_eq!(sent_on.vcpu(), Some(VcpuId(1)));
    // To the cache: everybody shares it, then nobody.
    set("1\n");
    assert_eq!(tree.by_number(254, 0), on(1));
    tree.caches("0", "1");
    assert_eq!(tree.by_number(254, 0), sent_on);
    set("0\n");
    assert_eq!(tree.by_number(254, 0), on(1));
    // No cache is described.
    set("1\n");
    fs::remove_dir_all(tree.roots.sys.join("devices/system/cpu/cpu1")).unwrap();
    assert_eq!(tree.by_number(254, 0), on(1));
    // Alone there is nobody to send it to.
    set("2\n");
    tree.write("sys/devices/system/cpu/online", "1\n");
    assert_eq!(tree.by_number(254, 0), on(1));
}

#[test]
fn device_mapper_completes_where_the_disks_below_do() {
    let tree = Tree::with_vda();
    tree.write(&format!("{VDA}/vda1/partition"), "1\n");
    tree.mapped(0, &[&format!("{VDA}/vda1")]);
    assert_eq!(tree.by_number(253, 0), on(1));
    // A volume on that.
    tree.mapped(1, &["sys/devices/virtual/block/dm-0"]);
    assert_eq!(tree.by_number(253, 1), on(1));
    // Of two disks, of which nothing is known of one.
    tree.write("sys/devices/virtual/block/ram0/queue/rq_affinity", "1\n");
    tree.mapped(2, &[VDA, "sys/devices/virtual/block/ram0"]);
    assert_eq!(tree.by_number(253, 2), Completions::Unknown);
    // On itself, which no kernel lets happen.
    tree.mapped(3, &["sys/devices/virtual/block/dm-3"]);
    assert_eq!(tree.by_number(253, 3), Completions::Unknown);
    // It has no device of its own, and is not listed.
    assert_eq!(Disks::of(&tree.roots).all().len(), 1);
}

#[test]
fn a_loop_device_says_nothing_although_it_has_a_queue() {
    let tree = Tree::with_vda();
    let block = "sys/devices/virtual/block/loop0";
    tree.write(&format!("{block}/mq/0/cpu_list"), "0, 1\n");
    tree.link("sys/dev/block/7:0", block);
    assert_eq!(tree.by_number(7, 0), Completions::Unknown);
}

#[test]
fn only_request_queues_of_the_very_device_count() {
    for (interrupt, device) in [
        ("virtio1-req.0", "virtio1"),
        ("virtio1-virtqueues", "virtio1"),
        ("nvme0q1", "nvme0"),
        ("ahci", "ahci"),
    ] {
        assert!(is_queue(interrupt, device) && !is_for_control(interrupt));
    }
    for (interrupt, device) in [
        ("virtio1-config", "virtio1"),
        ("virtio11-req.0", "virtio1"),
        ("nvme0q0", "nvme0"),
        ("nvme01q1", "nvme0"),
    ] {
        assert!(!is_queue(interrupt, device), "{interrupt} {device}");
    }
    assert!(is_for_control("nvme12q0") && !is_for_control("nvme1q10"));
}

#[test]
fn an_empty_tree_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots {
        proc: dir.path().join("proc"),
        sys: dir.path().join("sys"),
    };
    let disks = Disks::of(&roots);
    assert_eq!(disks.all(), []);
    assert_eq!(disks.by_number(254 << 20), Completions::Unknown);
}
