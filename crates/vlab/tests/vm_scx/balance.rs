// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load of pCPUs that are all busy.

use std::collections::BTreeMap;

use scx_vcpu::table::Vcpu;
use units::Ns;

use super::boot;
use super::number;
use super::vcpus;

/// Between the vCPU that had most and the one that had least.
fn spread(vcpus: &[Vcpu]) -> f64 {
    let ran = || vcpus.iter().map(|vcpu| vcpu.ran.0 as f64);
    ran().fold(0.0, f64::max) / ran().fold(f64::INFINITY, f64::min)
}

/// K14, A8: no pCPU is idle, but three vCPUs share one and the fourth has the other.
#[test]
fn root_vm_scx_vcpu_credit2_evens_out_load() {
    let output = boot(include_str!("balance.sh"));
    // K7: of two that burn what they are given in turn at most one has credit.
    let ran = |takes: &str| -> f64 {
        let vcpus = vcpus(&output, takes, 2);
        let ran: Ns = vcpus.iter().map(|vcpu| vcpu.ran).sum();
        let wanted: Ns = vcpus.iter().map(|vcpu| vcpu.ran + vcpu.waited).sum();
        ran.0 as f64 / wanted.0 as f64
    };
    let (anybody, under) = (ran("anybody"), ["under-1", "under-2", "under-3"].map(ran));
    eprintln!(
        "ran of what they wanted: {anybody:.2}, where an idle pCPU takes no OVER {under:.2?}"
    );
    assert!(anybody > 0.65, "{}", output.stdout);
    // How long who is OVER has to wait is a matter of when both began: 0.50 to 0.78 were seen
    // beside 0.88 and 0.92.
    let least = under.into_iter().fold(f64::INFINITY, f64::min);
    assert!(least < anybody - 0.1, "{}", output.stdout);

    // A8: algorithm 2, which looks at I/O, moves nobody here. Most looks see it: whoever looks
    // holds a pCPU at times.
    for policy in ["credit2", "isacs"] {
        let looks = |how: &str| -> Vec<f64> {
            let of = |look| spread(&vcpus(&output, &format!("{policy}-{how}-{look}"), 4));
            let mut looks: Vec<f64> = (1..=3).map(of).collect();
            looks.sort_by(f64::total_cmp);
            looks
        };
        let (without, with) = (looks("off"), looks("on"));
        eprintln!("{policy}: most : least without balancing {without:.2?}, with it {with:.2?}");
        assert!(without[0] > 2.0, "{}", output.stdout);
        assert!(with[1] < 1.3, "{}", output.stdout);
    }

    // J11: who wakes whom; and halts, which only the one that is woken has.
    let all = vcpus(&output, "ipi", 6);
    let woken = &all[5];
    eprintln!(
        "woken {} times, halted {} times for {}",
        woken.wake_ipis, woken.halts, woken.halted
    );
    assert!(
        woken.wake_ipis > 10 && woken.ipi >= woken.wake_ipis,
        "{woken:?}"
    );
    assert!(woken.halts + 2 >= woken.wake_ipis, "{woken:?}");
    assert!(
        (Ns::from_ms(1)..Ns::from_secs(4)).contains(&woken.halted),
        "{woken:?}"
    );
    let still = &vcpus(&output, "still", 6)[5];
    assert!(still.wake_ipis >= woken.wake_ipis, "{still:?}");
    assert_eq!(
        still.wakers,
        BTreeMap::from([(0, still.wake_ipis)]),
        "{still:?}"
    );
    for other in &all[..5] {
        assert_eq!((other.wake_ipis, other.halts), (0, 0), "{other:?}");
    }
    assert_eq!(number(&output, "ipi-exit"), 0);
}
