// SPDX-License-Identifier: Apache-2.0 OR MIT
use clap::ValueEnum;

use super::text::wakers;
use super::*;
use crate::policy::Policy;

fn entry(state: u32, ran: u64) -> sv_vcpu {
    sv_vcpu {
        state,
        vm: 7,
        tid: 70,
        vcpu: 1,
        weight: 512,
        class: 1,
        ran_ns: ran,
        waited_ns: 20,
        longest_wait_ns: 12,
        slept_ns: 30,
        nr_turns: 4,
        nr_io: 8,
        nr_ipi: 9,
        nr_wake_ipi: 5,
        nr_halts: 6,
        halted_ns: 7,
        credit: -3_000_000,
        ivcredit: 1_500_000,
        turn_ns: 30_000_000,
        ..sv_vcpu::default()
    }
}

fn vcpu(state: u32, ran: u64) -> Option<Vcpu> {
    decode(bytes_of(&entry(state, ran)))
}

#[test]
fn an_entry_is_read_as_it_lies_there() {
    let vcpu = decode(bytes_of(&entry(3, 10))).unwrap();
    assert_eq!((vcpu.vm, vcpu.tid, vcpu.vcpu, vcpu.weight), (7, 70, 1, 512));
    assert_eq!(vcpu.class, Class::Io);
    assert_eq!(
        (vcpu.ran, vcpu.waited, vcpu.slept),
        (Ns(10), Ns(20), Ns(30))
    );
    assert_eq!(vcpu.longest_wait, Ns(12));
    assert_eq!((vcpu.io, vcpu.ipi, vcpu.credit), (8, 9, -3_000_000));
    assert_eq!((vcpu.halts, vcpu.halted, vcpu.wake_ipis), (6, Ns(7), 5));
    assert_eq!(decode(bytes_of(&entry(0, 10))), None, "nobody's");
    assert_eq!(decode(&bytes_of(&entry(3, 10))[..100]), None);
}

#[test]
fn a_pcpu_is_held_when_no_vcpu_has_run_there_for_long() {
    let at = |slot, left_ns| {
        let pcpu = sv_pcpu {
            slot,
            left_ns,
            ..sv_pcpu::default()
        };
        is_held(&pcpu, Time(HELD.0 * 3))
    };
    assert!(at(0, HELD.0 * 2) && at(0, 0), "nobody for as long, or ever");
    assert!(!at(0, HELD.0 * 2 + 1), "only just interrupted");
    assert!(!at(4, 0), "one runs");
    assert!(!at(0, HELD.0 * 4), "since the clock was read");
}

#[test]
fn a_difference_is_of_the_same_vcpu_only() {
    let woken = |state, ran, counts: &[(u32, u64)]| Vcpu {
        wakers: counts.iter().copied().collect(),
        ..vcpu(state, ran).unwrap()
    };
    let old = woken(1, 10, &[(0, 4)]);
    let now = woken(1, 25, &[(0, 6), (3, 9)]);
    let of = since(std::slice::from_ref(&old), std::slice::from_ref(&now));
    assert_eq!(wakers(&of[0].wakers), "3: 9, 0: 2");
    let (older, newer) = (std::slice::from_ref(&old), std::slice::from_ref(&now));
    assert_eq!(since(older, newer)[0].ran, Ns(15));
    let other = Vcpu { vm: 8, ..old };
    assert_eq!(since(&[other], &[now])[0].ran, Ns(25));
}

/// While the scheduler comes or goes a vCPU is in the table, at rest, or both.
#[test]
fn a_vcpu_that_is_on_its_way_is_listed_once() {
    let of = |state, vm, tid| Vcpu {
        state,
        vm,
        tid,
        ..vcpu(1, 10).unwrap()
    };
    let rests = |tids: &[u32]| tids.iter().map(|tid| of(State::Rests, 7, *tid)).collect();
    let scheduled = vec![of(State::Asleep, 7, 71), of(State::Runs, 9, 70)];
    let all = one_each([scheduled, rests(&[71, 72]), rests(&[70, 71, 72])]);
    let all: Vec<_> = all.iter().map(|v| (v.vm, v.tid, v.state)).collect();
    let expected = [
        (7, 70, State::Rests),
        (7, 71, State::Asleep),
        (7, 72, State::Rests),
        (9, 70, State::Runs),
    ];
    assert_eq!(all, expected);
    assert_eq!(one_each([vec![], vec![], vec![]]), []);
    let mut both = one_each([vec![of(State::Runs, 7, 70)], rests(&[71]), vec![]]);
    complete(&mut both, "credit2");
    assert_eq!([&*both[0].policy, &*both[1].policy], ["credit2", ""]);
}

#[test]
fn shares_are_of_all_that_ran() {
    let a = vcpu(3, 20).unwrap();
    let (sibling, other) = (
        Vcpu {
            tid: 71,
            ran: Ns(10),
            ..a.clone()
        },
        Vcpu {
            vm: 9,
            tid: 90,
            ran: Ns(10),
            ..a.clone()
        },
    );
    let mut all = [a, sibling, other];
    add_shares(&mut all);
    let shares = all
        .each_ref()
        .map(|vcpu| (vcpu.share_permille, vcpu.vm_share_permille));
    assert_eq!(shares, [(500, 750), (250, 750), (250, 250)]);
    let json = serde_json::to_string(&all[1]).unwrap();
    assert!(
        json.contains("\"share_permille\":250,\"vm_share_permille\":750"),
        "{json}"
    );
    let text = text(&all);
    assert!(text.contains("75.0 %") && text.contains("25.0 %"), "{text}");
    // The slice, the credit and what I/O adds to it.
    assert!(text.contains("30 ms      -3.00       1.50"), "{text}");

    // Of a difference they are its own.
    let mut later = all.clone();
    later[2].ran += Ns(30);
    let of = since(&all, &later);
    assert_eq!(of[2].share_permille, 1000, "{of:?}");
    assert_eq!((of[0].vm_share_permille, of[1].share_permille), (0, 0));
    // Nobody ran: no share, and no division by zero.
    assert!(
        since(&all, &all)
            .iter()
            .all(|vcpu| vcpu.share_permille == 0)
    );
}

#[test]
fn the_policy_is_in_the_name_that_the_kernel_knows() {
    for policy in Policy::value_variants() {
        let name = format!("{}_{policy}\n", load::NAME);
        assert_eq!(policy_of(&name), Some(policy.to_string().as_str()));
        // The kernel takes letters, digits, `_` and `.`.
        let plain = |c: char| c.is_ascii_alphanumeric();
        assert!(!policy.to_string().is_empty() && policy.to_string().chars().all(plain));
    }
    assert_eq!(policy_of("scx_vcpu\n"), Some(""));
    assert_eq!(policy_of("scx_vcpus_credit1"), None);
    assert_eq!(policy_of("rusty"), None);
    assert_eq!(policy_of(""), None);
}
