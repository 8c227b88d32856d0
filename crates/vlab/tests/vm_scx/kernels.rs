// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every kernel with sched_ext that Debian ships: the verifier takes all programs and each
//! policy schedules two VMs, or the scheduler says which function is missing.

use vlab::vm::SCHED_EXT;

use super::Machine;
use super::boot_with;
use super::number;
use super::ran;
use super::said;
use super::vcpus;

/// Some of them only, with spaces between.
const CHOICE: &str = "SCX_KERNELS";

/// Instructions that the verifier went through, by policy: programs, the most, the sum.
fn verified(stdout: &str, policy: &str) -> (usize, u32, u32) {
    let counts = stdout.lines().filter_map(|line| {
        let rest = line.strip_prefix("verified: ")?.strip_prefix(policy)?;
        let (_, count) = rest.strip_prefix(' ')?.split_once(' ')?;
        count.parse::<u32>().ok()
    });
    counts.fold((0, 0, 0), |(n, most, sum), count| {
        (n + 1, most.max(count), sum + count)
    })
}

#[test]
#[ignore = "fetches and boots five kernels; part of the long proofs, see docs/scx_vcpu.md"]
fn root_vm_scx_vcpu_on_every_kernel_with_sched_ext() {
    let choice = std::env::var(CHOICE).unwrap_or_else(|_| SCHED_EXT.join(" "));
    for series in choice.split_whitespace() {
        let output = boot_with(
            include_str!("kernels.sh"),
            Machine {
                series: Some(series),
                ..Machine::default()
            },
        );
        let release = said(&output, "release");
        eprintln!("{series}: {release}");
        // docs/scx_vcpu.md, "Which kernels".
        let lacks = [
            ("6.18", "it lacks scx_bpf_"),
            ("7.2", "BTF lacks bpf_iter_scx_dsq_new_impl, scx_bpf_"),
            ("7.3-rt", "built for real time"),
        ];
        let frozen = said(&output, "freeze");
        eprintln!("  freeze: {frozen}");
        if series == "7.3-rt" {
            assert!(frozen.contains("built for real time"), "{frozen}");
        } else {
            assert!(frozen.starts_with("0 "), "{frozen}");
        }
        if let Some((_, why)) = lacks.iter().find(|(lacking, _)| *lacking == series) {
            for key in ["doctor", "run"] {
                let said = said(&output, key);
                eprintln!("  {key}: {said}");
                assert!(said.starts_with("3 "), "{said}");
                assert!(said.contains(why), "{said}");
            }
            continue;
        }
        assert_eq!(number(&output, "programs"), 0, "{}", output.stdout);
        for policy in ["fixed", "credit1", "credit2", "vslicer", "ische", "isacs"] {
            let (programs, most, sum) = verified(&output.stdout, policy);
            let all = vcpus(&output, &format!("{policy}-1"), 4);
            let (first, second) = (ran(&all[..2]), ran(&all[2..]));
            eprintln!(
                "  {policy}: {programs} programs, {most} instructions at most, {sum} in all; VMs ran {first} and {second}"
            );
            assert!(programs >= 15, "{}", output.stdout);
            // The kernel gives up at a million.
            assert!((1..500_000).contains(&most), "{most}");
            let part = first.0 as f64 / (first + second).0 as f64;
            assert!((0.4..0.6).contains(&part), "{policy}: {all:?}");
            assert_eq!(number(&output, &format!("{policy}-exit")), 0);
            assert_eq!(said(&output, &format!("{policy}-state")), "disabled");
        }
    }
}
