// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedulers that are broken, hosts that are busy, CPUs and VMs that come and go, and
//! a VM that wants more than its share.

use scx_vcpu::config::Class;
use units::Ns;
use vlab::vm::Output;

use super::boot;
use super::number;
use super::ran;
use super::said;
use super::share;
use super::vcpus;

#[test]
fn root_vm_scx_vcpu_survives_hotplug_stress_and_attackers() {
    let output = boot(include_str!("ends.sh"));
    the_host_goes_on_beside_vcpus_that_stand(&output);
    assert_eq!(number(&output, "never-exit"), 1);
    let why = said(&output, "never-said");
    assert!(
        why.contains("the kernel ended the scheduler") && why.contains("stall"),
        "{why}"
    );
    assert_eq!(said(&output, "never-state"), "disabled");
    assert_eq!(said(&output, "never-labels").trim(), "0");
    assert!(number(&output, "never-ran-ms") > 1000, "tasks were lost");

    // The host comes first; the kernel keeps a twentieth of each CPU for the rest.
    let stress = vcpus(&output, "stress", 4);
    let calm = vcpus(&output, "calm", 4);
    eprintln!(
        "busy host: its threads ran {} ms, vCPUs {}; calm: vCPUs {}",
        number(&output, "stress-hogs"),
        ran(&stress),
        ran(&calm)
    );
    assert!(stress.iter().all(|vcpu| vcpu.ran > Ns::ZERO), "{stress:?}");
    assert!(number(&output, "stress-hogs") > 3000);
    assert!(ran(&calm) > Ns::from_secs(4), "{calm:?}");

    let offline = vcpus(&output, "offline", 4);
    assert!(offline.iter().all(|vcpu| vcpu.cpu == 0), "{offline:?}");
    let online = vcpus(&output, "online", 4);
    for vcpus in [&offline, &online] {
        assert!(vcpus.iter().all(|vcpu| vcpu.ran > Ns::ZERO), "{vcpus:?}");
        let weights: Vec<u32> = vcpus.iter().map(|vcpu| vcpu.weight).collect();
        assert_eq!(weights, [1024, 1024, 256, 256]);
    }
    let share = share(&online[..2], &online[2..]);
    eprintln!("after hotplug, 1024 : 256: share {share:.3}");
    assert!(share > 0.7, "{online:?}");
    assert_eq!(number(&output, "came"), 5);
    assert_eq!(number(&output, "went"), 4);
    let found: Vec<u64> = (1..=5)
        .map(|start| number(&output, &format!("start-{start}-ms")))
        .collect();
    eprintln!("VMs that start are listed after {found:?} ms");
    assert!(found.iter().all(|ms| *ms < 2500), "{found:?}");
    assert_eq!(number(&output, "ends-exit"), 0);

    // K7, K14, S8: nobody waits beside an idle pCPU.
    for policy in ["fixed", "credit1", "credit2", "vslicer", "isacs", "ische"] {
        let roam = vcpus(&output, &format!("roam-{policy}"), 2);
        let ran = ran(&roam);
        eprintln!("{policy}: two vCPUs and two pCPUs: ran {ran} in 1 s");
        assert!(ran > Ns::from_ms(1300), "{policy}: {roam:?}");
    }

    for policy in ["credit1", "credit2", "isacs"] {
        let gain = |key: &str| {
            let all = vcpus(&output, &format!("attack-{policy}{key}"), 3);
            // Beside the mean of both others: they differ among themselves by whole turns.
            let (own, other) = (ran(&all[2..]), ran(&all[..2]) / 2);
            (own.0 as f64 / (own + other).0 as f64, all)
        };
        let (published, as_published) = gain("");
        let (fixed, all) = gain("-fixed");
        eprintln!("an attacker's part of its pCPU: {policy} {published:.3}, fixed {fixed:.3}");
        // K4 boosts whoever a device wakes, whatever it owes: who sleeps before its 10 ms are
        // over may run for ever (`policy::host::credit1`), and does when no host thread
        // happens to end a boosted turn of it. That is the weakness; the fix is held to.
        if policy != "credit1" {
            assert!(published < 0.51, "{policy}: {as_published:?}");
        }
        assert!(fixed < 0.51, "{policy}: {all:?}");
    }
    // Its interrupts are less than the published cut-off apart (I6).
    let isacs = vcpus(&output, "attack-isacs", 3);
    eprintln!("isacs: IVCredit of the attacker {}", isacs[2].ivcredit);
    assert_eq!(isacs[0].ivcredit, Ns::ZERO);

    let classes = vcpus(&output, "automatic", 3)
        .into_iter()
        .map(|vcpu| vcpu.class);
    assert_eq!(
        classes.collect::<Vec<_>>(),
        [Class::Cpu, Class::Cpu, Class::Io]
    );

    // Both pCPUs are cores of iSche again, one for each class.
    let cores = vcpus(&output, "cores", 3);
    assert_eq!(cores[0].cpu, cores[1].cpu, "{cores:?}");
    assert_ne!(cores[0].cpu, cores[2].cpu, "{cores:?}");
}

/// While the scheduler that dispatches nobody is in the kernel.
fn the_host_goes_on_beside_vcpus_that_stand(output: &Output) {
    #[derive(serde::Deserialize)]
    struct Wake {
        wakeups: u64,
        p99_ns: u64,
        max_ns: u64,
    }
    assert_eq!(said(output, "never-during"), "enabled");
    let vcpus_ran = ran(&vcpus(output, "never-vcpus", 4)) - ran(&vcpus(output, "never-before", 4));
    let wake: Wake = serde_json::from_str(said(output, "never-wake")).unwrap();
    let (hog, window) = (
        number(output, "never-hog-ms"),
        number(output, "never-window-ms"),
    );
    eprintln!(
        "beside vCPUs that stand: a thread that computes ran {hog} of {window} ms, {} wake-ups waited {} (99 %), {} (longest)",
        wake.wakeups,
        Ns(wake.p99_ns),
        Ns(wake.max_ns)
    );
    assert_eq!(vcpus_ran, Ns::ZERO, "nobody is dispatched");
    // Two pCPUs, and beside it only threads that mostly sleep: it could have nearly all of one.
    // Half of it is for the programs that measure, which start meanwhile on a slow machine.
    assert!(hog * 2 > window, "{hog} of {window} ms");
    // Of 800 that there can be in 2 s; fewer if the one that wakes is late itself.
    assert!(wake.wakeups > 200, "{}", wake.wakeups);
    // A thread that waited for vCPUs would do so until the watchdog comes, for seconds. 0.3 s is
    // what an emulated pCPU was seen to stand still (`busy.rs`), which is no hundredth of all.
    assert!(wake.p99_ns < 100_000_000, "{}", Ns(wake.p99_ns));
    assert!(wake.max_ns < 1_000_000_000, "{}", Ns(wake.max_ns));
}
