// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other VMMs than ours: how their vCPUs are found and called, and what they get. Their
//! guests are those of [`guests`].

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use scx_vcpu::table::Vcpu;
use vlab::vm::Output;
use vlab::vm::Qemu;

use super::Machine;
use super::boot_with;
use super::guests;
use super::number;
use super::said;
use super::share;
use super::vcpus;

/// What the guests are called in the machine.
const GUESTS: [&str; 4] = ["rom", "rom-ejects", "flat", "pvh"];

/// The script's variables are those of the guests' files, and `QEMU`.
fn run(script: &str, machine: Machine<'_>) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (
        GUESTS.map(|name| dir.path().join(name)),
        GUESTS.map(|name| format!("/vlab/{name}")),
    );
    let guests = [
        guests::rom(),
        guests::rom_that_ejects(),
        guests::flat(),
        guests::pvh(),
    ];
    for (file, guest) in here.iter().zip(guests) {
        fs::write(file, guest).unwrap();
    }
    let [rom, ejects, flat, pvh] = &there;
    let files: Vec<(&Path, &str)> = here
        .iter()
        .map(AsRef::as_ref)
        .zip(there.iter().map(AsRef::as_ref))
        .collect();
    boot_with(
        &format!(
            "QEMU=\"{}\"\nROM={rom}\nEJECTS={ejects}\nFLAT={flat}\nPVH={pvh}\n{}{script}",
            Qemu::inside(),
            include_str!("vmms_common.sh")
        ),
        Machine {
            files: &files,
            ..machine
        },
    )
}

/// Two VMs of two vCPUs each, in the order in which they were started, are called so; the
/// first one has twice the weight.
fn shares(output: &Output, key: &str, names: [&str; 2]) {
    let all = vcpus(output, key, 4);
    let are: Vec<(&str, u32)> = all
        .iter()
        .map(|vcpu| (vcpu.name.as_str(), vcpu.vcpu))
        .collect();
    let [first, second] = names;
    assert_eq!(are, [(first, 0), (first, 1), (second, 0), (second, 1)]);
    assert!(all[0].vm == all[1].vm && all[2].vm == all[3].vm, "{all:?}");
    let share = share(&all[..2], &all[2..]);
    eprintln!("{key}: share {share:.3}, asked 0.667");
    assert!((0.60..0.73).contains(&share), "{all:?}");
}

/// Of util-linux.
const CHRT: &str = "/usr/bin/chrt";

#[test]
fn root_vm_scx_vcpu_schedules_vms_of_qemu() {
    let output = run(
        include_str!("vmms.sh"),
        Machine {
            programs: &[Path::new(CHRT)],
            qemu: true,
            ..Machine::default()
        },
    );
    // Started while the scheduler runs, and there before it.
    for policy in ["credit1", "credit2"] {
        shares(&output, policy, ["web", "db"]);
        assert_eq!(number(&output, &format!("{policy}-exit")), 0);
    }

    // A vCPU that QEMU adds while its VM runs has the next number of the same VM.
    let plugged = vcpus(&output, "plugged", 6);
    let plugged: Vec<&Vcpu> = plugged.iter().filter(|vcpu| vcpu.name == "grows").collect();
    let numbers: Vec<u32> = plugged.iter().map(|vcpu| vcpu.vcpu).collect();
    assert_eq!(numbers, [0, 1], "{plugged:?}");
    // One that it takes away is gone, though QEMU keeps its descriptor, and the rest runs on.
    let unplugged = vcpus(&output, "unplugged", 5);
    let left: Vec<&Vcpu> = unplugged.iter().filter(|v| v.name == "grows").collect();
    assert_eq!(left.len(), 1, "{unplugged:?}");
    assert_eq!((left[0].vcpu, left[0].tid), (0, plugged[0].tid));
    assert_eq!(said(&output, "parked"), "2", "descriptors of vCPUs");

    // A real-time vCPU stays one, and a batch job comes back as one.
    assert_eq!(said(&output, "owners"), "1 3");
    assert_eq!(said(&output, "owners-scheduled"), "1 7");
    assert_eq!(said(&output, "owners-after"), "1 3");
    assert_eq!(number(&output, "owners-exit"), 0);
}

