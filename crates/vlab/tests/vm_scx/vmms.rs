// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other VMMs than ours: how their vCPUs are found and called, and what they get.
//!
//! Their guest is a ROM of one page of code: firmware and a kernel would need minutes here,
//! and a vCPU that computes is one whatever it computes.

use std::fs;
use std::path::Path;

use scx_vcpu::table::Vcpu;
use vlab::vm::Output;
use vlab::vm::Qemu;

use super::Machine;
use super::boot_with;
use super::number;
use super::said;
use super::share;
use super::vcpus;

/// Where the ROM is in the machine, and the one that gives CPUs back.
const ROM: &str = "/vlab/rom";
const EJECTS: &str = "/vlab/rom-ejects";

/// Bytes of the ROM; it ends at 4 GiB.
const SIZE: usize = 0x10000;

/// A global descriptor table of two entries, where the code expects it.
const TABLE: usize = 0x100;

/// `jmp $`.
const COMPUTE: [u8; 2] = [0xeb, 0xfe];

/// In the place of an operating system, which QEMU asks to give a CPU back (its
/// docs/specs/acpi_cpu_hotplug.rst): looks now and then whether it is CPU 1, and does.
#[rustfmt::skip]
const EJECT: [&[u8]; 11] = [
    // mov dx, 0xaf00; xor eax, eax; out dx, eax: that interface, and not an older one
    &[0xba, 0x00, 0xaf], &[0x66, 0x31, 0xc0, 0x66, 0xef],
    // 1: mov dx, 0xaf00; mov eax, 1; out dx, eax: CPU 1
    &[0xba, 0x00, 0xaf], &[0x66, 0xb8, 0x01, 0x00, 0x00, 0x00, 0x66, 0xef],
    // mov dx, 0xaf04; in al, dx; test al, 4; jz 2f: is it to go?
    &[0xba, 0x04, 0xaf], &[0xec, 0xa8, 0x04], &[0x74, 0x03],
    // mov al, 8; out dx, al: it goes
    &[0xb0, 0x08, 0xee],
    // 2: mov ecx, 1 << 24; 3: dec ecx; jnz 3b: computes
    &[0x66, 0xb9, 0x00, 0x00, 0x00, 0x01], &[0x66, 0x49, 0x75, 0xfc],
    // jmp 1b
    &[0xeb, 0xde],
];

/// The first vCPU wakes all others, which compute, and does `then`.
fn rom(then: &[u8]) -> Vec<u8> {
    #[rustfmt::skip]
    let code: [&[u8]; 13] = [
        // cli; lgdt cs:[TABLE + 16], with 32 bits of base
        &[0xfa, 0x2e, 0x66, 0x0f, 0x01, 0x16, 0x10, 0x01],
        // mov eax, cr0; or al, 1; mov cr0, eax: protected, the code segment stays as it was
        &[0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0],
        // mov ax, 8; mov ds, ax: all of the memory
        &[0xb8, 0x08, 0x00, 0x8e, 0xd8],
        // mov word [0x8000], `jmp $`: where the others begin
        &[0xc7, 0x06, 0x00, 0x80, 0xeb, 0xfe],
        // mov dword [0xfee000f0], 0x1ff: the local APIC is on
        &[0x66, 0x67, 0xc7, 0x05, 0xf0, 0x00, 0xe0, 0xfe, 0xff, 0x01, 0x00, 0x00],
        // mov dword [0xfee00300], 0xc4500: INIT to all others
        &[0x66, 0x67, 0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x00, 0x45, 0x0c, 0x00],
        // mov ecx, 1 << 20; dec ecx; jnz back
        &[0x66, 0xb9, 0x00, 0x00, 0x10, 0x00],
        &[0x66, 0x49, 0x75, 0xfc],
        // mov dword [0xfee00300], 0xc4608: start at 0x8000; twice, as processors ask for
        &[0x66, 0x67, 0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x08, 0x46, 0x0c, 0x00],
        &[0x66, 0xb9, 0x00, 0x00, 0x10, 0x00],
        &[0x66, 0x49, 0x75, 0xfc],
        &[0x66, 0x67, 0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x08, 0x46, 0x0c, 0x00],
        then,
    ];
    let mut rom = vec![0; SIZE];
    let mut put = |at: usize, what: &[u8]| rom[at..at + what.len()].copy_from_slice(what);
    let code = code.concat();
    assert!(code.len() <= TABLE);
    put(0, &code);
    // Data, writable, 4 GiB from 0 on; marked as used, for the ROM cannot be written.
    put(TABLE + 8, &[0xff, 0xff, 0, 0, 0, 0x93, 0xcf, 0]);
    // Its limit and where it is.
    put(TABLE + 16, &[0x0f, 0, 0, (TABLE >> 8) as u8, 0xff, 0xff]);
    // Where a processor begins: jmp to the beginning.
    put(0xfff0, &[0xe9, 0x0d, 0x00]);
    rom
}

/// The machine with the ROM, and QEMU or another VMM.
fn run(script: &str, qemu: bool, programs: &[&Path]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let (file, ejects) = (dir.path().join("rom"), dir.path().join("rom-ejects"));
    fs::write(&file, rom(&COMPUTE)).unwrap();
    fs::write(&ejects, rom(&EJECT.concat())).unwrap();
    boot_with(
        &format!(
            "QEMU=\"{}\"\nROM={ROM}\nEJECTS={EJECTS}\n{}{script}",
            Qemu::inside(),
            include_str!("vmms_common.sh")
        ),
        Machine {
            programs,
            files: &[(&file, ROM), (&ejects, EJECTS)],
            qemu,
            ..Machine::default()
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
    let output = run(include_str!("vmms.sh"), true, &[Path::new(CHRT)]);
    assert!(!output.stdout.contains("-lost"), "{}", output.stdout);
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

/// Installed by scripts/setup.
const ALIOTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin/alioth");

/// It is in no package of Debian's.
#[test]
#[ignore = "needs a VMM that is built from crates.io; part of the long proofs, see docs/scx_vcpu.md"]
fn root_vm_scx_vcpu_schedules_vms_of_alioth() {
    let output = run(include_str!("vmms_alioth.sh"), false, &[Path::new(ALIOTH)]);
    assert!(!output.stdout.contains("-lost"), "{}", output.stdout);
    // It knows no names of VMs.
    for policy in ["credit1", "credit2"] {
        shares(&output, policy, ["alioth", "alioth"]);
        assert_eq!(number(&output, &format!("{policy}-exit")), 0);
    }
}
