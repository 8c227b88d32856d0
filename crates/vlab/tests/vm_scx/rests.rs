// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler leaves the kernel while no vCPU wants CPU time, and nothing is forgotten.

use scx_vcpu::table::State;
use scx_vcpu::table::Vcpu;
use units::Ns;

use super::boot;
use super::number;
use super::said;
use super::vcpus;

/// Counters never go back.
fn go_on(before: &[Vcpu], after: &[Vcpu]) {
    for (before, after) in before.iter().zip(after) {
        assert_eq!((before.vm, before.tid), (after.vm, after.tid));
        let counters = |vcpu: &Vcpu| {
            let times = [vcpu.ran, vcpu.waited, vcpu.slept].map(|time| time.0);
            let counts = [vcpu.turns, vcpu.wakes, vcpu.io, vcpu.halts];
            times.into_iter().chain(counts).collect::<Vec<_>>()
        };
        let pairs = counters(before).into_iter().zip(counters(after));
        for (before, after) in pairs {
            assert!(before <= after, "{before:?}\n{after:?}");
        }
    }
}

fn had(vcpu: &Vcpu) -> Ns {
    vcpu.ran + vcpu.waited + vcpu.slept
}

#[test]
fn root_vm_scx_vcpu_rests_while_no_vcpu_wants_time() {
    let output = boot(include_str!("rests.sh"));
    assert_eq!(said(&output, "busy-state"), "enabled 0");
    let all = ["before", "rest-early", "rest-late", "after"].map(|key| vcpus(&output, key, 4));
    for [earlier, later] in all.array_windows() {
        go_on(earlier, later);
    }
    let [before, early, late, _] = &all;
    let [stopped, rested, goes_on, attached] =
        ["stopped-at", "rested-at", "goes-on-at", "attached-at"].map(|key| number(&output, key));
    eprintln!(
        "rests {} after the last one computed; back {} after it goes on, attached in {:?}",
        Ns(rested - stopped),
        Ns(attached - goes_on),
        output
            .stdout
            .lines()
            .filter_map(|line| line.strip_prefix("attach-took "))
            .collect::<Vec<_>>()
    );
    assert!(Ns(rested - stopped) >= Ns::from_secs(2));
    assert_eq!(said(&output, "rest-state"), "disabled");
    let [looks, short] = ["looks", "looks-short"].map(|key| number(&output, key));
    eprintln!("`list` was asked {looks} times from before to after the step into a rest");
    assert!(looks >= 5);
    assert_eq!(short, 0, "none of them without a vCPU");
    // They are still found and marked as ours.
    assert_eq!(said(&output, "rest-labels").trim(), "7");
    assert!(said(&output, "rest-says").starts_with("no vCPU wants CPU time"));
    assert!(early.iter().all(|vcpu| vcpu.state == State::Rests));
    assert!(before.iter().all(|vcpu| vcpu.state != State::Rests));
    // Five seconds of sleep, told every second.
    for (early, late) in early.iter().zip(late) {
        let passed = had(late) - had(early);
        eprintln!(
            "vCPU {} of VM {} in about 5 s of rest: ran {}, slept {}",
            late.vcpu,
            late.vm,
            late.ran - early.ran,
            late.slept - early.slept
        );
        assert!(
            (Ns::from_ms(3900)..Ns::from_ms(7000)).contains(&passed),
            "{passed}"
        );
        assert!(late.ran - early.ran < Ns::from_ms(500), "{late:?}");
    }
    // It works a moment every second also then.
    assert!(
        late[2..]
            .iter()
            .zip(&early[2..])
            .all(|(l, e)| l.ran > e.ran)
    );

    let set = vcpus(&output, "rest-set", 4);
    assert!(set.iter().all(|vcpu| vcpu.state == State::Rests));
    let weights = vcpus(&output, "weights", 4);
    for listed in [&set, &weights] {
        let worth = |vcpu: &Vcpu| (vcpu.weight, vcpu.cap_permille);
        let of: Vec<_> = listed.iter().map(worth).collect();
        assert_eq!(of, [(512, 0), (512, 0), (1024, 450), (1024, 450)]);
        let times = (listed[3].own_slice, listed[3].latency);
        assert_eq!(times, (Ns::from_ms(20), Ns::from_ms(5)));
    }
    let ran = weights[0].ran + weights[1].ran;
    assert!(ran > Ns::from_ms(3500), "one pCPU, alone: {weights:?}");

    assert_eq!(number(&output, "rests-exit"), 0);
    assert_eq!(said(&output, "rests-labels").trim(), "0");
    assert_eq!(number(&output, "rests-pins"), 0);
    assert_eq!(number(&output, "gone-exit"), 0);
    assert_eq!(said(&output, "gone-state"), "disabled");
    for stays in ["stays", "traces"] {
        assert_eq!(said(&output, &format!("{stays}-state")), "enabled");
        assert_eq!(number(&output, &format!("{stays}-exit")), 0);
    }
}