/// The same from libvirt, which decides where threads run and what weight a VM has.
#[test]
fn root_vm_scx_vcpu_schedules_vms_of_libvirt() {
    let output = run(
        include_str!("vmms_libvirt.sh"),
        Machine {
            libvirt: true,
            ..Machine::default()
        },
    );
    eprintln!("{}", output.stdout);
    // By `<shares>`, which are `cpu.weight` of the VM's cgroup.
    for policy in ["credit1", "credit2"] {
        shares(&output, policy, ["web", "db"]);
        assert_eq!(number(&output, &format!("{policy}-exit")), 0);
    }

    // `virsh setvcpus`: one more, and one less.
    let numbers = |key, count| {
        let all = vcpus(&output, key, count);
        let grows = all.iter().filter(|vcpu| vcpu.name == "grows");
        grows.map(|vcpu| vcpu.vcpu).collect::<Vec<u32>>()
    };
    assert_eq!(numbers("plugged", 6), [0, 1]);
    assert_eq!(numbers("unplugged", 5), [0]);

    // `virsh vcpupin`: all on the first pCPU.
    let pinned = vcpus(&output, "pinned", 4);
    assert!(pinned.iter().all(|vcpu| vcpu.cpu == 0), "{pinned:?}");

    // `virsh suspend`: nothing for one of two.
    let paused = vcpus(&output, "paused", 4);
    let share = share(&paused[..2], &paused[2..]);
    eprintln!("paused: share {share:.3}, asked 0");
    assert!(share < 0.02, "{paused:?}");
    assert_eq!(said(&output, "left"), "0", "cgroups of VMs");
}

/// What a VMM is given twice in a run: see `vmms_other.sh`.
fn schedules(vmm: &Path, script: &str, names: [&str; 2]) {
    assert!(
        vmm.exists(),
        "no {}; `scripts/setup bench-vm` builds Alioth, docs/scx_vcpu.md says how to build the others",
        vmm.display()
    );
    let output = run(
        &format!("{script}{}", include_str!("vmms_other.sh")),
        Machine {
            programs: &[vmm],
            ..Machine::default()
        },
    );
    for policy in ["credit1", "credit2"] {
        shares(&output, policy, names);
        assert_eq!(number(&output, &format!("{policy}-exit")), 0);
    }
}

/// Installed by scripts/setup.
const ALIOTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin/alioth");

/// It is in no package of Debian's, and knows no names of VMs.
#[test]
#[ignore = "needs a VMM that is built from crates.io; part of the long proofs, see docs/scx_vcpu.md"]
fn root_vm_scx_vcpu_schedules_vms_of_alioth() {
    schedules(
        Path::new(ALIOTH),
        include_str!("vmms_alioth.sh"),
        ["alioth"; 2],
    );
}

/// A directory with VMMs that are built by hand: they are neither in Debian nor on crates.io.
const VMMS: &str = "SCX_VMMS";

fn built(name: &str) -> PathBuf {
    let dir = std::env::var(VMMS);
    let dir = dir.unwrap_or_else(|_| panic!("{VMMS} is not set; it is a directory with {name}"));
    Path::new(&dir).join(name)
}

#[test]
#[ignore = "needs SCX_VMMS, a directory with lkvm; see docs/scx_vcpu.md"]
fn root_vm_scx_vcpu_schedules_vms_of_a_built_kvmtool() {
    schedules(
        &built("lkvm"),
        include_str!("vmms_kvmtool.sh"),
        ["web", "db"],
    );
}

#[test]
#[ignore = "needs SCX_VMMS, a directory with firecracker; see docs/scx_vcpu.md"]
fn root_vm_scx_vcpu_schedules_vms_of_a_built_firecracker() {
    schedules(
        &built("firecracker"),
        include_str!("vmms_firecracker.sh"),
        ["web", "db"],
    );
}

/// It knows no names of VMs.
#[test]
#[ignore = "needs SCX_VMMS, a directory with cloud-hypervisor; see docs/scx_vcpu.md"]
fn root_vm_scx_vcpu_schedules_vms_of_a_built_cloud_hypervisor() {
    schedules(
        &built("cloud-hypervisor"),
        include_str!("vmms_cloud_hypervisor.sh"),
        ["cloud-hypervisor"; 2],
    );
}
