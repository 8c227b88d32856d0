// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said of single VMs, by a user and by cgroups; what is charged; and what the
//! kernel's verifier went through.

use std::collections::BTreeMap;

use units::Ns;
use vlab::vm::Output;

use super::boot;
use super::number;
use super::policies::response;
use super::policies::share;
use super::policies::vcpus;
use super::policies::vms;
use super::said;

#[test]
fn root_vm_scx_vcpu_knobs_cgroups_and_charges() {
    let output = boot(include_str!("knobs.sh"));
    every_program_is_verified(&output);
    knobs_count_alone(&output, response(&vms(&output, "fixed")));
    cgroups_count(&output);
    run_time_is_the_kernels(&output);
    for key in ["fixed", "credit2", "masks"] {
        assert_eq!(number(&output, &format!("{key}-exit")), 0);
    }
}

/// A VM's slice, its rescheduling latency (J3) and its pCPUs, beside VMs that have none.
fn knobs_count_alone(output: &Output, fixed: Ns) {
    let knobs = vms(output, "fixed-knobs");
    eprintln!(
        "fixed, 5 ms beside 50 ms: share {:.3}; latency 2 ms: response {}, was {fixed}",
        share(&knobs),
        response(&knobs)
    );
    // 5 of 55 ms; without a slice of its own it has half.
    assert!(share(&knobs) < 0.25, "{knobs:?}");
    assert_eq!(knobs[0].own_slice, Ns::from_ms(5));
    assert!(knobs[0].slice <= Ns::from_ms(5), "{knobs:?}");
    assert_eq!(knobs[1].own_slice, Ns::ZERO);
    assert!(knobs[1].slice > Ns::from_ms(5), "{knobs:?}");
    assert_eq!(knobs[2].latency, Ns::from_ms(2));
    // The others' turns are 55 ms together.
    assert!(response(&knobs) < fixed / 3, "{knobs:?}");
    assert!(said(output, "pinned").contains("may run on none of these"));
    assert!(said(output, "unweighed").contains("fixed knows no weights"));

    let cpus = vcpus(output, "cpus");
    assert!(cpus[..2].iter().all(|vcpu| vcpu.cpu == 1), "{cpus:?}");
    // Two vCPU threads on the second one alone, and afterwards none.
    let only_second = |key: &str| said(output, key).contains(" 2 1 ");
    assert!(only_second("allowed"), "{}", said(output, "allowed"));
    assert!(!said(output, "allowed-after").trim().ends_with(" 1"));
    assert!(
        !only_second("allowed-after"),
        "{}",
        said(output, "allowed-after")
    );
}

/// `cpu.weight` multiplies a VM's weight; a cpuset is where it runs.
fn cgroups_count(output: &Output) {
    assert_eq!(number(output, "weighs"), 1024);
    let weighed = vms(output, "credit2-cgroup");
    eprintln!("credit2, 512 : 256 x 4: share {:.3}", share(&weighed));
    assert!((0.24..0.43).contains(&share(&weighed)), "{weighed:?}");
    let confined = vcpus(output, "credit2-cpuset");
    assert!(
        confined[2..4].iter().all(|vcpu| vcpu.cpu == 1),
        "{confined:?}"
    );
    assert!(confined[2..4].iter().all(|vcpu| vcpu.ran > Ns::ZERO));
}

/// `ran` of each vCPU lies between what the kernel said of its thread just before and
/// just after. A turn that goes on is in neither but for its part until the last tick.
fn run_time_is_the_kernels(output: &Output) {
    let kernels = |key: &str| -> BTreeMap<u32, u64> {
        said(output, key)
            .split_whitespace()
            .map(|word| {
                let (tid, ran) = word.split_once(':').unwrap();
                (tid.parse().unwrap(), ran.parse().unwrap())
            })
            .collect()
    };
    let (f0, f1) = (kernels("from-before"), kernels("from-after"));
    let (t0, t1) = (kernels("to-before"), kernels("to-after"));
    let (from, to) = (vcpus(output, "from-ours"), vcpus(output, "to-ours"));
    // A slice of 10 ms at each end, and a machine that is late.
    let slack = 40_000_000;
    for (from, to) in from.iter().zip(&to) {
        let (tid, ours) = (from.tid, (to.ran - from.ran).0);
        let least = (t0[&tid] - f1[&tid]).saturating_sub(slack);
        let most = t1[&tid] - f0[&tid] + slack;
        eprintln!(
            "vCPU {} of {}: ran {ours} ns, by the kernel {} to {}",
            to.vcpu,
            to.vm,
            t0[&tid] - f1[&tid],
            t1[&tid] - f0[&tid]
        );
        assert!((least..=most).contains(&ours), "{least} {ours} {most}");
    }
}

/// What the verifier went through for each, for the table in docs/scx_vcpu.md.
fn every_program_is_verified(output: &Output) {
    let mut all = Vec::new();
    for line in output.stdout.lines() {
        let Some(rest) = line.strip_prefix("verified: ") else {
            continue;
        };
        eprintln!("{line}");
        let words: Vec<&str> = rest.split(' ').collect();
        all.push((words[0], words[1], words[2].parse::<u32>().unwrap()));
    }
    for policy in ["fixed", "credit1", "credit2", "vslicer", "ische", "isacs"] {
        let mine: Vec<_> = all.iter().filter(|(of, ..)| *of == policy).collect();
        assert!(mine.len() >= 15, "{policy}: {mine:?}");
        // The kernel gives up at a million.
        assert!(
            mine.iter().all(|(.., count)| (1..500_000).contains(count)),
            "{mine:?}"
        );
    }
}
