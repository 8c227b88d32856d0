// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a pCPU without work looks for a vCPU (`waiting.h`), on a host of 150 pCPUs.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;

use libbpf_rs::libbpf_sys;

use super::kernel::Kernel;
use super::kernel::Kind;
use super::kernel::entry;
use super::kernel::sv_pcpu;
use super::kernel::sv_step;
use crate::load::Rules;
use crate::skel::replay::types::sv_crowd;

/// Three words of bits, of which the last one is not full.
const CPUS: u32 = 150;

/// vCPUs of all who come and go: `SV_CROWD` of two.
const VCPUS: usize = 8;

fn step(kernel: &Kernel<'_>, kind: Kind, vcpu: u32, b: u32) {
    kernel.step(
        kind,
        sv_step {
            vcpu,
            b,
            ..sv_step::default()
        },
    );
}

/// Where `cpu` looks when `has` is the pCPU that has one for it.
fn looks(kernel: &Kernel<'_>, cpu: u32, has: Option<u32>) -> Vec<u32> {
    let asked = sv_step {
        a: has.map_or(0, |cpu| u64::from(cpu) + 1),
        b: cpu,
        ..sv_step::default()
    };
    let (got, _) = kernel.step(Kind::Steal, asked);
    let bss = kernel.0.maps.bss_data.as_deref().unwrap();
    let looked = bss.looked[..bss.nr_looked as usize].to_vec();
    assert_eq!(got == 1, has.is_some_and(|has| looked.contains(&has)));
    looked
}

/// Each vCPU is counted once, on the pCPU that its note names, and its bit is set.
fn is_consistent(kernel: &Kernel<'_>) {
    let bss = kernel.0.maps.bss_data.as_deref().unwrap();
    let noted: Vec<u32> = (0..VCPUS)
        .map(|at| kernel.vcpu(at).noted as u32)
        .filter(|cpu| *cpu > 0)
        .map(|cpu| cpu - 1)
        .collect();
    for cpu in 0..CPUS {
        let pcpu: sv_pcpu = entry(&kernel.0.maps.pcpus, cpu as usize);
        let here = noted.iter().filter(|at| **at == cpu).count();
        assert_eq!(pcpu.waiting as usize, here, "pCPU {cpu}, {noted:?}");
        let set = bss.waiting_cpus[cpu as usize / 64] >> (cpu % 64) & 1;
        assert!(here == 0 || set == 1, "pCPU {cpu}");
    }
}

#[test]
fn root_a_cpu_without_work_looks_only_where_somebody_waits() {
    let mut storage = MaybeUninit::uninit();
    let kernel = Kernel::of(CPUS, &Rules::Never, &mut storage);
    for cpu in 0..CPUS {
        assert!(looks(&kernel, cpu, None).is_empty());
    }
    for (vcpu, cpu) in [(0, 149), (1, 3), (2, 64), (3, 70), (4, 70), (5, 127)] {
        step(&kernel, Kind::Queued, vcpu, cpu);
    }
    // The neighbours first, around the end, and never at itself.
    assert_eq!(looks(&kernel, 0, None), [3, 64, 70, 127, 149]);
    assert_eq!(looks(&kernel, 70, None), [127, 149, 3, 64]);
    assert_eq!(looks(&kernel, 128, None), [149, 3, 64, 70, 127]);
    assert_eq!(looks(&kernel, 149, None), [3, 64, 70, 127]);
    // Not further than where it gets one.
    assert_eq!(looks(&kernel, 63, Some(127)), [64, 70, 127]);
    is_consistent(&kernel);

    // One of two leaves; one goes elsewhere; one comes to another pCPU without leaving.
    step(&kernel, Kind::Left, 3, 0);
    step(&kernel, Kind::Goes, 0, 5);
    step(&kernel, Kind::Queued, 2, 66);
    assert_eq!(looks(&kernel, 0, None), [3, 5, 66, 70, 127]);
    for vcpu in [0, 1, 2, 4, 5, 5] {
        step(&kernel, Kind::Left, vcpu, 0);
    }
    assert!(looks(&kernel, 0, None).is_empty());
    is_consistent(&kernel);
    let bss = kernel.0.maps.bss_data.as_deref().unwrap();
    assert!(bss.waiting_cpus.iter().all(|word| *word == 0));

    // A pCPU where one waited and nobody does is the only one that looks: its own bit goes too,
    // and stays while somebody waits.
    step(&kernel, Kind::Queued, 0, 70);
    assert!(looks(&kernel, 70, None).is_empty());
    assert_eq!(looks(&kernel, 71, None), [70]);
    step(&kernel, Kind::Left, 0, 0);
    assert!(looks(&kernel, 70, None).is_empty());
    let bss = kernel.0.maps.bss_data.as_deref().unwrap();
    assert!(bss.waiting_cpus.iter().all(|word| *word == 0));

    // Nobody knows when such a thread leaves.
    for _ in 0..2 {
        step(&kernel, Kind::Strange, 0, 9);
        step(&kernel, Kind::Queued, 0, 9);
        step(&kernel, Kind::Left, 0, 0);
        assert_eq!(looks(&kernel, 100, None), [9]);
    }
}

/// Two who come and go, each with vCPUs of its own as under the locks of their run queues; two
/// who take those elsewhere, and two who look: all at once, as often as the machine can. A bit
/// that is lost for a moment is seen only at the end of a round.
#[test]
fn root_each_who_waits_is_counted_once_whoever_moves_him() {
    let mut storage = MaybeUninit::uninit();
    let kernel = Kernel::of(CPUS, &Rules::Never, &mut storage);
    let program = kernel.0.progs.crowd.as_fd();
    for round in 0..20 {
        std::thread::scope(|scope| {
            for (at, (who, first)) in [(0, 0), (0, 4), (1, 0), (1, 0), (2, 0), (2, 0)]
                .into_iter()
                .enumerate()
            {
                let crowd = sv_crowd {
                    who,
                    first,
                    steps: 20_000,
                    random: 1 + round * 6 + at as u32,
                };
                scope.spawn(move || run(program, crowd));
            }
        });
        is_consistent(&kernel);
    }
    // Whoever is counted still is found, and nobody else.
    let mut found = looks(&kernel, 0, None);
    found.sort_unstable();
    let mut noted: Vec<u32> = (0..VCPUS)
        .map(|at| kernel.vcpu(at).noted as u32)
        .filter(|cpu| *cpu > 1)
        .map(|cpu| cpu - 1)
        .collect();
    noted.sort_unstable();
    noted.dedup();
    assert_eq!(found, noted);
}

/// Runs the program once. libbpf-rs' handles stay in their thread.
fn run(program: BorrowedFd<'_>, mut crowd: sv_crowd) {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        ctx_in: (&raw mut crowd).cast(),
        ctx_size_in: size_of::<sv_crowd>() as u32,
        ..Default::default()
    };
    // SAFETY: the options and what they point to outlive the call.
    let done = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!((done, options.retval), (0, 0));
}
