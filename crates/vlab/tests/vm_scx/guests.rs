// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests of one page of code for VMMs that are not ours: the first vCPU wakes all others,
//! and all compute. Firmware and a kernel would need minutes here, and a vCPU that computes
//! is one whatever it computes.
//!
//! VMMs begin differently: with a ROM below 4 GiB, with an image in memory, with an ELF file.

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

/// Where kvmtool puts a kernel that is no Linux: its segment and, with that, its address
/// (x86/include/kvm/boot-protocol.h).
const FLAT: u32 = 0x10000;

/// For VMMs with firmware: a ROM that ends at 4 GiB.
pub(super) fn rom() -> Vec<u8> {
    real_mode(0xffff_0000, &COMPUTE)
}

/// As [`rom`], and the first vCPU gives back the second one when QEMU asks for it.
pub(super) fn rom_that_ejects() -> Vec<u8> {
    real_mode(0xffff_0000, &EJECT.concat())
}

/// For kvmtool: an image that begins with its first byte.
pub(super) fn flat() -> Vec<u8> {
    real_mode(FLAT, &COMPUTE)
}

/// Where the code of [`pvh`] is: Firecracker and cloud-hypervisor want it above 1 MiB.
const ABOVE: u32 = 0x0010_0000;

/// For VMMs that boot by Xen's PVH (Firecracker, cloud-hypervisor): an ELF file whose note
/// says where to begin, with 32 bits and without paging.
pub(super) fn pvh() -> Vec<u8> {
    #[rustfmt::skip]
    let code: [&[u8]; 9] = [
        // mov word [0x8000], `jmp $`: where the others begin
        &[0x66, 0xc7, 0x05, 0x00, 0x80, 0x00, 0x00, 0xeb, 0xfe],
        // mov dword [0xfee000f0], 0x1ff: the local APIC is on
        &[0xc7, 0x05, 0xf0, 0x00, 0xe0, 0xfe, 0xff, 0x01, 0x00, 0x00],
        // mov dword [0xfee00300], 0xc4500: INIT to all others
        &[0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x00, 0x45, 0x0c, 0x00],
        // mov ecx, 1 << 20; 1: dec ecx; jnz 1b
        &[0xb9, 0x00, 0x00, 0x10, 0x00, 0x49, 0x75, 0xfd],
        // mov dword [0xfee00300], 0xc4608: start at 0x8000; twice, as processors ask for
        &[0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x08, 0x46, 0x0c, 0x00],
        &[0xb9, 0x00, 0x00, 0x10, 0x00, 0x49, 0x75, 0xfd],
        &[0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x08, 0x46, 0x0c, 0x00],
        &COMPUTE,
        // Up to a multiple of four, for the note.
        &[0x90; 1],
    ];
    let code = code.concat();
    assert_eq!(code.len() % 4, 0, "{}", code.len());
    // XEN_ELFNOTE_PHYS32_ENTRY of "Xen".
    let mut note = Vec::new();
    for word in [4u32, 4, 18, u32::from_le_bytes(*b"Xen\0"), ABOVE] {
        note.extend(word.to_le_bytes());
    }
    let (header, segment) = (64u64, 56u64);
    let at = header + 2 * segment;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // A program for x86-64, of version 1.
    for half in [2u16, 62, 1, 0] {
        file.extend(half.to_le_bytes());
    }
    for address in [u64::from(ABOVE), header, 0] {
        file.extend(address.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [header as u16, segment as u16, 2, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // PT_LOAD, readable and executable, and PT_NOTE.
    for (kind, flags, offset, length) in [
        (1u32, 5u32, at, code.len() as u64),
        (4, 4, at + code.len() as u64, note.len() as u64),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        let address = u64::from(ABOVE) + (offset - at);
        for value in [offset, address, address, length, length, 4] {
            file.extend(value.to_le_bytes());
        }
    }
    file.extend(code);
    file.extend(note);
    file
}

/// 16-bit code that begins with its first byte at `base`, or where a processor does: the
/// first vCPU wakes all others, which compute, and does `then`.
fn real_mode(base: u32, then: &[u8]) -> Vec<u8> {
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
    put(TABLE + 16, &[0x0f, 0]);
    put(TABLE + 18, &(base + TABLE as u32).to_le_bytes());
    // Where a processor begins: jmp to the beginning.
    put(0xfff0, &[0xe9, 0x0d, 0x00]);
    rom
}
