// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest: its memory, and the few instructions of each kind of vCPU.

use std::io;

use anyhow::Context;
use kvm_bindings::kvm_userspace_memory_region;

/// Interrupt that devices and vCPUs raise.
pub(super) const VECTOR: u8 = 0x20;
/// Ports: a piece of work is done; the interrupt was there.
pub(super) const DONE: u16 = 0x10;
/// See there.
pub(super) const AWAKE: u16 = 0x11;

/// Where the handler of [`VECTOR`] is.
const HANDLER: u16 = 0x600;
/// Bytes of the guest's memory.
const MEMORY: usize = 0x10000;

/// What a vCPU does after each piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The next one. It takes interrupts at any time.
    Nothing,
    /// It waits for its device.
    Waits,
    /// It wakes vCPU 1.
    Wakes,
    /// It never works and only halts.
    Halts,
}

impl Then {
    const ALL: [Self; 4] = [Self::Nothing, Self::Waits, Self::Wakes, Self::Halts];

    /// Where its code is.
    pub(super) fn address(self) -> u64 {
        0x500 + 0x40 * self as u64
    }

    /// `sti` or `cli`, then `1: mov ecx, ebx; 2: dec ecx; jnz 2b; out DONE, al`, then
    /// `jmp 1b`, or `sti; hlt; cli; out AWAKE, al; jmp 1b`, or `SEND; jmp 1b`.
    fn code(self) -> Vec<u8> {
        if self == Self::Halts {
            return HALT.to_vec();
        }
        let mut code = vec![if self == Self::Nothing { 0xfb } else { 0xfa }];
        code.extend([0x66, 0x89, 0xd9]);
        code.extend([0x66, 0x49, 0x75, 0xfc]);
        code.extend([0xe6, DONE as u8]);
        if self == Self::Wakes {
            code.extend(SEND);
        }
        if self == Self::Waits {
            code.extend([0xfb, 0xf4, 0xfa]);
            code.extend([0xe6, AWAKE as u8]);
        }
        // A jump is relative to what follows it; its target is byte 1.
        let back = 1 - (code.len() as i8 + 2);
        code.extend([0xeb, back.cast_unsigned()]);
        code
    }
}

/// `cli; 1: sti; hlt; cli; jmp 1b`.
const HALT: [u8; 6] = [0xfa, 0xfb, 0xf4, 0xfa, 0xeb, 0xfb];

/// `mov dword es:[0x310], 1 << 24; mov dword es:[0x300], 0x4000 | VECTOR`: an interrupt
/// to the vCPU whose APIC is number 1.
const SEND: [u8; 20] = [
    0x66, 0x26, 0xc7, 0x06, 0x10, 0x03, 0, 0, 0, 1, 0x66, 0x26, 0xc7, 0x06, 0x00, 0x03, VECTOR,
    0x40, 0, 0,
];

/// `mov dword es:[0xb0], 0; iret`: tells the APIC that the interrupt was served.
const SERVE: [u8; 11] = [0x66, 0x26, 0xc7, 0x06, 0xb0, 0, 0, 0, 0, 0, 0xcf];

/// The guest's memory, with the code of all kinds of vCPUs.
pub(super) struct Memory(*mut libc::c_void);

impl Memory {
    pub(super) fn new() -> anyhow::Result<Self> {
        // SAFETY: a new anonymous mapping, which touches nothing that exists.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MEMORY,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("no memory for the guest");
        }
        // SAFETY: MEMORY bytes are mapped there, writable, and no vCPU runs yet.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), MEMORY) };
        for (at, what) in Self::written() {
            bytes[at..at + what.len()].copy_from_slice(&what);
        }
        Ok(Self(at))
    }

    /// What it begins with and the guest never changes, and where.
    fn written() -> Vec<(usize, Vec<u8>)> {
        let codes = Then::ALL.map(|then| (then.address() as usize, then.code()));
        let mut all = codes.to_vec();
        all.push((usize::from(HANDLER), SERVE.to_vec()));
        all.push((usize::from(VECTOR) * 4, HANDLER.to_le_bytes().to_vec()));
        all
    }

    /// The guest's address of the first byte of that which is not what it was.
    pub(super) fn damage(&self) -> Option<usize> {
        let places = Self::written().into_iter();
        let mut each = places.flat_map(|(at, what)| (at..).zip(what));
        // SAFETY: MEMORY bytes are mapped there, all of that among them. A vCPU may still run
        // and write, hence volatile.
        let is = |at| unsafe { self.0.cast::<u8>().add(at).read_volatile() };
        each.find(|&(at, what)| is(at) != what).map(|(at, _)| at)
    }

    pub(super) fn region(&self) -> kvm_userspace_memory_region {
        kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: MEMORY as u64,
            userspace_addr: self.0 as u64,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no vCPU runs any more.
        unsafe { libc::munmap(self.0, MEMORY) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_loops_jump_back_to_their_second_byte() {
        for then in Then::ALL {
            let code = then.code();
            let back = code[code.len() - 1].cast_signed();
            assert_eq!(code.len() as i64 + i64::from(back), 1, "{then:?}");
            let halts = [Then::Waits, Then::Halts].contains(&then);
            assert_eq!(code.contains(&0xf4), halts, "{then:?}: hlt");
            // sti is 0xfb, and only who computes begins with it.
            assert_eq!(code[0] == 0xfb, then == Then::Nothing, "{then:?}");
        }
    }

    #[test]
    fn nothing_lies_where_something_else_does() {
        let ends = Then::ALL.map(|then| then.address() as usize + then.code().len());
        let begins = Then::ALL.map(|then| then.address() as usize);
        for (end, next) in ends.iter().zip(&begins[1..]) {
            assert!(end <= next);
        }
        assert!(begins[0] > usize::from(VECTOR) * 4 + 4);
        assert!(ends[3] <= usize::from(HANDLER));
    }

    #[test]
    fn what_has_changed_in_the_code_is_found() {
        let memory = Memory::new().unwrap();
        assert_eq!(memory.damage(), None);
        let at = Then::Waits.address() as usize + 3;
        // SAFETY: within the mapping, and nobody else looks at it.
        unsafe { *memory.0.cast::<u8>().add(at) ^= 1 };
        assert_eq!(memory.damage(), Some(at));
    }
}
