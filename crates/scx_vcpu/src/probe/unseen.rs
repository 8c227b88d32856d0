// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the counters and the policies miss on a machine that can run the scheduler.

use std::fs;
use std::path::Path;

use super::has_kvm_function;
use super::kvm;

/// Where interrupts to vCPUs are seen, see `event.h`. A static function of KVM: a
/// compiler may have dissolved it.
pub(crate) const EVENTS: &str = "__apic_accept_irq";

/// Where halts of guests are seen, see `halt.h`; since 5.17.
pub(crate) const HALTS: &str = "kvm_vcpu_halt";

/// What it means that [`EVENTS`] cannot be traced.
pub(crate) fn no_events() -> String {
    format!(
        "this kernel's KVM has no {EVENTS} that can be traced: io, ipi, wake_ipis and wakers stay 0, credit1 and ische boost nobody, ische.automatic takes no VM for io, and isacs sees no I/O; use another policy, or a kernel whose KVM has it"
    )
}

/// What it means that [`HALTS`] cannot be traced.
pub(crate) fn no_halts() -> String {
    format!(
        "this kernel's KVM has no {HALTS} that can be traced: halts and halted stay 0, which no policy looks at; Linux 5.17 and newer have it"
    )
}

/// Modules and their parameters with which hardware delivers IPIs between vCPUs, so that no
/// function of KVM is called (AMD's AVIC; IPI virtualisation, since Intel's Sapphire Rapids).
const DELIVERED_BY_HARDWARE: [(&str, &str); 2] =
    [("kvm_amd", "avic"), ("kvm_intel", "enable_ipiv")];

/// What the counters and the policies miss with KVM as it is loaded below `root` (normally `/`);
/// each is one line, and nothing that stands in the way.
#[must_use]
pub fn unseen(root: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    // Without KVM nothing is known of it, and that has been said.
    if kvm(root).is_ok() {
        if !has_kvm_function(root, EVENTS) {
            notes.push(no_events());
        }
        if !has_kvm_function(root, HALTS) {
            notes.push(no_halts());
        }
    }
    for (module, parameter) in DELIVERED_BY_HARDWARE {
        if is_on(root, module, parameter) {
            notes.push(format!(
                "hardware delivers IPIs between vCPUs ({parameter} of {module} is on): ipi, wake_ipis and wakers count too few; to see all, load it with {parameter}=0"
            ));
        }
    }
    if is_on(root, "kvm_intel", "enable_apicv") && has_posting_iommu(root) {
        notes.push(
            "hardware delivers interrupts of devices that are passed through (posted interrupts: enable_apicv of kvm_intel is on, and the IOMMU can): io counts too few, and credit1, ische and isacs do not heed them; to see all, load it with enable_apicv=0"
                .to_owned(),
        );
    }
    notes
}

/// Is this switch of a module on?
fn is_on(root: &Path, module: &str, parameter: &str) -> bool {
    let file = format!("sys/module/{module}/parameters/{parameter}");
    // A number or a letter, by the kernel's version.
    let value = fs::read_to_string(root.join(file)).unwrap_or_default();
    matches!(value.trim(), "Y" | "1")
}

/// Posted interrupts, in the capability register of Intel's IOMMUs (`cap_pi_support` in Linux).
const POSTS: u64 = 1 << 59;

/// Is there an IOMMU of Intel's that hands interrupts to a vCPU that runs?
fn has_posting_iommu(root: &Path) -> bool {
    let units = fs::read_dir(root.join("sys/class/iommu"));
    units.into_iter().flatten().flatten().any(|unit| {
        let text = fs::read_to_string(unit.path().join("intel-iommu/cap")).unwrap_or_default();
        u64::from_str_radix(text.trim(), 16).is_ok_and(|cap| cap & POSTS != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn ipis_that_hardware_hides_are_told_of() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(unseen(dir.path()), [""; 0], "no KVM");
        for (file, value, told) in [
            ("kvm_amd/parameters/avic", "N\n", None),
            ("kvm_amd/parameters/avic", "0\n", None),
            ("kvm_amd/parameters/avic", "1\n", Some("avic=0")),
            ("kvm_amd/parameters/avic", "Y\n", Some("avic=0")),
            ("kvm_amd/parameters/avic", "N\n", None),
            ("kvm_intel/parameters/enable_ipiv", "N\n", None),
            (
                "kvm_intel/parameters/enable_ipiv",
                "Y\n",
                Some("enable_ipiv=0"),
            ),
        ] {
            write(dir.path(), &format!("sys/module/{file}"), value);
            let said = unseen(dir.path());
            assert_eq!(said.len(), usize::from(told.is_some()), "{file}: {said:?}");
            if let (Some(told), [line]) = (told, said.as_slice()) {
                assert!(line.ends_with(told) && line.lines().count() == 1, "{line}");
            }
        }
    }

    #[test]
    fn functions_that_cannot_be_traced_are_told_of_with_who_is_blind() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "sys/kernel/btf/vmlinux", "x");
        assert_eq!(unseen(dir.path()), [""; 0], "no KVM");
        for (names, told) in [
            ("\0__apic_accept_irq\0kvm_vcpu_halt\0", &[][..]),
            ("\0__apic_accept_irq\0", &["halts and halted stay 0"]),
            (
                "\0__apic_accept_irq.isra.0\0kvm_vcpu_halt\0",
                &["credit1 and ische boost nobody"],
            ),
            ("\0", &["isacs sees no I/O", "kvm_vcpu_halt"]),
        ] {
            write(dir.path(), "sys/kernel/btf/kvm", names);
            let said = unseen(dir.path());
            assert_eq!(said.len(), told.len(), "{said:?}");
            for (line, part) in said.iter().zip(told) {
                assert!(line.contains(part) && line.lines().count() == 1, "{line}");
            }
        }
    }

    #[test]
    fn posted_interrupts_are_told_of_where_both_sides_can() {
        let dir = tempfile::tempdir().unwrap();
        for (apicv, cap, told) in [
            ("Y", "d2008c40660462", false),
            // Without an IOMMU that posts nothing is passed by.
            ("Y", "0", false),
            ("N", "8d2078c106f0466", true),
            ("Y", "8d2078c106f0466", true),
        ] {
            write(
                dir.path(),
                "sys/module/kvm_intel/parameters/enable_apicv",
                apicv,
            );
            write(dir.path(), "sys/class/iommu/dmar0/intel-iommu/cap", cap);
            let said = unseen(dir.path());
            let told = told && apicv == "Y";
            assert_eq!(said.len(), usize::from(told), "{said:?}");
            assert!(said.iter().all(|line| line.ends_with("enable_apicv=0")));
        }
    }
}
