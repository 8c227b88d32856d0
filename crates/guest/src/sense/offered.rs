// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does the hypervisor fill in the steal pages?
//!
//! A kernel with `CONFIG_KVM_GUEST` has the pages wherever it runs. On Xen,
//! Hyper-V or VMware, under plain emulation, and where KVM was told not to report
//! steal time they stay zero for good, and a daemon that trusted them would sleep
//! for good. So the CPU is asked, as `kvm_para_has_feature` of
//! `arch/x86/kernel/kvm.c` does.

use std::fs;

/// Leaves at which a hypervisor may introduce itself, one every 256
/// (`hypervisor_cpuid_base` of `arch/x86/include/asm/processor.h`): KVM comes
/// second where it imitates Hyper-V.
const FIRST: u32 = 0x4000_0000;
const LAST: u32 = 0x4001_0000;
const STEP: usize = 0x100;

/// Bit of the feature leaf, the second of KVM's.
const KVM_FEATURE_STEAL_TIME: u32 = 1 << 5;

/// Why there is no steal time here; `None` if there is.
pub(super) fn missing() -> Option<&'static str> {
    if !has_steal_time(cpuid) {
        return Some("this hypervisor reports no steal time as KVM does");
    }
    let parameters = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    switched_off(&parameters).then_some("the kernel was booted with no-steal-acc")
}

fn switched_off(parameters: &str) -> bool {
    parameters
        .split_whitespace()
        .any(|word| word == "no-steal-acc")
}

/// The four registers of a leaf, in the order of their letters.
type Leaf = [u32; 4];

fn has_steal_time(cpuid: impl Fn(u32) -> Leaf) -> bool {
    /// CPUID.1:ECX: there is a hypervisor, so its leaves mean something.
    const HYPERVISOR: u32 = 1 << 31;
    if cpuid(1)[2] & HYPERVISOR == 0 {
        return false;
    }
    (FIRST..LAST)
        .step_by(STEP)
        .find(|base| signature(cpuid(*base)) == *b"KVMKVMKVM\0\0\0")
        .is_some_and(|base| cpuid(base + 1)[0] & KVM_FEATURE_STEAL_TIME != 0)
}

fn signature([_, b, c, d]: Leaf) -> [u8; 12] {
    let mut text = [0; 12];
    for (part, register) in text.chunks_exact_mut(4).zip([b, c, d]) {
        part.copy_from_slice(&register.to_le_bytes());
    }
    text
}

#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32) -> Leaf {
    let told = std::arch::x86_64::__cpuid(leaf);
    [told.eax, told.ebx, told.ecx, told.edx]
}

/// No other architecture has KVM's steal pages in this form.
#[cfg(not(target_arch = "x86_64"))]
fn cpuid(_leaf: u32) -> Leaf {
    [0; 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hypervisor with this signature at `base`, and these features.
    fn machine(base: u32, name: &[u8; 12], features: u32) -> impl Fn(u32) -> Leaf {
        let word =
            |at: usize| u32::from_le_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]]);
        let introduction = [base + 1, word(0), word(4), word(8)];
        move |leaf| match leaf {
            1 => [0, 0, 1 << 31, 0],
            _ if leaf == base => introduction,
            _ if leaf == base + 1 => [features, 0, 0, 0],
            _ => [0; 4],
        }
    }

    #[test]
    fn kvm_says_so_at_either_place() {
        for base in [FIRST, FIRST + 0x100] {
            assert!(has_steal_time(machine(base, b"KVMKVMKVM\0\0\0", 0xff)));
            // Everything but steal time: -cpu host,kvm-steal-time=off.
            assert!(!has_steal_time(machine(
                base,
                b"KVMKVMKVM\0\0\0",
                0xff & !(1 << 5)
            )));
        }
    }

    #[test]
    fn others_do_not() {
        for name in [
            b"TCGTCGTCGTCG",
            b"VMwareVMware",
            b"Microsoft Hv",
            b"XenVMMXenVMM",
        ] {
            assert!(!has_steal_time(machine(FIRST, name, 0xff)));
        }
        assert!(!has_steal_time(|_| [0; 4]), "no hypervisor at all");
    }

    #[test]
    fn the_parameter_counts_as_a_whole_word() {
        assert!(switched_off("ro quiet no-steal-acc\n"));
        assert!(!switched_off("ro no-steal-accounting x=no-steal-acc"));
    }
}
