// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each weight gets when turns do not end where credits do.

use units::Ns;
use units::Time;

use super::*;

/// Thousandths that the first of two vCPUs that compute has in 30 s, with weights 512
/// and 256. One turn in four ends early, at any moment (a host thread comes and the
/// choice is made anew), the others 1 ms late.
fn share(settings: &Settings, disturbed: bool) -> u64 {
    let mut table = [512, 256].map(|weight| Vcpu::new(Weight::new(weight), settings));
    let mut queue = RunQ {
        members: vec![0, 1],
        ..RunQ::default()
    };
    let (mut now, mut since, mut last) = (Time::ZERO, Time::ZERO, Ns::ZERO);
    let (mut ran, mut state) = ([Ns::ZERO; 2], 1u32);
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u64::from((state >> 8) % below)
    };
    while now < Time::ZERO + Ns::from_secs(30) {
        let elapsed = now.since(since);
        let pick = pick(&mut queue, &mut table, &[0, 1], last, elapsed, settings).unwrap();
        if pick.reallocated {
            since = now;
        }
        let turn = queue.slice(&table[pick.vcpu], settings);
        last = match (disturbed, random(4)) {
            (false, _) => turn,
            (true, 0) => turn.scaled(random(1000), 1000).max(Ns(1)),
            (true, _) => turn + Ns::from_ms(1),
        };
        now = now + last;
        ran[pick.vcpu] += last;
        queue.on_charge(&mut table[pick.vcpu], last, settings);
    }
    ran[0].as_ns() * 1000 / (ran[0] + ran[1]).as_ns()
}

/// The published reallocation replaces credits (I16): what a turn burned beyond its credit
/// is forgiven, as much of it to each vCPU, and that is more for one of small weight. Undisturbed
/// slices of 10 ms end where 10 ms of credit do, and nothing shows.
#[test]
fn a_reallocation_forgives_what_small_weights_owe() {
    let published = Settings::default();
    let keeps_debt = Settings {
        keeps_debt: true,
        ..published.clone()
    };
    let ends_with_credit = Settings {
        slice_ends_with_credit: true,
        ..published.clone()
    };
    assert_eq!(share(&published, false), 666);
    let disturbed = share(&published, true);
    assert!((640..662).contains(&disturbed), "{disturbed}");
    // Shorter slices do not help: now each round of either ends late once.
    let shorter = share(&ends_with_credit, true);
    assert!((640..662).contains(&shorter), "{shorter}");
    let kept = share(&keeps_debt, true);
    assert!(kept.abs_diff(666) <= 1, "{kept}");
}
